//! What many sources send to one destination, merged on its way: what the node leaves to whoever runs it, because users' code runs.

use super::Remote;
use crate::executor::failure::{Failure, Rank};
use crate::executor::job::Job;
use crate::executor::panics;
use crate::node::{NodeError, merged_at};
use crate::piece_data::{Encoded, PieceData, Taken};
use crate::waiting::{ExchangeTurn, WaitingPiece};
use brambling_exchange::{Item, Parcel};
use brambling_program::tree::TreeNode;
use brambling_program::{ShardId, Value};
use brambling_protocol::frame::SHARED_BYTES;

impl Remote {
    /// A scatter has run whose piece is merged on its way.
    pub(in crate::executor) fn scattered_to_merge(
        &self,
        job: &Job,
        shard: ShardId,
        at: ExchangeTurn,
        piece: Option<Value>,
    ) -> Result<(), NodeError> {
        let source = TreeNode::leaf(shard.index.into());
        let Some(piece) = piece else {
            let (tree, _) = self.trees[at.0.index()].expect("it is merged");
            self.say();
            return self.with(job, |node| {
                node.send_on(at, tree.next(source), source, None)
            });
        };
        self.hand_on(job, at, source, piece, |_| {})
    }

    /// What a node's sources have goes to the shard that merges it next: as it is, if that is here.
    fn hand_on(
        &self,
        job: &Job,
        at: ExchangeTurn,
        source: TreeNode,
        piece: Value,
        done: impl FnOnce(&mut crate::node::Node),
    ) -> Result<(), NodeError> {
        let (tree, group) = self.trees[at.0.index()].expect("it is merged");
        let next = tree.next(source);
        if let Some(index) = next
            && job.owner(job.number(group, index)).is_some()
        {
            let relay = ShardId { group, index };
            let kept = self.admit_to_merge(job, relay, at, PieceData::Value(piece))?;
            return self.with(job, |node| {
                done(node);
                node.meet(relay, at, Item::whole(source, kept))
            });
        }
        let piece = Encoded::of(piece, self.spares(at.0), SHARED_BYTES);
        self.say();
        self.with(job, |node| {
            done(node);
            node.send_on(at, next, source, Some(piece))
        })
    }

    /// Makes room for what waits to be merged. Which turn is the lowest open one at the destination is told here late. Where a later one can be
    /// spilled, it leaves the floor to what is waited for.
    fn admit_to_merge(
        &self,
        job: &Job,
        relay: ShardId,
        at: ExchangeTurn,
        cargo: PieceData,
    ) -> Result<WaitingPiece, NodeError> {
        let lowest = match self.reads_in_place {
            true => at.1,
            false => self.node().lowest_merged(at.0),
        };
        let mut admitted = job.waits.admit(at, relay, 1, lowest, cargo)?;
        Ok(admitted.next().expect("one for one shard"))
    }

    /// Something has come to shards here that merge it.
    pub(super) fn meet(&self, job: &Job, parcel: Parcel<PieceData>) -> Result<(), NodeError> {
        let at = (parcel.exchange, parcel.turn);
        for index in parcel.destinations {
            let relay = ShardId {
                group: parcel.group,
                index,
            };
            let item = parcel.item.clone();
            let item = item.try_map(|cargo| self.admit_to_merge(job, relay, at, cargo))?;
            self.with(job, |node| node.meet(relay, at, item))?;
        }
        Ok(())
    }

    /// All that a group of sources sends is here: it goes on as one.
    pub(super) fn combine(
        &self,
        job: &Job,
        at: ExchangeTurn,
        group: TreeNode,
    ) -> Result<(), Failure> {
        let refused = |error: NodeError| job.refusal(None, error);
        let pieces = self.with(job, |node| node.take_group(at, group));
        let (_, sources) = self.trees[at.0.index()].expect("it is merged");
        let taken = job
            .waits
            .take_to_merge(at, merged_at(sources, group), pieces);
        let (taken, _charges) = taken.map_err(|error| refused(error.into()))?;
        let program = &job.plan().program;
        // Merging calls code of users, as a kernel is: it may panic.
        let merged = panics::catch(|| self.merge(job, at, taken));
        let piece = merged
            .map_err(|payload| {
                let (message, location) = panics::tell(&*payload);
                Failure::Panic {
                    stage: program.spec().exchanges[at.0.index()].name.clone(),
                    partition: group.start() as u32,
                    turn: at.1,
                    message,
                    location,
                }
            })?
            .map_err(refused)?;
        let done = self.hand_on(job, at, group, piece, |node| node.merged(at, group));
        done.map_err(refused)
    }

    fn merge(&self, job: &Job, at: ExchangeTurn, taken: Vec<Taken>) -> Result<Value, NodeError> {
        let spares = self.spares(at.0);
        let values = taken.into_iter().map(|piece| piece.into_value(spares));
        let values: Result<Vec<Value>, _> = values.collect();
        let mut values = values.map_err(|error| NodeError::Piece {
            exchange: at.0,
            error,
        })?;
        let merge = job.plan().program.combiner(at.0);
        let merge = merge.expect("only such pieces meet");
        let (first, others) = values.split_first_mut().expect("somebody sent something");
        merge(first, others);
        let mut values = values.into_iter();
        let first = values.next().expect("somebody sent something");
        values.for_each(|value| spares.put(value));
        Ok(first)
    }

    pub(super) fn combine_all(&self, job: &Job, complete: Vec<(ExchangeTurn, TreeNode)>) {
        for (at, group) in complete {
            if job.has_stopped() {
                return;
            }
            if let Err(failure) = self.combine(job, at, group) {
                job.fail(Rank::After, failure);
            }
        }
    }
}
