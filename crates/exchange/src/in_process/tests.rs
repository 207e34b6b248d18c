//! Pieces arrive once and in order, by slots and by stamps; who is told, who has room, and what becomes of what lies in places that are left.
#![allow(unsafe_code)] // Pieces are erased; each test knows its type.

use super::{
    DestinationEnd, Destinations, InProcess, Keeper, Mailbox, ShardSide, Slots, Stamped, TurnStatus,
};
use brambling_program::{GatherPieces, Payload, PayloadType, Relation, RelationTable, Sink, Value};
use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::thread::{Thread, current, park, scope};

/// Inline bytes of a piece so large that slots for 30 × 30 pairs would exceed their bound.
type Wide = [[u64; 32]; 32];

/// All shards start here, and each has its index, and more, as its number.
fn here(more: u32) -> impl Fn(u32) -> ShardSide {
    move |index| ShardSide {
        number: index + more,
        starts_here: true,
    }
}

fn exchange<P: Payload>(relation: &Relation, (sources, destinations): (u32, u32)) -> InProcess {
    let links = relation.link(sources, destinations).unwrap();
    InProcess::new(
        links,
        PayloadType::of::<P>(),
        (here(0), here(0)),
        &mut Slots::BYTES_MAX.clone(),
    )
}

fn piece<'a, P>(sink: &'a mut Sink<'_>, to: u32) -> &'a mut P {
    let slot = sink.slot(to).expect("related");
    // SAFETY: the slot is of type P, and this thread's until the next call.
    unsafe { &mut *slot.cast::<P>() }
}

/// Destinations that are near where the function says so; how many calls there were for those that are, and for those that are not.
struct Told<F> {
    is_on_this_thread: F,
    reached: u32,
    far: u32,
}

impl<F: Fn(u32) -> bool> Told<F> {
    fn new(is_on_this_thread: F) -> Told<F> {
        Told {
            is_on_this_thread,
            reached: 0,
            far: 0,
        }
    }
}

impl<'a, F: Fn(u32) -> bool> Destinations<'a> for Told<F> {
    fn is_on_this_thread(&self, number: u32) -> bool {
        (self.is_on_this_thread)(number)
    }

    fn reached(&mut self, _: u32, _: impl FnOnce() -> TurnStatus<'a>) {
        self.reached += 1;
    }

    fn sent_to_another_thread(&mut self, _: u32) -> bool {
        self.far += 1;
        true
    }
}

/// A source's task: fills its pieces, and tells its destinations.
fn scatter<'a>(
    exchange: &'a InProcess,
    (turn, source): (u64, u32),
    fill: impl FnOnce(&mut Sink<'_>),
    told: &mut impl Destinations<'a>,
) {
    let end = exchange
        .source(turn, source)
        .expect("its pieces have places");
    fill(&mut Sink::Slots(end.out(turn)));
    assert!(!end.sent(turn, told), "all look here");
}

/// One that sends nothing.
fn silent<'a>(exchange: &'a InProcess, at: (u64, u32), told: &mut impl Destinations<'a>) {
    scatter(exchange, at, |_| {}, told);
}

fn destination(exchange: &InProcess, turn: u64, to: u32) -> DestinationEnd<'_> {
    exchange
        .destination(turn, to)
        .expect("its pieces have places")
}

/// Ends a destination's turn; whether a source waited for room.
fn retire(exchange: &InProcess, turn: u64, to: u32) -> bool {
    let mut woken = false;
    destination(exchange, turn, to).retire(turn, |_| woken = true);
    woken
}

fn stamped(exchange: &InProcess) -> &Stamped {
    match exchange.keeper() {
        Keeper::Slots(_) => panic!("its pieces have places"),
        Keeper::Stamped(stamped) => stamped,
    }
}

/// All turns of all sources, every third piece left out. Waits for room as a shard does: until it is woken.
fn send_all<P: Payload>(
    exchange: &InProcess,
    turns: u64,
    make: impl Fn(u64, u32, u32) -> P,
    gatherer: &OnceLock<Thread>,
) {
    for turn in 0..turns {
        for source in 0..exchange.links().source_count() {
            while !exchange.has_room(turn, source) {
                park();
            }
            let fill = |sink: &mut Sink<'_>| {
                for place in 0..sink.fan_out() {
                    let to = sink.destination(place);
                    if (u64::from(to) + turn) % 3 != 0 {
                        *piece(sink, to) = make(turn, source, to);
                    }
                }
            };
            let mut told = Told::new(|_| false);
            scatter(exchange, (turn, source), fill, &mut told);
            if told.far > 0 {
                gatherer.wait().unpark();
            }
        }
    }
}

fn sources_of<P: Payload + PartialEq + std::fmt::Debug>(
    exchange: &InProcess,
    turn: u64,
    to: u32,
    make: impl Fn(u64, u32, u32) -> P,
) -> Vec<u32> {
    let mut pieces = GatherPieces::Slots(destination(exchange, turn, to).pieces(turn));
    let mut seen = Vec::new();
    while let Some((source, piece)) = pieces.next() {
        // SAFETY: the piece is of type P and this thread's until `retire`.
        assert_eq!(unsafe { &*piece.cast::<P>() }, &make(turn, source, to));
        seen.push(source);
    }
    seen
}

/// One thread sends to the other, all turns in order; every piece names where it came from. Nobody polls: a
/// wake-up that is lost leaves this test waiting for ever.
fn check<P: Payload + PartialEq + std::fmt::Debug>(
    relation: &Relation,
    (n, turns): (u32, u64),
    make: impl Fn(u64, u32, u32) -> P + Sync,
) {
    let exchange = exchange::<P>(relation, (n, n));
    let gatherer = OnceLock::new();
    scope(|scope| {
        let sender = scope.spawn(|| send_all(&exchange, turns, &make, &gatherer));
        gatherer.set(current()).unwrap();
        for turn in 0..turns {
            for to in 0..n {
                while !matches!(exchange.heard(turn, to), TurnStatus::Complete) {
                    park();
                }
                let all = 0..exchange.links().fan_in(turn, to);
                let sources = all.map(|ordinal| exchange.links().source(turn, to, ordinal));
                let sent = (u64::from(to) + turn) % 3 != 0;
                let expected: Vec<u32> = sources.filter(|_| sent).collect();
                assert_eq!(sources_of(&exchange, turn, to, &make), expected);
                if retire(&exchange, turn, to) {
                    sender.thread().unpark();
                }
            }
        }
    });
}

#[test]
fn slots_carry_every_piece_once_in_source_order() {
    check(&Relation::AllToAll, (3, 50), |turn, source, to| {
        (turn, source, to)
    });
    let offsets = Relation::Offsets {
        offsets: vec![-1, 0, 2],
        wrap: true,
    };
    check(&offsets, (5, 50), |turn, source, to| {
        vec![turn, u64::from(source), u64::from(to)]
    });
}

/// As many sources as the turn says: what is open has another table than what is opened for it.
#[test]
fn stamps_are_waited_for_by_the_table_of_their_own_turn() {
    let sources = |hears: u32, to: u32| {
        let mut list: Vec<u32> = (to..to + hears).map(|source| source % 30).collect();
        list.sort_unstable();
        list
    };
    let table = |turn: u32| RelationTable {
        sources: (0..30).map(|to| sources(1 + 6 * turn, to)).collect(),
    };
    let relation = Relation::Tables {
        prologue: vec![],
        period: (0..5).map(table).collect(),
    };
    let exchange = exchange::<Wide>(&relation, (30, 30));
    let stamped = stamped(&exchange);
    for turn in 0..15 {
        let mut missing: BTreeSet<u32> = (0..30).collect();
        for source in [29, 3, 17].into_iter().chain((0..30).rev()) {
            if missing.remove(&source) {
                stamped.sent(turn, source, &mut Told::new(|_| false), |_| {
                    panic!("all look here")
                });
            }
            for to in 0..30 {
                let its = sources(1 + 6 * (turn % 5) as u32, to);
                let first = its.iter().find(|source| missing.contains(source));
                match (stamped.heard(turn, to), first) {
                    (TurnStatus::Complete, None) => {}
                    (TurnStatus::Missing { source, .. }, Some(first)) => assert_eq!(source, *first),
                    (heard, first) => {
                        panic!(
                            "{to} at {turn}: {}, {first:?}",
                            matches!(heard, TurnStatus::Complete)
                        )
                    }
                }
            }
        }
        (0..30).for_each(|to| exchange.retire(turn, to, |_| {}));
    }
}

/// Of a source that leaves its stamps hold, and of later turns nobody waits for one.
#[test]
fn a_source_that_has_left_is_waited_for_by_mail() {
    let exchange = exchange::<Wide>(&Relation::AllToAll, (30, 30));
    let stamped = stamped(&exchange);
    let send = |turn, source| {
        stamped.sent(turn, source, &mut Told::new(|_| false), |_| {
            panic!("all look here")
        });
    };
    (0..2).for_each(|turn| send(turn, 0));
    stamped.leave(0);
    assert!(stamped.stamps(0, 1) && !stamped.stamps(0, 2));
    (1..30).for_each(|source| (0..3).for_each(|turn| send(turn, source)));
    for turn in 0..3 {
        assert!(matches!(stamped.heard(turn, 7), TurnStatus::Complete));
        let ended: Vec<u32> = stamped.ended(turn, 7, 0..30).collect();
        assert_eq!(ended, Vec::from_iter(u32::from(turn == 2)..30));
    }
}

/// Who does not live by stamps is told in another way, whether it started here and has left, or never was here.
#[test]
fn who_does_not_look_at_stamps_is_given_to_whoever_sends() {
    let links = Relation::AllToAll.link(40, 40).unwrap();
    let halves = |index| ShardSide {
        number: index,
        starts_here: index < 20,
    };
    let exchange = InProcess::new(
        links,
        PayloadType::of::<Wide>(),
        (halves, halves),
        &mut Slots::BYTES_MAX.clone(),
    );
    struct Left;
    impl<'a> Destinations<'a> for Left {
        fn is_on_this_thread(&self, number: u32) -> bool {
            number == 1
        }
        fn reached(&mut self, _: u32, _: impl FnOnce() -> TurnStatus<'a>) {}
        fn sent_to_another_thread(&mut self, number: u32) -> bool {
            number != 3
        }
    }
    let mut elsewhere = Vec::new();
    stamped(&exchange).sent(0, 0, &mut Left, |to| elsewhere.push(to));
    assert_eq!(elsewhere, Vec::from_iter([3].into_iter().chain(20..40)));
    assert!(!stamped(&exchange).serves(20) && stamped(&exchange).serves(19));
    // Nobody waits for stamps of those who are elsewhere.
    (1..20).for_each(|source| stamped(&exchange).sent(0, source, &mut Left, |_| {}));
    assert!(matches!(
        stamped(&exchange).heard(0, 5),
        TurnStatus::Complete
    ));
}

/// The destination is a guest elsewhere, gathers as soon as it sees the stamp, and is handed home before its source
/// has told anybody: the place's next turn must not count what was heard of this one.
#[test]
fn a_guest_that_comes_home_while_it_is_told_starts_its_next_turn_with_nothing() {
    let exchange = exchange::<u64>(&Relation::AllToAll, (1, 1));
    let home = std::cell::Cell::new(false);
    for turn in 0..4 {
        home.set(false);
        let is_on_this_thread = |_| {
            if !home.get() && matches!(exchange.heard(turn, 0), TurnStatus::Complete) {
                retire(&exchange, turn, 0);
                home.set(true);
            }
            home.get()
        };
        silent(&exchange, (turn, 0), &mut Told::new(is_on_this_thread));
        assert!(home.get());
    }
    for turn in 4..8 {
        assert!(exchange.has_room(turn, 0));
        assert!(matches!(
            exchange.heard(turn, 0),
            TurnStatus::Missing { .. }
        ));
    }
}

/// A source asks what a destination has heard only where the destination may lack nothing but that source: of what it has
/// looked at itself, it waits for the first that was missing.
#[test]
fn only_whom_a_near_destination_waits_for_tells_it() {
    let all = Relation::AllToAll.link(3, 1).unwrap();
    let exchange = InProcess::new(
        all,
        PayloadType::of::<u64>(),
        (here(10), here(0)),
        &mut Slots::BYTES_MAX.clone(),
    );
    let reached = |source| {
        let mut told = Told::new(|_| true);
        silent(&exchange, (0, source), &mut told);
        (told.reached, told.far)
    };
    let missing = || match exchange.heard(0, 0) {
        TurnStatus::Complete => None,
        TurnStatus::Missing { source, .. } => Some(source),
    };
    assert_eq!(missing(), Some(10));
    assert_eq!((reached(1), missing()), ((0, 0), Some(10)));
    assert_eq!((reached(0), missing()), ((1, 0), Some(12)));
    assert_eq!((reached(2), missing()), ((1, 0), None));
}

/// Near destinations with what each has heard when it is told: whether all.
#[derive(Default)]
struct Near(Vec<(u32, bool)>);

impl<'a> Destinations<'a> for Near {
    fn is_on_this_thread(&self, _: u32) -> bool {
        true
    }

    fn reached(&mut self, number: u32, heard: impl FnOnce() -> TurnStatus<'a>) {
        self.0
            .push((number, matches!(heard(), TurnStatus::Complete)));
    }

    fn sent_to_another_thread(&mut self, _: u32) -> bool {
        unreachable!("all are near");
    }
}

/// More destinations than are told together.
#[test]
fn a_source_of_many_tells_each_of_them_once() {
    const MANY: u32 = 150;
    let exchange = InProcess::new(
        Relation::AllToAll.link(2, MANY).unwrap(),
        PayloadType::of::<u64>(),
        (here(0), here(1_000)),
        &mut Slots::BYTES_MAX.clone(),
    );
    for turn in 0..4 {
        for source in 0..2 {
            let mut near = Near::default();
            silent(&exchange, (turn, source), &mut near);
            let told = (0..MANY).map(|to| (to + 1_000, source == 1));
            assert_eq!(near.0, told.collect::<Vec<_>>());
        }
    }
}

/// By slots and by stamps: room for the turns that are open, and for one more with each that a destination retires. Who lacked
/// room is woken by the destination that it waits for.
#[test]
fn a_source_has_room_for_the_turns_that_are_open() {
    let slots = exchange::<u64>(&Relation::AllToAll, (2, 2));
    for exchange in [slots, exchange::<Wide>(&Relation::AllToAll, (30, 30))] {
        let retire = |turn, to| {
            let mut woken = false;
            exchange.retire(turn, to, |_| woken = true);
            woken
        };
        let rooms = |turns: std::ops::Range<u64>| -> Vec<bool> {
            turns.map(|turn| exchange.has_room(turn, 0)).collect()
        };
        assert_eq!(rooms(3..6), [true, false, false]);
        let others = || 1..exchange.links().destination_count();
        let all = || (0..3).flat_map(|turn| others().map(move |to| (turn, to)));
        assert!(!all().any(|(turn, to)| retire(turn, to)));
        let lags = "one has not retired the turn";
        assert_eq!(rooms(3..6), [true, false, false], "{lags}");
        assert!(retire(0, 0), "a source waits for it");
        assert_eq!(rooms(3..6), [true, true, false], "{lags}");
        assert!(retire(1, 0), "a source waits for it");
        assert!(!retire(2, 0), "nobody waits any more");
        assert_eq!(rooms(3..8), [true, true, true, true, false], "{lags}");
        // What is told late, or of destinations elsewhere, only adds.
        let room = exchange.room(0);
        room.retire_to(2, |_| panic!("it is not news"));
        let mut woken = Vec::new();
        (1..exchange.links().destination_count())
            .for_each(|to| exchange.room(to).retire_to(9, |_| {}));
        room.retire_to(9, |source| woken.push(source));
        assert_eq!((room.retired(), woken), (9, vec![0]));
    }
}

/// A destination leaves: what was stamped before it says so goes with it, what is stamped after that its source has again. Each piece is in one
/// place, and so is each word that there is none.
#[test]
fn what_lies_in_places_that_are_left_goes_one_way() {
    let exchange = exchange::<Vec<u64>>(&Relation::AllToAll, (3, 1));
    struct Away;
    impl<'a> Destinations<'a> for Away {
        fn is_on_this_thread(&self, _: u32) -> bool {
            false
        }
        fn reached(&mut self, _: u32, _: impl FnOnce() -> TurnStatus<'a>) {}
        fn sent_to_another_thread(&mut self, _: u32) -> bool {
            false
        }
    }
    let write = |source: u32, turn| {
        let end = exchange.source(turn, source).unwrap();
        let mut sink = Sink::Slots(end.out(turn));
        *piece::<Vec<u64>>(&mut sink, 0) = vec![turn, source.into()];
    };
    let taken = |value: Option<Value>| value.map(|value| value.take::<Vec<u64>>().unwrap());
    write(0, 0);
    let end = exchange.source(0, 0).unwrap();
    assert!(!end.sent(0, &mut Told::new(|_| false)));
    silent(&exchange, (0, 1), &mut Told::new(|_| false));
    let mut collected = Vec::new();
    for turn in 0..4 {
        let end = destination(&exchange, turn, 0);
        end.collect(turn, |source, piece| {
            collected.push((turn, source, taken(piece)))
        });
    }
    assert_eq!(collected, [(0, 0, Some(vec![0, 0])), (0, 1, None)]);
    let mut given = Vec::new();
    for (source, turn) in [(2, 0), (0, 1), (1, 1)] {
        if source != 1 {
            write(source, turn);
        }
        let end = exchange.source(turn, source).unwrap();
        assert!(end.sent(turn, &mut Away));
        end.take_back(
            turn,
            |_| false,
            |to, piece| given.push((turn, source, to, taken(piece))),
        );
    }
    let pieces = [
        (0, 2, 0, Some(vec![0, 2])),
        (1, 0, 0, Some(vec![1, 0])),
        (1, 1, 0, None),
    ];
    assert_eq!(given, pieces);
    destination(&exchange, 0, 0).collect(0, |source, _| panic!("{source} was claimed"));
}

/// A piece that came through the mailbox lies in its place like any other, and what was there can be used again.
#[test]
fn what_comes_by_mail_lies_in_its_place() {
    let exchange = exchange::<Vec<u64>>(&Relation::AllToAll, (3, 1));
    let end = destination(&exchange, 0, 0);
    silent(&exchange, (0, 0), &mut Told::new(|_| true));
    let mut value = Value::new(vec![7u64]);
    end.put(0, 2, Some(&mut value));
    assert!(end.has_ended(0, 2) && !end.has_ended(0, 1));
    assert!(matches!(
        end.heard(0),
        TurnStatus::Missing { source: 1, .. }
    ));
    end.put(0, 1, None);
    assert!(matches!(end.heard(0), TurnStatus::Complete));
    let mut pieces = GatherPieces::Slots(end.pieces(0));
    let (source, piece) = pieces.next().expect("one was sent");
    // SAFETY: of this type, and this thread's.
    let piece = unsafe { &*piece.cast::<Vec<u64>>() };
    assert_eq!((source, piece), (2, &vec![7]));
    assert!(pieces.next().is_none());
    assert_eq!(value.get::<Vec<u64>>(), Some(&vec![]));
}

/// Whoever waits for one source alone is told of what that puts in, though others have put in things of which it hears in another way.
#[test]
fn an_owner_is_told_of_what_lies_on_top_of_silent_things() {
    let mailbox = Mailbox::new(true);
    for _ in 0..2 {
        assert_eq!(
            (mailbox.put_silently(1), mailbox.put_silently(2)),
            (Ok(()), Ok(()))
        );
        assert_eq!(mailbox.put(3), Ok(true));
        assert_eq!(
            (mailbox.put_silently(4), mailbox.put(5)),
            (Ok(()), Ok(false))
        );
        assert_eq!(mailbox.take().collect::<Vec<_>>(), [5, 4, 3, 2, 1]);
        assert!(!mailbox.has_any());
    }
    assert_eq!(mailbox.put_silently(6), Ok(()));
    assert_eq!(mailbox.close().collect::<Vec<_>>(), [6]);
}

#[test]
fn a_mailbox_takes_nothing_in_while_it_is_closed() {
    let mailbox = Mailbox::new(false);
    assert_eq!(mailbox.put(1), Err(1));
    mailbox.open();
    assert_eq!((mailbox.put(1), mailbox.put(2)), (Ok(true), Ok(false)));
    assert!(mailbox.has_any());
    assert_eq!(mailbox.take().collect::<Vec<_>>(), [2, 1]);
    assert_eq!(mailbox.put(3), Ok(true));
    assert_eq!(mailbox.close().collect::<Vec<_>>(), [3]);
    assert_eq!((mailbox.put(4), mailbox.has_any()), (Err(4), false));
    assert_eq!(mailbox.put_silently(5), Err(5));
    assert_eq!(mailbox.close().next(), None);
}

#[cfg(feature = "mutants")]
mod mutants {
    use super::*;
    use brambling_memory::mutants::assert_caught;

    #[test]
    fn mutants_of_4_that_leave_pieces_behind_are_caught() {
        let property = what_lies_in_places_that_are_left_goes_one_way;
        assert_caught("sources-leave-what-they-have-stamped", property);
        assert_caught("who-leaves-collects-nothing", property);
        assert_caught(
            "who-leaves-is-waited-for",
            a_source_that_has_left_is_waited_for_by_mail,
        );
    }
}
