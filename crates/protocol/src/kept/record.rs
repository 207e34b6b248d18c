//! Records: what a controller keeps of its cluster, one object each, under numbers without a gap. Nobody changes one; who cannot create the next number is no
//! controller any more.

use super::{Form, KeptError};
use crate::ids::JobId;
use crate::message::{Brings, Survives};
use serde::{Deserialize, Serialize};

const RECORD: Form = Form {
    name: "record of a controller",
    mark: *b"BRLG",
    version: 1,
};

/// A record, as it lies in a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogRecord {
    /// The controller that wrote it, and its count: whoever reads it back knows its own.
    pub nonce: (u64, u64),
    /// What has happened, or is about to.
    pub entry: LogEntry,
}

/// What a controller keeps. Each is written before anybody hears of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LogEntry {
    /// Another controller takes over.
    Term(LoggedTerm),
    /// A client has submitted a job.
    Submitted(LoggedJob),
    /// There is a snapshot of a job.
    Snapshot {
        /// The job.
        job: JobId,
        /// The cut.
        cut: u64,
    },
    /// A job's snapshot was found to be of no use.
    Unusable {
        /// The job.
        job: JobId,
        /// The cut.
        cut: u64,
    },
    /// Nobody asks for a job any more.
    Released(JobId),
}

/// A controller's time in office.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LoggedTerm {
    /// From 1; each is one more than the one before.
    pub term: u32,
    /// The cluster: the same in all terms.
    pub cluster: u64,
    /// Where the controller listens.
    pub address: String,
    /// The version of its package.
    pub version: String,
}

/// A job, as it was submitted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LoggedJob {
    /// Its number.
    pub id: JobId,
    /// Its client's name for it: the same job is not submitted twice.
    pub name: u128,
    /// The program's name.
    pub program: String,
    /// How many shards each group has.
    pub shards: Vec<u32>,
    /// Of the grid that each group is, if it is one.
    pub columns: Vec<u32>,
    /// What its members are sent.
    pub brings: Brings,
    /// What becomes of it when a worker dies.
    pub survives: Survives,
}

impl LogRecord {
    /// As it is kept.
    pub fn encode(&self) -> Vec<u8> {
        RECORD.write(self)
    }

    /// From what was kept.
    ///
    /// # Errors
    /// When it is none, was written by a newer version, or is damaged.
    pub fn decode(bytes: &[u8]) -> Result<LogRecord, KeptError> {
        RECORD.read(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{JobCuts, SnapshotEvery};
    use brambling_program::{CutPlan, GroupId, OutermostLoop};

    fn records() -> Vec<LogRecord> {
        let job = JobId(300);
        let submitted = LoggedJob {
            id: job,
            name: 0xfeed << 100,
            program: "demo".into(),
            shards: vec![300, 1],
            columns: vec![0, 7],
            brings: Brings {
                program_bytes: 70_000,
                rows_bytes: 1 << 33,
            },
            survives: Survives {
                repeats: true,
                cuts: Some(JobCuts {
                    program: 0xbeef << 90,
                    plan: CutPlan {
                        shards: vec![300, 1],
                        loops: vec![OutermostLoop {
                            turns: Some(70_000),
                            is_crossed: false,
                            is_split: true,
                            takers: vec![GroupId(0)],
                            free: vec![GroupId(1)],
                            first_stage: "step".into(),
                        }],
                    },
                    every: Some(SnapshotEvery::Turns(300)),
                }),
            },
        };
        let term = LoggedTerm {
            term: 300,
            cluster: 1 << 63,
            address: "10.0.0.7:7077".into(),
            version: "0.1.0".into(),
        };
        let entries = [
            LogEntry::Term(term),
            LogEntry::Submitted(submitted),
            LogEntry::Snapshot { job, cut: 1 << 33 },
            LogEntry::Unusable { job, cut: 1 << 33 },
            LogEntry::Released(job),
        ];
        let record = |(count, entry)| LogRecord {
            nonce: (1 << 60, count),
            entry,
        };
        (0..).zip(entries).map(record).collect()
    }

    /// Guards the form: written once by the first version, and read for ever.
    #[test]
    fn records_of_the_first_version_are_read() {
        let all: Vec<u8> = records().iter().flat_map(|it| it.encode()).collect();
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/kept/golden/records-1");
            std::fs::write(path, &all).unwrap();
            return;
        }
        assert_eq!(
            &all[..],
            include_bytes!("golden/records-1"),
            "a new form is a new version"
        );
        for record in records() {
            assert_eq!(LogRecord::decode(&record.encode()), Ok(record));
        }
    }

    #[test]
    fn a_record_that_has_changed_is_refused() {
        for record in records() {
            let bytes = record.encode();
            for at in 0..bytes.len() {
                let mut other = bytes.clone();
                other[at] ^= 1;
                assert!(LogRecord::decode(&other).is_err(), "byte {at}");
                assert!(LogRecord::decode(&bytes[..at]).is_err(), "cut at {at}");
            }
        }
    }
}
