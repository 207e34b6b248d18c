//! Writes parts that are in memory already: what another language's functions have given. It waits for the disk.

use super::{MapReduceError, begin};
use crate::sort::job_number;
use brambling_operators::map_reduce::file_sink::FileSink;
use brambling_storage::FileError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Wakes the thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait(mut poll: impl FnMut() -> Poll<Result<(), FileError>>) -> Result<(), FileError> {
    loop {
        match poll() {
            Poll::Ready(ready) => return ready,
            Poll::Pending => thread::park(),
        }
    }
}

/// Writes a directory of files `part-NNNNN`, which appears when all of them are whole. Gives their names.
///
/// # Errors
/// When the directory is there already and is not empty, or cannot be written.
pub fn write_parts(output: &Path, parts: &[&[u8]]) -> Result<Vec<PathBuf>, MapReduceError> {
    let key = format!("map-reduce-{:016x}", job_number());
    let staging = begin(output, &key)?;
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let write = |(number, bytes): (u32, &&[u8])| {
        let file = staging.part(number, None)?;
        let mut sink = FileSink::new(file);
        for some in bytes.chunks(1 << 20) {
            wait(|| sink.poll_room(&waker))?;
            sink.put(some);
        }
        wait(|| sink.poll_written(&waker))?;
        sink.file().publish()?;
        Ok(output.join(format!("part-{number:05}")))
    };
    let written: Result<Vec<PathBuf>, MapReduceError> = (0..).zip(parts).map(write).collect();
    match written {
        Ok(files) => {
            staging.commit()?;
            Ok(files)
        }
        Err(error) => {
            super::abandon(Some(&staging));
            Err(error)
        }
    }
}
