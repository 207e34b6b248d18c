//! The thread of a switchboard that dials: whoever is to be dialed for the first time or again. It also ends links on which nobody says who they are,
//! and tells of peers whose machines have not answered for too long.

use super::link_table::{LinkKey, LinkState, LinkTable};
use super::{REDIAL_MAX, SwitchboardShared};
use crate::transports::tcp::Lost;
use brambling_protocol::patience::LOOKED_EACH;
use std::net::SocketAddr;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

impl SwitchboardShared {
    pub(super) fn redial(&self) {
        let mut lines = self.lines();
        while !lines.ends {
            let now = Instant::now();
            if let Some(silent) = lines.silent_at(now) {
                lines.links.remove(&silent);
                drop(lines);
                self.net().close(silent);
                lines = self.lines();
                continue;
            }
            if let Some((line, so_long, why)) = lines.cut_off(self.net().ran()) {
                let party = lines.jobs.get(&line.0).map(|job| job.party.clone());
                drop(lines);
                if let Some(party) = party {
                    party.on_cut_off(line.1, so_long, &why);
                }
                lines = self.lines();
                continue;
            }
            if let Some((line, at)) = lines.due(now) {
                drop(lines);
                self.dial(line, at);
                lines = self.lines();
                continue;
            }
            let next = lines.peers.values().filter_map(|peer| peer.again).min();
            let longest = match lines.has_cut() {
                true => LOOKED_EACH,
                false => REDIAL_MAX,
            };
            let patience = next.map_or(longest, |at| at.saturating_duration_since(now));
            let patience = patience.min(longest);
            let waited = self.sooner.wait_timeout(lines, patience);
            lines = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn dial(&self, line: LinkKey, at: SocketAddr) {
        // Dialed under the lock: the link must be in the table before anything is heard of it.
        let mut lines = self.lines();
        match self.net().dial(at) {
            Ok(link) => {
                lines.links.insert(link, LinkState::Dialing(line));
            }
            Err(error) => {
                let why = Lost::Io(error);
                lines.note(line, &why, Duration::ZERO, self.net().ran());
                lines.dial_again(line);
                self.tell_lost(lines, line, &why);
            }
        }
    }

    pub(super) fn tell_lost(&self, lines: MutexGuard<'_, LinkTable>, line: LinkKey, why: &Lost) {
        let party = lines.jobs.get(&line.0).map(|job| job.party.clone());
        drop(lines);
        self.sooner.notify_all();
        if let Some(party) = party {
            party.on_lost(line.1, why);
        }
    }
}
