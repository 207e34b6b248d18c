//! What a job tells of its threads' time and of its work.

use brambling_program::{Bindings, Plan, Program, Sum, Work};
use brambling_worker::executor::{
    BookedMoment, Job, JobLedger, JobOptions, Pool, QuietCaller, TimePart,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn run(program: Program, threads: u32) -> JobLedger {
    let pool = Pool::new(threads, false).unwrap();
    let plan = Plan::compile(Arc::new(program), &Bindings::default()).unwrap();
    let options = JobOptions {
        asked: Some(Instant::now()),
        ..JobOptions::default()
    };
    let job = Job::new(plan, pool.parkers(), options);
    pool.run(&job, &mut QuietCaller).unwrap();
    drop(pool);
    Arc::try_unwrap(job)
        .ok()
        .expect("nobody else has it")
        .ledger()
}

fn sums(ledger: &JobLedger) -> Vec<BookedMoment> {
    let sum = |moments: &Vec<BookedMoment>| {
        let mut sum = BookedMoment::default();
        for moment in moments {
            sum.tasks += moment.tasks;
            for (part, ns) in sum.parts.iter_mut().zip(moment.parts) {
                *part += ns;
            }
        }
        sum
    };
    ledger.threads.iter().map(|it| sum(&it.moments)).collect()
}

/// Of a part, over all threads.
fn of(ledger: &JobLedger, part: TimePart) -> u64 {
    sums(ledger).iter().map(|it| it.parts[part as usize]).sum()
}

fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn parts_sum_to_the_wall_time_and_tasks_to_the_tasks() {
    let mut p = Program::new("short tasks");
    let counts = p.dataset::<u64>("counts", 8);
    let total = p.dataset::<u64>("total", 1);
    p.repeat(2_000, |p| {
        p.compute("bump")
            .update(&counts)
            .run(|count: &mut u64| *count += 1);
    });
    p.reduce_to(Sum, &counts, &total);
    let ledger = run(p, 2);
    assert!(ledger.tasks >= 16_000, "{}", ledger.tasks);
    let threads = sums(&ledger);
    assert_eq!(threads.len(), 2);
    for thread in &threads {
        assert_eq!(thread.ns(), ledger.wall_ns);
    }
    let tasks: u64 = threads.iter().map(|it| it.tasks).sum();
    assert_eq!(tasks, ledger.tasks);
    assert!(ledger.last_task_ns > 0 && ledger.last_task_ns <= ledger.wall_ns);
    assert!(
        of(&ledger, TimePart::Scheduling) > 0,
        "short tasks are scheduled for long"
    );
}

#[test]
fn kernels_have_their_time_and_a_slow_shard_shows() {
    let mut p = Program::new("slow shard");
    let values = p.dataset::<u64>("values", 4);
    p.compute("wait").update(&values).run_with_context(
        |context: &mut brambling_program::Context<'_>, value: &mut u64| {
            spin(Duration::from_millis(if context.partition() == 3 {
                40
            } else {
                5
            }));
            *value = 1;
        },
    );
    let ledger = run(p, 2);
    let kernels = of(&ledger, TimePart::Kernels);
    let asked = 55_000_000;
    assert!((asked..asked * 2).contains(&kernels), "{kernels}");
    let [(0, stage)] = ledger.stages[..] else {
        panic!("{:?}", ledger.stages)
    };
    assert_eq!(stage.kernel_ns, kernels);
    assert!(ledger.longest_shard_ns >= 40_000_000);
    assert!(
        ledger.longest_shard_ns * 4 > 2 * ledger.shards_ns,
        "{ledger:?}"
    );
    // Whoever was done first waits for the other.
    assert!(
        of(&ledger, TimePart::Stragglers) >= 10_000_000,
        "{:?}",
        sums(&ledger)
    );
}

#[test]
fn work_is_summed_by_stage() {
    let mut p = Program::new("work");
    let values = p.dataset::<u64>("values", 3);
    p.compute("first").update(&values).run(|_: &mut u64| ());
    p.repeat(5, |p| {
        p.compute("second").update(&values).run(|value: &mut u64| {
            *value += 1;
            Work::streamed(16).and_flops(2).and_random(1, 8 * *value)
        });
    });
    let ledger = run(p, 2);
    let (_, second) = ledger.stages.iter().find(|(stage, _)| *stage == 1).unwrap();
    let expected = Work::streamed(16 * 15).and_flops(2 * 15).and_random(15, 40);
    assert_eq!(second.work, expected);
}
