//! What happens to pieces and credits on their way: they are merged, handed on, forwarded and noted, each rule by itself.
//!
//! Catches pieces that wait where nobody merges them, are merged where their relay no longer is, or are sent to who has left, routes
//! that a frame lost, and credit that did not reach its source. That all of it holds together while frames are lost and shards move, the
//! simulated cluster checks.

mod broadcasts;
mod cluster;
mod combining;
mod credits;
mod relays;
mod room;
#[path = "../support/mod.rs"]
mod support;
mod words;
