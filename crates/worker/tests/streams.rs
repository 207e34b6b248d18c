//! Streaming stages: what they keep is theirs until they are done, chunks come in one order, and nobody waits for ever.
//!
//! The oracle is arithmetic on what was sent. Says nothing about moves, which the members of a cluster do.

use brambling_memory::{Budget, Floors};
use brambling_program::{
    Bindings, Context, Dataset, Exchange, Partitioner, Payload, Plan, Program, Progress, Relation,
    Streams,
};
use brambling_storage::{FileError, FilePool, FileRead, NamedFile, Request, Ticket};
use brambling_worker::executor::{Failure, Job, JobOptions, Pool, QuietCaller};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

/// Far more than any job takes, also on a machine that is busy with others.
const PATIENCE: Duration = Duration::from_secs(120);

fn run_on(threads: u32, program: Program, options: JobOptions) -> Result<Job, Failure> {
    let plan = Plan::compile(Arc::new(program), &Bindings::default()).unwrap();
    let pool = Pool::new(threads, true).unwrap();
    let mut job = Job::new(plan, pool.parkers(), options);
    pool.run(&job, &mut QuietCaller)?;
    drop(pool);
    // A completion that comes late may still have it.
    loop {
        match Arc::try_unwrap(job) {
            Ok(job) => return Ok(job),
            Err(shared) => job = shared,
        }
        std::thread::yield_now();
    }
}

fn run(threads: u32, program: Program) -> Job {
    run_on(threads, program, JobOptions::default()).unwrap()
}

fn take<T: Payload>(job: &mut Job, from: &Dataset<T>, count: u32) -> Vec<T> {
    (0..count).map(|index| job.take(from.id(), index)).collect()
}

/// Counts how many there are.
struct Counted(Arc<AtomicU32>);

impl Counted {
    fn new(count: &Arc<AtomicU32>) -> Counted {
        count.fetch_add(1, SeqCst);
        Counted(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// A stage without streams keeps what it was opened with, through calls that wait and calls that do not, and no longer.
#[test]
fn what_a_task_keeps_is_there_until_it_is_done() {
    let (opened, alive) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut p = Program::new("keeps");
    let sums = p.dataset::<u64>("sums", 5);
    let (opens, counts) = (opened.clone(), alive.clone());
    p.repeat(20, |p| {
        let (opens, counts) = (opens.clone(), counts.clone());
        p.stream("step").update(&sums).run(
            move |context: &mut Context<'_>| {
                opens.fetch_add(1, SeqCst);
                (context.turn(), 0u64, Counted::new(&counts))
            },
            |(turn, calls, _): &mut (u64, u64, Counted),
             streams: &mut Streams<'_, '_>,
             sum: &mut u64| {
                *calls += 1;
                *sum += *turn;
                match *calls {
                    1 => Progress::More,
                    2 => {
                        let waker = streams.context().completion();
                        std::thread::spawn(move || waker.wake());
                        Progress::Pending
                    }
                    _ => Progress::Done,
                }
            },
        );
    });
    let mut job = run(2, p);
    assert_eq!(take(&mut job, &sums, 5), [3 * 190; 5]);
    assert_eq!(opened.load(SeqCst), 5 * 20);
    assert_eq!(alive.load(SeqCst), 0, "dropped when done, not with the job");
}

/// Whichever way a task ends, what it kept is dropped; that of others goes with the job.
#[test]
fn what_a_task_keeps_is_dropped_when_it_fails() {
    for panics in [false, true] {
        let alive = Arc::new(AtomicU32::new(0));
        let mut p = Program::new("fails");
        let numbers = p.dataset::<u64>("numbers", 1);
        let counts = alive.clone();
        p.stream("fail").update(&numbers).run(
            move |_| (0, Counted::new(&counts)),
            move |(calls, _): &mut (u32, Counted), _: &mut Streams<'_, '_>, _: &mut u64| {
                *calls += 1;
                match *calls {
                    3 if panics => panic!("as it was told"),
                    3 => Err("as it was told"),
                    _ => Ok(Progress::More),
                }
            },
        );
        let plan = Plan::compile(Arc::new(p), &Bindings::default()).unwrap();
        let pool = Pool::new(1, true).unwrap();
        let job = Job::new(plan, pool.parkers(), JobOptions::default());
        let failure = pool.run(&job, &mut QuietCaller).unwrap_err();
        assert!(failure.to_string().contains("stage `fail`"), "{failure}");
        assert_eq!(alive.load(SeqCst), 0, "panics: {panics}");
    }
}

/// Sends `count` numbers that begin at the source's own, in chunks of a length that its data say, to destinations that they say.
fn numbers(p: &mut Program, name: &str, to: &Exchange<Vec<u64>>, from: &Dataset<u64>, count: u64) {
    let to = *to;
    p.stream(name).send(&to).read(from).repeatable().run(
        |_| 0u64,
        move |next: &mut u64, streams: &mut Streams<'_, '_>, first: &u64| {
            while *next < count {
                let end = count.min(*next + 1 + (first + *next) % 7);
                let all: Vec<u32> = streams.destinations().collect();
                let place = (first + *next) as usize % all.len();
                let chunk = (*next..end).map(|it| first * 1_000_000 + it).collect();
                *next = end;
                if !streams.send(&to, all[place], chunk) {
                    return Progress::Pending;
                }
                if (*next).is_multiple_of(5) {
                    return Progress::More;
                }
            }
            Progress::Done
        },
    );
}

fn mix(sum: u64, number: u64) -> u64 {
    (sum.rotate_left(9) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Two streamed inputs, taken in turn chunk by chunk, and what they make streamed on: for each thread count the same bits.
fn merge(p: &mut Program, turns: u64) -> Dataset<u64> {
    let (left, right) = (
        p.load("left", 6, Partitioner::Opaque, |at, _| u64::from(at)),
        p.load("right", 3, Partitioner::Opaque, |at, _| u64::from(at) + 10),
    );
    let (middle, end) = (p.dataset::<u64>("middle", 4), p.dataset::<u64>("end", 2));
    p.repeat(turns, |p| {
        let lefts = p.streamed::<Vec<u64>>("lefts", Relation::AllToAll);
        let rights = p.streamed::<Vec<u64>>("rights", Relation::AllToAll);
        let merged = p.streamed::<Vec<u64>>("merged", Relation::AllToAll);
        numbers(p, "send left", &lefts, &left, 300);
        numbers(p, "send right", &rights, &right, 500);
        p.stream("merge")
            .take(&lefts)
            .take(&rights)
            .send(&merged)
            .update(&middle)
            .run(
                |_| (false, [false; 2]),
                move |(second, ended): &mut (bool, [bool; 2]),
                      streams: &mut Streams<'_, '_>,
                      sum: &mut u64| {
                    while *ended != [true; 2] {
                        let which = usize::from(*second);
                        let from = if *second { &rights } else { &lefts };
                        match streams.poll(from) {
                            Poll::Pending => return Progress::Pending,
                            Poll::Ready(None) => ended[which] = true,
                            Poll::Ready(Some((source, chunk))) => {
                                *sum = chunk
                                    .iter()
                                    .fold(mix(*sum, source.into()), |sum, it| mix(sum, *it));
                                let chunk = vec![*sum, chunk.len() as u64];
                                streams.send(&merged, (*sum % 2) as u32, chunk);
                            }
                        }
                        *second = !*second && !ended[1] || ended[0];
                    }
                    Progress::Done
                },
            );
        p.stream("fold").take(&merged).update(&end).run(
            |_| (),
            move |(): &mut (), streams: &mut Streams<'_, '_>, sum: &mut u64| loop {
                match streams.poll(&merged) {
                    Poll::Pending => return Progress::Pending,
                    Poll::Ready(None) => return Progress::Done,
                    Poll::Ready(Some((source, chunk))) => {
                        *sum = chunk
                            .iter()
                            .fold(mix(*sum, source.into()), |sum, it| mix(sum, *it));
                    }
                }
            },
        );
    });
    end
}

#[test]
fn a_merge_gives_the_same_bits_however_chunks_come() {
    let mut results = Vec::new();
    for round in 0..12 {
        let mut p = Program::new("merge");
        let end = merge(&mut p, 9);
        let mut job = run(1 + round % 4, p);
        results.push(take(&mut job, &end, 2));
    }
    assert!(results.iter().all(|it| it == &results[0]), "{results:?}");
    assert!(results[0].iter().all(|it| *it != 0));
}

const CHUNK_BYTES: u64 = 1 << 20;

/// A source that sends `count` chunks of a MiB, and calls `sent` for each.
fn send(
    p: &mut Program,
    to: Exchange<Vec<u8>>,
    from: &Dataset<u64>,
    count: u64,
    sent: impl Fn() + Send + Sync + 'static,
) {
    p.stream("send").send(&to).update(from).run(
        |_| (),
        move |(): &mut (), streams: &mut Streams<'_, '_>, next: &mut u64| {
            while *next < count {
                *next += 1;
                sent();
                if !streams.send(&to, 0, vec![*next as u8; CHUNK_BYTES as usize]) {
                    return Progress::Pending;
                }
                if next.is_multiple_of(4) {
                    // Others may be opened meanwhile.
                    return Progress::More;
                }
            }
            Progress::Done
        },
    );
}

/// Takes them, and adds their lengths up.
fn add(
    streams: &mut Streams<'_, '_>,
    from: &Exchange<Vec<u8>>,
    sum: &mut u64,
    taken: impl Fn(),
) -> Progress {
    loop {
        match streams.poll(from) {
            Poll::Pending => return Progress::Pending,
            Poll::Ready(None) => return Progress::Done,
            Poll::Ready(Some((_, chunk))) => {
                *sum += chunk.len() as u64;
                assert_eq!(
                    u64::from(chunk[0]),
                    *sum / CHUNK_BYTES,
                    "in order, and once"
                );
                taken();
            }
        }
    }
}

/// How far a source and its destination are.
#[derive(Default)]
struct Pipe {
    sent: AtomicU64,
    /// Whether the destination has its first chunk.
    has_begun: AtomicBool,
    /// Whether the source was told that there is no room.
    is_full: AtomicBool,
}

/// A source does not run ahead of a destination that has enough to do, and goes on when that has less.
///
/// A destination slows nobody before it has begun, and nobody while it has nothing to do: so one waits for the other, and how
/// far the source gets does not depend on when threads run.
#[test]
fn a_source_is_slowed_by_its_destination() {
    const COUNT: u64 = 60;
    let mut p = Program::new("pipe");
    let (from, to) = (p.dataset::<u64>("from", 1), p.dataset::<u64>("to", 1));
    let chunks = p.streamed::<Vec<u8>>("chunks", Relation::AllToAll);
    let pipe = Arc::new(Pipe::default());
    let source = pipe.clone();
    p.stream("send").send(&chunks).update(&from).run(
        |_| (),
        move |(): &mut (), streams: &mut Streams<'_, '_>, next: &mut u64| {
            while *next < COUNT {
                if *next == 1 && !source.has_begun.load(SeqCst) {
                    return Progress::More;
                }
                *next += 1;
                source.sent.fetch_add(1, SeqCst);
                if !streams.send(&chunks, 0, vec![*next as u8; CHUNK_BYTES as usize]) {
                    source.is_full.store(true, SeqCst);
                    return Progress::Pending;
                }
            }
            Progress::Done
        },
    );
    let (ahead, destination) = (Arc::new(AtomicU64::new(0)), pipe.clone());
    let most = ahead.clone();
    p.stream("take").take(&chunks).update(&to).run(
        |_| (),
        move |(): &mut (), streams: &mut Streams<'_, '_>, sum: &mut u64| {
            if destination.has_begun.load(SeqCst) && most.load(SeqCst) == 0 {
                let sent = destination.sent.load(SeqCst);
                if !destination.is_full.load(SeqCst) && sent < COUNT {
                    return Progress::More;
                }
                most.store(sent, SeqCst);
            }
            loop {
                match streams.poll(&chunks) {
                    Poll::Pending => return Progress::Pending,
                    Poll::Ready(None) => return Progress::Done,
                    Poll::Ready(Some((_, chunk))) => *sum += chunk.len() as u64,
                }
                if !destination.has_begun.swap(true, SeqCst) {
                    return Progress::More;
                }
            }
        },
    );
    let mut job = run(2, p);
    assert_eq!(take(&mut job, &to, 1), [COUNT * CHUNK_BYTES]);
    let ahead = ahead.load(SeqCst);
    assert!((2..=9).contains(&ahead), "{ahead} chunks waited at once");
}

/// A destination that is opened when its source is done slows nobody: there is nothing else to wait for. On one thread and on several.
#[test]
fn a_task_that_is_not_open_yet_slows_nobody() {
    for threads in [1, 2] {
        let mut p = Program::new("late");
        let (from, to) = (p.dataset::<u64>("from", 1), p.dataset::<u64>("to", 1));
        let chunks = p.streamed::<Vec<u8>>("chunks", Relation::AllToAll);
        send(&mut p, chunks, &from, 40, || ());
        // It reads what its source writes.
        p.stream("take").take(&chunks).read(&from).update(&to).run(
            |_| (),
            move |(): &mut (), streams: &mut Streams<'_, '_>, from: &u64, sum: &mut u64| {
                assert_eq!(*from, 40);
                add(streams, &chunks, sum, || ())
            },
        );
        let mut job = run(threads, p);
        assert_eq!(take(&mut job, &to, 1), [40 * CHUNK_BYTES]);
    }
}

/// A task that wants the second input first, whose source cannot begin before that of the first is done: while it waits it slows nobody.
#[test]
fn a_task_that_waits_slows_nobody() {
    let mut p = Program::new("crossed");
    let (from, to) = (p.dataset::<u64>("from", 1), p.dataset::<u64>("to", 1));
    let firsts = p.streamed::<Vec<u8>>("firsts", Relation::AllToAll);
    let seconds = p.streamed::<Vec<u8>>("seconds", Relation::AllToAll);
    send(&mut p, firsts, &from, 30, || ());
    send(&mut p, seconds, &from, 50, || ());
    p.stream("take")
        .take(&firsts)
        .take(&seconds)
        .update(&to)
        .run(
            |_| (true, 0u64),
            move |(second, sum): &mut (bool, u64), streams: &mut Streams<'_, '_>, to: &mut u64| {
                while *second {
                    match streams.poll(&seconds) {
                        Poll::Pending => return Progress::Pending,
                        Poll::Ready(None) => *second = false,
                        Poll::Ready(Some((_, chunk))) => *to += chunk.len() as u64,
                    }
                }
                add(streams, &firsts, sum, || ())
            },
        );
    let mut job = run(2, p);
    // The second begins to count where the first has ended.
    assert_eq!(take(&mut job, &to, 1), [20 * CHUNK_BYTES]);
}

/// A task that has enough ends without the rest, turn after turn; what comes for it then goes nowhere, and counts nowhere.
#[test]
fn what_is_not_wanted_goes_nowhere() {
    let budget = Budget::new(1 << 30, Floors::default());
    let mut p = Program::new("limit");
    let (from, to) = (p.value("from", 3, 1u64), p.dataset::<u64>("to", 2));
    p.repeat(10, |p| {
        let chunks = p.streamed::<Vec<u64>>("chunks", Relation::AllToAll);
        numbers(p, "send", &chunks, &from, 3_000);
        p.stream("first").take(&chunks).update(&to).run(
            |_| (),
            move |(): &mut (), streams: &mut Streams<'_, '_>, sum: &mut u64| match streams
                .poll(&chunks)
            {
                Poll::Pending => Progress::Pending,
                Poll::Ready(None) => panic!("there are more"),
                Poll::Ready(Some((source, chunk))) => {
                    assert_eq!(source, 0);
                    *sum += chunk[0] % 1_000;
                    Progress::Done
                }
            },
        );
    });
    let options = JobOptions {
        budget: budget.clone(),
        ..JobOptions::default()
    };
    let mut job = run_on(3, p, options).unwrap();
    let firsts = take(&mut job, &to, 2);
    assert_eq!((firsts[0] + firsts[1]) % 10, 0, "{firsts:?}");
    drop(job);
    assert_eq!(budget.in_use_bytes(), 0);
}

/// Where there is no room for what waits, and no place to spill it, the stage that sends and the exchange are told.
#[test]
fn chunks_count_in_the_budget() {
    let budget = Budget::new(8 << 20, Floors::default());
    let mut p = Program::new("too much");
    let (from, to) = (p.dataset::<u64>("from", 1), p.dataset::<u64>("to", 1));
    let chunks = p.streamed::<Vec<u8>>("chunks", Relation::AllToAll);
    send(&mut p, chunks, &from, 40, || ());
    p.stream("take").take(&chunks).read(&from).update(&to).run(
        |_| (),
        move |(): &mut (), streams: &mut Streams<'_, '_>, _: &u64, sum: &mut u64| {
            add(streams, &chunks, sum, || ())
        },
    );
    let options = JobOptions {
        budget: budget.clone(),
        ..JobOptions::default()
    };
    let failure = run_on(1, p, options).err().unwrap().to_string();
    assert!(
        failure.contains("`send`") && failure.contains("`chunks`"),
        "{failure}"
    );
    assert_eq!(budget.in_use_bytes(), 0);
}

/// A chunk that no frame could carry is refused alone, too, with what to do.
#[test]
fn a_chunk_has_its_largest_size() {
    let mut p = Program::new("large");
    let (from, to) = (p.dataset::<u64>("from", 1), p.dataset::<u64>("to", 1));
    let chunks = p.streamed::<Vec<u8>>("chunks", Relation::AllToAll);
    p.stream("send").send(&chunks).read(&from).run(
        |_| (),
        move |(): &mut (), streams: &mut Streams<'_, '_>, _: &u64| {
            streams.send(&chunks, 0, vec![0; 40 << 20]);
        },
    );
    p.stream("take").take(&chunks).update(&to).run(
        |_| (),
        move |(): &mut (), streams: &mut Streams<'_, '_>, sum: &mut u64| {
            add(streams, &chunks, sum, || ())
        },
    );
    let failure = run_on(1, p, JobOptions::default())
        .err()
        .unwrap()
        .to_string();
    assert!(
        failure.contains("`send`") && failure.contains("cut it smaller"),
        "{failure}"
    );
}

/// Reads a file that does not come before it may.
struct Scanned {
    read: FileRead,
    waits: Arc<AtomicU32>,
    gate: Arc<Mutex<Receiver<()>>>,
}

impl Request for Scanned {
    type Done = Vec<u8>;

    fn run(self) -> Result<Vec<u8>, FileError> {
        self.waits.fetch_add(1, SeqCst);
        let opened = self.gate.lock().unwrap().recv_timeout(PATIENCE);
        opened.expect("others run while the disk reads");
        self.read.run()
    }

    fn name(&self) -> String {
        self.read.name()
    }
}

/// A scan is a stage: it asks threads for files for its chunks, waits, and holds no thread of a worker meanwhile. Of the one there is, here: the disk does not
/// give a chunk before another shard has had a turn for it.
#[test]
fn a_scan_holds_no_thread_while_the_disk_reads() {
    const CHUNKS: u64 = 6;
    let bytes: Vec<u8> = (0..CHUNKS * CHUNK_BYTES).map(|i| (i % 251) as u8).collect();
    let path = std::env::temp_dir().join(format!("brambling-scan-{}", std::process::id()));
    std::fs::write(&path, &bytes).unwrap();
    let file = Arc::new(NamedFile::open(&path).unwrap());
    std::fs::remove_file(&path).unwrap();

    let pool = Arc::new(FilePool::start().unwrap());
    let (open, gate) = channel();
    let gate = Arc::new(Mutex::new(gate));
    let waits = Arc::new(AtomicU32::new(0));
    let waiting = waits.clone();
    let mut p = Program::new("scan");
    let (turns, sum) = (p.dataset::<u64>("turns", 1), p.dataset::<u64>("sum", 1));
    let chunks = p.streamed::<Vec<u8>>("chunks", Relation::AllToAll);
    let rows = p.dataset::<u64>("rows", 1);
    p.stream("scan").send(&chunks).update(&rows).run(
        |_| None::<Ticket<Vec<u8>>>,
        move |asked: &mut Option<Ticket<Vec<u8>>>,
              streams: &mut Streams<'_, '_>,
              rows: &mut u64| {
            if let Some(ticket) = asked {
                // A completion may come for something else.
                let Some(chunk) = ticket.take() else {
                    return Progress::Pending;
                };
                *rows += 1;
                streams.send(&chunks, 0, chunk.unwrap());
            }
            if *rows == CHUNKS {
                return Progress::Done;
            }
            let read = FileRead {
                file: file.clone(),
                start: *rows * CHUNK_BYTES,
                into: vec![0; CHUNK_BYTES as usize],
            };
            let (waits, gate) = (waits.clone(), gate.clone());
            let given = pool.give(
                Scanned { read, waits, gate },
                &streams.context().completion(),
            );
            *asked = Some(given.ok().expect("its queue is not full"));
            Progress::Pending
        },
    );
    p.stream("take").take(&chunks).update(&sum).run(
        |_| (),
        move |(): &mut (), streams: &mut Streams<'_, '_>, sum: &mut u64| loop {
            match streams.poll(&chunks) {
                Poll::Pending => return Progress::Pending,
                Poll::Ready(None) => return Progress::Done,
                Poll::Ready(Some((_, chunk))) => {
                    *sum += chunk.iter().map(|it| u64::from(*it)).sum::<u64>()
                }
            }
        },
    );
    p.stream("opens").update(&turns).run(
        |_| (),
        move |(): &mut (), _: &mut Streams<'_, '_>, turns: &mut u64| {
            if u64::from(waiting.load(SeqCst)) > *turns {
                *turns += 1;
                open.send(()).unwrap();
            }
            match *turns {
                CHUNKS => Progress::Done,
                _ => Progress::More,
            }
        },
    );
    let mut job = run(1, p);
    assert_eq!(take(&mut job, &turns, 1), [CHUNKS]);
    assert_eq!(take(&mut job, &rows, 1), [CHUNKS]);
    let expected = bytes.iter().map(|it| u64::from(*it)).sum::<u64>();
    assert_eq!(take(&mut job, &sum, 1), [expected]);
}
