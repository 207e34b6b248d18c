//! The controller's log: records under numbers without a gap, each created once. Reading it is how a controller takes over; who cannot create the next number
//! has been deposed.
//!
//! # Rules
//! * A record is in the store before what it speaks of is done: orders behind it wait ([`Logging`]).
//! * Whether a record was created whose answer was lost is found by reading it back: it has this controller's nonce.
//! * A store that cannot be written holds orders up, and is tried again. Jobs that run go on.
//! * A controller that logs nothing looks each [`OFFICE_LOOK`] whether another has taken over: it would else speak for ever of what is no more.

use super::super::ClusterError;
use super::super::snapshots::{key, open};
use super::{ControllerShared, standby};
use brambling_controller::log::LoggedCluster;
use brambling_memory::held;
use brambling_protocol::kept::{LogEntry, LogRecord, LoggedTerm};
use brambling_storage::{ObjectKey, PlacedStore, StoreError, StoreTrouble};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How soon a record is tried again that could not be written; then twice as long each time, up to [`AGAIN_MAX`].
const AGAIN_FIRST: Duration = Duration::from_millis(50);
/// At most: so soon after a store can be written again orders go on.
const AGAIN_MAX: Duration = Duration::from_secs(2);

/// How often a controller that logs nothing looks whether it is still in office.
const OFFICE_LOOK: Duration = Duration::from_secs(1);

/// Why nothing more can be logged.
#[derive(Debug)]
pub(super) enum LogEnd {
    /// Another controller has created the next record.
    Deposed,
    /// The store did not take it.
    Store(StoreError),
}

/// A log that was read to its end.
pub(super) struct ClusterLog {
    store: Arc<dyn PlacedStore>,
    nonce: u64,
    next: Mutex<Next>,
}

/// What a log says.
pub(super) struct FoundLog {
    store: Arc<dyn PlacedStore>,
    cluster: LoggedCluster,
    /// The number after its last record.
    number: u64,
    pub(super) term: u32,
    /// Where the last controller listens.
    pub(super) address: Option<SocketAddr>,
}

struct Next {
    number: u64,
    count: u64,
}

fn place(number: u64) -> ObjectKey {
    key(&format!("log/{number:020}"))
}

impl ClusterLog {
    /// Reads a log to its end.
    pub(super) fn read(state: &str) -> Result<FoundLog, ClusterError> {
        let store: Arc<dyn PlacedStore> = open(state)?;
        let mut cluster = LoggedCluster::default();
        let (mut number, mut address) = (0, None);
        loop {
            let bytes = match store.read(&place(number), None) {
                Ok(bytes) => bytes,
                Err(StoreError {
                    trouble: StoreTrouble::Absent,
                    ..
                }) => break,
                Err(error) => return Err(error.into()),
            };
            let record = LogRecord::decode(&bytes).map_err(|why| StoreError {
                store: store.name().to_owned(),
                doing: format!("reading record {number} of the cluster's log"),
                trouble: StoreTrouble::Other(why.to_string()),
            })?;
            if let LogEntry::Term(term) = &record.entry {
                address = standby::address(&term.address);
            }
            cluster.take(record.entry);
            number += 1;
        }
        Ok(FoundLog {
            store,
            term: cluster.term,
            cluster,
            address,
            number,
        })
    }

    /// Reads a log, and begins a term in it.
    pub(super) fn take_over(
        state: &str,
        epoch: u64,
        at: SocketAddr,
    ) -> Result<(ClusterLog, LoggedCluster), ClusterError> {
        let FoundLog {
            store,
            mut cluster,
            number,
            ..
        } = ClusterLog::read(state)?;
        let log = ClusterLog {
            store,
            nonce: epoch,
            next: Mutex::new(Next { number, count: 0 }),
        };
        let term = LogEntry::Term(LoggedTerm {
            term: cluster.term + 1,
            cluster: if number == 0 { epoch } else { cluster.cluster },
            address: at.to_string(),
            version: super::VERSION.to_owned(),
        });
        match log.append(term.clone()) {
            Ok(()) => cluster.take(term),
            Err(LogEnd::Deposed) => {
                return Err(ClusterError::Deposed {
                    state: state.to_owned(),
                });
            }
            Err(LogEnd::Store(error)) => return Err(error.into()),
        }
        Ok((log, cluster))
    }

    /// Whether another controller has created the next record.
    fn is_superseded(&self) -> bool {
        let next = held::lock(&self.next);
        let found = self.store.read(&place(next.number), None);
        let found = found.ok().and_then(|it| LogRecord::decode(&it).ok());
        // An earlier one of this controller's may be there, whose answer was lost.
        found.is_some_and(|it| it.nonce.0 != self.nonce)
    }

    /// Creates the next record.
    pub(super) fn append(&self, entry: LogEntry) -> Result<(), LogEnd> {
        let mut next = held::lock(&self.next);
        let mut record = LogRecord {
            nonce: (self.nonce, next.count),
            entry,
        };
        loop {
            let (at, bytes) = (place(next.number), record.encode());
            match self.store.create(&at, &bytes) {
                Ok(()) => break,
                Err(error) if error.trouble == StoreTrouble::Exists => {}
                Err(error) => return Err(LogEnd::Store(error)),
            }
            let found = self.store.read(&at, None).map_err(LogEnd::Store)?;
            if found == bytes {
                // It is this one, and the answer was lost.
                break;
            }
            match LogRecord::decode(&found) {
                // An earlier one, that was given up when its answer was lost: it counts.
                Ok(found) if found.nonce.0 == self.nonce => {
                    (next.number, next.count) = (next.number + 1, next.count + 1);
                    record.nonce.1 = next.count;
                }
                _ => return Err(LogEnd::Deposed),
            }
        }
        (next.number, next.count) = (next.number + 1, next.count + 1);
        Ok(())
    }

    /// The same, again and again until it is created, or `failed` says that it is not to be tried again.
    pub(super) fn append_surely(
        &self,
        entry: &LogEntry,
        mut failed: impl FnMut(&StoreError) -> bool,
    ) -> Result<(), LogEnd> {
        let mut pause = AGAIN_FIRST;
        loop {
            match self.append(entry.clone()) {
                Err(LogEnd::Store(error)) => {
                    if !failed(&error) {
                        return Err(LogEnd::Store(error));
                    }
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(AGAIN_MAX);
                }
                done => return done,
            }
        }
    }
}

/// The thread that logs what the registry orders.
pub(super) struct Logging {
    entries: Option<Sender<LogEntry>>,
    thread: Option<JoinHandle<()>>,
    pub(super) log: Arc<ClusterLog>,
}

impl Logging {
    pub(super) fn start(
        log: ClusterLog,
        shared: &Arc<ControllerShared>,
    ) -> Result<Logging, ClusterError> {
        let log = Arc::new(log);
        let (entries, come) = channel();
        let (writes, weak) = (log.clone(), Arc::downgrade(shared));
        let thread = std::thread::Builder::new()
            .name("brambling-log".into())
            .spawn(move || work(&writes, &come, &weak))
            .map_err(|source| ClusterError::System { source })?;
        Ok(Logging {
            entries: Some(entries),
            thread: Some(thread),
            log,
        })
    }

    /// Writes a record; whoever holds orders hears when it is there.
    pub(super) fn write(&self, entry: LogEntry) {
        // The thread lives as long as this.
        if let Some(entries) = &self.entries {
            let _ = entries.send(entry);
        }
    }

    /// Writes what was asked for.
    pub(super) fn end(mut self) {
        self.entries = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn work(log: &ClusterLog, come: &Receiver<LogEntry>, shared: &Weak<ControllerShared>) {
    loop {
        let entry = match come.recv_timeout(OFFICE_LOOK) {
            Ok(entry) => entry,
            Err(RecvTimeoutError::Timeout) if log.is_superseded() => {
                shared.upgrade().iter().for_each(|it| it.on_deposed());
                return;
            }
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let goes_on = |error: &StoreError| {
            let shared = shared.upgrade();
            shared.is_some_and(|shared| shared.on_unlogged(error))
        };
        let done = log.append_surely(&entry, goes_on);
        let Some(shared) = shared.upgrade() else {
            return;
        };
        match done {
            Ok(()) => shared.on_logged(),
            Err(LogEnd::Deposed) => return shared.on_deposed(),
            Err(LogEnd::Store(_)) => return,
        }
    }
}

impl ControllerShared {
    /// A record is there: what was ordered behind it is done.
    fn on_logged(self: &Arc<Self>) {
        let mut state = self.state();
        state.unlogged = state.unlogged.saturating_sub(1);
        state.act(self);
    }

    /// The store does not take a record: whether to try again.
    fn on_unlogged(&self, error: &StoreError) -> bool {
        let mut state = self.state();
        let text = error.to_string();
        if state.log_trouble.as_deref() != Some(&text) {
            state.news.push(format!(
                "nothing can be logged, and what clients ask for waits: {text}"
            ));
            state.log_trouble = Some(text);
        }
        !state.has_ended
    }

    pub(super) fn on_deposed(&self) {
        self.state().is_deposed = true;
        self.ends.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_protocol::JobId;

    /// A record of this number, by a controller of this nonce, of which the log does not know.
    fn unheard(log: &ClusterLog, number: u64, nonce: u64) {
        let record = LogRecord {
            nonce: (nonce, 1),
            entry: LogEntry::Released(JobId(7)),
        };
        log.store.create(&place(number), &record.encode()).unwrap();
    }

    #[test]
    fn only_the_record_of_another_controller_deposes() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().display().to_string();
        let at = "127.0.0.1:7077".parse().unwrap();
        let (log, _) = ClusterLog::take_over(&state, 5, at).unwrap();
        unheard(&log, 1, 5);
        let entry = || LogEntry::Released(JobId(8));
        log.append(entry()).unwrap();
        assert_eq!(ClusterLog::read(&state).unwrap().number, 3);
        unheard(&log, 3, 6);
        assert!(matches!(log.append(entry()), Err(LogEnd::Deposed)));
    }

    /// It had been stopped, and had nothing to log when it woke.
    #[test]
    fn a_controller_that_logs_nothing_sees_that_another_has_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().display().to_string();
        let at = "127.0.0.1:7077".parse().unwrap();
        let (log, _) = ClusterLog::take_over(&state, 5, at).unwrap();
        unheard(&log, 1, 5);
        assert!(!log.is_superseded(), "it is its own");
        log.append(LogEntry::Released(JobId(8))).unwrap();
        let (other, _) = ClusterLog::take_over(&state, 6, at).unwrap();
        assert!(log.is_superseded() && !other.is_superseded());
    }
}
