//! Jobs of a cluster that lose a worker go on from their snapshots, with the bits of a run that nothing has disturbed.
//!
//! Catches a job that begins again at its start where it has a snapshot, or at one with exchanges, signals or values that are off, and a snapshot that is
//! damaged and used none the less. Says nothing about processes: workers here are this one's.

mod support;

use brambling::cluster::{
    Cluster, ControllerOptions, ControllerProcess, EventKind, Rendezvous, SnapshotEvery,
    SnapshotOptions, WorkerProcess,
};
use brambling::prelude::*;
use brambling::program::{Bindings, Plan};
use brambling::{Caller, Error, Interrupted};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use support::cluster::{self, Builds, PATIENCE};

/// A cell, and what its neighbours have sent.
type Cell = (f64, f64);
/// What a program leaves, as bits: its cells, and its total.
type Left = (Vec<u64>, u64);

struct Built {
    program: Program,
    line: Dataset<Cell>,
    total: Dataset<f64>,
}

/// Reads `counted CELLS TURNS SLOW` and `signalled CELLS TURNS SLOW`: cells that hear of their neighbours and of the mean. Those of `slow` programs sleep.
fn built(bytes: &[u8]) -> Result<Built, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let words: Vec<&str> = text.split(' ').collect();
    let [kind, cells, turns, slow] = words[..] else {
        return Err("there is no such program".into());
    };
    let number = |text: &str| text.parse::<u32>().map_err(|error| error.to_string());
    let (cells, turns, slow) = (number(cells)?, number(turns)?, slow == "slow");
    let mut p = Program::new("heat");
    let line = p.load("line", cells, Partitioner::Opaque, |index, _| {
        (f64::from(index % 7) * 1.37, 0.0)
    });
    let value = p.like::<f64, _>("value", &line);
    let total = p.dataset::<f64>("total", 1);
    let mean = p.like::<f64, _>("mean", &line);
    let count = p.dataset::<u64>("count", 1);
    p.keep(&line);
    p.keep(&total);
    let body = |p: &mut Program| {
        let send = |cell: &Cell, _: u32, piece: &mut f64| *piece = cell.0;
        let receive = |cell: &mut Cell, _: u32, piece: &f64| cell.1 += piece;
        p.exchange_neighbours("beside", &line, &[-1, 1], false, send, receive);
        let step = p.compute("step").update(&line).write(&value);
        step.run(move |cell: &mut Cell, value: &mut f64| {
            if slow {
                std::thread::sleep(Duration::from_millis(1));
            }
            *cell = (0.5 * cell.0 + 0.25 * cell.1, 0.0);
            *value = cell.0;
        });
        p.reduce_to(Sum, &value, &total);
        p.broadcast(&total, &mean);
        let pull = p.compute("pull").read(&mean).update(&line);
        pull.run(|mean: &f64, cell: &mut Cell| cell.0 += mean * 1e-3);
    };
    match kind {
        "counted" => p.repeat(u64::from(turns), body),
        _ => p.repeat_while(
            "more",
            &count,
            move |count: &u64| *count < u64::from(turns),
            |p| {
                body(p);
                let counts = p.compute("count").read(&total).update(&count);
                counts.run(|_: &f64, count: &mut u64| *count += 1);
            },
        ),
    }
    Ok(Built {
        program: p,
        line,
        total,
    })
}

fn bits(outcome: &mut Outcome, line: &Dataset<Cell>, total: &Dataset<f64>) -> Left {
    let cells = outcome.take_all(line).into_iter();
    let cells = cells.map(|cell| cell.0.to_bits()).collect();
    (cells, outcome.take(total).to_bits())
}

fn here(text: &str) -> Left {
    let Built {
        program,
        line,
        total,
    } = built(text.as_bytes()).unwrap();
    let mut outcome = RunOptions::new().threads(2).run(program).unwrap();
    bits(&mut outcome, &line, &total)
}

/// What a caller is told.
#[derive(Default, Debug)]
struct Lines(Vec<String>);

impl Caller for Lines {
    fn told(&mut self, line: &str) {
        self.0.push(line.to_owned());
    }
    fn check(&mut self) -> Result<(), Interrupted> {
        Ok(())
    }
    fn run_stages(&mut self, run: &mut dyn FnMut()) {
        run();
    }
}

/// A controller whose jobs are saved after so many turns, in a directory that goes with this.
struct Saved {
    controller: Mutex<Option<ControllerProcess>>,
    at: Rendezvous,
    store: tempfile::TempDir,
}

impl Saved {
    fn each(turns: u64) -> Saved {
        Saved::kept(turns, false)
    }

    /// The same, whose jobs outlive their controller.
    fn lasting(turns: u64) -> Saved {
        Saved::kept(turns, true)
    }

    fn kept(turns: u64, lasts: bool) -> Saved {
        let store = tempfile::tempdir().unwrap();
        let options = Saved::options(store.path(), turns, lasts);
        let (controller, at) = cluster::controller(options);
        Saved {
            controller: Mutex::new(Some(controller)),
            at,
            store,
        }
    }

    fn options(store: &Path, turns: u64, lasts: bool) -> ControllerOptions {
        ControllerOptions {
            snapshots: Some(SnapshotOptions {
                store: store.join("snapshots").display().to_string(),
                every: SnapshotEvery::Turns(turns),
            }),
            state: lasts.then(|| store.display().to_string()),
            ..cluster::options()
        }
    }

    /// The controller is gone.
    fn depose(&self) {
        *self.controller.lock().unwrap() = None;
    }

    /// Another one takes over, where the first was.
    fn succeed(&self, turns: u64) {
        let options = ControllerOptions {
            bind: self.at.address,
            ..Saved::options(self.store.path(), turns, true)
        };
        // The system may take a moment to give the port back.
        let deadline = Instant::now() + PATIENCE;
        let controller = loop {
            match ControllerProcess::start(options.clone()) {
                Ok(controller) => break controller,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        *self.controller.lock().unwrap() = Some(controller);
    }

    fn worker(&self) -> WorkerProcess {
        let named = |bytes: &[u8]| Ok(built(bytes)?.program);
        cluster::worker(&self.at, cluster::threads(1), Builds(named))
    }

    /// Runs a program, and meanwhile does something else; gives what it leaves, and what its caller was told.
    fn run(&self, text: &str, meanwhile: impl FnOnce()) -> (Left, Vec<String>) {
        std::thread::scope(|scope| {
            let running = scope.spawn(|| {
                let cluster = Cluster::connect(&self.at).unwrap();
                let Built {
                    program,
                    line,
                    total,
                } = built(text.as_bytes()).unwrap();
                let plan = Plan::compile(Arc::new(program), &Bindings::default()).unwrap();
                let mut lines = Lines::default();
                let outcome = cluster.run(plan, text.as_bytes(), 1, &mut lines);
                let mut outcome =
                    outcome.unwrap_or_else(|error: Error| panic!("{error}: {lines:?}"));
                (bits(&mut outcome, &line, &total), lines.0)
            });
            meanwhile();
            running.join().unwrap()
        })
    }

    /// All files below a folder of that name.
    fn files(&self, folder: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut left = vec![self.store.path().to_owned()];
        while let Some(next) = left.pop() {
            for entry in std::fs::read_dir(&next).into_iter().flatten().flatten() {
                match entry.path().is_dir() {
                    true => left.push(entry.path()),
                    false if next.ends_with(folder) => found.push(entry.path()),
                    false => {}
                }
            }
        }
        found
    }

    /// Waits until there is a snapshot after so many others.
    fn await_snapshot(&self, after: u64) {
        let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u64>().ok();
        let deadline = Instant::now() + PATIENCE;
        while !self
            .files("manifests")
            .iter()
            .any(|it| number(it) > Some(after))
        {
            assert!(Instant::now() < deadline, "no snapshot was taken");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn a_job_goes_on_from_its_snapshot_when_a_worker_is_gone() {
    for text in ["counted 9 1500 slow", "signalled 9 1500 slow"] {
        let saved = Saved::each(20);
        let (_first, _second, third) = (saved.worker(), saved.worker(), saved.worker());
        let (found, told) = saved.run(text, || {
            saved.await_snapshot(0);
            drop(third);
        });
        assert_eq!(
            found,
            here(&text.replace("slow", "fast")),
            "{text}: {told:?}"
        );
        let goes_on = |it: &String| {
            it.contains("is gone, and with it ") && it.contains("the job goes on from snapshot")
        };
        assert!(told.iter().any(goes_on), "{text}: {told:?}");
        // What was stored of a job goes with it.
        let deadline = Instant::now() + PATIENCE;
        while !(saved.files("parts").is_empty() && saved.files("manifests").is_empty()) {
            assert!(Instant::now() < deadline, "{:?}", saved.files("parts"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// All workers die one after the other, and others come.
#[test]
fn no_worker_needs_to_live_as_long_as_its_job() {
    for text in ["counted 7 1200 slow", "signalled 7 1200 slow"] {
        let saved = Saved::each(15);
        let mut workers = vec![saved.worker(), saved.worker()];
        let (found, told) = saved.run(text, || {
            for _ in 0..4 {
                let before = newest(&saved);
                saved.await_snapshot(before);
                workers.remove(0);
                workers.push(saved.worker());
            }
        });
        assert_eq!(
            found,
            here(&text.replace("slow", "fast")),
            "{text}: {told:?}"
        );
        let goes_on = told
            .iter()
            .filter(|it| it.contains("the job goes on from snapshot"));
        assert!(goes_on.count() >= 3, "{text}: {told:?}");
    }
}

fn newest(saved: &Saved) -> u64 {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u64>().ok();
    let numbers = saved.files("manifests");
    numbers.iter().filter_map(number).max().unwrap_or(0)
}

#[test]
fn a_damaged_snapshot_is_named_and_not_used() {
    let text = "counted 9 1500 slow";
    let saved = Saved::each(20);
    let (_first, second) = (saved.worker(), saved.worker());
    let (found, told) = saved.run(text, || {
        saved.await_snapshot(0);
        let mut parts = saved.files("parts");
        parts.sort();
        for part in parts {
            flip(&part);
        }
        drop(second);
    });
    assert_eq!(found, here(&text.replace("slow", "fast")), "{told:?}");
    let names =
        |it: &String| it.contains("cannot use the snapshot: snapshot") && it.contains("is damaged");
    assert!(told.iter().any(names), "{told:?}");
}

/// Changes a byte of what a part says.
fn flip(part: &Path) {
    // It may have been deleted meanwhile.
    if let Ok(mut bytes) = std::fs::read(part) {
        bytes[8] ^= 1;
        let mut permissions = std::fs::metadata(part).unwrap().permissions();
        #[allow(clippy::permissions_set_readonly_false)]
        permissions.set_readonly(false);
        let _ = std::fs::set_permissions(part, permissions);
        std::fs::write(part, bytes).unwrap();
    }
}

#[test]
fn a_job_outlives_its_controller() {
    for text in ["counted 7 900 slow", "signalled 7 900 slow"] {
        let saved = Saved::lasting(15);
        let _workers = [saved.worker(), saved.worker()];
        let (found, told) = saved.run(text, || {
            for _ in 0..3 {
                saved.await_snapshot(newest(&saved));
                saved.depose();
                std::thread::sleep(Duration::from_millis(50));
                saved.succeed(15);
            }
        });
        assert_eq!(
            found,
            here(&text.replace("slow", "fast")),
            "{text}: {told:?}"
        );
        let said = |what: &str| told.iter().filter(|it| it.contains(what)).count();
        assert_eq!(said("is gone"), 3, "{told:?}");
        assert_eq!(said("the controller is back"), 3, "{told:?}");
        // Nothing began again: each time it was taken over as it was.
        let cluster = Cluster::connect(&saved.at).unwrap();
        let events = cluster.events(0).unwrap();
        let count = |kind| events.iter().filter(|it| it.kind == kind).count();
        assert_eq!(count(EventKind::JobAdopted), 1, "{events:?}");
        assert_eq!(count(EventKind::JobBegun), 0, "{events:?}");
        drop(cluster);
        // The workers are the same, under their names.
        let cluster = Cluster::connect(&saved.at).unwrap();
        let workers = cluster.status().unwrap().workers;
        let names: Vec<String> = workers.iter().map(|it| it.id.to_string()).collect();
        assert_eq!(names, ["w1", "w2"]);
        let run = saved.run("counted 5 10 fast", || {});
        assert_eq!(run.0, here("counted 5 10 fast"));
    }
}

/// An earlier controller has died after it had noted that a job was released, and before it took away what the job had.
#[test]
fn what_a_released_job_has_left_goes_with_the_next_controller() {
    let text = "counted 7 300 slow";
    let saved = Saved::lasting(15);
    let _workers = [saved.worker(), saved.worker()];
    let (found, told) = saved.run(text, || {
        saved.await_snapshot(0);
        let manifests = saved.files("manifests");
        let cluster = manifests[0].ancestors().nth(3).unwrap();
        let left = [cluster.join("77/job"), cluster.join("77/parts/1-g0-w1-0-0")];
        std::fs::create_dir_all(left[1].parent().unwrap()).unwrap();
        left.iter()
            .for_each(|it| std::fs::write(it, "left").unwrap());
        saved.depose();
        saved.succeed(15);
        let deadline = Instant::now() + PATIENCE;
        while left.iter().any(|it| it.exists()) {
            assert!(Instant::now() < deadline, "{left:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        // What the job has that goes on is there.
        assert!(!saved.files("manifests").is_empty());
    });
    assert_eq!(found, here(&text.replace("slow", "fast")), "{told:?}");
}

#[test]
fn a_job_may_end_while_it_has_no_controller() {
    let text = "counted 7 300 slow";
    let saved = Saved::lasting(15);
    let _workers = [saved.worker(), saved.worker()];
    let (found, told) = saved.run(text, || {
        saved.await_snapshot(0);
        saved.depose();
        // Far longer than what is left of it takes.
        std::thread::sleep(Duration::from_secs(5));
        saved.succeed(15);
    });
    assert_eq!(found, here(&text.replace("slow", "fast")), "{told:?}");
    let events = Cluster::connect(&saved.at).unwrap().events(0).unwrap();
    let count = |kind| events.iter().filter(|it| it.kind == kind).count();
    assert_eq!(count(EventKind::JobAdopted), 1, "{events:?}");
    assert_eq!(count(EventKind::JobBegun), 0, "{events:?}");
}

/// The controller, and a worker while it is gone.
#[test]
fn a_job_outlives_its_controller_and_a_worker_at_once() {
    let text = "counted 7 900 slow";
    let saved = Saved::lasting(15);
    let mut workers = vec![saved.worker(), saved.worker()];
    let (found, told) = saved.run(text, || {
        saved.await_snapshot(0);
        saved.depose();
        workers.remove(0);
        saved.succeed(15);
    });
    assert_eq!(found, here(&text.replace("slow", "fast")), "{told:?}");
}

/// Whoever has heard all events of a controller asks the next one for those that are new.
#[test]
fn events_are_followed_from_one_controller_to_the_next() {
    let saved = Saved::lasting(15);
    let cluster = Cluster::connect(&saved.at).unwrap();
    let mut last = 0;
    for term in 1..=3 {
        // Others have happened by then, so numbers that began anew would be behind.
        let workers = [saved.worker(), saved.worker()];
        let deadline = Instant::now() + PATIENCE;
        let mut told = Vec::new();
        while told.len() < 3 {
            assert!(Instant::now() < deadline, "term {term}: {told:?}");
            // An answer that was on its way is lost with who gave it.
            let more = cluster.events(last).unwrap_or_default();
            last = more.last().map_or(last, |it| it.number);
            told.extend(more.into_iter().map(|it| (it.kind, it.cause)));
            std::thread::sleep(Duration::from_millis(20));
        }
        let first = (EventKind::TookOver, Some(format!("term {term}")));
        assert_eq!(told[0], first, "{told:?}");
        drop(workers);
        saved.depose();
        saved.succeed(15);
    }
}

/// Who comes second in a term ends, and what it has promised is not kept.
#[test]
fn a_controller_that_another_has_succeeded_is_deposed() {
    let saved = Saved::lasting(15);
    let options = Saved::options(saved.store.path(), 15, true);
    let second = ControllerProcess::start(options).unwrap();
    let first = saved.controller.lock().unwrap().take().unwrap();
    assert!(!first.is_deposed(), "it has not tried to log anything");
    let _worker = saved.worker();
    let cluster = Cluster::connect(&saved.at).unwrap();
    let text = "counted 5 10 fast";
    let Built { program, .. } = built(text.as_bytes()).unwrap();
    let plan = Plan::compile(Arc::new(program), &Bindings::default()).unwrap();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut caller = UntilDropped(Instant::now() + Duration::from_secs(2));
            cluster.run(plan, text.as_bytes(), 1, &mut caller).is_ok()
        });
        let deadline = Instant::now() + PATIENCE;
        while !first.is_deposed() {
            assert!(Instant::now() < deadline, "it is not deposed");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!asking.join().unwrap(), "nothing begins");
    });
    assert!(!second.is_deposed());
}

/// Interrupts after a time.
struct UntilDropped(Instant);

impl Caller for UntilDropped {
    fn check(&mut self) -> Result<(), Interrupted> {
        match Instant::now() < self.0 {
            true => Ok(()),
            false => Err(Interrupted),
        }
    }
    fn run_stages(&mut self, run: &mut dyn FnMut()) {
        run();
    }
}
