//! Owns the form of a piece while it travels: a value inside a process, bytes between processes,
//! and what was spilled of either. Slices, nodes and waiting rooms call it. It never decides where
//! a piece goes.

mod encoded;
mod spillable;
mod taken;

pub use encoded::{Encoded, items};
pub use spillable::{GatheringRoom, SpillablePiece};
pub(crate) use taken::join;
pub use taken::{ArrivedParts, Once, Taken};

use brambling_exchange::PayloadWeight;
use brambling_memory::{OutOfMemory, Spill, SpillError, Spilled, mutants};
use brambling_program::Value;
use std::sync::Arc;

/// Encoded pieces, shared until the last one has gone.
pub type PieceBytes = bytes::Bytes;

/// A piece on its way, or a chunk of its encoding.
#[derive(Clone, Debug)]
pub enum PieceData {
    /// A chunk.
    Bytes(PieceBytes),
    /// The first chunk of what several shards here get alike.
    First(PieceBytes, Arc<Once>),
    /// All of it, inside a process.
    Value(Value),
    /// What was spilled, and where several shards here find what one of them has decoded.
    Spilled(Arc<dyn Spilled>, Option<Arc<Once>>),
    /// What waits here, and may be spilled any time so that others get room.
    Parked(Arc<SpillablePiece>),
}

impl PayloadWeight for PieceData {
    fn bytes(&self) -> u64 {
        match self {
            PieceData::Bytes(bytes) | PieceData::First(bytes, _) => bytes.len() as u64,
            PieceData::Value(value) => value.bytes() as u64,
            PieceData::Spilled(..) | PieceData::Parked(_) => 0,
        }
    }

    fn spill(&mut self, to: &dyn Spill, refused: &OutOfMemory) -> Result<(), SpillError> {
        let (spilled, once) = match self {
            PieceData::Bytes(bytes) => (to.put(&[bytes], refused)?, None),
            PieceData::First(bytes, once) => (to.put(&[bytes], refused)?, Some(once.clone())),
            PieceData::Value(value) => (write(value, to, refused)?, None),
            PieceData::Spilled(..) | PieceData::Parked(_) => return Ok(()),
        };
        *self = PieceData::Spilled(spilled, once);
        Ok(())
    }
}

/// Spills a value. It waits for the disk.
fn write(
    value: &Value,
    to: &dyn Spill,
    refused: &OutOfMemory,
) -> Result<Arc<dyn Spilled>, SpillError> {
    let mut head = Vec::new();
    // The numbers are written from where they lie: no copy of the whole value is made because
    // memory is short.
    let tail = value.encode_head(&mut head);
    to.put(&[&head, tail], refused)
}

impl PieceData {
    /// For several shards here: they find what one of them has decoded.
    pub(crate) fn for_several(self) -> PieceData {
        match self {
            PieceData::Bytes(bytes) => PieceData::First(bytes, Arc::default()),
            cargo => cargo,
        }
    }

    /// What is read back takes, if it was spilled.
    pub(crate) fn spilled_bytes(&self) -> Option<u64> {
        match self {
            PieceData::Spilled(spilled, _) => Some(spilled.bytes()),
            PieceData::Parked(parked) => parked.spilled_bytes(),
            _ => None,
        }
    }

    /// Reads it back, if it was spilled and waits nowhere.
    pub(crate) fn recall(&mut self) -> Result<(), SpillError> {
        if let PieceData::Spilled(spilled, _) = self {
            let bytes = read(&**spilled)?;
            self.returned(bytes);
        }
        Ok(())
    }

    /// It was spilled, and these bytes were read.
    pub(crate) fn returned(&mut self, bytes: Vec<u8>) {
        if let PieceData::Spilled(_, once) = self {
            *self = match once.take() {
                // The destinations that share the piece still find what one of them decodes.
                Some(once) => PieceData::First(bytes.into(), once),
                None => PieceData::Bytes(bytes.into()),
            };
        }
    }
}

/// Reads what was spilled. It waits for the disk.
pub(crate) fn read(spilled: &dyn Spilled) -> Result<Vec<u8>, SpillError> {
    match mutants::is_on("spill-forgets") {
        true => Ok(Vec::new()),
        false => spilled.read(),
    }
}

#[cfg(test)]
mod tests;
