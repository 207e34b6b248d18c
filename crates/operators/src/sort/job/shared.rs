//! Owns what the tasks of one sort share in a process: the gates, the room for records, and the
//! output in one process. Tasks find it by the job's number. It lives for as long as a shard of the
//! job does.

use super::flight::Flight;
use super::gate::Gate;
use super::plan::{SortOutput, SortPlan};
use super::pool::ChunkPool;
use super::room::Room;
use super::sizes::SortSizes;
use super::so_far::SortedSoFar;
use brambling_memory::held;
use brambling_program::{Context, DecodeError, KernelError, Payload};
use brambling_storage::{FileError, OutputFile, Staging};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

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
    staging: OnceLock<Staging>,
    is_committed: AtomicBool,
}

/// The memory of one sort in a process.
#[derive(Debug)]
pub(super) struct SortMemory {
    pub(super) sizes: SortSizes,
    pub(super) room: Room,
    pub(super) flight: Flight,
    pub(super) pool: ChunkPool,
}

/// A job that ends without having committed leaves nothing: the last of its processes removes what
/// there is.
impl Drop for SortShared {
    fn drop(&mut self) {
        if let Some(staging) = self.staging.get()
            && !self.is_committed.load(Ordering::Acquire)
        {
            let _ = staging.abandon_if_last();
        }
    }
}

/// A file for all parts of a sort, with room for so many bytes: for [`SortShared::write_to`].
///
/// # Errors
/// When there can be no such file, or no room for it.
pub fn create_output(path: &Path, bytes: u64) -> Result<Arc<OutputFile>, FileError> {
    OutputFile::create(path, Some(bytes))
}

/// By the job's number. A job's shards hold it; the table does not.
static SORTS: Mutex<Option<BTreeMap<u64, Weak<SortShared>>>> = Mutex::new(None);

impl SortShared {
    /// That of a job, made when its first task asks.
    pub fn of(plan: &SortPlan) -> Arc<SortShared> {
        let mut table = held::lock(&SORTS);
        let table = table.get_or_insert_default();
        if let Some(shared) = table.get(&plan.job).and_then(Weak::upgrade) {
            return shared;
        }
        // Those whose jobs have ended.
        table.retain(|_, shared| shared.strong_count() > 0);
        let shared = Arc::new(SortShared {
            readers: Gate::in_order(plan.at_once as usize),
            writers: Gate::new(plan.at_once as usize),
            memory: OnceLock::new(),
            progress: SortedSoFar::default(),
            output: OnceLock::new(),
            staging: OnceLock::new(),
            is_committed: AtomicBool::new(false),
        });
        table.insert(plan.job, Arc::downgrade(&shared));
        shared
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
        let SortOutput::Parts(directory) = &plan.output else {
            return Ok(None);
        };
        if self.staging.get().is_none() {
            let begun = Staging::begin(directory, &plan.key())?;
            // Two threads may have begun it: it is the same directory.
            let _ = self.staging.set(begun);
        }
        Ok(self.staging.get())
    }

    /// All parts of all workers are whole: the directory gets its name.
    pub(super) fn commit(&self, plan: &SortPlan) -> Result<(), FileError> {
        if let Some(staging) = self.staging(plan)? {
            staging.commit()?;
            self.is_committed.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Whether a part lies in the directory that this process sees.
    fn has_part(&self, part: u32) -> bool {
        self.staging.get().is_some_and(|it| it.has_part(part))
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
    is_split: bool,
    shared: Option<Arc<SortShared>>,
}

impl SharedSort {
    /// Of a split that lies here.
    pub(super) fn of(plan: &SortPlan, split: u32) -> SharedSort {
        let shared = SortShared::of(plan);
        shared.readers.expect(split);
        SharedSort {
            shared: Some(shared),
            plan: plan.clone(),
            number: split,
            is_split: true,
        }
    }

    /// Of a part that lies here.
    pub(super) fn of_part(plan: &SortPlan, part: u32) -> SharedSort {
        SharedSort {
            shared: Some(SortShared::of(plan)),
            plan: plan.clone(),
            number: part,
            is_split: false,
        }
    }

    /// The number of the split or of the part.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Of a part, once all parts of all workers are whole: the directory gets its name, if it has the
    /// part.
    pub(super) fn commit(&self) -> Result<(), KernelError> {
        let (plan, part) = (&self.plan, self.number);
        let shared = self.shared.as_ref().expect("made where the shard lies");
        shared
            .commit(plan)
            .map_err(|error| KernelError::new(error.to_string()).with_source(error))?;
        match shared.has_part(part) {
            true => Ok(()),
            false => Err(format!(
                "part {part} lies with another worker than the one that publishes it: a worker came or left while files were sorted; the output is not whole: remove it and sort again, with --no-balance for the controller"
            )
            .into()),
        }
    }

    /// Which of the splits that lie here this one is, and how many there are: once all shards have
    /// been made.
    pub(super) fn place(&self) -> (u32, u32) {
        let shared = self.shared.as_ref().expect("made where the shard lies");
        shared.readers.place(self.number)
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
        self.is_split.encode(out);
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
