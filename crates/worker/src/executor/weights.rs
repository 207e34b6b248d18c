//! What the cells of a shard take, cell by cell, where there are too many to weigh all of them after each slice.

use brambling_program::{Code, Value};

/// Up to so many cells are weighed together, which is the cheaper way then.
const FEW_CELLS: usize = 64;

/// What each cell took when it was weighed last; nothing where there are few.
pub(super) struct Weights {
    cells: Box<[u64]>,
    /// The tasks that have run since and may have changed it.
    grown: Vec<u32>,
}

impl Weights {
    pub(super) fn of(cells: &[Value]) -> Weights {
        let are_kept = cells.len() > FEW_CELLS;
        let weighed = cells.iter().filter(|_| are_kept);
        Weights {
            cells: weighed.map(|cell| cell.bytes() as u64).collect(),
            grown: Vec::new(),
        }
    }

    /// A task is called that may change what its cells take.
    #[inline]
    pub(super) fn note(&mut self, task: u32) {
        if !self.cells.is_empty() && self.grown.last() != Some(&task) {
            self.grown.push(task);
        }
    }

    /// What all cells take by now, after they took so much.
    pub(super) fn weigh(&mut self, before: u64, code: &Code, cells: &[Value]) -> u64 {
        if self.cells.is_empty() {
            return cells.iter().map(|cell| cell.bytes() as u64).sum();
        }
        let written = self.grown.drain(..);
        let written = written.flat_map(|task| &code.tasks[task as usize].writes_cells);
        let mut sum = before;
        for &cell in written {
            let now = cells[cell as usize].bytes() as u64;
            let then = std::mem::replace(&mut self.cells[cell as usize], now);
            sum = sum.wrapping_sub(then).wrapping_add(now);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_program::{Bindings, Plan, Program};
    use std::sync::Arc;

    /// Of few cells and of many: what is told after each task is what all cells take.
    #[test]
    fn what_was_written_is_weighed_again() {
        for count in [3, FEW_CELLS, FEW_CELLS + 1, 1_000] {
            let mut p = Program::new("weights");
            let lists: Vec<_> = (0..count)
                .map(|at| p.value(format!("list {at}"), 1, vec![0u8; at]))
                .collect();
            for pair in lists.windows(2) {
                let stage = p.compute("grow").read(&pair[0]).update(&pair[1]);
                stage.run(|_: &Vec<u8>, list: &mut Vec<u8>| list.push(0));
            }
            let plan = Plan::compile(Arc::new(p), &Bindings::default()).unwrap();
            let initial = |at: &_| plan.program.initial(*at, 0, 1);
            let mut cells: Vec<Value> = plan.groups[0].datasets.iter().map(initial).collect();
            let all = |cells: &[Value]| cells.iter().map(|it| it.bytes() as u64).sum::<u64>();
            let mut weights = Weights::of(&cells);
            let mut sum = all(&cells);
            for task in 0..plan.codes[0].tasks.len() as u32 {
                for &cell in &plan.codes[0].tasks[task as usize].writes_cells {
                    cells[cell as usize] = Value::new(vec![1u8; 3 * task as usize]);
                }
                weights.note(task);
                weights.note(task);
                sum = weights.weigh(sum, &plan.codes[0], &cells);
                assert_eq!(sum, all(&cells), "after task {task} of {count} cells");
            }
        }
    }
}
