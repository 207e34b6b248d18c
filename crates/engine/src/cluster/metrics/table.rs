//! The series there are. `docs/cluster-metrics.md` has the same table.

use super::text::{MetricFamily, MetricKind};

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricFamily {
    let kind = MetricKind::Counter;
    MetricFamily {
        name,
        kind,
        labels,
        help,
    }
}

const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> MetricFamily {
    let kind = MetricKind::Gauge;
    MetricFamily {
        name,
        kind,
        labels,
        help,
    }
}

/// Makes a static of each family, and lists them in order.
macro_rules! families {
    ($list:ident: $($static:ident = $family:expr;)*) => {
        $(pub(in crate::cluster) static $static: MetricFamily = $family;)*
        #[cfg(test)]
        static $list: &[&MetricFamily] = &[$(&$static),*];
    };
}

families! { EVERYWHERE:
    BUILD_INFO = gauge("brambling_build_info", &["version", "role"],
        "Always 1: the version of the package, and whether the process is a controller or a worker.");
    PROCESS_CPU_SECONDS = counter("process_cpu_seconds_total", &[],
        "CPU time that the process has used.");
    PROCESS_RESIDENT_MEMORY_BYTES = gauge("process_resident_memory_bytes", &[],
        "Memory of the process that is resident.");
    PROCESS_OPEN_FDS = gauge("process_open_fds", &[],
        "File descriptors that the process has open.");
    SENT_BYTES = counter("brambling_sent_bytes_total", &[],
        "Bytes written to links with other processes, greetings included.");
    SENT_FRAMES = counter("brambling_sent_frames_total", &[],
        "Frames given to links with other processes; what is sent again on a new link counts once more.");
    RECEIVED_BYTES = counter("brambling_received_bytes_total", &[],
        "Bytes read from links with other processes, greetings included.");
    RECEIVED_FRAMES = counter("brambling_received_frames_total", &[],
        "Frames that have come on links with other processes.");
    WORKER_INFO = gauge("brambling_worker_info", &["worker", "host"],
        "Always 1: a worker's name and its machine's. A worker tells it of itself once it has a name.");
}

families! { OF_CONTROLLERS:
    WORKERS = gauge("brambling_workers", &[],
        "Workers that take part.");
    WORKERS_LOST = counter("brambling_workers_lost_total", &[],
        "Workers that are gone without having been drained.");
    RECOVERIES = counter("brambling_recoveries_total", &[],
        "Times a job has begun again for what it had lost with a worker.");
    TERM = gauge("brambling_term", &[],
        "The controller's term; 0: the cluster does not outlive it.");
    JOB_GENERATION = gauge("brambling_job_generation", &["job"],
        "The generation of a job that is not over.");
    SNAPSHOT_AGE_SECONDS = gauge("brambling_job_last_snapshot_age_seconds", &["job"],
        "How long ago a job that is not over was saved.");
    SNAPSHOTS = counter("brambling_snapshots_total", &[],
        "Snapshots of jobs that were taken.");
    WORKER_THREADS = gauge("brambling_worker_threads", &["worker"],
        "Threads of a worker.");
    WORKER_SHARDS = gauge("brambling_worker_shards", &["worker"],
        "Shards that a worker holds.");
    WORKER_MEMORY_BYTES = gauge("brambling_worker_memory_bytes", &["worker"],
        "Bytes counted in a worker's memory budget, as it last told.");
    WORKER_MEMORY_LIMIT_BYTES = gauge("brambling_worker_memory_limit_bytes", &["worker"],
        "A worker's memory budget.");
    WORKER_IDLE_RATIO = gauge("brambling_worker_idle_ratio", &["worker"],
        "Share of a worker's threads' time in which no task ran, 0 to 1, as it last told.");
    WORKER_SILENCE_SECONDS = gauge("brambling_worker_silence_seconds", &["worker"],
        "How long ago a worker last told how it fares.");
    HEARTBEATS = counter("brambling_heartbeats_total", &[],
        "Heartbeats of workers that have come: each tells how it fares every 0.25 seconds.");
    HEARTBEATS_LATE = counter("brambling_heartbeats_late_total", &[],
        "Heartbeats that came half a second after the one before, or later.");
    HEARTBEATS_MISSED = counter("brambling_heartbeats_missed_total", &[],
        "Heartbeats that did not come when they were due, of workers that came back and of those that were lost.");
    JOBS = gauge("brambling_jobs", &["state"],
        "Jobs that are queued, and jobs that are running.");
    JOBS_SUBMITTED = counter("brambling_jobs_submitted_total", &[],
        "Jobs that clients have submitted.");
    JOBS_ENDED = counter("brambling_jobs_ended_total", &["result"],
        "Jobs that have succeeded, and jobs that have failed or were ended.");
    CLUSTER_TASKS = counter("brambling_cluster_tasks_total", &[],
        "Tasks that have run on workers, as they last told.");
    MOVES = counter("brambling_moves_total", &["outcome"],
        "Moves of shards that have arrived, and moves that were refused for want of memory.");
    MOVES_IN_FLIGHT = gauge("brambling_moves_in_flight", &[],
        "Shards that are on their way to another worker.");
    CONTROLLER_MESSAGES = counter("brambling_controller_messages_total", &["direction"],
        "Frames that the controller has received from workers and clients, and sent to them, greetings aside.");
}

families! { OF_WORKERS:
    TASKS = counter("brambling_tasks_total", &[],
        "Tasks that have run on this worker.");
    BUSY_SECONDS = counter("brambling_busy_seconds_total", &[],
        "Time in which this worker's threads were not idle, over all of them.");
    THREADS = gauge("brambling_threads", &[],
        "Threads of this worker.");
    HOSTED_JOBS = gauge("brambling_hosted_jobs", &[],
        "Jobs that this worker has, those that have ended and were not released yet included.");
    SHARDS = gauge("brambling_shards", &[],
        "Shards that this worker holds.");
    MEMORY_BYTES = gauge("brambling_memory_bytes", &[],
        "Bytes counted in this worker's memory budget.");
    MEMORY_LIMIT_BYTES = gauge("brambling_memory_limit_bytes", &[],
        "This worker's memory budget.");
    SPILLS = counter("brambling_spills_total", &[],
        "Pieces that this worker has written to its spill directory, since they found no room in memory.");
    SPILLED_BYTES = counter("brambling_spilled_bytes_total", &[],
        "Bytes of pieces that this worker has written to its spill directory.");
    SPILL_READS = counter("brambling_spill_reads_total", &[],
        "Pieces that this worker has read back from its spill directory.");
    SPILL_READ_BYTES = counter("brambling_spill_read_bytes_total", &[],
        "Bytes of pieces that this worker has read back from its spill directory.");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cluster-metrics.md");
    const BEGIN: &str = "<!-- from crates/engine/src/cluster/metrics/table.rs -->\n";
    const END: &str = "<!-- end -->\n";

    fn all() -> impl Iterator<Item = (&'static str, &'static MetricFamily)> {
        let of =
            |whose, list: &'static [&'static MetricFamily]| list.iter().map(move |it| (whose, *it));
        of("both", EVERYWHERE)
            .chain(of("controller", OF_CONTROLLERS))
            .chain(of("worker", OF_WORKERS))
    }

    fn page_table() -> String {
        let mut text = "| series | type | labels | of | what |\n|---|---|---|---|---|\n".to_owned();
        for (whose, family) in all() {
            let labels = family.labels.iter().map(|label| format!("`{label}`"));
            let labels = labels.collect::<Vec<_>>().join(", ");
            let MetricFamily {
                name, kind, help, ..
            } = family;
            let kind = kind.name();
            text += &format!("| `{name}` | {kind} | {labels} | {whose} | {help} |\n");
        }
        text
    }

    /// With UPDATE_EXPECT set the page's table is written anew.
    #[test]
    fn the_page_has_the_table_of_series() {
        let page = std::fs::read_to_string(PAGE).unwrap();
        let start = page.find(BEGIN).expect("where the table begins") + BEGIN.len();
        let end = start + page[start..].find(END).expect("where the table ends");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let page = page[..start].to_owned() + &page_table() + &page[end..];
            std::fs::write(PAGE, page).unwrap();
            return;
        }
        assert_eq!(
            page[start..end],
            page_table(),
            "UPDATE_EXPECT=1 cargo test --release -p brambling the_page_has_the_table writes docs/cluster-metrics.md"
        );
    }

    /// As Prometheus asks: counters end in `_total`, and nothing else does; units are base units.
    #[test]
    fn names_are_as_they_should_be() {
        let mut seen = BTreeSet::new();
        for (_, family) in all() {
            let MetricFamily {
                name,
                kind,
                labels,
                help,
            } = family;
            let is_plain = |it: char| it.is_ascii_lowercase() || it == '_';
            assert!(seen.insert(name), "{name} is there twice");
            assert!(name.chars().all(is_plain), "{name}");
            let is_ours = name.starts_with("brambling_") || name.starts_with("process_");
            assert!(is_ours, "{name}");
            assert_eq!(
                *kind == MetricKind::Counter,
                name.ends_with("_total"),
                "{name}"
            );
            assert!(labels.iter().all(|it| it.chars().all(is_plain)), "{name}");
            assert!(
                help.ends_with('.') && !help.contains(['\n', '\\', '|']),
                "{name}"
            );
        }
    }
}
