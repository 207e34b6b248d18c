//! Owns a shard's traffic through mailboxes: what comes for it, and what it sends to destinations
//! that have no place for it, or are elsewhere. Slices call it for the shard that they run. It
//! never takes from another shard's mailbox.

use super::Slice;
use crate::arrivals::{Arrivals, Delivery};
use crate::executor::failure::Failure;
use crate::executor::job::Job;
use crate::executor::steps::GatherKeeper;
use crate::node::NodeError;
use crate::piece_data::{Encoded, PieceData, Taken};
use crate::pieces::Sent;
use crate::waiting::{ExchangeTurn, WaitingPiece};
use brambling_exchange::Item;
use brambling_exchange::in_process::Keeper;
use brambling_program::tree::TreeNode;
use brambling_program::{DecodeError, ExchangeId, ShardId, Value};
use brambling_protocol::frame::SHARED_BYTES;

/// Takes what lies in a shard's mailbox. Of exchanges in which it has places, what its next gather waits for goes there.
pub(in crate::executor) fn take(
    job: &Job,
    number: u32,
    arrivals: &mut Arrivals,
) -> Result<(), NodeError> {
    let resident = &job.residents[number as usize];
    let mut touched: Vec<ExchangeId> = Vec::new();
    for delivery in resident.mailbox.take() {
        let (id, _) = delivery.at;
        if !touched.contains(&id) && job.gathers_by(id, number) == GatherKeeper::Slots {
            // Gathers from slots do not ask the inbox. So the inbox learns here which turns they
            // have retired, and accepts no item of those again.
            arrivals.catch_up(id, job.exchange(id).room(resident.index).retired());
            touched.push(id);
        }
        arrivals.accept(delivery, job)?;
    }
    for id in touched {
        place(job, number, arrivals, id)?;
    }
    Ok(())
}

/// Puts what has come of the next turn into the shard's places.
pub(super) fn place(
    job: &Job,
    number: u32,
    arrivals: &mut Arrivals,
    id: ExchangeId,
) -> Result<(), NodeError> {
    let resident = &job.residents[number as usize];
    let exchange = job.exchange(id);
    let at = (id, exchange.room(resident.index).retired());
    let end = exchange.destination(at.1, resident.index);
    let end = end.expect("a shard with places");
    let (pieces, empty) = arrivals.whole(at, job, &job.waits)?;
    for (source, taken) in pieces {
        let mut value = value(job, (at, resident.index), source, taken)?;
        end.put(at.1, source, Some(&mut value));
        recycle(job, id, value);
    }
    for leaf in empty.into_iter().flatten() {
        end.put(at.1, leaf as u32, None);
    }
    Ok(())
}

/// Whether all of a turn is there, of which all sources that stamp have been heard.
pub(super) fn is_complete(
    job: &Job,
    number: u32,
    arrivals: &mut Arrivals,
    at: ExchangeTurn,
) -> bool {
    let resident = &job.residents[number as usize];
    let exchange = job.exchange(at.0);
    let fan_in = exchange.links().fan_in(at.1, resident.index);
    // Once for each turn: the list of sources may be long.
    let known = std::mem::replace(arrivals.known(at), fan_in);
    if known < fan_in
        && let Keeper::Stamped(stamped) = exchange.keeper()
    {
        // Taken after the stamps were seen: the items that they announce lie in the mailbox by now,
        // or were taken before.
        if let Err(error) = take(job, number, arrivals) {
            job.fail_by(error);
        }
        let ended = stamped.ended(at.1, resident.index, known..fan_in);
        arrivals.ended(at, ended, job);
    }
    arrivals.is_complete(at, job)
}

/// What a source has sent, as a value; it lies already where it will if it is large and was read to there.
pub(super) fn value(
    job: &Job,
    (at, destination): (ExchangeTurn, u32),
    source: u32,
    mut taken: Taken,
) -> Result<Value, NodeError> {
    let decoded = match &job.remote {
        None => taken.into_own(job.plan.program.piece_type(at.0)),
        Some(remote) => {
            taken.lies_in(|| remote.assembly(at, source, destination));
            taken.into_value(remote.spares(at.0))
        }
    };
    decoded.map_err(|error: DecodeError| NodeError::Piece {
        exchange: at.0,
        error,
    })
}

/// Nobody needs a piece any more.
pub(super) fn recycle(job: &Job, id: ExchangeId, value: Value) {
    if let Some(remote) = &job.remote {
        remote.spares(id).put(value);
    }
}

impl<'a> Slice<'a, '_> {
    /// Sends what a scatter has written: to shards here into their mailboxes, to others by the node. Gives the destinations that are to see by the
    /// source's stamp that there is nothing for them.
    pub(super) fn post_all(
        &self,
        at: ExchangeTurn,
        sent: &mut Sent,
    ) -> Result<Vec<u32>, NodeError> {
        let job = self.job;
        let (id, turn) = at;
        let source = self.resident.index;
        let exchange = job.exchange(id);
        let links = exchange.links().at(turn);
        let group = job.ends(id).destination;
        if job.remote.as_ref().is_some_and(|it| it.merges(id)) {
            // An exchange that is merged has one destination, whoever merges on the way.
            let piece = sent.take(0).map(|(value, _)| value);
            let remote = job.remote();
            remote.scattered_to_merge(job, self.resident.id(), at, piece)?;
            return Ok(Vec::new());
        }
        let stamps = match exchange.keeper() {
            Keeper::Stamped(stamped) if !job.has_moved(self.number) => Some(stamped),
            _ => None,
        };
        let (mut by_stamp, mut elsewhere) = (Vec::new(), Vec::new());
        for place in 0..links.fan_out(source) {
            let (destination, _) = links.destination(source, place);
            let number = job.number(group, destination);
            let piece = sent.take(place);
            let owner = job.owner(number);
            let looks_at_stamps = stamps.is_some_and(|stamped| stamped.serves(destination))
                && owner.is_some_and(|(_, by_mailbox)| !by_mailbox);
            let Some((value, bytes)) = piece else {
                match (looks_at_stamps, owner) {
                    (true, _) => by_stamp.push(destination),
                    (false, None) => elsewhere.push((destination, None)),
                    (false, Some(_)) => {
                        let empty = self.put(at, number, self.empty(), true);
                        elsewhere.extend(empty.map(|_| (destination, None)));
                    }
                }
                continue;
            };
            // A piece for another worker is encoded here, outside of the node's lock.
            if owner.is_none() {
                elsewhere.push((destination, Some(self.encoded(id, value))));
                continue;
            }
            let shard = ShardId {
                group,
                index: destination,
            };
            let kept = self.kept(at, shard, value, bytes)?;
            let item = Item::whole(TreeNode::leaf(source.into()), kept);
            if let Some(item) = self.put(at, number, item, !looks_at_stamps) {
                self.send_back(at, shard, item)?;
            }
        }
        if !elsewhere.is_empty() {
            job.remote()
                .scattered(job, self.resident.id(), at, elsewhere)?;
        }
        Ok(by_stamp)
    }

    fn empty(&self) -> Item<WaitingPiece> {
        let source = u64::from(self.resident.index);
        Item::Empty {
            sources: source..source + 1,
        }
    }

    /// A value that waits for a shard here, as it counts.
    fn kept(
        &self,
        at: ExchangeTurn,
        to: ShardId,
        value: Value,
        bytes: u64,
    ) -> Result<WaitingPiece, NodeError> {
        let cargo = PieceData::Value(value);
        if self.job.remote.is_none() {
            return Ok(WaitingPiece::counted(cargo, bytes));
        }
        let lowest = self.job.exchange(at.0).room(to.index).retired();
        let mut admitted = self.job.waits.admit(at, to, 1, lowest, cargo)?;
        Ok(admitted.next().expect("one for one destination"))
    }

    fn encoded(&self, id: ExchangeId, value: Value) -> Encoded {
        Encoded::of(value, self.job.remote().spares(id), SHARED_BYTES)
    }

    /// Puts an item into a mailbox, and wakes the shard if it hears of that in no other way; the item if the shard has left meanwhile.
    fn put(
        &self,
        at: ExchangeTurn,
        number: u32,
        item: Item<WaitingPiece>,
        wakes: bool,
    ) -> Option<Item<WaitingPiece>> {
        let mailbox = &self.job.residents[number as usize].mailbox;
        let delivery = Delivery { at, item };
        let put = match wakes {
            true => mailbox.put(delivery),
            false => mailbox.put_silently(delivery).map(|()| false),
        };
        match put {
            Ok(is_to_be_told) => {
                if is_to_be_told {
                    self.wake(number);
                }
                None
            }
            Err(delivery) => Some(delivery.item),
        }
    }

    fn send_back(
        &self,
        at: ExchangeTurn,
        to: ShardId,
        item: Item<WaitingPiece>,
    ) -> Result<(), NodeError> {
        self.job.remote().give_back(self.job, to, at, item)
    }

    /// What lay in places of shards that are not here any more, or do not look there, goes to them in another way.
    #[cold]
    pub(super) fn send_elsewhere(
        &self,
        at: ExchangeTurn,
        left: Vec<(u32, Option<Value>)>,
    ) -> Result<(), NodeError> {
        let job = self.job;
        let group = job.ends(at.0).destination;
        let mut elsewhere = Vec::new();
        for (destination, piece) in left {
            let number = job.number(group, destination);
            let to = ShardId {
                group,
                index: destination,
            };
            if job.owner(number).is_none() {
                elsewhere.push((destination, piece.map(|value| self.encoded(at.0, value))));
                continue;
            }
            let item = match piece {
                None => self.empty(),
                Some(value) => {
                    let bytes = value.bytes() as u64;
                    let kept = self.kept(at, to, value, bytes)?;
                    Item::whole(TreeNode::leaf(self.resident.index.into()), kept)
                }
            };
            if let Some(item) = self.put(at, number, item, true) {
                self.send_back(at, to, item)?;
            }
        }
        if elsewhere.is_empty() {
            return Ok(());
        }
        job.remote()
            .scattered(job, self.resident.id(), at, elsewhere)
    }

    /// A gather has returned in a job whose shards move: sources elsewhere hear of it, and what has come early for the next turn goes to its place.
    pub(super) fn has_gathered(
        &self,
        at: ExchangeTurn,
        arrivals: &mut Arrivals,
        by: GatherKeeper,
    ) -> Result<(), NodeError> {
        let Some(remote) = &self.job.remote else {
            return Ok(());
        };
        remote.has_retired(at, self.resident.index);
        if by != GatherKeeper::Slots {
            return Ok(());
        }
        arrivals.retired_elsewhere(at, &self.job.waits);
        if arrivals.has_any(at.0) {
            place(self.job, self.number, arrivals, at.0)?;
        }
        Ok(())
    }
}

impl Job {
    /// What came cannot be taken: it is said once, and the job ends.
    #[cold]
    pub(in crate::executor) fn fail_by(&self, error: NodeError) {
        let failure: Failure = self.refusal(None, error);
        self.fail(super::super::failure::Rank::After, failure);
    }
}

/// A chunk under its number. The last one says that there are no more, and is none itself.
pub(super) fn piece<P>(source: TreeNode, (chunk, last): (u32, bool), payload: P) -> Item<P> {
    Item::Piece {
        source,
        chunk,
        last,
        payload,
    }
}
