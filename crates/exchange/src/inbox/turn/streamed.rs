//! Owns what is known of a turn that is handed out by chunks: how far that has come. The open turn calls it (`turn.rs`). It never judges what comes.

use super::Gathered;
use std::collections::BTreeMap;

/// What is next of a turn that is handed out by chunks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NextChunk<P> {
    /// This chunk.
    Chunk(Gathered<P>),
    /// It has not come yet.
    Nothing,
    /// All were handed out.
    Ended,
}

/// A turn that is handed out by chunks, as far as that has come.
#[derive(Debug)]
pub(super) struct Streamed<P> {
    /// The place of the source whose chunks are handed out.
    pub(super) place: u32,
    /// The next of them.
    pub(super) chunk: u32,
    /// What has come, by source and chunk.
    pub(super) sorted: BTreeMap<(u64, u32), Gathered<P>>,
}

impl<P> Default for Streamed<P> {
    fn default() -> Self {
        Streamed {
            place: 0,
            chunk: 0,
            sorted: BTreeMap::new(),
        }
    }
}
