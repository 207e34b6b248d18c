//! Shards that leave: what has come for them goes with them, wherever it lies.
//!
//! # Why nothing that was sent to a shard stays behind
//! First the node delivers nothing to it any more. Then the shard's word among the owners says that it is away, its mailbox closes, and its places are
//! claimed ([`Stamp::claim`](brambling_exchange::in_process::Stamp::claim)). Whoever put something into the mailbox before, or stamped a place, has
//! given it to the shard; whoever comes later finds the mailbox closed, or the word, and gives it to the node, which forwards it.
//!
//! # Why a stamp is not taken for the word that nothing was sent
//! A source that stamps looks where the shard is before it puts in its piece, and again behind its stamp. Before stamps are looked at for the last time
//! the word says that the shard lives by its mailbox: who stamps later sees it, and says by name that it has sent nothing. Only then the shard is away:
//! so whoever has stamped when stamps are looked at has found it there, and its mailbox open, and what it has sent lies in that. Of a later stamp the
//! piece may have gone to the node.

use super::Remote;
use crate::arrivals::Arrivals;
use crate::executor::job::{AWAY, BY_MAILBOX, Job};
use crate::node::NodeError;
use crate::piece_data::{PieceBytes, PieceData};
use crate::waiting::ExchangeTurn;
use brambling_exchange::OPEN_TURNS;
use brambling_exchange::in_process::{Keeper, fences};
use brambling_program::{ExchangeId, ShardId, Turn};
use std::sync::atomic::Ordering;

impl Remote {
    /// No task of a shard runs here any more, and none starts: it is away from now on. What has come for it is with its arrivals then.
    pub(in crate::executor) fn leave(
        &self,
        job: &Job,
        number: u32,
        arrivals: &mut Arrivals,
    ) -> Result<(), NodeError> {
        let resident = &job.residents[number as usize];
        let shard = resident.id();
        // Pieces that the shard was to merge go on unmerged, with the next flush.
        self.say();
        let has_moved = job.has_moved(number);
        self.with(job, |node| {
            // Cleared under the node's lock: the next order can only come after the shard has come
            // back.
            self.leaving[number as usize].store(false, Ordering::Relaxed);
            node.leave(shard);
        });
        let owner = &job.owners[number as usize];
        let mut ended = Vec::new();
        if !has_moved {
            owner.fetch_or(BY_MAILBOX, Ordering::SeqCst);
            fences::heavy();
            ended = self::ended(job, shard, arrivals);
        }
        // SeqCst, with the fence: a source that stamps later sees that the shard is away.
        owner.store(AWAY, Ordering::SeqCst);
        fences::heavy();
        let deliveries = resident.mailbox.close();
        if !has_moved {
            for &id in &job.mailbox_exchanges[shard.group.index()] {
                let exchange = job.exchange(id);
                if matches!(exchange.keeper(), Keeper::Slots(_)) {
                    arrivals.catch_up(id, exchange.room(shard.index).retired());
                }
            }
        }
        for delivery in deliveries {
            arrivals.accept(delivery, job)?;
        }
        for (at, places) in ended {
            arrivals.ended(at, places, job);
        }
        if !has_moved {
            for &id in &job.mailbox_exchanges[shard.group.index()] {
                collect(job, id, shard, arrivals);
            }
            self.stop_stamping(job, shard);
        }
        Ok(())
    }

    /// What a source says of later turns comes through the mailbox from where it is then.
    fn stop_stamping(&self, job: &Job, shard: ShardId) {
        for (ends, exchange) in job.plan.exchanges.iter().zip(&job.exchanges) {
            let is_its = ends.as_ref().is_some_and(|ends| ends.source == shard.group);
            if let Some(Keeper::Stamped(stamped)) = exchange.as_ref().map(|it| it.keeper())
                && is_its
            {
                stamped.leave(shard.index);
            }
        }
    }

    /// A shard that has left goes with its body, and with all that it has retired.
    pub(in crate::executor) fn depart(
        &self,
        job: &Job,
        shard: ShardId,
        body: Vec<PieceBytes>,
    ) -> Result<(), NodeError> {
        let exchanges = job.mailbox_exchanges[shard.group.index()].iter();
        let retired = exchanges.map(|&id| (id, job.exchange(id).room(shard.index).retired()));
        let retired: Vec<(ExchangeId, Turn)> = retired.filter(|(_, turns)| *turns > 0).collect();
        self.with(job, |node| node.depart(shard, retired, body))
    }
}

/// The sources of which a shard that leaves hears by stamps that they have ended, by their places.
fn ended(job: &Job, shard: ShardId, arrivals: &Arrivals) -> Vec<(ExchangeTurn, Vec<u32>)> {
    let mut all = Vec::new();
    for &id in &job.mailbox_exchanges[shard.group.index()] {
        let exchange = job.exchange(id);
        let Keeper::Stamped(stamped) = exchange.keeper() else {
            continue;
        };
        if !stamped.serves(shard.index) {
            continue;
        }
        let first = arrivals.next(id);
        for turn in first..first + OPEN_TURNS {
            let fan_in = exchange.links().fan_in(turn, shard.index);
            let ended = stamped.ended(turn, shard.index, 0..fan_in);
            all.push(((id, turn), ended.collect()));
        }
    }
    all
}

/// What a shard that leaves has in its places of an exchange is with what has come through the mailbox.
fn collect(job: &Job, id: ExchangeId, shard: ShardId, arrivals: &mut Arrivals) {
    let exchange = job.exchange(id);
    match exchange.keeper() {
        Keeper::Stamped(_) => {}
        Keeper::Slots(_) => {
            // By phase: in every phase a place belongs to the same pair of source and destination.
            let first = exchange.room(shard.index).retired();
            for turn in first..first + OPEN_TURNS {
                let Some(end) = exchange.destination(turn, shard.index) else {
                    return;
                };
                end.collect(turn, |source, piece| {
                    arrivals.put_back((id, turn), (source, piece.map(PieceData::Value)), job);
                });
            }
        }
    }
}
