//! A thread's mail: which shards others have woken. A set of bits, so that posting neither allocates nor locks.
//!
//! # Why no shard is left lying
//! Whoever posts sets the shard's bit and then, unless it is up already, the flag; who puts the flag up also
//! asks whether the thread sleeps. The thread takes the flag down before it reads the bits, and looks at the
//! flag once more after it has said that it sleeps. All of these are sequentially consistent: a bit set after
//! the reading finds the flag down and puts it up again.

use crate::executor::sync::{AtomicBool, AtomicU64, Ordering};

/// Words that several threads write lie on lines of their own.
#[repr(align(128))]
struct Line([AtomicU64; 16]);

#[repr(align(128))]
struct Flag(AtomicBool);

#[cfg(not(loom))]
const _: () = assert!(align_of::<Line>() == 128 && align_of::<Flag>() == 128);

/// Which shards have been woken by others.
pub struct Mail {
    flag: Flag,
    lines: Box<[Line]>,
}

impl Mail {
    /// Nothing posted, for shards `0..count`.
    pub fn new(count: usize) -> Mail {
        let line = |_| Line(std::array::from_fn(|_| AtomicU64::new(0)));
        Mail {
            flag: Flag(AtomicBool::new(false)),
            lines: (0..count.div_ceil(64 * 16)).map(line).collect(),
        }
    }

    /// Posts a shard. True when the caller must wake the thread if it sleeps.
    #[inline]
    pub fn post(&self, shard: u32) -> bool {
        let word = &self.lines[shard as usize / 1_024].0[shard as usize / 64 % 16];
        word.fetch_or(1 << (shard % 64), Ordering::SeqCst);
        !self.flag.0.load(Ordering::SeqCst) && !self.flag.0.swap(true, Ordering::SeqCst)
    }

    /// Whether something was posted.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.flag.0.load(Ordering::SeqCst)
    }

    /// Takes everything that was posted.
    pub fn take(&self, mut each: impl FnMut(u32)) {
        self.flag.0.swap(false, Ordering::SeqCst);
        for (line, words) in self.lines.iter().enumerate() {
            for (place, word) in words.0.iter().enumerate() {
                if word.load(Ordering::SeqCst) == 0 {
                    continue;
                }
                let mut bits = word.swap(0, Ordering::SeqCst);
                while bits != 0 {
                    each((line * 1_024 + place * 64) as u32 + bits.trailing_zeros());
                    bits &= bits - 1;
                }
            }
        }
    }
}
