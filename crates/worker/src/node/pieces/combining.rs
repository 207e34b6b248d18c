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

use super::{NodeEffect, NodeError, PieceData, PieceRouting, Post};
use crate::waiting::{ExchangeTurn, WaitingPiece};
use brambling_exchange::{
    Acceptance, CombiningTree, Gathered, GroupMerge, InboxError, Item, combining,
};
use brambling_memory::mutants;
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, GroupId, ShardId, Turn};
use std::collections::BTreeMap;

/// What meets at relays that are here.
#[derive(Default)]
pub(super) struct Meetings {
    groups: BTreeMap<(ExchangeId, Turn, TreeNode), Group>,
    /// By relay that is here: of turns below this one everything goes past it.
    past: BTreeMap<(ExchangeId, u32), Turn>,
}

enum Group {
    /// Some of it has come, or all.
    Meets(GroupMerge<WaitingPiece>),
    /// It is being merged.
    Merges,
}

impl Meetings {
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

/// The shard at which a group of a group's shards meets.
pub fn merged_at(sources: GroupId, group: TreeNode) -> ShardId {
    ShardId {
        group: sources,
        index: combining::relay(group),
    }
}

impl PieceRouting {
    /// The pieces of a complete group, by source, ascending.
    pub(crate) fn take_group(
        &mut self,
        at: ExchangeTurn,
        group: TreeNode,
    ) -> Vec<Gathered<WaitingPiece>> {
        let key = (at.0, at.1, group);
        match self.meetings.groups.insert(key, Group::Merges) {
            Some(Group::Meets(meeting)) => meeting.take(),
            _ => panic!("what is merged is complete, and merged once"),
        }
    }

    /// The lowest turn that a shard that merges may still be about, as far as was told here.
    pub(crate) fn lowest_merged(&self, exchange: ExchangeId) -> Turn {
        self.credits.lowest_open(exchange)
    }

    /// A group's pieces have been merged.
    pub(crate) fn merged(&mut self, at: ExchangeTurn, group: TreeNode) {
        self.meetings.groups.remove(&(at.0, at.1, group));
    }

    /// Sends an item to a relay, or to the destination.
    pub(crate) fn pass(
        &mut self,
        post: &mut Post,
        at: ExchangeTurn,
        to: Option<u32>,
        item: &Item<PieceData>,
    ) -> Result<(), NodeError> {
        let relays = post.relations.combining(at.0).map(|(_, group)| group);
        let (group, index) = match (to, relays) {
            (Some(relay), Some(group)) => (group, relay),
            _ => (post.relations.destination_group(at.0), 0),
        };
        self.route(post, group, at, &(index..index + 1), item)
    }

    /// An item has come to a relay that is here, or was when it came.
    pub(crate) fn meet(
        &mut self,
        post: &mut Post,
        relay: ShardId,
        at: ExchangeTurn,
        item: Item<WaitingPiece>,
    ) -> Result<(), NodeError> {
        let unknown = || NodeError::UnknownExchange {
            exchange: at.0,
            group: relay.group,
        };
        let (tree, _) = post.relations.combining(at.0).ok_or_else(unknown)?;
        if !self.is_here(relay) {
            // The relay has left since the sender looked.
            self.let_pass(post, at, Some(relay.index), item);
            return Ok(());
        }
        let stranger = |source: TreeNode| NodeError::NoRelay {
            exchange: at.0,
            relay: relay.index,
            leaf: source.start(),
        };
        // The relay is a source too, so the destination is at most the open turns ahead of the
        // credit that the relay has seen, and other sources are as many ahead of the destination.
        // Where the relay was, it may have seen the destination itself retire turns that were told
        // nobody yet: fewer than are open.
        let lowest = self.credits.lowest_open(at.0);
        if at.1 < lowest {
            return Ok(());
        }
        if at.1 - lowest >= 3 * post.options.open_turns {
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
                let to = tree.past(relay.index, group);
                self.let_pass(post, at, to, item);
                continue;
            }
            let key = (at.0, at.1, group);
            let fresh = || Group::Meets(GroupMerge::new(tree.sources_of(group)));
            let Group::Meets(meeting) = self.meetings.groups.entry(key).or_insert_with(fresh)
            else {
                return Err(stranger(group));
            };
            let accepted = meeting.accept(item).map_err(stranger)?;
            let is_empty = meeting.pieces_mut().next().is_none();
            match (accepted, is_empty) {
                (Acceptance::Complete, true) => {
                    self.meetings.groups.remove(&key);
                    let sources = tree.sources_of(group);
                    self.pass(post, at, tree.next(group), &Item::Empty { sources })?;
                }
                (Acceptance::Complete, false) => {
                    post.effects.push(NodeEffect::Combine { at, group })
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn let_pass(
        &self,
        post: &mut Post,
        at: ExchangeTurn,
        to: Option<u32>,
        item: Item<WaitingPiece>,
    ) {
        let outside = self.outside.clone();
        post.effects.push(NodeEffect::Pass {
            at,
            to,
            item,
            outside,
        });
    }

    /// A relay leaves: what it was to merge goes on as it is. Below which turns it merges nothing, wherever it is.
    pub(crate) fn flush_relay(
        &mut self,
        post: &mut Post,
        relay: ShardId,
    ) -> Vec<(ExchangeId, Turn)> {
        let meets = |(key, group): (&(ExchangeId, Turn, TreeNode), &Group)| {
            let (exchange, turn, node) = *key;
            let combining = post.relations.combining(exchange);
            let is_its = combining.is_some_and(|it| it.1 == relay.group)
                && combining::relay(node) == relay.index;
            let waits = matches!(group, Group::Meets(meeting) if !meeting.is_complete());
            (is_its && waits).then_some((exchange, turn, node))
        };
        let left: Vec<_> = self.meetings.groups.iter().filter_map(meets).collect();
        for key in left {
            let (exchange, turn, group) = key;
            let Some(Group::Meets(meeting)) = self.meetings.groups.remove(&key) else {
                continue;
            };
            let past = self.meetings.past.entry((exchange, relay.index));
            let past = past.or_default();
            *past = turn.saturating_add(1).max(*past);
            let (tree, _) = post.relations.combining(exchange).expect("it has met");
            for item in meeting.into_items() {
                let (at, to) = ((exchange, turn), tree.past(relay.index, group));
                self.let_pass(post, at, to, item);
            }
        }
        let exchanges = post.relations.merged_by(relay.group);
        let past = |exchange: &ExchangeId| {
            let turn = self.meetings.past.remove(&(*exchange, relay.index))?;
            Some((*exchange, turn))
        };
        let past: Vec<_> = exchanges.iter().filter_map(past).collect();
        match mutants::is_on("relays-forget-what-went-past") {
            true => Vec::new(),
            false => past,
        }
    }

    /// A relay has come: of turns below these it merges nothing.
    pub(crate) fn unpack_relay(
        &mut self,
        post: &Post,
        relay: ShardId,
        past: Vec<(ExchangeId, Turn)>,
    ) -> Result<(), NodeError> {
        for (exchange, turn) in past {
            if !post.relations.leads_through(exchange, relay.group) {
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
    item: Item<WaitingPiece>,
) -> Result<Vec<(TreeNode, Item<WaitingPiece>)>, TreeNode> {
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
