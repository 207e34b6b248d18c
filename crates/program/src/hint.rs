//! Where shards had better be: what whoever places them may know of what they will send to each other.

use crate::{Dataset, DatasetId, Group, Program};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Which shards of a group had better be on one worker. No result depends on it, and whoever places shards may do otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum PlacementHint {
    /// Those whose indices are near to each other.
    #[default]
    Near,
    /// They are the cells of a grid of so many columns, row by row: those of a column. Where they are no multiple of columns it says nothing.
    Columns(u32),
}

impl PlacementHint {
    /// Columns of the grid; 0 where there is none.
    pub fn columns(self) -> u32 {
        match self {
            PlacementHint::Near => 0,
            PlacementHint::Columns(columns) => columns,
        }
    }
}

impl Program {
    /// Says where a dataset's partitions had better be, and with them those of its group. Of several hints for a group that for its first
    /// dataset counts.
    ///
    /// ```
    /// use brambling_program::{Bindings, PlacementHint, Plan, Program};
    ///
    /// let mut p = Program::new("grid");
    /// let cells = p.dataset::<f64>("cells", 12);
    /// // More is sent down the four columns than along the three rows.
    /// p.hint_placement(&cells, PlacementHint::Columns(4));
    /// p.compute("count").update(&cells).run(|cell: &mut f64| *cell += 1.0);
    /// let plan = Plan::compile(std::sync::Arc::new(p), &Bindings::default())?;
    /// assert_eq!(plan.hints, [PlacementHint::Columns(4)]);
    /// # Ok::<(), brambling_program::BuildError>(())
    /// ```
    pub fn hint_placement<T>(&mut self, dataset: &Dataset<T>, hint: PlacementHint) {
        self.hints.insert(dataset.id, hint);
    }
}

/// The hint of each group.
pub(crate) fn of_groups(
    hints: &BTreeMap<DatasetId, PlacementHint>,
    groups: &[Group],
) -> Vec<PlacementHint> {
    let hint = |group: &Group| {
        let of = |dataset: &DatasetId| hints.get(dataset).copied();
        group.datasets.iter().find_map(of).unwrap_or_default()
    };
    groups.iter().map(hint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bindings, Plan};
    use std::sync::Arc;

    #[test]
    fn a_hint_is_its_groups_until_it_is_taken_back() {
        let mut p = Program::new("hints");
        let near = p.dataset::<u64>("near", 6);
        let cells = p.dataset::<u64>("cells", 6);
        let sums = p.dataset::<u64>("sums", 6);
        let copy = |p: &mut Program| {
            let copy = p.compute("copy").read(&cells).write(&sums);
            copy.run(|cell: &u64, sum: &mut u64| *sum = *cell);
        };
        copy(&mut p);
        p.compute("alone").update(&near).run(|_: &mut u64| {});
        p.hint_placement(&sums, PlacementHint::Columns(3));
        let mark = p.mark();
        let more = p.dataset::<u64>("more", 4);
        p.hint_placement(&more, PlacementHint::Columns(2));
        p.take_back(&mark);
        let again = p.dataset::<u64>("again", 4);
        p.compute("again").update(&again).run(|_: &mut u64| {});
        let plan = Plan::compile(Arc::new(p), &Bindings::default()).unwrap();
        let hint = |dataset: DatasetId| plan.hints[plan.group_of_dataset[dataset.index()].index()];
        let columns = PlacementHint::Columns(3);
        assert_eq!([hint(cells.id), hint(sums.id)], [columns; 2]);
        assert_eq!([hint(near.id), hint(again.id)], [PlacementHint::Near; 2]);
    }
}
