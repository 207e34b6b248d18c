//! What is shown of a cluster, as lines.

use super::Snapshot;
use crate::deaths;
use crate::jobs::{state, tasks};
use crate::table::{cut, number, rows, shown};
use brambling::cluster::{JobDetails, JobId, JobState, LEFT_OUT_AFTER, StuckKernel, WorkerStatus};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Letters of a full bar.
const BAR: usize = 20;
/// The most letters of a name.
const NAME_MAX: usize = 32;

/// So many workers that were lost last are shown.
const DEATHS: usize = 3;

/// Tasks in a second, of jobs that were there before.
#[derive(Default)]
pub(super) struct Rates(BTreeMap<JobId, f64>);

impl Rates {
    pub(super) fn between(before: &Snapshot, now: &Snapshot) -> Rates {
        let seconds = now.taken.duration_since(before.taken).as_secs_f64();
        let then: BTreeMap<JobId, u64> = positions(before).collect();
        let rate = |(job, position): (JobId, u64)| {
            let tasks = position.saturating_sub(*then.get(&job)?);
            Some((job, tasks as f64 / seconds.max(f64::MIN_POSITIVE)))
        };
        Rates(positions(now).filter_map(rate).collect())
    }
}

fn positions(at: &Snapshot) -> impl Iterator<Item = (JobId, u64)> {
    let jobs = at.jobs.iter();
    jobs.map(|job| (job.status.id, job.status.position))
}

pub(super) fn lines(address: SocketAddr, now: &Snapshot, rates: &Rates) -> Vec<String> {
    let workers = &now.status.workers;
    let threads: u32 = workers.iter().map(|it| it.threads).sum();
    let running = of_state(&now.jobs, JobState::Running).count();
    let queued = of_state(&now.jobs, JobState::Queued).count();
    let term = match now.status.term {
        0 => String::new(),
        term => format!("; term {term}"),
    };
    let mut text = format!(
        "brambling at {address}: {} workers, {threads} threads; {running} jobs running, {queued} waiting{term}\n\n",
        workers.len()
    );
    let heads = [
        "WORKER", "HOST", "PID", "THREADS", "SHARDS", "MEMORY", "IDLE", "SILENT",
    ];
    let mut table = vec![heads.map(str::to_owned)];
    table.extend(workers.iter().map(worker));
    text += &rows(&table);
    for it in workers {
        let lines = it.stuck.iter().map(|kernel| stuck(it, kernel));
        text.extend(lines);
    }
    let last = now.status.deaths.iter().rev().take(DEATHS);
    text.extend(last.map(|it| deaths::line(it) + "\n"));
    text += "\n";
    let heads = [
        "JOB",
        "STATE",
        "NAME",
        "GENERATION",
        "TASKS",
        "TASKS/S",
        "SAVED",
        "WHOSE",
    ];
    let mut table = vec![heads.map(str::to_owned)];
    table.extend(in_order(&now.jobs).map(|it| job(it, rates)));
    text += &rows(&table);
    for it in &now.jobs {
        let waits = it.status.waits.iter();
        text.extend(waits.map(|why| format!("{} waits for {}\n", it.status.id, shown(why))));
    }
    text.lines().map(str::to_owned).collect()
}

fn of_state(jobs: &[JobDetails], state: JobState) -> impl Iterator<Item = &JobDetails> {
    jobs.iter().filter(move |job| job.status.state == state)
}

/// Those that run, those that wait, and those that are over, the last one first.
fn in_order(jobs: &[JobDetails]) -> impl Iterator<Item = &JobDetails> {
    let is_over =
        |job: &&JobDetails| matches!(job.status.state, JobState::Succeeded | JobState::Failed);
    let over = jobs.iter().rev().filter(is_over);
    let others = of_state(jobs, JobState::Running).chain(of_state(jobs, JobState::Queued));
    others.chain(over)
}

fn worker(it: &WorkerStatus) -> [String; 8] {
    [
        it.id.to_string(),
        cut(&shown(&it.host), NAME_MAX),
        it.pid.to_string(),
        it.threads.to_string(),
        it.shards.to_string(),
        bytes(it.memory_bytes),
        bar(it.idle_permille),
        silence(it.silent_ms),
    ]
}

/// A kernel that a worker cannot end.
fn stuck(at: &WorkerStatus, it: &StuckKernel) -> String {
    let kernel = match shown(&it.stage) {
        stage if stage.is_empty() => "a kernel".to_owned(),
        stage => format!("the kernel of stage `{}`", cut(&stage, NAME_MAX)),
    };
    format!(
        "{}: {kernel} of job {} runs on, {} s after the job's end\n",
        at.id, it.key, it.seconds
    )
}

fn job(it: &JobDetails, rates: &Rates) -> [String; 8] {
    let rate = rates.0.get(&it.status.id).copied();
    let rate = rate.filter(|_| it.status.state == JobState::Running);
    let client = it.client.as_ref();
    [
        it.status.id.to_string(),
        state(it.status.state).into(),
        cut(&shown(&it.status.name), NAME_MAX),
        it.status.generation.0.to_string(),
        tasks(it),
        rate.map_or_else(String::new, number),
        saved(it),
        client.map_or_else(String::new, |it| shown(&format!("{}@{}", it.user, it.host))),
    ]
}

/// How long ago a job that is not over was saved last.
fn saved(it: &JobDetails) -> String {
    let is_over = matches!(it.status.state, JobState::Succeeded | JobState::Failed);
    let age = it.status.snapshot_age_ms.filter(|_| !is_over);
    age.map_or_else(String::new, |ms| format!("{} s ago", ms / 1_000))
}

/// How long a worker has told nothing, where that is worth a word.
fn silence(silent_ms: u64) -> String {
    match Duration::from_millis(silent_ms) {
        so_long if so_long >= LEFT_OUT_AFTER => format!("{} s", so_long.as_secs()),
        _ => String::new(),
    }
}

/// A share as a bar, with its percents.
fn bar(permille: u16) -> String {
    let permille = usize::from(permille.min(1_000));
    let full = (permille * BAR + 500) / 1_000;
    let (full, empty) = ("█".repeat(full), "░".repeat(BAR - full));
    format!("{full}{empty} {:3} %", (permille + 5) / 10)
}

fn bytes(count: u64) -> String {
    if count < 1_024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1_024.0;
    for unit in ["KiB", "MiB", "GiB"] {
        if value < 1_024.0 {
            return format!("{} {unit}", number(value));
        }
        value /= 1_024.0;
    }
    format!("{} TiB", number(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling::cluster::{
        Client, Death, DeathKind, Generation, JobKey, JobStatus, Status, WorkerId,
    };
    use std::time::Instant;

    fn job(id: u64, state: JobState, position: u64, total: Option<u64>) -> JobDetails {
        let client = Client {
            user: "ada".into(),
            host: "node-7".into(),
            pid: 7,
            log: None,
        };
        JobDetails {
            status: JobStatus {
                id: JobId(id),
                name: "heat\n".into(),
                state,
                generation: serde_json::from_str("0").unwrap(),
                position,
                failure: None,
                cut: None,
                snapshot_age_ms: None,
                waits: None,
            },
            tasks_total: total,
            workers: vec![WorkerId(1)],
            client: Some(client),
        }
    }

    fn snapshot(jobs: Vec<JobDetails>, taken: Instant) -> Snapshot {
        let worker = WorkerStatus {
            id: WorkerId(1),
            pid: 4711,
            host: "node-7".into(),
            threads: 4,
            shards: 12,
            memory_bytes: 3 << 29,
            idle_permille: 254,
            stuck: vec![StuckKernel {
                key: JobKey::new(JobId(2), Generation(0)),
                stage: "step".into(),
                seconds: 12,
            }],
            silent_ms: 250,
        };
        let stopped = WorkerStatus {
            id: WorkerId(2),
            silent_ms: 12_700,
            stuck: Vec::new(),
            ..worker.clone()
        };
        let status = Status {
            workers: vec![worker, stopped],
            jobs: Vec::new(),
            term: 3,
            deaths: vec![Death {
                worker: WorkerId(3),
                host: "node-9".into(),
                pid: 4_712,
                kind: DeathKind::Signal(9),
                cause: "killed".into(),
                oom: Some(true),
                memory_bytes: 3 << 29,
                stage: Some("step".into()),
                partition: Some(3),
                silent_ms: 250,
                ago_ms: 61_000,
            }],
        };
        Snapshot {
            status,
            jobs,
            taken,
        }
    }

    #[test]
    fn what_runs_stands_first_and_with_its_rate() {
        let address = "10.0.0.7:7077".parse().unwrap();
        let start = Instant::now();
        let before = vec![
            job(1, JobState::Succeeded, 9, None),
            job(2, JobState::Failed, 3, None),
            job(3, JobState::Queued, 0, None),
            job(4, JobState::Running, 100, Some(1_000)),
        ];
        let mut after = before.clone();
        after[3].status.position = 350;
        after[3].status.snapshot_age_ms = Some(12_300);
        let before = snapshot(before, start);
        let after = snapshot(after, start + Duration::from_secs(2));
        let found = lines(address, &after, &Rates::between(&before, &after));
        let expected = [
            "brambling at 10.0.0.7:7077: 2 workers, 8 threads; 1 jobs running, 1 waiting; term 3",
            "",
            "WORKER  HOST    PID   THREADS  SHARDS  MEMORY    IDLE                        SILENT",
            "w1      node-7  4711  4        12      1.50 GiB  █████░░░░░░░░░░░░░░░  25 %",
            "w2      node-7  4711  4        12      1.50 GiB  █████░░░░░░░░░░░░░░░  25 %  12 s",
            "w1: the kernel of stage `step` of job j2 runs on, 12 s after the job's end",
            "w3 (process 4712 on node-9) is gone since 61 s: signal 9, for want of memory; it ran stage `step` of partition 3",
            "",
            "JOB  STATE      NAME  GENERATION  TASKS            TASKS/S  SAVED     WHOSE",
            "j4   running    heat  0           350/1000 (35 %)  125      12 s ago  ada@node-7",
            "j3   queued     heat  0           0                                   ada@node-7",
            "j2   failed     heat  0           3                                   ada@node-7",
            "j1   succeeded  heat  0           9                                   ada@node-7",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn bars_and_bytes_have_their_limits() {
        assert!(bar(0).starts_with("░░"), "{}", bar(0));
        assert!(bar(u16::MAX).ends_with("█ 100 %"), "{}", bar(u16::MAX));
        let found = [0, 1 << 10, 3 << 20, u64::MAX].map(bytes);
        assert_eq!(found, ["0 B", "1.00 KiB", "3.00 MiB", "16777216 TiB"]);
    }
}
