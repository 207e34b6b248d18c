//! Relays that leave, with what they were to merge.

use crate::cluster::{Cluster, in_pairs};
use crate::words::{
    REDUCTION, encoding, expected, gathers, is_complete, node, reduces, say, say_nothing, word,
};
use brambling_program::ShardId;
use brambling_worker::node::NodeError;

/// Where the shard 6 is, the relay of itself and 7, and where it is to go.
const OLD: u32 = 0;
const NEW: u32 = 3;
/// Has all other sources.
const OTHERS: u32 = 1;
const DESTINATION: u32 = 2;

fn pairs() -> (Cluster, ShardId) {
    let sources = [1, 1, 1, 1, 1, 1, OLD, 1];
    assert!(sources.iter().all(|it| [OLD, OTHERS].contains(it)));
    let it = reduces(4, &sources, DESTINATION, in_pairs);
    let relay = it.source(REDUCTION, 6);
    (it, relay)
}

/// What it has goes on past it; what comes later of that turn does so too where it is now, and the next turn is merged there.
#[test]
fn a_relay_that_leaves_merges_nothing_of_the_turn_that_it_has_begun() {
    for sources in [0..8, 0..7] {
        let (mut it, relay) = pairs();
        say(&mut it, 0..6, 0);
        match sources.contains(&7) {
            true => say(&mut it, [7], 0),
            false => say_nothing(&mut it, [7], 0),
        }
        it.carry();
        it.departs(relay, NEW, 2);
        it.carry();
        assert_eq!(it.homes[&relay], NEW);
        assert!(!is_complete(&mut it, 0));
        say(&mut it, [6], 0);
        say(&mut it, 0..8, 1);
        it.carry();
        assert_eq!(gathers(&mut it, 0), (vec![0, 4], expected(sources, 0)));
        assert_eq!(gathers(&mut it, 1), (vec![0, 4], expected(0..8, 1)));
        let pair = it.merged.iter().filter(|it| it.2 == node(1, 3));
        let pair: Vec<_> = pair.map(|it| (it.0, it.1.1)).collect();
        assert_eq!(pair, [(NEW, 1)], "turn 0 went past");
    }
}

/// What is under way to where it was is forwarded, and goes past it as well.
#[test]
fn what_comes_late_to_where_a_relay_was_goes_past_where_it_is() {
    let (mut it, relay) = pairs();
    say(&mut it, [6], 0);
    say(&mut it, [7], 0);
    it.collect();
    let late: Vec<_> = std::mem::take(&mut it.under_way);
    assert_eq!(late.len(), 1);
    it.departs(relay, NEW, 2);
    it.carry();
    it.under_way = late;
    say(&mut it, 0..6, 0);
    say(&mut it, 0..8, 1);
    it.carry();
    for turn in [0, 1] {
        assert_eq!(gathers(&mut it, turn), (vec![0, 4], expected(0..8, turn)));
    }
}

/// Of a piece some chunks have come when the relay leaves, and others come where it is then: they meet at the next one.
#[test]
fn chunks_of_a_piece_that_a_relay_has_not_whole_go_past_it() {
    let sources = [1, 1, 1, 1, 1, 1, OLD, 1];
    let mut it = reduces(4, &sources, DESTINATION, |options| {
        in_pairs(options);
        (options.chunk_bytes, options.frame_bytes) = (12, 1);
    });
    say(&mut it, [7], 0);
    it.collect();
    assert_eq!(it.under_way.len(), 2, "chunks");
    let late = it.under_way.split_off(1);
    it.carry();
    it.departs(it.source(REDUCTION, 6), NEW, 2);
    it.carry();
    say(&mut it, 0..7, 0);
    it.carry();
    assert!(!is_complete(&mut it, 0));
    it.under_way.extend(late);
    it.carry();
    assert!(!it.merged.iter().any(|it| it.2 == node(1, 3)));
    assert_eq!(gathers(&mut it, 0), (vec![0, 4], expected(0..8, 0)));
}

/// It moves on before its turn has ended: it still knows.
#[test]
fn a_relay_that_moves_twice_takes_along_what_it_merges_no_more() {
    let (mut it, relay) = pairs();
    say(&mut it, 0..6, 0);
    say(&mut it, [7], 0);
    it.carry();
    it.departs(relay, NEW, 2);
    it.carry();
    it.departs(relay, DESTINATION, 3);
    it.carry();
    say(&mut it, [6], 0);
    it.carry();
    assert_eq!(gathers(&mut it, 0), (vec![0, 4], expected(0..8, 0)));
}

/// Others that are where it was merge what they have begun.
#[test]
fn a_relay_that_leaves_takes_nothing_of_another_one() {
    let mut it = reduces(4, &[1, 1, OLD, 1, 1, 1, OLD, 1], DESTINATION, in_pairs);
    say(&mut it, [3, 7], 0);
    it.carry();
    it.departs(it.source(REDUCTION, 6), NEW, 2);
    say(&mut it, [0, 1, 2, 4, 5], 0);
    it.carry();
    let pair = (OLD, (REDUCTION, 0), node(1, 1));
    assert!(it.merged.contains(&pair), "{:?}", it.merged);
    say(&mut it, [6], 0);
    it.carry();
    assert_eq!(gathers(&mut it, 0), (vec![0, 4], expected(0..8, 0)));
}

/// What goes past a relay meets at the next one: of a larger group, and further to the front.
#[test]
fn what_goes_past_a_relay_is_merged_at_the_next_one() {
    for (leaves, speak, merged) in [(14, 15..16, node(2, 3)), (12, 13..16, node(3, 1))] {
        let mut sources = [OTHERS; 16];
        sources[leaves as usize] = OLD;
        let mut it = reduces(4, &sources, DESTINATION, in_pairs);
        say(&mut it, speak.clone(), 0);
        it.carry();
        it.departs(it.source(REDUCTION, leaves), NEW, 2);
        it.carry();
        say(&mut it, (0..16).filter(|it| !speak.contains(it)), 0);
        it.carry();
        let next = (OTHERS, (REDUCTION, 0), merged);
        assert!(it.merged.contains(&next), "{:?}", it.merged);
        assert!(!it.merged.iter().any(|it| it.0 == NEW), "{:?}", it.merged);
        assert_eq!(gathers(&mut it, 0), (vec![0, 8], expected(0..16, 0)));
    }
}

/// It was complete before the relay left: whoever was told to merge it does.
#[test]
fn what_is_complete_is_merged_where_its_relay_was() {
    for is_begun in [false, true] {
        let (mut it, relay) = pairs();
        it.is_merged_later = true;
        say(&mut it, [6, 7], 0);
        it.carry();
        let at = (REDUCTION, 0);
        let group = (OLD, at, node(1, 3));
        assert_eq!(it.complete, [group]);
        let begun = is_begun.then(|| it.takes(OLD, at, node(1, 3)));
        it.departs(relay, NEW, 2);
        it.carry();
        assert_eq!(it.homes[&relay], NEW);
        let sent = it.pieces.len();
        match begun {
            Some(piece) => {
                it.complete.clear();
                it.combined(OLD, at, node(1, 3), piece);
            }
            None => it.merge_all(),
        }
        it.carry();
        assert_eq!(it.pieces[sent].sources, [node(1, 3)]);
        it.is_merged_later = false;
        say(&mut it, 0..6, 0);
        say(&mut it, 0..8, 1);
        it.carry();
        for turn in [0, 1] {
            assert_eq!(gathers(&mut it, turn), (vec![0, 4], expected(0..8, turn)));
        }
    }
}

/// Only who lies sends a piece twice.
#[test]
fn what_comes_again_while_it_is_merged_is_refused() {
    let (mut it, _) = pairs();
    it.is_merged_later = true;
    say(&mut it, [6, 7], 0);
    it.carry();
    it.complete.clear();
    let at = (REDUCTION, 0);
    let _begun = it.takes(OLD, at, node(1, 3));
    let shard = it.source(REDUCTION, 6);
    let again = [(0, crate::cluster::piece(&encoding(6, word(6, 0))))];
    let refused = it.nodes[OLD as usize].scattered(shard, at, again);
    assert!(
        matches!(refused, Err(NodeError::NoRelay { leaf: 6, .. })),
        "{refused:?}"
    );
}

/// Its relay has left, all others have parted, and what it was to merge is in no inbox: it is there, and nowhere else.
#[test]
fn a_worker_that_leaves_merges_first() {
    for is_begun in [false, true] {
        let (mut it, relay) = pairs();
        it.is_merged_later = true;
        say(&mut it, [6, 7], 0);
        it.carry();
        it.departs(relay, NEW, 2);
        it.tick();
        let (at, pair) = ((REDUCTION, 0), node(1, 3));
        it.complete.clear();
        let begun = is_begun.then(|| it.takes(OLD, at, pair));
        it.tells_gone(OLD, OLD);
        it.tick();
        assert!(!it.nodes[OLD as usize].has_left(), "it is being merged");
        assert!(!it.nodes[OLD as usize].is_settled());
        let piece = begun.unwrap_or_else(|| it.takes(OLD, at, pair));
        it.combined(OLD, at, pair, piece);
        assert!(!it.nodes[OLD as usize].has_left(), "it waits for a flush");
        it.tick();
        assert!(it.nodes[OLD as usize].has_left());
        it.is_merged_later = false;
        say(&mut it, 0..6, 0);
        it.carry();
        assert_eq!(gathers(&mut it, 0), (vec![0, 4], expected(0..8, 0)));
    }
}

#[cfg(feature = "mutants")]
mod mutants {
    use super::*;
    use brambling_memory::mutants::assert_caught;

    #[test]
    fn mutant_of_a_worker_that_leaves_before_it_has_merged() {
        assert_caught(
            "nobody-waits-for-what-is-merged",
            a_worker_that_leaves_merges_first,
        );
    }

    #[test]
    fn mutant_of_a_relay_that_forgets_what_went_past() {
        let name = "relays-forget-what-went-past";
        let begun = a_relay_that_leaves_merges_nothing_of_the_turn_that_it_has_begun;
        assert_caught(name, begun);
        assert_caught(
            name,
            a_relay_that_moves_twice_takes_along_what_it_merges_no_more,
        );
    }

    #[test]
    fn mutant_of_a_relay_that_keeps_what_it_was_to_merge() {
        let begun = a_relay_that_leaves_merges_nothing_of_the_turn_that_it_has_begun;
        assert_caught("combining-keeps-what-leaves", begun);
    }
}
