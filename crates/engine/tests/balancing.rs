//! Workers that are slow, and workers that come, in a job that runs: shards move by themselves, and the results are those of one process.
//!
//! A worker is slow because its own program sleeps longer. Kernels sleep until the test has seen what it waits for: so the job ends soon
//! then, and however busy the machine is nobody misses it.

mod support;

use brambling::QuietCaller;
use brambling::cluster::{
    BALANCE_EACH, Cluster, ControllerOptions, ControllerProcess, Rendezvous, Status, WorkerId,
    WorkerProcess,
};
use brambling::prelude::*;
use brambling::program::{Bindings, Plan};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::cluster::{self, Builds, PATIENCE, threads};

const SHARDS: u32 = 24;
/// So many that they last as long as the patience.
const TURNS: u64 = 2_000;

/// Until the test has seen what it waits for.
type Waits = Arc<AtomicBool>;

/// Heat on a ring, and its mean on one shard, whose kernel sleeps as well.
fn ring(sleep: Duration, waits: &Waits) -> (Program, Dataset<f64>) {
    let mut p = Program::new("ring");
    let ring = p.load("ring", SHARDS, Partitioner::Opaque, |index, _| {
        f64::from(index % 7) * 1.37
    });
    let beside = p.like::<f64, _>("beside", &ring);
    let total = p.dataset::<f64>("total", 1);
    let mean = p.like::<f64, _>("mean", &ring);
    p.keep(&ring);
    let rest = move |waits: &Waits| {
        if waits.load(Ordering::Relaxed) {
            std::thread::sleep(sleep);
        }
    };
    let (waits_here, waits_there) = (waits.clone(), waits.clone());
    p.repeat(TURNS, |p| {
        p.reduce_to(Sum, &ring, &total);
        let settle = p.compute("settle").update(&total);
        settle.run(move |total: &mut f64| {
            rest(&waits_there);
            *total /= f64::from(SHARDS);
        });
        p.broadcast(&total, &mean);
        let step = p.compute("step").read(&mean).update(&ring).write(&beside);
        step.run(move |mean: &f64, cell: &mut f64, beside: &mut f64| {
            rest(&waits_here);
            *cell = 0.75 * *cell + 0.25 * mean.sin();
            *beside = *cell;
        });
    });
    (p, ring)
}

fn start_controller(balance_each: Option<Duration>) -> (ControllerProcess, Rendezvous) {
    cluster::controller(ControllerOptions {
        balance_each,
        jobs_at_once: 1,
        ..cluster::options()
    })
}

fn start_worker(at: &Rendezvous, sleep_us: u64, waits: &Waits) -> WorkerProcess {
    let (sleep, waits) = (Duration::from_micros(sleep_us), waits.clone());
    let source = Builds(move |_: &[u8]| Ok(ring(sleep, &waits).0));
    cluster::worker(at, threads(1), source)
}

fn held(status: &Status, worker: &WorkerProcess) -> u32 {
    let is_it = |id: WorkerId| Some(id) == worker.name();
    let found = status.workers.iter().find(|it| is_it(it.id));
    found.map_or(0, |it| it.shards)
}

/// Runs the program on the cluster; `seen` is asked again and again until it holds, and then nothing sleeps any more. The bits of the
/// result, and whether it held.
fn run_until(
    at: &Rendezvous,
    waits: &Waits,
    mut seen: impl FnMut(&Status) -> bool,
) -> (Vec<u64>, bool) {
    let (program, line) = ring(Duration::ZERO, waits);
    let plan = Plan::compile(Arc::new(program), &Bindings::default()).unwrap();
    let (runner, other) = (Cluster::connect(at).unwrap(), Cluster::connect(at).unwrap());
    std::thread::scope(|scope| {
        let running = scope.spawn(move || runner.run(plan, b"ring", 1, &mut QuietCaller));
        let deadline = Instant::now() + PATIENCE;
        let mut has_held = false;
        while !has_held && !running.is_finished() && Instant::now() < deadline {
            has_held = seen(&other.status().unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
        waits.store(false, Ordering::Relaxed);
        let mut outcome = running.join().unwrap().unwrap();
        let bits = outcome.take_all(&line).into_iter().map(f64::to_bits);
        (bits.collect(), has_held)
    })
}

fn here() -> Vec<u64> {
    let (program, line) = ring(Duration::ZERO, &Waits::default());
    let mut outcome = RunOptions::new().threads(2).run(program).unwrap();
    let bits = outcome.take_all(&line).into_iter().map(f64::to_bits);
    bits.collect()
}

#[test]
fn a_slow_worker_sheds_shards_and_who_comes_is_filled() {
    let (_controller, at) = start_controller(Some(BALANCE_EACH));
    let waits = Waits::new(true.into());
    let slow = start_worker(&at, 4_000, &waits);
    let fast = start_worker(&at, 1_000, &waits);
    let (mut comes, mut told) = (None, Vec::new());
    let (found, has_held) = run_until(&at, &waits, |status| {
        let now = (held(status, &slow), held(status, &fast));
        if told.last() != Some(&now) {
            told.push(now);
        }
        // The ring's shards began half and half.
        let has_shed = now.0 > 0 && now.0 + 4 <= SHARDS / 2;
        if has_shed && comes.is_none() {
            comes = Some(start_worker(&at, 1_000, &waits));
        }
        comes.as_ref().is_some_and(|it| held(status, it) >= 4)
    });
    assert!(has_held, "{told:?}");
    assert_eq!(found, here());
    let status = Cluster::connect(&at).unwrap().status().unwrap();
    assert!(status.jobs.iter().all(|job| job.failure.is_none()));
}

#[test]
fn where_it_is_switched_off_everything_stays() {
    let (_controller, at) = start_controller(None);
    let waits = Waits::new(true.into());
    let slow = start_worker(&at, 4_000, &waits);
    let _fast = start_worker(&at, 1_000, &waits);
    let since = Instant::now();
    let (found, has_held) = run_until(&at, &waits, |status| {
        let now = held(status, &slow);
        assert!(now == 0 || now >= SHARDS / 2, "{now}");
        since.elapsed() > 5 * BALANCE_EACH
    });
    assert!(has_held);
    assert_eq!(found, here());
}
