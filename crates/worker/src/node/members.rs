//! Workers that join while a job runs.
//!
//! # Why a newcomer misses nothing
//! What is said to all is said to those who are known. Whoever comes to know a worker greets it with all that it could
//! not hear: what the shards here have retired, and the loops that have ended. Outcomes of signals it asks for, as anybody
//! does. A shard that is on its way says what it has retired when it arrives. So whoever holds a shard has told everybody
//! whom it knows, and a worker to which a shard moves hears with it whom its last holder knew, and where shards are as
//! far as the holder knew: the controller that should tell it may have fallen silent.

use super::{Node, NodeOptions, body_of};
use brambling_program::{ExchangeId, ShardId, Turn};
use brambling_protocol::frame::{Body, Credit, Joined, LoopEnd};
use brambling_protocol::{Priority, WorkerId};
use std::collections::BTreeMap;

impl Node {
    /// Whether a worker, or the controller, is known here.
    pub fn knows(&self, peer: WorkerId) -> bool {
        self.peers.contains_key(&peer)
    }

    /// There is a worker: greets it, unless it is known.
    pub(super) fn on_joined(&mut self, worker: WorkerId) {
        if worker == self.options.me || self.knows(worker) || self.leavers.have_left(worker) {
            return;
        }
        self.peers.entry(worker).or_default();
        if self.leavers.leave(worker) {
            return;
        }
        self.options.peers.push(worker);
        let me = self.options.me;
        self.send(
            worker,
            Priority::FIRST,
            &Body::Joined(Joined { worker: me }),
        );
        for credit in self.retired_here() {
            self.send(worker, Priority::FIRST, &Body::Credit(credit));
        }
        for end in self.ends() {
            self.send(worker, Priority::FIRST, &Body::LoopEnd(end));
        }
    }

    /// What the shards here have retired, by exchange.
    fn retired_here(&self) -> Vec<Credit> {
        let mut retired: BTreeMap<ExchangeId, Vec<(u32, Turn)>> = BTreeMap::new();
        for shard in self.router.here() {
            for (exchange, turns) in self.retired_by(shard) {
                let one = (shard.index, turns);
                retired.entry(exchange).or_default().push(one);
            }
        }
        let credits = |(exchange, retired)| self.credits_of(exchange, retired);
        retired.into_iter().flat_map(credits).collect()
    }

    /// What a shard has retired of each exchange that leads to it, as far as was told here.
    pub(super) fn retired_by(&self, shard: ShardId) -> Vec<(ExchangeId, Turn)> {
        let exchanges = self.relations.to_group(shard.group).iter();
        let turns = |&exchange| (exchange, self.credits.retired_by(exchange, shard.index));
        exchanges
            .map(turns)
            .filter(|(_, turns)| *turns > 0)
            .collect()
    }

    fn ends(&self) -> Vec<LoopEnd> {
        let NodeOptions {
            job, generation, ..
        } = self.options;
        let end = |&outermost| LoopEnd {
            job,
            generation,
            body: body_of(self.loops[outermost as usize]).expect("a loop"),
            turns: self.turns(outermost),
        };
        self.ended.iter().map(end).collect()
    }
}
