//! Owns the set of a thread's shards that others have woken: a bit for each, so that posting neither allocates nor
//! locks. Any thread posts; the thread itself takes what was posted, or a thief that has locked its owner out. It never
//! says what has come: whoever is woken looks.
//!
//! # Why no shard is left lying
//! Whoever posts sets the shard's bit and then, unless it is up already, the flag; who puts the flag up also
//! asks whether the thread sleeps. The thread takes the flag down before it reads the bits, and looks at the
//! flag once more after it has said that it sleeps. All of these are sequentially consistent: a bit set after
//! the reading finds the flag down and puts it up again.

use crate::executor::sync::{AtomicBool, AtomicU64, Ordering};

/// The flag, and the bits of the first shards: for most jobs all that a poster writes is one line.
#[repr(align(128))]
struct First {
    flag: AtomicBool,
    words: [AtomicU64; FIRST_WORDS],
}

/// Words that several threads write lie on lines of their own.
#[repr(align(128))]
struct DoorbellLine([AtomicU64; 16]);

const FIRST_WORDS: usize = 15;

#[cfg(not(brambling_loom))]
const _: () = assert!(align_of::<DoorbellLine>() == 128 && size_of::<First>() == 128);

/// Which shards have been woken by others.
pub struct Doorbell {
    first: First,
    lines: Box<[DoorbellLine]>,
}

impl Doorbell {
    /// Nothing posted, for shards `0..count`.
    pub fn new(count: usize) -> Doorbell {
        let line = |_| DoorbellLine(std::array::from_fn(|_| AtomicU64::new(0)));
        let words = std::array::from_fn(|_| AtomicU64::new(0));
        let first = First {
            flag: AtomicBool::new(false),
            words,
        };
        let beyond = count.div_ceil(64).saturating_sub(FIRST_WORDS);
        Doorbell {
            first,
            lines: (0..beyond.div_ceil(16)).map(line).collect(),
        }
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        match index.checked_sub(FIRST_WORDS) {
            None => &self.first.words[index],
            Some(beyond) => &self.lines[beyond / 16].0[beyond % 16],
        }
    }

    /// Posts a shard. True when the caller must wake the thread if it sleeps.
    #[inline]
    pub fn post(&self, shard: u32) -> bool {
        let word = self.word(shard as usize / 64);
        // SeqCst: before the look at the flag, in the one order of all such steps. Pairs with
        // `take`, which lowers the flag before it reads the bits.
        word.fetch_or(1 << (shard % 64), Ordering::SeqCst);
        // A load first: while the flag is up somebody else has woken the thread, and the line stays
        // shared.
        !self.first.flag.load(Ordering::SeqCst) && !self.first.flag.swap(true, Ordering::SeqCst)
    }

    /// Whether something was posted.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.first.flag.load(Ordering::SeqCst)
    }

    /// Takes everything that was posted.
    pub fn take(&self, mut each: impl FnMut(u32)) {
        // The flag is lowered before the bits are read: whoever sets a bit later raises the flag
        // again. In the other order that bit would be left lying.
        self.first.flag.swap(false, Ordering::SeqCst);
        for index in 0..FIRST_WORDS + self.lines.len() * 16 {
            let word = self.word(index);
            // Most words are empty, and a swap would take their lines from whoever posts.
            if word.load(Ordering::SeqCst) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                each(index as u32 * 64 + bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
    }
}
