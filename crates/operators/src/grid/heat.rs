//! The heat equation in two dimensions, by an explicit five-point step.

use super::Strip;
use crate::numerics::{CANONICAL_NAN, canonical};
use crate::simd::{F64x8, Isa, SimdKernel, dispatch};

/// Writes `old + k · (up + down + left + right − 4 · old)` of each cell to `new`; returns the largest
/// absolute change, NaN if a cell became NaN.
///
/// # Panics
/// If the strip's rows and `new` do not agree in length.
pub fn heat_step(isa: Isa, strip: Strip<'_, f64>, k: f64, new: &mut [f64]) -> f64 {
    strip.check(new);
    dispatch(isa, Heat { strip, k, new })
}

struct Heat<'a> {
    strip: Strip<'a, f64>,
    k: f64,
    new: &'a mut [f64],
}

impl SimdKernel for Heat<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<V: F64x8>(self) -> f64 {
        let columns = self.strip.columns();
        let mut largest = V::splat(0.0);
        let mut largest_at_sides = 0;
        for row in 0..self.strip.rows() {
            let [above, here, below] = self.strip.around(row);
            let (before, after) = self.strip.beside(here);
            let new = &mut self.new[row * columns..][..columns];
            let last = columns - 1;
            let right = if last == 0 { after } else { here[1] };
            new[0] = cell(self.k, here[0], above[0], below[0], before, right);
            largest_at_sides = largest_at_sides.max(change(here[0], new[0]));
            if last == 0 {
                continue;
            }
            new[last] = cell(
                self.k,
                here[last],
                above[last],
                below[last],
                here[last - 1],
                after,
            );
            largest_at_sides = largest_at_sides.max(change(here[last], new[last]));
            largest = interior(self.k, [above, here, below], new, largest);
        }
        let mut lanes = [0.0; 8];
        largest.store(&mut lanes);
        let mut largest = largest_at_sides;
        for lane in lanes {
            largest = largest.max(lane.to_bits());
        }
        canonical(f64::from_bits(largest))
    }
}

/// All cells but the first and the last. Returns the largest changes by lane.
#[inline(always)]
fn interior<V: F64x8>(
    k: f64,
    [above, here, below]: [&[f64]; 3],
    new: &mut [f64],
    mut largest: V,
) -> V {
    let count = new.len() - 2;
    let k = V::splat(k);
    let mut at = 1;
    while at <= count {
        let end = (at + 8).min(count + 1);
        let old = V::load_first(&here[at..end]);
        let vertical = V::load_first(&above[at..end]).add(V::load_first(&below[at..end]));
        let sides =
            V::load_first(&here[at - 1..end - 1]).add(V::load_first(&here[at + 1..end + 1]));
        let around = vertical.add(sides);
        let value = k
            .mul_add(V::splat(-4.0).mul_add(old, around), old)
            .canonical();
        value.store_first(&mut new[at..end]);
        // Lanes beyond the row hold zeros and change by nothing.
        let change = value.sub(old).abs();
        let grown = V::select(largest.less(change), change, largest);
        largest = V::select(change.is_nan(), change, grown);
        at = end;
    }
    largest
}

#[inline(always)]
fn cell(k: f64, old: f64, up: f64, down: f64, left: f64, right: f64) -> f64 {
    let around = (up + down) + (left + right);
    let new = k.mul_add((-4.0_f64).mul_add(old, around), old);
    if new.is_nan() { CANONICAL_NAN } else { new }
}

/// The bits of the change: for numbers that are not negative their order is the numbers', and a NaN is
/// the largest.
#[inline(always)]
fn change(old: f64, new: f64) -> u64 {
    (new - old).abs().to_bits()
}
