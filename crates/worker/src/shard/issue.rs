//! Owns the answers of a shard to what comes next. Slices act on them.

use brambling_program::Turn;

/// Where an issued instruction stands in its shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IssueSlot {
    /// At the shard's own place in the code.
    InOrder,
    /// In the window.
    Window(usize),
}

/// An instruction to be run now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Issue {
    /// Its place among the group's tasks.
    pub task: u32,
    /// Its turn.
    pub turn: Turn,
    /// Where it stands.
    pub place: IssueSlot,
}

/// What a shard does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Run this, then retire it.
    Run(Issue),
    /// Nothing can run until something arrives.
    Stalled,
    /// Walked far without a task: ask again, after others had their turn.
    Yield,
    /// It stands at a cut: save its data as they are now, then call [`Shard::forget_cut`](super::Shard::forget_cut).
    Save,
    /// The program has ended here.
    Finished,
}

/// What a shard does next, where that is the ordinary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InOrder {
    /// Run this task, at this turn.
    Run(u32, Turn),
    /// As [`Next::Stalled`].
    Stalled,
    /// Something else: [`Shard::next_general`](super::Shard::next_general) says what.
    Other,
}
