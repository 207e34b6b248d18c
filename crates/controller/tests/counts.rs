//! What a registry counts: jobs by their end, tasks once, and heartbeats that come late or not at all.

use brambling_controller::registry::{ClusterCounts, HEARTBEAT, PeerLink, RETURN_TIME, Registry};
use brambling_protocol::message::{Load, Message, Register, Submit};
use brambling_protocol::{Generation, JobId, JobKey, WorkerId};
use std::time::Duration;

const VERSION: &str = "1.2.3";
const WORKER: PeerLink = PeerLink(10);
const CLIENT: PeerLink = PeerLink(20);

fn register(registry: &mut Registry, from: PeerLink, pid: u32) {
    let register = Message::Register(Register {
        version: VERSION,
        known_as: None,
        epoch: u64::from(pid),
        pid,
        host: "here",
        threads: 1,
        memory_bytes: 1 << 30,
        listens_at: ([127, 0, 0, 1], 1).into(),
        jobs: Vec::new(),
    });
    registry.on_message(from, register).unwrap();
}

fn submit(registry: &mut Registry) {
    let submit = Message::Submit(Submit {
        version: VERSION,
        name: "a program",
        shards: vec![2],
    });
    registry.on_message(CLIENT, submit).unwrap();
}

const fn key(job: u64) -> JobKey {
    JobKey {
        job: JobId(job),
        generation: Generation(0),
    }
}

fn load(registry: &mut Registry, job: u64, tasks: u64) {
    let load = Message::Load(Load {
        memory_bytes: 1,
        idle_permille: 1_000,
        tasks: vec![(key(job), tasks)],
        running: Vec::new(),
    });
    registry.on_message(WORKER, load).unwrap();
}

fn one_worker() -> Registry {
    let mut registry = Registry::new(VERSION).with_jobs_at_once(1);
    register(&mut registry, WORKER, 1);
    registry
}

#[test]
fn a_job_ends_once_however_often_that_is_said() {
    let mut registry = one_worker();
    let ended = |registry: &Registry| {
        let counts = registry.counts();
        (counts.submitted, counts.succeeded, counts.failed)
    };
    (0..4).for_each(|_| submit(&mut registry));
    assert_eq!(ended(&registry), (4, 0, 0));
    registry.on_over(key(1), None);
    assert_eq!(ended(&registry), (4, 1, 0));
    // Its client has what it wants; and the members of the next one fail.
    let done = |registry: &mut Registry, job| registry.on_message(CLIENT, Message::Done(job));
    done(&mut registry, JobId(1)).unwrap();
    registry.on_over(key(2), Some("it fails".into()));
    done(&mut registry, JobId(2)).unwrap();
    assert_eq!(ended(&registry), (4, 1, 1));
    // Its client is done before it is over: that it is over then is no news.
    done(&mut registry, JobId(3)).unwrap();
    registry.on_over(key(3), None);
    assert_eq!(ended(&registry), (4, 1, 2));
    // The last one goes with its client, and everything comes twice.
    registry.on_lost(CLIENT, Duration::ZERO);
    registry.on_lost(CLIENT, Duration::ZERO);
    registry.on_over(key(4), Some("cancelled".into()));
    assert_eq!(ended(&registry), (4, 1, 3));
}

#[test]
fn tasks_count_once_however_often_they_are_told() {
    let mut registry = one_worker();
    submit(&mut registry);
    for (told, expected) in [(3, 3), (3, 3), (10, 10), (10, 10)] {
        load(&mut registry, 1, told);
        assert_eq!(registry.counts().tasks, expected);
    }
    submit(&mut registry);
    load(&mut registry, 2, 5);
    // A job that nobody knows has none.
    load(&mut registry, 99, 1_000);
    assert_eq!(registry.counts().tasks, 15);
}

#[test]
fn heartbeats_that_do_not_come_are_missed_and_the_next_is_late() {
    let mut registry = one_worker();
    let worker = WorkerId(1);
    let ms = Duration::from_millis;
    assert_eq!(registry.silence(worker, ms(9)), None);
    // At, counted, late, missed.
    for (at, expected) in [
        (0, (1, 0, 0)),
        (250, (2, 0, 0)),
        (550, (3, 0, 0)),
        (1_049, (4, 0, 0)),
        (1_549, (5, 1, 1)),
        (4_049, (6, 2, 10)),
    ] {
        registry.on_heartbeat(WORKER, ms(at));
        let counts = registry.counts();
        let found = (
            counts.heartbeats,
            counts.heartbeats_late,
            counts.heartbeats_missed,
        );
        assert_eq!(found, expected, "{at}");
    }
    assert_eq!(registry.silence(worker, ms(4_149)), Some(ms(100)));
    // Whoever has not registered has no heart.
    registry.on_heartbeat(CLIENT, ms(4_149));
    assert_eq!(registry.counts().heartbeats, 6);
}

#[test]
fn who_is_gone_was_lost_unless_it_was_drained() {
    let mut registry = one_worker();
    register(&mut registry, PeerLink(11), 2);
    registry.on_heartbeat(WORKER, Duration::ZERO);
    registry.on_heartbeat(PeerLink(11), Duration::ZERO);
    registry
        .on_message(CLIENT, Message::Drain(WorkerId(2)))
        .unwrap();
    let lost = |registry: &Registry| {
        let counts = registry.counts();
        (counts.workers_lost, counts.heartbeats_missed)
    };
    registry.on_lost(PeerLink(11), Duration::ZERO);
    registry.on_tick(RETURN_TIME * 4);
    assert_eq!((registry.workers(), lost(&registry)), (1, (0, 0)));
    registry.on_lost(WORKER, RETURN_TIME * 4);
    registry.on_tick(RETURN_TIME * 5);
    let periods = (RETURN_TIME * 5).as_millis() / HEARTBEAT.as_millis();
    assert_eq!(
        (registry.workers(), lost(&registry)),
        (0, (1, periods as u64 - 1))
    );
    assert_eq!(registry.silence(WorkerId(1), RETURN_TIME * 5), None);
    let expected = ClusterCounts {
        heartbeats: 2,
        heartbeats_missed: periods as u64 - 1,
        workers_lost: 1,
        ..ClusterCounts::default()
    };
    assert_eq!(registry.counts(), expected);
}
