//! Owns the copies of parts on other workers: a part sends each block that it writes, and each shard
//! of copies writes what comes to files of its own. (Krevat et al., Table 3, the rows with
//! replication.)

use super::SortCount;
use super::plan::SortPlan;
use super::shared::SortShared;
use brambling_program::{Context, KernelError, Progress, Relation, RelationTable, Streams, Work};
use brambling_storage::{BlockWriter, FileError, OutputFile, Publishing};
use std::sync::Arc;
use std::task::{Poll, Waker};

/// So many blocks are written at once.
const BLOCKS_BEHIND: usize = 3;

/// Which part sends to which shard of copies: to the same place of the next workers' ranges, since
/// shards are placed in ranges of equal length.
pub(super) fn relation(plan: &SortPlan) -> Relation {
    let table = RelationTable {
        sources: (0..plan.parts).map(|shard| plan.copied_by(shard)).collect(),
    };
    Relation::Tables {
        prologue: Vec::new(),
        period: vec![table],
    }
}

impl SortPlan {
    /// The parts of which a shard has copies, ascending.
    pub fn copied_by(&self, shard: u32) -> Vec<u32> {
        let mut parts: Vec<u32> = (1..=self.copies)
            .map(|copy| source(self, shard, copy))
            .collect();
        parts.sort_unstable();
        parts
    }
}

/// The part whose copy of this number a shard has.
fn source(plan: &SortPlan, shard: u32, copy: u32) -> u32 {
    let of_worker = plan.parts / plan.workers.max(1);
    (shard + plan.parts - copy * of_worker % plan.parts) % plan.parts
}

/// Files of copies that are being written.
pub(super) struct Copying {
    shared: Arc<SortShared>,
    open: Option<OpenCopy>,
    publishing: Option<Publishing>,
    /// A block that has come, of which part.
    held: Option<(u32, Vec<u8>)>,
    ended: bool,
    count: SortCount,
}

struct OpenCopy {
    source: u32,
    file: Arc<OutputFile>,
    writer: BlockWriter,
    at: u64,
}

pub(super) fn open(plan: &SortPlan, _: &mut Context<'_>) -> Copying {
    Copying {
        shared: SortShared::of(plan),
        open: None,
        publishing: None,
        held: None,
        ended: false,
        count: SortCount::default(),
    }
}

pub(super) fn copy(
    plan: &SortPlan,
    own: &mut Copying,
    streams: &mut Streams<'_, '_>,
    copied: &mut SortCount,
) -> Result<Progress, KernelError> {
    let waker = streams.context().completion();
    loop {
        let is_ready = own.write_what_came(plan, streams, &waker)?;
        if !is_ready {
            return Ok(Progress::Pending);
        }
        if own.ended {
            own.count.note_process();
            *copied = std::mem::take(&mut own.count);
            return Ok(Progress::Done);
        }
        let from = streams.input::<Vec<u8>>(0);
        match streams.poll(&from) {
            Poll::Pending => return Ok(Progress::Pending),
            Poll::Ready(None) => own.ended = true,
            Poll::Ready(Some((source, block))) => {
                own.held = Some((source, std::mem::take(block)));
            }
        }
    }
}

impl Copying {
    /// Whether nothing that came has still to be given to the disk; at the end, whether all is there.
    fn write_what_came(
        &mut self,
        plan: &SortPlan,
        streams: &mut Streams<'_, '_>,
        waker: &Waker,
    ) -> Result<bool, KernelError> {
        if let Some(publishing) = &mut self.publishing {
            match publishing.poll(waker) {
                Poll::Pending => return Ok(false),
                Poll::Ready(published) => published.map_err(fault)?,
            }
            self.publishing = None;
        }
        let next = self.held.as_ref().map(|held| held.0);
        if let Some(open) = &mut self.open {
            let is_over = self.ended || next.is_some_and(|source| source != open.source);
            let polled = match is_over {
                true => open.writer.poll_written(waker),
                false => open.writer.poll_room(waker),
            };
            match polled {
                Poll::Pending => return Ok(false),
                Poll::Ready(done) => done.map_err(fault)?,
            }
            if is_over {
                self.publishing = Some(Publishing::new(&open.file));
                self.open = None;
                return self.write_what_came(plan, streams, waker);
            }
        }
        if let Some((source, block)) = self.held.take() {
            if self.open.is_none() {
                let shard = streams.context().partition();
                self.open = Some(self.begin(plan, shard, source)?);
            }
            let open = self.open.as_mut().expect("just opened");
            let mut out = open.writer.take_block_at(open.at, block.len());
            out.extend_from_slice(&block);
            if !out.is_empty() {
                open.writer.write(open.at, out);
            }
            open.at += block.len() as u64;
            let bytes = block.len() as u64;
            self.count.bytes += bytes;
            let work = Work::streamed(2 * bytes).and_file_written(bytes);
            streams.context().worked(work);
        }
        Ok(true)
    }

    fn begin(&self, plan: &SortPlan, shard: u32, part: u32) -> Result<OpenCopy, KernelError> {
        let mut copies = 1..=plan.copies;
        let copy = copies.find(|copy| source(plan, shard, *copy) == part);
        let copy = copy.expect("only related parts send");
        let staging = self.shared.staging(plan).map_err(fault)?;
        let staging = staging.ok_or("copies are of a sort into parts")?;
        let file = staging.copy(copy, part).map_err(fault)?;
        Ok(OpenCopy {
            source: part,
            writer: BlockWriter::new(&file, BLOCKS_BEHIND),
            file,
            at: 0,
        })
    }
}

fn fault(error: FileError) -> KernelError {
    KernelError::new(error.to_string()).with_source(error)
}
