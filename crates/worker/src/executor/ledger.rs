//! What a job did and where its threads' time went. A job hands it out when it has ended; whoever tells a user of it
//! compares it with what the machine can do. It measures nothing: each thread's [`book`](super::book) does.

use super::book::MOMENTS_MAX;
use brambling_program::Work;
use serde::{Deserialize, Serialize};

/// What a thread did, or waited for. The numbers are places in [`BookedMoment::parts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum TimePart {
    /// In kernels.
    Kernels,
    /// Finding, issuing and retiring tasks, waking shards.
    Scheduling,
    /// Without work, while shards waited for pieces of others.
    Exchange,
    /// Without work, while a stream waited for room at its destination.
    Memory,
    /// Without work, while files were read or written.
    Disk,
    /// While Python's interpreter, or the calling thread, was busy elsewhere.
    Interpreter,
    /// Writing spilled pieces, and reading them.
    Spilling,
    /// Before the job's first task.
    Startup,
    /// Without work from this thread's last task to the job's end.
    Stragglers,
    /// For other jobs that share the threads.
    OtherJobs,
}

/// How many parts there are.
pub const PARTS: usize = TimePart::OtherJobs as usize + 1;

/// Nanoseconds by part.
pub type PartTimes = [u64; PARTS];

/// A piece of a thread's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BookedMoment {
    /// How long it took, by part.
    pub parts: PartTimes,
    /// The stage whose kernels took most of it, and how long.
    pub stage: Option<(u32, u64)>,
    /// Tasks that ended in it.
    pub tasks: u64,
}

impl BookedMoment {
    /// Nanoseconds, all parts together.
    pub fn ns(&self) -> u64 {
        self.parts.iter().sum()
    }

    /// Adds what comes after it.
    pub(super) fn add(&mut self, next: &BookedMoment) {
        for (sum, more) in self.parts.iter_mut().zip(next.parts) {
            *sum += more;
        }
        self.tasks += next.tasks;
        if next.stage.map(|(_, ns)| ns) > self.stage.map(|(_, ns)| ns) {
            self.stage = next.stage;
        }
    }
}

/// Where one thread's time went, from the job's begin to its end.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ThreadTimes {
    /// Whether it is the thread that called, which runs the stages that are its own.
    pub is_caller: bool,
    /// In order, without gaps.
    pub moments: Vec<BookedMoment>,
}

/// What the tasks of a stage took and moved, over all threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StageTotals {
    /// Nanoseconds in its kernels: counted for long tasks, estimated from samples for short ones.
    pub kernel_ns: u64,
    /// What kernels have said.
    pub work: Work,
}

/// What one process did for a job.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct JobLedger {
    /// Nanoseconds from the job's begin to its end here.
    pub wall_ns: u64,
    /// Nanoseconds from the job's begin to the end of the last task here.
    pub last_task_ns: u64,
    /// Those of the pool, then the calling thread when it ran stages.
    pub threads: Vec<ThreadTimes>,
    /// Stages of the program that took time or did work: by their place in it.
    pub stages: Vec<(u32, StageTotals)>,
    /// Tasks retired.
    pub tasks: u64,
    /// Shards that are here at the end.
    pub shards: u32,
    /// Of the group whose shards here ran longest together, where it has several: nanoseconds for which the longest of them ran.
    pub longest_shard_ns: u64,
    /// And for which they ran on average.
    pub mean_shard_ns: u64,
    /// Bytes of frames that went to other processes.
    pub sent_bytes: u64,
    /// And that came from there.
    pub received_bytes: u64,
    /// Bytes that were spilled.
    pub spilled_bytes: u64,
    /// Bytes of them that were read again.
    pub read_back_bytes: u64,
    /// What the job could take of this process's memory.
    pub budget_bytes: u64,
    /// The most that it took.
    pub peak_bytes: u64,
}

/// Of what [`JobLedger::encode`] writes.
const FORMAT: u32 = 2;

/// Why bytes are no ledger.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// They are not what was written.
    #[error("a worker's account of a job is damaged: {0}")]
    Damaged(#[from] postcard::Error),
    /// They are of another format.
    #[error(
        "a worker's account of a job is of format {0}, and this version reads {FORMAT}: run the same version everywhere"
    )]
    Format(u32),
}

impl JobLedger {
    /// As bytes, for another process.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_allocvec(&(FORMAT, self)).expect("numbers can be written")
    }

    /// From bytes.
    ///
    /// # Errors
    /// When they are of another format, or none.
    pub fn decode(bytes: &[u8]) -> Result<JobLedger, LedgerError> {
        let (format, rest) = postcard::take_from_bytes::<u32>(bytes)?;
        match format {
            FORMAT => Ok(postcard::from_bytes(rest)?),
            other => Err(LedgerError::Format(other)),
        }
    }
}

const _: () = assert!(MOMENTS_MAX.is_multiple_of(2));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_comes_as_it_went_and_others_are_refused() {
        let ledger = JobLedger {
            wall_ns: 7,
            threads: vec![ThreadTimes {
                is_caller: true,
                moments: vec![BookedMoment {
                    parts: [1; PARTS],
                    stage: Some((3, 1)),
                    tasks: 9,
                }],
            }],
            stages: vec![(
                3,
                StageTotals {
                    kernel_ns: 5,
                    work: Work::streamed(4).and_file_read(6).and_file_written(8),
                },
            )],
            ..JobLedger::default()
        };
        let mut bytes = ledger.encode();
        assert_eq!(JobLedger::decode(&bytes).unwrap(), ledger);
        let short = JobLedger::decode(&bytes[..bytes.len() - 1]);
        assert!(matches!(short, Err(LedgerError::Damaged(_))));
        bytes[0] += 1;
        let other = JobLedger::decode(&bytes).unwrap_err().to_string();
        assert!(other.contains("format 3"), "{other}");
    }
}
