//! How far a sort is, for whoever shows that to a user while it runs. It decides nothing; the counts are those of the tasks.

use super::SortPlan;
use brambling_memory::held;
use brambling_operators::sort::job::SortShared;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// A place where a sort tells how far it is: given to [`Sort::progress`](super::Sort::progress), and read meanwhile by whoever is
/// asked for interruptions. A clone is the same place.
///
/// ```
/// use brambling::sort::{Sort, SortProgress};
/// use brambling::{Caller, Interrupted, RunOptions};
///
/// struct Shows(SortProgress, u64);
/// impl Caller for Shows {
///     fn check(&mut self) -> Result<(), Interrupted> {
///         if let Some(bytes) = self.0.now().and_then(|it| it.bytes) {
///             self.1 = bytes.moved;
///         }
///         Ok(())
///     }
/// }
///
/// let folder = std::env::temp_dir().join(format!("brambling-progress-{}", std::process::id()));
/// std::fs::create_dir_all(&folder)?;
/// std::fs::write(folder.join("records"), vec![7; 100 * 1_000])?;
/// let progress = SortProgress::default();
/// let sort = Sort::new([folder.join("records")], folder.join("sorted")).progress(&progress);
/// sort.run_with(&RunOptions::new().threads(1), &mut Shows(progress.clone(), 0))?;
/// assert!(progress.now().is_none(), "it has ended");
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct SortProgress(Arc<Mutex<Option<SortBegun>>>);

#[derive(Debug)]
struct SortBegun {
    at: Instant,
    input_bytes: u64,
    /// Dangling where workers of a cluster sort.
    shared: Weak<SortShared>,
}

/// How far a sort is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SortAdvance {
    /// Since it began.
    pub elapsed: Duration,
    /// What was moved; none where workers of a cluster sort, which do not tell it.
    pub bytes: Option<SortedBytes>,
}

/// Bytes that a sort in this process has moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SortedBytes {
    /// Whether all of the input has been read.
    pub is_read: bool,
    /// Bytes read, of the input and of runs.
    pub read: u64,
    /// Bytes given to the disk, for the output and for runs.
    pub written: u64,
    /// Both.
    pub moved: u64,
    /// What will have been moved at the end, as far as is known: runs that are still to come are not.
    pub total: u64,
}

impl SortProgress {
    /// How far the sort is that runs; none when none does.
    pub fn now(&self) -> Option<SortAdvance> {
        let begun = held::lock(&self.0);
        let begun = begun.as_ref()?;
        let bytes = begun.shared.upgrade().map(|shared| {
            let so_far = shared.progress();
            let (input, runs) = (so_far.read_bytes(), so_far.run_written_bytes());
            let read = input + so_far.run_read_bytes();
            let written = so_far.written_bytes() + runs;
            SortedBytes {
                is_read: input >= begun.input_bytes,
                read,
                written,
                moved: read + written,
                total: 2 * (begun.input_bytes + runs),
            }
        });
        Some(SortAdvance {
            elapsed: begun.at.elapsed(),
            bytes,
        })
    }

    /// A sort begins: its end is when what this gives is dropped.
    pub(super) fn begin(&self, plan: &SortPlan, shared: Weak<SortShared>) -> ProgressEnd<'_> {
        *held::lock(&self.0) = Some(SortBegun {
            at: Instant::now(),
            input_bytes: plan.input_bytes(),
            shared,
        });
        ProgressEnd(self)
    }
}

/// While this lives, a sort runs.
pub(super) struct ProgressEnd<'a>(&'a SortProgress);

impl Drop for ProgressEnd<'_> {
    fn drop(&mut self) {
        *held::lock(&self.0.0) = None;
    }
}
