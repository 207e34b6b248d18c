//! Kernels of statistical models.

pub mod columns;
pub mod logistic;
