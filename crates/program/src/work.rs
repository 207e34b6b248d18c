//! Owns how a kernel says what it moved and computed, for reports. Built-in kernels return it; whoever runs kernels sums it
//! by stage. It says nothing of time.

use crate::{Context, IntoProgress, Progress};
use serde::{Deserialize, Serialize};

/// What a call of a kernel moved and computed. A kernel returns it in place of nothing, and may return it in a `Result`.
///
/// ```
/// use brambling_program::{Program, Work};
///
/// let mut p = Program::new("scale");
/// let values = p.dataset::<Vec<f64>>("values", 4);
/// p.compute("scale").update(&values).run(|values: &mut Vec<f64>| {
///     values.iter_mut().for_each(|value| *value *= 2.0);
///     let count = values.len() as u64;
///     // Each value is read and written, and multiplied once.
///     Work::streamed(16 * count).and_flops(count)
/// });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Bytes read and written in order.
    pub streamed_bytes: u64,
    /// Places read or written out of order.
    pub random_accesses: u64,
    /// Bytes of the table in which they lie: the largest.
    pub table_bytes: u64,
    /// Floating-point operations; a fused multiply-add is two.
    pub flops: u64,
    /// Bytes read from files. What was spilled for want of memory is not the kernel's, and is counted elsewhere.
    pub file_read_bytes: u64,
    /// Bytes written to files.
    pub file_written_bytes: u64,
}

impl Work {
    /// So many bytes, read or written in order.
    #[must_use]
    pub const fn streamed(bytes: u64) -> Work {
        Work {
            streamed_bytes: bytes,
            random_accesses: 0,
            table_bytes: 0,
            flops: 0,
            file_read_bytes: 0,
            file_written_bytes: 0,
        }
    }

    /// And so many bytes, read from files.
    #[must_use]
    pub const fn and_file_read(mut self, bytes: u64) -> Work {
        self.file_read_bytes += bytes;
        self
    }

    /// And so many bytes, written to files.
    #[must_use]
    pub const fn and_file_written(mut self, bytes: u64) -> Work {
        self.file_written_bytes += bytes;
        self
    }

    /// And so many floating-point operations.
    #[must_use]
    pub const fn and_flops(mut self, flops: u64) -> Work {
        self.flops += flops;
        self
    }

    /// And so many places out of order, in a table of so many bytes.
    #[must_use]
    pub const fn and_random(mut self, accesses: u64, table_bytes: u64) -> Work {
        self.random_accesses += accesses;
        if table_bytes > self.table_bytes {
            self.table_bytes = table_bytes;
        }
        self
    }

    /// Adds another call's.
    pub fn add(&mut self, other: Work) {
        self.streamed_bytes += other.streamed_bytes;
        self.flops += other.flops;
        self.file_read_bytes += other.file_read_bytes;
        self.file_written_bytes += other.file_written_bytes;
        *self = self.and_random(other.random_accesses, other.table_bytes);
    }
}

impl IntoProgress for Work {
    #[inline]
    fn into_progress(self, context: &mut Context<'_>) -> Progress {
        context.worked(self);
        Progress::Done
    }
}
