//! A directory to which bytes are spilled.
//!
//! # How its room is used
//! Bytes are appended to a file, the *segment*, until that is large; then another one is begun. A segment has no name in the
//! directory, so whatever happens to the process, the system frees its room with it. It goes when all that was in
//! it has been let go; the one that is being filled begins again at its start. The limit bounds what the segments take, dead
//! bytes between living ones included.
//!
//! Whoever spills takes room under the directory's lock and writes it without. Bytes are summed up a part at a time, so that a range is read
//! and checked without what lies before and behind it.

use crate::segment::Segment;
use brambling_memory::{OutOfMemory, Spill, SpillError, Spilled};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A segment that has so many bytes is full.
const SEGMENT_BYTES: u64 = 64 << 20;
/// So many bytes are checked as one: a range is read from the beginning of such a part to the end of one.
const CHECKED_BYTES: usize = 64 << 10;
/// Into so many segments a limit is divided at least: what lives in one keeps all of it.
const SEGMENTS_MIN: u64 = 16;

/// Why a directory cannot be spilled to.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be spilled to: {source}", .directory.display())]
pub struct OpenError {
    /// The directory.
    pub directory: PathBuf,
    /// What the system says.
    pub source: io::Error,
}

/// What has gone to a directory and come back, since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpillCounts {
    /// Pieces that were written.
    pub spills: u64,
    /// Their bytes.
    pub spilled_bytes: u64,
    /// How often something was read back.
    pub reads: u64,
    /// Bytes that were read back.
    pub read_bytes: u64,
}

/// A directory to which bytes are spilled. Clones share it.
#[derive(Clone, Debug)]
pub struct SpillDirectory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    limit_bytes: Option<u64>,
    /// The one that is being filled.
    segment: Mutex<Arc<Segment>>,
    /// What all segments take.
    all_bytes: Arc<AtomicU64>,
    spills: AtomicU64,
    spilled_bytes: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
}

impl SpillDirectory {
    /// Opens a directory that exists, for no more than `limit_bytes`; none: for as much as its disk has.
    ///
    /// # Errors
    /// When no file can be made there.
    pub fn open(path: &Path, limit_bytes: Option<u64>) -> Result<SpillDirectory, OpenError> {
        let all_bytes = Arc::<AtomicU64>::default();
        let segment = Segment::new(path, all_bytes.clone()).map_err(|source| OpenError {
            directory: path.to_owned(),
            source,
        })?;
        Ok(SpillDirectory {
            inner: Arc::new(Inner {
                path: path.to_owned(),
                limit_bytes,
                segment: Mutex::new(Arc::new(segment)),
                all_bytes,
                spills: AtomicU64::new(0),
                spilled_bytes: AtomicU64::new(0),
                reads: AtomicU64::new(0),
                read_bytes: AtomicU64::new(0),
            }),
        })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// What its files take.
    pub fn in_use_bytes(&self) -> u64 {
        self.inner.all_bytes.load(Ordering::Relaxed)
    }

    /// What went there and came back.
    pub fn counts(&self) -> SpillCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SpillCounts {
            spills: of(&self.inner.spills),
            spilled_bytes: of(&self.inner.spilled_bytes),
            reads: of(&self.inner.reads),
            read_bytes: of(&self.inner.read_bytes),
        }
    }
}

impl Inner {
    /// Makes the segment one to which so many bytes may be appended.
    fn make_ready(&self, current: &mut Arc<Segment>, bytes: u64) -> Result<(), SpillError> {
        let full_bytes = self.limit_bytes.map_or(SEGMENT_BYTES, |limit_bytes| {
            (limit_bytes / SEGMENTS_MIN).clamp(1, SEGMENT_BYTES)
        });
        let is_full = current.filled_bytes() >= full_bytes;
        let ready = match Arc::get_mut(current) {
            Some(dead) => dead.restart(),
            None if !is_full => Ok(()),
            None => Segment::new(&self.path, self.all_bytes.clone())
                .map(|fresh| *current = Arc::new(fresh)),
        };
        ready.map_err(|error| self.refusal(bytes, &error))?;
        let all_bytes = self.all_bytes.load(Ordering::Relaxed);
        match self.limit_bytes {
            Some(limit_bytes) if all_bytes.saturating_add(bytes) > limit_bytes => {
                Err(SpillError::Full {
                    directory: self.path.clone(),
                    asked_bytes: bytes,
                    why: format!("{all_bytes} of the {limit_bytes} that it may take are in use"),
                })
            }
            _ => Ok(()),
        }
    }

    fn refusal(&self, asked_bytes: u64, error: &io::Error) -> SpillError {
        let (directory, why) = (self.path.clone(), error.to_string());
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SpillError::Full {
                directory,
                asked_bytes,
                why,
            },
            _ => SpillError::Unwritable {
                directory,
                asked_bytes,
                why,
            },
        }
    }
}

impl Spill for SpillDirectory {
    fn put(&self, parts: &[&[u8]], _refused: &OutOfMemory) -> Result<Arc<dyn Spilled>, SpillError> {
        let inner = &self.inner;
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let (segment, start) = {
            let mut segment = inner.segment.lock().unwrap_or_else(PoisonError::into_inner);
            inner.make_ready(&mut segment, bytes)?;
            (segment.clone(), segment.take(bytes))
        };
        let written = segment.write(start, parts);
        written.map_err(|error| inner.refusal(bytes, &error))?;
        let spilled = SpilledBytes {
            start,
            bytes,
            checksums: checksums(parts),
            segment,
            directory: inner.clone(),
        };
        inner.spills.fetch_add(1, Ordering::Relaxed);
        inner.spilled_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(Arc::new(spilled))
    }
}

/// Bytes in a segment.
#[derive(Debug)]
struct SpilledBytes {
    segment: Arc<Segment>,
    start: u64,
    bytes: u64,
    /// Of each [`CHECKED_BYTES`] of them.
    checksums: Box<[u32]>,
    directory: Arc<Inner>,
}

impl Spilled for SpilledBytes {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self) -> Result<Vec<u8>, SpillError> {
        let mut bytes = vec![0; self.bytes as usize];
        self.read_at(0, &mut bytes)?;
        Ok(bytes)
    }

    fn read_at(&self, start: u64, into: &mut [u8]) -> Result<(), SpillError> {
        let read_bytes = into.len() as u64;
        assert!(start + read_bytes <= self.bytes, "more than was spilled");
        let (mut at, mut rest, mut scratch) = (start, into, Vec::new());
        while !rest.is_empty() {
            let part = at / CHECKED_BYTES as u64;
            let begin = part * CHECKED_BYTES as u64;
            let len = (self.bytes - begin).min(CHECKED_BYTES as u64) as usize;
            let before = (at - begin) as usize;
            let (now, after) = rest.split_at_mut((len - before).min(rest.len()));
            if now.len() == len {
                self.read_part(part as usize, begin, now)?;
            } else {
                scratch.resize(len, 0);
                self.read_part(part as usize, begin, &mut scratch)?;
                now.copy_from_slice(&scratch[before..][..now.len()]);
            }
            at += now.len() as u64;
            rest = after;
        }
        self.directory.reads.fetch_add(1, Ordering::Relaxed);
        self.directory
            .read_bytes
            .fetch_add(read_bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl SpilledBytes {
    /// Reads bytes that were summed up as one.
    fn read_part(&self, part: usize, begin: u64, into: &mut [u8]) -> Result<(), SpillError> {
        let read = self.segment.read(self.start + begin, into);
        read.map_err(|error| SpillError::Unreadable {
            directory: self.directory.path.clone(),
            bytes: self.bytes,
            why: error.to_string(),
        })?;
        let is_sound = crc32fast::hash(into) == self.checksums[part];
        match is_sound || brambling_memory::mutants::is_on("spill-skips-checksum") {
            true => Ok(()),
            false => Err(SpillError::Damaged {
                directory: self.directory.path.clone(),
                bytes: self.bytes,
            }),
        }
    }
}

/// The sum of each [`CHECKED_BYTES`] of what lies in parts.
fn checksums(parts: &[&[u8]]) -> Box<[u32]> {
    let (mut sums, mut sum, mut summed) = (Vec::new(), crc32fast::Hasher::new(), 0);
    for part in parts {
        let mut rest = *part;
        while !rest.is_empty() {
            let (now, after) = rest.split_at(rest.len().min(CHECKED_BYTES - summed));
            sum.update(now);
            (rest, summed) = (after, summed + now.len());
            if summed == CHECKED_BYTES {
                sums.push(std::mem::take(&mut sum).finalize());
                summed = 0;
            }
        }
    }
    if summed > 0 {
        sums.push(sum.finalize());
    }
    sums.into()
}

#[cfg(test)]
mod tests;
