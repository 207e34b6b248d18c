//! What policies are told, and when: what has come of a unit, what other receivers have relayed, and what is left.

use super::PeerRelay;
use super::engine::{AT_ONCE_S, ComingEvent, Engine, GroupKey};
use super::units::NOWHERE;
use crate::coflow::policy::{CoflowEvent, Heard, Sizes};

/// SimulatedUnits with more flows than this are looked at from time to time, others whenever their rates change.
const FEW_FLOWS: usize = 32;
/// How late a unit of many flows may be seen to have what its policy waits for: such a part of its age, but no less
/// than so many seconds.
const LATE_SHARE: f64 = 2e-4;
const LATE_S: f64 = 50e-6;
/// What a unit lacks less than this of, it has: rounding.
const NEAR_BYTES: f64 = 1e-2;

impl Engine<'_> {
    /// What a unit's receiver knows, and how many bytes a second that grows by.
    fn heard(&self, unit: u32) -> (Heard, f64) {
        let state = &self.all.units[unit as usize];
        let (own, rate) = self.all.received(&self.groups, unit, self.now);
        let mut heard = Heard {
            own,
            peers: 0.0,
            children: 0.0,
        };
        let mut grows = rate;
        if self.needs.by_receiver {
            heard.children = state.children_bytes;
        }
        let is_told = !self.needs.by_receiver || self.options.relay == PeerRelay::RoundTrip;
        if is_told {
            let ago = if self.needs.by_receiver {
                self.options.rtt_s
            } else {
                0.0
            };
            for peer in &self.all.families[state.family as usize] {
                if *peer != unit && self.all.units[*peer as usize].has_begun {
                    let (bytes, rate) = self.all.received(&self.groups, *peer, self.now);
                    heard.peers += (bytes - rate * ago).max(0.0);
                    grows += rate;
                }
            }
        }
        (heard, grows)
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
            let state = &self.all.units[*unit as usize];
            if is_new || (state.active.len() <= FEW_FLOWS && self.was_worked_out(*unit, dirty)) {
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
        let state = &mut self.all.units[unit as usize];
        state.version += 1;
        let version = state.version;
        if state.active.len() > FEW_FLOWS || !wait.is_finite() {
            let age = self.now - self.all.coflows[state.key.coflow as usize].arrival_s;
            let late = (age * LATE_SHARE).max(LATE_S);
            wait = wait.min((missing / state.rate_most).max(late));
        }
        if wait.is_finite() {
            // Time goes on, or it would be looked at for ever.
            let wait = wait.max(2.0 * AT_ONCE_S);
            self.at(self.now + wait, ComingEvent::Reached(unit, version));
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
        let heard_s = match self.needs.sizes {
            Sizes::Announced => self.now - self.options.rtt_s * 0.999,
            _ => self.now,
        };
        let begun: Vec<u32> = self.served.iter().copied().collect();
        for coflow in begun {
            let state = &self.all.coflows[coflow as usize];
            if state.arrival_s > heard_s {
                continue;
            }
            let units = state.units.clone();
            let bottleneck = self.all.bottleneck(&self.groups, &units, self.now);
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
            self.hear(CoflowEvent::Starved { unit: key });
        }
        self.await_starving(unit);
    }
}
