//! Claim: pieces of 1 MB and more go between two workers at three quarters of the rate of bare TCP in the same pattern, both ways
//! at once, where the receiver reads what came. Not claimed: pieces of a few kilobytes, for which a turn costs more than its bytes.
//!
//! Workers of one machine do not use TCP but Unix sockets. How far ours are from bare ones stands beside.
//!
//! In each turn both shards send the other a piece and add up the one that came.

use crate::BenchError;
use crate::cluster::Running;
use crate::described::Described;
use crate::limits::sockets::{self, Kind, Loop};
use crate::report::{Figures, Line, Report, SizeFigures};
use crate::session::{Counts, Session, of_a_turn};
use brambling::operators::{numerics, simd};
use brambling::prelude::*;
use brambling_machine::Figure;
use brambling_machine::measure::Measured;
use std::sync::Arc;

const WORKERS: u32 = 2;
/// Of a piece, in bytes.
const SIZES: [usize; 6] = [1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23, 1 << 26];
/// That go each way in a job, or a little more.
const JOB_BYTES: usize = 1 << 28;

struct Size {
    message_bytes: usize,
    turns: u64,
}

pub(crate) fn run(session: &mut Session<'_>) -> Result<Report, BenchError> {
    let workers = session.options.workers.unwrap_or(WORKERS);
    session.check(workers == WORKERS, || {
        format!("two workers exchange pieces, not {workers}; leave out --workers or give 2")
    })?;
    let smoke = session.options.smoke;
    let sizes = SIZES.map(|message_bytes| Size {
        message_bytes,
        turns: match smoke {
            true => 4,
            false => (JOB_BYTES / message_bytes).clamp(8, 4_000) as u64,
        },
    });
    let sizes = if smoke { &sizes[..2] } else { &sizes[..] };
    let running = &session.start_workers(workers)?;
    let mut counts = Vec::new();
    let mut figures = Vec::new();
    for size in sizes {
        let (measured, figure) = measure(session, running, size)?;
        counts.push(measured);
        figures.push(figure);
    }
    let lines = figures.iter().flat_map(lines_of).collect();
    let figures = Figures::Shuffle {
        workers,
        sizes: figures,
    };
    Ok(session.report(Counts::of(&counts), figures, Vec::new(), lines))
}

fn measure(
    session: &mut Session<'_>,
    running: &Running,
    size: &Size,
) -> Result<(Measured, SizeFigures), BenchError> {
    let places = &session.places.clone();
    let mut rounds = session.rounds();
    let loops = [Kind::Tcp, Kind::Unix].map(Loop::all);
    for raw in loops.into_iter().flatten() {
        rounds = rounds.limit("raw", raw.name(), move |session| {
            let seconds = sockets::exchange(raw, places, size.message_bytes, size.turns);
            seconds.map_err(|error| session.system(error))
        });
    }
    let rounds = rounds.ours("engine", move |session| {
        seconds_a_turn(session, running, size)
    });
    let measured = session.measure(rounds)?;
    let [tcp, unix] = loops.map(|all| measured.best(all.iter().map(|raw| raw.name())).1);
    let ours = measured.figure("engine");
    let both_ways = 2.0 * size.message_bytes as f64;
    let bytes_per_s = |seconds: Figure| seconds.rate(both_ways);
    let figure = SizeFigures {
        message_bytes: size.message_bytes,
        bytes_per_s: bytes_per_s(ours),
        raw_tcp_bytes_per_s: bytes_per_s(tcp),
        share: ours.rate(tcp.median),
        raw_unix_bytes_per_s: bytes_per_s(unix),
        share_of_unix: ours.rate(unix.median),
    };
    Ok((measured, figure))
}

fn lines_of(size: &SizeFigures) -> [Line; 3] {
    let name = match size.message_bytes {
        small if small < 1 << 20 => format!("{} KB", small >> 10),
        large => format!("{} MB", large >> 20),
    };
    let (of_tcp, of_unix) = (size.share.median, size.share_of_unix.median);
    let share = format!("{of_tcp:.2} of bare TCP, {of_unix:.2} of bare Unix sockets");
    [
        Line::new(
            format!("{name}, both ways"),
            size.bytes_per_s.scaled(1e-9),
            "GB/s",
        )
        .note(share),
        Line::new(
            format!("limit: {name}, bare TCP"),
            size.raw_tcp_bytes_per_s.scaled(1e-9),
            "GB/s",
        ),
        Line::new(
            format!("limit: {name}, bare Unix sockets"),
            size.raw_unix_bytes_per_s.scaled(1e-9),
            "GB/s",
        ),
    ]
}

fn seconds_a_turn(
    session: &mut Session<'_>,
    running: &Running,
    size: &Size,
) -> Result<f64, BenchError> {
    let words = size.message_bytes / size_of::<f64>();
    of_a_turn([size.turns / 2, size.turns + size.turns / 2], |turns| {
        let (program, sums) = program(words, turns);
        let described = Described::Shuffle { words, turns };
        let mut outcome = session.run_on(running, program, &described)?;
        let mut expected = FULL_OF.map(|number| number * (turns * words as u64) as f64);
        // Each has the other's.
        expected.reverse();
        let sums = outcome.take_all(&sums);
        session.check(sums == expected, || {
            format!("the pieces add up to {sums:?}, not {expected:?}")
        })?;
        Ok(outcome.tally().wall.as_secs_f64())
    })
}

/// What the pieces of a shard are full of.
const FULL_OF: [f64; WORKERS as usize] = [1.0, 3.0];

/// Two shards, each of which sends the other a piece that is there already, and adds up what came.
pub(crate) fn program(words: usize, turns: u64) -> (Program, Dataset<f64>) {
    let mut p = Program::new("shuffle");
    let piece = p.load("piece", WORKERS, Partitioner::Opaque, move |index, _| {
        Arc::new(vec![FULL_OF[index as usize]; words])
    });
    let sums = p.like::<f64, _>("sums", &piece);
    p.keep(&sums);
    p.repeat(turns, |p| {
        let other = Relation::Offsets {
            offsets: vec![-1, 1],
            wrap: false,
        };
        let exchange = p.exchange::<Arc<Vec<f64>>>("pieces", other);
        p.scatter("send", &exchange).read(&piece).run(
            |piece: &Arc<Vec<f64>>, out: &mut Outbox<'_, Arc<Vec<f64>>>| {
                out.for_each(|_, place| *place = piece.clone());
            },
        );
        p.gather("add up", &exchange).update(&sums).run(
            |inbox: &mut Inbox<'_, Arc<Vec<f64>>>, sum: &mut f64| {
                for (_, piece) in inbox {
                    *sum += numerics::sum(simd::active(), piece);
                }
            },
        );
    });
    (p, sums)
}
