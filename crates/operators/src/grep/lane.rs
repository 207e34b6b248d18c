//! The stage that searches: a lane takes its units in order.
//!
//! This module owns the order of a lane's parts, its memory, and its programs; [`reading`](super::reading) reads and
//! searches a part. The programs of this module run lanes; results go to an [`LaneOutlet`], which is the driver's in the same process and a dataset on a
//! cluster. It never waits: a lane without bytes or without room says so, and is called again.

use crate::grep::lines::{LineSearch, PartFound, PartSearch};
use crate::grep::listing::GrepPaths;
use crate::grep::query::GrepQuery;
use crate::grep::reading::{BLOCKS_AHEAD, PartReader, PartReading};
use crate::grep::units::LaneUnits;
use brambling_program::{
    Context, Dataset, KernelError, Program, Progress, Reservation, Streams, Work, payload,
};
use serde::{Deserialize, Serialize};
use std::task::{Poll, Waker};

/// What was found goes on its way when it has so many bytes.
const PIECE_BYTES: usize = 1 << 20;

/// How lanes search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneParameters {
    /// For what.
    pub query: GrepQuery,
    /// Bytes of a block, at least 1.
    pub block_bytes: u64,
    /// The most bytes that a lane's results may have where they are kept; more end the job.
    pub kept_bytes_max: u64,
}
payload!(LaneParameters);

/// Where results go.
pub trait LaneOutlet {
    /// Whether a unit may be searched now; no when nobody wants more of any. The waker is woken when that may have changed.
    fn poll_room(&mut self, unit: u64, waker: &Waker) -> Poll<bool>;
    /// Whether more of a file is of use.
    fn wants(&mut self, file: u32) -> bool;
    /// Takes what was found in a unit, piece by piece.
    ///
    /// # Errors
    /// When that is too much.
    fn take(&mut self, unit: u64, found: PartFound) -> Result<(), KernelError>;
    /// A unit has been searched.
    fn done(&mut self, unit: u64);
}

/// Results that are kept until the job is over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneFound {
    /// By unit, in order.
    pub found: Vec<(u64, PartFound)>,
    /// Memory that they hold.
    pub bytes: u64,
}
payload!(LaneFound, |kept| kept.bytes as usize);

/// An outlet that keeps results.
struct Keeping<'a> {
    kept: &'a mut LaneFound,
    bytes_max: u64,
}

impl LaneOutlet for Keeping<'_> {
    fn poll_room(&mut self, _: u64, _: &Waker) -> Poll<bool> {
        Poll::Ready(true)
    }

    fn wants(&mut self, _: u32) -> bool {
        true
    }

    fn take(&mut self, unit: u64, found: PartFound) -> Result<(), KernelError> {
        let item = size_of::<(u64, PartFound)>();
        self.kept.bytes += (found.held_bytes() + item) as u64;
        self.kept.found.push((unit, found));
        if self.kept.bytes > self.bytes_max {
            let max = self.bytes_max;
            return Err(KernelError::from(format!(
                "more lines match than a cluster keeps for its client: {max} bytes in each of its lanes are full; search for \
                 less, count them with -c, or take the first of each file with -m"
            )));
        }
        Ok(())
    }

    fn done(&mut self, _: u64) {}
}

/// A lane: it searches its units in order.
pub struct GrepLane {
    with: LineSearch,
    reader: PartReader,
    unit: usize,
    part: usize,
    reading: Option<PartReading>,
    /// The memory of its blocks and of what it has found, from its first call on.
    room: Option<Reservation>,
    /// That of a line longer than a block, by doubling.
    line_room: Vec<Reservation>,
    line_bytes: usize,
}

impl GrepLane {
    /// A lane at its beginning.
    ///
    /// # Panics
    /// If the query's patterns are none: whoever made them has checked them.
    pub fn new(parameters: &LaneParameters) -> GrepLane {
        GrepLane {
            with: LineSearch::new(&parameters.query).expect("the driver has checked the patterns"),
            reader: PartReader::new(parameters.block_bytes.max(1) as usize),
            unit: 0,
            part: 0,
            reading: None,
            room: None,
            line_room: Vec::new(),
            line_bytes: 0,
        }
    }

    /// Goes on, by about a block.
    ///
    /// # Errors
    /// The outlet's; when the job has no memory for a few blocks.
    pub fn go_on(
        &mut self,
        units: &LaneUnits,
        outlet: &mut dyn LaneOutlet,
        context: &mut Context<'_>,
    ) -> Result<Progress, KernelError> {
        if self.room.is_none() {
            // Blocks on their way, one that is searched, and what is found in it.
            let bytes = self.reader.block_bytes * (BLOCKS_AHEAD + 1) + PIECE_BYTES;
            self.room = Some(context.reserve(bytes as u64)?);
        }
        let waker = context.completion();
        let Some((number, unit)) = units.units.get(self.unit) else {
            return Ok(Progress::Done);
        };
        match outlet.poll_room(*number, &waker) {
            Poll::Pending => return Ok(Progress::Pending),
            Poll::Ready(false) => {
                self.reading = None;
                return Ok(Progress::Done);
            }
            Poll::Ready(true) => {}
        }
        let Some(part) = unit.parts.get(self.part) else {
            outlet.done(*number);
            (self.unit, self.part) = (self.unit + 1, 0);
            return Ok(Progress::More);
        };
        if !outlet.wants(part.file) {
            self.next_part();
            return Ok(Progress::More);
        }
        let mut reading = match self.reading.take() {
            Some(reading) => reading,
            None => match self.reader.open(part) {
                Ok(reading) => reading,
                Err(found) => {
                    self.next_part();
                    outlet.take(*number, found)?;
                    return Ok(Progress::More);
                }
            },
        };
        let is_pushed = self.reader.push_next(&mut reading, &mut self.with, &waker);
        let read = std::mem::take(&mut self.reader.read_bytes);
        context.worked(Work::streamed(read).and_file_read(read));
        if !is_pushed {
            self.reading = Some(reading);
            return Ok(Progress::Pending);
        }
        self.reserve_line(&mut reading.search, context);
        let is_done = reading.search.is_done();
        if is_done || reading.search.found().held_bytes() >= PIECE_BYTES {
            outlet.take(*number, reading.search.take())?;
        }
        match is_done {
            true => {
                self.reader.keep_blocks(&mut reading);
                self.next_part();
            }
            false => self.reading = Some(reading),
        }
        Ok(Progress::More)
    }

    /// Takes memory for a long line, as it grows.
    fn reserve_line(&mut self, search: &mut PartSearch, context: &Context<'_>) {
        let bytes = search.line_bytes();
        if search.is_done() || bytes <= self.line_bytes.max(self.reader.block_bytes) {
            return;
        }
        match context.reserve(bytes as u64) {
            Ok(room) => {
                self.line_room.push(room);
                self.line_bytes += bytes;
            }
            Err(error) => search.give_up(format!("a line of more than {bytes} bytes: {error}")),
        }
    }

    fn next_part(&mut self) {
        self.line_room.clear();
        self.line_bytes = 0;
        self.reading = None;
        self.part += 1;
    }
}

/// The search as a stage whose results are kept: for a cluster.
pub fn search_kept(
    p: &mut Program,
    parameters: LaneParameters,
    lanes: Vec<LaneUnits>,
) -> Dataset<LaneFound> {
    let units = lane_units(p, lanes);
    let found = p.like::<LaneFound, _>("found", &units);
    p.keep(&found);
    p.stream("search")
        .read(&units)
        .write(&found)
        .with(parameters)
        .run(open_kept, go_on_kept);
    found
}

fn open_kept(parameters: &LaneParameters, _: &mut Context<'_>) -> GrepLane {
    GrepLane::new(parameters)
}

fn go_on_kept(
    parameters: &LaneParameters,
    lane: &mut GrepLane,
    streams: &mut Streams<'_, '_>,
    units: &LaneUnits,
    kept: &mut LaneFound,
) -> Result<Progress, KernelError> {
    if lane.room.is_none() {
        // Its first call: what the dataset has is of no meaning.
        *kept = LaneFound::default();
    }
    let bytes_max = parameters.kept_bytes_max;
    let mut outlet = Keeping { kept, bytes_max };
    lane.go_on(units, &mut outlet, streams.context())
}

/// The search as a stage whose results leave it while it runs: for one process.
pub fn search_to<O>(p: &mut Program, parameters: LaneParameters, lanes: Vec<LaneUnits>, outlet: O)
where
    O: Fn() -> Box<dyn LaneOutlet> + Send + Sync + 'static,
{
    let units = lane_units(p, lanes);
    p.stream("search").read(&units).run(
        move |_: &mut Context<'_>| GrepLane::new(&parameters),
        move |lane: &mut GrepLane, streams: &mut Streams<'_, '_>, units: &LaneUnits| {
            lane.go_on(units, &mut *outlet(), streams.context())
        },
    );
}

fn lane_units(p: &mut Program, lanes: Vec<LaneUnits>) -> Dataset<LaneUnits> {
    use brambling_program::Partitioner::Opaque;
    let count = lanes.len() as u32;
    p.load("units", count, Opaque, move |lane, _| {
        lanes[lane as usize].clone()
    })
}

/// The listing of files, by the worker that has the only partition.
pub fn list(p: &mut Program, paths: GrepPaths) -> Dataset<crate::grep::listing::GrepListing> {
    let listing = p.dataset::<crate::grep::listing::GrepListing>("files", 1);
    p.keep(&listing);
    p.compute("list").write(&listing).with(paths).run(list_here);
    listing
}

fn list_here(
    paths: &GrepPaths,
    listing: &mut crate::grep::listing::GrepListing,
) -> Result<(), KernelError> {
    *listing = paths
        .list()
        .map_err(|error| KernelError::from(error.to_string()))?;
    Ok(())
}
