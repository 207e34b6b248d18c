//! The block size and the number of streams with which a disk is fastest, and how fast it is then.

use super::{DiskError, DiskFiles, DiskLimit, DiskMode};
use crate::probes::settled::{Noise, Settled};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Blocks that are tried, in bytes.
const BLOCKS: [usize; 3] = [1 << 20, 4 << 20, 16 << 20];
/// Streams that are tried.
const STREAMS: [usize; 4] = [1, 2, 4, 8];
/// A sample that was to take some time, and takes so many times as long, ends: a disk that has used up its credit becomes slower.
const OVERRUN: u32 = 4;

/// What one size of blocks and number of streams gives.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskCandidate {
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Streams at once, each with its file.
    pub streams: usize,
    /// All streams together, of one short sample.
    pub write_bytes_per_s: f64,
    /// The same.
    pub read_bytes_per_s: f64,
}

/// How fast a disk is in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskRate {
    /// All streams together.
    pub bytes_per_s: Settled,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Streams at once.
    pub streams: usize,
    /// Bytes of each stream's file.
    pub file_bytes: u64,
}

/// What was found of a directory's disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestDisk {
    /// The directory, absolute.
    pub dir: PathBuf,
    /// How the page cache was kept out.
    pub mode: DiskMode,
    /// With the best of the candidates.
    pub read: DiskRate,
    /// With the best of the candidates.
    pub write: DiskRate,
    /// What was tried.
    pub tried: Vec<DiskCandidate>,
}

/// Tries block sizes and streams, and measures the best ones in rounds, each of which takes about `sample`. `go_on` is asked before each sample.
///
/// # Errors
/// Of the disk, or what `go_on` answers.
pub fn best_of<E: From<DiskError>>(
    dir: &Path,
    noise: &Noise,
    sample: Duration,
    mut go_on: impl FnMut() -> Result<(), E>,
) -> Result<BestDisk, E> {
    let absent = |source| DiskError::of(dir, "examined", source);
    let dir = &*std::fs::canonicalize(dir).map_err(absent)?;
    let mut tried = Vec::new();
    for streams in STREAMS {
        for block_bytes in BLOCKS {
            go_on()?;
            tried.extend(candidate(dir, streams, block_bytes, sample / 2)?);
        }
    }
    let by = |rate: fn(&DiskCandidate) -> f64| {
        let best = tried
            .iter()
            .copied()
            .max_by(|a, b| rate(a).total_cmp(&rate(b)));
        best.expect("one stream of small blocks always has room")
    };
    let (writes, reads) = (by(|it| it.write_bytes_per_s), by(|it| it.read_bytes_per_s));
    let (write, mode) = write_rate(dir, &writes, noise, sample, &mut go_on)?;
    let read = read_rate(dir, &reads, noise, sample, &mut go_on)?;
    Ok(BestDisk {
        dir: dir.to_owned(),
        mode,
        read,
        write,
        tried,
    })
}

/// One sample in each direction; none where there is no room for a block of each stream.
fn candidate(
    dir: &Path,
    streams: usize,
    block_bytes: usize,
    time: Duration,
) -> Result<Option<DiskCandidate>, DiskError> {
    let mut files = DiskFiles::create(dir, streams, block_bytes)?;
    let file_bytes = files.file_bytes_most()?;
    if file_bytes == 0 {
        return Ok(None);
    }
    let limit = DiskLimit { time, file_bytes };
    Ok(Some(DiskCandidate {
        block_bytes,
        streams,
        write_bytes_per_s: files.write(limit)?,
        read_bytes_per_s: files.read(time)?,
    }))
}

/// Files of one size, so that others can measure the same; they are new for each sample.
fn write_rate<E: From<DiskError>>(
    dir: &Path,
    with: &DiskCandidate,
    noise: &Noise,
    sample: Duration,
    go_on: &mut impl FnMut() -> Result<(), E>,
) -> Result<(DiskRate, DiskMode), E> {
    let files = DiskFiles::create(dir, with.streams, with.block_bytes)?;
    let file_bytes = bytes_for(with, with.write_bytes_per_s, sample).min(files.file_bytes_most()?);
    let (mode, limit) = (
        files.mode(),
        DiskLimit {
            time: sample * OVERRUN,
            file_bytes,
        },
    );
    drop(files);
    let bytes_per_s = noise.settle(|| {
        go_on()?;
        let mut files = DiskFiles::create(dir, with.streams, with.block_bytes)?;
        Ok::<f64, E>(files.write(limit)?)
    })?;
    Ok((rate(bytes_per_s, with, file_bytes), mode))
}

fn read_rate<E: From<DiskError>>(
    dir: &Path,
    with: &DiskCandidate,
    noise: &Noise,
    sample: Duration,
    go_on: &mut impl FnMut() -> Result<(), E>,
) -> Result<DiskRate, E> {
    let mut files = DiskFiles::create(dir, with.streams, with.block_bytes)?;
    let file_bytes = bytes_for(with, with.read_bytes_per_s, sample).min(files.file_bytes_most()?);
    go_on()?;
    files.write(DiskLimit {
        time: sample * OVERRUN,
        file_bytes,
    })?;
    let bytes_per_s = noise.settle(|| {
        go_on()?;
        Ok::<f64, E>(files.read(sample)?)
    })?;
    Ok(rate(bytes_per_s, with, file_bytes))
}

/// What one stream moves in the time of a sample, in whole blocks.
fn bytes_for(with: &DiskCandidate, bytes_per_s: f64, sample: Duration) -> u64 {
    let blocks = bytes_per_s * sample.as_secs_f64() / with.streams as f64 / with.block_bytes as f64;
    blocks.ceil().max(1.0) as u64 * with.block_bytes as u64
}

fn rate(bytes_per_s: Settled, with: &DiskCandidate, file_bytes: u64) -> DiskRate {
    DiskRate {
        bytes_per_s,
        block_bytes: with.block_bytes,
        streams: with.streams,
        file_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn noise() -> Noise {
        Noise {
            tolerance: 0.5,
            repeats_until: Instant::now(),
            ends: Instant::now() + Duration::from_secs(60),
        }
    }

    #[test]
    fn the_best_of_what_was_tried_is_measured() {
        let dir = tempfile::tempdir().unwrap();
        let found = best_of(dir.path(), &noise(), Duration::from_millis(20), || {
            Ok::<_, DiskError>(())
        })
        .unwrap();
        assert_eq!(found.tried.len(), BLOCKS.len() * STREAMS.len());
        let best = found
            .tried
            .iter()
            .map(|it| it.write_bytes_per_s)
            .fold(0.0, f64::max);
        let chosen = (found.write.streams, found.write.block_bytes);
        let of_best = found
            .tried
            .iter()
            .find(|it| it.write_bytes_per_s == best)
            .unwrap();
        assert_eq!(chosen, (of_best.streams, of_best.block_bytes));
        assert!(found.read.bytes_per_s.median() > 0.0 && found.dir.is_absolute());
    }

    #[test]
    fn who_is_interrupted_stops_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut asked = 0;
        let stopped = best_of(dir.path(), &noise(), Duration::from_millis(20), || {
            asked += 1;
            match asked {
                3 => Err(DiskError::Absent {
                    dir: "stopped".into(),
                }),
                _ => Ok(()),
            }
        });
        assert_eq!((stopped.is_err(), asked), (true, 3));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
