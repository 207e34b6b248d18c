//! Nodes as most tests of them have them, each changed as its test needs it.

// Each test has its own selection.
#![allow(dead_code)]

#[path = "../../../simulation/src/executor.rs"]
pub mod executor;
pub mod shelf;
pub mod worker;

use brambling_exchange::CombiningOptions;
use brambling_memory::Budget;
use brambling_program::{Bindings, ExchangeId, Plan, Program, ShardId};
use brambling_protocol::frame::FAN_OUT;
use brambling_protocol::{Entry, EntryRange, Generation, JobId, PartitionMap, Version, WorkerId};
use brambling_worker::node::{Node, NodeOptions};
use std::sync::Arc;
pub use worker::Worker;

pub const JOB: JobId = JobId(1);
pub const NOW: Generation = Generation(0);
pub const ME: WorkerId = WorkerId(0);
pub const PEER: WorkerId = WorkerId(1);

/// A worker that has heard of these others: memory without end, and large frames.
pub fn options(me: WorkerId, peers: impl IntoIterator<Item = WorkerId>) -> NodeOptions {
    NodeOptions {
        me,
        peers: peers.into_iter().filter(|peer| *peer != me).collect(),
        job: JOB,
        generation: NOW,
        open_turns: 4,
        chunk_bytes: 1 << 16,
        frame_bytes: 1 << 20,
        part_bytes: 1 << 16,
        fan_out: FAN_OUT,
        combining: CombiningOptions::USUAL,
        budget: Budget::unlimited(),
        spill: None,
    }
}

/// A map of all shards of a program, of which none is anywhere.
pub fn nowhere(plan: &Plan) -> PartitionMap {
    PartitionMap::new(plan.counts.iter().copied())
}

/// A node that does not know where anything is.
pub fn node(plan: &Plan, options: NodeOptions) -> Node {
    Node::new(plan, nowhere(plan), options)
}

/// A worker that does not know where anything is.
pub fn worker(plan: &Plan, options: NodeOptions) -> Worker {
    let open_turns = options.open_turns;
    Worker::new(node(plan, options), open_turns)
}

/// News of one shard.
pub fn one(shard: ShardId, owner: WorkerId, version: Version) -> EntryRange {
    EntryRange {
        group: shard.group,
        first: shard.index,
        end: shard.index + 1,
        entry: Entry { owner, version },
    }
}

/// Three shards that count, and exchange nothing.
pub fn counting() -> Plan {
    let mut p = Program::new("count");
    let counts = p.dataset::<u64>("counts", 3);
    p.repeat(5, |p| {
        p.compute("count")
            .update(&counts)
            .run(|count: &mut u64| *count += 1);
    });
    Plan::compile(Arc::new(p), &Bindings::default()).unwrap()
}

/// A source of an exchange.
pub fn source(plan: &Plan, exchange: ExchangeId, index: u32) -> ShardId {
    let ends = plan.exchanges[exchange.index()].as_ref().unwrap();
    let group = ends.source;
    ShardId { group, index }
}

/// A destination of an exchange.
pub fn destination(plan: &Plan, exchange: ExchangeId, index: u32) -> ShardId {
    let ends = plan.exchanges[exchange.index()].as_ref().unwrap();
    let group = ends.destination;
    ShardId { group, index }
}
