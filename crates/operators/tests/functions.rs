//! Accuracy of the elementary functions, against an oracle of about 100 bits, and their edges.

mod oracle;

use brambling_operators::numerics::{self, CANONICAL_NAN};
use brambling_operators::simd::Isa;
use oracle::Dd;

/// Numbers in [0, 1), the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn newest() -> Isa {
    Isa::supported().last().expect("v2 is always there")
}

type Kernel = fn(Isa, &[f64], &mut [f64]);

fn apply(kernel: Kernel, x: &[f64]) -> Vec<f64> {
    let mut out = vec![0.0; x.len()];
    kernel(newest(), x, &mut out);
    out
}

/// The largest error over inputs that `sample` draws must be within `bound` ulp.
fn check(kernel: Kernel, exact: fn(f64) -> Dd, bound: f64, sample: fn(&mut Random) -> f64) {
    let mut random = Random(7);
    let x: Vec<f64> = (0..100_000).map(|_| sample(&mut random)).collect();
    let mut worst = (0.0, 0.0);
    for (&x, &got) in x.iter().zip(&apply(kernel, &x)) {
        let error = oracle::ulps(got, exact(x));
        assert!(error <= bound, "{x:e}: {error} ulp");
        if error > worst.0 {
            worst = (error, x);
        }
    }
    // A bound that is far too generous would hide a regression.
    assert!(
        worst.0 > bound / 2.0,
        "the bound {bound} is loose: {worst:?}"
    );
}

#[test]
fn exp_is_within_an_ulp() {
    check(
        numerics::exp,
        |x| oracle::exp(Dd(x, 0.0)),
        0.9,
        |r| r.next() * 1400.0 - 700.0,
    );
    check(
        numerics::exp,
        |x| oracle::exp(Dd(x, 0.0)),
        0.9,
        |r| r.next() * 2.0 - 1.0,
    );
}

#[test]
fn exp_is_within_an_ulp_where_it_is_subnormal() {
    let mut random = Random(3);
    let x: Vec<f64> = (0..20_000).map(|_| -708.0 - 38.0 * random.next()).collect();
    for (&x, &got) in x.iter().zip(&apply(numerics::exp, &x)) {
        let (power, n) = oracle::exp_parts(Dd(x, 0.0));
        // Scaled up, where the oracle has its bits; an ulp of the result is 2^-1074 or more.
        let scaled = oracle::scale(got, -n);
        let ulp = oracle::scale(f64::from_bits(1), -n).max(f64::EPSILON / 2.0);
        let error = ((scaled - power.0) - power.1).abs() / ulp;
        assert!(error <= 0.9, "{x}: {error} ulp");
    }
}

#[test]
fn log1p_is_within_an_ulp() {
    let exact: fn(f64) -> Dd = |x| oracle::log1p(Dd(x, 0.0));
    check(numerics::log1p, exact, 0.9, |r| r.next() * 4.0 - 1.0);
    check(numerics::log1p, exact, 0.9, |r| r.next() * 0.6 - 0.3);
    check(numerics::log1p, exact, 0.9, |r| {
        -(1.0 - (r.next() * -30.0).exp2())
    });
    check(numerics::log1p, exact, 0.9, |r| {
        (r.next() * 1900.0 - 950.0).exp2()
    });
    check(numerics::log1p, exact, 0.9, |r| -(r.next() * -900.0).exp2());
}

#[test]
fn sigmoid_and_softplus_are_within_two_ulp() {
    check(numerics::sigmoid, oracle::sigmoid, 1.6, |r| {
        r.next() * 80.0 - 40.0
    });
    check(numerics::sigmoid, oracle::sigmoid, 1.6, |r| {
        r.next() * 4.0 - 2.0
    });
    check(numerics::sigmoid, oracle::sigmoid, 1.6, |r| {
        r.next() * -700.0
    });
    check(numerics::softplus, oracle::softplus, 1.6, |r| {
        r.next() * 80.0 - 40.0
    });
    check(numerics::softplus, oracle::softplus, 1.6, |r| {
        r.next() * 4.0 - 2.0
    });
    check(numerics::softplus, oracle::softplus, 1.6, |r| {
        r.next() * -700.0
    });
}

/// Correctly rounded results that come from elsewhere (mpmath, 60 digits): the oracle's own check.
#[test]
fn known_values() {
    let exp: [(f64, u64); 17] = [
        (1.0, 0x4005bf0a8b145769),
        (-1.0, 0x3fd78b56362cef38),
        (0.5, 0x3ffa61298e1e069c),
        (-0.5, 0x3fe368b2fc6f960a),
        (1e-300, 0x3ff0000000000000),
        (1e-17, 0x3ff0000000000000),
        (700.0, 0x7f0d945df4f8ec8e),
        (709.78, 0x7fefe9ce5c4c52b4),
        (-700.0, 0x00d14f2b0fb9307f),
        (-708.5, 0x000e6cf6d08897ac),
        (-740.0, 0x0000000000000055),
        (-744.9, 0x0000000000000001),
        (9.313225746154785e-10, 0x3ff0000000400000),
        (-33.25, 0x3cf057322ef4a1c2),
        (0.34657359, 0x3ff6a09e66640654),
        (88.0, 0x47df1056dc7bf22d),
        (1e-05, 0x3ff0000a7c5e340e),
    ];
    let log1p: [(f64, u64); 15] = [
        (1.0, 0x3fe62e42fefa39ef),
        (-0.5, 0xbfe62e42fefa39ef),
        (0.5, 0x3fd9f323ecbf984c),
        (-0.999, 0xc01ba18a998fff9f),
        (1e-10, 0x3ddb7cdfd9d1d693),
        (-1e-10, 0xbddb7cdfd9dda4e3),
        (1e300, 0x4085963447f87fb5),
        (0.41421356, 0x3fd62e42fd2cf8f5),
        (-0.29289321, 0xbfd62e42f1981e98),
        (3.0, 0x3ff62e42fefa39ef),
        (1e16, 0x40426bb1bbb55516),
        (1.1102230246251565e-16, 0x3ca0000000000000),
        (-0.9999999999999999, 0xc0425e4f7b2737fa),
        (7.389, 0x400103ef53b94aeb),
        (f64::MAX, 0x40862e42fefa39ef),
    ];
    check_known(numerics::exp, |x| oracle::exp(Dd(x, 0.0)), &exp);
    check_known(numerics::log1p, |x| oracle::log1p(Dd(x, 0.0)), &log1p);
}

fn check_known(kernel: Kernel, exact: fn(f64) -> Dd, known: &[(f64, u64)]) {
    let x: Vec<f64> = known.iter().map(|k| k.0).collect();
    for (&(x, bits), &got) in known.iter().zip(&apply(kernel, &x)) {
        assert!(got.to_bits().abs_diff(bits) <= 1, "{x:e}: {got:e}");
        if f64::from_bits(bits).is_normal() && x.abs() < 1e300 {
            assert_eq!(exact(x).0.to_bits(), bits, "the oracle at {x:e}");
        }
    }
}

#[test]
fn edges() {
    let inf = f64::INFINITY;
    let least = f64::from_bits(1);
    let odd_nan = f64::from_bits(0xfff4_dead_beef_0001);
    check_edges(
        numerics::exp,
        &[
            (0.0, 1.0),
            (-0.0, 1.0),
            (least, 1.0),
            (inf, inf),
            (-inf, 0.0),
            (709.782712893384, 1.7976931348622732e308),
            (709.7827128933841, inf),
            (1e300, inf),
            (-745.13, least),
            (-745.14, 0.0),
            (-1e300, 0.0),
            (odd_nan, CANONICAL_NAN),
        ],
    );
    check_edges(
        numerics::log1p,
        &[
            (0.0, 0.0),
            (-0.0, -0.0),
            (least, least),
            (-least, -least),
            (f64::MIN_POSITIVE, f64::MIN_POSITIVE),
            (-1.0, -inf),
            (-1.0000000000000002, CANONICAL_NAN),
            (-inf, CANONICAL_NAN),
            (inf, inf),
            (odd_nan, CANONICAL_NAN),
        ],
    );
    check_edges(
        numerics::sigmoid,
        &[
            (0.0, 0.5),
            (-0.0, 0.5),
            (inf, 1.0),
            (-inf, 0.0),
            (40.0, 1.0),
            (-745.13, least),
            (odd_nan, CANONICAL_NAN),
        ],
    );
    check_edges(
        numerics::softplus,
        &[
            (0.0, std::f64::consts::LN_2),
            (inf, inf),
            (-inf, 0.0),
            (1000.0, 1000.0),
            (-745.13, least),
            (odd_nan, CANONICAL_NAN),
        ],
    );
}

fn check_edges(kernel: Kernel, cases: &[(f64, f64)]) {
    let x: Vec<f64> = cases.iter().map(|c| c.0).collect();
    for (&(x, expected), &got) in cases.iter().zip(&apply(kernel, &x)) {
        assert_eq!(
            got.to_bits(),
            expected.to_bits(),
            "at {x:e}: {got:e}, not {expected:e}"
        );
    }
}

#[test]
fn log_loss_is_softplus_away_from_the_label() {
    let margins = [
        3.0,
        3.0,
        -800.0,
        -800.0,
        f64::INFINITY,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        1.5,
    ];
    let labels = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0];
    let away: Vec<f64> = margins
        .iter()
        .zip(labels)
        .map(|(z, y)| z * (1.0 - 2.0 * y))
        .collect();
    let mut loss = [0.0; 9];
    numerics::log_loss(newest(), &margins, &labels, &mut loss);
    assert_eq!(loss.to_vec(), apply(numerics::softplus, &away));
}
