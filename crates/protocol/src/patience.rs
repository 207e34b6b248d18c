//! How long processes of a cluster wait for each other: all of it on one page, since each figure leans on the others.
//!
//! Two things are told apart. A process is **silent** while it says nothing and its machine still acknowledges what is sent to it: it gets no
//! CPU, was stopped, or waits for a disk. It is waited for, and told of, and given up after [`SILENCE`]. A machine is **cut off** when it acknowledges nothing
//! any more: a cable, a power supply, a firewall. Of two workers one is given up then; what else needs it ends, with an error that names both ends.
//!
//! A worker that is given up is **fenced**: nothing that it says counts any more, so it does not matter that it may still run.
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

/// A worker that has told nothing for so long is fenced, unless the setting `silence` says otherwise: its jobs begin again without it. Shorter: a machine that swaps
/// for a moment, or a debugger, loses its worker. Longer: jobs wait longer for a process that never goes on.
pub const SILENCE: Duration = Duration::from_secs(30);

/// How long a connection may be quiet before the system asks whether the other machine is there. Shorter: more is asked on connections that
/// nobody uses. Longer: a cut between workers that have nothing to say for a while is told so much later.
pub const KEEPALIVE: Duration = Duration::from_secs(1);
/// How often it then asks again.
pub const KEEPALIVE_EACH: Duration = Duration::from_secs(1);
/// How often in vain, before the connection ends: [`KEEPALIVE`] and this make [`ACKNOWLEDGED_WITHIN`] on a quiet connection.
pub const KEEPALIVE_TRIES: u32 = 9;

/// How long the other machine may leave what was sent unacknowledged before a connection ends that is not between two workers. The system itself would wait for a quarter of
/// an hour. Shorter than some 7 s: an interruption of 5 s is not over when the system, which waits twice as long each time, sends again.
/// Longer: the error comes later than 15 s after a cut.
///
/// It is not the option TCP_USER_TIMEOUT of the system: that also ends connections to a machine that acknowledges, and whose process reads
/// nothing for so long.
pub const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(10);

/// The same between two workers, where the controller can tell who of them is to go: a job begins again sooner than it would wait. The system sends again after
/// 0.2, 0.6, 1.4 and 3.0 s. Shorter than that: an interruption of 3 s is not over for it. Longer: no time is left to dial within [`PEER_CUT_OFF_AFTER`].
pub const PEER_ACKNOWLEDGED_WITHIN: Duration = Duration::from_millis(3_500);

/// How long two workers may be cut off from each other before one of them is fenced. Shorter: an interruption of 3 s costs a worker. Longer: jobs stand still for
/// longer, and a machine without power is given up later than 8 s after that.
pub const PEER_CUT_OFF_AFTER: Duration = Duration::from_secs(5);

/// How often a cut between two workers is told again while it lasts: the controller may have been away, or have taken over and not gone on with the job yet. Shorter:
/// more is said while a network is down. Longer: after a takeover a job stands still for so much longer.
pub const CUT_OFF_TOLD_EACH: Duration = Duration::from_secs(1);

/// How long two processes may be cut off from each other before what needs both of them ends, unless both are workers: the connection has ended after
/// [`ACKNOWLEDGED_WITHIN`], and the rest is for making it again. Shorter: no time to dial once. Longer: the error comes later than 15 s after a cut.
pub const CUT_OFF_AFTER: Duration = Duration::from_secs(11);

/// How long a controller may take to answer a question. Shorter: a machine that is cut off is not known to be, and the error cannot say so.
pub const ANSWERED_WITHIN: Duration = Duration::from_secs(13);

/// How often it is looked what was acknowledged, and who greets for too long. What is measured is later than it was by so much. Shorter: a process with a thousand
/// links asks the system more often. Longer: a worker is fenced later than [`PEER_CUT_OFF_AFTER`] says.
pub const LOOKED_EACH: Duration = Duration::from_millis(500);

/// What passes between two looks of an observer counts as so much at most. Shorter: one on a busy machine measures less than has passed. Longer: one that was stopped
/// blames others for it.
pub const AWAKE_AT_MOST: Duration = Duration::from_secs(2);

/// Measures time in which its owner ran: what passes between two looks counts as [`AWAKE_AT_MOST`] at most.
#[derive(Clone, Copy, Debug, Default)]
pub struct Awake {
    looked: Option<Duration>,
    ran: Duration,
}

impl Awake {
    /// It is `now`, on some clock that never goes back: how long the owner has run.
    pub fn look(&mut self, now: Duration) -> Duration {
        let before = self.looked.replace(now).unwrap_or(now);
        self.ran += now.saturating_sub(before).min(AWAKE_AT_MOST);
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

    #[test]
    fn three_seconds_between_workers_heal_and_one_is_fenced_within_eight() {
        assert!(PEER_ACKNOWLEDGED_WITHIN >= Duration::from_millis(3_000) + LOOKED_EACH);
        // It is noticed that something is awaited, and that it is overdue; then there is a look left to dial.
        assert!(PEER_ACKNOWLEDGED_WITHIN + 3 * LOOKED_EACH <= PEER_CUT_OFF_AFTER);
        // Where nobody says anything the system has to ask first.
        let latest = KEEPALIVE + PEER_CUT_OFF_AFTER + 3 * LOOKED_EACH;
        assert!(latest < Duration::from_secs(8));
        // A worker that gets no CPU for 15 s is not given up.
        assert!(SILENCE > Duration::from_secs(15) + AWAKE_AT_MOST);
    }
}
