//! Pieces of one task: whose memory they have; and that they are charged while they are written and while they wait, and given back.
//!
//! Catches pieces that count for less than they are, only when they are all there, or for ever. It does not look at what is spilled: that waits by
//! itself.

use super::*;
use crate::arrivals::{Arrivals, Delivery};
use crate::piece_data::PieceData;
use crate::waiting::{ExchangeTurn, WaitingPiece, WaitingRoom};
use brambling_exchange::{Item, Sources};
use brambling_memory::Floors;
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, GroupId, Links, Payload, Relation, ShardId, Turn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

fn spares<P: Payload>() -> Spares {
    Spares::new(PayloadType::of::<P>())
}

/// What came in once is what the next is read to, however many were sent meanwhile.
#[test]
fn memory_of_what_came_outlives_what_is_sent() {
    let spares = spares::<Arc<Vec<f64>>>();
    let ours = Arc::new(vec![1.0; 100]);
    let came = Arc::new(vec![2.0; 100]);
    let at = came.as_ptr();
    spares.put(Value::new(came));
    for _ in 0..3 {
        let mut sent = [(); 2].map(|()| spares.take_to_send());
        for value in &mut sent {
            *value.get_mut::<Arc<Vec<f64>>>().unwrap() = ours.clone();
        }
        sent.into_iter().for_each(|value| spares.put(value));
        let came = spares.take();
        assert_eq!(came.get::<Arc<Vec<f64>>>().unwrap().as_ptr(), at);
        spares.put(came);
    }
    assert_eq!(
        Arc::strong_count(&ours),
        1,
        "spare ones hold nothing of others"
    );
}

/// Where a kernel writes what it sends in place, it gets the memory.
#[test]
fn vectors_keep_their_memory_either_way() {
    let spares = spares::<Vec<f64>>();
    let came = vec![2.0; 100];
    let at = came.as_ptr();
    spares.put(Value::new(came));
    for take in [Spares::take, Spares::take_to_send] {
        let value = take(&spares);
        assert_eq!(value.get::<Vec<f64>>().unwrap().as_ptr(), at);
        spares.put(value);
    }
}

const N: u32 = 30;
/// What each piece below owns.
const CONTENT: usize = 10_000;
/// Inline bytes of a piece so large that slots for 30 × 30 pairs would exceed their bound.
type Wide = [[u64; 32]; 32];
type Piece = (Vec<u8>, Wide);

const EXCHANGE: ExchangeId = ExchangeId(0);
const ALL: Sources<'static> = Sources::Dense(N as u64);

fn links() -> Links {
    Relation::AllToAll.link(N, N).unwrap()
}

/// A task that has filled the pieces to destinations below `count`.
fn task<'a>(
    links: &'a Links,
    (turn, source): (Turn, u32),
    count: u32,
    budget: &'a Budget,
) -> PieceMap<'a> {
    let piece = PayloadType::of::<Piece>();
    let mut task = PieceMap::new(source, links.at(turn), piece, None, Some(budget));
    (0..count).for_each(|to| fill(&mut task, to));
    task
}

/// Where a kernel writes what it sends.
fn piece<'a>(task: &'a mut PieceMap<'_>, to: u32) -> &'a mut Piece {
    let slot = task.slot(to).expect("related");
    let lent = &mut task.begun[task.last.expect("just lent")].value;
    assert_eq!(lent.as_ptr(), slot);
    lent.get_mut().expect("of this type")
}

fn fill(task: &mut PieceMap<'_>, to: u32) {
    piece(task, to).0 = Vec::with_capacity(CONTENT);
}

/// All destinations of a job that is alone in its process.
struct Mail {
    links: Links,
    waits: WaitingRoom,
    arrivals: Vec<Arrivals>,
}

impl Mail {
    fn new(budget: &Budget) -> Mail {
        let shard = |index| ShardId {
            group: GroupId(0),
            index,
        };
        Mail {
            links: links(),
            waits: WaitingRoom::new(budget.clone(), None),
            arrivals: (0..N)
                .map(|to| Arrivals::new(shard(to), [EXCHANGE], 2))
                .collect(),
        }
    }

    /// A source sends to all.
    fn sends(&mut self, turn: Turn, source: u32) {
        let task = task(&self.links, (turn, source), N, self.waits.budget());
        let mut sent = task.sent().unwrap();
        for (place, arrivals) in (0..).zip(&mut self.arrivals) {
            let (value, bytes) = sent.take(place).expect("it was filled");
            let kept = WaitingPiece::counted(PieceData::Value(value), bytes);
            let item = Item::whole(TreeNode::leaf(source.into()), kept);
            let at = (EXCHANGE, turn);
            arrivals.accept(Delivery { at, item }, &ALL).unwrap();
        }
    }

    /// A destination has its pieces, and drops what is in them; it has not retired the turn.
    fn takes(&mut self, at: ExchangeTurn, to: u32) {
        let arrivals = &mut self.arrivals[to as usize];
        let pieces = arrivals.take(at, &ALL, &self.waits).unwrap();
        assert_eq!(pieces.len(), N as usize);
        pieces
            .into_iter()
            .for_each(|(_, taken)| drop(taken.into_own(PayloadType::of::<Piece>()).unwrap()));
    }
}

/// At least what pieces take, and little more.
fn assert_charged(budget: &Budget, pieces: u32) {
    let pieces = u64::from(pieces);
    let least = pieces * (CONTENT + size_of::<Wide>()) as u64;
    let charged = budget.class_in_use_bytes(Class::Exchange);
    assert!(
        (least..least + pieces * 64 + 1).contains(&charged),
        "{charged} bytes are charged for {pieces} pieces of {least} bytes"
    );
}

fn pieces_are_charged_while_they_lie_in_mailboxes() {
    let budget = Budget::unlimited();
    let mut mail = Mail::new(&budget);
    for source in 0..N {
        mail.sends(0, source);
        assert_charged(&budget, N * (source + 1));
    }
    let at = (EXCHANGE, 0);
    for to in 0..N {
        mail.takes(at, to);
        assert_charged(&budget, N * (N - to));
        mail.arrivals[to as usize].retire(at, &mail.waits);
        assert_charged(&budget, N * (N - to - 1));
    }
    assert_eq!(budget.in_use_bytes(), 0);
}

#[test]
fn what_lies_in_mailboxes_is_charged() {
    pieces_are_charged_while_they_lie_in_mailboxes();
}

fn what_no_gather_ends_is_given_back() {
    let budget = Budget::unlimited();
    let mut mail = Mail::new(&budget);
    (0..N).for_each(|source| mail.sends(0, source));
    mail.sends(1, 3);
    assert_charged(&budget, N * (N + 1));
    // A gather that is left.
    mail.takes((EXCHANGE, 0), 7);
    // A kernel that panics after some pieces.
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _task = task(&mail.links, (1, 4), N, &budget);
        let begun = u64::from(N * (N + 1) + 20);
        assert!(budget.class_in_use_bytes(Class::Exchange) > begun * CONTENT as u64);
        resume_unwind(Box::new("the kernel's own"));
    }));
    assert!(panicked.is_err());
    assert_charged(&budget, N * (N + 1));
    for arrivals in &mut mail.arrivals {
        arrivals.give_up(&mail.waits);
    }
    assert_eq!(budget.in_use_bytes(), 0);
}

#[test]
fn what_is_never_taken_or_never_sent_is_given_back() {
    what_no_gather_ends_is_given_back();
}

/// What a task may hold that was never charged: small pieces, and one more.
const UNCHARGED: usize = UNCHARGED_BYTES_MAX as usize + CONTENT;

/// Runs a task that fills all its pieces; gives how many bytes it had filled when it was refused.
fn filled_until_refused(budget: &Budget) -> usize {
    let links = links();
    let mut filled = 0;
    let left = catch_unwind(AssertUnwindSafe(|| {
        let mut task = task(&links, (0, 0), 0, budget);
        for to in 0..N {
            fill(&mut task, to);
            filled += CONTENT + size_of::<Wide>();
        }
        task.sent().err().map(PiecesRefused)
    }));
    let refused =
        left.unwrap_or_else(|payload| payload.downcast::<PiecesRefused>().ok().map(|it| *it));
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
    let refused = task(&links(), (0, 0), 2, &budget).sent();
    assert_eq!(refused.err().map(|it| it.class), Some(Class::Exchange));
    assert_eq!(budget.in_use_bytes(), 0);
}

#[test]
fn pieces_filled_row_by_row_are_weighed_as_they_grow() {
    let budget = Budget::new(1_000_000, Floors::default());
    let links = links();
    let mut rows = 0usize;
    let left = catch_unwind(AssertUnwindSafe(|| {
        let mut task = task(&links, (0, 0), 0, &budget);
        for row in 0..1_000_000 {
            let rows_of = &mut piece(&mut task, row % 2).0;
            rows_of.reserve_exact(100);
            rows_of.extend([0; 100]);
            rows += 1;
        }
    }));
    assert!(left.unwrap_err().is::<PiecesRefused>());
    // An eighth of the rows, the small pieces, and one row of each piece.
    let bound = 1_000_000 * 9 / 8 + UNCHARGED_BYTES_MAX as usize + 2 * 100;
    assert!((900_000..bound).contains(&(rows * 100)), "{rows} rows");
    assert_eq!(budget.in_use_bytes(), 0);
}

#[test]
fn a_kernel_that_hides_the_refusal_meets_it_again() {
    let budget = Budget::new(1_000_000, Floors::default());
    let links = links();
    let others = budget.reserve(Class::Resident, 900_000).unwrap();
    let mut task = task(&links, (0, 0), 0, &budget);
    for to in 0..N {
        let _ = catch_unwind(AssertUnwindSafe(|| fill(&mut task, to)));
    }
    // There would be room by now, but some pieces are missing.
    drop(others);
    assert!(task.sent().is_err());
    assert_eq!(budget.in_use_bytes(), 0);
}

#[cfg(feature = "mutants")]
mod mutants {
    use super::*;
    use brambling_memory::mutants::assert_caught;

    #[test]
    fn mutants_of_12_that_charge_wrongly_are_caught() {
        let property = pieces_are_charged_while_they_lie_in_mailboxes;
        assert_caught("mailbox-weighs-no-content", property);
        assert_caught("mailbox-keeps-its-charge", property);
        assert_caught(
            "mailbox-keeps-its-charge",
            what_no_gather_ends_is_given_back,
        );
        assert_caught("gathered-pieces-keep-their-room", property);
    }

    #[test]
    fn mutant_of_12_that_charges_only_at_the_end_is_caught() {
        let property = a_task_overshoots_by_one_piece_at_most;
        assert_caught("mailbox-charges-only-at-the-end", property);
    }
}
