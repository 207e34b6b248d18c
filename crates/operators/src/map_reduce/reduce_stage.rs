//! Owns the reduce stage: it gathers the pairs of a partition in a table, spills that as a sorted run when it has no room,
//! and merges table and runs in the order of their keys.
//!
//! Its result goes to memory, or to a part of the output directory. Runs lie one after the other in one file without a
//! name. Where it spills follows the memory at hand; what comes out does not, since folds give the same for any grouping.

use super::file_sink::{FileSink, SINK_BYTES};
use super::fold_table::{FoldTable, REDUCE_SALT};
use super::merge::{MergeTo, Merged, PairMerge, RUNS_MAX};
use super::pairs::{self, FoldedPairs};
use super::part_sink::PartSink;
use super::run_reader::READER_BYTES;
use super::shared::MapReduceShared;
use super::text_files::path_of;
use super::{MapReduceSteps, failed};
use brambling_program::{
    Context, Exchange, KernelError, OutOfMemory, Progress, Reservation, Streams, Work,
};
use brambling_storage::{OutputFile, Publishing};
use std::ops::Range;
use std::sync::Arc;
use std::task::Poll;

/// A table of less is not worth a run.
const TABLE_BYTES_MIN: u64 = 256 << 10;

/// What a task of the stage has between its calls.
pub(super) struct ReduceTask {
    table: FoldTable,
    /// Of a small table and the sinks: with this it spills, and gives its result.
    _base: Reservation,
    /// Of the table beyond that: it grows with it.
    rooms: Vec<Reservation>,
    room_bytes: u64,
    /// Of the runs that are merged.
    readers: Option<Reservation>,
    runs: Vec<Range<u64>>,
    run_file: Option<FileSink>,
    part: Option<PartSink>,
    shared: Arc<MapReduceShared>,
    phase: Phase,
    /// What the result takes in memory.
    out_bytes: u64,
    /// What was done since it was last told.
    bytes: u64,
    folded: u64,
    /// Bytes of runs that were read.
    run_read: u64,
}

enum Phase {
    Gathers,
    /// The table becomes a run, which begins there in the file.
    Spills(PairMerge, u64),
    /// All has come.
    Ends,
    /// So many runs become one, which begins there.
    Unites(PairMerge, usize, u64),
    /// Table and runs become the result.
    Gives(PairMerge),
    /// The part gets its name.
    Publishes(Publishing),
    /// All is done.
    Done,
}

pub(super) fn open(
    steps: &MapReduceSteps,
    context: &mut Context<'_>,
) -> Result<ReduceTask, KernelError> {
    let shared = MapReduceShared::of(steps);
    // What stands in the way of the output is told before anything is reduced.
    shared.staging(steps).map_err(failed)?;
    let sinks = 1 + u64::from(steps.output.is_some());
    let base = context.reserve(TABLE_BYTES_MIN + sinks * SINK_BYTES)?;
    Ok(ReduceTask {
        table: FoldTable::new(steps.reduce, REDUCE_SALT),
        _base: base,
        rooms: Vec::new(),
        room_bytes: TABLE_BYTES_MIN,
        readers: None,
        runs: Vec::new(),
        run_file: None,
        part: None,
        shared,
        phase: Phase::Gathers,
        out_bytes: 0,
        bytes: 0,
        folded: 0,
        run_read: 0,
    })
}

pub(super) fn run(
    steps: &MapReduceSteps,
    task: &mut Result<ReduceTask, KernelError>,
    streams: &mut Streams<'_, '_>,
    out: &mut FoldedPairs,
) -> Result<Progress, KernelError> {
    let task = match task {
        Ok(task) => task,
        Err(error) => return Err(std::mem::replace(error, KernelError::new(String::new()))),
    };
    let progress = task.advance(steps, streams, out);
    let work = Work::streamed(std::mem::take(&mut task.bytes));
    let run = task.run_file.as_mut().map_or(0, FileSink::news);
    let part = task.part.as_mut().map_or(0, |part| part.sink().news());
    let work = work.and_file_written(run + part);
    let work = work.and_file_read(std::mem::take(&mut task.run_read));
    let folded = std::mem::take(&mut task.folded);
    let table = task.table.bytes() as u64;
    streams.context().worked(work.and_random(folded, table));
    progress
}

/// As [`run`], of a job whose parts are copied.
pub(super) fn run_and_copy(
    steps: &MapReduceSteps,
    task: &mut Result<ReduceTask, KernelError>,
    streams: &mut Streams<'_, '_>,
    out: &mut FoldedPairs,
) -> Result<Progress, KernelError> {
    run(steps, task, streams, out)
}

impl ReduceTask {
    fn advance(
        &mut self,
        steps: &MapReduceSteps,
        streams: &mut Streams<'_, '_>,
        out: &mut FoldedPairs,
    ) -> Result<Progress, KernelError> {
        let from = streams.input::<Vec<u8>>(0);
        let waker = streams.context().completion();
        loop {
            let (table, fold) = (&self.table, steps.reduce);
            let runs = self.run_file.as_mut().map(MergeTo::Run);
            let merged = match &mut self.phase {
                Phase::Gathers => {
                    if self.gather(steps, &from, streams)? {
                        return Ok(Progress::Pending);
                    }
                    if matches!(self.phase, Phase::Gathers) {
                        self.spill(steps)?;
                    }
                    continue;
                }
                Phase::Ends => {
                    self.end(steps, streams.context(), out)?;
                    continue;
                }
                Phase::Spills(merge, _) | Phase::Unites(merge, ..) => {
                    let to = runs.expect("it was made before");
                    let merged = merge.advance(table, fold, to, out, &waker)?;
                    self.run_read += merge.news();
                    merged
                }
                Phase::Gives(merge) => {
                    let to = self.part.as_mut().map_or(MergeTo::Memory, MergeTo::Part);
                    let merged = merge.advance(table, fold, to, out, &waker)?;
                    self.run_read += merge.news();
                    self.keep(out, streams.context())?;
                    let is_end = merged == Merged::All;
                    if let Some(part) = &mut self.part
                        && !part.send(streams, is_end)
                        && !is_end
                    {
                        return Ok(Progress::Pending);
                    }
                    merged
                }
                Phase::Publishes(publishing) => match publishing.poll(&waker) {
                    Poll::Pending => return Ok(Progress::Pending),
                    Poll::Ready(published) => {
                        published.map_err(failed)?;
                        self.phase = Phase::Done;
                        continue;
                    }
                },
                Phase::Done => return Ok(Progress::Done),
            };
            match merged {
                Merged::Some => return Ok(Progress::More),
                Merged::Waits => return Ok(Progress::Pending),
                Merged::All => {}
            }
            self.next(out);
        }
    }

    /// Folds what has come. True when there is nothing more for now; else all has come, or the table has no room.
    fn gather(
        &mut self,
        steps: &MapReduceSteps,
        from: &Exchange<Vec<u8>>,
        streams: &mut Streams<'_, '_>,
    ) -> Result<bool, KernelError> {
        loop {
            match streams.poll(from) {
                Poll::Pending => return Ok(true),
                Poll::Ready(None) => {
                    self.phase = Phase::Ends;
                    return Ok(false);
                }
                Poll::Ready(Some((_, chunk))) => {
                    for pair in pairs::iter(chunk) {
                        let (key, value) =
                            pair.map_err(|it| KernelError::new(it.to_string()).with_source(it))?;
                        self.table.queue(key, value);
                        self.folded += 1;
                    }
                    self.table.settle();
                    self.bytes += chunk.len() as u64;
                    self.shared.pool.give(vec![std::mem::take(chunk)]);
                }
            }
            if !self.make_room(steps, streams.context()) {
                return Ok(false);
            }
        }
    }

    /// Takes room for the table to double, if it soon will. Whether there is.
    fn make_room(&mut self, steps: &MapReduceSteps, context: &Context<'_>) -> bool {
        if self.table.is_too_large() {
            return false;
        }
        if !self.table.is_nearly_full() {
            return true;
        }
        let wanted = self.table.doubled_bytes() as u64;
        let Some(missing) = wanted.checked_sub(self.room_bytes) else {
            return true;
        };
        // Of less no run is made.
        let is_small = wanted <= TABLE_BYTES_MIN;
        if !(self.shared).take_room(steps, missing, context.budget_bytes()) {
            return is_small;
        }
        match context.reserve(missing) {
            Ok(room) => {
                self.rooms.push(room);
                self.room_bytes = wanted;
                true
            }
            Err(_) => {
                self.shared.give_room(missing);
                is_small
            }
        }
    }

    /// Lets go of what the table has taken.
    fn give_room(&mut self) {
        self.rooms.clear();
        self.shared.give_room(self.room_bytes - TABLE_BYTES_MIN);
        self.room_bytes = TABLE_BYTES_MIN;
    }

    /// Begins to make a run of the table.
    fn spill(&mut self, steps: &MapReduceSteps) -> Result<(), KernelError> {
        if self.run_file.is_none() {
            let directory = path_of(&steps.run_directory);
            let file = OutputFile::unnamed(&directory).map_err(failed)?;
            self.run_file = Some(FileSink::new(file));
        }
        let begin = self.run_file.as_ref().map_or(0, FileSink::bytes);
        self.phase = Phase::Spills(PairMerge::new(&self.table, None, &[]), begin);
        Ok(())
    }

    /// All has come: unites runs where there are too many, and then gives the result.
    fn end(
        &mut self,
        steps: &MapReduceSteps,
        context: &Context<'_>,
        out: &mut FoldedPairs,
    ) -> Result<(), KernelError> {
        if !self.runs.is_empty() && !self.table.is_empty() {
            // A merge wants room, which the table has.
            return self.spill(steps);
        }
        let mut count = 0;
        if !self.runs.is_empty() {
            self.table.reset();
            self.give_room();
            count = self.make_readers(context)?;
        }
        let file = self.run_file.as_ref().map(|sink| sink.file().as_input());
        let file = file.transpose().map_err(failed)?;
        let merge = PairMerge::new(&self.table, file.as_ref(), &self.runs[..count]);
        if count < self.runs.len() {
            let begin = self.run_file.as_ref().map_or(0, FileSink::bytes);
            self.phase = Phase::Unites(merge, count, begin);
            return Ok(());
        }
        *out = FoldedPairs::default();
        if let Some(staging) = self.shared.staging(steps).map_err(failed)? {
            let part = staging.part(context.partition(), None).map_err(failed)?;
            self.part = Some(PartSink::new(part, steps.parts.copies > 0));
        }
        self.phase = Phase::Gives(merge);
        Ok(())
    }

    /// Takes room to read as many runs at once as there is. How many these are.
    fn make_readers(&mut self, context: &Context<'_>) -> Result<usize, KernelError> {
        self.readers = None;
        let mut count = self.runs.len().min(RUNS_MAX);
        loop {
            match context.reserve(count as u64 * READER_BYTES) {
                Ok(room) => {
                    self.readers = Some(room);
                    return Ok(count);
                }
                Err(error) if count <= 2 => return Err(no_room(&error)),
                Err(_) => count = count.div_ceil(2),
            }
        }
    }

    /// Takes room for the result as it grows.
    fn keep(&mut self, out: &FoldedPairs, context: &Context<'_>) -> Result<(), KernelError> {
        let missing = (out.bytes() as u64).saturating_sub(self.out_bytes);
        if missing > 0 {
            let room = context.reserve(missing).map_err(|it| no_room(&it))?;
            self.rooms.push(room);
            self.out_bytes += missing;
        }
        Ok(())
    }

    /// What a merge that is over leads to.
    fn next(&mut self, out: &mut FoldedPairs) {
        let sink = self.run_file.as_ref();
        let run = |begin| sink.map(|sink| sink.since(begin));
        match self.phase {
            Phase::Spills(_, begin) => {
                self.runs.extend(run(begin));
                self.table.clear();
                // A table of that size had room, and has it again.
                self.phase = Phase::Gathers;
            }
            Phase::Unites(_, count, begin) => {
                let united = run(begin);
                self.runs.drain(..count);
                self.runs.extend(united);
                self.phase = Phase::Ends;
            }
            Phase::Gives(_) => {
                self.phase = match &mut self.part {
                    Some(part) => {
                        out.note_process();
                        Phase::Publishes(Publishing::new(part.sink().file()))
                    }
                    None => Phase::Done,
                }
            }
            Phase::Gathers | Phase::Ends | Phase::Publishes(_) | Phase::Done => {}
        }
    }
}

/// A task that ends early keeps nobody from room.
impl Drop for ReduceTask {
    fn drop(&mut self) {
        self.give_room();
    }
}

fn no_room(error: &OutOfMemory) -> KernelError {
    KernelError::new(format!(
        "{error}; a result in memory takes all its keys, and runs are merged in some megabytes a partition: \
         write the result to files (output), give more memory, or change the number of partitions"
    ))
}
