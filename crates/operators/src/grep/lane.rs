//! The stage that searches: a lane takes its units in order, and reads ahead in each.
//!
//! This module owns reading and searching, piece by piece, and what becomes of a file that cannot be read. The programs of
//! this module run lanes; results go to an [`LaneOutlet`], which is the driver's in the same process and a dataset on a
//! cluster. It never waits: a lane without bytes or without room says so, and is called again.

use crate::grep::decode::Decompressor;
use crate::grep::lines::{LineSearch, PartFound, PartSearch};
use crate::grep::listing::GrepPaths;
use crate::grep::query::GrepQuery;
use crate::grep::units::{GrepPart, LaneUnits};
use brambling_program::{
    Context, Dataset, KernelError, Program, Progress, Reservation, Streams, Work, payload,
};
use brambling_storage::{FileError, InputFile, ReadAhead, Scan};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// What a block has: it stays in a core's cache from its first pass to its last.
pub const BLOCK_BYTES: usize = 1 << 20;
/// Blocks that are read ahead, in each lane.
pub const BLOCKS_AHEAD: usize = 4;
/// Shorter parts are read at once: handing them to another thread costs more than reading them.
const SMALL_BYTES: u64 = 256 << 10;
/// Behind the end of a part only the rest of a line is read.
const REST_BYTES: usize = 64 << 10;
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

/// A part that is being searched.
struct PartReading {
    search: PartSearch,
    file: Arc<InputFile>,
    bytes: Bytes,
    /// Up to where they are read.
    read_to: u64,
    file_bytes: u64,
    decoder: Option<Decompressor>,
}

/// Where a part's bytes come from.
enum Bytes {
    Scanned(Scan),
    /// A short range, which is read at once.
    AtOnce(Range<u64>),
}

/// A lane: it searches its units in order.
pub struct GrepLane {
    with: LineSearch,
    block_bytes: usize,
    unit: usize,
    part: usize,
    reading: Option<PartReading>,
    /// Short parts are read to it.
    buffer: Vec<u8>,
    /// The memory of its blocks and of what it has found, from its first call on.
    room: Option<Reservation>,
    /// That of a line longer than a block, by doubling.
    line_room: Vec<Reservation>,
    line_bytes: usize,
    /// Bytes of files that were read and are not told yet.
    read_bytes: u64,
}

impl GrepLane {
    /// A lane at its beginning.
    ///
    /// # Panics
    /// If the query's patterns are none: whoever made them has checked them.
    pub fn new(parameters: &LaneParameters) -> GrepLane {
        GrepLane {
            with: LineSearch::new(&parameters.query).expect("the driver has checked the patterns"),
            block_bytes: (parameters.block_bytes.max(1)) as usize,
            unit: 0,
            part: 0,
            reading: None,
            buffer: Vec::new(),
            room: None,
            line_room: Vec::new(),
            line_bytes: 0,
            read_bytes: 0,
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
            let bytes = self.block_bytes * (BLOCKS_AHEAD + 1) + PIECE_BYTES;
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
            None => match self.open(part) {
                Ok(reading) => reading,
                Err(found) => {
                    self.next_part();
                    outlet.take(*number, found)?;
                    return Ok(Progress::More);
                }
            },
        };
        let is_pushed = self.push_next(&mut reading, &waker);
        let read = std::mem::take(&mut self.read_bytes);
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
            true => self.next_part(),
            false => self.reading = Some(reading),
        }
        Ok(Progress::More)
    }

    /// Takes memory for a long line, as it grows.
    fn reserve_line(&mut self, search: &mut PartSearch, context: &Context<'_>) {
        let bytes = search.line_bytes();
        if search.is_done() || bytes <= self.line_bytes.max(self.block_bytes) {
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

    /// Opens a part; else what is to be told of it.
    fn open(&self, part: &GrepPart) -> Result<PartReading, PartFound> {
        let is_whole = part.begin == 0 && part.end == part.file_bytes;
        let range = match part.coding.is_compressed() {
            // How long it is when decompressed is not known.
            true => 0..u64::MAX,
            false => part.begin..part.end,
        };
        let mut search = PartSearch::new(part.file, range.clone());
        let path = Path::new(OsStr::from_bytes(&part.path));
        let opened = InputFile::open(path).map_err(|error| told(&error));
        let opened = opened.and_then(|file| Ok((file, part.coding.decoder()?)));
        let (file, decoder) = match opened {
            Ok(opened) => opened,
            Err(why) => {
                search.give_up(why);
                return Err(search.take());
            }
        };
        let reads = PartSearch::reads_from(&(part.begin..part.end))..part.end;
        let bytes = match is_whole && part.end <= SMALL_BYTES {
            true => Bytes::AtOnce(reads),
            false => Bytes::Scanned(self.scan(&file, reads, self.block_bytes)),
        };
        Ok(PartReading {
            search,
            file,
            bytes,
            read_to: part.end,
            file_bytes: part.file_bytes,
            decoder,
        })
    }

    fn scan(&self, file: &Arc<InputFile>, range: Range<u64>, block_bytes: usize) -> Scan {
        let blocks = range.end.saturating_sub(range.start);
        let blocks = blocks.div_ceil(block_bytes as u64);
        let ahead = ReadAhead {
            block_bytes,
            blocks: BLOCKS_AHEAD.min(blocks.max(1) as usize),
        };
        Scan::new(file, range, ahead)
    }

    /// Searches the next block; no when it has not come yet.
    fn push_next(&mut self, reading: &mut PartReading, waker: &Waker) -> bool {
        let next = match &mut reading.bytes {
            Bytes::Scanned(scan) => match scan.poll(waker) {
                Poll::Pending => return false,
                Poll::Ready(block) => block,
            },
            Bytes::AtOnce(range) => {
                let range = std::mem::replace(range, range.end..range.end);
                self.buffer.resize((range.end - range.start) as usize, 0);
                let read = match range.is_empty() {
                    true => Ok(()),
                    false => reading.file.read_at(range.start, &mut self.buffer),
                };
                match read {
                    Ok(()) => {
                        self.read_bytes += self.buffer.len() as u64;
                        push(reading, &mut self.with, &self.buffer);
                    }
                    Err(error) => reading.search.give_up(told(&error)),
                }
                self.end(reading);
                return true;
            }
        };
        match next {
            Ok(Some(block)) => {
                self.read_bytes += block.len() as u64;
                push(reading, &mut self.with, &block);
                if let Bytes::Scanned(scan) = &mut reading.bytes {
                    scan.give_back(block);
                }
            }
            Ok(None) => self.end(reading),
            Err(error) => reading.search.give_up(told(&error)),
        }
        true
    }

    /// All that was asked for has come.
    fn end(&mut self, reading: &mut PartReading) {
        if reading.search.is_done() {
            return;
        }
        if reading.read_to < reading.file_bytes {
            // The last line that begins in the part ends behind it.
            let rest = reading.read_to..reading.file_bytes;
            reading.read_to = reading.file_bytes;
            reading.bytes = Bytes::Scanned(self.scan(&reading.file, rest, REST_BYTES));
            return;
        }
        let PartReading {
            search, decoder, ..
        } = reading;
        let with = &mut self.with;
        let ended = decoder.as_mut().map_or(Ok(()), |decoder| {
            decoder.finish(&mut |bytes| {
                search.push(with, bytes);
                !search.is_done()
            })
        });
        search.finish(with);
        if let Err(why) = ended {
            search.give_up(why);
        }
    }
}

fn push(reading: &mut PartReading, with: &mut LineSearch, block: &[u8]) {
    let PartReading {
        search, decoder, ..
    } = reading;
    let Some(decoder) = decoder else {
        return search.push(with, block);
    };
    let pushed = decoder.push(block, &mut |bytes| {
        search.push(with, bytes);
        !search.is_done()
    });
    if let Err(why) = pushed {
        search.finish(with);
        search.give_up(why);
    }
}

/// What is wrong with a file whose name is told beside it.
fn told(error: &FileError) -> String {
    let text = match error {
        FileError::Failed { why, .. } => why.clone(),
        error => error.to_string(),
    };
    match text.find(" (os error") {
        Some(end) => text[..end].to_owned(),
        None => text,
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
