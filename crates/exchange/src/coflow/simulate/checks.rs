//! What has to hold whenever rates were worked out: tests look at it in every run.

use super::engine::Engine;
use super::group::{Bundle, FlowGroup};
use crate::coflow::policy::Sharing;

/// Of a rate, what rounding may take.
const NEAR: f64 = 1e-9;

/// What was carried so far.
#[derive(Debug, Default)]
pub(super) struct CarriedBytes {
    since: f64,
    per_s: f64,
    bytes: f64,
}

impl CarriedBytes {
    /// Rates change now, to so many bytes a second of all flows.
    fn change(&mut self, now: f64, per_s: f64) {
        self.bytes += self.per_s * (now - self.since);
        (self.since, self.per_s) = (now, per_s);
    }

    /// All that was to be carried was.
    pub(super) fn check(&self, expected: f64) {
        let off = (self.bytes - expected).abs();
        assert!(
            off <= expected * 1e-6 + 1.0,
            "{} bytes were carried of {expected}",
            self.bytes
        );
    }
}

impl Engine<'_> {
    /// No link carries more than it can; flows have all that they can have; and no group is served on a link that those
    /// before it fill.
    pub(super) fn check_rates(&mut self) {
        let mut used = vec![0.0; self.all.links];
        let mut per_s = 0.0;
        let slots: Vec<u32> = self.slots_in_order();
        for slot in &slots {
            let group = &self.groups[*slot as usize];
            let full: Vec<bool> = used
                .iter()
                .map(|used| *used >= self.all.capacity * (1.0 - NEAR))
                .collect();
            for (place, bundle) in served(group) {
                per_s += bundle.rate * f64::from(bundle.count);
                for link in group.path(place).links() {
                    let is_second = matches!(self.sharing(), Sharing::EndTogether);
                    assert!(
                        is_second
                            || !full[*link as usize]
                            || bundle.rate <= self.all.capacity * NEAR,
                        "served where the link is full"
                    );
                    used[*link as usize] += bundle.rate * f64::from(bundle.count);
                }
            }
        }
        let most = self.all.capacity * (1.0 + NEAR * 10.0);
        assert!(
            used.iter().all(|used| *used <= most),
            "more than a link carries"
        );
        if !matches!(self.sharing(), Sharing::OnePass) {
            for slot in slots {
                self.check_bottlenecks(&self.groups[slot as usize], &used);
            }
        }
        self.carried.change(self.now, per_s);
    }

    fn check_bottlenecks(&self, group: &FlowGroup, used: &[f64]) {
        for (place, bundle) in served(group) {
            let path = group.path(place);
            let links = path.links().iter();
            let full =
                links.filter(|link| used[**link as usize] >= self.all.capacity * (1.0 - 1e-6));
            assert!(full.count() > 0, "a flow could have more: {bundle:?}");
        }
    }
}

/// The bundles that have flows.
fn served(group: &FlowGroup) -> impl Iterator<Item = (usize, &Bundle)> {
    let all = group.bundles.iter().enumerate();
    all.filter(|(_, bundle)| bundle.count > 0)
}
