//! Feeds the target `greeting`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brambling_fuzz::greeting(bytes));
