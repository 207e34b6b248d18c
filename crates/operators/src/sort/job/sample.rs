//! Owns where the splitters come from: each split reads some places of its own, evenly apart, and
//! one shard makes splitters of all keys that were found. (TeraSort's sampling; the paper's
//! partitioner looked at the first byte of a key and was unfair where nodes are no power of two,
//! §7.)

use super::SortPieces;
use super::plan::SortPlan;
use super::records::{RecordError, open as open_file};
use crate::sort::{KeySamples, RecordFormat, Splitters};
use brambling_program::{
    Context, Dataset, Inbox, KernelError, Outbox, Program, Progress, Relation, Streams, Work,
};
use brambling_storage::{InputFile, ReadAhead, Scan};
use std::sync::Arc;
use std::task::Poll;

/// So many places of the whole input are looked at. With a thousand, parts of sorted input differ by
/// a few percent; of random input each place gives dozens of keys.
const PLACES: u32 = 1_024;

/// A place has so many bytes: a page, which the disk reads at the cost of one.
const PLACE_BYTES: u64 = 4 << 10;

/// So many keys of a place are taken, so that one place of long runs does not weigh more.
const KEYS_MAX: usize = 64;

/// Adds the stages that make splitters.
pub(super) fn splitters(
    p: &mut Program,
    plan: &SortPlan,
    pieces: &Dataset<SortPieces>,
) -> Dataset<Splitters> {
    let keys = p.like::<KeySamples, _>("sampled keys", pieces);
    p.stream("sample")
        .read(pieces)
        .write(&keys)
        .with(plan.clone())
        .run(open, sample);
    let all = p.exchange::<KeySamples>("samples", Relation::AllToOne);
    p.scatter("send samples", &all).read(&keys).run(send);
    let splitters = p.temporary::<Splitters>("splitters", 1);
    p.gather("cut", &all)
        .write(&splitters)
        .with(plan.clone())
        .run(cut);
    splitters
}

fn send(keys: &KeySamples, out: &mut Outbox<'_, KeySamples>) {
    out.piece(0).clone_from(keys);
}

fn cut(plan: &SortPlan, inbox: &mut Inbox<'_, KeySamples>, splitters: &mut Splitters) {
    let mut all = KeySamples::default();
    for (_, keys) in inbox.by_ref() {
        all.append(keys);
    }
    *splitters = Splitters::of(plan.format, &all, plan.parts);
}

/// The places of a split that are being read: none before the first call.
pub(super) struct Sampling(Option<Vec<Place>>, KeySamples);

struct Place {
    scan: Scan,
    /// A record begins with it.
    is_record: bool,
}

fn open(_: &SortPlan, _: &mut Context<'_>) -> Sampling {
    Sampling(None, KeySamples::default())
}

fn sample(
    plan: &SortPlan,
    sampling: &mut Sampling,
    streams: &mut Streams<'_, '_>,
    pieces: &SortPieces,
    keys: &mut KeySamples,
) -> Result<Progress, KernelError> {
    let waker = streams.context().completion();
    let Sampling(places, found) = sampling;
    let places = match places {
        Some(places) => places,
        None => places.insert(choose(plan, pieces)?),
    };
    // All are asked for before any is waited for.
    let mut waits = false;
    let mut at = 0;
    while at < places.len() {
        match places[at].scan.poll(&waker) {
            Poll::Pending => {
                waits = true;
                at += 1;
            }
            Poll::Ready(block) => {
                let place = places.swap_remove(at);
                if let Some(block) = block.map_err(RecordError::from)? {
                    let bytes = block.len() as u64;
                    let work = Work::streamed(bytes).and_file_read(bytes);
                    streams.context().worked(work);
                    take_keys(&plan.format, &block, place.is_record, found);
                }
            }
        }
    }
    if waits {
        return Ok(Progress::Pending);
    }
    *keys = std::mem::take(found);
    Ok(Progress::Done)
}

/// Places that are evenly apart: as many as the split's share of all bytes asks for.
fn choose(plan: &SortPlan, pieces: &SortPieces) -> Result<Vec<Place>, RecordError> {
    let count = (PLACES / plan.splits.max(1)).max(1);
    let unit = plan.unit();
    let bytes = (PLACE_BYTES / unit).max(1) * unit;
    let mut places = Vec::new();
    for piece in &pieces.pieces {
        let file = open_file(&pieces.inputs(plan)[piece.file as usize])?;
        let length = piece.end - piece.begin;
        for number in 0..u64::from(count) {
            let at = length * number / u64::from(count) / unit * unit + piece.begin;
            let end = (at + bytes).min(piece.end);
            places.push(place(&file, at, end));
        }
    }
    Ok(places)
}

fn place(file: &Arc<InputFile>, at: u64, end: u64) -> Place {
    let ahead = ReadAhead {
        block_bytes: (end - at) as usize,
        blocks: 1,
    };
    Place {
        scan: Scan::new(file, at..end, ahead),
        is_record: at == 0,
    }
}

fn take_keys(format: &RecordFormat, block: &[u8], is_record: bool, into: &mut KeySamples) {
    let mut bytes = block;
    if format.width().is_none() && !is_record {
        // The first line has begun before.
        let end = memchr::memchr(b'\n', bytes);
        bytes = end.map_or(&[][..], |end| &bytes[end + 1..]);
    }
    let whole = format.whole_bytes(bytes);
    for record in format.records(&bytes[..whole]).take(KEYS_MAX) {
        into.push(format.key(record));
    }
}
