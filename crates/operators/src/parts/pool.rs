//! Owns the buffers in which what a job deals to its parts travels, and lies until it is sorted or
//! folded. Sources take them, parts give them back when they are done with them, and a buffer is used
//! again. Otherwise memory that comes and goes in pieces of all lengths would leave the process larger
//! than what it uses.

use brambling_memory::held;
use std::sync::Mutex;

/// A buffer has the length of a chunk, or a half, a quarter, an eighth or a sixteenth of it.
const LENGTHS: usize = 5;

/// Buffers of one job in one process.
#[derive(Debug)]
pub(crate) struct ChunkPool {
    chunk_bytes: usize,
    /// None: all that is given was taken here, and nothing else bounds it.
    free_bytes_max: Option<u64>,
    state: Mutex<FreeBuffers>,
}

#[derive(Debug, Default)]
struct FreeBuffers {
    by_length: [Vec<Vec<u8>>; LENGTHS],
    bytes: u64,
    is_over: bool,
}

impl ChunkPool {
    /// For chunks of so many bytes.
    pub(crate) fn new(chunk_bytes: usize, free_bytes_max: Option<u64>) -> ChunkPool {
        ChunkPool {
            chunk_bytes,
            free_bytes_max,
            state: Mutex::default(),
        }
    }

    /// An empty buffer for so many bytes. What is longer than a chunk, and what is very short, gets
    /// one of its own.
    pub(crate) fn take(&self, bytes: usize) -> Vec<u8> {
        let Some(length) = (0..LENGTHS).rev().find(|it| bytes <= self.capacity(*it)) else {
            return Vec::with_capacity(bytes);
        };
        if bytes <= self.capacity(LENGTHS) {
            return Vec::with_capacity(bytes);
        }
        let mut state = held::lock(&self.state);
        if let Some(buffer) = state.by_length[length].pop() {
            state.bytes -= buffer.capacity() as u64;
            return buffer;
        }
        drop(state);
        Vec::with_capacity(self.capacity(length))
    }

    /// What lies in a buffer, in one that is not much longer.
    pub(crate) fn fit(&self, buffer: Vec<u8>) -> Vec<u8> {
        if buffer.len() > buffer.capacity() / 2 {
            return buffer;
        }
        let mut short = self.take(buffer.len());
        short.extend_from_slice(&buffer);
        self.give(vec![buffer]);
        short
    }

    /// These may be used again.
    pub(crate) fn give(&self, buffers: Vec<Vec<u8>>) {
        let mut state = held::lock(&self.state);
        for mut buffer in buffers {
            let Some(length) = (0..LENGTHS).find(|it| buffer.capacity() == self.capacity(*it))
            else {
                continue;
            };
            let bytes = state.bytes + buffer.capacity() as u64;
            if state.is_over || self.free_bytes_max.is_some_and(|most| bytes > most) {
                continue;
            }
            buffer.clear();
            state.bytes = bytes;
            state.by_length[length].push(buffer);
        }
    }

    /// No source will take any more.
    pub(crate) fn end(&self) {
        let mut state = held::lock(&self.state);
        *state = FreeBuffers {
            is_over: true,
            ..FreeBuffers::default()
        };
    }

    fn capacity(&self, length: usize) -> usize {
        self.chunk_bytes >> length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again() {
        let pool = ChunkPool::new(1 << 16, None);
        let mut long = pool.take(40_000);
        assert_eq!(long.capacity(), 1 << 16);
        long.push(7);
        let at = long.as_ptr();
        let short = pool.take(5_000);
        assert_eq!(short.capacity(), 1 << 13);
        pool.give(vec![long, short, Vec::with_capacity(100)]);
        let again = pool.take(1 << 16);
        assert!(again.is_empty());
        assert_eq!(again.as_ptr(), at);
        let other = pool.take(1 << 16);
        assert_ne!(other.as_ptr(), at, "it is taken");
        assert_eq!(pool.take(1 << 17).capacity(), 1 << 17);
        assert_eq!(pool.take(9).capacity(), 9);
    }

    #[test]
    fn what_is_free_is_bounded_and_goes_at_the_end() {
        let pool = ChunkPool::new(1 << 16, Some(3 << 16));
        let buffers: Vec<_> = (0..5).map(|_| pool.take(1 << 16)).collect();
        pool.give(buffers);
        assert_eq!(held::lock(&pool.state).bytes, 3 << 16);
        pool.end();
        assert_eq!(held::lock(&pool.state).bytes, 0);
        pool.give(vec![pool.take(1 << 16)]);
        assert!(held::lock(&pool.state).by_length[0].is_empty());
    }
}
