//! The hot loop: a block's rows, and what meets at their targets.
//!
//! # Order
//! A short row's edges are joined one after another, a long row's in eight lanes, lane `i` the edges `i`, `i + 8`,
//! …, which then meet in pairs. Neither the instruction set nor which rows lie side by side enters.

use super::meeting::{EdgeFold, SourceValues};
use super::source_block::{SHORT, SourceBlock};
use crate::simd::{F64x8, Isa, SimdKernel, dispatch};

/// Joins to what each target has what its edges in the block bring.
pub(super) fn meet<M: EdgeFold>(
    isa: Isa,
    block: &SourceBlock,
    table: &SourceValues<M::Value>,
    into: &mut [M::Met],
) {
    let rows = Rows {
        targets: &block.targets,
        lengths: &block.lengths,
        places: &block.places,
        weights: &block.weights,
    };
    if block.weights.is_empty() {
        dispatch(
            isa,
            Meet::<M, false> {
                block,
                rows,
                table,
                into,
            },
        );
    } else {
        dispatch(
            isa,
            Meet::<M, true> {
                block,
                rows,
                table,
                into,
            },
        );
    }
}

/// The rows that have not been joined yet.
struct Rows<'a> {
    targets: &'a [u16],
    lengths: &'a [u32],
    places: &'a [u16],
    /// Empty where edges have no weights.
    weights: &'a [f64],
}

impl<'a> Rows<'a> {
    /// The targets of so many rows.
    #[inline(always)]
    fn targets(&mut self, rows: u32) -> &'a [u16] {
        let (targets, rest) = self.targets.split_at(rows as usize);
        self.targets = rest;
        targets
    }

    /// The lengths of so many rows, which are long.
    #[inline(always)]
    fn lengths(&mut self, rows: u32) -> &'a [u32] {
        let (lengths, rest) = self.lengths.split_at(rows as usize);
        self.lengths = rest;
        lengths
    }

    /// So many edges of the next rows.
    #[inline(always)]
    fn edges<const WEIGHTED: bool>(&mut self, edges: usize) -> (&'a [u16], &'a [f64]) {
        let (places, rest) = self.places.split_at(edges);
        self.places = rest;
        let (weights, rest) = self.weights.split_at(if WEIGHTED { edges } else { 0 });
        self.weights = rest;
        (places, weights)
    }
}

struct Meet<'a, M: EdgeFold, const WEIGHTED: bool> {
    block: &'a SourceBlock,
    rows: Rows<'a>,
    table: &'a SourceValues<M::Value>,
    into: &'a mut [M::Met],
}

impl<M: EdgeFold, const WEIGHTED: bool> SimdKernel for Meet<'_, M, WEIGHTED> {
    type Output = ();

    #[inline(always)]
    fn run<S: F64x8>(mut self) {
        let (counts, _) = self.block.counts.as_chunks::<{ SHORT + 1 }>();
        for (counts, into) in counts.iter().zip(self.into.chunks_mut(self.block.band)) {
            meet_band::<M, S, WEIGHTED>(&mut self.rows, counts, self.table, into);
        }
    }
}

/// All rows of a band.
#[inline(always)]
fn meet_band<M: EdgeFold, S: F64x8, const WEIGHTED: bool>(
    rows: &mut Rows<'_>,
    counts: &[u32; SHORT + 1],
    table: &SourceValues<M::Value>,
    into: &mut [M::Met],
) {
    macro_rules! equal {
        ($($length:literal),*) => {$(
            let targets = rows.targets(counts[$length - 1]);
            equal::<M, S, WEIGHTED>(rows, targets, $length, table, into);
        )*};
    }
    equal!(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
    for length in 17..=SHORT {
        let targets = rows.targets(counts[length - 1]);
        equal::<M, S, WEIGHTED>(rows, targets, length, table, into);
    }
    let (targets, lengths) = (rows.targets(counts[SHORT]), rows.lengths(counts[SHORT]));
    for (&target, &length) in targets.iter().zip(lengths) {
        let (places, weights) = rows.edges::<WEIGHTED>(length as usize);
        let all = long::<M, S, WEIGHTED>(table, places, weights);
        let into = &mut into[usize::from(target)];
        *into = M::join(*into, all);
    }
}

/// All rows of a length.
#[inline(always)]
fn equal<M: EdgeFold, S: F64x8, const WEIGHTED: bool>(
    rows: &mut Rows<'_>,
    targets: &[u16],
    length: usize,
    table: &SourceValues<M::Value>,
    into: &mut [M::Met],
) {
    let (eights, ones) = targets.as_chunks::<8>();
    let (places, weights) = rows.edges::<WEIGHTED>(eights.len() * 8 * length);
    let mut weights = weights.as_chunks::<8>().0.chunks_exact(length);
    let places = places.as_chunks::<8>().0.chunks_exact(length);
    for (targets, places) in eights.iter().zip(places) {
        let mut all = M::nothing::<S>();
        if WEIGHTED {
            let mut lanes = M::lanes::<S>(all);
            let weights = weights.next().into_iter().flatten();
            for (places, weights) in places.iter().zip(weights) {
                join_weighted::<M>(table, places, weights, &mut lanes);
            }
            put::<M>(into, targets, &lanes);
        } else {
            for places in places {
                all = M::join_eight::<S>(table, places, all);
            }
            put::<M>(into, targets, &M::lanes::<S>(all));
        }
    }
    for &target in ones {
        let (places, weights) = rows.edges::<WEIGHTED>(length);
        let mut all = M::NOTHING;
        let mut at = 0;
        while at < length {
            all = join_one::<M, WEIGHTED>(table, places, weights, at, all);
            at += 1;
        }
        let into = &mut into[usize::from(target)];
        *into = M::join(*into, all);
    }
}

/// Joins the values of eight rows to what their targets have.
#[inline(always)]
fn put<M: EdgeFold>(into: &mut [M::Met], targets: &[u16; 8], lanes: &[M::Met; 8]) {
    let mut lane = 0;
    while lane < 8 {
        let into = &mut into[targets[lane] as usize];
        *into = M::join(*into, lanes[lane]);
        lane += 1;
    }
}

/// Joins what eight edges with weights bring.
#[inline(always)]
fn join_weighted<M: EdgeFold>(
    table: &SourceValues<M::Value>,
    places: &[u16; 8],
    weights: &[f64; 8],
    lanes: &mut [M::Met; 8],
) {
    let mut lane = 0;
    while lane < 8 {
        let brought = M::weighted(table[places[lane] as usize], weights[lane]);
        lanes[lane] = M::join(lanes[lane], brought);
        lane += 1;
    }
}

/// Joins what one edge brings.
#[inline(always)]
fn join_one<M: EdgeFold, const WEIGHTED: bool>(
    table: &SourceValues<M::Value>,
    places: &[u16],
    weights: &[f64],
    at: usize,
    onto: M::Met,
) -> M::Met {
    let value = table[places[at] as usize];
    let brought = if WEIGHTED {
        M::weighted(value, weights[at])
    } else {
        M::along(value)
    };
    M::join(onto, brought)
}

/// All that a row's edges bring.
#[inline(always)]
fn long<M: EdgeFold, S: F64x8, const WEIGHTED: bool>(
    table: &SourceValues<M::Value>,
    places: &[u16],
    weights: &[f64],
) -> M::Met {
    let mut all = M::nothing::<S>();
    let (eights, rest) = places.as_chunks::<8>();
    let mut lanes = M::lanes::<S>(all);
    if WEIGHTED {
        for (places, weights) in eights.iter().zip(weights.as_chunks::<8>().0) {
            join_weighted::<M>(table, places, weights, &mut lanes);
        }
    } else {
        for places in eights {
            all = M::join_eight::<S>(table, places, all);
        }
        lanes = M::lanes::<S>(all);
    }
    let mut at = 0;
    while at < rest.len() {
        let place = eights.len() * 8 + at;
        lanes[at] = join_one::<M, WEIGHTED>(table, places, weights, place, lanes[at]);
        at += 1;
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    let (a, b, c, d) = (M::join(a, e), M::join(b, f), M::join(c, g), M::join(d, h));
    M::join(M::join(a, c), M::join(b, d))
}
