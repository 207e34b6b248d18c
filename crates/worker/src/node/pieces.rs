//! Pieces on their way: from shards here to others, to shards here from others, and through here to where a shard has gone; and what destinations
//! have retired, without which nothing is sent.
//!
//! # States of a parcel
//! *Routed* by the versions that the map here and its sender's have (`exchange/router.rs`). If its shard is here, it is *handed over*
//! ([`NodeEffect::Deliver`], [`NodeEffect::Meet`]), and outside of the node until whoever runs the node has taken it; if nobody knows where, *held*. Else it
//! *waits* for a flush, to be sent with others of its turn and worker; what was spilled is read back before that (`pieces/errands.rs`).
//!
//! # Rules
//! * What a scatter sends to a shard that is not here goes to the worker that the map here names, with the version here; or, where that is this one,
//!   to the router.
//! * Pieces of a slice wait for [`Node::flush`](super::Node::flush), so that one frame carries those of many shards; so does credit.
//! * What one shard sends to many alike is handed on from worker to worker (`pieces/broadcast.rs`).
//! * What many shards send to one may be merged on its way (`pieces/combining.rs`).
//! * What is retired is told to who sends (`pieces/credits.rs`).
//!
//! # Why nothing is lost
//! A parcel is in one place: in the router, in a group that meets, outside, or with those that wait. A worker goes when all of these are empty.

mod broadcast;
mod combining;
mod credits;
mod errands;
mod outbound;

pub use combining::merged_at;
pub use errands::Errand;

use super::post::Post;
use super::{NodeEffect, NodeError, Outside, one, shards};
use crate::piece_data::{PieceBytes, PieceData};
use brambling_exchange::{Credits, Parcel, PieceRoom, Router, RouterEffect, RouterError, parcels};
use brambling_memory::{Spill, mutants};
use brambling_program::{ExchangeId, GroupId, Plan, ShardId, Spec, Turn};
use brambling_protocol::frame::{Data, DataHead, Incoming};
use brambling_protocol::{
    Entry, EntryRange, Generation, PartitionMap, Priority, Version, WorkerId,
};
use combining::Meetings;
use errands::Deferred;
use outbound::OutgoingParcels;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// An exchange, its turn, and the group that something of it is for.
type About = (ExchangeId, Turn, GroupId);

/// The class of pieces until policies decide it.
const PIECES: u8 = 3;

/// Where pieces of one job are, as far as that is this worker's.
pub(super) struct PieceRouting {
    router: Router<PieceData>,
    /// What is merged here on its way.
    meetings: Meetings,
    credits: Credits,
    /// Parcels for other workers, by class, exchange, turn and the group that they are for.
    outgoing: BTreeMap<(WorkerId, Priority, ExchangeId, Turn, GroupId), OutgoingParcels>,
    /// What is held here, and has to be written to where it is spilled.
    deferred: Option<Arc<Deferred>>,
    /// What it has handed over and was not told the end of.
    outside: Outside,
    /// Credits that peers were not told yet.
    due: BTreeMap<ExchangeId, BTreeMap<u32, Turn>>,
    /// Exchanges with one source, of which credit has come that waits for the source.
    noted: BTreeSet<ExchangeId>,
}

impl PieceRouting {
    /// None yet, with no shard here.
    pub(super) fn new(post: &Post, plan: &Plan, map: PartitionMap) -> PieceRouting {
        let options = &post.options;
        let deferred = options.spill.is_some().then(Arc::<Deferred>::default);
        let spill = deferred.clone().map(|to| to as Arc<dyn Spill>);
        let room = PieceRoom::new(options.budget.clone(), spill);
        PieceRouting {
            router: Router::new(options.me, options.generation, map, room)
                .whose_shards_are_kept(are_kept(plan.program.spec())),
            meetings: Meetings::default(),
            credits: Credits::new(post.relations.destinations()),
            outgoing: BTreeMap::new(),
            deferred,
            outside: Outside::default(),
            due: BTreeMap::new(),
            noted: BTreeSet::new(),
        }
    }

    /// A shard is to come here, and another worker holds it.
    pub(super) fn expect(&mut self, shard: ShardId, holder: WorkerId) {
        self.router.expect(shard, holder);
    }

    /// Where shards are, as far as known here.
    pub(super) fn map(&self) -> &PartitionMap {
        self.router.map()
    }

    /// How many parcels are held.
    pub(super) fn held(&self) -> usize {
        self.router.held()
    }

    /// The shards that are here, of these.
    pub(super) fn here_in(&self, shards: Range<ShardId>) -> Vec<ShardId> {
        self.router.here_in(shards).collect()
    }

    /// Whether a shard is here.
    pub(super) fn is_here(&self, shard: ShardId) -> bool {
        self.router.is_here(shard)
    }

    /// Whether all has gone that shards here have sent and retired, and what is merged here.
    pub(super) fn are_sent(&self) -> bool {
        self.outgoing.is_empty()
            && !self.outside.is_any()
            && self.due.is_empty()
            && self.meetings.is_empty()
    }

    /// Whether nothing here needs this worker: no shard, and nothing on its way.
    pub(super) fn are_gone(&self) -> bool {
        let (router, meetings) = (&self.router, &self.meetings);
        router.here().next().is_none()
            && router.held() == 0
            && (meetings.is_empty() || mutants::is_on("nobody-waits-for-what-is-merged"))
            && self.outgoing.is_empty()
            && !self.outside.is_any()
            && self.due.is_empty()
            // Credit that was noted for a source that was to come here still has to be sent to
            // where the source is.
            && self.noted.is_empty()
    }

    /// Whether nothing is to be sent to a worker, by what waits here and by the map.
    pub(super) fn are_done_with(&self, worker: WorkerId) -> bool {
        !self.outgoing.keys().any(|(to, ..)| *to == worker)
            && !self.map().entries().any(|it| it.entry.owner == worker)
    }

    /// What a frame has for shards here, or for who knows where they are; what is for others is handed on.
    pub(super) fn arrived(
        &mut self,
        post: &mut Post,
        data: &Data<'_>,
        incoming: Incoming<'_>,
    ) -> Result<Vec<Parcel<PieceBytes>>, NodeError> {
        let DataHead {
            exchange, group, ..
        } = data.head;
        // A relay's group may be another than the destination's: pieces that are merged on their
        // way pass through it.
        if !post.relations.leads_through(exchange, group) {
            post.relations.expect(exchange, group)?;
        }
        let mut arrived = Vec::new();
        let keep = |payload: &[u8]| incoming.keep(payload);
        parcels(data, keep, |parcel| arrived.push(parcel));
        match data.routes.is_empty() || data.head.generation != post.options.generation {
            true => Ok(arrived),
            false => Ok(self.hand_on(post, arrived, &data.routes)),
        }
    }

    /// A parcel is routed that came from a worker, or from a shard here.
    pub(super) fn receive(
        &mut self,
        post: &mut Post,
        from: WorkerId,
        generation: Generation,
        parcel: Parcel<PieceData>,
    ) -> Result<(), NodeError> {
        let mut effects = Vec::new();
        self.router
            .receive(from, generation, parcel, &mut effects)?;
        self.perform(post, effects);
        Ok(())
    }

    /// News for the map: what was held goes its way.
    pub(super) fn on_update(
        &mut self,
        post: &mut Post,
        update: &EntryRange,
    ) -> Result<(), NodeError> {
        let mut effects = Vec::new();
        let _ = self.router.on_update(update, &mut effects)?;
        self.perform(post, effects);
        Ok(())
    }

    /// A shard is here from now on, by this version.
    pub(super) fn take_in(
        &mut self,
        post: &mut Post,
        shard: ShardId,
        version: Version,
    ) -> Result<(), NodeError> {
        let mut effects = Vec::new();
        let owner = post.me();
        let here = one(shard, Entry { owner, version });
        // Without this entry an older version would send the shard away again, since the news of it
        // may be late.
        let _ = self.router.on_update(&here, &mut effects)?;
        self.router.arrive(shard, &mut effects);
        self.perform(post, effects);
        Ok(())
    }

    /// A shard is here no more: what comes for it goes on.
    pub(super) fn leave(&mut self, shard: ShardId) {
        self.router.leave(shard);
    }

    /// Where a shard is, as far as known here.
    pub(super) fn entry(&self, shard: ShardId) -> Result<Option<Entry>, NodeError> {
        Ok(self.map().entry(shard).map_err(RouterError::from)?)
    }

    /// Whether a version is news of a shard that is not here: who sends here by it knows that it names this worker.
    pub(super) fn is_news(&self, shard: ShardId, version: Version) -> Result<bool, NodeError> {
        let known = self.entry(shard)?.map_or(0, |entry| entry.version);
        // If the shard is here, the version that brought it named this worker, and nobody knows a
        // newer one that does.
        Ok(known < version && !self.is_here(shard))
    }

    /// Shards here that the map gives to another worker, of those that an update is about.
    pub(super) fn given_away(&self, me: WorkerId, update: &EntryRange) -> Vec<ShardId> {
        // Asked of the map, not of the update: the update may have been older than what is known.
        let is_away = |shard: &ShardId| {
            let entry = self.map().entry(*shard).ok().flatten();
            entry.is_some_and(|entry| entry.owner != me)
        };
        let here = self.router.here_in(shards(update));
        here.filter(is_away).collect()
    }

    fn perform(&mut self, post: &mut Post, effects: Vec<RouterEffect<PieceData>>) {
        for effect in effects {
            match effect {
                RouterEffect::Deliver(parcel) => {
                    let group = post.relations.destination_group(parcel.exchange);
                    post.effects.push(match group == parcel.group {
                        true => NodeEffect::Deliver(parcel, self.outside.clone()),
                        false => NodeEffect::Meet(parcel, self.outside.clone()),
                    });
                }
                RouterEffect::Forward { to, parcel } => {
                    self.put(post, to, Priority::LAST, parcel, &[]);
                }
                RouterEffect::SendEntry { to, entry } => post.send_entry(to, entry),
            }
        }
    }
}

/// Whether a task of the program may keep its shard: it is open, and cannot be begun anew.
fn are_kept(spec: &Spec) -> bool {
    spec.streams.iter().any(|it| !it.repeatable) && !mutants::is_on("pieces-wait-for-their-shard")
}
