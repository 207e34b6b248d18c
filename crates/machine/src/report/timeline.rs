//! What the page's timeline draws: rows of moments, few enough to be read and drawn at once.

use serde::Serialize;

use super::ideal::share;
use super::threads::{each, moments, shares, together};
use super::units::percent;
use crate::ledger::{Ledger, Moment, ThreadEntry, TimeParts};

/// More rows are no picture: then each worker has one, the mean of its threads.
const LANES: usize = 64;
/// More moments than this are drawn as means of equal pieces of time, on all rows together.
const MOMENTS: usize = 40_000;
/// Pieces of a row at least, however many rows there are: about one a pixel.
const PIECES: usize = 1_000;

/// Everything that the script of the page reads.
#[derive(Serialize)]
pub(super) struct Timeline<'a> {
    wall: f64,
    /// Whether rows stand below their worker's name.
    named: bool,
    parts: Vec<&'static str>,
    stages: Vec<&'a str>,
    lanes: Vec<Lane<'a>>,
}

#[derive(Serialize)]
struct Lane<'a> {
    worker: &'a str,
    name: String,
    /// Its share in kernels.
    busy: String,
    /// Of each moment, in whole microseconds: begin, stage or −1, tasks, how many parts, and each part with its time.
    moments: Vec<i64>,
}

impl<'a> Timeline<'a> {
    pub(super) fn of(ledger: &'a Ledger) -> Timeline<'a> {
        let all: usize = ledger
            .workers
            .iter()
            .map(|worker| worker.threads.len())
            .sum();
        let wall = if ledger.wall_s.is_finite() {
            ledger.wall_s.max(0.0)
        } else {
            0.0
        };
        let mut lanes = Vec::new();
        for worker in &ledger.workers {
            if all > LANES {
                let pieces = (MOMENTS / ledger.workers.len()).clamp(PIECES / 4, PIECES);
                let mean = pieced(&worker.threads, wall, pieces);
                lanes.push(lane(
                    &worker.name,
                    worker.name.clone(),
                    &worker.threads,
                    &mean,
                ));
                continue;
            }
            for thread in &worker.threads {
                let mut drawn = moments(thread);
                let most = (MOMENTS / all).max(PIECES);
                if drawn.len() > most {
                    drawn = pieced(std::slice::from_ref(thread), wall, most);
                }
                lanes.push(lane(
                    &worker.name,
                    thread.name.clone(),
                    std::slice::from_ref(thread),
                    &drawn,
                ));
            }
        }
        Timeline {
            wall,
            named: ledger.workers.len() > 1 && all <= LANES,
            parts: TimeParts::default().named().map(|(name, _)| name).to_vec(),
            stages: ledger
                .stages
                .iter()
                .map(|stage| stage.name.as_str())
                .collect(),
            lanes,
        }
    }
}

fn lane<'a>(
    worker: &'a str,
    name: String,
    threads: &[ThreadEntry],
    moments: &[Moment],
) -> Lane<'a> {
    let micro = |seconds: f64| (seconds * 1e6).round() as i64;
    let mut written = Vec::with_capacity(moments.len() * 8);
    for moment in moments {
        let parts = moment.parts.named();
        let parts: Vec<_> = parts
            .iter()
            .enumerate()
            .filter(|(_, (_, seconds))| micro(*seconds) > 0)
            .collect();
        let stage = moment.stage.map_or(-1, i64::from);
        written.extend([
            micro(moment.begin_s),
            stage,
            moment.tasks as i64,
            parts.len() as i64,
        ]);
        written.extend(
            parts
                .into_iter()
                .flat_map(|(index, (_, seconds))| [index as i64, micro(*seconds)]),
        );
    }
    Lane {
        worker,
        name,
        busy: percent(shares(threads.iter()).kernels),
        moments: written,
    }
}

/// The mean of threads, in equal pieces of time.
fn pieced(threads: &[ThreadEntry], wall: f64, pieces: usize) -> Vec<Moment> {
    let length = wall / pieces as f64;
    let mut mean = vec![Moment::default(); pieces];
    // The stage that had the most of a piece so far, and how much.
    let mut most = vec![0.0; pieces];
    for (index, piece) in mean.iter_mut().enumerate() {
        piece.begin_s = index as f64 * length;
    }
    for moment in threads.iter().flat_map(moments) {
        let (begin, took) = (moment.begin_s, moment.parts.total());
        let first = (begin / length) as usize;
        let last = ((begin + took) / length) as usize;
        for index in first..=last.min(pieces - 1) {
            let from = begin.max(index as f64 * length);
            let part = share((begin + took).min((index + 1) as f64 * length) - from, took);
            let piece = &mut mean[index];
            piece.parts = together(
                piece.parts,
                each(moment.parts, |seconds| {
                    seconds * part / threads.len() as f64
                }),
            );
            if moment.parts.kernels * part > most[index] {
                (most[index], piece.stage) = (moment.parts.kernels * part, moment.stage);
            }
            // A task ends once, in the piece where its moment does.
            piece.tasks += if index == last.min(pieces - 1) {
                moment.tasks
            } else {
                0
            };
        }
    }
    mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_time_keep_the_sums() {
        let moment = |begin_s, kernels, exchange, tasks| Moment {
            begin_s,
            parts: TimeParts {
                kernels,
                exchange,
                ..TimeParts::default()
            },
            stage: Some(0),
            tasks,
        };
        let moments = vec![moment(0.0, 0.3, 0.1, 2), moment(0.4, 0.5, 0.1, 3)];
        let thread = ThreadEntry {
            wall_s: 1.0,
            moments,
            ..ThreadEntry::default()
        };
        let pieces = pieced(&[thread.clone(), thread], 1.0, 7);
        let sum = pieces.iter().fold(TimeParts::default(), |sum, piece| {
            together(sum, piece.parts)
        });
        assert!(
            (sum.kernels - 0.8).abs() < 1e-9 && (sum.exchange - 0.2).abs() < 1e-9,
            "{sum:?}"
        );
        assert_eq!(pieces.iter().map(|piece| piece.tasks).sum::<u64>(), 10);
    }
}
