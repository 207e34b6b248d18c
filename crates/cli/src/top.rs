//! `brambling top`: how a cluster fares, live.

mod screen;
mod view;

use crate::cluster::{StopRequest, Where, fail};
use crate::shards::connect;
use crate::{Host, OK, Streams};
use brambling::Error;
use brambling::cluster::{Cluster, ClusterError, JobDetails, Status};
use screen::{Screen, Wish};
use std::time::{Duration, Instant};
use view::Rates;

/// How often the cluster is asked.
const EVERY: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub(crate) struct TopArguments {
    /// Print it once, as when the output is no terminal
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    at: Where,
}

/// What the controller says at one time.
struct Snapshot {
    status: Status,
    jobs: Vec<JobDetails>,
    taken: Instant,
}

fn snapshot(cluster: &Cluster) -> Result<Snapshot, ClusterError> {
    Ok(Snapshot {
        status: cluster.status()?,
        jobs: cluster.jobs()?,
        taken: Instant::now(),
    })
}

pub(crate) fn top(arguments: &TopArguments, host: &mut dyn Host, streams: &mut Streams<'_>) -> u8 {
    let shown =
        connect(&arguments.at).and_then(|cluster| match arguments.once || !streams.is_terminal {
            true => once(&cluster, streams),
            false => live(&cluster, host, streams),
        });
    match shown {
        Ok(()) => OK,
        Err(error) => fail(streams, &error),
    }
}

fn once(cluster: &Cluster, streams: &mut Streams<'_>) -> Result<(), Error> {
    let now = snapshot(cluster)?;
    let lines = view::lines(cluster.address(), &now, &Rates::default());
    streams.out(lines.join("\n") + "\n");
    Ok(())
}

fn live(cluster: &Cluster, host: &mut dyn Host, streams: &mut Streams<'_>) -> Result<(), Error> {
    let asked = StopRequest::watch()?;
    let system = |source| ClusterError::System { source };
    let mut before = snapshot(cluster)?;
    let mut lines = view::lines(cluster.address(), &before, &Rates::default());
    let mut screen = Screen::enter(streams.out).map_err(system)?;
    loop {
        screen.draw(&lines).map_err(system)?;
        match screen
            .wish(before.taken + EVERY, || asked.to_end(host))
            .map_err(system)?
        {
            Wish::End => return Ok(()),
            Wish::Draw => continue,
            Wish::None => {}
        }
        let now = snapshot(cluster)?;
        lines = view::lines(cluster.address(), &now, &Rates::between(&before, &now));
        before = now;
    }
}
