//! `/metrics` for Prometheus: what a controller or a worker has counted, as text, by HTTP.
//!
//! Whoever asks shows no token, so nothing of what they send is trusted, and what they get holds no secret: numbers, names of workers and
//! their machines. Nothing is counted for metrics on the way of a task: a scrape reads what is counted anyway.

mod connection;
mod endpoint;
mod process;
mod request;
pub(super) mod table;
mod text;

pub use endpoint::{MetricsEndpoint, MetricsListener};
pub(super) use process::{carried, process};
pub(super) use text::Text;
