//! A job of several members that is saved at cuts, loses members and begins again: at its newest snapshot, on those that are left and on newcomers.

use crate::generation::Acts;
use crate::store::{Failings, Store};
use brambling_program::{Plan, Rng, StageId};
use brambling_protocol::{Generation, WorkerId};
use brambling_worker::executor::{Job, Pool};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::channel;
use std::time::Duration;

/// So often a job is made to begin again at most.
pub const LOSSES_MAX: u64 = 4;

/// What has happened, over all runs.
#[derive(Clone, Copy, Default, Debug)]
pub struct Deeds {
    /// Runs, and those in which the job began again.
    pub runs: u64,
    pub recovered: u64,
    /// Generations that began at a cut after some turns; anew at the start.
    pub from_cuts: u64,
    pub from_start: u64,
    /// Snapshots, of loops that are counted and of those that a signal ends.
    pub counted: u64,
    pub signalled: u64,
    /// Cuts that came to nothing.
    pub voided: u64,
    /// Writes that found the store full, and writes of which it has something else.
    pub refused: u64,
    pub damaged: u64,
    /// Ways that were blocked for a while, and members that were cut off.
    pub blocked: u64,
    /// Losses while a cut was open.
    pub in_open_cuts: u64,
    /// Moves; those of a restored generation to members that had no shard before.
    pub moves: u64,
    pub to_newcomers: u64,
    /// Members that joined later, and members that were spared.
    pub joined: u64,
    pub spared: u64,
}

/// The threads of workers. A newcomer has those of a worker that has gone before.
pub struct Workers {
    pub pools: Vec<Pool>,
    /// So long a generation may take.
    pub patience: Duration,
}

/// What a job leaves behind, and what its next generation finds.
pub struct Life<'a> {
    pub workers: &'a Workers,
    pub plan: &'a Plan,
    pub random: Rng,
    pub store: Store,
    pub seed: u64,
    pub generation: Generation,
    pub members: Vec<WorkerId>,
    pub next_worker: u32,
    pub deeds: &'a mut Deeds,
}

impl Workers {
    /// Runs a program to its end, however often it has to begin again.
    pub fn run(&self, seed: u64, plan: &Plan, deeds: &mut Deeds) -> Vec<Arc<Job>> {
        let mut random = Rng::new(seed, StageId(u32::MAX), 4, 0);
        let count = 2 + random.below(2) as u32;
        let failings = Failings::of(&mut random);
        let mut life = Life {
            workers: self,
            plan,
            random,
            store: Store::new(failings),
            seed,
            generation: Generation(0),
            members: (0..count).map(WorkerId).collect(),
            next_worker: count,
            deeds,
        };
        loop {
            if let Some(jobs) = life.generation() {
                life.deeds.runs += 1;
                life.deeds.recovered += u64::from(life.generation.0 > 0);
                life.deeds.refused += life.store.refused;
                life.deeds.damaged += life.store.damaged;
                return jobs;
            }
            life.begin_again();
        }
    }

    pub fn pool(&self, worker: WorkerId) -> &Pool {
        &self.pools[worker.0 as usize % self.pools.len()]
    }
}

impl Life<'_> {
    /// One generation, to its end, or until it has lost what cannot be spared.
    fn generation(&mut self) -> Option<Vec<Arc<Job>>> {
        let base = self.store.newest();
        match &base {
            Some(base) if base.turns > 0 => self.deeds.from_cuts += 1,
            _ => self.deeds.from_start += u64::from(self.generation.0 > 0),
        }
        let working = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let (network, wire) = channel();
            let mut acts = Acts::begin(self, base, network, (scope, &working));
            acts.run(&wire)
        })
    }

    /// After a loss: newcomers perhaps, and the newest snapshot perhaps cannot be read.
    fn begin_again(&mut self) {
        self.generation.0 += 1;
        let random = &mut self.random;
        let count = random.below(2) + u64::from(self.members.is_empty());
        for _ in 0..count {
            self.members.push(WorkerId(self.next_worker));
            self.next_worker += 1;
        }
        if random.below(12) == 0 {
            self.store.forget_newest();
        }
    }
}
