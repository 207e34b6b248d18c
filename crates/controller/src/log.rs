//! What a cluster's log says: the state in which a controller takes over. Pure: records go in, in the order of their numbers.

use brambling_protocol::JobId;
use brambling_protocol::kept::{LogEntry, LoggedJob};
use std::collections::BTreeMap;

/// How many snapshots of a job are kept.
const SNAPSHOTS: usize = 2;

/// A cluster, as its log tells it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoggedCluster {
    /// The term of the last controller; 0: there was none.
    pub term: u32,
    /// Which cluster it is.
    pub cluster: u64,
    /// Jobs that somebody asks for, with the cuts of which there are snapshots, the newest last.
    pub jobs: BTreeMap<JobId, (LoggedJob, Vec<u64>)>,
    /// The last job that was submitted.
    pub last_job: u64,
}

impl LoggedCluster {
    /// Takes the next record.
    pub fn take(&mut self, entry: LogEntry) {
        match entry {
            LogEntry::Term(term) => (self.term, self.cluster) = (term.term, term.cluster),
            LogEntry::Submitted(job) => {
                self.last_job = self.last_job.max(job.id.0);
                self.jobs.insert(job.id, (job, Vec::new()));
            }
            LogEntry::Snapshot { job, cut } => {
                if let Some((_, cuts)) = self.jobs.get_mut(&job) {
                    cuts.push(cut);
                    let old = cuts.len().saturating_sub(SNAPSHOTS);
                    cuts.drain(..old);
                }
            }
            LogEntry::Unusable { job, cut } => {
                if let Some((_, cuts)) = self.jobs.get_mut(&job) {
                    cuts.retain(|it| *it != cut);
                }
            }
            LogEntry::Released(job) => drop(self.jobs.remove(&job)),
        }
    }
}
