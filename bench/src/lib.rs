//! Benches, each printed next to its limit: what the same machine does for a hand-written loop in
//! the same run.

pub mod limits;
mod report;
mod session;
mod sweep;
pub mod task_graph;

mod benches;

pub use report::{Figures, Limit, Line, PatternFigures, Report};

/// How a bench is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Threads of the engine and of every limit. Unset: as any job's.
    pub threads: Option<u32>,
    /// Tiny sizes and one round: shows that the bench works, and says nothing about speed.
    pub smoke: bool,
}

impl Options {
    /// As a user runs it.
    pub fn new() -> Options {
        Options::default()
    }

    /// On so many threads.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Options {
        self.threads = Some(threads);
        self
    }

    /// Tiny sizes and one round.
    #[must_use]
    pub fn smoke(mut self, smoke: bool) -> Options {
        self.smoke = smoke;
        self
    }
}

/// Why a bench gave no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// There is no such bench.
    #[error("there is no bench {name:?}; there are {}", names().join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The user interrupted it.
    #[error("interrupted")]
    Interrupted,
    /// The engine refused or ended a job.
    #[error(transparent)]
    Job(#[from] brambling::Error),
    /// A limit or ours computed something else than it should have: its figures say nothing.
    #[error("{bench}: {what}")]
    Wrong {
        /// The bench.
        bench: &'static str,
        /// What was found and what was expected.
        what: String,
    },
    /// What the machine has cannot be found out.
    #[error("the CPUs of this process cannot be read")]
    Machine(#[source] std::io::Error),
}

/// The benches.
pub fn names() -> Vec<&'static str> {
    benches::ALL.iter().map(|bench| bench.name).collect()
}

/// The benches with a line on each.
pub fn descriptions() -> Vec<(&'static str, &'static str)> {
    benches::ALL
        .iter()
        .map(|bench| (bench.name, bench.claim))
        .collect()
}

/// Runs a bench. `interrupted` is asked every few milliseconds while the engine runs, and between
/// measurements.
///
/// # Errors
/// Interrupted, refused by the engine, or a result that is not what it should be.
pub fn run(
    name: &str,
    options: &Options,
    interrupted: &mut dyn FnMut() -> bool,
) -> Result<Report, BenchError> {
    let bench = benches::ALL
        .iter()
        .find(|bench| bench.name == name)
        .ok_or_else(|| BenchError::Unknown {
            name: name.to_owned(),
        })?;
    let mut session = session::Session::new(bench.name, options, interrupted)?;
    (bench.run)(&mut session)
}
