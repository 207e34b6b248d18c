//! Where k-means begins: greedy k-means++ as a program, one centre a turn, and rows at random.
//!
//! # The draw
//! A row is drawn with a probability in proportion to its squared distance from the centres so far. Every block
//! draws one of its rows, and enters a race with a time that is exponential in the sum of its distances; the
//! earliest block wins. That is the same as one draw from all rows, and a minimum does not depend on who
//! computes it: neither threads nor partitions enter.

use super::distances::{join_block, potentials_block, weighted_potentials_block};
use super::samples::{SampleBlock, SampleTable, Samples};
use crate::numerics::log1p;
use crate::simd::{self, Isa};
use brambling_program::{
    BLOCK_ROWS, Blocked, Blocks, Combine, Context, Dataset, Program, Rng, StageId, Sum, Work,
};
use serde::{Deserialize, Serialize};

/// Centres that are being chosen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seeding {
    /// Row by row, in the order in which they were chosen.
    pub centres: Vec<f64>,
    columns: usize,
    /// How many rows are drawn for each centre after the first.
    trials: usize,
    /// The rows drawn for the next centre, row by row.
    candidates: Vec<f64>,
}
brambling_program::payload!(Seeding, |seeding| (seeding.centres.capacity()
    + seeding.candidates.capacity())
    * size_of::<f64>());

/// Adds the stages of greedy k-means++ to `p`, whose seed decides what is drawn: `clusters` rows, the first at
/// random, each of the others the best of 2 + ln(`clusters`) rows drawn by their squared distance from the
/// centres so far, times their weights. The dataset that it gives has one partition and is kept.
///
/// Values that are no numbers are not looked for: a search that follows does that.
///
/// # Movement
/// The samples never move. A turn broadcasts the centres and the drawn rows, and reduces the drawn rows and
/// the sums that they lead to.
///
/// # Panics
/// When [`SampleTable::check_shape`] would refuse the table.
pub fn k_means_plus_plus(
    p: &mut Program,
    table: SampleTable,
    clusters: usize,
    partitions: u32,
) -> Dataset<Seeding> {
    let columns = table.columns;
    let samples = table.load(p, partitions);
    let start = Seeding {
        columns,
        trials: trials_for(clusters),
        ..Seeding::default()
    };
    let seeding = p.value("seeding", 1, start);
    let local = p.like::<Seeding, _>("local seeding", &samples);
    let near = p.like::<Vec<f64>, _>("squared distances", &samples);
    let drawn = p.like::<Drawn, _>("drawn", &samples);
    let potentials = p.like::<Blocks<Vec<f64>>, _>("potentials", &samples);
    p.repeat(clusters as u64, |p| {
        p.broadcast(&seeding, &local);
        p.compute("draw")
            .read(&samples)
            .read(&local)
            .update(&near)
            .write(&drawn)
            .named("ml.k_means_init.draw", Vec::new())
            .run_with_context(draw);
        p.reduce(Sum, &drawn, &seeding, Seeding::offer);
        p.broadcast(&seeding, &local);
        p.compute("try")
            .read(&samples)
            .read(&local)
            .read(&near)
            .write(&potentials)
            .named("ml.k_means_init.try", Vec::new())
            .run(try_candidates);
        p.reduce_blocks(Sum, &potentials, &seeding, Seeding::choose);
    });
    p.keep(&seeding);
    seeding
}

/// Different rows of `0..rows`, each set of `count` as likely as any other.
///
/// # Panics
/// If there are fewer rows than that.
pub fn rows_at_random(rows: u64, count: u64, seed: u64) -> Vec<u64> {
    assert!(count <= rows);
    let mut rng = Rng::new(seed, StageId(0), 0, 0);
    let mut taken = std::collections::BTreeSet::new();
    // Floyd's method: a row that is taken already stands for the newest one.
    let newest = rows - count..rows;
    newest
        .map(|newest| {
            let drawn = rng.below(newest + 1);
            let row = if taken.contains(&drawn) {
                newest
            } else {
                drawn
            };
            taken.insert(row);
            row
        })
        .collect()
}

/// Different rows, drawn one after another by their weights from those that are left.
///
/// # Panics
/// If fewer rows than that have a weight.
pub fn rows_by_weight(weights: &[f64], count: u64, seed: u64) -> Vec<u64> {
    let mut rng = Rng::new(seed, StageId(0), 0, 0);
    // A race whose first places are such a draw (Efraimidis and Spirakis, Weighted Random Sampling with a Reservoir, 2006).
    let mut times: Vec<(f64, u64)> = Vec::new();
    for (row, &weight) in weights.iter().enumerate() {
        let time = exponential(simd::detect(), rng.next_f64()) / weight;
        if weight > 0.0 {
            times.push((time, row as u64));
        }
    }
    assert!(count <= times.len() as u64);
    times.sort_unstable_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    times.truncate(count as usize);
    times.into_iter().map(|(_, row)| row).collect()
}

/// 2 + ⌊ln(clusters)⌋, as scikit-learn has it.
fn trials_for(clusters: usize) -> usize {
    let mut log = [0.0];
    // Not the active one: a program is built before its job chooses that.
    log1p(simd::detect(), &[clusters as f64 - 1.0], &mut log);
    2 + log[0] as usize
}

impl Seeding {
    /// Rows drawn in this turn. The first centre is not chosen among several.
    fn trials(&self) -> usize {
        if self.centres.is_empty() {
            1
        } else {
            self.trials
        }
    }

    fn newest(&self) -> &[f64] {
        &self.centres[self.centres.len() - self.columns..]
    }

    fn offer(&mut self, drawn: &Drawn) {
        self.candidates.clear();
        for draw in &drawn.draws {
            self.candidates.extend_from_slice(&draw.values);
        }
    }

    /// Takes the candidate after which the distances add up to least; of equal ones the first.
    fn choose(&mut self, potentials: &Vec<f64>) {
        let mut best = 0;
        for (index, potential) in potentials.iter().enumerate() {
            if *potential < potentials[best] {
                best = index;
            }
        }
        let row = &self.candidates[best * self.columns..][..self.columns];
        self.centres.extend_from_slice(row);
    }
}

/// The earliest rows of a race for each trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Drawn {
    draws: Vec<Draw>,
}
brambling_program::payload!(Drawn, |drawn| drawn
    .draws
    .iter()
    .map(|draw| size_of::<Draw>() + draw.values.capacity() * size_of::<f64>())
    .sum::<usize>());

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Draw {
    /// When the block arrived.
    time: f64,
    values: Vec<f64>,
}

impl Combine<Drawn> for Sum {
    /// The earlier one of each trial; of equally early ones the one of the earlier block.
    fn combine(&self, left: &mut Drawn, right: &Drawn) {
        if left.draws.is_empty() {
            left.draws.clone_from(&right.draws);
            return;
        }
        for (left, right) in left.draws.iter_mut().zip(&right.draws) {
            if right.time < left.time {
                left.clone_from(right);
            }
        }
    }
}

/// Brings the distances up to date with the newest centre, and draws from them.
fn draw(
    context: &mut Context<'_>,
    samples: &Samples,
    seeding: &Seeding,
    near: &mut Vec<f64>,
    drawn: &mut Drawn,
) {
    near.resize(samples.rows(), 0.0);
    drawn.draws.clear();
    for place in 0..samples.block_count() {
        let Some(block) = samples.block(place) else {
            continue;
        };
        let rows = block.x.len() / block.columns;
        let near = &mut near[place * BLOCK_ROWS..][..rows];
        match seeding.centres.len() / block.columns {
            // Every row is as likely as any other.
            0 => near.fill(1.0),
            1 => near.fill(f64::INFINITY),
            _ => {}
        }
        if !seeding.centres.is_empty() {
            join_block(simd::active(), block.x, seeding.newest(), near);
        }
        let index = samples.first_block() + place as u64;
        let mut rng = context.rng_of_row(index);
        let weighted: Vec<f64>;
        let shares = match block.weights {
            [] => &*near,
            weights => {
                let products = near.iter().zip(weights);
                weighted = products.map(|(near, weight)| near * weight).collect();
                &weighted
            }
        };
        race(block, shares, seeding.trials(), &mut rng, drawn);
    }
}

/// Enters rows of a block that are drawn by their distances, and keeps those that come before all others.
fn race(block: SampleBlock<'_>, near: &[f64], trials: usize, rng: &mut Rng, drawn: &mut Drawn) {
    let sums: Vec<f64> = near.chunks(CHUNK).map(chunk_sum).collect();
    let total: f64 = sums.iter().sum();
    for trial in 0..trials {
        let time = exponential(simd::active(), rng.next_f64());
        let place = rng.next_f64();
        // Rows that all lie on centres come after all others.
        let time = if total > 0.0 {
            time / total
        } else {
            f64::INFINITY
        };
        let won = drawn.draws.get(trial).is_none_or(|best| time < best.time);
        if !won {
            continue;
        }
        let row = row_at(near, &sums, place * total);
        let values = block.x[row * block.columns..][..block.columns].to_vec();
        let draw = Draw { time, values };
        match drawn.draws.get_mut(trial) {
            Some(best) => *best = draw,
            None => drawn.draws.push(draw),
        }
    }
}

/// −ln(1 − u): exponential when u is uniform in [0, 1).
fn exponential(isa: Isa, uniform: f64) -> f64 {
    let mut log = [0.0];
    log1p(isa, &[-uniform], &mut log);
    -log[0]
}

/// Rows whose distances are added up before a drawn row is looked for among them.
const CHUNK: usize = 64;

fn chunk_sum(chunk: &[f64]) -> f64 {
    let mut lanes = [0.0; 8];
    let (eights, rest) = chunk.as_chunks::<8>();
    for eight in eights {
        for lane in 0..8 {
            lanes[lane] += eight[lane];
        }
    }
    lanes.iter().chain(rest).sum()
}

/// The row in whose share of the sum `target` lies. Rounding may leave a little of the target: it falls to the
/// last row that has a share.
fn row_at(near: &[f64], sums: &[f64], target: f64) -> usize {
    let (chunk, left) = place_of(sums, target);
    let start = chunk * CHUNK;
    let end = (start + CHUNK).min(near.len());
    start + place_of(&near[start..end], left).0
}

/// The place in whose share `target` lies, and what is left of the target there.
fn place_of(shares: &[f64], target: f64) -> (usize, f64) {
    let (mut found, mut left) = ((0, target), target);
    for (place, &share) in shares.iter().enumerate() {
        if share > 0.0 {
            found = (place, left);
            if left < share {
                break;
            }
            left -= share;
        }
    }
    found
}

/// What the distances would add up to, by block, with each of the candidates.
fn try_candidates(
    samples: &Samples,
    seeding: &Seeding,
    near: &Vec<f64>,
    potentials: &mut Blocks<Vec<f64>>,
) -> Work {
    let mut work = Work::default();
    let sums = (0..samples.block_count()).map(|place| {
        let block = samples.block(place)?;
        let rows = block.x.len() / block.columns;
        let near = &near[place * BLOCK_ROWS..][..rows];
        let mut sums = Vec::new();
        let (isa, x, columns) = (simd::active(), block.x, block.columns);
        let (candidates, out) = (&seeding.candidates, &mut sums);
        // A squared difference for each value and candidate.
        work.add(block.work(3 * (candidates.len() / columns) as u64, 0));
        match block.weights {
            [] => potentials_block(isa, x, columns, candidates, near, out),
            weights => weighted_potentials_block(isa, x, weights, columns, candidates, near, out),
        }
        Some(sums)
    });
    *potentials = Blocks::new(samples.first_block(), sums);
    work
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_at_random_are_different_and_all_are_met() {
        let mut met = [0; 10];
        for seed in 0..2_000 {
            let rows = rows_at_random(10, 4, seed);
            let mut sorted = rows.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), 4, "{rows:?}");
            rows.iter().for_each(|&row| met[row as usize] += 1);
        }
        // 800 expected each, with a deviation of 22.
        assert!(
            met.iter().all(|count| (700..900).contains(count)),
            "{met:?}"
        );
        assert_eq!(rows_at_random(3, 3, 1).len(), 3);
    }

    #[test]
    fn trials_follow_the_logarithm() {
        let found = [1, 2, 3, 8, 20, 21, 1_000].map(trials_for);
        assert_eq!(found, [2, 2, 3, 4, 4, 5, 8]);
    }

    #[test]
    fn the_candidate_that_leaves_least_is_chosen_and_of_equal_ones_the_first() {
        let mut seeding = Seeding {
            columns: 2,
            candidates: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
            ..Seeding::default()
        };
        seeding.choose(&vec![9.0, 3.0, 3.0, 7.0]);
        assert_eq!(seeding.centres, [3.0, 4.0]);
    }

    #[test]
    fn a_target_finds_the_row_in_whose_share_it_lies() {
        let mut near = vec![0.0; 200];
        (near[3], near[70], near[130]) = (1.0, 2.0, 3.0);
        let sums: Vec<f64> = near.chunks(CHUNK).map(chunk_sum).collect();
        for (target, row) in [
            (0.0, 3),
            (0.9, 3),
            (1.0, 70),
            (2.9, 70),
            (3.0, 130),
            (9.0, 130),
        ] {
            assert_eq!(row_at(&near, &sums, target), row, "{target}");
        }
    }

    /// Rows drawn from many seeds, each by the race of all blocks, against their shares.
    #[test]
    fn rows_are_drawn_by_their_share_whatever_the_blocks() {
        let x: Vec<f64> = (0..6).map(f64::from).collect();
        let near = [0.0, 1.0, 2.0, 3.0, 4.0, 0.0];
        let mut met = [0; 6];
        for seed in 0..10_000 {
            let mut drawn = Drawn::default();
            for (index, (x, near)) in x.chunks(2).zip(near.chunks(2)).enumerate() {
                let block = SampleBlock {
                    x,
                    y: &[],
                    weights: &[],
                    columns: 1,
                    first_row: 0,
                };
                let mut rng = Rng::new(seed, StageId(1), 0, index as u64);
                race(block, near, 1, &mut rng, &mut drawn);
            }
            met[drawn.draws[0].values[0] as usize] += 1;
        }
        // Four deviations of a count of 4,000 are 196.
        for (count, share) in met.iter().zip(near) {
            let expected = share * 1_000.0;
            assert!((f64::from(*count) - expected).abs() < 200.0, "{met:?}");
        }
        assert_eq!((met[0], met[5]), (0, 0));
    }
}
