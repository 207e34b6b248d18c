//! Feeds the target `cgroup`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brambling_fuzz::cgroup(bytes));
