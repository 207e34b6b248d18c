//! How fast an edge partition adds up its edges: `pagerank_rate [SCALE] [EDGE_FACTOR]`.
//!
//! The graph is Graph500's Kronecker graph: undirected, self-loops and duplicates removed, an edge counts as two.
//! One thread, one edge partition after another, no exchange: the kernel alone.
#![allow(clippy::print_stdout)] // It prints a rate.

use brambling_operators::graph::blocked_edges::{Bin, BlockedEdges};
use brambling_operators::graph::pagerank::partitions_of;
use brambling_operators::graph::vertex_cut::VertexCut;
use brambling_operators::simd;
use brambling_program::{Rng, StageId};
use std::time::Instant;

/// Both directions of each edge, sorted, as source and target in one number.
fn kronecker(scale: u32, edge_factor: u64) -> Vec<u64> {
    let mut rng = Rng::new(1, StageId(0), 0, 0);
    let mut names: Vec<u32> = (0..1 << scale).collect();
    for at in (1..names.len()).rev() {
        names.swap(at, rng.below(at as u64 + 1) as usize);
    }
    let mut edges = Vec::with_capacity((2 * edge_factor as usize) << scale);
    for _ in 0..edge_factor << scale {
        let (mut source, mut target) = (0usize, 0usize);
        for _ in 0..scale {
            // The quarters of the matrix: 0.57, 0.19, 0.19, 0.05.
            let (down, right) = match rng.below(100) {
                0..57 => (0, 0),
                57..76 => (0, 1),
                76..95 => (1, 0),
                _ => (1, 1),
            };
            (source, target) = (source * 2 + down, target * 2 + right);
        }
        let (source, target) = (u64::from(names[source]), u64::from(names[target]));
        if source != target {
            edges.extend([(source << 32) | target, (target << 32) | source]);
        }
    }
    edges.sort_unstable();
    edges.dedup();
    edges
}

fn main() {
    let argument = |at: usize, default: u64| {
        let given = std::env::args().nth(at);
        given.map_or(default, |given| given.parse().expect("a number"))
    };
    let (scale, edge_factor) = (argument(1, 18) as u32, argument(2, 16));
    let edges = kronecker(scale, edge_factor);
    let vertices = 1 << scale;
    let cut = VertexCut::new(vertices, partitions_of(vertices, edges.len()));
    let mut bins = vec![Bin::default(); cut.partitions() as usize];
    for edge in &edges {
        let (partition, edge) = cut.edge((edge >> 32) as u32, *edge as u32);
        bins[partition as usize].edges.push(edge);
    }
    let start = Instant::now();
    let lay_out = |bin| BlockedEdges::new(vec![bin], cut.source_slots(), cut.target_slots());
    let parts: Vec<BlockedEdges> = bins.into_iter().map(lay_out).collect();
    let laid_out = start.elapsed().as_secs_f64() / edges.len() as f64;
    let shares = vec![vec![1.0; 1 << 20]; cut.columns() as usize];
    let share = |slot| {
        let (column, place) = cut.source_of(slot);
        shares[column][place]
    };
    let mut sums = vec![0.0; cut.target_slots()];
    let mut best = f64::INFINITY;
    for _ in 0..20 {
        let start = Instant::now();
        for part in &parts {
            sums.fill(0.0);
            part.sum_into::<f64>(simd::active(), share, &mut sums);
        }
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!(
        "{} edges in {} partitions: {:.1} ns to lay out an edge, {:.0} million edges/s",
        edges.len(),
        cut.partitions(),
        laid_out * 1e9,
        edges.len() as f64 / best / 1e6
    );
}
