//! Each cause is named where it costs time, and nowhere else.

use brambling_machine::ledger::{Ledger, StageWork, ThreadEntry, TimeParts, WorkerEntry};
use brambling_machine::report::{Cause, Report, Roofs};

use crate::made;

fn advice(ledger: Ledger, roofs: &Roofs) -> Vec<(Cause, String)> {
    let report = Report::new(ledger, roofs);
    report
        .advice
        .into_iter()
        .map(|advice| (advice.cause, advice.text))
        .collect()
}

/// One cause alone, whose sentence has these words.
fn check(ledger: Ledger, cause: Cause, words: &[&str]) {
    let found = advice(ledger, &made::roofs());
    assert_eq!(
        found.iter().map(|(cause, _)| *cause).collect::<Vec<_>>(),
        [cause],
        "{found:?}"
    );
    for word in words {
        assert!(
            found[0].1.contains(word),
            "\"{}\" lacks \"{word}\"",
            found[0].1
        );
    }
}

/// Takes a share of every thread's kernels and gives it to another part.
fn lost(ledger: &mut Ledger, share: f64, to: fn(&mut TimeParts) -> &mut f64) {
    for worker in &mut ledger.workers {
        for thread in &mut worker.threads {
            lost_by(thread, share, to);
        }
        for work in &mut worker.stages {
            work.kernel_s *= 1.0 - share;
        }
    }
}

fn lost_by(thread: &mut ThreadEntry, share: f64, to: fn(&mut TimeParts) -> &mut f64) {
    thread.moments.clear();
    let taken = thread.parts.kernels * share;
    thread.parts.kernels -= taken;
    *to(&mut thread.parts) += taken;
}

#[test]
fn a_job_that_nothing_hinders() {
    for (workers, threads) in [(1, 1), (1, 4), (2, 4), (16, 2)] {
        assert_eq!(
            advice(made::healthy(workers, threads, 400), &made::roofs()),
            [],
            "{workers} workers"
        );
        assert_eq!(
            advice(made::healthy(workers, threads, 400), &Roofs::default()),
            [],
            "{workers} workers, not probed"
        );
    }
}

#[test]
fn a_python_kernel_alone_on_a_thread_hinders_nobody() {
    let mut ledger = made::healthy(1, 1, 400);
    (
        ledger.stages[2].python,
        ledger.workers[0].stages[2].streamed_bytes,
    ) = (true, 0);
    assert_eq!(advice(ledger, &made::roofs()), []);
}

#[test]
fn a_job_without_anything() {
    assert_eq!(advice(Ledger::default(), &Roofs::default()), []);
}

#[test]
fn one_shard_of_many_rows() {
    let mut ledger = made::healthy(1, 4, 400);
    lost(&mut ledger, 0.4, |parts| &mut parts.stragglers);
    ledger.workers[0].longest_shard_s = ledger.workers[0].mean_shard_s * 3.1;
    check(
        ledger,
        Cause::SlowShard,
        &["one shard takes 3.1 × the mean", "41 % of all time"],
    );
}

#[test]
fn a_long_shard_that_nobody_waits_for() {
    let mut ledger = made::healthy(1, 4, 400);
    ledger.workers[0].longest_shard_s = ledger.workers[0].mean_shard_s * 3.1;
    assert_eq!(advice(ledger, &made::roofs()), []);
}

/// A worker whose kernels and shards take so many times as long.
fn slower(worker: &mut WorkerEntry, times: f64) {
    worker
        .stages
        .iter_mut()
        .for_each(|work| work.kernel_s *= times);
    worker.mean_shard_s *= times;
    worker.longest_shard_s *= times;
}

/// Shards alike on all workers, and much waiting.
fn even(workers: usize, shards: u32) -> Ledger {
    let mut ledger = made::healthy(workers, 2, 400);
    lost(&mut ledger, 0.3, |parts| &mut parts.exchange);
    let stages = ledger.workers[0].stages.clone();
    for worker in &mut ledger.workers {
        (worker.shards, worker.mean_shard_s, worker.longest_shard_s) = (shards, 0.2, 0.2);
        worker.stages.clone_from(&stages);
    }
    ledger
}

#[test]
fn one_slow_worker_of_three() {
    for shards in [1, 4] {
        let mut ledger = even(3, shards);
        slower(&mut ledger.workers[2], 2.5);
        // Long enough to be named as a shard, were the worker not slow.
        (
            ledger.workers[2].mean_shard_s,
            ledger.workers[2].longest_shard_s,
        ) = (0.9, 0.9);
        ledger.workers[2].host = "old".into();
        check(
            ledger,
            Cause::SlowWorker,
            &["worker w3 on old runs at 40 % of the others' speed"],
        );
    }
}

#[test]
fn one_slow_worker_whose_kernels_nobody_counts() {
    let mut ledger = even(2, 4);
    ledger
        .workers
        .iter_mut()
        .flat_map(|worker| &mut worker.stages)
        .for_each(|work| work.streamed_bytes = 0);
    slower(&mut ledger.workers[1], 2.5);
    check(
        ledger,
        Cause::SlowWorker,
        &["worker w2 runs at 40 % of the others' speed"],
    );
}

#[test]
fn a_slow_worker_that_nobody_waits_for() {
    let mut ledger = made::healthy(2, 2, 400);
    slower(&mut ledger.workers[1], 2.5);
    assert_eq!(advice(ledger, &made::roofs()), []);
}

#[test]
fn a_worker_with_one_long_shard_is_no_slow_worker() {
    for counted in [true, false] {
        let mut ledger = even(2, 4);
        for worker in ledger.workers.iter_mut().filter(|_| !counted) {
            worker
                .stages
                .iter_mut()
                .for_each(|work| work.streamed_bytes = 0);
        }
        (
            ledger.workers[1].mean_shard_s,
            ledger.workers[1].longest_shard_s,
        ) = (0.4, 1.0);
        check(
            ledger,
            Cause::SlowShard,
            &["one shard of worker w2 takes 2.5 × the mean"],
        );
    }
}

#[test]
fn a_worker_whose_only_shard_has_more_rows() {
    let mut ledger = even(3, 1);
    slower(&mut ledger.workers[1], 4.0);
    ledger.workers[1]
        .stages
        .iter_mut()
        .for_each(|work| work.streamed_bytes *= 4);
    check(
        ledger,
        Cause::SlowShard,
        &["one shard of worker w2 takes 2.0 × the mean"],
    );
}

#[test]
fn many_shards_on_two_cores() {
    let mut ledger = made::healthy(1, 2, 400);
    lost(&mut ledger, 0.09, |parts| &mut parts.scheduling);
    ledger.workers[0].shards = 64;
    check(
        ledger,
        Cause::TinyShards,
        &["64 shards on 2 cores spend", "in scheduling: 16 would do"],
    );
}

#[test]
fn few_shards_with_tasks_of_microseconds() {
    let mut ledger = made::healthy(1, 2, 400);
    lost(&mut ledger, 0.09, |parts| &mut parts.scheduling);
    ledger.workers[0].tasks = 1_000_000;
    check(ledger, Cause::ShortTasks, &["a task takes 3.5 µs"]);
}

#[test]
fn threads_that_wait_for_the_interpreter() {
    let mut ledger = made::healthy(1, 4, 400);
    ledger.stages[2].python = true;
    lost(&mut ledger, 0.66, |parts| &mut parts.interpreter);
    check(
        ledger,
        Cause::Interpreter,
        &[
            "the interpreter was waited for 61 % of the time",
            "stage \"assign\" with numba",
        ],
    );
}

#[test]
fn python_on_the_calling_thread_while_the_pool_waits() {
    let mut ledger = made::healthy(1, 2, 400);
    ledger.stages[2].python = true;
    lost(&mut ledger, 0.9, |parts| &mut parts.exchange);
    let worker = &mut ledger.workers[0];
    let parts = TimeParts {
        kernels: 1.9,
        scheduling: 0.2,
        ..TimeParts::default()
    };
    worker.threads.push(ThreadEntry {
        name: "caller".into(),
        wall_s: 2.1,
        parts,
        moments: Vec::new(),
    });
    worker.stages[2].kernel_s += 1.9;
    check(
        ledger,
        Cause::Interpreter,
        &[
            "run one at a time",
            "for 91 % of theirs",
            "stage \"assign\"",
        ],
    );
}

#[test]
fn a_caller_that_is_busy_with_other_kernels_than_python() {
    let mut ledger = made::healthy(1, 2, 400);
    ledger.stages[3].python = true;
    lost(&mut ledger, 0.9, |parts| &mut parts.exchange);
    let worker = &mut ledger.workers[0];
    let parts = TimeParts {
        kernels: 1.9,
        scheduling: 0.2,
        ..TimeParts::default()
    };
    worker.threads.push(ThreadEntry {
        name: "caller".into(),
        wall_s: 2.1,
        parts,
        moments: Vec::new(),
    });
    worker.stages[2].kernel_s += 1.9;
    assert_eq!(advice(ledger, &made::roofs()), []);
}

#[test]
fn a_budget_that_makes_pieces_spill() {
    let mut ledger = made::healthy(2, 2, 400);
    for thread in &mut ledger.workers[1].threads {
        lost_by(thread, 0.2, |parts| &mut parts.spilling);
    }
    let worker = &mut ledger.workers[1];
    (worker.spilled_bytes, worker.budget_bytes, worker.peak_bytes) =
        (2_100_000_000, 1 << 30, 1 << 30);
    check(
        ledger,
        Cause::Memory,
        &[
            "18 % of worker w2's time went into spilling 2.1 GB",
            "budget of 1.0 GB",
            "memory = \"3GB\" would do (BRAMBLING_MEMORY=3GB)",
        ],
    );
}

#[test]
fn a_budget_that_shards_wait_for() {
    let mut ledger = made::healthy(1, 4, 400);
    lost(&mut ledger, 0.2, |parts| &mut parts.memory);
    check(
        ledger,
        Cause::Memory,
        &[
            "18 % of the threads' time went into waiting for memory",
            "memory = \"16GB\" is the next to try",
        ],
    );
}

#[test]
fn a_budget_of_which_much_was_spilled_fast() {
    let mut ledger = made::healthy(2, 4, 400);
    ledger.workers[1].budget_bytes = 1_000_000_000;
    ledger.workers[1].spilled_bytes = 240_000_000;
    assert_eq!(advice(ledger.clone(), &made::roofs()), []);
    ledger.workers[1].spilled_bytes = 260_000_000;
    check(
        ledger,
        Cause::Memory,
        &["260 MB were spilled by worker w2: its memory budget of 954 MB is too small"],
    );
}

#[test]
fn a_disk_that_is_waited_for() {
    let mut ledger = made::healthy(1, 4, 400);
    lost(&mut ledger, 0.3, |parts| &mut parts.disk);
    ledger.workers[0].disk_read_bytes = 350_000_000;
    check(
        ledger,
        Cause::Disk,
        &["350 MB were read", "520 MB/s at most"],
    );
}

#[test]
fn one_slow_disk_of_three() {
    let mut ledger = made::healthy(3, 2, 400);
    lost(&mut ledger, 0.2, |parts| &mut parts.disk);
    for worker in &mut ledger.workers {
        worker.disk_read_bytes = 400_000_000;
    }
    ledger.workers[1].disk_read_bytes = 160_000_000;
    check(
        ledger,
        Cause::Disk,
        &["worker w2 reads and writes its disk at 40 % of the others' speed"],
    );
}

#[test]
fn a_network_that_is_full() {
    let mut ledger = made::healthy(2, 4, 400);
    lost(&mut ledger, 0.5, |parts| &mut parts.exchange);
    for worker in &mut ledger.workers {
        (worker.sent_bytes, worker.received_bytes) = (1_100_000_000, 1_100_000_000);
    }
    check(
        ledger,
        Cause::Network,
        &["2.2 GB at 1.1 GB/s take 1.0 s", "the network bounds this"],
    );
}

#[test]
fn pieces_that_wait_for_something_else_than_the_network() {
    let mut ledger = made::healthy(2, 4, 400);
    lost(&mut ledger, 0.5, |parts| &mut parts.exchange);
    ledger.workers.iter_mut().for_each(|worker| {
        worker
            .stages
            .iter_mut()
            .for_each(|work| *work = StageWork::default())
    });
    assert_eq!(advice(ledger, &made::roofs()), []);
}
