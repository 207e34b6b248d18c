//! Owns what the tasks of one sort share in a process: the gates, the room for records, and the
//! output in one process. Tasks find it by the job's number. It lives for as long as a shard of the
//! job does.

use super::flight::Flight;
use super::plan::{SortOutput, SortPlan};
use super::room::Room;
use super::sizes::SortSizes;
use super::so_far::SortedSoFar;
use crate::parts::{ChunkPool, Gate, JobTable, PartOutput, PartsDirectory};
use brambling_program::{Context, DecodeError, KernelError, Payload};
use brambling_storage::{FileError, OutputFile, Staging};
use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// What the tasks of one sort share in this process.
#[derive(Debug)]
pub struct SortShared {
    pub(super) readers: Arc<Gate>,
    pub(super) writers: Arc<Gate>,
    memory: OnceLock<SortMemory>,
    /// How far the sort is here.
    pub(super) progress: SortedSoFar,
    /// The one file, where the sort has one.
    pub(super) output: OnceLock<Arc<OutputFile>>,
    /// The directory of parts, where the sort has one.
    pub(super) parts: PartsDirectory,
}

/// The memory of one sort in a process.
#[derive(Debug)]
pub(super) struct SortMemory {
    pub(super) sizes: SortSizes,
    pub(super) room: Room,
    pub(super) flight: Flight,
    pub(super) pool: ChunkPool,
}

/// A file for all parts of a sort, with room for so many bytes: for [`SortShared::write_to`].
///
/// # Errors
/// When there can be no such file, or no room for it.
pub fn create_output(path: &Path, bytes: u64) -> Result<Arc<OutputFile>, FileError> {
    OutputFile::create(path, Some(bytes))
}

static SORTS: JobTable<SortShared> = JobTable::new();

impl SortShared {
    /// That of a job, made when its first task asks.
    pub fn of(plan: &SortPlan) -> Arc<SortShared> {
        SORTS.of(plan.job, || SortShared {
            readers: Gate::in_order(plan.at_once as usize),
            writers: Gate::new(plan.at_once as usize),
            memory: OnceLock::new(),
            progress: SortedSoFar::default(),
            output: OnceLock::new(),
            parts: PartsDirectory::default(),
        })
    }

    /// How the budget is divided, and who has what of it.
    pub(super) fn memory(&self, plan: &SortPlan, context: &Context<'_>) -> &SortMemory {
        self.memory.get_or_init(|| {
            let sizes = SortSizes::of(plan, context.budget_bytes());
            // On a cluster buffers come from elsewhere, too.
            let is_alone = matches!(plan.output, SortOutput::File);
            let free_bytes_max = (!is_alone).then_some(sizes.filling_bytes);
            SortMemory {
                sizes,
                room: Room::new(sizes.record_bytes),
                flight: Flight::new(sizes.flight_bytes),
                pool: ChunkPool::new(sizes.chunk_bytes, free_bytes_max),
            }
        })
    }

    /// As [`SortShared::memory`], of a task that has begun.
    pub(super) fn divided(&self) -> &SortMemory {
        self.memory.get().expect("divided when a task began")
    }

    /// The directory of parts, begun when the first task asks. It waits for the disk.
    pub(super) fn staging(&self, plan: &SortPlan) -> Result<Option<&Staging>, FileError> {
        match &plan.output {
            SortOutput::File => Ok(None),
            SortOutput::Parts(directory) => self.parts.begin(directory, &plan.key()).map(Some),
        }
    }

    /// How far the sort is in this process.
    pub fn progress(&self) -> &SortedSoFar {
        &self.progress
    }

    /// Gives the one file into which all parts are written.
    pub fn write_to(&self, file: Arc<OutputFile>) {
        let _ = self.output.set(file);
    }
}

/// Holds what a job's tasks share, for as long as the shard lives.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedSort {
    plan: SortPlan,
    number: u32,
    expected: Option<Arc<ExpectedSplit>>,
    shared: Option<Arc<SortShared>>,
}

/// A split that lies here, for as long as it does: a shard that moves is expected where it goes.
#[derive(Debug)]
struct ExpectedSplit {
    shared: Arc<SortShared>,
    number: u32,
}

impl Drop for ExpectedSplit {
    fn drop(&mut self) {
        self.shared.readers.forget(self.number);
    }
}

impl SharedSort {
    /// Of a split that lies here.
    pub(super) fn of(plan: &SortPlan, split: u32) -> SharedSort {
        let shared = SortShared::of(plan);
        shared.readers.expect(split);
        SharedSort {
            expected: Some(Arc::new(ExpectedSplit {
                shared: shared.clone(),
                number: split,
            })),
            shared: Some(shared),
            plan: plan.clone(),
            number: split,
        }
    }

    /// Of a part that lies here.
    pub(super) fn of_part(plan: &SortPlan, part: u32) -> SharedSort {
        SharedSort {
            shared: Some(SortShared::of(plan)),
            plan: plan.clone(),
            number: part,
            expected: None,
        }
    }

    /// The number of the split or of the part.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Which of the splits that lie here this one is, and how many there are: once all shards have
    /// been made.
    pub(super) fn place(&self) -> (u32, u32) {
        let shared = self.shared.as_ref().expect("made where the shard lies");
        shared.readers.place(self.number)
    }
}

impl PartOutput for SharedSort {
    fn commit(&self) -> Result<(), KernelError> {
        let SortOutput::Parts(directory) = &self.plan.output else {
            return Ok(());
        };
        let shared = self.shared.as_ref().expect("made where the shard lies");
        let (key, part) = (self.plan.key(), self.number);
        let meanwhile = "files were sorted";
        shared.parts.commit(directory, &key, part, meanwhile)
    }
}

/// It travels as the plan, and finds what there is where it arrives.
impl Payload for SharedSort {
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("sort::SharedSort")
    }
    fn heap_bytes(&self) -> usize {
        0
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.plan.encode(out);
        self.number.encode(out);
        self.expected.is_some().encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<SharedSort, DecodeError> {
        let plan = SortPlan::decode(input)?;
        let number = u32::decode(input)?;
        Ok(match bool::decode(input)? {
            true => SharedSort::of(&plan, number),
            false => SharedSort::of_part(&plan, number),
        })
    }
}
