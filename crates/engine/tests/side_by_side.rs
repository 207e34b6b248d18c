//! Jobs that run at once on the threads of one process.

use brambling::prelude::*;
use brambling::{Caller, Error, Interrupted, QuietCaller};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Turns until `until` says so, or nobody has patience any more; how many there were comes from `turns`.
fn turning(
    name: &str,
    turns: &Arc<AtomicU64>,
    until: impl Fn() -> bool + Send + Sync + 'static,
) -> (Program, Dataset<bool>) {
    let mut p = Program::new(name);
    let goes_on = p.value("goes on", 1, true);
    let parts = p.value("parts", 8, 1u64);
    let sum = p.dataset::<u64>("sum", 1);
    let turns = turns.clone();
    let deadline = Instant::now() + PATIENCE;
    p.repeat_while(
        "turning",
        &goes_on,
        |goes_on| *goes_on,
        |p| {
            let work = p.compute("work").update(&parts);
            work.run(|part: &mut u64| {
                // Some microseconds.
                for _ in 0..2_000 {
                    *part = std::hint::black_box(
                        part.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1),
                    );
                }
            });
            p.reduce_to(Sum, &parts, &sum);
            let look = p.compute("look").read(&sum).update(&goes_on);
            look.run(move |_: &u64, goes_on: &mut bool| {
                turns.fetch_add(1, Ordering::Relaxed);
                *goes_on = !until() && Instant::now() < deadline;
            });
        },
    );
    p.keep(&goes_on);
    (p, goes_on)
}

fn run(options: &RunOptions, program: Program) -> Result<Outcome, Error> {
    options.run_with(program, &mut QuietCaller)
}

/// Each ends when the other has begun: one after another they would not end.
#[test]
fn two_jobs_run_at_once() {
    for threads in [1, 2, 3] {
        let began = [0, 1].map(|_| Arc::new(AtomicU64::new(0)));
        std::thread::scope(|scope| {
            let jobs = [0, 1].map(|at| {
                let (own, other) = (began[at].clone(), began[1 - at].clone());
                scope.spawn(move || {
                    let both = [own.clone(), other];
                    // Who ends early must have counted far enough for the other one.
                    let until = move || both.iter().all(|it| it.load(Ordering::Relaxed) > 100);
                    let (program, goes_on) = turning("waits for another", &own, until);
                    let begun = Instant::now();
                    let mut outcome = run(&RunOptions::new().threads(threads), program).unwrap();
                    assert!(!outcome.take(&goes_on));
                    assert!(begun.elapsed() < PATIENCE, "the other one did not run");
                })
            });
            for job in jobs {
                job.join().unwrap();
            }
        });
    }
}

/// On one thread, where what one job gets the other does not. How exact that is the seats' own test says: here a busy machine may
/// stop the thread in anybody's turn, so the shares are looked at until once they are as the weights say.
#[test]
fn time_goes_by_weight() {
    let turns = [0, 1].map(|_| Arc::new(AtomicU64::new(0)));
    let ends = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        for (own, weight) in turns.iter().zip([1, 4]) {
            let ends = ends.clone();
            scope.spawn(move || {
                let (program, _) =
                    turning("takes its share", own, move || ends.load(Ordering::Relaxed));
                run(&RunOptions::new().threads(1).weight(weight), program).unwrap();
            });
        }
        let deadline = Instant::now() + PATIENCE / 2;
        let counts = || [0, 1].map(|at: usize| turns[at].load(Ordering::Relaxed));
        while counts().contains(&0) && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let mut ratios = vec![];
        while !matches!(ratios.last(), Some(2.0..8.0)) && Instant::now() < deadline {
            let before = counts();
            while counts()[0] - before[0] < 2_000 && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            let after = counts();
            ratios.push((after[1] - before[1]) as f64 / (after[0] - before[0]).max(1) as f64);
        }
        ends.store(true, Ordering::Relaxed);
        assert!(matches!(ratios.last(), Some(2.0..8.0)), "{ratios:?}");
    });
}

struct Impatient(Instant);

impl Caller for Impatient {
    fn check(&mut self) -> Result<(), Interrupted> {
        match self.0.elapsed() > Duration::from_millis(300) {
            true => Err(Interrupted),
            false => Ok(()),
        }
    }
}

/// A job that fails, and one that is interrupted, end alone.
#[test]
fn jobs_fail_alone() {
    let turns = Arc::new(AtomicU64::new(0));
    let ends = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (own, is_over) = (turns.clone(), ends.clone());
        let lasting = scope.spawn(move || {
            let (program, goes_on) =
                turning("lasts", &own, move || is_over.load(Ordering::Relaxed));
            run(&RunOptions::new().threads(2), program).map(|mut it| it.take(&goes_on))
        });
        for _ in 0..20 {
            let mut p = Program::new("fails");
            let values = p.value("values", 4, 0u64);
            let fails = p.compute("fails").update(&values);
            fails.run(|value: &mut u64| assert!(*value > 0, "on purpose"));
            let failed = run(&RunOptions::new().threads(2), p).map(drop).unwrap_err();
            assert!(failed.to_string().contains("on purpose"), "{failed}");
        }
        let (program, _) = turning("is interrupted", &Arc::default(), || false);
        let mut caller = Impatient(Instant::now());
        let interrupted = RunOptions::new().threads(2).run_with(program, &mut caller);
        assert_eq!(
            interrupted.map(drop).unwrap_err().to_string(),
            "interrupted"
        );
        let before = turns.load(Ordering::Relaxed);
        let deadline = Instant::now() + PATIENCE;
        while turns.load(Ordering::Relaxed) == before && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(
            turns.load(Ordering::Relaxed) > before,
            "the one that lasts goes on"
        );
        ends.store(true, Ordering::Relaxed);
        assert!(!lasting.join().unwrap().unwrap());
    });
}

#[test]
fn a_weight_out_of_range_is_refused() {
    for weight in [0, 1_001] {
        let mut p = Program::new("weighs");
        let _ = p.value("values", 1, 0u64);
        let refused = run(&RunOptions::new().weight(weight), p)
            .map(drop)
            .unwrap_err();
        let text = refused.to_string();
        assert!(
            text.contains("weight") && text.contains("1 to 1000"),
            "{text}"
        );
    }
}

/// Waits for what another thread signals after so long, and then stays in its kernel for so long.
fn waits_and_stays(wait: Duration, stay: Duration) -> (Program, Dataset<u64>) {
    let mut p = Program::new("waits and stays");
    let done = p.dataset::<u64>("done", 2);
    let waiting = p.compute("wait").update(&done);
    waiting.run_with_context(move |context: &mut Context<'_>, done: &mut u64| {
        *done += 1;
        if *done == 2 {
            return Progress::Done;
        }
        let completion = context.completion();
        std::thread::spawn(move || {
            std::thread::sleep(wait);
            completion.wake();
        });
        Progress::Pending
    });
    let staying = p.compute("stay").update(&done);
    staying.run(move |done: &mut u64| {
        std::thread::sleep(stay);
        *done += 1;
    });
    (p, done)
}

/// A job whose threads have rested and are in a long kernel then, its own or another job's, has not stalled.
#[test]
fn long_kernels_of_jobs_side_by_side_are_no_stalls() {
    let stall = 0.3;
    std::thread::scope(|scope| {
        // They begin with a rest, so that both are there when the first kernel begins.
        for wait in [100, 150] {
            scope.spawn(move || {
                let kernel = Duration::from_millis(900);
                let (program, done) = waits_and_stays(Duration::from_millis(wait), kernel);
                let options = RunOptions::new().threads(2).stall_seconds(stall);
                let mut outcome = run(&options, program).unwrap();
                assert_eq!(outcome.take_all(&done), [3, 3]);
            });
        }
    });
}

/// A kernel stays on one of two threads. Jobs begin, exchange and end on the other, and one that ran on both before ends as well.
#[test]
fn jobs_begin_and_end_beside_a_long_kernel() {
    let (stays, ends, over) = (Arc::default(), Arc::default(), Arc::default());
    let (is_there, may_go, is_over): (Arc<AtomicBool>, Arc<AtomicBool>, Arc<AtomicBool>) =
        (Arc::clone(&stays), Arc::clone(&ends), Arc::clone(&over));
    let mut p = Program::new("stays");
    let parts = p.value("parts", 1, 0u64);
    p.compute("stay").update(&parts).run(move |part: &mut u64| {
        stays.store(true, Ordering::SeqCst);
        wait_for(&ends);
        *part += 1;
    });
    p.keep(&parts);
    let options = RunOptions::new().threads(2);
    std::thread::scope(|scope| {
        let turns = Arc::new(AtomicU64::new(0));
        let (own, options) = (turns.clone(), &options);
        let before = scope.spawn(move || {
            let until = move || over.load(Ordering::SeqCst);
            let (program, goes_on) = turning("was there before", &own, until);
            run(options, program).unwrap().take(&goes_on)
        });
        while turns.load(Ordering::SeqCst) < 100 {
            std::thread::yield_now();
        }
        let staying = scope.spawn(move || run(options, p).unwrap().take(&parts));
        wait_for(&is_there);
        for round in 0..5 {
            let own = Arc::new(AtomicU64::new(0));
            let seen = own.clone();
            let until = move || seen.load(Ordering::SeqCst) >= 50;
            let (program, goes_on) = turning("comes later", &own, until);
            let begun = Instant::now();
            assert!(!run(options, program).unwrap().take(&goes_on));
            assert!(
                begun.elapsed() < PATIENCE,
                "job {round} waited for the kernel"
            );
        }
        is_over.store(true, Ordering::SeqCst);
        assert!(!before.join().unwrap());
        assert!(!may_go.swap(true, Ordering::SeqCst));
        assert_eq!(staying.join().unwrap(), 1);
    });
}

fn wait_for(flag: &AtomicBool) {
    let begun = Instant::now();
    while !flag.load(Ordering::SeqCst) {
        assert!(begun.elapsed() < 2 * PATIENCE, "nobody came");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A thread that has looked in vain for a while, and has a long kernel then with no other slice between, is in a kernel.
#[test]
fn a_long_kernel_after_a_rest_is_no_stall() {
    let mut p = Program::new("rests and stays");
    let done = p.dataset::<u64>("done", 2);
    let resting = p.compute("rest").update(&done);
    resting.run_with_context(|context: &mut Context<'_>, done: &mut u64| {
        *done += 1;
        if *done == 2 {
            std::thread::sleep(Duration::from_millis(900));
            return Progress::Done;
        }
        let completion = context.completion();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(150));
            completion.wake();
        });
        Progress::Pending
    });
    let options = RunOptions::new().threads(2).stall_seconds(0.3);
    let mut outcome = run(&options, p).unwrap();
    assert_eq!(outcome.take_all(&done), [2, 2]);
}

/// A job that stands still is told so while another one keeps the threads busy.
#[test]
fn a_stall_beside_a_busy_job_is_seen() {
    let turns = Arc::new(AtomicU64::new(0));
    let ends = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (own, is_over) = (turns.clone(), ends.clone());
        let busy = scope.spawn(move || {
            let (program, goes_on) =
                turning("is busy", &own, move || is_over.load(Ordering::Relaxed));
            run(&RunOptions::new().threads(2), program).map(|mut it| it.take(&goes_on))
        });
        let mut p = Program::new("stands still");
        let value = p.value("value", 2, 0u64);
        let waits = p.compute("waits").update(&value);
        waits.run_with_context(|_: &mut Context<'_>, _: &mut u64| Progress::Pending);
        let stalled = run(&RunOptions::new().threads(2).stall_seconds(0.2), p);
        ends.store(true, Ordering::Relaxed);
        let message = stalled.map(drop).unwrap_err().to_string();
        assert!(
            message.contains("stalled") && message.contains("`waits`"),
            "{message}"
        );
        assert!(
            !busy.join().unwrap().unwrap(),
            "the busy one was there until then"
        );
    });
}
