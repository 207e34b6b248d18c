//! How long tasks took: every task of every stage, of the last job, and what there was no room for.

use brambling::prelude::*;
use brambling::{Error, TaskTimes, Timed};
use std::time::{Duration, Instant};

/// Six partitions that are filled, then bumped in each of seven turns of a loop and added up.
fn program() -> Program {
    let mut p = Program::new("counts");
    let counts = p.dataset::<u64>("counts", 6);
    let total = p.dataset::<u64>("total", 1);
    p.compute("fill")
        .write(&counts)
        .run(|count: &mut u64| *count = 5);
    p.repeat(7, |p| {
        p.compute("bump")
            .update(&counts)
            .run(|count: &mut u64| *count += 1);
        p.reduce_to(Sum, &counts, &total);
    });
    p
}

fn noted(timed: &Timed) -> usize {
    timed.stages.iter().map(|stage| stage.ns.len()).sum()
}

fn timed(times: &TaskTimes, threads: u32) -> Timed {
    let options = RunOptions::new().threads(threads).task_times(times);
    let outcome = options.run(program()).unwrap();
    let timed = times.take();
    let called = noted(&timed) as u64 + timed.left_out;
    assert_eq!(called, outcome.tally().tasks);
    timed
}

#[test]
fn every_task_of_every_stage_is_timed() {
    for threads in [1, 2, 3] {
        let timed = timed(&TaskTimes::new(), threads);
        let of = |name: &str| {
            let mut stages = timed.stages.iter();
            let stage = stages.find(|stage| stage.stage == name).expect(name);
            (stage.in_loop, stage.ns.len())
        };
        assert_eq!((of("fill"), of("bump")), ((false, 6), (true, 42)));
        assert_eq!(timed.left_out, 0);
        // The scatter and the gather of the sum.
        assert!(timed.stages[2..].iter().all(|stage| stage.in_loop));
        assert!(timed.stages.iter().all(|stage| stage.ns.is_sorted()));
    }
}

#[test]
fn tasks_beyond_the_room_are_counted() {
    let timed = timed(&TaskTimes::with_room(10), 1);
    assert_eq!(noted(&timed), 10);
    assert!(timed.left_out > 42);
}

/// A time is that of the kernel: at least what it cannot do faster, and together no more than the job's threads had.
#[test]
fn a_time_is_that_of_the_kernel() {
    let pause = Duration::from_millis(5);
    let mut p = Program::new("slow");
    let units = p.dataset::<u8>("units", 4);
    p.compute("sleep")
        .update(&units)
        .run(move |_: &mut u8| std::thread::sleep(pause));
    p.compute("sleep twice")
        .update(&units)
        .run(move |_: &mut u8| std::thread::sleep(2 * pause));
    let times = TaskTimes::new();
    let begun = Instant::now();
    RunOptions::new()
        .threads(2)
        .task_times(&times)
        .run(p)
        .unwrap();
    let took = begun.elapsed();
    let timed = times.take();
    let least = |stage: usize| timed.stages[stage].ns[0];
    assert!(least(0) >= 5_000_000 && least(1) >= 10_000_000, "{timed:?}");
    let total: u64 = timed.stages.iter().flat_map(|stage| &stage.ns).sum();
    assert!(
        u128::from(total) <= 2 * took.as_nanos(),
        "{timed:?} {took:?}"
    );
}

#[test]
fn only_the_last_job_that_ended_well_counts() {
    let times = TaskTimes::new();
    assert_eq!(times.take(), Timed::default());
    let options = RunOptions::new().threads(2).task_times(&times);
    options.run(program()).unwrap();
    options.run(program()).unwrap();
    let mut failing = Program::new("failing");
    let units = failing.dataset::<u8>("units", 1);
    failing
        .compute("panic")
        .update(&units)
        .run(|unit: &mut u8| assert_eq!(*unit, 1, "on purpose"));
    assert!(matches!(options.run(failing), Err(Error::Failure(_))));
    let timed = times.take();
    assert_eq!(
        (timed.stages[0].stage.as_str(), timed.stages[0].ns.len()),
        ("fill", 6)
    );
    assert_eq!(times.take(), Timed::default());
}

/// A loop's test and the branches within it stand in the loop; what the branches of the program have does not.
#[test]
fn stages_in_loops_are_told_from_others() {
    fn bump(p: &mut Program, name: &str, n: &Dataset<u64>) {
        p.compute(name).update(n).run(|n: &mut u64| *n += 1);
    }
    let mut p = Program::new("loops");
    let n = p.dataset::<u64>("n", 1);
    let even = |n: &u64| n.is_multiple_of(2);
    let signal = p.signal("even").read(&n).run(even);
    p.branch(
        signal,
        |p| bump(p, "then", &n),
        |p| bump(p, "otherwise", &n),
    );
    p.repeat_while(
        "few",
        &n,
        |n| *n < 4,
        |p| {
            let signal = p.signal("even in a loop").read(&n).run(even);
            let then = |p: &mut Program| bump(p, "then in a loop", &n);
            p.branch(signal, then, |p| bump(p, "otherwise in a loop", &n));
        },
    );
    bump(&mut p, "after", &n);
    let times = TaskTimes::new();
    RunOptions::new()
        .threads(1)
        .task_times(&times)
        .run(p)
        .unwrap();
    let found = times.take().stages;
    let found: Vec<_> = found
        .iter()
        .map(|stage| (stage.stage.as_str(), stage.in_loop, stage.ns.len()))
        .collect();
    let expected = [
        ("even", false, 1),
        ("then", false, 1),
        ("otherwise", false, 0),
        ("few", true, 4),
        ("even in a loop", true, 3),
        ("then in a loop", true, 1),
        ("otherwise in a loop", true, 2),
        ("after", false, 1),
    ];
    assert_eq!(found, expected);
}

/// Called until it is done, a task is still one.
#[test]
fn a_task_of_several_calls_is_counted_once() {
    let run = |calls: u64| {
        let mut p = Program::new("counts");
        let counts = p.dataset::<u64>("counts", 6);
        p.keep(&counts);
        p.repeat(7, |p| {
            p.compute("bump")
                .update(&counts)
                .run(move |count: &mut u64| {
                    *count += 1;
                    match count.is_multiple_of(calls) {
                        true => Progress::Done,
                        false => Progress::More,
                    }
                });
        });
        let times = TaskTimes::new();
        let options = RunOptions::new().threads(2).task_times(&times);
        let tasks = options.run(p).unwrap().tally().tasks;
        (noted(&times.take()) as u64, tasks)
    };
    assert_eq!(run(1), (42, 42));
    assert_eq!(run(3), (126, 42));
}
