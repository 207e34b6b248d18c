//! Whether workers have room for what a client is about to send: asked before any of it is sent.

use super::Talk;
use crate::cluster::ClusterError;
use brambling_protocol::WorkerId;
use brambling_protocol::message::sent_bytes;

/// Compares what each worker is sent with what each was given.
///
/// # Errors
/// The first that has no room.
fn expect_room(program: &str, bytes: u64, budgets: &[(WorkerId, u64)]) -> Result<(), ClusterError> {
    let needed_bytes = sent_bytes(bytes);
    match budgets.iter().find(|(_, budget)| needed_bytes > *budget) {
        None => Ok(()),
        Some((worker, budget_bytes)) => Err(ClusterError::NoRoom {
            program: program.to_owned(),
            worker: *worker,
            bytes,
            needed_bytes,
            budget_bytes: *budget_bytes,
        }),
    }
}

impl Talk<'_> {
    pub(super) fn expect_room(
        &self,
        bytes: u64,
        budgets: &[(WorkerId, u64)],
    ) -> Result<(), ClusterError> {
        expect_room(&self.plan.program.spec().name, bytes, budgets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_told_with_what_would() {
        let budgets = [(WorkerId(1), 400), (WorkerId(2), 200)];
        assert!(expect_room("fit", 100, &budgets).is_ok());
        let told = expect_room("fit", 101, &budgets).unwrap_err().to_string();
        for part in [
            "101 bytes",
            "needs 202",
            "w2 was given 200",
            "--memory",
            "at most 100 bytes",
        ] {
            assert!(told.contains(part), "{told}");
        }
    }
}
