//! Feeds the target `map`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brambling_fuzz::map(bytes));
