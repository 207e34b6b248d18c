//! What probes have found out about a host: speeds of its disks, memory, arithmetic and network, by size and by threads.
//!
//! [`Profile::measure`] runs the probes, [`Profile::save`] and [`Profile::cached`] keep what they found in a file for each host, and the
//! lookups say what a report asks: how fast memory can be read by so many threads, for example. A lookup of what was not measured is `None`.

mod cache;
mod lookup;
mod measuring;

pub use cache::{ProfileError, cache_path};
pub use measuring::{MeasureError, Measuring, ProbePart};

use crate::cpu::Processor;
use crate::isa::IsaLevel;
use crate::network::Loopback;
use crate::probes::disk::BestDisk;
use crate::probes::settled::Settled;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;

/// The version of the file.
pub const VERSION: u32 = 1;

/// What probes have found out about one host. Its keys are stable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// The version of this form: [`VERSION`].
    pub version: u32,
    /// Whose it is.
    #[serde(flatten)]
    pub machine: MachineName,
    /// When something of it was last measured, in seconds since 1970.
    pub measured_at: u64,
    /// One for each directory.
    pub disks: Vec<BestDisk>,
    /// By threads, ascending.
    pub memory: Vec<MemoryRate>,
    /// By threads and the table's size, ascending.
    pub tables: Vec<TableRate>,
    /// By instruction set and threads, ascending.
    pub flops: Vec<FlopRate>,
    /// Within the host.
    pub loopback: Option<LoopbackRates>,
    /// Between hosts, where they were probed.
    pub network: Option<NetworkRates>,
}

/// What tells a host from another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineName {
    /// Its name.
    pub host: String,
    /// The model of its CPU; empty where the system does not tell.
    pub cpu: String,
    /// How many CPUs it has.
    pub cpus: usize,
}

/// How fast memory is, read and copied in order by threads at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryRate {
    /// How many threads.
    pub threads: usize,
    /// All threads together.
    pub read_bytes_per_s: Settled,
    /// All threads together; a byte counts when it is read and when it is written.
    pub copy_bytes_per_s: Settled,
}

/// How fast independent reads at random places of a table are.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableRate {
    /// How many threads read it at once.
    pub threads: usize,
    /// The table's size.
    pub table_bytes: u64,
    /// All threads together.
    pub accesses_per_s: Settled,
}

/// How fast arithmetic of f64 is, in registers. A multiply-add counts as two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlopRate {
    /// With which instructions.
    pub isa: IsaLevel,
    /// How many threads.
    pub threads: usize,
    /// All threads together.
    pub flops_per_s: Settled,
}

/// The network within a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoopbackRates {
    /// The congestion control in use, such as "cubic".
    pub congestion: String,
    /// Small messages.
    pub messages: Loopback,
    /// By the number of flows at once, ascending.
    pub flows: Vec<FlowRate>,
}

/// TCP flows at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowRate {
    /// How many.
    pub flows: usize,
    /// Of all together.
    pub bytes_per_s: Settled,
}

/// The network between hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NetworkRates {
    /// The congestion control in use on each, in the order of `hosts`.
    pub congestion: Vec<String>,
    /// Their addresses.
    pub hosts: Vec<String>,
    /// Each pair by itself, in both directions one after the other.
    pub pairs: Vec<PairRate>,
    /// All pairs at once.
    pub all_to_all: Vec<PairRate>,
    /// The disks that the hosts were started with, all at once.
    pub disks_at_once: Vec<HostDisk>,
}

/// A flow from one host to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PairRate {
    /// The index of the sender in [`NetworkRates::hosts`].
    pub from: usize,
    /// The index of the receiver.
    pub to: usize,
    /// As the receiver has counted.
    pub bytes_per_s: Settled,
}

/// A host's disk while those of all hosts are at work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostDisk {
    /// The index in [`NetworkRates::hosts`].
    pub host: usize,
    /// As that host calls it.
    pub dir: String,
    /// Synced.
    pub write_bytes_per_s: Settled,
    /// From the disk.
    pub read_bytes_per_s: Settled,
}

impl Profile {
    /// A profile of this host without any measurement.
    ///
    /// # Errors
    /// When the system does not tell which CPUs there are.
    pub fn empty() -> std::io::Result<Profile> {
        Ok(Profile {
            version: VERSION,
            machine: MachineName::of_this_host()?,
            measured_at: now(),
            disks: Vec::new(),
            memory: Vec::new(),
            tables: Vec::new(),
            flops: Vec::new(),
            loopback: None,
            network: None,
        })
    }

    /// Takes over what `newer` has measured, and keeps the rest: disks by their directory, the others as a whole.
    pub fn merge(&mut self, newer: Profile) {
        self.measured_at = newer.measured_at;
        for disk in newer.disks {
            self.disks.retain(|it| it.dir != disk.dir);
            self.disks.push(disk);
        }
        fn take<T>(old: &mut Vec<T>, newer: Vec<T>) {
            if !newer.is_empty() {
                *old = newer;
            }
        }
        take(&mut self.memory, newer.memory);
        take(&mut self.tables, newer.tables);
        take(&mut self.flops, newer.flops);
        self.loopback = newer.loopback.or(self.loopback.take());
        self.network = newer.network.or(self.network.take());
    }

    /// What was too noisy to be believed, in words; empty where the machine was calm.
    pub fn noisy(&self) -> Vec<String> {
        self.settled()
            .filter(|(_, settled)| settled.noisy)
            .map(|(name, _)| name)
            .collect()
    }

    /// What was measured again because its rounds lay too far apart, and then agreed; in words.
    pub fn repeated(&self) -> Vec<String> {
        self.settled()
            .filter(|(_, settled)| settled.repeated > 0 && !settled.noisy)
            .map(|(name, _)| name)
            .collect()
    }

    /// All figures of several rounds, each with what it is of.
    fn settled(&self) -> impl Iterator<Item = (String, Settled)> {
        let disks = self.disks.iter().flat_map(|it| {
            let dir = it.dir.display();
            let (read, write) = (it.read.bytes_per_s, it.write.bytes_per_s);
            [
                (format!("reading {dir}"), read),
                (format!("writing {dir}"), write),
            ]
        });
        let memory = self.memory.iter().flat_map(|it| {
            let by = format!("memory by {}", threads(it.threads));
            let (read, copy) = (it.read_bytes_per_s, it.copy_bytes_per_s);
            [
                (format!("reading {by}"), read),
                (format!("copying {by}"), copy),
            ]
        });
        let tables = self.tables.iter().map(|it| {
            let (bytes, by) = (it.table_bytes >> 10, threads(it.threads));
            (format!("a table of {bytes} KB by {by}"), it.accesses_per_s)
        });
        let flops = self.flops.iter().map(|it| {
            let by = threads(it.threads);
            (format!("flops of {} by {by}", it.isa), it.flops_per_s)
        });
        let flows = self.loopback.iter().flat_map(|it| &it.flows);
        let flows = flows.map(|it| (format!("{} loopback flows", it.flows), it.bytes_per_s));
        let pairs = self.network.iter().flat_map(NetworkRates::settled);
        let all = disks.chain(memory).chain(tables).chain(flops);
        let all = all.chain(flows).chain(pairs);
        all.collect::<Vec<_>>().into_iter()
    }
}

impl NetworkRates {
    /// The slowest and the fastest flow when all hosts send to all.
    pub fn extremes(&self) -> Option<(&PairRate, &PairRate)> {
        let by = |a: &&PairRate, b: &&PairRate| {
            a.bytes_per_s.median().total_cmp(&b.bytes_per_s.median())
        };
        let flows = || self.all_to_all.iter();
        Some((flows().min_by(by)?, flows().max_by(by)?))
    }

    fn settled(&self) -> Vec<(String, Settled)> {
        let between = |it: &PairRate| format!("{} to {}", self.hosts[it.from], self.hosts[it.to]);
        let pairs = self.pairs.iter().map(|it| (between(it), it.bytes_per_s));
        let at_once = |it| {
            (
                format!("{} when all send to all", between(it)),
                it.bytes_per_s,
            )
        };
        let at_once = self.all_to_all.iter().map(at_once);
        let disks = self.disks_at_once.iter().flat_map(|it| {
            let disk = format!("{} on {}, all hosts at once", it.dir, self.hosts[it.host]);
            [
                (format!("writing {disk}"), it.write_bytes_per_s),
                (format!("reading {disk}"), it.read_bytes_per_s),
            ]
        });
        pairs.chain(at_once).chain(disks).collect()
    }

    /// Whether every index is that of a host.
    fn is_whole(&self) -> bool {
        let flows = self.pairs.iter().chain(&self.all_to_all);
        let mut hosts = flows
            .flat_map(|it| [it.from, it.to])
            .chain(self.disks_at_once.iter().map(|it| it.host));
        hosts.all(|it| it < self.hosts.len())
    }
}

impl MachineName {
    /// The host that this process runs on.
    ///
    /// # Errors
    /// When the system does not tell which CPUs there are.
    pub fn of_this_host() -> std::io::Result<MachineName> {
        let processor = Processor::read()?;
        Ok(MachineName {
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            cpu: processor.model.clone().unwrap_or_default(),
            // Those of the host, not those that this process may use: a process that is bound to some of them is on the same host.
            cpus: host_cpus().unwrap_or(processor.allowed.len()),
        })
    }
}

/// How many CPUs the host has; none where the system does not tell.
fn host_cpus() -> Option<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    cpus_in(text.trim())
}

/// The CPUs in a list such as "0-3,8".
fn cpus_in(list: &str) -> Option<usize> {
    let count = |range: &str| match range.split_once('-') {
        Some((first, last)) => {
            let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
            (last + 1).checked_sub(first)
        }
        None => range.parse::<usize>().ok().map(|_| 1),
    };
    list.split(',').map(count).sum()
}

fn threads(count: usize) -> String {
    match count {
        1 => "1 thread".into(),
        count => format!("{count} threads"),
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    // A clock before 1970 is set wrong, and a date is all that suffers.
    since.map_or(0, |it| it.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!(cpus_in("0-3,8"), Some(5));
        assert_eq!(cpus_in("0"), Some(1));
        assert_eq!(cpus_in(""), None);
        assert_eq!(cpus_in("3-x"), None);
    }

    #[test]
    fn what_is_measured_again_takes_the_place_of_what_was() {
        let (mut old, one) = (lookup::tests::sample(), lookup::tests::sample());
        let mut newer = Profile::empty().unwrap();
        newer.memory = one.memory[..1].to_vec();
        newer.disks = one.disks.clone();
        newer.disks[0].dir = "/elsewhere".into();
        old.merge(newer);
        assert_eq!(old.memory, one.memory[..1]);
        assert_eq!((old.disks.len(), &old.tables), (2, &one.tables));
        old.merge(one.clone());
        assert_eq!((old.disks.len(), old.memory), (2, one.memory));
    }

    #[test]
    fn what_was_too_noisy_has_a_name() {
        let mut profile = lookup::tests::sample();
        assert_eq!(profile.noisy(), [""; 0]);
        profile.memory[1].copy_bytes_per_s.noisy = true;
        profile.tables[0].accesses_per_s.repeated = 1;
        assert_eq!(profile.noisy(), ["copying memory by 2 threads"]);
        assert_eq!(profile.repeated(), ["a table of 32 KB by 1 thread"]);
    }
}
