//! A scatter's letters until they are delivered: charged to the budget while the kernel writes them.
//!
//! # How far the budget can be wrong
//! A letter is charged before it is made. What its piece owns is seen when the kernel asks for the next one, and
//! charged as soon as a task has more than [`UNCHARGED_BYTES_MAX`] that are not; the rest is charged before anything is
//! delivered. So beyond the budget a task holds at most that many bytes, and what its kernel writes between
//! two calls: one piece. A piece that is asked for again and again, to be filled row by row, is weighed when
//! an eighth of its calls came since: weighing may visit its rows. So of such pieces an eighth of the rows is unseen;
//! a vector's spare capacity may be more, but nothing was written there.
//!
//! # When there is no room
//! The kernel is left by unwinding with [`Refused`], which no hook sees: it must not go on allocating. A
//! kernel that catches it meets it again at its next call, and when it returns.

use super::mailbox::{Letter, Mailbox};
use brambling_memory::{OutOfMemory, mutants};
use brambling_program::Turn;
use std::panic::resume_unwind;

/// What a task may hold without having asked: small tasks ask once, when they end.
const UNCHARGED_BYTES_MAX: u64 = 64 << 10;

/// A kernel was left because the budget has no room for its pieces: the payload of the unwinding.
pub struct Refused(pub OutOfMemory);

struct Begun {
    letter: Letter,
    place: u32,
    /// How often the kernel has asked for the piece, and how often it had when the letter was last weighed.
    asked: u64,
    weighed: u64,
}

/// The letters of one task. What is not delivered is freed, and given back.
pub(super) struct Sending<'a> {
    mailbox: &'a Mailbox,
    source: u32,
    begun: Vec<Begun>,
    /// For each place among the destinations its letter's number plus 1; 0 for none.
    numbers: Vec<u32>,
    /// The letter that the kernel may be writing.
    last: Option<usize>,
    /// What the letters weighed together when last looked at.
    weight_bytes: u64,
    charged_bytes: u64,
    refused: Option<OutOfMemory>,
}

impl<'a> Sending<'a> {
    pub(super) fn new(mailbox: &'a Mailbox, source: u32, fan_out: u32) -> Sending<'a> {
        Sending {
            mailbox,
            source,
            // One allocation; what no letter needs is never touched.
            begun: Vec::with_capacity(fan_out as usize),
            numbers: vec![0; fan_out as usize],
            last: None,
            weight_bytes: 0,
            charged_bytes: 0,
            refused: None,
        }
    }

    /// The piece at a place among the destinations, for the kernel to write until its next call.
    pub(super) fn piece(&mut self, place: u32) -> *mut u8 {
        if let Some(last) = self.last {
            let Begun { asked, weighed, .. } = self.begun[last];
            if asked - weighed > asked / 8 {
                self.weigh(last);
            }
        }
        let number = match self.numbers[place as usize] {
            0 => self.begin(place),
            number => {
                self.make_room(0);
                number as usize - 1
            }
        };
        self.last = Some(number);
        self.begun[number].asked += 1;
        self.begun[number].letter.piece()
    }

    fn begin(&mut self, place: u32) -> usize {
        self.make_room(self.mailbox.letter_bytes());
        let letter = self.mailbox.letter(self.source);
        self.weight_bytes += letter.bytes();
        self.begun.push(Begun {
            letter,
            place,
            asked: 0,
            weighed: 0,
        });
        self.numbers[place as usize] = self.begun.len() as u32;
        self.begun.len() - 1
    }

    fn weigh(&mut self, number: usize) {
        let begun = &mut self.begun[number];
        let old_bytes = begun.letter.bytes();
        begun.weighed = begun.asked;
        self.weight_bytes = self.weight_bytes - old_bytes + begun.letter.weigh();
    }

    /// Charges what has come together, and leaves the kernel when that is refused.
    #[inline]
    fn make_room(&mut self, more_bytes: u64) {
        let small = self.weight_bytes + more_bytes <= self.charged_bytes + UNCHARGED_BYTES_MAX;
        if small || mutants::is_on("mailbox-charges-only-at-the-end") {
            return;
        }
        self.charge_or_leave(self.weight_bytes + more_bytes);
    }

    #[cold]
    #[inline(never)]
    fn charge_or_leave(&mut self, wanted_bytes: u64) {
        let refused = self.refused.or_else(|| self.charge(wanted_bytes).err());
        // A second unwinding, from a destructor's call, would end the process.
        if let Some(refused) = refused
            && !std::thread::panicking()
        {
            self.refused = Some(refused);
            resume_unwind(Box::new(Refused(refused)));
        }
    }

    fn charge(&mut self, bytes: u64) -> Result<(), OutOfMemory> {
        self.mailbox.charge(self.charged_bytes, bytes)?;
        self.charged_bytes = bytes;
        Ok(())
    }

    /// Charges all letters exactly, then delivers them. `destination` says where a place is.
    pub(super) fn deliver(
        &mut self,
        turn: Turn,
        destination: impl Fn(u32) -> u32,
    ) -> Result<(), OutOfMemory> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        for number in 0..self.begun.len() {
            if self.begun[number].weighed != self.begun[number].asked {
                self.weigh(number);
            }
        }
        self.charge(self.weight_bytes)?;
        // The charge goes with the letters.
        self.charged_bytes = 0;
        for begun in self.begun.drain(..) {
            self.mailbox
                .deliver(turn, destination(begun.place), begun.letter);
        }
        Ok(())
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.begun.clear();
        // Giving back cannot fail.
        let _ = self.mailbox.charge(self.charged_bytes, 0);
    }
}
