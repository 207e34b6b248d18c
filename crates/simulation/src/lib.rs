//! A whole cluster on one thread from one seed, and what its results are compared with. Tests only: holds
//! no protocol logic.
//!
//! * [`random_program`] makes a valid program from a seed.
//! * [`simulate`] runs a program on a cluster of simulated workers.
//! * [`costed`] runs a job of a given shape in virtual time, with measured costs, on as many workers as one likes.
//! * [`attached`] is what random programs have for an interpreter's lock: some of their values are objects of it.
//! * [`interpret`] runs a program in order, whole datasets in memory, sharing no code with worker and exchange.

mod cluster;
pub mod costed;
pub mod desk;
mod interpreter;
mod kernels;
mod objects;
mod ports;
mod random_program;
mod results;

pub use cluster::{Deeds, simulate};
pub use interpreter::interpret;
pub use objects::attached;
pub use random_program::{RandomProgram, random_program};
pub use results::Results;

use std::ops::Range;

/// The seeds that a test tries: as many as `BRAMBLING_SEEDS` says, or as the test finds enough; only one when
/// `BRAMBLING_SEED` names it.
pub fn seeds(enough: u64) -> Range<u64> {
    let number = |name: &str| {
        let value = std::env::var(name).ok()?;
        Some(
            value
                .parse()
                .unwrap_or_else(|_| panic!("{name} is a number, not {value:?}")),
        )
    };
    match number("BRAMBLING_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("BRAMBLING_SEEDS").unwrap_or(enough),
    }
}
