//! Kernels of graphs whose vertices are numbered.

pub mod blocked_edges;
pub mod clustering;
pub mod edges;
mod lending;
pub mod meeting;
pub mod pagerank;
pub mod propagation;
pub mod reach;
pub mod relabel;
mod rows;
mod source_block;
mod travel;
pub mod vertex_cut;
