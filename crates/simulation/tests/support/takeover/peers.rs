//! Workers' processes, and clients.

use super::chance::Chance;
use super::office::VERSION;
use super::part::{Part, SHARDS, cut_plan};
use super::shelf::Shelf;
use super::wire::{Parcel, read};
use brambling_protocol::message::{
    JobCuts, Load, Message, Register, SnapshotEvery, Submit, Survives,
};
use brambling_protocol::{Generation, JobId, JobKey, WorkerId};
use std::collections::BTreeMap;
use std::time::Duration;

const REPORTS: u64 = 250;

/// A worker's process.
pub struct WorkerProcess {
    epoch: u64,
    pub known_as: Option<WorkerId>,
    pub wire: Option<usize>,
    pub parts: BTreeMap<JobKey, Part>,
    /// What a controller that has taken over wants to know, and its term.
    asked: BTreeMap<JobKey, u32>,
    /// The newest generations that it has dropped.
    dropped: BTreeMap<JobId, Generation>,
    /// It runs no code until then.
    pub stopped_until: u64,
    reports_at: u64,
    /// Its exit code, once it has ended.
    pub exit: Option<u8>,
    out: Vec<Parcel>,
}

impl WorkerProcess {
    pub fn new(epoch: u64) -> WorkerProcess {
        WorkerProcess {
            epoch,
            known_as: None,
            wire: None,
            parts: BTreeMap::new(),
            asked: BTreeMap::new(),
            dropped: BTreeMap::new(),
            stopped_until: 0,
            reports_at: 0,
            exit: None,
            out: Vec::new(),
        }
    }

    pub fn runs(&self, now: u64) -> bool {
        self.exit.is_none() && now >= self.stopped_until
    }

    /// What is to be sent.
    pub fn take(&mut self) -> Vec<Parcel> {
        let parts = self.parts.values_mut().flat_map(|it| it.take());
        let of_parts: Vec<Parcel> = parts.collect();
        self.out.drain(..).chain(of_parts).collect()
    }

    /// It has a link to a controller.
    pub fn on_linked(&mut self, wire: usize) {
        self.wire = Some(wire);
        self.out = vec![Parcel::said(Message::Register(Register {
            version: VERSION,
            known_as: self.known_as,
            epoch: self.epoch,
            pid: self.epoch as u32,
            host: "host",
            threads: 1,
            memory_bytes: 1 << 30,
            listens_at: ([127, 0, 0, 1], self.epoch as u16).into(),
            jobs: self.parts.keys().copied().collect(),
        }))];
        self.parts.values_mut().for_each(Part::greet);
    }

    /// It cannot reach another member of what it runs.
    pub fn cannot_reach(&mut self, peer: WorkerId) {
        for key in self.parts.keys().copied().collect::<Vec<_>>() {
            let cut = Message::CutOff(brambling_protocol::message::CutOff {
                key,
                peer,
                for_ms: 5_000,
                why: "no answer",
            });
            self.out.push(Parcel::said(cut));
        }
    }

    pub fn step(&mut self, now: u64, shelf: &mut Shelf, chance: &mut Chance) {
        for part in self.parts.values_mut() {
            part.step(now, shelf, chance);
        }
        if now >= self.reports_at && self.wire.is_some() {
            self.reports_at = now + REPORTS;
            self.out.push(Parcel::said(Message::Load(Load {
                memory_bytes: 0,
                idle_permille: 0,
                tasks: Vec::new(),
                running: Vec::new(),
            })));
            self.say_holdings();
        }
    }

    pub fn on_parcel(&mut self, parcel: Parcel, shelf: &Shelf) {
        match parcel {
            Parcel::Said(bytes) => read(&bytes, |message| self.on_message(message, shelf)),
            Parcel::OfJob(key, _, bytes) => {
                if let Some(part) = self.parts.get_mut(&key) {
                    part.on_frame(&bytes);
                }
            }
            Parcel::Greeted(key, received) => {
                if let Some(part) = self.parts.get_mut(&key) {
                    part.on_greeted(received);
                }
            }
            Parcel::Greets(..) => unreachable!("a worker says that"),
        }
    }

    /// Nothing begins here that was dropped.
    fn is_new(&self, key: JobKey) -> bool {
        let dropped = self.dropped.get(&key.job);
        !self.parts.contains_key(&key) && dropped.is_none_or(|it| key.generation > *it)
    }

    /// Tells a controller what is here of what it has asked for.
    fn say_holdings(&mut self) {
        for (key, term) in &self.asked {
            if let Some(part) = self.parts.get_mut(key) {
                let holding = part.holding(*term);
                self.out.extend(part.take());
                self.out.push(Parcel::said(Message::Holding(holding)));
            }
        }
    }

    fn on_message(&mut self, message: Message<'_>, shelf: &Shelf) {
        match message {
            Message::Registered(registered) => self.known_as = Some(registered.worker),
            // A controller that does not know that another has taken over may still speak of what that one has ended.
            Message::Prepare(prepare) if self.is_new(prepare.key) => {
                let me = self.known_as.expect("it has registered");
                match Part::begin(&prepare, me, shelf) {
                    Some(part) => drop(self.parts.insert(prepare.key, part)),
                    None => self.out.push(Parcel::said(Message::Unrestored {
                        key: prepare.key,
                        why: "damaged",
                    })),
                }
            }
            Message::Release(key) => {
                let dropped = self.dropped.entry(key.job).or_insert(key.generation);
                *dropped = key.generation.max(*dropped);
                self.parts.remove(&key);
                self.asked.remove(&key);
            }
            Message::AskHolding { key, term } => {
                self.asked.insert(key, term);
                self.say_holdings();
            }
            Message::Adopted(key) => {
                self.asked.remove(&key);
                // The controller's side is there now.
                self.parts.get_mut(&key).into_iter().for_each(Part::greet);
            }
            Message::Fenced { .. } => self.exit = Some(3),
            _ => {}
        }
    }
}

/// What a client has come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Done,
    Failed(String),
}

/// A client with one job.
pub struct ClientProcess {
    pub name: u128,
    pub wire: Option<usize>,
    pub job: Option<JobId>,
    /// The generation that runs, as far as it knows.
    pub key: Option<JobKey>,
    pub is_over: bool,
    pub outcome: Option<Outcome>,
    out: Vec<Parcel>,
}

impl ClientProcess {
    pub fn new(name: u128) -> ClientProcess {
        ClientProcess {
            name,
            wire: None,
            job: None,
            key: None,
            is_over: false,
            outcome: None,
            out: Vec::new(),
        }
    }

    pub fn take(&mut self) -> Vec<Parcel> {
        std::mem::take(&mut self.out)
    }

    /// It has a link, and asks for its job, perhaps again.
    pub fn on_linked(&mut self, wire: usize) {
        self.wire = Some(wire);
        let survives = Survives {
            repeats: true,
            cuts: Some(JobCuts {
                program: 1,
                plan: cut_plan(),
                every: Some(SnapshotEvery::Time(Duration::from_millis(100))),
            }),
        };
        self.out = vec![
            Parcel::said(Message::Named(self.name)),
            Parcel::said(Message::Survives(survives)),
            Parcel::said(Message::Submit(Submit {
                version: VERSION,
                name: "job",
                shards: vec![SHARDS],
            })),
        ];
    }

    /// It has its results.
    pub fn is_done(&mut self) {
        self.outcome = Some(Outcome::Done);
        let job = self.job.expect("it is over");
        self.out.push(Parcel::said(Message::Done(job)));
    }

    pub fn on_parcel(&mut self, parcel: Parcel) {
        let Parcel::Said(bytes) = parcel else {
            unreachable!("a client has no part of a job");
        };
        // It listens until it has what it wants.
        if self.outcome.is_none() {
            read(&bytes, |message| self.on_message(message));
        }
    }

    fn on_message(&mut self, message: Message<'_>) {
        match message {
            Message::Queued(job) => {
                let before = self.job.replace(job);
                assert!(
                    before.is_none_or(|it| it == job),
                    "its name is another job's now"
                );
            }
            Message::Accepted(accepted) => {
                self.key = Some(accepted.key);
                self.is_over = false;
            }
            Message::Recovering { .. } => {
                self.key = None;
                self.is_over = false;
            }
            Message::Over { failure: None, .. } => self.is_over = true,
            Message::Over {
                failure: Some(why), ..
            } => self.outcome = Some(Outcome::Failed(why.to_owned())),
            // Nobody is there yet: it asks again.
            Message::Refused { .. } => {
                let wire = self.wire.expect("it was said on it");
                self.on_linked(wire);
            }
            _ => {}
        }
    }
}
