//! `brambling jobs` and `brambling cancel`: the jobs of a cluster.

use crate::cluster::{JobLine, Where, fail};
use crate::shards::{Looks, connect, job, tell};
use crate::table::{self, shown};
use crate::{Host, OK, Streams};
use brambling::cluster::{Client, Cluster, ClusterError, JobDetails, JobId, JobState};
use serde::Serialize;
use std::time::Duration;

/// The most letters of a failure in the table.
const FAILURE_MAX: usize = 72;

#[derive(clap::Args)]
pub(crate) struct JobsArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: Where,
}

#[derive(clap::Args)]
pub(crate) struct CancelArguments {
    /// A job, as `brambling jobs` names it
    #[arg(value_name = "JOB", value_parser = job)]
    job: JobId,
    /// How long to wait until it is over
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    patience: u32,
    #[command(flatten)]
    at: Where,
}

/// A job, for other programs. The keys are stable.
#[derive(Serialize)]
struct JobRow {
    #[serde(flatten)]
    job: JobLine,
    /// How many tasks it has, where that is known before it runs.
    tasks_total: Option<u64>,
    workers: Vec<String>,
    client: Option<ClientLine>,
}

#[derive(Serialize)]
struct ClientLine {
    user: String,
    host: String,
    pid: u32,
    /// The name of its log, of one that `brambling submit` has started.
    log: Option<String>,
}

impl From<Client> for ClientLine {
    fn from(client: Client) -> ClientLine {
        let Client {
            user,
            host,
            pid,
            log,
        } = client;
        ClientLine {
            user,
            host,
            pid,
            log,
        }
    }
}

fn line(details: JobDetails) -> JobRow {
    let workers = details.workers.iter().map(|worker| worker.to_string());
    JobRow {
        workers: workers.collect(),
        tasks_total: details.tasks_total,
        client: details.client.map(ClientLine::from),
        job: details.status.into(),
    }
}

pub(crate) fn jobs(arguments: &JobsArguments, streams: &mut Streams<'_>) -> u8 {
    let jobs = arguments
        .at
        .find()
        .and_then(|at| Cluster::connect(&at)?.jobs());
    match jobs {
        Ok(jobs) => {
            streams.out(match arguments.json {
                true => json(jobs),
                false => text(&jobs),
            });
            OK
        }
        Err(error) => fail(streams, &error),
    }
}

fn json(jobs: Vec<JobDetails>) -> String {
    let lines: Vec<JobRow> = jobs.into_iter().map(line).collect();
    serde_json::to_string(&lines).expect("texts and numbers") + "\n"
}

fn text(jobs: &[JobDetails]) -> String {
    if jobs.is_empty() {
        return "no jobs yet; brambling submit FILE.py starts a script that has some\n".into();
    }
    let heads = [
        "JOB",
        "STATE",
        "NAME",
        "GENERATION",
        "TASKS",
        "WORKERS",
        "WHOSE",
        "",
    ];
    let mut rows = vec![heads.map(str::to_owned)];
    rows.extend(jobs.iter().map(row));
    table::rows(&rows)
}

fn row(job: &JobDetails) -> [String; 8] {
    let waits = job
        .status
        .waits
        .as_ref()
        .map(|why| format!("waits for {why}"));
    let failure = job.status.failure.clone().or(waits).unwrap_or_default();
    let whose = job.client.as_ref();
    [
        job.status.id.to_string(),
        state(job.status.state).into(),
        shown(&job.status.name),
        job.status.generation.0.to_string(),
        tasks(job),
        job.workers.len().to_string(),
        whose.map_or_else(String::new, |it| shown(&format!("{}@{}", it.user, it.host))),
        table::cut(&shown(&failure), FAILURE_MAX),
    ]
}

/// How many tasks have run, and of how many where that is known.
pub(crate) fn tasks(job: &JobDetails) -> String {
    let done = job.status.position;
    match job.tasks_total {
        // Workers do not tell of the last ones: the job is over before.
        Some(total) if job.status.state == JobState::Succeeded => total.to_string(),
        Some(total) if total > 0 => {
            let percent = done.min(total).saturating_mul(100) / total;
            format!("{done}/{total} ({percent} %)")
        }
        _ => done.to_string(),
    }
}

/// As JSON and tables call it.
pub(crate) fn state(state: JobState) -> &'static str {
    match state {
        JobState::Queued => "queued",
        JobState::Running => "running",
        JobState::Succeeded => "succeeded",
        JobState::Failed => "failed",
    }
}

pub(crate) fn cancel(
    arguments: &CancelArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    let CancelArguments { job, patience, at } = arguments;
    let patience = Duration::from_secs(u64::from(*patience));
    let done = connect(at).and_then(|it| it.cancel(*job, patience, &mut Looks(host)));
    tell(done.map(|()| format!("job {job} is over\n")), streams)
}

/// What is known of one job.
pub(crate) fn details(cluster: &Cluster, job: JobId) -> Result<JobDetails, ClusterError> {
    let found = cluster.jobs()?.into_iter().find(|it| it.status.id == job);
    found.ok_or_else(|| ClusterError::Refused {
        why: format!("there is no job {job}; `brambling jobs` lists those that there are"),
    })
}
