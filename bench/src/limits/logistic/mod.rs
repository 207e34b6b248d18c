//! One evaluation of logistic regression's gradient over dense rows of 20 features, by hand.
//!
//! Rows lie one after another in `x`; labels are 0 or 1. The gradient is that of the summed
//! log-loss, without a penalty. Every variant computes all of it, so that the bench can hold them
//! against each other.

use super::{Bare, CHUNK_ROWS, turns};
use brambling_machine::IsaLevel::*;

#[cfg(target_arch = "x86_64")]
mod ahead;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

/// Features of a row.
pub const FEATURES: usize = 20;

// ln 2 in two parts: the first has so many zeros at its end that small multiples of it are exact.
#[cfg(target_arch = "x86_64")]
const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
#[cfg(target_arch = "x86_64")]
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

// The Taylor series of e to the r, highest power first: enough for |r| ≤ ½ ln 2.
#[cfg(target_arch = "x86_64")]
const EXP_TERMS: [f64; 13] = {
    let mut terms = [1.0; 13];
    let mut power = 1;
    let mut factorial = 1.0;
    while power < 13 {
        factorial *= power as f64;
        terms[12 - power] = 1.0 / factorial;
        power += 1;
    }
    terms
};

/// Rows and their labels, in one piece or in several (the blocks of a dataset).
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    chunks: Vec<Chunk<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Chunk<'a> {
    x: &'a [f64],
    y: &'a [f64],
}

/// A point at which the gradient is evaluated.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// One weight per feature.
    pub weights: [f64; FEATURES],
    /// Added to every row's product.
    pub intercept: f64,
}

/// The gradient of the summed log-loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gradient {
    /// With respect to the weights.
    pub weights: [f64; FEATURES],
    /// With respect to the intercept.
    pub intercept: f64,
}

/// Adds the gradient of whole groups of rows, and returns how many rows that were.
type AddRows = fn(&[f64], &[f64], &Model, &mut Gradient) -> usize;

/// A bare loop that evaluates the gradient.
pub type BareLoop = Bare<AddRows>;

const ALL: &[BareLoop] = &[
    // The plain loop, on every thread.
    Bare::new("bare-plain", V2, |_, _, _, _| 0),
    // Four rows at a time in 256-bit vectors; with a software prefetch; the same from two places at once; without one,
    // from four places at once.
    #[cfg(target_arch = "x86_64")]
    Bare::new("bare-avx2", V3, avx2::add_rows::<false, 1>),
    #[cfg(target_arch = "x86_64")]
    Bare::new("bare-avx2-prefetch", V3, avx2::add_rows::<true, 1>),
    #[cfg(target_arch = "x86_64")]
    Bare::new("bare-avx2-prefetch-halves", V3, avx2::add_rows::<true, 2>),
    #[cfg(target_arch = "x86_64")]
    Bare::new("bare-avx2-streams", V3, avx2::add_rows::<false, 4>),
    // Eight rows at a time in 512-bit vectors, in the same four ways.
    #[cfg(target_arch = "x86_64")]
    Bare::new("bare-avx512", V4, avx512::add_rows::<false, 1>),
    #[cfg(target_arch = "x86_64")]
    Bare::new("bare-avx512-prefetch", V4, avx512::add_rows::<true, 1>),
    #[cfg(target_arch = "x86_64")]
    Bare::new(
        "bare-avx512-prefetch-halves",
        V4,
        avx512::add_rows::<true, 2>,
    ),
    #[cfg(target_arch = "x86_64")]
    Bare::new("bare-avx512-streams", V4, avx512::add_rows::<false, 4>),
];

/// What a bare loop found, and how long it took.
#[derive(Clone, Debug)]
pub struct Evaluated {
    /// The gradient of the last evaluation.
    pub gradient: Gradient,
    /// The wall time of each evaluation, in seconds.
    pub seconds: Vec<f64>,
}

impl<'a> Problem<'a> {
    /// All rows in one slice.
    ///
    /// # Panics
    /// When `x` does not hold one row per label.
    pub fn new(x: &'a [f64], y: &'a [f64]) -> Problem<'a> {
        Problem::of_pieces([(x, y)])
    }

    /// Rows in several slices, each with its labels.
    ///
    /// # Panics
    /// When some piece does not hold one row per label.
    pub fn of_pieces(pieces: impl IntoIterator<Item = (&'a [f64], &'a [f64])>) -> Problem<'a> {
        let mut chunks = Vec::new();
        for (x, y) in pieces {
            assert_eq!(x.len(), y.len() * FEATURES, "one row per label");
            let rows = x.chunks(CHUNK_ROWS * FEATURES).zip(y.chunks(CHUNK_ROWS));
            chunks.extend(rows.map(|(x, y)| Chunk { x, y }));
        }
        Problem { chunks }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.y.len()).sum()
    }

    /// The slices that hold the input, for measuring how fast they can be read at all.
    pub fn slices(&self) -> Vec<&'a [f64]> {
        self.chunks
            .iter()
            .flat_map(|chunk| [chunk.x, chunk.y])
            .collect()
    }
}

impl Gradient {
    /// Whether no component differs by more than `relative` of the largest component.
    pub fn agrees_with(&self, other: &Gradient, relative: f64) -> bool {
        let pairs = || {
            let intercepts = [(self.intercept, other.intercept)];
            self.weights
                .into_iter()
                .zip(other.weights)
                .chain(intercepts)
        };
        let largest = pairs()
            .map(|(a, b)| a.abs().max(b.abs()))
            .fold(0.0, f64::max);
        pairs().all(|(a, b)| (a - b).abs() <= relative * largest)
    }

    fn add(&mut self, other: &Gradient) {
        for (sum, value) in self.weights.iter_mut().zip(other.weights) {
            *sum += value;
        }
        self.intercept += other.intercept;
    }
}

/// The loop that anyone would write first: one thread, row after row.
pub fn plain_loop(problem: &Problem<'_>, model: &Model) -> Gradient {
    let mut gradient = Gradient::default();
    for chunk in &problem.chunks {
        plain_chunk(chunk.x, chunk.y, model, &mut gradient);
    }
    gradient
}

fn plain_chunk(x: &[f64], y: &[f64], model: &Model, gradient: &mut Gradient) {
    for (row, label) in x.chunks_exact(FEATURES).zip(y) {
        let product: f64 = row.iter().zip(&model.weights).map(|(x, w)| x * w).sum();
        let probability = 1.0 / (1.0 + (-(product + model.intercept)).exp());
        let residual = probability - label;
        for (sum, x) in gradient.weights.iter_mut().zip(row) {
            *sum += residual * x;
        }
        gradient.intercept += residual;
    }
}

/// The order in which a loop takes groups of rows: one from each of so many equal parts in turn, then those left over.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn order<const STREAMS: usize>(groups: usize) -> impl Iterator<Item = usize> {
    let part = groups / STREAMS;
    let each = move |at| (0..STREAMS).map(move |stream| stream * part + at);
    (0..part).flat_map(each).chain(part * STREAMS..groups)
}

impl BareLoop {
    /// The loops this CPU can run.
    pub fn available() -> Vec<BareLoop> {
        super::available(ALL)
    }

    /// The loop for the best instruction set, without prefetches that a cache does not need.
    pub fn widest() -> BareLoop {
        super::widest(ALL)
    }

    /// Evaluates the gradient `evaluations` times, as [`turns`] says.
    ///
    /// # Panics
    /// When this CPU lacks the loop's instruction set, or `evaluations` is 0.
    pub fn evaluate(
        self,
        problem: &Problem<'_>,
        model: &Model,
        places: &[usize],
        evaluations: usize,
    ) -> Evaluated {
        let add_rows = self.kernel();
        let mut gradient = Gradient::default();
        let seconds = turns(
            places,
            evaluations,
            problem.chunks.len(),
            |_| Gradient::default(),
            |chunk, part| {
                let Chunk { x, y } = problem.chunks[chunk];
                let done = add_rows(x, y, model, part);
                plain_chunk(&x[done * FEATURES..], &y[done..], model, part);
            },
            |parts| {
                gradient = Gradient::default();
                parts.iter().for_each(|part| gradient.add(part));
            },
        );
        Evaluated { gradient, seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_machine::cpu;

    // Rows that push some products far out, and all others where the curve bends.
    fn rows(count: usize) -> (Vec<f64>, Vec<f64>, Model) {
        let value = |seed: usize| (seed * 2_654_435_761 % 1_000) as f64 / 500.0 - 1.0;
        let mut x: Vec<f64> = (0..count * FEATURES).map(value).collect();
        if count > 3 {
            x[FEATURES..2 * FEATURES].fill(40.0);
            x[2 * FEATURES..3 * FEATURES].fill(-40.0);
        }
        let y = (0..count).map(|row| (row * 7 % 3 % 2) as f64).collect();
        let weights = std::array::from_fn(|feature| (feature as f64 - 5.0) / 8.0);
        (
            x,
            y,
            Model {
                weights,
                intercept: 0.25,
            },
        )
    }

    #[test]
    fn the_plain_loop_is_the_gradient() {
        let x: Vec<f64> = (0..2 * FEATURES)
            .map(|at| if at < FEATURES { 1.0 } else { -2.0 })
            .collect();
        let model = Model {
            weights: [0.0; FEATURES],
            intercept: 0.0,
        };
        // Both probabilities are one half: residuals −½ and ½.
        let gradient = plain_loop(&Problem::new(&x, &[1.0, 0.0]), &model);
        assert_eq!(
            gradient,
            Gradient {
                weights: [-1.5; FEATURES],
                intercept: 0.0
            }
        );
    }

    #[test]
    fn every_bare_loop_agrees_with_the_plain_loop() {
        let places = cpu::places(3).unwrap();
        for count in [0, 1, 3, 4, 7, 8, 9, 100, 3 * CHUNK_ROWS + 5] {
            let (x, y, model) = rows(count);
            let problem = Problem::new(&x, &y);
            let expected = plain_loop(&problem, &model);
            for bare in BareLoop::available() {
                let evaluated = bare.evaluate(&problem, &model, &places, 2);
                assert!(
                    evaluated.gradient.agrees_with(&expected, 1e-13),
                    "{} of {count} rows: {:?}, expected {expected:?}",
                    bare.name,
                    evaluated.gradient,
                );
                assert_eq!(evaluated.seconds.len(), 2);
            }
        }
    }

    #[test]
    fn pieces_need_not_be_aligned() {
        let (x, y, model) = rows(301);
        let expected = plain_loop(&Problem::new(&x, &y), &model);
        let (x_left, x_right) = x.split_at(77 * FEATURES);
        let (y_left, y_right) = y.split_at(77);
        let problem = Problem::of_pieces([(x_left, y_left), (x_right, y_right)]);
        assert_eq!(problem.rows(), 301);
        for bare in BareLoop::available() {
            let evaluated = bare.evaluate(&problem, &model, &cpu::places(1).unwrap(), 1);
            assert!(
                evaluated.gradient.agrees_with(&expected, 1e-13),
                "{}",
                bare.name
            );
        }
    }

    #[test]
    fn saturated_rows_have_no_residual() {
        let (x, model) = (vec![1.0; 8 * FEATURES], |weight| Model {
            weights: [weight; FEATURES],
            intercept: 0.0,
        });
        for bare in BareLoop::available() {
            for (weight, label) in [(1e3, 1.0), (-1e3, 0.0)] {
                let y = [label; 8];
                let problem = Problem::new(&x, &y);
                let found = bare.evaluate(&problem, &model(weight), &cpu::places(1).unwrap(), 1);
                assert!(found.gradient.intercept.abs() < 1e-200, "{}", bare.name);
            }
        }
    }

    #[test]
    fn agreement_is_relative_to_the_largest_component() {
        let one = Gradient {
            weights: [1.0; FEATURES],
            intercept: 1000.0,
        };
        let mut other = one;
        other.weights[3] += 0.5;
        assert!(one.agrees_with(&other, 1e-3));
        assert!(!one.agrees_with(&other, 1e-4));
        other.weights[3] = f64::NAN;
        assert!(!one.agrees_with(&other, 1.0));
    }
}
