//! Owns the flows that are served together: a class, or a unit. Flows of one path are a bundle, whose rate each of
//! them has, so what a flow has left is known from one counter for all of them.

use super::fabric::Path;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

/// A flow is done when it has less left than this, in bytes: rounding.
const DONE_BYTES: f64 = 1e-2;

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

/// Flows of one path.
#[derive(Debug)]
pub(super) struct Bundle {
    pub(super) path: Path,
    /// The links in the group's list.
    pub(super) local: [u32; super::fabric::PATH_MOST],
    /// How many flows.
    pub(super) count: u32,
    /// How much a flow counts beside others.
    pub(super) weight: f64,
    /// Bytes that each flow has had.
    pub(super) had: f64,
    /// Bytes a second that each flow gets.
    pub(super) rate: f64,
    /// The pass that has set the rate.
    pub(super) pass: u64,
    targets: BinaryHeap<Target>,
}

/// A link that the group uses.
#[derive(Debug)]
pub(super) struct LocalLink {
    pub(super) link: u32,
    /// The weight of its flows.
    pub(super) weight: f64,
    pub(super) bundles: Vec<u32>,
    /// What flows of the group take of it, in bytes a second.
    pub(super) used: f64,
}

/// Flows that are served together.
#[derive(Debug, Default)]
pub(super) struct FlowGroup {
    pub(super) bundles: Vec<Bundle>,
    pub(super) links: Vec<LocalLink>,
    // order: looked up only.
    places: HashMap<(Path, u64), u32>,
    // order: looked up only.
    local: HashMap<u32, u32>,
    free: Vec<u32>,
    /// How many flows.
    pub(super) flows: u32,
    /// Since when rates are as they are: bundles have had what they had then.
    pub(super) since: f64,
    /// When the next flow is done, if rates stay.
    pub(super) next: f64,
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
        bundle.targets.push(Target {
            bytes: target,
            flow,
        });
        for local in &bundle.local[..path.links().len()] {
            self.links[*local as usize].weight += weight;
        }
        self.flows += 1;
        (place, target)
    }

    fn bundle(&mut self, path: Path, apart: u64, weight: f64) -> u32 {
        let mut local = [0; super::fabric::PATH_MOST];
        for (at, link) in local.iter_mut().zip(path.links()) {
            let links = &mut self.links;
            *at = *self.local.entry(*link).or_insert_with(|| {
                links.push(LocalLink {
                    link: *link,
                    weight: 0.0,
                    bundles: Vec::new(),
                    used: 0.0,
                });
                links.len() as u32 - 1
            });
        }
        let bundle = Bundle {
            path,
            local,
            count: 0,
            weight,
            had: 0.0,
            rate: 0.0,
            pass: 0,
            targets: BinaryHeap::new(),
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.bundles[place as usize] = bundle;
                place
            }
            None => {
                self.bundles.push(bundle);
                self.bundles.len() as u32 - 1
            }
        };
        for at in &local[..path.links().len()] {
            self.links[*at as usize].bundles.push(place);
        }
        self.places.insert((path, apart), place);
        place
    }

    /// A flow goes, to another group or since it is done. Its target stays until it is looked at.
    pub(super) fn remove(&mut self, place: u32, apart: u64) {
        let bundle = &mut self.bundles[place as usize];
        bundle.count -= 1;
        self.flows -= 1;
        let (path, weight, is_empty) = (bundle.path, bundle.weight, bundle.count == 0);
        let local = bundle.local;
        for at in &local[..path.links().len()] {
            let link = &mut self.links[*at as usize];
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
            let bundle = &mut self.bundles[place as usize];
            bundle.targets.clear();
            bundle.rate = 0.0;
            self.places.remove(&(path, apart));
            self.free.push(place);
        }
    }

    /// What a flow of a bundle with that target has left at a time.
    pub(super) fn left(&self, place: u32, target: f64, now: f64) -> f64 {
        let bundle = &self.bundles[place as usize];
        target - bundle.had - bundle.rate * (now - self.since)
    }

    /// What the only flow of a bundle has left; the group is as of now.
    pub(super) fn first_left(&self, place: u32) -> f64 {
        let bundle = &self.bundles[place as usize];
        bundle
            .targets
            .peek()
            .map_or(0.0, |target| target.bytes - bundle.had)
    }

    /// Lets flows have what they had until now.
    pub(super) fn advance(&mut self, now: f64) {
        let seconds = now - self.since;
        if seconds > 0.0 {
            for bundle in &mut self.bundles {
                bundle.had += bundle.rate * seconds;
            }
        }
        self.since = now;
    }

    /// The flows that are done by now, each with when it was. They are still in the group, which is as of now;
    /// `is_here` says whether a flow is still in that bundle, with that target.
    pub(super) fn done(
        &mut self,
        is_here: impl Fn(u32, u32, f64) -> bool,
        done: &mut Vec<(u32, f64)>,
    ) {
        for (place, bundle) in (0..).zip(&mut self.bundles) {
            while let Some(target) = bundle.targets.peek() {
                let is_stale = !is_here(target.flow, place, target.bytes);
                let over = bundle.had - target.bytes;
                if !is_stale && over < -DONE_BYTES {
                    break;
                }
                if !is_stale {
                    let ago = match bundle.rate > 0.0 {
                        true => (over / bundle.rate).max(0.0),
                        false => 0.0,
                    };
                    done.push((target.flow, self.since - ago));
                }
                bundle.targets.pop();
            }
        }
    }

    /// When the next flow is done: sees to [`FlowGroup::next`] after rates have been set.
    pub(super) fn look_ahead(&mut self, is_here: impl Fn(u32, u32, f64) -> bool) {
        let mut next = f64::INFINITY;
        for (place, bundle) in (0..).zip(&mut self.bundles) {
            if bundle.rate <= 0.0 {
                continue;
            }
            while let Some(target) = bundle.targets.peek() {
                if is_here(target.flow, place, target.bytes) {
                    let left = (target.bytes - bundle.had).max(0.0);
                    next = next.min(self.since + left / bundle.rate);
                    break;
                }
                bundle.targets.pop();
            }
        }
        self.next = next;
    }
}
