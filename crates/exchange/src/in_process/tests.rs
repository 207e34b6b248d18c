//! Pieces arrive once and in order, by slots and by mail; who is told, and who has room.
#![allow(unsafe_code)] // Pieces are erased; each test knows its type.

mod mail;

use super::{Carrier, DestinationEnd, Destinations, Heard, InProcess, Mailboxes, Slots};
use brambling_memory::Budget;
use brambling_program::{Payload, PayloadType, Pieces, Relation, Sink, Table};
use std::sync::OnceLock;
use std::thread::{Thread, current, park, scope};

/// Inline bytes of a piece so large that slots for 30 × 30 pairs would exceed their bound.
type Wide = [[u64; 32]; 32];

fn piece<'a, P>(sink: &'a mut Sink<'_>, to: u32) -> &'a mut P {
    let slot = sink.slot(to).expect("related");
    // SAFETY: the slot is of type P, and this thread's until the next call.
    unsafe { &mut *slot.cast::<P>() }
}

/// Destinations that are near where the function says so; how many calls there were for those that are, and for those that are not.
struct Told<F> {
    is_near: F,
    reached: u32,
    far: u32,
}

impl<F: Fn(u32) -> bool> Told<F> {
    fn new(is_near: F) -> Told<F> {
        Told {
            is_near,
            reached: 0,
            far: 0,
        }
    }
}

impl<'a, F: Fn(u32) -> bool> Destinations<'a> for Told<F> {
    fn is_near(&self, number: u32) -> bool {
        (self.is_near)(number)
    }

    fn reached(&mut self, _: u32, _: impl FnOnce() -> Heard<'a>) {
        self.reached += 1;
    }

    fn sent_far(&mut self, _: u32) {
        self.far += 1;
    }
}

/// A source's task: fills its pieces, and tells its destinations.
fn scatter<'a>(
    exchange: &'a InProcess,
    (turn, source): (u64, u32),
    fill: impl FnOnce(&mut Sink<'_>),
    told: &mut impl Destinations<'a>,
) {
    match exchange.carrier() {
        Carrier::Slots(slots) => {
            let end = slots.source(exchange.phase(turn), source);
            fill(&mut Sink::Slots(end.out(turn)));
            end.sent(turn, told);
        }
        Carrier::Letters(mailboxes) => {
            let mut outbox = mailboxes.outbox(turn, source);
            fill(&mut Sink::Other(&mut outbox));
            outbox.deliver().unwrap();
            mailboxes.sent(turn, source, told);
        }
    }
}

/// One that sends nothing.
fn silent<'a>(exchange: &'a InProcess, at: (u64, u32), told: &mut impl Destinations<'a>) {
    scatter(exchange, at, |_| {}, told);
}

fn destination(exchange: &InProcess, turn: u64, to: u32) -> Option<DestinationEnd<'_>> {
    match exchange.carrier() {
        Carrier::Slots(slots) => Some(slots.destination(exchange.phase(turn), to)),
        Carrier::Letters(_) => None,
    }
}

/// Ends a destination's turn; whether a source waited for room.
fn retire(exchange: &InProcess, turn: u64, to: u32) -> bool {
    let mut woken = false;
    match destination(exchange, turn, to) {
        Some(end) => end.retire(turn, |_| woken = true),
        None => mailboxes(exchange).retire(turn, to, |_| woken = true),
    }
    woken
}

fn mailboxes(exchange: &InProcess) -> &Mailboxes {
    match exchange.carrier() {
        Carrier::Slots(_) => panic!("its pieces have places"),
        Carrier::Letters(mailboxes) => mailboxes,
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
    let mut letters;
    let mut pieces = match destination(exchange, turn, to) {
        Some(end) => Pieces::Slots(end.pieces(turn)),
        None => {
            letters = mailboxes(exchange).inbox(turn, to);
            Pieces::Other(&mut letters)
        }
    };
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
    by_mail: bool,
    make: impl Fn(u64, u32, u32) -> P + Sync,
) {
    let links = relation.link(n, n).unwrap();
    let budget = Budget::unlimited();
    let exchange = InProcess::new(
        links,
        PayloadType::of::<P>(),
        (|it| it, |it| it),
        &budget,
        &mut Slots::BYTES_MAX.clone(),
    );
    assert_eq!(exchange.must_wake(), by_mail);
    let gatherer = OnceLock::new();
    scope(|scope| {
        let sender = scope.spawn(|| send_all(&exchange, turns, &make, &gatherer));
        gatherer.set(current()).unwrap();
        for turn in 0..turns {
            for to in 0..n {
                while !matches!(exchange.heard(turn, to), Heard::All) {
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
    assert_eq!(budget.in_use_bytes(), 0);
}

#[test]
fn slots_carry_every_piece_once_in_source_order() {
    check(&Relation::AllToAll, (3, 50), false, |turn, source, to| {
        (turn, source, to)
    });
    let offsets = Relation::Offsets {
        offsets: vec![-1, 0, 2],
        wrap: true,
    };
    check(&offsets, (5, 50), false, |turn, source, to| {
        vec![turn, u64::from(source), u64::from(to)]
    });
}

#[test]
fn mailboxes_carry_every_piece_once_in_source_order() {
    check(&Relation::AllToAll, (120, 10), true, |turn, source, to| {
        [turn + u64::from(source * 1_000 + to); 32]
    });
    let offsets = Relation::Offsets {
        offsets: (0..20).collect(),
        wrap: false,
    };
    check(&offsets, (60, 10), true, |turn, source, to| {
        let number = turn + u64::from(source * 1_000 + to);
        (vec![number; 3], [[number; 32]; 32])
    });
}

/// As many sources as the turn says: what is open has another table than what is opened for it.
#[test]
fn mailboxes_wait_for_the_sources_of_their_own_turn() {
    let sources = |hears: u32, to: u32| {
        let mut list: Vec<u32> = (to..to + hears).map(|source| source % 30).collect();
        list.sort_unstable();
        list
    };
    let table = |turn: u32| Table {
        sources: (0..30).map(|to| sources(1 + 6 * turn, to)).collect(),
    };
    let relation = Relation::Tables {
        prologue: vec![],
        period: (0..5).map(table).collect(),
    };
    check(&relation, (30, 15), true, |turn, source, to| {
        [[turn + u64::from(source * 1_000 + to); 32]; 32]
    });
}

/// The destination is a guest elsewhere, gathers as soon as it sees the stamp, and is handed home before its source
/// has told anybody: the place's next turn must not count what was heard of this one.
#[test]
fn a_guest_that_comes_home_while_it_is_told_starts_its_next_turn_with_nothing() {
    let links = Relation::AllToAll.link(1, 1).unwrap();
    let exchange = InProcess::new(
        links,
        PayloadType::of::<u64>(),
        (|it| it, |it| it),
        &Budget::unlimited(),
        &mut Slots::BYTES_MAX.clone(),
    );
    let home = std::cell::Cell::new(false);
    for turn in 0..4 {
        home.set(false);
        let is_near = |_| {
            if !home.get() && matches!(exchange.heard(turn, 0), Heard::All) {
                retire(&exchange, turn, 0);
                home.set(true);
            }
            home.get()
        };
        silent(&exchange, (turn, 0), &mut Told::new(is_near));
        assert!(home.get());
    }
    for turn in 4..8 {
        assert!(exchange.has_room(turn, 0));
        assert!(matches!(exchange.heard(turn, 0), Heard::Missing { .. }));
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
        (|it| it + 10, |it| it),
        &Budget::unlimited(),
        &mut Slots::BYTES_MAX.clone(),
    );
    let reached = |source| {
        let mut told = Told::new(|_| true);
        silent(&exchange, (0, source), &mut told);
        (told.reached, told.far)
    };
    let missing = || match exchange.heard(0, 0) {
        Heard::All => None,
        Heard::Missing { source, .. } => Some(source),
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
    fn is_near(&self, _: u32) -> bool {
        true
    }

    fn reached(&mut self, number: u32, heard: impl FnOnce() -> Heard<'a>) {
        self.0.push((number, matches!(heard(), Heard::All)));
    }

    fn sent_far(&mut self, _: u32) {
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
        (|it| it, |it| it + 1_000),
        &Budget::unlimited(),
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

/// By slots and by mail: room for the turns that are open, and for one more with each that a destination retires. Who lacked
/// room is woken by the destination that it waits for.
#[test]
fn a_source_has_room_for_the_turns_that_are_open() {
    let slots = InProcess::new(
        Relation::AllToAll.link(2, 2).unwrap(),
        PayloadType::of::<u64>(),
        (|it| it, |it| it),
        &Budget::unlimited(),
        &mut Slots::BYTES_MAX.clone(),
    );
    for exchange in [slots, mail::by_mail(&Budget::unlimited())] {
        let rooms = |turns: std::ops::Range<u64>| -> Vec<bool> {
            turns.map(|turn| exchange.has_room(turn, 0)).collect()
        };
        assert_eq!(rooms(3..6), [true, false, false]);
        let others = || 1..exchange.links().destination_count();
        let all = || (0..3).flat_map(|turn| others().map(move |to| (turn, to)));
        assert!(!all().any(|(turn, to)| retire(&exchange, turn, to)));
        let lags = "one has not retired the turn";
        assert_eq!(rooms(3..6), [true, false, false], "{lags}");
        assert!(retire(&exchange, 0, 0), "a source waits for it");
        assert_eq!(rooms(3..6), [true, true, false], "{lags}");
        assert!(retire(&exchange, 1, 0), "a source waits for it");
        assert!(!retire(&exchange, 2, 0), "nobody waits any more");
        assert_eq!(rooms(3..8), [true, true, true, true, false], "{lags}");
    }
}
