//! Owns how sorted sources become one: the runs that a reduce has spilled, and what its table holds.
//!
//! The reduce stage drives it. The same merge writes a run of a table alone, makes one run of many, and gives the
//! partition's result. It looks at each source for each pair, since there are few: see [`RUNS_MAX`].

use super::file_sink::FileSink;
use super::fold_table::{FoldTable, ReduceFunction, SlotPlace};
use super::pairs::{self, FoldedPairs};
use super::part_sink::PartSink;
use super::run_reader::RunReader;
use brambling_memory::Pages;
use brambling_program::KernelError;
use brambling_storage::{FileError, InputFile};
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// So many runs are merged at once; more are made one first.
pub const RUNS_MAX: usize = 32;

/// So many pairs are merged before others may run on the thread.
const SLICE: u32 = 1 << 16;

/// Where merged pairs go.
pub enum MergeTo<'m> {
    /// To a run.
    Run(&'m mut FileSink),
    /// To a part of the output, as lines.
    Part(&'m mut PartSink),
    /// To memory.
    Memory,
}

impl MergeTo<'_> {
    /// The file, if it is one.
    fn sink(&mut self) -> Option<&mut FileSink> {
        match self {
            MergeTo::Run(sink) => Some(sink),
            MergeTo::Part(part) => Some(part.sink()),
            MergeTo::Memory => None,
        }
    }
}

/// How far a merge is after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// All pairs are where they were to go.
    All,
    /// It goes on when it is called again.
    Some,
    /// It goes on when the waker is woken.
    Waits,
}

/// Sources that are merged.
pub struct PairMerge {
    /// Places of the table, in order, and how many of them have gone.
    places: Pages<SlotPlace>,
    gone: usize,
    runs: Vec<RunReader>,
    /// The key at hand, and a line that is made of it.
    key: Vec<u8>,
    line: Vec<u8>,
}

impl PairMerge {
    /// Of a table and runs.
    pub fn new(table: &FoldTable, file: Option<&Arc<InputFile>>, runs: &[Range<u64>]) -> PairMerge {
        let of = |file| {
            runs.iter()
                .map(move |run| RunReader::new(file, run.clone()))
        };
        PairMerge {
            places: table.order(),
            gone: 0,
            runs: file.into_iter().flat_map(of).collect(),
            key: Vec::new(),
            line: Vec::new(),
        }
    }

    /// How many bytes of runs have come since the last call.
    pub fn news(&mut self) -> u64 {
        self.runs.iter_mut().map(RunReader::news).sum()
    }

    /// Goes on until it has to wait, or a slice of the work is done.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn advance(
        &mut self,
        table: &FoldTable,
        fold: ReduceFunction,
        mut to: MergeTo<'_>,
        pairs: &mut FoldedPairs,
        waker: &Waker,
    ) -> Result<Merged, KernelError> {
        for _ in 0..SLICE {
            if let Some(sink) = to.sink()
                && is_pending(sink.poll_room(waker))?
            {
                return Ok(Merged::Waits);
            }
            if let MergeTo::Part(part) = &to
                && part.is_full()
            {
                return Ok(Merged::Some);
            }
            for run in &mut self.runs {
                match run.poll_pair(waker) {
                    Poll::Pending => return Ok(Merged::Waits),
                    Poll::Ready(ready) => ready?,
                }
            }
            let Some(value) = self.take_least(table, fold) else {
                return self.finish(to, waker);
            };
            match &mut to {
                MergeTo::Memory => pairs.push(&self.key, value),
                MergeTo::Run(sink) => {
                    self.line.clear();
                    pairs::push(&mut self.line, &self.key, value);
                    sink.put(&self.line);
                }
                MergeTo::Part(part) => {
                    self.line.clear();
                    self.line.extend_from_slice(&self.key);
                    writeln!(self.line, "\t{value}").expect("memory takes all bytes");
                    part.put(&self.line);
                    pairs.count_written(self.line.len());
                }
            }
        }
        Ok(Merged::Some)
    }

    fn finish(&mut self, mut to: MergeTo<'_>, waker: &Waker) -> Result<Merged, KernelError> {
        if let Some(sink) = to.sink()
            && is_pending(sink.poll_written(waker))?
        {
            return Ok(Merged::Waits);
        }
        Ok(Merged::All)
    }

    /// Folds the pairs of the least key at hand, and lets go of them. Nothing when there is none.
    fn take_least(&mut self, table: &FoldTable, fold: ReduceFunction) -> Option<u64> {
        let own = self
            .places
            .get(self.gone)
            .map(|place| table.pair_at(*place));
        let own_key = own.as_ref().map(|(key, _)| key.bytes());
        let keys = self.runs.iter().filter_map(RunReader::pair).map(|it| it.0);
        let least = keys.chain(own_key).min()?;
        self.key.clear();
        self.key.extend_from_slice(least);
        let mut folded = None;
        let mut add = |value| {
            folded = Some(folded.map_or(value, |before| fold.join(before, value)));
        };
        if let Some((key, value)) = own
            && key.bytes() == self.key
        {
            add(value);
            self.gone += 1;
        }
        for run in &mut self.runs {
            if let Some((key, value)) = run.pair()
                && key == self.key
            {
                add(value);
                run.pass();
            }
        }
        folded
    }
}

fn is_pending(polled: Poll<Result<(), FileError>>) -> Result<bool, KernelError> {
    match polled {
        Poll::Pending => Ok(true),
        Poll::Ready(ready) => ready.map(|()| false).map_err(super::failed),
    }
}
