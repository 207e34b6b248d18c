//! Elementary functions in double-double arithmetic (about 100 bits), by Taylor's series and Halley's
//! iteration. Shares no code with the kernels. Slow, and meant for results in the normal range.
#![allow(dead_code)] // Each test binary uses a part.

/// The unevaluated sum of two doubles, the second at most half an ulp of the first.
#[derive(Clone, Copy, Debug)]
pub struct Dd(pub f64, pub f64);

fn two_sum(a: f64, b: f64) -> Dd {
    let sum = a + b;
    let back = sum - a;
    Dd(sum, (a - (sum - back)) + (b - back))
}

impl Dd {
    pub fn add(self, other: Dd) -> Dd {
        let high = two_sum(self.0, other.0);
        let low = two_sum(self.1, other.1);
        let high = two_sum(high.0, high.1 + low.0);
        two_sum(high.0, high.1 + low.1)
    }

    pub fn mul(self, other: Dd) -> Dd {
        let product = self.0 * other.0;
        let error = self.0.mul_add(other.0, -product);
        two_sum(product, error + (self.0 * other.1 + self.1 * other.0))
    }

    pub fn div(self, other: Dd) -> Dd {
        let first = self.0 / other.0;
        let rest = self.add(other.mul(Dd(-first, 0.0)));
        let second = rest.0 / other.0;
        let rest = rest.add(other.mul(Dd(-second, 0.0)));
        two_sum(first, second).add(Dd(rest.0 / other.0, 0.0))
    }

    pub fn neg(self) -> Dd {
        Dd(-self.0, -self.1)
    }
}

/// Powers of two, also where one factor would leave the range of doubles.
pub fn scale(x: f64, exponent: i32) -> f64 {
    let half = exponent / 2;
    x * 2_f64.powi(half) * 2_f64.powi(exponent - half)
}

/// (m, n) with eˣ = m · 2ⁿ.
pub fn exp_parts(x: Dd) -> (Dd, i32) {
    let n = (x.0 * std::f64::consts::LOG2_E).round();
    if n == 0.0 {
        return (exp_m1(x).add(Dd(1.0, 0.0)), 0);
    }
    // ln 2 in three parts, the first two short enough for exact products.
    let parts = [
        0.6931471804855391,
        7.440617109802979e-11,
        2.0941744292700725e-21,
    ];
    let mut r = x;
    for part in parts {
        let product = n * part;
        r = r.add(Dd(-product, -n.mul_add(part, -product)));
    }
    (exp_m1(r).add(Dd(1.0, 0.0)), n as i32)
}

/// eˣ − 1 for small x.
fn exp_m1(x: Dd) -> Dd {
    let r = Dd(x.0 / 512.0, x.1 / 512.0);
    let mut term = r;
    let mut sum = r;
    for k in 2..14 {
        term = term.mul(r).div(Dd(f64::from(k), 0.0));
        sum = sum.add(term);
    }
    for _ in 0..9 {
        sum = sum.mul(Dd(2.0, 0.0).add(sum));
    }
    sum
}

pub fn exp(x: Dd) -> Dd {
    let (power, n) = exp_parts(x);
    Dd(scale(power.0, n), scale(power.1, n))
}

pub fn log1p(x: Dd) -> Dd {
    let mut y = if x.0.abs() < 0.4 {
        Dd(x.0, 0.0)
    } else {
        let t = 1.0 + x.0;
        let exponent = ((t.to_bits() >> 52) as i32) - 1023;
        let mantissa = scale(t, -exponent);
        Dd(
            (f64::from(exponent) + (mantissa - 1.0)) * std::f64::consts::LN_2,
            0.0,
        )
    };
    for _ in 0..6 {
        let power = if y.0.abs() < 0.34 {
            exp_m1(y)
        } else {
            exp(y).add(Dd(-1.0, 0.0))
        };
        let apart = x.add(power.neg());
        let step = 2.0 * apart.0 / (2.0 + (x.0 + power.0));
        y = y.add(Dd(step, 0.0));
    }
    y
}

pub fn sigmoid(z: f64) -> Dd {
    let power = exp(Dd(-z.abs(), 0.0));
    let below = Dd(1.0, 0.0).add(power);
    if z < 0.0 {
        power.div(below)
    } else {
        Dd(1.0, 0.0).div(below)
    }
}

pub fn softplus(m: f64) -> Dd {
    let log = log1p(exp(Dd(-m.abs(), 0.0)));
    Dd(m.max(0.0), 0.0).add(log)
}

/// How far `got` is from `exact`, in units in the last place of the result.
pub fn ulps(got: f64, exact: Dd) -> f64 {
    let exponent = ((exact.0.abs().to_bits() >> 52) as i32).max(1) - 1023;
    let apart = (got - exact.0) - exact.1;
    scale(apart, 52 - exponent).abs()
}
