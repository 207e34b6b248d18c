//! Pieces that have come as a whole, and become values.

use super::{PieceBytes, PieceData};
use crate::assembly::Assembly;
use crate::pieces::Spares;
use brambling_exchange::Gathered;
use brambling_memory::held::{self, Held};
use brambling_program::{DecodeError, PayloadType, Value};
use std::sync::{Arc, Mutex, PoisonError};

/// A piece that has come as a whole.
#[derive(Clone, Debug)]
pub enum Taken {
    /// From a shard of this process.
    Value(Value),
    /// Its encoding, in parts.
    Parts(ArrivedParts),
}

/// The encoding of a piece that has come.
#[derive(Clone, Debug, Default)]
pub struct ArrivedParts {
    bytes: Vec<PieceBytes>,
    /// What others decoded, who get the same.
    once: Option<Arc<Once>>,
    /// Where its parts may lie already as they will.
    assembly: Option<Arc<Assembly>>,
}

/// What several shards get alike, once the first of them has decoded it.
#[derive(Debug, Default)]
pub struct Once(Mutex<Option<Value>>);

impl Taken {
    fn of(first: PieceBytes, once: Option<Arc<Once>>) -> Taken {
        Taken::Parts(ArrivedParts {
            bytes: vec![first],
            once,
            assembly: None,
        })
    }

    /// Its chunks may lie where they will.
    #[cfg(not(brambling_loom))]
    pub(crate) fn lies_in(&mut self, find: impl FnOnce() -> Option<Arc<Assembly>>) {
        if let Taken::Parts(parts) = self
            && parts.bytes.len() > 1
        {
            parts.assembly = find();
        }
    }

    /// The piece, where nothing comes from other processes: as it was sent, or as it was spilled.
    ///
    /// # Errors
    /// When what was spilled is no value of this type.
    #[cfg(not(brambling_loom))]
    pub(crate) fn into_own(self, piece: &'static PayloadType) -> Result<Value, DecodeError> {
        match self {
            Taken::Value(value) => Ok(value),
            taken => taken.into_value(&Spares::new(piece)),
        }
    }

    /// The piece; its memory comes from a spare one.
    ///
    /// # Errors
    /// When its bytes are no encoding of the type.
    pub fn into_value(self, spares: &Spares) -> Result<Value, DecodeError> {
        let ArrivedParts {
            bytes,
            once,
            assembly,
        } = match self {
            Taken::Value(value) => return Ok(value),
            Taken::Parts(parts) => parts,
        };
        let decode = || {
            let bytes = match assembly {
                Some(assembly) => match assembly.finish(bytes) {
                    Ok(value) => return Ok(value),
                    Err(bytes) => bytes,
                },
                None => bytes,
            };
            let mut value = spares.take();
            let parts: Vec<&[u8]> = bytes.iter().map(|part| &part[..]).collect();
            value.decode_parts(&parts)?;
            Ok(value)
        };
        // A destination that waits for another's decoding waits on a lock, and nobody may wait for
        // an interpreter under a lock. So what needs one is decoded for each destination.
        match once.filter(|_| spares.are_shared() && !spares.are_interpreted()) {
            Some(once) => Once::get_or(once, decode),
            None => decode(),
        }
    }

    /// What it takes.
    pub fn bytes(&self) -> u64 {
        match self {
            Taken::Value(value) => value.bytes() as u64,
            Taken::Parts(parts) => parts.bytes.iter().map(|part| part.len() as u64).sum(),
        }
    }

    /// Its encoding.
    pub fn to_vec(&self) -> Vec<u8> {
        match self {
            Taken::Value(value) => encoding(value),
            Taken::Parts(parts) => parts.bytes.concat(),
        }
    }
}

impl Once {
    /// What the first one decodes. The others wait for it as long as that takes; the last one leaves nothing behind.
    fn get_or(
        this: Arc<Once>,
        decode: impl FnOnce() -> Result<Value, DecodeError>,
    ) -> Result<Value, DecodeError> {
        let this = match Arc::try_unwrap(this) {
            // The last destination that shares the piece needs no copy of what another has decoded.
            Ok(Once(last)) => {
                let decoded = last.into_inner().unwrap_or_else(PoisonError::into_inner);
                return decoded.map_or_else(decode, Ok);
            }
            Err(shared) => shared,
        };
        let mut decoded = this.decoded();
        match &*decoded {
            Some(value) => Ok(value.clone()),
            None => {
                let value = decode()?;
                *decoded = Some(value.clone());
                Ok(value)
            }
        }
    }

    fn decoded(&self) -> Held<'_, Option<Value>> {
        held::lock(&self.0)
    }
}

fn encoding(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.bytes());
    value.encode(&mut bytes);
    bytes
}

/// Whole pieces, by source, from chunks in the order of sources and chunks.
pub(crate) fn join(chunks: impl IntoIterator<Item = Gathered<PieceData>>) -> Vec<(u32, Taken)> {
    let mut pieces: Vec<(u32, Taken)> = Vec::new();
    for chunk in chunks {
        let source = chunk.source.start() as u32;
        match (chunk.payload, pieces.last_mut()) {
            (PieceData::Bytes(bytes), Some((last, Taken::Parts(parts))))
                // Chunks come in order, so a chunk that is not the first goes on with the piece
                // before.
                if *last == source && chunk.chunk > 0 =>
            {
                parts.bytes.push(bytes);
            }
            (PieceData::Bytes(bytes), _) => pieces.push((source, Taken::of(bytes, None))),
            (PieceData::First(bytes, once), _) => {
                pieces.push((source, Taken::of(bytes, Some(once))));
            }
            (PieceData::Value(value), _) => pieces.push((source, Taken::Value(value))),
            (PieceData::Spilled(..) | PieceData::Parked(_), _) => {
                unreachable!("a turn is handed out when it has been read back")
            }
        }
    }
    pieces
}
