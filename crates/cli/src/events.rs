//! `brambling events`, `snapshots` and `snapshot`: what has happened in a cluster, and what is saved of its jobs.

use crate::cluster::{LOOKS, Where, fail};
use crate::shards::{Looks, connect, job, tell};
use crate::table;
use crate::{Host, INTERRUPTED, OK, Streams};
use brambling::cluster::{Cluster, ClusterEvent, JobId, SnapshotStatus};
use brambling::{Caller, Error, ListedSnapshot, SnapshotStore};
use serde::Serialize;
use std::time::Duration;

/// How often it is asked for more.
const ASKS: Duration = Duration::from_millis(500);

#[derive(clap::Args)]
pub(crate) struct EventsArguments {
    /// Go on with what happens from now on, until Ctrl-C
    #[arg(long)]
    follow: bool,
    /// Print JSON, an event a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: Where,
}

#[derive(clap::Args)]
pub(crate) struct SnapshotsArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Of this directory, or s3://BUCKET/PREFIX, in which clusters or scripts have saved jobs
    #[arg(long, value_name = "DIR", conflicts_with = "controller")]
    store: Option<String>,
    #[command(flatten)]
    at: Where,
}

#[derive(clap::Args)]
pub(crate) struct SnapshotArguments {
    /// A job, as `brambling jobs` names it
    #[arg(value_name = "JOB", value_parser = job)]
    job: JobId,
    /// How long to wait until it is saved
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience: u32,
    #[command(flatten)]
    at: Where,
}

/// An event, for other programs. The keys are stable.
#[derive(Serialize)]
struct EventLine {
    /// Seconds since 1970.
    time: f64,
    kind: &'static str,
    worker: Option<String>,
    job: Option<String>,
    generation: Option<u64>,
    cut: Option<u64>,
    bytes: Option<u64>,
    seconds: Option<f64>,
    cause: Option<String>,
}

impl From<&ClusterEvent> for EventLine {
    fn from(event: &ClusterEvent) -> EventLine {
        EventLine {
            time: event.at_ms as f64 / 1_000.0,
            kind: event.kind.name(),
            worker: event.worker.map(|it| it.to_string()),
            job: event.job.map(|it| it.job.to_string()),
            generation: event.job.map(|it| it.generation.0),
            cut: event.cut,
            bytes: event.bytes,
            seconds: event.took_ms.map(|it| it as f64 / 1_000.0),
            cause: event.cause.clone(),
        }
    }
}

const HEADS: &str = "time kind worker job generation cut bytes seconds cause";

fn text(event: &ClusterEvent) -> String {
    let EventLine {
        time,
        kind,
        worker,
        job,
        generation,
        cut,
        bytes,
        seconds,
        cause,
    } = event.into();
    let none = || "-".to_owned();
    let number = |it: Option<u64>| it.map_or_else(none, |it| it.to_string());
    [
        format!("{time:.3}"),
        kind.into(),
        worker.unwrap_or_else(none),
        job.unwrap_or_else(none),
        number(generation),
        number(cut),
        number(bytes),
        seconds.map_or_else(none, |it| format!("{it:.3}")),
        cause.unwrap_or_else(none),
    ]
    .join(" ")
}

pub(crate) fn events(
    arguments: &EventsArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    let cluster = match arguments.at.find().and_then(|at| Cluster::connect(&at)) {
        Ok(cluster) => cluster,
        Err(error) => return fail(streams, &error),
    };
    if !arguments.json {
        streams.out(format!("{HEADS}\n"));
    }
    let mut last = 0;
    loop {
        let more = match cluster.events(last) {
            Ok(more) => more,
            Err(error) => return fail(streams, &error),
        };
        for event in &more {
            last = event.number;
            streams.out(
                match arguments.json {
                    true => {
                        serde_json::to_string(&EventLine::from(event)).expect("texts and numbers")
                    }
                    false => text(event),
                } + "\n",
            );
        }
        if !more.is_empty() {
            continue;
        }
        if !arguments.follow {
            return OK;
        }
        for _ in 0..ASKS.as_millis() / LOOKS.as_millis() {
            if Looks(host).check().is_err() {
                return INTERRUPTED;
            }
            std::thread::sleep(LOOKS);
        }
    }
}

/// A snapshot, for other programs. The keys are stable.
#[derive(Serialize)]
struct SnapshotLine {
    /// By which it is restored.
    snapshot: String,
    /// Of one that a cluster has saved.
    job: Option<String>,
    name: String,
    cut: u64,
    turns: u64,
    bytes: u64,
    objects: u64,
    /// Why it cannot be used.
    trouble: Option<String>,
}

impl From<SnapshotStatus> for SnapshotLine {
    fn from(it: SnapshotStatus) -> SnapshotLine {
        SnapshotLine {
            snapshot: format!("{}/{}", it.job, it.cut),
            job: Some(it.job.to_string()),
            name: it.name,
            cut: it.cut,
            turns: it.turns,
            bytes: it.bytes,
            objects: it.objects,
            trouble: None,
        }
    }
}

impl From<ListedSnapshot> for SnapshotLine {
    fn from(it: ListedSnapshot) -> SnapshotLine {
        SnapshotLine {
            snapshot: it.name,
            job: it.job.map(|job| job.to_string()),
            name: it.program,
            cut: it.cut,
            turns: it.turns,
            bytes: it.bytes,
            objects: it.objects,
            trouble: it.trouble,
        }
    }
}

pub(crate) fn snapshots(arguments: &SnapshotsArguments, streams: &mut Streams<'_>) -> u8 {
    match found(arguments) {
        Ok(lines) => {
            streams.out(match arguments.json {
                true => serde_json::to_string(&lines).expect("texts and numbers") + "\n",
                false => listed(&lines, arguments.store.is_some()),
            });
            OK
        }
        Err(error) => fail(streams, &error),
    }
}

fn found(arguments: &SnapshotsArguments) -> Result<Vec<SnapshotLine>, Error> {
    if let Some(store) = &arguments.store {
        let all = SnapshotStore::open(store)?.snapshots()?;
        return Ok(all.into_iter().map(SnapshotLine::from).collect());
    }
    let all = Cluster::connect(&arguments.at.find()?)?.snapshots()?;
    Ok(all.into_iter().map(SnapshotLine::from).collect())
}

fn listed(snapshots: &[SnapshotLine], of_store: bool) -> String {
    if snapshots.is_empty() {
        return match of_store {
            true => "no snapshots in this store\n".into(),
            false => "no snapshots; a controller with --store or --state saves its jobs\n".into(),
        };
    }
    let heads = ["SNAPSHOT", "NAME", "TURNS", "BYTES", "OBJECTS", "USABLE"];
    let mut rows = vec![heads.map(str::to_owned)];
    rows.extend(snapshots.iter().map(|it| {
        [
            it.snapshot.clone(),
            table::shown(&it.name),
            it.turns.to_string(),
            it.bytes.to_string(),
            it.objects.to_string(),
            match &it.trouble {
                Some(why) => format!("no: {why}"),
                None => "yes".into(),
            },
        ]
    }));
    table::rows(&rows)
}

pub(crate) fn snapshot(
    arguments: &SnapshotArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    let SnapshotArguments { job, patience, at } = arguments;
    let patience = Duration::from_secs(u64::from(*patience));
    let done = connect(at).and_then(|it| it.snapshot(*job, patience, &mut Looks(host)));
    tell(
        done.map(|cut| format!("job {job} is saved: snapshot {cut}\n")),
        streams,
    )
}
