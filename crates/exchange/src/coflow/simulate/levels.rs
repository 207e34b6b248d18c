//! Owns which coflows are on each link, in the order of arrival, for those that links serve one by one: how many a
//! flow has before it.

use std::collections::{BTreeMap, BTreeSet};

/// Who is on each link.
#[derive(Debug, Default)]
pub(super) struct Levels {
    /// By link, the coflows on it, with how many flows of each.
    on: Vec<BTreeMap<u32, u32>>,
    heavy: BTreeSet<u32>,
    has_changed: bool,
}

impl Levels {
    pub(super) fn new(links: usize) -> Levels {
        Levels {
            on: vec![BTreeMap::new(); links],
            ..Levels::default()
        }
    }

    /// A flow of a coflow comes. One that comes last changes nobody else's level.
    pub(super) fn come(&mut self, coflow: u32, links: &[u32]) {
        for link in links {
            let on = &mut self.on[*link as usize];
            let is_last = on.last_key_value().is_none_or(|(last, _)| *last <= coflow);
            *on.entry(coflow).or_insert(0) += 1;
            self.has_changed |= !is_last;
        }
    }

    /// A flow of a coflow goes.
    pub(super) fn go(&mut self, coflow: u32, links: &[u32]) {
        for link in links {
            let on = &mut self.on[*link as usize];
            let Some(flows) = on.get_mut(&coflow) else {
                continue;
            };
            *flows -= 1;
            if *flows == 0 {
                on.remove(&coflow);
                self.has_changed |= on.last_key_value().is_some_and(|(last, _)| *last > coflow);
            }
        }
    }

    /// A coflow is heavy from now on.
    pub(super) fn become_heavy(&mut self, coflow: u32) {
        self.has_changed |= self.heavy.insert(coflow);
    }

    /// Whether flows may have other levels than when this was asked last.
    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }

    /// How many coflows that are not heavy a flow has before it, on that of its links where they are most.
    pub(super) fn level(&self, coflow: u32, links: &[u32]) -> u64 {
        let before = |link: &u32| {
            let ahead = self.on[*link as usize].range(..coflow);
            ahead
                .filter(|(ahead, _)| !self.heavy.contains(ahead))
                .count()
        };
        links.iter().map(before).max().unwrap_or(0) as u64
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
    }
}
