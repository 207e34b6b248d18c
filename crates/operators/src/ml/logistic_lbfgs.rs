//! Logistic regression by L-BFGS, as a program: an iteration is one pass over the data, seldom two.

use super::columns::ColumnStats;
use super::lbfgs::{LbfgsSearch, SearchLimits, SearchState};
use super::logistic::{ComputeLoss, Labelled, Linear, gradient_block_into};
use super::logistic_regression::EXP_FLOPS;
use super::logistic_regression::LogisticRegression;
use super::logistic_weighted::weighted_gradient_block;
use super::model::refused;
use super::moments::weighted_stats_block;
use super::samples::{SampleBlock, SampleTable, SamplesError};
use super::softmax::{self, Classified, Linears};
use super::units::Units;
use crate::numerics::add_into;
use crate::simd::{self, TableValue};
use brambling_program::{Blocks, Combine, Dataset, KernelError, Payload, Program, Sum, Work};
use serde::{Deserialize, Serialize};

/// How a model of several classes is laid out: weights class by class, then the intercepts. Two classes share one row
/// of weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassLayout {
    /// Values in a row.
    pub columns: usize,
    /// Classes, at least two.
    pub classes: usize,
}
brambling_program::payload!(ClassLayout { columns, classes });

impl ClassLayout {
    /// Rows of weights: one for each class, or one for two classes.
    pub fn weight_rows(self) -> usize {
        if self.classes == 2 { 1 } else { self.classes }
    }

    /// Weights, without intercepts.
    pub fn weights(self) -> usize {
        self.weight_rows() * self.columns
    }

    /// Weights and intercepts.
    pub fn parameters(self) -> usize {
        self.weights() + self.weight_rows()
    }
}

/// A search in the units of the columns, and what it searches for in those of the caller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Descent {
    /// The search, in parameters of standard columns: see [`Units`].
    pub search: LbfgsSearch,
    units: Units,
}
brambling_program::payload!(Descent, |descent| descent.search.heap_bytes()
    + descent.units.heap_bytes());

impl Descent {
    /// The best parameters so far, in the units of the caller.
    pub fn parameters(&self) -> Vec<f64> {
        let mut parameters = self.search.point.clone();
        self.units.to_callers(&mut parameters);
        parameters
    }
}

/// Adds the program's stages to `p`: L-BFGS on ½‖w‖² + C · Σ log-loss over the table, from `start` or, where that is empty,
/// from zero. Labels are indexes of classes, from 0 on. What is minimised is that sum ÷ (C · rows), so that the search's value and
/// gradient are means over rows. It is searched in parameters of columns of equal size ([`Units`]): neither their size nor
/// their offset makes it longer. The dataset that it gives has one partition and is kept.
///
/// `observe` may add stages where a pass over the data ends. NaN, infinities and labels that are no
/// index fail the job; the error's source is a [`SamplesError`].
///
/// # Movement
/// The samples never move. A pass broadcasts the parameters and reduces one gradient and one loss.
///
/// # Panics
/// When [`SampleTable::check_shape`] would refuse the table, there are fewer than two classes, or `start` has another length than the
/// shape's parameters.
pub fn build<E: TableValue + Payload>(
    model: &LogisticRegression,
    p: &mut Program,
    table: SampleTable<E>,
    shape: ClassLayout,
    start: &[f64],
    partitions: u32,
    observe: &dyn Fn(&mut Program, &Dataset<Descent>),
) -> Dataset<Descent> {
    assert!(shape.classes >= 2 && (start.is_empty() || start.len() == shape.parameters()));
    let rule = Rule {
        shape,
        c: model.c,
        fit_intercept: model.fit_intercept,
        rows: table.weight(),
        limits: SearchLimits {
            tol: model.tol,
            max_iter: model.max_iter,
        },
    };
    let samples = table.load(p, partitions);
    let descent = Descent {
        search: LbfgsSearch::from(vec![0.0; shape.parameters()]),
        units: Units::default(),
    };
    let search = p.value("search", 1, descent);
    let trial = p.value("trial", 1, Trial::first(shape.parameters(), start));
    let local = p.like::<Trial, _>("local trial", &samples);
    let block_sums = p.like::<Blocks<Sums>, _>("block sums", &samples);
    let sums = p.temporary::<Sums>("sums", 1);
    p.repeat_while("searching", &trial, Trial::is_wanted, |p| {
        p.broadcast(&trial, &local);
        p.map("gradient", &samples)
            .read(&local)
            .named("ml.logistic.value_and_gradient", Vec::new())
            .with(shape)
            .into(&block_sums, sums_of_block::<E>);
        p.reduce_blocks(Sum, &block_sums, &sums, Sums::clone_from);
        p.compute("search")
            .read(&sums)
            .update(&search)
            .update(&trial)
            .named("ml.logistic.lbfgs", Vec::new())
            .with(rule)
            .run(advance);
        observe(p, &search);
    });
    search
}

/// The parameters whose loss and gradient are wanted, in the units of the caller.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Trial {
    parameters: Vec<f64>,
    is_first: bool,
    is_wanted: bool,
}
brambling_program::payload!(Trial, |trial| trial.parameters.capacity()
    * size_of::<f64>());

impl Clone for Trial {
    fn clone(&self) -> Trial {
        let mut trial = Trial::default();
        trial.clone_from(self);
        trial
    }

    /// Keeps the buffer: a broadcast calls this for each partition and turn.
    fn clone_from(&mut self, from: &Trial) {
        let parameters = std::mem::take(&mut self.parameters);
        *self = Trial {
            parameters,
            ..*from
        };
        self.parameters.clone_from(&from.parameters);
    }
}

impl Trial {
    fn first(parameters: usize, start: &[f64]) -> Trial {
        let parameters = match start {
            [] => vec![0.0; parameters],
            start => start.to_vec(),
        };
        Trial {
            parameters,
            is_first: true,
            is_wanted: true,
        }
    }

    fn is_wanted(&self) -> bool {
        self.is_wanted
    }
}

/// Sums over the rows of some blocks: the gradient by parameter, then the loss. And, from the first pass, what columns are like,
/// and the first value that cannot be used.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Sums {
    values: Vec<f64>,
    columns: Option<ColumnStats>,
    refusal: Option<SamplesError>,
}
brambling_program::payload!(Sums, |sums| {
    let columns = sums.columns.as_ref();
    let columns = columns.map_or(0, |columns| 2 * columns.means.capacity());
    (sums.values.capacity() + columns) * size_of::<f64>()
});

impl Clone for Sums {
    fn clone(&self) -> Sums {
        Sums {
            values: self.values.clone(),
            columns: self.columns.clone(),
            refusal: self.refusal.clone(),
        }
    }

    /// Keeps the buffer: a reduction calls this for each block and turn.
    fn clone_from(&mut self, from: &Sums) {
        self.values.clone_from(&from.values);
        self.columns.clone_from(&from.columns);
        self.refusal.clone_from(&from.refusal);
    }
}

impl Combine<Sums> for Sum {
    fn combine(&self, left: &mut Sums, right: &Sums) {
        add_into(simd::active(), &mut left.values, &right.values);
        if let (Some(left), Some(right)) = (&mut left.columns, &right.columns) {
            left.merge(right);
        }
        if left.refusal.is_none() {
            left.refusal.clone_from(&right.refusal);
        }
    }
}

impl Sums {
    fn take_block<E: TableValue>(
        &mut self,
        block: SampleBlock<'_, E>,
        trial: &Trial,
        shape: ClassLayout,
    ) {
        self.values.resize(shape.parameters() + 1, 0.0);
        let (x, y, columns) = (block.x, block.y, block.columns);
        let (weights, intercepts) = trial.parameters.split_at(shape.weights());
        if shape.classes == 2 {
            let intercept = intercepts[0];
            let model = Linear { weights, intercept };
            let rows = Labelled { x, y, columns };
            let (isa, out) = (simd::active(), &mut self.values);
            match block.weights {
                [] => gradient_block_into(isa, rows, model, ComputeLoss::Summed, out),
                weights => weighted_gradient_block(isa, rows, weights, model, out),
            }
        } else {
            let model = Linears {
                weights,
                intercepts,
            };
            let rows = Classified { x, y, columns };
            let (isa, out) = (simd::active(), &mut self.values);
            match block.weights {
                [] => softmax::gradient_block(isa, rows, model, out),
                weights => softmax::weighted_gradient_block(isa, rows, weights, model, out),
            }
        }
        (self.columns, self.refusal) = (None, None);
        if trial.is_first {
            // Zero times what is not finite is NaN.
            let finite = self.values.iter().all(|value| value.is_finite());
            self.refusal = block.refusal(shape.classes, finite);
            let stats = weighted_stats_block(simd::active(), x, columns, block.weights);
            self.columns = Some(stats);
        }
    }
}

/// What a pass is made of besides the data.
#[derive(Clone, Copy, Default)]
struct Rule {
    shape: ClassLayout,
    c: f64,
    fit_intercept: bool,
    rows: f64,
    limits: SearchLimits,
}
brambling_program::payload!(Rule {
    shape,
    c,
    fit_intercept,
    rows,
    limits,
});

fn sums_of_block<E: TableValue + Payload>(
    shape: &ClassLayout,
    block: SampleBlock<'_, E>,
    trial: &Trial,
    sums: &mut Sums,
) -> Work {
    let classes = shape.weight_rows() as u64;
    sums.take_block(block, trial, *shape);
    block.work(4 * classes, EXP_FLOPS * classes)
}

fn advance(
    rule: &Rule,
    sums: &Sums,
    descent: &mut Descent,
    trial: &mut Trial,
) -> Result<(), KernelError> {
    rule.advance(sums, descent, trial)
}

impl Rule {
    fn advance(
        &self,
        sums: &Sums,
        descent: &mut Descent,
        trial: &mut Trial,
    ) -> Result<(), KernelError> {
        if let Some(refusal) = &sums.refusal {
            return Err(refused(refusal.clone()));
        }
        let Descent { search, units } = descent;
        if let Some(columns) = &sums.columns {
            let penalty = 1.0 / (self.c * self.rows);
            let found = Units::of(columns, penalty, self.fit_intercept);
            *units = found.ok_or_else(|| refused(SamplesError::TooLarge))?;
            search.point.clone_from(&trial.parameters);
            units.to_search(&mut search.point);
        }
        let (value, mut gradient) = self.value_and_gradient(&sums.values, &trial.parameters);
        units.gradient_from_callers(&mut gradient);
        let state = search.take(value, &gradient, self.limits);
        if state == SearchState::Overflowed {
            return Err(refused(SamplesError::TooLarge));
        }
        trial.is_first = false;
        trial.is_wanted = state == SearchState::Searching;
        if trial.is_wanted {
            search.next_point(&mut trial.parameters);
            units.to_callers(&mut trial.parameters);
        }
        Ok(())
    }

    /// The mean loss and penalty, and their gradient.
    fn value_and_gradient(&self, sums: &[f64], parameters: &[f64]) -> (f64, Vec<f64>) {
        let (sums, loss) = sums.split_at(self.shape.parameters());
        let (penalty, weights) = (1.0 / (self.c * self.rows), self.shape.weights());
        let share = |(at, &sum): (usize, &f64)| {
            if at < weights {
                sum / self.rows + penalty * parameters[at]
            } else if self.fit_intercept {
                sum / self.rows
            } else {
                0.0
            }
        };
        let gradient = sums.iter().enumerate().map(share).collect();
        let square: f64 = parameters[..weights].iter().map(|w| w * w).sum();
        (loss[0] / self.rows + 0.5 * penalty * square, gradient)
    }
}
