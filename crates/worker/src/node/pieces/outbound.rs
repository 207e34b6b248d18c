//! Owns what leaves a node until it is flushed: pieces for shards that are here, and for other
//! workers. The other files of `pieces` call it, and the node at a flush. It never calls a carrier:
//! a frame is an effect like any other.

use super::broadcast::{DestinationGroup, add_routes, clipped, is_handed_on};
use super::{
    About, Errand, NodeEffect, NodeError, PIECES, PieceBytes, PieceData, PieceRouting, Post,
};
use crate::piece_data::{Encoded, items};
use crate::waiting::ExchangeTurn;
use brambling_exchange::{Item, Parcel, coalesce};
use brambling_program::tree::TreeNode;
use brambling_program::{GroupId, ShardId};
use brambling_protocol::frame::{Body, Data, DataHead, Route, SHARED_BYTES};
use brambling_protocol::{Priority, WorkerId};
use std::collections::VecDeque;
use std::ops::Range;

/// What a parcel takes in a frame beside its payload, at most.
const PARCEL_BYTES: u64 = 64;

/// How many parcels go in one frame, from the first. A frame that grew with its turn would exceed what a frame may have.
fn frameful(parcels: &VecDeque<Parcel<PieceBytes>>, frame_bytes: usize) -> usize {
    let mut used = 0;
    let fits = parcels.iter().take_while(|parcel| {
        used += parcel.bytes + PARCEL_BYTES;
        used <= frame_bytes as u64
    });
    // At least one: a parcel that is larger than a frame would else never leave.
    fits.count().max(1)
}

/// Parcels that wait for a flush.
#[derive(Default)]
pub(super) struct OutgoingParcels {
    parcels: VecDeque<Parcel<PieceBytes>>,
    /// Of a broadcast, which is alike for all of them: to whom the receiver hands it on.
    routes: Vec<Route>,
}

/// Large payloads at a frame's end are sent from where they lie.
fn is_large(parcel: &Parcel<PieceBytes>) -> bool {
    parcel.bytes >= SHARED_BYTES as u64
}

fn payload(parcel: &Parcel<PieceBytes>) -> Option<PieceBytes> {
    match &parcel.item {
        Item::Piece { payload, .. } => Some(payload.clone()),
        Item::Empty { .. } => None,
    }
}

impl PieceRouting {
    /// To whom the next frame of the pieces that wait goes.
    pub(crate) fn next(&self) -> Option<WorkerId> {
        self.outgoing.keys().next().map(|(to, ..)| *to)
    }

    /// Sends that frame.
    pub(crate) fn flush(&mut self, post: &mut Post) {
        let Some(mut waiting) = self.outgoing.first_entry() else {
            return;
        };
        let (to, priority, exchange, turn, group) = *waiting.key();
        let OutgoingParcels { parcels, routes } = waiting.get_mut();
        // Large payloads last: the receiver reads the last one to where it will lie.
        if !parcels.iter().is_sorted_by_key(is_large) {
            parcels.make_contiguous().sort_by_key(is_large);
        }
        let count = frameful(parcels, post.options.frame_bytes);
        let (parcels, routes): (Vec<Parcel<PieceBytes>>, _) = match count == parcels.len() {
            true => {
                let OutgoingParcels { parcels, routes } = waiting.remove();
                (parcels.into(), routes)
            }
            false => (parcels.drain(..count).collect(), routes.clone()),
        };
        let routes = clipped(&routes, &parcels);
        let (job, generation) = post.key();
        let head = DataHead {
            job,
            generation,
            exchange,
            turn,
            group,
        };
        let parts = parcels.chunk_by(Parcel::goes_on_in);
        // Lent, not copied: the frame refers to them until it was acknowledged.
        let payloads: Vec<PieceBytes> = parts.filter_map(|same| payload(&same[0])).collect();
        let data = coalesce(head, &parcels);
        let body = Body::Data(Data { routes, ..data });
        post.send_with(to, priority, &body, &payloads);
    }

    /// What a shard has sent to others that are not here, by ascending destination; to some nothing.
    pub(crate) fn scattered(
        &mut self,
        post: &mut Post,
        shard: ShardId,
        at: ExchangeTurn,
        pieces: impl IntoIterator<Item = (u32, Option<Encoded>)>,
    ) -> Result<(), NodeError> {
        // Neighbouring destinations that get equal pieces, as all of a broadcast do, share one
        // parcel.
        let mut runs: Vec<(Range<u32>, Option<Encoded>)> = Vec::new();
        for (destination, piece) in pieces {
            let is_same = |same: &Option<Encoded>| match (same, &piece) {
                (Some(same), Some(piece)) => same.is_same(piece),
                (same, piece) => same.is_none() && piece.is_none(),
            };
            match runs.last_mut() {
                Some((run, same)) if run.end == destination && is_same(same) => run.end += 1,
                _ => runs.push((destination..destination + 1, piece)),
            }
        }
        let source = TreeNode::leaf(shard.index.into());
        let group = post.relations.destination_group(at.0);
        for (destinations, piece) in runs {
            for item in items(source, piece, post.options.chunk_bytes) {
                self.route(post, group, at, &destinations, &item)?;
            }
        }
        Ok(())
    }

    /// Sends an item to shards of a group: to the destinations of its exchange, or to those that merge on the way.
    pub(crate) fn route(
        &mut self,
        post: &mut Post,
        group: GroupId,
        (exchange, turn): ExchangeTurn,
        destinations: &Range<u32>,
        item: &Item<PieceData>,
    ) -> Result<(), NodeError> {
        let me = post.me();
        let mut ways = self.ways(me, group, destinations)?;
        let about: About = (exchange, turn, group);
        if post.relations.only_source(exchange).is_some() && is_handed_on(post, &ways) {
            let (own, others): (Vec<DestinationGroup>, Vec<DestinationGroup>) =
                ways.into_iter().partition(|it| it.1 == me);
            self.hand_out(post, about, &others, item);
            ways = own;
        }
        for (destinations, to, version) in ways {
            let parcel = Parcel::new(about, destinations, version, item.clone());
            if to == me {
                self.receive(post, me, post.options.generation, parcel)?;
            } else {
                let priority = Priority::new(PIECES).expect("one of eight");
                self.put(post, to, priority, parcel, &[]);
            }
        }
        Ok(())
    }

    /// Where destinations are: one way as far as owner and version are the same.
    fn ways(
        &self,
        me: WorkerId,
        group: GroupId,
        destinations: &Range<u32>,
    ) -> Result<Vec<DestinationGroup>, NodeError> {
        let mut ways: Vec<DestinationGroup> = Vec::new();
        for index in destinations.clone() {
            let shard = ShardId { group, index };
            let (owner, version) = match self.entry(shard)? {
                // A shard that is here takes its pieces here, also while it is flagged and the map
                // names another.
                Some(entry) if !self.is_here(shard) => (entry.owner, entry.version),
                entry => (me, entry.map_or(0, |entry| entry.version)),
            };
            match ways.last_mut() {
                Some((run, to, same)) if (*to, *same) == (owner, version) => run.end += 1,
                _ => ways.push((index..index + 1, owner, version)),
            }
        }
        Ok(ways)
    }

    /// A parcel waits for the next flush; with routes it is for others as well, to whom the receiver hands it on.
    pub(super) fn put(
        &mut self,
        post: &mut Post,
        to: WorkerId,
        priority: Priority,
        mut parcel: Parcel<PieceData>,
        routes: &[Route],
    ) {
        if let Some(PieceData::Spilled(..)) = parcel.item.payload_mut() {
            // Once read, the piece is for all of these destinations as it is now, whatever the
            // routes are by then.
            let errand = Errand::Read(parcel, self.outside.clone());
            post.effects.push(NodeEffect::Errand(errand));
            return;
        }
        let key = (to, priority, parcel.exchange, parcel.turn, parcel.group);
        let parcel = parcel.map(|cargo| match cargo {
            PieceData::Bytes(bytes) | PieceData::First(bytes, _) => bytes,
            _ => unreachable!("a node is given bytes"),
        });
        let outgoing = self.outgoing.entry(key).or_default();
        outgoing.parcels.push_back(parcel);
        add_routes(&mut outgoing.routes, routes);
    }
}
