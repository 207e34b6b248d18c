//! Centres as the kernels read them.

use super::doubles;
use super::singles::SingleCentres;
use crate::simd::{Isa, VectorLine};
use serde::{Deserialize, Serialize};

/// Centres as the kernels read them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Centres {
    pub(super) count: usize,
    pub(super) columns: usize,
    pub(super) group: usize,
    /// Row by row, each in whole lines that end in zeros.
    pub(super) rows: Vec<VectorLine>,
    /// Negated values by group, column and place within the group; zeros where the last group is not full.
    pub(super) negated: Vec<f64>,
    /// What a distance begins with: 0, or infinity where there is no centre.
    pub(super) begins: Vec<f64>,
    /// Each place's index in the low bits of a double.
    pub(super) names: Vec<f64>,
    /// What scores are taken about: the centres' mean, or zeros.
    pub(super) about: Vec<f64>,
    pub(super) is_shifted: bool,
    pub(super) sums_differences: bool,
    /// As `negated`, about the mean; empty where that is zeros.
    shifted: Vec<f64>,
    /// Half of each centre's square about the mean; infinite where there is no centre.
    pub(super) halves: Vec<f64>,
    pub(super) bound: doubles::Bound,
    /// What scores are found from in singles, where the kernel uses them.
    pub(super) singles: SingleCentres,
}

/// Sizes of a group that a kernel was compiled for, by how many registers there are.
const WIDE_GROUPS: [usize; 3] = [8, 10, 12];
const NARROW_GROUPS: [usize; 1] = [5];
/// 2^52: a double from here on holds its integer part in the low bits.
pub(super) const TWO_52: f64 = 4_503_599_627_370_496.0;
/// How many times their greatest square about the mean the centres' greatest square is, for scores about the mean to
/// be worth the subtractions: two bits of a score are lost until then.
const FAR: f64 = 16.0;

impl Centres {
    /// Prepares centres, given row by row, for the kernel of `isa`. Buffers are kept.
    ///
    /// # Panics
    /// If there is no column, or `values` is not whole rows.
    pub fn prepare(&mut self, isa: Isa, values: &[f64], columns: usize) {
        assert!(columns > 0 && values.len().is_multiple_of(columns));
        let count = values.len() / columns;
        let groups: &[usize] = match isa {
            Isa::V4 => &WIDE_GROUPS,
            Isa::V2 | Isa::V3 => &NARROW_GROUPS,
        };
        // The one that leaves the fewest places empty; of equal ones the largest.
        let waste = |group: &usize| count.next_multiple_of(*group);
        let group = groups.iter().rev().copied().min_by_key(waste).unwrap_or(1);
        let places = count.next_multiple_of(group);
        (self.count, self.columns, self.group) = (count, columns, group);
        self.place(values, places);
        self.find_mean(values);
        self.score(values, places);
        self.singles.clear();
        // A single small group is scored about as fast as memory gives the rows.
        if isa == Isa::V4 || isa == Isa::V3 && places > group {
            let negated = if self.is_shifted {
                &self.shifted
            } else {
                &self.negated
            };
            self.singles.prepare(count, columns, negated, &self.halves);
        }
    }

    fn place(&mut self, values: &[f64], places: usize) {
        let stride = self.columns.div_ceil(8);
        self.rows.clear();
        self.rows.resize(self.count * stride, VectorLine::default());
        let rows = values.chunks_exact(self.columns);
        for (lines, row) in self.rows.chunks_exact_mut(stride).zip(rows) {
            for (line, values) in lines.iter_mut().zip(row.chunks(8)) {
                line.0[..values.len()].copy_from_slice(values);
            }
        }
        self.begins.clear();
        self.begins.resize(self.count, 0.0);
        self.begins.resize(places, f64::INFINITY);
        self.names.clear();
        self.names
            .extend((0..places).map(|place| TWO_52 + place as f64));
        by_group(&mut self.negated, values, self.columns, self.group, None);
    }

    /// Finds what scores are taken about.
    fn find_mean(&mut self, values: &[f64]) {
        self.about.clear();
        self.about.resize(self.columns, 0.0);
        for row in values.chunks_exact(self.columns) {
            for (sum, value) in self.about.iter_mut().zip(row) {
                *sum += value;
            }
        }
        for mean in &mut self.about {
            *mean /= self.count as f64;
        }
        let (mut own, mut about) = (0.0f64, 0.0f64);
        for row in values.chunks_exact(self.columns) {
            let (mut square, mut less) = (0.0, 0.0);
            for (value, mean) in row.iter().zip(&self.about) {
                square += value * value;
                less += (value - mean) * (value - mean);
            }
            (own, about) = (own.max(square), about.max(less));
        }
        self.is_shifted = own > FAR * about;
        if !self.is_shifted {
            self.about.fill(0.0);
        }
    }

    fn score(&mut self, values: &[f64], places: usize) {
        self.shifted.clear();
        if self.is_shifted {
            let about = Some(&self.about[..]);
            by_group(&mut self.shifted, values, self.columns, self.group, about);
        }
        self.halves.clear();
        for row in values.chunks_exact(self.columns) {
            let mut square = 0.0;
            for (value, mean) in row.iter().zip(&self.about) {
                square += (value - mean) * (value - mean);
            }
            self.halves.push(0.5 * square);
        }
        self.bound = doubles::Bound::of(&self.halves, self.columns);
        self.halves.resize(places, f64::INFINITY);
    }

    /// Negated values about the mean, by group.
    pub(super) fn scored(&self) -> &[f64] {
        if self.is_shifted {
            &self.shifted
        } else {
            &self.negated
        }
    }

    /// Whether rows' differences from their centre are summed, and not the rows themselves: so no digits are lost to
    /// what they have in common.
    pub fn sum_differences(&mut self, yes: bool) {
        self.sums_differences = yes;
    }

    /// How many centres there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// A centre's values.
    pub(super) fn row(&self, centre: usize) -> &[VectorLine] {
        let stride = self.columns.div_ceil(8);
        &self.rows[centre * stride..][..stride]
    }

    /// Bytes that the buffers own.
    pub fn heap_bytes(&self) -> usize {
        let places = self.begins.capacity() + self.names.capacity() + self.halves.capacity();
        let values = self.negated.capacity() + self.shifted.capacity() + self.about.capacity();
        (places + values) * size_of::<f64>()
            + self.rows.capacity() * size_of::<VectorLine>()
            + self.singles.heap_bytes()
    }
}

/// Writes rows negated by group, column and place, less `about` each.
fn by_group(
    into: &mut Vec<f64>,
    values: &[f64],
    columns: usize,
    group: usize,
    about: Option<&[f64]>,
) {
    into.clear();
    into.resize(
        (values.len() / columns).next_multiple_of(group) * columns,
        0.0,
    );
    for (index, row) in values.chunks_exact(columns).enumerate() {
        let (start, place) = (index / group * group * columns, index % group);
        let into = &mut into[start..][..columns * group];
        match about {
            None => {
                for (into, value) in into.chunks_exact_mut(group).zip(row) {
                    into[place] = -value;
                }
            }
            Some(about) => {
                for ((into, value), mean) in into.chunks_exact_mut(group).zip(row).zip(about) {
                    into[place] = mean - value;
                }
            }
        }
    }
}
