//! When datasets are used for the last time.

use crate::{BlockId, DatasetId, ProgramNode, Spec};

/// For each node of the program's own block, the datasets whose last use it is and that nobody keeps.
pub(super) struct LastUses {
    /// Ascending by place, and by dataset.
    list: Vec<(usize, DatasetId)>,
}

impl LastUses {
    pub(super) fn at(&self, place: usize) -> &[(usize, DatasetId)] {
        let start = self.list.partition_point(|(it, _)| *it < place);
        let end = self.list[start..].partition_point(|(it, _)| *it == place);
        &self.list[start..start + end]
    }
}

pub(super) fn last_uses(spec: &Spec) -> LastUses {
    let mut last: Vec<Option<usize>> = vec![None; spec.datasets.len()];
    let mut places = vec![0; spec.blocks.len()];
    // Inner blocks are numbered after the block they stand in.
    for (at, block) in spec.blocks.iter().enumerate() {
        let is_root = at == Spec::ROOT.index();
        for (index, node) in block.iter().enumerate() {
            // Uses inside a loop count where the loop stands at the outermost level: another turn
            // may follow.
            let place = if is_root { index } else { places[at] };
            let mut stands = |block: BlockId| places[block.index()] = place;
            let stage = match *node {
                ProgramNode::Stage(stage) => Some(stage),
                ProgramNode::Repeat { body, .. } => {
                    stands(body);
                    None
                }
                ProgramNode::While { test, body, .. } => {
                    stands(body);
                    Some(test)
                }
                ProgramNode::Branch {
                    then, otherwise, ..
                } => {
                    stands(then);
                    stands(otherwise);
                    None
                }
            };
            for (dataset, _) in stage.map_or(&[][..], |it| &spec.stages[it.index()].uses) {
                let last = &mut last[dataset.index()];
                *last = (*last).max(Some(place));
            }
        }
    }
    let freed = last.into_iter().enumerate().filter_map(|(id, last)| {
        // A dataset that is kept is somebody's result.
        let freed = last.filter(|_| !spec.datasets[id].keep);
        freed.map(|place| (place, DatasetId(id as u32)))
    });
    let mut list: Vec<_> = freed.collect();
    list.sort_unstable();
    LastUses { list }
}
