//! Who clients are, what is known of their jobs, and jobs that somebody wants ended.

use super::{JobState, OwnedMessage, PeerLink, RegisteredJob, Registry, RegistryError, WEIGHT_MAX};
use crate::WorkerLoss;
use brambling_protocol::message::{Brings, Client, JobDetails, KeptPlace, Survives};
use brambling_protocol::patience::ACKNOWLEDGED_WITHIN;
use brambling_protocol::{JobId, JobKey};
use std::collections::BTreeMap;

/// The most characters of a name that a client gives itself.
const NAME_MAX: usize = 200;

/// Those that have said who they are, and those that wait for a job's end.
#[derive(Default)]
pub(super) struct Clients {
    known: BTreeMap<PeerLink, Client>,
    /// Who wants to hear that a job is over, for having asked for that.
    enders: Vec<(JobId, PeerLink)>,
    /// By client: columns of the groups that it will submit next.
    arranged: BTreeMap<PeerLink, Vec<u32>>,
    /// By client: what members of the job that it will submit next are sent.
    brought: BTreeMap<PeerLink, Brings>,
    /// By client: what becomes of that job when a worker dies.
    survives: BTreeMap<PeerLink, Survives>,
    /// By client: the snapshot at which that job begins.
    restores: BTreeMap<PeerLink, KeptPlace>,
}

impl Clients {
    pub(super) fn of(&self, caller: PeerLink) -> Option<Client> {
        self.known.get(&caller).cloned()
    }

    /// A client says which shards of what it submits next belong together.
    pub(super) fn arrange(&mut self, from: PeerLink, columns: Vec<u32>) {
        self.arranged.insert(from, columns);
    }

    /// What it has said of so many groups: for each, the columns of its grid.
    pub(super) fn arranged(
        &mut self,
        from: PeerLink,
        groups: usize,
    ) -> Result<Vec<u32>, RegistryError> {
        match self.arranged.remove(&from) {
            None => Ok(vec![0; groups]),
            Some(columns) if columns.len() == groups => Ok(columns),
            Some(columns) => Err(RegistryError::Arranged {
                arranged: columns.len(),
                groups,
            }),
        }
    }

    /// A client says how much it will send of what it submits next.
    pub(super) fn bring(&mut self, from: PeerLink, brings: Brings) {
        self.brought.insert(from, brings);
    }

    /// What it has said of that.
    pub(super) fn brought(&mut self, from: PeerLink) -> Brings {
        self.brought.remove(&from).unwrap_or_default()
    }

    /// A client says what becomes of what it submits next when a worker dies.
    pub(super) fn survive(&mut self, from: PeerLink, survives: Survives) {
        self.survives.insert(from, survives);
    }

    /// What it has said of that.
    pub(super) fn survived(&mut self, from: PeerLink) -> Survives {
        self.survives.remove(&from).unwrap_or_default()
    }

    /// A client says at which snapshot what it submits next begins.
    pub(super) fn restore(&mut self, from: PeerLink, at: KeptPlace) {
        self.restores.insert(from, at);
    }

    /// What it has said of that.
    pub(super) fn restored(&mut self, from: PeerLink) -> Option<KeptPlace> {
        self.restores.remove(&from)
    }

    /// Why jobs of a client end whose link has ended.
    pub(super) fn gone(&self, caller: PeerLink, how: WorkerLoss) -> String {
        let who = self.known.get(&caller).map_or_else(String::new, |it| {
            format!(" ({} on {}, process {})", it.user, it.host, it.pid)
        });
        match how {
            WorkerLoss::Ended => "the client that asked for it is gone".into(),
            WorkerLoss::CutOff => format!(
                "the controller cannot reach the client that asked for it{who}, whose machine has acknowledged nothing for {} s",
                ACKNOWLEDGED_WITHIN.as_secs()
            ),
        }
    }

    pub(super) fn forget(&mut self, caller: PeerLink) {
        self.known.remove(&caller);
        self.arranged.remove(&caller);
        self.brought.remove(&caller);
        self.survives.remove(&caller);
        self.restores.remove(&caller);
        self.enders.retain(|(_, by)| *by != caller);
    }
}

/// A name as it may be shown on a terminal.
fn cleaned(name: &str) -> String {
    let shown = name.chars().filter(|letter| !letter.is_control());
    shown.take(NAME_MAX).collect()
}

impl Registry {
    /// A job's client is told something that people are to read.
    pub fn tell_client(&mut self, key: JobKey, line: &str) {
        let (job, line) = (key.job, line.to_owned());
        if let Some(client) = self.job_in(key).and_then(|job| job.client) {
            self.tell(client, OwnedMessage::Told { job, line });
        }
    }

    /// A client says who it is.
    pub(super) fn on_introduce(&mut self, from: PeerLink, client: &Client) {
        let client = Client {
            user: cleaned(&client.user),
            host: cleaned(&client.host),
            pid: client.pid,
            log: client.log.as_deref().map(cleaned),
        };
        self.clients.known.insert(from, client);
        self.tell_lasting(from);
    }

    /// A client says how many tasks its job has.
    pub(super) fn on_expects(&mut self, from: PeerLink, id: JobId, tasks: u64) {
        let job = self.jobs.get_mut(&id);
        if let Some(job) = job.filter(|job| job.client == Some(from)) {
            job.tasks_total = Some(tasks);
        }
    }

    /// A client says what its job weighs: those who run it hear it.
    pub(super) fn on_weigh(&mut self, from: PeerLink, id: JobId, weight: u32) {
        let job = self.jobs.get_mut(&id);
        let Some(job) = job.filter(|job| job.client == Some(from)) else {
            return;
        };
        job.weight = weight.clamp(1, WEIGHT_MAX);
        let weight = job.weight;
        if self.running.keys().any(|key| key.job == id) {
            let members = job.members.iter();
            let callers = members.filter_map(|member| self.workers.get(member)?.caller);
            for to in callers.collect::<Vec<_>>() {
                self.tell(to, OwnedMessage::Weigh { job: id, weight });
            }
        }
    }

    /// Somebody wants a job ended, whoever's it is. They hear when it is over, or why it is not ended.
    pub(super) fn on_cancel(&mut self, from: PeerLink, id: JobId) {
        let Some(job) = self.jobs.get(&id) else {
            let why = format!("there is no job {id}; `brambling jobs` lists those that there are");
            return self.refuse(from, why);
        };
        match job.state {
            JobState::Queued | JobState::Running => {}
            JobState::Succeeded => {
                return self.refuse(from, format!("job {id} is over already: it has succeeded"));
            }
            JobState::Failed => {
                let why = job.failure.as_deref().unwrap_or("it has failed");
                let why = format!("job {id} is over already: {why}");
                return self.refuse(from, why);
            }
        }
        // The job's own client hears of the end anyway.
        if job.client != Some(from) && !self.clients.enders.contains(&(id, from)) {
            self.clients.enders.push((id, from));
        }
        let by = match self.clients.known.get(&from) {
            Some(it) => format!("{} on {} (process {})", it.user, it.host, it.pid),
            None => "a client that has not said who it is".into(),
        };
        self.cancel(id, format!("job {id} was cancelled by {by}"));
    }

    /// A job is over: who has asked for that hears it, once.
    pub(super) fn tell_enders(&mut self, id: JobId) {
        let failure = self.jobs.get(&id).and_then(|job| job.failure.clone());
        let theirs = |(it, _): &mut (JobId, PeerLink)| *it == id;
        let told: Vec<_> = self.clients.enders.extract_if(.., theirs).collect();
        for (job, by) in told {
            let failure = failure.clone();
            self.tell(by, OwnedMessage::Over { job, failure });
        }
    }

    /// What a job is called.
    pub fn name_of(&self, id: JobId) -> Option<&str> {
        self.jobs.get(&id).map(|job| job.name.as_str())
    }

    /// What is known of each job.
    pub fn job_details(&self) -> Vec<JobDetails> {
        let details = |(id, job): (&JobId, &RegisteredJob)| JobDetails {
            status: job.status(*id, self.now),
            tasks_total: job.tasks_total,
            workers: job.members.clone(),
            client: job.by.clone(),
        };
        self.jobs.iter().map(details).collect()
    }
}
