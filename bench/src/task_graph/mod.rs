//! Task Bench's task graphs: what both the engine's bench and the hand-written threads run.

pub mod kernel;
pub mod pattern;
mod siphash;

pub use kernel::Kernel;
pub use pattern::{Graph, Pattern, Payload};
