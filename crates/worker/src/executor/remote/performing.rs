//! Carries out what the node asks for: frames are sent, pieces delivered, shards settled, errands
//! run. `remote.rs` calls it after each call of the node, and for mailboxes that have to be open
//! just before. It never decides where anything goes, and never runs with the node locked but for
//! these mailboxes.

use super::Remote;
use crate::arrivals::Delivery;
use crate::executor::job::{BY_MAILBOX, Job};
use crate::node::{Errand, NodeEffect, NodeError};
use crate::piece_data::{Encoded, PieceBytes, PieceData, items};
use crate::waiting::{ExchangeTurn, WaitingPiece};
use brambling_exchange::{Item, Parcel};
use brambling_memory::held;
use brambling_program::{ExchangeId, ShardId, Turn};
use brambling_protocol::frame::SHARED_BYTES;
use std::ops::Range;
use std::sync::atomic::Ordering;

impl Remote {
    /// What must have happened before anybody else asks the node: mailboxes are open before it says that their shards are here.
    pub(super) fn prepare(&self, job: &Job, effects: &[NodeEffect]) {
        for effect in effects {
            if let NodeEffect::Settle { shard, .. } = effect {
                let number = job.number(shard.group, shard.index);
                job.residents[number as usize].mailbox.open();
            }
        }
    }

    pub(super) fn perform(&self, job: &Job, effects: Vec<NodeEffect>) {
        let mut frames = Vec::new();
        let mut complete = Vec::new();
        for effect in effects {
            let done = match effect {
                NodeEffect::Send {
                    to,
                    priority,
                    packet,
                } => {
                    frames.push((to, priority, packet));
                    Ok(())
                }
                NodeEffect::Deliver(parcel, _outside) => self.deliver(job, parcel),
                NodeEffect::Meet(parcel, _outside) => self.meet(job, parcel),
                NodeEffect::Pass {
                    at,
                    to,
                    item,
                    outside: _outside,
                } => self.pass(job, at, to, item),
                NodeEffect::Combine { at, group } => {
                    complete.push((at, group));
                    Ok(())
                }
                NodeEffect::Errand(errand) => self.run(job, errand),
                effect => {
                    self.tell(job, effect);
                    Ok(())
                }
            };
            if let Err(error) = done {
                job.fail_by(error);
            }
        }
        // One call for all frames: the carrier may write them together.
        if !frames.is_empty() {
            let bytes = frames.iter().map(|(_, _, packet)| packet.bytes() as u64);
            self.sent_bytes.fetch_add(bytes.sum(), Ordering::Relaxed);
            self.carrier.send(frames);
        }
        self.combine_all(job, complete);
    }

    /// What shards wait for, and what becomes of them.
    fn tell(&self, job: &Job, effect: NodeEffect) {
        match effect {
            NodeEffect::Room {
                exchange,
                destinations,
                turns,
            } => make_room(job, exchange, destinations, turns),
            NodeEffect::Outcome {
                signal,
                turns,
                outcome,
            } => job
                .board(signal)
                .learn(turns, outcome, |shard| job.post(shard as u32)),
            NodeEffect::CutNamed { signal, turn, cut } => job.board(signal).mark_cut(cut, turn),
            NodeEffect::Cut(ask) => job.on_cut_ask(ask),
            NodeEffect::LoopEnd(outermost) => {
                job.ends[outermost as usize].learn(0..1, false, |shard| job.post(shard as u32));
            }
            NodeEffect::Drain(shard) => {
                let number = job.number(shard.group, shard.index);
                // Release: pairs with the acquire in `is_leaving`.
                self.leaving[number as usize].store(true, Ordering::Release);
                job.post(number);
            }
            NodeEffect::Settle { shard, body } => {
                let number = job.number(shard.group, shard.index);
                // Before the owner is named: its thread unpacks what lies here as soon as it is
                // told.
                held::lock(&self.arrived).insert(number, body);
                let home = job.home(number) | BY_MAILBOX;
                // Release: the owner's thread finds the body. Pairs with the Acquire in `owner`.
                job.owners[number as usize].store(home, Ordering::Release);
                job.post(number);
            }
            NodeEffect::Forget(worker) => self.carrier.forget(worker),
            NodeEffect::End { failure } => job.end(failure),
            _ => unreachable!("carried out by the caller"),
        }
    }

    /// Puts what has come into the mailboxes of shards here, and wakes them.
    fn deliver(&self, job: &Job, parcel: Parcel<PieceData>) -> Result<(), NodeError> {
        let at = (parcel.exchange, parcel.turn);
        let group = parcel.group;
        let shard = |index| ShardId { group, index };
        let (first, count) = (parcel.destinations.start, parcel.destinations.len());
        let exchange = job.exchange(at.0);
        let rooms = parcel.destinations.clone();
        // A piece that several destinations share counts once, by the lowest open turn of the one
        // that is furthest.
        let lowest = rooms.map(|index| exchange.room(index).retired()).max();
        let lowest = lowest.unwrap_or(0);
        let items = job
            .waits
            .share(at, shard(first), count, lowest, parcel.item)?;
        for (index, item) in parcel.destinations.zip(items) {
            self.put(job, shard(index), at, item)?;
        }
        Ok(())
    }

    fn put(
        &self,
        job: &Job,
        to: ShardId,
        at: ExchangeTurn,
        item: Item<WaitingPiece>,
    ) -> Result<(), NodeError> {
        let number = job.number(to.group, to.index);
        match job.residents[number as usize]
            .mailbox
            .put(Delivery { at, item })
        {
            Ok(is_to_be_told) => {
                if is_to_be_told {
                    job.post(number);
                }
                Ok(())
            }
            Err(delivery) => self.give_back(job, to, at, delivery.item),
        }
    }

    /// A shard has left before something could be put into its mailbox: it goes where the shard is now.
    pub(in crate::executor) fn give_back(
        &self,
        job: &Job,
        to: ShardId,
        at: ExchangeTurn,
        item: Item<WaitingPiece>,
    ) -> Result<(), NodeError> {
        self.say();
        let items = self.as_bytes(at.0, item)?;
        self.with(job, |node| {
            let mut items = items.iter();
            items.try_for_each(|item| node.give_back(to, at, item))
        })
    }

    fn pass(
        &self,
        job: &Job,
        at: ExchangeTurn,
        to: Option<u32>,
        item: Item<WaitingPiece>,
    ) -> Result<(), NodeError> {
        self.say();
        let items = self.as_bytes(at.0, item)?;
        self.with(job, |node| {
            let mut items = items.iter();
            items.try_for_each(|item| node.pass(at, to, item))
        })
    }

    /// What was for this process and has to leave it. What it counted is given back; what was spilled is read.
    fn as_bytes(
        &self,
        id: ExchangeId,
        item: Item<WaitingPiece>,
    ) -> Result<Vec<Item<PieceData>>, NodeError> {
        let mut encoded = None;
        // A chunk of a stream keeps its number.
        let is_whole = matches!(
            item,
            Item::Piece {
                chunk: 0,
                last: true,
                ..
            }
        );
        let item = item.try_map(|kept| {
            Ok::<_, NodeError>(match kept.leave()? {
                PieceData::Value(value) if !is_whole => {
                    let mut encoding = Vec::with_capacity(value.bytes());
                    value.encode(&mut encoding);
                    self.spares(id).put(value);
                    PieceData::Bytes(encoding.into())
                }
                PieceData::Value(value) => {
                    encoded = Some(Encoded::of(value, self.spares(id), SHARED_BYTES));
                    PieceData::Bytes(PieceBytes::new())
                }
                cargo => cargo,
            })
        })?;
        Ok(match (item, encoded) {
            (Item::Piece { source, .. }, Some(piece)) => {
                items(source, Some(piece), self.chunk_bytes)
            }
            (item, _) => vec![item],
        })
    }

    /// Does what the node has left to whoever asked it.
    fn run(&self, job: &Job, errand: Errand) -> Result<(), NodeError> {
        // Nobody will ask for the result any more, and the disk may be slow.
        if job.has_stopped() {
            return Ok(());
        }
        let Some((parcel, _outside)) = errand.run()? else {
            return Ok(());
        };
        self.say();
        self.with(job, |node| node.go_on(&parcel))
    }
}

fn make_room(job: &Job, id: ExchangeId, destinations: Range<u32>, turns: Turn) {
    let group = job.ends(id).source;
    for destination in destinations {
        let room = job.exchange(id).room(destination);
        room.retire_to(turns, |source| job.post(job.number(group, source as u32)));
    }
}
