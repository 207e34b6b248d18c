//! Counts what a policy's hosts have to tell each other: messages per coflow and peer, never per flow.
//!
//! A data plane may carry most of them in headers of packets that go anyway. They are counted as if it did not.

use super::PeerRelay;
use super::engine::Engine;
use crate::coflow::policy::Sizes;

impl Engine<'_> {
    /// A part begins: each sender announces to each receiver what it has for it.
    pub(super) fn count_announcements(&mut self, part: u32) {
        let flows = self.all.parts[part as usize].flows.clone();
        self.outcome.messages += self.pairs(flows).len() as u64;
    }

    /// A unit's order has changed. Where one decides for all, it tells each sender. Where receivers do, each tells its
    /// senders. What it has to know of others came to it from each of its senders, summed there; what goes up to them
    /// rides on acknowledgements.
    pub(super) fn count_orders(&mut self, unit: u32) {
        let pairs = self.pairs_of(unit);
        let is_announced = self.needs.sizes == Sizes::Announced;
        let is_relayed = self.needs.by_receiver && self.options.relay == PeerRelay::RoundTrip;
        let messages = match (is_announced || is_relayed, self.needs.by_receiver) {
            (true, _) => 2 * pairs.len(),
            (false, true) => pairs.len(),
            (false, false) => pairs.chunk_by(|one, other| one.0 == other.0).count(),
        };
        self.outcome.messages += messages as u64;
    }

    /// Who sends to whom among the flows of a unit that are served.
    fn pairs_of(&self, unit: u32) -> Vec<(u32, u32)> {
        self.pairs(self.all.units[unit as usize].active.iter().copied())
    }

    /// Who sends to whom among flows, in order.
    fn pairs(&self, flows: impl Iterator<Item = u32>) -> Vec<(u32, u32)> {
        let ends = flows.map(|it| {
            let flow = &self.all.flows[it as usize];
            (flow.source, flow.destination)
        });
        let mut pairs: Vec<_> = ends.collect();
        pairs.sort_unstable();
        pairs.dedup();
        pairs
    }
}
