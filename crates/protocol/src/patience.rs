//! How long processes of a cluster wait for each other: all of it on one page, since each figure leans on the others.
//!
//! Two things are told apart. A process is **silent** while it says nothing and its machine still acknowledges what is sent to it: it gets no
//! CPU, was stopped, or waits for a disk. Silence alone ends nothing; it is told. A machine is **cut off** when it acknowledges nothing any
//! more: a cable, a power supply, a firewall. What needs it ends, with an error that names both ends.
//!
//! Acknowledgements are the system's own, in both directions of every connection, so that no busy process is mistaken for a dead one, and all
//! of this is counted in time in which the observer itself ran: one that was stopped blames nobody when it wakes up.

use std::time::Duration;

/// How often a worker tells the controller that it is there, on a thread and a connection of its own. Shorter: the controller of a thousand
/// workers has more to hear. Longer: silence is noticed later.
pub const HEARTBEAT: Duration = Duration::from_millis(250);

/// A worker that has told nothing for so long gets no shards of new jobs. Shorter: one that shares its CPU with others is left out for a
/// moment's delay. Longer: more jobs begin that have to wait for it.
pub const LEFT_OUT_AFTER: Duration = Duration::from_secs(3);

/// Whoever waits for a worker that has told nothing for so long is told that it does. Shorter: a host that was busy for a moment alarms people.
/// Longer: they wonder.
pub const TOLD_AFTER: Duration = Duration::from_secs(10);

/// How long a connection may be quiet before the system asks whether the other machine is there. Shorter: more is asked on connections that
/// nobody uses. Longer: one of them may end so much earlier after a cut than one that is in use, and 5 s would not heal.
pub const KEEPALIVE: Duration = Duration::from_secs(2);
/// How often it then asks again.
pub const KEEPALIVE_EACH: Duration = Duration::from_secs(1);
/// How often in vain, before the connection ends: [`KEEPALIVE`] and this make [`ACKNOWLEDGED_WITHIN`] on a quiet connection.
pub const KEEPALIVE_TRIES: u32 = 8;

/// How long the other machine may leave what was sent unacknowledged before the connection ends. The system itself would wait for a quarter of
/// an hour. Shorter than some 7 s: an interruption of 5 s is not over when the system, which waits twice as long each time, sends again.
/// Longer: the error comes later than 15 s after a cut.
///
/// It is not the option TCP_USER_TIMEOUT of the system: that also ends connections to a machine that acknowledges, and whose process reads
/// nothing for so long.
pub const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(10);

/// How long two processes may be cut off from each other before what needs both of them ends: the connection has ended after
/// [`ACKNOWLEDGED_WITHIN`], and the rest is for making it again. Shorter: no time to dial once. Longer: the error comes later than 15 s after a cut.
pub const CUT_OFF_AFTER: Duration = Duration::from_secs(11);

/// How long a controller may take to answer a question. Shorter: a machine that is cut off is not known to be, and the error cannot say so.
pub const ANSWERED_WITHIN: Duration = Duration::from_secs(13);

/// How often it is looked what was acknowledged, and who greets for too long. What is measured is later than it was by so much.
pub const LOOKED_EACH: Duration = Duration::from_secs(1);

/// Measures time in which its owner ran: what passes between two looks counts as two [`LOOKED_EACH`] at most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Awake {
    looked: Option<Duration>,
    ran: Duration,
}

impl Awake {
    /// It is `now`, on some clock that never goes back: how long the owner has run.
    pub fn look(&mut self, now: Duration) -> Duration {
        let before = self.looked.replace(now).unwrap_or(now);
        self.ran += now.saturating_sub(before).min(2 * LOOKED_EACH);
        self.ran
    }

    /// How long it had run when it last looked.
    pub fn ran(&self) -> Duration {
        self.ran
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_stopped_has_not_waited_meanwhile() {
        let mut awake = Awake::default();
        let looks_ms = [
            (7_000, 0),
            (8_000, 1_000),
            (8_500, 1_500),
            (8_500, 1_500),
            (68_500, 3_500),
            (69_500, 4_500),
        ];
        for (now_ms, ran_ms) in looks_ms {
            let ran = awake.look(Duration::from_millis(now_ms));
            assert_eq!(ran, Duration::from_millis(ran_ms), "{now_ms}");
            assert_eq!(awake.ran(), ran);
        }
    }

    /// The figures as the documentation has them together.
    #[test]
    fn a_cut_is_told_within_fifteen_seconds_and_five_heal() {
        assert_eq!(
            KEEPALIVE + KEEPALIVE_EACH * KEEPALIVE_TRIES,
            ACKNOWLEDGED_WITHIN
        );
        assert!(CUT_OFF_AFTER + 3 * LOOKED_EACH < Duration::from_secs(15));
        assert!(ANSWERED_WITHIN > ACKNOWLEDGED_WITHIN + LOOKED_EACH);
        // The system sends again after 0.2, 0.6, 1.4, 3.0 and 6.2 s.
        assert!(ACKNOWLEDGED_WITHIN > Duration::from_millis(6_200) + LOOKED_EACH);
    }
}
