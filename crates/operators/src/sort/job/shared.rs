//! Owns what the tasks of one sort share in a process: the gates, the room for records, and the
//! output in one process. Tasks find it by the job's number. It lives for as long as a shard of the
//! job does.

use super::flight::Flight;
use super::gate::Gate;
use super::plan::SortPlan;
use super::room::Room;
use brambling_memory::held;
use brambling_program::{DecodeError, Payload};
use brambling_storage::{FileError, OutputFile};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// What the tasks of one sort share in this process.
#[derive(Debug)]
pub struct SortShared {
    pub(super) readers: Arc<Gate>,
    pub(super) writers: Arc<Gate>,
    pub(super) room: Room,
    pub(super) flight: Flight,
    /// The one file, where the sort has one.
    pub(super) output: OnceLock<Arc<OutputFile>>,
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
            room: Room::new(plan.record_bytes_max),
            flight: Flight::new(plan.flight_bytes_max()),
            output: OnceLock::new(),
        });
        table.insert(plan.job, Arc::downgrade(&shared));
        shared
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
    split: u32,
    _shared: Option<Arc<SortShared>>,
}

impl SharedSort {
    /// Of a split that lies here.
    pub(super) fn of(plan: &SortPlan, split: u32) -> SharedSort {
        let shared = SortShared::of(plan);
        shared.readers.expect(split);
        SharedSort {
            _shared: Some(shared),
            plan: plan.clone(),
            split,
        }
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
        self.split.encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<SharedSort, DecodeError> {
        let plan = SortPlan::decode(input)?;
        Ok(SharedSort::of(&plan, u32::decode(input)?))
    }
}
