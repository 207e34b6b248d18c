//! Owns how many tasks of a kind work at once in a process, and in which order they begin. The
//! kernels of a job pass it before they take memory for blocks. It never waits: who finds no place
//! returns pending and is woken.
//!
//! # Rules
//! * A gate *in order* lets only the lowest numbers of those that are expected and have not left
//!   through: nobody runs ahead by more than there are places, however long one takes.
//! * Any other gate lets so many through, of those that wait the lowest number first.

use brambling_memory::held;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

/// Lets so many through at once.
#[derive(Debug)]
pub(crate) struct Gate {
    at_once: usize,
    in_order: bool,
    state: Mutex<GateState>,
}

#[derive(Debug, Default)]
struct GateState {
    inside: usize,
    waiting: BTreeMap<u32, Waker>,
    /// Who will come, or is inside.
    expected: BTreeSet<u32>,
}

/// A place inside, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Arc<Gate>,
    number: u32,
}

impl Gate {
    pub(crate) fn new(at_once: usize) -> Arc<Gate> {
        Gate::of(at_once, false)
    }

    pub(crate) fn in_order(at_once: usize) -> Arc<Gate> {
        Gate::of(at_once, true)
    }

    fn of(at_once: usize, in_order: bool) -> Arc<Gate> {
        Arc::new(Gate {
            at_once: at_once.max(1),
            in_order,
            state: Mutex::default(),
        })
    }

    /// Of a gate in order: this number will come.
    pub(crate) fn expect(&self, number: u32) {
        held::lock(&self.state).expected.insert(number);
    }

    /// Of a gate in order: which of the numbers that are expected this one is, and how many there are.
    pub(crate) fn place(&self, number: u32) -> (u32, u32) {
        let state = held::lock(&self.state);
        let before = state.expected.range(..number).count();
        (before as u32, state.expected.len() as u32)
    }

    /// Of a gate in order: whether all lower numbers have left.
    pub(crate) fn is_first(&self, number: u32) -> bool {
        held::lock(&self.state).expected.first() == Some(&number)
    }

    /// Of a gate in order: this number will not come. It has been inside, or comes elsewhere.
    pub(crate) fn forget(&self, number: u32) {
        let mut state = held::lock(&self.state);
        state.waiting.remove(&number);
        if !state.expected.remove(&number) {
            return;
        }
        let next = state.next(self);
        drop(state);
        next.into_iter().for_each(Waker::wake);
    }

    /// Of a gate in order: whether somebody is inside or will come.
    pub(crate) fn expects_any(&self) -> bool {
        !held::lock(&self.state).expected.is_empty()
    }

    /// A place inside, if it is this number's turn. Otherwise `waker` is woken when it may be.
    pub(crate) fn enter(self: &Arc<Gate>, number: u32, waker: &Waker) -> Poll<Pass> {
        let mut state = held::lock(&self.state);
        state.expected.insert(number);
        state.waiting.insert(number, waker.clone());
        if !state.is_turn(number, self) {
            return Poll::Pending;
        }
        state.waiting.remove(&number);
        state.inside += 1;
        let next = state.next(self);
        drop(state);
        next.into_iter().for_each(Waker::wake);
        Poll::Ready(Pass {
            gate: self.clone(),
            number,
        })
    }
}

impl GateState {
    fn is_turn(&self, number: u32, gate: &Gate) -> bool {
        if self.inside >= gate.at_once {
            return false;
        }
        match gate.in_order {
            true => {
                let mut first = self.expected.iter().take(gate.at_once);
                first.any(|it| *it == number)
            }
            false => self.waiting.first_key_value().map(|(first, _)| *first) == Some(number),
        }
    }

    /// Whom to wake: who waits, and whose turn it is.
    fn next(&self, gate: &Gate) -> Option<Waker> {
        let mut waiting = self.waiting.iter();
        let next = waiting.find(|(number, _)| self.is_turn(**number, gate));
        next.map(|(_, waker)| waker.clone())
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = held::lock(&self.gate.state);
        state.inside -= 1;
        state.expected.remove(&self.number);
        let next = state.next(&self.gate);
        drop(state);
        next.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn enter(gate: &Arc<Gate>, number: u32) -> (Poll<Pass>, Arc<Woken>) {
        let woken = Arc::new(Woken::default());
        (gate.enter(number, &woken.clone().into()), woken)
    }

    fn times(woken: &Arc<Woken>) -> u32 {
        woken.0.load(Ordering::Relaxed)
    }

    #[test]
    fn the_lowest_number_that_waits_is_next() {
        let gate = Gate::new(2);
        let (first, _) = enter(&gate, 7);
        let (second, _) = enter(&gate, 8);
        assert!(first.is_ready() && second.is_ready());
        let (ninth, nine) = enter(&gate, 9);
        let (third, three) = enter(&gate, 3);
        assert!(ninth.is_pending() && third.is_pending());
        drop(first);
        assert_eq!((times(&three), times(&nine)), (1, 0));
        assert!(enter(&gate, 9).0.is_pending(), "a lower one waits");
        assert!(enter(&gate, 3).0.is_ready());
    }

    #[test]
    fn who_comes_elsewhere_keeps_nobody_waiting() {
        let gate = Gate::in_order(1);
        (0..3).for_each(|number| gate.expect(number));
        let (second, woken) = enter(&gate, 2);
        assert!(second.is_pending());
        gate.forget(0);
        assert_eq!(times(&woken), 0, "1 will come");
        gate.forget(1);
        assert_eq!(times(&woken), 1);
        assert!(enter(&gate, 2).0.is_ready());
    }

    #[test]
    fn in_order_nobody_runs_ahead() {
        let gate = Gate::in_order(2);
        (0..6).for_each(|number| gate.expect(number));
        let (fifth, five) = enter(&gate, 5);
        let (second, two) = enter(&gate, 2);
        assert!(
            fifth.is_pending() && second.is_pending(),
            "two lower ones will come"
        );
        let (one, zero) = (enter(&gate, 1).0, enter(&gate, 0).0);
        assert!(one.is_ready() && zero.is_ready());
        drop(one);
        assert_eq!((times(&two), times(&five)), (1, 0));
        let second = enter(&gate, 2).0;
        assert!(second.is_ready());
        drop(second);
        assert!(
            enter(&gate, 4).0.is_pending(),
            "the first one is not through"
        );
        assert!(enter(&gate, 3).0.is_ready());
    }
}
