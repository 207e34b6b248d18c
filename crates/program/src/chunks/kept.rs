//! Chunks that keep the value of which they are.
#![allow(unsafe_code)] // What is lent travels with whoever keeps it.

use super::Encoder;
use crate::Value;
use brambling_memory::SpillError;
use std::sync::Arc;

/// The encoding of a value in chunks: [`Value::into_chunks`].
#[derive(Debug)]
pub struct Chunks {
    value: Arc<Value>,
    encoder: Encoder,
    bytes_max: usize,
}

/// Bytes of a value, which they keep.
#[derive(Debug)]
pub struct Lent {
    _value: Arc<Value>,
    bytes: *const [u8],
}

// SAFETY: nobody writes the value, which several share, so its bytes are only read; they may be dropped on any thread, as it may.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: they were borrowed from the value, which stays where it is, and is not written, while it is kept.
        unsafe { &*self.bytes }
    }
}

impl Chunks {
    pub(crate) fn of(value: Value, bytes_max: usize) -> Chunks {
        let encoder = match value.payload_type().is_interpreted() {
            true => Encoder::default().copying(),
            false => Encoder::default(),
        };
        Chunks {
            value: Arc::new(value),
            encoder,
            bytes_max,
        }
    }

    /// The next chunk: what was copied, and then what lies where it lay. None when there is nothing more.
    ///
    /// # Errors
    /// When what the value has on a disk cannot be read.
    #[expect(clippy::should_implement_trait)] // An iterator's end and an error are told apart by whoever asks.
    pub fn next(&mut self) -> Result<Option<(Vec<u8>, Lent)>, SpillError> {
        let Some(chunk) = self.encoder.next(&self.value, self.bytes_max)? else {
            return Ok(None);
        };
        let (copied, lent) = chunk.into_parts();
        let lent = Lent {
            _value: self.value.clone(),
            bytes: lent,
        };
        Ok(Some((copied, lent)))
    }
}
