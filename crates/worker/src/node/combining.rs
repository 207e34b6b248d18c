//! What many sources send to one destination, merged on its way (Canary, §3.2: reductions).
//!
//! # Rules
//! * A piece goes to the relay of its sources' group ([`CombiningTree`](brambling_exchange::CombiningTree)), a shard like any other: the router delivers, forwards or
//!   holds it, by the versions of that shard's entry.
//! * When all that a group's sources send in a turn has come, it is merged outside of the node, as any user's code, and goes on to the next
//!   relay, or to the destination. Where nobody has sent anything, the mark of that goes on.
//! * A relay that leaves is *flushed*: what it has of groups that are not complete goes on as it came, past it. It takes along
//!   below which turn that was. Wherever it is then, what comes of these turns goes past it too, so that nobody waits for what
//!   has gone. Of later turns nothing has come, and they are merged where it is now.
//! * A relay takes no turn that cannot be open, as far as was told where it is: what was told travels with it.
//! * What is complete belongs to the node: it is merged, and goes on, even if the relay has left.
//!
//! # Why nothing is lost or merged twice
//! Each source's piece is in one place: in a group's meeting, in the merging, or under way to one shard. Whoever gets it accounts for its
//! sources, however they were grouped, so a group that waits for a smaller one takes its members as well. At the end the destination's inbox knows
//! all sources. Relays lie at ever lower shards, so nothing goes round.
//!
//! # Why nobody waits for it
//! A relay waits for what its sources' scatters send in one turn, which the destination's gather waits for as well.

use super::cargo::items;
use super::room::{Charge, Kept, taken_out};
use super::{Cargo, Effect, Node, NodeError, Piece, Taken};
use brambling_exchange::{
    Accepted, CombiningTree, InboxError, Item, Meeting, Room, RouterError, Weight,
};
use brambling_memory::{Class, mutants};
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, ShardId, Turn};
use std::collections::BTreeMap;

type At = (ExchangeId, Turn);

/// What meets at relays that are here.
#[derive(Default)]
pub(super) struct Meetings {
    groups: BTreeMap<(ExchangeId, Turn, TreeNode), Group>,
    /// By relay that is here: of turns below this one everything goes past it.
    past: BTreeMap<(ExchangeId, u32), Turn>,
}

enum Group {
    /// Some of it has come, or all.
    Meets(Meeting<Kept>),
    /// It is being merged. Until that is done its pieces count.
    Merges { _charges: Vec<Charge> },
}

impl Meetings {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// What waits to be merged, by exchange and turn.
    pub(super) fn waiting_mut(&mut self) -> impl Iterator<Item = (At, &mut Kept)> {
        let meetings = self
            .groups
            .iter_mut()
            .filter_map(|(key, group)| match group {
                Group::Meets(meeting) => Some(((key.0, key.1), meeting)),
                Group::Merges { .. } => None,
            });
        meetings.flat_map(|(at, meeting)| meeting.pieces_mut().map(move |kept| (at, kept)))
    }
}

impl Node {
    /// The pieces of a complete group, by source, ascending. They count until [`Node::combined`].
    ///
    /// # Errors
    /// When some were spilled and cannot be read back.
    ///
    /// # Panics
    /// If nobody was told to merge them ([`Effect::Combine`]).
    pub fn take_group(&mut self, at: At, group: TreeNode) -> Result<Vec<Taken>, NodeError> {
        let key = (at.0, at.1, group);
        let merging = |_charges| Group::Merges { _charges };
        let Some(Group::Meets(meeting)) = self.meetings.groups.insert(key, merging(Vec::new()))
        else {
            panic!("what is merged is complete, and merged once");
        };
        let mut pieces = meeting.take();
        let (_, sources) = self.relations.combining(at.0).expect("it has met");
        let relay = ShardId {
            group: sources,
            index: brambling_exchange::combining::relay(group),
        };
        let mut charges = vec![self.recall(relay, None, at, &mut pieces)?];
        let pieces = taken_out(pieces, &mut charges);
        self.meetings.groups.insert(key, merging(charges));
        Ok(pieces.into_iter().map(|(_, piece)| piece).collect())
    }

    /// What a group's pieces make together goes on.
    pub fn combined(&mut self, at: At, group: TreeNode, piece: Piece) -> Result<(), NodeError> {
        self.meetings.groups.remove(&(at.0, at.1, group));
        let (tree, _) = self.relations.combining(at.0).expect("it has met");
        self.send_on(at, tree.next(group), group, Some(piece))
    }

    /// Sends what a node's sources have to a relay, or to the destination.
    pub(super) fn send_on(
        &mut self,
        at: At,
        to: Option<u32>,
        source: TreeNode,
        piece: Option<Piece>,
    ) -> Result<(), NodeError> {
        let items = items(source, piece, self.options.chunk_bytes, &self.spills);
        items
            .into_iter()
            .try_for_each(|item| self.pass(at, to, &item))
    }

    fn pass(&mut self, at: At, to: Option<u32>, item: &Item<Cargo>) -> Result<(), NodeError> {
        let relays = self.relations.combining(at.0).map(|(_, group)| group);
        match (to, relays) {
            (Some(relay), Some(group)) => self.route_to(group, at, &(relay..relay + 1), item),
            _ => self.route(at, &(0..1), item),
        }
    }

    /// An item has come to a relay that is here.
    pub(super) fn meet(
        &mut self,
        relay: ShardId,
        at: At,
        item: Item<Cargo>,
    ) -> Result<(), NodeError> {
        let unknown = || NodeError::UnknownExchange {
            exchange: at.0,
            group: relay.group,
        };
        let (tree, _) = self.relations.combining(at.0).ok_or_else(unknown)?;
        let stranger = |source: TreeNode| NodeError::NoRelay {
            exchange: at.0,
            relay: relay.index,
            leaf: source.start(),
        };
        // The relay sends itself, so the destination is at most so many turns beyond what was told here, and others as many beyond that.
        let lowest = self.credits.lowest_open(at.0);
        if at.1 < lowest {
            return Ok(());
        }
        if at.1 - lowest >= 2 * self.options.open_turns {
            let (exchange, turn, next) = (at.0, at.1, lowest);
            let refused = InboxError::WithoutCredit {
                exchange,
                turn,
                next,
            };
            return Err(refused.into());
        }
        let past = self.meetings.past.get(&(at.0, relay.index));
        let goes_past = past.is_some_and(|turn| at.1 < *turn);
        for (group, item) in by_group(tree, relay.index, item).map_err(stranger)? {
            if goes_past {
                self.pass(at, tree.past(relay.index, group), &item)?;
                continue;
            }
            let kept = self.keep(relay, at, item)?;
            let key = (at.0, at.1, group);
            let fresh = || Group::Meets(Meeting::new(tree.sources_of(group)));
            let Group::Meets(meeting) = self.meetings.groups.entry(key).or_insert_with(fresh)
            else {
                return Err(stranger(group));
            };
            let accepted = meeting.accept(kept).map_err(stranger)?;
            let is_empty = meeting.pieces_mut().next().is_none();
            match (accepted, is_empty) {
                (Accepted::Complete, true) => {
                    self.meetings.groups.remove(&key);
                    let sources = tree.sources_of(group);
                    self.pass(at, tree.next(group), &Item::Empty { sources })?;
                }
                (Accepted::Complete, false) => self.effects.push(Effect::Combine { at, group }),
                _ => {}
            }
        }
        Ok(())
    }

    /// Makes room for what waits to be merged, or spills it.
    fn keep(&self, relay: ShardId, at: At, mut item: Item<Cargo>) -> Result<Item<Kept>, NodeError> {
        let mut charge = Charge::Nothing;
        if let Some(cargo) = item.payload_mut()
            && cargo.bytes() > 0
        {
            // Which turn is the lowest open one at the destination is told here late. Where a later one can be spilled, it leaves the floor
            // to what is waited for.
            let class = match self.room.spill() {
                Some(_) => Room::class(at.1, self.credits.lowest_open(at.0)),
                None => Class::Exchange,
            };
            let room = (self.room).admit((at.0, at.1, relay), class, Some(cargo), 0);
            charge = Charge::new(room.map_err(RouterError::from)?, 1);
        }
        Ok(item.map(|cargo| charge.keep(cargo)))
    }

    /// A relay leaves: what it was to merge goes on as it is. Below which turns it merges nothing, wherever it is.
    pub(super) fn flush_relay(
        &mut self,
        relay: ShardId,
    ) -> Result<Vec<(ExchangeId, Turn)>, NodeError> {
        let meets = |(key, group): (&(ExchangeId, Turn, TreeNode), &Group)| {
            let (exchange, turn, node) = *key;
            let is_its = self
                .relations
                .combining(exchange)
                .is_some_and(|it| it.1 == relay.group)
                && brambling_exchange::combining::relay(node) == relay.index;
            let waits = matches!(group, Group::Meets(meeting) if !meeting.is_complete());
            (is_its && waits).then_some((exchange, turn, node))
        };
        let left: Vec<_> = self.meetings.groups.iter().filter_map(meets).collect();
        for key in left {
            let (exchange, turn, group) = key;
            let Some(Group::Meets(meeting)) = self.meetings.groups.remove(&key) else {
                continue;
            };
            let past = self
                .meetings
                .past
                .entry((exchange, relay.index))
                .or_default();
            *past = turn.saturating_add(1).max(*past);
            let (tree, _) = self.relations.combining(exchange).expect("it has met");
            for item in meeting.into_items() {
                let item = item.map(|kept| kept.cargo);
                self.pass((exchange, turn), tree.past(relay.index, group), &item)?;
            }
        }
        let exchanges = self.relations.merged_by(relay.group);
        let past = |exchange| {
            let turn = self.meetings.past.remove(&(exchange, relay.index))?;
            Some((exchange, turn))
        };
        let past: Vec<_> = exchanges.into_iter().filter_map(past).collect();
        match mutants::is_on("relays-forget-what-went-past") {
            true => Ok(Vec::new()),
            false => Ok(past),
        }
    }

    /// A relay has come: of turns below these it merges nothing.
    pub(super) fn unpack_relay(
        &mut self,
        relay: ShardId,
        past: Vec<(ExchangeId, Turn)>,
    ) -> Result<(), NodeError> {
        for (exchange, turn) in past {
            if !self.relations.leads_through(exchange, relay.group) {
                return Err(NodeError::State(relay));
            }
            self.meetings.past.insert((exchange, relay.index), turn);
        }
        Ok(())
    }
}

/// An item, or the parts of it, with the groups in which a relay takes them.
fn by_group(
    tree: CombiningTree,
    relay: u32,
    item: Item<Cargo>,
) -> Result<Vec<(TreeNode, Item<Cargo>)>, TreeNode> {
    match item {
        Item::Piece { source, .. } => {
            let group = tree.group(relay, source).ok_or(source)?;
            Ok(vec![(group, item)])
        }
        Item::Empty { sources } => {
            let part = |(group, sources)| (group, Item::Empty { sources });
            let parts = tree.split(relay, sources)?;
            Ok(parts.into_iter().map(part).collect())
        }
    }
}
