//! Owns what outlives a controller: jobs that its log names, and clients that come back for them. The registry calls it for submissions, and when a controller
//! takes over from another.
//!
//! # Rules
//! * What a controller has promised is in its log before anybody hears of it ([`Order::Log`]).
//! * A client names its job. Whoever submits a name that is known gets that job, and nothing begins twice.
//! * A controller that takes over waits [`CLIENT_TIME`] for each job's client, and then lets the job go. A job that runs goes on as it is
//!   ([adoption](super::adoption)); else it begins again at its newest snapshot, as a generation of the new term, once its client has come.

use super::{JobState, Order, OwnedMessage, PeerLink, RegisteredJob, Registry};
use crate::log::LoggedCluster;
use brambling_memory::mutants;
use brambling_protocol::kept::{LogEntry, LoggedJob};
use brambling_protocol::message::{ClusterEvent, EventKind, KeptPlace};
use brambling_protocol::{Generation, JobId, JobKey};
use std::collections::BTreeMap;
use std::time::Duration;

/// A controller that has taken over waits so long for clients. Shorter: one whose machine was busy loses its job. Longer: what nobody asks for lies
/// around.
pub const CLIENT_TIME: Duration = Duration::from_secs(60);

/// The workers of a term have other names than those of the term before, if there were no more than so many.
const WORKERS_EACH: u32 = 1_000;

/// What a registry has that outlives it.
#[derive(Default)]
pub(super) struct Lasting {
    /// In whose term it is; 0: nothing outlives it.
    pub(super) term: u32,
    /// What a client has named the job that it submits next.
    names: BTreeMap<PeerLink, u128>,
    /// Jobs whose clients have not come back.
    awaited: Vec<JobId>,
}

impl Lasting {
    /// The first generation of a job in this term.
    pub(super) fn first_generation(&self) -> Generation {
        let term = match mutants::is_on("terms-share-generations") {
            true => 0,
            false => self.term,
        };
        Generation(u64::from(term) << 32)
    }

    pub(super) fn name(&mut self, from: PeerLink, name: u128) {
        self.names.insert(from, name);
    }

    pub(super) fn named(&mut self, from: PeerLink) -> Option<u128> {
        self.names.remove(&from)
    }
}

impl Registry {
    /// The same, of a controller that takes over in this term.
    #[must_use]
    pub fn in_term(mut self, term: u32, cluster: &LoggedCluster) -> Registry {
        self.lasting.term = term;
        let event = ClusterEvent::of(EventKind::TookOver);
        self.note(ClusterEvent {
            cause: Some(format!("term {term}")),
            ..event
        });
        self.next_job = cluster.last_job + 1;
        // Whoever comes back has the name that it had, and newcomers get none of those.
        self.next_worker = term.saturating_sub(1).saturating_mul(WORKERS_EACH);
        for (id, (job, cuts)) in &cluster.jobs {
            let job = self.logged(job, cuts.clone());
            self.jobs.insert(*id, job);
            self.lasting.awaited.push(*id);
            self.adoptions.await_members(*id);
        }
        self
    }

    fn logged(&self, job: &LoggedJob, snapshots: Vec<u64>) -> RegisteredJob {
        let generation = self.lasting.first_generation();
        RegisteredJob {
            asked_as: Some(job.name),
            columns: job.columns.clone(),
            brings: job.brings,
            survives: job.survives.clone(),
            snapshots,
            ..RegisteredJob::new(job.program.clone(), job.shards.clone(), generation)
        }
    }

    /// The first generation of a job in this controller's term.
    pub fn first_generation(&self) -> Generation {
        self.lasting.first_generation()
    }

    /// In whose term it is; 0: nothing outlives this controller.
    pub fn term(&self) -> u32 {
        self.lasting.term
    }

    /// Whether what is said to it outlives this controller.
    pub(super) fn lasts(&self) -> bool {
        self.lasting.term > 0
    }

    /// Whether workers of an earlier term may come back.
    pub(super) fn awaits_workers(&self) -> bool {
        self.lasting.term > 1 && self.now < CLIENT_TIME
    }

    /// Says so to whoever has come.
    pub(super) fn tell_lasting(&mut self, to: PeerLink) {
        if self.lasts() {
            self.tell(to, OwnedMessage::Lasting);
        }
    }

    /// Keeps what everybody is to hear next.
    pub(super) fn log(&mut self, entry: LogEntry) {
        if self.lasts() && !mutants::is_on("promises-are-not-logged") {
            self.orders.push(Order::Log(entry));
        }
    }

    pub(super) fn log_submitted(&mut self, id: JobId) {
        let job = &self.jobs[&id];
        let Some(name) = job.asked_as else { return };
        let entry = LogEntry::Submitted(LoggedJob {
            id,
            name,
            program: job.name.clone(),
            shards: job.shards.clone(),
            columns: job.columns.clone(),
            brings: job.brings,
            survives: job.survives.clone(),
        });
        self.log(entry);
    }

    /// A client submits a name that is known: it gets that job. One that was to begin at another's snapshot, and has none of its own yet, still does.
    pub(super) fn attach(
        &mut self,
        from: PeerLink,
        name: u128,
        restores: Option<&KeptPlace>,
    ) -> bool {
        let is_it = |(_, job): &(&JobId, &RegisteredJob)| job.asked_as == Some(name);
        let Some((&id, _)) = self.jobs.iter().find(is_it) else {
            return false;
        };
        let by = self.clients.of(from);
        let job = self.jobs.get_mut(&id).expect("just found");
        (job.client, job.by) = (Some(from), by);
        let (state, failure) = (job.state, job.failure.clone());
        let key = JobKey::new(id, job.generation);
        self.lasting.awaited.retain(|it| *it != id);
        self.tell(from, OwnedMessage::Queued(id));
        match state {
            JobState::Succeeded | JobState::Failed => {
                self.tell_accepted(from, key);
                self.tell(from, OwnedMessage::Over { job: id, failure });
            }
            JobState::Running => self.tell_accepted(from, key),
            JobState::Queued => {
                let begins = self.jobs[&id].snapshots.is_empty();
                if let Some(at) = restores.filter(|_| begins && !self.queued.contains(&id)) {
                    // It has never run: its first snapshot is the copy.
                    self.close_adoption(id);
                    self.copy_snapshot(id, at.clone());
                } else if !self.queued.contains(&id) {
                    // Older jobs came first, whoever's client is quicker.
                    let place = self.queued.partition_point(|it| *it < id);
                    self.queued.insert(place, id);
                }
                self.begin_next();
            }
        }
        true
    }

    /// Jobs whose clients have not come back in time are let go.
    pub(super) fn give_up_clients(&mut self) {
        if self.lasting.awaited.is_empty() || self.now < CLIENT_TIME {
            return;
        }
        for id in std::mem::take(&mut self.lasting.awaited) {
            self.release(id, "its client has not come back");
        }
    }
}
