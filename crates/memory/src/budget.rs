//! One memory budget of a process.
//!
//! # Rules
//! The budget is divided into a floor per class and a shared rest. A class fills its own floor
//! first and takes from the rest what is beyond it. So a class can always use its floor, however
//! full the rest is, and nobody else's use can reach into a floor that is not filled yet:
//! the sum over classes of max(in use, floor) never exceeds the budget.
//!
//! # What it bounds
//! What its users charge: the counters never exceed the budget. Memory itself can, by what is allocated before
//! it is charged; `docs/settings.md` lists each such place with its bound.
//!
//! # Why it cannot be broken by a race
//! Bytes beyond a floor are taken from the rest *before* the class's own counter shows them, and
//! given back *after* it stopped showing them. At every moment the rest's counter is at least what
//! the classes use beyond their floors. The price: a reservation that races with another one of
//! its class may be refused although it would have fitted a moment later.

use crate::mutants;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What memory is used for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Partitions that live here.
    Resident,
    /// Pieces of the lowest open turn of an exchange; within a process, of all its open turns.
    Exchange,
    /// Pieces that came before they are needed: of later turns, held and forwarded. They have no
    /// floor, so they can never keep the lowest open turn out of the exchange's.
    Early,
    /// Shards on their way in or out, snapshot parts, encoded frames.
    Transfer,
}

impl Class {
    /// Every class.
    pub const ALL: [Class; 4] = [
        Class::Resident,
        Class::Exchange,
        Class::Early,
        Class::Transfer,
    ];
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Resident => "resident data",
            Class::Exchange => "the exchange",
            Class::Early => "early pieces of the exchange",
            Class::Transfer => "transfers",
        })
    }
}

/// Bytes that a class can use whatever the others do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Floors {
    /// For partitions that live here.
    pub resident_bytes: u64,
    /// For the lowest open turn of the exchanges.
    pub exchange_bytes: u64,
    /// For transfers.
    pub transfer_bytes: u64,
}

impl Floors {
    /// The default: half for resident data, an eighth for the exchange, a sixteenth for transfers.
    pub fn of(budget_bytes: u64) -> Floors {
        Floors {
            resident_bytes: budget_bytes / 2,
            exchange_bytes: budget_bytes / 8,
            transfer_bytes: budget_bytes / 16,
        }
    }

    fn sum_bytes(&self) -> u64 {
        self.resident_bytes
            .saturating_add(self.exchange_bytes)
            .saturating_add(self.transfer_bytes)
    }

    fn class_bytes(&self, class: Class) -> u64 {
        match class {
            Class::Resident => self.resident_bytes,
            Class::Exchange => self.exchange_bytes,
            Class::Early => 0,
            Class::Transfer => self.transfer_bytes,
        }
    }
}

/// The budget has no room left for a class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "out of memory: {class} asked for {asked_bytes} bytes with {in_use_bytes} of {budget_bytes} in \
     use; raise the budget with BRAMBLING_MEMORY or memory in brambling.toml"
)]
pub struct OutOfMemory {
    /// Who asked.
    pub class: Class,
    /// For how much.
    pub asked_bytes: u64,
    /// What all classes used together at that moment.
    pub in_use_bytes: u64,
    /// The whole budget.
    pub budget_bytes: u64,
}

/// Counters of one class, on a line of their own: other classes' threads write theirs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counter {
    used_bytes: AtomicU64,
    peak_bytes: AtomicU64,
}

#[derive(Debug)]
struct Inner {
    budget_bytes: u64,
    floors: Floors,
    /// What is not anybody's floor.
    rest_bytes: u64,
    classes: [Counter; 4],
    /// Taken from the rest.
    rest: Counter,
    total: Counter,
}

/// One memory budget of a process. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget {
    inner: Arc<Inner>,
}

impl Budget {
    /// A budget with these floors.
    ///
    /// # Panics
    /// If the floors together exceed the budget.
    pub fn new(budget_bytes: u64, floors: Floors) -> Budget {
        assert!(
            floors.sum_bytes() <= budget_bytes,
            "floors {floors:?} exceed {budget_bytes} bytes"
        );
        Budget {
            inner: Arc::new(Inner {
                budget_bytes,
                floors,
                rest_bytes: budget_bytes - floors.sum_bytes(),
                classes: Default::default(),
                rest: Counter::default(),
                total: Counter::default(),
            }),
        }
    }

    /// A budget that refuses nothing: for tests, and for counting only.
    pub fn unlimited() -> Budget {
        Budget::new(u64::MAX, Floors::default())
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
        self.counter(class).used_bytes.load(Relaxed)
    }

    /// The most that all classes used together so far.
    pub fn peak_bytes(&self) -> u64 {
        self.inner.total.peak_bytes.load(Relaxed)
    }

    /// The most that one class used so far.
    pub fn class_peak_bytes(&self, class: Class) -> u64 {
        self.counter(class).peak_bytes.load(Relaxed)
    }

    /// The whole budget.
    pub fn budget_bytes(&self) -> u64 {
        self.inner.budget_bytes
    }

    /// The floors it was made with.
    pub fn floors(&self) -> Floors {
        self.inner.floors
    }

    fn counter(&self, class: Class) -> &Counter {
        &self.inner.classes[class as usize]
    }

    fn floor_bytes(&self, class: Class) -> u64 {
        if mutants::is_on("budget-ignores-floors") {
            return 0;
        }
        self.inner.floors.class_bytes(class)
    }

    fn rest_bytes(&self) -> u64 {
        if mutants::is_on("budget-ignores-floors") {
            return self.inner.budget_bytes;
        }
        self.inner.rest_bytes
    }

    fn take(&self, class: Class, bytes: u64) -> Result<(), OutOfMemory> {
        let (counter, floor) = (self.counter(class), self.floor_bytes(class));
        let mut used = counter.used_bytes.load(Relaxed);
        // What this call holds of the rest while it tries.
        let mut held = 0;
        loop {
            let Some(wanted) = used.checked_add(bytes) else {
                self.give_back_rest(held);
                return Err(self.out_of_memory(class, bytes));
            };
            let needed = wanted.saturating_sub(floor) - used.saturating_sub(floor);
            if needed > held && !self.take_rest(needed - held) {
                let now = counter.used_bytes.load(Relaxed);
                if now != used {
                    // Another thread of this class moved on, so less of the rest may be needed.
                    used = now;
                    continue;
                }
                self.give_back_rest(held);
                return Err(self.out_of_memory(class, bytes));
            }
            if needed < held {
                self.give_back_rest(held - needed);
            }
            held = needed;
            // Relaxed everywhere: the counters guard no other memory, and each update of one
            // counter is a compare-and-swap on its latest value.
            match counter
                .used_bytes
                .compare_exchange_weak(used, wanted, Relaxed, Relaxed)
            {
                Ok(_) => {
                    counter.peak_bytes.fetch_max(wanted, Relaxed);
                    let total = &self.inner.total;
                    let now = total.used_bytes.fetch_add(bytes, Relaxed) + bytes;
                    total.peak_bytes.fetch_max(now, Relaxed);
                    return Ok(());
                }
                Err(now) => used = now,
            }
        }
    }

    fn give_back(&self, class: Class, bytes: u64) {
        let floor = self.floor_bytes(class);
        // Before the class's counter, so that the total never counts bytes that were taken anew.
        self.inner.total.used_bytes.fetch_sub(bytes, Relaxed);
        let used = self.counter(class).used_bytes.fetch_sub(bytes, Relaxed);
        assert!(used >= bytes, "{class} gives back {bytes} bytes of {used}");
        self.give_back_rest(used.saturating_sub(floor) - (used - bytes).saturating_sub(floor));
    }

    fn take_rest(&self, bytes: u64) -> bool {
        let rest_bytes = self.rest_bytes();
        let taken = self
            .inner
            .rest
            .used_bytes
            .fetch_update(Relaxed, Relaxed, |used| {
                used.checked_add(bytes).filter(|&wanted| {
                    wanted <= rest_bytes || mutants::is_on("budget-admits-everything")
                })
            });
        taken.is_ok()
    }

    fn give_back_rest(&self, bytes: u64) {
        if bytes > 0 {
            self.inner.rest.used_bytes.fetch_sub(bytes, Relaxed);
        }
    }

    #[cold]
    fn out_of_memory(&self, class: Class, asked_bytes: u64) -> OutOfMemory {
        let in_use_bytes = self.in_use_bytes();
        OutOfMemory {
            class,
            asked_bytes,
            in_use_bytes,
            budget_bytes: self.inner.budget_bytes,
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
