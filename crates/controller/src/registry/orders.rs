//! What a registry has done by others: what it orders, and what it has said to whom.

use super::PeerLink;
use crate::{Adoption, WorkerLoss};
use brambling_program::ShardId;
use brambling_protocol::kept::LogEntry;
use brambling_protocol::message::{
    Accepted, JobCuts, JobDetails, KeptPlace, Member, Message, Move, Prepare, Registered,
    ShardTimes,
};
use brambling_protocol::{JobId, JobKey, PartitionMap, WorkerId};

/// What whoever runs the registry has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    /// Say something.
    Tell {
        /// On which link.
        to: PeerLink,
        /// What.
        what: OwnedMessage,
    },
    /// A job begins: a controller for it is needed.
    Begin {
        /// Which.
        key: JobKey,
        /// Its members.
        members: Vec<WorkerId>,
        /// Where its shards are.
        map: PartitionMap,
        /// Where and how it is saved, if it is.
        kept: Option<(KeptPlace, JobCuts)>,
    },
    /// A job goes on that runs already: a controller for it is needed ([`Controller::adopting`](crate::Controller::adopting)).
    Adopt {
        /// What its members hold.
        adoption: Adoption,
        /// Where and how it is saved, if it is.
        kept: Option<(KeptPlace, JobCuts)>,
    },
    /// The job's controller has to tell its members that it is over.
    Cancel {
        /// Which.
        key: JobKey,
        /// Why.
        why: String,
    },
    /// A member of the job is gone ([`Controller::lose`](crate::Controller::lose)). If shards are lost with it, the registry is told
    /// ([`Registry::on_loss`](super::Registry::on_loss)).
    Lose {
        /// Which.
        key: JobKey,
        /// Who.
        worker: WorkerId,
        /// Its process, for the error.
        process: String,
        /// How.
        how: WorkerLoss,
    },
    /// Two members of a job cannot reach each other: [`Registry::on_apart`](super::Registry::on_apart) is to be told how many of its shards each holds.
    Part(Apart),
    /// A worker has come while the job runs: its controller takes it in ([`Controller::join`](crate::Controller::join)), and the
    /// registry is told where shards are ([`Registry::on_admitted`](super::Registry::on_admitted)).
    Admit {
        /// Which.
        key: JobKey,
        /// Who.
        worker: WorkerId,
    },
    /// A shard is to move ([`Controller::order`](crate::Controller::order)); a refusal goes to
    /// [`Registry::on_stays`](super::Registry::on_stays).
    Move {
        /// Of which job.
        key: JobKey,
        /// Which.
        shard: ShardId,
        /// Where.
        to: WorkerId,
    },
    /// A worker is to leave the job ([`Controller::drain`](crate::Controller::drain));
    /// [`Registry::on_left`](super::Registry::on_left) is to be told when it has.
    Drain {
        /// Which.
        key: JobKey,
        /// Who.
        worker: WorkerId,
    },
    /// A worker tells what the shards of a job took there: the job's controller hears it
    /// ([`Controller::on_times`](crate::Controller::on_times)).
    Weigh {
        /// Who.
        worker: WorkerId,
        /// What.
        times: ShardTimes,
    },
    /// A client asks what has happened after a number: tell it.
    Events {
        /// On which link.
        to: PeerLink,
        /// The number.
        after: u64,
    },
    /// A client asks which snapshots there are: tell it.
    Snapshots {
        /// On which link.
        to: PeerLink,
    },
    /// A job is to be saved as soon as it can be ([`Controller::hurry`](crate::Controller::hurry)).
    Save(JobKey),
    /// A job begins at a snapshot that is not its own: make one of its own of it. [`Registry::on_copied`](super::Registry::on_copied) or
    /// [`Registry::on_uncopied`](super::Registry::on_uncopied) is to be told what became of it.
    Copy {
        /// Which.
        key: JobKey,
        /// The snapshot.
        from: KeptPlace,
        /// Where the job has its own.
        into: KeptPlace,
    },
    /// Keep something, before what is ordered next is done.
    Log(LogEntry),
    /// The job's controller is not needed any more.
    Forget(JobKey),
    /// What is stored of a job is of no use any more.
    Clear(KeptPlace),
    /// Somebody asks how the cluster fares: tell them [`Registry::status`](super::Registry::status).
    Report {
        /// On which link.
        to: PeerLink,
    },
}

/// Two members of a job that cannot reach each other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Apart {
    /// The job.
    pub key: JobKey,
    /// Who says so, and whom it cannot reach.
    pub workers: [WorkerId; 2],
    /// For how long, and what happens when it tries.
    pub how: String,
}

/// What is said: a [`Message`] that owns its texts.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // See the variants of `Message`.
pub enum OwnedMessage {
    Registered(Registered),
    Prepare(Prepare),
    Release(JobKey),
    AskHolding { key: JobKey, term: u32 },
    Adopted(JobKey),
    Queued(JobId),
    Accepted(Accepted),
    Over { job: JobId, failure: Option<String> },
    Refused { why: String },
    Fenced { why: String },
    Moved(Move),
    Admitted { key: JobKey, member: Member },
    Left { key: JobKey, worker: WorkerId },
    Drained(WorkerId),
    Jobs(Vec<JobDetails>),
    Weigh { job: JobId, weight: u32 },
    Recovering { job: JobId, why: String },
    Told { job: JobId, line: String },
    Lasting,
    Snapshotted { job: JobId, cut: u64 },
}

impl OwnedMessage {
    /// As it is sent.
    pub fn message(&self) -> Message<'_> {
        match self {
            OwnedMessage::Registered(it) => Message::Registered(*it),
            OwnedMessage::Prepare(it) => Message::Prepare(it.clone()),
            OwnedMessage::Release(key) => Message::Release(*key),
            OwnedMessage::AskHolding { key, term } => Message::AskHolding {
                key: *key,
                term: *term,
            },
            OwnedMessage::Adopted(key) => Message::Adopted(*key),
            OwnedMessage::Queued(job) => Message::Queued(*job),
            OwnedMessage::Accepted(it) => Message::Accepted(it.clone()),
            OwnedMessage::Over { job, failure } => Message::Over {
                job: *job,
                failure: failure.as_deref(),
            },
            OwnedMessage::Refused { why } => Message::Refused { why },
            OwnedMessage::Fenced { why } => Message::Fenced { why },
            OwnedMessage::Moved(it) => Message::Moved(*it),
            OwnedMessage::Admitted { key, member } => Message::Admitted {
                key: *key,
                member: *member,
            },
            OwnedMessage::Left { key, worker } => Message::Left {
                key: *key,
                worker: *worker,
            },
            OwnedMessage::Drained(worker) => Message::Drained(*worker),
            OwnedMessage::Jobs(jobs) => Message::Jobs(jobs.clone()),
            OwnedMessage::Weigh { job, weight } => Message::Weigh {
                job: *job,
                weight: *weight,
            },
            OwnedMessage::Lasting => Message::Lasting,
            OwnedMessage::Snapshotted { job, cut } => Message::Snapshotted {
                job: *job,
                cut: *cut,
            },
            OwnedMessage::Told { job, line } => Message::Told { job: *job, line },
            OwnedMessage::Recovering { job, why } => Message::Recovering { job: *job, why },
        }
    }
}
