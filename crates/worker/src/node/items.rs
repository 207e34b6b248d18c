//! Pieces on their way: cut into chunks, and put together again.

use super::Bytes;
use brambling_exchange::{Gathered, Item};
use brambling_program::tree::TreeNode;

/// What a source sends to a destination: chunks of its piece, or an empty mark.
pub(super) fn items(source: u32, piece: Option<Bytes>, chunk_bytes: usize) -> Vec<Item<Bytes>> {
    let source = TreeNode::leaf(source.into());
    match piece {
        None => vec![Item::Empty {
            sources: source.index..source.index + 1,
        }],
        Some(piece) if piece.len() <= chunk_bytes => vec![Item::whole(source, piece)],
        Some(piece) => {
            let count = piece.len().div_ceil(chunk_bytes);
            let chunk = |(place, bytes): (usize, &[u8])| Item::Piece {
                source,
                chunk: place as u32,
                last: place + 1 == count,
                payload: bytes.into(),
            };
            piece.chunks(chunk_bytes).enumerate().map(chunk).collect()
        }
    }
}

/// Whole pieces, by source, from chunks in the order of sources and chunks.
pub(super) fn join(chunks: Vec<Gathered<Bytes>>) -> Vec<(u32, Vec<u8>)> {
    let mut pieces: Vec<(u32, Vec<u8>)> = Vec::new();
    for chunk in chunks {
        let source = chunk.source.start() as u32;
        match pieces.last_mut() {
            Some((last, bytes)) if *last == source && chunk.chunk > 0 => {
                bytes.extend_from_slice(&chunk.payload);
            }
            _ => pieces.push((source, chunk.payload.to_vec())),
        }
    }
    pieces
}
