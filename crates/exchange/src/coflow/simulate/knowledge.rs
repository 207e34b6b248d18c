//! What policies are told, and when: what has come of a unit, what other receivers have relayed, and what is left.

use super::PeerRelay;
use super::engine::{ComingEvent, Engine, at_once_s};
use super::serving::GroupKey;
use super::units::{FamilySeen, NOWHERE};
use crate::coflow::policy::{CoflowEvent, Heard, Sizes};

/// Units that have more flows than this, together with those whose bytes count for them, are looked at from time to time,
/// others whenever their rates change.
const FEW_FLOWS: usize = 32;
/// How late a unit of many flows may be seen to have what its policy waits for: such a part of its age, but no less
/// than so many seconds.
const LATE_SHARE: f64 = 2e-4;
const LATE_S: f64 = 50e-6;
/// What a unit lacks less than this of, it has: rounding.
const NEAR_BYTES: f64 = 1e-2;

impl Engine<'_> {
    /// What a unit's receiver knows, and how many bytes a second that grows by.
    fn heard(&mut self, unit: u32) -> (Heard, f64) {
        let (own, rate) = self.all.received(&self.groups, unit, self.now);
        let state = &self.all.units[unit as usize];
        let (family, children) = (state.family, state.children_bytes);
        let mut heard = Heard {
            own,
            peers: 0.0,
            children: if self.needs.by_receiver {
                children
            } else {
                0.0
            },
        };
        let is_told = !self.needs.by_receiver || self.options.relay == PeerRelay::RoundTrip;
        let has_peers = self.all.families[family as usize].members.len() > 1;
        if !is_told || !has_peers {
            return (heard, rate);
        }
        let all = self.family_seen(family);
        let ago = match self.needs.by_receiver {
            true => self.options.rtt_s,
            false => 0.0,
        };
        heard.peers = (all.bytes - own - (all.rate - rate) * ago).max(0.0);
        (heard, all.rate)
    }

    /// What has come of a family. Many of it ask at the same moment.
    fn family_seen(&mut self, family: u32) -> FamilySeen {
        let at = (self.now, self.outcome.rounds);
        let state = &self.all.families[family as usize];
        if state.seen.at == at {
            return state.seen;
        }
        let mut seen = FamilySeen {
            at,
            ..FamilySeen::default()
        };
        for unit in &state.members {
            let (bytes, rate) = self.all.received(&self.groups, *unit, self.now);
            seen.bytes += bytes;
            seen.rate += rate;
        }
        self.all.families[family as usize].seen = seen;
        seen
    }

    /// Whether a unit is looked at whenever rates change: nobody counts for it but few flows.
    fn is_small(&self, unit: u32) -> bool {
        let family = self.all.units[unit as usize].family;
        self.all.families[family as usize].active as usize <= FEW_FLOWS
    }

    /// The policy is told what has come of a unit.
    pub(super) fn tell_progress(&mut self, unit: u32) {
        let (bytes, _) = self.heard(unit);
        let state = &self.all.units[unit as usize];
        let event = CoflowEvent::Progressed {
            unit: state.key,
            bytes,
            flows_done: state.done_flows,
        };
        self.hear(event);
    }

    /// A unit is served: sees when its policy wants to be told of it.
    pub(super) fn watch(&mut self, unit: u32) {
        let state = &self.all.units[unit as usize];
        if state.has_begun && !state.is_watched && self.policy.wants_at(state.key).is_some() {
            self.all.units[unit as usize].is_watched = true;
            self.watched.push(unit);
        }
    }

    /// Rates have been worked out from a group on: predicts anew when units have what their policy waits for.
    pub(super) fn predict_again(&mut self, dirty: GroupKey) {
        let mut watched = std::mem::take(&mut self.watched);
        watched.retain(|unit| {
            let state = &mut self.all.units[*unit as usize];
            state.is_watched = state.flows_left > 0;
            state.is_watched
        });
        for unit in &watched {
            let state = &mut self.all.units[*unit as usize];
            let is_new = std::mem::take(&mut state.is_new);
            if is_new || (self.is_small(*unit) && self.was_worked_out(*unit, dirty)) {
                self.predict(*unit);
            }
        }
        self.watched = watched;
    }

    /// Predicts when a unit has as many bytes as its policy waits for.
    fn predict(&mut self, unit: u32) {
        let state = &self.all.units[unit as usize];
        let Some(wanted) = self
            .policy
            .wants_at(state.key)
            .filter(|_| !state.active.is_empty())
        else {
            return;
        };
        let (heard, grows) = self.heard(unit);
        let missing = (wanted - heard.own - heard.peers - heard.children).max(NEAR_BYTES);
        let mut wait = missing / grows;
        let is_small = self.is_small(unit);
        let state = &mut self.all.units[unit as usize];
        state.version += 1;
        let version = state.version;
        if !is_small || !wait.is_finite() {
            let age = self.now - self.all.coflows[state.key.coflow as usize].arrival_s;
            let late = (age * LATE_SHARE).max(LATE_S);
            let rate_most = self.all.families[state.family as usize].rate_most;
            wait = wait.min((missing / rate_most).max(late));
        }
        if wait.is_finite() {
            // Time goes on, or it would be looked at for ever.
            let at = self.now + wait.max(2.0 * at_once_s(self.now));
            // Those of one family are looked at together.
            let at = match is_small {
                true => at,
                false => (at / LATE_S).ceil() * LATE_S,
            };
            self.at(at, ComingEvent::Reached(unit, version));
        }
    }

    /// A prediction's time has come.
    pub(super) fn may_have_reached(&mut self, unit: u32, version: u32) {
        let state = &self.all.units[unit as usize];
        if state.version != version || state.flows_left == 0 {
            return;
        }
        let Some(wanted) = self.policy.wants_at(state.key) else {
            return;
        };
        let (heard, _) = self.heard(unit);
        if wanted - heard.own - heard.peers - heard.children <= 2.0 * NEAR_BYTES {
            self.tell_progress(unit);
        }
        self.predict(unit);
    }

    /// A coflow has come or ended: those that know sizes hear what is left of each.
    pub(super) fn sizes_change(&mut self) {
        match self.needs.sizes {
            Sizes::Unknown => {}
            Sizes::Known => self.tell_what_is_left(),
            Sizes::Announced => self.at(self.now + self.options.rtt_s, ComingEvent::Heard),
        }
    }

    /// The policy is told what is left of each coflow that its receivers have heard of.
    pub(super) fn tell_what_is_left(&mut self) {
        let is_announced = self.needs.sizes == Sizes::Announced;
        let heard_s = match is_announced {
            true => self.now - self.options.rtt_s * 0.999,
            false => self.now,
        };
        let begun: Vec<u32> = self.served.iter().copied().collect();
        for coflow in begun {
            let state = &self.all.coflows[coflow as usize];
            if state.news_s > heard_s {
                continue;
            }
            let units = state.units.clone();
            let (all, groups) = (&self.all, &self.groups);
            let left = match is_announced {
                true => all.believed_bottleneck(groups, coflow, self.now),
                false => Some(all.bottleneck(groups, &units, self.now)),
            };
            let Some(bottleneck) = left else {
                continue;
            };
            for unit in units {
                let state = &self.all.units[unit as usize];
                if state.has_begun && state.flows_left > 0 {
                    let unit = state.key;
                    self.hear(CoflowEvent::Remaining { unit, bottleneck });
                }
            }
        }
    }

    /// Sees to it that a unit that gets nothing for too long is told of.
    pub(super) fn await_starving(&mut self, unit: u32) {
        if let Some(bears) = self.policy.bears_s() {
            let (own, _) = self.all.received(&self.groups, unit, self.now);
            self.at(self.now + bears, ComingEvent::Starved(unit, own.to_bits()));
        }
    }

    /// A unit had so many bytes a while ago.
    pub(super) fn may_starve(&mut self, unit: u32, before: f64) {
        let state = &self.all.units[unit as usize];
        if state.flows_left == 0 {
            return;
        }
        let (key, is_served) = (
            state.key,
            state
                .active
                .iter()
                .any(|it| self.all.flows[*it as usize].group != NOWHERE),
        );
        let (own, _) = self.all.received(&self.groups, unit, self.now);
        if is_served && own <= before + NEAR_BYTES {
            // A lift is counted from what has come.
            self.tell_progress(unit);
            self.hear(CoflowEvent::Starved { unit: key });
            // It may wait for bytes again, where it was in the last class before.
            self.watch(unit);
            self.predict(unit);
        }
        self.await_starving(unit);
    }
}
