//! Owns what has come for one shard and was not gathered: part of the shard, which moves with it.
//! Only whoever runs the shard calls it, so it has no lock. It never sends anything.
//!
//! # Rules
//! * What comes through the mailbox is taken here once for each name ([`ShardInbox`]), whatever order it comes in.
//! * Of an exchange in which the shard has places, the pieces of the lowest open turn go there as soon as they are whole ([`Arrivals::whole`]); the
//!   shard gathers them from there. Pieces of later turns wait here, where they count as early.
//! * What counts for a gather is given back when that has returned.

use crate::parts::{Packing, Unpacking};
use crate::piece_data::{PieceBytes, PieceData, Taken};
use crate::waiting::{
    Begun, BroughtChunk, Charge, ExchangeTurn, Returning, Returns, Unreturned, WaitingPiece,
    WaitingRoom, whole,
};
use brambling_exchange::{
    Acceptance, Gathered, InboxError, InboxState, Item, NextChunk, NoRoom, PayloadWeight,
    ShardInbox, SourceRelation, WaitingItem,
};
use brambling_memory::{SpillError, mutants};
use brambling_program::{ExchangeId, GroupId, ShardId, Turn};
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// Something for a shard, as it lies in its mailbox.
#[derive(Debug)]
pub struct Delivery {
    /// The exchange and its turn.
    pub at: ExchangeTurn,
    /// A piece, or that there is none.
    pub item: Item<WaitingPiece>,
}

/// The pieces of a complete turn, by ascending source.
pub type TurnPieces = Vec<(u32, Taken)>;

/// A chunk of a stream: its source, what it is, and how it counts.
pub type ArrivedChunk = (u32, Taken, ChunkCharge);

/// How a chunk counts that a task has; it does no longer when this is dropped.
#[derive(Debug, Default)]
pub struct ChunkCharge(
    #[expect(dead_code, reason = "dropped when it is time")] Charge,
    #[expect(dead_code, reason = "dropped when it is time, after the charge")] Option<BroughtChunk>,
);

/// What is next of a stream.
#[derive(Debug)]
pub enum NextArrived {
    /// This chunk.
    Chunk(ArrivedChunk),
    /// It has not come yet.
    Nothing,
    /// It is spilled, and others have the room that it needs.
    NoRoom,
    /// There is no more.
    Ended,
}

/// What has come for a shard.
#[derive(Debug)]
pub struct Arrivals {
    shard: ShardId,
    inbox: ShardInbox<WaitingPiece>,
    /// How pieces count that a gather has and has not merged yet.
    gathering: Vec<(ExchangeId, Charge)>,
    /// Turns that are read back from where they were spilled.
    returning: Vec<Returning>,
    /// Pieces that wait.
    waiting: usize,
    /// Whether anything has ever come: between neighbours nothing does.
    is_used: bool,
}

impl Default for Arrivals {
    /// Of no shard.
    fn default() -> Arrivals {
        let (group, index) = (GroupId(0), 0);
        Arrivals::new(ShardId { group, index }, [], 1)
    }
}

impl Arrivals {
    /// Nothing, for a shard to whose group `exchanges` lead.
    pub fn new(
        shard: ShardId,
        exchanges: impl IntoIterator<Item = ExchangeId>,
        open_turns: u64,
    ) -> Arrivals {
        Arrivals::of(shard, ShardInbox::new(shard, exchanges, open_turns))
    }

    fn of(shard: ShardId, inbox: ShardInbox<WaitingPiece>) -> Arrivals {
        Arrivals {
            shard,
            inbox,
            gathering: Vec::new(),
            returning: Vec::new(),
            waiting: 0,
            is_used: false,
        }
    }

    /// Whether anything of an exchange's lowest open turn waits here.
    #[inline]
    pub fn has_any(&mut self, exchange: ExchangeId) -> bool {
        self.is_used && self.inbox.has_any(exchange)
    }

    /// Takes what was in the mailbox.
    ///
    /// # Errors
    /// What no honest sender sends.
    pub fn accept(
        &mut self,
        delivery: Delivery,
        relation: &impl SourceRelation,
    ) -> Result<Acceptance, InboxError> {
        let Delivery { at, item } = delivery;
        let is_piece = matches!(item, Item::Piece { .. });
        let accepted = self.inbox.accept(at.0, at.1, item, relation)?;
        self.is_used = true;
        self.waiting += usize::from(is_piece && accepted != Acceptance::Repeated);
        Ok(accepted)
    }

    /// Sources, by their places among all, have ended a turn: of these nothing more comes.
    pub fn ended(
        &mut self,
        at: ExchangeTurn,
        places: impl IntoIterator<Item = u32>,
        relation: &impl SourceRelation,
    ) {
        self.inbox.cover(at.0, at.1, places, relation);
    }

    /// How many of the first sources of a turn were given to [`Arrivals::ended`] or passed over.
    pub fn known(&mut self, at: ExchangeTurn) -> &mut u32 {
        self.inbox.known(at.0, at.1)
    }

    /// Whether all of a turn is here.
    #[inline]
    pub fn is_complete(&self, at: ExchangeTurn, relation: &impl SourceRelation) -> bool {
        self.inbox.is_complete(at.0, at.1, relation)
    }

    /// Whether all of a complete turn, which is the next to be gathered, is in memory, or never will be. What was spilled is asked for, and the waker
    /// is woken when that is to be asked again.
    #[inline]
    pub fn is_back(
        &mut self,
        at: ExchangeTurn,
        waits: &WaitingRoom,
        waker: impl FnOnce() -> Waker,
    ) -> bool {
        match waits.returns() {
            Some(returns) => self.bring_back(at, (waits, returns), &waker()),
            None => true,
        }
    }

    #[cold]
    fn bring_back(
        &mut self,
        at: ExchangeTurn,
        (waits, returns): (&WaitingRoom, &Arc<Returns>),
        waker: &Waker,
    ) -> bool {
        let mut pieces: Vec<&mut WaitingPiece> = self.inbox.lowest_mut(at.0).collect();
        let begun = self.returning.iter().position(|it| it.at == at);
        let begun = begun.map_or_else(
            || match waits.begin_return(returns, (at, self.shard), &mut pieces, waker) {
                Begun::Here => Err(true),
                Begun::Later => Err(false),
                Begun::Now(turn) => {
                    self.returning.push(turn);
                    Ok(self.returning.len() - 1)
                }
            },
            Ok,
        );
        match begun {
            Ok(place) => {
                self.returning[place].is_asked = true;
                self.returning[place].go_on(returns, &mut pieces, waker)
            }
            Err(is_here) => is_here,
        }
    }

    /// The pieces of a complete turn. They count until [`Arrivals::retire`].
    ///
    /// # Errors
    /// When some were spilled and do not come back.
    pub fn take(
        &mut self,
        at: ExchangeTurn,
        relation: &impl SourceRelation,
        waits: &WaitingRoom,
    ) -> Result<TurnPieces, Unreturned> {
        let mut gathered = Vec::new();
        let is_complete = self.inbox.take(at.0, at.1, relation, &mut gathered);
        assert!(is_complete, "a gather runs when its turn is complete");
        self.hand_out(at, gathered, waits)
    }

    /// The sources of a turn of which all is here that was not handed out before: of some a piece, of the others that there is none.
    ///
    /// # Errors
    /// As [`Arrivals::take`].
    pub fn whole(
        &mut self,
        at: ExchangeTurn,
        relation: &impl SourceRelation,
        waits: &WaitingRoom,
    ) -> Result<(TurnPieces, Vec<Range<u64>>), Unreturned> {
        let (gathered, empty) = self.inbox.take_whole(at.0, at.1, relation);
        Ok((self.hand_out(at, gathered, waits)?, empty))
    }

    fn hand_out(
        &mut self,
        at: ExchangeTurn,
        mut gathered: Vec<Gathered<WaitingPiece>>,
        waits: &WaitingRoom,
    ) -> Result<TurnPieces, Unreturned> {
        self.waiting -= gathered.len();
        if let Some(place) = self.returning.iter().position(|it| it.at == at) {
            let charge = self.returning.swap_remove(place).end()?;
            self.gathering.push((at.0, charge));
        }
        let recalled = waits.recall(at, self.shard, &mut gathered)?;
        let mut counted_bytes = 0;
        let mut charge = |charge| match charge {
            Charge::Nothing => {}
            Charge::Counted(bytes) => counted_bytes += bytes,
            charge => self.gathering.push((at.0, charge)),
        };
        charge(recalled);
        let pieces = whole(gathered, charge);
        if counted_bytes > 0 {
            self.gathering.push((at.0, Charge::Counted(counted_bytes)));
        }
        Ok(pieces)
    }

    /// Whether the next chunk of a streamed exchange's turn is here, or that there is none.
    pub fn has_next(&mut self, at: ExchangeTurn, relation: &impl SourceRelation) -> bool {
        self.inbox.has_next(at.0, at.1, relation)
    }

    /// The next chunk of a streamed exchange's turn, with its source, and how it counts until that is dropped. Where there is no room for it yet the waker
    /// is woken.
    ///
    /// # Errors
    /// As [`Arrivals::take`].
    pub fn take_next(
        &mut self,
        at: ExchangeTurn,
        relation: &impl SourceRelation,
        waits: &WaitingRoom,
        waker: impl FnOnce() -> Waker,
    ) -> Result<NextArrived, Unreturned> {
        let mut brought = None;
        if let Some(chunk) = self.inbox.next_mut(at.0, at.1, relation) {
            brought = match waits.bring_chunk(at, self.shard, chunk, waker)? {
                Poll::Ready(brought) => brought,
                Poll::Pending => return Ok(NextArrived::NoRoom),
            };
        }
        let chunk = match self.inbox.take_next(at.0, at.1, relation) {
            NextChunk::Chunk(chunk) => chunk,
            NextChunk::Nothing => return Ok(NextArrived::Nothing),
            NextChunk::Ended => return Ok(NextArrived::Ended),
        };
        self.waiting -= 1;
        let mut charge = Charge::Nothing;
        let mut pieces = whole(vec![chunk], |its| charge = its);
        let (source, taken) = pieces.pop().expect("one of one");
        let counts = match mutants::is_on("chunks-count-until-they-are-taken") {
            true => ChunkCharge::default(),
            false => ChunkCharge(charge, brought),
        };
        Ok(NextArrived::Chunk((source, taken, counts)))
    }

    /// A turn was taken by chunks, or as many of them as were wanted: nothing of it is taken any more.
    pub fn end(&mut self, at: ExchangeTurn, waits: &WaitingRoom) {
        let left = self.inbox.lowest_mut(at.0).count();
        self.waiting = self.waiting.saturating_sub(left);
        if !mutants::is_on("ended-tasks-keep-their-turn") {
            self.inbox.catch_up(at.0, at.1 + 1);
        }
        self.settle(at.0, waits);
    }

    /// All turns of an exchange before this one were gathered from places.
    pub fn catch_up(&mut self, exchange: ExchangeId, next: Turn) {
        self.inbox.catch_up(exchange, next);
    }

    /// What a source sent lies in a place that is left: it waits here again, and counts nowhere.
    pub fn put_back(
        &mut self,
        at: ExchangeTurn,
        (source, piece): (u32, Option<PieceData>),
        relation: &impl SourceRelation,
    ) {
        self.waiting += usize::from(piece.is_some());
        let piece = piece.map(WaitingPiece::uncounted);
        self.inbox.put_back(at.0, at.1, (source, piece), relation);
    }

    /// A turn was gathered here: nothing of it is taken any more.
    pub fn retire(&mut self, at: ExchangeTurn, waits: &WaitingRoom) {
        self.inbox.retire(at.0, at.1);
        self.settle(at.0, waits);
    }

    /// A turn was gathered from places: as far as this is concerned, all turns before the next one are over.
    pub fn retired_elsewhere(&mut self, at: ExchangeTurn, waits: &WaitingRoom) {
        if self.is_used {
            self.inbox.catch_up(at.0, at.1 + 1);
            self.settle(at.0, waits);
        }
    }

    fn settle(&mut self, exchange: ExchangeId, waits: &WaitingRoom) {
        if !mutants::is_on("gathered-pieces-keep-their-room") {
            let its = self.gathering.extract_if(.., |it| it.0 == exchange);
            its.for_each(|(_, charge)| waits.give_back(charge));
        }
        if self.waiting > 0 {
            self.inbox
                .lowest_mut(exchange)
                .for_each(WaitingPiece::promote);
        }
    }

    /// The lowest turn of an exchange that is not retired.
    pub fn next(&self, exchange: ExchangeId) -> Turn {
        self.inbox.next(exchange)
    }

    /// What moves with the shard: its pieces are packed, and what is given says how long each is.
    ///
    /// # Errors
    /// When something was spilled and cannot be read.
    pub fn pack(mut self, packing: &mut Packing) -> Result<InboxState<u64>, SpillError> {
        let take = |kept: &mut WaitingPiece| {
            let nothing = WaitingPiece::uncounted(PieceData::Bytes(PieceBytes::new()));
            std::mem::replace(kept, nothing)
        };
        let state = self.inbox.export(take);
        state.try_map(|kept| kept.pack(packing))
    }

    /// What a shard has brought along.
    ///
    /// # Errors
    /// When it is none of this shard's, or finds no room.
    pub fn unpack(
        shard: ShardId,
        exchanges: impl IntoIterator<Item = ExchangeId>,
        open_turns: u64,
        state: InboxState<u64>,
        from: &mut Unpacking,
        relation: &impl SourceRelation,
        waits: &WaitingRoom,
    ) -> Result<Arrivals, ArrivalRefusal> {
        let state = state.try_map(|bytes| {
            let bytes = from.take(bytes).ok_or(ArrivalRefusal::Short(shard))?;
            Ok::<_, ArrivalRefusal>(WaitingPiece::uncounted(PieceData::Bytes(bytes)))
        })?;
        let mut inbox = ShardInbox::import(shard, exchanges, open_turns, state, relation)?;
        let mut waiting = 0;
        for piece in inbox.waiting_mut() {
            let WaitingItem {
                exchange,
                turn,
                lowest_open,
                payload,
            } = piece;
            from.give_back(payload.cargo.bytes());
            waits.count((exchange, turn), shard, lowest_open, payload)?;
            waiting += 1;
        }
        let mut arrivals = Arrivals::of(shard, inbox);
        (arrivals.waiting, arrivals.is_used) = (waiting, true);
        Ok(arrivals)
    }

    /// The shard is to leave, and cannot yet: from now on it is noted which turns are asked for.
    pub fn ask_anew(&mut self) {
        self.returning
            .iter_mut()
            .for_each(|turn| turn.is_asked = false);
    }

    /// Turns that are read back and were not asked for since [`Arrivals::ask_anew`] step back: the shard gathers them elsewhere.
    pub fn step_back(&mut self) {
        for turn in self.returning.extract_if(.., |turn| !turn.is_asked) {
            let exchange = turn.at.0;
            turn.step_back(self.inbox.lowest_mut(exchange));
        }
    }

    /// The job ends: what still counts is given back.
    pub fn give_up(&mut self, waits: &WaitingRoom) {
        self.returning.clear();
        let gathering = self.gathering.drain(..).map(|it| it.1);
        gathering.for_each(|charge| waits.give_back(charge));
        for piece in self.inbox.waiting_mut() {
            waits.give_back(piece.payload.take_charge());
        }
    }
}

/// Why what a shard has brought along cannot be taken.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ArrivalRefusal {
    /// It is no inbox of this shard's.
    #[error(transparent)]
    Inbox(#[from] InboxError),
    /// There is no room for it.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// Some of it is missing.
    #[error("the pieces of shard {0} end before they should")]
    Short(ShardId),
}

#[cfg(test)]
mod tests;
