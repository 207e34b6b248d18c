//! Streams in little memory: chunks for a task that has not begun are taken, spilled, and read back one by one.
//!
//! The oracle is arithmetic on what was sent. Catches a job that waits for ever, or fails where there is a place to spill to.

use brambling_memory::{Budget, Class, Floors, Spill};
use brambling_program::{
    Bindings, Context, Dataset, Exchange, Partitioner, Plan, Program, Progress, Relation, Streams,
};
use brambling_storage::SpillDirectory;
use brambling_worker::executor::{Failure, Job, JobOptions, Pool, QuietCaller};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

const SHARDS: u32 = 4;
/// Numbers of a chunk.
const NUMBERS: usize = 1_000;
/// What a chunk counts: its numbers, and where they lie.
const CHUNK_BYTES: u64 = 8 * NUMBERS as u64 + 64;
/// Chunks that a shard sends to each in a turn.
const CHUNKS: u64 = 20;
const TURNS: u64 = 3;

fn run(threads: u32, program: Program, options: JobOptions) -> Result<Job, Failure> {
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

/// The last number of a chunk; the others follow it.
fn said(x: u64, to: u32, chunk: u64) -> u64 {
    x.wrapping_mul(31)
        .wrapping_add(u64::from(to) * 1_000 + chunk)
}

fn heard(x: u64, source: u32, number: u64) -> u64 {
    x.wrapping_mul(1_000_003).wrapping_add(number) ^ u64::from(source)
}

fn send(p: &mut Program, name: &str, to: Exchange<Vec<u64>>, x: &Dataset<u64>) {
    p.stream(name).send(&to).read(x).run(
        |_: &mut Context<'_>| 0u64,
        move |sent: &mut u64, streams: &mut Streams<'_, '_>, x: &u64| {
            while *sent < CHUNKS * u64::from(SHARDS) {
                let (to_whom, chunk) = (
                    (*sent % u64::from(SHARDS)) as u32,
                    *sent / u64::from(SHARDS),
                );
                *sent += 1;
                let piece = vec![said(*x, to_whom, chunk); NUMBERS];
                if !streams.send(&to, to_whom, piece) {
                    return Progress::Pending;
                }
            }
            Progress::Done
        },
    );
}

fn poll(streams: &mut Streams<'_, '_>, from: &Exchange<Vec<u64>>, x: &mut u64) -> Poll<Option<()>> {
    streams.poll(from).map(|next| {
        next.map(|(source, chunk)| {
            assert_eq!(chunk.len(), NUMBERS);
            *x = heard(*x, source, chunk[NUMBERS - 1]);
        })
    })
}

/// X goes to X, chunk by chunk: nobody can take before it has sent all of its own.
fn into_itself() -> (Program, Dataset<u64>) {
    let mut p = Program::new("into itself");
    let x = p.load("x", SHARDS, Partitioner::Opaque, |at, _| u64::from(at) + 1);
    p.keep(&x);
    p.repeat(TURNS, |p| {
        let chunks = p.streamed::<Vec<u64>>("chunks", Relation::AllToAll);
        send(p, "send", chunks, &x);
        p.stream("take").take(&chunks).update(&x).run(
            |_: &mut Context<'_>| (),
            move |(): &mut (), streams: &mut Streams<'_, '_>, x: &mut u64| loop {
                match poll(streams, &chunks, x) {
                    Poll::Pending => return Progress::Pending,
                    Poll::Ready(None) => return Progress::Done,
                    Poll::Ready(Some(())) => {}
                }
            },
        );
    });
    (p, x)
}

fn expected() -> Vec<u64> {
    let mut all: Vec<u64> = (1..=u64::from(SHARDS)).collect();
    for _ in 0..TURNS {
        let before = all.clone();
        for (to, x) in (0..).zip(&mut all) {
            for (source, sent) in (0..).zip(&before) {
                for chunk in 0..CHUNKS {
                    *x = heard(*x, source, said(*sent, to, chunk));
                }
            }
        }
    }
    all
}

/// Floors, and beside the exchange's, of so many chunks, nothing.
fn budget(exchange_chunks: u64) -> Budget {
    let floors = Floors {
        resident_bytes: 1 << 20,
        exchange_bytes: exchange_chunks * CHUNK_BYTES,
        transfer_bytes: 1 << 20,
    };
    Budget::new(floors.sum_bytes(), floors)
}

fn options(budget: &Budget, spill: Option<Arc<dyn Spill>>) -> JobOptions {
    JobOptions {
        budget: budget.clone(),
        spill,
        stall: Duration::from_secs(20),
        ..JobOptions::default()
    }
}

fn directory() -> SpillDirectory {
    SpillDirectory::open(&std::env::temp_dir(), None).unwrap()
}

#[test]
fn x_into_x_ends_with_room_for_one_chunk() {
    let (spills, budget) = (directory(), budget(1));
    let (program, x) = into_itself();
    let options = options(&budget, Some(Arc::new(spills.clone())));
    let mut job = run(1, program, options).unwrap();
    let found: Vec<u64> = (0..SHARDS).map(|at| job.take(x.id(), at)).collect();
    assert_eq!(found, expected());
    drop(job);
    assert_eq!(budget.in_use_bytes(), 0);
    assert!(budget.class_peak_bytes(Class::Exchange) <= CHUNK_BYTES);
    let counts = spills.counts();
    // All chunks but one or two of a turn.
    let sent = TURNS * CHUNKS * u64::from(SHARDS * SHARDS);
    assert!(counts.reads > sent * 9 / 10, "{counts:?} of {sent}");
}

/// The budget has room for all of them, and the job says that none is to wait in memory.
#[test]
fn chunks_beyond_the_jobs_limit_are_spilled_whatever_the_budget_has() {
    let sent = TURNS * CHUNKS * u64::from(SHARDS * SHARDS);
    for (limit, expected_reads) in [(Some(0), sent..=sent), (None, 0..=0)] {
        let (spills, budget) = (directory(), Budget::unlimited());
        let (program, x) = into_itself();
        let options = JobOptions {
            exchange_bytes_max: limit,
            ..options(&budget, Some(Arc::new(spills.clone())))
        };
        let mut job = run(2, program, options).unwrap();
        let found: Vec<u64> = (0..SHARDS).map(|at| job.take(x.id(), at)).collect();
        assert_eq!(found, expected());
        let counts = spills.counts();
        assert!(
            expected_reads.contains(&counts.reads),
            "{counts:?} of {sent}"
        );
    }
}

/// As above, on threads that want room at the same time: none of them fails for what others are about to give back.
#[test]
fn threads_wait_for_each_others_room() {
    for round in 0..20 {
        let (spills, budget) = (directory(), budget(1));
        let (program, x) = into_itself();
        let options = options(&budget, Some(Arc::new(spills)));
        let mut job = run(2 + round % 3, program, options).unwrap();
        let found: Vec<u64> = (0..SHARDS).map(|at| job.take(x.id(), at)).collect();
        assert_eq!(found, expected(), "round {round}");
        drop(job);
        assert_eq!(budget.in_use_bytes(), 0);
    }
}

#[test]
fn with_nowhere_to_spill_the_exchange_and_the_settings_are_named() {
    let budget = budget(1);
    let (program, _) = into_itself();
    let failure = run(1, program, options(&budget, None)).err().unwrap();
    let failure = failure.to_string();
    for said in [
        "stage `send`",
        "exchange `chunks`",
        "raise the budget with BRAMBLING_MEMORY or memory in brambling.toml",
        "give a directory with BRAMBLING_SPILL or spill in brambling.toml",
    ] {
        assert!(failure.contains(said), "{said} is not in: {failure}");
    }
    assert_eq!(budget.in_use_bytes(), 0);
}
