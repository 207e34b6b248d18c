//! What the other machine has acknowledged, as the system knows it.
//!
//! A connection on which something is under way says by itself, after a quarter of an hour, that nobody answers any more: that is when the
//! system gives up. A link ends earlier, when nothing was acknowledged for [`ACKNOWLEDGED_WITHIN`], or for as long as its owner says. What a full window keeps back is not under
//! way: a process that is stopped, and reads nothing, has a machine that answers all the same, however long it takes.
#![allow(unsafe_code)]

use brambling_protocol::patience::ACKNOWLEDGED_WITHIN;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

/// What the system says of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Acknowledged {
    /// Something is under way to the other machine, if only the question whether it takes more.
    pub(super) is_awaited: bool,
    /// When it last acknowledged something.
    pub(super) ago: Duration,
}

impl Acknowledged {
    /// None where the system does not say, as of what is no connection of TCP.
    pub(super) fn of(socket: BorrowedFd<'_>) -> Option<Acknowledged> {
        // SAFETY: a struct of numbers, for which zero bytes are values.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
        let place = (&raw mut info).cast::<libc::c_void>();
        let socket = socket.as_raw_fd();
        // SAFETY: the system writes at most `bytes` there; an older one writes less.
        let told = unsafe {
            libc::getsockopt(socket, libc::IPPROTO_TCP, libc::TCP_INFO, place, &mut bytes)
        };
        (told == 0).then(|| Acknowledged {
            is_awaited: info.tcpi_unacked > 0 || info.tcpi_probes > 0,
            ago: Duration::from_millis(info.tcpi_last_ack_recv.into()),
        })
    }
}

/// How long the other machine owes an acknowledgement.
#[derive(Debug)]
pub(super) struct Owed {
    since: Option<Since>,
    /// How long it may.
    pub(super) within: Duration,
}

impl Default for Owed {
    fn default() -> Owed {
        Owed {
            since: None,
            within: ACKNOWLEDGED_WITHIN,
        }
    }
}

#[derive(Debug)]
struct Since {
    /// In time in which this process ran.
    ran: Duration,
    at: Instant,
}

impl Owed {
    /// Whether it is too long, as of a look at `at`, when this process had run for `ran`. To be called every second or so.
    pub(super) fn is_overdue(
        &mut self,
        found: Option<Acknowledged>,
        ran: Duration,
        at: Instant,
    ) -> bool {
        let awaited = found.filter(|it| it.is_awaited);
        let is_new = |since: &Since| {
            let meanwhile = at.saturating_duration_since(since.at);
            // Something was acknowledged since then: what is under way now was sent later.
            awaited.is_none_or(|it| it.ago < meanwhile)
        };
        if self.since.as_ref().is_none_or(is_new) {
            self.since = awaited.map(|_| Since { ran, at });
        }
        let since = self.since.as_ref();
        since.is_some_and(|since| ran.saturating_sub(since.ran) >= self.within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds by the clock, seconds in which the process ran, how long ago something was acknowledged if something is under way, and
    /// whether that is too long.
    fn check(looks: &[(u64, u64, Option<u64>, bool)]) {
        check_of(Owed::default(), looks);
    }

    fn check_of(mut owed: Owed, looks: &[(u64, u64, Option<u64>, bool)]) {
        let begun = Instant::now();
        for (at, ran, ago, expected) in looks {
            let found = Acknowledged {
                is_awaited: ago.is_some(),
                ago: Duration::from_secs(ago.unwrap_or(0)),
            };
            let ran = Duration::from_secs(*ran);
            let at_then = begun + Duration::from_secs(*at);
            assert_eq!(
                owed.is_overdue(Some(found), ran, at_then),
                *expected,
                "at {at} s"
            );
        }
    }

    #[test]
    fn nothing_is_acknowledged_for_ten_seconds() {
        let looks = [
            (1, 1, Some(0), false),
            (2, 2, Some(1), false),
            (9, 9, Some(8), false),
            (11, 11, Some(10), true),
        ];
        check(&looks);
    }

    #[test]
    fn an_owner_may_have_less_patience() {
        let owed = Owed {
            within: Duration::from_secs(3),
            ..Owed::default()
        };
        check_of(
            owed,
            &[
                (1, 1, Some(1), false),
                (3, 3, Some(3), false),
                (4, 4, Some(4), true),
            ],
        );
    }

    #[test]
    fn an_acknowledgement_begins_it_anew() {
        check(&[
            (0, 0, Some(0), false),
            (9, 9, Some(9), false),
            (11, 11, Some(1), false),
            (20, 20, Some(10), false),
            (21, 21, Some(11), true),
        ]);
    }

    /// What is sent on a connection that was quiet for an hour has just begun to be awaited.
    #[test]
    fn after_a_long_quiet_time() {
        check(&[
            (0, 0, None, false),
            (3_600, 3_600, Some(3_600), false),
            (3_609, 3_609, Some(3_609), false),
            (3_610, 3_610, Some(3_610), true),
        ]);
    }

    /// A stopped process reads nothing: its machine says so again and again, and nothing is under way between two such answers.
    #[test]
    fn a_full_window_is_no_silence() {
        check(&[
            (0, 0, Some(0), false),
            (60, 60, None, false),
            (61, 61, Some(1), false),
            (100, 100, None, false),
        ]);
    }

    #[test]
    fn an_observer_that_was_stopped_blames_nobody_when_it_wakes_up() {
        check(&[
            (0, 0, Some(0), false),
            (60, 2, Some(60), false),
            (67, 9, Some(67), false),
            (68, 10, Some(68), true),
        ]);
    }
}
