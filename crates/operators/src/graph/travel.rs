//! The stages that every algorithm on a vertex cut shares: edges are dealt to their partitions once; then, in
//! each turn, what vertices have travels along a row of the grid to the edges, and what the edges make of it
//! along a column to the vertices at their ends.

use super::blocked_edges::{Bin, BlockedEdges};
use super::edges::EdgeList;
use super::lending::{Lending, LentValues};
use super::meeting::EdgeFold;
use super::vertex_cut::VertexCut;
use crate::simd;
use brambling_program::{
    Dataset, Exchange, Inbox, Outbox, Partitioner, Payload, Program, Relation,
};
use std::borrow::Cow;
use std::ops::Range;

/// Which ways an edge can be travelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ways {
    /// From its source to its target.
    Forward,
    /// Back too: the edge is dealt twice.
    Both,
}

/// What an algorithm needs of a partition's edges.
pub(super) trait LaidOut: Payload {
    /// From what each part of the edges had for the partition.
    fn lay_out(bins: Vec<Bin>, cut: VertexCut) -> Self;
}

impl LaidOut for BlockedEdges {
    fn lay_out(bins: Vec<Bin>, cut: VertexCut) -> BlockedEdges {
        BlockedEdges::of_cut(bins, cut)
    }
}

/// Moves edges into their partitions, where they are laid out as the algorithm needs them.
pub(super) fn deal<E: LaidOut>(
    p: &mut Program,
    edges: EdgeList,
    cut: VertexCut,
    ways: Ways,
) -> Dataset<E> {
    let count = cut.partitions();
    let laid_out = p.temporary::<E>("edges", count);
    let deal = p.exchange::<Bin>("deal edges", Relation::AllToAll);
    let parts = edges.load(p, count);
    p.scatter("deal edges", &deal)
        .read(&parts)
        .with((cut, ways == Ways::Both))
        .run(deal_part);
    p.gather("deal edges", &deal)
        .write(&laid_out)
        .with(cut)
        .run(lay_out::<E>);
    laid_out
}

fn deal_part(&(cut, both): &(VertexCut, bool), part: &EdgeList, out: &mut Outbox<'_, Bin>) {
    let ways = if both { Ways::Both } else { Ways::Forward };
    let mut bins = dealt(part, cut, ways);
    out.for_each(|partition, piece| *piece = std::mem::take(&mut bins[partition as usize]));
}

fn lay_out<E: LaidOut>(cut: &VertexCut, inbox: &mut Inbox<'_, Bin>, laid_out: &mut E) {
    let bins = inbox.map(|(_, bin)| std::mem::take(bin)).collect();
    *laid_out = E::lay_out(bins, *cut);
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

/// Where what a partition lends meets the vertices of another.
#[derive(Clone, Debug, Default)]
struct Door {
    /// Where the vertices' values begin.
    start: usize,
    /// Whose values they are: places in the partition, ascending.
    places: Vec<u32>,
}

brambling_program::payload!(Door { start, places });

/// The doors to a column's partitions, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Doors {
    doors: Vec<Door>,
    heap_bytes: usize,
}
brambling_program::payload!(Doors { doors, heap_bytes }, |doors| doors.heap_bytes);

impl Doors {
    /// Takes the targets that the partitions of a column know.
    fn open(inbox: &mut Inbox<'_, LentValues<u32>>, slots: &Range<usize>) -> Doors {
        let door = |(_, piece): (u32, &mut LentValues<u32>)| {
            let all = piece.values();
            let before = |slot: usize| all.partition_point(|&target| (target as usize) < slot);
            let start = before(slots.start);
            let own = all[start..before(slots.end)].iter();
            let places = own.map(|&slot| slot - slots.start as u32).collect();
            piece.return_it();
            Door { start, places }
        };
        let doors: Vec<Door> = inbox.map(door).collect();
        let heap_bytes = doors.heap_bytes();
        Doors { doors, heap_bytes }
    }

    /// Joins what the partitions of a column lend, in their order, to what the vertices have; how often that
    /// changed what a vertex has, where `COUNTING`.
    pub(super) fn join<M: EdgeFold, const COUNTING: bool>(
        &self,
        into: &mut [M::Met],
        inbox: &mut Inbox<'_, LentValues<M::Met>>,
    ) -> u64 {
        let mut changes = 0;
        for (door, (_, piece)) in self.doors.iter().zip(inbox) {
            let values = &piece.values()[door.start..][..door.places.len()];
            for (&place, &value) in door.places.iter().zip(values) {
                let into = &mut into[place as usize];
                let joined = M::join(*into, value);
                if COUNTING {
                    changes += u64::from(joined != *into);
                }
                *into = joined;
            }
            piece.return_it();
        }
        changes
    }
}

/// The vertices of a partition that are the source of some edge: what others have goes nowhere. Their places, in
/// the order in which the first edge partition that knows them fills its tables. What they lend is then read as it lies.
#[derive(Clone, Debug, Default)]
pub(super) struct Gates(Lending<u32>);

impl Payload for Gates {
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("graph::Gates")
    }
    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }
    brambling_program::payload_fields!(0);
}

impl Gates {
    /// Takes the sources that the partitions of a row know.
    fn open(inbox: &mut Inbox<'_, LentValues<u32>>, slots: &Range<usize>) -> Gates {
        let mut is_known = vec![false; slots.len()];
        let mut places = Vec::new();
        for (_, piece) in inbox {
            let own = piece.values().iter().map(|&slot| slot as usize);
            for place in own.filter(|slot| slots.contains(slot)) {
                let place = place - slots.start;
                if !std::mem::replace(&mut is_known[place], true) {
                    places.push(place as u32);
                }
            }
            piece.return_it();
        }
        let mut gates = Gates::default();
        gates.0.fill(places.into_iter());
        gates
    }

    /// Where each place stands among them.
    fn positions(places: &[u32]) -> Vec<u32> {
        let len = places.iter().max().map_or(0, |&last| last as usize + 1);
        let mut positions = vec![0; len];
        for (position, &place) in (0..).zip(places) {
            positions[place as usize] = position;
        }
        positions
    }

    /// Of what is said of each place, that of those that are a source.
    pub(super) fn pass<V>(&self, of: impl Fn(usize) -> V) -> impl Iterator<Item = V> {
        self.0.values().iter().map(move |&place| of(place as usize))
    }
}

/// What a turn needs, in every turn the same.
pub(super) struct Roads<M: EdgeFold> {
    cut: VertexCut,
    edges: Dataset<BlockedEdges>,
    /// Of the vertices.
    pub(super) doors: Dataset<Doors>,
    /// Of the vertices: whose shares travel.
    pub(super) gates: Dataset<Gates>,
    met: Dataset<Lending<M::Met>>,
}

impl<M: EdgeFold> Roads<M> {
    /// Adds what is done once: vertices learn where they find what is theirs.
    pub(super) fn new(p: &mut Program, cut: VertexCut, edges: Dataset<BlockedEdges>) -> Roads<M> {
        let targets = p.like::<Lending<u32>, _>("targets", &edges);
        p.compute("targets").read(&edges).write(&targets).run(
            |edges: &BlockedEdges, targets: &mut Lending<u32>| {
                targets.fill(edges.targets().iter().copied());
            },
        );
        let exchange = p.exchange::<LentValues<u32>>("targets", cut.along_columns());
        p.scatter("targets", &exchange)
            .read(&targets)
            .run(|targets: &Lending<u32>, out: &mut Outbox<'_, LentValues<u32>>| targets.lend(out));
        p.hint_placement(&edges, cut.hint());
        let own = |_: &(), part: u32, _: u32| part;
        let parts = p.scan("parts", cut.partitions(), Partitioner::Opaque, (), own);
        p.hint_placement(&parts, cut.hint());
        let doors = p.like::<Doors, _>("doors", &parts);
        p.gather("open doors", &exchange)
            .read(&parts)
            .write(&doors)
            .with(cut)
            .run(
                |cut: &VertexCut,
                 inbox: &mut Inbox<'_, LentValues<u32>>,
                 part: &u32,
                 doors: &mut Doors| {
                    *doors = Doors::open(inbox, &cut.slots_as_targets(*part));
                },
            );
        let gates = open_gates(p, cut, &edges, &parts);
        Roads {
            cut,
            doors,
            gates,
            met: p.like("met", &edges),
            edges,
        }
    }

    /// Adds a turn: `shares`, which are of [`Roads::gates`], travel, and `receive` adds the stage that takes what met.
    pub(super) fn travel(
        &self,
        p: &mut Program,
        shares: &Dataset<Lending<M::Value>>,
        receive: impl FnOnce(&mut Program, &Exchange<LentValues<M::Met>>),
    ) {
        let cut = self.cut;
        let exchange = p.exchange::<LentValues<M::Value>>("shares", cut.along_rows());
        p.scatter("shares", &exchange).read(shares).run(
            |shares: &Lending<M::Value>, out: &mut Outbox<'_, LentValues<M::Value>>| {
                shares.lend(out)
            },
        );
        p.gather("shares", &exchange)
            .read(&self.edges)
            .update(&self.met)
            .named(std::any::type_name::<M>(), Vec::new())
            .with(cut)
            .run(
                |cut: &VertexCut,
                 inbox: &mut Inbox<'_, LentValues<M::Value>>,
                 edges: &BlockedEdges,
                 met: &mut Lending<M::Met>| {
                    let lent: Vec<&mut LentValues<M::Value>> =
                        inbox.map(|(_, piece)| piece).collect();
                    let columns: Vec<&[M::Value]> = lent.iter().map(|lent| lent.values()).collect();
                    let share = |slot: u32| {
                        let (column, place) = cut.source_of(slot);
                        columns[column][place]
                    };
                    let met = met.filled(edges.targets().len(), M::NOTHING);
                    edges.meet_into::<M>(simd::active(), share, met);
                    lent.into_iter().for_each(LentValues::return_it);
                    edges.work(size_of::<M::Value>())
                },
            );
        let exchange = p.exchange::<LentValues<M::Met>>("met", cut.along_columns());
        p.scatter("met", &exchange)
            .read(&self.met)
            .run(|met: &Lending<M::Met>, out: &mut Outbox<'_, LentValues<M::Met>>| met.lend(out));
        receive(p, &exchange);
    }
}

/// Vertices learn which of them are sources, and edges where these stand among those whose shares travel.
fn open_gates(
    p: &mut Program,
    cut: VertexCut,
    edges: &Dataset<BlockedEdges>,
    parts: &Dataset<u32>,
) -> Dataset<Gates> {
    let sources = p.like::<Lending<u32>, _>("sources", edges);
    p.compute("sources").read(edges).write(&sources).run(
        |edges: &BlockedEdges, sources: &mut Lending<u32>| {
            sources.fill(edges.sources());
        },
    );
    let exchange = p.exchange::<LentValues<u32>>("sources", cut.along_rows());
    p.scatter("sources", &exchange)
        .read(&sources)
        .run(|sources: &Lending<u32>, out: &mut Outbox<'_, LentValues<u32>>| sources.lend(out));
    let gates = p.like::<Gates, _>("gates", parts);
    p.gather("open gates", &exchange)
        .read(parts)
        .write(&gates)
        .with(cut)
        .run(
            |cut: &VertexCut,
             inbox: &mut Inbox<'_, LentValues<u32>>,
             part: &u32,
             gates: &mut Gates| {
                *gates = Gates::open(inbox, &cut.slots_as_sources(*part));
            },
        );
    let exchange = p.exchange::<LentValues<u32>>("gates", cut.along_rows());
    p.scatter("gates", &exchange)
        .read(&gates)
        .run(|gates: &Gates, out: &mut Outbox<'_, LentValues<u32>>| gates.0.lend(out));
    p.gather("name sources", &exchange)
        .update(edges)
        .with(cut)
        .run(
            |cut: &VertexCut, inbox: &mut Inbox<'_, LentValues<u32>>, edges: &mut BlockedEdges| {
                let lent: Vec<&mut LentValues<u32>> = inbox.map(|(_, piece)| piece).collect();
                let gates = lent.iter().map(|lent| Gates::positions(lent.values()));
                let positions: Vec<Vec<u32>> = gates.collect();
                edges.rename_sources(|slot| {
                    let (column, place) = cut.source_of(slot);
                    cut.source_slot(column, positions[column][place] as usize)
                });
                lent.into_iter().for_each(LentValues::return_it);
            },
        );
    gates
}

/// Adds up what the partitions of a row lend for some slots, in their order.
pub(super) fn add_up(
    sums: &mut [f64],
    inbox: &mut Inbox<'_, LentValues<f64>>,
    slots: Range<usize>,
) {
    for (_, piece) in inbox {
        let both = sums.iter_mut().zip(&piece.values()[slots.clone()]);
        both.for_each(|(sum, value)| *sum += value);
        piece.return_it();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::pagerank::{PageRank, Precision};
    use crate::graph::{propagation, reach};
    use brambling_program::{Bindings, PlacementHint, Plan};
    use std::sync::Arc;

    /// Vertices at which no edge begins lend nothing.
    #[test]
    fn only_sources_pass_their_gates() {
        let mut gates = Gates::default();
        gates.0.fill([1, 4, 5].into_iter());
        let ranks = [0.5, 1.5, 2.5, 3.5, 4.5, 5.5];
        assert!(gates.pass(|place| ranks[place]).eq([1.5, 4.5, 5.5]));
    }

    /// Wherever a vertex stands among those whose shares travel, it is found there.
    #[test]
    fn positions_lead_back() {
        let places = [4, 1, 5, 0];
        let positions = Gates::positions(&places);
        assert!(
            (0..)
                .zip(places)
                .all(|(position, place)| positions[place as usize] == position)
        );
        assert!(Gates::positions(&[]).is_empty());
    }

    /// What goes along columns goes between grids that are kept together by columns, so that it stays on a worker.
    #[test]
    fn both_ends_of_columns_are_kept_together() {
        let edges = || EdgeList::new(4, vec![0u32, 1, 2], vec![1u32, 2, 3]);
        let search = PageRank {
            damping: 0.85,
            tol: 0.0,
            max_iter: 1,
            personalization: None,
            precision: Precision::F64,
        };
        let mut ranks = Program::new("ranks");
        let _ = search.build::<f64>(&mut ranks, edges(), 6, &|_, _| {});
        let mut components = Program::new("components");
        let _ = reach::components(&mut components, edges(), 6);
        let mut labels = Program::new("labels");
        let _ = propagation::propagate(&mut labels, edges(), 6, 1);
        for (exchange, p) in [("met", ranks), ("met", components), ("counts", labels)] {
            let plan = Plan::compile(Arc::new(p), &Bindings::default()).unwrap();
            let named = plan.program.spec().exchanges.iter().zip(&plan.exchanges);
            let mut along = named.filter(|(spec, _)| spec.name == exchange);
            let ends = along.next().unwrap().1.as_ref().unwrap();
            for group in [ends.source, ends.destination] {
                let hint = plan.hints[group.index()];
                assert_eq!(hint, PlacementHint::Columns(3), "{exchange}: {group:?}");
            }
            // What has no columns keeps none.
            assert!(plan.hints.contains(&PlacementHint::Near));
        }
    }
}
