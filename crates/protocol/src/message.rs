//! What the processes of a cluster say to each other outside of jobs: workers register with the controller, clients submit programs and
//! fetch what they left.
//!
//! Each is a frame of its own on a link that speaks of no job. They are not numbered: who loses the link says again what
//! still matters, which each message tells.
//!
//! Between a client and the controller a job is a number. Whoever has something of it knows it by its [key](JobKey), and is spoken to of that.

mod holding;

pub use holding::Holding;

use crate::ids::{Generation, JobId, JobKey, WorkerId};
use crate::map::EntryRange;
use brambling_program::{CutPlan, DatasetId, ShardId};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// The most that one message carries of a program or of a result; larger ones are cut.
pub const PART_BYTES: usize = 1 << 20;

/// One message. New ones are added at the end: their numbers are in the frames.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Message<'a> {
    /// A worker to the controller: it wants to take part. Said first on each link.
    Register(#[serde(borrow)] Register<'a>),
    /// The controller to a worker: it takes part.
    Registered(Registered),
    /// A worker to the controller, several times a second: it is there, and how it fares.
    Load(Load),
    /// The controller to a worker: a job begins. Its program comes from the client.
    Prepare(Prepare),
    /// A worker to the controller: it cannot run the job.
    Unprepared {
        /// The job.
        key: JobKey,
        /// Why not.
        why: &'a str,
    },
    /// The controller to a worker: nobody asks for this generation of the job any more.
    Release(JobKey),
    /// A client to the controller: run a program.
    Submit(Submit<'a>),
    /// The controller to a client: the job begins, and its members expect the program.
    Accepted(Accepted),
    /// The controller to a client: the job is over; what it left can be fetched if it did not fail.
    Over {
        /// The job.
        job: JobId,
        /// What went wrong on which worker, if anything did.
        failure: Option<&'a str>,
    },
    /// A client to the controller: end a job, whoever's it is. `Over` is the answer, once it is.
    Cancel(JobId),
    /// A client to the controller: it has what it wants of a job of its.
    Done(JobId),
    /// A client to the controller: how is the cluster?
    Ask,
    /// The answer.
    Status(Status),
    /// Anybody: what was asked is refused.
    Refused {
        /// Why, and the way out.
        why: &'a str,
    },
    /// A client to a worker: a part of a job's program. Parts come in order.
    Program(Part<'a>),
    /// A client to a worker: send the kept partitions that are there.
    Fetch(JobKey),
    /// A worker to a client: a part of a partition that is kept. A client to a worker: of one that it [wants](Message::Want). Parts come in order,
    /// partition after partition.
    Partition {
        /// Whose.
        dataset: DatasetId,
        /// Which.
        index: u32,
        /// Its bytes.
        part: Part<'a>,
    },
    /// A worker to a client: it has sent all that it has of a job.
    Fetched {
        /// The job.
        key: JobKey,
        /// Tasks that it ran.
        tasks: u64,
        /// On how many threads.
        threads: u32,
        /// How long they ran tasks, together.
        busy_ns: u64,
        /// The most that its budget has counted.
        peak_bytes: u64,
    },
    /// The controller to a client: its program is a job now, and begins when it is its turn.
    Queued(JobId),
    /// A client to the controller: move a shard.
    Move(Move),
    /// The controller to a client: the shard that it wanted moved is there.
    Moved(Move),
    /// The controller to a client: a worker takes part in its job from now on, and expects the program.
    Admitted {
        /// The job.
        key: JobKey,
        /// The worker.
        member: Member,
    },
    /// The controller to a client: a worker takes no part in its job any more. It holds nothing of it.
    Left {
        /// The job.
        key: JobKey,
        /// The worker.
        worker: WorkerId,
    },
    /// A client to the controller: a worker is to hold nothing any more, and to end.
    Drain(WorkerId),
    /// The controller to a client: it holds nothing any more. To the worker: it may end.
    Drained(WorkerId),
    /// A worker to the controller, at most once a second: what the shards of a job took there since it last said so. Many of them
    /// come in several messages.
    Times(ShardTimes),
    /// A client to the controller: who it is, for those who ask whose a job is and who has ended it. Changes nothing else.
    Introduce(Client),
    /// A client to the controller: its job has so many tasks, where that is known before it runs.
    Expects {
        /// The job.
        job: JobId,
        /// How many.
        tasks: u64,
    },
    /// A client to the controller: what is known of each job?
    AskJobs,
    /// The answer, by name.
    Jobs(Vec<JobDetails>),
    /// A client to the controller: its job's share of threads beside other jobs. The controller to a member of the job: the same, for each generation
    /// of it that is there.
    Weigh {
        /// The job.
        job: JobId,
        /// Its weight: 1 unless somebody says otherwise.
        weight: u32,
    },
    /// A client to the controller, before [`Submit`](Message::Submit): which shards of the program that it submits next had better be
    /// on one worker.
    Arrange {
        /// For each group: columns of the grid that its shards are cells of, row by row; 0 where they are none. Those of a column
        /// belong together.
        columns: Vec<u32>,
    },
    /// A client to a worker: where did a failure begin that the controller has told?
    AskOrigin {
        /// The job.
        key: JobKey,
        /// The failure, as it was told.
        failure: &'a str,
    },
    /// The answer.
    Origin {
        /// The job.
        key: JobKey,
        /// Nothing: not there.
        #[serde(borrow)]
        origin: Option<FailureOrigin<'a>>,
    },
    /// A worker to a client: what kernels of its job have printed there. The next comes once this was [`Shown`](Message::Shown), or when
    /// all is asked for.
    Printed(#[serde(borrow)] PrintedLines<'a>),
    /// A client to a worker: it has shown what kernels of its job had printed, up to this number.
    Shown {
        /// The job.
        key: JobKey,
        /// The number of the [`PrintedLines`].
        number: u64,
    },
    /// A client to a worker: the job is over; send all that its kernels have printed and that was not shown.
    AskPrinted(JobKey),
    /// The answer, after what it says.
    AllPrinted(JobKey),
    /// A worker to the controller: kernels of jobs that are over still run there. Said again as long as that is so, and once when it is no more.
    Stuck(Vec<StuckKernel>),
    /// The controller to a client, before [`Status`](Message::Status) where there are any: what its workers said.
    AllStuck(Vec<(WorkerId, StuckKernel)>),
    /// A worker to a client: what kernels of its job have loaded there. Said when it changes, and before what the job left.
    Packages {
        /// The job.
        key: JobKey,
        /// Names, and what they are there: versions, for the client to compare.
        #[serde(borrow)]
        packages: Vec<(&'a str, &'a str)>,
    },
    /// A worker to the controller: it has had no way to another member of a job for too long.
    CutOff(#[serde(borrow)] CutOff<'a>),
    /// The controller to a client, before each [`Status`](Message::Status): how long its workers have told nothing, in milliseconds.
    Silences(Vec<(WorkerId, u64)>),
    /// A worker to a client: send the value that a partition begins with, which the client's program makes. Said again on another link.
    Want {
        /// The job.
        key: JobKey,
        /// Of which dataset.
        dataset: DatasetId,
        /// Which.
        index: u32,
    },
    /// A client to the controller, before [`Submit`](Message::Submit): what workers will be sent of the job that it submits next. Workers that have no
    /// room for the program are not taken in later.
    Brings(Brings),
    /// The controller to a client, before [`Queued`](Message::Queued) and [`Accepted`](Message::Accepted): the workers that take new jobs, with their
    /// threads and memory budgets, for the client to compare with what it is about to send.
    Budgets(Vec<(WorkerId, u32, u64)>),
    /// A worker to the controller, with each [`Load`](Message::Load): for each job there, bytes counted in its part of the budget.
    Uses(Vec<(JobKey, u64)>),
    /// The controller to a client, before [`Status`](Message::Status) and [`Jobs`](Message::Jobs) where there are any: what jobs wait for
    /// before they begin.
    Waits(#[serde(borrow)] Vec<(JobId, &'a str)>),
    /// A worker to a client, before [`Fetched`](Message::Fetched): a part of what its threads did for the job, and for how long. Parts come
    /// in order.
    Ledger(#[serde(borrow)] Part<'a>),
    /// A client to the controller, before [`Submit`](Message::Submit): what becomes of the job that it submits next when a worker dies. Where nobody says
    /// so, the job ends.
    Survives(Survives),
    /// The controller to a client: its job has lost what a worker held, and begins again, as soon as it can. [`Accepted`](Message::Accepted) says when it does;
    /// those who ran it before are not its members any more.
    Recovering {
        /// The job.
        job: JobId,
        /// What was lost.
        why: &'a str,
    },
    /// The controller to a client: something about its job that people are to read.
    Told {
        /// The job.
        job: JobId,
        /// A line.
        line: &'a str,
    },
    /// A client to the controller, before [`Submit`](Message::Submit): its name for the job that it submits next. Who submits a name that is known gets that
    /// job.
    Named(u128),
    /// The controller to whoever has come: its jobs outlive it. Who loses it looks for it again.
    Lasting,
    /// A client to the controller: what has happened after this number?
    AskEvents(u64),
    /// The answer: the oldest that it still has, in order, no more than [`EVENTS_AT_ONCE`].
    Events(Vec<ClusterEvent>),
    /// A client to the controller: save a job now. [`Snapshotted`](Message::Snapshotted) is the answer, once that is done.
    Snapshot(JobId),
    /// The controller to a client: a job was saved.
    Snapshotted {
        /// The job.
        job: JobId,
        /// The cut.
        cut: u64,
    },
    /// A client to the controller: which snapshots are there?
    AskSnapshots,
    /// The answer.
    Snapshots(Vec<SnapshotStatus>),
    /// A worker to the controller: the job cannot begin at the cut of its [`Prepare`], of which something is damaged or missing.
    Unrestored {
        /// The job.
        key: JobKey,
        /// What, and why.
        why: &'a str,
    },
    /// The controller to a worker that it has given up: it takes part no more, and has to end. Nothing that it says or writes counts.
    Fenced {
        /// Why.
        why: &'a str,
    },
    /// The controller to a client, before [`Status`](Message::Status) where there are any: the workers that were lost last, the newest last.
    Deaths(Vec<Death>),
    /// The controller, which has taken over in this term, to a worker: what is there of a job? From now on what controllers before it said of the job
    /// counts no more.
    AskHolding {
        /// The job, and the generation that the worker has.
        key: JobKey,
        /// The term.
        term: u32,
    },
    /// The answer, with each [`Load`](Message::Load), until the worker hears what becomes of the job.
    Holding(Holding),
    /// The controller to a worker: it has taken the job over as it is.
    Adopted(JobKey),
    /// A client to the controller, before [`Submit`](Message::Submit): the job that it submits next begins at this snapshot, which may be another cluster's.
    Restore(KeptPlace),
    /// A worker to the controller: the job begins there at a cut.
    Restored(RestoredParts),
}

/// The most events that one message tells.
pub const EVENTS_AT_ONCE: usize = 1 << 10;

/// What a worker's shards had saved at the cut at which they begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RestoredParts {
    /// The job.
    pub key: JobKey,
    /// The cut.
    pub cut: u64,
    /// Bytes of partitions that the worker has read from the store.
    pub read_bytes: u64,
    /// Bytes of partitions that it had still.
    pub local_bytes: u64,
    /// How long that took, in milliseconds.
    pub took_ms: u64,
}

/// Something that has happened in a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClusterEvent {
    /// Its number: each is one more than the one before. The controller's term is in the high 32 bits, so numbers only grow where others take over.
    pub number: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// What.
    pub kind: EventKind,
    /// Of which worker.
    pub worker: Option<WorkerId>,
    /// Of which job.
    pub job: Option<JobKey>,
    /// Of which cut, or at which one a job began.
    pub cut: Option<u64>,
    /// How much was saved, or read from the store.
    pub bytes: Option<u64>,
    /// How long it took, in milliseconds.
    pub took_ms: Option<u64>,
    /// Why.
    pub cause: Option<String>,
}

/// Kinds of events. New ones are added at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EventKind {
    /// A controller took office.
    TookOver,
    /// A worker came.
    WorkerJoined,
    /// A worker is gone.
    WorkerLost,
    /// A client submitted a job.
    JobSubmitted,
    /// A generation of a job began.
    JobBegun,
    /// A job has lost something, and is to begin again.
    JobLost,
    /// A job is over.
    JobEnded,
    /// A shard moved.
    ShardMoved,
    /// A job was saved.
    SnapshotTaken,
    /// A cut came to nothing.
    SnapshotFailed,
    /// A worker was told to go, and nothing that it says counts any more.
    WorkerFenced,
    /// A controller that took office has taken a job over that ran on meanwhile.
    JobAdopted,
    /// A worker has what its shards begin with at a cut.
    JobRestored,
}

impl EventKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::TookOver => "took-over",
            EventKind::WorkerJoined => "worker-joined",
            EventKind::WorkerLost => "worker-lost",
            EventKind::JobSubmitted => "job-submitted",
            EventKind::JobBegun => "job-begun",
            EventKind::JobLost => "job-lost",
            EventKind::JobEnded => "job-ended",
            EventKind::ShardMoved => "shard-moved",
            EventKind::SnapshotTaken => "snapshot-taken",
            EventKind::SnapshotFailed => "snapshot-failed",
            EventKind::WorkerFenced => "worker-fenced",
            EventKind::JobAdopted => "job-adopted",
            EventKind::JobRestored => "job-restored",
        }
    }
}

impl ClusterEvent {
    /// One of which nothing else is known yet.
    pub fn of(kind: EventKind) -> ClusterEvent {
        ClusterEvent {
            number: 0,
            at_ms: 0,
            kind,
            worker: None,
            job: None,
            cut: None,
            bytes: None,
            took_ms: None,
            cause: None,
        }
    }
}

/// A snapshot that is there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SnapshotStatus {
    /// Of which job.
    pub job: JobId,
    /// Its program's name.
    pub name: String,
    /// The cut.
    pub cut: u64,
    /// Turns of its loop that were done.
    pub turns: u64,
    /// All of it, what earlier ones have saved included.
    pub bytes: u64,
    /// In how many objects.
    pub objects: u64,
}

/// What becomes of a job when a worker dies that holds shards of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Survives {
    /// It may begin again: its client sends the program once more, and the rows that are asked for.
    pub repeats: bool,
    /// Where it may be saved, if it may.
    pub cuts: Option<JobCuts>,
}

/// What has to be known of a job to save it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobCuts {
    /// The program, by its hash.
    pub program: u128,
    /// Where it may be saved.
    pub plan: CutPlan,
    /// How often it is to be; none: as the cluster does.
    pub every: Option<SnapshotEvery>,
}

/// How often a job is saved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SnapshotEvery {
    /// Never.
    Off,
    /// After so much time.
    Time(Duration),
    /// After so many turns of an outermost loop.
    Turns(u64),
}

impl SnapshotEvery {
    /// What it is unless told.
    pub const DEFAULT: SnapshotEvery = SnapshotEvery::Time(Duration::from_secs(10));

    /// The least time between two snapshots.
    pub fn time(self) -> Duration {
        match self {
            SnapshotEvery::Time(every) => every,
            SnapshotEvery::Off | SnapshotEvery::Turns(_) => Duration::ZERO,
        }
    }
}

/// Where a job's snapshots are.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptPlace {
    /// The store, by its name.
    pub store: String,
    /// How the keys of the job's objects begin there.
    pub place: String,
    /// The cut at which the job begins, if it does not begin at its start.
    pub cut: Option<u64>,
}

/// What a client sends to the workers of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Brings {
    /// To each of them: the program, with the values in it.
    pub program_bytes: u64,
    /// To all of them together: each partition goes to the one that holds it.
    pub rows_bytes: u64,
}

impl Brings {
    /// Of the rows the part of a worker of so many threads among all.
    pub fn part_bytes(&self, threads: u32, of_threads: u32) -> u64 {
        brambling_memory::share_bytes(self.rows_bytes, threads, u64::from(of_threads))
    }

    /// What a worker needs of its memory for the program and so many bytes of rows. While it makes the program of what it was sent, both are there; the
    /// rows come when that is over.
    pub fn needed_bytes(&self, part_bytes: u64) -> u64 {
        let made = self.program_bytes.saturating_add(part_bytes);
        program_room_bytes(self.program_bytes).max(made)
    }
}

/// What a worker needs of its memory while it makes a program of so many bytes.
pub fn program_room_bytes(bytes: u64) -> u64 {
    bytes.saturating_mul(2)
}

/// A kernel that still runs though its job is over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StuckKernel {
    /// Of which job.
    pub key: JobKey,
    /// Its stage; empty: not known there.
    pub stage: String,
    /// For how long the job has been over.
    pub seconds: u64,
}

/// Two workers have no way to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CutOff<'a> {
    /// A job of which both are members.
    pub key: JobKey,
    /// Whom the speaker cannot reach.
    pub peer: WorkerId,
    /// For how long.
    pub for_ms: u64,
    /// What happens when it tries.
    pub why: &'a str,
}

/// A worker that is gone, and what is known of its end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Death {
    /// Its name.
    pub worker: WorkerId,
    /// The machine's name.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// How it ended.
    pub kind: DeathKind,
    /// The same in words, with what else is known.
    pub cause: String,
    /// Whether the system has killed a process of its control group meanwhile, because memory ran out; none: not known.
    pub oom: Option<bool>,
    /// Bytes counted in its budget when it last told.
    pub memory_bytes: u64,
    /// The stage of a kernel that it could not end, or else one that ran, when it last told.
    pub stage: Option<String>,
    /// The partition for which that ran, where it is known.
    pub partition: Option<u32>,
    /// How long it had told nothing.
    pub silent_ms: u64,
    /// How long ago it ended.
    pub ago_ms: u64,
}

/// How a worker ended. New kinds are added at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DeathKind {
    /// A signal has killed its process.
    Signal(i32),
    /// Its process has ended with this exit code.
    Exit(i32),
    /// It told nothing for too long, and was given up.
    FencedSilent,
    /// It and another worker, or it and everybody, could not reach each other, and it was given up.
    FencedCutOff,
    /// Its link was closed.
    LinkClosed,
    /// Its machine does not answer.
    MachineCutOff,
}

/// What kernels of a job have printed on a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PrintedLines<'a> {
    /// The job.
    pub key: JobKey,
    /// They are counted from 0, for what is said again on a new link.
    pub number: u64,
    /// Lines before these that found no place on the worker.
    pub left_out: u64,
    /// In the order in which they ended.
    #[serde(borrow)]
    pub lines: Vec<PrintedLine<'a>>,
}

/// A line that was printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PrintedLine<'a> {
    /// Where to.
    pub stream: PrintStream,
    /// The stage whose kernel it was; empty: the program was being built.
    pub stage: &'a str,
    /// The line, without its end.
    pub text: &'a str,
    /// So many bytes more were cut off.
    pub cut_bytes: u64,
}

/// Where a program prints to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PrintStream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Where a job's failure began.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailureOrigin<'a> {
    /// Of what kind it was.
    pub kind: FailureKind,
    /// The stage, if it was in one.
    pub stage: &'a str,
    /// The partition.
    pub partition: u32,
    /// The turn.
    pub turn: u64,
    /// What went wrong there, as it is told where nothing is far away.
    pub message: &'a str,
    /// What the program's own language has for it; empty when it has nothing.
    pub cause: &'a [u8],
}

/// Kinds of failures that begin in a program. New ones are added at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FailureKind {
    /// A kernel returned an error, or panicked.
    Kernel,
    /// A memory budget was used up.
    OutOfMemory,
    /// Nothing moved any more.
    Stalled,
}

/// Who a client is, in its own words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Client {
    /// The account.
    pub user: String,
    /// The machine's name.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// The name of the log that its output goes to, if it was started without a terminal.
    pub log: Option<String>,
}

/// A job, whose it is and who runs it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobDetails {
    /// How it fares.
    pub status: JobStatus,
    /// How many tasks it has, where that is known.
    pub tasks_total: Option<u64>,
    /// Who runs it, or ran it at its end.
    pub workers: Vec<WorkerId>,
    /// Whose it is, if they said so.
    pub client: Option<Client>,
}

/// A wish that a shard moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Move {
    /// Of which job; none: of the one that runs.
    pub job: Option<JobId>,
    /// The shard.
    pub shard: ShardId,
    /// Where it is to be.
    pub to: WorkerId,
}

/// What a worker is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Register<'a> {
    /// The version of its package.
    pub version: &'a str,
    /// Who it was on an earlier link of the same process.
    pub known_as: Option<WorkerId>,
    /// Differs each time a process starts.
    pub epoch: u64,
    /// Its process.
    pub pid: u32,
    /// The machine's name.
    pub host: &'a str,
    /// Its threads.
    pub threads: u32,
    /// Its memory budget.
    pub memory_bytes: u64,
    /// Where other workers and clients reach it.
    pub listens_at: SocketAddr,
    /// The jobs that it has, from an earlier link: it is told which of them nobody asks for any more.
    pub jobs: Vec<JobKey>,
}

/// Who a worker is from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Registered {
    /// Its name in the cluster.
    pub worker: WorkerId,
}

/// How a worker fares.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Load {
    /// Bytes counted in its budget now.
    pub memory_bytes: u64,
    /// Of a thousand parts of its threads' time since the last report, those in which no task ran.
    pub idle_permille: u16,
    /// For each job here: tasks that have run.
    pub tasks: Vec<(JobKey, u64)>,
    /// What its threads run.
    pub running: Vec<RunningTask>,
}

/// A task that a thread runs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct RunningTask {
    /// Of which job.
    pub key: JobKey,
    /// Its stage, by name.
    pub stage: String,
    /// The partition.
    pub partition: u32,
}

/// What the shards of a job took on a worker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardTimes {
    /// The job.
    pub key: JobKey,
    /// Shards that are there.
    pub shards: Vec<ShardTime>,
}

/// What a shard took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShardTime {
    /// Which.
    pub shard: ShardId,
    /// Turns that it has ended meanwhile: blocks of the program that it entered, the body of a loop once for each turn.
    pub turns: u64,
    /// How long its slices ran in them, by the clock.
    pub ran_ns: u64,
    /// Bytes of its datasets.
    pub bytes: u64,
}

/// A job as a worker has to know it before it runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Prepare {
    /// Which.
    pub key: JobKey,
    /// All members, the worker itself among them, in the order in which they came to the job.
    pub members: Vec<Member>,
    /// How many shards each group has.
    pub shards: Vec<u32>,
    /// Who holds what at the beginning.
    pub map: Vec<EntryRange>,
    /// Where it is saved, if it is.
    pub kept: Option<KeptPlace>,
}

/// A worker and how to reach it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Who.
    pub worker: WorkerId,
    /// Where.
    pub at: SocketAddr,
}

/// What a client wants to run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Submit<'a> {
    /// The version of its package.
    pub version: &'a str,
    /// The program's name.
    pub name: &'a str,
    /// How many shards each group has.
    pub shards: Vec<u32>,
}

/// A job that begins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Accepted {
    /// Which: its members know it by that.
    pub key: JobKey,
    /// Who runs it.
    pub members: Vec<Member>,
}

/// A part of something that is sent in parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Part<'a> {
    /// Of which job.
    pub key: JobKey,
    /// How large the whole is.
    pub whole_bytes: u64,
    /// Where this begins.
    pub first_byte: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// How a cluster fares.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Its workers, by name.
    pub workers: Vec<WorkerStatus>,
    /// Jobs that run, wait, or have ended lately, by name.
    pub jobs: Vec<JobStatus>,
    /// Whose term it is; 0: the cluster does not outlive its controller.
    pub term: u32,
    /// Workers that were lost, the newest last. Travel beside, in [`Message::Deaths`].
    #[serde(skip)]
    pub deaths: Vec<Death>,
}

/// How a worker fares.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Who.
    pub id: WorkerId,
    /// Its process.
    pub pid: u32,
    /// The machine's name.
    pub host: String,
    /// Its threads.
    pub threads: u32,
    /// The shards that it holds.
    pub shards: u32,
    /// Bytes counted in its budget.
    pub memory_bytes: u64,
    /// Of a thousand parts of its threads' time lately, those in which no task ran.
    pub idle_permille: u16,
    /// Kernels of jobs that are over and that it cannot end. Travel beside, in [`Message::AllStuck`].
    #[serde(skip)]
    pub stuck: Vec<StuckKernel>,
    /// How long it has told nothing. Travels beside, in [`Message::Silences`].
    #[serde(skip)]
    pub silent_ms: u64,
}

/// How a job fares.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobStatus {
    /// Which.
    pub id: JobId,
    /// Its program's name.
    pub name: String,
    /// How far it is.
    pub state: JobState,
    /// Which generation it is in: the high 32 bits are the term in which it began.
    pub generation: Generation,
    /// Tasks that have run.
    pub position: u64,
    /// What went wrong, if anything did.
    pub failure: Option<String>,
    /// The cut of its last snapshot.
    pub cut: Option<u64>,
    /// How long ago that was taken, as far as this controller knows.
    pub snapshot_age_ms: Option<u64>,
    /// What it waits for, if it has not begun. Travels beside, in [`Message::Waits`].
    #[serde(skip)]
    pub waits: Option<String>,
}

/// How far a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum JobState {
    /// Others are before it.
    Queued,
    /// It runs.
    Running,
    /// It has ended well.
    Succeeded,
    /// It has failed, or was ended.
    Failed,
}

/// Puts together what comes in parts.
#[derive(Debug, Default)]
pub struct Parts {
    bytes: Vec<u8>,
    whole: Option<u64>,
}

/// Parts that do not fit together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("parts that do not follow each other")]
pub struct BadPart;

impl Parts {
    /// The whole, once this was its last part. A first part begins anew: whoever has lost a link sends all of it again. Memory grows with
    /// what has come, not with what is announced.
    ///
    /// # Errors
    /// When the part does not follow those before it.
    pub fn take(&mut self, part: &Part<'_>) -> Result<Option<Vec<u8>>, BadPart> {
        if part.first_byte == 0 {
            self.bytes.clear();
            self.whole = Some(part.whole_bytes);
        }
        let whole = self.whole.ok_or(BadPart)?;
        let here = self.bytes.len() as u64;
        let end = here.checked_add(part.bytes.len() as u64).ok_or(BadPart)?;
        let is_next = part.whole_bytes == whole && part.first_byte == here && end <= whole;
        if !is_next || (part.bytes.is_empty() && whole > 0) {
            return Err(BadPart);
        }
        self.bytes.extend_from_slice(part.bytes);
        if end < whole {
            return Ok(None);
        }
        self.whole = None;
        Ok(Some(std::mem::take(&mut self.bytes)))
    }
}

/// Cuts something into parts of at most [`PART_BYTES`]; at least one.
pub fn parts(key: JobKey, whole: &[u8]) -> impl Iterator<Item = Part<'_>> {
    let count = whole.len().div_ceil(PART_BYTES).max(1);
    (0..count).map(move |number| {
        let first = number * PART_BYTES;
        let end = whole.len().min(first + PART_BYTES);
        Part {
            key,
            whole_bytes: whole.len() as u64,
            first_byte: first as u64,
            bytes: &whole[first..end],
        }
    })
}
