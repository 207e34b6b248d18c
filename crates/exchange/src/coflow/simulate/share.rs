//! How flows of a group share what the groups before it have left of the links.
//!
//! Where coflows are served one after the other, the first ones fill most links, and most flows of later ones get
//! nothing. So a group is asked first which of its links are open, and only bundles all of whose links are
//! open are looked at.

use super::group::{Bundle, FlowGroup, PathPlace};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A link that has less left than this share of what it carries is full: rounding.
const FULL: f64 = 1e-9;
/// Ends a list.
const NONE: u32 = u32::MAX;

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

/// A bundle on a link, and which one is next there.
#[derive(Clone, Copy, Debug)]
struct Hop {
    bundle: u32,
    next: u32,
}

/// A link of the group, while rates are worked out.
#[derive(Clone, Copy, Debug)]
struct LinkLeft {
    /// What is left of it.
    free: f64,
    /// Of bundles that are open and have no rate.
    weight: f64,
    /// The first of them.
    first: u32,
}

/// Shares links among the flows of groups.
#[derive(Debug, Default)]
pub(super) struct Sharer {
    /// What is left of a full link, at most.
    full: f64,
    pass: u32,
    levels: BinaryHeap<Level>,
    links: Vec<LinkLeft>,
    open: Vec<u32>,
    hops: Vec<Hop>,
}

impl Sharer {
    /// For links that carry so much.
    pub(super) fn new(capacity: f64) -> Sharer {
        Sharer {
            full: capacity * FULL,
            ..Sharer::default()
        }
    }

    /// Max-min: no flow can have more unless one with as much or less has less. Rates are added to those that flows
    /// have if `adds`. `free`, by link, is what is left, before and after.
    ///
    /// The link whose flows get least is looked for, its flows get that, and what they take of other links is
    /// subtracted there, until all flows have a rate: progressive filling.
    pub(super) fn max_min(&mut self, group: &mut FlowGroup, free: &mut [f64], adds: bool) {
        if !adds {
            group.stop();
        }
        self.begin(group, free);
        self.find_open(group);
        self.list_hops(group);
        self.levels.clear();
        for (local, link) in (0..).zip(&self.links) {
            if link.weight > 0.0 {
                let rate = link.free / link.weight;
                self.levels.push(Level { rate, local });
            }
        }
        while let Some(level) = self.levels.pop() {
            let link = self.links[level.local as usize];
            if link.weight <= 0.0 {
                continue;
            }
            let rate = link.free / link.weight;
            // Flows elsewhere have taken less than their share of it meanwhile: so there is more for the rest.
            if rate > level.rate * (1.0 + 1e-12) {
                self.levels.push(Level { rate, ..level });
                continue;
            }
            let mut hop = link.first;
            while hop != NONE {
                let Hop { bundle, next } = self.hops[hop as usize];
                hop = next;
                if group.bundles[bundle as usize].pass == self.pass {
                    self.settle(group, bundle, rate);
                }
            }
            self.links[level.local as usize].weight = 0.0;
        }
        self.finish(group, free);
    }

    /// A bundle has its rate.
    fn settle(&mut self, group: &mut FlowGroup, place: u32, rate: f64) {
        let bundle = &mut group.bundles[place as usize];
        bundle.pass = self.pass - 1;
        let each = rate * bundle.weight;
        let count = f64::from(bundle.count);
        let (takes, weighs) = (each * count, bundle.weight * count);
        for local in bundle.locals() {
            let link = &mut self.links[local];
            link.free = (link.free - takes).max(0.0);
            link.weight -= weighs;
        }
        group.speed_up(place, each);
    }

    /// Each flow gets the least share of its links, counted over the group, in one pass.
    pub(super) fn one_pass(&mut self, group: &mut FlowGroup, free: &mut [f64]) {
        group.stop();
        self.begin(group, free);
        self.find_open(group);
        for place in &self.open {
            let bundle = &group.bundles[*place as usize];
            for local in bundle.locals() {
                self.links[local].weight += f64::from(bundle.count);
            }
        }
        for at in 0..self.open.len() {
            let place = self.open[at];
            let bundle = group.bundles[place as usize];
            let shares = bundle
                .locals()
                .map(|local| free[group.links[local].link as usize] / self.links[local].weight);
            let rate = shares.fold(f64::INFINITY, f64::min);
            self.take(&bundle, rate * f64::from(bundle.count));
            group.speed_up(place, rate);
        }
        self.finish(group, free);
    }

    /// All flows end at once (MADD): none gets anything if a link that one needs has nothing left. Each flow has a
    /// bundle of its own, and the group is as of now.
    pub(super) fn end_together(&mut self, group: &mut FlowGroup, free: &mut [f64]) {
        group.stop();
        self.begin(group, free);
        let mut links = self.links.iter().zip(&group.links);
        if links.any(|(left, link)| link.weight > 0.0 && left.free <= self.full) {
            return;
        }
        // A bundle is on one link at its source, and so is found once.
        let sources = group.links.iter();
        let sources = sources.filter(|link| link.place == PathPlace::First);
        self.open.clear();
        self.open.extend(sources.flat_map(|link| &link.bundles));
        for place in &self.open {
            let bundle = &group.bundles[*place as usize];
            for local in bundle.locals() {
                self.links[local].weight += bundle.first_left();
            }
        }
        let seconds = self.links.iter().map(|link| link.weight / link.free);
        let seconds = seconds.fold(0.0, f64::max);
        if seconds <= 0.0 {
            return;
        }
        for at in 0..self.open.len() {
            let place = self.open[at];
            let bundle = group.bundles[place as usize];
            let rate = bundle.first_left() / seconds;
            self.take(&bundle, rate);
            group.speed_up(place, rate);
        }
        self.finish(group, free);
    }

    /// So much is taken of a bundle's links.
    #[inline]
    fn take(&mut self, bundle: &Bundle, takes: f64) {
        for local in bundle.locals() {
            let link = &mut self.links[local];
            link.free = (link.free - takes).max(0.0);
        }
    }

    fn begin(&mut self, group: &FlowGroup, free: &[f64]) {
        let left = group.links.iter().map(|link| LinkLeft {
            free: free[link.link as usize],
            weight: 0.0,
            first: NONE,
        });
        self.links.clear();
        self.links.extend(left);
    }

    /// Finds the bundles all of whose links are open: from their sources or from their destinations, whichever have
    /// fewer that may be.
    fn find_open(&mut self, group: &FlowGroup) {
        let full = self.full;
        let open_at = |links: &[LinkLeft], place| {
            let each = group.links.iter().zip(links);
            let open = each.filter(|(link, left)| link.place == place && left.free > full);
            open.map(|(link, _)| link.bundles.len()).sum::<usize>()
        };
        let from_first = open_at(&self.links, PathPlace::First);
        let from_last = open_at(&self.links, PathPlace::Last);
        let from = match from_first <= from_last {
            true => PathPlace::First,
            false => PathPlace::Last,
        };
        self.open.clear();
        for (link, left) in group.links.iter().zip(&self.links) {
            if link.place != from || left.free <= full {
                continue;
            }
            let is_open = |place: &&u32| {
                let mut locals = group.bundles[**place as usize].locals();
                locals.all(|local| self.links[local].free > full)
            };
            self.open.extend(link.bundles.iter().filter(is_open));
        }
    }

    /// Lists open bundles by link, and marks them with the pass.
    fn list_hops(&mut self, group: &mut FlowGroup) {
        self.pass += 2;
        self.hops.clear();
        for place in &self.open {
            let bundle = &mut group.bundles[*place as usize];
            bundle.pass = self.pass;
            let weighs = bundle.weight * f64::from(bundle.count);
            for local in bundle.locals() {
                let link = &mut self.links[local];
                link.weight += weighs;
                let next = std::mem::replace(&mut link.first, self.hops.len() as u32);
                self.hops.push(Hop {
                    bundle: *place,
                    next,
                });
            }
        }
    }

    fn finish(&mut self, group: &mut FlowGroup, free: &mut [f64]) {
        for (link, left) in group.links.iter_mut().zip(&self.links) {
            let free = &mut free[link.link as usize];
            link.used += *free - left.free;
            *free = left.free;
        }
    }
}
