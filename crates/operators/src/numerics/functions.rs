//! `exp`, `log1p` and what logistic models make of them.
//!
//! Errors are bounded in units in the last place of the result, against a reference of over 100 bits
//! in `tests/functions.rs`; each function states its own.

use crate::simd::{F64x8, Isa, SimdKernel, dispatch};

const LOG2_E: f64 = std::f64::consts::LOG2_E;
/// ln 2 in two parts, the first with 20 trailing zeros: its product with an exponent is exact.
const LN_2_HIGH: f64 = f64::from_bits(0x3fe6_2e42_fef0_0000);
const LN_2_LOW: f64 = 7.440617110012397e-11;
/// See `simd`: adding 2^52 + 2^51 rounds to an integer.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// (eʳ − 1 − r) ÷ r² for |r| ≤ ½ ln 2, to 2^-61: interpolated at Chebyshev's nodes.
const EXP: [f64; 11] = [
    0.5,
    0.1666666666666667,
    0.04166666666666667,
    0.008333333333326136,
    0.0013888888888883748,
    0.00019841269874820627,
    2.4801587325547743e-05,
    2.7557255400206422e-06,
    2.75572736431103e-07,
    2.5105217004720745e-08,
    2.0914686968086876e-09,
];

/// (2 atanh(s) − 2s) ÷ s³ as a polynomial in s², for s² ≤ 0.0295: interpolated likewise.
const LOG: [f64; 7] = [
    0.666666666666667,
    0.3999999999989889,
    0.28571428626253836,
    0.22222211089379496,
    0.1818289243253687,
    0.15331611722055008,
    0.14617807153417325,
];

/// eˣ within 1 ulp. Underflows gradually; the NaN of a NaN is not canonical.
#[inline(always)]
pub(crate) fn exp_lanes<V: F64x8>(x: V) -> V {
    // Beyond these the result is zero or infinite anyway, and the exponent stays in `scale`'s range.
    let x = x.clamp(V::splat(-750.0), V::splat(720.0));
    let rounder = V::splat(ROUNDER);
    let n = x.mul_add(V::splat(LOG2_E), rounder).sub(rounder);
    let minus_n = n.neg();
    let r_high = minus_n.mul_add(V::splat(LN_2_HIGH), x);
    let r = minus_n.mul_add(V::splat(LN_2_LOW), r_high);
    let r_lost = minus_n.mul_add(V::splat(LN_2_LOW), r_high.sub(r));
    // Estrin's scheme: Horner's would wait for eleven multiplications in a row.
    let r2 = r.mul(r);
    let r4 = r2.mul(r2);
    let r8 = r4.mul(r4);
    let c01 = r.mul_add(V::splat(EXP[1]), V::splat(EXP[0]));
    let c23 = r.mul_add(V::splat(EXP[3]), V::splat(EXP[2]));
    let c45 = r.mul_add(V::splat(EXP[5]), V::splat(EXP[4]));
    let c67 = r.mul_add(V::splat(EXP[7]), V::splat(EXP[6]));
    let c89 = r.mul_add(V::splat(EXP[9]), V::splat(EXP[8]));
    let c0123 = r2.mul_add(c23, c01);
    let c4567 = r2.mul_add(c67, c45);
    let c89a = r2.mul_add(V::splat(EXP[10]), c89);
    let c = r8.mul_add(c89a, r4.mul_add(c4567, c0123));
    // 1 + r + r² c, with what rounding 1 + r and r itself loses: else the bound would be 1 ulp.
    let one = V::splat(1.0);
    let sum = one.add(r);
    let sum_lost = one.sub(sum).add(r).add(r_lost);
    sum.add(r2.mul_add(c, sum_lost)).scale(n)
}

/// ln(1 + x) within 1 ulp; NaN below −1. The NaN of a NaN is not canonical.
#[inline(always)]
pub(crate) fn log1p_lanes<V: F64x8>(x: V) -> V {
    let one = V::splat(1.0);
    let zero = V::splat(0.0);
    // 1 + x = t + lost exactly, by Knuth's two-sum.
    let t = one.add(x);
    let back = t.sub(one);
    let lost = one.sub(t.sub(back)).add(x.sub(back));
    let (k, m) = t.exponent_mantissa();
    // Beyond 2^60 what was lost cannot matter, and its scaling would leave the exponent's range.
    let minus_k = k.neg();
    let lost = V::select(k.less(V::splat(60.0)), lost, zero);
    let scaled = one
        .scale(minus_k.clamp(V::splat(-60.0), V::splat(60.0)))
        .mul(lost);
    // ln(1 + x) = k ln 2 + ln(1 + f + f_low); where k is zero, f is x and f_low is zero.
    let m1 = m.sub(one);
    let f = m1.add(scaled);
    let f_low = m1.sub(f).add(scaled);
    // ln(1 + f) = f − f²/2 + s (f²/2 + s² R(s²)), s = f ÷ (2 + f).
    let s = f.div(f.add(V::splat(2.0)));
    let z = s.mul(s);
    let z2 = z.mul(z);
    let z4 = z2.mul(z2);
    let c01 = z.mul_add(V::splat(LOG[1]), V::splat(LOG[0]));
    let c23 = z.mul_add(V::splat(LOG[3]), V::splat(LOG[2]));
    let c45 = z.mul_add(V::splat(LOG[5]), V::splat(LOG[4]));
    let c456 = z2.mul_add(V::splat(LOG[6]), c45);
    let r = z4.mul_add(c456, z2.mul_add(c23, c01)).mul(z);
    let half_square = f.mul(V::splat(0.5)).mul(f);
    let low = k.mul_add(V::splat(LN_2_LOW), f_low);
    let correction = s.mul_add(half_square.add(r), low);
    let log = k.mul_add(V::splat(LN_2_HIGH), f.sub(half_square.sub(correction)));

    // ln(1 + x) is x for small x: the sum above would lose the sign of −0.
    let small = x.abs().less(V::splat(1.0e-16));
    let log = V::select(small, x, log);
    let infinity = V::splat(f64::INFINITY);
    let log = V::select(x.less(infinity), log, x);
    let above = V::splat(-1.0).less(x);
    let at_or_below = V::select(x.less(V::splat(-1.0)), V::splat(f64::NAN), infinity.neg());
    let invalid = V::select(x.is_nan(), x, at_or_below);
    V::select(above, log, invalid)
}

/// (1 ÷ (1 + e^−z), e^−|z|): the second is what the loss needs as well. Within 2 ulp.
#[inline(always)]
pub(crate) fn sigmoid_lanes<V: F64x8>(z: V) -> (V, V) {
    let one = V::splat(1.0);
    let e = exp_lanes(z.abs().neg());
    let numerator = V::select(z.less(V::splat(0.0)), e, one);
    // A quotient, then what is left of the numerator: 1 + e was rounded as well.
    let sum = one.add(e);
    let sum_lost = one.sub(sum).add(e);
    let inverse = one.div(sum);
    let quotient = numerator.mul(inverse);
    let minus_quotient = quotient.neg();
    let left = minus_quotient.mul_add(sum_lost, minus_quotient.mul_add(sum, numerator));
    (left.mul_add(inverse, quotient), e)
}

/// ln(1 + e^m) = max(m, 0) + ln(1 + e^−|m|), given the power. Within 2 ulp.
#[inline(always)]
fn softplus_lanes<V: F64x8>(m: V, power: V) -> V {
    let positive = V::select(m.less(V::splat(0.0)), V::splat(0.0), m);
    positive.add(log1p_lanes(power))
}

/// A function of one number.
trait Function: Copy {
    fn lanes<V: F64x8>(self, x: V) -> V;
}

#[derive(Clone, Copy)]
struct Exp;
impl Function for Exp {
    #[inline(always)]
    fn lanes<V: F64x8>(self, x: V) -> V {
        exp_lanes(x)
    }
}

#[derive(Clone, Copy)]
struct Log1p;
impl Function for Log1p {
    #[inline(always)]
    fn lanes<V: F64x8>(self, x: V) -> V {
        log1p_lanes(x)
    }
}

#[derive(Clone, Copy)]
struct Sigmoid;
impl Function for Sigmoid {
    #[inline(always)]
    fn lanes<V: F64x8>(self, x: V) -> V {
        sigmoid_lanes(x).0
    }
}

#[derive(Clone, Copy)]
struct Softplus;
impl Function for Softplus {
    #[inline(always)]
    fn lanes<V: F64x8>(self, x: V) -> V {
        softplus_lanes(x, exp_lanes(x.abs().neg()))
    }
}

struct Map<'a, F> {
    function: F,
    x: &'a [f64],
    out: &'a mut [f64],
}

impl<F: Function> SimdKernel for Map<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(self) {
        let (x, x_rest) = self.x.as_chunks::<8>();
        let (out, out_rest) = self.out.as_chunks_mut::<8>();
        for (x, out) in x.iter().zip(out) {
            self.function.lanes(V::load(x)).canonical().store(out);
        }
        if !x_rest.is_empty() {
            self.function
                .lanes(V::load_first(x_rest))
                .canonical()
                .store_first(out_rest);
        }
    }
}

fn map<F: Function>(isa: Isa, function: F, x: &[f64], out: &mut [f64]) {
    assert_eq!(x.len(), out.len());
    dispatch(isa, Map { function, x, out });
}

/// eˣ of each element, within 1 ulp, infinite and subnormal results included.
///
/// # Panics
/// If the lengths differ.
pub fn exp(isa: Isa, x: &[f64], out: &mut [f64]) {
    map(isa, Exp, x, out);
}

/// ln(1 + x) of each element, within 1 ulp: −∞ at −1, NaN below.
///
/// # Panics
/// If the lengths differ.
pub fn log1p(isa: Isa, x: &[f64], out: &mut [f64]) {
    map(isa, Log1p, x, out);
}

/// 1 ÷ (1 + e^−x) of each element, within 2 ulp on both sides of zero.
///
/// # Panics
/// If the lengths differ.
pub fn sigmoid(isa: Isa, x: &[f64], out: &mut [f64]) {
    map(isa, Sigmoid, x, out);
}

/// ln(1 + eˣ) of each element, within 2 ulp.
///
/// # Panics
/// If the lengths differ.
pub fn softplus(isa: Isa, x: &[f64], out: &mut [f64]) {
    map(isa, Softplus, x, out);
}

/// The log-loss −ln P(y) of each margin under a logistic model, for labels 0 and 1.
///
/// # Panics
/// If the lengths differ.
pub fn log_loss(isa: Isa, margins: &[f64], labels: &[f64], out: &mut [f64]) {
    assert!(margins.len() == labels.len() && labels.len() == out.len());
    dispatch(
        isa,
        LogLoss {
            margins,
            labels,
            out,
        },
    );
}

struct LogLoss<'a> {
    margins: &'a [f64],
    labels: &'a [f64],
    out: &'a mut [f64],
}

impl SimdKernel for LogLoss<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: F64x8>(self) {
        let (margins, margins_rest) = self.margins.as_chunks::<8>();
        let (labels, labels_rest) = self.labels.as_chunks::<8>();
        let (out, out_rest) = self.out.as_chunks_mut::<8>();
        for ((z, y), out) in margins.iter().zip(labels).zip(out) {
            let z = V::load(z);
            let e = exp_lanes(z.abs().neg());
            log_loss_lanes(z, V::load(y), e).canonical().store(out);
        }
        if !margins_rest.is_empty() {
            let z = V::load_first(margins_rest);
            let e = exp_lanes(z.abs().neg());
            log_loss_lanes(z, V::load_first(labels_rest), e)
                .canonical()
                .store_first(out_rest);
        }
    }
}

/// The log-loss for labels 0 and 1, given e^−|z|.
#[inline(always)]
pub(crate) fn log_loss_lanes<V: F64x8>(z: V, y: V, power: V) -> V {
    let sign = y.mul_add(V::splat(-2.0), V::splat(1.0));
    softplus_lanes(z.mul(sign), power)
}
