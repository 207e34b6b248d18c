//! Graphs that no file holds: each edge is a function of its place, so any thread can make any of them.

use crate::GraphName;
use crate::uniform::{below, uniform, word};
use brambling::graph::{EdgeList, Ids};
use brambling::program::Foreign;
use std::f64::consts::TAU;
use std::thread;

/// Edges, shared by ours and by every limit.
pub(super) struct Data {
    pub(super) vertices: usize,
    pub(super) sources: Foreign<u32>,
    pub(super) targets: Foreign<u32>,
}

impl Data {
    pub(super) fn generate(graph: GraphName, smoke: bool, threads: usize) -> Data {
        match graph {
            GraphName::Kron21 => kronecker(if smoke { 12 } else { 21 }, 16, threads),
            GraphName::LogNormal => log_normal(if smoke { 2_000 } else { 500_000 }, threads),
        }
    }

    fn new(vertices: usize, sources: Vec<u32>, targets: Vec<u32>) -> Data {
        Data {
            vertices,
            sources: Foreign::owned(sources),
            targets: Foreign::owned(targets),
        }
    }

    pub(super) fn edges(&self) -> usize {
        self.sources.len()
    }

    /// As the engine is given it, without a copy.
    pub(super) fn list(&self) -> EdgeList {
        let ids = |ids: &Foreign<u32>| Ids::U32(ids.clone());
        EdgeList::new(self.vertices, ids(&self.sources), ids(&self.targets))
    }
}

/// Self-loops, which are no edges, sort behind all edges.
const NONE: u64 = u64::MAX;

/// Graph500's Kronecker graph (specification 3.0), undirected: quarters 0.57, 0.19, 0.19, 0.05, labels shuffled;
/// without self-loops and duplicates, each edge in both directions.
fn kronecker(scale: u32, edge_factor: usize, threads: usize) -> Data {
    let labels = &shuffled(1 << scale);
    let mut keys = vec![0u64; edge_factor << scale];
    let part = keys.len().div_ceil(threads.max(1));
    thread::scope(|scope| {
        for (at, keys) in keys.chunks_mut(part).enumerate() {
            scope.spawn(move || {
                for (edge, key) in (at * part..).zip(&mut *keys) {
                    *key = undirected(labels, quarters(edge as u64, scale));
                }
                keys.sort_unstable();
            });
        }
    });
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    sources.reserve_exact(2 * keys.len());
    targets.reserve_exact(2 * keys.len());
    for_each_distinct(keys.chunks(part).collect(), |key| {
        let (low, high) = ((key >> 32) as u32, key as u32);
        sources.extend([low, high]);
        targets.extend([high, low]);
    });
    drop(keys);
    sources.shrink_to_fit();
    targets.shrink_to_fit();
    Data::new(1 << scale, sources, targets)
}

/// The ends of an edge: one quarter of the matrix for each binary digit.
fn quarters(edge: u64, scale: u32) -> (u32, u32) {
    // 0.57, 0.76 and 0.95 of 2³².
    const BOUNDS: [u32; 3] = [2_448_131_359, 3_264_175_145, 4_080_218_931];
    let (mut row, mut column) = (0, 0);
    for level in 0..u64::from(scale) {
        // Two draws a word.
        let drawn = (word(edge * 32 + level / 2) >> (level % 2 * 32)) as u32;
        let [right, down, both] = BOUNDS.map(|bound| u32::from(drawn >= bound));
        row = row * 2 + down;
        column = column * 2 + (right - down + both);
    }
    (row, column)
}

fn undirected(labels: &[u32], (a, b): (u32, u32)) -> u64 {
    let (a, b) = (labels[a as usize], labels[b as usize]);
    if a == b {
        return NONE;
    }
    (u64::from(a.min(b)) << 32) | u64::from(a.max(b))
}

/// 0 to `count` - 1 in an order that follows from `count` alone (Fisher and Yates).
fn shuffled(count: u32) -> Vec<u32> {
    let mut labels: Vec<u32> = (0..count).collect();
    for last in (1..labels.len()).rev() {
        labels.swap(last, below(!(last as u64), last as u64 + 1) as usize);
    }
    labels
}

/// Merges ascending runs. Equal keys count once, and [`NONE`] not at all.
fn for_each_distinct(mut runs: Vec<&[u64]>, mut each: impl FnMut(u64)) {
    while let Some(&least) = runs.iter().filter_map(|run| run.first()).min() {
        if least == NONE {
            return;
        }
        each(least);
        for run in &mut runs {
            while run.first() == Some(&least) {
                *run = &run[1..];
            }
        }
    }
}

/// Out-degrees whose logarithm is normal with mean 4 and deviation 1.3 (Pregel, SIGMOD 2010), targets drawn
/// evenly; self-loops and parallel edges stay.
fn log_normal(vertices: usize, threads: usize) -> Data {
    let degree = |vertex: usize| {
        let draw = |at| uniform(2 * vertex as u64 + at);
        // Box and Muller.
        let normal = (-2.0 * (1.0 - draw(0)).ln()).sqrt() * (TAU * draw(1)).cos();
        ((4.0 + 1.3 * normal).exp() as usize).min(vertices)
    };
    let mut starts = vec![0; vertices + 1];
    for vertex in 0..vertices {
        starts[vertex + 1] = starts[vertex] + degree(vertex);
    }
    let edges = starts[vertices];
    let mut sources = vec![0u32; edges];
    let mut targets = vec![0u32; edges];
    let part = edges.div_ceil(threads.max(1)).max(1);
    let starts = &starts;
    thread::scope(|scope| {
        let parts = sources.chunks_mut(part).zip(targets.chunks_mut(part));
        for (at, (sources, targets)) in parts.enumerate() {
            scope.spawn(move || {
                let mut vertex = starts.partition_point(|&start| start <= at * part) - 1;
                let both = sources.iter_mut().zip(targets);
                for (edge, (source, target)) in (at * part..).zip(both) {
                    while starts[vertex + 1] <= edge {
                        vertex += 1;
                    }
                    *source = vertex as u32;
                    // Beyond the draws for degrees.
                    *target = below((1 << 40) + edge as u64, vertices as u64) as u32;
                }
            });
        }
    });
    Data::new(vertices, sources, targets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn pairs(data: &Data) -> Vec<(u32, u32)> {
        let both = data.sources.iter().zip(data.targets.iter());
        both.map(|(&source, &target)| (source, target)).collect()
    }

    #[test]
    fn threads_do_not_change_a_graph() {
        for graph in [GraphName::Kron21, GraphName::LogNormal] {
            let generate = |threads| pairs(&Data::generate(graph, true, threads));
            assert_eq!(generate(1), generate(3));
        }
    }

    #[test]
    fn a_kronecker_graph_is_undirected_and_simple() {
        let data = kronecker(10, 16, 2);
        let all = pairs(&data);
        let set: BTreeSet<_> = all.iter().copied().collect();
        assert_eq!(set.len(), all.len());
        assert!(all.iter().all(|&(a, b)| a != b && set.contains(&(b, a))));
        // Some of 2 · 16,384 are loops or duplicates.
        assert!((16_000..30_000).contains(&all.len()), "{}", all.len());
    }

    /// The first quarter of a level is drawn as often as it should be, the last as seldom.
    #[test]
    fn quarters_have_their_shares() {
        let mut counts = [[0u32; 2]; 2];
        for edge in 0..100_000 {
            let (row, column) = quarters(edge, 3);
            counts[(row >> 1 & 1) as usize][(column >> 1 & 1) as usize] += 1;
        }
        for (count, share) in counts.as_flattened().iter().zip([0.57, 0.19, 0.19, 0.05]) {
            let found = f64::from(*count) / 1e5;
            assert!((found - share).abs() < 0.01, "{counts:?}");
        }
    }

    #[test]
    fn degrees_of_a_log_normal_graph_have_their_mean_and_median() {
        let data = log_normal(20_000, 2);
        let mut degrees = vec![0usize; 20_000];
        data.sources.iter().for_each(|&s| degrees[s as usize] += 1);
        degrees.sort_unstable();
        // exp 4 and exp (4 + 1.3² / 2).
        assert!((53..57).contains(&degrees[10_000]), "{}", degrees[10_000]);
        let mean = data.edges() as f64 / 20_000.0;
        assert!((120.0..135.0).contains(&mean), "{mean}");
        assert!(data.targets.iter().all(|&target| target < 20_000));
    }
}
