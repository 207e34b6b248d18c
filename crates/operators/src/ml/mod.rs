//! Kernels of statistical models.
#![allow(clippy::needless_range_loop)] // One index runs over several arrays of lanes.

pub mod columns;
pub mod distances;
pub mod k_means;
pub mod k_means_init;
pub mod lbfgs;
pub mod linear_regression;
pub mod logistic;
pub mod logistic_lbfgs;
pub mod logistic_regression;
pub mod logistic_weighted;
pub mod model;
pub mod moments;
pub mod nearest;
pub mod samples;
pub mod softmax;
pub mod standard_scaler;
mod tile;
mod triangle;
mod units;
