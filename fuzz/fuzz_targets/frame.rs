//! Feeds the target `frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brambling_fuzz::frame(bytes));
