//! What a job tells of its threads' time and of its work.

use brambling_memory::{Budget, Class, Floors, OutOfMemory, Spill, SpillError, Spilled};
use brambling_program::{Bindings, Context, Plan, Program, Progress, Relation, Streams, Sum, Work};
use brambling_storage::{FileError, FilePool, Request, Ticket};
use brambling_worker::executor::{
    BookedMoment, Job, JobLedger, JobOptions, JobSpill, Pool, QuietCaller, SpilledBytes, TimePart,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

fn run(program: Program, threads: u32) -> JobLedger {
    run_with(program, threads, Arc::default())
}

fn run_with(program: Program, threads: u32, spilled: Arc<SpilledBytes>) -> JobLedger {
    let pool = Pool::new(threads, false).unwrap();
    let plan = Plan::compile(Arc::new(program), &Bindings::default()).unwrap();
    let options = JobOptions {
        asked: Some(Instant::now()),
        spilled,
        ..JobOptions::default()
    };
    let job = Job::new(plan, pool.parkers(), options);
    pool.run(&job, &mut QuietCaller).unwrap();
    drop(pool);
    let job = Arc::try_unwrap(job).ok();
    job.expect("nobody else has it").ledger()
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
                1
            }));
            *value = 1;
        },
    );
    let ledger = run(p, 2);
    // Whatever else the machine does, spinning takes so long at least.
    let kernels = of(&ledger, TimePart::Kernels);
    assert!(kernels >= 39_000_000, "{kernels}");
    let [(0, stage)] = ledger.stages[..] else {
        panic!("{:?}", ledger.stages)
    };
    assert_eq!(stage.kernel_ns, kernels);
    assert!(ledger.longest_shard_ns >= 39_000_000);
    assert!(ledger.longest_shard_ns > ledger.mean_shard_ns, "{ledger:?}");
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

/// One source fills its destination's room, and waits while that one waits for something else.
#[test]
fn a_source_that_finds_no_room_waits_for_memory() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut p = Program::new("full");
    let from = p.value("from", 1, 0u64);
    let to = p.dataset::<u64>("to", 1);
    let exchange = p.streamed::<Vec<u64>>("chunks", Relation::AllToAll);
    let has_begun = Arc::new(AtomicBool::new(false));
    let begins = has_begun.clone();
    p.stream("send")
        .send(&exchange)
        .read(&from)
        .repeatable()
        .run(
            |_| 0u64,
            move |sent: &mut u64, streams: &mut Streams<'_, '_>, _: &u64| {
                // A destination that is not open yet slows nobody.
                if *sent == 1 && !has_begun.load(Ordering::SeqCst) {
                    return Progress::More;
                }
                while *sent < 16 {
                    *sent += 1;
                    // Two megabytes: the third one finds no room.
                    let has_room = streams.send(&exchange, 0, vec![*sent; 1 << 18]);
                    match (*sent, has_room) {
                        (1, _) => return Progress::More,
                        (_, true) => {}
                        (_, false) => return Progress::Pending,
                    }
                }
                Progress::Done
            },
        );
    p.stream("take").take(&exchange).update(&to).run(
        |_| (),
        move |(): &mut (), streams: &mut Streams<'_, '_>, sum: &mut u64| match streams
            .poll(&exchange)
        {
            Poll::Pending => Progress::Pending,
            Poll::Ready(None) => Progress::Done,
            Poll::Ready(Some((_, chunk))) => {
                begins.store(true, Ordering::SeqCst);
                *sum += chunk[0];
                // Nothing runs meanwhile, and the source has no room.
                let waker = streams.context().completion();
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(5));
                    waker.wake();
                });
                Progress::Pending
            }
        },
    );
    let ledger = run(p, 2);
    assert!(of(&ledger, TimePart::Memory) > 0, "{:?}", sums(&ledger));
}

/// A place in memory that takes its time.
#[derive(Debug)]
struct Slow;

#[derive(Debug)]
struct Kept(Vec<u8>);

impl Spill for Slow {
    fn put(&self, parts: &[&[u8]], _: &OutOfMemory) -> Result<Arc<dyn Spilled>, SpillError> {
        spin(Duration::from_millis(20));
        Ok(Arc::new(Kept(parts.concat())))
    }
}

impl Spilled for Kept {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self) -> Result<Vec<u8>, SpillError> {
        spin(Duration::from_millis(20));
        Ok(self.0.clone())
    }
}

/// What a task spills is no time of its kernel, and is counted for its job.
#[test]
fn spilling_is_told_apart_from_kernels() {
    let bytes = Arc::<SpilledBytes>::default();
    let to = JobSpill::new(Arc::new(Slow), bytes.clone());
    let mut p = Program::new("spills");
    let values = p.dataset::<u64>("values", 1);
    p.compute("spill")
        .update(&values)
        .run(move |value: &mut u64| {
            let refused = Budget::new(0, Floors::default()).reserve(Class::Resident, 1);
            let spilled = to.put(&[&[7; 1_000]], &refused.unwrap_err()).unwrap();
            *value = spilled.read().unwrap().len() as u64;
        });
    let ledger = run_with(p, 1, bytes);
    assert_eq!(
        (ledger.spilled_bytes, ledger.read_back_bytes),
        (1_000, 1_000)
    );
    assert!(
        of(&ledger, TimePart::Spilling) >= 39_000_000,
        "{:?}",
        sums(&ledger)
    );
}

/// Takes its time, as a slow disk does.
struct SlowRead(Duration);

impl Request for SlowRead {
    type Done = ();

    fn run(self) -> Result<(), FileError> {
        std::thread::sleep(self.0);
        Ok(())
    }

    fn name(&self) -> String {
        "reading slowly".to_owned()
    }
}

/// A file on its way is one for all jobs of a process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Each of two reads is asked for when the one before has come, so that none is under way when a thread wakes.
#[test]
fn a_task_that_waits_for_a_file_waits_for_the_disk() {
    const READ: Duration = Duration::from_millis(80);
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut p = Program::new("files");
    let sums = p.dataset::<u64>("sums", 1);
    let open = |_: &mut Context<'_>| {
        let pool = FilePool::start().expect("threads");
        (pool, None::<Ticket<()>>)
    };
    p.stream("read").update(&sums).run(
        open,
        |(pool, ticket): &mut (FilePool, Option<Ticket<()>>),
         streams: &mut Streams<'_, '_>,
         sum: &mut u64| {
            if let Some(ticket) = ticket {
                match ticket.take() {
                    None => return Progress::Pending,
                    Some(read) => read.expect("a sleep"),
                }
                *sum += 1;
            }
            if *sum == 2 {
                return Progress::Done;
            }
            let waker = streams.context().completion();
            let given = pool.give(SlowRead(READ), &waker);
            *ticket = Some(given.ok().expect("an empty queue"));
            Progress::Pending
        },
    );
    let ledger = run(p, 1);
    let (disk, exchange) = (of(&ledger, TimePart::Disk), of(&ledger, TimePart::Exchange));
    let waited = 2 * READ.as_nanos() as u64;
    assert!(
        disk > waited / 10 * 9 && exchange < waited / 10,
        "{disk} and {exchange} of {waited}"
    );
}
