//! Feeds the target `program`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brambling_fuzz::program(bytes));
