//! What destinations of one source have retired reaches it, wherever it is or goes.

use crate::broadcasts::{BROADCAST, gathers, plan, scatters, text};
use crate::cluster::Cluster;
use brambling_program::{Relation, ShardId};
use brambling_protocol::frame::Body;
use brambling_protocol::{Entry, Version, WorkerId};
use brambling_worker::Surroundings;

/// Has the source at first.
const A: u32 = 0;
/// To it the source moves.
const B: u32 = 1;
/// Has the destinations.
const C: u32 = 2;
/// Another one.
const D: u32 = 3;

/// The destinations have their pieces of the first of two open turns.
fn one_turn(destinations: u32) -> (Cluster, ShardId) {
    let mut it = Cluster::new(plan(1, 2, Relation::OneToAll), 4, |_| {});
    it.places_all(BROADCAST, &[A], &[destinations; 2]);
    let source = it.source(BROADCAST, 0);
    scatters(&mut it, 0, &[(2, &text())]);
    it.carry();
    (it, source)
}

/// Whether the source may send the turn after the two that are open from the beginning.
fn has_room(it: &mut Cluster) -> bool {
    let shard = it.source(BROADCAST, 0);
    let node = it.home(shard);
    assert!(node.around(shard).has_room(BROADCAST, 1));
    node.around(shard).has_room(BROADCAST, 2)
}

/// Both destinations retire the first turn; what is said of it is under way.
fn retire(it: &mut Cluster) {
    for index in 0..2 {
        gathers(it, index, 0).expect("it is complete");
    }
    it.collect();
}

/// Credits under way: from whom to whom, and by which version of the source.
fn credits(it: &Cluster) -> Vec<(u32, u32, Version)> {
    let credit = |sent: &crate::cluster::Sent| match sent.body() {
        Body::SourceCredit(credit) => Some((sent.from, sent.to, credit.version)),
        Body::Credit(_) | Body::Relay(_) => panic!("all are told"),
        _ => None,
    };
    it.under_way.iter().filter_map(credit).collect()
}

fn knows(it: &Cluster, worker: u32, shard: ShardId) -> Option<Entry> {
    it.nodes[worker as usize].node().map().entry(shard).unwrap()
}

fn at(owner: u32, version: Version) -> Option<Entry> {
    let owner = WorkerId(owner);
    Some(Entry { owner, version })
}

#[test]
fn credit_for_one_source_goes_where_that_is_and_nowhere_else() {
    let (mut it, source) = one_turn(C);
    assert!(!has_room(&mut it));
    retire(&mut it);
    assert_eq!(credits(&it), [(C, A, 1)], "of both destinations");
    assert_eq!(it.under_way.len(), 1);
    it.carry();
    assert_eq!(it.woken.pop(), Some(source), "it waited");
    assert!(has_room(&mut it));
}

/// Its entry is not known where the destinations are: one of all workers has it.
#[test]
fn credit_is_told_to_all_where_nobody_has_said_who_has_the_source() {
    let mut it = Cluster::new(plan(1, 2, Relation::OneToAll), 4, |_| {});
    it.places_all(BROADCAST, &[], &[C, C]);
    let source = it.source(BROADCAST, 0);
    it.nodes[A as usize].settle(source, 1).unwrap();
    it.homes.insert(source, A);
    scatters(&mut it, 0, &[(2, &text())]);
    it.carry();
    for index in 0..2 {
        gathers(&mut it, index, 0).expect("it is complete");
    }
    it.carry();
    assert!(has_room(&mut it));
}

/// The source has moved, and its destinations have not heard of it.
#[test]
fn credit_is_forwarded_to_where_its_source_has_gone() {
    let (mut it, source) = one_turn(C);
    it.departs(source, B, 2);
    it.carry();
    assert_eq!((it.homes[&source], knows(&it, C, source)), (B, at(A, 1)));
    assert!(!has_room(&mut it));
    retire(&mut it);
    assert_eq!(credits(&it), [(C, A, 1)]);
    it.carry_those(|sent| sent.to == A);
    assert_eq!(credits(&it), [(A, B, 2)]);
    it.carry();
    assert!(has_room(&mut it));
    assert_eq!(knows(&it, C, source), at(B, 2), "it is told");
    let mut later = one_turn(C).0;
    later.departs(source, B, 2);
    later.carry();
    later.hears(C, source, B, 2);
    retire(&mut later);
    assert_eq!(credits(&later), [(C, B, 2)], "who knows sends it there");
}

/// The destinations hear of the move before the worker does that has the source: what they say comes first.
#[test]
fn credit_waits_where_its_source_is_to_arrive() {
    let (mut it, source) = one_turn(C);
    it.reserves(source, B, 2);
    it.hears(C, source, B, 2);
    retire(&mut it);
    assert_eq!(credits(&it), [(C, B, 2)]);
    it.carry_those(|sent| sent.to == B);
    assert_eq!(credits(&it), [], "it is noted");
    it.carry();
    assert!(!has_room(&mut it), "where the source still is");
    it.drained(source);
    it.carry();
    assert_eq!(it.homes[&source], B);
    assert!(has_room(&mut it));
    it.departs(source, D, 3);
    it.collect();
    assert_eq!(credits(&it), [], "it goes with the source");
    it.carry();
    assert!(has_room(&mut it));
    it.hears(B, source, C, 4);
    it.collect();
    assert_eq!(credits(&it), [], "and was noted no more");
}

/// The controller has told nobody but the destinations: the holder hears it from the worker to which their credit came.
#[test]
fn credit_brings_a_version_that_calls_the_source() {
    let (mut it, source) = one_turn(C);
    it.reserves(source, B, 2);
    it.hears(C, source, B, 2);
    retire(&mut it);
    assert!(it.nodes[A as usize].may_run(source));
    it.carry();
    assert_eq!(knows(&it, B, source), at(B, 2));
    assert!(!it.nodes[A as usize].may_run(source), "the holder is told");
}

/// What was noted for a source that was to come is sent after it, be it of others or of the worker's own destinations.
#[test]
fn noted_credit_follows_its_source_to_where_it_goes_instead() {
    for destinations in [B, C] {
        let (mut it, source) = one_turn(destinations);
        it.hears(destinations, source, B, 2);
        retire(&mut it);
        it.carry();
        assert_eq!(knows(&it, B, source), at(B, 2));
        it.hears(B, source, D, 3);
        it.collect();
        assert_eq!(credits(&it), [(B, D, 3)]);
        it.carry();
        it.hears(B, source, A, 4);
        it.collect();
        assert_eq!(credits(&it), [], "it was sent once");
        it.departs(source, D, 3);
        it.carry();
        assert_eq!(it.homes[&source], D);
        assert!(has_room(&mut it));
    }
}

/// Who has it next was told nothing before.
#[test]
fn a_source_that_moves_brings_its_credit_along() {
    for destinations in [A, C] {
        let (mut it, source) = one_turn(destinations);
        retire(&mut it);
        it.carry();
        assert!(has_room(&mut it));
        it.departs(source, B, 2);
        it.carry();
        assert_eq!(it.homes[&source], B);
        assert!(has_room(&mut it));
        it.hears(A, source, D, 3);
        it.collect();
        assert_eq!(credits(&it), [], "nothing of it was left");
    }
}

#[cfg(feature = "mutants")]
mod mutants {
    use super::*;
    use brambling_memory::mutants::assert_caught;

    #[test]
    fn mutant_of_credit_that_stays_where_its_source_was() {
        let name = "credits-stay-behind";
        assert_caught(name, credit_is_forwarded_to_where_its_source_has_gone);
        assert_caught(name, a_source_that_moves_brings_its_credit_along);
    }

    #[test]
    fn mutant_of_a_holder_that_nobody_calls() {
        let name = "holders-hear-from-the-controller-alone";
        assert_caught(name, credit_brings_a_version_that_calls_the_source);
    }
}
