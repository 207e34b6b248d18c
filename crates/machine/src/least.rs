//! The least time in which this machine can read a table and do a number of operations: what models and benches set their
//! iterations beside. What it needs of the machine it measures itself, once for each size of a table, and keeps.

use crate::IsaLevel;
use crate::cpu;
use crate::probes::{ReadLoop, flops_per_ns, read_bandwidth};
use crate::report::Resource;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Larger than what caches hold; a table beyond it is read no slower.
const LARGEST_BYTES: usize = 256 << 20;
const SMALLEST_BYTES: usize = 64 << 10;
/// The best of so many is taken.
const ROUNDS: u32 = 3;

/// A least time, and what decides it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeastTime {
    /// Seconds.
    pub seconds: f64,
    /// Memory bandwidth or arithmetic.
    pub bound_by: Resource,
}

/// The least seconds in which so many threads read so many bytes, as a table that is read whole, and do so many floating-point
/// operations at the same time. The first call for a size measures: a second at most.
///
/// # Errors
/// When the CPUs that may be used cannot be asked for.
pub fn least(read_bytes: f64, flops: f64, threads: usize) -> io::Result<LeastTime> {
    let memory = read_bytes / read_bytes_per_s(threads, read_bytes)?;
    let arithmetic = flops / flops_per_s(threads)?;
    Ok(match memory >= arithmetic {
        true => LeastTime {
            seconds: memory,
            bound_by: Resource::MemoryBandwidth,
        },
        false => LeastTime {
            seconds: arithmetic,
            bound_by: Resource::Arithmetic,
        },
    })
}

/// Bytes per second at which so many threads read a table of so many bytes again and again.
///
/// # Errors
/// As [`least`].
pub fn read_bytes_per_s(threads: usize, table_bytes: f64) -> io::Result<f64> {
    static MEASURED: Mutex<BTreeMap<(usize, usize), f64>> = Mutex::new(BTreeMap::new());
    let size = probed_bytes(table_bytes);
    known(&MEASURED, (threads, size), || {
        let places = cpu::places(threads)?;
        let table = vec![1.0f64; size / size_of::<f64>()];
        let rounds = (0..ROUNDS).flat_map(|_| ReadLoop::available());
        let rates = rounds.map(|read| read_bandwidth(read, &[&table], &places));
        // Measured per nanosecond.
        Ok(rates.fold(0.0, f64::max) * 1e9)
    })
}

/// Floating-point operations per second of so many threads, with the widest instructions that there are.
///
/// # Errors
/// As [`least`].
pub fn flops_per_s(threads: usize) -> io::Result<f64> {
    static MEASURED: Mutex<BTreeMap<usize, f64>> = Mutex::new(BTreeMap::new());
    known(&MEASURED, threads, || {
        let places = cpu::places(threads)?;
        Ok(flops_per_ns(IsaLevel::detect(), &places) * 1e9)
    })
}

fn known<K: Ord + Copy>(
    measured: &Mutex<BTreeMap<K, f64>>,
    key: K,
    measure: impl FnOnce() -> io::Result<f64>,
) -> io::Result<f64> {
    let mut measured = measured.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(rate) = measured.get(&key) {
        return Ok(*rate);
    }
    let rate = measure()?;
    measured.insert(key, rate);
    Ok(rate)
}

/// A power of two, so that few sizes are measured.
fn probed_bytes(bytes: f64) -> usize {
    (bytes as usize)
        .clamp(SMALLEST_BYTES, LARGEST_BYTES)
        .next_power_of_two()
        .min(LARGEST_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_sizes_are_measured() {
        for (bytes, probed) in [
            (8.0, 1 << 16),
            (65_536.0, 1 << 16),
            (65_537.0, 1 << 17),
            (1e12, 1 << 28),
        ] {
            assert_eq!(probed_bytes(bytes), probed);
        }
    }

    #[test]
    fn the_longer_of_both_decides() {
        let read = least(1e6, 1.0, 1).unwrap();
        assert_eq!(read.bound_by, Resource::MemoryBandwidth);
        assert_eq!(read.seconds, 1e6 / read_bytes_per_s(1, 1e6).unwrap());
        let computed = least(8.0, 1e12, 1).unwrap();
        assert_eq!(computed.bound_by, Resource::Arithmetic);
        assert_eq!(computed.seconds, 1e12 / flops_per_s(1).unwrap());
    }
}
