//! A program grows by statements, and each is checked when it is added: by itself, whatever stands before it.

use crate::validate::{check_stage, fits};
use crate::{BlockId, BuildError, Count, DatasetId, Program, ProgramNode, StageId, StageKind};

/// How many loops and branches may stand in each other. Whatever walks a program's blocks recurses as deep, and each group's code
/// enters as many for a stage.
pub const DEPTH_MAX: usize = 100;

/// How far a program had grown: see [`Program::mark`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    symbols: usize,
    datasets: usize,
    exchanges: usize,
    stages: usize,
    streams: usize,
    blocks: usize,
    open: usize,
    /// Nodes of the innermost open block.
    nodes: usize,
    errors: usize,
    placed: crate::placement::PlacementMark,
}

impl Program {
    /// How far the program has grown. What is added from here on may be checked by itself, and taken back. For other languages' builders.
    ///
    /// ```
    /// use brambling_program::Program;
    ///
    /// let mut p = Program::new("growing");
    /// let number = p.dataset::<u64>("number", 1);
    /// let before = p.mark();
    /// let none = p.dataset::<u64>("none", 0);
    /// p.compute("copy").read(&none).write(&number).run(|none: &u64, number: &mut u64| *number = *none);
    /// assert!(p.check_since(&before).is_err());
    /// p.take_back(&before);
    /// assert!(p.validate().is_ok());
    /// ```
    pub fn mark(&self) -> Mark {
        Mark {
            symbols: self.spec.symbols.len(),
            datasets: self.spec.datasets.len(),
            exchanges: self.spec.exchanges.len(),
            stages: self.spec.stages.len(),
            streams: self.spec.streams.len(),
            blocks: self.spec.blocks.len(),
            open: self.open.len(),
            nodes: self.spec.blocks[self.current_block().index()].len(),
            errors: self.errors.len(),
            placed: self.placement.mark(),
        }
    }

    /// Checks what was added since, in time that does not depend on what stands before it. Whether every exchange has both of its ends is
    /// asked of the whole program alone: a gather may still come.
    ///
    /// # Errors
    /// The first thing that is wrong, as [`Program::validate`] would say it.
    pub fn check_since(&self, mark: &Mark) -> Result<(), BuildError> {
        if let Some(error) = self.errors.get(mark.errors) {
            return Err(error.clone());
        }
        for stage in &self.spec.stages[mark.stages..] {
            check_stage(&self.spec, stage)?;
            if let StageKind::Gather(exchange) = stage.kind
                && let Some(scatter) = self.scatters[exchange.index()]
            {
                let count = |stage: &crate::StageSpec| {
                    let (dataset, _) = stage.uses[0];
                    self.spec.datasets[dataset.index()].count
                };
                let from = count(&self.spec.stages[scatter.index()]);
                // Symbols are checked when they are bound.
                if let (Count::Fixed(from), Count::Fixed(to)) = (from, count(stage)) {
                    fits(&self.spec, exchange, from, to)?;
                }
            }
        }
        let block = self.open[mark.open - 1];
        for node in &self.spec.blocks[block.index()][mark.nodes..] {
            if let ProgramNode::Branch { signal, .. } = *node
                && !self.is_given(signal, &self.open[..mark.open])
            {
                let signal = self.spec.stages[signal.index()].name.clone();
                return Err(BuildError::SignalNotBefore { signal });
            }
        }
        Ok(())
    }

    /// Whether a signal is given in one of these blocks, which are open.
    fn is_given(&self, signal: StageId, open: &[BlockId]) -> bool {
        let stage = &self.spec.stages[signal.index()];
        stage.kind == StageKind::Signal && open.contains(&stage.block)
    }

    /// Takes back what was added since: it must not have closed what was open then. Datasets from the one that is returned on are no longer
    /// there.
    ///
    /// # Panics
    /// When it has.
    pub fn take_back(&mut self, mark: &Mark) -> DatasetId {
        assert!(
            self.open.len() >= mark.open,
            "a block was closed that was open at the mark"
        );
        self.open.truncate(mark.open);
        let block = self.current_block();
        self.spec.blocks.truncate(mark.blocks);
        self.spec.blocks[block.index()].truncate(mark.nodes);
        // An exchange from before the mark may have got its scatter since: it waits for one again.
        for id in mark.stages..self.spec.stages.len() {
            let id = StageId(id as u32);
            if let Some(exchange) = self.spec.sends_to(id)
                && self.scatters[exchange.index()] == Some(id)
            {
                self.scatters[exchange.index()] = None;
            }
        }
        self.spec.stages.truncate(mark.stages);
        self.spec.streams.truncate(mark.streams);
        self.spec.kernels.truncate(mark.stages);
        self.kernels.truncate(mark.stages);
        self.spec.exchanges.truncate(mark.exchanges);
        self.pieces.truncate(mark.exchanges);
        self.scatters.truncate(mark.exchanges);
        self.combiners
            .split_off(&crate::ExchangeId(mark.exchanges as u32));
        self.spec.datasets.truncate(mark.datasets);
        self.types.truncate(mark.datasets);
        self.sources.truncate(mark.datasets);
        let datasets = DatasetId(mark.datasets as u32);
        self.hints.split_off(&datasets);
        self.spec.symbols.truncate(mark.symbols);
        self.errors.truncate(mark.errors);
        self.placement.take_back(&mark.placed, &mut self.spec);
        datasets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Relation, Streams};

    #[test]
    fn a_stream_that_is_taken_back_can_be_added_again() {
        let mut p = Program::new("streams");
        let (from, to) = (p.dataset::<u64>("from", 2), p.dataset::<u64>("to", 2));
        let chunks = p.streamed::<u64>("chunks", Relation::AllToAll);
        let send = |p: &mut Program| {
            let send = p.stream("send").send(&chunks).read(&from);
            send.run(|_| (), |(): &mut (), _: &mut Streams<'_, '_>, _: &u64| {});
        };
        let mark = p.mark();
        let without = p.spec().encode();
        send(&mut p);
        let with = p.spec().encode();
        p.take_back(&mark);
        assert_eq!(p.spec().encode(), without);
        send(&mut p);
        assert_eq!(p.spec().encode(), with);
        let take = p.stream("take").take(&chunks).write(&to);
        take.run(
            |_| (),
            |(): &mut (), _: &mut Streams<'_, '_>, _: &mut u64| {},
        );
        assert!(p.validate().is_ok());
    }
}
