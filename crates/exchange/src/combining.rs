//! Pieces of an all-to-one exchange that are merged on their way.
//!
//! # Rules
//! The sources are the leaves of a tree in which `1 << bits` neighbours are a *group*, as many neighbouring groups one of the next level, and
//! so on. What the sources of a group send meets at its first shard, its *relay*, and goes on as one piece, named by the group's tree node. What
//! would meet at the root goes to its destination. So everybody knows from the program alone where a piece goes next, whatever it believes
//! about workers; where the relay is, the map says, as of any shard.
//!
//! A shard may be the relay of several groups, each inside the next. An item that comes to it belongs to the least of those that contains it and is
//! larger than what the item speaks for. That one is the right one whether the item comes from a smaller group, or from one that did
//! not merge it: groups around a leaf begin at ever lower shards, so those that begin at this one are neighbours in that chain.

use crate::inbox::{Acceptance, Fault, Gathered, OpenTurn};
use crate::parcel::Item;
use crate::sources::Sources;
use brambling_memory::mutants;
use brambling_program::tree::TreeNode;
use std::ops::Range;

/// When pieces are merged on their way: alike on all workers of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CombiningOptions {
    /// Not where fewer sources send: one destination has them all as fast.
    pub sources_min: u32,
    /// Of each group, the number of members is this power of two.
    pub bits: u8,
}

impl CombiningOptions {
    /// Groups of eight, as news are handed on to eight.
    pub const USUAL: CombiningOptions = CombiningOptions {
        sources_min: 65,
        bits: 3,
    };

    /// The tree over so many sources, if they are many.
    pub fn tree(self, sources: u32) -> Option<CombiningTree> {
        let tree = CombiningTree::new(sources, self.bits);
        tree.filter(|_| sources >= self.sources_min)
    }
}

/// The tree on which pieces of an exchange are merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CombiningTree {
    /// How many sources there are.
    sources: u32,
    /// Of each group, the number of members is this power of two.
    bits: u8,
}

impl CombiningTree {
    /// The tree over so many sources, if they are enough for a group below the root.
    pub fn new(sources: u32, bits: u8) -> Option<CombiningTree> {
        // With one group or none the destination is the only relay there could be.
        let fits = (1..=16).contains(&bits) && u64::from(sources) > 1 << bits;
        fits.then_some(CombiningTree { sources, bits })
    }

    /// The least group that is larger than a node; none at the root.
    fn above(&self, node: TreeNode) -> Option<TreeNode> {
        let level = (node.level / self.bits + 1).checked_mul(self.bits)?;
        // A group at the root has no relay: its pieces go straight to the destination, which merges
        // anyway.
        let is_below_root = level < 32 && u64::from(self.sources) > 1 << level;
        is_below_root.then(|| TreeNode {
            level,
            index: node.start() >> level,
        })
    }

    fn groups_around(&self, node: TreeNode) -> impl Iterator<Item = TreeNode> {
        std::iter::successors(self.above(node), |group| self.above(*group))
    }

    /// Where what a node sends goes: to this shard, or if there is none to its destination.
    pub fn next(&self, node: TreeNode) -> Option<u32> {
        self.above(node).map(relay)
    }

    /// Where what comes to a relay goes if that does not merge it: to the next one.
    pub fn past(&self, shard: u32, node: TreeNode) -> Option<u32> {
        let groups = self.groups_around(node).map(relay);
        // Groups around a node begin at ever lower shards, so the nearest below this one is the
        // next.
        groups.filter(|it| *it < shard).max()
    }

    /// The group in which a relay merges what a node has sent; none when it is the relay of no such group.
    pub fn group(&self, shard: u32, node: TreeNode) -> Option<TreeNode> {
        // A node that reaches beyond the sources is no honest one.
        let is_counted = node.leaves()?.end <= u64::from(self.sources).next_power_of_two();
        let mut groups = self.groups_around(node);
        groups.find(|group| relay(*group) == shard && is_counted)
    }

    /// Empty marks, by the groups in which a relay takes them. A leaf that it has no business with is told.
    ///
    /// # Errors
    /// The leaf.
    pub fn split(
        &self,
        shard: u32,
        leaves: Range<u64>,
    ) -> Result<Vec<(TreeNode, Range<u64>)>, TreeNode> {
        let mut parts = Vec::new();
        let mut at = leaves.start;
        let end = leaves.end.min(self.sources.into());
        while at < end {
            let leaf = TreeNode::leaf(at);
            let least = self.group(shard, leaf).ok_or(leaf)?;
            // Marks for all of a group belong to the group around it: within their own group they
            // would go back to where they come from.
            let is_all =
                |group: &TreeNode| at == group.start() && self.sources_of(*group).end <= end;
            let around = self.groups_around(least);
            let around = around.take_while(|group| relay(*group) == shard);
            let group = std::iter::once(least).chain(around);
            let group = group.reduce(|inner, group| if is_all(&inner) { group } else { inner });
            let group = group.unwrap_or(least);
            // The range may span groups: each gets its own part.
            let until = self.sources_of(group).end.min(end);
            parts.push((group, at..until));
            at = until;
        }
        Ok(parts)
    }

    /// The sources of a group.
    pub fn sources_of(&self, group: TreeNode) -> Range<u64> {
        let end = (group.index + 1) << group.level;
        group.start()..end.min(self.sources.into())
    }
}

/// Where a group's pieces meet.
pub fn relay(group: TreeNode) -> u32 {
    group.start() as u32
}

/// What has come of one group in one turn.
#[derive(Debug)]
pub struct GroupMerge<P> {
    open: OpenTurn<P>,
    sources: Range<u64>,
}

impl<P> GroupMerge<P> {
    /// Nothing has come of these sources.
    pub fn new(sources: Range<u64>) -> GroupMerge<P> {
        let open = OpenTurn::default();
        GroupMerge { open, sources }
    }

    /// Takes a piece or empty marks.
    ///
    /// # Errors
    /// The node that no honest sender names, or names in two ways.
    pub fn accept(&mut self, item: Item<P>) -> Result<Acceptance, TreeNode> {
        let sources = Sources::Span(self.sources.start, self.sources.end);
        let accepted = self.open.accept(item, &sources);
        accepted.map_err(|fault| match fault {
            Fault::Stranger(node) | Fault::Overlap(node) => node,
        })
    }

    /// Whether all sources are accounted for.
    pub fn is_complete(&self) -> bool {
        let sources = Sources::Span(self.sources.start, self.sources.end);
        self.open.is_complete(&sources)
    }

    /// What has come.
    pub fn pieces_mut(&mut self) -> impl Iterator<Item = &mut P> {
        self.open.pieces_mut()
    }

    /// The pieces of a complete one, by source and chunk.
    pub fn take(mut self) -> Vec<Gathered<P>> {
        let mut pieces = Vec::new();
        self.open.take(&mut pieces);
        pieces
    }

    /// What has come of one that is not: it goes on as it came.
    pub fn into_items(self) -> Vec<Item<P>> {
        if mutants::is_on("combining-keeps-what-leaves") {
            return Vec::new();
        }
        let (pieces, empties) = self.open.into_contents();
        let piece = |piece: Gathered<P>| Item::Piece {
            source: piece.source,
            chunk: piece.chunk,
            last: piece.last,
            payload: piece.payload,
        };
        let empties = empties.into_iter().map(|sources| Item::Empty { sources });
        pieces.into_iter().map(piece).chain(empties).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trees() -> impl Iterator<Item = (CombiningTree, u32)> {
        let sizes = [2, 3, 5, 8, 9, 16, 17, 64, 65, 100, 4_097];
        let bits = sizes
            .into_iter()
            .flat_map(|size| (1..=3).map(move |bits| (size, bits)));
        bits.filter_map(|(size, bits)| Some((CombiningTree::new(size, bits)?, size)))
    }

    /// What all sources send reaches the destination, each source once, whichever relays merge and whichever pass on.
    #[test]
    fn each_source_reaches_the_destination_once() {
        for (tree, sources) in trees() {
            for passes in [
                |_: u32| false,
                |_| true,
                |shard| shard % 2 == 0,
                |shard| shard % 3 == 1,
            ] {
                let mut ended: Vec<TreeNode> = Vec::new();
                let mut meetings = std::collections::BTreeMap::<TreeNode, GroupMerge<()>>::new();
                let mut under_way: Vec<(Option<u32>, TreeNode)> = (0..sources)
                    .map(|source| TreeNode::leaf(source.into()))
                    .map(|leaf| (tree.next(leaf), leaf))
                    .collect();
                while let Some((to, node)) = under_way.pop() {
                    let Some(shard) = to else {
                        ended.push(node);
                        continue;
                    };
                    assert!(u64::from(shard) <= node.start(), "towards the first");
                    if passes(shard) {
                        under_way.push((tree.past(shard, node), node));
                        continue;
                    }
                    let group = tree.group(shard, node).expect("its relay");
                    assert!(group.level > node.level);
                    let meeting = meetings.entry(group);
                    let meeting =
                        meeting.or_insert_with(|| GroupMerge::new(tree.sources_of(group)));
                    if meeting.accept(Item::whole(node, ())).unwrap() == Acceptance::Complete {
                        let _ = meetings.remove(&group).expect("just seen").take();
                        under_way.push((tree.next(group), group));
                    }
                }
                assert!(meetings.is_empty(), "{tree:?} waits: {meetings:?}");
                let mut leaves: Vec<u64> =
                    ended.iter().flat_map(|it| tree.sources_of(*it)).collect();
                leaves.sort_unstable();
                assert!(leaves.into_iter().eq(0..u64::from(sources)), "{tree:?}");
            }
        }
    }

    /// Marks for several groups of a relay come as one range.
    #[test]
    fn empty_marks_are_split_by_groups() {
        let tree = CombiningTree::new(30, 2).unwrap();
        let node = |level, index| TreeNode { level, index };
        assert_eq!(
            tree.split(0, 2..16),
            Ok(vec![(node(2, 0), 2..4), (node(4, 0), 4..16)])
        );
        assert_eq!(
            tree.split(16, 17..40),
            Ok(vec![(node(2, 4), 17..20), (node(4, 1), 20..30)])
        );
        // All of the first group: to the one around it, and so on.
        assert_eq!(tree.split(0, 0..4), Ok(vec![(node(4, 0), 0..4)]));
        assert_eq!(tree.split(0, 0..30), Err(TreeNode::leaf(16)));
        assert_eq!(tree.split(16, 16..30), Ok(vec![(node(4, 1), 16..30)]));
        assert_eq!(tree.split(4, 4..8), Ok(vec![(node(2, 1), 4..8)]));
        assert_eq!(tree.split(16, 8..20), Err(TreeNode::leaf(8)));
        assert_eq!(tree.split(5, 5..6), Err(TreeNode::leaf(5)));
    }

    #[test]
    fn what_nobody_sends_is_refused() {
        let tree = CombiningTree::new(30, 2).unwrap();
        let node = |level, index| TreeNode { level, index };
        for (shard, stranger) in [
            (4, node(0, 3)),
            (0, node(4, 0)),
            (16, node(5, 0)),
            (0, node(0, 64)),
            (0, node(63, 1)),
        ] {
            assert_eq!(tree.group(shard, stranger), None, "{shard} {stranger:?}");
        }
        let mut meeting = GroupMerge::new(4..8);
        assert_eq!(meeting.accept(Item::whole(node(0, 3), ())), Err(node(0, 3)));
        assert!(meeting.accept(Item::whole(node(0, 4), ())).is_ok());
        assert_eq!(meeting.accept(Item::whole(node(1, 2), ())), Err(node(1, 2)));
    }

    #[test]
    fn few_sources_have_no_tree() {
        assert_eq!(CombiningTree::new(8, 3), None);
        assert!(CombiningTree::new(9, 3).is_some());
        assert_eq!(CombiningTree::new(9, 0), None);
    }
}
