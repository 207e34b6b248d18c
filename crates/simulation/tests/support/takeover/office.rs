//! A controller's process around the real machines, as the engine's is: it logs before it does what follows, and makes manifests. All that it has is lost with it.

mod records;

use super::chance::Chance;
use super::part::manifest_key;
use super::shelf::{Made, Shelf};
use super::wire::{Parcel, read};
use brambling_controller::registry::{
    Apart, ClusterStore, Order, OwnedMessage, PeerLink, Registry,
};
use brambling_controller::{Controller, ControllerEffect, SnapshotSetup};
use brambling_protocol::kept::{CutManifest, LogEntry, LogRecord, LoggedTerm};
use brambling_protocol::message::{
    EventKind, JobCuts, JobState, KeptPlace, Message, SnapshotEvery,
};
use brambling_protocol::{JobId, JobKey, Sequence, WorkerId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

pub const VERSION: &str = "simulated";
/// How long a worker may tell nothing.
pub const SILENCE: Duration = Duration::from_secs(3);
const TICK: u64 = 50;
/// How often it looks whether it is still in office.
const LOOK: u64 = 1_000;

/// What all controllers of a run have done, for the checks.
#[derive(Default)]
pub struct Chronicle {
    /// Generations that have begun.
    pub begun: BTreeSet<JobKey>,
    /// Cuts of which there were manifests.
    pub cuts: BTreeSet<(JobId, u64)>,
    /// Snapshots that a worker could not use, and of which the log says so.
    pub unusable: BTreeSet<(JobId, u64)>,
    pub recoveries: u64,
    /// Generations that another controller has gone on with.
    pub adopted: u64,
    pub from_cuts: u64,
    pub deposed: u64,
    pub story: VecDeque<String>,
}

impl Chronicle {
    pub fn tell(&mut self, now: u64, what: String) {
        if self.story.len() == 80 {
            self.story.pop_front();
        }
        self.story.push_back(format!("{now:>7} {what}"));
    }
}

/// A record or a manifest on its way.
enum Write {
    Record(LogEntry),
    Commit(JobKey, String, Box<CutManifest>),
}

/// A controller.
pub struct Office {
    pub term: u32,
    registry: Registry,
    jobs: BTreeMap<JobKey, Controller>,
    held: VecDeque<Order>,
    /// Records that orders wait for.
    unlogged: usize,
    writes: VecDeque<Write>,
    number: usize,
    count: u64,
    bases: BTreeMap<JobId, Vec<CutManifest>>,
    places: BTreeMap<JobId, String>,
    /// The last cut of each job's generation before this one.
    given: BTreeMap<JobId, u64>,
    next_link: u64,
    /// The time in which it has run.
    clock: u64,
    ticked: u64,
    looks_at: u64,
    pub stopped_until: u64,
    pub is_deposed: bool,
    /// What goes to whom.
    out: Vec<(PeerLink, Parcel)>,
    /// On which link a member of a job is.
    sides: BTreeMap<(JobKey, WorkerId), PeerLink>,
    /// What workers could not use, of which the log is about to know.
    unusable: Vec<(JobId, u64)>,
    /// At which snapshots generations began.
    begun_at: BTreeMap<JobKey, u64>,
    /// Processes: on links, by the name that they have, and those that were fenced.
    epochs: BTreeMap<PeerLink, u64>,
    processes: BTreeMap<WorkerId, u64>,
    fenced: BTreeSet<u64>,
}

impl Office {
    /// Takes over from what the log has; none where another one did first, or the store is full.
    pub fn take_over(now: u64, shelf: &mut Shelf, chance: &mut Chance) -> Option<Office> {
        let mut cluster = shelf.cluster();
        let number = shelf.records();
        let term = cluster.term + 1;
        let entry = LogEntry::Term(LoggedTerm {
            term,
            cluster: 5,
            address: "10.0.0.7:7077".into(),
            version: VERSION.into(),
        });
        let record = LogRecord {
            nonce: (u64::from(term), 0),
            entry: entry.clone(),
        };
        if shelf.record(now, number, &record, chance) == Made::Unknown && shelf.records() == number
        {
            return None;
        }
        cluster.take(entry);
        let registry = Registry::new(VERSION)
            .with_silence(SILENCE)
            .in_term(term, &cluster)
            .with_store(ClusterStore {
                store: "store".into(),
                prefix: "cluster".into(),
                every: SnapshotEvery::DEFAULT,
            });
        let found = |(id, (_, cuts)): (&JobId, &(_, Vec<u64>))| {
            let place = format!("cluster/{}", id.0);
            let manifests = cuts.iter().filter_map(|cut| {
                CutManifest::decode(shelf.get(&manifest_key(&place, *cut))?).ok()
            });
            (*id, manifests.collect())
        };
        Some(Office {
            term,
            registry,
            jobs: BTreeMap::new(),
            held: VecDeque::new(),
            unlogged: 0,
            writes: VecDeque::new(),
            number: number + 1,
            count: 1,
            bases: cluster.jobs.iter().map(found).collect(),
            places: BTreeMap::new(),
            given: BTreeMap::new(),
            next_link: 1,
            clock: 0,
            ticked: 0,
            looks_at: now + LOOK,
            stopped_until: 0,
            is_deposed: false,
            out: Vec::new(),
            sides: BTreeMap::new(),
            unusable: Vec::new(),
            begun_at: BTreeMap::new(),
            epochs: BTreeMap::new(),
            processes: BTreeMap::new(),
            fenced: BTreeSet::new(),
        })
    }

    pub fn new_link(&mut self) -> PeerLink {
        self.next_link += 1;
        PeerLink(self.next_link)
    }

    /// What is to be sent.
    pub fn take(&mut self) -> Vec<(PeerLink, Parcel)> {
        std::mem::take(&mut self.out)
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.clock)
    }

    /// Time passes.
    pub fn step(&mut self, now: u64, ms: u64, world: (&mut Shelf, &mut Chronicle, &mut Chance)) {
        let (shelf, chronicle, chance) = world;
        self.clock += ms;
        if now >= self.looks_at {
            self.looks_at = now + LOOK;
            if self.is_superseded(shelf) {
                return self.depose(now, chronicle);
            }
        }
        if !self.writes.is_empty() && chance.one_in(6) {
            self.write(now, shelf, chronicle, chance);
        }
        if self.clock >= self.ticked + TICK {
            self.ticked = self.clock;
            let time = self.time();
            self.registry.on_tick(time);
            self.jobs.values_mut().for_each(Controller::on_tick);
            self.jobs.values_mut().for_each(|it| it.snapshot(time));
        }
        self.act(now, shelf, chronicle);
    }

    /// Something has come.
    pub fn on_parcel(
        &mut self,
        now: u64,
        from: PeerLink,
        parcel: Parcel,
        world: (&Shelf, &mut Chronicle),
    ) {
        match parcel {
            Parcel::Said(bytes) => read(&bytes, |message| self.on_message(from, message)),
            Parcel::OfJob(key, member, bytes) => {
                // A link of a job ends with it, and whoever calls again is refused.
                if self.sides.get(&(key, member)) == Some(&from)
                    && let Some(machine) = self.jobs.get_mut(&key)
                {
                    machine.on_frame(member, &bytes).expect("an honest worker");
                }
            }
            Parcel::Greets(key, member, received) => self.on_greets(from, (key, member), received),
            Parcel::Greeted(..) => unreachable!("a controller says that"),
        }
        self.act(now, world.0, world.1);
    }

    fn on_message(&mut self, from: PeerLink, message: Message<'_>) {
        if let Message::Register(register) = &message {
            self.epochs.insert(from, register.epoch);
        }
        if let Message::Load(_) = message {
            let time = self.time();
            self.registry.on_heartbeat(from, time);
        }
        if let Message::Unrestored { key, .. } = message
            && let Some(cut) = self.begun_at(key)
        {
            self.unusable.push((key.job, cut));
        }
        // A fenced one may not know yet.
        let _ = self.registry.on_message(from, message);
    }

    /// At which cut a generation has begun, if the job is in it and runs.
    fn begun_at(&self, key: JobKey) -> Option<u64> {
        let status = self.registry.status(|_, _| 0);
        let job = status.jobs.iter().find(|it| it.id == key.job)?;
        let is_it = job.generation == key.generation && job.state == JobState::Running;
        self.begun_at.get(&key).copied().filter(|_| is_it)
    }

    fn on_greets(&mut self, from: PeerLink, (key, member): (JobKey, WorkerId), received: Sequence) {
        let Some(machine) = self.jobs.get_mut(&key) else {
            return;
        };
        // A member that is gone is a stranger.
        if machine.on_reconnect(member, received).is_ok() {
            self.sides.insert((key, member), from);
            let received = machine.received(member);
            self.out.push((from, Parcel::Greeted(key, received)));
        }
    }

    /// A link is lost.
    pub fn on_lost(&mut self, now: u64, link: PeerLink, world: (&Shelf, &mut Chronicle)) {
        let time = self.time();
        self.registry.on_lost(link, time);
        self.sides.retain(|_, its| *its != link);
        self.act(now, world.0, world.1);
    }

    fn act(&mut self, now: u64, shelf: &Shelf, chronicle: &mut Chronicle) {
        loop {
            self.note_fences();
            self.held.extend(self.registry.take_orders());
            let mut idle = true;
            while self.unlogged == 0
                && !self.is_deposed
                && let Some(order) = self.held.pop_front()
            {
                idle = false;
                self.order(now, order, shelf, chronicle);
            }
            let mut effects = Vec::new();
            for (key, machine) in &mut self.jobs {
                effects.extend(machine.take_effects().into_iter().map(|it| (*key, it)));
            }
            if idle && effects.is_empty() {
                return;
            }
            for (key, effect) in effects {
                self.perform(now, key, effect, chronicle);
            }
        }
    }

    fn perform(
        &mut self,
        now: u64,
        key: JobKey,
        effect: ControllerEffect,
        chronicle: &mut Chronicle,
    ) {
        match effect {
            ControllerEffect::Send { to, bytes, .. } => {
                if let Some(link) = self.sides.get(&(key, to)) {
                    self.out
                        .push((*link, Parcel::OfJob(key, to, bytes.to_vec())));
                }
            }
            ControllerEffect::Commit(manifest) => {
                if let Some(place) = self.places.get(&key.job) {
                    let write = Write::Commit(key, place.clone(), manifest);
                    self.writes.push_back(write);
                }
            }
            ControllerEffect::Say(line) => {
                assert!(!line.contains("defect"), "{line}");
                self.registry.on_no_snapshot(key, &line);
            }
            ControllerEffect::Lost(loss) => {
                chronicle.tell(
                    now,
                    format!("term {}: {key} has lost {}", self.term, loss.worker),
                );
                self.registry.on_loss(key, loss);
            }
            ControllerEffect::Ended { failure } => {
                chronicle.tell(
                    now,
                    format!("term {}: {key} has ended: {failure:?}", self.term),
                );
                self.registry.on_over(key, failure);
            }
            ControllerEffect::Left { worker } => self.registry.on_left(key, worker),
            ControllerEffect::Discard(_)
            | ControllerEffect::Moved { .. }
            | ControllerEffect::Stays { .. } => {}
        }
    }

    fn order(&mut self, now: u64, order: Order, shelf: &Shelf, chronicle: &mut Chronicle) {
        match order {
            Order::Tell { to, what } => self.tell(to, &what),
            Order::Begin {
                key,
                members,
                map,
                kept,
            } => {
                chronicle.tell(
                    now,
                    format!("term {}: {key} begins on {members:?}, {kept:?}", self.term),
                );
                self.check_beginning(key, &kept, shelf, chronicle);
                let mut machine = Controller::new(key.job, key.generation, map, members);
                if let Some((place, cuts)) = kept {
                    machine.keep(self.setup(key, &place, cuts));
                    self.places.insert(key.job, place.place);
                }
                self.jobs.insert(key, machine);
            }
            Order::Adopt { adoption, kept } => {
                let key = adoption.key;
                let text = format!("term {}: {key} goes on, {kept:?}", self.term);
                chronicle.tell(now, text);
                assert!(chronicle.begun.contains(&key), "{key} has not begun");
                chronicle.adopted += 1;
                let mut machine = Controller::adopting(adoption);
                if let Some((place, cuts)) = kept {
                    // Whoever joins it begins there.
                    let cut = place.cut.map(|cut| (key, cut));
                    self.begun_at.extend(cut);
                    machine.keep(self.setup(key, &place, cuts));
                    self.places.insert(key.job, place.place);
                }
                self.jobs.insert(key, machine);
            }
            Order::Cancel { key, why } => {
                if let Some(machine) = self.jobs.get_mut(&key) {
                    machine.cancel(why);
                }
            }
            Order::Lose {
                key,
                worker,
                process,
                how,
            } => {
                if let Some(machine) = self.jobs.get_mut(&key) {
                    machine.lose(worker, &process, how);
                }
            }
            Order::Part(apart) => self.part(&apart),
            Order::Admit { key, worker } => {
                if let Some(machine) = self.jobs.get_mut(&key) {
                    machine.join(worker);
                    self.registry.on_admitted(key, worker, machine.map());
                }
            }
            Order::Log(entry) => {
                self.unlogged += 1;
                self.writes.push_back(Write::Record(entry));
            }
            Order::Forget(key) => {
                if let Some(machine) = self.jobs.remove(&key) {
                    self.given.insert(key.job, machine.last_given());
                }
                self.sides.retain(|(of, _), _| *of != key);
            }
            // What is of no use any more may lie there.
            _ => {}
        }
    }

    /// No generation begins twice, whoever the controller is, and none at a snapshot that does not count.
    fn check_beginning(
        &mut self,
        key: JobKey,
        kept: &Option<(KeptPlace, JobCuts)>,
        shelf: &Shelf,
        chronicle: &mut Chronicle,
    ) {
        assert!(chronicle.begun.insert(key), "{key} begins twice");
        let is_again = chronicle
            .begun
            .iter()
            .any(|it| it.job == key.job && *it != key);
        chronicle.recoveries += u64::from(is_again);
        // What its log says stands before what follows from it, of each job.
        let of_job = self.unusable.extract_if(.., |(job, _)| *job == key.job);
        chronicle.unusable.extend(of_job);
        let Some(cut) = kept.as_ref().and_then(|(place, _)| place.cut) else {
            return;
        };
        chronicle.from_cuts += 1;
        self.begun_at.insert(key, cut);
        let job = key.job;
        assert!(
            shelf.has(&LogEntry::Snapshot { job, cut }),
            "{key} begins at snapshot {cut}, of which the log knows nothing"
        );
        assert!(
            !chronicle.unusable.contains(&(job, cut)),
            "{key} begins at snapshot {cut}, which is of no use"
        );
    }

    fn setup(&self, key: JobKey, place: &KeptPlace, cuts: JobCuts) -> SnapshotSetup {
        let mut bases = self.bases.get(&key.job).into_iter().flatten();
        let after = self.given.get(&key.job).copied().unwrap_or_default();
        SnapshotSetup {
            program: cuts.program,
            name: "job".into(),
            plan: cuts.plan,
            every: cuts.every.unwrap_or(SnapshotEvery::Off),
            base: bases.find(|it| Some(it.cut) == place.cut).cloned(),
            after: after.max(u64::from(self.term) << 32),
        }
    }

    /// Who is given up.
    fn note_fences(&mut self) {
        for event in self.registry.take_events() {
            if let (EventKind::WorkerFenced, Some(worker)) = (event.kind, event.worker) {
                self.fenced.extend(self.processes.get(&worker));
            }
        }
    }

    fn tell(&mut self, to: PeerLink, what: &OwnedMessage) {
        if let (OwnedMessage::Registered(it), Some(epoch)) = (what, self.epochs.get(&to)) {
            assert!(
                !self.fenced.contains(epoch),
                "{} was fenced, and is heard",
                it.worker
            );
            self.processes.insert(it.worker, *epoch);
        }
        self.out.push((to, Parcel::said(what.message())));
    }

    fn part(&mut self, apart: &Apart) {
        if let Some(machine) = self.jobs.get(&apart.key) {
            let held = apart.workers.map(|worker| machine.held(worker));
            self.registry.on_apart(apart, held);
        }
    }
}
