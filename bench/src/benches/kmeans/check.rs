//! That ours and every limit find what a plain loop finds.

use super::data::Data;
use crate::BenchError;
use crate::benches::iterations;
use crate::limits::kmeans::{BareLoop, Centre, FEATURES, Members, agree, plain_labels, plain_loop};
use crate::session::{How, Session};
use brambling::ml::{FittedKMeans, KMeans};

/// By how much results may differ: additions in another order, and nothing else.
pub(super) const AGREEMENT: f64 = 1e-9;
/// Rows whose labels are compared one by one.
const LABELLED_ROWS: usize = 20_001;

/// Does so many iterations.
pub(super) fn model(iterations: u64) -> KMeans {
    KMeans {
        tol: 0.0,
        max_iter: iterations,
    }
}

/// Refuses a search that ended before.
pub(super) fn fit(
    session: &mut Session<'_>,
    data: &Data,
    start: &[Centre],
    count: u64,
    how: &How,
) -> Result<FittedKMeans, BenchError> {
    let model = model(count);
    let (x, centres) = (data.x.clone(), start.as_flattened().to_vec());
    let fitted = session.fit(how, |options, caller| {
        model.fit(x, FEATURES, centres, options, caller)
    })?;
    iterations::all_done(session, fitted.iterations, count)?;
    Ok(fitted)
}

/// What the plain loop finds by the first centres; ours and every limit agree with it.
pub(super) fn all_agree(
    session: &mut Session<'_>,
    data: &Data,
    start: &[Centre],
) -> Result<Members, BenchError> {
    labels_agree(session, data, start)?;
    let right = plain_loop(data.rows(), start);
    moves_agree(session, data, start, 1, &right.means(start))?;
    // Later iterations need another witness: the plain loop would take too long for many centres.
    let widest = BareLoop::widest();
    let third = widest.iterate(data.rows(), start, &session.places, 3);
    session.check(third.first.agrees_with(&right, AGREEMENT), || {
        disagreement(widest, &third.first, &right)
    })?;
    moves_agree(session, data, start, 3, &third.centres)?;
    Ok(right)
}

fn labels_agree(session: &Session<'_>, data: &Data, start: &[Centre]) -> Result<(), BenchError> {
    let rows = &data.rows()[..LABELLED_ROWS.min(data.rows().len())];
    let right = plain_labels(rows, start);
    for bare in BareLoop::available() {
        let labels = bare.labels(rows, start);
        let wrong = labels.iter().zip(&right).position(|(a, b)| a != b);
        session.check(labels.len() == right.len() && wrong.is_none(), || {
            format!("{} labels row {wrong:?} differently", bare.name)
        })?;
    }
    Ok(())
}

fn moves_agree(
    session: &mut Session<'_>,
    data: &Data,
    start: &[Centre],
    iterations: u64,
    right: &[Centre],
) -> Result<(), BenchError> {
    let how = iterations::how(session);
    let fitted = fit(session, data, start, iterations, &how)?;
    let (centres, _) = fitted.centres.as_chunks::<FEATURES>();
    session.check(agree(centres, right, AGREEMENT), || {
        format!("iteration {iterations} moved the centres to {centres:?}, not to {right:?}")
    })
}

/// In what a loop and the plain one differ, in a few words: the centres may be many.
pub(super) fn disagreement(bare: BareLoop, found: &Members, right: &Members) -> String {
    let pairs = found.counts.iter().zip(&right.counts);
    let differing = pairs.filter(|(a, b)| a != b).count();
    let name = bare.name;
    format!("{name}: {differing} counts differ from the plain loop's, or a sum does")
}
