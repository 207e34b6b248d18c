//! What travels along edges, and what becomes of it where edges meet.

use crate::simd::F64x8;
use brambling_program::Payload;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::RangeInclusive;

/// Sources of a block: what its edges read is one table of so many values.
pub(super) const TABLE: usize = 1 << 16;

/// The values of a block's sources.
pub type SourceValues<V> = [V; TABLE];

/// A value of a vertex.
pub trait VertexValue:
    Payload + Copy + Debug + Default + PartialEq + PartialOrd + Serialize + DeserializeOwned
{
    /// Lends this thread's table: in its core's cache when the next partition fills it.
    fn with_table<T>(work: impl FnOnce(&mut SourceValues<Self>) -> T) -> T;
}

macro_rules! cell {
    ($($value:ty),*) => {$(
        impl VertexValue for $value {
            fn with_table<T>(work: impl FnOnce(&mut SourceValues<$value>) -> T) -> T {
                thread_local! {
                    static SCRATCH: RefCell<Vec<$value>> = const { RefCell::new(Vec::new()) };
                }
                SCRATCH.with_borrow_mut(|scratch| {
                    scratch.resize(TABLE, <$value>::default());
                    let table = scratch.as_mut_slice().try_into();
                    work(table.expect("as long as asked for"))
                })
            }
        }
    )*};
}
cell!(f64, f32, u32);

/// The two widths of what travels along edges and is added up. Sums are doubles for either: of a hub's many in-edges
/// singles would keep too few digits.
pub trait Real: VertexValue + Into<f64> {
    /// What may be multiplied with a rank and still have all digits of this width.
    const INVERSES: RangeInclusive<f64>;

    /// The nearest value.
    fn of(value: f64) -> Self;

    /// The values at some places.
    fn gather<S: F64x8>(table: &SourceValues<Self>, places: &[u16; 8]) -> S;
}

impl Real for f64 {
    const INVERSES: RangeInclusive<f64> = f64::MIN_POSITIVE..=f64::MAX;

    #[inline(always)]
    fn of(value: f64) -> f64 {
        value
    }
    #[inline(always)]
    fn gather<S: F64x8>(table: &SourceValues<f64>, places: &[u16; 8]) -> S {
        S::gather(table, places)
    }
}

impl Real for f32 {
    // 2⁻⁹⁶: what a vertex of 2³⁰ has is not below f32's normal numbers then.
    const INVERSES: RangeInclusive<f64> = 1.0 / (1u128 << 96) as f64..=f32::MAX as f64;

    #[inline(always)]
    fn of(value: f64) -> f32 {
        value as f32
    }
    #[inline(always)]
    fn gather<S: F64x8>(table: &SourceValues<f32>, places: &[u16; 8]) -> S {
        let mut lanes = [0.0; 8];
        let mut lane = 0;
        while lane < 8 {
            lanes[lane] = table[places[lane] as usize];
            lane += 1;
        }
        S::widen(&lanes)
    }
}

/// How the values of an edge's source and of other edges become one value of their target.
pub trait EdgeFold: 'static {
    /// What travels.
    type Value: VertexValue;
    /// What becomes of it where edges meet.
    type Met: VertexValue;
    /// What a target has before an edge has brought anything: joining it changes nothing.
    const NOTHING: Self::Met;
    /// Eight values, in a register where there is one.
    type Eight<S: F64x8>: Copy;
    /// [`EdgeFold::NOTHING`], eight times.
    fn nothing<S: F64x8>() -> Self::Eight<S>;
    /// Joins what the edges from eight sources bring.
    fn join_eight<S: F64x8>(
        table: &SourceValues<Self::Value>,
        places: &[u16; 8],
        onto: Self::Eight<S>,
    ) -> Self::Eight<S>;
    /// The values one by one.
    fn lanes<S: F64x8>(eight: Self::Eight<S>) -> [Self::Met; 8];
    /// What an edge brings, given what its source has.
    fn along(value: Self::Value) -> Self::Met;
    /// What an edge with a weight brings.
    fn weighted(value: Self::Value, weight: f64) -> Self::Met;
    /// What two edges bring together.
    fn join(a: Self::Met, b: Self::Met) -> Self::Met;
}

/// Values times weights are added up.
#[derive(Debug)]
pub struct Sums<R>(PhantomData<R>);

impl<R: Real> EdgeFold for Sums<R> {
    type Value = R;
    type Met = f64;
    type Eight<S: F64x8> = S;
    const NOTHING: f64 = 0.0;
    #[inline(always)]
    fn nothing<S: F64x8>() -> S {
        S::splat(0.0)
    }
    #[inline(always)]
    fn join_eight<S: F64x8>(table: &SourceValues<R>, places: &[u16; 8], onto: S) -> S {
        onto.add(R::gather(table, places))
    }
    #[inline(always)]
    fn lanes<S: F64x8>(eight: S) -> [f64; 8] {
        let mut lanes = [0.0; 8];
        eight.store(&mut lanes);
        lanes
    }
    #[inline(always)]
    fn along(value: R) -> f64 {
        value.into()
    }
    #[inline(always)]
    fn weighted(value: R, weight: f64) -> f64 {
        weight * value.into()
    }
    #[inline(always)]
    fn join(a: f64, b: f64) -> f64 {
        a + b
    }
}

/// Eight values in an array: what few turns need does not need registers.
macro_rules! in_an_array {
    ($value:ty) => {
        type Eight<S: F64x8> = [$value; 8];
        #[inline(always)]
        fn nothing<S: F64x8>() -> [$value; 8] {
            [Self::NOTHING; 8]
        }
        #[inline(always)]
        fn join_eight<S: F64x8>(
            table: &SourceValues<$value>,
            places: &[u16; 8],
            mut onto: [$value; 8],
        ) -> [$value; 8] {
            let mut lane = 0;
            while lane < 8 {
                let brought = Self::along(table[places[lane] as usize]);
                onto[lane] = Self::join(onto[lane], brought);
                lane += 1;
            }
            onto
        }
        #[inline(always)]
        fn lanes<S: F64x8>(eight: [$value; 8]) -> [$value; 8] {
            eight
        }
    };
}

/// The least value arrives as it is.
#[derive(Debug)]
pub struct Least;

impl EdgeFold for Least {
    type Value = u32;
    type Met = u32;
    in_an_array!(u32);
    const NOTHING: u32 = u32::MAX;
    #[inline(always)]
    fn along(value: u32) -> u32 {
        value
    }
    #[inline(always)]
    fn weighted(value: u32, _: f64) -> u32 {
        value
    }
    #[inline(always)]
    fn join(a: u32, b: u32) -> u32 {
        a.min(b)
    }
}

/// The fewest edges, counted on the way.
#[derive(Debug)]
pub struct Hops;

impl EdgeFold for Hops {
    type Value = u32;
    type Met = u32;
    in_an_array!(u32);
    const NOTHING: u32 = u32::MAX;
    #[inline(always)]
    fn along(value: u32) -> u32 {
        value.saturating_add(1)
    }
    #[inline(always)]
    fn weighted(value: u32, _: f64) -> u32 {
        Self::along(value)
    }
    #[inline(always)]
    fn join(a: u32, b: u32) -> u32 {
        a.min(b)
    }
}

/// The shortest way, whose weights are added on the way; an edge without a weight is 1 long.
#[derive(Debug)]
pub struct Nearest;

impl EdgeFold for Nearest {
    type Value = f64;
    type Met = f64;
    in_an_array!(f64);
    const NOTHING: f64 = f64::INFINITY;
    #[inline(always)]
    fn along(value: f64) -> f64 {
        value + 1.0
    }
    #[inline(always)]
    fn weighted(value: f64, weight: f64) -> f64 {
        value + weight
    }
    #[inline(always)]
    fn join(a: f64, b: f64) -> f64 {
        if b < a { b } else { a }
    }
}
