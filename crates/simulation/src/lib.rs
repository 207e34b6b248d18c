//! A whole cluster on one thread from one seed, and what its results are compared with. Tests only: holds
//! no protocol logic.
//!
//! * [`random_program`] makes a valid program from a seed, [`random_streams`] one all of whose exchanges are streamed, [`random_loops`]
//!   one of long loops.
//! * [`simulate`] runs a program on a cluster of simulated workers.
//! * [`costed`] runs a job of a given shape in virtual time, with measured costs, on as many workers as one likes.
//! * [`attached`] is what random programs have for an interpreter's lock: some of their values are objects of it.
//! * [`interpret`] runs a program in order, whole datasets in memory, sharing no code with worker and exchange.

mod cluster;
pub mod costed;
pub mod executor;
mod interpreter;
mod kernels;
mod objects;
mod ports;
mod random_program;
mod results;

pub use cluster::{Deeds, simulate};
pub use interpreter::interpret;
pub use objects::attached;
pub use random_program::{RandomProgram, random_loops, random_program, random_streams};
pub use results::Results;

use std::ops::Range;

/// The seeds that a test tries: as many as `BRAMBLING_SEEDS` says, or those from one to before another if it says `3000..4000`, or as many as the test
/// finds enough; only one when `BRAMBLING_SEED` names it.
pub fn seeds(enough: u64) -> Range<u64> {
    let number = |name: &str, value: &str| -> u64 {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not {value:?}"))
    };
    let given = |name: &str| std::env::var(name).ok();
    if let Some(seed) = given("BRAMBLING_SEED") {
        let seed = number("BRAMBLING_SEED", &seed);
        return seed..seed + 1;
    }
    let Some(seeds) = given("BRAMBLING_SEEDS") else {
        return 0..enough;
    };
    let number = |value| number("BRAMBLING_SEEDS", value);
    match seeds.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&seeds),
    }
}
