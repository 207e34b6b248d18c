//! A shard on its way to another worker: where it stands. Its data and its inbox travel beside.

use super::{Entry, Shard, WINDOW, Wait};
use brambling_program::{Code, GroupState, Op, ShardId, Turn};
use serde::{Deserialize, Serialize};

/// Where a shard stands in its program.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardState {
    at: u32,
    entered: Vec<u64>,
    counters: Vec<u64>,
    /// Stalled instructions: the place among the group's tasks, and the turn.
    window: Vec<(u32, Turn)>,
}

/// A state that does not fit the code of its shard: of another program, or damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the state of shard {0} names positions that its program does not have")]
pub struct BadState(pub ShardId);

impl Shard {
    /// What has to move. The shard stays as it is.
    ///
    /// # Panics
    /// While a task waits for a completion: a shard is drained before it moves, and a completion that is under way
    /// belongs to where it was asked for.
    pub fn export(&self) -> ShardState {
        let entry = |entry: &Entry| {
            assert_eq!(
                entry.wait,
                Wait::Arrival,
                "{} moves while a completion is under way",
                self.id
            );
            (entry.task, entry.turn)
        };
        ShardState {
            at: self.at,
            entered: self.entered.to_vec(),
            counters: self.counters.iter().map(|it| it.done).collect(),
            window: self.window.iter().map(entry).collect(),
        }
    }

    /// The shard as it was exported elsewhere.
    ///
    /// # Errors
    /// When the state is not one of this code.
    pub fn import(id: ShardId, code: &Code, state: ShardState) -> Result<Shard, BadState> {
        let mut shard = Shard::new(id, code);
        let is_task = |(task, _): &(u32, Turn)| (*task as usize) < code.tasks.len();
        let fits = (state.at as usize) < code.ops.len()
            && state.entered.len() == shard.entered.len()
            && state.counters.len() == shard.counters.len()
            && state.window.len() <= WINDOW + 1
            && state.window.iter().all(is_task)
            && has_entered(code, &state);
        if !fits {
            return Err(BadState(id));
        }
        shard.at = state.at;
        let add = |sum: u64, it: &u64| sum.wrapping_add(*it);
        shard.entered_sum = state.entered.iter().fold(0, add);
        shard.entered = state.entered.into();
        for (counter, done) in shard.counters.iter_mut().zip(state.counters) {
            counter.done = done;
        }
        let entry = |(task, turn)| Entry {
            task,
            turn,
            wait: Wait::Arrival,
        };
        shard.window.extend(state.window.into_iter().map(entry));
        Ok(shard)
    }
}

impl ShardState {
    /// That of a shard that begins at a cut.
    pub fn at_cut(state: &GroupState) -> ShardState {
        ShardState {
            at: state.at,
            entered: state.entered.clone(),
            counters: state.counters.clone(),
            window: Vec::new(),
        }
    }
}

/// Whether the block of the instruction at hand has been entered: its turn is counted from there.
fn has_entered(code: &Code, state: &ShardState) -> bool {
    let block = match code.ops[state.at as usize] {
        Op::Task { block, .. } => block,
        Op::Test { block, .. } => block,
        _ => return true,
    };
    state.entered[block as usize] > 0
}
