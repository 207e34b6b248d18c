//! Owns the pieces of one task's exchange as values, where they cannot lie in their destination's
//! slots, and spare values whose memory is used again. Slices call it: a scatter's kernel writes
//! into a [`PieceMap`], a gather's kernel reads a [`PieceQueue`]. It never sends a piece; the slice
//! does.

use brambling_memory::held::{self, Held};
use brambling_memory::{Budget, Class, OutOfMemory, mutants};
use brambling_program::{LinksAt, PayloadType, PieceSink, PieceSource, Value};
use std::panic::resume_unwind;
use std::sync::Mutex;
use std::vec::IntoIter;

/// Values of an exchange's pieces that nobody needs: their memory is used again.
///
/// Pieces whose clones share their memory are sent as clones of what their source has. What is overwritten so would lose the memory that
/// came with it, into which what comes next could be read: such values are kept apart from those that have none.
pub struct Spares {
    piece: &'static PayloadType,
    lists: Mutex<Lists>,
}

#[derive(Default)]
struct Lists {
    /// With memory of their own.
    roomy: Vec<Value>,
    /// Without.
    empty: Vec<Value>,
}

impl Spares {
    /// None yet, of pieces of this type.
    pub fn new(piece: &'static PayloadType) -> Spares {
        let lists = Mutex::default();
        Spares { piece, lists }
    }

    /// Whether clones of a piece share its memory.
    pub fn are_shared(&self) -> bool {
        self.piece.is_shared()
    }

    /// Whether to handle one may need an interpreter.
    pub fn are_interpreted(&self) -> bool {
        self.piece.is_interpreted()
    }

    /// A value that what has come is written to: what it is is not said.
    pub fn take(&self) -> Value {
        let mut lists = self.lists();
        let spare = lists.roomy.pop().or_else(|| lists.empty.pop());
        drop(lists);
        spare.unwrap_or_else(|| Value::default_of(self.piece))
    }

    /// A value that a kernel overwrites with what it sends.
    pub fn take_to_send(&self) -> Value {
        if !self.are_shared() {
            return self.take();
        }
        // A piece that destinations share starts without memory: its sender overwrites the value,
        // and memory in it would be lost.
        let spare = self.lists().empty.pop();
        spare.unwrap_or_else(|| Value::default_of(self.piece))
    }

    /// Nobody needs the value any more.
    pub fn put(&self, mut value: Value) {
        let is_roomy = value.let_go();
        let mut lists = self.lists();
        match is_roomy {
            true => lists.roomy.push(value),
            false => lists.empty.push(value),
        }
    }

    fn lists(&self) -> Held<'_, Lists> {
        held::lock(&self.lists)
    }
}

/// What a task may hold without having asked for room: small tasks ask once, when they end.
const UNCHARGED_BYTES_MAX: u64 = 64 << 10;

/// A kernel was left because the budget has no room for its pieces: the payload of the unwinding.
pub struct PiecesRefused(pub OutOfMemory);

/// A piece that a kernel has begun.
struct Begun {
    value: Value,
    /// What it took when it was last looked at.
    bytes: u64,
    /// How often the kernel has asked for it, and how often it had when it was last weighed.
    asked: u64,
    weighed: u64,
}

/// The pieces of one scatter, while its kernel writes them. Whoever says so has them counted meanwhile.
///
/// # How far the budget can be wrong
/// A piece is counted before it is made. What it owns is seen when the kernel asks for the next one, and
/// counted as soon as a task has more than [`UNCHARGED_BYTES_MAX`] that are not; the rest is counted before anything is
/// sent. So beyond the budget a task holds at most that many bytes, and what its kernel writes between
/// two calls: one piece. A piece that is asked for again and again, to be filled row by row, is weighed when
/// an eighth of its calls came since: weighing may visit its rows. So of such pieces an eighth of the rows is unseen;
/// a vector's spare capacity may be more, but nothing was written there.
///
/// # When there is no room
/// The kernel is left by unwinding with [`PiecesRefused`], which no hook sees: it must not go on allocating. A
/// kernel that catches it meets it again at its next call, and when it returns.
pub struct PieceMap<'a> {
    source: u32,
    links: LinksAt<'a>,
    piece: &'static PayloadType,
    /// Where values come from that are used again.
    spares: Option<&'a Spares>,
    begun: Vec<Begun>,
    /// For each place among the destinations its piece's number plus 1; 0 for none.
    numbers: Vec<u32>,
    /// The piece that the kernel may be writing.
    last: Option<usize>,
    /// Where they count while they are written.
    budget: Option<&'a Budget>,
    /// What they weighed together when last looked at.
    weight_bytes: u64,
    charged_bytes: u64,
    refused: Option<OutOfMemory>,
}

impl<'a> PieceMap<'a> {
    /// No pieces yet, from `source` to any of those to whom it is linked. Their memory comes from `spares`, if there are any; they count in `budget`.
    pub fn new(
        source: u32,
        links: LinksAt<'a>,
        piece: &'static PayloadType,
        spares: Option<&'a Spares>,
        budget: Option<&'a Budget>,
    ) -> PieceMap<'a> {
        let fan_out = links.fan_out(source) as usize;
        PieceMap {
            source,
            links,
            piece,
            spares,
            // One allocation; what no piece needs is never touched.
            begun: Vec::with_capacity(fan_out),
            numbers: vec![0; fan_out],
            last: None,
            budget,
            weight_bytes: 0,
            charged_bytes: 0,
            refused: None,
        }
    }

    /// The kernel has returned: what was sent, for each place among the destinations; where pieces count, with how many bytes.
    ///
    /// # Errors
    /// When there is no room for all of it. Nothing counts then.
    pub fn sent(mut self) -> Result<Sent, OutOfMemory> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        if self.budget.is_some() {
            for number in 0..self.begun.len() {
                if self.begun[number].weighed != self.begun[number].asked {
                    self.weigh(number);
                }
            }
            self.charge(self.weight_bytes)?;
        }
        // The pieces take their charge with them.
        self.charged_bytes = 0;
        let begun = std::mem::take(&mut self.begun);
        Ok(Sent {
            pieces: begun
                .into_iter()
                .map(|it| Some((it.value, it.bytes)))
                .collect(),
            numbers: std::mem::take(&mut self.numbers),
        })
    }

    fn piece(&mut self, place: u32) -> *mut u8 {
        if let Some(last) = self.last {
            let Begun { asked, weighed, .. } = self.begun[last];
            // Weighing looks at the whole piece. So a piece is weighed again only when it has been
            // asked for an eighth more often than before, and once at the end.
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
        self.begun[number].value.as_ptr()
    }

    fn begin(&mut self, place: u32) -> usize {
        let bytes = self.piece.layout().size() as u64;
        self.make_room(bytes);
        let value = match self.spares {
            Some(spares) => spares.take_to_send(),
            None => Value::default_of(self.piece),
        };
        self.weight_bytes += bytes;
        self.begun.push(Begun {
            value,
            bytes,
            asked: 0,
            weighed: 0,
        });
        self.numbers[place as usize] = self.begun.len() as u32;
        self.begun.len() - 1
    }

    fn weigh(&mut self, number: usize) {
        if self.budget.is_none() {
            return;
        }
        let begun = &mut self.begun[number];
        begun.weighed = begun.asked;
        if !self.piece.is_fixed() && !mutants::is_on("mailbox-weighs-no-content") {
            self.weight_bytes -= begun.bytes;
            begun.bytes = begun.value.bytes() as u64;
            self.weight_bytes += begun.bytes;
        }
    }

    /// Charges what has come together, and leaves the kernel when that is refused.
    #[inline]
    fn make_room(&mut self, more_bytes: u64) {
        let small = self.weight_bytes + more_bytes <= self.charged_bytes + UNCHARGED_BYTES_MAX;
        if small || self.budget.is_none() || mutants::is_on("mailbox-charges-only-at-the-end") {
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
            resume_unwind(Box::new(PiecesRefused(refused)));
        }
    }

    fn charge(&mut self, bytes: u64) -> Result<(), OutOfMemory> {
        if let Some(budget) = self.budget {
            budget.adjust(Class::Exchange, self.charged_bytes, bytes)?;
            self.charged_bytes = bytes;
        }
        Ok(())
    }
}

impl Drop for PieceMap<'_> {
    fn drop(&mut self) {
        self.begun.clear();
        // Giving back cannot fail.
        let _ = self.charge(0);
    }
}

/// What one scatter has sent.
pub struct Sent {
    pieces: Vec<Option<(Value, u64)>>,
    numbers: Vec<u32>,
}

impl Sent {
    /// What was sent to a place among the destinations, and the bytes for which it counts; once.
    pub fn take(&mut self, place: u32) -> Option<(Value, u64)> {
        let number = self.numbers[place as usize].checked_sub(1)?;
        self.pieces[number as usize].take()
    }

    /// Whether anything was sent there, whether or not it was taken.
    pub fn has(&self, place: u32) -> bool {
        self.numbers[place as usize] != 0
    }
}

impl PieceSink for PieceMap<'_> {
    fn slot(&mut self, destination: u32) -> Option<*mut u8> {
        let is_it = |place: u32| self.destination(place) == destination;
        // In a dense relation every destination has the place of its index.
        let here = Some(destination).filter(|&place| place < self.fan_out() && is_it(place));
        let place = here.or_else(|| (0..self.fan_out()).find(|&place| is_it(place)))?;
        Some(self.slot_at(place).1)
    }
    fn slot_at(&mut self, place: u32) -> (u32, *mut u8) {
        (self.destination(place), self.piece(place))
    }
    fn source(&self) -> u32 {
        self.source
    }
    fn fan_out(&self) -> u32 {
        self.numbers.len() as u32
    }
    fn destination(&self, place: u32) -> u32 {
        self.links.destination(self.source, place).0
    }
}

/// The pieces of one gather.
pub struct PieceQueue {
    left: IntoIter<(u32, Value)>,
    /// Alive as long as the kernel may look at them.
    given: Vec<Value>,
}

impl PieceQueue {
    /// Pieces by ascending source.
    pub fn new(pieces: Vec<(u32, Value)>) -> PieceQueue {
        PieceQueue {
            given: Vec::with_capacity(pieces.len()),
            left: pieces.into_iter(),
        }
    }

    /// What is left of them.
    pub fn into_values(self) -> impl Iterator<Item = Value> {
        self.given
            .into_iter()
            .chain(self.left.map(|(_, piece)| piece))
    }
}

impl PieceSource for PieceQueue {
    fn next(&mut self) -> Option<(u32, *mut u8)> {
        let (source, mut piece) = self.left.next()?;
        piece.make_unique();
        let place = piece.as_ptr();
        self.given.push(piece);
        Some((source, place))
    }
}

#[cfg(test)]
mod tests;
