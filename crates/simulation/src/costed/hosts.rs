//! Hosts and their links.

use super::{LinkCosts, Nanos};

#[derive(Clone, Copy, Default)]
struct Link {
    out_free: Nanos,
    in_free: Nanos,
    /// The same for shards that move, which do not hold up small frames.
    bulk_out_free: Nanos,
    bulk_in_free: Nanos,
}

/// One link for each host.
pub(super) struct Hosts {
    network: LinkCosts,
    links: Vec<Link>,
}

impl Hosts {
    pub(super) fn new(count: usize, network: LinkCosts) -> Hosts {
        Hosts {
            network,
            links: vec![Link::default(); count],
        }
    }

    /// When a frame that is written at `at` has come: it waits for the links at both ends.
    pub(super) fn send(&mut self, at: Nanos, from: usize, to: usize, bytes: u64) -> Nanos {
        let occupied = self.network.occupied_ns(bytes);
        let gone = at.max(self.links[from].out_free) + occupied;
        self.links[from].out_free = gone;
        let come = (gone + self.network.latency_ns).max(self.links[to].in_free + occupied);
        self.links[to].in_free = come;
        come
    }

    /// As [`Hosts::send`], for shards that move.
    pub(super) fn send_bulk(&mut self, at: Nanos, from: usize, to: usize, bytes: u64) -> Nanos {
        let occupied = self.network.occupied_ns(bytes);
        let gone = at.max(self.links[from].bulk_out_free) + occupied;
        self.links[from].bulk_out_free = gone;
        let come = (gone + self.network.latency_ns).max(self.links[to].bulk_in_free + occupied);
        self.links[to].bulk_in_free = come;
        come
    }
}
