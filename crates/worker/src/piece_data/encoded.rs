//! The encoding of a piece that leaves this process: what lies elsewhere is cut, not copied.

use super::{PieceBytes, PieceData};
use crate::pieces::Spares;
use brambling_exchange::Item;
use brambling_program::Value;
use brambling_program::tree::TreeNode;
use std::sync::Arc;

/// A piece's encoding: what was copied, and then what lies where the kernel wrote it.
#[derive(Clone, Debug, Default)]
pub struct Encoded {
    head: PieceBytes,
    tail: PieceBytes,
}

/// Keeps a value for as long as its bytes are to lie where they are.
struct Tail {
    value: Option<Value>,
    spares: Arc<Spares>,
}

impl AsRef<[u8]> for Tail {
    fn as_ref(&self) -> &[u8] {
        let value = self.value.as_ref();
        value.map_or(&[], |value| value.encode_head(&mut Vec::new()))
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            self.spares.put(value);
        }
    }
}

impl Encoded {
    /// Encodes a piece. Its last bytes stay where they lie if there are so many; its value is a spare one again when it has gone.
    pub fn of(value: Value, spares: &Arc<Spares>, shared_bytes: usize) -> Encoded {
        let mut head = Vec::new();
        let tail = value.encode_head(&mut head);
        // The last reference is dropped by whoever sends or acknowledges, under any lock. So the
        // bytes of a value that needs an interpreter are copied.
        let is_copied = value.payload_type().is_interpreted();
        if is_copied || tail.len() < shared_bytes.max(1) {
            head.extend_from_slice(tail);
            spares.put(value);
            return Encoded::from(PieceBytes::from(head));
        }
        let tail = Tail {
            value: Some(value),
            spares: spares.clone(),
        };
        Encoded {
            head: head.into(),
            tail: PieceBytes::from_owner(tail),
        }
    }

    /// Whether both may go as one: what is of equal bytes, as all of a broadcast is.
    pub(crate) fn is_same(&self, other: &Encoded) -> bool {
        let lies = |bytes: &PieceBytes| (bytes.as_ptr(), bytes.len());
        // Addresses first: a broadcast lends the same memory, and a look at all of it would cost as
        // much as sending.
        let same_tail = lies(&self.tail) == lies(&other.tail) || self.tail == other.tail;
        self.head == other.head && same_tail
    }
}

impl From<PieceBytes> for Encoded {
    fn from(head: PieceBytes) -> Encoded {
        let tail = PieceBytes::new();
        Encoded { head, tail }
    }
}

/// What a source sends to another process: its piece, in chunks where that is large, or an empty mark.
pub fn items(source: TreeNode, piece: Option<Encoded>, chunk_bytes: usize) -> Vec<Item<PieceData>> {
    let Some(piece) = piece else {
        let sources = source.leaves().expect("a source's");
        return vec![Item::Empty { sources }];
    };
    let chunks = chunks(source, &piece, chunk_bytes).into_iter();
    chunks.map(|item| item.map(PieceData::Bytes)).collect()
}

/// The chunks of a piece that leaves this process: what lies elsewhere is cut, not copied.
pub(super) fn chunks(
    source: TreeNode,
    piece: &Encoded,
    chunk_bytes: usize,
) -> Vec<Item<PieceBytes>> {
    let Encoded { head, tail } = piece;
    // Small pieces are the rule, and one item.
    if tail.is_empty() && head.len() <= chunk_bytes {
        return vec![Item::whole(source, head.clone())];
    }
    let count = head.len().div_ceil(chunk_bytes) + tail.len().div_ceil(chunk_bytes);
    let cut = |bytes: &PieceBytes| {
        let bytes = bytes.clone();
        let starts = (0..bytes.len()).step_by(chunk_bytes);
        starts.map(move |start| bytes.slice(start..bytes.len().min(start + chunk_bytes)))
    };
    let item = |(place, payload)| Item::Piece {
        source,
        chunk: place as u32,
        last: place + 1 == count,
        payload,
    };
    // The head and the tail are cut apart, so no chunk has to be put together by a copy.
    cut(head).chain(cut(tail)).enumerate().map(item).collect()
}
