//! Pieces for one destination are merged where they meet.

use crate::cluster::in_pairs;
use crate::words::{
    REDUCTION, expected, gathers, is_complete, node, reduces, say, say_nothing, say_this,
};
use std::collections::BTreeMap;

/// Pairs, and pairs of these, are merged where they are; the root is the destination's.
#[test]
fn what_leaves_a_worker_is_merged_as_far_as_it_goes() {
    let mut it = reduces(2, &[0; 8], 1, in_pairs);
    say(&mut it, 0..8, 0);
    it.carry();
    let sent = it.pieces.iter().flat_map(|frame| frame.sources.clone());
    let mut sent: Vec<_> = sent.collect();
    sent.sort();
    assert_eq!(sent, [node(2, 0), node(2, 1)]);
    let frames = BTreeMap::from([((0, 1), it.pieces.len())]);
    assert_eq!(it.frames(), frames);
    let all = "(((a0b0)(c0d0))((e0f0)(g0h0)))".to_owned();
    assert_eq!(gathers(&mut it, 0), (vec![0, 4], all.clone()));
    assert_eq!(expected(0..8, 0), all);
}

/// Each tells those whose relays it needs once, and nothing is complete before all have spoken.
#[test]
fn sources_of_several_workers_meet_at_their_relays() {
    for is_backwards in [false, true] {
        let mut it = reduces(4, &[0, 0, 0, 1, 1, 1, 2, 2], 3, in_pairs);
        it.is_backwards = is_backwards;
        say(&mut it, 0..7, 0);
        it.carry();
        assert_eq!(it.frames(), BTreeMap::from([((1, 0), 1), ((0, 3), 1)]));
        assert!(!is_complete(&mut it, 0));
        say(&mut it, [7], 0);
        it.carry();
        let frames = [((1, 0), 1), ((0, 3), 1), ((2, 1), 1), ((1, 3), 1)];
        assert_eq!(it.frames(), BTreeMap::from(frames));
        assert!(it.pieces.iter().all(|frame| frame.sources.len() == 1));
        let merged = [
            (0, node(1, 0)),
            (0, node(1, 1)),
            (0, node(2, 0)),
            (1, node(1, 2)),
            (1, node(2, 1)),
            (2, node(1, 3)),
        ];
        let mut groups: Vec<_> = it.merged.iter().map(|it| (it.0, it.2)).collect();
        groups.sort();
        assert_eq!(groups, merged);
        assert_eq!(gathers(&mut it, 0), (vec![0, 4], expected(0..8, 0)));
    }
}

/// Turns are merged each by itself, in whichever order they come.
#[test]
fn a_later_turn_does_not_wait_for_an_earlier_one() {
    let mut it = reduces(2, &[0, 1, 1, 1], 1, in_pairs);
    say(&mut it, 0..4, 1);
    say(&mut it, 0..3, 0);
    it.carry();
    assert!(!is_complete(&mut it, 0) && is_complete(&mut it, 1));
    say(&mut it, [3], 0);
    it.carry();
    for turn in [0, 1] {
        assert_eq!(gathers(&mut it, turn), (vec![0, 2], expected(0..4, turn)));
    }
}

/// The last group is not full: it is complete with those that there are.
#[test]
fn sources_that_fill_no_last_group_are_merged() {
    let mut it = reduces(3, &[0, 0, 0, 0, 1, 1, 1], 2, in_pairs);
    say(&mut it, 0..7, 0);
    it.carry();
    assert_eq!(gathers(&mut it, 0), (vec![0, 4], expected(0..7, 0)));
}

/// They are accounted for, and what others send is merged as ever.
#[test]
fn sources_that_send_nothing_are_left_out() {
    let mut it = reduces(3, &[0, 0, 1, 1, 0, 1, 0, 1], 2, in_pairs);
    let speak = [1, 2, 3, 4, 5];
    say(&mut it, speak, 0);
    it.carry();
    assert!(!is_complete(&mut it, 0));
    say_nothing(&mut it, [0, 6, 7], 0);
    it.carry();
    let groups = it.merged.iter().map(|it| it.2);
    assert!(groups.clone().any(|it| it == node(1, 0)), "of one piece");
    assert!(!groups.clone().any(|it| it == node(1, 3)), "of none");
    assert_eq!(gathers(&mut it, 0), (vec![0, 4], expected(speak, 0)));
}

/// The marks of neighbours for several groups of a relay come as one.
#[test]
fn marks_for_several_groups_of_a_relay_come_together() {
    let mut it = reduces(3, &[0, 1, 1, 1, 0, 0, 0, 0], 2, in_pairs);
    say(&mut it, [0, 4, 5, 6, 7], 0);
    say_nothing(&mut it, 1..4, 0);
    it.carry();
    assert_eq!(it.frames()[&(1, 0)], 1);
    let all = expected([0, 4, 5, 6, 7], 0);
    assert_eq!(gathers(&mut it, 0), (vec![0, 4], all));
}

/// The first group of a larger one sends nothing: its mark goes on to the same relay, for the larger one.
#[test]
fn a_first_group_that_sends_nothing_is_left_out() {
    let mut it = reduces(2, &[0; 8], 1, in_pairs);
    say_nothing(&mut it, [4, 5], 0);
    say(&mut it, [0, 1, 2, 3, 6, 7], 0);
    it.carry();
    let all = expected([0, 1, 2, 3, 6, 7], 0);
    assert_eq!(gathers(&mut it, 0), (vec![0, 4], all));
}

/// Nobody is asked to merge nothing: the mark of that goes on.
#[test]
fn a_turn_in_which_nobody_sends_anything_completes() {
    let mut it = reduces(2, &[0; 8], 1, in_pairs);
    say_nothing(&mut it, 0..8, 0);
    it.carry();
    assert_eq!((it.merged.len(), it.pieces.len()), (0, 1));
    assert_eq!(gathers(&mut it, 0), (vec![], String::new()));
    say(&mut it, 0..8, 1);
    it.carry();
    assert_eq!(gathers(&mut it, 1), (vec![0, 4], expected(0..8, 1)));
}

/// A group is complete when the last chunk of its last piece has come, and sends its own in chunks.
#[test]
fn large_pieces_are_merged_from_chunks() {
    let long = |source: u32| char::from(b'a' + source as u8).to_string().repeat(100);
    for is_backwards in [false, true] {
        let mut it = reduces(3, &[0, 1, 1, 0], 2, |options| {
            in_pairs(options);
            (options.chunk_bytes, options.frame_bytes) = (30, 1);
        });
        it.is_backwards = is_backwards;
        (0..4).for_each(|source| say_this(&mut it, source, 0, long(source)));
        it.collect();
        let chunks = it.under_way.len();
        assert!(chunks > 6, "{chunks}");
        let last = it.under_way.split_off(chunks - 1);
        it.carry();
        assert!(!is_complete(&mut it, 0));
        it.under_way.extend(last);
        it.carry();
        let (a, b, c, d) = (long(0), long(1), long(2), long(3));
        let all = format!("(({a}{b})({c}{d}))");
        assert_eq!(gathers(&mut it, 0), (vec![0, 2], all));
        let groups: Vec<_> = it.merged.iter().map(|it| (it.1, it.2)).collect();
        assert_eq!(groups.len(), 2, "{groups:?}");
        assert!(groups.iter().all(|it| it.0 == (REDUCTION, 0)));
    }
}
