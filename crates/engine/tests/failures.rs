//! Of several failures of one job, the one that comes first in the program is told, not the one that
//! happened first.

use brambling::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

/// Long against what a failure takes to be known.
const LATER: Duration = Duration::from_millis(100);

/// What is told of a program with a partition on each of two threads, whose kernels fail at the stages and
/// in the way that `kernel` says.
fn told(
    kernel: impl Fn(&str, &Context<'_>) -> Result<(), String> + Send + Sync + 'static,
) -> String {
    let mut p = Program::new("failing");
    let values = p.dataset::<u64>("values", 2);
    let kernel = Arc::new(kernel);
    for stage in ["early", "late"] {
        let kernel = kernel.clone();
        let run = move |context: &mut Context<'_>, _: &mut u64| kernel(stage, context);
        p.compute(stage).update(&values).run_with_context(run);
    }
    let outcome = RunOptions::new().threads(2).run(p);
    outcome.expect_err("both partitions fail").to_string()
}

fn fail(stage: &str) -> Result<(), String> {
    Err(format!("a fault in {stage}"))
}

#[test]
fn the_lowest_partition_of_a_stage_is_told() {
    let both = Barrier::new(2);
    let text = told(move |stage, context| {
        both.wait();
        if context.partition() == 0 {
            std::thread::sleep(LATER);
        }
        fail(stage)
    });
    assert_eq!(
        text,
        "stage `early` failed on partition 0 at turn 0: a fault in early"
    );
}

#[test]
fn the_earliest_stage_is_told() {
    let both = Barrier::new(2);
    let text = told(move |stage, context| match (stage, context.partition()) {
        ("early", 0) => Ok(()),
        ("early", _) => {
            both.wait();
            std::thread::sleep(LATER);
            fail(stage)
        }
        _ => {
            both.wait();
            fail(stage)
        }
    });
    assert_eq!(
        text,
        "stage `early` failed on partition 1 at turn 0: a fault in early"
    );
}

#[test]
fn a_kernel_that_gives_up_because_another_failed_is_not_told() {
    let both = Barrier::new(2);
    let text = told(move |stage, context| {
        both.wait();
        if context.partition() == 0 {
            while !context.is_cancelled() {
                std::thread::yield_now();
            }
            return Err("gave up".to_owned());
        }
        fail(stage)
    });
    assert_eq!(
        text,
        "stage `early` failed on partition 1 at turn 0: a fault in early"
    );
}

#[test]
fn an_interruption_is_told_whatever_fails_meanwhile() {
    struct Impatient(Arc<AtomicBool>);
    impl brambling::Caller for Impatient {
        fn check(&mut self) -> Result<(), brambling::Interrupted> {
            self.0.store(true, Ordering::Release);
            Err(brambling::Interrupted)
        }
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let mut caller = Impatient(interrupted.clone());
    let mut p = Program::new("interrupted");
    let values = p.dataset::<u64>("values", 2);
    p.compute("early").update(&values).run(move |_: &mut u64| {
        while !interrupted.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        std::thread::sleep(LATER);
        Err::<(), _>("a fault in early")
    });
    let outcome = RunOptions::new().threads(2).run_with(p, &mut caller);
    assert_eq!(outcome.expect_err("interrupted").to_string(), "interrupted");
}
