//! Figures with their spread, and rounds that interleave what is measured with its limits.

use std::collections::BTreeMap;

/// A measured quantity: its median and its spread over the rounds. The unit is in the name of the
/// field that holds it.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Figure {
    /// The middle sample, or the mean of the middle two.
    pub median: f64,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
}

impl Figure {
    /// The figure of at least one sample.
    ///
    /// # Panics
    /// When `samples` is empty or holds a NaN.
    pub fn of(samples: &[f64]) -> Figure {
        assert!(!samples.is_empty(), "a figure needs a sample");
        assert!(
            samples.iter().all(|sample| !sample.is_nan()),
            "a sample is NaN: {samples:?}"
        );
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        let median = if low == high {
            low
        } else {
            low / 2.0 + high / 2.0
        };
        Figure {
            median,
            min: sorted[0],
            max: sorted[sorted.len() - 1],
        }
    }

    /// This figure in another unit: every value times `factor`, which must be positive.
    pub fn scaled(self, factor: f64) -> Figure {
        assert!(factor > 0.0);
        Figure {
            median: self.median * factor,
            min: self.min * factor,
            max: self.max * factor,
        }
    }

    /// `numerator` ÷ each value: turns a time into a rate. The extremes change places.
    pub fn rate(self, numerator: f64) -> Figure {
        Figure {
            median: numerator / self.median,
            min: numerator / self.max,
            max: numerator / self.min,
        }
    }
}

/// Measures ours and every limit side by side, round after round, in one run.
///
/// Each closure returns one sample in a unit where smaller is better (a time). A round measures all
/// limits, then all of ours, then all limits again; it is repeated when, for some group of limits,
/// the best before and the best after differ by more than the tolerance: the machine changed under
/// the round, and its ratios would say nothing. `S` is what the closures share.
pub struct Rounds<'a, S> {
    limits: Vec<Entry<'a, S>>,
    ours: Vec<Entry<'a, S>>,
    rounds: usize,
    repeats_max: usize,
    tolerance: f64,
}

struct Entry<'a, S> {
    group: String,
    name: String,
    sample: Box<dyn FnMut(&mut S) -> f64 + 'a>,
}

/// What [`Rounds::run`] measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    samples: BTreeMap<String, Vec<f64>>,
    /// Rounds that count.
    pub rounds: usize,
    /// Rounds thrown away because a limit moved.
    pub repeated: usize,
    /// Rounds that count although a limit moved, because the repeats were used up.
    pub unsettled: usize,
}

impl<S> Default for Rounds<'_, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a, S> Rounds<'a, S> {
    /// Seven rounds, at most fourteen repeats in all, a tolerance of 10 %.
    pub fn new() -> Self {
        Rounds {
            limits: Vec::new(),
            ours: Vec::new(),
            rounds: 7,
            repeats_max: 14,
            tolerance: 0.10,
        }
    }

    /// How many rounds count; at least one.
    pub fn rounds(mut self, rounds: usize) -> Self {
        assert!(rounds > 0);
        self.rounds = rounds;
        self
    }

    /// How many rounds may be repeated, over the whole run.
    pub fn repeats_max(mut self, repeats_max: usize) -> Self {
        self.repeats_max = repeats_max;
        self
    }

    /// By what fraction of the smaller the best of a group of limits may change within a round.
    pub fn tolerance(mut self, tolerance: f64) -> Self {
        assert!(tolerance > 0.0);
        self.tolerance = tolerance;
        self
    }

    /// Adds a limit. The limits of one `group` are loops that measure the same thing; only the best
    /// of them decides whether the machine has changed.
    pub fn limit(
        mut self,
        group: &str,
        name: &str,
        sample: impl FnMut(&mut S) -> f64 + 'a,
    ) -> Self {
        self.limits.push(Entry::new(group, name, sample));
        self
    }

    /// Adds something that is measured once a round, between the limits.
    pub fn ours(mut self, name: &str, sample: impl FnMut(&mut S) -> f64 + 'a) -> Self {
        self.ours.push(Entry::new("", name, sample));
        self
    }

    /// Measures, calling every closure on this thread with `shared`.
    pub fn run(mut self, shared: &mut S) -> Measured {
        let mut measured = Measured {
            samples: BTreeMap::new(),
            rounds: 0,
            repeated: 0,
            unsettled: 0,
        };
        while measured.rounds < self.rounds {
            let before = sample_all(&mut self.limits, shared);
            let ours = sample_all(&mut self.ours, shared);
            let after = sample_all(&mut self.limits, shared);
            let groups: Vec<&str> = self
                .limits
                .iter()
                .map(|entry| entry.group.as_str())
                .collect();
            if !is_settled(&groups, &before, &after, self.tolerance) {
                if measured.repeated < self.repeats_max {
                    measured.repeated += 1;
                    continue;
                }
                measured.unsettled += 1;
            }
            measured.rounds += 1;
            measured.record(&self.limits, &before);
            measured.record(&self.ours, &ours);
            measured.record(&self.limits, &after);
        }
        measured
    }
}

impl<'a, S> Entry<'a, S> {
    fn new(group: &str, name: &str, sample: impl FnMut(&mut S) -> f64 + 'a) -> Self {
        Entry {
            group: group.to_owned(),
            name: name.to_owned(),
            sample: Box::new(sample),
        }
    }
}

impl Measured {
    fn record<S>(&mut self, entries: &[Entry<'_, S>], samples: &[f64]) {
        for (entry, &sample) in entries.iter().zip(samples) {
            self.samples
                .entry(entry.name.clone())
                .or_default()
                .push(sample);
        }
    }

    /// The samples taken under `name`; a limit has two a round.
    ///
    /// # Panics
    /// When nothing of that name was added.
    pub fn samples(&self, name: &str) -> &[f64] {
        &self.samples[name]
    }

    /// The figure of what was added under `name`.
    ///
    /// # Panics
    /// When nothing of that name was added.
    pub fn figure(&self, name: &str) -> Figure {
        Figure::of(self.samples(name))
    }

    /// Of `names`, the one with the smallest median, and its figure.
    ///
    /// # Panics
    /// When `names` is empty or holds one that was not added.
    pub fn best<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> (&'n str, Figure) {
        names
            .into_iter()
            .map(|name| (name, self.figure(name)))
            .min_by(|a, b| a.1.median.total_cmp(&b.1.median))
            .expect("the best of no names")
    }
}

fn sample_all<S>(entries: &mut [Entry<'_, S>], shared: &mut S) -> Vec<f64> {
    entries
        .iter_mut()
        .map(|entry| (entry.sample)(shared))
        .collect()
}

fn is_settled(groups: &[&str], before: &[f64], after: &[f64], tolerance: f64) -> bool {
    let best = |group: &str, samples: &[f64]| {
        groups
            .iter()
            .zip(samples)
            .filter(|(of, _)| **of == group)
            .map(|(_, &sample)| sample)
            .fold(f64::INFINITY, f64::min)
    };
    groups.iter().all(|group| {
        let (before, after) = (best(group, before), best(group, after));
        (before - after).abs() <= tolerance * before.min(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_the_median_and_the_extremes() {
        assert_eq!(
            Figure::of(&[3.0, 1.0, 2.0]),
            Figure {
                median: 2.0,
                min: 1.0,
                max: 3.0
            }
        );
        assert_eq!(Figure::of(&[4.0, 1.0, 2.0, 8.0]).median, 3.0);
        assert_eq!(
            Figure::of(&[5.0]),
            Figure {
                median: 5.0,
                min: 5.0,
                max: 5.0
            }
        );
        assert_eq!(
            Figure {
                median: 2.0,
                min: 1.0,
                max: 4.0
            }
            .rate(8.0),
            Figure {
                median: 4.0,
                min: 2.0,
                max: 8.0
            }
        );
        assert_eq!(Figure::of(&[2.0]).scaled(3.0).max, 6.0);
    }

    #[test]
    #[should_panic(expected = "NaN")]
    fn a_nan_is_no_sample() {
        Figure::of(&[1.0, f64::NAN]);
    }

    #[test]
    fn only_the_best_of_a_group_decides() {
        let groups = ["read", "read", "call"];
        assert!(is_settled(
            &groups,
            &[10.0, 50.0, 3.0],
            &[10.5, 90.0, 3.0],
            0.1
        ));
        assert!(!is_settled(
            &groups,
            &[10.0, 50.0, 3.0],
            &[11.5, 50.0, 3.0],
            0.1
        ));
        assert!(!is_settled(
            &groups,
            &[10.0, 50.0, 3.0],
            &[10.0, 50.0, 2.0],
            0.1
        ));
    }

    #[test]
    fn every_round_interleaves_limits_and_ours() {
        let rounds = Rounds::<Vec<&str>>::new()
            .rounds(2)
            .limit("l", "limit", |log| {
                log.push("limit");
                1.0
            })
            .ours("ours", |log| {
                log.push("ours");
                2.0
            });
        let mut log = Vec::new();
        let measured = rounds.run(&mut log);
        assert_eq!(log, ["limit", "ours", "limit", "limit", "ours", "limit"]);
        assert_eq!(measured.samples("limit").len(), 4);
        assert_eq!(measured.samples("ours").len(), 2);
        assert_eq!(measured.best(["ours", "limit"]).0, "limit");
    }

    #[test]
    fn a_round_whose_limit_moved_is_repeated() {
        // Before and after of round one differ; the repeat and round two agree.
        let mut limit = [1.0, 2.0, 1.0, 1.0, 1.0, 1.05].into_iter();
        let mut ours = [70.0, 7.0, 8.0].into_iter();
        let measured = Rounds::new()
            .rounds(2)
            .limit("l", "limit", |_: &mut ()| limit.next().unwrap())
            .ours("ours", |_| ours.next().unwrap())
            .run(&mut ());
        assert_eq!(
            (measured.rounds, measured.repeated, measured.unsettled),
            (2, 1, 0)
        );
        assert_eq!(measured.samples("ours"), [7.0, 8.0]);
        assert_eq!(measured.samples("limit"), [1.0, 1.0, 1.0, 1.05]);
    }

    #[test]
    fn repeats_are_bounded_and_reported() {
        let mut limit = 1.0;
        let measured = Rounds::new()
            .rounds(3)
            .repeats_max(5)
            .limit("l", "limit", |_: &mut ()| {
                limit *= 2.0;
                limit
            })
            .run(&mut ());
        assert_eq!(
            (measured.rounds, measured.repeated, measured.unsettled),
            (3, 5, 3)
        );
    }
}
