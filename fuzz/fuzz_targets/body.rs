//! Feeds the target `body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brambling_fuzz::body(bytes));
