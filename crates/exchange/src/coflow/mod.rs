//! Coflows: the flows of one exchange, which is done when the last of them is (Chowdhury and Stoica).
//!
//! A reduce begins when all that it gathers has come, so what counts is when a whole coflow is done, not when each
//! flow is.
//!
//! * [`policy`] decides which coflow goes first: the schemes of the literature, and ours. They are the same here
//!   and where data moves.
//! * [`workload`] has coflows to try them on: traces, and ones that are made to be like them.
//! * [`simulate`] says how long each coflow takes under a policy, on a fabric of links that flows share.
//!
//! Nothing here does I/O but the reading of traces that are handed in as text.

mod ids;
pub mod policy;
pub mod simulate;
pub mod workload;

pub use ids::sub_coflow_id;
