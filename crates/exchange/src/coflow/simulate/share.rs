//! How flows of a group share what the groups before it have left of the links.

use super::group::FlowGroup;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A link whose flows would each get so much, of a weight of 1.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Level {
    rate: f64,
    local: u32,
}

impl Eq for Level {}

impl PartialOrd for Level {
    fn partial_cmp(&self, other: &Level) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The least is the greatest, so that a heap gives it first.
impl Ord for Level {
    fn cmp(&self, other: &Level) -> Ordering {
        let by_rate = other.rate.total_cmp(&self.rate);
        by_rate.then(other.local.cmp(&self.local))
    }
}

/// Shares links among the flows of groups.
#[derive(Debug, Default)]
pub(super) struct Sharer {
    pass: u64,
    levels: BinaryHeap<Level>,
    /// By link of the group: what is left, and the weight of flows without a rate.
    left: Vec<f64>,
    weights: Vec<f64>,
}

impl Sharer {
    /// Max-min: no flow can have more unless one with as much or less has less. Rates are added to those that flows
    /// have if `adds`. `free`, by link, is what is left, before and after.
    ///
    /// The link whose flows get least is looked for, its flows get that, and what they take of other links is
    /// subtracted there, until all flows have a rate: progressive filling.
    pub(super) fn max_min(&mut self, group: &mut FlowGroup, free: &mut [f64], adds: bool) {
        self.pass += 1;
        let pass = self.pass;
        self.begin(group, free, adds);
        self.levels.clear();
        for (local, (left, weight)) in (0..).zip(self.left.iter().zip(&self.weights)) {
            if *weight > 0.0 {
                let rate = left / weight;
                self.levels.push(Level { rate, local });
            }
        }
        while let Some(level) = self.levels.pop() {
            let at = level.local as usize;
            if self.weights[at] <= 0.0 {
                continue;
            }
            let rate = self.left[at] / self.weights[at];
            // Flows elsewhere have taken less than their share of it meanwhile: so there is more for the rest.
            if rate > level.rate * (1.0 + 1e-12) {
                self.levels.push(Level {
                    rate,
                    local: level.local,
                });
                continue;
            }
            let FlowGroup { bundles, links, .. } = &mut *group;
            for place in &links[at].bundles {
                let bundle = &mut bundles[*place as usize];
                if bundle.pass == pass {
                    continue;
                }
                bundle.pass = pass;
                let each = rate * bundle.weight;
                bundle.rate = if adds { bundle.rate + each } else { each };
                let count = f64::from(bundle.count);
                for local in &bundle.local[..bundle.path.links().len()] {
                    let local = *local as usize;
                    self.left[local] = (self.left[local] - each * count).max(0.0);
                    self.weights[local] -= bundle.weight * count;
                }
            }
            self.weights[at] = 0.0;
        }
        self.finish(group, free);
    }

    /// Each flow gets the least share of its links, counted over the group, in one pass.
    pub(super) fn one_pass(&mut self, group: &mut FlowGroup, free: &mut [f64]) {
        self.begin(group, free, false);
        for bundle in &mut group.bundles {
            let locals = &bundle.local[..bundle.path.links().len()];
            let shares = locals.iter().map(|it| {
                let link = &group.links[*it as usize];
                free[link.link as usize] / link.weight
            });
            bundle.rate = if bundle.count > 0 {
                shares.fold(f64::INFINITY, f64::min)
            } else {
                0.0
            };
            for local in locals {
                self.left[*local as usize] -= bundle.rate * f64::from(bundle.count);
            }
        }
        self.left.iter_mut().for_each(|left| *left = left.max(0.0));
        self.finish(group, free);
    }

    /// All flows end at once (MADD): none gets anything if a link that one needs has nothing left. `left` says what a
    /// flow of a bundle has left; each flow has a bundle of its own.
    pub(super) fn end_together(
        &mut self,
        group: &mut FlowGroup,
        free: &mut [f64],
        left: impl Fn(&FlowGroup, u32) -> f64,
    ) {
        self.begin(group, free, false);
        let mut load = vec![0.0; group.links.len()];
        let places = 0..group.bundles.len() as u32;
        let bytes: Vec<f64> = places
            .map(|place| match group.bundles[place as usize].count {
                0 => 0.0,
                _ => left(group, place).max(0.0),
            })
            .collect();
        for (bundle, bytes) in group.bundles.iter().zip(&bytes) {
            for local in &bundle.local[..bundle.path.links().len()] {
                load[*local as usize] += bytes;
            }
        }
        let seconds = load.iter().zip(&self.left).filter(|it| *it.0 > 0.0);
        let seconds = seconds.map(|(load, left)| load / left).fold(0.0, f64::max);
        for (bundle, bytes) in group.bundles.iter_mut().zip(&bytes) {
            bundle.rate = match seconds > 0.0 && seconds.is_finite() {
                true => bytes / seconds,
                false => 0.0,
            };
            for local in &bundle.local[..bundle.path.links().len()] {
                let left = &mut self.left[*local as usize];
                *left = (*left - bundle.rate).max(0.0);
            }
        }
        self.finish(group, free);
    }

    fn begin(&mut self, group: &mut FlowGroup, free: &[f64], adds: bool) {
        self.left.clear();
        self.weights.clear();
        for link in &mut group.links {
            self.left.push(free[link.link as usize]);
            self.weights.push(link.weight);
            if !adds {
                link.used = 0.0;
            }
        }
    }

    fn finish(&mut self, group: &mut FlowGroup, free: &mut [f64]) {
        for (link, left) in group.links.iter_mut().zip(&self.left) {
            let free = &mut free[link.link as usize];
            link.used += *free - left;
            *free = *left;
        }
    }
}
