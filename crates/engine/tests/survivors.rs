//! Workers that are left when another is gone begin with what they have saved themselves: what is read from the store is what was lost.
//!
//! Catches survivors that read everything, parts of another cut that are used, shards that are placed elsewhere than where they were, and local copies that keep
//! a job from its memory. Says nothing about processes: workers here are this one's.

mod support;

use brambling::cluster::{
    Cluster, ControllerOptions, ControllerProcess, Rendezvous, SnapshotEvery, SnapshotOptions,
    WorkerProcess,
};
use brambling::prelude::*;
use brambling::program::{Bindings, Plan};
use brambling::{QuietCaller, Settings};
use brambling_protocol::kept::CutManifest;
use brambling_protocol::message::{ClusterEvent, EventKind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::cluster::{self, Builds, PATIENCE};

/// How many turns lie between snapshots: two of them take longer than a test needs to look at one.
const EACH: u64 = 100;

struct Built {
    program: Program,
    rows: Dataset<Vec<u64>>,
    total: Dataset<u64>,
}

/// Reads `SHARDS NUMBERS TURNS MILLISECONDS`: rows that are written each turn with the help of some that are written once, before the loop, and a sum that all of
/// them hear.
fn built(bytes: &[u8]) -> Result<Built, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let words: Result<Vec<u64>, _> = text.split(' ').map(str::parse).collect();
    let [shards, numbers, turns, pause] = words.map_err(|it| it.to_string())?[..] else {
        return Err("there is no such program".into());
    };
    let mut p = Program::new("mixing");
    let rows = p.load(
        "rows",
        shards as u32,
        Partitioner::Opaque,
        move |index, _| {
            (0..numbers)
                .map(|it| it + u64::from(index))
                .collect::<Vec<u64>>()
        },
    );
    let once = p.like::<Vec<u64>, _>("once", &rows);
    let part = p.like::<u64, _>("part", &rows);
    let total = p.dataset::<u64>("total", 1);
    let heard = p.like::<u64, _>("heard", &rows);
    p.keep(&rows);
    p.keep(&total);
    let write = p.compute("write once").read(&rows).write(&once);
    write.run(|rows: &Vec<u64>, once: &mut Vec<u64>| {
        *once = rows
            .iter()
            .take(rows.len() / 16)
            .map(|it| it * 3 + 1)
            .collect();
    });
    p.repeat(turns, |p| {
        let mix = p.compute("mix").read(&once).update(&rows).write(&part);
        mix.run(
            move |once: &Vec<u64>, rows: &mut Vec<u64>, part: &mut u64| {
                std::thread::sleep(Duration::from_millis(pause));
                for (row, once) in rows.iter_mut().zip(once) {
                    *row = row.rotate_left(7) ^ once;
                }
                *part = rows.iter().fold(0, |sum, it| sum ^ it) >> 32;
            },
        );
        p.reduce_to(Sum, &part, &total);
        p.broadcast(&total, &heard);
        let take = p.compute("take").read(&heard).update(&rows);
        take.run(|heard: &u64, rows: &mut Vec<u64>| rows[0] ^= heard);
    });
    Ok(Built {
        program: p,
        rows,
        total,
    })
}

type Left = (Vec<Vec<u64>>, u64);

fn left(outcome: &mut Outcome, built: &(Dataset<Vec<u64>>, Dataset<u64>)) -> Left {
    (outcome.take_all(&built.0), outcome.take(&built.1))
}

/// The bits of a run that nothing disturbs.
fn here(text: &str) -> Left {
    let quick = format!("{} 0", text.rsplit_once(' ').unwrap().0);
    let Built {
        program,
        rows,
        total,
    } = built(quick.as_bytes()).unwrap();
    let mut outcome = RunOptions::new().threads(2).run(program).unwrap();
    left(&mut outcome, &(rows, total))
}

/// A controller whose jobs are saved, in a directory that goes with this.
struct Saved {
    _controller: ControllerProcess,
    at: Rendezvous,
    store: tempfile::TempDir,
}

impl Saved {
    fn new() -> Saved {
        let store = tempfile::tempdir().unwrap();
        let options = ControllerOptions {
            snapshots: Some(SnapshotOptions {
                store: store.path().display().to_string(),
                every: SnapshotEvery::Turns(EACH),
            }),
            ..cluster::options()
        };
        let (controller, at) = cluster::controller(options);
        Saved {
            _controller: controller,
            at,
            store,
        }
    }

    fn worker(&self, settings: Settings) -> WorkerProcess {
        let named = |bytes: &[u8]| Ok(built(bytes)?.program);
        cluster::worker(&self.at, settings, Builds(named))
    }

    /// Runs a program, and meanwhile does something else.
    fn run<R>(&self, text: &str, meanwhile: impl FnOnce() -> R) -> (Left, R) {
        std::thread::scope(|scope| {
            let running = scope.spawn(|| {
                let cluster = Cluster::connect(&self.at).unwrap();
                let Built {
                    program,
                    rows,
                    total,
                } = built(text.as_bytes()).unwrap();
                let plan = Plan::compile(Arc::new(program), &Bindings::default()).unwrap();
                let outcome = cluster.run(plan, text.as_bytes(), 1, &mut QuietCaller);
                left(&mut outcome.unwrap(), &(rows, total))
            });
            let found = meanwhile();
            (running.join().unwrap(), found)
        })
    }

    fn events(&self, kind: EventKind) -> Vec<ClusterEvent> {
        let events = Cluster::connect(&self.at).unwrap().events(0).unwrap();
        events.into_iter().filter(|it| it.kind == kind).collect()
    }

    /// Waits for so many events of a kind.
    fn await_events(&self, kind: EventKind, count: usize) -> Vec<ClusterEvent> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let events = self.events(kind);
            if events.len() >= count {
                return events;
            }
            assert!(Instant::now() < deadline, "{kind:?}: {events:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn manifest(&self, cut: u64) -> CutManifest {
        let name = format!("{cut:020}");
        let mut left = vec![self.store.path().to_owned()];
        while let Some(next) = left.pop() {
            for entry in std::fs::read_dir(&next).unwrap().flatten() {
                let path = entry.path();
                match path.is_dir() {
                    true => left.push(path),
                    false if path.ends_with(format!("manifests/{name}")) => {
                        return CutManifest::decode(&std::fs::read(path).unwrap()).unwrap();
                    }
                    false => {}
                }
            }
        }
        panic!("snapshot {cut} is gone already");
    }
}

/// What workers have read from the store for a generation, and what they still had.
struct FromWhere {
    read_bytes: u64,
    local_bytes: u64,
}

impl FromWhere {
    fn of(events: &[ClusterEvent]) -> FromWhere {
        let local = |event: &ClusterEvent| {
            let cause = event.cause.as_deref().unwrap();
            let (bytes, _) = cause.split_once(' ').unwrap();
            bytes.parse::<u64>().unwrap()
        };
        FromWhere {
            read_bytes: events.iter().map(|it| it.bytes.unwrap()).sum(),
            local_bytes: events.iter().map(local).sum(),
        }
    }
}

/// What a snapshot has that a worker saved, and all that it has.
fn saved_by(manifest: &CutManifest, worker: &str) -> (u64, u64) {
    let marked = format!("-{worker}-");
    let is_its = |object: u32| manifest.objects[object as usize].contains(&marked);
    let of_it = manifest.parts.iter().filter(|it| is_its(it.object));
    let of_it = of_it.map(|it| it.bytes).sum();
    (of_it, manifest.parts.iter().map(|it| it.bytes).sum())
}

#[test]
fn what_is_read_from_the_store_is_what_was_lost() {
    let text = "10 3000 900 1";
    let saved = Saved::new();
    let mut workers: Vec<_> = (0..4).map(|_| saved.worker(cluster::threads(1))).collect();
    let (found, ()) = saved.run(text, || {
        saved.await_events(EventKind::SnapshotTaken, 2);
        drop(workers.pop());
        let restored = saved.await_events(EventKind::JobRestored, 3);
        let manifest = saved.manifest(restored[0].cut.unwrap());
        let (lost, all) = saved_by(&manifest, "w4");
        let from = FromWhere::of(&restored);
        assert!(lost > 0 && lost < all, "{lost} of {all}");
        assert_eq!((from.read_bytes, from.local_bytes), (lost, all - lost));
        // Another one, before or after what it has read was saved again: it was kept here, too.
        drop(workers.pop());
        let restored = saved.await_events(EventKind::JobRestored, 5);
        let manifest = saved.manifest(restored[3].cut.unwrap());
        let from = FromWhere::of(&restored[3..]);
        let (_, all) = saved_by(&manifest, "w3");
        assert_eq!(from.read_bytes + from.local_bytes, all);
        assert!(
            from.read_bytes > 0 && from.read_bytes < all / 2,
            "{} of {all}",
            from.read_bytes
        );
    });
    assert_eq!(found, here(text));
}

/// Each partition is larger than what is nobody's floor of a worker's memory.
#[test]
fn what_has_no_room_here_is_read_from_the_store() {
    let text = "4 332000 500 1";
    let saved = Saved::new();
    let settings = || cluster::threads_and_memory(1, "8 MiB");
    let mut workers: Vec<_> = (0..4).map(|_| saved.worker(settings())).collect();
    let (found, ()) = saved.run(text, || {
        saved.await_events(EventKind::SnapshotTaken, 1);
        drop(workers.pop());
        let restored = saved.await_events(EventKind::JobRestored, 3);
        let from = FromWhere::of(&restored);
        let rows = 4 * 332_000 * 8;
        assert!(from.read_bytes > rows, "{} of {rows}", from.read_bytes);
        assert!(from.local_bytes < rows / 4, "{}", from.local_bytes);
    });
    assert_eq!(found, here(text));
}
