//! Shards that move: the node's side of a migration (Canary, §3.3).
//!
//! # Rules
//! * The controller asks the new worker for room. Only when that is granted does it publish a version that names it.
//! * A shard that is here, and that the map gives to another worker, is *flagged*: no task of it starts any more
//!   ([`Node::may_run`], invariant 6). Whoever runs shards says when none runs ([`Node::depart`]).
//! * Then it leaves ([`Node::leave`]): from then on what comes here for it is forwarded. It goes ([`Node::depart`]) with where it stands, its data, all
//!   that had come for it, and the outcomes of signals that are known here. What was sent stays in the session until it was acknowledged.
//! * The new worker takes it when all parts are there, under its version; what was held for it comes out, and the
//!   controller hears that it may move again. The parts keep the room that was made for them until whoever runs the shard has read them.
//!
//! # Why nobody waits for the controller (invariant 10)
//! It may fall silent when it has told some and not others. Whoever has heard of the version sends to the new worker, which
//! learns it from what it is sent, and tells the holder, whose name came with the request for room: so the shard comes.
//! Where nobody sends, nobody waits.
//!
//! # Why a shard has one owner per version (invariant 1)
//! The controller gives a version to one worker, and orders no other move before it has heard that the shard arrived. A
//! worker takes a shard only with the version for which it was asked to make room, from the one worker that held it; that
//! worker had let it go before it sent the first part. Parts are numbered by the session, so each is taken once.

use super::signals::OutcomeRun;
use super::{Node, NodeEffect, NodeError, PieceBytes, Post, one, shards};
use crate::parts::Unpacking;
use brambling_memory::{Class, Reservation, mutants};
use brambling_program::{ExchangeId, ShardId, Turn};
use brambling_protocol::frame::{Arrived, Body, Reserve, Reserved, Retired, ShardPart};
use brambling_protocol::{Entry, EntryRange, PartitionMap, Priority, Version, WorkerId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The form in which shards travel.
const FORMAT: u16 = 5;

/// Shards on their way out and in.
#[derive(Default)]
pub(super) struct Moves {
    /// Those that the map gives to another worker.
    flagged: BTreeSet<ShardId>,
    /// Those that have left and are not under way yet, with below which turns each merges nothing of what others send, by exchange.
    leaving: BTreeMap<ShardId, Vec<(ExchangeId, Turn)>>,
    /// Those for which there is room here.
    expected: BTreeMap<ShardId, Expected>,
}

struct Expected {
    version: Version,
    /// Who holds the shard, until it has been told that the version was published.
    holder: Option<WorkerId>,
    room: Reservation,
    bytes: u64,
    parts: BTreeMap<u32, PieceBytes>,
}

/// What moves with a shard before its body, which says where it stands, and has its data and what has come for it: whoever runs shards knows its form.
#[derive(Serialize, Deserialize)]
struct ShardMetadata {
    format: u16,
    /// By exchange which turn it has not retired.
    retired: Vec<(ExchangeId, Turn)>,
    /// By exchange below which turn this shard merges nothing of what others send.
    past: Vec<(ExchangeId, Turn)>,
    /// What destinations have retired of exchanges in which this shard alone sends, or merges.
    credits: Vec<(ExchangeId, Vec<Retired>)>,
    outcomes: Vec<OutcomeRun>,
    /// Whom its last holder knew.
    members: Vec<WorkerId>,
    /// Where its last holder believed shards to be.
    map: Vec<EntryRange>,
    /// The program has ended for it.
    has_finished: bool,
}

impl Node {
    /// Whether a task of a shard that is here may start: not once the map gives it to another worker.
    pub fn may_run(&self, shard: ShardId) -> bool {
        self.moves.may_run(shard)
    }

    /// No task of a flagged shard runs any more: nothing is delivered to it here from now on.
    ///
    /// # Panics
    /// If the shard is not here, or not flagged.
    pub fn leave(&mut self, shard: ShardId) {
        // Flushed while the shard is still here: pieces that it was to merge go on as they came.
        let past = self.pieces.flush_relay(&mut self.post, shard);
        if !mutants::is_on("departed-shards-stay") {
            self.pieces.leave(shard);
        }
        self.moves.leave(shard, past);
    }

    /// A shard that has left goes with `body`, in parts, which says where it stands, and has its data and what had come for it; and with how many turns
    /// of which exchanges it has retired.
    ///
    /// # Panics
    /// If the shard has not left.
    pub fn depart(
        &mut self,
        shard: ShardId,
        retired: Vec<(ExchangeId, Turn)>,
        body: Vec<PieceBytes>,
    ) -> Result<(), NodeError> {
        let past = self.moves.depart(shard);
        let metadata = ShardMetadata {
            format: FORMAT,
            retired,
            past,
            credits: self.pieces.credits_along(&self.post, shard),
            // All outcomes that are known here: the worker that decided one may have left before
            // the new worker came.
            outcomes: self.signals.runs(),
            members: self.post.members.others().to_vec(),
            // The new worker may have heard nothing of the controller since (invariant 10).
            map: self.known_map(),
            has_finished: self.signals.leave(shard),
        };
        let metadata = postcard::to_stdvec(&metadata).expect("plain values written to memory");
        let entry = self.pieces.entry(shard)?;
        let Entry { owner, version } = entry.expect("flagged by a version");
        let parts = parts(&metadata, body, self.post.options.part_bytes);
        let (job, generation) = self.post.key();
        // The new owner may have joined after the last news that came here.
        self.hear_of(owner);
        for (at, bytes) in parts.iter().enumerate() {
            let part = ShardPart {
                job,
                generation,
                shard,
                version,
                part: at as u32,
                parts: parts.len() as u32,
                bytes,
            };
            let body = Body::ShardPart(part);
            let payloads = std::slice::from_ref(bytes);
            // Sent after pieces: shards that wait for pieces could run, and this one runs nowhere
            // until it has arrived.
            self.post.send_with(owner, Priority::LAST, &body, payloads);
        }
        Ok(())
    }

    fn known_map(&self) -> Vec<EntryRange> {
        if mutants::is_on("shards-travel-without-a-map") {
            return Vec::new();
        }
        self.map().entries().collect()
    }
}

impl Moves {
    /// Whether a shard has left and is not under way yet.
    pub(super) fn is_any_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Whether a shard is on its way from here, or to here.
    pub(super) fn are_under_way(&self, me: WorkerId, map: &PartitionMap) -> bool {
        let comes = |(shard, expected): (&ShardId, &Expected)| {
            let version = expected.version;
            let here = Entry { owner: me, version };
            !expected.parts.is_empty() || map.entry(*shard) == Ok(Some(here))
        };
        let mut expected = self.expected.iter();
        !self.flagged.is_empty() || !self.leaving.is_empty() || expected.any(comes)
    }

    /// Shards of which a newer version names another worker do not come.
    pub(super) fn forget(&mut self, shards: Range<ShardId>, version: Version) {
        self.expected
            .retain(|shard, it| !shards.contains(shard) || it.version >= version);
    }

    fn may_run(&self, shard: ShardId) -> bool {
        !self.flagged.contains(&shard) || mutants::is_on("flagged-shards-run")
    }

    /// A flagged shard has left, and merges nothing below these turns.
    fn leave(&mut self, shard: ShardId, past: Vec<(ExchangeId, Turn)>) {
        let was_flagged = self.flagged.remove(&shard);
        // A shard that leaves unflagged could have begun a task that nobody waits for (invariant
        // 6).
        assert!(was_flagged, "{shard} leaves without an order");
        self.leaving.insert(shard, past);
    }

    /// A shard that has left goes.
    fn depart(&mut self, shard: ShardId) -> Vec<(ExchangeId, Turn)> {
        self.leaving.remove(&shard).expect("it has left")
    }

    /// After news of the map: shards here that belong elsewhere are to be drained.
    pub(super) fn flag(&mut self, post: &mut Post, elsewhere: Vec<ShardId>) {
        for shard in elsewhere {
            if self.flagged.insert(shard) {
                post.effects.push(NodeEffect::Drain(shard));
            }
        }
    }

    /// After news of the map: who holds a shard that is to come here is told, if need be by nobody else. Whom, and what.
    pub(super) fn calls(
        &mut self,
        owner: WorkerId,
        map: &PartitionMap,
        update: &EntryRange,
    ) -> Vec<(WorkerId, EntryRange)> {
        let mut calls = Vec::new();
        for (shard, expected) in self.expected.range_mut(shards(update)) {
            let version = expected.version;
            let here = Entry { owner, version };
            if map.entry(*shard) == Ok(Some(here))
                // Once: what is said in a session is not lost.
                && let Some(holder) = expected.holder.take()
            {
                calls.push((holder, one(*shard, here)));
            }
        }
        match mutants::is_on("holders-hear-from-the-controller-alone") {
            true => Vec::new(),
            false => calls,
        }
    }

    /// The controller asks for room; whether there is some, and the shard is to come.
    pub(super) fn on_reserve(
        &mut self,
        post: &mut Post,
        reserve: &Reserve,
        is_here: bool,
    ) -> Result<bool, NodeError> {
        let Reserve {
            job,
            generation,
            shard,
            version,
            holder,
            bytes,
        } = *reserve;
        // The controller orders one move of a shard at a time, so this is no honest request.
        if is_here || self.leaving.contains_key(&shard) {
            return Err(NodeError::AlreadyHere(shard));
        }
        // Made before anything is sent (invariant 12): a refusal costs the holder nothing.
        let room = post.options.budget.reserve(Class::Transfer, bytes);
        let granted = room.is_ok();
        if let Ok(room) = room {
            let expected = Expected {
                version,
                holder: Some(holder),
                room,
                bytes: 0,
                parts: BTreeMap::new(),
            };
            self.expected.insert(shard, expected);
        }
        let answer = Reserved {
            job,
            generation,
            shard,
            version,
            granted,
        };
        post.send(WorkerId::CONTROLLER, &Body::Reserved(answer));
        Ok(granted)
    }

    /// A part of a shard has come; `bytes` are the part's. When all are here: its metadata, and its body.
    pub(super) fn on_part(
        &mut self,
        part: &ShardPart<'_>,
        bytes: PieceBytes,
    ) -> Result<Option<(PieceBytes, Unpacking)>, NodeError> {
        let (shard, version) = (part.shard, part.version);
        let expected = self.expected.get_mut(&shard);
        let expected = expected.filter(|expected| expected.version == version);
        let expected = expected.ok_or(NodeError::Unexpected { shard, version })?;
        // The size in the order was an estimate: what comes beyond it has to find room as well.
        expected.bytes += bytes.len() as u64;
        let missing = expected.bytes.saturating_sub(expected.room.bytes());
        let room = expected.room.grow(missing);
        room.map_err(|source| NodeError::NoRoom { shard, source })?;
        let is_new = expected.parts.insert(part.part, bytes).is_none();
        // Sessions deliver once, so a part that comes twice was sent twice.
        if !is_new || part.part >= part.parts {
            return Err(NodeError::Parts(shard));
        }
        if expected.parts.len() < part.parts as usize {
            return Ok(None);
        }
        let Expected { parts, room, .. } = self.expected.remove(&shard).expect("just seen");
        let parts = metadata_and_body(parts.into_values());
        let (metadata, body) = parts.ok_or(NodeError::State(shard))?;
        Ok(Some((metadata, Unpacking::new(body, room))))
    }
}

impl Node {
    /// All of a shard is here: it goes on.
    pub(super) fn arrive(
        &mut self,
        shard: ShardId,
        version: Version,
        bytes: &PieceBytes,
        body: Unpacking,
    ) -> Result<(), NodeError> {
        let metadata: ShardMetadata =
            postcard::from_bytes(bytes).map_err(|_| NodeError::State(shard))?;
        if metadata.format != FORMAT {
            return Err(NodeError::State(shard));
        }
        let leads_here = |it: &(ExchangeId, Turn)| self.post.relations.leads_to(it.0, shard.group);
        if !metadata.retired.iter().all(leads_here) {
            return Err(NodeError::State(shard));
        }
        // Whatever is wrong with the version shows before the shard is here.
        let owner = self.me();
        self.on_update(&one(shard, Entry { owner, version }))?;
        self.signals
            .unpack(&mut self.post, shard, metadata.outcomes)?;
        if metadata.has_finished {
            self.signals.come_finished(shard);
        }
        for member in metadata.members {
            self.greet(member);
        }
        for entry in &metadata.map {
            self.hear(entry)?;
        }
        self.pieces.unpack_relay(&self.post, shard, metadata.past)?;
        self.pieces
            .unpack_credits(&mut self.post, shard, metadata.credits)?;
        for (exchange, turns) in metadata.retired {
            // A worker that joined while the shard was on its way has not heard this from the last
            // holder.
            self.retired(shard, exchange, turns)?;
        }
        // Settled before the router says that the shard is here: what was held for the shard is
        // delivered after this.
        self.post.effects.push(NodeEffect::Settle { shard, body });
        self.settle(shard, version)?;
        let (job, generation) = self.post.key();
        let arrived = Arrived {
            job,
            generation,
            shard,
            version,
        };
        self.post
            .send(WorkerId::CONTROLLER, &Body::Arrived(arrived));
        Ok(())
    }
}

/// The metadata with its length before it, and then the body's parts; what is longer than a frame is cut, not copied.
fn parts(metadata: &[u8], body: Vec<PieceBytes>, part_bytes: usize) -> Vec<PieceBytes> {
    let mut first = (metadata.len() as u64).to_le_bytes().to_vec();
    first.extend_from_slice(metadata);
    let cut = |bytes: PieceBytes| {
        let starts = (0..bytes.len()).step_by(part_bytes);
        starts.map(move |start| bytes.slice(start..bytes.len().min(start + part_bytes)))
    };
    cut(first.into())
        .chain(body.into_iter().flat_map(cut))
        .collect()
}

/// The metadata, and the body's parts. None: they are not what [`parts`] makes.
fn metadata_and_body(
    mut parts: impl Iterator<Item = PieceBytes>,
) -> Option<(PieceBytes, impl Iterator<Item = PieceBytes>)> {
    let mut first = parts.next()?;
    let bytes = usize::try_from(u64::from_le_bytes(*first.first_chunk()?)).ok()?;
    let end = bytes.checked_add(size_of::<u64>())?;
    if first.len() < end {
        let mut row = first.to_vec();
        while row.len() < end {
            row.extend_from_slice(&parts.next()?);
        }
        first = row.into();
    }
    let body = std::iter::once(first.split_off(end)).chain(parts);
    let metadata = first.slice(size_of::<u64>()..);
    Some((metadata, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_memory::Budget;
    use brambling_program::GroupId;

    /// Not before the map names this worker, by the version for which there is room.
    #[test]
    fn who_holds_a_shard_is_called_once() {
        let (me, holder) = (WorkerId(0), WorkerId(1));
        let (group, index) = (GroupId(0), 1);
        let shard = ShardId { group, index };
        let expected = Expected {
            version: 2,
            holder: Some(holder),
            room: Budget::unlimited().reserve(Class::Transfer, 8).unwrap(),
            bytes: 0,
            parts: BTreeMap::new(),
        };
        let mut moves = Moves::default();
        moves.expected.insert(shard, expected);
        let mut map = PartitionMap::new([3]);
        let mut calls = |owner, version| {
            let update = one(shard, Entry { owner, version });
            let _ = map.apply(&update).unwrap();
            moves.calls(me, &map, &update)
        };
        assert_eq!(calls(holder, 1), []);
        let (owner, version) = (me, 2);
        let here = one(shard, Entry { owner, version });
        assert_eq!(calls(me, 2), [(holder, here)]);
        assert_eq!(calls(me, 2), []);
    }
}
