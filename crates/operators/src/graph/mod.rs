//! Kernels of graphs whose vertices are numbered.

pub mod blocked_edges;
pub mod edges;
pub mod pagerank;
pub mod vertex_cut;
