//! What a sort computes: keys, parts, order, merging, checking.
//!
//! A record is a slice of bytes, and a [`RecordFormat`] says where it ends and what of it is the
//! key. Everything here works on whole records that lie one after another in blocks of bytes. The
//! programs that sort files drive it; nothing in this folder opens a file, starts a thread, reads a
//! clock or waits.
//!
//! Every order is stable, records with equal keys stay as they came, unless it is asked for as
//! unstable: what stability costs is measured so.

mod arena;
mod check;
mod decimal;
mod entries;
pub mod extent;
mod format;
mod generate;
pub mod job;
mod layout;
mod line_key;
mod merge;
mod partition;
mod radix;
mod splitters;
mod text;
mod zipf;

pub use arena::{Arena, SortedRecords};
pub use check::{OrderCheck, OrderFault, RecordSummary, TruncatedRecord};
pub use format::{FormatError, LineOrder, RecordFormat, RecordJoiner};
pub use generate::{RecordMaker, RecordMakerError, Skew};
pub use line_key::LineKey;
pub use merge::{Merge, MergeStep};
pub use partition::PartBuffers;
pub use splitters::{HeavyKey, KeySamples, Splitters};
pub use text::TextMaker;
