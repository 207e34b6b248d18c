//! Logistic regression by gradient descent, as a program: one pass over the data for the step, then one
//! for each iteration.

use super::columns::{gram_block, logistic_curvature_bound};
use super::logistic::{ComputeLoss, Labelled, Linear, Partial, gradient_block};
use super::logistic_weighted::{weighted_gradient_block, weighted_gram_block};
use super::model::refused;
use super::samples::{SampleBlock, SampleTable, Samples, SamplesError};
use crate::numerics::add_into;
use crate::simd;
use brambling_program::{
    Blocks, Chunk, Combine, Cursor, Dataset, DecodeError, KernelError, Payload, Program,
    SpillError, Sum, Work, default_partitions,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// What is minimised, and when to stop.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogisticRegression {
    /// C: how much the data weighs against the penalty ½‖w‖². Positive.
    pub c: f64,
    /// Whether an intercept, which is not penalised, is learnt.
    pub fit_intercept: bool,
    /// Stop when no component of the gradient ÷ (C · rows) exceeds this; 0: never.
    pub tol: f64,
    /// The most iterations.
    pub max_iter: u64,
}

impl LogisticRegression {
    /// Adds the program's stages to `p`: gradient descent on ½‖w‖² + C · Σ log-loss over the table, with
    /// step 1/L, where L bounds the curvature. The dataset that it gives has one partition and is kept.
    ///
    /// It begins at `start`, the weights and then the intercept, or at zero where that is empty.
    /// `observe` may add stages where the model's step is known, and where an iteration ends. NaN, infinities
    /// and labels other than 0 and 1 fail the job; the error's source is a [`SamplesError`].
    ///
    /// # Movement
    /// The samples never move. An iteration broadcasts the weights and reduces one gradient.
    ///
    /// # Panics
    /// When [`SampleTable::check_shape`] would refuse the table, or `start` has another length.
    pub fn build(
        &self,
        p: &mut Program,
        table: SampleTable,
        start: &[f64],
        partitions: u32,
        observe: &dyn Fn(&mut Program, &Dataset<LogisticModel>),
    ) -> Dataset<LogisticModel> {
        let (rows, columns) = (table.weight(), table.columns);
        let samples = table.load(p, partitions);
        let model = p.value(
            "model",
            1,
            LogisticModel::start(columns, start, self.max_iter),
        );
        let Self {
            c,
            fit_intercept,
            tol,
            max_iter,
        } = *self;
        let rule = Rule {
            c,
            fit_intercept,
            tol,
            max_iter,
            rows,
        };

        let grams = p.like::<Blocks<Gram>, _>("block matrices", &samples);
        let gram = p.temporary::<Gram>("matrix", 1);
        p.map("curvature", &samples)
            .named("ml.gram", Vec::new())
            .into(&grams, gram_of_block);
        p.reduce_blocks(Sum, &grams, &gram, Gram::clone_from);
        p.compute("step size")
            .read(&gram)
            .update(&model)
            .named("ml.logistic.step_size", Vec::new())
            .with((columns, c, fit_intercept))
            .run(set_step);
        observe(p, &model);

        let local = p.like::<LogisticModel, _>("local model", &samples);
        let gradients = p.like::<Blocks<Gradient>, _>("block gradients", &samples);
        let gradient = p.temporary::<Gradient>("gradient", 1);
        p.repeat_while("descending", &model, LogisticModel::is_descending, |p| {
            p.broadcast(&model, &local);
            p.map("gradient", &samples)
                .read(&local)
                .named("ml.logistic.gradient", Vec::new())
                .into(&gradients, gradient_of_block);
            p.reduce_blocks(Sum, &gradients, &gradient, Gradient::clone_from);
            p.compute("descend")
                .read(&gradient)
                .update(&model)
                .named("ml.logistic.descend", Vec::new())
                .with(rule)
                .run(descend);
            observe(p, &model);
        });
        model
    }
}

/// Operations of an exponential and what goes with it, for each row.
pub(super) const EXP_FLOPS: u64 = 25;

/// How many partitions a table has when nobody says.
pub fn partitions_of(rows: usize, columns: usize) -> u32 {
    let bytes = rows as u64 * (columns as u64 + 1) * size_of::<f64>() as u64;
    default_partitions(Samples::blocks_in(rows), bytes)
}

/// The model, and how its search stands.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogisticModel {
    /// One weight for each column.
    pub weights: Vec<f64>,
    /// Added to each row's product; 0 when none is learnt.
    pub intercept: f64,
    /// Iterations done.
    pub iterations: u64,
    /// The largest component of the gradient ÷ (C · rows), as the last iteration found it.
    pub largest_gradient: f64,
    /// Whether that was small enough.
    pub converged: bool,
    step: f64,
    descending: bool,
}
brambling_program::payload!(LogisticModel, |model| model.weights.capacity()
    * size_of::<f64>());

impl Clone for LogisticModel {
    fn clone(&self) -> LogisticModel {
        let mut model = LogisticModel::default();
        model.clone_from(self);
        model
    }

    /// Keeps the buffer: a broadcast calls this for each partition and turn.
    fn clone_from(&mut self, from: &LogisticModel) {
        let weights = std::mem::take(&mut self.weights);
        *self = LogisticModel { weights, ..*from };
        self.weights.clone_from(&from.weights);
    }
}

/// The rule of an iteration.
#[derive(Clone, Copy, Default)]
struct Rule {
    c: f64,
    fit_intercept: bool,
    tol: f64,
    max_iter: u64,
    rows: f64,
}
brambling_program::payload!(Rule {
    c,
    fit_intercept,
    tol,
    max_iter,
    rows
});

fn set_step(
    &(columns, c, fit_intercept): &(usize, f64, bool),
    gram: &Gram,
    model: &mut LogisticModel,
) -> Result<(), KernelError> {
    model.step = step_size(gram, columns, c, fit_intercept)?;
    Ok(())
}

fn descend(rule: &Rule, gradient: &Gradient, model: &mut LogisticModel) -> Result<(), KernelError> {
    model.descend(&gradient.0, *rule)
}

impl LogisticModel {
    fn start(columns: usize, start: &[f64], max_iter: u64) -> LogisticModel {
        let mut weights = match start {
            [] => vec![0.0; columns + 1],
            start => start.to_vec(),
        };
        assert_eq!(weights.len(), columns + 1);
        let intercept = weights.pop().unwrap_or_default();
        LogisticModel {
            weights,
            intercept,
            descending: max_iter > 0,
            ..LogisticModel::default()
        }
    }

    fn is_descending(&self) -> bool {
        self.descending
    }

    /// One iteration, from the sums over all rows. A model that has converged is left as it is: it is the
    /// one whose gradient was seen.
    fn descend(&mut self, sums: &Partial, rule: Rule) -> Result<(), KernelError> {
        let towards = |sum: f64, weight: f64| rule.c.mul_add(sum, weight);
        let intercept = if rule.fit_intercept {
            towards(sums.intercept_gradient(), 0.0)
        } else {
            0.0
        };
        let mut largest = intercept.abs();
        let mut is_finite = intercept.is_finite();
        for (&sum, &weight) in sums.gradient().iter().zip(&self.weights) {
            let component = towards(sum, weight);
            is_finite &= component.is_finite();
            largest = largest.max(component.abs());
        }
        if !is_finite {
            return Err(refused(SamplesError::TooLarge));
        }
        self.iterations += 1;
        self.largest_gradient = largest / (rule.c * rule.rows);
        self.converged = rule.tol > 0.0 && self.largest_gradient <= rule.tol;
        self.descending = !self.converged && self.iterations < rule.max_iter;
        if !self.converged {
            let step = -self.step;
            for (weight, &sum) in self.weights.iter_mut().zip(sums.gradient()) {
                *weight = step.mul_add(towards(sum, *weight), *weight);
            }
            self.intercept = step.mul_add(intercept, self.intercept);
        }
        Ok(())
    }
}

/// X̃ᵀX̃ of some blocks, and the first value in them that cannot be used.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Gram {
    matrix: Vec<f64>,
    refusal: Option<SamplesError>,
}
brambling_program::payload!(Gram, |gram| gram.matrix.capacity() * size_of::<f64>());

impl Clone for Gram {
    fn clone(&self) -> Gram {
        Gram {
            matrix: self.matrix.clone(),
            refusal: self.refusal.clone(),
        }
    }

    fn clone_from(&mut self, from: &Gram) {
        self.matrix.clone_from(&from.matrix);
        self.refusal.clone_from(&from.refusal);
    }
}

impl Combine<Gram> for Sum {
    fn combine(&self, left: &mut Gram, right: &Gram) {
        add_into(simd::active(), &mut left.matrix, &right.matrix);
        if left.refusal.is_none() {
            left.refusal.clone_from(&right.refusal);
        }
    }
}

fn gram_of_block(block: SampleBlock<'_>, gram: &mut Gram) -> Work {
    let order = block.columns + 1;
    gram.matrix.resize(order * order, 0.0);
    let (isa, columns, out) = (simd::active(), block.columns, &mut gram.matrix);
    match block.weights {
        [] => gram_block(isa, block.x, columns, out),
        weights => weighted_gram_block(isa, block.x, weights, columns, out),
    }
    // A value that is not finite shows in the matrix.
    let finite = gram.matrix.iter().all(|value| value.is_finite());
    gram.refusal = block.refusal(2, finite);
    // Half of the products: the matrix is symmetric.
    block.work(order as u64, 0)
}

fn step_size(gram: &Gram, columns: usize, c: f64, fit_intercept: bool) -> Result<f64, KernelError> {
    if let Some(refusal) = &gram.refusal {
        return Err(refused(refusal.clone()));
    }
    let mut matrix = gram.matrix.clone();
    if !fit_intercept {
        // Without the column of ones: its row and column of zeros add an eigenvalue of 0.
        let order = columns + 1;
        for index in 0..order {
            matrix[index * order + columns] = 0.0;
            matrix[columns * order + index] = 0.0;
        }
    }
    let curvature = logistic_curvature_bound(simd::active(), &matrix, columns, c);
    if !curvature.is_finite() {
        return Err(refused(SamplesError::TooLarge));
    }
    Ok(1.0 / curvature)
}

/// The sums of some blocks.
#[derive(Debug)]
struct Gradient(Partial);

impl Default for Gradient {
    fn default() -> Gradient {
        Gradient(Partial::new(0))
    }
}

impl Clone for Gradient {
    fn clone(&self) -> Gradient {
        Gradient(self.0.clone())
    }

    /// Keeps the buffer: a reduction calls this for each block and turn.
    fn clone_from(&mut self, from: &Gradient) {
        self.reshape(from.0.gradient().len());
        self.0.values_mut().copy_from_slice(from.0.values());
    }
}

impl Gradient {
    fn reshape(&mut self, columns: usize) {
        if self.0.gradient().len() != columns {
            self.0 = Partial::new(columns);
        }
    }
}

impl Payload for Gradient {
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("Gradient")
    }

    fn heap_bytes(&self) -> usize {
        size_of_val(self.0.values())
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.0.values().len().encode(out);
        self.0.values().iter().for_each(|value| value.encode(out));
    }

    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let values = Vec::<f64>::decode(input)?;
        let Some(columns) = values.len().checked_sub(2) else {
            return Err(DecodeError::of::<Gradient>("fewer than two sums"));
        };
        let mut partial = Partial::new(columns);
        partial.values_mut().copy_from_slice(&values);
        Ok(Gradient(partial))
    }
    fn encode_some<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        cursor.encode_rows(self.0.values(), chunk)
    }
}

impl Combine<Gradient> for Sum {
    fn combine(&self, left: &mut Gradient, right: &Gradient) {
        add_into(simd::active(), left.0.values_mut(), right.0.values());
    }
}

fn gradient_of_block(
    block: SampleBlock<'_>,
    model: &LogisticModel,
    gradient: &mut Gradient,
) -> Work {
    gradient.reshape(block.columns);
    let rows = Labelled {
        x: block.x,
        y: block.y,
        columns: block.columns,
    };
    let model = Linear {
        weights: &model.weights,
        intercept: model.intercept,
    };
    let (isa, out) = (simd::active(), &mut gradient.0);
    match block.weights {
        [] => gradient_block(isa, rows, model, ComputeLoss::Skipped, out),
        weights => weighted_gradient_block(isa, rows, weights, model, out.values_mut()),
    }
    // Two multiply-adds for each value, and an exponential for each row.
    block.work(4, EXP_FLOPS)
}
