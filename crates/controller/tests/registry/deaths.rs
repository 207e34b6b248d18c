//! What is known of workers that are gone.

use crate::callers::{A, B, CLIENT, FIRST, ended, key, register, say, status, submit, two_workers};
use brambling_controller::ShardLoss;
use brambling_controller::registry::{Order, ProcessEnd, RETURN_TIME, Registry};
use brambling_protocol::message::{
    Death, DeathKind, JobState, Load, Message, RunningTask, StuckKernel, Survives,
};
use brambling_protocol::{JobKey, PartitionMap, WorkerId};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn only(registry: &Registry) -> Death {
    let deaths = status(registry).deaths;
    assert_eq!(deaths.len(), 1, "{deaths:?}");
    deaths[0].clone()
}

fn end(kind: DeathKind, oom: Option<bool>) -> ProcessEnd {
    ProcessEnd {
        kind: Some(kind),
        oom,
        ..ended(3)
    }
}

#[test]
fn how_a_process_ended_is_told_by_who_started_it() {
    for (kind, oom, cause) in [
        (DeathKind::Signal(9), None, "it was killed by signal 9"),
        (
            DeathKind::Signal(9),
            Some(false),
            "it was killed by signal 9",
        ),
        (
            DeathKind::Signal(9),
            Some(true),
            "it was killed by signal 9, as the system does when memory runs out, and it has just done so",
        ),
        (
            DeathKind::Signal(11),
            Some(false),
            "it was killed by signal 11",
        ),
        (DeathKind::Exit(7), Some(false), "it ended with exit code 7"),
    ] {
        let mut registry = two_workers();
        registry.on_process_ended(end(kind, oom), "here", SECOND);
        let death = only(&registry);
        assert_eq!(
            (death.worker, death.pid, &death.host[..]),
            (WorkerId(2), 3, "here")
        );
        assert_eq!(
            (death.kind, death.oom, &death.cause[..]),
            (kind, oom, cause)
        );
    }
}

#[test]
fn a_death_tells_how_the_worker_last_fared() {
    let mut registry = two_workers();
    let load = Load {
        memory_bytes: 70_000,
        idle_permille: 0,
        tasks: Vec::new(),
        running: Vec::new(),
    };
    let stuck = StuckKernel {
        key: key(9),
        stage: "step".into(),
        seconds: 5,
    };
    registry.on_heartbeat(B, 2 * SECOND);
    say(&mut registry, B, Message::Load(load));
    say(&mut registry, B, Message::Stuck(vec![stuck]));
    registry.on_process_ended(end(DeathKind::Exit(1), None), "here", 3 * SECOND);
    registry.on_tick(7 * SECOND);
    let death = only(&registry);
    assert_eq!(
        (death.memory_bytes, death.stage.as_deref()),
        (70_000, Some("step"))
    );
    assert_eq!((death.silent_ms, death.ago_ms), (1_000, 4_000));
}

fn task(job: JobKey, stage: &str, partition: u32) -> RunningTask {
    RunningTask {
        key: job,
        stage: stage.into(),
        partition,
    }
}

#[test]
fn a_death_tells_what_ran_last_and_so_does_the_error_of_its_job() {
    for (running, expected) in [
        (
            vec![],
            "worker w2 is gone: it was killed by signal 9; start another",
        ),
        (
            vec![task(FIRST, "grow", 3), task(key(9), "other", 1)],
            "signal 9 (it last ran stage `grow` of partition 3); start another",
        ),
        (
            (3..9).map(|it| task(FIRST, "grow", it)).collect(),
            "(it last ran stage `grow` of partition 3, stage `grow` of partition 4, stage `grow` of partition 5, 3 more); start",
        ),
    ] {
        let mut registry = two_workers();
        say(&mut registry, CLIENT, submit(&[4]));
        let load = Load {
            memory_bytes: 0,
            idle_permille: 0,
            tasks: Vec::new(),
            running: running.clone(),
        };
        say(&mut registry, B, Message::Load(load));
        registry.on_process_ended(end(DeathKind::Signal(9), None), "here", SECOND);
        let death = only(&registry);
        let first = running.first();
        assert_eq!(death.stage, first.map(|it| it.stage.clone()));
        assert_eq!(death.partition, first.map(|it| it.partition));
        registry.take_orders();
        let loss = ShardLoss {
            worker: WorkerId(2),
            why: "worker w2 is gone".into(),
            way_out: "start another",
            held: PartitionMap::new([4]),
        };
        registry.on_loss(FIRST, loss);
        let orders = registry.take_orders();
        let why = orders.iter().find_map(|it| match it {
            Order::Cancel { why, .. } => Some(why),
            _ => None,
        });
        assert!(why.is_some_and(|it| it.contains(expected)), "{orders:?}");
    }
}

/// Its link ends first, and who started the process looks too late.
#[test]
fn what_is_seen_later_corrects_the_record() {
    let mut registry = two_workers();
    registry.on_lost(B, SECOND);
    registry.on_tick(SECOND + RETURN_TIME);
    let death = only(&registry);
    assert_eq!(
        (death.kind, &death.cause[..]),
        (DeathKind::LinkClosed, "its link was closed")
    );
    for _ in 0..2 {
        registry.on_process_ended(end(DeathKind::Exit(7), Some(false)), "here", 3 * SECOND);
        let death = only(&registry);
        assert_eq!((death.kind, death.oom), (DeathKind::Exit(7), Some(false)));
    }
    // That a fenced process ends is no news.
    let mut registry = two_workers().with_silence(SECOND);
    registry.on_heartbeat(A, SECOND);
    registry.on_tick(SECOND);
    registry.on_process_ended(end(DeathKind::Exit(3), None), "here", 3 * SECOND);
    assert_eq!(only(&registry).kind, DeathKind::FencedSilent);
}

#[test]
fn a_machine_that_does_not_answer() {
    let mut registry = two_workers();
    registry.on_cut(B, SECOND);
    registry.on_tick(SECOND + RETURN_TIME);
    let death = only(&registry);
    assert_eq!(death.kind, DeathKind::MachineCutOff);
    assert_eq!(death.cause, "its machine has acknowledged nothing for 10 s");
}

#[test]
fn a_drained_worker_is_no_death() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, Message::Drain(WorkerId(2)));
    registry.on_process_ended(end(DeathKind::Exit(0), None), "here", SECOND);
    assert_eq!(status(&registry).deaths, []);
}

#[test]
fn the_error_of_a_job_says_how_its_worker_ended() {
    for (kind, expected) in [
        (
            DeathKind::Signal(9),
            "worker w2 is gone: it was killed by signal 9; start another",
        ),
        // All that the loss says already.
        (DeathKind::LinkClosed, "worker w2 is gone; start another"),
    ] {
        let mut registry = two_workers();
        say(
            &mut registry,
            CLIENT,
            Message::Survives(Survives::default()),
        );
        say(&mut registry, CLIENT, submit(&[4]));
        registry.on_process_ended(end(kind, None), "here", SECOND);
        registry.take_orders();
        let loss = ShardLoss {
            worker: WorkerId(2),
            why: "worker w2 is gone".into(),
            way_out: "start another",
            held: PartitionMap::new([4]),
        };
        registry.on_loss(FIRST, loss);
        let job = &status(&registry).jobs[0];
        let orders = registry.take_orders();
        assert!(format!("{orders:?}").contains(expected), "{orders:?}");
        assert_eq!(job.state, JobState::Running);
    }
}

#[test]
fn the_last_twenty_are_remembered() {
    let mut registry = two_workers();
    for pid in 100..125 {
        say(&mut registry, B, register(pid, None));
        registry.on_process_ended(ended(pid), "here", SECOND);
    }
    let deaths = status(&registry).deaths;
    let pids: Vec<u32> = deaths.iter().map(|it| it.pid).collect();
    assert_eq!(pids, (105..125).collect::<Vec<u32>>());
}
