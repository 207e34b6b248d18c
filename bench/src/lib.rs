//! Benches, each printed next to its limit: what the same machine does for a hand-written loop in
//! the same run.

pub mod limits;
pub mod task_graph;
