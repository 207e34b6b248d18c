//! A partition that is to move, and that a task which is open keeps: the worker says so after a while, and the move happens when the task is done.

mod support;

use brambling::QuietCaller;
use brambling::cluster::{Cluster, GroupId, ShardId, WorkerProcess};
use brambling::prelude::*;
use brambling::program::{Bindings, Plan};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};
use support::cluster::{Builds, PATIENCE, controller, options, threads, worker};

/// What the tasks of this process wait for, and how many have been opened.
static GATE: AtomicBool = AtomicBool::new(false);
static OPENED: AtomicU32 = AtomicU32::new(0);

/// Two partitions, each with a task that ends when the gate is open, and cannot be begun anew.
fn waits() -> (Program, Dataset<u64>) {
    let mut p = Program::new("waits");
    let x = p.load("x", 2, Partitioner::Opaque, |index, _| u64::from(index));
    p.keep(&x);
    p.stream("wait").update(&x).run(
        |_: &mut Context<'_>| OPENED.fetch_add(1, Ordering::SeqCst),
        |_: &mut u32, streams: &mut Streams<'_, '_>, x: &mut u64| {
            if GATE.load(Ordering::SeqCst) {
                *x += 10;
                return Progress::Done;
            }
            let waker = streams.context().completion();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                waker.wake();
            });
            Progress::Pending
        },
    );
    (p, x)
}

#[test]
fn a_worker_says_which_task_keeps_a_shard_that_is_to_move() {
    let (_controller, at) = controller(options());
    let workers = [(); 2].map(|()| worker(&at, threads(1), Builds(|_: &[u8]| Ok(waits().0))));
    let (runner, other) = (
        Cluster::connect(&at).unwrap(),
        Cluster::connect(&at).unwrap(),
    );
    let to = workers[1].name().unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(move || {
            let (program, x) = waits();
            let plan = Plan::compile(Arc::new(program), &Bindings::default()).unwrap();
            let mut outcome = runner.run(plan, b"", 1, &mut QuietCaller).unwrap();
            outcome.take_all(&x)
        });
        let deadline = Instant::now() + PATIENCE;
        let wait_for = |what: &str, is_so: &mut dyn FnMut() -> bool| {
            while !is_so() {
                assert!(Instant::now() < deadline, "waited for {what}");
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        wait_for("both tasks to be open", &mut || {
            OPENED.load(Ordering::SeqCst) == 2
        });
        let shard = ShardId {
            group: GroupId(0),
            index: 0,
        };
        let moving = scope.spawn(move || other.move_shard(None, shard, to, &mut QuietCaller));
        let mut news = Vec::new();
        wait_for("the worker to say it", &mut || {
            news.extend(workers.iter().flat_map(WorkerProcess::stuck_news));
            !news.is_empty()
        });
        let [text] = &news[..] else {
            panic!("{news:?}")
        };
        let says = "partition 0 is to move, and stage `wait` keeps it here at turn 0";
        assert!(text.contains(says) && text.contains("repeatable"), "{text}");
        assert!(!moving.is_finished(), "it waits for the task");
        GATE.store(true, Ordering::SeqCst);
        assert_eq!(running.join().unwrap(), [10, 11]);
        // It has moved, or the job was over first.
        let _ = moving.join().unwrap();
        let again = workers.iter().flat_map(WorkerProcess::stuck_news);
        assert_eq!(again.count(), 0, "it is said once");
    });
    assert_eq!(OPENED.load(Ordering::SeqCst), 2, "neither was begun anew");
}
