//! Feeds the target `payload`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brambling_fuzz::payload(bytes));
