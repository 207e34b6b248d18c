//! What a probe has found, as text.

use crate::table::{self, number};
use brambling_machine::Profile;
use brambling_machine::probes::disk::{BestDisk, DiskMode, DiskRate};
use brambling_machine::profile::{LoopbackRates, NetworkRates, PairRate};
use std::time::{SystemTime, UNIX_EPOCH};

/// Names of noisy figures that are told; the rest is counted.
const TOLD: usize = 6;

type Row = [String; 3];

/// The figures: JSON with every one, or those of one and of all threads.
pub(super) fn text(profile: &Profile, json: bool) -> String {
    if json {
        return serde_json::to_string(profile).expect("a profile has only text and numbers") + "\n";
    }
    let machine = &profile.machine;
    let mut text = format!(
        "{}   {} CPUs   {}\n",
        machine.host, machine.cpus, machine.cpu
    );
    for disk in &profile.disks {
        text.push_str(&format!(
            "disk of {} ({})\n",
            disk.dir.display(),
            mode(disk.mode)
        ));
        text.push_str(&rows(&of_disk(disk)));
    }
    section(&mut text, "memory", of_memory(profile));
    section(
        &mut text,
        "independent reads at random places of a table",
        of_tables(profile),
    );
    section(&mut text, "flops of f64", of_flops(profile));
    if let Some(loopback) = &profile.loopback {
        let title = format!("within this host ({})", loopback.congestion);
        section(&mut text, &title, of_loopback(loopback));
    }
    if let Some(network) = &profile.network {
        text.push_str(&of_network(network));
    }
    text
}

/// Rows below their title.
fn rows<const N: usize>(of: &[[String; N]]) -> String {
    table::rows(of)
        .lines()
        .map(|line| format!("  {line}\n"))
        .collect()
}

fn section(text: &mut String, title: &str, found: Vec<Row>) {
    if !found.is_empty() {
        text.push_str(&format!("{title}\n{}", rows(&found)));
    }
}

/// What was too noisy, and what was measured again; none where the machine was calm.
pub(super) fn noise(profile: &Profile) -> Option<String> {
    let (noisy, repeated) = (profile.noisy(), profile.repeated());
    let mut text = Vec::new();
    if !repeated.is_empty() {
        text.push(format!(
            "measured again, since rounds lay too far apart, and then agreed: {}",
            list(&repeated)
        ));
    }
    if !noisy.is_empty() {
        text.push(format!(
            "warning: the machine was too busy for these figures to be believed: {}; probe again when nothing else runs",
            list(&noisy)
        ));
    }
    (!text.is_empty()).then(|| text.join("\n"))
}

fn list(names: &[String]) -> String {
    match names.len() {
        count if count <= TOLD => names.join(", "),
        count => format!(
            "{}, and {}",
            names[..TOLD].join(", "),
            self::count(count - TOLD, "other")
        ),
    }
}

/// How long ago a profile was measured.
pub(crate) fn age(measured_at: u64) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |it| it.as_secs());
    match now.saturating_sub(measured_at) {
        seconds if seconds < 3_600 => format!("{} min ago", seconds / 60),
        seconds if seconds < 48 * 3_600 => format!("{} h ago", seconds / 3_600),
        seconds => format!("{} days ago", seconds / (24 * 3_600)),
    }
}

fn mode(mode: DiskMode) -> &'static str {
    match mode {
        DiskMode::Direct => "O_DIRECT",
        DiskMode::Cold => "no O_DIRECT here: synced, and forgotten before it is read",
        DiskMode::Memory => "it lies in memory: there is no disk",
    }
}

fn of_disk(disk: &BestDisk) -> [Row; 2] {
    let row = |name: &str, rate: &DiskRate| {
        let how = format!(
            "{} of {} MB blocks",
            count(rate.streams, "stream"),
            rate.block_bytes >> 20
        );
        [name.to_owned(), bytes_per_s(rate.bytes_per_s.median()), how]
    };
    [row("read", &disk.read), row("write", &disk.write)]
}

/// The rows of one thread and of all.
fn of_one_and_all<T>(
    name: &str,
    all: &[T],
    threads: impl Fn(&T) -> usize,
    told: impl Fn(&T) -> String,
) -> Option<Row> {
    let first = all.iter().min_by_key(|it| threads(it))?;
    let last = all.iter().max_by_key(|it| threads(it))?;
    let one = |it: &T| format!("{} by {}", told(it), count(threads(it), "thread"));
    let last = match threads(last) == threads(first) {
        true => String::new(),
        false => one(last),
    };
    Some([name.to_owned(), one(first), last])
}

fn of_memory(profile: &Profile) -> Vec<Row> {
    let all = &profile.memory;
    let row = |name, rate: fn(&brambling_machine::profile::MemoryRate) -> f64| {
        of_one_and_all(name, all, |it| it.threads, |it| bytes_per_s(rate(it)))
    };
    let read = row("read", |it| it.read_bytes_per_s.median());
    let copy = row("copy", |it| it.copy_bytes_per_s.median());
    read.into_iter().chain(copy).collect()
}

fn of_tables(profile: &Profile) -> Vec<Row> {
    let mut sizes: Vec<u64> = profile.tables.iter().map(|it| it.table_bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let of = |bytes: u64| {
        let of_size: Vec<_> = profile
            .tables
            .iter()
            .filter(|it| it.table_bytes == bytes)
            .collect();
        let told = |rate: f64| format!("{} million/s", number(rate / 1e6));
        of_one_and_all(
            &size(bytes),
            &of_size,
            |it| it.threads,
            |it| told(it.accesses_per_s.median()),
        )
    };
    sizes.into_iter().filter_map(of).collect()
}

fn of_flops(profile: &Profile) -> Vec<Row> {
    let mut sets: Vec<_> = profile.flops.iter().map(|it| it.isa).collect();
    sets.dedup();
    let of = |isa| {
        let of_set: Vec<_> = profile.flops.iter().filter(|it| it.isa == isa).collect();
        let told = |rate: f64| format!("{} GFLOP/s", number(rate / 1e9));
        of_one_and_all(
            isa.name(),
            &of_set,
            |it| it.threads,
            |it| told(it.flops_per_s.median()),
        )
    };
    sets.into_iter().filter_map(of).collect()
}

fn of_loopback(loopback: &LoopbackRates) -> Vec<Row> {
    let flows = loopback.flows.iter().map(|it| {
        let (flows, rate) = (
            count(it.flows, "flow"),
            bytes_per_s(it.bytes_per_s.median()),
        );
        [flows, rate, String::new()]
    });
    let trip = format!("{} µs", number(loopback.messages.round_trip_us));
    let message = ["64 bytes there and back".to_owned(), trip, String::new()];
    flows.chain([message]).collect()
}

fn of_network(network: &NetworkRates) -> String {
    let between = |it: &PairRate| format!("{} to {}", network.hosts[it.from], network.hosts[it.to]);
    let row = |it: &PairRate| [between(it), bytes_per_s(it.bytes_per_s.median())];
    let mut names = network.congestion.clone();
    names.sort();
    names.dedup();
    let mut text = format!(
        "between {} hosts, each pair by itself ({})\n",
        network.hosts.len(),
        names.join(", ")
    );
    text.push_str(&rows(&network.pairs.iter().map(row).collect::<Vec<_>>()));
    text.push_str("all to all at once\n");
    if let Some((slowest, fastest)) = network.extremes() {
        let row = |name: &str, it| [name.to_owned(), bytes_per_s(it_rate(it)), between(it)];
        text.push_str(&rows(&[
            row("slowest flow", slowest),
            row("fastest flow", fastest),
        ]));
    }
    if !network.disks_at_once.is_empty() {
        text.push_str("disks of all hosts at once\n");
        let row = |it: &brambling_machine::profile::HostDisk| {
            let (read, write) = (it.read_bytes_per_s.median(), it.write_bytes_per_s.median());
            let name = format!("{} on {}", it.dir, network.hosts[it.host]);
            [
                name,
                format!("read {}", bytes_per_s(read)),
                format!("write {}", bytes_per_s(write)),
            ]
        };
        text.push_str(&rows(
            &network.disks_at_once.iter().map(row).collect::<Vec<_>>(),
        ));
    }
    text
}

fn it_rate(flow: &PairRate) -> f64 {
    flow.bytes_per_s.median()
}

fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 => format!("{} GB", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{} MB", bytes >> 20),
        bytes => format!("{} KB", bytes >> 10),
    }
}

/// In decimal units.
fn bytes_per_s(rate: f64) -> String {
    match rate {
        rate if rate >= 1e9 => format!("{} GB/s", number(rate / 1e9)),
        rate => format!("{} MB/s", number(rate / 1e6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_and_sizes_have_units_that_fit() {
        assert_eq!(
            [12.34e9, 1e9, 999e6, 1.5e6].map(bytes_per_s),
            ["12.3 GB/s", "1.00 GB/s", "999 MB/s", "1.50 MB/s"]
        );
        assert_eq!(
            [32 << 10, 2 << 20, 1 << 30].map(size),
            ["32 KB", "2 MB", "1 GB"]
        );
        assert_eq!([count(1, "flow"), count(2, "flow")], ["1 flow", "2 flows"]);
    }

    #[test]
    fn what_is_old_is_told_in_days() {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        assert_eq!(age(now - 5), "0 min ago");
        assert_eq!(age(now - 7_200), "2 h ago");
        assert_eq!(age(now - 3 * 24 * 3_600), "3 days ago");
        // A clock that was set back.
        assert_eq!(age(now + 100), "0 min ago");
    }

    #[test]
    fn of_many_noisy_figures_some_are_named() {
        let names: Vec<String> = (0..9).map(|it| format!("n{it}")).collect();
        assert_eq!(list(&names), "n0, n1, n2, n3, n4, n5, and 3 others");
        assert_eq!(list(&names[..2]), "n0, n1");
    }
}
