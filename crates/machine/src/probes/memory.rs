//! How much memory this process has had resident.

use std::fs;

use crate::cpu::parse_kib_line;

/// The most memory that was resident in this process at once since it started, or since
/// [`reset_peak_rss`]; `None` where the system does not tell. In bytes.
pub fn peak_rss_bytes() -> Option<u64> {
    parse_kib_line(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
}

/// The memory that is resident in this process now; `None` where the system does not tell. In bytes.
pub fn rss_bytes() -> Option<u64> {
    parse_kib_line(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Lets the peak start again from what is resident now. `false` where that is not allowed.
pub fn reset_peak_rss() -> bool {
    fs::write("/proc/self/clear_refs", "5").is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn the_peak_covers_what_was_touched() {
        let _ = reset_peak_rss();
        let touched = std::hint::black_box(vec![1u8; 32 << 20]);
        assert!(peak_rss_bytes().unwrap() >= touched.len() as u64);
        assert!(rss_bytes().unwrap() >= touched.len() as u64);
        drop(touched);
    }
}
