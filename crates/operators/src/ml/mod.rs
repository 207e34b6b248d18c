//! Kernels of statistical models.
#![allow(clippy::needless_range_loop)] // One index runs over several arrays of lanes.

pub mod columns;
pub mod distances;
pub mod k_means;
pub mod k_means_init;
pub mod lbfgs;
pub mod logistic;
pub mod logistic_lbfgs;
pub mod logistic_regression;
pub mod nearest;
pub mod samples;
pub mod softmax;
mod tile;
mod units;
