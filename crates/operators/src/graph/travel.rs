//! The stages that every algorithm on a vertex cut shares: edges are dealt to their partitions once; then, in
//! each turn, what vertices have travels along a row of the grid to the edges, and what the edges make of it
//! along a column to the vertices at their ends.

use super::blocked_edges::{Bin, BlockedEdges};
use super::edges::EdgeList;
use super::lending::{Incoming, Lending, Lent};
use super::meeting::Meeting;
use super::vertex_cut::VertexCut;
use crate::simd;
use brambling_program::{Dataset, Exchange, Inbox, Outbox, Payload, Program, Relation};
use std::ops::Range;

/// Which ways an edge can be travelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ways {
    /// From its source to its target.
    Forward,
    /// Back too: the edge is dealt twice.
    Both,
}

/// Moves edges into their partitions, where `lay_out` makes what the algorithm needs of them.
pub(super) fn deal<E: Payload + Default>(
    p: &mut Program,
    edges: EdgeList,
    cut: VertexCut,
    ways: Ways,
    lay_out: fn(Vec<Bin>, VertexCut) -> E,
) -> Dataset<E> {
    let count = cut.partitions();
    let laid_out = p.temporary::<E>("edges", count);
    let deal = p.exchange::<Bin>("deal edges", Relation::AllToAll);
    let chunks = p.temporary::<u32>("chunks", count);
    p.scatter("deal edges", &deal)
        .read(&chunks)
        .run(move |_: &u32, out: &mut Outbox<'_, Bin>| {
            let edge = |index: u32| edges.len() * index as usize / count as usize;
            let own = edges.slice(edge(out.source())..edge(out.source() + 1));
            let mut bins = dealt(&own, cut, ways);
            out.for_each(|partition, piece| *piece = std::mem::take(&mut bins[partition as usize]));
        });
    p.gather("deal edges", &deal).write(&laid_out).run(
        move |inbox: &mut Inbox<'_, Bin>, laid_out: &mut E| {
            let bins = inbox.map(|(_, bin)| std::mem::take(bin)).collect();
            *laid_out = lay_out(bins, cut);
        },
    );
    laid_out
}

/// Some edges by partition. Counts first, so that no bin is larger than it must be.
fn dealt(edges: &EdgeList, cut: VertexCut, ways: Ways) -> Vec<Bin> {
    let mut counts = vec![0; cut.partitions() as usize];
    for_each_way(edges, ways, |_, source, target| {
        counts[cut.edge(source, target).0 as usize] += 1;
    });
    let is_weighted = edges.weights.is_some();
    let empty = |count| Bin {
        edges: Vec::with_capacity(count),
        weights: Vec::with_capacity(if is_weighted { count } else { 0 }),
    };
    let mut bins: Vec<Bin> = counts.into_iter().map(empty).collect();
    for_each_way(edges, ways, |at, source, target| {
        let (partition, edge) = cut.edge(source, target);
        let bin = &mut bins[partition as usize];
        bin.edges.push(edge);
        if let Some(weights) = &edges.weights {
            bin.weights.push(weights[at]);
        }
    });
    bins
}

#[inline(always)]
fn for_each_way(edges: &EdgeList, ways: Ways, mut each: impl FnMut(usize, u32, u32)) {
    for at in 0..edges.len() {
        let (source, target) = (edges.sources.at(at), edges.targets.at(at));
        each(at, source, target);
        if ways == Ways::Both {
            each(at, target, source);
        }
    }
}

/// What travels needs of datasets, in every turn the same.
pub(super) struct Roads<M: Meeting> {
    cut: VertexCut,
    edges: Dataset<BlockedEdges>,
    incoming: Dataset<Incoming<M::Value>>,
    met: Dataset<Lending<M::Value>>,
}

impl<M: Meeting> Roads<M> {
    pub(super) fn new(p: &mut Program, cut: VertexCut, edges: Dataset<BlockedEdges>) -> Roads<M> {
        Roads {
            cut,
            incoming: p.like("lent shares", &edges),
            met: p.like("met", &edges),
            edges,
        }
    }

    /// Adds a turn: `shares` travel, and `receive` adds the stage that takes what met.
    pub(super) fn travel(
        &self,
        p: &mut Program,
        shares: &Dataset<Lending<M::Value>>,
        receive: impl FnOnce(&mut Program, &Exchange<Lent<M::Value>>),
    ) {
        let cut = self.cut;
        let exchange = p.exchange::<Lent<M::Value>>("shares", cut.along_rows());
        p.scatter("shares", &exchange).read(shares).run(
            |shares: &Lending<M::Value>, out: &mut Outbox<'_, Lent<M::Value>>| shares.lend(out),
        );
        p.gather("shares", &exchange)
            .read(&self.edges)
            .update(&self.incoming)
            .update(&self.met)
            .named(std::any::type_name::<M>(), Vec::new())
            .run(
                move |inbox: &mut Inbox<'_, Lent<M::Value>>,
                      edges: &BlockedEdges,
                      incoming: &mut Incoming<M::Value>,
                      met: &mut Lending<M::Value>| {
                    let lent = &mut incoming.0;
                    lent.extend(inbox.map(|(_, piece)| std::mem::take(piece)));
                    let columns: Vec<&[M::Value]> = lent.iter().map(Lent::values).collect();
                    let share = |slot: u32| {
                        let (column, place) = cut.source_of(slot);
                        columns[column][place]
                    };
                    let met = met.filled(cut.target_slots(), M::NOTHING);
                    edges.meet_into::<M>(simd::active(), share, met);
                    // The lender writes its buffer again in the next turn.
                    lent.clear();
                },
            );
        let exchange = p.exchange::<Lent<M::Value>>("met", cut.along_columns());
        p.scatter("met", &exchange)
            .read(&self.met)
            .run(|met: &Lending<M::Value>, out: &mut Outbox<'_, Lent<M::Value>>| met.lend(out));
        receive(p, &exchange);
    }
}

/// Joins what the partitions of a column lend for the slots of a partition's vertices, in their order, to what
/// the vertices have.
pub(super) fn join<M: Meeting>(
    into: &mut [M::Value],
    inbox: &mut Inbox<'_, Lent<M::Value>>,
    slots: Range<usize>,
) {
    for (_, piece) in inbox {
        let both = into.iter_mut().zip(&piece.values()[slots.clone()]);
        both.for_each(|(into, &value)| *into = M::join(*into, value));
        // The lender writes its buffer again in the next turn.
        piece.return_it();
    }
}

/// As [`join`]; how often that changed what a vertex has.
pub(super) fn join_counting<M: Meeting>(
    into: &mut [M::Value],
    inbox: &mut Inbox<'_, Lent<M::Value>>,
    slots: Range<usize>,
) -> u64 {
    let mut changes = 0;
    for (_, piece) in inbox {
        for (into, &value) in into.iter_mut().zip(&piece.values()[slots.clone()]) {
            let joined = M::join(*into, value);
            changes += u64::from(joined != *into);
            *into = joined;
        }
        piece.return_it();
    }
    changes
}
