//! Runs simulations at once, as many as there are CPUs, and shows how far they are.
//!
//! It asks whoever runs them for interruptions meanwhile. The line goes to standard error, and only where that is a terminal.

use brambling_machine::units;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Between two looks at how far runs are, and whether to go on.
const LOOKS: Duration = Duration::from_millis(50);
/// Before that nothing says how long the rest takes.
const LEFT_FROM: Duration = Duration::from_secs(1);
/// Parts of the line.
const STEPS: f64 = 1000.0;
/// So many runs are named in it: it stays one line.
const NAMES_MOST: usize = 2;

/// What a run asks from time to time, telling which share of it is done: whether to go on.
pub(super) type GoesOn<'g> = &'g mut dyn FnMut(f64) -> bool;

/// A run. It gives nothing if it was told not to go on.
pub(super) struct SimulationRun<'a, T> {
    pub(super) name: String,
    /// How long it is beside others.
    pub(super) weight: f64,
    pub(super) run: Box<dyn FnOnce(GoesOn<'_>) -> Option<T> + Send + 'a>,
}

/// Who waits for runs.
pub(super) struct RunsCaller<'w> {
    /// Whether the user has asked to stop since the last call.
    pub(super) interrupted: &'w mut dyn FnMut() -> bool,
    /// Whether a terminal shows how far runs are.
    pub(super) is_shown: bool,
}

/// What all threads see.
struct RunsProgress {
    stops: AtomicBool,
    next: AtomicUsize,
    /// Of each run, which share of it is done, as bits.
    shares: Vec<AtomicU64>,
}

/// Runs all. `each` is told of a run that has ended, here, while others go on, and says whether to go on; what they gave
/// comes in the order of the jobs. None: the user does not want to wait, or `each` said no.
pub(super) fn run_all<T: Send>(
    jobs: Vec<SimulationRun<'_, T>>,
    waits: &mut RunsCaller<'_>,
    each: &mut dyn FnMut(usize, &T) -> bool,
) -> Option<Vec<T>> {
    let count = jobs.len();
    let line = RunsLine::of(&jobs, waits.is_shown);
    let progress = RunsProgress {
        stops: AtomicBool::new(false),
        next: AtomicUsize::new(0),
        shares: jobs.iter().map(|_| AtomicU64::new(0)).collect(),
    };
    let jobs: Vec<_> = jobs.into_iter().map(|job| Mutex::new(Some(job))).collect();
    let threads = std::thread::available_parallelism().map_or(1, |it| it.get());
    let mut found: Vec<Option<T>> = jobs.iter().map(|_| None).collect();
    std::thread::scope(|scope| {
        let (sends, ends) = mpsc::channel();
        for _ in 0..threads.min(count) {
            let (sends, jobs, progress) = (sends.clone(), &jobs, &progress);
            scope.spawn(move || run_some(jobs, progress, &sends));
        }
        drop(sends);
        loop {
            match ends.recv_timeout(LOOKS) {
                Ok((at, done)) => {
                    if !each(at, &done) {
                        progress.stops.store(true, Ordering::Relaxed);
                    }
                    found[at] = Some(done);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            line.show(&progress);
            if (waits.interrupted)() {
                progress.stops.store(true, Ordering::Relaxed);
            }
        }
    });
    line.end();
    found.into_iter().collect()
}

/// Stops all where a run panics: nobody waits for the others first.
struct StopsOnPanic<'p>(&'p RunsProgress);

impl Drop for StopsOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stops.store(true, Ordering::Relaxed);
        }
    }
}

/// One thread's share: whatever nobody has begun.
fn run_some<T: Send>(
    jobs: &[Mutex<Option<SimulationRun<'_, T>>>],
    progress: &RunsProgress,
    sends: &mpsc::Sender<(usize, T)>,
) {
    let _stops = StopsOnPanic(progress);
    let goes_on = |at: usize, share: f64| {
        progress.shares[at].store(share.to_bits(), Ordering::Relaxed);
        !progress.stops.load(Ordering::Relaxed)
    };
    loop {
        let at = progress.next.fetch_add(1, Ordering::Relaxed);
        let Some(job) = jobs.get(at) else {
            return;
        };
        let job = job.lock().unwrap_or_else(PoisonError::into_inner).take();
        let run = job.expect("each is taken once").run;
        let Some(done) = run(&mut |share| goes_on(at, share)) else {
            return;
        };
        if !goes_on(at, 1.0) || sends.send((at, done)).is_err() {
            return;
        }
    }
}

/// What a terminal shows.
struct RunsLine {
    bar: Option<ProgressBar>,
    weights: Vec<f64>,
    names: Vec<String>,
    begun: Instant,
}

impl RunsLine {
    fn of<T>(jobs: &[SimulationRun<'_, T>], is_shown: bool) -> RunsLine {
        let style = || {
            let style = ProgressStyle::with_template("{bar:24} {percent:>3} %  {msg}");
            style.expect("a template")
        };
        let is_seen = is_shown && std::io::stderr().is_terminal();
        RunsLine {
            bar: is_seen.then(|| ProgressBar::new(STEPS as u64).with_style(style())),
            weights: jobs.iter().map(|job| job.weight).collect(),
            names: jobs.iter().map(|job| job.name.clone()).collect(),
            begun: Instant::now(),
        }
    }

    fn show(&self, progress: &RunsProgress) {
        let Some(bar) = &self.bar else {
            return;
        };
        let shares = progress.shares.iter();
        let shares: Vec<f64> = shares
            .map(|share| f64::from_bits(share.load(Ordering::Relaxed)))
            .collect();
        let weighted = shares.iter().zip(&self.weights);
        let done = weighted.map(|(share, weight)| share * weight).sum::<f64>()
            / self.weights.iter().sum::<f64>();
        let running = shares.iter().zip(&self.names);
        let running: Vec<&str> = running
            .filter(|(share, _)| **share > 0.0 && **share < 1.0)
            .map(|(_, name)| &name[..])
            .collect();
        let ended = shares.iter().filter(|it| **it >= 1.0).count();
        let mut text = format!("{ended} of {}", shares.len());
        let elapsed = self.begun.elapsed();
        if elapsed >= LEFT_FROM && done > 0.0 {
            let left = elapsed.as_secs_f64() * (1.0 - done) / done;
            text.push_str(&format!("  {} left", units::seconds(left)));
        }
        text.push_str(&format!(
            "  {}",
            running[..running.len().min(NAMES_MOST)].join(", ")
        ));
        bar.set_position((done * STEPS) as u64);
        bar.set_message(text);
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
