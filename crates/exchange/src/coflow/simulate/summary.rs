//! What a simulation found, in a few numbers.

use super::outcome::{Outcome, Took};
use serde::Serialize;
use std::collections::BTreeMap;

/// Up to how many bytes the categories I to IV of Table 3 go; V has the rest. `A` is for coflows of one receiver, `B` for
/// those of several.
pub const SIZES_A: [f64; 4] = [100e6, 1e9, 10e9, 100e9];
/// See [`SIZES_A`].
pub const SIZES_B: [f64; 4] = [1e9, 10e9, 100e9, 1e12];
/// As Table 3 names them.
pub const CATEGORIES: [&str; 5] = ["I", "II", "III", "IV", "V"];

/// The longest flow of a short coflow has so many bytes at most, and a narrow one has so many flows at most: the bins
/// of Varys.
const SHORT_BYTES: f64 = 5e6;
const NARROW_FLOWS: u32 = 50;

/// Averages of some coflows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Averages {
    /// Of how many.
    pub coflows: u32,
    /// The mean of completion times.
    pub average_s: f64,
    /// How many times as long as alone, on average.
    pub slowdown: f64,
}

/// What a policy has come to.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// The mean of completion times.
    pub average_s: f64,
    /// Their median.
    pub p50_s: f64,
    /// The one at 95 % of their sorted list: of 526 the 499th.
    pub p95_s: f64,
    /// How many times as long as alone, on average.
    pub slowdown: f64,
    /// By Table 3, of sizes A.
    pub category: BTreeMap<&'static str, Averages>,
    /// Short or long, and narrow or wide.
    pub bin: BTreeMap<&'static str, Averages>,
    /// Messages that the policy needed.
    pub messages: u64,
}

/// The category of so many bytes.
pub fn category(bytes: f64, sizes: &[f64; 4]) -> &'static str {
    CATEGORIES[sizes.iter().filter(|end| bytes > **end).count()]
}

fn bin(took: &Took) -> &'static str {
    let is_short = took.longest_bytes <= SHORT_BYTES;
    let is_narrow = took.flows <= NARROW_FLOWS;
    match (is_short, is_narrow) {
        (true, true) => "short-narrow",
        (true, false) => "short-wide",
        (false, true) => "long-narrow",
        (false, false) => "long-wide",
    }
}

impl Averages {
    fn of<'t>(all: impl Iterator<Item = &'t Took>) -> Averages {
        let mut found = Averages::default();
        for took in all {
            found.coflows += 1;
            found.average_s += took.cct_s;
            found.slowdown += took.slowdown();
        }
        let count = f64::from(found.coflows.max(1));
        found.average_s /= count;
        found.slowdown /= count;
        found
    }
}

impl Outcome {
    /// The outcome in a few numbers.
    pub fn summary(&self) -> Summary {
        let of = |is: &dyn Fn(&Took) -> bool| Averages::of(self.coflows.iter().filter(|it| is(it)));
        let in_category = |name| (name, of(&|took| category(took.bytes, &SIZES_A) == name));
        let bins = ["short-narrow", "short-wide", "long-narrow", "long-wide"];
        let in_bin = |name| (name, of(&|took| bin(took) == name));
        Summary {
            average_s: self.average_s(),
            p50_s: self.percentile_s(0.5),
            p95_s: self.percentile_s(0.95),
            slowdown: self.slowdown(),
            category: CATEGORIES.into_iter().map(in_category).collect(),
            bin: bins.into_iter().map(in_bin).collect(),
            messages: self.messages,
        }
    }
}
