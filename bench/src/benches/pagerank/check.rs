//! That ours and every limit find what a plain loop finds.

use super::Given;
use crate::BenchError;
use crate::limits::pagerank::{BareLoop, Real, plain_loop};
use crate::session::Session;
use brambling::graph::Ranked;

/// By how much a rank may differ, as a share of it: additions in another order, and nothing else.
pub(super) const fn agreement<R: Real>() -> f64 {
    // Of eight bytes or of four.
    if size_of::<R>() == 8 { 1e-9 } else { 1e-3 }
}

/// What a plain loop finds; ours agrees with it.
pub(super) fn ours_agrees<R: Real>(
    session: &Session<'_>,
    given: &Given<'_, R>,
    ours: &Ranked,
) -> Result<Vec<f64>, BenchError> {
    let right = plain_loop::<f64>(&given.in_edges, given.sizes.compared as usize);
    agree::<R>(session, "the engine", ours.ranks.iter().copied(), &right)?;
    Ok(right)
}

/// Every bare loop, after as many iterations.
pub(super) fn loops_agree<R: Real>(
    session: &Session<'_>,
    given: &Given<'_, R>,
    right: &[f64],
) -> Result<(), BenchError> {
    for bare in BareLoop::<R>::available() {
        let iterations = given.sizes.compared as usize;
        let found = bare.iterate(&given.in_edges, &session.places, iterations);
        let ranks = found.ranks.iter().map(|&rank| rank.into());
        agree::<R>(session, bare.name, ranks, right)?;
    }
    Ok(())
}

fn agree<R: Real>(
    session: &Session<'_>,
    name: &str,
    ranks: impl ExactSizeIterator<Item = f64>,
    right: &[f64],
) -> Result<(), BenchError> {
    let is_short = ranks.len() != right.len();
    let wrong = ranks.zip(right).enumerate().find(|(_, (found, right))| {
        let error = (found - **right).abs();
        error.is_nan() || error > agreement::<R>() * **right
    });
    session.check(!is_short && wrong.is_none(), || {
        format!("{name} ranks a vertex (found, right) as {wrong:?}, or not all of them")
    })
}
