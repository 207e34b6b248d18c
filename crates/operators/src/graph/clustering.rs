//! Local clustering coefficients, as LDBC Graphalytics defines them (specification 1.0.3, LCC).
//!
//! The neighbours of a vertex are those at the other ends of its in- and out-edges, without itself and each
//! once. Its coefficient is the number of directed edges between them ÷ the number that there could be; 0 where
//! it has fewer than two neighbours. Parallel edges count once.

use super::edges::EdgeList;
use super::pagerank::PARTITIONS_MAX;
use super::vertex_cut::VertexCut;
use brambling_program::{Dataset, Inbox, Outbox, Partitioner, Program, Relation};
use std::sync::Arc;

/// A vertex's place in its partition, and the vertex at the other end of an edge.
type End = [u32; 2];

/// Edges on their way to the vertices at their ends.
#[derive(Clone, Debug, Default)]
struct Ends {
    /// Of edges that begin here.
    outs: Vec<End>,
    /// Of edges that end here.
    ins: Vec<End>,
}
brambling_program::payload!(Ends { outs, ins });

/// Sorted lists of vertices, one for each place of a partition.
#[derive(Clone, Debug, Default)]
struct Lists {
    starts: Vec<u32>,
    vertices: Vec<u32>,
}
brambling_program::payload!(Lists { starts, vertices });

impl Lists {
    /// From pairs of any order; equal ones count once.
    fn new(mut ends: Vec<End>, places: usize) -> Lists {
        ends.sort_unstable();
        ends.dedup();
        let mut starts = vec![0u32; places + 1];
        for [place, _] in &ends {
            starts[*place as usize + 1] += 1;
        }
        for place in 0..places {
            starts[place + 1] += starts[place];
        }
        let vertices = ends.into_iter().map(|[_, vertex]| vertex).collect();
        Lists { starts, vertices }
    }

    fn of(&self, place: usize) -> &[u32] {
        &self.vertices[self.starts[place] as usize..self.starts[place + 1] as usize]
    }
}

/// A partition's vertices: their neighbours, and where their out-edges lead, without self-loops.
#[derive(Clone, Debug, Default)]
struct Neighbourhood {
    neighbours: Lists,
    part: u32,
}
brambling_program::payload!(Neighbourhood { neighbours, part });

/// Adds the stages that compute coefficients; they are kept, by place: see [`VertexCut::vertices_of`].
///
/// # Movement
/// Each edge moves once to the partition of either end. Then each partition lends its lists to all.
pub fn coefficients(p: &mut Program, edges: EdgeList, partitions: u32) -> Dataset<Vec<f64>> {
    let cut = VertexCut::new(edges.vertices, partitions.min(PARTITIONS_MAX));
    let count = cut.partitions();
    let parts = edges.load(p, count);
    let start = |_: &(), part: u32, _: u32| Neighbourhood {
        part,
        ..Neighbourhood::default()
    };
    let own = p.scan("neighbours", count, Partitioner::Opaque, (), start);
    let outs = p.temporary::<Arc<Lists>>("out-edges", count);
    let deal = p.exchange::<Ends>("deal ends", Relation::AllToAll);
    p.scatter("deal ends", &deal).read(&parts).with(cut).run(
        |cut: &VertexCut, part: &EdgeList, out: &mut Outbox<'_, Ends>| {
            let mut ends = dealt(part, *cut);
            out.for_each(|part, piece| *piece = std::mem::take(&mut ends[part as usize]));
        },
    );
    p.gather("deal ends", &deal)
        .update(&own)
        .write(&outs)
        .with(cut)
        .run(
            |cut: &VertexCut,
             inbox: &mut Inbox<'_, Ends>,
             own: &mut Neighbourhood,
             outs: &mut Arc<Lists>| {
                let (mut all, mut begins) = (Vec::new(), Vec::new());
                for (_, ends) in inbox {
                    let ends = std::mem::take(ends);
                    all.extend_from_slice(&ends.ins);
                    all.extend_from_slice(&ends.outs);
                    begins.extend(ends.outs);
                }
                let places = cut.len_of(own.part);
                own.neighbours = Lists::new(all, places);
                *outs = Arc::new(Lists::new(begins, places));
            },
        );
    let lend = p.exchange::<Option<Arc<Lists>>>("lend lists", Relation::AllToAll);
    p.scatter("lend lists", &lend).read(&outs).run(
        |outs: &Arc<Lists>, out: &mut Outbox<'_, Option<Arc<Lists>>>| {
            out.for_each(|_, piece| *piece = Some(outs.clone()));
        },
    );
    let found = p.like::<Vec<f64>, _>("coefficients", &own);
    p.keep(&found);
    p.gather("count", &lend)
        .read(&own)
        .write(&found)
        .with(cut)
        .run(
            |cut: &VertexCut,
             inbox: &mut Inbox<'_, Option<Arc<Lists>>>,
             own: &Neighbourhood,
             found: &mut Vec<f64>| {
                let outs: Vec<Arc<Lists>> = inbox.filter_map(|(_, piece)| piece.take()).collect();
                let places = 0..cut.len_of(own.part);
                *found = places
                    .map(|place| coefficient(own.neighbours.of(place), &outs, *cut))
                    .collect();
            },
        );
    found
}

/// Some edges by the partitions of their ends. A self-loop makes no neighbour.
fn dealt(edges: &EdgeList, cut: VertexCut) -> Vec<Ends> {
    let mut all = vec![Ends::default(); cut.partitions() as usize];
    for at in 0..edges.len() {
        let (source, target) = (edges.sources.at(at), edges.targets.at(at));
        if source != target {
            let (part, place) = cut.place(source);
            all[part as usize].outs.push([place, target]);
            let (part, place) = cut.place(target);
            all[part as usize].ins.push([place, source]);
        }
    }
    all
}

fn coefficient(neighbours: &[u32], outs: &[Arc<Lists>], cut: VertexCut) -> f64 {
    let degree = neighbours.len() as u64;
    if degree < 2 {
        return 0.0;
    }
    let between: u64 = neighbours
        .iter()
        .map(|&neighbour| {
            let (part, place) = cut.place(neighbour);
            common(neighbours, outs[part as usize].of(place as usize))
        })
        .sum();
    between as f64 / (degree * (degree - 1)) as f64
}

/// How many values two ascending lists share: each of the shorter list's is searched for in what is left of the
/// longer.
fn common(a: &[u32], b: &[u32]) -> u64 {
    let (short, mut long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let mut count = 0;
    for value in short {
        let at = long.partition_point(|other| other < value);
        count += u64::from(long.get(at) == Some(value));
        long = &long[at..];
    }
    count
}
