//! Hand-written yardsticks: what a careful person would write for one bench on one machine, without
//! an engine. A limit is as fast as we know how to make it, and is checked like ours.

pub mod kmeans;
pub mod logistic;
pub mod pagerank;
pub mod task_graph;
