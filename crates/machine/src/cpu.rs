//! The processor as this process sees it: how many threads to run, its model and its caches.

use std::fs;
use std::io;

use crate::cgroup::{CgroupLimits, CpuQuota};
use crate::isa::IsaLevel;
use crate::pin;

/// The processor, and what this process may use of it.
#[derive(Clone, Debug)]
pub struct Processor {
    /// The model's name, where the system tells it.
    pub model: Option<String>,
    /// CPUs in the affinity mask, ascending.
    pub allowed: Vec<usize>,
    /// What the control groups allow.
    pub limits: CgroupLimits,
    /// The host's memory, in bytes, where the system tells it.
    pub memory_bytes: Option<u64>,
    /// The caches of the first allowed CPU, nearest first.
    pub caches: Vec<Cache>,
    /// The best instruction set.
    pub isa: IsaLevel,
}

/// A cache, as one CPU sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its distance from the core: 1 is nearest.
    pub level: u32,
    /// What it holds.
    pub holds: CacheHolds,
    /// Its size, in bytes.
    pub bytes: u64,
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheHolds {
    /// Data only.
    Data,
    /// Instructions only.
    Instructions,
    /// Both.
    Unified,
}

impl Processor {
    /// Asks the system. Fails only when the affinity mask cannot be read.
    pub fn read() -> io::Result<Processor> {
        let allowed = pin::allowed_cpus()?;
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let caches = allowed
            .first()
            .map(|&cpu| read_caches(cpu))
            .unwrap_or_default();
        Ok(Processor {
            model: parse_model(&text("/proc/cpuinfo")),
            limits: CgroupLimits::of_this_process(),
            memory_bytes: parse_kib_line(&text("/proc/meminfo"), "MemTotal:"),
            caches,
            isa: IsaLevel::detect(),
            allowed,
        })
    }

    /// How many threads to run when nothing is said: one per allowed CPU, but no more than the CPU
    /// quota rounded up.
    pub fn default_threads(&self) -> usize {
        default_threads(self.allowed.len(), self.limits.cpu_quota)
    }

    /// The memory this process may use: the host's or the control group's, whichever is less.
    pub fn usable_memory_bytes(&self) -> Option<u64> {
        self.memory_bytes
            .into_iter()
            .chain(self.limits.memory_bytes)
            .min()
    }
}

/// How many threads to run on `allowed_cpus` CPUs under `quota`; at least one.
pub fn default_threads(allowed_cpus: usize, quota: Option<CpuQuota>) -> usize {
    allowed_cpus
        .min(quota.map_or(usize::MAX, CpuQuota::cpus))
        .max(1)
}

/// The CPUs that `threads` pinned threads go to: those allowed in turn, from the first again when
/// there are more threads than CPUs.
pub fn places(threads: usize) -> io::Result<Vec<usize>> {
    Ok(pin::allowed_cpus()?
        .into_iter()
        .cycle()
        .take(threads)
        .collect())
}

fn parse_model(cpuinfo: &str) -> Option<String> {
    cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    })
}

/// The value in bytes of a line like `VmHWM:   1234 kB`.
pub(crate) fn parse_kib_line(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace()
        .next()?
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

fn read_caches(cpu: usize) -> Vec<Cache> {
    let read = |index: usize, file: &str| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{index}/{file}");
        fs::read_to_string(path).ok()
    };
    let mut caches: Vec<Cache> = (0..16)
        .map_while(|index| {
            Some((
                read(index, "level")?,
                read(index, "type")?,
                read(index, "size")?,
            ))
        })
        .filter_map(|(level, holds, size)| parse_cache(&level, &holds, &size))
        .collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

fn parse_cache(level: &str, holds: &str, size: &str) -> Option<Cache> {
    let holds = match holds.trim() {
        "Data" => CacheHolds::Data,
        "Instruction" => CacheHolds::Instructions,
        "Unified" => CacheHolds::Unified,
        _ => return None,
    };
    let size = size.trim();
    let (number, unit) = match (size.strip_suffix('K'), size.strip_suffix('M')) {
        (Some(number), _) => (number, 1 << 10),
        (None, Some(number)) => (number, 1 << 20),
        (None, None) => (size, 1),
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(unit)?;
    Some(Cache {
        level: level.trim().parse().ok()?,
        holds,
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_the_mask_capped_by_the_quota() {
        let quota = |quota_us| {
            Some(CpuQuota {
                quota_us,
                period_us: 100_000,
            })
        };
        assert_eq!(default_threads(8, None), 8);
        assert_eq!(default_threads(8, quota(250_000)), 3);
        assert_eq!(default_threads(2, quota(250_000)), 2);
        assert_eq!(default_threads(0, None), 1);
    }

    #[test]
    fn texts_of_the_system_are_parsed() {
        assert_eq!(
            parse_model("processor\t: 0\nmodel name\t: Some CPU @ 2.50GHz\n").as_deref(),
            Some("Some CPU @ 2.50GHz")
        );
        assert_eq!(parse_model("processor\t: 0\n"), None);
        assert_eq!(
            parse_kib_line("VmPeak:\t 9 kB\nVmHWM:\t  12 kB\n", "VmHWM:"),
            Some(12 << 10)
        );
        assert_eq!(parse_kib_line("VmPeak:\t 9 kB\n", "VmHWM:"), None);
        assert_eq!(
            parse_cache("2\n", "Unified\n", "2048K\n"),
            Some(Cache {
                level: 2,
                holds: CacheHolds::Unified,
                bytes: 2 << 20
            })
        );
        assert_eq!(parse_cache("2\n", "Unknown\n", "2048K\n"), None);
    }

    #[test]
    fn this_machine_can_be_read() {
        let processor = Processor::read().unwrap();
        assert!(!processor.allowed.is_empty());
        assert!((1..=processor.allowed.len()).contains(&processor.default_threads()));
    }

    #[test]
    fn places_wrap_around() {
        let allowed = pin::allowed_cpus().unwrap();
        let places = places(allowed.len() + 1).unwrap();
        assert_eq!(places.len(), allowed.len() + 1);
        assert_eq!(places[allowed.len()], allowed[0]);
    }
}
