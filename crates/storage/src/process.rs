//! What a process knows of itself: where it runs, and the most memory that it has had.

use std::fs;
use std::sync::OnceLock;

/// A name that no other process has at the same time, on this machine or another: of its host, the host's start, and its number.
pub fn process_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().into_owned();
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        format!("{host}/{}/{}", boot.trim(), std::process::id())
    })
}

/// The most bytes of memory that this process has had; 0 where the system does not say.
pub fn peak_rss_bytes() -> u64 {
    status_bytes("VmHWM:")
}

/// The bytes of memory that this process has; 0 where the system does not say.
pub fn rss_bytes() -> u64 {
    status_bytes("VmRSS:")
}

fn status_bytes(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_name_and_memory() {
        assert!(process_name().ends_with(&format!("/{}", std::process::id())));
        let before = peak_rss_bytes();
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        assert!(peak_rss_bytes() >= before + (32 << 20) || before > (256 << 20));
        // The system counts in steps.
        assert!((32 << 20..=peak_rss_bytes() + (8 << 20)).contains(&rss_bytes()));
        drop(touched);
    }
}
