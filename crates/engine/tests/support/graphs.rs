//! Graphs as plain numbers, and as the engine is given them.

use super::rng;
use brambling::graph::EdgeList;
use brambling::program::Rng;

/// Edges: source, target, weight.
pub type Edges = Vec<(u32, u32, f64)>;

/// Edges among the first two thirds of the vertices, in two halves that never meet: the last third is isolated,
/// every seventh vertex has no way out. One edge in five is a self-loop, one in five goes to a hub, and a
/// quarter of them has a parallel one.
pub fn random(vertices: u32, edges: usize, stream: u64, weight: fn(&mut Rng) -> f64) -> Edges {
    let mut rng = rng(stream);
    let half = u64::from(vertices / 3).max(1);
    let edge = |_| {
        let side = ((rng.below(2) * half) as u32).min(vertices - 1);
        let source = side + rng.below(half) as u32;
        let target = match rng.below(5) {
            0 => source,
            1 => side,
            _ => side + rng.below(half) as u32,
        };
        (source, target, weight(&mut rng))
    };
    let mut edges: Edges = (0..edges).map(edge).collect();
    edges.retain(|(source, ..)| source % 7 != 3);
    // Parallel ones, far from each other in the list.
    edges.extend_from_within(..edges.len() / 4);
    edges
}

pub fn list(vertices: u32, edges: &Edges) -> EdgeList {
    let ids = |of: fn(&(u32, u32, f64)) -> u32| edges.iter().map(of).collect::<Vec<u32>>();
    EdgeList::new(vertices as usize, ids(|edge| edge.0), ids(|edge| edge.1))
}

pub fn weighted(vertices: u32, edges: &Edges) -> EdgeList {
    list(vertices, edges).weighted(edges.iter().map(|edge| edge.2).collect())
}
