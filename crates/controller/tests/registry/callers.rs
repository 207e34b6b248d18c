//! Who speaks with a registry of two workers, what they say, and what they are told.

use brambling_controller::registry::{Order, OwnedMessage, PeerLink, ProcessEnd, Registry};
use brambling_protocol::message::{
    JobState, Message, Register, Registered, ShardTime, ShardTimes, Status, Submit,
};
use brambling_protocol::{Generation, JobId, JobKey, WorkerId};

pub const VERSION: &str = "1.2.3";
pub const A: PeerLink = PeerLink(10);
pub const B: PeerLink = PeerLink(11);
pub const CLIENT: PeerLink = PeerLink(20);
pub const OTHER: PeerLink = PeerLink(21);

/// The first job that somebody submits.
pub const FIRST: JobKey = key(1);
/// A job that nobody has submitted.
pub const UNKNOWN: JobKey = key(77);

pub const fn key(job: u64) -> JobKey {
    JobKey {
        job: JobId(job),
        generation: Generation(0),
    }
}

pub fn register(pid: u32, known_as: Option<WorkerId>) -> Message<'static> {
    register_with(pid, known_as, vec![FIRST, UNKNOWN])
}

/// The same of a worker that has these jobs.
pub fn register_with(pid: u32, known_as: Option<WorkerId>, jobs: Vec<JobKey>) -> Message<'static> {
    Message::Register(Register {
        version: VERSION,
        known_as,
        epoch: u64::from(pid) + 1_000,
        pid,
        host: "here",
        threads: pid,
        memory_bytes: 1 << 30,
        listens_at: ([127, 0, 0, 1], pid as u16).into(),
        jobs,
    })
}

pub fn submit(shards: &[u32]) -> Message<'static> {
    Message::Submit(Submit {
        version: VERSION,
        name: "a program",
        shards: shards.to_vec(),
    })
}

pub fn say(registry: &mut Registry, from: PeerLink, message: Message<'_>) -> Vec<Order> {
    registry.on_message(from, message).unwrap();
    registry.take_orders()
}

/// Somebody has seen that a process ended, and not how.
pub fn ended(pid: u32) -> ProcessEnd {
    ProcessEnd {
        pid,
        kind: None,
        oom: None,
    }
}

/// A registry with the workers 1 (one thread) and 2 (three).
pub fn two_workers() -> Registry {
    let mut registry = Registry::new(VERSION).with_jobs_at_once(1);
    for (caller, pid, id) in [(A, 1, 1), (B, 3, 2)] {
        let worker = WorkerId(id);
        let what = OwnedMessage::Registered(Registered { worker });
        let orders = say(&mut registry, caller, register(pid, None));
        assert_eq!(told(&orders, caller)[0], &what);
    }
    registry
}

pub fn told(orders: &[Order], to: PeerLink) -> Vec<&OwnedMessage> {
    let mine = orders.iter().filter_map(|order| match order {
        Order::Tell { to: it, what } if *it == to => Some(what),
        _ => None,
    });
    mine.collect()
}

pub fn refusal(orders: &[Order], to: PeerLink) -> &str {
    match told(orders, to)[..] {
        [OwnedMessage::Refused { why }] => why,
        ref other => panic!("{other:?}"),
    }
}

pub fn status(registry: &Registry) -> Status {
    registry.status(|_, worker| worker.0 * 100)
}

pub fn state(registry: &Registry, job: u64) -> JobState {
    let jobs = status(registry).jobs;
    jobs.iter().find(|it| it.id == JobId(job)).unwrap().state
}

pub fn times(shards: &[ShardTime]) -> ShardTimes {
    let (key, shards) = (FIRST, shards.to_vec());
    ShardTimes { key, shards }
}
