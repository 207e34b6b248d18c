//! Reports of jobs that ran here: what this machine can do is what its last probe said.

use super::ideal::pool_threads;
use super::{RandomRoof, Report, Roofs};
use crate::IsaLevel;
use crate::ledger::Ledger;
use crate::probes::disk::BestDisk;
use crate::profile::Profile;
use std::collections::BTreeMap;

impl Report {
    /// Judges what a job did by what the last probe of this machine said. Workers elsewhere are taken for machines alike. Without a
    /// probe, or with one that cannot be read, the report says so.
    pub fn of(ledger: Ledger) -> Report {
        let threads = threads(&ledger);
        match Profile::cached() {
            Ok(Some(profile)) => {
                let roofs = Roofs::of(&profile, threads, is_on_one_host(&ledger));
                Report::new(ledger, &roofs)
            }
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
    /// What a probed machine does with so many threads. Workers on one host talk as its processes do; those on several, as hosts do where
    /// those were probed.
    pub fn of(profile: &Profile, threads: usize, is_on_one_host: bool) -> Roofs {
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
        let between = match is_on_one_host {
            true => None,
            false => profile.network_bytes_per_s(),
        };
        Roofs {
            probed: true,
            memory_read_bytes_per_s: profile.memory_read_bytes_per_s(threads),
            memory_copy_bytes_per_s: profile.memory_copy_bytes_per_s(threads),
            random: random.collect(),
            flops_per_s: profile.flops_per_s(IsaLevel::detect(), threads),
            disk_read_bytes_per_s: best(|disk| disk.read.bytes_per_s.median()),
            disk_write_bytes_per_s: best(|disk| disk.write.bytes_per_s.median()),
            network_bytes_per_s: between.or_else(|| profile.loopback_bytes_per_s(1)),
        }
    }
}

/// The threads that work on one host: where they are most. Workers of no known host have one of their own.
fn threads(ledger: &Ledger) -> usize {
    let mut hosts = BTreeMap::<(&str, usize), usize>::new();
    for (number, worker) in ledger.workers.iter().enumerate() {
        let alone = if worker.host.is_empty() { number } else { 0 };
        *hosts.entry((worker.host.as_str(), alone)).or_default() += pool_threads(worker);
    }
    hosts.into_values().max().unwrap_or(1).max(1)
}

fn is_on_one_host(ledger: &Ledger) -> bool {
    let mut hosts = ledger.workers.iter().map(|worker| &worker.host);
    let first = hosts.next();
    hosts.all(|host| Some(host) == first && !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{ThreadEntry, WorkerEntry};

    #[test]
    fn workers_of_one_address_are_on_one_host() {
        let ledger = |hosts: &[&str]| Ledger {
            workers: (hosts.iter())
                .map(|host| WorkerEntry {
                    host: (*host).to_owned(),
                    ..WorkerEntry::default()
                })
                .collect(),
            ..Ledger::default()
        };
        for (hosts, is_one) in [
            (&[""][..], true),
            (&["10.0.0.7"], true),
            (&["10.0.0.7", "10.0.0.7"], true),
            (&["10.0.0.7", "10.0.0.8"], false),
            (&["", ""], false),
        ] {
            assert_eq!(is_on_one_host(&ledger(hosts)), is_one, "{hosts:?}");
        }
    }

    #[test]
    fn threads_of_workers_on_one_host_work_together() {
        let ledger = |workers: &[(&str, usize)]| Ledger {
            workers: (workers.iter())
                .map(|(host, threads)| WorkerEntry {
                    host: (*host).to_owned(),
                    threads: vec![ThreadEntry::default(); *threads],
                    ..WorkerEntry::default()
                })
                .collect(),
            ..Ledger::default()
        };
        for (workers, expected) in [
            (&[("", 2)][..], 2),
            (&[("10.0.0.7", 1), ("10.0.0.7", 1)], 2),
            (&[("10.0.0.7", 1), ("10.0.0.8", 3), ("10.0.0.7", 1)], 3),
            (&[("", 4), ("", 4)], 4),
            (&[], 1),
        ] {
            assert_eq!(threads(&ledger(workers)), expected, "{workers:?}");
        }
    }
}
