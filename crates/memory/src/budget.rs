//! A job's part of its process's memory.
//!
//! # Rules
//! Each job has floors, one for each class, and what is nobody's floor is free, for all jobs of the process. A class fills its own floor
//! first and takes what is beyond it from the free bytes, which are those of [spares](crate::Spare) as well. So a class can always use its floor,
//! however full the rest is, and nobody else's use can reach into a floor that is not filled yet: the sum over jobs and classes of max(in use, floor) never exceeds the process's
//! budget. Floors change when jobs begin and end ([`Memory`](crate::Memory)).
//!
//! # What it bounds
//! What its users charge: the counters never exceed the budget. Memory itself can, by what is allocated before
//! it is charged; `docs/settings.md` lists each such place with its bound.
//!
//! # Why it cannot be broken by a race
//! Bytes beyond a floor are taken from the free ones *before* the class's own counter shows them, and given back *after* it stopped
//! showing them. The price: a reservation that races with another one of its class may be refused although it would have fitted a moment
//! later. A counter's word tells besides its bytes which of the class's last two floors counts. Whoever changes the floor writes the new one
//! first and then the word, and so knows exactly what was in use when it changed; whoever had read the old word finds that its exchange
//! fails, and begins again with the new floor. A word comes back to an old value only after 65,536 changes.

use crate::class::{Class, Floors, OutOfMemory};
use crate::mutants;
use crate::spare::SpareRoom;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// Of a counter's word the bits that are bytes; those above count its floors.
const BYTES_BITS: u32 = 48;
/// The most bytes that a class can use.
const BYTES_MAX: u64 = (1 << BYTES_BITS) - 1;

/// Counters of one class, on a line of their own: other classes' threads write theirs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counter {
    word: AtomicU64,
    peak_bytes: AtomicU64,
    /// The floor that counts, and the one before or after it.
    floors: [AtomicU64; 2],
}

impl Counter {
    fn used_bytes(&self) -> u64 {
        self.word.load(Relaxed) & BYTES_MAX
    }

    /// The floor that counts with this word. Of use only if the word is still the same when what comes of it is exchanged.
    #[inline]
    fn floor_bytes(&self, word: u64) -> u64 {
        self.floors[(word >> BYTES_BITS) as usize & 1].load(Relaxed)
    }

    /// Another floor counts from now on; the one before, and what was in use when it changed. One caller at a time.
    fn change_floor(&self, floor_bytes: u64) -> (u64, u64) {
        let mut word = self.word.load(Relaxed);
        let generation = word >> BYTES_BITS;
        let before = self.floor_bytes(word);
        self.floors[(generation as usize + 1) & 1].store(floor_bytes, Relaxed);
        loop {
            let used = word & BYTES_MAX;
            let next = (generation + 1) << BYTES_BITS | used;
            // Releases the floor to those who acquire the word.
            match (self.word).compare_exchange_weak(word, next, AcqRel, Relaxed) {
                Ok(_) => return (before, used),
                Err(now) => word = now,
            }
        }
    }
}

fn beyond(used: u64, floor: u64) -> u64 {
    used.saturating_sub(floor)
}

/// The bytes of a process that are nobody's floor, and not taken.
#[derive(Debug)]
pub(crate) struct Free {
    bytes: AtomicU64,
    /// The whole budget of the process.
    budget_bytes: AtomicU64,
    /// Who gives its room to whoever finds none.
    pub(crate) spares: SpareRoom,
}

impl Free {
    pub(crate) fn new(budget_bytes: u64) -> Arc<Free> {
        Arc::new(Free {
            bytes: AtomicU64::new(budget_bytes),
            budget_bytes: AtomicU64::new(budget_bytes),
            spares: SpareRoom::default(),
        })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    pub(crate) fn budget_bytes(&self) -> u64 {
        self.budget_bytes.load(Relaxed)
    }

    /// The process's budget becomes another one. To be called when little is taken: what is taken beyond it counts as nothing.
    pub(crate) fn resize(&self, budget_bytes: u64) {
        let before = self.budget_bytes.swap(budget_bytes, Relaxed);
        let resized = |free: u64| Some(free.saturating_add(budget_bytes).saturating_sub(before));
        let _ = self.bytes.fetch_update(Relaxed, Relaxed, resized);
    }

    /// Takes so many bytes, if need be of those that spares have.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        loop {
            if self.take_unclaimed(bytes) {
                return true;
            }
            let lacking = bytes.saturating_sub(self.bytes()).max(1);
            if !self.spares.give_up(self, lacking) {
                // What another has given up meanwhile is free now.
                return self.take_unclaimed(bytes);
            }
        }
    }

    /// Takes so many bytes that nobody has.
    pub(crate) fn take_unclaimed(&self, bytes: u64) -> bool {
        let taken = self.bytes.fetch_update(Relaxed, Relaxed, |free| {
            let admits_all = || mutants::is_on("budget-admits-everything").then_some(free);
            free.checked_sub(bytes).or_else(admits_all)
        });
        taken.is_ok()
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        if bytes > 0 {
            self.bytes.fetch_add(bytes, Relaxed);
        }
    }
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Total {
    used_bytes: AtomicU64,
    peak_bytes: AtomicU64,
}

#[derive(Debug)]
struct Inner {
    classes: [Counter; Class::ALL.len()],
    total: Total,
    free: Arc<Free>,
}

/// What one job uses of its process's memory, and may use. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget {
    inner: Arc<Inner>,
}

impl Budget {
    /// The budget of a process of its own, with these floors.
    ///
    /// # Panics
    /// If the floors together exceed the budget.
    pub fn new(budget_bytes: u64, floors: Floors) -> Budget {
        assert!(
            floors.sum_bytes() <= budget_bytes,
            "floors {floors:?} exceed {budget_bytes} bytes"
        );
        let budget = Budget::of(&Free::new(budget_bytes));
        assert!(budget.set_floors(floors), "they were compared");
        budget
    }

    /// A budget that refuses nothing: for tests, and for counting only.
    pub fn unlimited() -> Budget {
        Budget::new(u64::MAX, Floors::default())
    }

    /// A job's, without floors.
    pub(crate) fn of(free: &Arc<Free>) -> Budget {
        Budget {
            inner: Arc::new(Inner {
                classes: Default::default(),
                total: Total::default(),
                free: free.clone(),
            }),
        }
    }

    /// Takes `bytes` for `class` until the reservation is dropped.
    pub fn reserve(&self, class: Class, bytes: u64) -> Result<Reservation, OutOfMemory> {
        self.take(class, bytes)?;
        Ok(Reservation {
            budget: self.clone(),
            class,
            bytes,
        })
    }

    /// Takes over bytes that [`Budget::adjust`] has counted: they are given back when the reservation is dropped.
    pub fn take_over(&self, class: Class, bytes: u64) -> Reservation {
        Reservation {
            budget: self.clone(),
            class,
            bytes,
        }
    }

    /// Counts something of `class` that had `old_bytes` and now has `new_bytes`: cheap
    /// re-accounting for an owner that keeps the number itself. Never fails when it shrinks; when
    /// refused, `old_bytes` stay counted.
    #[inline]
    pub fn adjust(&self, class: Class, old_bytes: u64, new_bytes: u64) -> Result<(), OutOfMemory> {
        if new_bytes == old_bytes {
            Ok(())
        } else if new_bytes > old_bytes {
            self.take(class, new_bytes - old_bytes)
        } else {
            self.give_back(class, old_bytes - new_bytes);
            Ok(())
        }
    }

    /// What all classes use.
    pub fn in_use_bytes(&self) -> u64 {
        self.inner.total.used_bytes.load(Relaxed)
    }

    /// What one class uses.
    pub fn class_in_use_bytes(&self, class: Class) -> u64 {
        self.counter(class).used_bytes()
    }

    /// The most that all classes used together so far.
    pub fn peak_bytes(&self) -> u64 {
        self.inner.total.peak_bytes.load(Relaxed)
    }

    /// The most that one class used so far.
    pub fn class_peak_bytes(&self, class: Class) -> u64 {
        self.counter(class).peak_bytes.load(Relaxed)
    }

    /// The whole budget of the process.
    pub fn budget_bytes(&self) -> u64 {
        self.inner.free.budget_bytes()
    }

    /// What it uses and what its floors keep for it, if they were these.
    pub(crate) fn claims_bytes(&self, floors: Floors) -> u64 {
        let claim = |class| {
            self.class_in_use_bytes(class)
                .max(floors.class_bytes(class))
        };
        Class::ALL.into_iter().map(claim).sum()
    }

    /// Gives it other floors; false, and some of them as they were, when there is no room for all. One caller at a time for all jobs of a process.
    pub(crate) fn set_floors(&self, floors: Floors) -> bool {
        let floors = match mutants::is_on("budget-ignores-floors") {
            true => Floors::default(),
            false => floors,
        };
        let set = |class| self.set_floor(class, floors.class_bytes(class));
        // All of them, also where one finds no room.
        let refused = Class::ALL.into_iter().filter(|class| !set(*class)).count();
        refused == 0
    }

    fn set_floor(&self, class: Class, floor_bytes: u64) -> bool {
        let counter = self.counter(class);
        let now = counter.floor_bytes(counter.word.load(Relaxed));
        let more = floor_bytes.saturating_sub(now);
        if now == floor_bytes {
            return true;
        }
        if more > 0 && !self.inner.free.take(more) {
            return false;
        }
        let (before, used) = counter.change_floor(floor_bytes);
        let (claimed, claims) = (used.max(before), used.max(floor_bytes));
        self.inner.free.give_back(more + claimed - claims);
        true
    }

    /// The job is over: what it uses and its floors are free. What it still gives back, or takes, counts nowhere else from now on.
    pub(crate) fn retire(&self) {
        for class in Class::ALL {
            let (before, used) = self.counter(class).change_floor(BYTES_MAX);
            self.inner.free.give_back(used.max(before));
        }
    }

    fn counter(&self, class: Class) -> &Counter {
        &self.inner.classes[class as usize]
    }

    fn take(&self, class: Class, bytes: u64) -> Result<(), OutOfMemory> {
        let (counter, free) = (self.counter(class), &self.inner.free);
        let mut word = counter.word.load(Acquire);
        // What this call holds of the free bytes while it tries.
        let mut held = 0;
        loop {
            let (used, floor) = (word & BYTES_MAX, counter.floor_bytes(word));
            let wanted = used.checked_add(bytes).filter(|it| *it <= BYTES_MAX);
            let Some(wanted) = wanted else {
                free.give_back(held);
                return Err(self.out_of_memory(class, bytes));
            };
            let needed = beyond(wanted, floor) - beyond(used, floor);
            if needed > held && !free.take(needed - held) {
                let now = counter.word.load(Acquire);
                if now != word {
                    // Another thread of this class moved on, so less may be needed.
                    word = now;
                    continue;
                }
                free.give_back(held);
                return Err(self.out_of_memory(class, bytes));
            }
            if needed < held {
                free.give_back(held - needed);
            }
            held = needed;
            // Acquires the floor that the word tells of. Else relaxed: the counters guard no other memory, and each update of one
            // counter is a compare-and-swap on its latest value.
            match (counter.word).compare_exchange_weak(word, word + bytes, Relaxed, Acquire) {
                Ok(_) => {
                    counter.peak_bytes.fetch_max(wanted, Relaxed);
                    let total = &self.inner.total;
                    let now = total.used_bytes.fetch_add(bytes, Relaxed) + bytes;
                    total.peak_bytes.fetch_max(now, Relaxed);
                    return Ok(());
                }
                Err(now) => word = now,
            }
        }
    }

    fn give_back(&self, class: Class, bytes: u64) {
        let counter = self.counter(class);
        // Before the class's counter, so that the total never counts bytes that were taken anew.
        self.inner.total.used_bytes.fetch_sub(bytes, Relaxed);
        let mut word = counter.word.load(Acquire);
        loop {
            let (used, floor) = (word & BYTES_MAX, counter.floor_bytes(word));
            assert!(used >= bytes, "{class} gives back {bytes} bytes of {used}");
            match (counter.word).compare_exchange_weak(word, word - bytes, Relaxed, Acquire) {
                Ok(_) => {
                    let unneeded = beyond(used, floor) - beyond(used - bytes, floor);
                    return self.inner.free.give_back(unneeded);
                }
                Err(now) => word = now,
            }
        }
    }

    /// With what others have and what is kept for them as in use.
    #[cold]
    fn out_of_memory(&self, class: Class, asked_bytes: u64) -> OutOfMemory {
        let unfilled = |counter: &Counter| {
            let word = counter.word.load(Acquire);
            beyond(counter.floor_bytes(word), word & BYTES_MAX)
        };
        let own: u64 = self.inner.classes.iter().map(unfilled).sum();
        let budget_bytes = self.budget_bytes();
        let in_use_bytes = budget_bytes.saturating_sub(self.inner.free.bytes());
        OutOfMemory {
            class,
            asked_bytes,
            in_use_bytes: in_use_bytes.saturating_sub(own),
            budget_bytes,
        }
    }
}

/// Bytes of a budget, given back when dropped.
#[derive(Debug)]
#[must_use = "dropping it gives the bytes back"]
pub struct Reservation {
    budget: Budget,
    class: Class,
    bytes: u64,
}

impl Reservation {
    /// How much it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// For whom.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Takes `more_bytes` in addition. When refused, it holds what it held.
    pub fn grow(&mut self, more_bytes: u64) -> Result<(), OutOfMemory> {
        self.budget.take(self.class, more_bytes)?;
        self.bytes += more_bytes;
        Ok(())
    }

    /// Gives `fewer_bytes` back.
    ///
    /// # Panics
    /// If it holds less.
    pub fn shrink(&mut self, fewer_bytes: u64) {
        assert!(
            fewer_bytes <= self.bytes,
            "shrink by {fewer_bytes} of {}",
            self.bytes
        );
        self.budget.give_back(self.class, fewer_bytes);
        self.bytes -= fewer_bytes;
    }

    /// Counts the same bytes for another class. When refused, nothing changes.
    pub fn move_to(&mut self, class: Class) -> Result<(), OutOfMemory> {
        if class != self.class {
            self.budget.take(class, self.bytes)?;
            self.budget.give_back(self.class, self.bytes);
            self.class = class;
        }
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give_back(self.class, self.bytes);
        }
    }
}
