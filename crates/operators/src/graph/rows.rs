//! The hot loop: a block's rows, and what meets at their targets.
//!
//! # Order
//! A short row's edges are joined one after another, a long row's in eight lanes, lane `i` the edges `i`, `i + 8`,
//! …, which then meet in pairs. Neither the instruction set nor which rows lie side by side enters.

use super::blocked_edges::{SHORT, SourceBlock};
use super::meeting::{Meeting, Table};
use crate::simd::{F64x8, Isa, Kernel, dispatch};

/// Joins to what each target has what its edges in the block bring.
pub(super) fn meet<M: Meeting>(
    isa: Isa,
    block: &SourceBlock,
    table: &Table<M::Value>,
    into: &mut [M::Value],
) {
    let rows = Rows {
        targets: &block.targets,
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
    targets: &'a [u32],
    places: &'a [u16],
    /// Empty where edges have no weights.
    weights: &'a [f64],
}

impl<'a> Rows<'a> {
    /// The edges of the next rows.
    #[inline(always)]
    fn next<const WEIGHTED: bool>(&mut self, edges: usize) -> (&'a [u16], &'a [f64]) {
        let (places, rest) = self.places.split_at(edges);
        self.places = rest;
        let (weights, rest) = self.weights.split_at(if WEIGHTED { edges } else { 0 });
        self.weights = rest;
        (places, weights)
    }
}

struct Meet<'a, M: Meeting, const WEIGHTED: bool> {
    block: &'a SourceBlock,
    rows: Rows<'a>,
    table: &'a Table<M::Value>,
    into: &'a mut [M::Value],
}

impl<M: Meeting, const WEIGHTED: bool> Kernel for Meet<'_, M, WEIGHTED> {
    type Output = ();

    #[inline(always)]
    fn run<S: F64x8>(mut self) {
        macro_rules! equal {
            ($($length:literal),*) => {$(self.equal::<S>($length);)*};
        }
        equal!(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
        for length in 17..=SHORT {
            self.equal::<S>(length);
        }
        for (&target, &length) in self.rows.targets.iter().zip(&self.block.lengths) {
            let (places, weights) = self.rows.next::<WEIGHTED>(length as usize);
            let all = long::<M, S, WEIGHTED>(self.table, places, weights);
            let into = &mut self.into[target as usize];
            *into = M::join(*into, all);
        }
    }
}

impl<M: Meeting, const WEIGHTED: bool> Meet<'_, M, WEIGHTED> {
    /// All rows of a length.
    #[inline(always)]
    fn equal<S: F64x8>(&mut self, length: usize) {
        let count = self.block.counts[length - 1] as usize;
        let (targets, rest) = self.rows.targets.split_at(count);
        self.rows.targets = rest;
        let (eights, ones) = targets.as_chunks::<8>();
        let (places, weights) = self.rows.next::<WEIGHTED>(eights.len() * 8 * length);
        let mut weights = weights.as_chunks::<8>().0.chunks_exact(length);
        let places = places.as_chunks::<8>().0.chunks_exact(length);
        for (targets, places) in eights.iter().zip(places) {
            let mut all = M::nothing::<S>();
            if WEIGHTED {
                let mut lanes = M::lanes::<S>(all);
                let weights = weights.next().into_iter().flatten();
                for (places, weights) in places.iter().zip(weights) {
                    join_weighted::<M>(self.table, places, weights, &mut lanes);
                }
                put::<M>(self.into, targets, &lanes);
            } else {
                for places in places {
                    all = M::join_eight::<S>(self.table, places, all);
                }
                put::<M>(self.into, targets, &M::lanes::<S>(all));
            }
        }
        for &target in ones {
            let (places, weights) = self.rows.next::<WEIGHTED>(length);
            let mut all = M::NOTHING;
            let mut at = 0;
            while at < length {
                all = join_one::<M, WEIGHTED>(self.table, places, weights, at, all);
                at += 1;
            }
            let into = &mut self.into[target as usize];
            *into = M::join(*into, all);
        }
    }
}

/// Joins the values of eight rows to what their targets have.
#[inline(always)]
fn put<M: Meeting>(into: &mut [M::Value], targets: &[u32; 8], lanes: &[M::Value; 8]) {
    let mut lane = 0;
    while lane < 8 {
        let into = &mut into[targets[lane] as usize];
        *into = M::join(*into, lanes[lane]);
        lane += 1;
    }
}

/// Joins what eight edges with weights bring.
#[inline(always)]
fn join_weighted<M: Meeting>(
    table: &Table<M::Value>,
    places: &[u16; 8],
    weights: &[f64; 8],
    lanes: &mut [M::Value; 8],
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
fn join_one<M: Meeting, const WEIGHTED: bool>(
    table: &Table<M::Value>,
    places: &[u16],
    weights: &[f64],
    at: usize,
    onto: M::Value,
) -> M::Value {
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
fn long<M: Meeting, S: F64x8, const WEIGHTED: bool>(
    table: &Table<M::Value>,
    places: &[u16],
    weights: &[f64],
) -> M::Value {
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
