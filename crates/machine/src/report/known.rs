//! Reports of jobs that ran here: what this machine can do is what its last probe said.

use super::{RandomRoof, Report, Roofs};
use crate::IsaLevel;
use crate::ledger::Ledger;
use crate::probes::disk::BestDisk;
use crate::profile::Profile;

impl Report {
    /// Judges what a job did by what the last probe of this machine said. Workers elsewhere are taken for machines alike. Without a
    /// probe, or with one that cannot be read, the report says so.
    pub fn of(ledger: Ledger) -> Report {
        let threads = threads(&ledger);
        match Profile::cached() {
            Ok(Some(profile)) => Report::new(ledger, &Roofs::of(&profile, threads)),
            Ok(None) => Report::new(ledger, &Roofs::default()),
            Err(error) => {
                let mut report = Report::new(ledger, &Roofs::default());
                report.notes.push(error.to_string());
                report
            }
        }
    }
}

impl Roofs {
    /// What a probed machine does with so many threads.
    pub fn of(profile: &Profile, threads: usize) -> Roofs {
        let mut sizes: Vec<u64> = profile.tables.iter().map(|it| it.table_bytes).collect();
        sizes.dedup();
        let random = sizes.into_iter().filter_map(|table_bytes| {
            let accesses_per_s = profile.random_accesses_per_s(table_bytes, threads)?;
            Some(RandomRoof {
                table_bytes,
                accesses_per_s,
            })
        });
        let best = |rate: fn(&BestDisk) -> f64| profile.disks.iter().map(rate).reduce(f64::max);
        Roofs {
            probed: true,
            memory_read_bytes_per_s: profile.memory_read_bytes_per_s(threads),
            memory_copy_bytes_per_s: profile.memory_copy_bytes_per_s(threads),
            random: random.collect(),
            flops_per_s: profile.flops_per_s(IsaLevel::detect(), threads),
            disk_read_bytes_per_s: best(|disk| disk.read.bytes_per_s.median()),
            disk_write_bytes_per_s: best(|disk| disk.write.bytes_per_s.median()),
            network_bytes_per_s: profile
                .network_bytes_per_s()
                .or_else(|| profile.loopback_bytes_per_s(1)),
        }
    }
}

/// The threads of the largest worker's pool.
fn threads(ledger: &Ledger) -> usize {
    let pools = ledger.workers.iter().map(super::ideal::pool_threads);
    pools.max().unwrap_or(1).max(1)
}
