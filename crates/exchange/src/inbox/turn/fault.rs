//! Owns what may be wrong with an arrival, and says where. A turn finds it, and the inbox tells it
//! (`inbox.rs`).

use crate::inbox::InboxError;
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, Turn};

/// What is wrong with an arrival; the inbox knows where.
pub(crate) enum Fault {
    Stranger(TreeNode),
    Overlap(TreeNode),
}

impl Fault {
    pub(in crate::inbox) fn at(self, exchange: ExchangeId, turn: Turn) -> InboxError {
        match self {
            Fault::Stranger(source_node) => InboxError::Stranger {
                exchange,
                turn,
                source_node,
            },
            Fault::Overlap(source_node) => InboxError::Overlap {
                exchange,
                turn,
                source_node,
            },
        }
    }
}
