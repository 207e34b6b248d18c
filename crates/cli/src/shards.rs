//! `brambling move` and `brambling drain`: where the shards of a running job are.

use crate::cluster::{Where, fail};
use crate::{Host, INTERRUPTED, OK, Streams};
use brambling::cluster::{Cluster, GroupId, JobId, ShardId, WorkerId};
use brambling::{Caller, Error, Failure, Interrupted};

#[derive(clap::Args)]
pub(crate) struct MoveArguments {
    /// Where it is to be: a worker, as `brambling status` names it
    #[arg(value_name = "WORKER", value_parser = worker)]
    to: WorkerId,
    /// The shard: its group and its index in the group, both from 0
    #[arg(long, value_name = "GROUP.INDEX", value_parser = shard)]
    shard: ShardId,
    /// Its job, as `brambling status` names it; otherwise the one that runs
    #[arg(long, value_name = "JOB", value_parser = job)]
    job: Option<JobId>,
    #[command(flatten)]
    at: Where,
}

#[derive(clap::Args)]
pub(crate) struct DrainArguments {
    /// A worker, as `brambling status` names it
    #[arg(value_name = "WORKER", value_parser = worker)]
    worker: WorkerId,
    #[command(flatten)]
    at: Where,
}

fn numbered<T: std::str::FromStr>(text: &str, prefix: char) -> Option<T> {
    let digits = text.strip_prefix(prefix).unwrap_or(text);
    digits.parse().ok()
}

fn worker(text: &str) -> Result<WorkerId, String> {
    let number = numbered(text, 'w').map(WorkerId);
    number.ok_or_else(|| "a worker is named as `brambling status` does, such as w2".into())
}

pub(crate) fn job(text: &str) -> Result<JobId, String> {
    let number = numbered(text, 'j').map(JobId);
    number.ok_or_else(|| "a job is named as `brambling jobs` does, such as j1".into())
}

fn shard(text: &str) -> Result<ShardId, String> {
    let parts = text.split_once('.').and_then(|(group, index)| {
        let group = GroupId(numbered(group, 'g')?);
        let index = index.parse().ok()?;
        Some(ShardId { group, index })
    });
    parts.ok_or_else(|| "a shard is GROUP.INDEX, both from 0, such as 0.3".into())
}

/// Asks whoever runs the command for interruptions.
pub(crate) struct Looks<'a>(pub(crate) &'a mut dyn Host);

impl Caller for Looks<'_> {
    fn check(&mut self) -> Result<(), Interrupted> {
        match self.0.interrupted() {
            true => Err(Interrupted),
            false => Ok(()),
        }
    }
}

pub(crate) fn move_shard(
    arguments: &MoveArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    let MoveArguments { to, shard, job, at } = arguments;
    let moved = connect(at).and_then(|it| it.move_shard(*job, *shard, *to, &mut Looks(host)));
    let ShardId { group, index } = shard;
    let said =
        moved.map(|job| format!("shard {}.{index} of job {job} is on worker {to}\n", group.0));
    tell(said, streams)
}

pub(crate) fn drain(
    arguments: &DrainArguments,
    host: &mut dyn Host,
    streams: &mut Streams<'_>,
) -> u8 {
    let DrainArguments { worker, at } = arguments;
    let drained = connect(at).and_then(|it| it.drain(*worker, &mut Looks(host)));
    let said = drained.map(|()| format!("worker {worker} holds nothing any more, and ends\n"));
    tell(said, streams)
}

pub(crate) fn connect(at: &Where) -> Result<Cluster, Error> {
    Ok(Cluster::connect(&at.find()?)?)
}

pub(crate) fn tell(said: Result<String, Error>, streams: &mut Streams<'_>) -> u8 {
    match said {
        Ok(text) => {
            streams.out(text);
            OK
        }
        Err(Error::Failure(Failure::Interrupted)) => INTERRUPTED,
        Err(error) => fail(streams, &error),
    }
}
