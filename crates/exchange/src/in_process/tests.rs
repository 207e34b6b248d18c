//! Pieces arrive once and in order; what lies in mailboxes is charged, and given back.
#![allow(unsafe_code)] // Pieces are erased; each test knows its type.

use super::{Destinations, Heard, InProcess, MailboxOut, Refused};
use brambling_memory::{Budget, Class, Floors, OutOfMemory};
use brambling_program::{Payload, PayloadType, Relation, Sink};
use std::panic::{AssertUnwindSafe, catch_unwind};
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
            let (phase, mut begun) = (exchange.phase(turn), None);
            let mut sink = exchange.outbox(turn, phase, source, &mut begun);
            for place in 0..sink.fan_out() {
                let to = sink.destination(place);
                if (u64::from(to) + turn) % 3 != 0 {
                    *piece(&mut sink, to) = make(turn, source, to);
                }
            }
            exchange.finish(turn, phase, source, &mut begun).unwrap();
            let mut told = Told::new(|_| false);
            exchange.sent(turn, phase, source, &mut told);
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
    let mut letters = None;
    let mut pieces = exchange.inbox(turn, exchange.phase(turn), to, &mut letters);
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
    let exchange = InProcess::new(links, PayloadType::of::<P>(), (|it| it, |it| it), &budget);
    assert_eq!(exchange.must_wake(), by_mail);
    let gatherer = OnceLock::new();
    scope(|scope| {
        let sender = scope.spawn(|| send_all(&exchange, turns, &make, &gatherer));
        gatherer.set(current()).unwrap();
        for turn in 0..turns {
            for to in 0..n {
                while !matches!(exchange.heard(turn, exchange.phase(turn), to), Heard::All) {
                    park();
                }
                let all = 0..exchange.links().fan_in(turn, to);
                let sources = all.map(|ordinal| exchange.links().source(turn, to, ordinal));
                let sent = (u64::from(to) + turn) % 3 != 0;
                let expected: Vec<u32> = sources.filter(|_| sent).collect();
                assert_eq!(sources_of(&exchange, turn, to, &make), expected);
                let mut woken = false;
                exchange.retire(turn, to, |_| woken = true);
                if woken {
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

const N: u32 = 30;
/// What each piece below owns.
const CONTENT: usize = 10_000;

fn by_mail(budget: &Budget) -> InProcess {
    let links = Relation::AllToAll.link(N, N).unwrap();
    let exchange = InProcess::new(
        links,
        PayloadType::of::<(Vec<u8>, Wide)>(),
        (|it| it, |it| it),
        budget,
    );
    assert!(exchange.must_wake());
    exchange
}

/// A scatter by mail, outside of a kernel.
struct Task<'a> {
    exchange: &'a InProcess,
    turn: u64,
    source: u32,
    begun: Option<MailboxOut<'a>>,
}

/// One that has filled the pieces to destinations below `count`.
fn task(exchange: &InProcess, turn: u64, source: u32, count: u32) -> Task<'_> {
    let mut begun = None;
    exchange.outbox(turn, 0, source, &mut begun);
    let mut task = Task {
        exchange,
        turn,
        source,
        begun,
    };
    (0..count).for_each(|to| task.fill(to));
    task
}

impl Task<'_> {
    fn fill(&mut self, to: u32) {
        let mut sink = Sink::Other(self.begun.as_mut().expect("by mail"));
        piece::<(Vec<u8>, Wide)>(&mut sink, to).0 = Vec::with_capacity(CONTENT);
    }

    fn finish(&mut self) -> Result<i64, OutOfMemory> {
        let Task { turn, source, .. } = *self;
        self.exchange.finish(turn, 0, source, &mut self.begun)
    }
}

/// At least what a letter takes, and little more.
fn assert_charged(budget: &Budget, letters: u64) {
    let least = letters * (CONTENT + size_of::<Wide>()) as u64;
    let charged = budget.class_in_use_bytes(Class::Exchange);
    assert!(
        (least..least + letters * 64 + 1).contains(&charged),
        "{charged} bytes are charged for {letters} letters of {least} bytes"
    );
}

fn letters_are_charged_while_they_lie_in_mailboxes() {
    let budget = Budget::unlimited();
    let exchange = by_mail(&budget);
    for source in 0..N {
        task(&exchange, 0, source, N).finish().unwrap();
        exchange.sent(0, 0, source, &mut Told::new(|_| true));
        assert_charged(&budget, u64::from(N * (source + 1)));
    }
    for to in 0..N {
        let mut letters = None;
        let mut pieces = exchange.inbox(0, 0, to, &mut letters);
        while let Some((_, piece)) = pieces.next() {
            // SAFETY: of this type, and this thread's. What is taken out still lies in a letter that was charged.
            drop(unsafe { std::mem::take(&mut (*piece.cast::<(Vec<u8>, Wide)>()).0) });
        }
        drop(letters);
        exchange.retire(0, to, |_| {});
        assert_charged(&budget, u64::from(N * (N - to - 1)));
    }
    assert_eq!(budget.in_use_bytes(), 0);
}

#[test]
fn what_lies_in_mailboxes_is_charged() {
    letters_are_charged_while_they_lie_in_mailboxes();
}

#[test]
fn what_is_never_taken_or_never_sent_is_given_back() {
    let budget = Budget::unlimited();
    let exchange = by_mail(&budget);
    task(&exchange, 0, 3, N).finish().unwrap();
    assert_charged(&budget, u64::from(N));
    // A kernel that panics after some pieces.
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _task = task(&exchange, 1, 4, N);
        assert!(budget.class_in_use_bytes(Class::Exchange) > u64::from(N + 20) * CONTENT as u64);
        std::panic::resume_unwind(Box::new("the kernel's own"));
    }));
    assert!(panicked.is_err());
    assert_charged(&budget, u64::from(N));
    drop(exchange);
    assert_eq!(budget.in_use_bytes(), 0);
}

/// What a task may hold that was never charged: small letters, and one piece.
const UNCHARGED: usize = (64 << 10) + CONTENT;

/// Runs a task that fills all its pieces; gives how many bytes it had filled when it was refused.
fn filled_until_refused(budget: &Budget) -> usize {
    let exchange = by_mail(budget);
    let mut filled = 0;
    let left = catch_unwind(AssertUnwindSafe(|| {
        let mut task = task(&exchange, 0, 0, 0);
        for to in 0..N {
            task.fill(to);
            filled += CONTENT + size_of::<Wide>();
        }
        task.finish().err().map(Refused)
    }));
    let refused = left.unwrap_or_else(|payload| payload.downcast::<Refused>().ok().map(|it| *it));
    let refused = refused.expect("the pieces exceed the budget").0;
    assert_eq!(refused.class, Class::Exchange);
    assert!(refused.to_string().contains("BRAMBLING_MEMORY"));
    filled
}

fn a_task_overshoots_by_one_piece_at_most() {
    for budget_bytes in [0, 70_000, 150_000, 300_000, 500_000] {
        let budget = Budget::new(budget_bytes, Floors::default());
        let filled = filled_until_refused(&budget);
        let bound = budget_bytes as usize + UNCHARGED;
        assert!(filled <= bound, "{filled} bytes exceed {bound}");
        assert_eq!(budget.in_use_bytes(), 0);
        assert!(budget.peak_bytes() <= budget_bytes);
    }
}

#[test]
fn a_task_that_is_refused_holds_one_piece_beyond_the_budget() {
    a_task_overshoots_by_one_piece_at_most();
}

#[test]
fn a_small_task_is_refused_when_it_ends() {
    let budget = Budget::new(20_000, Floors::default());
    let exchange = by_mail(&budget);
    let refused = task(&exchange, 0, 0, 2).finish();
    assert_eq!(refused.unwrap_err().class, Class::Exchange);
    assert_eq!(exchange.inbox(0, 0, 0, &mut None).next(), None);
    assert_eq!(budget.in_use_bytes(), 0);
}

#[test]
fn pieces_filled_row_by_row_are_weighed_as_they_grow() {
    let budget = Budget::new(1_000_000, Floors::default());
    let exchange = by_mail(&budget);
    let mut rows = 0usize;
    let left = catch_unwind(AssertUnwindSafe(|| {
        let mut begun = None;
        let mut sink = exchange.outbox(0, 0, 0, &mut begun);
        for row in 0..1_000_000 {
            let rows_of = &mut piece::<(Vec<u8>, Wide)>(&mut sink, row % 2).0;
            rows_of.reserve_exact(100);
            rows_of.extend([0; 100]);
            rows += 1;
        }
    }));
    assert!(left.unwrap_err().is::<Refused>());
    // An eighth of the rows, the small letters, and one row of each piece.
    let bound = 1_000_000 * 9 / 8 + (64 << 10) + 2 * 100;
    assert!((900_000..bound).contains(&(rows * 100)), "{rows} rows");
    assert_eq!(budget.in_use_bytes(), 0);
}

#[test]
fn a_kernel_that_hides_the_refusal_meets_it_again() {
    let budget = Budget::new(1_000_000, Floors::default());
    let exchange = by_mail(&budget);
    let others = budget.reserve(Class::Resident, 900_000).unwrap();
    let mut task = task(&exchange, 0, 0, 0);
    for to in 0..N {
        let _ = catch_unwind(AssertUnwindSafe(|| task.fill(to)));
    }
    // There would be room by now, but some pieces are missing.
    drop(others);
    assert!(task.finish().is_err());
    drop(task);
    assert_eq!(budget.in_use_bytes(), 0);
    assert_eq!(exchange.inbox(0, 0, 0, &mut None).next(), None);
}

#[cfg(feature = "mutants")]
mod mutants {
    use super::*;
    use brambling_memory::mutants::assert_caught;

    #[test]
    fn mutants_of_12_that_charge_wrongly_are_caught() {
        let property = letters_are_charged_while_they_lie_in_mailboxes;
        assert_caught("mailbox-weighs-no-content", property);
        assert_caught("mailbox-keeps-its-charge", property);
    }

    #[test]
    fn mutant_of_12_that_charges_only_at_the_end_is_caught() {
        let property = a_task_overshoots_by_one_piece_at_most;
        assert_caught("mailbox-charges-only-at-the-end", property);
    }
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
    );
    let home = std::cell::Cell::new(false);
    for turn in 0..4 {
        home.set(false);
        let is_near = |_| {
            if !home.get() && matches!(exchange.heard(turn, 0, 0), Heard::All) {
                exchange.retire(turn, 0, |_| {});
                home.set(true);
            }
            home.get()
        };
        exchange.sent(turn, 0, 0, &mut Told::new(is_near));
        assert!(home.get());
    }
    for turn in 4..8 {
        assert!(exchange.has_room(turn, 0));
        assert!(matches!(exchange.heard(turn, 0, 0), Heard::Missing { .. }));
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
    );
    let reached = |source| {
        let mut told = Told::new(|_| true);
        exchange.sent(0, 0, source, &mut told);
        (told.reached, told.far)
    };
    let missing = || match exchange.heard(0, 0, 0) {
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
    );
    for turn in 0..4 {
        for source in 0..2 {
            let mut near = Near::default();
            exchange.sent(turn, 0, source, &mut near);
            let told = (0..MANY).map(|to| (to + 1_000, source == 1));
            assert_eq!(near.0, told.collect::<Vec<_>>());
        }
    }
}

/// By slots and by mail: room for the turns that are open, and for one more with each that a destination retires.
#[test]
fn a_source_has_room_for_the_turns_that_are_open() {
    let slots = InProcess::new(
        Relation::AllToAll.link(2, 2).unwrap(),
        PayloadType::of::<u64>(),
        (|it| it, |it| it),
        &Budget::unlimited(),
    );
    for exchange in [slots, by_mail(&Budget::unlimited())] {
        let rooms = |turns: std::ops::Range<u64>| -> Vec<bool> {
            turns.map(|turn| exchange.has_room(turn, 0)).collect()
        };
        assert_eq!(rooms(3..6), [true, false, false]);
        let retire = |turns: std::ops::Range<u64>, to: u32| {
            turns.for_each(|turn| exchange.retire(turn, to, |_| {}));
        };
        let others = 1..exchange.links().destination_count();
        others.for_each(|to| retire(0..3, to));
        let lags = "one has not retired the turn";
        assert_eq!(rooms(3..6), [true, false, false], "{lags}");
        retire(0..1, 0);
        assert_eq!(rooms(3..6), [true, true, false], "{lags}");
        retire(1..2, 0);
        assert_eq!(rooms(3..7), [true, true, true, false], "{lags}");
    }
}
