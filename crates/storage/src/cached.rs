//! Asks the system which pages of a file it keeps in memory, without touching them.

#![allow(unsafe_code)] // A mapping of a file, and a question about it.

use crate::block::PAGE;
use std::fs::File;
use std::os::fd::AsRawFd;

/// Whether the system has at least half of the pages of a range, which begins and ends at pages.
///
/// For a file that this user may neither write nor owns, the system says that it has them all.
pub(crate) fn is_cached(file: &File, start: u64, bytes: usize) -> bool {
    let mut pages = vec![0_u8; bytes.div_ceil(PAGE)];
    // SAFETY: a fresh mapping at an address that the system chooses replaces nothing. It is neither
    // read nor written, so it does not matter who changes the file meanwhile.
    let address = unsafe {
        let (none, shared) = (std::ptr::null_mut(), libc::MAP_SHARED);
        libc::mmap(
            none,
            bytes,
            libc::PROT_READ,
            shared,
            file.as_raw_fd(),
            start as i64,
        )
    };
    if address == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: `pages` has a byte for each page of the mapping.
    let told = unsafe { libc::mincore(address, bytes, pages.as_mut_ptr()) };
    // SAFETY: it is the mapping from above, to which nobody else has the address.
    unsafe { libc::munmap(address, bytes) };
    let cached = pages.iter().filter(|page| **page & 1 == 1).count();
    told == 0 && cached * 2 >= pages.len()
}
