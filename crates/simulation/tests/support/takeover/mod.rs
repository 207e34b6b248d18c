//! A cluster of real machines in virtual time, on one thread, from one seed.

mod chance;
mod office;
mod part;
mod peers;
mod shelf;
mod wire;
mod world;

pub use world::{Deeds, World};
