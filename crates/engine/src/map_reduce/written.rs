//! Writes parts that somebody else has made: what another language's functions have given. It waits
//! for the disk.

use super::{MapReduceError, abandon, begin};
use crate::sort::job_number;
use brambling_operators::map_reduce::file_sink::FileSink;
use brambling_storage::{FileError, Staging};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Bytes between two looks at whether the disk keeps up.
const STEP_BYTES: usize = 1 << 20;

/// Wakes the thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Calls it until it is ready.
fn wait(mut poll: impl FnMut(&Waker) -> Poll<Result<(), FileError>>) -> Result<(), FileError> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match poll(&waker) {
            Poll::Ready(ready) => return ready,
            Poll::Pending => thread::park(),
        }
    }
}

/// Writes a directory of files `part-NNNNN`, which appears when all of them are whole. One that is
/// dropped before that leaves nothing.
///
/// # Examples
/// ```
/// use brambling::map_reduce::PartsWriter;
///
/// let output = std::env::temp_dir().join("brambling-parts-example");
/// # let _ = std::fs::remove_dir_all(&output);
/// let mut parts = PartsWriter::begin(&output)?;
/// parts.begin_part()?;
/// parts.write(b"be\t2\n")?;
/// let files = parts.commit()?;
/// assert_eq!(std::fs::read(&files[0])?, b"be\t2\n");
/// # std::fs::remove_dir_all(&output)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct PartsWriter {
    output: PathBuf,
    staging: Option<Staging>,
    part: Option<FileSink>,
    count: u32,
}

impl PartsWriter {
    /// Begins a directory.
    ///
    /// # Errors
    /// When it is there already and is not empty, or cannot be written.
    pub fn begin(output: &Path) -> Result<PartsWriter, MapReduceError> {
        let key = format!("map-reduce-{:016x}", job_number());
        Ok(PartsWriter {
            output: output.to_owned(),
            staging: Some(begin(output, &key)?),
            part: None,
            count: 0,
        })
    }

    /// Begins the next part; the one before is whole.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn begin_part(&mut self) -> Result<(), MapReduceError> {
        self.end_part()?;
        if let Some(staging) = &self.staging {
            self.part = Some(FileSink::new(staging.part(self.count, None)?));
            self.count += 1;
        }
        Ok(())
    }

    /// Appends bytes to the part that was begun last; nothing where there is none.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), MapReduceError> {
        if let Some(part) = &mut self.part {
            for some in bytes.chunks(STEP_BYTES) {
                wait(|waker| part.poll_room(waker))?;
                part.put(some);
            }
        }
        Ok(())
    }

    /// Gives the directory its name, and the names of its files.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn commit(mut self) -> Result<Vec<PathBuf>, MapReduceError> {
        self.end_part()?;
        if let Some(staging) = &self.staging {
            staging.commit()?;
        }
        self.staging = None;
        let name = |number| self.output.join(format!("part-{number:05}"));
        Ok((0..self.count).map(name).collect())
    }

    fn end_part(&mut self) -> Result<(), MapReduceError> {
        if let Some(mut part) = self.part.take() {
            wait(|waker| part.poll_written(waker))?;
            part.file().publish()?;
        }
        Ok(())
    }
}

impl Drop for PartsWriter {
    fn drop(&mut self) {
        // Its requests have to end before their directory does.
        if let Some(mut part) = self.part.take() {
            let _ = wait(|waker| part.poll_written(waker));
        }
        abandon(self.staging.as_ref());
    }
}
