//! The links that flows share, and which of them a flow uses.

use std::fmt;
use std::str::FromStr;

/// A network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fabric {
    /// Each port has a link each way, and nothing between them is ever short.
    #[default]
    BigSwitch,
    /// A fat tree of so many pods (Al-Fares and others, SIGCOMM 2008): each flow has one path, chosen by a hash
    /// (ECMP).
    FatTree(u32),
}

/// A name that no fabric has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no fabric {0:?}; give big-switch, or fattree:K with an even number of pods from 2 to 64, such as fattree:8"
)]
pub struct UnknownFabric(pub String);

/// At most so many links does a path have.
pub(super) const PATH_MOST: usize = 6;

/// The links of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Path {
    links: [u32; PATH_MOST],
    len: u8,
}

impl Path {
    fn of(links: &[u32]) -> Path {
        let mut path = Path::default();
        path.links[..links.len()].copy_from_slice(links);
        path.len = links.len() as u8;
        path
    }

    #[inline]
    pub(super) fn links(&self) -> &[u32] {
        &self.links[..usize::from(self.len)]
    }
}

impl FromStr for Fabric {
    type Err = UnknownFabric;

    fn from_str(name: &str) -> Result<Fabric, UnknownFabric> {
        let pods = match name.strip_prefix("fattree:") {
            None if name == "big-switch" => return Ok(Fabric::BigSwitch),
            None => None,
            Some(pods) => pods.parse().ok(),
        };
        let pods = pods.filter(|it| (2..=64).contains(it) && it % 2 == 0);
        let fabric = pods.map(Fabric::FatTree);
        fabric.ok_or_else(|| UnknownFabric(name.to_owned()))
    }
}

impl fmt::Display for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fabric::BigSwitch => f.write_str("big-switch"),
            Fabric::FatTree(pods) => write!(f, "fattree:{pods}"),
        }
    }
}

impl Fabric {
    /// How many hosts it has, where so many ports are asked for.
    pub fn hosts(self, ports: u32) -> u32 {
        match self {
            Fabric::BigSwitch => ports,
            Fabric::FatTree(pods) => pods * pods * pods / 4,
        }
    }

    /// How many switches it has.
    pub fn switches(self) -> u32 {
        match self {
            Fabric::BigSwitch => 1,
            Fabric::FatTree(pods) => 5 * pods * pods / 4,
        }
    }

    /// How many links, each way one.
    pub(super) fn links(self, ports: u32) -> usize {
        let hosts = self.hosts(ports) as usize;
        match self {
            Fabric::BigSwitch => 2 * hosts,
            // Between hosts and edges, edges and aggregations, aggregations and cores: as many each.
            Fabric::FatTree(_) => 6 * hosts,
        }
    }

    /// The links of a flow between two hosts, of which there are so many; `choice` picks among paths.
    pub(super) fn path(self, hosts: u32, source: u32, destination: u32, choice: u64) -> Path {
        let (up, down) = (source, hosts + destination);
        let Fabric::FatTree(pods) = self else {
            return Path::of(&[up, down]);
        };
        if source == destination {
            return Path::default();
        }
        let half = pods / 2;
        let edge = |host: u32| host / half;
        let pod = |host: u32| edge(host) / half;
        if edge(source) == edge(destination) {
            return Path::of(&[up, down]);
        }
        let aggregation = (choice % u64::from(half)) as u32;
        let climb = 2 * hosts + edge(source) * half + aggregation;
        let descend = 3 * hosts + edge(destination) * half + aggregation;
        if pod(source) == pod(destination) {
            return Path::of(&[up, climb, descend, down]);
        }
        let core = (choice / u64::from(half) % u64::from(half)) as u32;
        let between =
            |base: u32, host: u32| base * hosts + (pod(host) * half + aggregation) * half + core;
        Path::of(&[
            up,
            climb,
            between(4, source),
            between(5, destination),
            descend,
            down,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_fat_tree_has_as_many_hosts_and_switches_as_table_1_says() {
        let of = |pods| {
            (
                Fabric::FatTree(pods).hosts(0),
                Fabric::FatTree(pods).switches(),
            )
        };
        let table = [8, 16, 24, 32, 48].map(of);
        assert_eq!(
            table,
            [
                (128, 80),
                (1024, 320),
                (3456, 720),
                (8192, 1280),
                (27_648, 2880)
            ]
        );
    }

    #[test]
    fn paths_are_as_long_as_hosts_are_far_apart() {
        let tree = Fabric::FatTree(4);
        let path = |to, choice| tree.path(16, 0, to, choice);
        assert_eq!(path(0, 0).links(), &[0; 0]);
        assert_eq!(path(1, 0).links(), &[0, 17]);
        assert_eq!(path(2, 1).links(), &[0, 33, 48 + 3, 18]);
        assert_eq!(path(4, 3).links(), &[0, 33, 64 + 3, 80 + 4 + 3, 48 + 5, 20]);
        // As many paths as there are cores, and no link of one direction is also one of the other.
        let paths: BTreeSet<Vec<u32>> = (0..64).map(|it| path(15, it).links().to_vec()).collect();
        assert_eq!(paths.len(), 4);
        let all = (0..16)
            .flat_map(|from| (0..16).flat_map(move |to| (0..4).map(move |it| (from, to, it))));
        for (from, to, choice) in all {
            let path = tree.path(16, from, to, choice);
            let distinct: BTreeSet<_> = path.links().iter().collect();
            assert_eq!(distinct.len(), path.links().len());
            assert!(
                path.links()
                    .iter()
                    .all(|it| (*it as usize) < tree.links(16))
            );
        }
    }

    #[test]
    fn names_that_no_fabric_has_are_told() {
        assert_eq!("fattree:48".parse(), Ok(Fabric::FatTree(48)));
        assert_eq!("big-switch".parse(), Ok(Fabric::BigSwitch));
        for name in ["fattree", "fattree:7", "fattree:0", "fattree:66", "torus"] {
            let told = name.parse::<Fabric>().unwrap_err().to_string();
            assert!(told.starts_with(&format!(
                "there is no fabric {name:?}; give big-switch, or fattree:K"
            )));
        }
    }
}
