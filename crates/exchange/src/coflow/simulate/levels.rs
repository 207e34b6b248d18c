//! Owns which coflows are on each link, in the order of arrival, for those that links serve one by one: how many a
//! flow has before it.

use std::collections::{BTreeMap, BTreeSet};

/// Who is on a link.
#[derive(Clone, Debug, Default)]
struct OnLink {
    /// Coflows, with how many flows of each.
    coflows: BTreeMap<u32, u32>,
    /// Of each coflow how many that are not heavy are before it, as of when links were looked at last.
    before: Vec<(u32, u64)>,
    /// Whether that is not so any more.
    is_stale: bool,
    /// Whether flows that were on it then may have other levels now.
    has_changed: bool,
}

/// Who is on each link.
#[derive(Debug, Default)]
pub(super) struct Levels {
    on: Vec<OnLink>,
    heavy: BTreeSet<u32>,
    stale: Vec<u32>,
    changed: Vec<u32>,
    has_changed: bool,
}

impl OnLink {
    /// How many coflows that are not heavy are before one.
    fn ahead_of(&self, coflow: u32, heavy: &BTreeSet<u32>) -> u64 {
        let listed = self.before.binary_search_by_key(&coflow, |it| it.0);
        if let (false, Ok(at)) = (self.is_stale, listed) {
            return self.before[at].1;
        }
        let ahead = self.coflows.range(..coflow);
        ahead.filter(|(it, _)| !heavy.contains(it)).count() as u64
    }

    fn list(&mut self, heavy: &BTreeSet<u32>) {
        self.before.clear();
        let mut ahead = 0;
        for coflow in self.coflows.keys() {
            self.before.push((*coflow, ahead));
            ahead += u64::from(!heavy.contains(coflow));
        }
        self.is_stale = false;
    }
}

impl Levels {
    pub(super) fn new(links: usize) -> Levels {
        Levels {
            on: vec![OnLink::default(); links],
            ..Levels::default()
        }
    }

    fn changes(&mut self, link: u32, levels_change: bool) {
        let on = &mut self.on[link as usize];
        if !std::mem::replace(&mut on.is_stale, true) {
            self.stale.push(link);
        }
        if levels_change && !std::mem::replace(&mut on.has_changed, true) {
            self.changed.push(link);
        }
        self.has_changed |= levels_change;
    }

    /// A flow of a coflow comes. One that comes last changes nobody else's level.
    pub(super) fn come(&mut self, coflow: u32, links: &[u32]) {
        for link in links {
            let coflows = &mut self.on[*link as usize].coflows;
            let last = coflows.last_key_value().map(|it| *it.0);
            let flows = coflows.entry(coflow).or_insert(0);
            *flows += 1;
            if *flows == 1 {
                self.changes(*link, last.is_some_and(|last| last > coflow));
            }
        }
    }

    /// A flow of a coflow goes.
    pub(super) fn go(&mut self, coflow: u32, links: &[u32]) {
        for link in links {
            let coflows = &mut self.on[*link as usize].coflows;
            let Some(flows) = coflows.get_mut(&coflow) else {
                continue;
            };
            *flows -= 1;
            if *flows == 0 {
                coflows.remove(&coflow);
                let last = coflows.last_key_value().map(|it| *it.0);
                self.changes(*link, last.is_some_and(|last| last > coflow));
            }
        }
    }

    /// A coflow is heavy from now on.
    pub(super) fn become_heavy(&mut self, coflow: u32) {
        if !self.heavy.insert(coflow) {
            return;
        }
        for link in 0..self.on.len() as u32 {
            if self.on[link as usize].coflows.contains_key(&coflow) {
                self.changes(link, true);
            }
        }
    }

    /// Whether flows may have other levels than when this was asked last. Those whose levels may be others are told apart
    /// by [`Levels::may_differ`] until [`Levels::settle`].
    pub(super) fn take_changed(&mut self) -> bool {
        for link in self.stale.drain(..) {
            self.on[link as usize].list(&self.heavy);
        }
        std::mem::take(&mut self.has_changed)
    }

    /// Whether a flow's level may have changed.
    pub(super) fn may_differ(&self, links: &[u32]) -> bool {
        links.iter().any(|it| self.on[*it as usize].has_changed)
    }

    /// All flows have their levels.
    pub(super) fn settle(&mut self) {
        for link in self.changed.drain(..) {
            self.on[link as usize].has_changed = false;
        }
    }

    /// How many coflows that are not heavy a flow has before it, on that of its links where they are most.
    pub(super) fn level(&self, coflow: u32, links: &[u32]) -> u64 {
        let on = links.iter().map(|it| &self.on[*it as usize]);
        on.map(|it| it.ahead_of(coflow, &self.heavy))
            .max()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heavy_keep_nobody_waiting() {
        let mut levels = Levels::new(3);
        for coflow in 0..3 {
            levels.come(coflow, &[0, coflow.min(2)]);
        }
        levels.take_changed();
        assert_eq!(levels.level(2, &[0, 2]), 2);
        levels.become_heavy(0);
        assert!(levels.take_changed());
        assert_eq!((levels.level(1, &[0, 1]), levels.level(2, &[0, 2])), (0, 1));
        levels.go(1, &[0, 1]);
        assert!(levels.take_changed());
        assert_eq!(levels.level(2, &[0, 2]), 0);
        levels.go(2, &[0, 2]);
        assert!(!levels.take_changed(), "nobody was behind it");
        assert!(levels.may_differ(&[0, 2]) && !levels.may_differ(&[1, 2]));
        levels.settle();
        assert!(!levels.may_differ(&[0, 2]));
    }
}
