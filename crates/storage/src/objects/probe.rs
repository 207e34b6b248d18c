//! Whether a store keeps its promises, found out before it is trusted.
//!
//! Servers that call themselves compatible with S3 differ in what they do with a conditional put: some ignore the condition, some look first and
//! write then. File systems over a network may answer from what they remember. Either would lose snapshots silently. So a store that lies elsewhere
//! is tried out once by each process that uses it. A local directory is not: its `link` replaces nothing, which tests of this crate hold.

use super::holder::LeaseHolder;
use super::{ObjectKey, ObjectStore, StoreError, StoreTrouble};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// What is tried, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProbeRounds {
    /// Races for one key, if there is time.
    pub(super) most: u32,
    /// Races that are held however long they take.
    pub(super) fewest: u32,
    /// No further race begins after this.
    pub(super) time: Duration,
}

/// For a server: a look before a write is caught by some of a hundred races, and a local server takes a second for them.
pub(super) const OF_SERVERS: ProbeRounds = ProbeRounds {
    most: 100,
    fewest: 8,
    time: PROBE_MAX,
};
/// For file systems over a network: `link` is one request, so few races tell whether it is honoured.
pub(super) const OF_FILE_SYSTEMS: ProbeRounds = ProbeRounds {
    most: 5,
    fewest: 2,
    time: PROBE_MAX,
};
/// Races of a probe begin for so long: a server that is far away gets fewer of them.
const PROBE_MAX: Duration = Duration::from_secs(3);

/// Tries a store out by two clients of it, once for each name in this process.
pub(super) fn probe_once(
    clients: [&dyn ObjectStore; 2],
    rounds: ProbeRounds,
) -> Result<(), StoreError> {
    static SOUND: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let name = clients[0].name().to_owned();
    if brambling_memory::held::lock(&SOUND).contains(&name) {
        return Ok(());
    }
    probe(clients, rounds)?;
    brambling_memory::held::lock(&SOUND).insert(name);
    Ok(())
}

/// Tries a store out by two clients of it: two threads make one key at once, then it is read, listed, deleted and made anew.
///
/// # Errors
/// What the store did, if it does not keep what a store promises; or why it could not be tried.
pub(super) fn probe(clients: [&dyn ObjectStore; 2], rounds: ProbeRounds) -> Result<(), StoreError> {
    let place = place();
    let probed = Probed { clients, place };
    let tried = probed.try_out(rounds);
    // What is left lies in a place of its own, and is nobody's.
    let swept = probed.sweep();
    tried.and(swept)
}

struct Probed<'s> {
    clients: [&'s dyn ObjectStore; 2],
    place: ObjectKey,
}

impl Probed<'_> {
    fn try_out(&self, rounds: ProbeRounds) -> Result<(), StoreError> {
        let begun = Instant::now();
        let mut winners = Vec::new();
        while (winners.len() as u32) < rounds.most {
            let round = winners.len() as u32;
            if round >= rounds.fewest && begun.elapsed() > rounds.time {
                break;
            }
            let winner = self.race(round)?;
            self.reads(round, &content(round, winner), "what was made")?;
            winners.push(winner);
        }
        let made: Vec<ObjectKey> = (0..winners.len() as u32)
            .map(|round| self.key(round))
            .collect();
        let listed = self.clients[1].list(&self.place)?;
        if let Some(missing) = made.iter().find(|key| !listed.contains(key)) {
            return Err(self.unsound(missing, "a list does not have an object that was made"));
        }
        self.is_gone_and_made_anew(0)
    }

    /// Both make one key. Who has made it?
    fn race(&self, round: u32) -> Result<usize, StoreError> {
        let key = self.key(round);
        let start = Barrier::new(2);
        let make = |own: usize| {
            start.wait();
            self.clients[own].create(&key, &content(round, own))
        };
        let [first, other] = std::thread::scope(|scope| {
            let other = scope.spawn(|| make(1));
            [make(0), other.join().expect("a store does not panic")]
        });
        let has_made = |made: Result<(), StoreError>| match made {
            Ok(()) => Ok(true),
            Err(error) if error.trouble == StoreTrouble::Exists => Ok(false),
            Err(error) => Err(error),
        };
        match (has_made(first)?, has_made(other)?) {
            (true, false) => Ok(0),
            (false, true) => Ok(1),
            (true, true) => Err(self.unsound(
                &key,
                "two writers made one object at the same time, and both were told that they had",
            )),
            (false, false) => Err(self.unsound(
                &key,
                "two writers made one object, and both were told that it was there before",
            )),
        }
    }

    fn reads(&self, round: u32, expected: &[u8], what: &str) -> Result<(), StoreError> {
        let key = self.key(round);
        for client in self.clients {
            let read = match client.read(&key, None) {
                Err(error) if error.trouble == StoreTrouble::Absent => None,
                read => Some(read?),
            };
            if read.as_deref() != Some(expected) {
                let how = match read {
                    Some(_) => format!("a read does not give {what}, but something else"),
                    None => format!("a read does not find {what}"),
                };
                return Err(self.unsound(&key, &how));
            }
        }
        Ok(())
    }

    fn is_gone_and_made_anew(&self, round: u32) -> Result<(), StoreError> {
        let key = self.key(round);
        self.clients[0].delete(&key)?;
        match self.clients[1].read(&key, None) {
            Err(error) if error.trouble == StoreTrouble::Absent => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(self.unsound(&key, "a read gives an object that was deleted")),
        }
        if self.clients[1].list(&self.place)?.contains(&key) {
            return Err(self.unsound(&key, "a list has an object that was deleted"));
        }
        self.clients[1].create(&key, b"anew")?;
        self.reads(
            round,
            b"anew",
            "what was made after the old object was deleted",
        )
    }

    fn sweep(&self) -> Result<(), StoreError> {
        let left = self.clients[0].list(&self.place)?;
        left.iter().try_for_each(|key| self.clients[0].delete(key))
    }

    fn key(&self, round: u32) -> ObjectKey {
        ObjectKey::new(format!("{}/{round}", self.place)).expect("a key of ours and a number")
    }

    fn unsound(&self, key: &ObjectKey, how: &str) -> StoreError {
        let name = self.clients[0].name();
        StoreError::new(
            name,
            format!("trying {key}"),
            StoreTrouble::Unsound(how.into()),
        )
    }
}

fn content(round: u32, own: usize) -> Vec<u8> {
    format!("round {round} of client {own}").into_bytes()
}

/// A place that no other probe has.
fn place() -> ObjectKey {
    static PROBES: AtomicU64 = AtomicU64::new(0);
    let probe = PROBES.fetch_add(1, Ordering::Relaxed);
    let own = xxh3_64(LeaseHolder::of_this_process().to_text().as_bytes());
    ObjectKey::new(format!("probe-{own:016x}-{probe}")).expect("numbers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DirectoryStore, ObjectWriter};
    use std::collections::BTreeMap;
    use std::ops::Range;

    const ROUNDS: ProbeRounds = ProbeRounds {
        most: 20,
        fewest: 20,
        time: PROBE_MAX,
    };

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Fault {
        None,
        /// A put replaces what is there.
        Overwrites,
        /// It looks whether something is there, and writes then.
        LooksFirst,
        /// A read gives what it gave before.
        Remembers,
        /// A list has what was deleted.
        ListsDeleted,
        /// A list lacks what was made last.
        ListsLate,
    }

    #[derive(Debug)]
    struct Faulty {
        store: DirectoryStore,
        fault: Fault,
        seen: Mutex<BTreeMap<ObjectKey, Vec<u8>>>,
    }

    impl ObjectStore for Faulty {
        fn begin(&self, key: &ObjectKey) -> Result<Box<dyn ObjectWriter>, StoreError> {
            self.store.begin(key)
        }

        fn create(&self, key: &ObjectKey, bytes: &[u8]) -> Result<(), StoreError> {
            let replaces = match self.fault {
                Fault::Overwrites => true,
                Fault::LooksFirst => {
                    let is_there = self.store.read(key, None).is_ok();
                    std::thread::sleep(Duration::from_millis(2));
                    !is_there
                }
                _ => return self.store.create(key, bytes),
            };
            if replaces {
                self.store.delete(key)?;
            }
            // Of two that replace at once, one finds the other's here.
            match self.store.create(key, bytes) {
                Err(_) if replaces => Ok(()),
                made => made,
            }
        }

        fn read(&self, key: &ObjectKey, range: Option<Range<u64>>) -> Result<Vec<u8>, StoreError> {
            let mut seen = self.seen.lock().unwrap();
            match seen.get(key) {
                Some(bytes) if self.fault == Fault::Remembers => Ok(bytes.clone()),
                _ => {
                    let bytes = self.store.read(key, range)?;
                    seen.insert(key.clone(), bytes.clone());
                    Ok(bytes)
                }
            }
        }

        fn delete(&self, key: &ObjectKey) -> Result<(), StoreError> {
            self.store.delete(key)
        }

        fn list(&self, prefix: &ObjectKey) -> Result<Vec<ObjectKey>, StoreError> {
            let mut keys = self.store.list(prefix)?;
            match self.fault {
                Fault::ListsDeleted => keys.extend(self.seen.lock().unwrap().keys().cloned()),
                Fault::ListsLate => drop(keys.pop()),
                _ => {}
            }
            Ok(keys)
        }

        fn name(&self) -> &str {
            self.store.name()
        }
    }

    #[test]
    fn a_store_that_keeps_no_promise_is_refused_with_what_it_did() {
        for (fault, how) in [
            (Fault::None, None),
            (Fault::Overwrites, Some("both were told that they had")),
            (Fault::LooksFirst, Some("both were told that they had")),
            (
                Fault::Remembers,
                Some("a read gives an object that was deleted"),
            ),
            (
                Fault::ListsDeleted,
                Some("a list has an object that was deleted"),
            ),
            (
                Fault::ListsLate,
                Some("a list does not have an object that was made"),
            ),
        ] {
            let directory = tempfile::tempdir().unwrap();
            let store = DirectoryStore::open(directory.path()).unwrap();
            let seen = Mutex::default();
            let faulty = Faulty { store, fault, seen };
            let tried = probe([&faulty, &faulty], ROUNDS);
            let Some(how) = how else {
                assert_eq!(tried, Ok(()));
                let left = std::fs::read_dir(directory.path()).unwrap();
                let left = left.flat_map(|it| std::fs::read_dir(it.unwrap().path()).unwrap());
                assert_eq!(left.count(), 0);
                continue;
            };
            let refused = tried.unwrap_err();
            assert!(
                matches!(refused.trouble, StoreTrouble::Unsound(_)),
                "{fault:?}"
            );
            assert!(refused.to_string().contains(how), "{fault:?}: {refused}");
            assert!(
                refused.to_string().contains("name another store"),
                "{refused}"
            );
        }
    }
}
