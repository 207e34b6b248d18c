//! Owns the map stage: it reads the ranges of a split, folds what they give in a table, and sends the table's pairs to
//! the partitions of their keys whenever it is full.
//!
//! Where a table is cut follows the bytes that were read, never time, room or threads. With a backup, pairs are in a file of
//! the run directory before they are sent. The stage never holds more of a file than its read-ahead.

use super::file_sink::{FileSink, SINK_BYTES};
use super::fold_table::FoldTable;
use super::items::{ItemCutter, KEY_BYTES_MAX, TooLong};
use super::shared::MapReduceShared;
use super::text_files::{TextRange, path_of};
use super::{MapReduceSteps, failed};
use crate::parts::{ChunkPool, Pass};
use brambling_program::{Context, Exchange, KernelError, Progress, Reservation, Streams, Work};
use brambling_storage::{Block, InputFile, OutputFile, ReadAhead, Scan};
use std::sync::Arc;
use std::task::{Poll, Waker};

/// Blocks that a split has on their way.
const BLOCKS_AHEAD: usize = 2;
/// Between two looks at whether the table is full.
const STEP_BYTES: usize = 64 << 10;

/// What a task of the stage has between its calls.
pub(super) struct MapTask {
    shared: Arc<MapReduceShared>,
    /// Nothing before its turn.
    work: Option<MapWork>,
}

/// What a task has whose turn it is.
struct MapWork {
    table: FoldTable,
    range: usize,
    reading: Option<Reading>,
    /// Pairs that were taken out of the table and not sent yet, each chunk with its destination.
    dealt: Vec<(u32, Vec<u8>)>,
    backup: Option<FileSink>,
    state: Sending,
    /// What was done since it was last told.
    bytes: u64,
    folded: u64,
    room: Reservation,
    _pass: Pass,
}

/// What the task had is left to those that come after it, before they may begin.
impl Drop for MapTask {
    fn drop(&mut self) {
        let work = self.work.take();
        let (held, _pass) = work
            .map(|work| ((work.table, work.room), work._pass))
            .unzip();
        self.shared.mapping.close(held, &self.shared.pool);
    }
}

/// How far what was dealt is on its way.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sending {
    /// Nothing is.
    Idle,
    /// It is being written to the backup.
    Writing,
    /// It is sent, and destinations may have no room for more.
    Sent,
}

/// A range that is read.
struct Reading {
    file: Arc<InputFile>,
    scan: Scan,
    cutter: ItemCutter,
    /// The block at hand, and how much of it has been looked at.
    block: Option<Block>,
    at: usize,
}

/// How far a range is after a call.
enum Read {
    /// The block at hand is not finished, and the table may be full.
    Step,
    /// A block is finished.
    Block,
    /// The next one has not come.
    Waits,
    /// The range is finished.
    Ended,
}

pub(super) fn open(steps: &MapReduceSteps, _: &mut Context<'_>) -> MapTask {
    let shared = MapReduceShared::of(steps);
    shared.mapping.open();
    MapTask { shared, work: None }
}

pub(super) fn run(
    steps: &MapReduceSteps,
    task: &mut MapTask,
    streams: &mut Streams<'_, '_>,
    ranges: &Vec<TextRange>,
) -> Result<Progress, KernelError> {
    let work = match &mut task.work {
        Some(work) => work,
        none => {
            // Splits that take turns would take each other's tables out of the caches.
            let context = streams.context();
            let entered = (task.shared.mappers).enter(context.partition(), &context.completion());
            let Poll::Ready(pass) = entered else {
                return Ok(Progress::Pending);
            };
            none.insert(MapWork::begin(steps, &task.shared, pass, context)?)
        }
    };
    let progress = work.advance(steps, &task.shared.pool, streams, ranges);
    let read = std::mem::take(&mut work.bytes);
    let backed = work.backup.as_mut().map_or(0, FileSink::news);
    let done = Work::streamed(read)
        .and_file_read(read)
        .and_file_written(backed);
    let folded = std::mem::take(&mut work.folded);
    let table = work.table.bytes() as u64;
    streams.context().worked(done.and_random(folded, table));
    progress
}

/// What a split takes that is mapped.
pub(super) fn room_bytes(steps: &MapReduceSteps) -> u64 {
    let ahead = (BLOCKS_AHEAD as u64 + 1) * steps.block_bytes;
    let backup = if steps.backup { SINK_BYTES } else { 0 };
    // A table that is half full has twice the slots, and their copies while it grows; what is dealt lies beside it.
    4 * steps.table_bytes + ahead + backup
}

impl MapWork {
    fn begin(
        steps: &MapReduceSteps,
        shared: &MapReduceShared,
        pass: Pass,
        context: &Context<'_>,
    ) -> Result<MapWork, KernelError> {
        let (table, room) = shared.mapping.take(steps, context)?;
        let backup = match steps.backup {
            false => None,
            true => {
                let directory = path_of(&steps.run_directory);
                Some(FileSink::new(
                    OutputFile::unnamed(&directory).map_err(failed)?,
                ))
            }
        };
        Ok(MapWork {
            table,
            range: 0,
            reading: None,
            dealt: Vec::new(),
            backup,
            state: Sending::Idle,
            bytes: 0,
            folded: 0,
            room,
            _pass: pass,
        })
    }

    fn advance(
        &mut self,
        steps: &MapReduceSteps,
        pool: &ChunkPool,
        streams: &mut Streams<'_, '_>,
        ranges: &[TextRange],
    ) -> Result<Progress, KernelError> {
        let to = streams.output::<Vec<u8>>();
        let waker = streams.context().completion();
        loop {
            if !self.send(&to, streams, &waker)? {
                return Ok(Progress::Pending);
            }
            let Some(range) = ranges.get(self.range) else {
                if self.table.is_empty() {
                    return Ok(Progress::Done);
                }
                self.deal(steps, pool, streams);
                continue;
            };
            let read = self.read(steps, range, &waker)?;
            self.table.settle();
            match read {
                Read::Waits => return Ok(Progress::Pending),
                Read::Ended => {
                    self.reading = None;
                    self.range += 1;
                }
                Read::Step => {}
                // Others may run on this thread.
                Read::Block if !self.is_full(steps) => return Ok(Progress::More),
                Read::Block => {}
            }
            if self.is_full(steps) {
                self.deal(steps, pool, streams);
            }
        }
    }

    fn is_full(&self, steps: &MapReduceSteps) -> bool {
        self.table.held_bytes() as u64 >= steps.table_bytes
    }

    /// Takes the pairs out of the table, in chunks.
    fn deal(&mut self, steps: &MapReduceSteps, pool: &ChunkPool, streams: &Streams<'_, '_>) {
        let dealt = &mut self.dealt;
        let chunk_bytes = steps.chunk_bytes();
        let mut buffers = vec![Vec::new(); streams.destinations().count()];
        self.table.deal(&mut buffers, |to, buffer, wanted| {
            let fresh = pool.take(chunk_bytes.max(wanted));
            let full = std::mem::replace(buffer, fresh);
            dealt.extend((!full.is_empty()).then_some((to, full)));
        });
        let rest = (0..).zip(buffers).filter(|(_, rest)| !rest.is_empty());
        dealt.extend(rest.map(|(to, rest)| (to, pool.fit(rest))));
        self.table.clear();
        self.state = Sending::Writing;
        if let Some(backup) = &mut self.backup {
            for (_, bytes) in &self.dealt {
                backup.put(bytes);
            }
        }
    }

    /// Sends what was dealt. Whether the task may go on.
    fn send(
        &mut self,
        to: &Exchange<Vec<u8>>,
        streams: &mut Streams<'_, '_>,
        waker: &Waker,
    ) -> Result<bool, KernelError> {
        if self.state == Sending::Writing {
            if let Some(backup) = &mut self.backup {
                match backup.poll_written(waker) {
                    Poll::Pending => return Ok(false),
                    Poll::Ready(written) => written.map_err(failed)?,
                }
            }
            for (destination, bytes) in self.dealt.drain(..) {
                streams.send(to, destination, bytes);
            }
            self.state = Sending::Sent;
        }
        if self.state == Sending::Sent {
            let mut destinations = 0..streams.destinations().count() as u32;
            if !destinations.all(|destination| streams.has_room(to, destination)) {
                return Ok(false);
            }
            self.state = Sending::Idle;
        }
        Ok(true)
    }

    /// Looks at some more of a range.
    fn read(
        &mut self,
        steps: &MapReduceSteps,
        range: &TextRange,
        waker: &Waker,
    ) -> Result<Read, KernelError> {
        let table = &mut self.table;
        let folded = &mut self.folded;
        let first = steps.reduce.first(1);
        let mut each = |text: &[u8], begin: usize, end: usize| {
            *folded += 1;
            table.queue_in(text, begin, end, first);
        };
        let reading = match &mut self.reading {
            Some(reading) => reading,
            none => none.insert(Reading::begin(steps, range)?),
        };
        let Some(block) = &reading.block else {
            return match reading.scan.poll(waker) {
                Poll::Pending => Ok(Read::Waits),
                Poll::Ready(Err(error)) => Err(failed(error)),
                Poll::Ready(Ok(Some(block))) => {
                    self.bytes += block.len() as u64;
                    (reading.block, reading.at) = (Some(block), 0);
                    Ok(Read::Step)
                }
                Poll::Ready(Ok(None)) => {
                    self.bytes += reading.close(range, &mut each)?;
                    Ok(Read::Ended)
                }
            };
        };
        let end = block.len().min(reading.at + STEP_BYTES);
        let fed = reading.cutter.feed(&block[reading.at..end], &mut each);
        fed.map_err(|TooLong| too_long(range))?;
        reading.at = end;
        if end < block.len() {
            return Ok(Read::Step);
        }
        if let Some(block) = reading.block.take() {
            reading.scan.give_back(block);
        }
        Ok(Read::Block)
    }
}

impl Reading {
    fn begin(steps: &MapReduceSteps, range: &TextRange) -> Result<Reading, KernelError> {
        let path = range.file.path();
        let file = InputFile::open(&path).map_err(failed)?;
        let found = file.fingerprint();
        if (found.bytes, found.changed_ns) != (range.file.bytes, range.file.changed_ns) {
            return Err(KernelError::new(format!(
                "{} has changed since the job began, or is another file on this worker; let nobody write to it meanwhile, and begin again",
                path.display()
            )));
        }
        let ahead = ReadAhead {
            block_bytes: (steps.block_bytes as usize).max(1),
            blocks: BLOCKS_AHEAD,
        };
        // The byte before the range says whether an item begins with it.
        let bytes = range.begin.saturating_sub(1)..range.end;
        Ok(Reading {
            scan: Scan::new(&file, bytes, ahead),
            cutter: ItemCutter::new(steps.map, range.begin > 0),
            block: None,
            at: 0,
            file,
        })
    }

    /// Reads on behind the range, to the end of the item that is open. How many bytes that took.
    fn close(
        &mut self,
        range: &TextRange,
        each: &mut impl FnMut(&[u8], usize, usize),
    ) -> Result<u64, KernelError> {
        let mut at = range.end;
        let mut behind = vec![0; STEP_BYTES.min(4 << 10)];
        while self.cutter.is_open() && at < range.file.bytes {
            let bytes = behind.len().min((range.file.bytes - at) as usize);
            self.file
                .read_at(at, &mut behind[..bytes])
                .map_err(failed)?;
            at += bytes as u64;
            let closed = self.cutter.close(&behind[..bytes], &mut *each);
            if closed.map_err(|TooLong| too_long(range))? {
                break;
            }
            behind.resize(STEP_BYTES, 0);
        }
        self.cutter.finish(each);
        Ok(at - range.end)
    }
}

fn too_long(range: &TextRange) -> KernelError {
    KernelError::new(format!(
        "{} has a word or line of more than {KEY_BYTES_MAX} bytes that begins between byte {} and {}, which can be no key; is it a text file?",
        range.file.path().display(),
        range.begin,
        range.end
    ))
}
