//! Pooled byte buffers, so that frames do not allocate.
//!
//! Buffers come in size classes that are powers of two. A buffer that is given back waits in the
//! free list of its class, up to a bound; it stays counted in the budget, because it still is
//! memory of the process.

use crate::budget::{Budget, Class, OutOfMemory, Reservation};
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, PoisonError};

const SMALLEST_BYTES: usize = 4 << 10;
const LARGEST_BYTES: usize = 4 << 20;
const SIZE_CLASSES: usize = (LARGEST_BYTES / SMALLEST_BYTES).trailing_zeros() as usize + 1;

/// A buffer and what it holds of the budget.
struct Counted {
    bytes: Vec<u8>,
    room: Reservation,
}

#[derive(Default)]
struct Free {
    classes: [Vec<Counted>; SIZE_CLASSES],
    bytes: usize,
}

struct Inner {
    budget: Budget,
    class: Class,
    free_bytes_max: usize,
    free: Mutex<Free>,
}

/// A pool of byte buffers. Clones share it.
#[derive(Clone)]
pub struct Pool {
    inner: Arc<Inner>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("free_bytes", &self.free_bytes())
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool whose buffers count for `class`, and which keeps at most `free_bytes_max` for reuse.
    pub fn new(budget: Budget, class: Class, free_bytes_max: usize) -> Pool {
        Pool {
            inner: Arc::new(Inner {
                budget,
                class,
                free_bytes_max,
                free: Mutex::default(),
            }),
        }
    }

    /// An empty buffer that holds at least `bytes` without growing. When the budget refuses, the
    /// pool gives up what it keeps for reuse and asks once more.
    pub fn take(&self, bytes: usize) -> Result<PooledBuf, OutOfMemory> {
        let capacity = bytes
            .max(SMALLEST_BYTES)
            .checked_next_power_of_two()
            .unwrap_or(bytes);
        if let Some(class) = size_class(capacity) {
            let mut free = self.free();
            if let Some(counted) = free.classes[class].pop() {
                free.bytes -= counted.bytes.capacity();
                return Ok(PooledBuf {
                    counted: Some(counted),
                    pool: self.clone(),
                });
            }
        }
        // Beyond the largest class a buffer is as large as asked: it is not kept.
        let capacity = if capacity > LARGEST_BYTES {
            bytes
        } else {
            capacity
        };
        let reserve = || self.inner.budget.reserve(self.inner.class, capacity as u64);
        let room = reserve().or_else(|_| {
            self.trim();
            reserve()
        })?;
        let counted = Counted {
            bytes: Vec::with_capacity(capacity),
            room,
        };
        Ok(PooledBuf {
            counted: Some(counted),
            pool: self.clone(),
        })
    }

    /// Gives everything that waits for reuse back to the machine.
    pub fn trim(&self) {
        let free = std::mem::take(&mut *self.free());
        drop(free);
    }

    /// What waits for reuse.
    pub fn free_bytes(&self) -> usize {
        self.free().bytes
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Free> {
        // A panic cannot leave the lists half changed: each change is one push or pop.
        self.inner
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, mut counted: Counted) {
        let capacity = counted.bytes.capacity();
        // One that grew while in use is counted wrongly, so it is not kept.
        let Some(class) = size_class(capacity).filter(|_| counted.room.bytes() == capacity as u64)
        else {
            return;
        };
        counted.bytes.clear();
        let mut free = self.free();
        if free.bytes + capacity <= self.inner.free_bytes_max {
            free.bytes += capacity;
            free.classes[class].push(counted);
        }
    }
}

/// The size class of exactly this capacity.
fn size_class(capacity: usize) -> Option<usize> {
    let fits = capacity.is_power_of_two() && (SMALLEST_BYTES..=LARGEST_BYTES).contains(&capacity);
    fits.then(|| (capacity / SMALLEST_BYTES).trailing_zeros() as usize)
}

/// A buffer of a pool, given back when dropped.
pub struct PooledBuf {
    /// Absent only while it is dropped.
    counted: Option<Counted>,
    pool: Pool,
}

impl PooledBuf {
    /// Counts the buffer anew after writing made it grow beyond its capacity. When refused, the old
    /// size stays counted.
    pub fn settle(&mut self) -> Result<(), OutOfMemory> {
        let counted = self.counted.as_mut().expect("present until dropped");
        let capacity = counted.bytes.capacity() as u64;
        match capacity.checked_sub(counted.room.bytes()) {
            Some(more) => counted.room.grow(more),
            None => {
                counted.room.shrink(counted.room.bytes() - capacity);
                Ok(())
            }
        }
    }

    /// Makes it immutable, so that many can read parts of it.
    pub fn share(self) -> Shared {
        let range = 0..self.len();
        Shared {
            buf: Arc::new(self),
            range,
        }
    }
}

impl Deref for PooledBuf {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.counted.as_ref().expect("present until dropped").bytes
    }
}

impl DerefMut for PooledBuf {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.counted.as_mut().expect("present until dropped").bytes
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        if let Some(counted) = self.counted.take() {
            self.pool.put(counted);
        }
    }
}

impl fmt::Debug for PooledBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PooledBuf({} bytes)", self.len())
    }
}

/// Part of a buffer that is no longer written. Clones share the bytes; the last one gives the
/// buffer back.
#[derive(Clone)]
pub struct Shared {
    buf: Arc<PooledBuf>,
    range: Range<usize>,
}

impl Shared {
    /// A part of this part.
    ///
    /// # Panics
    /// If the range is not inside.
    pub fn slice(&self, range: Range<usize>) -> Shared {
        assert!(
            range.start <= range.end && range.end <= self.range.len(),
            "{range:?} is outside"
        );
        let start = self.range.start + range.start;
        Shared {
            buf: self.buf.clone(),
            range: start..start + range.len(),
        }
    }
}

impl Shared {
    /// The same part as `part`, which was borrowed from this one; none when it was not.
    pub fn slice_of(&self, part: &[u8]) -> Option<Shared> {
        let start = part.as_ptr().addr().checked_sub(self.as_ptr().addr())?;
        let end = start
            .checked_add(part.len())
            .filter(|&end| end <= self.len())?;
        Some(self.slice(start..end))
    }
}

impl Deref for Shared {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf[self.range.clone()]
    }
}

impl PartialEq for Shared {
    fn eq(&self, other: &Shared) -> bool {
        **self == **other
    }
}

impl Eq for Shared {}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({} bytes)", self.len())
    }
}
