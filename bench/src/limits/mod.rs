//! Hand-written yardsticks: what a careful person would write for one bench on one machine, without
//! an engine. A limit is as fast as we know how to make it, and is checked like ours.

pub mod kmeans;
pub mod logistic;
pub mod pagerank;
pub mod sockets;
pub mod task_graph;

/// The loops whose instruction set this CPU has.
fn available<L: Copy>(all: &[L], isa: fn(L) -> brambling_machine::IsaLevel) -> Vec<L> {
    let runs = |bare: &L| isa(*bare).is_available();
    all.iter().copied().filter(runs).collect()
}
