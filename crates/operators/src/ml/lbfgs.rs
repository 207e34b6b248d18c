//! L-BFGS: searches for the least value of a smooth function, from its value and gradient at points of the
//! search's choice.
//!
//! Directions: two loops over the last changes of point and gradient (Nocedal and Wright, Numerical
//! Optimization, 2nd edition, algorithms 7.4 and 7.5). Steps: a bracket that closes around a step of
//! sufficient decrease and curvature (the same, 3.6); where rounding hides a decrease of the value, slopes
//! tell it (Hager and Zhang, A New Conjugate Gradient Method with Guaranteed Descent and an Efficient Line
//! Search, SIAM Journal on Optimization 16, 2005, section 2).
//!
//! # Order
//! A product of two vectors adds in eight lanes, element `i` in lane `i mod 8`, and the lanes in order. Nothing
//! is fused, so that every CPU computes the same bits at speed.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Changes of point and gradient that are remembered.
const MEMORY: usize = 10;
/// What a step must gain, as a share of what the slope at its start promises.
const DECREASE: f64 = 1e-4;
/// How much of the slope at its start a step may leave.
const CURVATURE: f64 = 0.9;
/// A value that is larger by this share may be rounding; the slope then decides.
const ROUNDING: f64 = 1e-10;
/// The share of the slope at its start that a step may leave, upwards, where the slope decides.
const UPWARDS: f64 = 0.8;
/// Evaluations after which a step is given up.
const TRIES: u32 = 25;

/// When a search ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SearchLimits {
    /// Where no component of the gradient exceeds this; 0: nowhere.
    pub tol: f64,
    /// The most iterations.
    pub max_iter: u64,
}
brambling_program::payload!(SearchLimits { tol, max_iter });

/// How a search stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SearchState {
    /// It asks for the value and the gradient at its next point.
    #[default]
    Searching,
    /// The gradient became small enough.
    Converged,
    /// All iterations are done.
    Exhausted,
    /// No step along the gradient lowers the value any more: what is left is rounding.
    Stuck,
    /// The square of the gradient is not finite.
    Overflowed,
}

/// A search.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LbfgsSearch {
    /// The best point so far.
    pub point: Vec<f64>,
    /// The value there.
    pub value: f64,
    /// The largest component of the gradient there.
    pub largest: f64,
    /// Steps done.
    pub iterations: u64,
    /// Values and gradients that were asked for.
    pub evaluations: u64,
    /// How it stands.
    pub state: SearchState,
    gradient: Vec<f64>,
    direction: Vec<f64>,
    line: SearchLine,
    history: VecDeque<Change>,
}
brambling_program::payload!(LbfgsSearch, |search| search.heap_bytes());

/// What a step changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Change {
    point: Vec<f64>,
    gradient: Vec<f64>,
    /// The product of the two, positive.
    product: f64,
}

impl LbfgsSearch {
    /// A search that begins at `point`, whose value it asks for first.
    pub fn from(point: Vec<f64>) -> LbfgsSearch {
        LbfgsSearch {
            direction: vec![0.0; point.len()],
            gradient: vec![0.0; point.len()],
            point,
            ..LbfgsSearch::default()
        }
    }

    /// The point whose value and gradient are wanted.
    pub fn next_point(&self, out: &mut Vec<f64>) {
        out.clear();
        let moves = self.point.iter().zip(&self.direction);
        out.extend(moves.map(|(point, towards)| point + self.line.step * towards));
    }

    /// Takes the value and the gradient at [`LbfgsSearch::next_point`].
    ///
    /// # Panics
    /// If the gradient is not as long as the point.
    pub fn take(&mut self, value: f64, gradient: &[f64], limits: SearchLimits) -> SearchState {
        assert_eq!(gradient.len(), self.point.len());
        self.evaluations += 1;
        let is_first = self.evaluations == 1;
        let largest = largest(gradient);
        let slope = product(gradient, &self.direction);
        let is_small = limits.tol > 0.0 && largest <= limits.tol;
        let verdict = if is_first || is_small {
            Verdict::Accept
        } else {
            self.line.judge(value, slope)
        };
        match verdict {
            Verdict::Accept => {
                self.accept(value, gradient, largest);
                self.iterations += u64::from(!is_first);
                self.state = if is_small {
                    SearchState::Converged
                } else if self.iterations >= limits.max_iter {
                    SearchState::Exhausted
                } else {
                    self.turn()
                };
            }
            Verdict::Again => {}
            Verdict::GiveUp if self.history.is_empty() => self.state = SearchState::Stuck,
            Verdict::GiveUp => {
                self.history.clear();
                self.state = self.turn();
            }
        }
        self.state
    }

    /// Makes the point that was asked for the best one, and remembers what changed.
    fn accept(&mut self, value: f64, gradient: &[f64], largest: f64) {
        let mut change = if self.history.len() == MEMORY {
            self.history.pop_front().expect("there is one")
        } else {
            Change {
                point: vec![0.0; self.point.len()],
                gradient: vec![0.0; self.point.len()],
                product: 0.0,
            }
        };
        for at in 0..self.point.len() {
            let next = self.point[at] + self.line.step * self.direction[at];
            change.point[at] = next - self.point[at];
            change.gradient[at] = gradient[at] - self.gradient[at];
            self.point[at] = next;
        }
        self.gradient.copy_from_slice(gradient);
        (self.value, self.largest) = (value, largest);
        change.product = product(&change.point, &change.gradient);
        // Otherwise the next direction might not lead down.
        if change.product > f64::EPSILON * product(&change.gradient, &change.gradient) {
            self.history.push_back(change);
        }
    }

    /// Chooses the next direction.
    fn turn(&mut self) -> SearchState {
        self.aim();
        let mut slope = product(&self.gradient, &self.direction);
        if !(slope < 0.0 && slope.is_finite()) {
            self.history.clear();
            self.aim();
            slope = product(&self.gradient, &self.direction);
        }
        if !slope.is_finite() {
            return SearchState::Overflowed;
        }
        if slope == 0.0 {
            return SearchState::Stuck;
        }
        let step = if self.history.is_empty() {
            // As long as the gradient, and not above 1.
            1.0_f64.min(1.0 / (-slope).sqrt())
        } else {
            1.0
        };
        self.line = SearchLine::new(self.value, slope, step);
        SearchState::Searching
    }

    /// Minus the gradient, bent by what was remembered.
    fn aim(&mut self) {
        for (towards, gradient) in self.direction.iter_mut().zip(&self.gradient) {
            *towards = -gradient;
        }
        let mut shares = [0.0; MEMORY];
        for (at, change) in self.history.iter().enumerate().rev() {
            shares[at] = product(&change.point, &self.direction) / change.product;
            add(&mut self.direction, -shares[at], &change.gradient);
        }
        if let Some(last) = self.history.back() {
            let scale = last.product / product(&last.gradient, &last.gradient);
            self.direction
                .iter_mut()
                .for_each(|towards| *towards *= scale);
        }
        for (at, change) in self.history.iter().enumerate() {
            let share = product(&change.gradient, &self.direction) / change.product;
            add(&mut self.direction, shares[at] - share, &change.point);
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        (3 + 2 * self.history.len()) * self.point.len() * size_of::<f64>()
    }
}

/// What becomes of a step.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Accept,
    /// Another one is tried.
    Again,
    GiveUp,
}

/// The search for a step along a direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SearchLine {
    /// The step that is tried.
    step: f64,
    /// Value and slope where the line begins.
    start: Sample,
    /// The longest step that proved too short.
    low: Sample,
    /// The shortest one that proved too long.
    high: Option<Sample>,
    tries: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Sample {
    step: f64,
    value: f64,
    slope: f64,
}

impl SearchLine {
    fn new(value: f64, slope: f64, step: f64) -> SearchLine {
        let start = Sample {
            step: 0.0,
            value,
            slope,
        };
        SearchLine {
            step,
            start,
            low: start,
            high: None,
            tries: 0,
        }
    }

    /// Takes what was found at the step.
    fn judge(&mut self, value: f64, slope: f64) -> Verdict {
        let (step, start) = (self.step, self.start);
        let sample = Sample { step, value, slope };
        self.tries += 1;
        if !self.is_decrease(sample) {
            self.high = Some(sample);
        } else if slope < CURVATURE * start.slope {
            self.low = sample;
        } else {
            return Verdict::Accept;
        }
        self.step = match self.high {
            None => self.longer(sample),
            Some(high) => self.between(high),
        };
        if self.tries == TRIES || self.step == step {
            return Verdict::GiveUp;
        }
        Verdict::Again
    }

    fn is_decrease(&self, sample: Sample) -> bool {
        let start = self.start;
        let promised = start.value + DECREASE * sample.step * start.slope;
        let hidden = start.value + ROUNDING * start.value.abs();
        let is_finite = sample.value.is_finite() && sample.slope.is_finite();
        is_finite
            && (sample.value <= promised
                || sample.value <= hidden && sample.slope <= -UPWARDS * start.slope)
    }

    /// Beyond all steps tried: where the slope seems to end, at least twice and at most ten times as far.
    fn longer(&self, sample: Sample) -> f64 {
        let (least, most) = (2.0 * sample.step, 10.0 * sample.step);
        let bend = sample.slope - self.start.slope;
        let flat = sample.step - sample.slope * sample.step / bend;
        if bend > 0.0 && flat.is_finite() {
            flat.clamp(least, most)
        } else {
            most
        }
    }

    /// Where the cubic through both ends is least, but not near an end; now and then the middle.
    fn between(&self, high: Sample) -> f64 {
        let low = self.low;
        let width = high.step - low.step;
        let middle = low.step + 0.5 * width;
        if !(high.value.is_finite() && high.slope.is_finite()) {
            return low.step + 0.1 * width;
        }
        if self.tries.is_multiple_of(4) {
            return middle;
        }
        // Nocedal and Wright, (3.59).
        let d1 = low.slope + high.slope - 3.0 * (high.value - low.value) / width;
        let square = d1 * d1 - low.slope * high.slope;
        let d2 = square.max(0.0).sqrt();
        let least =
            high.step - width * (high.slope + d2 - d1) / (high.slope - low.slope + 2.0 * d2);
        if least.is_finite() {
            least.clamp(low.step + 0.1 * width, high.step - 0.1 * width)
        } else {
            middle
        }
    }
}

/// NaN if one of them is.
fn largest(values: &[f64]) -> f64 {
    let largest = |most: f64, value: &f64| {
        if most.is_nan() || value.is_nan() {
            f64::NAN
        } else {
            most.max(value.abs())
        }
    };
    values.iter().fold(0.0, largest)
}

fn product(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; 8];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..8 {
            lanes[lane] += a[lane] * b[lane];
        }
    }
    for (lane, (a, b)) in a_rest.iter().zip(b_rest).enumerate() {
        lanes[lane] += a * b;
    }
    lanes[1..].iter().fold(lanes[0], |sum, lane| sum + lane)
}

fn add(into: &mut [f64], factor: f64, values: &[f64]) {
    for (into, value) in into.iter_mut().zip(values) {
        *into += factor * value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SearchLimits = SearchLimits {
        tol: 1e-8,
        max_iter: 1_000,
    };

    fn search(
        start: &[f64],
        limits: SearchLimits,
        function: impl Fn(&[f64]) -> (f64, Vec<f64>),
    ) -> LbfgsSearch {
        let mut search = LbfgsSearch::from(start.to_vec());
        let mut at = Vec::new();
        for _ in 0..10_000 {
            search.next_point(&mut at);
            let (value, gradient) = function(&at);
            if search.take(value, &gradient, limits) != SearchState::Searching {
                return search;
            }
        }
        panic!("no end: {search:?}");
    }

    fn rosenbrock(at: &[f64]) -> (f64, Vec<f64>) {
        let (x, y) = (at[0], at[1]);
        let bend = y - x * x;
        let value = (1.0 - x) * (1.0 - x) + 100.0 * bend * bend;
        (
            value,
            vec![-2.0 * (1.0 - x) - 400.0 * x * bend, 200.0 * bend],
        )
    }

    #[test]
    fn a_curved_valley_is_followed_to_its_end() {
        let found = search(&[-1.2, 1.0], LIMITS, rosenbrock);
        assert_eq!(found.state, SearchState::Converged);
        assert!((found.point[0] - 1.0).abs() < 1e-7 && (found.point[1] - 1.0).abs() < 1e-7);
        // Gradient descent takes tens of thousands.
        assert!(found.evaluations < 80, "{}", found.evaluations);
        assert!(found.largest <= 1e-8);
    }

    /// Curvatures from 10⁻² to 10², more of them than changes are remembered.
    fn valley(at: &[f64]) -> (f64, Vec<f64>) {
        let curvature = |index: usize| 10_f64.powf(index as f64 / 7.5 - 2.0);
        let gradient = |(index, x): (usize, &f64)| curvature(index) * (x - index as f64);
        let value = |(index, x): (usize, &f64)| {
            0.5 * curvature(index) * (x - index as f64) * (x - index as f64)
        };
        let values = at.iter().enumerate();
        (
            values.clone().map(value).sum(),
            values.map(gradient).collect(),
        )
    }

    #[test]
    fn unequal_curvatures_are_learnt() {
        let found = search(&[0.0; 31], LIMITS, valley);
        assert_eq!(found.state, SearchState::Converged);
        for (index, x) in found.point.iter().enumerate() {
            assert!((x - index as f64).abs() < 1e-4, "{index}: {x}");
        }
        // The step is usually right at once.
        assert!(
            found.evaluations < found.iterations + found.iterations / 4 + 5,
            "{found:?}"
        );
    }

    #[test]
    fn values_that_overflow_shorten_the_step() {
        // The first step is 1 long, and e¹⁰⁰⁰ is infinite.
        let found = search(&[0.0], LIMITS, |at| {
            let power = (1_000.0 * at[0]).exp();
            (power - 2_000.0 * at[0], vec![1_000.0 * power - 2_000.0])
        });
        assert_eq!(found.state, SearchState::Converged);
        assert!((1_000.0 * found.point[0] - 2_f64.ln()).abs() < 1e-9);
    }

    #[test]
    fn a_gradient_whose_square_overflows_ends_a_search() {
        let found = search(&[1e200], LIMITS, |at| (at[0] * at[0], vec![2.0 * at[0]]));
        assert_eq!(
            (found.state, found.iterations),
            (SearchState::Overflowed, 0)
        );
        let found = search(&[1.0, 1.0], LIMITS, |_| (1.0, vec![0.0, f64::NAN]));
        assert_eq!(
            (found.state, found.iterations),
            (SearchState::Overflowed, 0)
        );
        assert!(found.largest.is_nan());
    }

    #[test]
    fn the_most_iterations_end_a_search_and_the_best_point_is_kept() {
        let limits = SearchLimits {
            max_iter: 3,
            ..LIMITS
        };
        let found = search(&[-1.2, 1.0], limits, rosenbrock);
        assert_eq!((found.state, found.iterations), (SearchState::Exhausted, 3));
        let (value, gradient) = rosenbrock(&found.point);
        assert_eq!((found.value, found.largest), (value, largest(&gradient)));
        assert!(value < rosenbrock(&[-1.2, 1.0]).0);
    }

    #[test]
    fn without_a_tolerance_a_search_ends_where_rounding_hides_the_rest() {
        let limits = SearchLimits {
            tol: 0.0,
            max_iter: 1_000,
        };
        let found = search(&[3.0; 9], limits, valley);
        assert_eq!(found.state, SearchState::Stuck);
        assert!(found.largest < 1e-10, "{found:?}");
    }

    #[test]
    fn a_search_that_begins_at_the_end_is_done() {
        let found = search(&[1.0, 1.0], LIMITS, rosenbrock);
        assert_eq!(
            (found.state, found.iterations, found.evaluations),
            (SearchState::Converged, 0, 1)
        );
    }

    #[test]
    fn products_add_in_lanes() {
        let a: Vec<f64> = (0..19).map(|x| f64::from(x).sqrt()).collect();
        let mut lanes = [0.0; 8];
        for (at, x) in a.iter().enumerate() {
            lanes[at % 8] += x * 0.3;
        }
        let expected = lanes[1..].iter().fold(lanes[0], |sum, lane| sum + lane);
        assert_eq!(product(&a, &[0.3; 19]).to_bits(), expected.to_bits());
    }

    #[test]
    fn a_search_survives_encoding_in_its_midst() {
        use brambling_program::Payload;
        let mut search = LbfgsSearch::from(vec![-1.2, 1.0]);
        let mut at = Vec::new();
        for _ in 0..7 {
            search.next_point(&mut at);
            let (value, gradient) = rosenbrock(&at);
            search.take(value, &gradient, LIMITS);
            let mut bytes = Vec::new();
            search.encode(&mut bytes);
            assert_eq!(LbfgsSearch::decode(&mut &bytes[..]).unwrap(), search);
        }
    }
}
