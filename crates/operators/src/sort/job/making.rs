//! Owns the making of records for tries of a sort: each shard writes a range of them into the one
//! output. What a record holds follows from its number alone.

use super::plan::SortPlan;
use super::shared::SortShared;
use crate::parts::Pass;
use crate::sort::{RecordMaker, Skew};
use brambling_program::{
    Context, Dataset, KernelError, Partitioner, Program, Progress, Streams, Work,
};
use brambling_storage::{Block, BlockWriter};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::task::Poll;

/// So many blocks are written at once by a shard.
const BLOCKS_BEHIND: usize = 3;

/// What is made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MakePlan {
    /// The job's number, its format, and how many at once.
    pub sort: SortPlan,
    /// How many records.
    pub records: u64,
    /// The same numbers make the same records.
    pub seed: u64,
    /// How keys are spread.
    pub skew: Skew,
    /// How many shards write.
    pub shards: u32,
}
brambling_program::payload!(MakePlan);

impl MakePlan {
    fn range(&self, shard: u32) -> (u64, u64) {
        let cut = |number: u32| {
            (u128::from(self.records) * u128::from(number) / u128::from(self.shards.max(1))) as u64
        };
        (cut(shard), cut(shard + 1))
    }
}

/// Adds the stage, and gives the bytes that each shard has written; kept.
pub fn build(p: &mut Program, plan: &MakePlan) -> Dataset<u64> {
    let written = p.scan(
        "made",
        plan.shards,
        Partitioner::Opaque,
        (),
        |_: &(), _: u32, _: u32| 0u64,
    );
    p.keep(&written);
    p.stream("make")
        .update(&written)
        .with(plan.clone())
        .run(open, make);
    written
}

struct Making {
    shared: Arc<SortShared>,
    pass: Option<Pass>,
    maker: Result<RecordMaker, String>,
    writer: Option<BlockWriter>,
    next: u64,
    /// Bytes of a block.
    block_bytes: usize,
}

fn open(plan: &MakePlan, context: &mut Context<'_>) -> Making {
    let shared = SortShared::of(&plan.sort);
    let block_bytes = shared.memory(&plan.sort, context).sizes.read_block_bytes;
    let maker = RecordMaker::new(&plan.sort.format, plan.records, plan.seed, plan.skew);
    Making {
        shared,
        block_bytes,
        pass: None,
        maker: maker.map_err(|error| error.to_string()),
        writer: None,
        next: plan.range(context.partition()).0,
    }
}

fn make(
    plan: &MakePlan,
    making: &mut Making,
    streams: &mut Streams<'_, '_>,
    written: &mut u64,
) -> Result<Progress, KernelError> {
    let waker = streams.context().completion();
    let number = streams.context().partition();
    if making.pass.is_none() {
        match making.shared.writers.enter(number, &waker) {
            Poll::Pending => return Ok(Progress::Pending),
            Poll::Ready(pass) => making.pass = Some(pass),
        }
    }
    let maker = making
        .maker
        .as_ref()
        .map_err(|why| KernelError::from(why.as_str()))?;
    let writer = match &mut making.writer {
        Some(writer) => writer,
        None => {
            let file = making.shared.output.get();
            let file = file.ok_or("the process that makes records has their file open")?;
            making.writer.insert(BlockWriter::new(file, BLOCKS_BEHIND))
        }
    };
    let fault = |error: brambling_storage::FileError| {
        KernelError::new(error.to_string()).with_source(error)
    };
    let end = plan.range(number).1;
    if making.next == end {
        return match writer.poll_written(&waker) {
            Poll::Pending => Ok(Progress::Pending),
            Poll::Ready(all) => {
                all.map_err(fault)?;
                making.pass = None;
                Ok(Progress::Done)
            }
        };
    }
    match writer.poll_room(&waker) {
        Poll::Pending => return Ok(Progress::Pending),
        Poll::Ready(room) => room.map_err(fault)?,
    }
    let width = plan.sort.unit();
    let count = (making.block_bytes as u64 / width).min(end - making.next);
    let at = making.next * width;
    let mut block: Block = writer.take_block_at(at, (count * width) as usize);
    block.set_len((count * width) as usize);
    maker.fill(making.next, &mut block);
    writer.write(at, block);
    making.next += count;
    let bytes = count * width;
    let work = Work::streamed(bytes).and_file_written(bytes);
    streams.context().worked(work);
    *written += bytes;
    Ok(Progress::More)
}
