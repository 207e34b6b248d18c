//! Random programs on several executors that are saved at cuts, lose members and begin again give what the interpreter gives, whatever moves meanwhile.
//!
//! Catches a snapshot of which shards stood at different cuts or that lacks something, a node that begins elsewhere than its shards, a cut that is named or
//! saved too early, a cut that outlives a move, and a snapshot that the store has not kept. Says nothing about files, nor about who notices that a worker is
//! gone.
#![allow(clippy::print_stdout)] // What was looked at: the soak counts it.

#[path = "support/generation.rs"]
mod generation;
#[path = "support/member.rs"]
mod member;
#[path = "support/recovering.rs"]
mod recovering;
#[path = "support/saver.rs"]
mod saver;
#[path = "support/store.rs"]
mod store;

use brambling_program::Plan;
use brambling_simulation::{
    RandomProgram, interpret, random_loops, random_program, random_streams, seeds,
};
use brambling_worker::executor::Pool;
use member::results;
use recovering::{Deeds, Workers};
use std::sync::Arc;
use std::time::Duration;

fn workers(patience: Duration) -> Workers {
    let pool = |threads| Pool::new(threads, true).unwrap();
    Workers {
        pools: [1, 2, 1, 3].map(pool).into(),
        patience,
    }
}

fn program(seed: u64) -> RandomProgram {
    match seed % 8 {
        0 | 1 => random_program(seed),
        2 => random_streams(seed),
        _ => random_loops(seed),
    }
}

fn check(seed: u64, workers: &Workers, deeds: &mut Deeds) {
    let random = program(seed);
    let spec = Arc::new(random.program.clone());
    let plan = Plan::compile(spec, &random.bindings()).expect("random programs are valid");
    let expected = interpret(&random.program, &random.symbols);
    let jobs = workers.run(seed, &plan, deeds);
    let found = results(&random, jobs);
    if let Some(difference) = found.difference(&expected, &random.program) {
        panic!("seed {seed}:\n{difference}\n{}", random.program.spec());
    }
}

#[test]
fn jobs_that_lose_members_give_what_the_interpreter_gives() {
    let workers = workers(Duration::from_secs(60));
    let mut deeds = Deeds::default();
    let all = seeds(300);
    let count = all.end - all.start;
    for seed in all {
        check(seed, &workers, &mut deeds);
    }
    println!("{deeds:?}");
    // What was looked at was there.
    let seen = [
        deeds.from_cuts * 6,
        deeds.from_start * 12,
        deeds.in_open_cuts * 12,
        deeds.counted * 12,
        deeds.signalled * 6,
        deeds.voided * 2,
        deeds.moves,
        deeds.to_newcomers * 100,
        deeds.joined * 12,
        deeds.spared * 50,
        deeds.blocked * 2,
        deeds.refused * 2,
        deeds.damaged * 8,
        deeds.recovered * 4,
    ];
    assert!(
        count < 200 || seen.iter().all(|it| *it > count),
        "{deeds:?}"
    );
}

/// Whoever runs tasks has the mutant: the pools' threads.
#[cfg(feature = "mutants")]
#[test]
fn mutants_of_recovery_are_caught() {
    use brambling_memory::mutants::on_every_thread;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    for name in [
        "cuts-are-named-early",
        "cuts-come-while-shards-move",
        "cuts-outlive-moves",
        "manifests-forget-their-base",
        "nodes-begin-at-the-start",
    ] {
        let _on = on_every_thread(name);
        // Some of them let a job wait for ever.
        let workers = workers(Duration::from_secs(10));
        let mut deeds = Deeds::default();
        let all = || (0..300).for_each(|seed| check(seed, &workers, &mut deeds));
        let caught = catch_unwind(AssertUnwindSafe(all)).is_err();
        assert!(caught, "nobody notices {name}");
    }
}
