//! A file that nobody else sees: it has no name, so it is gone with whoever holds it.

use crate::hidden::nameless;
use brambling_memory::held;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that is filled from its beginning. When the last one who has bytes in it lets go, their room is free.
#[derive(Debug)]
pub(super) struct Segment {
    file: File,
    /// How far it is filled.
    filled_bytes: AtomicU64,
    /// What all segments of the directory take.
    all_bytes: Arc<AtomicU64>,
}

impl Segment {
    /// An empty one in a directory.
    pub(super) fn new(directory: &Path, all_bytes: Arc<AtomicU64>) -> io::Result<Segment> {
        Ok(Segment {
            file: nameless(directory)?,
            filled_bytes: AtomicU64::new(0),
            all_bytes,
        })
    }

    pub(super) fn filled_bytes(&self) -> u64 {
        self.filled_bytes.load(Ordering::Relaxed)
    }

    /// Nobody has bytes in it: it is filled from its beginning again.
    pub(super) fn restart(&mut self) -> io::Result<()> {
        self.file.set_len(0)?;
        let filled_bytes = std::mem::take(self.filled_bytes.get_mut());
        self.all_bytes.fetch_sub(filled_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Takes room at the end, to be written; where it begins.
    pub(super) fn take(&self, bytes: u64) -> u64 {
        self.all_bytes.fetch_add(bytes, Ordering::Relaxed);
        // Relaxed: the file is written and read through the system, and who reads was told where by who wrote.
        self.filled_bytes.fetch_add(bytes, Ordering::Relaxed)
    }

    /// Writes what room was taken for. After an error the room is free again if it is the last that was taken; else it is with the segment.
    pub(super) fn write(&self, start: u64, parts: &[&[u8]]) -> io::Result<()> {
        held::forbid("a file is written");
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        let mut end = start;
        let written = parts.iter().try_for_each(|part| {
            self.file.write_all_at(part, end)?;
            end += part.len() as u64;
            Ok(())
        });
        if written.is_err() {
            let (now, relaxed) = (start + bytes, Ordering::Relaxed);
            let filled = &self.filled_bytes;
            if filled
                .compare_exchange(now, start, relaxed, relaxed)
                .is_ok()
            {
                self.all_bytes.fetch_sub(bytes, relaxed);
            }
        }
        written
    }

    pub(super) fn read(&self, start: u64, bytes: &mut [u8]) -> io::Result<()> {
        held::forbid("a file is read");
        self.file.read_exact_at(bytes, start)
    }

    /// Changes a byte: for tests.
    #[cfg(test)]
    pub(super) fn damage(&self, at: u64) {
        let mut byte = [0];
        self.read(at, &mut byte).unwrap();
        self.file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let filled_bytes = *self.filled_bytes.get_mut();
        self.all_bytes.fetch_sub(filled_bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    /// What could not be written takes no room, unless others took some behind it.
    #[test]
    fn a_full_disk_takes_no_room() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let all_bytes = Arc::<AtomicU64>::default();
        let segment = Segment {
            file: full,
            filled_bytes: AtomicU64::new(0),
            all_bytes: all_bytes.clone(),
        };
        let start = segment.take(7);
        assert!(segment.write(start, &[&[1; 3], &[2; 4]]).is_err());
        assert_eq!(
            (segment.filled_bytes(), all_bytes.load(Ordering::Relaxed)),
            (0, 0)
        );
        let first = segment.take(5);
        let second = segment.take(6);
        assert!(segment.write(first, &[&[1; 5]]).is_err());
        assert_eq!((first, second, segment.filled_bytes()), (0, 5, 11));
        drop(segment);
        assert_eq!(all_bytes.load(Ordering::Relaxed), 0);
    }
}
