//! What lies in mailboxes is charged while it is written and while it waits, and given back.
#![allow(unsafe_code)] // Pieces are erased; each test knows its type.

use super::{Told, Wide, mailboxes, piece, retire};
use crate::in_process::{InProcess, MailboxOut, Refused, Slots};
use brambling_memory::{Budget, Class, Floors};
use brambling_program::{PayloadType, PieceSource, Relation, Sink};
use std::panic::{AssertUnwindSafe, catch_unwind};

const N: u32 = 30;
/// What each piece below owns.
const CONTENT: usize = 10_000;

pub(super) fn by_mail(budget: &Budget) -> InProcess {
    let links = Relation::AllToAll.link(N, N).unwrap();
    let exchange = InProcess::new(
        links,
        PayloadType::of::<(Vec<u8>, Wide)>(),
        (|it| it, |it| it),
        budget,
        &mut Slots::BYTES_MAX.clone(),
    );
    assert!(exchange.must_wake());
    exchange
}

/// A task that has filled the pieces to destinations below `count`.
fn task(exchange: &InProcess, turn: u64, source: u32, count: u32) -> MailboxOut<'_> {
    let mut task = mailboxes(exchange).outbox(turn, source);
    (0..count).for_each(|to| fill(&mut task, to));
    task
}

fn fill(task: &mut MailboxOut<'_>, to: u32) {
    let mut sink = Sink::Other(task);
    piece::<(Vec<u8>, Wide)>(&mut sink, to).0 = Vec::with_capacity(CONTENT);
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
        task(&exchange, 0, source, N).deliver().unwrap();
        mailboxes(&exchange).sent(0, source, &mut Told::new(|_| true));
        assert_charged(&budget, u64::from(N * (source + 1)));
    }
    for to in 0..N {
        let mut pieces = mailboxes(&exchange).inbox(0, to);
        while let Some((_, piece)) = pieces.next() {
            // SAFETY: of this type, and this thread's. What is taken out still lies in a letter that was charged.
            drop(unsafe { std::mem::take(&mut (*piece.cast::<(Vec<u8>, Wide)>()).0) });
        }
        drop(pieces);
        retire(&exchange, 0, to);
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
    task(&exchange, 0, 3, N).deliver().unwrap();
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
            fill(&mut task, to);
            filled += CONTENT + size_of::<Wide>();
        }
        task.deliver().err().map(Refused)
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
    let refused = task(&exchange, 0, 0, 2).deliver();
    assert_eq!(refused.unwrap_err().class, Class::Exchange);
    assert_eq!(mailboxes(&exchange).inbox(0, 0).next(), None);
    assert_eq!(budget.in_use_bytes(), 0);
}

#[test]
fn pieces_filled_row_by_row_are_weighed_as_they_grow() {
    let budget = Budget::new(1_000_000, Floors::default());
    let exchange = by_mail(&budget);
    let mut rows = 0usize;
    let left = catch_unwind(AssertUnwindSafe(|| {
        let mut outbox = mailboxes(&exchange).outbox(0, 0);
        let mut sink = Sink::Other(&mut outbox);
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
        let _ = catch_unwind(AssertUnwindSafe(|| fill(&mut task, to)));
    }
    // There would be room by now, but some pieces are missing.
    drop(others);
    assert!(task.deliver().is_err());
    drop(task);
    assert_eq!(budget.in_use_bytes(), 0);
    assert_eq!(mailboxes(&exchange).inbox(0, 0).next(), None);
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
