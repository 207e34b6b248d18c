//! Owns what a switchboard knows: the jobs that are here, their peers, and how far each link is.
//! The switchboard's other files call it, under its lock. It never dials, sends or closes anything
//! itself.

use super::{Party, PartyRefusal, REDIAL_MAX};
use crate::transports::tcp::{GREETING_TIME, LinkId, Lost};
use brambling_protocol::frame::Call;
use brambling_protocol::patience::{
    ACKNOWLEDGED_WITHIN, CUT_OFF_AFTER, CUT_OFF_TOLD_EACH, PEER_ACKNOWLEDGED_WITHIN,
    PEER_CUT_OFF_AFTER,
};
use brambling_protocol::{JobKey, WorkerId};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The two ends of a link: a job, and the peer of this process in it.
pub(super) type LinkKey = (JobKey, WorkerId);

pub(super) struct LinkedJob {
    pub(super) me: WorkerId,
    pub(super) party: Arc<dyn Party>,
}

/// What is known of a peer.
#[derive(Default)]
pub(super) struct Peer {
    /// Where to dial it, if this side does.
    pub(super) dials: Option<SocketAddr>,
    /// The link that it has, once both have said who they are.
    pub(super) link: Option<LinkId>,
    /// When to dial again, and how long to wait the next time.
    pub(super) again: Option<Instant>,
    pub(super) wait: Duration,
    /// Which start of its process it was.
    pub(super) epoch: Option<u64>,
    /// It takes no part any more.
    pub(super) is_forgotten: bool,
    /// Since when its machine does not answer.
    pub(super) cut: Option<Outage>,
}

/// A machine does not answer.
pub(super) struct Outage {
    /// Since when, in time in which this process ran.
    pub(super) since: Duration,
    pub(super) why: String,
    /// When that was told last, in the same time.
    pub(super) told_at: Option<Duration>,
}

/// How far a link is.
#[derive(Clone, Copy)]
pub(super) enum LinkState {
    /// This side dials, and will say who it is.
    Dialing(LinkKey),
    /// Somebody has called, and has not said since then who it is.
    Called(Instant),
    /// It carries frames of this line.
    Serves(LinkKey),
    /// It speaks of no job.
    Visits,
}

#[derive(Default)]
pub(super) struct LinkTable {
    pub(super) jobs: BTreeMap<JobKey, LinkedJob>,
    pub(super) peers: BTreeMap<LinkKey, Peer>,
    pub(super) links: BTreeMap<LinkId, LinkState>,
    pub(super) ends: bool,
}

impl LinkTable {
    /// Whose party a call is for, and who that is here; `state` is that of its link.
    ///
    /// # Errors
    /// When there is no such job here, or another side is meant, or dialed.
    pub(super) fn called(&self, call: &Call, state: LinkState) -> Result<&LinkedJob, PartyRefusal> {
        let key = key_of(call);
        let Some(job) = self.jobs.get(&key) else {
            return Err(format!("there is no job {key} here").into());
        };
        // A side that has dialed knows its peer; a side that was called learns it here.
        let expected = match state {
            LinkState::Dialing(expected) => expected == (key, call.worker),
            _ => true,
        };
        match call.peer == job.me && expected {
            true => Ok(job),
            false => Err(format!(
                "{} calls {}, and this is {}",
                call.worker, call.peer, job.me
            )
            .into()),
        }
    }

    /// The peer that has called on a link, which from now on is its, if `link` is still there.
    ///
    /// # Errors
    /// When the job or the link is over meanwhile, or the peer is not who it was.
    pub(super) fn caller(&mut self, call: &Call, link: LinkId) -> Result<&mut Peer, PartyRefusal> {
        let key = key_of(call);
        if !self.jobs.contains_key(&key) {
            return Err(format!("job {key} is over here").into());
        }
        if !self.links.contains_key(&link) {
            // The link was lost while nobody held the lock, and that will not be reported again.
            return Err("the link has ended".into());
        }
        let peer = self.peers.entry((key, call.worker)).or_default();
        if peer.is_forgotten {
            return Err(format!("{} takes no part in job {key} any more", call.worker).into());
        }
        if *peer.epoch.get_or_insert(call.epoch) != call.epoch {
            return Err(format!(
                "{} has been started again: what it held is lost",
                call.worker
            )
            .into());
        }
        Ok(peer)
    }

    /// A link on which nobody has said anything for too long since its greeting.
    pub(super) fn silent_at(&self, now: Instant) -> Option<LinkId> {
        let is_silent = |(link, state): (&LinkId, &LinkState)| match state {
            LinkState::Called(since) if now.saturating_duration_since(*since) > GREETING_TIME => {
                Some(*link)
            }
            _ => None,
        };
        self.links.iter().find_map(is_silent)
    }

    /// What the end of a link tells of the peer's machine, at a time when this process had run for `ran`. Where it has not answered, that
    /// began a while `before`.
    pub(super) fn note(&mut self, line: LinkKey, why: &Lost, before: Duration, ran: Duration) {
        let Some(peer) = self.peers.get_mut(&line) else {
            return;
        };
        if !why.is_cut() {
            peer.cut = None;
            return;
        }
        peer.cut.get_or_insert_with(|| Outage {
            since: ran.saturating_sub(before),
            why: why.to_string(),
            told_at: None,
        });
    }

    /// A peer whose machine has not answered for too long. It is told again and again: whoever could help may be away, or not know
    /// of the job yet.
    pub(super) fn cut_off(&mut self, ran: Duration) -> Option<(LinkKey, Duration, String)> {
        let jobs = &self.jobs;
        let mut peers = self.peers.iter_mut();
        peers.find_map(|(line, peer)| {
            let cut = peer.cut.as_mut().filter(|_| !peer.is_forgotten)?;
            let so_long = ran.saturating_sub(cut.since);
            let me = jobs.get(&line.0)?.me;
            let is_due = match cut.told_at {
                None => so_long >= cut_off_after(me, line.1),
                Some(at) => ran.saturating_sub(at) >= CUT_OFF_TOLD_EACH,
            };
            if is_due {
                cut.told_at = Some(ran);
            }
            is_due.then(|| (*line, so_long, cut.why.clone()))
        })
    }

    /// Whether a peer's machine does not answer.
    pub(super) fn has_cut(&self) -> bool {
        let mut peers = self.peers.values();
        peers.any(|peer| peer.cut.is_some() && !peer.is_forgotten)
    }

    /// The peer has no link: it is dialed again after a while, if this side dials.
    pub(super) fn dial_again(&mut self, line: LinkKey) {
        if let Some(peer) = self.peers.get_mut(&line) {
            peer.link = None;
            if peer.dials.is_some() {
                peer.again = Some(Instant::now() + peer.wait);
                peer.wait = (peer.wait * 2).min(REDIAL_MAX);
            }
        }
    }

    /// A peer that is to be dialed by now, and where.
    pub(super) fn due(&mut self, now: Instant) -> Option<(LinkKey, SocketAddr)> {
        let is_due = |(_, peer): &(&LinkKey, &mut Peer)| peer.again.is_some_and(|at| at <= now);
        let (line, peer) = self.peers.iter_mut().find(is_due)?;
        peer.again = None;
        let at = peer
            .dials
            .expect("only who dials has something to dial again");
        Some((*line, at))
    }

    /// A job is over; its links.
    pub(super) fn leave(&mut self, key: JobKey) -> Vec<LinkId> {
        self.jobs.remove(&key);
        self.peers.retain(|line, _| line.0 != key);
        let of_job = |state: &LinkState| match state {
            LinkState::Dialing(line) | LinkState::Serves(line) => line.0 == key,
            LinkState::Called(_) | LinkState::Visits => false,
        };
        let links = self.links.iter().filter(|(_, state)| of_job(state));
        links.map(|(link, _)| *link).collect()
    }
}

/// Whether a link is between two workers, of whom the controller can do without one.
fn are_workers(me: WorkerId, peer: WorkerId) -> bool {
    ![me, peer].contains(&WorkerId::CONTROLLER)
}

/// How long the other end of a link between these may acknowledge nothing.
pub(super) fn acknowledged_within(me: WorkerId, peer: WorkerId) -> Duration {
    match are_workers(me, peer) {
        true => PEER_ACKNOWLEDGED_WITHIN,
        false => ACKNOWLEDGED_WITHIN,
    }
}

/// How long these may be cut off before it is told.
fn cut_off_after(me: WorkerId, peer: WorkerId) -> Duration {
    match are_workers(me, peer) {
        true => PEER_CUT_OFF_AFTER,
        false => CUT_OFF_AFTER,
    }
}

/// Of which job a call speaks.
pub(super) fn key_of(call: &Call) -> JobKey {
    JobKey::new(call.job, call.generation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_protocol::frame::Incoming;
    use brambling_protocol::{Generation, JobId, Sequence};

    struct Nobody;

    impl Party for Nobody {
        fn received(&self, _peer: WorkerId) -> Sequence {
            0
        }
        fn on_reconnect(&self, _peer: WorkerId, _received: Sequence) -> Result<(), PartyRefusal> {
            Ok(())
        }
        fn on_frame(&self, _peer: WorkerId, _frame: Incoming<'_>) -> Result<(), PartyRefusal> {
            Ok(())
        }
    }

    #[test]
    fn a_cut_is_told_again_while_it_lasts() {
        let (key, me, peer) = (
            JobKey::new(JobId(1), Generation(0)),
            WorkerId(1),
            WorkerId(2),
        );
        let (line, mut table) = ((key, peer), LinkTable::default());
        let party: Arc<dyn Party> = Arc::new(Nobody);
        table.jobs.insert(key, LinkedJob { me, party });
        table.peers.insert(line, Peer::default());
        let begun = Duration::from_secs(100);
        table.note(
            line,
            &Lost::Unacknowledged(PEER_ACKNOWLEDGED_WITHIN),
            Duration::ZERO,
            begun,
        );
        let is_told = |table: &mut LinkTable, after: Duration| {
            let told = table.cut_off(begun + after);
            told.map(|(line, so_long, _)| (line, so_long))
        };
        let (soon, step) = (PEER_CUT_OFF_AFTER, Duration::from_millis(1));
        assert_eq!(is_told(&mut table, soon - step), None);
        assert_eq!(is_told(&mut table, soon), Some((line, soon)));
        let again = soon + CUT_OFF_TOLD_EACH;
        assert_eq!(is_told(&mut table, again - step), None);
        assert_eq!(is_told(&mut table, again), Some((line, again)));
        // The machine answers: what comes after that begins anew.
        table.note(line, &Lost::Ended, Duration::ZERO, begun + again);
        assert!(!table.has_cut());
        assert_eq!(is_told(&mut table, again + CUT_OFF_TOLD_EACH), None);
    }
}
