//! Whether workers have room for what a client is about to send: asked before any of it is sent.

use super::Talk;
use crate::cluster::ClusterError;
use brambling_memory::Floors;
use brambling_protocol::WorkerId;
use brambling_protocol::message::Brings;

/// Of a worker's budget what the rows of a job that is alone can take: all but the floors of what they are not.
fn rows_bytes_max(budget_bytes: u64) -> u64 {
    let floors = Floors::of(budget_bytes);
    budget_bytes - floors.exchange_bytes - floors.transfer_bytes
}

/// Compares what each worker is sent with what each was given.
///
/// # Errors
/// The first that has no room.
fn expect_room(
    program: &str,
    brings: Brings,
    budgets: &[(WorkerId, u32, u64)],
) -> Result<(), ClusterError> {
    let all_threads = budgets.iter().map(|(_, threads, _)| threads).sum();
    for &(worker, threads, budget_bytes) in budgets {
        let part_bytes = brings.part_bytes(threads, all_threads);
        let needed_bytes = brings.needed_bytes(part_bytes);
        let room_bytes = match part_bytes {
            0 => budget_bytes,
            _ => rows_bytes_max(budget_bytes),
        };
        if needed_bytes > room_bytes {
            return Err(ClusterError::NoRoom {
                program: program.to_owned(),
                worker,
                program_bytes: brings.program_bytes,
                part_bytes,
                needed_bytes,
                room_bytes,
                budget_bytes,
            });
        }
    }
    Ok(())
}

impl Talk<'_> {
    pub(super) fn expect_room(
        &self,
        brings: Brings,
        budgets: &[(WorkerId, u32, u64)],
    ) -> Result<(), ClusterError> {
        expect_room(&self.plan.program.spec().name, brings, budgets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGETS: [(WorkerId, u32, u64); 2] = [(WorkerId(1), 3, 6_400), (WorkerId(2), 1, 1_600)];

    fn told(program_bytes: u64, rows_bytes: u64) -> Option<String> {
        let brings = Brings {
            program_bytes,
            rows_bytes,
        };
        let told = expect_room("fit", brings, &BUDGETS).err();
        told.map(|error| error.to_string())
    }

    #[track_caller]
    fn expect(told: Option<String>, parts: &[&str]) {
        let told = told.expect("it does not fit");
        for part in parts {
            assert!(told.contains(part), "{told}");
        }
    }

    #[test]
    fn a_program_that_does_not_fit_is_told_with_what_would() {
        assert_eq!(told(800, 0), None);
        expect(
            told(801, 0),
            &[
                "801 bytes of program",
                "needs 1602",
                "1600 of the 1600 bytes",
                "--memory",
            ],
        );
    }

    #[test]
    fn rows_go_by_threads_and_leave_room_for_the_rest() {
        // A quarter of them goes to the second, which keeps three sixteenths for exchanges and transfers.
        assert_eq!(told(100, 4 * 1_200), None);
        expect(
            told(100, 4 * 1_201),
            &[
                "100 bytes of program",
                "1201 bytes of rows",
                "w2",
                "needs 1301",
                "1300 of the 1600 bytes",
            ],
        );
    }
}
