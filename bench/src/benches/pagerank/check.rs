//! That ours and every limit find what a plain loop finds.

use super::Given;
use crate::BenchError;
use crate::limits::pagerank::{BareLoop, Real, plain_loop};
use crate::session::Session;
use brambling::graph::Ranked;

/// By how much a rank may differ, as a share of it: additions in another order, and nothing else.
pub(super) fn agreement<R: Real>() -> f64 {
    // Of eight bytes or of four.
    if size_of::<R>() == 8 { 1e-9 } else { 1e-3 }
}

/// Ours after its iterations, and every bare loop after as many.
pub(super) fn all_agree<R: Real>(
    session: &Session<'_>,
    given: &Given<'_, R>,
    ours: &Ranked,
) -> Result<(), BenchError> {
    let iterations = given.sizes.compared as usize;
    let right = plain_loop::<f64>(&given.in_edges, iterations);
    let agree = |name: &str, ranks: &mut dyn ExactSizeIterator<Item = f64>| {
        let is_short = ranks.len() != right.len();
        let wrong = ranks.zip(&right).enumerate().find(|(_, (found, right))| {
            let error = (found - **right).abs();
            error.is_nan() || error > agreement::<R>() * **right
        });
        session.check(!is_short && wrong.is_none(), || {
            format!("{name} ranks a vertex (found, right) as {wrong:?}, or not all of them")
        })
    };
    agree("the engine", &mut ours.ranks.iter().copied())?;
    for bare in BareLoop::available() {
        let found = bare.iterate::<R>(&given.in_edges, &session.places, iterations);
        agree(
            bare.name(),
            &mut found.ranks.iter().map(|&rank| rank.into()),
        )?;
    }
    Ok(())
}
