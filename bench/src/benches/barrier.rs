use crate::session::Session;
use crate::{BenchError, Report};

pub(crate) fn run(session: &mut Session<'_>) -> Result<Report, BenchError> {
    session.check(false, || "not built yet".into())?;
    unreachable!()
}
