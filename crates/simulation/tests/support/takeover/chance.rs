//! All choices of a run, from one seed.

use brambling_program::{Rng, StageId};

/// What decides.
pub struct Chance(Rng);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(Rng::new(seed, StageId(u32::MAX), 9, 0))
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// One of them.
    pub fn of<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        match from.len() {
            0 => None,
            many => Some(from[self.below(many as u64) as usize]),
        }
    }
}
