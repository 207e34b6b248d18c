//! A lock in a store that has none: whoever has it says so anew all the time.
//!
//! A lease is a row of numbered objects under its key. Each says who has made it. The holder makes the next number every [`RENEWAL`], and takes
//! away those before the last two. A process that wants the lease looks at the highest number:
//!
//! * There is none: it makes a first one.
//! * Its holder has ended, which is seen on the same host: it makes the next one.
//! * Its holder's host is another one: it waits. If no other number comes for [`SILENCE`] of its own time, the holder is gone, and it makes the
//!   next one.
//!
//! # Why no two have it
//! Who has made a number looks at the row once more. If there is a number that it had not taken for a dead one's, it takes its own away and does
//! not have the lease. Of two that make numbers at the same time, at least one looks when both are there; so at most one stays. A first number is
//! made of the time, so a row that was taken away and begun anew does not repeat the numbers that somebody has seen.
//!
//! A holder that did not come to renew, because its host slept or its network was cut, does not know whether it has the lease: [`Lease::is_held`]
//! says no, by a clock that goes on while a host sleeps. It says so before another process can have waited long enough.

use super::holder::LeaseHolder;
use super::locks::{LockWait, Locking, StoreLock};
use super::{ObjectKey, ObjectStore, StoreError, StoreTrouble};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How often a holder says that it is there.
const RENEWAL: Duration = Duration::from_secs(10);
/// A holder that has said nothing for so long is gone.
const SILENCE: Duration = Duration::from_secs(30);
/// A holder that could say nothing for so long does not count on its lease. The difference is what a save may take that has begun.
const DOUBT: Duration = Duration::from_secs(20);
/// How often somebody who waits looks.
const GLANCE: Duration = Duration::from_millis(500);
/// Numbers that were taken by others in between, at most.
const CLAIMS_MAX: u32 = 20;

/// How long everything takes; shorter in tests.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseTimes {
    pub(super) renewal: Duration,
    pub(super) silence: Duration,
    pub(super) doubt: Duration,
    pub(super) glance: Duration,
}

impl LeaseTimes {
    pub(super) const USUAL: LeaseTimes = LeaseTimes {
        renewal: RENEWAL,
        silence: SILENCE,
        doubt: DOUBT,
        glance: GLANCE,
    };
}

/// A lease that this process has taken.
#[derive(Debug)]
pub(super) struct Lease {
    row: Arc<LeaseRow>,
    renewing: Option<JoinHandle<()>>,
    /// A process that was forked has no part in it.
    process: u32,
}

#[derive(Debug)]
struct LeaseRow {
    store: Arc<dyn ObjectStore>,
    key: ObjectKey,
    text: String,
    times: LeaseTimes,
    state: Mutex<LeaseState>,
    ends: Condvar,
}

#[derive(Debug)]
struct LeaseState {
    /// The number that is ours.
    number: u64,
    /// When it was known last that no other process had the lease.
    known: Duration,
    is_lost: bool,
    is_over: bool,
}

/// A row that somebody from elsewhere has, and since when it looks like that.
struct Watched {
    highest: u64,
    since: Duration,
}

/// Takes a lease, unless another live process has it.
pub(super) fn take(
    store: &Arc<dyn ObjectStore>,
    key: &ObjectKey,
    times: LeaseTimes,
    waits: &mut LockWait<'_>,
) -> Result<Locking, StoreError> {
    let mut watched: Option<Watched> = None;
    for _ in 0..CLAIMS_MAX {
        let (next, dead) = loop {
            let row = numbers(&**store, key)?;
            let Some(highest) = row.last().copied() else {
                break (first_number(), row);
            };
            let Some(holder) = holder(&**store, key, highest)? else {
                // It went since the look.
                watched = None;
                continue;
            };
            match holder.as_ref().and_then(LeaseHolder::is_alive) {
                Some(true) => return Ok(Locking::Held),
                Some(false) => break (highest + 1, row),
                None => {}
            }
            let now = since_start();
            match &watched {
                Some(before) if before.highest != highest => return Ok(Locking::Held),
                Some(before) if now - before.since >= times.silence => break (highest + 1, row),
                Some(_) => {}
                None => {
                    watched = Some(Watched {
                        highest,
                        since: now,
                    })
                }
            }
            let since = watched.as_ref().map_or(now, |watched| watched.since);
            if !waits(&why(holder.as_ref(), times), now - since) {
                return Ok(Locking::GaveUp);
            }
            std::thread::sleep(times.glance);
        };
        let begun = since_start();
        if claim(&**store, key, next, &dead)? {
            return Lease::begin(store, key, next, begun, times);
        }
        watched = None;
        // Others that were as quick do not all come again at once.
        std::thread::sleep(Duration::from_millis(u64::from(std::process::id() % 97)));
    }
    Ok(Locking::Held)
}

fn why(holder: Option<&LeaseHolder>, times: LeaseTimes) -> String {
    let whose = match holder {
        Some(holder) => format!("a process on host {}", holder.host()),
        None => "another process".to_owned(),
    };
    format!(
        "{whose} has had this place; it counts as gone when it says nothing for {} s",
        times.silence.as_secs()
    )
}

/// Makes a number, and says whether the lease is ours.
fn claim(
    store: &dyn ObjectStore,
    key: &ObjectKey,
    number: u64,
    dead: &[u64],
) -> Result<bool, StoreError> {
    let text = LeaseHolder::of_this_process().to_text();
    match store.create(&numbered(key, number), text.as_bytes()) {
        Err(error) if error.trouble == StoreTrouble::Exists => return Ok(false),
        made => made?,
    }
    let is_ours = |other: &u64| *other == number || dead.contains(other);
    let seen = numbers(store, key);
    let is_alone = seen.as_ref().is_ok_and(|row| row.iter().all(is_ours));
    let is_alone = is_alone || brambling_memory::mutants::is_on("leases-without-a-second-look");
    if !is_alone {
        store.delete(&numbered(key, number))?;
        return seen.map(|_| false);
    }
    // What is left is taken away by whoever is next.
    dead.iter()
        .for_each(|dead| drop(store.delete(&numbered(key, *dead))));
    Ok(true)
}

impl Lease {
    fn begin(
        store: &Arc<dyn ObjectStore>,
        key: &ObjectKey,
        number: u64,
        known: Duration,
        times: LeaseTimes,
    ) -> Result<Locking, StoreError> {
        let row = Arc::new(LeaseRow {
            store: store.clone(),
            key: key.clone(),
            text: LeaseHolder::of_this_process().to_text(),
            times,
            state: Mutex::new(LeaseState {
                number,
                known,
                is_lost: false,
                is_over: false,
            }),
            ends: Condvar::new(),
        });
        let renewing = std::thread::Builder::new().name("brambling-lease".into());
        let renewed = row.clone();
        let renewing = renewing.spawn(move || renewed.renew_until_over());
        let renewing = renewing
            .map_err(|error| StoreError::of(store.name(), format!("locking {key}"), &error))?;
        Ok(Locking::Ours(StoreLock::of_lease(Lease {
            row,
            renewing: Some(renewing),
            process: std::process::id(),
        })))
    }

    /// Whether no other process can have it now.
    pub(super) fn is_held(&self) -> bool {
        let state = self.row.state();
        let is_fresh = since_start().saturating_sub(state.known) < self.row.times.doubt;
        self.process == std::process::id() && !state.is_lost && is_fresh
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(renewing) = self.renewing.take() else {
            return;
        };
        if self.process != std::process::id() {
            // The thread is the other process's, and so is the lease.
            return std::mem::forget(renewing);
        }
        self.row.state().is_over = true;
        self.row.ends.notify_all();
        // It ends: each call of a store does.
        let _ = renewing.join();
        self.row.release();
    }
}

impl LeaseRow {
    fn state(&self) -> MutexGuard<'_, LeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn renew_until_over(&self) {
        let mut state = self.state();
        loop {
            let until = self.times.renewal;
            let waited = self.ends.wait_timeout_while(state, until, |it| !it.is_over);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if state.is_over || state.is_lost {
                return;
            }
            let number = state.number;
            drop(state);
            let begun = since_start();
            let renewed = self.renew(number);
            state = self.state();
            match renewed {
                Ok(true) => (state.number, state.known) = (number + 1, begun),
                Ok(false) => state.is_lost = true,
                // If this lasts, it is in doubt.
                Err(_) => {}
            }
        }
    }

    /// Makes the next number, and says whether the lease is ours still.
    fn renew(&self, number: u64) -> Result<bool, StoreError> {
        let next = numbered(&self.key, number + 1);
        match self.store.create(&next, self.text.as_bytes()) {
            Err(error) if error.trouble == StoreTrouble::Exists => {
                // The answer to an earlier try may have been lost.
                if self.store.read(&next, None)? != self.text.as_bytes() {
                    return Ok(false);
                }
            }
            made => made?,
        }
        let row = numbers(&*self.store, &self.key)?;
        if row.last() != Some(&(number + 1)) {
            self.store.delete(&next)?;
            return Ok(false);
        }
        // The one before stays: whoever lists meanwhile sees one of the two.
        let _ = self
            .store
            .delete(&numbered(&self.key, number.saturating_sub(1)));
        Ok(true)
    }

    /// Takes away what is there of ours. What stays, because the store does not answer, is a dead process's.
    fn release(&self) {
        let number = self.state().number;
        for number in number.saturating_sub(1)..=number + 1 {
            let key = numbered(&self.key, number);
            let is_ours = (self.store.read(&key, None)).is_ok_and(|it| it == self.text.as_bytes());
            if is_ours {
                let _ = self.store.delete(&key);
            }
        }
    }
}

/// The numbers of a row, lowest first.
fn numbers(store: &dyn ObjectStore, key: &ObjectKey) -> Result<Vec<u64>, StoreError> {
    let number = |it: &ObjectKey| it.as_str().rsplit('/').next()?.parse().ok();
    Ok(store.list(key)?.iter().filter_map(number).collect())
}

/// Who has made a number: outer none if it is not there, inner none if it cannot be understood.
fn holder(
    store: &dyn ObjectStore,
    key: &ObjectKey,
    number: u64,
) -> Result<Option<Option<LeaseHolder>>, StoreError> {
    match store.read(&numbered(key, number), None) {
        Ok(bytes) => Ok(Some(LeaseHolder::from_text(&String::from_utf8_lossy(
            &bytes,
        )))),
        Err(error) if error.trouble == StoreTrouble::Absent => Ok(None),
        Err(error) => Err(error),
    }
}

fn numbered(key: &ObjectKey, number: u64) -> ObjectKey {
    ObjectKey::new(format!("{key}/{number:020}")).expect("a key of ours and a number")
}

fn first_number() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |it| it.as_millis() as u64)
}

/// Since the host's start, its sleep counted.
fn since_start() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DirectoryStore;

    const TIMES: LeaseTimes = LeaseTimes {
        renewal: Duration::from_millis(50),
        silence: Duration::from_millis(400),
        doubt: Duration::from_millis(250),
        glance: Duration::from_millis(10),
    };

    fn store() -> (tempfile::TempDir, Arc<dyn ObjectStore>) {
        let directory = tempfile::tempdir().unwrap();
        let store = DirectoryStore::open(directory.path()).unwrap();
        (directory, Arc::new(store))
    }

    fn key() -> ObjectKey {
        ObjectKey::new("a.lock/1").unwrap()
    }

    fn take_now(store: &Arc<dyn ObjectStore>) -> Locking {
        take(store, &key(), TIMES, &mut |_, _| true).unwrap()
    }

    /// Someone on another host, who wrote this number.
    fn elsewhere(store: &Arc<dyn ObjectStore>, number: u64) {
        let text = "brambling lease 1\nhost far\nboot 1\nnumbers 2\nprocess 3\nstarted 4\n";
        store
            .create(&numbered(&key(), number), text.as_bytes())
            .unwrap();
    }

    /// Of this host: a process that has ended, or that lives.
    fn here(store: &Arc<dyn ObjectStore>, number: u64, is_alive: bool) {
        let own = LeaseHolder::of_this_process().to_text();
        let text = match is_alive {
            true => own,
            // The number is another process's by now.
            false => own.replace("started ", "started 1"),
        };
        store
            .create(&numbered(&key(), number), text.as_bytes())
            .unwrap();
    }

    #[test]
    fn a_lease_is_of_one_and_leaves_nothing() {
        let (_directory, store) = store();
        let Locking::Ours(lock) = take_now(&store) else {
            panic!("it is free")
        };
        assert!(matches!(take_now(&store), Locking::Held));
        assert!(lock.is_held());
        // It is renewed, and rows do not grow.
        let first = numbers(&*store, &key()).unwrap();
        std::thread::sleep(TIMES.silence * 2);
        assert!(lock.is_held());
        let later = numbers(&*store, &key()).unwrap();
        assert!(later.last() > first.last(), "{first:?} {later:?}");
        assert!(later.len() <= 3, "{later:?}");
        drop(lock);
        assert!(store.list(&key()).unwrap().is_empty());
        assert!(matches!(take_now(&store), Locking::Ours(_)));
    }

    #[test]
    fn a_process_that_has_ended_here_is_followed_at_once() {
        let (_directory, store) = store();
        here(&store, 7, false);
        let begun = std::time::Instant::now();
        let Locking::Ours(lock) = take_now(&store) else {
            panic!("nobody has it")
        };
        assert!(begun.elapsed() < TIMES.silence);
        assert!(lock.is_held());
        drop(lock);
        here(&store, 9, true);
        assert!(matches!(take_now(&store), Locking::Held));
    }

    #[test]
    fn a_process_elsewhere_is_followed_when_it_has_been_silent() {
        let (_directory, store) = store();
        elsewhere(&store, 7);
        let begun = std::time::Instant::now();
        let mut told = String::new();
        let taken = take(&store, &key(), TIMES, &mut |why, _| {
            told = why.to_owned();
            true
        });
        assert!(matches!(taken.unwrap(), Locking::Ours(_)));
        assert!(begun.elapsed() >= TIMES.silence);
        assert!(
            told.starts_with("a process on host far has had this place"),
            "{told}"
        );
    }

    #[test]
    fn a_process_elsewhere_that_says_something_has_it() {
        let (_directory, store) = store();
        elsewhere(&store, 7);
        let mut renewals = 0;
        let taken = take(&store, &key(), TIMES, &mut |_, so_long| {
            if so_long > TIMES.silence / 2 && renewals == 0 {
                renewals = 1;
                elsewhere(&store, 8);
            }
            true
        });
        assert!(matches!(taken.unwrap(), Locking::Held));
        let taken = take(&store, &key(), TIMES, &mut |_, _| false);
        assert!(matches!(taken.unwrap(), Locking::GaveUp));
    }

    fn of_two_that_look_at_once_one_stays() {
        let (_directory, store) = store();
        // Both have seen an empty row; their clocks differ.
        assert!(claim(&*store, &key(), 5, &[]).unwrap());
        assert!(!claim(&*store, &key(), 3, &[]).unwrap());
        assert!(!claim(&*store, &key(), 5, &[]).unwrap());
        assert!(!claim(&*store, &key(), 9, &[]).unwrap());
        assert_eq!(numbers(&*store, &key()).unwrap(), [5]);
        // One has seen 5 as a dead one's, and is slow: the row has gone on.
        assert!(claim(&*store, &key(), 6, &[5]).unwrap());
        assert!(claim(&*store, &key(), 7, &[6]).unwrap());
        assert!(!claim(&*store, &key(), 6, &[5]).unwrap());
        assert_eq!(numbers(&*store, &key()).unwrap(), [7]);
    }

    #[test]
    fn of_two_that_take_a_lease_at_once_one_has_it() {
        of_two_that_look_at_once_one_stays();
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn mutants_of_leases_are_caught() {
        brambling_memory::mutants::assert_caught(
            "leases-without-a-second-look",
            of_two_that_look_at_once_one_stays,
        );
    }

    #[test]
    fn who_was_silent_for_long_does_not_count_on_its_lease() {
        let (_directory, store) = store();
        let quiet = LeaseTimes {
            renewal: Duration::from_secs(600),
            ..TIMES
        };
        let taken = take(&store, &key(), quiet, &mut |_, _| true).unwrap();
        let Locking::Ours(lock) = taken else {
            panic!("it is free")
        };
        assert!(lock.is_held());
        std::thread::sleep(TIMES.doubt);
        // Before anybody could take it for gone.
        assert!(!lock.is_held());
    }

    #[test]
    fn who_was_followed_knows_it_and_leaves_the_other_alone() {
        let (_directory, store) = store();
        let Locking::Ours(lock) = take_now(&store) else {
            panic!("it is free")
        };
        let later = numbers(&*store, &key()).unwrap().last().unwrap() + 1_000;
        elsewhere(&store, later);
        std::thread::sleep(TIMES.renewal * 6);
        assert!(!lock.is_held());
        drop(lock);
        assert_eq!(numbers(&*store, &key()).unwrap().last(), Some(&later));
    }
}
