//! Plain Rust, for any CPU: the scores of eight centres at a time, which the compiler makes vectors of.

use super::packed::Packed;
use super::{Centre, Part};

const GROUP: usize = 8;
pub(super) const GROUPS: [usize; 1] = [GROUP];

pub(super) fn add_rows(rows: &[Centre], centres: &Packed, part: &mut Part) -> usize {
    for row in rows {
        let (mut nearest, mut least, mut first) = (0, f64::INFINITY, 0);
        for (group, halves) in centres.groups::<GROUP>() {
            let mut scores = *halves;
            for (x, negated) in row.iter().zip(group) {
                for (score, value) in scores.iter_mut().zip(negated) {
                    *score += x * value;
                }
            }
            for (place, score) in scores.into_iter().enumerate() {
                if score < least {
                    (nearest, least) = (first + place, score);
                }
            }
            first += GROUP;
        }
        add(row, nearest, part);
    }
    rows.len()
}

/// The rows at a chunk's end that do not fill a tile, with centres in any groups.
pub(super) fn add_few_rows(rows: &[Centre], centres: &Packed, part: &mut Part) {
    for row in rows {
        let (mut nearest, mut least) = (0, f64::INFINITY);
        for (index, centre) in centres.centres.iter().enumerate() {
            let product: f64 = row.iter().zip(centre).map(|(x, c)| x * c).sum();
            let score = centres.halves[index] - product;
            if score < least {
                (nearest, least) = (index, score);
            }
        }
        add(row, nearest, part);
    }
}

fn add(row: &Centre, nearest: usize, part: &mut Part) {
    let sums = &mut part.sums[nearest];
    for (sum, x) in sums.values.iter_mut().zip(row) {
        *sum += x;
    }
    sums.count += 1;
    part.note(&[nearest as u32]);
}
