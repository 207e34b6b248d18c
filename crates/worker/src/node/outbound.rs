//! What leaves a node: for its own inboxes, for other workers, now or at the next flush.

use super::broadcast::{Way, add_routes, clipped};
use super::{Bytes, Cargo, Effect, Errand, Node, NodeError, PIECES};
use brambling_exchange::{Effect as Routed, Item, Parcel, RouterError, coalesce};
use brambling_memory::mutants;
use brambling_program::{ExchangeId, GroupId, ShardId, Turn};
use brambling_protocol::frame::{
    Body, Data, DataHead, Frame, MapUpdate, Packet, Route, SHARED_BYTES,
};
use brambling_protocol::{FrameSession, Priority, WorkerId};
use std::collections::VecDeque;
use std::ops::Range;

/// What a parcel takes in a frame beside its payload, at most.
const PARCEL_BYTES: u64 = 64;

/// How many parcels go in one frame, from the first. A frame that grew with its turn would exceed what a frame may have.
fn frameful(parcels: &VecDeque<Parcel<Bytes>>, frame_bytes: usize) -> usize {
    let mut used = 0;
    let fits = parcels.iter().take_while(|parcel| {
        used += parcel.bytes + PARCEL_BYTES;
        used <= frame_bytes as u64
    });
    fits.count().max(1)
}

/// Parcels that wait for a flush.
#[derive(Default)]
pub(super) struct Outgoing {
    parcels: VecDeque<Parcel<Bytes>>,
    /// Of a broadcast, which is alike for all of them: to whom the receiver hands it on.
    routes: Vec<Route>,
}

/// Large payloads at a frame's end are sent from where they lie.
fn is_large(parcel: &Parcel<Bytes>) -> bool {
    parcel.bytes >= SHARED_BYTES as u64
}

fn payload(parcel: &Parcel<Bytes>) -> Option<Bytes> {
    match &parcel.item {
        Item::Piece { payload, .. } => Some(payload.clone()),
        Item::Empty { .. } => None,
    }
}

impl Node {
    /// Sends what waits: at the end of a slice, or when nothing else is to be done.
    pub fn flush(&mut self) {
        while self.flush_pieces() {}
        self.flush_news();
    }

    /// Sends a frame of the pieces that wait, so that it may go before the next one is made; whether there may be more.
    pub fn flush_pieces(&mut self) -> bool {
        let Some(mut waiting) = self.outgoing.first_entry() else {
            return false;
        };
        let (to, priority, exchange, turn, group) = *waiting.key();
        let Outgoing { parcels, routes } = waiting.get_mut();
        if !parcels.iter().is_sorted_by_key(is_large) {
            parcels.make_contiguous().sort_by_key(is_large);
        }
        let count = frameful(parcels, self.options.frame_bytes);
        let (parcels, routes): (Vec<Parcel<Bytes>>, _) = match count == parcels.len() {
            true => {
                let Outgoing { parcels, routes } = waiting.remove();
                (parcels.into(), routes)
            }
            false => (parcels.drain(..count).collect(), routes.clone()),
        };
        let routes = clipped(&routes, &parcels);
        let head = DataHead {
            job: self.options.job,
            generation: self.options.generation,
            exchange,
            turn,
            group,
        };
        let parts = parcels.chunk_by(Parcel::goes_on_in);
        let payloads: Vec<Bytes> = parts.filter_map(|same| payload(&same[0])).collect();
        let data = coalesce(head, &parcels);
        let body = Body::Data(Data { routes, ..data });
        self.send_with(to, priority, &body, &payloads);
        true
    }

    /// Sends what else waits.
    pub fn flush_news(&mut self) {
        self.tell_finished();
        self.tell_retired();
    }

    pub(super) fn perform(&mut self, effects: Vec<Routed<Cargo>>) -> Result<(), NodeError> {
        for effect in effects {
            match effect {
                Routed::Deliver(parcel) => {
                    let is_last = self.relations.destination_group(parcel.exchange) == parcel.group;
                    self.effects.push(match is_last {
                        true => Effect::Deliver(parcel, self.outside.clone()),
                        false => Effect::Meet(parcel, self.outside.clone()),
                    });
                }
                Routed::Forward { to, parcel } => self.post(to, Priority::LAST, parcel, &[])?,
                Routed::SendEntry { to, entry } => {
                    let entries = vec![entry];
                    let (job, generation) = (self.options.job, self.options.generation);
                    self.send(
                        to,
                        Priority::FIRST,
                        &Body::MapUpdate(MapUpdate {
                            job,
                            generation,
                            entries,
                        }),
                    );
                }
            }
        }
        Ok(())
    }

    /// Sends an item of a shard that is here on its way.
    pub(super) fn route(
        &mut self,
        at: (ExchangeId, Turn),
        destinations: &Range<u32>,
        item: &Item<Cargo>,
    ) -> Result<(), NodeError> {
        let group = self.relations.destination_group(at.0);
        self.route_to(group, at, destinations, item)
    }

    /// Sends an item to shards of a group: to the destinations of its exchange, or to those that merge on the way.
    pub(super) fn route_to(
        &mut self,
        group: GroupId,
        (exchange, turn): (ExchangeId, Turn),
        destinations: &Range<u32>,
        item: &Item<Cargo>,
    ) -> Result<(), NodeError> {
        let me = self.options.me;
        let mut ways = self.ways(group, destinations)?;
        let about = (exchange, turn, group);
        if self.relations.only_source(exchange).is_some() && self.is_handed_on(&ways) {
            let (own, others): (Vec<Way>, Vec<Way>) = ways.into_iter().partition(|it| it.1 == me);
            self.hand_out(about, &others, item)?;
            ways = own;
        }
        for (destinations, to, version) in ways {
            let parcel = Parcel::new(about, destinations, version, item.clone());
            if to == me {
                let mut effects = Vec::new();
                self.router
                    .receive(me, self.options.generation, parcel, &mut effects)?;
                self.perform(effects)?;
            } else {
                let priority = Priority::new(PIECES).expect("one of eight");
                self.post(to, priority, parcel, &[])?;
            }
        }
        Ok(())
    }

    /// Where destinations are: one way as far as owner and version are the same.
    fn ways(&self, group: GroupId, destinations: &Range<u32>) -> Result<Vec<Way>, NodeError> {
        let me = self.options.me;
        let mut ways: Vec<Way> = Vec::new();
        for index in destinations.clone() {
            let shard = ShardId { group, index };
            let entry = self.router.map().entry(shard).map_err(RouterError::from)?;
            let (owner, version) = match entry {
                Some(entry) if !self.router.is_here(shard) => (entry.owner, entry.version),
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
    pub(super) fn post(
        &mut self,
        to: WorkerId,
        priority: Priority,
        mut parcel: Parcel<Cargo>,
        routes: &[Route],
    ) -> Result<(), NodeError> {
        if let Some(Cargo::Spilled(..)) = parcel.item.payload_mut() {
            // Then it is for all of these destinations, as it is now, whatever the routes are by then.
            let errand = Errand::Read(parcel, self.outside.clone());
            self.effects.push(Effect::Errand(errand));
            return Ok(());
        }
        let key = (to, priority, parcel.exchange, parcel.turn, parcel.group);
        let parcel = parcel.map(|cargo| match cargo {
            Cargo::Bytes(bytes) | Cargo::First(bytes, _) => bytes,
            _ => unreachable!("a node is given bytes"),
        });
        let outgoing = self.outgoing.entry(key).or_default();
        outgoing.parcels.push_back(parcel);
        add_routes(&mut outgoing.routes, routes);
        Ok(())
    }

    /// A frame that is sent again until it is acknowledged.
    pub(super) fn send(&mut self, to: WorkerId, priority: Priority, body: &Body<'_>) {
        self.say(to, priority, |peer| peer.say(priority, body));
    }

    /// The same, of what has payloads.
    pub(super) fn send_with(
        &mut self,
        to: WorkerId,
        priority: Priority,
        body: &Body<'_>,
        payloads: &[Bytes],
    ) {
        self.say(to, priority, |peer| peer.say_with(priority, body, payloads));
    }

    fn say(
        &mut self,
        to: WorkerId,
        priority: Priority,
        say: impl FnOnce(&mut FrameSession) -> Option<Packet>,
    ) {
        // Who is named by the map, or by a request, is a worker, whether or not it was heard of.
        if !mutants::is_on("strangers-are-told-nothing") {
            self.on_joined(to);
        }
        if self.leavers.are_parted_from(to) {
            return;
        }
        let Some(peer) = self.peers.get_mut(&to) else {
            return;
        };
        if let Some(packet) = say(peer) {
            self.effects.push(Effect::Send {
                to,
                priority,
                packet,
            });
        }
    }

    /// A frame that may be lost.
    pub(super) fn hint(&mut self, to: WorkerId, body: &Body<'_>) {
        let priority = Priority::FIRST;
        let bytes = Frame {
            priority,
            sequence: None,
            body: body.clone(),
        }
        .to_bytes();
        self.effects.push(Effect::Send {
            to,
            priority,
            packet: bytes.into(),
        });
    }
}
