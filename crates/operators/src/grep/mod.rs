//! Lines that match a pattern, in files of any size: the search, and the program that runs it.
//!
//! This module owns what a search asks for ([`query`]), which files it goes through ([`listing`]), how they are cut into
//! [`units`], the search of bytes as they come ([`lines`], [`decode`]), the stage that does it ([`lane`]), and how the
//! parts of a file are put together again ([`stitch`]). The engine's driver calls it. It prints nothing, and it never
//! decides where results go.
//!
//! A line belongs to the part of a file in which it begins. So parts are searched apart from each other, and the lines
//! found do not depend on where a file was cut.

pub mod decode;
pub mod lane;
pub mod lines;
pub mod listing;
pub mod query;
mod reading;
pub mod stitch;
pub mod units;

pub use reading::BLOCK_BYTES;
