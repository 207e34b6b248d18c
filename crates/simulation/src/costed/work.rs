//! What a job computes, as far as schedulers see it.

use super::Nanos;
use serde::{Deserialize, Serialize};

/// How the tasks of one stage differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lengths {
    /// All take the mean.
    Even,
    /// Anything between ⅔ and 4⁄3 of the mean, always the same for one shard: memory pages of this socket or of the other (Canary,
    /// Figure 7 and §5.4: the slowest take twice as long as the fastest).
    Pages,
}

/// An iterative job: a model of one partition is broadcast, every shard computes, what they found is reduced, and a signal decides
/// whether to go on. Logistic regression, k-means and the paper's micro-benchmark are of this kind (Canary, Figure 2 and §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostedWork {
    /// Workers at the beginning.
    pub workers: u32,
    /// Cores, and threads, of each.
    pub cores: u32,
    /// Shards for each core at the beginning.
    pub shards_per_core: u32,
    /// How often the model is computed.
    pub iterations: u32,
    /// Stages that compute in an iteration, one after the other on each shard, without an exchange between them.
    pub stages: u32,
    /// The kernel of such a stage on one shard takes so long in the mean, in nanoseconds.
    pub stage_ns: f64,
    /// How that differs between shards.
    pub lengths: Lengths,
    /// What is broadcast, and what each shard gives to the reduction, in bytes.
    pub model_bytes: u64,
    /// What a shard takes when it moves, in bytes.
    pub shard_bytes: u64,
    /// Where the lengths come from.
    pub seed: u64,
}

impl CostedWork {
    /// All shards of the group that computes.
    pub fn shards(&self) -> u32 {
        self.workers * self.cores * self.shards_per_core
    }

    /// Tasks of a shard in an iteration: gather, its stages, scatter (Canary, Table 1: three for a partition).
    pub fn tasks_per_turn(&self) -> u64 {
        u64::from(self.stages) + 2
    }

    /// Tasks of an iteration: those of the shards, and gather, step, signal and scatter of the model (Canary, Table 1: four).
    pub fn tasks_per_iteration(&self) -> u64 {
        u64::from(self.shards()) * self.tasks_per_turn() + 4
    }

    /// How long the kernels of one turn of a shard take.
    pub fn kernels_ns(&self, shard: u32) -> Nanos {
        let factor = match self.lengths {
            Lengths::Even => 1.0,
            Lengths::Pages => (2.0 + 2.0 * uniform(self.seed, shard)) / 3.0,
        };
        (self.stage_ns * f64::from(self.stages) * factor) as Nanos
    }

    /// How long an iteration takes if nothing costs anything but kernels, and they are spread evenly over all cores.
    pub fn ideal_ns(&self) -> f64 {
        let all: u64 = (0..self.shards()).map(|shard| self.kernels_ns(shard)).sum();
        all as f64 / f64::from(self.workers * self.cores)
    }
}

/// From 0 to 1, by the seed and the shard alone (splitmix64).
fn uniform(seed: u64, shard: u32) -> f64 {
    let mut bits = seed ^ (u64::from(shard) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^= bits >> 31;
    (bits >> 11) as f64 / (1u64 << 53) as f64
}
