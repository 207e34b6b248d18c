//! How many nodes would have been enough.
//!
//! This module owns both rules: the exact one, and the proportion with which the paper counts.
//! `time` calls the first, the tests of published cases both. It never prints.

use super::{Setup, SetupError};

/// Beyond it not every number of nodes is an f64.
const NODES_MAX: u64 = 1 << 53;
/// Rounding, not hardware: an ideal that is longer by this share is as long.
const ROUNDING: f64 = 1e-12;

impl Setup {
    /// The smallest number of nodes whose ideal time is at most `took_seconds`, with room for the
    /// replicas; the other inputs stay.
    pub(super) fn nodes_for(&self, took_seconds: f64) -> Result<u64, SetupError> {
        let is_enough = |nodes: u64| {
            let other = Setup { nodes, ..*self };
            other.seconds() <= took_seconds * (1.0 + ROUNDING)
        };
        // One node exchanges nothing, so it may be faster than two on a slow network.
        if self.replication == 1 && is_enough(1) {
            return Ok(1);
        }
        // From two on more nodes are never slower: (n - 1) / n² falls, as 1 / n does.
        let (mut low, mut high) = (self.replication.max(2), NODES_MAX);
        if !is_enough(high) {
            return Err(SetupError::TookTooShort { took_seconds });
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match is_enough(middle) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        Ok(low)
    }
}

/// The rule of the paper, ⌈n · ideal ÷ took⌉. It takes the job's time as inversely proportional to
/// the nodes, and so overlooks that fewer nodes exchange a smaller part of the data.
pub fn nodes_by_proportion(nodes: u64, ideal_seconds: f64, took_seconds: f64) -> u64 {
    (nodes as f64 * ideal_seconds / took_seconds).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number of nodes in turn, slowly.
    fn by_trying(setup: &Setup, took_seconds: f64) -> u64 {
        let enough = |nodes: &u64| {
            let other = Setup {
                nodes: *nodes,
                ..*setup
            };
            other.seconds() <= took_seconds * (1.0 + ROUNDING)
        };
        (setup.replication..).find(enough).expect("some number is")
    }

    #[test]
    fn the_search_finds_what_trying_finds() {
        for network in [1e6, 11e6, 110e6, 1e9] {
            for replication in [1, 2, 3] {
                let setup = Setup {
                    nodes: 10,
                    replication,
                    external: replication == 2,
                    backup: replication > 1,
                    ..Setup::sort(1e10, 100e6, network)
                };
                for took in [1.0, 7.0, 100.0, 199.9, 200.0, 1e3, 1e5] {
                    let found = setup.nodes_for(took).unwrap();
                    assert_eq!(found, by_trying(&setup, took), "{setup:?} {took}");
                }
            }
        }
    }

    #[test]
    fn its_own_ideal_time_needs_its_own_nodes() {
        for nodes in [1, 2, 7, 1460] {
            let setup = Setup {
                nodes,
                ..Setup::sort(1e12, 260e6, 110e6)
            };
            assert_eq!(setup.nodes_for(setup.seconds()), Ok(nodes));
        }
    }

    #[test]
    fn a_time_that_nobody_reaches_is_refused() {
        let setup = Setup::sort(1e15, 100e6, 100e6);
        let error = setup.nodes_for(1e-12).unwrap_err();
        assert!(error.to_string().contains("give a longer time"), "{error}");
    }
}
