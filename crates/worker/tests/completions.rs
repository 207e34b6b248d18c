//! A completion wakes one task: it may be cloned, woken any number of times and late, and calls no other task of its shard.

use brambling_program::{Bindings, Context, Plan, Program, Progress};
use brambling_worker::executor::{Job, JobOptions, Pool, QuietCaller};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

fn run(program: Program) {
    let plan = Plan::compile(Arc::new(program), &Bindings::default()).unwrap();
    let pool = Pool::new(2, true).unwrap();
    let job = Job::new(plan, pool.parkers(), JobOptions::default());
    pool.run(&job, &mut QuietCaller).unwrap();
}

/// Waits where nothing else tells when something has come about: for as long as a job may take.
fn until(done: impl Fn() -> bool) {
    while !done() {
        std::thread::yield_now();
    }
}

/// Two tasks of one shard are suspended at once. The second is woken again and again before the first is: the first is called once, and once more.
#[test]
fn a_completion_calls_its_own_task_alone() {
    const WAKES: u32 = 50;
    let (first_calls, second_calls) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let first_waker: Arc<Mutex<Option<Waker>>> = Arc::default();
    let mut p = Program::new("two that wait");
    let (a, b) = (p.dataset::<u32>("a", 1), p.dataset::<u32>("b", 1));
    let (calls, kept) = (first_calls.clone(), first_waker.clone());
    p.compute("first").update(&a).run_with_context(
        move |context: &mut Context<'_>, _: &mut u32| {
            if calls.fetch_add(1, SeqCst) > 0 {
                return Progress::Done;
            }
            *kept.lock().unwrap() = Some(context.completion());
            Progress::Pending
        },
    );
    let (calls, first) = (second_calls.clone(), first_calls.clone());
    p.compute("second").update(&b).run_with_context(
        move |context: &mut Context<'_>, _: &mut u32| {
            let call = calls.fetch_add(1, SeqCst);
            if call == WAKES {
                assert_eq!(first.load(SeqCst), 1, "nobody has woken the first");
                first_waker.lock().unwrap().take().unwrap().wake();
                return Progress::Done;
            }
            let (waker, calls) = (context.completion(), calls.clone());
            std::thread::spawn(move || {
                // Any number of times, until the task has been called again, and once when that is over.
                until(|| {
                    waker.wake_by_ref();
                    calls.load(SeqCst) > call + 1
                });
                waker.wake();
            });
            Progress::Pending
        },
    );
    p.compute("both")
        .read(&a)
        .update(&b)
        .run(|_: &u32, _: &mut u32| {});
    run(p);
    assert_eq!(first_calls.load(SeqCst), 2);
    assert!(second_calls.load(SeqCst) > WAKES);
}

/// It comes while the kernel still runs: a call that then returns `Pending` does not wait for it.
#[test]
fn a_completion_that_comes_before_the_kernel_returns_counts() {
    let mut p = Program::new("already there");
    let counts = p.dataset::<u32>("counts", 3);
    p.repeat(200, |p| {
        p.compute("ask").update(&counts).run_with_context(
            |context: &mut Context<'_>, count: &mut u32| {
                *count += 1;
                context.completion().wake();
                match *count % 2 {
                    0 => Progress::Done,
                    _ => Progress::Pending,
                }
            },
        );
    });
    run(p);
}

/// Completions outlive their tasks and their job.
#[test]
fn a_late_completion_does_nothing() {
    let kept: Arc<Mutex<Vec<Waker>>> = Arc::default();
    let calls = Arc::new(AtomicU32::new(0));
    let mut p = Program::new("late");
    let counts = p.dataset::<u32>("counts", 2);
    let (wakers, called) = (kept.clone(), calls.clone());
    p.repeat(100, |p| {
        let (wakers, called) = (wakers.clone(), called.clone());
        p.compute("ask").update(&counts).run_with_context(
            move |context: &mut Context<'_>, count: &mut u32| {
                called.fetch_add(1, SeqCst);
                let mut wakers = wakers.lock().unwrap();
                wakers.iter().for_each(Waker::wake_by_ref);
                wakers.push(context.completion());
                *count += 1;
                match *count % 3 {
                    0 => Progress::Done,
                    _ => Progress::More,
                }
            },
        );
    });
    run(p);
    assert_eq!(calls.load(SeqCst), 2 * 100 * 3);
    std::thread::sleep(Duration::from_millis(1));
    let wakers = std::mem::take(&mut *kept.lock().unwrap());
    wakers.into_iter().for_each(Waker::wake);
    assert_eq!(calls.load(SeqCst), 2 * 100 * 3);
}
