//! Least values that spread along edges until none changes: components, hops and distances.
//!
//! What a vertex has only ever falls, and in each turn every edge brings what its source had before; so after as
//! many turns as the longest of the shortest ways has edges, nothing changes any more.

use super::blocked_edges::BlockedEdges;
use super::edges::EdgeList;
use super::lending::{Lending, LentValues};
use super::meeting::{EdgeFold, Hops, Least, Nearest, VertexValue};
use super::pagerank::PARTITIONS_MAX;
use super::travel::{Doors, Gates, Roads, Ways, deal};
use super::vertex_cut::VertexCut;
use brambling_program::{Dataset, Inbox, Partitioner, Payload, Program, Sum};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What a partition's vertices have.
#[derive(Clone, Debug, Default)]
pub struct Reached<V: VertexValue> {
    /// By place in the partition: see [`VertexCut::vertices_of`].
    pub values: Vec<V>,
}

impl<V: VertexValue> Payload for Reached<V> {
    fn type_name() -> Cow<'static, str> {
        Cow::Owned(format!("graph::reach::Reached<{}>", V::type_name()))
    }
    fn heap_bytes(&self) -> usize {
        self.values.capacity() * size_of::<V>()
    }
    brambling_program::payload_fields!(values);
}

/// How far the spreading is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReachState {
    /// Turns done.
    pub turns: u64,
    /// Changes of the last turn.
    changes: u64,
}
brambling_program::payload!(ReachState);

/// What building leaves in the program.
#[derive(Clone, Copy, Debug)]
pub struct Reach<V: VertexValue> {
    /// What vertices have in the end; kept.
    pub vertices: Dataset<Reached<V>>,
    /// How it ended; kept.
    pub spread: Dataset<ReachState>,
}

/// Weakly connected components: each vertex gets the least vertex that a way leads to, whichever way edges point.
pub fn components(p: &mut Program, edges: EdgeList, partitions: u32) -> Reach<u32> {
    spread::<_, Least>(p, edges, partitions, Ways::Both, |vertex| vertex)
}

/// The fewest edges from `from` to each vertex; `u32::MAX` where no way leads.
pub fn hops(p: &mut Program, edges: EdgeList, partitions: u32, from: u32) -> Reach<u32> {
    let start = move |vertex| if vertex == from { 0 } else { u32::MAX };
    spread::<_, Hops>(p, edges, partitions, Ways::Forward, start)
}

/// The length of the shortest way from `from` to each vertex; infinite where no way leads.
pub fn distances(p: &mut Program, edges: EdgeList, partitions: u32, from: u32) -> Reach<f64> {
    let start = move |vertex| if vertex == from { 0.0 } else { f64::INFINITY };
    spread::<_, Nearest>(p, edges, partitions, Ways::Forward, start)
}

fn spread<V: VertexValue, M: EdgeFold<Value = V, Met = V>>(
    p: &mut Program,
    edges: EdgeList,
    partitions: u32,
    ways: Ways,
    start: impl Fn(u32) -> V + Send + Sync + 'static,
) -> Reach<V> {
    let cut = VertexCut::new(edges.vertices, partitions.min(PARTITIONS_MAX));
    let vertices = p.load(
        "vertices",
        cut.partitions(),
        Partitioner::Opaque,
        move |part, _| {
            let own = cut.vertices_of(part).flatten();
            let values = own.map(|vertex| start(vertex as u32)).collect();
            Reached { values }
        },
    );
    p.keep(&vertices);
    let edges = deal::<BlockedEdges>(p, edges, cut, ways);
    let roads = Roads::<M>::new(p, cut, edges);
    let shares = p.like::<Lending<V>, _>("shares", &vertices);
    let changes = p.like::<u64, _>("changes", &vertices);
    let first = ReachState {
        turns: 0,
        changes: 1,
    };
    let progress = p.value("spread", 1, first);
    p.keep(&progress);
    p.repeat_while(
        "spreading",
        &progress,
        |spread| spread.changes > 0,
        |p| {
            p.compute("share")
                .read(&vertices)
                .read(&roads.gates)
                .update(&shares)
                .run(
                    |vertices: &Reached<V>, gates: &Gates, shares: &mut Lending<V>| {
                        shares.fill(gates.pass(|place| vertices.values[place]));
                    },
                );
            roads.travel(p, &shares, |p, exchange| {
                p.gather("settle", exchange)
                    .read(&roads.doors)
                    .update(&vertices)
                    .write(&changes)
                    .run(
                        |inbox: &mut Inbox<'_, LentValues<V>>,
                         doors: &Doors,
                         vertices: &mut Reached<V>,
                         changes: &mut u64| {
                            *changes = doors.join::<M, true>(&mut vertices.values, inbox);
                        },
                    );
            });
            p.reduce(
                Sum,
                &changes,
                &progress,
                |spread: &mut ReachState, changes: &u64| {
                    spread.turns += 1;
                    spread.changes = *changes;
                },
            );
        },
    );
    Reach {
        vertices,
        spread: progress,
    }
}
