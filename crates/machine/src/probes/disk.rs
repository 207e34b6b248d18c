//! How fast a directory's disk writes and reads: several streams, each with a file of its own, in blocks of 1 to 16 MiB.
//!
//! The page cache is kept out. Where the filesystem takes it, files are opened with O_DIRECT; elsewhere what was written is synced, and the
//! system is told to forget it before it is read. What was written counts when it is on the disk: the time of an fsync(2) is part of it.
//!
//! Files have no name, or lose it as soon as they are made, so that nothing is left of them when the process ends, however it ends.

mod best;

pub use best::{BestDisk, DiskCandidate, DiskRate, best_of};

use memmap2::MmapMut;
use rustix::fs::{Advice, OFlags, fadvise, fcntl_getfl, fcntl_setfl, fstatfs, fstatvfs, fsync};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// What a probe needs free in its directory, at least.
pub const FREE_BYTES_LEAST: u64 = 256 << 20;
/// What the files of a probe take together, at most.
const FILES_BYTES_MOST: u64 = 4 << 30;
/// Memory and the disk's sectors are aligned to this for O_DIRECT.
const ALIGNMENT: usize = 4_096;
/// A huge page. Blocks begin at one, so that their memory lies in as few pieces as can be.
const HUGE_PAGE: usize = 2 << 20;
/// Written through the page cache before it is synced, so that a time limit is not overrun by what waits there.
const SYNCED_EACH_BYTES: u64 = 64 << 20;
const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;

/// How the page cache was kept out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskMode {
    /// O_DIRECT: bytes go between the disk and the process.
    Direct,
    /// The filesystem takes no O_DIRECT: what was written is synced, and forgotten before it is read.
    Cold,
    /// The directory lies in memory (tmpfs): there is no disk.
    Memory,
}

/// Why a directory's disk cannot be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// There is no such directory.
    #[error("there is no directory {dir}; name one that exists with --dir")]
    Absent {
        /// Which.
        dir: PathBuf,
    },
    /// It is something else.
    #[error("{dir} is no directory; name a directory with --dir")]
    NoDirectory {
        /// Which.
        dir: PathBuf,
    },
    /// It may not be written to.
    #[error(
        "{dir} may not be written to ({source}), and a probe writes files there; name another directory with --dir, or change its rights"
    )]
    Rights {
        /// Which.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Its disk is full, or nearly.
    #[error(
        "the disk of {dir} is full: {} MB are free, and a probe needs {} MB for a moment; make room, or name another directory with --dir",
        free_bytes >> 20,
        FREE_BYTES_LEAST >> 20
    )]
    Full {
        /// Which.
        dir: PathBuf,
        /// What is free.
        free_bytes: u64,
    },
    /// The system fails to write or read there.
    #[error(
        "{dir} cannot be {doing}: {source}; look at its disk (dmesg tells more), or name another directory with --dir"
    )]
    Failed {
        /// Which.
        dir: PathBuf,
        /// "written", "read" or "examined".
        doing: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

impl DiskError {
    fn of(dir: &Path, doing: &'static str, source: io::Error) -> DiskError {
        use io::ErrorKind as Kind;
        let dir = dir.to_owned();
        match source.kind() {
            Kind::NotFound => DiskError::Absent { dir },
            Kind::NotADirectory => DiskError::NoDirectory { dir },
            Kind::PermissionDenied | Kind::ReadOnlyFilesystem => DiskError::Rights { dir, source },
            Kind::StorageFull | Kind::QuotaExceeded => DiskError::Full {
                free_bytes: free_bytes(&dir).unwrap_or(0),
                dir,
            },
            _ => DiskError::Failed { dir, doing, source },
        }
    }
}

/// When streams end that write.
#[derive(Clone, Copy, Debug)]
pub struct DiskLimit {
    /// After this time.
    pub time: Duration,
    /// Or when a file has so many bytes, in whole blocks.
    pub file_bytes: u64,
}

/// Files without names in a directory, one for each stream.
#[derive(Debug)]
pub struct DiskFiles {
    dir: PathBuf,
    mode: DiskMode,
    block_bytes: usize,
    /// Each with the bytes that it has.
    files: Vec<(File, u64)>,
}

impl DiskFiles {
    /// Makes the files, which are empty.
    ///
    /// # Errors
    /// When the directory does not exist, may not be written to, or has too little room.
    pub fn create(dir: &Path, streams: usize, block_bytes: usize) -> Result<DiskFiles, DiskError> {
        assert!(streams > 0 && block_bytes > 0 && block_bytes.is_multiple_of(ALIGNMENT));
        let failed = |source| DiskError::of(dir, "examined", source);
        if !std::fs::metadata(dir).map_err(failed)?.is_dir() {
            let dir = dir.to_owned();
            return Err(DiskError::NoDirectory { dir });
        }
        let file = || tempfile::tempfile_in(dir).map_err(failed);
        let mode = mode(&file()?).map_err(failed)?;
        let free_bytes = free_bytes(dir).map_err(failed)?;
        if free_bytes < FREE_BYTES_LEAST {
            let dir = dir.to_owned();
            return Err(DiskError::Full { dir, free_bytes });
        }
        let mut files = Vec::new();
        for _ in 0..streams {
            let file = file()?;
            if mode == DiskMode::Direct {
                go_direct(&file).map_err(failed)?;
            }
            files.push((file, 0));
        }
        Ok(DiskFiles {
            dir: dir.to_owned(),
            mode,
            block_bytes,
            files,
        })
    }

    /// How the page cache is kept out here.
    pub fn mode(&self) -> DiskMode {
        self.mode
    }

    /// What a file may have so that all of them take half of what is free at most, in whole blocks.
    ///
    /// # Errors
    /// When the system does not tell what is free.
    pub fn file_bytes_most(&self) -> Result<u64, DiskError> {
        let free = free_bytes(&self.dir).map_err(|it| DiskError::of(&self.dir, "examined", it))?;
        let block = self.block_bytes as u64;
        let each = (free / 2).min(FILES_BYTES_MOST) / self.files.len() as u64;
        Ok(each / block * block)
    }

    /// One for each stream, made before a time is taken.
    fn blocks(&self) -> Result<Vec<Block>, DiskError> {
        let seeds = 1..=self.files.len() as u64;
        let made: io::Result<_> = seeds.map(|seed| block(self.block_bytes, seed)).collect();
        made.map_err(|it| DiskError::of(&self.dir, "written", it))
    }

    /// Writes all files from their beginning, all streams at once, and syncs them; bytes per second of all together.
    ///
    /// # Errors
    /// When the disk is full, or fails.
    pub fn write(&mut self, limit: DiskLimit) -> Result<f64, DiskError> {
        let (block_bytes, mode) = (self.block_bytes, self.mode);
        let mut blocks = self.blocks()?;
        let begin = Instant::now();
        let written = each(&mut self.files, &mut blocks, |block, (file, bytes)| {
            *bytes = 0;
            while *bytes < limit.file_bytes && (*bytes == 0 || begin.elapsed() < limit.time) {
                file.write_all_at(block, *bytes)?;
                *bytes += block_bytes as u64;
                if mode == DiskMode::Cold && bytes.is_multiple_of(SYNCED_EACH_BYTES) {
                    file.sync_data()?;
                }
            }
            fsync(&*file)?;
            Ok(*bytes)
        });
        let seconds = begin.elapsed().as_secs_f64();
        let bytes: u64 = written.map_err(|it| DiskError::of(&self.dir, "written", it))?;
        Ok(bytes as f64 / seconds)
    }

    /// Reads all files, all streams at once, each from its beginning again when it has come to its end; bytes per second of all together.
    ///
    /// # Errors
    /// When the disk fails.
    ///
    /// # Panics
    /// When nothing was written.
    pub fn read(&mut self, time: Duration) -> Result<f64, DiskError> {
        let (block_bytes, mode) = (self.block_bytes, self.mode);
        let forget = |file: &File| match mode {
            DiskMode::Cold => fadvise(file, 0, None, Advice::DontNeed),
            DiskMode::Direct | DiskMode::Memory => Ok(()),
        };
        for (file, bytes) in &self.files {
            assert!(*bytes > 0, "files are written before they are read");
            forget(file).map_err(|it| DiskError::of(&self.dir, "read", it.into()))?;
        }
        let mut blocks = self.blocks()?;
        let begin = Instant::now();
        let read = each(&mut self.files, &mut blocks, |block, (file, bytes)| {
            let (mut read, mut from) = (0, 0);
            while read == 0 || begin.elapsed() < time {
                if from == *bytes {
                    forget(file)?;
                    from = 0;
                }
                file.read_exact_at(block, from)?;
                from += block_bytes as u64;
                read += block_bytes as u64;
            }
            Ok(read)
        });
        let seconds = begin.elapsed().as_secs_f64();
        let bytes: u64 = read.map_err(|it| DiskError::of(&self.dir, "read", it))?;
        Ok(bytes as f64 / seconds)
    }
}

/// Memory, and where in it the block lies.
type Block = (MmapMut, Range<usize>);

/// Calls `work` for each stream, with its block, on a thread of its own; the sum of their bytes.
fn each(
    files: &mut [(File, u64)],
    blocks: &mut [Block],
    work: impl Fn(&mut [u8], &mut (File, u64)) -> io::Result<u64> + Sync,
) -> io::Result<u64> {
    let work = &work;
    let first_error = Mutex::new(None);
    let bytes = thread::scope(|scope| {
        let streams = blocks.iter_mut().zip(files);
        let threads: Vec<_> = streams
            .map(|((memory, at), file)| {
                let block = &mut memory[at.clone()];
                scope.spawn(move || work(block, file))
            })
            .collect();
        let joined = threads
            .into_iter()
            .map(|it| it.join().expect("a stream does not panic"));
        let keep = |error| *first_error.lock().expect("no panic") = Some(error);
        joined.filter_map(|it| it.map_err(keep).ok()).sum()
    });
    match first_error.into_inner().expect("no panic") {
        Some(error) => Err(error),
        None => Ok(bytes),
    }
}

/// A block: aligned, in huge pages where it fills them, and filled with bytes that no disk makes smaller. A
/// request goes to a disk in as many parts as its memory has pieces, so the same disk is slower with small pages.
fn block(bytes: usize, seed: u64) -> io::Result<Block> {
    let mut memory = MmapMut::map_anon(bytes + HUGE_PAGE)?;
    let at = memory.as_ptr().align_offset(HUGE_PAGE);
    // Where there are no huge pages, there are small ones.
    let _ = memory.advise_range(memmap2::Advice::HugePage, at, bytes);
    let mut state = seed;
    for word in memory[at..at + bytes].chunks_exact_mut(8) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        // The lower bits of this generator repeat soon.
        word.copy_from_slice(&(state ^ state >> 33).to_le_bytes());
    }
    Ok((memory, at..at + bytes))
}

/// What the filesystem of a file takes, which is empty then again.
fn mode(file: &File) -> io::Result<DiskMode> {
    // As the system declares it: its sign differs by platform.
    let magic = fstatfs(file)?.f_type as u64 & 0xffff_ffff;
    if [TMPFS_MAGIC, RAMFS_MAGIC].contains(&magic) {
        return Ok(DiskMode::Memory);
    }
    let (memory, at) = block(ALIGNMENT, 0)?;
    let tried = go_direct(file).and_then(|()| file.write_all_at(&memory[at], 0));
    match tried {
        Ok(()) => Ok(DiskMode::Direct),
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            Ok(DiskMode::Cold)
        }
        Err(error) => Err(error),
    }
}

fn go_direct(file: &File) -> io::Result<()> {
    Ok(fcntl_setfl(file, fcntl_getfl(file)? | OFlags::DIRECT)?)
}

fn free_bytes(dir: &Path) -> io::Result<u64> {
    let found = fstatvfs(File::open(dir)?)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: DiskLimit = DiskLimit {
        time: Duration::from_secs(60),
        file_bytes: 4 << 20,
    };

    #[test]
    fn what_is_written_is_read_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = DiskFiles::create(dir.path(), 2, 1 << 20).unwrap();
        assert!(files.write(SMALL).unwrap() > 0.0);
        assert_eq!(
            files.files.iter().map(|it| it.1).collect::<Vec<_>>(),
            [4 << 20, 4 << 20]
        );
        assert!(files.read(Duration::from_millis(5)).unwrap() > 0.0);
        // While the files are open, too: a process that is killed leaves nothing.
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_filesystem_without_direct_access_is_synced_and_read_cold() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = DiskFiles::create(dir.path(), 1, 1 << 20).unwrap();
        files.files = vec![(tempfile::tempfile_in(dir.path()).unwrap(), 0)];
        files.mode = DiskMode::Cold;
        assert!(files.write(SMALL).unwrap() > 0.0);
        assert!(files.read(Duration::from_millis(20)).unwrap() > 0.0);
    }

    #[test]
    fn blocks_are_aligned_and_hardly_repeat() {
        let (memory, at) = block(1 << 20, 3).unwrap();
        let block = &memory[at];
        assert_eq!(block.as_ptr().align_offset(HUGE_PAGE), 0);
        let words: std::collections::BTreeSet<&[u8]> = block.chunks_exact(8).collect();
        assert!(words.len() * 100 > (1 << 20) / 8 * 99, "{}", words.len());
    }

    #[test]
    fn a_directory_that_cannot_be_used_is_named_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let told = |path: &Path| DiskFiles::create(path, 1, 1 << 20).unwrap_err().to_string();
        let absent = dir.path().join("absent");
        assert_eq!(
            told(&absent),
            format!(
                "there is no directory {}; name one that exists with --dir",
                absent.display()
            )
        );
        let file = dir.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(
            told(&file),
            format!(
                "{} is no directory; name a directory with --dir",
                file.display()
            )
        );
        assert!(told(Path::new("/proc")).contains("/proc"));
    }

    #[test]
    fn errors_of_the_system_are_told_by_their_kind() {
        let of = |errno: i32| {
            DiskError::of(
                Path::new("/tmp"),
                "written",
                io::Error::from_raw_os_error(errno),
            )
        };
        assert!(matches!(of(libc::ENOSPC), DiskError::Full { .. }));
        assert!(matches!(of(libc::EDQUOT), DiskError::Full { .. }));
        assert!(matches!(of(libc::EACCES), DiskError::Rights { .. }));
        assert!(matches!(of(libc::EROFS), DiskError::Rights { .. }));
        assert!(matches!(of(libc::EIO), DiskError::Failed { .. }));
    }
}
