//! Lines that match a pattern, in files, by all threads of this process or of a cluster.
//!
//! This module owns the driver: it lists the files, runs the search, and tells what is found in order, while the job runs.
//! The command `brambling grep` calls it. It prints nothing; what is told goes to a [`GrepListener`].
//!
//! In one process results come as they are found, and no more than a fixed number of bytes wait to be told. On a cluster
//! workers keep them until the job is over; more than they may keep ends the job with an error.

mod collector;
mod links;
mod own;
mod telling;

use crate::cluster::ClusterError;
use crate::{Caller, Error, Failure, Interrupted, RunOptions};
pub use brambling_operators::grep::BLOCK_BYTES;
use brambling_operators::grep::lane::{self, LaneFound, LaneParameters};
pub use brambling_operators::grep::listing::{GlobError, GrepListing, GrepPaths, ListedFile};
pub use brambling_operators::grep::query::{GrepQuery, LineMatcher, PatternError, WantedOfLines};
pub use brambling_operators::grep::stitch::{FileStitch, GrepLine};
pub use brambling_operators::grep::units::UNIT_BYTES;
use brambling_operators::grep::units::{self, GrepUnit};
use brambling_program::Program;
use collector::{Collector, HELD_BYTES, NextFound};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use telling::Telling;

/// Lanes for each thread: while one waits for its file the other searches.
const LANES_PER_THREAD: u32 = 2;
/// Units that a lane may be ahead of what is told.
const UNITS_AHEAD: u64 = 4;
/// How often the driver asks whether it is to go on.
const DRIVER_LOOKS: Duration = Duration::from_millis(20);
/// How often lanes that wait for a reader are called, so that the job does not pass for stalled.
const NUDGES: Duration = Duration::from_secs(1);
/// What workers of a cluster keep, in bytes, all lanes together.
const KEPT_BYTES: u64 = 256 << 20;

/// A search, and where it is made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Grep {
    /// For what.
    pub query: GrepQuery,
    /// Where.
    pub paths: GrepPaths,
    /// Bytes of the parts that files are cut into, at least 1. Results do not depend on it.
    pub unit_bytes: u64,
    /// Bytes that are read at a time, at least 1. Nor on this.
    pub block_bytes: usize,
}

impl Grep {
    /// A search with parts and blocks of the usual size.
    pub fn new(query: GrepQuery, paths: GrepPaths) -> Grep {
        Grep {
            query,
            paths,
            unit_bytes: UNIT_BYTES,
            block_bytes: BLOCK_BYTES,
        }
    }
}

/// Hears what a search finds: files in the order of the listing, lines in theirs.
pub trait GrepListener {
    /// A file comes next.
    fn begin(&mut self, _file: &ListedFile) {}
    /// A line of it.
    fn line(&mut self, file: &ListedFile, line: &GrepLine<'_>);
    /// No more of it comes. Of a file of which nothing could be read this is not told.
    fn end(&mut self, _file: &ListedFile, _found: &FileStitch, _searched_bytes: u64) {}
    /// A file cannot be searched, or not to its end. The search goes on with the others.
    fn trouble(&mut self, file: &ListedFile, why: &str);
    /// Whether the search is to go on. Asked now and then.
    fn goes_on(&mut self) -> bool;
}

/// What a search came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GrepSummary {
    /// Files that were searched, at least in part.
    pub files: u64,
    /// Files with a selected line.
    pub matched_files: u64,
    /// Selected lines.
    pub selected: u64,
    /// Bytes that were searched; of compressed files what they decompress to.
    pub searched_bytes: u64,
    /// Files in trouble.
    pub troubles: u64,
}

/// Why a search was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrepError {
    /// A pattern is none.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// A glob is none.
    #[error(transparent)]
    Glob(#[from] GlobError),
    /// The job failed.
    #[error(transparent)]
    Run(#[from] Error),
}

/// Searches files. `listener` hears what is found, and ends the search early when it likes.
///
/// ```
/// use brambling::RunOptions;
/// use brambling::grep::{Grep, GrepLine, GrepListener, GrepPaths, GrepQuery, ListedFile, grep};
///
/// struct Lines(Vec<u64>);
/// impl GrepListener for Lines {
///     fn line(&mut self, _: &ListedFile, line: &GrepLine<'_>) {
///         self.0.push(line.number);
///     }
///     fn trouble(&mut self, file: &ListedFile, why: &str) {
///         panic!("{file:?}: {why}");
///     }
///     fn goes_on(&mut self) -> bool {
///         true
///     }
/// }
///
/// let file = std::env::temp_dir().join(format!("brambling-grep-{}", std::process::id()));
/// std::fs::write(&file, "to be\nor not\nto be\n")?;
/// let mut query = GrepQuery { numbers: true, ..GrepQuery::default() };
/// query.add_patterns("^to");
/// let mut paths = GrepPaths::default();
/// paths.paths.push(file.to_str().expect("a name").into());
/// let mut lines = Lines(Vec::new());
/// let summary = grep(&Grep::new(query, paths), &RunOptions::new(), &mut lines)?;
/// assert_eq!((lines.0, summary.selected), (vec![1, 3], 2));
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// A pattern or a glob that is none, or how the job failed. What is wrong with files is told to the listener.
pub fn grep(
    what: &Grep,
    options: &RunOptions,
    listener: &mut dyn GrepListener,
) -> Result<GrepSummary, GrepError> {
    what.query.matcher()?;
    let on_cluster = options.cluster();
    let listing = match on_cluster {
        None => what.paths.list()?,
        Some(_) => list_there(what, options, listener)?,
    };
    let units = units::cut(&listing.files, what.unit_bytes, what.query.raw);
    let lanes = match on_cluster {
        None => options.resolve()?.threads,
        Some(cluster) => {
            let workers = cluster.status().map_err(Error::from)?.workers;
            workers.iter().map(|worker| worker.threads).sum()
        }
    };
    // Units of the driver's own are passed over by lanes, so they do not ask for more of these.
    let lanes = (lanes * LANES_PER_THREAD).clamp(1, units.len().max(1) as u32);
    let telling = Telling::new(what, &listing, listener);
    match on_cluster {
        None => search_here(what, options, &units, lanes, telling),
        Some(_) => search_there(what, options, &units, lanes, telling),
    }
}

/// Ends a job when the driver does.
struct DriverCaller<'a> {
    ends: &'a AtomicBool,
    collector: Option<&'a Collector>,
    nudged: Instant,
}

impl<'a> DriverCaller<'a> {
    fn new(ends: &'a AtomicBool, collector: Option<&'a Collector>) -> DriverCaller<'a> {
        DriverCaller {
            ends,
            collector,
            nudged: Instant::now(),
        }
    }
}

impl Caller for DriverCaller<'_> {
    fn check(&mut self) -> Result<(), Interrupted> {
        if let Some(collector) = self.collector
            && self.nudged.elapsed() > NUDGES
        {
            self.nudged = Instant::now();
            collector.nudge();
        }
        // Relaxed: nothing else is read by it.
        match self.ends.load(Ordering::Relaxed) {
            true => Err(Interrupted),
            false => Ok(()),
        }
    }
}

/// Runs a job on a thread of its own, while this one asks the listener whether to go on.
fn run_aside<R: Send>(
    listener: &mut dyn GrepListener,
    run: impl FnOnce(&mut dyn Caller) -> Result<R, Error> + Send,
) -> Result<R, Error> {
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let job = scope.spawn(|| run(&mut DriverCaller::new(&ends, None)));
        while !job.is_finished() {
            if !listener.goes_on() {
                ends.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(DRIVER_LOOKS);
        }
        joined(job.join())
    })
}

fn joined<R>(job: std::thread::Result<R>) -> R {
    job.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn list_there(
    what: &Grep,
    options: &RunOptions,
    listener: &mut dyn GrepListener,
) -> Result<GrepListing, Error> {
    run_aside(listener, |caller| {
        let mut p = Program::new("grep: files");
        let listing = lane::list(&mut p, what.paths.clone());
        Ok(options.run_with(p, caller)?.take(&listing))
    })
}

fn lanes_of(units: &[GrepUnit], lanes: u32) -> Vec<units::LaneUnits> {
    (0..lanes)
        .map(|lane| units::of_lane(units, lane, lanes))
        .collect()
}

fn parameters(what: &Grep, lanes: u32) -> LaneParameters {
    LaneParameters {
        query: what.query.clone(),
        block_bytes: what.block_bytes as u64,
        kept_bytes_max: KEPT_BYTES / u64::from(lanes),
    }
}

/// Tells while lanes of this process search.
fn search_here(
    what: &Grep,
    options: &RunOptions,
    units: &[GrepUnit],
    lanes: u32,
    mut telling: Telling<'_>,
) -> Result<GrepSummary, GrepError> {
    let held_bytes = options.resolve()?.memory_bytes / 8;
    let held_bytes = usize::try_from(held_bytes).map_or(HELD_BYTES, |it| it.min(HELD_BYTES));
    let ahead = UNITS_AHEAD * u64::from(lanes);
    let collector = Collector::new(telling.listing.files.len(), ahead, held_bytes);
    let mut p = Program::new("grep").acting();
    let outlet = collector.clone();
    lane::search_to(
        &mut p,
        parameters(what, lanes),
        lanes_of(units, lanes),
        move || Box::new(outlet.clone()),
    );
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // However this ends: no lane waits for a driver that is gone.
        let _over = Over(&collector);
        let job = scope.spawn(|| {
            let mut caller = DriverCaller::new(&ends, Some(&collector));
            options.run_with(p, &mut caller).map(drop)
        });
        for unit in units {
            loop {
                let taken = collector.take(DRIVER_LOOKS);
                if !telling.listener.goes_on() {
                    collector.end();
                    return joined(job.join());
                }
                match taken {
                    NextFound::Piece(found) => telling.piece(&found, Some(&collector)),
                    NextFound::Done => break,
                    // It has failed: it ends well only when all units are done.
                    NextFound::Nothing if job.is_finished() => return joined(job.join()),
                    NextFound::Nothing => {}
                }
            }
            if let Some(file) = unit.own {
                telling.own(file);
            }
            collector.advance();
        }
        joined(job.join())
    })?;
    Ok(telling.finish())
}

/// Nobody takes from a collector any more.
struct Over<'a>(&'a Collector);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Tells what lanes of a cluster have found, when they have.
fn search_there(
    what: &Grep,
    options: &RunOptions,
    units: &[GrepUnit],
    lanes: u32,
    mut telling: Telling<'_>,
) -> Result<GrepSummary, GrepError> {
    let found = run_aside(telling.listener, |caller| {
        let mut p = Program::new("grep");
        let found = lane::search_kept(&mut p, parameters(what, lanes), lanes_of(units, lanes));
        Ok(options.run_with(p, caller)?.take_all(&found))
    });
    let found = match found {
        Err(Error::Failure(Failure::Interrupted)) if !telling.listener.goes_on() => {
            return Ok(telling.finish());
        }
        found => found?,
    };
    let mut lanes: Vec<_> = found
        .into_iter()
        .map(|LaneFound { found, .. }| found.into_iter().peekable())
        .collect();
    for (number, unit) in (0u64..).zip(units) {
        if !telling.listener.goes_on() {
            break;
        }
        let lane = number as usize % lanes.len();
        while let Some((_, found)) = lanes[lane].next_if(|(of, _)| *of == number) {
            telling.piece(&found, None);
        }
        if let Some(file) = unit.own {
            telling.own_there(file);
        }
    }
    Ok(telling.finish())
}

impl From<ClusterError> for GrepError {
    fn from(error: ClusterError) -> GrepError {
        GrepError::Run(error.into())
    }
}
