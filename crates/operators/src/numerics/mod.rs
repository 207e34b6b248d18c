//! Elementary functions and reductions with the same bits everywhere.
#![allow(clippy::needless_range_loop)] // One index runs over several arrays of lanes.

mod functions;
mod reductions;

pub use functions::{exp, log_loss, log1p, sigmoid, softplus};
pub(crate) use functions::{exp_lanes, log_loss_lanes, log1p_lanes, sigmoid_lanes};
pub use reductions::{Element, add_into, max, min, sum};

/// The NaN that kernels return: quiet, positive, without payload.
pub const CANONICAL_NAN: f64 = f64::from_bits(0x7ff8_0000_0000_0000);

/// `x`, with any NaN replaced by [`CANONICAL_NAN`].
#[inline(always)]
pub fn canonical(x: f64) -> f64 {
    if x.is_nan() { CANONICAL_NAN } else { x }
}
