//! Stages and frees as tasks, with what they read and write.

use super::{Compiler, Lane};
use crate::plan::{Action, Linked, Mask, Op, Task};
use crate::{DatasetId, ExchangeId, GroupId, Runner, StageId, StageKind, Use};
use std::sync::Arc;

impl Compiler<'_> {
    pub(super) fn stage(&mut self, group: GroupId, id: StageId) {
        let block = self.local(group, self.spec.stages[id.index()].block);
        self.stage_in(group, id, block);
    }

    /// As [`Compiler::stage`], in a block of this local number.
    pub(super) fn stage_in(&mut self, group: GroupId, id: StageId, block: u32) {
        let stage = &self.spec.stages[id.index()];
        let datasets = &self.structure.groups[group.index()].datasets;
        let (mut reads, mut writes) = (Mask::default(), Mask::default());
        let (mut cells, mut writes_cells) = (Vec::new(), Vec::new());
        for &(dataset, how) in &stage.uses {
            // Under a mutant that splits groups a dataset may be missing; cell 0 then stands for it.
            let cell = datasets.binary_search(&dataset).unwrap_or(0);
            cells.push(cell as u32);
            if how == Use::Read {
                reads.add(cell);
            } else {
                writes.add(cell);
                writes_cells.push(cell as u32);
            }
        }
        // Each end of an exchange runs in order of turns.
        // Bits beyond the datasets stand for the ends of exchanges.
        let end = |exchange: ExchangeId| datasets.len() + 2 * exchange.index();
        (self.spec.sends_to(id).into_iter()).for_each(|it| writes.add(end(it)));
        // As writes: two turns of one end conflict, so the window keeps their order.
        (self.spec.takes_from(id).iter()).for_each(|it| writes.add(end(*it) + 1));
        if stage.cells {
            // A kernel that gets cells may share the payloads it reads: nobody else reads meanwhile.
            writes = writes.with(reads);
        }
        let task = Task {
            stage: id,
            action: Action::Stage(stage.kind),
            block,
            cells: cells.into(),
            writes_cells: writes_cells.into(),
            wants_cells: stage.cells,
            runner: self.spec.kernels[stage.kernel.index()].runner,
            look_past: false,
            may_grow: stage.uses.iter().any(|(dataset, how)| {
                // Only these are weighed after a slice: a fixed payload takes what it always took.
                *how != Use::Read && !self.program.payload_type(*dataset).is_fixed()
            }),
            kernel: Some(Linked(self.program.kernel(id).clone())),
            stream: match stage.kind {
                StageKind::Stream(stream) => {
                    Some(Arc::new(self.spec.streams[stream.index()].clone()))
                }
                _ => None,
            },
            reads,
            writes,
        };
        self.lanes[group.index()].push(task);
    }

    /// Frees datasets after their last use.
    pub(super) fn free(&mut self, datasets: &[(usize, DatasetId)]) {
        let structure = self.structure;
        let group = |dataset: &DatasetId| structure.group_of_dataset[dataset.index()];
        let mut datasets: Vec<DatasetId> = datasets.iter().map(|(_, it)| *it).collect();
        datasets.sort_by_key(group);
        for of_group in datasets.chunk_by(|a, b| group(a) == group(b)) {
            let group = group(&of_group[0]);
            self.await_ends(group);
            self.lanes[group.index()].free(&structure.groups[group.index()].datasets, of_group);
        }
    }
}

impl Lane {
    fn free(&mut self, own: &[DatasetId], datasets: &[DatasetId]) {
        let cells: Box<[u32]> = datasets
            .iter()
            .map(|dataset| own.binary_search(dataset).expect("the group's own") as u32)
            .collect();
        let mut writes = Mask::default();
        cells.iter().for_each(|cell| writes.add(*cell as usize));
        let stage = self.code.tasks.last().map_or(StageId(0), |task| task.stage);
        self.push(Task {
            stage,
            action: Action::Free,
            block: 0,
            writes_cells: cells.clone(),
            cells,
            // Freeing puts other values into the cells, so addresses that were found are found
            // anew.
            wants_cells: true,
            runner: Runner::Native,
            look_past: false,
            may_grow: true,
            kernel: None,
            stream: None,
            reads: Mask::default(),
            writes,
        });
    }

    fn push(&mut self, task: Task) {
        self.code.ops.push(Op::Task {
            index: self.code.tasks.len() as u32,
            block: task.block,
        });
        self.code.tasks.push(task);
    }
}
