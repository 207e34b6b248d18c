//! Owns how a task that is open gets the next chunk of a stream: one that was spilled is read back when the task asks for it. Arrivals call it. It
//! never has more than one chunk of a task in memory.
//!
//! # Rules
//! * A chunk that a task has is spilled by nobody. It counts until the task asks for the next one, or returns.
//! * A chunk that finds no room while other tasks have theirs waits, and its task is woken when one of them has given its own back. So threads that
//!   take at the same time need room for one chunk, not for one each.
//!
//! # Why nothing waits for ever
//! A task has a chunk during a call only, and calls end. Whoever finds no room while nobody has a chunk fails, and says so.

use super::chances::{Chance, Refused};
use super::{Charge, ExchangeTurn, Unreturned, WaitingPiece, WaitingRoom, no_room};
use brambling_memory::{Reservation, held, mutants};
use brambling_program::ShardId;
use std::task::{Poll, Waker};

impl WaitingRoom {
    /// Brings the next chunk of a task to memory; none where nothing is spilled. Pending when there is no room as long as other tasks have chunks: the
    /// waker is woken.
    ///
    /// # Errors
    /// When it cannot be read back, or there is no room for it alone.
    pub(crate) fn bring_chunk(
        &self,
        at: ExchangeTurn,
        shard: ShardId,
        chunk: &mut WaitingPiece,
        waker: impl FnOnce() -> Waker,
    ) -> Result<Poll<Option<BroughtChunk>>, Unreturned> {
        held::forbid("a spilled chunk is read");
        if self.room.spill().is_none() {
            return Ok(Poll::Ready(None));
        }
        let waker = waker();
        loop {
            let chance = self.takers.chance(&waker);
            let chance = chance.expect("as many as there are tasks");
            // Nobody spills it from now on.
            if let Some(in_use) = chunk.cargo.unpark() {
                chunk.charge = Charge::InUse(in_use);
            }
            let Some(bytes) = chunk.cargo.spilled_bytes() else {
                return Ok(Poll::Ready(Some(BroughtChunk(None, chance))));
            };
            let source = match self.make_room(bytes)? {
                Ok(room) => {
                    chunk.cargo.recall()?;
                    return Ok(Poll::Ready(Some(BroughtChunk(Some(room), chance))));
                }
                Err(source) => source,
            };
            if mutants::is_on("chunks-do-not-wait-for-room") {
                return Err(no_room(at, shard, source).into());
            }
            match chance.step_back(&waker) {
                Refused::Waits => return Ok(Poll::Pending),
                Refused::Again => {}
                Refused::Never => return Err(no_room(at, shard, source).into()),
            }
        }
    }
}

/// A chunk that a task has: the room that it was read back to, and that others may wait for it. Dropped in this order.
#[derive(Debug)]
pub struct BroughtChunk(
    #[expect(dead_code, reason = "dropped when it is time")] Option<Reservation>,
    #[expect(dead_code, reason = "dropped when it is time, after the room")] Chance,
);
