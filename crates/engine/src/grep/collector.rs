//! What lanes have found, on its way to whoever tells it in order.
//!
//! This module owns the order of units, and how far lanes may run ahead of what is told. Lanes deliver from the job's
//! threads, the driver takes on its own. No lane ever waits in here: one that has no room is woken when it has.
//!
//! # Why nobody waits for ever
//! The unit whose turn it is has room whenever little of it waits. The driver takes of that unit alone, and each time it
//! has taken something it wakes every lane that waits. So that unit goes on, ends, and the next one has its turn.

use brambling_operators::grep::lane::LaneOutlet;
use brambling_operators::grep::lines::PartFound;
use brambling_program::KernelError;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

/// Bytes of the unit whose turn it is that wait to be told before its lane does.
const NEXT_BYTES: usize = 4 << 20;
/// Bytes of all units that wait before the others' lanes do.
pub(super) const HELD_BYTES: usize = 64 << 20;

/// The driver's end, and that of every lane.
#[derive(Clone)]
pub(super) struct Collector(Arc<Shared>);

struct Shared {
    collected: Mutex<Collected>,
    came: Condvar,
    held_bytes_max: usize,
    /// Units that may be begun before the first of them is done.
    ahead: u64,
}

#[derive(Default)]
struct Collected {
    /// The unit whose turn it is.
    next: u64,
    units: BTreeMap<u64, Waiting>,
    held_bytes: usize,
    lanes: Vec<Waker>,
    /// Files of which enough is known.
    left: Vec<bool>,
    is_over: bool,
}

#[derive(Default)]
struct Waiting {
    found: VecDeque<PartFound>,
    bytes: usize,
    is_done: bool,
}

/// What the driver finds of a unit.
pub(super) enum NextFound {
    Piece(Box<PartFound>),
    Done,
    /// Nothing has come for a while.
    Nothing,
}

impl Collector {
    pub(super) fn new(files: usize, ahead: u64, held_bytes_max: usize) -> Collector {
        let collected = Mutex::new(Collected {
            left: vec![false; files],
            ..Collected::default()
        });
        Collector(Arc::new(Shared {
            collected,
            came: Condvar::new(),
            held_bytes_max,
            ahead,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Collected> {
        let collected = self.0.collected.lock();
        collected.unwrap_or_else(PoisonError::into_inner)
    }

    /// The next of the unit whose turn it is; waits for it a while.
    pub(super) fn take(&self, so_long: Duration) -> NextFound {
        let mut collected = self.lock();
        let next = collected.next;
        let lacks = |it: &mut Collected| {
            let unit = it.units.get(&next);
            unit.is_none_or(|unit| unit.found.is_empty() && !unit.is_done)
        };
        if lacks(&mut collected) {
            let waited = self.0.came.wait_timeout_while(collected, so_long, lacks);
            collected = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let Some(unit) = collected.units.get_mut(&next) else {
            return NextFound::Nothing;
        };
        if let Some(found) = unit.found.pop_front() {
            let bytes = found.held_bytes();
            unit.bytes -= bytes;
            collected.held_bytes -= bytes;
            self.wake(collected);
            return NextFound::Piece(Box::new(found));
        }
        match unit.is_done {
            true => NextFound::Done,
            false => NextFound::Nothing,
        }
    }

    /// It is the next unit's turn.
    pub(super) fn advance(&self) {
        let mut collected = self.lock();
        let next = collected.next;
        collected.units.remove(&next);
        collected.next += 1;
        self.wake(collected);
    }

    /// Nothing more of a file is wanted.
    pub(super) fn leave(&self, file: u32) {
        self.lock().left[file as usize] = true;
    }

    /// Nothing more is wanted at all.
    pub(super) fn end(&self) {
        let mut collected = self.lock();
        collected.is_over = true;
        self.wake(collected);
    }

    /// Has every lane look again.
    pub(super) fn nudge(&self) {
        self.wake(self.lock());
    }

    fn wake(&self, mut collected: MutexGuard<'_, Collected>) {
        let lanes = std::mem::take(&mut collected.lanes);
        drop(collected);
        lanes.into_iter().for_each(Waker::wake);
    }
}

impl LaneOutlet for Collector {
    fn poll_room(&mut self, unit: u64, waker: &Waker) -> Poll<bool> {
        let mut collected = self.lock();
        if collected.is_over {
            return Poll::Ready(false);
        }
        let has_room = match unit == collected.next {
            true => {
                let waiting = collected.units.get(&unit);
                waiting.is_none_or(|it| it.bytes < NEXT_BYTES)
            }
            false => {
                unit - collected.next < self.0.ahead && collected.held_bytes < self.0.held_bytes_max
            }
        };
        if has_room {
            return Poll::Ready(true);
        }
        collected.lanes.push(waker.clone());
        Poll::Pending
    }

    fn wants(&mut self, file: u32) -> bool {
        !self.lock().left[file as usize]
    }

    fn take(&mut self, unit: u64, found: PartFound) -> Result<(), KernelError> {
        let mut collected = self.lock();
        let bytes = found.held_bytes();
        collected.held_bytes += bytes;
        let waiting = collected.units.entry(unit).or_default();
        waiting.bytes += bytes;
        waiting.found.push_back(found);
        if unit == collected.next {
            self.0.came.notify_one();
        }
        Ok(())
    }

    fn done(&mut self, unit: u64) {
        let mut collected = self.lock();
        collected.units.entry(unit).or_default().is_done = true;
        if unit == collected.next {
            self.0.came.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::task::Wake;

    struct Counts(AtomicU32);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn found(bytes: usize) -> PartFound {
        PartFound {
            text: vec![b'x'; bytes],
            ..PartFound::default()
        }
    }

    /// Whoever is far ahead waits, the one whose turn it is does not, and a turn that ends wakes those that wait.
    #[test]
    fn a_lane_far_ahead_waits_for_its_turn() {
        let wakes = Arc::new(Counts(AtomicU32::new(0)));
        let waker = Waker::from(wakes.clone());
        let driver = Collector::new(1, 3, 100);
        let mut lane = driver.clone();
        assert!(lane.poll_room(2, &waker).is_ready());
        assert!(lane.poll_room(3, &waker).is_pending(), "three at a time");
        LaneOutlet::take(&mut lane, 1, found(100)).unwrap();
        assert!(lane.poll_room(2, &waker).is_pending(), "full");
        assert!(lane.poll_room(0, &waker).is_ready(), "its turn");
        lane.done(0);
        assert!(matches!(driver.take(Duration::ZERO), NextFound::Done));
        driver.advance();
        assert_eq!(wakes.0.load(SeqCst), 2);
        assert!(matches!(driver.take(Duration::ZERO), NextFound::Piece(_)));
        assert!(lane.poll_room(2, &waker).is_ready());
        assert!(matches!(driver.take(Duration::ZERO), NextFound::Nothing));
    }

    #[test]
    fn nobody_waits_once_it_is_over() {
        let waker = Waker::noop();
        let driver = Collector::new(2, 1, 100);
        let mut lane = driver.clone();
        assert!(lane.poll_room(1, waker).is_pending());
        driver.end();
        assert_eq!(lane.poll_room(1, waker), Poll::Ready(false));
        driver.leave(1);
        assert!(lane.wants(0) && !lane.wants(1));
    }
}
