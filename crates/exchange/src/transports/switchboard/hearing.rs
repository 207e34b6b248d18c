//! Takes what the links of a switchboard say: that they are open, whose they are, frames, and that
//! they are lost. The net calls it, on whichever thread reads a link. It never hands a frame to a
//! job under the table's lock.

use super::link_table::acknowledged_within;
use super::link_table::{LinkState, LinkTable, key_of};
use super::{Party, PartyRefusal, REDIAL_FIRST, SwitchboardShared};
use crate::transports::tcp::{GREETING_TIME, LinkId, LinkOrigin, Lost, Owner, ReadTarget};
use brambling_protocol::frame::{Body, Call, FORMAT, Frame, Incoming};
use brambling_protocol::patience::ACKNOWLEDGED_WITHIN;
use brambling_protocol::{JobKey, Priority, WorkerId};
use bytes::Bytes;
use std::sync::{MutexGuard, Weak};
use std::time::Instant;

/// What a net tells. Weakly, since the switchboard holds the net.
pub(super) struct Hearer(pub(super) Weak<SwitchboardShared>);

impl Owner for Hearer {
    fn opened(&self, link: LinkId, origin: LinkOrigin) {
        if let Some(shared) = self.0.upgrade() {
            shared.opened(link, origin);
        }
    }
    fn frame(&self, link: LinkId, frame: Incoming<'_>) -> Result<(), PartyRefusal> {
        match self.0.upgrade() {
            Some(shared) => shared.frame(link, frame),
            None => Ok(()),
        }
    }
    fn place(&self, link: LinkId, begun: &[u8]) -> Option<ReadTarget> {
        self.0.upgrade()?.place(link, begun)
    }
    fn lost(&self, link: LinkId, why: Lost) {
        if let Some(shared) = self.0.upgrade() {
            shared.lost(link, &why);
        }
    }
}

impl SwitchboardShared {
    fn call(&self, key: JobKey, me: WorkerId, peer: WorkerId, party: &dyn Party) -> Bytes {
        let call = Call {
            job: key.job,
            generation: key.generation,
            worker: me,
            peer,
            epoch: self.epoch,
            format: FORMAT,
            received: party.received(peer),
        };
        Frame {
            priority: Priority::FIRST,
            sequence: None,
            body: Body::Call(call),
        }
        .to_bytes()
    }

    fn opened(&self, link: LinkId, origin: LinkOrigin) {
        let mut lines = self.lines();
        if let LinkOrigin::Accepted(_) = origin {
            lines.links.insert(link, LinkState::Called(Instant::now()));
            return;
        }
        let line = match lines.links.get(&link).copied() {
            Some(LinkState::Dialing(line)) => line,
            Some(LinkState::Visits) => {
                drop(lines);
                if let Some(reception) = &self.reception {
                    reception.on_open(link);
                }
                return;
            }
            _ => return,
        };
        let job = lines
            .jobs
            .get(&line.0)
            .map(|job| (job.me, job.party.clone()));
        drop(lines);
        match job {
            Some((me, party)) => {
                let call = self.call(line.0, me, line.1, &*party);
                self.net().send(link, [call]);
            }
            None => self.net().close(link),
        }
    }

    fn frame(&self, link: LinkId, frame: Incoming<'_>) -> Result<(), PartyRefusal> {
        let lines = self.lines();
        let state = lines.links.get(&link).copied();
        match state {
            Some(LinkState::Serves((key, peer))) => {
                let party = lines.jobs.get(&key).map(|job| job.party.clone());
                drop(lines);
                // A job that is over is no longer in the table; its link is being closed.
                party.map_or(Ok(()), |party| party.on_frame(peer, frame))
            }
            Some(LinkState::Visits) => {
                drop(lines);
                self.received(link, frame)
            }
            Some(state) => self.greeted(lines, link, state, frame),
            // The link was closed here meanwhile.
            None => Ok(()),
        }
    }

    /// Only a job's frames have places.
    fn place(&self, link: LinkId, begun: &[u8]) -> Option<ReadTarget> {
        let lines = self.lines();
        let Some(LinkState::Serves((key, peer))) = lines.links.get(&link).copied() else {
            return None;
        };
        let party = lines.jobs.get(&key)?.party.clone();
        drop(lines);
        party.place(peer, begun)
    }

    fn received(&self, link: LinkId, frame: Incoming<'_>) -> Result<(), PartyRefusal> {
        match &self.reception {
            Some(reception) => reception.on_frame(link, frame.bytes()),
            None => Err("the first frame is no call, and nobody is received here".into()),
        }
    }

    /// The first frame of a link says whose it is.
    fn greeted(
        &self,
        mut lines: MutexGuard<'_, LinkTable>,
        link: LinkId,
        state: LinkState,
        frame: Incoming<'_>,
    ) -> Result<(), PartyRefusal> {
        let (Frame { body, .. }, _) = Frame::decode(frame.bytes())?;
        let Body::Call(call) = body else {
            if matches!(state, LinkState::Called(_)) && self.reception.is_some() {
                lines.links.insert(link, LinkState::Visits);
            }
            drop(lines);
            return match state {
                LinkState::Called(_) => self.received(link, frame),
                _ => Err("the first frame is no call".into()),
            };
        };
        let line = (key_of(&call), call.worker);
        let job = lines.called(&call, state)?;
        let (me, party) = (job.me, job.party.clone());
        drop(lines);
        let reply =
            matches!(state, LinkState::Called(_)).then(|| self.call(line.0, me, line.1, &*party));
        let mut lines = self.lines();
        let peer = lines.caller(&call, link)?;
        // Sent before anybody finds the link: no frame may go before the reply.
        if let Some(reply) = reply {
            self.net().send(link, [reply]);
        }
        let older = peer.link.replace(link);
        (peer.again, peer.wait, peer.cut) = (None, REDIAL_FIRST, None);
        lines.links.insert(link, LinkState::Serves(line));
        drop(lines);
        self.net()
            .acknowledges_within(link, acknowledged_within(me, line.1));
        if let Some(older) = older.filter(|older| *older != link) {
            self.net().close(older);
        }
        party.on_reconnect(line.1, call.received)
    }

    fn lost(&self, link: LinkId, why: &Lost) {
        let mut lines = self.lines();
        let (line, before) = match lines.links.remove(&link) {
            Some(LinkState::Dialing(line)) => (line, GREETING_TIME),
            Some(LinkState::Serves(line)) => {
                let job = lines.jobs.get(&line.0);
                let before = job.map(|job| acknowledged_within(job.me, line.1));
                (line, before.unwrap_or(ACKNOWLEDGED_WITHIN))
            }
            Some(LinkState::Visits) => {
                drop(lines);
                if let Some(reception) = &self.reception {
                    reception.on_lost(link, why);
                }
                return;
            }
            Some(LinkState::Called(_)) | None => return,
        };
        let is_current = lines.peers.get(&line).is_some_and(|peer| {
            !peer.is_forgotten && peer.link.is_none_or(|current| current == link)
        });
        if !is_current {
            return;
        }
        lines.note(line, why, before, self.net().ran());
        lines.dial_again(line);
        self.tell_lost(lines, line, why);
    }
}
