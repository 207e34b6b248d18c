//! Atomics: the standard library's, or loom's when the races are being enumerated.

#[cfg(brambling_loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(brambling_loom))]
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
