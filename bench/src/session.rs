//! One run of a bench: its options resolved, interruptions and errors carried through the rounds.

use crate::cluster::Running;
use crate::described::Described;
use crate::report::{Figures, Limit, Line, Report};
use crate::{BenchError, Options};
use brambling::cluster::{BALANCE_EACH, Cluster};
use brambling::graph::AnalysisError;
use brambling::map_reduce::MapReduceError;
use brambling::ml::FitError;
use brambling::program::Program;
use brambling::sort::SortError;
use brambling::{Caller, Failure, Interrupted, Outcome, RunOptions, Settings, TaskTimes};
use brambling_machine::cpu::{self, Processor};
use brambling_machine::measure::Measured;
use brambling_machine::probes::{indirect_call_ns, polled_round_trip_us, spin_round_trip_us};
use brambling_machine::{IsaLevel, Rounds};
use std::cell::Cell;
use std::sync::Arc;

/// What the closures of the rounds share.
pub(crate) struct Session<'a> {
    pub(crate) bench: &'static str,
    /// Of the engine and of every limit, over all workers.
    pub(crate) threads: u32,
    /// Where the threads of the limits are pinned.
    pub(crate) places: Vec<usize>,
    pub(crate) options: Options,
    cpu: String,
    interrupted: &'a mut dyn FnMut() -> bool,
    /// The first thing that went wrong; nothing is measured after it.
    failed: Option<BenchError>,
}

/// What the engine is told about a job; what it is not told it decides as for any job.
#[derive(Clone, Default)]
pub(crate) struct How {
    pub(crate) partitions: Option<u32>,
    pub(crate) times: Option<TaskTimes>,
    /// On these workers, who make the program of the description; none: in this process.
    pub(crate) on: Option<(Arc<Cluster>, Described)>,
}

/// Asks the bench's caller while a job runs.
struct Ask<'s>(&'s mut dyn FnMut() -> bool);

impl Caller for Ask<'_> {
    fn check(&mut self) -> Result<(), Interrupted> {
        if (self.0)() { Err(Interrupted) } else { Ok(()) }
    }
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        bench: &'static str,
        options: &Options,
        interrupted: &'a mut dyn FnMut() -> bool,
    ) -> Result<Session<'a>, BenchError> {
        let mut settings = Settings::default();
        settings.threads = options.threads;
        let threads = match options.workers {
            Some(workers) => workers * options.threads.unwrap_or(1),
            None => settings.resolve().map_err(brambling::Error::from)?.threads,
        };
        let processor = Processor::read().map_err(BenchError::Machine)?;
        Ok(Session {
            bench,
            threads,
            places: cpu::places(threads as usize).map_err(BenchError::Machine)?,
            options: options.clone(),
            cpu: processor.model.unwrap_or_else(|| "unknown".to_owned()),
            interrupted,
            failed: None,
        })
    }

    /// Seven rounds; one when only the bench itself is tried.
    pub(crate) fn rounds<'r>(&self) -> Samples<'r, 'a> {
        Samples(match (self.options.smoke, self.options.rounds) {
            (true, _) => Rounds::new().rounds(1).repeats_max(0),
            (false, None) => Rounds::new(),
            (false, Some(rounds)) => Rounds::new().rounds(rounds as usize),
        })
    }

    /// Runs rounds to their end, or to the first error.
    pub(crate) fn measure(&mut self, rounds: Samples<'_, 'a>) -> Result<Measured, BenchError> {
        let measured = rounds.0.run(self);
        match self.failed.take() {
            Some(error) => Err(error),
            None => Ok(measured),
        }
    }

    /// Takes a sample, unless something has gone wrong before.
    fn sample(&mut self, take: impl FnOnce(&mut Self) -> Result<f64, BenchError>) -> f64 {
        if self.failed.is_none() && (self.interrupted)() {
            self.failed = Some(BenchError::Interrupted);
        }
        // The rounds go on with a constant, which ends them fast.
        const NOTHING: f64 = 1.0;
        if self.failed.is_some() {
            return NOTHING;
        }
        take(self).unwrap_or_else(|error| {
            self.failed = Some(error);
            NOTHING
        })
    }

    /// Runs a program on `threads` threads.
    pub(crate) fn run(&mut self, program: Program, threads: u32) -> Result<Outcome, BenchError> {
        let options = RunOptions::new().threads(threads);
        options
            .run_with(program, &mut Ask(self.interrupted))
            .map_err(|error| self.job_error(error))
    }

    /// Starts the workers that were asked for.
    pub(crate) fn start_workers(&self, workers: u32) -> Result<Running, BenchError> {
        let threads = self.options.threads.unwrap_or(1);
        Running::start(&self.options.command, workers, threads, Some(BALANCE_EACH))
    }

    /// Starts workers with so many threads each, whose shards stay where they are.
    pub(crate) fn start_fixed_workers(
        &self,
        workers: u32,
        threads: u32,
    ) -> Result<Running, BenchError> {
        Running::start(&self.options.command, workers, threads, None)
    }

    /// Sorts, makes or checks files.
    pub(crate) fn sort<T>(
        &mut self,
        sort: impl FnOnce(&mut dyn Caller) -> Result<T, SortError>,
    ) -> Result<T, BenchError> {
        sort(&mut Ask(self.interrupted)).map_err(|error| match error {
            SortError::Run(error) => self.job_error(error),
            refused => BenchError::Sort(Box::new(refused)),
        })
    }

    /// Runs a program on workers, who make it of the description.
    pub(crate) fn run_on(
        &mut self,
        running: &Running,
        program: Program,
        described: &Described,
    ) -> Result<Outcome, BenchError> {
        self.run_watched(running, program, described, &mut || {})
    }

    /// Runs a program on workers, who link it.
    pub(crate) fn run_linked(
        &mut self,
        running: &Running,
        program: Program,
    ) -> Result<Outcome, BenchError> {
        let options = RunOptions::new().on(&running.cluster);
        options
            .run_with(program, &mut Ask(self.interrupted))
            .map_err(|error| self.job_error(error))
    }

    /// The same, while `look` is called some fifty times a second.
    pub(crate) fn run_watched(
        &mut self,
        running: &Running,
        program: Program,
        described: &Described,
        look: &mut dyn FnMut(),
    ) -> Result<Outcome, BenchError> {
        let mut looking = || {
            look();
            (self.interrupted)()
        };
        let options = RunOptions::new().on(&running.cluster);
        options
            .described_by(described.bytes())
            .run_with(program, &mut Ask(&mut looking))
            .map_err(|error| self.job_error(error))
    }

    fn run_options(&self, how: &How) -> RunOptions {
        let mut options = match &how.on {
            None => RunOptions::new().threads(self.threads),
            Some((cluster, described)) => {
                let options = RunOptions::new().on(cluster);
                options.described_by(described.bytes())
            }
        };
        if let Some(partitions) = how.partitions {
            options = options.partitions(partitions).grid(partitions);
        }
        if let Some(times) = &how.times {
            options = options.task_times(times);
        }
        options
    }

    /// Fits a model on the session's threads.
    pub(crate) fn fit<T>(
        &mut self,
        how: &How,
        fit: impl FnOnce(&RunOptions, &mut dyn Caller) -> Result<T, FitError>,
    ) -> Result<T, BenchError> {
        let options = self.run_options(how);
        fit(&options, &mut Ask(self.interrupted)).map_err(|error| match error {
            FitError::Run(error) => self.job_error(error),
            refused => BenchError::Wrong {
                bench: self.bench,
                what: format!("the fit was refused: {refused}"),
            },
        })
    }

    /// Works on a graph, on the session's threads.
    pub(crate) fn analyse<T>(
        &mut self,
        how: &How,
        analyse: impl FnOnce(&RunOptions, &mut dyn Caller) -> Result<T, AnalysisError>,
    ) -> Result<T, BenchError> {
        let options = self.run_options(how);
        analyse(&options, &mut Ask(self.interrupted)).map_err(|error| match error {
            AnalysisError::Run(error) => self.job_error(error),
            refused => BenchError::Wrong {
                bench: self.bench,
                what: format!("the graph was refused: {refused}"),
            },
        })
    }

    /// Reduces text, on the session's threads.
    pub(crate) fn reduce<T>(
        &mut self,
        how: &How,
        reduce: impl FnOnce(&RunOptions, &mut dyn Caller) -> Result<T, MapReduceError>,
    ) -> Result<T, BenchError> {
        let options = self.run_options(how);
        reduce(&options, &mut Ask(self.interrupted)).map_err(|error| match error {
            MapReduceError::Run(error) => self.job_error(error),
            refused => BenchError::Wrong {
                bench: self.bench,
                what: format!("the text was refused: {refused}"),
            },
        })
    }

    /// The system does not give what a limit needs.
    pub(crate) fn system(&self, error: std::io::Error) -> BenchError {
        BenchError::Machine(error)
    }

    fn job_error(&self, error: brambling::Error) -> BenchError {
        match error {
            brambling::Error::Failure(Failure::Interrupted) => BenchError::Interrupted,
            other => other.into(),
        }
    }

    /// Refuses a result that is not what it should be.
    pub(crate) fn check(
        &self,
        holds: bool,
        what: impl FnOnce() -> String,
    ) -> Result<(), BenchError> {
        if holds {
            return Ok(());
        }
        Err(BenchError::Wrong {
            bench: self.bench,
            what: what(),
        })
    }

    /// The report of this run.
    pub(crate) fn report(
        &self,
        counts: Counts,
        figures: Figures,
        limits: Vec<Limit>,
        lines: Vec<Line>,
    ) -> Report {
        Report {
            bench: self.bench,
            version: env!("CARGO_PKG_VERSION"),
            cpu: self.cpu.clone(),
            isa: IsaLevel::detect().name(),
            threads: self.threads,
            smoke: self.options.smoke,
            rounds: counts.rounds,
            repeated: counts.repeated,
            unsettled: counts.unsettled,
            figures,
            task_times: None,
            limits,
            lines,
            tables: Vec::new(),
        }
    }
}

/// Rounds of samples of which each can fail: after the first that does nothing is measured.
pub(crate) struct Samples<'r, 'a>(Rounds<'r, Session<'a>>);

impl<'r, 'a> Samples<'r, 'a> {
    /// A loop of a group of limits, of which the best counts.
    pub(crate) fn limit(
        self,
        group: &str,
        name: &str,
        mut take: impl FnMut(&mut Session<'a>) -> Result<f64, BenchError> + 'r,
    ) -> Self {
        let sample = move |session: &mut Session<'a>| session.sample(&mut take);
        Samples(self.0.limit(group, name, sample))
    }

    /// The limit that a probe measures.
    pub(crate) fn beside(self, probe: &Probe) -> Self {
        let take = probe.take;
        self.limit(probe.name, probe.name, move |session| {
            take().map_err(|error| session.system(error))
        })
    }

    /// What is measured once a round.
    pub(crate) fn ours(
        self,
        name: &str,
        mut take: impl FnMut(&mut Session<'a>) -> Result<f64, BenchError> + 'r,
    ) -> Self {
        let sample = move |session: &mut Session<'a>| session.sample(&mut take);
        Samples(self.0.ours(name, sample))
    }

    /// What an earlier sample of the round has noted.
    pub(crate) fn noted(self, name: &str, noted: &'r Cell<f64>) -> Self {
        self.ours(name, |_| Ok(noted.get()))
    }

    /// No round is repeated.
    pub(crate) fn no_repeats(self) -> Self {
        Samples(self.0.repeats_max(0))
    }
}

/// A limit that one probe of the machine measures.
pub(crate) struct Probe {
    pub(crate) name: &'static str,
    line: &'static str,
    take: fn() -> std::io::Result<f64>,
}

/// In microseconds.
pub(crate) const SPIN: Probe = Probe {
    name: "spin-round-trip",
    line: "limit: a word to another core and back",
    take: || Ok(spin_round_trip_us()),
};

/// In microseconds.
pub(crate) const POLLED: Probe = Probe {
    name: "polled-round-trip",
    line: "limit: a word over loopback TCP and back, polled",
    take: polled_round_trip_us,
};

/// In nanoseconds.
pub(crate) const CALL: Probe = Probe {
    name: "indirect-call",
    line: "limit: an indirect call",
    take: || Ok(indirect_call_ns()),
};

impl Probe {
    /// What it found, as a limit and as a line, in a unit that is `scale` times the probe's.
    pub(crate) fn found(
        &self,
        measured: &Measured,
        scale: f64,
        unit: &'static str,
    ) -> (Limit, Line) {
        let limit = limit(measured, self.name, scale, unit);
        let line = Line::new(self.line, limit.figure, unit);
        (limit, line)
    }
}

/// What a turn takes, by two jobs of so many turns: what a job costs to begin is in both.
pub(crate) fn of_a_turn(
    [few, many]: [u64; 2],
    mut job: impl FnMut(u64) -> Result<f64, BenchError>,
) -> Result<f64, BenchError> {
    let (short, long) = (job(few)?, job(many)?);
    Ok((long - short) / (many - few) as f64)
}

/// Rounds of one or several measurements.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    /// The fewest of any measurement.
    rounds: usize,
    repeated: usize,
    unsettled: usize,
}

impl Counts {
    pub(crate) fn of<'m>(measured: impl IntoIterator<Item = &'m Measured>) -> Counts {
        let mut counts = Counts {
            rounds: usize::MAX,
            ..Counts::default()
        };
        for measured in measured {
            counts.rounds = counts.rounds.min(measured.rounds);
            counts.repeated += measured.repeated;
            counts.unsettled += measured.unsettled;
        }
        counts
    }
}

/// The figure of a limit's loop, named as it was in the rounds, in another unit.
pub(crate) fn limit(measured: &Measured, name: &str, scale: f64, unit: &'static str) -> Limit {
    Limit {
        name: name.to_owned(),
        unit,
        figure: measured.figure(name).scaled(scale),
    }
}
