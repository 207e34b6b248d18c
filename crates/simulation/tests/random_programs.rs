//! Random programs on the executor's threads give, bit for bit, what the sequential interpreter gives.
//!
//! Catches what is lost, doubled, stale or out of order, in any instruction. Says nothing about speed, about
//! several workers (the simulated cluster does), nor about kernels and the builder, which both sides share.

use brambling_program::{DatasetId, Plan, Runner, Spec, StageKind, StageSpec};
use brambling_simulation::{RandomProgram, Results, interpret, random_program, seeds};
use brambling_worker::executor::{Job, JobOptions, Pool, QuietCaller};
use std::sync::Arc;
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
    let mut job = Job::new(plan, pool.beds(), options);
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
    let random = random_program(seed);
    let expected = interpret(&random.program, &random.symbols);
    let found = results(&random, execute(&random, random.threads, options(), pools));
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
