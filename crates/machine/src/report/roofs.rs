//! What a machine can do at most, as its probes said. Nothing is measured here.

use serde::{Deserialize, Serialize};

/// What each machine of a job can do with the threads that the job used there. What nobody probed is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Roofs {
    /// Whether probes measured these, and not the job itself.
    pub probed: bool,
    /// Memory read in order, in bytes per second.
    pub memory_read_bytes_per_s: Option<f64>,
    /// Memory copied in order, in bytes per second: those read and those written.
    pub memory_copy_bytes_per_s: Option<f64>,
    /// Memory read out of order, by the size of the table that the places lie in.
    pub random: Vec<RandomRoof>,
    /// Floating-point operations per second; a fused multiply-add is two.
    pub flops_per_s: Option<f64>,
    /// Read from the disk, in bytes per second.
    pub disk_read_bytes_per_s: Option<f64>,
    /// Written to the disk, in bytes per second.
    pub disk_write_bytes_per_s: Option<f64>,
    /// Sent to other processes, in bytes per second, while as much is received.
    pub network_bytes_per_s: Option<f64>,
}

/// How many places of a table a machine reads per second, out of order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RandomRoof {
    /// The table's size in bytes.
    pub table_bytes: u64,
    /// Places read per second.
    pub accesses_per_s: f64,
}

impl Roofs {
    /// What memory streams at most, in bytes per second. Whether a stage reads or writes is not counted, so this is the higher of the two.
    pub fn memory(&self) -> Option<f64> {
        let read = positive(self.memory_read_bytes_per_s);
        let copy = positive(self.memory_copy_bytes_per_s);
        match (read, copy) {
            (Some(read), Some(copy)) => Some(read.max(copy)),
            _ => read.or(copy),
        }
    }

    /// Places per second in a table of so many bytes, between the two probed sizes beside it.
    pub fn random_at(&self, table_bytes: u64) -> Option<f64> {
        let mut probed: Vec<_> = self
            .random
            .iter()
            .filter(|roof| positive(Some(roof.accesses_per_s)).is_some())
            .collect();
        probed.sort_by_key(|roof| roof.table_bytes);
        let above = probed.partition_point(|roof| roof.table_bytes < table_bytes);
        let (first, last) = (probed.first()?, probed.last()?);
        if above == 0 {
            return Some(first.accesses_per_s);
        }
        let Some(large) = probed.get(above) else {
            return Some(last.accesses_per_s);
        };
        let small = probed[above - 1];
        let log = |bytes: u64| (bytes.max(1) as f64).log2();
        // Caches are left one after the other as a table doubles, so sizes count by their logarithm.
        let way = (log(table_bytes) - log(small.table_bytes))
            / (log(large.table_bytes) - log(small.table_bytes));
        Some(small.accesses_per_s + way * (large.accesses_per_s - small.accesses_per_s))
    }
}

/// A rate that something can be divided by.
pub(super) fn positive(rate: Option<f64>) -> Option<f64> {
    rate.filter(|rate| rate.is_finite() && *rate > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_between_two_probed_sizes() {
        let random = |table_bytes, accesses_per_s| RandomRoof {
            table_bytes,
            accesses_per_s,
        };
        let roofs = Roofs {
            random: vec![random(1 << 24, 100.0), random(1 << 20, 400.0)],
            ..Roofs::default()
        };
        assert_eq!(roofs.random_at(1 << 10), Some(400.0));
        assert_eq!(roofs.random_at(1 << 22), Some(250.0));
        assert_eq!(roofs.random_at(1 << 30), Some(100.0));
        assert_eq!(Roofs::default().random_at(1 << 30), None);
    }

    #[test]
    fn a_rate_of_nothing_is_no_roof() {
        let roofs = Roofs {
            memory_read_bytes_per_s: Some(0.0),
            memory_copy_bytes_per_s: Some(f64::NAN),
            ..Roofs::default()
        };
        assert_eq!(roofs.memory(), None);
        assert_eq!(
            Roofs {
                memory_copy_bytes_per_s: Some(2.0),
                ..roofs
            }
            .memory(),
            Some(2.0)
        );
    }
}
