//! Random programs on the executor's threads give, bit for bit, what the sequential interpreter gives.
//!
//! Catches what is lost, doubled, stale or out of order, in any instruction. Says nothing about speed, about
//! several workers (the simulated cluster does), nor about kernels and the builder, which both sides share.

use brambling_program::{DatasetId, Plan};
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

fn execute(random: &RandomProgram, pools: &[Pool]) -> Results {
    let program = Arc::new(random.program.clone());
    let plan = Plan::compile(program, &random.bindings()).expect("random programs are valid");
    let mut job = Job::new(plan, random.threads, options());
    pools[random.threads as usize - 1]
        .run(&job, &mut QuietCaller)
        .unwrap_or_else(|failure| panic!("{failure}\n{}", random.program.spec()));
    // A completion may still hold it, for a moment.
    let mut job = loop {
        match Arc::try_unwrap(job) {
            Ok(job) => break job,
            Err(shared) => job = shared,
        }
        std::thread::yield_now();
    };
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
    let found = execute(&random, pools);
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
