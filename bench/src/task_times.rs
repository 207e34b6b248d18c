//! How long the tasks of an iteration took: by stage, and how they spread.

use crate::report::Table;
use brambling::Timed;
use brambling::program::StageKind;
use brambling_machine::Figure;
use serde::Serialize;

/// How long the tasks of a job's loop took. Nothing of it where no task ran.
#[derive(Clone, Debug, Serialize)]
pub struct TaskTimesFigures {
    /// By stage, in the program's order.
    pub task_times: Vec<StageFigures>,
    /// Tasks whose times there was no room to note.
    pub task_times_left_out: u64,
}

/// How long the tasks of a stage took.
#[derive(Clone, Debug, Serialize)]
pub struct StageFigures {
    /// The stage's name. A scatter and its gather may share one.
    pub stage: String,
    /// `compute`, `scatter`, `gather` or `signal`.
    pub kind: &'static str,
    /// How many times there are.
    pub tasks: usize,
    /// How they spread, in microseconds.
    pub us: Spread,
    /// The longest ÷ the median.
    pub max_over_median: f64,
}

/// A distribution. A quantile is the least value that as great a share of all values does not exceed.
#[derive(Clone, Debug, Serialize)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The first percentile.
    pub p1: f64,
    /// From the first to the ninth: 10 % to 90 %.
    pub deciles: [f64; 9],
    /// The middle value, or the mean of the middle two.
    pub median: f64,
    /// The last percentile.
    pub p99: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of values in ascending order, at least one.
    fn of(ascending: &[f64]) -> Spread {
        let quantile = |percent: usize| {
            let rank = (ascending.len() * percent).div_ceil(100).max(1);
            ascending[rank - 1]
        };
        let Figure { median, min, max } = Figure::of(ascending);
        Spread {
            min,
            p1: quantile(1),
            deciles: std::array::from_fn(|tenth| quantile(10 * (tenth + 1))),
            median,
            p99: quantile(99),
            max,
        }
    }
}

fn kind(kind: StageKind) -> &'static str {
    match kind {
        StageKind::Compute => "compute",
        StageKind::Scatter(_) => "scatter",
        StageKind::Gather(_) => "gather",
        StageKind::Signal => "signal",
        StageKind::Stream(_) => "stream",
    }
}

impl TaskTimesFigures {
    /// Of the stages in loops: what runs once is no part of an iteration.
    pub(crate) fn of(timed: &Timed) -> TaskTimesFigures {
        let stages = timed.stages.iter();
        let stages = stages.filter(|stage| stage.in_loop && !stage.ns.is_empty());
        let stages = stages.map(|stage| {
            let us: Vec<f64> = stage.ns.iter().map(|ns| *ns as f64 / 1e3).collect();
            let us = Spread::of(&us);
            StageFigures {
                stage: stage.stage.clone(),
                kind: kind(stage.kind),
                tasks: stage.ns.len(),
                // A clock that stood still is no reason for a ratio that is no number.
                max_over_median: us.max / us.median.max(1e-3),
                us,
            }
        });
        TaskTimesFigures {
            task_times: stages.collect(),
            task_times_left_out: timed.left_out,
        }
    }

    /// The same for reading.
    pub(crate) fn table(&self, title: String) -> Table {
        let left_out = self.task_times_left_out;
        let rows = self.task_times.iter().map(|stage| {
            let us = &stage.us;
            let [tenth, .., last_tenth] = us.deciles;
            let spread = [us.min, us.p1, tenth, us.median, last_tenth, us.p99, us.max];
            let mut row = vec![stage.tasks as f64];
            row.extend(spread);
            row.push(stage.max_over_median);
            (format!("{} {}", stage.kind, stage.stage), row)
        });
        Table {
            title: match left_out {
                0 => title,
                _ => format!("{title}; {left_out} more tasks had no room"),
            },
            heads: &[
                "tasks",
                "min",
                "1 %",
                "10 %",
                "median",
                "90 %",
                "99 %",
                "max",
                "max ÷ median",
            ],
            rows: rows.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_ranks() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        let spread = Spread::of(&values);
        assert_eq!((spread.min, spread.p1, spread.median), (1.0, 2.0, 100.5));
        let tenths: Vec<f64> = (1..10).map(|tenth| f64::from(tenth) * 20.0).collect();
        assert_eq!(spread.deciles.to_vec(), tenths);
        assert_eq!((spread.p99, spread.max), (198.0, 200.0));
    }

    #[test]
    fn one_value_is_all_of_its_quantiles() {
        let Spread {
            min,
            p1,
            deciles,
            median,
            p99,
            max,
        } = Spread::of(&[7.0]);
        assert_eq!([min, p1, median, p99, max], [7.0; 5]);
        assert_eq!(deciles, [7.0; 9]);
    }
}
