//! The rules of streams that only a whole job shows, each with a mutant that breaks it.
//!
//! Each check is a small job whose results are arithmetic. It fails when they are others, when the job does, or when it stands still. A mutant is on for
//! all threads, so nothing else stands in this file.

use brambling_memory::{Budget, Floors};
use brambling_program::{
    Bindings, Context, Dataset, Exchange, Plan, Program, Progress, Relation, Streams,
};
use brambling_storage::SpillDirectory;
use brambling_worker::executor::{Job, JobOptions, Pool, QuietCaller};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

const CHUNK_BYTES: usize = 1 << 20;

/// What a job leaves in a dataset, or how it failed.
fn run(
    threads: u32,
    program: Program,
    found: &Dataset<u64>,
    options: JobOptions,
) -> Result<Vec<u64>, String> {
    let plan = Plan::compile(Arc::new(program), &Bindings::default()).unwrap();
    let pool = Pool::new(threads, true).unwrap();
    let mut job = Job::new(plan, pool.parkers(), options);
    let ended = pool.run(&job, &mut QuietCaller);
    ended.map_err(|failure| failure.to_string())?;
    drop(pool);
    let count = loop {
        // A completion that comes late may still have it.
        match Arc::try_unwrap(job) {
            Ok(mut job) => {
                let count =
                    job.plan().counts[job.plan().group_of_dataset[found.id().index()].index()];
                break (0..count).map(|at| job.take(found.id(), at)).collect();
            }
            Err(shared) => job = shared,
        }
        std::thread::yield_now();
    };
    Ok(count)
}

/// A job that stands still is told after a moment.
fn options() -> JobOptions {
    JobOptions {
        stall: Duration::from_secs(2),
        ..JobOptions::default()
    }
}

/// Sends so many chunks of a MiB and waits for room. The last one is left to the end of the task.
fn send(p: &mut Program, name: &str, to: Exchange<Vec<u8>>, from: &Dataset<u64>, count: u64) {
    p.stream(name).send(&to).update(from).run(
        |_: &mut Context<'_>| 0u64,
        move |sent: &mut u64, streams: &mut Streams<'_, '_>, from: &mut u64| {
            while *sent < count {
                *sent += 1;
                *from += 1;
                let chunk = streams.chunk(&to, 0);
                chunk.clear();
                chunk.resize(CHUNK_BYTES, *sent as u8);
                if *sent < count && !streams.flush(&to, 0) {
                    return Progress::Pending;
                }
                if sent.is_multiple_of(4) {
                    return Progress::More;
                }
            }
            Progress::Done
        },
    );
}

fn take(streams: &mut Streams<'_, '_>, from: &Exchange<Vec<u8>>, sum: &mut u64) -> Poll<()> {
    loop {
        match streams.poll(from) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => return Poll::Ready(()),
            Poll::Ready(Some((_, chunk))) => *sum += u64::from(chunk[CHUNK_BYTES - 1]),
        }
    }
}

fn all(streams: &mut Streams<'_, '_>, from: &Exchange<Vec<u8>>, sum: &mut u64) -> Progress {
    match take(streams, from, sum) {
        Poll::Pending => Progress::Pending,
        Poll::Ready(()) => Progress::Done,
    }
}

/// A task takes, turn after turn, what another sends meanwhile: every chunk of every turn, and it is called when they come.
fn every_chunk_comes() {
    let mut p = Program::new("turns");
    let (from, to) = (p.dataset::<u64>("from", 1), p.dataset::<u64>("to", 1));
    p.keep(&to);
    p.repeat(12, |p| {
        let chunks = p.streamed::<Vec<u8>>("chunks", Relation::AllToAll);
        send(p, "send", chunks, &from, 3);
        p.stream("take").take(&chunks).update(&to).run(
            |_: &mut Context<'_>| (),
            move |(): &mut (), streams: &mut Streams<'_, '_>, sum: &mut u64| {
                all(streams, &chunks, sum)
            },
        );
    });
    assert_eq!(run(2, p, &to, options()), Ok(vec![12 * 6]));
}

/// A task that wants the second input first slows the source of the first by nothing: the second's begins when that has ended.
fn a_task_that_waits_slows_nobody() {
    let mut p = Program::new("crossed");
    let (from, to) = (p.dataset::<u64>("from", 1), p.dataset::<u64>("to", 1));
    p.keep(&to);
    let firsts = p.streamed::<Vec<u8>>("firsts", Relation::AllToAll);
    let seconds = p.streamed::<Vec<u8>>("seconds", Relation::AllToAll);
    send(&mut p, "send firsts", firsts, &from, 30);
    send(&mut p, "send seconds", seconds, &from, 2);
    let both = p.stream("take").take(&firsts).take(&seconds).update(&to);
    both.run(
        |_: &mut Context<'_>| false,
        move |has_second: &mut bool, streams: &mut Streams<'_, '_>, sum: &mut u64| {
            if !*has_second {
                *has_second = take(streams, &seconds, sum).is_ready();
            }
            match *has_second {
                true => all(streams, &firsts, sum),
                false => Progress::Pending,
            }
        },
    );
    assert_eq!(run(1, p, &to, options()), Ok(vec![3 + 465]));
}

/// In the next turn a task that reads what its source writes begins when that has ended: its task of the turn before slows nobody.
fn a_task_that_has_ended_slows_nobody() {
    let mut p = Program::new("late");
    let (from, to) = (p.dataset::<u64>("from", 1), p.dataset::<u64>("to", 1));
    p.keep(&to);
    p.repeat(3, |p| {
        let chunks = p.streamed::<Vec<u8>>("chunks", Relation::AllToAll);
        send(p, "send", chunks, &from, 30);
        p.stream("take").take(&chunks).read(&from).update(&to).run(
            |_: &mut Context<'_>| (),
            move |(): &mut (), streams: &mut Streams<'_, '_>, _: &u64, sum: &mut u64| {
                all(streams, &chunks, sum)
            },
        );
    });
    assert_eq!(run(1, p, &to, options()), Ok(vec![3 * 465]));
}

/// Threads that take at the same time have room for one chunk together.
fn threads_share_room_for_a_chunk() {
    for _ in 0..10 {
        let floors = Floors {
            resident_bytes: 1 << 20,
            exchange_bytes: CHUNK_BYTES as u64 + 64,
            transfer_bytes: 1 << 20,
        };
        let budget = Budget::new(floors.sum_bytes(), floors);
        let spills = SpillDirectory::open(&std::env::temp_dir(), None).unwrap();
        let options = JobOptions {
            budget,
            spill: Some(Arc::new(spills)),
            ..options()
        };
        let mut p = Program::new("room");
        let x = p.dataset::<u64>("x", 3);
        p.keep(&x);
        let chunks = p.streamed::<Vec<u8>>("chunks", Relation::AllToAll);
        p.stream("send").send(&chunks).read(&x).run(
            |_: &mut Context<'_>| (),
            move |(): &mut (), streams: &mut Streams<'_, '_>, _: &u64| {
                for to in 0..3 {
                    streams.send(&chunks, to, vec![1; CHUNK_BYTES]);
                }
            },
        );
        p.stream("take").take(&chunks).update(&x).run(
            |_: &mut Context<'_>| (),
            move |(): &mut (), streams: &mut Streams<'_, '_>, sum: &mut u64| {
                all(streams, &chunks, sum)
            },
        );
        assert_eq!(run(3, p, &x, options), Ok(vec![3; 3]));
    }
}

#[cfg(not(feature = "mutants"))]
#[test]
fn rules_of_streams() {
    every_chunk_comes();
    a_task_that_waits_slows_nobody();
    a_task_that_has_ended_slows_nobody();
    threads_share_room_for_a_chunk();
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_of_streams_are_caught() {
    use brambling_memory::mutants::on_every_thread;
    use std::panic::catch_unwind;
    let mutants: [(&'static str, fn()); 7] = [
        ("the-last-chunk-is-left", every_chunk_comes),
        ("ends-count-no-chunks", every_chunk_comes),
        ("chunks-call-nobody", every_chunk_comes),
        ("ended-tasks-tell-nobody", every_chunk_comes),
        (
            "tasks-that-wait-slow-their-sources",
            a_task_that_waits_slows_nobody,
        ),
        ("ended-tasks-stay-busy", a_task_that_has_ended_slows_nobody),
        (
            "chunks-do-not-wait-for-room",
            threads_share_room_for_a_chunk,
        ),
    ];
    for (name, check) in mutants {
        check();
        let on = on_every_thread(name);
        let ended = catch_unwind(check);
        drop(on);
        assert!(ended.is_err(), "nobody notices the mutant {name}");
    }
}
