//! Owns what the tasks of one job share in a process: the gate of those that map, the tables that
//! they use one after the other, and the directory of parts. Tasks find it by the job's number.

use super::mapping::Mapping;
use super::text_files::path_of;
use super::{MapReduceSteps, map_stage};
use crate::parts::{ChunkPool, Gate, JobTable, PartOutput, PartsDirectory};
use brambling_program::{DecodeError, KernelError, Payload};
use brambling_storage::{FileError, Staging};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the tasks of one job share in this process.
#[derive(Debug)]
pub(super) struct MapReduceShared {
    pub(super) mappers: Arc<Gate>,
    pub(super) mapping: Mapping,
    /// The buffers of chunks.
    pub(super) pool: ChunkPool,
    /// What the tables of partitions take together.
    gathered_bytes: AtomicU64,
    pub(super) parts: PartsDirectory,
}

/// The allocator keeps about so much of tables that have grown.
const ALLOCATOR_BYTES: u64 = 40 << 20;

/// What a budget leaves to tables, blocks and chunks: at least half of it.
pub fn left_of(budget_bytes: u64) -> u64 {
    budget_bytes
        .saturating_sub(ALLOCATOR_BYTES)
        .max(budget_bytes / 2)
}

static JOBS: JobTable<MapReduceShared> = JobTable::new();

impl MapReduceShared {
    /// That of a job, made when its first task asks.
    pub(super) fn of(steps: &MapReduceSteps) -> Arc<MapReduceShared> {
        JOBS.of(steps.job, || MapReduceShared {
            mappers: Gate::new(steps.at_once as usize),
            mapping: Mapping::default(),
            pool: ChunkPool::new(steps.chunk_bytes(), Some(steps.free_chunks_bytes())),
            gathered_bytes: AtomicU64::new(0),
            parts: PartsDirectory::default(),
        })
    }

    /// Whether a partition's table may take so many bytes more, of a budget: all of them leave room for chunks on their way,
    /// blocks of files, and what the allocator keeps of tables that have grown.
    pub(super) fn take_room(&self, steps: &MapReduceSteps, bytes: u64, budget_bytes: u64) -> bool {
        let budget_bytes = left_of(budget_bytes);
        let mapping = u64::from(steps.at_once) * map_stage::room_bytes(steps);
        let limit = (budget_bytes / 4 * 3).saturating_sub(mapping);
        let limit = limit.max(budget_bytes / 4);
        // Relaxed: only the sum matters.
        let taken =
            self.gathered_bytes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                    Some(taken + bytes).filter(|taken| *taken <= limit)
                });
        taken.is_ok()
    }

    /// Takes room of a table back.
    pub(super) fn give_room(&self, bytes: u64) {
        // Relaxed: only the sum matters.
        self.gathered_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// The directory of parts, begun when the first task asks. It waits for the disk.
    pub(super) fn staging(&self, steps: &MapReduceSteps) -> Result<Option<&Staging>, FileError> {
        let Some(directory) = &steps.output else {
            return Ok(None);
        };
        let begun = self.parts.begin(&path_of(directory), &steps.key());
        begun.map(Some)
    }
}

/// A part of the output: it holds what a job's tasks share in the process in which the part is
/// written, for as long as the shard lives.
#[derive(Clone, Debug, Default)]
pub(super) struct OutputPart {
    steps: MapReduceSteps,
    number: u32,
    shared: Option<Arc<MapReduceShared>>,
}

impl OutputPart {
    /// The part of a number.
    pub(super) fn of(steps: &MapReduceSteps, number: u32, _: u32) -> OutputPart {
        OutputPart {
            shared: Some(MapReduceShared::of(steps)),
            steps: steps.clone(),
            number,
        }
    }
}

impl PartOutput for OutputPart {
    fn commit(&self) -> Result<(), KernelError> {
        let shared = self.shared.as_ref().expect("made where the shard lies");
        let directory = self
            .steps
            .output
            .as_ref()
            .ok_or("parts are written to a directory")?;
        let meanwhile = "map-reduce ran";
        let (directory, key) = (path_of(directory), self.steps.key());
        shared
            .parts
            .commit(&directory, &key, self.number, meanwhile)
    }
}

/// It travels as the steps, and finds what there is where it arrives.
impl Payload for OutputPart {
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("map_reduce::OutputPart")
    }
    fn heap_bytes(&self) -> usize {
        0
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.steps.encode(out);
        self.number.encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<OutputPart, DecodeError> {
        let steps = MapReduceSteps::decode(input)?;
        let number = u32::decode(input)?;
        Ok(OutputPart::of(&steps, number, 0))
    }
}
