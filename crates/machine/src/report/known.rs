//! Reports of jobs that ran here: what this machine can do is what its last probe said.

use super::{Report, Roofs};
use crate::ledger::Ledger;

impl Report {
    /// Judges what a job did by what the last probe of this machine said, where there was one. Workers elsewhere are taken for
    /// machines alike.
    pub fn of(ledger: Ledger) -> Report {
        Report::new(ledger, &Roofs::default())
    }
}
