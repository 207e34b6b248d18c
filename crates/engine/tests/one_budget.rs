//! The jobs of one process share its memory, and what does not fit is refused before it is sent.
//!
//! Catches jobs that begin without room, that wait without being told why, or for ever, and arrays that nobody counts. What a process really takes
//! the Python package's tests look at, whose workers are processes.

mod support;

use brambling::cluster::Cluster;
use brambling::ml::LogisticRegression;
use brambling::prelude::*;
use brambling::{Caller, Error, Failure, Interrupted, QuietCaller};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};
use support::cluster::{Builds, PATIENCE, controller, options, threads_and_memory, worker};

/// The jobs of this process are told apart by their budget: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Holds so many numbers, and ends when it is told to.
fn holding(name: &str, numbers: usize, until: &Arc<AtomicBool>) -> Program {
    let mut p = Program::new(name);
    let goes_on = p.value("goes on", 1, true);
    p.load("held", 1, Partitioner::Opaque, move |_, _| {
        vec![0u64; numbers]
    });
    let until = until.clone();
    let deadline = Instant::now() + PATIENCE;
    p.repeat_while(
        "until",
        &goes_on,
        |goes_on| *goes_on,
        |p| {
            p.compute("look")
                .update(&goes_on)
                .run(move |goes_on: &mut bool| {
                    std::thread::sleep(Duration::from_millis(1));
                    *goes_on = !until.load(Ordering::Relaxed) && Instant::now() < deadline;
                });
        },
    );
    p
}

/// Passes on why its job waits, and may have enough of that.
struct Told {
    waits: mpsc::Sender<String>,
    ends: Arc<AtomicBool>,
}

impl Caller for Told {
    fn waits(&mut self, why: &str, _: Duration) {
        let _ = self.waits.send(why.to_owned());
    }
    fn check(&mut self) -> Result<(), Interrupted> {
        match self.ends.load(Ordering::Relaxed) {
            true => Err(Interrupted),
            false => Ok(()),
        }
    }
}

/// Two jobs of one process, each in a thread of its own: the first holds much, the second waits and says so; then `act` is told how to end each.
/// Gives how they ended.
fn one_after_another(
    first_numbers: usize,
    act: impl FnOnce(&mpsc::Receiver<String>, &AtomicBool, &AtomicBool),
) -> [Result<(), Error>; 2] {
    let (over, cancelled) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let options = RunOptions::new().threads(2).memory("16MB");
    std::thread::scope(|scope| {
        let began = Arc::new(AtomicBool::new(false));
        let (first, second) = (holding("first", first_numbers, &over), {
            let at_once = Arc::new(AtomicBool::new(true));
            holding("second", 1_000, &at_once)
        });
        let begins = began.clone();
        let begun = Begun(begins);
        let (one, two) = (options.clone(), options.clone());
        let one = scope.spawn(move || one.run_with(first, &mut { begun }).map(drop));
        let deadline = Instant::now() + PATIENCE;
        while !began.load(Ordering::Relaxed) {
            assert!(Instant::now() < deadline, "the first has not begun");
            std::thread::sleep(Duration::from_millis(1));
        }
        let (waits, told) = mpsc::channel();
        let ends = cancelled.clone();
        let two = scope.spawn(move || two.run_with(second, &mut Told { waits, ends }).map(drop));
        act(&told, &over, &cancelled);
        [one, two].map(|job| job.join().unwrap())
    })
}

/// Notes that its job runs tasks.
struct Begun(Arc<AtomicBool>);

impl Caller for Begun {
    fn advanced(&mut self, advance: brambling::Advance<'_>) {
        if advance.tasks > 0 {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    fn check(&mut self) -> Result<(), Interrupted> {
        Ok(())
    }
}

#[test]
fn a_job_waits_for_room_and_says_so_until_another_ends() {
    let _alone = alone();
    let ended = one_after_another(1_700_000, |told, over, _| {
        let why = told.recv_timeout(PATIENCE).unwrap();
        assert!(
            why.contains("waits for memory") && why.contains("of 16777216 are taken"),
            "{why}"
        );
        over.store(true, Ordering::Relaxed);
    });
    for ended in ended {
        ended.unwrap();
    }
}

#[test]
fn a_job_that_waits_is_cancelled() {
    let _alone = alone();
    let [first, second] = one_after_another(1_700_000, |told, over, cancelled| {
        told.recv_timeout(PATIENCE).unwrap();
        cancelled.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + PATIENCE;
        // It has left: nobody tells why it waits.
        while told.recv_timeout(Duration::from_secs(2)).is_ok() {
            assert!(Instant::now() < deadline, "it waits on");
        }
        over.store(true, Ordering::Relaxed);
    });
    first.unwrap();
    assert!(
        matches!(second, Err(Error::Failure(Failure::Interrupted))),
        "{second:?}"
    );
}

#[test]
fn two_jobs_that_fit_run_side_by_side() {
    let _alone = alone();
    let ended = one_after_another(100_000, |told, over, _| {
        // The second ends beside the first, and so its caller is dropped.
        let ended = told.recv_timeout(PATIENCE);
        assert_eq!(ended, Err(mpsc::RecvTimeoutError::Disconnected));
        over.store(true, Ordering::Relaxed);
    });
    for ended in ended {
        ended.unwrap();
    }
}

/// Rows of four columns, with labels.
fn samples(rows: usize) -> (Vec<f64>, Vec<f64>) {
    let x = (0..rows * 4)
        .map(|at| (at * 7 % 31) as f64 / 31.0)
        .collect();
    let y = (0..rows)
        .map(|row| f64::from(u8::from(row * 5 % 7 > 3)))
        .collect();
    (x, y)
}

#[test]
fn arrays_that_are_handed_over_count() {
    let _alone = alone();
    let fit = |memory: &str| {
        let (x, y) = samples(100_000);
        let options = RunOptions::new().threads(2).memory(memory);
        LogisticRegression::default()
            .fit_owned(x, y, 4, &options)
            .map(drop)
    };
    fit("16MB").unwrap();
    let told = fit("2MB").unwrap_err().to_string();
    assert!(
        told.contains("ran out of memory: resident data asked for"),
        "{told}"
    );
}

#[test]
fn what_does_not_fit_on_workers_is_refused_before_it_is_sent() {
    let (_controller, at) = controller(options());
    let _workers = [0, 1].map(|_| {
        worker(
            &at,
            threads_and_memory(1, "1MB"),
            Builds(|_: &[u8]| Err("no recipe".into())),
        )
    });
    let cluster = Arc::new(Cluster::connect(&at).unwrap());
    let on = RunOptions::new().on(&cluster);
    // Forty bytes a row, half of them for each.
    let (x, y) = samples(50_000);
    let told = LogisticRegression::default()
        .fit_owned(x, y, 4, &on)
        .unwrap_err()
        .to_string();
    for part in [
        "1000000 bytes of rows to w1",
        "of the 1048576 bytes",
        "nothing was sent",
        "--memory",
    ] {
        assert!(told.contains(part), "{told}");
    }
    // Less of it fits, on the same workers, and more of it than one of them has room for.
    let (x, y) = samples(8 * 4_096);
    LogisticRegression::default()
        .fit_owned(x, y, 4, &on)
        .unwrap();
}

#[test]
fn a_job_of_a_cluster_waits_for_room_and_says_so() {
    let (_controller, at) = controller(options());
    let over = Arc::new(AtomicBool::new(false));
    let build = {
        let over = over.clone();
        move |bytes: &[u8]| {
            let at_once = Arc::new(AtomicBool::new(true));
            Ok(match bytes {
                b"first" => holding("first", 1_700_000, &over),
                _ => holding("second", 1_000, &at_once),
            })
        }
    };
    let _workers =
        [0, 1].map(|_| worker(&at, threads_and_memory(1, "16MB"), Builds(build.clone())));
    let run = |bytes: &'static [u8], caller: &mut dyn Caller| {
        let cluster = Arc::new(Cluster::connect(&at).unwrap());
        let on = RunOptions::new().on(&cluster).described_by(bytes);
        on.run_with(build(bytes).unwrap(), caller).map(drop)
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| run(b"first", &mut QuietCaller));
        let cluster = Cluster::connect(&at).unwrap();
        let deadline = Instant::now() + PATIENCE;
        // The workers say what it takes with their heartbeats.
        while !(cluster.status().unwrap().workers.iter()).any(|it| it.memory_bytes > 13_000_000) {
            assert!(Instant::now() < deadline, "the first has not begun");
            std::thread::sleep(Duration::from_millis(10));
        }
        let (waits, told) = mpsc::channel();
        let ends = Arc::default();
        let second = scope.spawn(|| run(b"second", &mut Told { waits, ends }));
        let why = told.recv_timeout(PATIENCE).unwrap();
        assert!(
            why.starts_with("job j2 waits for memory on w") && why.contains("--memory"),
            "{why}"
        );
        let status = cluster.status().unwrap();
        assert!(
            status.jobs[1]
                .waits
                .as_ref()
                .is_some_and(|why| why.starts_with("memory on w"))
        );
        assert!(cluster.jobs().unwrap()[1].status.waits.is_some());
        over.store(true, Ordering::Relaxed);
        first.join().unwrap().unwrap();
        second.join().unwrap().unwrap();
    });
}
