//! Owns the flows that are served together: a class, or a unit. Flows of one path are a bundle, whose rate each of
//! them has, so what a flow has left is known from one counter for all of them.
//!
//! Most bundles of most groups wait for links that others fill. What is done whenever rates change looks at those
//! that move, and at no others.

use super::engine::at_once_s;
use super::fabric::{PATH_MOST, Path};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

/// A flow is done when it has less left than this, in bytes: rounding.
pub(super) const DONE_BYTES: f64 = 1e-2;
/// Stands where a path has no more links.
const NO_LINK: u32 = u32::MAX;

/// When a flow is done: by how many bytes each flow of its bundle has had.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Target {
    bytes: f64,
    flow: u32,
}

impl Eq for Target {}

impl PartialOrd for Target {
    fn partial_cmp(&self, other: &Target) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The least is the greatest, so that a heap gives it first.
impl Ord for Target {
    fn cmp(&self, other: &Target) -> Ordering {
        let by_bytes = other.bytes.total_cmp(&self.bytes);
        by_bytes.then(other.flow.cmp(&self.flow))
    }
}

/// The links of a path, by their places in a group's list.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalPath([u32; PATH_MOST]);

impl LocalPath {
    #[inline]
    pub(super) fn places(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        let links = self.0.into_iter().take_while(|it| *it != NO_LINK);
        links.map(|it| it as usize)
    }
}

/// Flows of one path, as far as they are looked at whenever rates change: a line of cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Bundle {
    pub(super) local: LocalPath,
    /// How many flows.
    pub(super) count: u32,
    /// How much a flow counts beside others.
    pub(super) weight: f64,
    /// Bytes that each flow has had.
    pub(super) had: f64,
    /// Bytes a second that each flow gets.
    pub(super) rate: f64,
    /// When the first of its flows is done, by bytes that each has had.
    first: f64,
}

/// What else there is to know of a bundle.
#[derive(Debug)]
struct BundleFlows {
    path: Path,
    apart: u64,
    targets: BinaryHeap<Target>,
}

/// Where on its flows' paths a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathPlace {
    /// At their sources.
    First,
    /// Between.
    Middle,
    /// At their destinations.
    Last,
}

/// A link that the group uses.
#[derive(Debug)]
pub(super) struct LocalLink {
    pub(super) link: u32,
    pub(super) place: PathPlace,
    /// The weight of its flows.
    pub(super) weight: f64,
    pub(super) bundles: Vec<u32>,
    /// What flows of the group take of it, in bytes a second.
    pub(super) used: f64,
}

/// A flow that is done: where it was, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DoneFlow {
    pub(super) flow: u32,
    pub(super) place: u32,
    pub(super) target: f64,
    pub(super) at: f64,
}

/// Flows that are served together.
#[derive(Debug, Default)]
pub(super) struct FlowGroup {
    pub(super) bundles: Vec<Bundle>,
    bundle_flows: Vec<BundleFlows>,
    pub(super) links: Vec<LocalLink>,
    /// The bundles whose flows get anything.
    pub(super) moving: Vec<u32>,
    // order: looked up only.
    places: HashMap<(Path, u64), u32>,
    // order: looked up only.
    local: HashMap<u32, u32>,
    free: Vec<u32>,
    /// Flows that are done, and have not been taken.
    pub(super) done: Vec<DoneFlow>,
    /// How many flows.
    pub(super) flows: u32,
    /// Since when rates are as they are: bundles have had what they had then.
    pub(super) since: f64,
    /// When the next flow is done, if rates stay.
    pub(super) next: f64,
}

impl Bundle {
    /// What its first flow has left, where the group is as of now; 0 if all that it has are done.
    #[inline]
    pub(super) fn first_left(&self) -> f64 {
        match self.first < f64::INFINITY {
            true => (self.first - self.had).max(0.0),
            false => 0.0,
        }
    }
}

impl FlowGroup {
    pub(super) fn new(now: f64) -> FlowGroup {
        FlowGroup {
            since: now,
            next: f64::INFINITY,
            ..FlowGroup::default()
        }
    }

    /// A flow comes that has so many bytes left. Gives its bundle and its target there. Flows that differ in `apart`
    /// are in different bundles.
    ///
    /// The group is as of now.
    pub(super) fn add(
        &mut self,
        flow: u32,
        path: Path,
        apart: u64,
        weight: f64,
        left: f64,
    ) -> (u32, f64) {
        let place = match self.places.get(&(path, apart)) {
            Some(place) => *place,
            None => self.bundle(path, apart, weight),
        };
        let bundle = &mut self.bundles[place as usize];
        bundle.count += 1;
        let target = bundle.had + left;
        bundle.first = bundle.first.min(target);
        let targets = &mut self.bundle_flows[place as usize].targets;
        targets.push(Target {
            bytes: target,
            flow,
        });
        for local in bundle.local.places() {
            self.links[local].weight += weight;
        }
        self.flows += 1;
        (place, target)
    }

    fn bundle(&mut self, path: Path, apart: u64, weight: f64) -> u32 {
        let mut local = [NO_LINK; PATH_MOST];
        let last = path.links().len() - 1;
        for (hop, (at, link)) in local.iter_mut().zip(path.links()).enumerate() {
            let links = &mut self.links;
            *at = *self.local.entry(*link).or_insert_with(|| {
                links.push(LocalLink {
                    link: *link,
                    place: match hop {
                        0 => PathPlace::First,
                        hop if hop == last => PathPlace::Last,
                        _ => PathPlace::Middle,
                    },
                    weight: 0.0,
                    bundles: Vec::new(),
                    used: 0.0,
                });
                links.len() as u32 - 1
            });
        }
        let bundle = Bundle {
            local: LocalPath(local),
            count: 0,
            weight,
            had: 0.0,
            rate: 0.0,
            first: f64::INFINITY,
        };
        let flows = BundleFlows {
            path,
            apart,
            targets: BinaryHeap::new(),
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.bundles[place as usize] = bundle;
                self.bundle_flows[place as usize] = flows;
                place
            }
            None => {
                self.bundles.push(bundle);
                self.bundle_flows.push(flows);
                self.bundles.len() as u32 - 1
            }
        };
        for at in bundle.local.places() {
            self.links[at].bundles.push(place);
        }
        self.places.insert((path, apart), place);
        place
    }

    /// A flow goes, to another group or since it is done; `is_here` says whether a flow is still in that bundle, with
    /// that target.
    pub(super) fn remove(
        &mut self,
        place: u32,
        target: f64,
        is_here: impl Fn(u32, u32, f64) -> bool,
    ) {
        let bundle = &mut self.bundles[place as usize];
        bundle.count -= 1;
        self.flows -= 1;
        let (weight, is_empty) = (bundle.weight, bundle.count == 0);
        for at in bundle.local.places() {
            let link = &mut self.links[at];
            link.weight -= weight;
            if is_empty {
                link.bundles.retain(|it| *it != place);
            }
            if link.bundles.is_empty() {
                // Without what rounding leaves.
                link.weight = 0.0;
            }
        }
        if is_empty {
            let flows = &mut self.bundle_flows[place as usize];
            self.places.remove(&(flows.path, flows.apart));
            flows.targets = BinaryHeap::new();
            bundle.first = f64::INFINITY;
            // It stays among those that move until rates are worked out anew, which is before time goes on.
            bundle.rate = 0.0;
            self.free.push(place);
        } else if target <= bundle.first {
            self.find_first(place, &is_here);
        }
    }

    /// Which of a bundle's flows is done first. Targets of flows that have gone are dropped.
    fn find_first(&mut self, place: u32, is_here: &impl Fn(u32, u32, f64) -> bool) {
        let targets = &mut self.bundle_flows[place as usize].targets;
        while let Some(target) = targets.peek()
            && !is_here(target.flow, place, target.bytes)
        {
            targets.pop();
        }
        let first = targets.peek().map_or(f64::INFINITY, |target| target.bytes);
        self.bundles[place as usize].first = first;
    }

    /// What a flow of a bundle with that target has left at a time.
    pub(super) fn left(&self, place: u32, target: f64, now: f64) -> f64 {
        let bundle = &self.bundles[place as usize];
        target - bundle.had - bundle.rate * (now - self.since)
    }

    /// Lets flows have what they had until now.
    pub(super) fn advance(&mut self, now: f64) {
        let seconds = now - self.since;
        if seconds > 0.0 {
            for place in &self.moving {
                let bundle = &mut self.bundles[*place as usize];
                bundle.had += bundle.rate * seconds;
            }
        }
        self.since = now;
    }

    /// Nothing moves any more.
    pub(super) fn stop(&mut self) {
        for place in self.moving.drain(..) {
            self.bundles[place as usize].rate = 0.0;
        }
        for link in &mut self.links {
            link.used = 0.0;
        }
    }

    /// A bundle's flows get so much more.
    #[inline]
    pub(super) fn speed_up(&mut self, place: u32, more: f64) {
        let bundle = &mut self.bundles[place as usize];
        if bundle.rate <= 0.0 && more > 0.0 {
            self.moving.push(place);
        }
        bundle.rate += more;
    }

    /// Notes which flows are done by now, each with when it was: before rates change, since it is known by them. They
    /// stay in the group, which is as of now, until they are taken. `is_here` says whether a flow is still in that bundle,
    /// with that target.
    pub(super) fn note_done(&mut self, is_here: impl Fn(u32, u32, f64) -> bool) {
        let at_once_s = at_once_s(self.since);
        for at in 0..self.moving.len() {
            let place = self.moving[at];
            let bundle = self.bundles[place as usize];
            let near = DONE_BYTES.max(bundle.rate * at_once_s);
            if bundle.first - bundle.had > near {
                continue;
            }
            let targets = &mut self.bundle_flows[place as usize].targets;
            while let Some(target) = targets.peek() {
                let is_stale = !is_here(target.flow, place, target.bytes);
                let over = bundle.had - target.bytes;
                if !is_stale && over < -near {
                    break;
                }
                // A flow that went and came back before anything moved stands there twice.
                let is_again = self.done.last().is_some_and(|it| it.flow == target.flow);
                if !is_stale && !is_again {
                    let ago = (over / bundle.rate).max(0.0);
                    self.done.push(DoneFlow {
                        flow: target.flow,
                        place,
                        target: target.bytes,
                        at: self.since - ago,
                    });
                }
                targets.pop();
            }
            let first = targets.peek().map_or(f64::INFINITY, |target| target.bytes);
            self.bundles[place as usize].first = first;
        }
    }

    /// When the next flow is done: sees to [`FlowGroup::next`] after rates have been set.
    pub(super) fn look_ahead(&mut self) {
        let mut soonest = f64::INFINITY;
        for place in &self.moving {
            let bundle = &self.bundles[*place as usize];
            soonest = soonest.min((bundle.first - bundle.had).max(0.0) / bundle.rate);
        }
        if !self.done.is_empty() {
            soonest = 0.0;
        }
        self.next = self.since + soonest;
    }

    /// The links of a bundle's flows.
    #[cfg(test)]
    pub(super) fn path(&self, place: usize) -> Path {
        self.bundle_flows[place].path
    }
}

#[cfg(test)]
mod tests {
    use super::super::fabric::Fabric;
    use super::*;

    #[test]
    fn a_flow_that_comes_back_is_done_once() {
        let mut group = FlowGroup::new(0.0);
        let path = Fabric::BigSwitch.path(4, 0, 1, 0);
        let is_here = |_, _, _| true;
        let (place, target) = group.add(7, path, 0, 1.0, 100.0);
        group.add(8, path, 0, 1.0, 300.0);
        group.remove(place, target, |flow, _, _| flow != 7);
        assert_eq!(group.add(7, path, 0, 1.0, 100.0), (place, target));
        // As if its first target had not been the first one, and had stayed.
        let again = Target {
            bytes: target,
            flow: 7,
        };
        group.bundle_flows[place as usize].targets.push(again);
        group.speed_up(place, 10.0);
        group.look_ahead();
        assert_eq!(group.next, 10.0);
        group.advance(10.0);
        group.note_done(is_here);
        let done: Vec<(u32, f64)> = group.done.iter().map(|it| (it.flow, it.at)).collect();
        assert_eq!(done, [(7, 10.0)]);
    }

    #[test]
    fn when_a_flow_was_done_does_not_depend_on_later_rates() {
        let mut group = FlowGroup::new(0.0);
        let path = Fabric::BigSwitch.path(4, 0, 1, 0);
        let (place, _) = group.add(7, path, 0, 1.0, 100.0);
        group.add(8, path, 0, 1.0, 300.0);
        group.speed_up(place, 10.0);
        group.advance(12.0);
        group.note_done(|_, _, _| true);
        group.stop();
        group.speed_up(place, 0.1);
        group.look_ahead();
        assert_eq!(group.next, 12.0);
        group.advance(20.0);
        group.note_done(|_, _, _| true);
        let done: Vec<(u32, f64)> = group.done.iter().map(|it| (it.flow, it.at)).collect();
        assert_eq!(done, [(7, 10.0)]);
    }
}
