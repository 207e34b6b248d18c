//! Random programs on the executor's threads give, bit for bit, what the sequential interpreter gives.
//!
//! Catches what is lost, doubled, stale or out of order, in any instruction. Says nothing about speed, about
//! several workers (the simulated cluster does), nor about kernels and the builder, which both sides share.

use brambling_program::{Bindings, DatasetId, Plan, Program, Runner, Spec, StageKind, StageSpec};
use brambling_simulation::{RandomProgram, Results, interpret, random_program, seeds};
use brambling_worker::executor::{Job, JobOptions, Pool, QuietCaller};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Enough threads for stealing, more than CPUs included: those sleep at once.
fn pools() -> Vec<Pool> {
    (1..=4)
        .map(|threads| Pool::new(threads, threads > 2).unwrap())
        .collect()
}

fn options() -> JobOptions {
    // A shared machine may stop for a while; a hang is told all the same.
    JobOptions {
        stall: Duration::from_secs(20),
        ..JobOptions::default()
    }
}

fn execute(random: &RandomProgram, threads: u32, options: JobOptions, pools: &[Pool]) -> Job {
    let program = Arc::new(random.program.clone());
    let plan = Plan::compile(program, &random.bindings()).expect("random programs are valid");
    let pool = &pools[threads as usize - 1];
    let mut job = Job::new(plan, pool.parkers(), options);
    pool.run(&job, &mut QuietCaller)
        .unwrap_or_else(|failure| panic!("{failure}\n{}", random.program.spec()));
    // A completion may still hold it, for a moment.
    loop {
        match Arc::try_unwrap(job) {
            Ok(job) => return job,
            Err(shared) => job = shared,
        }
        std::thread::yield_now();
    }
}

fn results(random: &RandomProgram, mut job: Job) -> Results {
    let mut results = Results::default();
    for (dataset, spec) in random.program.spec().datasets.iter().enumerate() {
        let id = DatasetId(dataset as u32);
        let count = job.plan().counts[job.plan().group_of_dataset[dataset].index()];
        for index in (0..count).filter(|_| spec.keep) {
            results.add(dataset, index, job.value(id, index));
        }
    }
    results
}

fn check(seed: u64, pools: &[Pool]) {
    check_one(seed, &random_program(seed), pools);
}

fn check_one(seed: u64, random: &RandomProgram, pools: &[Pool]) {
    let expected = interpret(&random.program, &random.symbols);
    let found = results(random, execute(random, random.threads, options(), pools));
    if let Some(difference) = found.difference(&expected, &random.program) {
        let (spec, threads) = (random.program.spec(), random.threads);
        panic!("seed {seed} on {threads} threads:\n{difference}\n{spec}");
    }
}

#[test]
fn ten_thousand_random_programs() {
    let pools = pools();
    for seed in seeds(10_000) {
        check(seed, &pools);
    }
}

/// Jobs that take turns on the same threads, beside one whose kernels keep a thread: shards are made, stolen and woken by whoever is there.
#[test]
fn random_programs_side_by_side() {
    let pools = pools();
    let over = AtomicBool::new(false);
    let (callers, at_once) = (seeds(3_000), 3);
    std::thread::scope(|scope| {
        let keeps_a_thread = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for threads in 2..=3 {
                    stay(&pools[threads - 1]);
                }
            }
        });
        let checks: Vec<_> = (0..at_once)
            .map(|first| {
                let seeds = callers.clone().skip(first).step_by(at_once);
                scope.spawn(|| {
                    for seed in seeds {
                        let mut random = random_program(seed);
                        random.threads = 2 + seed as u32 % 2;
                        check_one(seed, &random, &pools);
                    }
                })
            })
            .collect();
        let failed: Vec<_> = checks
            .into_iter()
            .filter_map(|it| it.join().err())
            .collect();
        over.store(true, Ordering::Relaxed);
        keeps_a_thread.join().unwrap();
        if let Some(failed) = failed.into_iter().next() {
            std::panic::resume_unwind(failed);
        }
    });
}

/// A job whose kernels take their time, one after the other.
fn stay(pool: &Pool) {
    let mut p = Program::new("stays");
    let parts = p.value("parts", 1, 0u64);
    p.repeat(20, |p| {
        p.compute("stay").update(&parts).run(|part: &mut u64| {
            std::thread::sleep(Duration::from_millis(2));
            *part += 1;
        });
    });
    p.keep(&parts);
    let plan = Plan::compile(Arc::new(p), &Bindings::default()).unwrap();
    let job = Job::new(plan, pool.parkers(), options());
    pool.run(&job, &mut QuietCaller).unwrap();
}

/// Kernels do as they are told by their data, so each is called equally often on any number of threads; and at
/// least once a partition where the program cannot pass it by.
#[test]
fn every_call_of_a_kernel_is_timed_once() {
    let pools = pools();
    let mut calls_by_caller = 0;
    for seed in seeds(400) {
        let random = random_program(seed);
        let options = || JobOptions {
            timed_calls: Some(1 << 16),
            ..options()
        };
        let calls = |threads| {
            let job = execute(&random, threads, options(), &pools);
            let times = job.kernel_times();
            assert_eq!(times.left_out, 0, "seed {seed}");
            let spec = random.program.spec();
            for (at, stage) in spec.stages.iter().enumerate() {
                let partitions = job.plan().counts[job.plan().group_of_stage[at].index()];
                let least = if stage.block == Spec::ROOT {
                    partitions
                } else {
                    0
                };
                assert!(
                    times.ns[at].len() >= least as usize,
                    "seed {seed}, {}",
                    stage.name
                );
            }
            let calls = |(stage, times): (&StageSpec, &Vec<_>)| match stage.kind {
                // Its calls follow what has come.
                StageKind::Stream(_) => 0,
                _ => times.len(),
            };
            spec.stages
                .iter()
                .zip(&times.ns)
                .map(calls)
                .collect::<Vec<_>>()
        };
        let expected = calls(1);
        for threads in 2..=4 {
            assert_eq!(calls(threads), expected, "seed {seed} on {threads} threads");
        }
        let spec = random.program.spec();
        for (stage, calls) in spec.stages.iter().zip(expected) {
            if spec.kernels[stage.kernel.index()].runner == Runner::Caller {
                calls_by_caller += calls;
            }
        }
    }
    assert!(calls_by_caller > 100, "{calls_by_caller}");
}
