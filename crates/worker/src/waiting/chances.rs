//! Owns who may have what was spilled in memory at the same time: a turn that is read back whole, or a task that has a chunk. Whoever reads back
//! asks for a chance, and gives it back with the room (`returning.rs`, `chunks.rs`). It never counts bytes.
//!
//! # Rules
//! * Whoever finds no room while others have their chance waits until one of them has had it. Whoever finds none alone never will.
//! * Whoever waits is woken when another chance was had.

use brambling_memory::held;
use std::sync::{Arc, Mutex};
use std::task::Waker;

/// Who has a chance, and who waits for one.
#[derive(Debug)]
pub(super) struct Chances {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many have theirs, and how many ever had.
    taken: usize,
    given: u64,
    waiting: Vec<Waker>,
}

/// Something may be read back.
#[derive(Debug)]
pub struct Chance {
    /// None when it has stepped back.
    chances: Option<Arc<Chances>>,
    /// Which one it is, if nobody else had one when it was given.
    alone: Option<u64>,
}

/// What is left to whoever finds no room.
pub(super) enum Refused {
    /// Others have their chance: the waker is woken when one of them was had.
    Waits,
    /// They had one, and what they had is free now.
    Again,
    /// Nobody has had one meanwhile.
    Never,
}

impl Drop for Chance {
    fn drop(&mut self) {
        let Some(chances) = self.chances.take() else {
            return;
        };
        let woken = {
            let mut state = held::lock(&chances.state);
            state.taken -= 1;
            std::mem::take(&mut state.waiting)
        };
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Chances {
    /// So many at once.
    pub(super) fn new(most: usize) -> Chances {
        Chances {
            most,
            state: Mutex::default(),
        }
    }

    /// None when there is none left: the waker is woken when one was had.
    pub(super) fn chance(self: &Arc<Self>, waker: &Waker) -> Option<Chance> {
        let mut state = held::lock(&self.state);
        if state.taken == self.most {
            state.waiting.push(waker.clone());
            return None;
        }
        let alone = (state.taken == 0).then_some(state.given + 1);
        state.taken += 1;
        state.given += 1;
        drop(state);
        let chances = Some(self.clone());
        Some(Chance { chances, alone })
    }
}

impl Chance {
    /// There is no room: it is given back. If others have theirs nobody else is woken for that: who waits for room is woken by these others as well, and two
    /// who find none would wake each other again and again.
    pub(super) fn step_back(mut self, waker: &Waker) -> Refused {
        let chances = self.chances.as_ref().expect("it steps back once");
        let mut state = held::lock(&chances.state);
        if state.taken > 1 {
            state.taken -= 1;
            state.waiting.push(waker.clone());
            drop(state);
            self.chances = None;
            return Refused::Waits;
        }
        match self.alone == Some(state.given) {
            true => Refused::Never,
            false => Refused::Again,
        }
    }
}
