//! An inbox on its way to another worker.

use super::{Acceptance, InboxError, ShardInbox};
use crate::parcel::Item;
use crate::sources::SourceRelation;
use brambling_memory::mutants;
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, ShardId, Turn};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Range;

/// All that an inbox knows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InboxState<P> {
    /// By exchange.
    pub exchanges: Vec<ExchangeState<P>>,
}

/// One exchange of an inbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ExchangeState<P> {
    /// The exchange.
    pub exchange: ExchangeId,
    /// The lowest turn that is not retired.
    pub next: Turn,
    /// Open turns for which something came.
    pub turns: Vec<TurnState<P>>,
}

/// One open turn of an exchange.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TurnState<P> {
    /// The turn.
    pub turn: Turn,
    /// The pieces that came.
    pub pieces: Vec<PieceState<P>>,
    /// The leaves that send nothing.
    pub empties: Vec<Range<u64>>,
}

/// One piece of an open turn.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PieceState<P> {
    /// Who sent it.
    pub source: TreeNode,
    /// The place of the chunk.
    pub chunk: u32,
    /// Whether it is the source's last chunk.
    pub last: bool,
    /// What was sent.
    pub payload: P,
}

impl<P> InboxState<P> {
    /// The same, with other payloads.
    ///
    /// # Errors
    /// Those of `payload`.
    pub fn try_map<Q, E>(
        self,
        mut payload: impl FnMut(P) -> Result<Q, E>,
    ) -> Result<InboxState<Q>, E> {
        let mut piece = |piece: PieceState<P>| {
            Ok(PieceState {
                source: piece.source,
                chunk: piece.chunk,
                last: piece.last,
                payload: payload(piece.payload)?,
            })
        };
        let mut turn = |turn: TurnState<P>| {
            let pieces = turn.pieces.into_iter().map(&mut piece);
            Ok(TurnState {
                turn: turn.turn,
                pieces: pieces.collect::<Result<_, E>>()?,
                empties: turn.empties,
            })
        };
        let exchange = |exchange: ExchangeState<P>| {
            let turns = exchange.turns.into_iter().map(&mut turn);
            Ok(ExchangeState {
                exchange: exchange.exchange,
                next: exchange.next,
                turns: turns.collect::<Result<_, E>>()?,
            })
        };
        let exchanges = self.exchanges.into_iter().map(exchange);
        let exchanges = exchanges.collect::<Result<_, E>>()?;
        Ok(InboxState { exchanges })
    }
}

impl<P> ShardInbox<P> {
    /// What has to move with the shard; `take` makes what travels of payloads, or takes them.
    ///
    /// # Panics
    /// If a turn was handed out and not retired: a shard is drained before it moves.
    pub fn export<Q>(&mut self, mut take: impl FnMut(&mut P) -> Q) -> InboxState<Q> {
        let mut exchanges = Vec::with_capacity(self.lanes.len());
        for lane in &mut self.lanes {
            let mut turns = Vec::new();
            for turn in (lane.next..).take(lane.open.len()) {
                let open = lane.open(turn);
                if open.is_untouched() {
                    continue;
                }
                let (pieces, empties) = open.contents();
                let pieces = pieces
                    .iter_mut()
                    .map(|piece| PieceState {
                        source: piece.source,
                        chunk: piece.chunk,
                        last: piece.last,
                        payload: take(&mut piece.payload),
                    })
                    .collect();
                turns.push(TurnState {
                    turn,
                    pieces,
                    empties: empties.to_vec(),
                });
            }
            exchanges.push(ExchangeState {
                exchange: lane.exchange,
                next: lane.next,
                turns,
            });
        }
        InboxState { exchanges }
    }

    /// The inbox of `shard` as it was exported elsewhere. Everything is judged as if it arrived.
    pub fn import(
        shard: ShardId,
        exchanges: impl IntoIterator<Item = ExchangeId>,
        open_turns: u64,
        state: InboxState<P>,
        relation: &impl SourceRelation,
    ) -> Result<ShardInbox<P>, InboxError> {
        let mut inbox = ShardInbox::new(shard, exchanges, open_turns);
        let mut named = BTreeSet::new();
        for ExchangeState {
            exchange,
            next,
            turns,
        } in state.exchanges
        {
            let place = inbox
                .place(exchange)
                .ok_or(InboxError::UnknownExchange(exchange))?;
            if !named.insert(exchange) {
                return Err(InboxError::Damaged {
                    exchange,
                    turn: next,
                });
            }
            if !mutants::is_on("inbox-moves-without-what-it-retired") {
                inbox.lanes[place].next = next;
            }
            for TurnState {
                turn,
                pieces,
                empties,
            } in turns
            {
                let pieces = pieces.into_iter().map(|piece| Item::Piece {
                    source: piece.source,
                    chunk: piece.chunk,
                    last: piece.last,
                    payload: piece.payload,
                });
                let empties = empties.into_iter().map(|sources| Item::Empty { sources });
                for item in pieces.chain(empties) {
                    if inbox.accept(exchange, turn, item, relation)? == Acceptance::Repeated {
                        return Err(InboxError::Damaged { exchange, turn });
                    }
                }
            }
        }
        Ok(inbox)
    }
}
