//! When a measurement is believed: rounds that agree, further ones where they do not, and a mark where they never did.

use crate::measure::Figure;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Samples of one measurement.
pub const ROUNDS: usize = 5;
/// How often a measurement is taken again whose samples lie too far apart.
pub const REPEATS: u32 = 2;
// Fewer samples tell nothing of their spread.
const ROUNDS_LEAST: usize = 3;

/// A figure of several rounds, and whether they agreed. The unit is in the name of the field that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settled {
    /// Median and extremes of the rounds that count.
    #[serde(flatten)]
    pub figure: Figure,
    /// How many count.
    pub rounds: usize,
    /// How often all rounds were taken again because they lay too far apart.
    pub repeated: u32,
    /// They did to the end: the machine was too busy for this figure to be believed.
    pub noisy: bool,
}

impl Settled {
    /// The middle sample.
    pub fn median(&self) -> f64 {
        self.figure.median
    }
}

/// How far samples may lie apart, and how long they are repeated.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    /// The spread that is believed, as a share of the median: see [`spread`].
    pub tolerance: f64,
    /// No repetition begins after this moment.
    pub repeats_until: Instant,
    /// After this moment a measurement ends with the samples that it has, one at least.
    pub ends: Instant,
}

/// How far samples lie apart, as a share of their median: the distance between the second largest and the second least. One outlier at each
/// end does not count, since an interrupt makes one anywhere. Infinite for fewer than three samples.
pub fn spread(samples: &[f64]) -> f64 {
    if samples.len() < ROUNDS_LEAST {
        return f64::INFINITY;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let inner = match sorted.len() {
        // Three have no inner ones: their extremes count.
        ROUNDS_LEAST => &sorted[..],
        _ => &sorted[1..sorted.len() - 1],
    };
    (inner[inner.len() - 1] - inner[0]) / Figure::of(samples).median
}

impl Noise {
    /// Takes five samples, again where they lie too far apart, and at most twice. The five that lie closest together count.
    ///
    /// # Errors
    /// The first that a sample ends with.
    pub fn settle<E>(&self, mut sample: impl FnMut() -> Result<f64, E>) -> Result<Settled, E> {
        let all = self.settle_all(|| Ok(vec![sample()?]))?;
        Ok(all[0])
    }

    /// The same for several figures that one sample gives at once, as many each time: the one that is spread furthest decides.
    ///
    /// # Errors
    /// The first that a sample ends with.
    pub fn settle_all<E>(
        &self,
        mut sample: impl FnMut() -> Result<Vec<f64>, E>,
    ) -> Result<Vec<Settled>, E> {
        let mut best = self.samples(&mut sample)?;
        let mut repeated = 0;
        while worst(&best) > self.tolerance
            && repeated < REPEATS
            && Instant::now() < self.repeats_until
        {
            let samples = self.samples(&mut sample)?;
            repeated += 1;
            if worst(&samples) < worst(&best) {
                best = samples;
            }
        }
        let settled = |samples: &Vec<f64>| Settled {
            figure: Figure::of(samples),
            rounds: samples.len(),
            repeated,
            noisy: spread(samples) > self.tolerance,
        };
        Ok(best.iter().map(settled).collect())
    }

    /// The samples of each figure.
    fn samples<E>(
        &self,
        sample: &mut impl FnMut() -> Result<Vec<f64>, E>,
    ) -> Result<Vec<Vec<f64>>, E> {
        let mut samples: Vec<Vec<f64>> = sample()?.into_iter().map(|it| vec![it]).collect();
        for _ in 1..ROUNDS {
            if Instant::now() >= self.ends {
                break;
            }
            for (samples, one) in samples.iter_mut().zip(sample()?) {
                samples.push(one);
            }
        }
        Ok(samples)
    }
}

fn worst(samples: &[Vec<f64>]) -> f64 {
    samples.iter().map(|it| spread(it)).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::time::Duration;

    fn noise(ends_in: Duration) -> Noise {
        let ends = Instant::now() + ends_in;
        Noise {
            tolerance: 0.10,
            repeats_until: ends,
            ends,
        }
    }

    fn settled(samples: &[f64]) -> Settled {
        let mut next = samples.iter();
        let mut sample =
            || Ok::<f64, Infallible>(*next.next().expect("no further sample is taken"));
        let settled = noise(Duration::from_secs(60)).settle(&mut sample).unwrap();
        assert_eq!(next.len(), 0, "each sample is taken");
        settled
    }

    #[test]
    fn rounds_that_agree_are_taken_once() {
        let settled = settled(&[10.0, 10.2, 10.4, 9.9, 10.1]);
        assert_eq!(
            (
                settled.median(),
                settled.rounds,
                settled.repeated,
                settled.noisy
            ),
            (10.1, 5, 0, false)
        );
    }

    #[test]
    fn one_outlier_at_each_end_is_no_noise() {
        let settled = settled(&[1.0, 10.2, 10.4, 30.0, 10.1]);
        assert_eq!(
            (settled.median(), settled.repeated, settled.noisy),
            (10.2, 0, false)
        );
        assert_eq!((settled.figure.min, settled.figure.max), (1.0, 30.0));
    }

    #[test]
    fn a_noisy_moment_is_measured_again() {
        let settled = settled(&[5.0, 10.0, 15.0, 20.0, 25.0, 8.0, 8.0, 8.1, 8.2, 8.1]);
        assert_eq!(
            (
                settled.median(),
                settled.rounds,
                settled.repeated,
                settled.noisy
            ),
            (8.1, 5, 1, false)
        );
    }

    #[test]
    fn a_noisy_machine_is_told_and_its_calmest_rounds_count() {
        let (wild, less) = ([5.0, 10.0, 15.0, 20.0, 25.0], [8.0, 9.0, 10.0, 11.0, 12.0]);
        let settled = settled(&[wild, less, wild].concat());
        assert_eq!(
            (settled.median(), settled.repeated, settled.noisy),
            (10.0, 2, true)
        );
    }

    #[test]
    fn who_has_no_time_left_takes_one_sample_and_says_so() {
        let settled = noise(Duration::ZERO)
            .settle(|| Ok::<f64, Infallible>(3.0))
            .unwrap();
        assert_eq!(
            (settled.rounds, settled.repeated, settled.noisy),
            (1, 0, true)
        );
    }

    #[test]
    fn of_several_figures_the_noisiest_decides() {
        let mut round = 0.0;
        let settled = noise(Duration::from_secs(60)).settle_all(|| {
            round += 1.0;
            Ok::<_, Infallible>(vec![7.0, if round > 5.0 { 3.0 } else { round }])
        });
        let told: Vec<_> = settled
            .unwrap()
            .iter()
            .map(|it| (it.median(), it.repeated, it.noisy))
            .collect();
        assert_eq!(told, [(7.0, 1, false), (3.0, 1, false)]);
    }

    #[test]
    fn a_sample_that_fails_ends_the_measurement() {
        let mut taken = 0;
        let failed = noise(Duration::from_secs(60)).settle(|| {
            taken += 1;
            match taken {
                3 => Err("no disk"),
                _ => Ok(1.0),
            }
        });
        assert_eq!((failed, taken), (Err("no disk"), 3));
    }
}
