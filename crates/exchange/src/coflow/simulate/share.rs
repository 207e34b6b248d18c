//! How flows of a group share what the groups before it have left of the links.
//!
//! Where coflows are served one after the other, the first ones fill most links, and most flows of later ones get
//! nothing. So a group is asked first which of its links are open, and only bundles all of whose links are
//! open are looked at. What is needed of those is copied side by side: a link's bundles are all over their group,
//! which no cache holds, and each is looked at once for each of its links.

use super::group::{Bundle, FlowGroup, LocalPath, PathPlace};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A link that has less left than this share of what it carries is full: rounding.
const FULL: f64 = 1e-9;

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

/// A bundle all of whose links are open.
#[derive(Clone, Copy, Debug)]
struct OpenBundle {
    local: LocalPath,
    /// Where it is in its group.
    place: u32,
    count: u32,
    weight: f64,
}

/// A link of the group, while rates are worked out.
#[derive(Clone, Copy, Debug)]
struct LinkLeft {
    /// What is left of it.
    free: f64,
    /// Of bundles that are open and have no rate.
    weight: f64,
    /// Those are from here on in the list of hops,
    begin: u32,
    /// and here they end.
    end: u32,
}

/// Shares links among the flows of groups.
#[derive(Debug, Default)]
pub(super) struct Sharer {
    /// What is left of a full link, at most.
    full: f64,
    levels: BinaryHeap<Level>,
    links: Vec<LinkLeft>,
    open: Vec<OpenBundle>,
    /// Which of them have a rate.
    is_settled: Vec<bool>,
    /// Of each link the open bundles that use it, link by link, the last one first.
    hops: Vec<u32>,
}

impl OpenBundle {
    #[inline]
    fn of(bundles: &[Bundle], place: u32) -> OpenBundle {
        let Bundle {
            local,
            count,
            weight,
            ..
        } = bundles[place as usize];
        OpenBundle {
            local,
            place,
            count,
            weight,
        }
    }
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
        self.list_hops();
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
            for hop in link.begin..link.end {
                let at = self.hops[hop as usize] as usize;
                if !std::mem::replace(&mut self.is_settled[at], true) {
                    self.settle(group, at, rate);
                }
            }
            self.links[level.local as usize].weight = 0.0;
        }
        self.finish(group, free);
    }

    /// An open bundle has its rate.
    fn settle(&mut self, group: &mut FlowGroup, at: usize, rate: f64) {
        let bundle = self.open[at];
        let each = rate * bundle.weight;
        let count = f64::from(bundle.count);
        let (takes, weighs) = (each * count, bundle.weight * count);
        for local in bundle.local.places() {
            let link = &mut self.links[local];
            link.free = (link.free - takes).max(0.0);
            link.weight -= weighs;
        }
        group.speed_up(bundle.place, each);
    }

    /// Each flow gets the least share of its links, counted over the group, in one pass.
    pub(super) fn one_pass(&mut self, group: &mut FlowGroup, free: &mut [f64]) {
        group.stop();
        self.begin(group, free);
        self.find_open(group);
        for bundle in &self.open {
            for local in bundle.local.places() {
                self.links[local].weight += f64::from(bundle.count);
            }
        }
        for at in 0..self.open.len() {
            let bundle = self.open[at];
            let locals = bundle.local.places();
            let shares = locals
                .map(|local| free[group.links[local].link as usize] / self.links[local].weight);
            let rate = shares.fold(f64::INFINITY, f64::min);
            self.take(&bundle, rate * f64::from(bundle.count));
            group.speed_up(bundle.place, rate);
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
        let places = sources.flat_map(|link| &link.bundles);
        self.open.clear();
        self.open
            .extend(places.map(|place| OpenBundle::of(&group.bundles, *place)));
        for bundle in &self.open {
            let left = group.bundles[bundle.place as usize].first_left();
            for local in bundle.local.places() {
                self.links[local].weight += left;
            }
        }
        let seconds = self.links.iter().map(|link| link.weight / link.free);
        let seconds = seconds.fold(0.0, f64::max);
        if seconds <= 0.0 {
            return;
        }
        for at in 0..self.open.len() {
            let bundle = self.open[at];
            let rate = group.bundles[bundle.place as usize].first_left() / seconds;
            self.take(&bundle, rate);
            group.speed_up(bundle.place, rate);
        }
        self.finish(group, free);
    }

    /// So much is taken of a bundle's links.
    #[inline]
    fn take(&mut self, bundle: &OpenBundle, takes: f64) {
        for local in bundle.local.places() {
            let link = &mut self.links[local];
            link.free = (link.free - takes).max(0.0);
        }
    }

    fn begin(&mut self, group: &FlowGroup, free: &[f64]) {
        let left = group.links.iter().map(|link| LinkLeft {
            free: free[link.link as usize],
            weight: 0.0,
            begin: 0,
            end: 0,
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
            let bundles = link.bundles.iter();
            let bundles = bundles.map(|place| OpenBundle::of(&group.bundles, *place));
            let is_open = |bundle: &OpenBundle| {
                let mut locals = bundle.local.places();
                locals.all(|local| self.links[local].free > full)
            };
            self.open.extend(bundles.filter(is_open));
        }
    }

    /// Lists open bundles by link: none of them has a rate.
    fn list_hops(&mut self) {
        for bundle in &self.open {
            let weighs = bundle.weight * f64::from(bundle.count);
            for local in bundle.local.places() {
                let link = &mut self.links[local];
                link.weight += weighs;
                link.end += 1;
            }
        }
        let mut hops = 0;
        for link in &mut self.links {
            let count = std::mem::replace(&mut link.end, hops);
            link.begin = hops;
            hops += count;
        }
        self.hops.resize(hops as usize, 0);
        for (at, bundle) in (0..self.open.len() as u32).zip(&self.open).rev() {
            for local in bundle.local.places() {
                let end = &mut self.links[local].end;
                self.hops[*end as usize] = at;
                *end += 1;
            }
        }
        self.is_settled.clear();
        self.is_settled.resize(self.open.len(), false);
    }

    fn finish(&mut self, group: &mut FlowGroup, free: &mut [f64]) {
        for (link, left) in group.links.iter_mut().zip(&self.links) {
            let free = &mut free[link.link as usize];
            link.used += *free - left.free;
            *free = left.free;
        }
    }
}
