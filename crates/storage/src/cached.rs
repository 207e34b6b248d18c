//! Finds out which pages of a file the system keeps in memory, without reading them.
//!
//! The system tells it to whoever owns a file or may write to it, and claims to have all pages when
//! others ask. For them, samples are read on the condition that nobody waits for the disk: a page
//! that is not there is an error, and comes into memory by and by, with few others.

#![allow(unsafe_code)] // A mapping of a file, and a question about it.

use crate::block::PAGE;
use rustix::fs::{Access, AtFlags, CWD};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// So many pages of a range are tried. Earlier samples are in memory, so one page says little.
const SAMPLES: u64 = 4;

/// How the cached pages of a file are found out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CachedPages {
    /// The system tells.
    Told,
    /// By samples.
    Sampled,
}

impl CachedPages {
    /// As this user may ask about a file.
    pub(crate) fn of(file: &File) -> CachedPages {
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        let user = rustix::process::geteuid();
        let is_owner = file
            .metadata()
            .is_ok_and(|it| user.is_root() || it.uid() == user.as_raw());
        let may_write =
            || rustix::fs::accessat(CWD, own.as_str(), Access::WRITE_OK, AtFlags::EACCESS).is_ok();
        match is_owner || may_write() {
            true => CachedPages::Told,
            false => CachedPages::Sampled,
        }
    }

    /// Whether most of a range of a file, which begins and ends at pages, seems to be in memory.
    pub(crate) fn have(self, file: &File, start: u64, bytes: usize) -> bool {
        match self {
            CachedPages::Told => 2 * cached(file, start, bytes) >= bytes.div_ceil(PAGE),
            CachedPages::Sampled => are_samples_cached(file, start, bytes),
        }
    }
}

/// Of how many pages the system tells.
fn cached(file: &File, start: u64, bytes: usize) -> usize {
    let mut pages = vec![0_u8; bytes.div_ceil(PAGE)];
    // SAFETY: a fresh mapping at an address that the system chooses replaces nothing. It is neither
    // read nor written, so it does not matter who changes the file meanwhile.
    let address = unsafe {
        let (none, shared) = (std::ptr::null_mut(), libc::MAP_SHARED);
        let (read, file) = (libc::PROT_READ, file.as_raw_fd());
        libc::mmap(none, bytes, read, shared, file, start as i64)
    };
    if address == libc::MAP_FAILED {
        return 0;
    }
    // SAFETY: `pages` has a byte for each page of the mapping.
    let told = unsafe { libc::mincore(address, bytes, pages.as_mut_ptr()) };
    // SAFETY: it is the mapping from above, to which nobody else has the address.
    unsafe { libc::munmap(address, bytes) };
    match told {
        0 => pages.iter().filter(|page| **page & 1 == 1).count(),
        _ => 0,
    }
}

/// Whether a few of the pages can be had without a disk: others than another process would try.
fn are_samples_cached(file: &File, start: u64, bytes: usize) -> bool {
    let pages = bytes.div_ceil(PAGE) as u64;
    (0..SAMPLES).all(|sample| {
        let salt = start / PAGE as u64 * SAMPLES + sample + (u64::from(std::process::id()) << 40);
        let mixed = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let page = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
        let at = start + page % pages * PAGE as u64;
        let mut byte = [0];
        let mut into = [IoSliceMut::new(&mut byte)];
        let read = rustix::io::preadv2(file, &mut into, at, ReadWriteFlags::NOWAIT);
        // A file system that knows no such condition lets everything be read through its cache.
        !matches!(read, Err(Errno::AGAIN))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Advice;

    const BYTES: usize = 8 << 20;
    const RANGE: usize = 1 << 20;

    fn shares(pages: CachedPages, file: &File) -> usize {
        let starts = (0..BYTES).step_by(RANGE);
        starts
            .filter(|start| pages.have(file, *start as u64, RANGE))
            .count()
    }

    /// Both ways agree about what is in memory and what is not, and samples leave the rest where it is.
    #[test]
    fn cached_pages_are_found_out_either_way() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![1; BYTES]).unwrap();
        let file = File::open(&path).unwrap();
        let is_in_memory = rustix::fs::fstatfs(&file).unwrap().f_type == 0x0102_1994;
        let (told, sampled) = (CachedPages::of(&file), CachedPages::Sampled);
        assert!(matches!(told, CachedPages::Told), "{told:?}");
        for pages in [told, sampled] {
            assert_eq!(shares(pages, &file), BYTES / RANGE);
        }
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        if is_in_memory {
            return;
        }
        for _ in 0..3 {
            for pages in [told, sampled] {
                assert_eq!(shares(pages, &file), 0, "{pages:?}");
            }
            // Samples come into memory by and by, and little else does.
            std::thread::sleep(std::time::Duration::from_millis(50));
            assert!(cached(&file, 0, BYTES) <= 8 * BYTES / RANGE);
            // Whoever asks again has the first sample in memory, and perhaps the next one.
            rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        }
        std::fs::read(&path).unwrap();
        for pages in [told, sampled] {
            assert_eq!(shares(pages, &file), BYTES / RANGE);
        }
    }
}
