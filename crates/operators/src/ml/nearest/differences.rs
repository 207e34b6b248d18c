//! Labels by the squares of differences: what a label is defined by.

use super::{Centres, Then};
use crate::ml::tile::{Column, Tile};
use crate::simd::{F64x8, Isa, SimdKernel, dispatch, prefetch_line};

/// Finds labels by the definition alone.
pub(super) fn by_differences(isa: Isa, x: &[f64], centres: &Centres, then: impl Then) {
    match centres.group {
        5 => dispatch(isa, Differences::<_, 1, 5> { x, centres, then }),
        8 => dispatch(isa, Differences::<_, 2, 8> { x, centres, then }),
        10 => dispatch(isa, Differences::<_, 2, 10> { x, centres, then }),
        12 => dispatch(isa, Differences::<_, 2, 12> { x, centres, then }),
        other => unreachable!("no kernel for groups of {other}"),
    }
}

/// `TILES` vectors of eight rows at a time, against `GROUP` centres.
struct Differences<'a, T, const TILES: usize, const GROUP: usize> {
    x: &'a [f64],
    centres: &'a Centres,
    then: T,
}

impl<T: Then, const TILES: usize, const GROUP: usize> SimdKernel
    for Differences<'_, T, TILES, GROUP>
{
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(mut self) {
        let columns = self.centres.columns;
        let mut tile = Tile::<TILES>::new(columns);
        for here in self.x.chunks(Tile::<TILES>::ROWS * columns) {
            let turned = tile.turn::<V>(here);
            let labels = nearest::<V, TILES, GROUP>(turned, self.centres, &here[0]);
            let labels = &labels.as_flattened()[..here.len() / columns];
            self.then.rows::<V>(here, columns, labels);
        }
    }
}

/// The index of each row's nearest centre.
#[inline(always)]
fn nearest<V: F64x8, const TILES: usize, const GROUP: usize>(
    tile: &[Column<TILES>],
    centres: &Centres,
    start: &f64,
) -> [[u32; 8]; TILES] {
    let mut least = [V::splat(f64::INFINITY); TILES];
    // The first centre's name: it is nearest where no distance is a number.
    let mut label = [V::splat(centres.names[0]); TILES];
    let (mut negated, _) = centres.negated.as_chunks::<GROUP>();
    let (begins, _) = centres.begins.as_chunks::<GROUP>();
    let (names, _) = centres.names.as_chunks::<GROUP>();
    for (begins, names) in begins.iter().zip(names) {
        let (group, later) = negated.split_at(tile.len());
        negated = later;
        let squares = squares::<V, TILES, GROUP>(tile, group, begins, start);
        let mut at = 0;
        while at < GROUP {
            let here = V::splat(names[at]);
            let mut part = 0;
            while part < TILES {
                let closer = squares[at][part].less(least[part]);
                least[part] = squares[at][part].lesser(least[part]);
                label[part] = V::select(closer, here, label[part]);
                part += 1;
            }
            at += 1;
        }
    }
    super::doubles::indexes(label)
}

/// The squared distances of a tile's rows to a group of centres, as `distances` adds them up.
#[inline(always)]
fn squares<V: F64x8, const TILES: usize, const GROUP: usize>(
    tile: &[Column<TILES>],
    group: &[[f64; GROUP]],
    begins: &[f64; GROUP],
    start: &f64,
) -> [[V; TILES]; GROUP] {
    let mut squares = [[V::splat(0.0); TILES]; GROUP];
    let mut at = 0;
    while at < GROUP {
        squares[at] = [V::splat(begins[at]); TILES];
        at += 1;
    }
    let mut line = 0;
    for (column, negated) in tile.iter().zip(group) {
        let mut part = 0;
        while part < TILES {
            prefetch_line(start, line);
            line += 1;
            part += 1;
        }
        at = 0;
        while at < GROUP {
            let value = V::splat(negated[at]);
            part = 0;
            while part < TILES {
                let difference = V::load(&column[part].0).add(value);
                squares[at][part] = squares[at][part].add(difference.mul(difference));
                part += 1;
            }
            at += 1;
        }
    }
    squares
}

/// The index of one row's nearest centre.
#[inline(always)]
pub(super) fn alone<const GROUP: usize>(row: &[f64], centres: &Centres) -> u32 {
    let (mut negated, _) = centres.negated.as_chunks::<GROUP>();
    let (begins, _) = centres.begins.as_chunks::<GROUP>();
    let (mut least, mut label, mut place) = (f64::INFINITY, 0, 0);
    for begins in begins {
        let (group, later) = negated.split_at(row.len());
        negated = later;
        let mut squares = *begins;
        for (x, values) in row.iter().zip(group) {
            let mut at = 0;
            while at < GROUP {
                let difference = x + values[at];
                squares[at] += difference * difference;
                at += 1;
            }
        }
        let mut at = 0;
        while at < GROUP {
            if squares[at] < least {
                (least, label) = (squares[at], place);
            }
            (at, place) = (at + 1, place + 1);
        }
    }
    label
}
