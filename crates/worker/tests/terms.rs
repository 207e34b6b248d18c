//! A node that meets a controller which has taken over: what it believes no more, and what it says again.

mod support;

use brambling_program::{GroupId, ShardId};
use brambling_protocol::frame::{Body, Ended, Finished, Frame, MapUpdate, Reserve, ShardRange};
use brambling_protocol::{Entry, EntryRange, Priority, Sequence, WorkerId, first_version};
use brambling_worker::node::{Node, NodeEffect};
use brambling_worker::piece_data::PieceBytes;
use support::{JOB, ME, PEER, counting, one, options};

const SHARD: ShardId = ShardId {
    group: GroupId(0),
    index: 1,
};
const TERM: u32 = 3;

fn node_with_shard() -> Node {
    let mut node = support::node(&counting(), options(ME, vec![PEER]));
    node.settle(SHARD, 1).unwrap();
    node
}

/// The controller's frame of that number.
fn hear(node: &mut Node, sequence: Sequence, entry: EntryRange) {
    let frame = Frame {
        priority: Priority::FIRST,
        sequence: Some(sequence),
        body: Body::MapUpdate(MapUpdate {
            job: JOB,
            generation: options(ME, vec![]).generation,
            entries: vec![entry],
        }),
    };
    node.on_frame(WorkerId::CONTROLLER, &*frame.to_bytes())
        .unwrap();
}

/// The numbered frames for the controller since this was asked last.
fn told(node: &mut Node) -> Vec<(Sequence, String)> {
    node.flush();
    let effects = node.take_effects().into_iter();
    let frames = effects.filter_map(|effect| match effect {
        NodeEffect::Send { to, packet, .. } if to == WorkerId::CONTROLLER => Some(packet),
        _ => None,
    });
    let frames = frames.filter_map(|packet| {
        let bytes = packet.to_bytes();
        let (frame, _) = Frame::decode(&bytes).unwrap();
        let what = match &frame.body {
            Body::Finished(Finished { shards, .. }) => format!("{shards:?}"),
            Body::Failed(failed) => failed.failure.to_owned(),
            other => panic!("{other:?}"),
        };
        frame.sequence.map(|sequence| (sequence, what))
    });
    frames.collect()
}

fn what_was_told_as_held_stays() {
    let mut node = node_with_shard();
    assert!(node.begin_term(TERM));
    let held = node.holding();
    let here = ShardRange {
        group: SHARD.group,
        first: 1,
        end: 2,
    };
    assert_eq!((&held.shards[..], held.is_busy), (&[here][..], false));
    assert_eq!(held.members, [PEER]);
    // Published by the controller before, to somebody who tells it now.
    hear(&mut node, 0, one(SHARD, PEER, 2));
    assert!(node.may_run(SHARD), "it is kept for the new controller");
    hear(&mut node, 1, one(SHARD, ME, first_version(TERM)));
    let here = Entry {
        owner: ME,
        version: first_version(TERM),
    };
    assert_eq!(node.map().entry(SHARD), Ok(Some(here)));
    // What the new one says counts, and shows.
    hear(&mut node, 2, one(SHARD, PEER, first_version(TERM) + 1));
    assert!(!node.may_run(SHARD));
    assert!(node.holding().is_busy);
}

#[test]
fn earlier_terms_count_no_more() {
    what_was_told_as_held_stays();
}

fn ends_are_said_again() {
    let mut node = node_with_shard();
    node.finished(SHARD);
    let ended = told(&mut node);
    assert_eq!(ended.len(), 1);
    assert!(node.begin_term(TERM));
    assert_eq!(told(&mut node), ended, "in a session that begins anew");
    // Asked again in the same term, or by an earlier one: nothing begins anew.
    assert!(!node.begin_term(TERM) && !node.begin_term(TERM - 1));
    assert_eq!(told(&mut node), []);
    node.failed("it has failed");
    let failed = "it has failed".to_owned();
    assert_eq!(told(&mut node), [(1, failed.clone())]);
    assert!(node.begin_term(TERM + 1));
    let again = [(0, failed), (1, ended[0].1.clone())];
    assert_eq!(told(&mut node), again);
}

/// By a controller from which another had taken over, for instance.
#[test]
fn what_was_ended_does_not_go_on() {
    let mut node = node_with_shard();
    let frame = Frame {
        priority: Priority::FIRST,
        sequence: Some(0),
        body: Body::Ended(Ended {
            job: JOB,
            generation: options(ME, vec![]).generation,
            failure: Some("its client is gone"),
        }),
    };
    node.on_frame(WorkerId::CONTROLLER, &*frame.to_bytes())
        .unwrap();
    let held = node.holding();
    assert_eq!((held.is_busy, held.has_ended), (true, false));
}

/// Who told the first controller may be gone.
#[test]
fn a_shard_that_has_moved_is_told_by_who_has_it() {
    let mut holder = node_with_shard();
    holder.finished(SHARD);
    assert_eq!(told(&mut holder).len(), 1);
    let mut other = support::node(&counting(), options(PEER, vec![ME]));
    let reserve = Frame {
        priority: Priority::FIRST,
        sequence: Some(0),
        body: Body::Reserve(Reserve {
            job: JOB,
            generation: options(ME, vec![]).generation,
            shard: SHARD,
            version: 2,
            holder: ME,
            bytes: 10,
        }),
    };
    other
        .on_frame(WorkerId::CONTROLLER, &*reserve.to_bytes())
        .unwrap();
    holder.on_update(&one(SHARD, PEER, 2)).unwrap();
    assert!(holder.holding().is_busy);
    holder.leave(SHARD);
    let body = vec![PieceBytes::copy_from_slice(b"where it stands")];
    holder.depart(SHARD, Vec::new(), body).unwrap();
    for effect in holder.take_effects() {
        if let NodeEffect::Send { to, packet, .. } = effect
            && to == PEER
        {
            other.on_frame(ME, &packet.to_bytes()).unwrap();
        }
    }
    assert_eq!(
        (holder.holding().shards.len(), other.holding().shards.len()),
        (0, 1)
    );
    other.take_effects();
    assert_eq!(told(&mut other), [], "its last holder has told it");
    assert!(holder.begin_term(TERM) && other.begin_term(TERM));
    assert_eq!(told(&mut holder), []);
    assert_eq!(told(&mut other).len(), 1);
}

#[test]
fn what_the_controller_may_not_know_is_said_again() {
    ends_are_said_again();
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_of_terms_are_caught() {
    use brambling_memory::mutants::assert_caught;
    assert_caught("nodes-believe-earlier-terms", what_was_told_as_held_stays);
    assert_caught("ends-are-told-to-one-controller", ends_are_said_again);
}
