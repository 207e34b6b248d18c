//! Owns what becomes of a job that has lost shards with a worker: it begins again, as its next generation, at its newest snapshot if there is one. The registry calls it when a job's controller reports
//! a loss. It rolls nothing back: members of the old generation drop what they have of it, and the new one begins beside them.
//!
//! # Rules
//! * A job begins again if its client has said that it may. It comes before all others that wait.
//! * Where no worker takes jobs, it waits for a newcomer for [`NEWCOMER_TIME`], and its client is told so. Then it ends with its loss.
//! * Losses are in a row when each came within [`POISON_TIME`] of the beginning of its generation, and there was no snapshot between them. Three of a row during which
//!   the same stage of the same shard may have run end the job, with all of the row told: a kernel that kills its worker would else kill all of them. What ran is
//!   what the worker last told; where it told of nothing, anything may have. A worker that was given up because it could not reach another one was killed by no
//!   kernel: three links that are cut are not such a row.
//! * Other losses in a row have other causes, which may pass: from the third on the job waits before it begins again, twice as long each time, and the
//!   [`LOSSES_MAX`]th ends it too.
//! * A job that is submitted to begin at a snapshot of another job waits, before it is queued, until that has become a snapshot of its own.
//! * A snapshot that a worker finds damaged is not used again: a newer one is, or the one before it, or the job's start.
//! * The snapshot at which a generation began is kept as long as that runs: whoever joins it begins there.

use super::{JobState, Order, OwnedMessage, PeerLink, Registry};
use crate::ShardLoss;
use brambling_memory::mutants;
use brambling_protocol::kept::LogEntry;
use brambling_protocol::message::{
    ClusterEvent, EventKind, JobCuts, KeptPlace, RestoredParts, SnapshotEvery, Survives,
};
use brambling_protocol::{Generation, JobId, JobKey, PartitionMap, WorkerId};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long a job that has to begin again waits for a worker. Shorter: whoever replaces workers, such as a cluster manager, is too late. Longer: people wait for
/// nobody.
pub const NEWCOMER_TIME: Duration = Duration::from_secs(60);
/// A generation that was lost so soon after it had begun may have been killed by its own kernels. Shorter: a kernel that takes long before it kills its worker is
/// not found. Longer: jobs end for losses that have nothing to do with each other.
pub const POISON_TIME: Duration = Duration::from_secs(60);
/// So many losses in a row, while the same task may have run, end a job.
const POISON_LOSSES: usize = 3;
/// So many losses in a row end a job, whatever ran. Fewer: a rack that goes down host by host ends it. More: a kernel that kills its worker sooner than that can tell
/// of it, beside others that run for long, kills as many.
pub const LOSSES_MAX: usize = 10;
/// How long a job waits before it begins again after the third loss in a row; after each further one twice as long. Shorter: it begins into what has killed its workers,
/// a machine without memory for example. Longer: people wait for nobody.
pub const BACKOFF_TIME: Duration = Duration::from_secs(1);
/// So often that doubles.
const BACKOFF_DOUBLINGS: usize = 4;

/// How many snapshots of a job are kept: if the newest is damaged, the one before it is used.
const SNAPSHOTS: usize = 2;

/// What a client is told that wants a job begun at a snapshot where none are kept.
pub(super) const UNKEPT: &str = "this cluster keeps no snapshots of the job, so it cannot begin it at one; start its controller with --store or --state, \
                                 and with a snapshot_every other than off";

/// Where a cluster's jobs are saved.
#[derive(Clone, PartialEq, Debug)]
pub struct ClusterStore {
    /// The store, by its name.
    pub store: String,
    /// How the keys of this cluster's objects begin.
    pub prefix: String,
    /// How often jobs are saved that do not say.
    pub every: SnapshotEvery,
}

/// What a job has lost, and when.
#[derive(Default)]
pub(super) struct Losses {
    /// When its generation began.
    began: Duration,
    /// Those in a row.
    in_a_row: Vec<LossInARow>,
    /// Before then it does not begin again.
    not_before: Duration,
    /// Who held what of the generation that was lost.
    held: Option<PartitionMap>,
    /// Until when it waits for a worker, and with which error it ends then.
    waits: Option<(Duration, String)>,
}

/// One of several losses.
struct LossInARow {
    /// In words.
    why: String,
    /// Stages and partitions that ran; empty: not known.
    ran: BTreeSet<(String, u32)>,
    /// Whether two workers could not reach each other, which no kernel does.
    is_cut_off: bool,
}

impl Losses {
    /// A generation begins.
    pub(super) fn begins(&mut self, now: Duration) {
        (self.began, self.waits) = (now, None);
    }

    /// For how long it must not begin again.
    pub(super) fn rests(&self, now: Duration) -> Option<Duration> {
        let rest = self.not_before.saturating_sub(now);
        (!rest.is_zero()).then_some(rest)
    }

    /// Whether losses in a row may be the work of one task.
    fn are_poison(&self) -> bool {
        let by_tasks = || self.in_a_row.iter().filter(|it| !it.is_cut_off);
        let unknown = by_tasks().filter(|it| it.ran.is_empty()).count();
        let ran = |task| by_tasks().filter(|it| it.ran.contains(task)).count();
        let tasks = by_tasks().flat_map(|it| &it.ran);
        let most = tasks.map(ran).max().unwrap_or(0);
        most + unknown >= POISON_LOSSES
    }

    /// How long it rests after the last one.
    fn backoff(&self) -> Duration {
        let beyond = self.in_a_row.len().checked_sub(POISON_LOSSES);
        beyond.map_or(Duration::ZERO, |it| {
            BACKOFF_TIME * (1 << it.min(BACKOFF_DOUBLINGS))
        })
    }

    /// Who held its shards when they were lost, once.
    pub(super) fn take_held(&mut self) -> Option<PartitionMap> {
        self.held.take()
    }
}

impl Registry {
    /// A generation of a job has lost what a worker held.
    pub fn on_loss(&mut self, key: JobKey, loss: ShardLoss) {
        let now = self.now;
        let loss = self.explained(loss, key);
        let ran = self.deaths.ran(loss.worker, key);
        let ran = ran.map(|it| (it.stage.clone(), it.partition)).collect();
        let is_cut_off = self.deaths.was_cut_off(loss.worker);
        // The job may have begun again for another worker's sake.
        let Some(job) = (self.jobs.get_mut(&key.job)).filter(|it| it.generation == key.generation)
        else {
            return;
        };
        let has_ended_well = job.state == JobState::Succeeded;
        if !job.survives.repeats {
            // What its client has not fetched of a job that is over it misses by itself.
            if !has_ended_well {
                self.cancel(key.job, loss.error());
            }
            return;
        }
        let losses = &mut job.losses;
        if now.saturating_sub(losses.began) >= POISON_TIME {
            losses.in_a_row.clear();
        }
        let why = loss.why.clone();
        losses.in_a_row.push(LossInARow {
            why,
            ran,
            is_cut_off,
        });
        if losses.are_poison() || losses.in_a_row.len() >= LOSSES_MAX {
            let told: Vec<&str> = losses.in_a_row.iter().map(|it| &it.why[..]).collect();
            let told = told.join("; ");
            let why = format!(
                "each time soon after the job had begun, a worker was lost: {told}; look at what the program's kernels do there, memory first, and \
                 run it again"
            );
            match has_ended_well {
                true => self.end(key.job, Some(why)),
                false => self.cancel(key.job, why),
            }
            return;
        }
        losses.not_before = now + losses.backoff();
        self.begin_again(key.job, &loss);
    }

    /// Where a job is saved, and how; it begins at the newest snapshot.
    pub(super) fn kept_place(&self, id: JobId) -> Option<(KeptPlace, JobCuts)> {
        let store = self.store.as_ref()?;
        let job = self.jobs.get(&id)?;
        let mut cuts = job.survives.cuts.clone()?;
        let every = *cuts.every.get_or_insert(store.every);
        (every != SnapshotEvery::Off).then(|| {
            let place = KeptPlace {
                store: store.store.clone(),
                place: format!("{}/{}", store.prefix, id.0),
                cut: job.snapshots.last().copied(),
            };
            (place, cuts)
        })
    }

    /// Whether a job is saved of which its client says this.
    pub(super) fn keeps(&self, survives: &Survives) -> bool {
        let (Some(store), Some(cuts)) = (&self.store, &survives.cuts) else {
            return false;
        };
        cuts.every.unwrap_or(store.every) != SnapshotEvery::Off
    }

    /// A job that is to begin at another's snapshot: it waits until it has one of its own.
    pub(super) fn copy_snapshot(&mut self, id: JobId, from: KeptPlace) {
        let Some((into, _)) = self.kept_place(id) else {
            return self.end(id, Some(UNKEPT.into()));
        };
        let key = JobKey::new(id, self.jobs[&id].generation);
        self.orders.push(Order::Copy { key, from, into });
    }

    /// It has one. What it has to begin at is there, so it waits for its turn.
    pub fn on_copied(&mut self, key: JobKey, cut: u64) {
        let job = (self.jobs.get_mut(&key.job)).filter(|it| it.generation == key.generation);
        let Some(job) = job.filter(|it| it.state == JobState::Queued) else {
            return;
        };
        job.snapshots.push(cut);
        job.saved_at = Some(self.now);
        self.queued.push_back(key.job);
        self.begin_next();
    }

    /// It gets none: it ends, and why.
    pub fn on_uncopied(&mut self, key: JobKey, why: String) {
        let job = self.jobs.get(&key.job);
        if job.is_some_and(|it| it.state == JobState::Queued && it.generation == key.generation) {
            self.end(key.job, Some(why));
        }
    }

    /// There is a snapshot of a job. Those that are not kept any more may be deleted: gives those that are. The one at which the generation began is: whoever joins
    /// it later begins there as well.
    pub fn on_snapshot(&mut self, key: JobKey, cut: u64, bytes: u64, took: Duration) -> Vec<u64> {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&key.job) else {
            return Vec::new();
        };
        if job.generation == key.generation {
            job.snapshots.push(cut);
            job.saved_at = Some(now);
            let old = job.snapshots.len().saturating_sub(SNAPSHOTS);
            job.snapshots.drain(..old);
            // The job has come further than the kernel that killed its worker.
            job.losses.in_a_row.clear();
            self.counts.snapshots += 1;
            let mut kept = job.snapshots.clone();
            let begun_at = self.begun_at(key).filter(|it| !kept.contains(it));
            kept.extend(begun_at);
            self.note(ClusterEvent {
                job: Some(key),
                cut: Some(cut),
                bytes: Some(bytes),
                took_ms: Some(took.as_millis() as u64),
                ..ClusterEvent::of(EventKind::SnapshotTaken)
            });
            let of_job = self.saves.extract_if(.., |(job, _)| *job == key.job);
            for (job, by) in of_job.collect::<Vec<_>>() {
                self.tell(by, OwnedMessage::Snapshotted { job, cut });
            }
            return kept;
        }
        job.snapshots.clone()
    }

    /// The snapshot at which a generation that runs has begun.
    fn begun_at(&self, key: JobKey) -> Option<u64> {
        self.running.get(&key)?.kept.as_ref()?.cut
    }

    /// No snapshot was taken, and why.
    pub fn on_no_snapshot(&mut self, key: JobKey, why: &str) {
        self.note_job(EventKind::SnapshotFailed, key, Some(why.to_owned()));
        self.tell_client(key, why);
    }

    /// Somebody wants a job saved now.
    pub(super) fn on_save(&mut self, from: PeerLink, id: JobId) {
        let Some(job) = self.jobs.get(&id) else {
            let why = format!("there is no job {id}; `brambling jobs` lists those that there are");
            return self.refuse(from, why);
        };
        let key = JobKey::new(id, job.generation);
        if job.state != JobState::Running {
            return self.refuse(
                from,
                format!("job {id} does not run; only one that does is saved"),
            );
        }
        if self.kept_place(id).is_none() {
            let why = format!(
                "job {id} is not saved: the controller has no store (--store), its snapshot_every is off, or it writes files"
            );
            return self.refuse(from, why);
        }
        self.saves.push((id, from));
        self.orders.push(Order::Save(key));
    }

    /// A job is over: who wanted it saved hears that it will not be.
    pub(super) fn end_saves(&mut self, id: JobId) {
        let of_job = self.saves.extract_if(.., |(job, _)| *job == id);
        for (_, by) in of_job.collect::<Vec<_>>() {
            self.refuse(by, format!("job {id} has ended before it was saved"));
        }
    }

    /// A worker cannot use the snapshot at which a job was to begin.
    pub(super) fn on_unrestored(&mut self, worker: WorkerId, key: JobKey, why: &str) {
        let cut = self.begun_at(key);
        let job = (self.jobs.get_mut(&key.job)).filter(|it| it.generation == key.generation);
        let Some(job) = job.filter(|it| it.state == JobState::Running) else {
            return;
        };
        let cut = cut.filter(|_| !mutants::is_on("snapshots-are-used-again"));
        // Newer ones are as good as they were.
        job.snapshots.retain(|it| Some(*it) != cut);
        let mut held = PartitionMap::new(job.shards.iter().copied());
        let begun = self.running.get(&key).into_iter();
        begun.flat_map(|it| &it.map).for_each(|range| {
            let _ = held.apply(range).expect("a range of the job");
        });
        let loss = ShardLoss {
            worker,
            why: format!("worker {worker} cannot use the snapshot: {why}"),
            way_out: "run the program again",
            held,
        };
        if let Some(cut) = cut {
            let job = key.job;
            self.log(LogEntry::Unusable { job, cut });
        }
        self.begin_again(key.job, &loss);
    }

    /// A worker has what its shards begin with.
    pub(super) fn on_restored(&mut self, worker: WorkerId, restored: &RestoredParts) {
        if self.job_in(restored.key).is_none() {
            return;
        }
        let cause = format!("{} bytes more were still there", restored.local_bytes);
        self.note(ClusterEvent {
            worker: Some(worker),
            job: Some(restored.key),
            cut: Some(restored.cut),
            bytes: Some(restored.read_bytes),
            took_ms: Some(restored.took_ms),
            cause: Some(cause),
            ..ClusterEvent::of(EventKind::JobRestored)
        });
    }

    fn begin_again(&mut self, id: JobId, loss: &ShardLoss) {
        self.end_wishes(id);
        let key = JobKey::new(id, self.jobs[&id].generation);
        self.note_job(EventKind::JobLost, key, Some(loss.why.clone()));
        self.release_members(id);
        let job = self.jobs.get_mut(&id).expect("the caller has it");
        let until = job.losses.not_before.max(self.now) + NEWCOMER_TIME;
        if job.state == JobState::Succeeded {
            self.counts.succeeded -= 1;
        }
        self.counts.recoveries += 1;
        let next = Generation(job.generation.0 + 1);
        // An adopted one may be of an earlier term, whose controller has perhaps begun the next.
        job.generation = next.max(self.lasting.first_generation());
        job.state = JobState::Queued;
        job.members.clear();
        job.losses.waits = Some((until, loss.error()));
        job.losses.held = Some(loss.held.clone());
        // Before all others: it had its turn already.
        self.queued.push_front(id);
        if let Some(client) = job.client {
            let how = match job.snapshots.last() {
                Some(cut) => format!("goes on from snapshot {cut}"),
                None => "begins again".into(),
            };
            let when = job.losses.rests(self.now);
            let when = when.map(|rest| format!(", in {} s", rest.as_secs()));
            let why = format!("{}; the job {how}{}", loss.why, when.unwrap_or_default());
            self.tell(client, OwnedMessage::Recovering { job: id, why });
        }
        self.begin_next();
    }

    /// Jobs that have to begin again, and for which no worker has come in time, end.
    pub(super) fn give_up_waiting(&mut self) {
        let overdue = |id: &&JobId| {
            let waits = self.jobs[id].losses.waits.as_ref();
            waits.is_some_and(|(until, _)| self.now >= *until)
        };
        let overdue: Vec<JobId> = self.queued.iter().filter(overdue).copied().collect();
        for id in overdue {
            let job = self.jobs.get_mut(&id).expect("it waits");
            let why = job.losses.waits.take().map(|(_, why)| why);
            self.cancel(id, why.expect("just seen"));
        }
    }
}
