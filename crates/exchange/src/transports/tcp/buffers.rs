//! Buffers for large frames, used again once nobody holds what came in them.

use bytes::Bytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Buffers are of a multiple of this, so that those of one frame fit another.
const STEP_BYTES: usize = 1 << 16;
/// What lies idle at most.
const IDLE_BYTES: usize = 64 << 20;
/// What a process keeps for its links' convenience, idle buffers and memory to share, is at most such
/// a part of its budget: of a budget of 256 MiB the 4 MiB that two processes share.
pub(super) const BUDGETS_PART: u64 = 64;

/// The buffers of a net.
#[derive(Clone)]
pub(super) struct Buffers(Arc<Mutex<Idle>>);

#[derive(Default)]
struct Idle {
    bytes_max: usize,
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    /// The fewest bytes that lay idle since the last look: nobody needed those.
    least_bytes: usize,
}

/// A buffer in use.
pub(super) struct PooledBuffer {
    bytes: Vec<u8>,
    len: usize,
    home: Buffers,
}

impl Buffers {
    /// None yet, in a process with such a budget.
    pub(super) fn within(budget_bytes: u64) -> Buffers {
        let part = usize::try_from(budget_bytes / BUDGETS_PART);
        Buffers(Arc::new(Mutex::new(Idle {
            bytes_max: part.map_or(IDLE_BYTES, |part| part.min(IDLE_BYTES)),
            ..Idle::default()
        })))
    }

    /// A buffer of so many bytes. What is in it is not said.
    pub(super) fn take(&self, len: usize) -> PooledBuffer {
        let mut idle = self.idle();
        let fits = idle.buffers.iter().rposition(|buffer| buffer.len() >= len);
        let bytes = fits.map(|place| idle.buffers.swap_remove(place));
        idle.bytes -= bytes.as_ref().map_or(0, Vec::len);
        idle.least_bytes = idle.least_bytes.min(idle.bytes);
        drop(idle);
        PooledBuffer {
            bytes: bytes.unwrap_or_else(|| vec![0; len.next_multiple_of(STEP_BYTES)]),
            len,
            home: self.clone(),
        }
    }

    /// Gives back what lay idle since the last call.
    pub(super) fn give_back(&self) {
        let mut idle = self.idle();
        let mut unused = idle.least_bytes;
        let mut dropped = Vec::new();
        while let Some(buffer) = idle.buffers.pop_if(|buffer| buffer.len() <= unused) {
            unused -= buffer.len();
            idle.bytes -= buffer.len();
            dropped.push(buffer);
        }
        idle.least_bytes = idle.bytes;
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PooledBuffer {
    /// Where to write.
    pub(super) fn place(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }

    /// To be read, and to be used again when nobody does any more.
    pub(super) fn share(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let mut idle = self.home.idle();
        if idle.bytes + self.bytes.len() <= idle.bytes_max {
            idle.bytes += self.bytes.len();
            idle.buffers.push(std::mem::take(&mut self.bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_nobody_holds_it() {
        let buffers = Buffers::within(u64::MAX);
        let mut first = buffers.take(100_000);
        first.place().fill(7);
        let at = first.as_ref().as_ptr();
        let shared = first.share();
        let part = shared.slice(90_000..);
        drop(shared);
        let second = buffers.take(50_000);
        assert_ne!(second.as_ref().as_ptr(), at, "a part is still held");
        assert!(part.iter().all(|byte| *byte == 7));
        drop(part);
        let third = buffers.take(60_000);
        assert_eq!(third.as_ref().as_ptr(), at);
        assert_eq!(third.as_ref().len(), 60_000);
    }

    #[test]
    fn what_lies_idle_is_given_back() {
        let buffers = Buffers::within(u64::MAX);
        let (used, unused) = (buffers.take(STEP_BYTES), buffers.take(STEP_BYTES));
        drop((used, unused));
        buffers.give_back();
        assert_eq!(
            buffers.idle().bytes,
            2 * STEP_BYTES,
            "not known to lie idle"
        );
        let used = buffers.take(1);
        drop(used);
        buffers.give_back();
        assert_eq!(buffers.idle().bytes, STEP_BYTES);
        buffers.give_back();
        assert_eq!(buffers.idle().bytes, 0);
    }

    #[test]
    fn of_a_small_budget_less_is_kept() {
        let buffers = Buffers::within(BUDGETS_PART * STEP_BYTES as u64);
        drop((buffers.take(STEP_BYTES), buffers.take(STEP_BYTES)));
        assert_eq!(buffers.idle().bytes, STEP_BYTES);
    }

    #[test]
    fn little_is_kept() {
        let buffers = Buffers::within(u64::MAX);
        let many: Vec<PooledBuffer> = (0..5).map(|_| buffers.take(IDLE_BYTES / 4)).collect();
        drop(many);
        assert_eq!(buffers.idle().bytes, IDLE_BYTES);
    }
}
