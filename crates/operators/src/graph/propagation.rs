//! Communities by label propagation, as LDBC Graphalytics defines it (specification 1.0.3, CDLP): deterministic
//! and synchronous (after Raghavan, Albert, Kumara 2007).
//!
//! In each turn a vertex takes the label that most of its neighbours have, the least of equally frequent ones.
//! Neighbours at both ends of in- and out-edges count, once an edge.

use super::blocked_edges::Bin;
use super::edges::EdgeList;
use super::lending::{Lending, LentValues};
use super::pagerank::PARTITIONS_MAX;
use super::travel::{LaidOut, Ways, deal};
use super::vertex_cut::{SlotEdge, VertexCut};
use brambling_program::{Dataset, Inbox, Outbox, Partitioner, Program};
use std::ops::Range;

/// The labels of a partition's vertices.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// By place in the partition: see [`VertexCut::vertices_of`].
    pub labels: Vec<u32>,
    /// Index of the partition.
    part: u32,
}
brambling_program::payload!(Labels { labels, part });

/// A vertex (as a slot of a target or a place), a label, and how many of its neighbours have it.
type Count = [u32; 3];

impl LaidOut for Vec<SlotEdge> {
    /// Sorted by target.
    fn lay_out(bins: Vec<Bin>, _: VertexCut) -> Vec<SlotEdge> {
        let mut edges: Vec<SlotEdge> =
            Vec::with_capacity(bins.iter().map(|bin| bin.edges.len()).sum());
        bins.into_iter().for_each(|bin| edges.extend(bin.edges));
        edges.sort_unstable_by_key(|edge| edge.target);
        edges
    }
}

/// The labels of each target's sources, counted; by target, as the edges are, then label.
fn count_labels(edges: &[SlotEdge], label: impl Fn(u32) -> u32) -> impl Iterator<Item = Count> {
    let mut labels = Vec::new();
    let rows = edges.chunk_by(|a, b| a.target == b.target);
    rows.flat_map(move |row| {
        labels.clear();
        labels.extend(row.iter().map(|edge| label(edge.source)));
        labels.sort_unstable();
        let counts = labels.chunk_by(|a, b| a == b);
        let counted: Vec<Count> = counts
            .map(|same| [row[0].target, same[0], same.len() as u32])
            .collect();
        counted
    })
}

impl Labels {
    /// Takes the labels that most neighbours have, from the counts of a column's partitions.
    fn take(&mut self, inbox: &mut Inbox<'_, LentValues<Count>>, slots: Range<usize>) {
        let mut counts: Vec<Count> = Vec::new();
        for (_, piece) in inbox {
            counts.extend(own(piece.values(), &slots));
            piece.return_it();
        }
        counts.sort_unstable();
        for of_vertex in counts.chunk_by(|a, b| a[0] == b[0]) {
            let totals = of_vertex
                .chunk_by(|a, b| a[1] == b[1])
                .map(|same| (same.iter().map(|count| count[2]).sum::<u32>(), same[0][1]));
            // Labels ascend, and of equal keys the first is the least.
            let most = totals.min_by_key(|(total, _)| std::cmp::Reverse(*total));
            if let Some((_, label)) = most {
                self.labels[of_vertex[0][0] as usize - slots.start] = label;
            }
        }
    }
}

/// The counts for some slots, of counts that are sorted by slot.
fn own<'c>(counts: &'c [Count], slots: &Range<usize>) -> &'c [Count] {
    let before = |slot: usize| counts.partition_point(|count| (count[0] as usize) < slot);
    &counts[before(slots.start)..before(slots.end)]
}

/// Adds the stages that propagate labels, vertices at first, for `turns` turns; the labels are kept.
///
/// # Movement
/// Edges move once, both ways. In a turn a vertex's label is lent to a row of the grid, and the counts for it
/// by a column.
pub fn propagate(p: &mut Program, edges: EdgeList, partitions: u32, turns: u64) -> Dataset<Labels> {
    let cut = VertexCut::new(edges.vertices, partitions.min(PARTITIONS_MAX));
    let start = |cut: &VertexCut, part: u32, _: u32| Labels {
        labels: cut.vertices_of(part).flatten().map(|v| v as u32).collect(),
        part,
    };
    let labels = p.scan("labels", cut.partitions(), Partitioner::Opaque, cut, start);
    p.keep(&labels);
    p.hint_placement(&labels, cut.hint());
    let edges = deal::<Vec<SlotEdge>>(p, edges, cut, Ways::Both);
    p.hint_placement(&edges, cut.hint());
    let shares = p.like::<Lending<u32>, _>("shares", &labels);
    let counts = p.like::<Lending<Count>, _>("counts", &labels);
    p.repeat(turns, |p| {
        p.compute("share").read(&labels).update(&shares).run(
            |labels: &Labels, shares: &mut Lending<u32>| shares.fill(labels.labels.iter().copied()),
        );
        let exchange = p.exchange::<LentValues<u32>>("labels", cut.along_rows());
        p.scatter("labels", &exchange)
            .read(&shares)
            .run(|shares: &Lending<u32>, out: &mut Outbox<'_, LentValues<u32>>| shares.lend(out));
        p.gather("labels", &exchange)
            .read(&edges)
            .update(&counts)
            .with(cut)
            .run(
                |cut: &VertexCut,
                 inbox: &mut Inbox<'_, LentValues<u32>>,
                 edges: &Vec<SlotEdge>,
                 counted: &mut Lending<Count>| {
                    let lent: Vec<&mut LentValues<u32>> = inbox.map(|(_, piece)| piece).collect();
                    counted.fill(count_labels(edges, |slot| {
                        let (column, place) = cut.source_of(slot);
                        lent[column].values()[place]
                    }));
                    lent.into_iter().for_each(LentValues::return_it);
                },
            );
        let exchange = p.exchange::<LentValues<Count>>("counts", cut.along_columns());
        p.scatter("counts", &exchange).read(&counts).run(
            |counts: &Lending<Count>, out: &mut Outbox<'_, LentValues<Count>>| counts.lend(out),
        );
        p.gather("take", &exchange).update(&labels).with(cut).run(
            |cut: &VertexCut, inbox: &mut Inbox<'_, LentValues<Count>>, labels: &mut Labels| {
                labels.take(inbox, cut.slots_as_targets(labels.part));
            },
        );
    });
    labels
}
