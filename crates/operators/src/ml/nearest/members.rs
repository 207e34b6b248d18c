//! What the rows of each centre add up to.

use super::{Centres, Then};
use crate::simd::{F64x8, Isa, SimdKernel, VectorLine, Walk, dispatch};
use serde::{Deserialize, Serialize};

/// What the rows of a block add up to, by centre. A centre's sums take whole lines.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CentreSums {
    columns: usize,
    sums: Vec<VectorLine>,
    counts: Vec<u64>,
    /// What each centre's rows weigh; none where all rows count alike.
    weights: Vec<f64>,
    pattern: u64,
}

impl CentreSums {
    /// All zero, for `count` centres of `columns` values. Buffers are kept.
    pub fn reset(&mut self, count: usize, columns: usize) {
        self.columns = columns;
        self.sums.clear();
        self.sums
            .resize(count * columns.div_ceil(8), VectorLine::default());
        self.counts.clear();
        self.counts.resize(count, 0);
        self.weights.clear();
        self.pattern = 0;
    }

    /// The sums of a centre's rows by column, or of their differences from it: see [`Centres::sum_differences`].
    pub fn sums(&self, centre: usize) -> impl ExactSizeIterator<Item = f64> {
        let stride = self.columns.div_ceil(8);
        let lines = &self.sums[centre * stride..][..stride];
        (0..self.columns).map(|column| lines[column / 8].0[column % 8])
    }

    /// How many rows each centre has.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// What a centre's rows count together.
    pub fn weight(&self, centre: usize) -> f64 {
        let count = || self.counts[centre] as f64;
        self.weights.get(centre).copied().unwrap_or_else(count)
    }

    /// A number made of all labels in their order: that of other labels of as many rows is another one, but for a
    /// chance of about one in 2³².
    pub fn pattern(&self) -> u64 {
        self.pattern
    }

    /// Adds what other rows add up to, which come after these.
    pub fn add(&mut self, isa: Isa, later: &CentreSums) {
        let (sums, later_sums) = (&mut self.sums[..], &later.sums[..]);
        dispatch(isa, AddLines { sums, later_sums });
        for (count, more) in self.counts.iter_mut().zip(&later.counts) {
            *count += more;
        }
        for (weight, more) in self.weights.iter_mut().zip(&later.weights) {
            *weight += more;
        }
        self.pattern = followed_by(self.pattern, later.pattern);
    }

    /// Bytes that the buffers own.
    pub fn heap_bytes(&self) -> usize {
        self.sums.capacity() * size_of::<VectorLine>()
            + (self.counts.capacity() + self.weights.capacity()) * size_of::<u64>()
    }
}

impl Clone for CentreSums {
    fn clone(&self) -> CentreSums {
        CentreSums {
            columns: self.columns,
            sums: self.sums.clone(),
            counts: self.counts.clone(),
            weights: self.weights.clone(),
            pattern: self.pattern,
        }
    }

    /// Keeps the buffers: a reduction calls this for each block and turn.
    fn clone_from(&mut self, from: &CentreSums) {
        (self.columns, self.pattern) = (from.columns, from.pattern);
        self.sums.clone_from(&from.sums);
        self.counts.clone_from(&from.counts);
        self.weights.clone_from(&from.weights);
    }
}

struct AddLines<'a> {
    sums: &'a mut [VectorLine],
    later_sums: &'a [VectorLine],
}

impl SimdKernel for AddLines<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(self) {
        assert_eq!(self.sums.len(), self.later_sums.len());
        for (sum, later) in self.sums.iter_mut().zip(self.later_sums) {
            V::load(&sum.0).add(V::load(&later.0)).store(&mut sum.0);
        }
    }
}

/// Finds the nearest centre of each row of `x`, and overwrites `members` with what they add up to.
///
/// # Panics
/// If `x` is not whole rows of as many columns as the centres have, or there is no centre.
pub fn members_block(isa: Isa, x: &[f64], centres: &Centres, members: &mut CentreSums) {
    members.reset(centres.count, centres.columns);
    let mut pattern = Pattern([0; 8]);
    let adding = Adding {
        sums: &mut members.sums[..],
        centres: centres.sums_differences.then_some(&centres.rows[..]),
        counts: &mut members.counts[..],
        pattern: &mut pattern,
    };
    super::run(isa, x, centres, adding);
    members.pattern = pattern.whole();
}

/// As [`members_block`], each row by its weight; sums are always of rows' differences from their centre.
///
/// # Panics
/// As [`members_block`], and if there is not a weight for each row.
pub fn weighted_members_block(
    isa: Isa,
    x: &[f64],
    weights: &[f64],
    centres: &Centres,
    members: &mut CentreSums,
) {
    members.reset(centres.count, centres.columns);
    members.weights.resize(centres.count, 0.0);
    let mut labels = vec![0; weights.len()];
    super::labels_block(isa, x, centres, &mut labels);
    let mut pattern = Pattern([0; 8]);
    pattern.take(&labels);
    members.pattern = pattern.whole();
    for (&label, weight) in labels.iter().zip(weights) {
        members.counts[label as usize] += 1;
        members.weights[label as usize] += weight;
    }
    let adding = AddWeighted {
        x,
        weights,
        labels: &labels,
        centres,
        sums: &mut members.sums,
    };
    dispatch(isa, adding);
}

struct AddWeighted<'a> {
    x: &'a [f64],
    weights: &'a [f64],
    labels: &'a [u32],
    centres: &'a Centres,
    sums: &'a mut [VectorLine],
}

impl SimdKernel for AddWeighted<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(self) {
        let (columns, stride) = (self.centres.columns, self.centres.columns.div_ceil(8));
        let rows = self.x.chunks_exact(columns);
        for ((row, &label), &weight) in rows.zip(self.labels).zip(self.weights) {
            let start = label as usize * stride;
            let centre = &self.centres.rows[start..][..stride];
            let sums = &mut self.sums[start..][..stride];
            for ((values, centre), sum) in row.chunks(8).zip(centre).zip(sums) {
                let apart = V::load_first(values).sub(V::load(&centre.0));
                let sums = V::load(&sum.0);
                apart.mul_add(V::splat(weight), sums).store(&mut sum.0);
            }
        }
    }
}

/// Of the labels of rows so far, those of row `i` in lane `i mod 8`.
struct Pattern([u32; 8]);

impl Pattern {
    /// Takes the labels of the next rows. What came before must be whole eights.
    #[inline(always)]
    fn take(&mut self, labels: &[u32]) {
        let (eights, rest) = labels.as_chunks::<8>();
        let mut lanes = self.0;
        for eight in eights {
            let mut lane = 0;
            while lane < 8 {
                lanes[lane] = mixed(lanes[lane], eight[lane]);
                lane += 1;
            }
        }
        for (lane, &label) in lanes.iter_mut().zip(rest) {
            *lane = mixed(*lane, label);
        }
        self.0 = lanes;
    }

    fn whole(&self) -> u64 {
        let lanes = self.0.iter();
        lanes.fold(0, |whole, &lane| followed_by(whole, u64::from(lane)))
    }
}

/// With the same label, different lanes stay different; and so do different labels with the same lane.
#[inline(always)]
fn mixed(lane: u32, label: u32) -> u32 {
    (lane ^ label).wrapping_mul(0x9e37_79b1).rotate_left(15)
}

fn followed_by(pattern: u64, later: u64) -> u64 {
    // Multiplications by odd numbers, and a shift that can be undone.
    let mixed = (pattern ^ (pattern >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed.wrapping_add(later.wrapping_mul(0x94d0_49bb_1331_11eb))
}

struct Adding<'a> {
    sums: &'a mut [VectorLine],
    counts: &'a mut [u64],
    /// What rows are summed less of, if they are.
    centres: Option<&'a [VectorLine]>,
    pattern: &'a mut Pattern,
}

impl Then for Adding<'_> {
    #[inline(always)]
    fn rows<V: F64x8>(&mut self, x: &[f64], columns: usize, labels: &[u32]) {
        self.pattern.take(labels);
        match columns.div_ceil(8) {
            1 => self.short::<V, 1>(x, columns, labels),
            2 => self.short::<V, 2>(x, columns, labels),
            3 => self.short::<V, 3>(x, columns, labels),
            4 => self.short::<V, 4>(x, columns, labels),
            _ => self.long::<V>(x, columns, labels),
        }
    }
}

impl Adding<'_> {
    #[inline(always)]
    fn short<V: F64x8, const VECTORS: usize>(&mut self, x: &[f64], columns: usize, labels: &[u32]) {
        let (sums, _) = self.sums.as_chunks_mut::<VECTORS>();
        let counts = &mut self.counts[..sums.len()];
        let rows = Walk::<V, VECTORS>::new(x, columns, labels.len()).zip(labels);
        if let Some(centres) = self.centres {
            let centres = &centres.as_chunks::<VECTORS>().0[..sums.len()];
            for (row, &label) in rows {
                let label = label as usize;
                counts[label] += 1;
                row.add_less(&centres[label], &mut sums[label]);
            }
            return;
        }
        for (row, &label) in rows {
            counts[label as usize] += 1;
            row.add_to(&mut sums[label as usize]);
        }
    }

    #[inline(always)]
    fn long<V: F64x8>(&mut self, x: &[f64], columns: usize, labels: &[u32]) {
        let stride = columns.div_ceil(8);
        for (row, &label) in x.chunks_exact(columns).zip(labels) {
            let start = label as usize * stride;
            self.counts[label as usize] += 1;
            let sums = &mut self.sums[start..][..stride];
            let centre = self.centres.map(|centres| &centres[start..][..stride]);
            let (whole, rest) = row.as_chunks::<8>();
            for (at, sum) in sums.iter_mut().enumerate() {
                let mut more = match whole.get(at) {
                    Some(values) => V::load(values),
                    None => V::load_first(rest),
                };
                if let Some(centre) = centre {
                    more = more.sub(V::load(&centre[at].0));
                }
                V::load(&sum.0).add(more).store(&mut sum.0);
            }
        }
    }
}
