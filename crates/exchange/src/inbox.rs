//! Owns what has come for one shard, and the rule that a piece is merged exactly once (invariant
//! 4). The worker's arrivals call it with each item, and take whole turns from it. It never asks
//! from which worker an item came.
//!
//! # Rules
//! A piece is named by exchange, turn, source node and chunk. An inbox takes each name once, tells
//! repetitions apart, and drops what belongs to a turn that it has retired. A turn is complete when
//! pieces and empty marks account for every source; its pieces are then handed out once, in the order of
//! sources and chunks, whatever order they came in. At most a fixed number of turns is open: credit
//! bounds what honest senders do, and the inbox refuses the rest.
//!
//! The inbox moves with its shard, so there is only ever one that can take a piece.

mod state;
mod turn;

pub use state::{ExchangeState, InboxState, PieceState, TurnState};
pub(crate) use turn::{Fault, OpenTurn};
pub use turn::{Gathered, NextChunk};

use crate::parcel::Item;
use crate::sources::SourceRelation;
use brambling_memory::mutants;
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, ShardId, Turn};
use std::ops::Range;

/// What an arrival did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Acceptance {
    /// It was taken; the turn still waits for others.
    Waiting,
    /// It was taken and the turn is complete: wake the shard.
    Complete,
    /// It had come before; nothing changed.
    Repeated,
}

/// An arrival that no honest sender makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InboxError {
    /// The shard's group gathers nothing from this exchange.
    #[error("exchange {0} does not lead to this shard")]
    UnknownExchange(ExchangeId),
    /// The sender had no credit for this turn.
    #[error("exchange {exchange} turn {turn} came while turn {next} is the lowest open one")]
    WithoutCredit {
        /// The exchange.
        exchange: ExchangeId,
        /// The turn that came.
        turn: Turn,
        /// The lowest turn that is not retired.
        next: Turn,
    },
    /// The relation does not name this source.
    #[error("exchange {exchange} turn {turn}: {source_node:?} is not among the sources")]
    Stranger {
        /// The exchange.
        exchange: ExchangeId,
        /// The turn.
        turn: Turn,
        /// Who sent it.
        source_node: TreeNode,
    },
    /// Some of the sources, but not all, have been heard in another way.
    #[error("exchange {exchange} turn {turn}: {source_node:?} overlaps what came before")]
    Overlap {
        /// The exchange.
        exchange: ExchangeId,
        /// The turn.
        turn: Turn,
        /// Who sent it.
        source_node: TreeNode,
    },
    /// A state that was moved here names a piece twice.
    #[error("exchange {exchange} turn {turn}: the state that was moved is damaged")]
    Damaged {
        /// The exchange.
        exchange: ExchangeId,
        /// The turn.
        turn: Turn,
    },
}

#[derive(Debug)]
struct Lane<P> {
    exchange: ExchangeId,
    /// The lowest turn that is not retired.
    next: Turn,
    /// Turn t is at t modulo the number of open turns; storage is used again.
    open: Vec<OpenTurn<P>>,
}

impl<P> Lane<P> {
    fn new(exchange: ExchangeId, open_turns: u64) -> Lane<P> {
        let open = (0..open_turns).map(|_| OpenTurn::default()).collect();
        Lane {
            exchange,
            next: 0,
            open,
        }
    }

    fn open(&mut self, turn: Turn) -> &mut OpenTurn<P> {
        let place = turn % self.open.len() as u64;
        &mut self.open[place as usize]
    }

    fn is_open(&self, turn: Turn) -> bool {
        turn >= self.next && turn - self.next < self.open.len() as u64
    }
}

/// A piece that waits for its turn's gather.
#[derive(Debug)]
pub struct WaitingItem<'a, P> {
    /// The exchange.
    pub exchange: ExchangeId,
    /// Its turn.
    pub turn: Turn,
    /// The lowest turn of it that is open.
    pub lowest_open: Turn,
    /// What was sent.
    pub payload: &'a mut P,
}

/// What has arrived for one shard.
#[derive(Debug)]
pub struct ShardInbox<P> {
    shard: ShardId,
    /// Ascending.
    lanes: Vec<Lane<P>>,
}

impl<P> ShardInbox<P> {
    /// The inbox of `shard`, to whose group `exchanges` lead, with `open_turns` open per exchange.
    pub fn new(
        shard: ShardId,
        exchanges: impl IntoIterator<Item = ExchangeId>,
        open_turns: u64,
    ) -> ShardInbox<P> {
        assert!(open_turns > 0, "an inbox without room");
        let mut lanes: Vec<Lane<P>> = exchanges
            .into_iter()
            .map(|exchange| Lane::new(exchange, open_turns))
            .collect();
        // Sorted for the look-up; an exchange that is named twice has one lane.
        lanes.sort_by_key(|lane| lane.exchange);
        lanes.dedup_by_key(|lane| lane.exchange);
        ShardInbox { shard, lanes }
    }

    /// The lowest turn of `exchange` that is not retired.
    ///
    /// # Panics
    /// If the exchange does not lead to this shard.
    pub fn next(&self, exchange: ExchangeId) -> Turn {
        self.lanes[self.place(exchange).expect("an exchange of this group")].next
    }

    /// Takes a piece or empty marks.
    ///
    /// Insensitive to order and repetition. What is refused or repeated changes nothing.
    pub fn accept(
        &mut self,
        exchange: ExchangeId,
        turn: Turn,
        item: Item<P>,
        relation: &impl SourceRelation,
    ) -> Result<Acceptance, InboxError> {
        let shard = self.shard;
        let place = self
            .place(exchange)
            .ok_or(InboxError::UnknownExchange(exchange))?;
        let lane = &mut self.lanes[place];
        // Retired turns are known by their number alone: nothing remembers what had come in them.
        if turn < lane.next && !mutants::is_on("inbox-reopens-turns") {
            return Ok(Acceptance::Repeated);
        }
        // An honest source has waited for credit, so nothing beyond the open turns has to be kept.
        if turn >= lane.next && !lane.is_open(turn) {
            return Err(InboxError::WithoutCredit {
                exchange,
                turn,
                next: lane.next,
            });
        }
        let sources = relation.sources(exchange, turn, shard);
        lane.open(turn)
            .accept(item, &sources)
            .map_err(|fault| fault.at(exchange, turn))
    }

    /// Whether every source of a turn that is not retired is accounted for.
    pub fn is_complete(
        &self,
        exchange: ExchangeId,
        turn: Turn,
        relation: &impl SourceRelation,
    ) -> bool {
        let lane = &self.lanes[self.place(exchange).expect("an exchange of this group")];
        let open = &lane.open[(turn % lane.open.len() as u64) as usize];
        lane.is_open(turn) && open.is_complete(&relation.sources(exchange, turn, self.shard))
    }

    /// Appends the pieces of a complete turn to `pieces`, in the order of sources and chunks. Returns
    /// false, and changes nothing, while the turn is not complete.
    ///
    /// # Panics
    /// If the turn was handed out before.
    #[must_use]
    pub fn take(
        &mut self,
        exchange: ExchangeId,
        turn: Turn,
        relation: &impl SourceRelation,
        pieces: &mut Vec<Gathered<P>>,
    ) -> bool {
        let complete = self.is_complete(exchange, turn, relation);
        if complete {
            let place = self.place(exchange).expect("an exchange of this group");
            self.lanes[place].open(turn).take(pieces);
        }
        complete
    }

    /// Sources of a turn, by their places among all, send nothing more: those of which nothing came send nothing.
    ///
    /// # Panics
    /// If the exchange does not lead to this shard, or the turn is not open.
    pub fn cover(
        &mut self,
        exchange: ExchangeId,
        turn: Turn,
        places: impl IntoIterator<Item = u32>,
        relation: &impl SourceRelation,
    ) {
        let sources = relation.sources(exchange, turn, self.shard);
        let lane = self.lane(exchange);
        assert!(
            lane.is_open(turn),
            "exchange {exchange} turn {turn} is closed"
        );
        lane.open(turn).cover_places(places, &sources);
    }

    /// A number that belongs to a turn until it retires, 0 at first: how many of its first sources whoever has the inbox knows about.
    ///
    /// # Panics
    /// As [`ShardInbox::cover`].
    pub fn known(&mut self, exchange: ExchangeId, turn: Turn) -> &mut u32 {
        self.lane(exchange).open(turn).known()
    }

    /// The sources of a turn of which all has come and was not handed out yet: the pieces of some, in the order of sources and chunks, and leaves
    /// that send nothing. They stay accounted for.
    ///
    /// # Panics
    /// As [`ShardInbox::cover`].
    pub fn take_whole(
        &mut self,
        exchange: ExchangeId,
        turn: Turn,
        relation: &impl SourceRelation,
    ) -> (Vec<Gathered<P>>, Vec<Range<u64>>) {
        let sources = relation.sources(exchange, turn, self.shard);
        self.lane(exchange).open(turn).take_whole(&sources)
    }

    /// Whether the next chunk of a turn that is handed out by chunks is here, or that there is none.
    ///
    /// # Panics
    /// As [`ShardInbox::cover`].
    pub fn has_next(
        &mut self,
        exchange: ExchangeId,
        turn: Turn,
        relation: &impl SourceRelation,
    ) -> bool {
        let sources = relation.sources(exchange, turn, self.shard);
        self.lane(exchange).open(turn).has_next(&sources)
    }

    /// The chunk that [`ShardInbox::take_next`] would give, if it would give one.
    ///
    /// # Panics
    /// As [`ShardInbox::cover`].
    pub fn next_mut(
        &mut self,
        exchange: ExchangeId,
        turn: Turn,
        relation: &impl SourceRelation,
    ) -> Option<&mut P> {
        let sources = relation.sources(exchange, turn, self.shard);
        self.lane(exchange).open(turn).next_mut(&sources)
    }

    /// The next chunk of a turn, by ascending source, and of each source in order, whatever order they came in: once. A source's last chunk says that
    /// it has ended, and is not handed out.
    ///
    /// # Panics
    /// As [`ShardInbox::cover`].
    pub fn take_next(
        &mut self,
        exchange: ExchangeId,
        turn: Turn,
        relation: &impl SourceRelation,
    ) -> NextChunk<P> {
        let sources = relation.sources(exchange, turn, self.shard);
        self.lane(exchange).open(turn).take_next(&sources)
    }

    /// Whether anything of the lowest open turn is here that was not handed out.
    ///
    /// # Panics
    /// If the exchange does not lead to this shard.
    pub fn has_any(&mut self, exchange: ExchangeId) -> bool {
        let lane = self.lane(exchange);
        let next = lane.next;
        !lane.open(next).is_untouched()
    }

    /// What a source sent was handed out, and was not merged: it waits here again.
    ///
    /// # Panics
    /// As [`ShardInbox::cover`].
    pub fn put_back(
        &mut self,
        exchange: ExchangeId,
        turn: Turn,
        (source, piece): (u32, Option<P>),
        relation: &impl SourceRelation,
    ) {
        let sources = relation.sources(exchange, turn, self.shard);
        let lane = self.lane(exchange);
        lane.open(turn).put_back(source, piece, &sources);
    }

    /// All turns before this one were merged elsewhere.
    ///
    /// # Panics
    /// If the exchange does not lead to this shard.
    pub fn catch_up(&mut self, exchange: ExchangeId, next: Turn) {
        let lane = self.lane(exchange);
        while lane.next < next {
            let turn = lane.next;
            // Not closed: the turn was merged elsewhere, so nothing was handed out here.
            lane.open(turn).reset();
            lane.next += 1;
        }
    }

    /// Ends a turn whose pieces were merged: it takes nothing any more, and one more turn is open.
    ///
    /// # Panics
    /// If it is not the lowest open turn, or was not handed out: the gathers of an exchange write the
    /// same dataset, so they retire in order.
    pub fn retire(&mut self, exchange: ExchangeId, turn: Turn) {
        let lane = self.lane(exchange);
        assert_eq!(turn, lane.next, "exchange {exchange} retires out of order");
        lane.open(turn).close();
        lane.next += 1;
    }

    /// The pieces that wait, of every turn that was not handed out.
    pub fn waiting_mut(&mut self) -> impl Iterator<Item = WaitingItem<'_, P>> {
        self.lanes.iter_mut().flat_map(|lane| {
            let Lane {
                exchange,
                next,
                open,
            } = lane;
            let (exchange, next, count) = (*exchange, *next, open.len() as u64);
            (0..).zip(open).flat_map(move |(place, open)| {
                // Open turns lie at their number modulo the count, so the first place is not the
                // lowest turn: this is the open turn that lies here.
                let turn = next.wrapping_add((place + count - next % count) % count);
                open.pieces_mut().map(move |payload| WaitingItem {
                    exchange,
                    turn,
                    lowest_open: next,
                    payload,
                })
            })
        })
    }

    /// The pieces of the lowest open turn of an exchange that have come and were not handed out.
    ///
    /// # Panics
    /// If the exchange does not lead to this shard.
    pub fn lowest_mut(&mut self, exchange: ExchangeId) -> impl Iterator<Item = &mut P> {
        let lane = self.lane(exchange);
        let next = lane.next;
        lane.open(next).pieces_mut()
    }

    fn lane(&mut self, exchange: ExchangeId) -> &mut Lane<P> {
        let place = self.place(exchange).expect("an exchange of this group");
        &mut self.lanes[place]
    }

    fn place(&self, exchange: ExchangeId) -> Option<usize> {
        self.lanes
            .binary_search_by_key(&exchange, |lane| lane.exchange)
            .ok()
    }
}
