//! The fixed binary tree on which every reduction runs, so that neither cores nor partitions nor the
//! order of arrival enter the sum.

use brambling_memory::mutants;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::ops::Range;

/// A node of the reduction tree: covers the leaves `index << level .. (index + 1) << level`.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct TreeNode {
    /// Height above the leaves.
    pub level: u8,
    /// Place within the level.
    pub index: u64,
}

impl TreeNode {
    /// The node of one leaf.
    #[inline]
    pub fn leaf(index: u64) -> TreeNode {
        TreeNode { level: 0, index }
    }

    /// First leaf covered.
    #[inline]
    pub fn start(self) -> u64 {
        self.index << self.level
    }

    /// The leaves covered; none when they cannot be counted.
    pub fn leaves(self) -> Option<Range<u64>> {
        let end = self.index.checked_add(1)?;
        // Nodes come from other processes too: a shift beyond the word would be a leaf of another
        // tree.
        let fits = self.level < 64 && end <= u64::MAX >> self.level;
        fits.then(|| self.start()..end << self.level)
    }
}
crate::payload!(TreeNode);

/// The maximal aligned nodes that tile the leaves `start..end`: what a source that holds them sends.
pub fn aligned_nodes(start: u64, end: u64) -> impl Iterator<Item = TreeNode> {
    let mut at = start;
    std::iter::from_fn(move || {
        let left = end.checked_sub(at).filter(|&left| left > 0)?;
        // The largest node that begins here and does not reach beyond the end.
        let level = at.trailing_zeros().min(left.ilog2());
        let node = TreeNode {
            level: level as u8,
            index: at >> level,
        };
        at += 1 << level;
        Some(node)
    })
}

/// Which operands to combine, decided from tree nodes alone: entries keep their places, and a merge
/// writes the right entry into the left one's place.
///
/// Operands are pushed in order of leaves. Empty operands are simply not pushed: they count as
/// nothing, never as an identity. Two neighbours are merged at the lowest node that covers both,
/// which is where the full tree, with empty operands skipped, would merge them.
#[derive(Default, Debug)]
pub struct Folding {
    /// As deep as the tree at most; a few entries for most reductions, which then do not allocate.
    stack: SmallVec<[(TreeNode, usize); 8]>,
}

impl Folding {
    /// Adds the operand kept at `place`; calls `combine(left, right)` for each merge of places.
    pub fn push(&mut self, node: TreeNode, place: usize, combine: impl FnMut(usize, usize)) {
        self.settle(node, combine);
        self.stack.push((node, place));
    }

    /// Makes the merges that come before the operand of `node`, which is pushed next: places that it frees
    /// are free for that operand.
    pub fn settle(&mut self, node: TreeNode, mut combine: impl FnMut(usize, usize)) {
        // Nothing pushed later can fall between the stack's entries: neighbours that meet below the
        // place where the top meets the newcomer are merged first, in the tree as here.
        while let [.., (below, _), (top, _)] = self.stack[..]
            && (meet(below, top) < meet(top, node) || mutants::is_on("fold-by-arrival"))
        {
            self.merge_top(&mut combine);
        }
    }

    /// Merges what is left and tells the place of the result; none when nothing was pushed.
    pub fn finish(&mut self, mut combine: impl FnMut(usize, usize)) -> Option<usize> {
        while self.stack.len() > 1 {
            self.merge_top(&mut combine);
        }
        self.stack.pop().map(|(_, place)| place)
    }

    fn merge_top(&mut self, combine: &mut impl FnMut(usize, usize)) {
        let (top, right) = self.stack.pop().expect("the caller saw two entries");
        let (below, left) = self.stack.pop().expect("the caller saw two entries");
        // Left before right, always: floating-point sums depend on it.
        combine(left, right);
        self.stack.push((cover(below, top), left));
    }
}

/// The level of the lowest node that covers both.
fn meet(left: TreeNode, right: TreeNode) -> u32 {
    // The highest bit in which the two differ is the level at which their paths meet.
    let apart = left.start() ^ right.start();
    (64 - apart.leading_zeros()).max(u32::from(left.level.max(right.level)))
}

fn cover(left: TreeNode, right: TreeNode) -> TreeNode {
    let level = meet(left, right);
    TreeNode {
        level: level as u8,
        index: left.start() >> level,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tree by definition, as text, so that grouping shows.
    fn by_definition(leaves: &[Option<&str>], start: usize, size: usize) -> Option<String> {
        if size == 1 {
            return leaves.get(start).copied().flatten().map(str::to_owned);
        }
        let left = by_definition(leaves, start, size / 2);
        let right = by_definition(leaves, start + size / 2, size / 2);
        match (left, right) {
            (Some(left), Some(right)) => Some(format!("({left} {right})")),
            (left, right) => left.or(right),
        }
    }

    /// Each source sends the aligned nodes of its own range; the destination merges them.
    fn folded(leaves: &[Option<&str>], cuts: &[usize]) -> Option<String> {
        let mut edges = vec![0];
        edges.extend(cuts);
        edges.push(leaves.len());
        let mut sent = Vec::new();
        for range in edges.windows(2) {
            for node in aligned_nodes(range[0] as u64, range[1] as u64) {
                let inside = node.start()..node.start() + (1 << node.level);
                let present = inside.filter_map(|i| {
                    leaves[i as usize].map(|leaf| (TreeNode::leaf(i), leaf.to_owned()))
                });
                sent.extend(fold(present).map(|value| (node, value)));
            }
        }
        fold(sent)
    }

    fn fold(operands: impl IntoIterator<Item = (TreeNode, String)>) -> Option<String> {
        let mut values: Vec<String> = Vec::new();
        let mut folding = Folding::default();
        let join = |values: &mut Vec<String>, l: usize, r: usize| {
            values[l] = format!("({} {})", values[l], values[r])
        };
        for (node, value) in operands {
            values.push(value);
            folding.push(node, values.len() - 1, |l, r| join(&mut values, l, r));
        }
        folding
            .finish(|l, r| join(&mut values, l, r))
            .map(|place| values[place].clone())
    }

    proptest::proptest! {
        /// Catches any grouping that depends on the cuts or on where the empty leaves are.
        #[test]
        fn grouping_is_that_of_the_full_tree(
            present in proptest::collection::vec(proptest::bool::weighted(0.8), 0..40),
            mut cuts in proptest::collection::vec(0usize..40, 0..6),
        ) {
            const NAMES: [&str; 40] = ["a0","a1","a2","a3","a4","a5","a6","a7","a8","a9","b0","b1","b2","b3","b4","b5","b6","b7","b8","b9",
                "c0","c1","c2","c3","c4","c5","c6","c7","c8","c9","d0","d1","d2","d3","d4","d5","d6","d7","d8","d9"];
            let leaves: Vec<Option<&str>> = present.iter().enumerate().map(|(i, &p)| p.then_some(NAMES[i])).collect();
            cuts.iter_mut().for_each(|cut| *cut = (*cut).min(leaves.len()));
            cuts.sort_unstable();
            let expected = by_definition(&leaves, 0, leaves.len().next_power_of_two());
            proptest::prop_assert_eq!(folded(&leaves, &cuts), expected);
        }
    }
}
