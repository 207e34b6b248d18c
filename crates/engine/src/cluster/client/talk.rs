//! One program's way to the cluster and back: what a client says to the controller and to the job's workers, and what it fetches from them.

mod endings;
mod giving;
mod hearing;
mod links;
mod packages;
mod room;

use super::link_events::{LinkEvent, LinkLoss, LossKind};
use super::{ANSWER, Cluster, Silences};
use crate::cluster::wire::framed;
use crate::cluster::wire::random;
use crate::cluster::{ClusterError, LASTING_TIME, VERSION};
use crate::restore::{ChosenSnapshot, take_restore};
use crate::{Error, Outcome};
use brambling_exchange::transports::tcp::LinkId;
use brambling_program::{DatasetId, Plan, Value};
use brambling_protocol::message::{
    Accepted, Brings, JobCuts, KeptPlace, Member, Message, SnapshotEvery, Submit, Survives, parts,
};
use brambling_protocol::{JobId, JobKey, WorkerId};
use brambling_worker::executor::{Caller, JobLedger, Tally};
use endings::elsewhere;
use hearing::Event;
use links::{REDIALED_FOR, WorkerLink};
use packages::Packages;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Receiver;
use std::time::Instant;

/// How a generation of a job ends for its client.
enum Ended<R> {
    /// As it should.
    Well(R),
    /// Something of it was lost: the next one has begun.
    Again(Accepted),
}

/// What a job left on its workers.
struct Fetched {
    values: BTreeMap<(DatasetId, u32), Value>,
    /// Where each worker is, and what it tells of its threads.
    ledgers: BTreeMap<WorkerId, (String, JobLedger)>,
    tally: Tally,
}

impl Cluster {
    /// Runs a program on the cluster's workers, who build it from `bytes`, and fetches the datasets that it keeps.
    ///
    /// `caller` is asked for interruptions and told how far the job is; its stages run on the workers. Jobs share the workers'
    /// threads by `weight`; where a cluster has as many as it runs at once, others wait for their turn.
    ///
    /// # Errors
    /// How the job failed, and on which worker; or what became of the cluster.
    pub fn run(
        &self,
        plan: Plan,
        bytes: &[u8],
        weight: u32,
        caller: &mut dyn Caller,
    ) -> Result<Outcome, Error> {
        self.run_saved(plan, bytes, weight, None, caller)
    }

    /// The same, of a job that is saved so often, where the cluster has a store; none: as often as the cluster's jobs are.
    ///
    /// # Errors
    /// As [`Cluster::run`].
    pub fn run_saved(
        &self,
        plan: Plan,
        bytes: &[u8],
        weight: u32,
        every: Option<SnapshotEvery>,
        caller: &mut dyn Caller,
    ) -> Result<Outcome, Error> {
        let chosen = take_restore(&plan)?;
        let restores = chosen.as_ref().map(ChosenSnapshot::place);
        let inbox = self.inbox();
        self.stand_ready(&inbox, LASTING_TIME, caller)?;
        if let Some(chosen) = &chosen {
            caller.told(&chosen.line());
        }
        let started = Instant::now();
        let mut talk = Talk {
            cluster: self,
            inbox: &inbox,
            plan: &plan,
            job: None,
            key: None,
            caller,
            started,
            workers: BTreeMap::new(),
            left: BTreeMap::new(),
            again: Vec::new(),
            silences: Silences::default(),
            gone: Vec::new(),
            served: BTreeSet::new(),
            heard: started,
            packages: Packages::default(),
            sent_bytes: 0,
            waits: false,
            restores,
        };
        let result = talk.run_on(bytes, weight, every);
        talk.part();
        let sent_bytes = talk.sent_bytes;
        let Fetched {
            values,
            ledgers,
            mut tally,
        } = result?;
        tally.wall = started.elapsed();
        tally.sent_bytes = sent_bytes;
        let ledger = crate::ledger::of_workers(&plan, tally.wall, ledgers);
        let mut outcome = Outcome::fetched(plan, values, tally, ledger);
        crate::ledger::record(&mut outcome);
        Ok(outcome)
    }
}

/// One program's way to the cluster and back.
struct Talk<'a> {
    cluster: &'a Cluster,
    inbox: &'a Receiver<LinkEvent>,
    plan: &'a Plan,
    /// By which the controller knows its job, once that waits.
    job: Option<JobId>,
    /// By which its members know it, once it has begun.
    key: Option<JobKey>,
    caller: &'a mut dyn Caller,
    started: Instant,
    workers: BTreeMap<LinkId, WorkerLink>,
    /// Workers that have left the job: the last of what its kernels printed there may still come.
    left: BTreeMap<LinkId, WorkerLink>,
    /// Workers to dial again, and when.
    again: Vec<(Instant, WorkerLink)>,
    /// Workers that had ended before they gave what they had.
    gone: Vec<WorkerId>,
    /// Members that were sent the program of this generation, on whichever link.
    served: BTreeSet<(JobKey, WorkerId)>,
    /// How long workers have told the controller nothing.
    silences: Silences,
    /// When a worker last said something.
    heard: Instant,
    packages: Packages,
    /// What workers were sent: the program, and what it makes.
    sent_bytes: u64,
    /// The caller was told what the job waits for.
    waits: bool,
    /// The snapshot of another job at which this one begins.
    restores: Option<KeptPlace>,
}

impl Talk<'_> {
    /// Runs the program, whatever becomes of controllers whose jobs outlive them.
    fn run_on(
        &mut self,
        bytes: &[u8],
        weight: u32,
        every: Option<SnapshotEvery>,
    ) -> Result<Fetched, Error> {
        let system = |source| ClusterError::System { source };
        let random = random().map_err(system)?;
        let (name, _) = random.split_first_chunk().expect("32 bytes");
        let name = u128::from_le_bytes(*name);
        loop {
            let error = match self.run(bytes, weight, every, name) {
                Err(error) if self.cluster.lasts() && self.cluster.loss().is_some() => error,
                done => return done,
            };
            self.caller
                .told(&format!("{error}; this client waits for it"));
            self.part_from_all();
            self.job = None;
            self.cluster
                .find_again(self.inbox, LASTING_TIME, self.caller)?;
            self.caller.told("the controller is back");
        }
    }

    fn run(
        &mut self,
        bytes: &[u8],
        weight: u32,
        every: Option<SnapshotEvery>,
        name: u128,
    ) -> Result<Fetched, Error> {
        let columns: Vec<u32> = self.plan.hints.iter().map(|hint| hint.columns()).collect();
        if columns.iter().any(|&columns| columns > 0) {
            let arrange = Message::Arrange { columns };
            self.cluster.say(self.cluster.controller(), arrange);
        }
        let brings = Brings {
            program_bytes: bytes.len() as u64,
            rows_bytes: self.plan.program.expected_bytes(),
        };
        self.cluster
            .say(self.cluster.controller(), Message::Brings(brings));
        self.cluster
            .say(self.cluster.controller(), Message::Named(name));
        let survives = Survives {
            // What counts outside of its datasets is not done twice.
            repeats: !self.plan.program.acts(),
            cuts: (!self.plan.program.acts()).then(|| JobCuts {
                program: self.plan.program.spec().hash(),
                plan: self.plan.cut_plan(),
                every,
            }),
        };
        self.cluster
            .say(self.cluster.controller(), Message::Survives(survives));
        if let Some(at) = &self.restores {
            self.cluster
                .say(self.cluster.controller(), Message::Restore(at.clone()));
        }
        self.cluster.say(
            self.cluster.controller(),
            Message::Submit(Submit {
                version: VERSION,
                name: &self.plan.program.spec().name,
                shards: self.plan.counts.clone(),
            }),
        );
        let job = self.queued(brings)?;
        if let Some(tasks) = self.plan.task_count() {
            let expects = Message::Expects { job, tasks };
            self.cluster.say(self.cluster.controller(), expects);
        }
        if weight != 1 {
            let weigh = Message::Weigh { job, weight };
            self.cluster.say(self.cluster.controller(), weigh);
        }
        let mut accepted = self.accepted(brings)?;
        loop {
            let key = accepted.key;
            self.begin(accepted)?;
            accepted = match self.attend(key, bytes)? {
                Ended::Again(next) => next,
                Ended::Well(()) => match self.fetch(key)? {
                    Ended::Well(fetched) => return Ok(fetched),
                    Ended::Again(next) => next,
                },
            };
        }
    }

    /// Waits until the job begins, for the first time or again.
    fn accepted(&mut self, brings: Brings) -> Result<Accepted, Error> {
        loop {
            match self.next()? {
                Event::Accepted(accepted) => return Ok(accepted),
                Event::Over(failure) => return Err(elsewhere(failure, None)),
                Event::Budgets(budgets) => self.expect_room(brings, &budgets)?,
                Event::Recovering(why) => self.recovers(&why),
                _ => {}
            }
        }
    }

    /// The job has lost something: those who ran it are left, and the caller is told.
    fn recovers(&mut self, why: &str) {
        self.part_from_all();
        self.caller.told(why);
    }

    /// A generation of the job begins on its members, or goes on there with another controller.
    fn begin(&mut self, accepted: Accepted) -> Result<(), Error> {
        self.part_from_all();
        let key = accepted.key;
        self.key = Some(key);
        self.served.retain(|(its, _)| *its == key);
        let members = accepted.members.into_iter();
        for member in members {
            let mut link = WorkerLink::new(member, None);
            // It has what it was sent before there was another controller, and perhaps results.
            link.has_program = self.served.contains(&(key, member.worker));
            self.dial(link)?;
        }
        Ok(())
    }

    /// Sends the program to whoever is to run it, and what they ask for, until the job is over.
    fn attend(&mut self, key: JobKey, bytes: &[u8]) -> Result<Ended<()>, Error> {
        loop {
            match self.next()? {
                Event::Open(link) => {
                    self.worker(link).opened();
                    let program = parts(key, bytes).map(|part| framed(Message::Program(part)));
                    self.cluster.board.say(link, program);
                    self.sent_bytes += bytes.len() as u64;
                    let worker = self.worker(link);
                    worker.has_program = true;
                    let name = worker.member.worker;
                    self.served.insert((key, name));
                }
                Event::Wanted(link, dataset, index) => self.give(link, key, (dataset, index))?,
                Event::Admitted(member) => self.dial(WorkerLink::new(member, None))?,
                Event::Left(worker) => self.part_from(|it| it.member.worker == worker),
                // The controller tells whether that ends the job.
                Event::Lost(link, loss) => self.lost(link, &loss),
                Event::Over(None) => return Ok(Ended::Well(())),
                Event::Over(failure) => return Err(self.failed(failure)),
                Event::Recovering(why) => self.recovers(&why),
                Event::Accepted(next) => return Ok(Ended::Again(next)),
                _ => {}
            }
        }
    }

    /// The name that the controller gives the job. Not interrupted: without the name nobody could end it.
    fn queued(&mut self, brings: Brings) -> Result<JobId, Error> {
        let mut budgets = Vec::new();
        let deadline = Instant::now() + ANSWER;
        loop {
            let patience = deadline.saturating_duration_since(Instant::now());
            let heard = self.inbox.recv_timeout(patience);
            let heard = heard.map_err(|_| ClusterError::NoAnswer {
                at: self.cluster.address,
                after: ANSWER,
            })?;
            match self.understand(heard)? {
                Event::Budgets(told) => budgets = told,
                Event::Queued(job) => {
                    self.job = Some(job);
                    self.expect_room(brings, &budgets)?;
                    return Ok(job);
                }
                _ => {}
            }
        }
    }

    /// Fetches what the job has left.
    fn fetch(&mut self, key: JobKey) -> Result<Ended<Fetched>, Error> {
        // Who came too late for the program holds nothing.
        self.part_from(|worker| !worker.has_program);
        for link in self.workers.keys() {
            self.ask_for_all(*link, key);
        }
        let mut fetched = Fetched {
            values: BTreeMap::new(),
            ledgers: BTreeMap::new(),
            tally: Tally::default(),
        };
        self.heard = Instant::now();
        while !(self.again.is_empty() && self.workers.values().all(|worker| worker.is_done)) {
            self.expect_answers()?;
            match self.next_by(Some(self.heard + self.cluster.silence))? {
                // Made again: all of it, since what came of it is not known there.
                Event::Open(link) => {
                    self.worker(link).opened();
                    self.ask_for_all(link, key);
                }
                Event::Left(worker) => self.part_from(|it| it.member.worker == worker),
                Event::Partition(dataset, index, bytes) => {
                    let value = self.decode(dataset, &bytes)?;
                    fetched.values.insert((dataset, index), value);
                }
                Event::Ledger(member, bytes) => {
                    let Member { worker, at } = member;
                    let ledger = JobLedger::decode(&bytes);
                    let ledger = ledger.map_err(|why| ClusterError::Broken {
                        who: format!("worker {worker}"),
                        why: why.to_string(),
                    })?;
                    fetched
                        .ledgers
                        .insert(worker, (at.ip().to_string(), ledger));
                }
                Event::Fetched(link, tally) => {
                    (self.worker(link).is_done, self.worker(link).lost) = (true, None);
                    fetched.tally.tasks += tally.tasks;
                    fetched.tally.threads += tally.threads;
                    fetched.tally.busy += tally.busy;
                    fetched.tally.peak_bytes += tally.peak_bytes;
                }
                Event::Lost(link, loss) if !self.worker(link).is_done => {
                    self.expect_there(link, &loss)?;
                    self.lost(link, &loss);
                }
                Event::Recovering(why) => {
                    self.recovers(&why);
                    return self.await_again();
                }
                Event::Accepted(next) => return Ok(Ended::Again(next)),
                _ => {}
            }
        }
        match self.check(&fetched) {
            // The controller sees that a worker is gone when its link has been lost for a while.
            Err(_) if !self.gone.is_empty() && !self.plan.program.acts() => {
                match self.next_recovery()? {
                    Some(next) => Ok(next),
                    None => self.check(&fetched).map(|()| Ended::Well(fetched)),
                }
            }
            checked => checked.map(|()| Ended::Well(fetched)),
        }
    }

    /// Waits for what the controller says of a worker that is gone.
    fn next_recovery(&mut self) -> Result<Option<Ended<Fetched>>, Error> {
        let deadline = Instant::now() + ANSWER;
        while Instant::now() < deadline {
            match self.next_by(Some(deadline))? {
                Event::Recovering(why) => {
                    self.recovers(&why);
                    return self.await_again().map(Some);
                }
                Event::Accepted(next) => return Ok(Some(Ended::Again(next))),
                Event::Over(Some(failure)) => return Err(self.failed(Some(failure))),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The job begins again, or has ended for want of a worker.
    fn await_again<R>(&mut self) -> Result<Ended<R>, Error> {
        loop {
            match self.next()? {
                Event::Accepted(next) => return Ok(Ended::Again(next)),
                Event::Over(failure) => return Err(elsewhere(failure, None)),
                _ => {}
            }
        }
    }

    /// What its kernels have printed, and what they have left.
    fn ask_for_all(&self, link: LinkId, key: JobKey) {
        self.cluster.say(link, Message::AskPrinted(key));
        self.cluster.say(link, Message::Fetch(key));
    }

    /// A worker that owes results has lost its link, and it cannot be made again if its process has ended.
    fn expect_there(&mut self, link: LinkId, loss: &LinkLoss) -> Result<(), ClusterError> {
        let worker = self.worker(link);
        let since = *worker.lost.get_or_insert_with(Instant::now);
        let (name, has_waited) = (worker.member.worker, since.elapsed() > REDIALED_FOR);
        match loss.how {
            // Perhaps it had nothing.
            LossKind::Nobody => {
                self.gone.push(name);
                self.part_from(|it| it.member.worker == name);
                Ok(())
            }
            // Those are waited for as long as for any answer, or until it is told that there is no way there.
            LossKind::Silent | LossKind::CutOff => Ok(()),
            LossKind::Refused | LossKind::Other if !has_waited => Ok(()),
            LossKind::Refused | LossKind::Other => Err(ClusterError::ResultsGone {
                worker: name.to_string(),
                why: loss.why.clone(),
            }),
        }
    }

    /// Whoever owes results, and has said nothing for long, is not waited for.
    fn expect_answers(&self) -> Result<(), ClusterError> {
        let silence = self.heard.elapsed();
        let owes = self.workers.values().find(|worker| !worker.is_done);
        match owes.filter(|_| silence >= self.cluster.silence) {
            None => Ok(()),
            Some(owes) => Err(ClusterError::ResultsGone {
                worker: owes.member.worker.to_string(),
                why: format!(
                    "it is there, and has said nothing for {} s; look at what it prints, and end it if it does not go on",
                    silence.as_secs()
                ),
            }),
        }
    }

    /// Whether all kept partitions have come.
    fn check(&self, fetched: &Fetched) -> Result<(), Error> {
        let spec = self.plan.program.spec();
        for (dataset, kept) in (0..)
            .map(DatasetId)
            .zip(&spec.datasets)
            .filter(|(_, it)| it.keep)
        {
            let group = self.plan.group_of_dataset[dataset.index()];
            for index in 0..self.plan.counts[group.index()] {
                if !fetched.values.contains_key(&(dataset, index)) {
                    if let Some(gone) = self.gone.first() {
                        let why = "its process has ended, and what it held is lost; run the program again";
                        let (worker, why) = (gone.to_string(), why.into());
                        return Err(ClusterError::ResultsGone { worker, why }.into());
                    }
                    return Err(ClusterError::Broken {
                        who: "the cluster".into(),
                        why: format!("no worker has partition {index} of dataset `{}`", kept.name),
                    }
                    .into());
                }
            }
        }
        Ok(())
    }

    fn decode(&self, dataset: DatasetId, mut bytes: &[u8]) -> Result<Value, Error> {
        let broken = |why: String| ClusterError::Broken {
            who: "a worker".into(),
            why,
        };
        let datasets = &self.plan.program.spec().datasets;
        let kept = datasets.get(dataset.index()).filter(|dataset| dataset.keep);
        let kept = kept.ok_or_else(|| broken("a dataset that the program does not keep".into()))?;
        let table = self.plan.program.payload_type(dataset);
        let unreadable = |why: String| broken(format!("dataset `{}`: {why}", kept.name));
        let value =
            Value::decode(table, &mut bytes).map_err(|error| unreadable(error.to_string()))?;
        match bytes {
            [] => Ok(value),
            _ => Err(unreadable("more bytes than its value has".into()).into()),
        }
    }
}
