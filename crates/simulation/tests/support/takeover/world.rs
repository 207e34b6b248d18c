//! A cluster of processes whose machines are real: controllers that crash, stop and take over from each other, workers and clients, and what they write to.

mod faults;

use super::chance::Chance;
use super::office::{Chronicle, Office};
use super::part::{SHARDS, expected};
use super::peers::{ClientProcess, Outcome, WorkerProcess};
use super::shelf::Shelf;
use super::wire::{Far, Wire};
use std::collections::BTreeMap;

/// No run takes so long: somebody waits for ever.
const HANGS: u64 = 400_000;
/// Faults come until then; afterwards all that waits goes on.
const FAULTS: u64 = 9_000;

/// What has happened, over all runs.
#[derive(Clone, Copy, Default, Debug)]
pub struct Deeds {
    pub runs: u64,
    /// Runs in which a job began again, and generations that did so above the start.
    pub recovered: u64,
    pub from_cuts: u64,
    /// Generations that another controller has gone on with.
    pub adopted: u64,
    /// Controllers that were lost with all they had; that were stopped and woke; that found themselves deposed.
    pub crashes: u64,
    pub stops: u64,
    pub deposed: u64,
    pub workers_killed: u64,
    pub workers_stopped: u64,
    pub workers_fenced: u64,
    pub one_way: u64,
    pub cut_off: u64,
    pub full: u64,
    pub damaged: u64,
    /// Jobs that three losses in a row have ended.
    pub poisoned: u64,
}

pub struct World<'a> {
    chance: Chance,
    now: u64,
    shelf: Shelf,
    /// The last is in office.
    offices: Vec<Office>,
    /// When the next controller begins, if none is there.
    returns_at: Option<u64>,
    workers: Vec<WorkerProcess>,
    clients: Vec<ClientProcess>,
    wires: Vec<Wire>,
    chronicle: Chronicle,
    seed: u64,
    /// Workers that cannot reach each other.
    apart: Option<(usize, usize)>,
    deeds: &'a mut Deeds,
}

impl World<'_> {
    /// Runs a cluster until its clients have what they asked for.
    pub fn run(seed: u64, deeds: &mut Deeds) {
        let mut chance = Chance::new(seed);
        let mut shelf = Shelf::default();
        shelf.torn = chance.of(&[0, 0, 12, 30]).expect("some");
        let workers = (0..2 + chance.below(3)).map(|it| WorkerProcess::new(1_000 + it));
        let workers = workers.collect();
        let clients = (0..1 + chance.below(2)).map(|it| ClientProcess::new(70 + u128::from(it)));
        let mut world = World {
            now: 0,
            shelf,
            offices: Vec::new(),
            returns_at: Some(0),
            workers,
            clients: clients.collect(),
            chance,
            wires: Vec::new(),
            chronicle: Chronicle::default(),
            seed,
            apart: None,
            deeds,
        };
        while world.clients.iter().any(|it| it.outcome.is_none()) {
            world.step();
            assert!(world.now < HANGS, "a client waits for ever");
        }
        world.end();
    }

    fn end(&mut self) {
        for client in &self.clients {
            match client.outcome.as_ref().expect("all have one") {
                Outcome::Done => {}
                Outcome::Failed(why) if why.contains("each time soon after") => {
                    self.deeds.poisoned += 1;
                }
                Outcome::Failed(why) => panic!("{why}"),
            }
        }
        let chronicle = &self.chronicle;
        self.deeds.runs += 1;
        self.deeds.recovered += u64::from(chronicle.recoveries > 0);
        self.deeds.from_cuts += chronicle.from_cuts;
        self.deeds.adopted += chronicle.adopted;
        self.deeds.deposed += chronicle.deposed;
        self.deeds.damaged += self.shelf.damaged;
        let fenced = self.workers.iter().filter(|it| it.exit == Some(3));
        self.deeds.workers_fenced += fenced.count() as u64;
    }

    fn step(&mut self) {
        let ms = 1 + self.chance.below(20);
        self.now += ms;
        if self.now < FAULTS && self.chance.one_in(60) {
            self.fault();
        }
        self.take_office();
        self.link_all();
        for office in &mut self.offices {
            if self.now >= office.stopped_until && !office.is_deposed {
                let world = (&mut self.shelf, &mut self.chronicle, &mut self.chance);
                office.step(self.now, ms, world);
            }
        }
        for worker in &mut self.workers {
            if worker.runs(self.now) {
                worker.step(self.now, &mut self.shelf, &mut self.chance);
            }
        }
        self.complain();
        self.fetch();
        self.send_all();
        self.deliver_all();
        self.end_deposed();
        self.keep_workers();
    }

    // ---- who is in office

    fn take_office(&mut self) {
        if self.returns_at.is_some_and(|at| self.now >= at) {
            let office = Office::take_over(self.now, &mut self.shelf, &mut self.chance);
            if let Some(office) = office {
                let text = format!("term {} begins", office.term);
                self.chronicle.tell(self.now, text);
                self.offices.push(office);
                self.returns_at = None;
            }
        }
    }

    fn end_deposed(&mut self) {
        let deposed: Vec<u32> = (self.offices.iter().filter(|it| it.is_deposed))
            .map(|it| it.term)
            .collect();
        deposed.into_iter().for_each(|term| self.end_office(term));
    }

    /// A controller's process is no more.
    fn end_office(&mut self, term: u32) {
        self.offices.retain(|it| it.term != term);
        for wire in 0..self.wires.len() {
            if self.wires[wire].term == term {
                self.wires[wire].is_open = false;
            }
        }
    }

    // ---- links

    /// Whoever has none, or one to a controller that another has taken over from, looks for the newest.
    fn link_all(&mut self) {
        let Some(newest) = self.offices.last().map(|it| it.term) else {
            return;
        };
        for far in self.everybody() {
            if !self.is_up(far) {
                continue;
            }
            let wire = self.wire_of(far);
            let term = wire.and_then(|it| self.wires[it].is_open.then_some(self.wires[it].term));
            let is_late = term != Some(newest);
            // It takes a while until it is noticed.
            let patience = if term.is_none() { 8 } else { 60 };
            if is_late && self.chance.one_in(patience) {
                wire.into_iter().for_each(|it| self.cut(it));
                self.link(far);
            }
        }
    }

    fn everybody(&self) -> Vec<Far> {
        let workers = (0..self.workers.len()).map(Far::Worker);
        workers
            .chain((0..self.clients.len()).map(Far::Client))
            .collect()
    }

    fn is_up(&self, far: Far) -> bool {
        match far {
            Far::Worker(at) => self.workers[at].runs(self.now),
            Far::Client(at) => self.clients[at].outcome.is_none(),
        }
    }

    fn wire_of(&self, far: Far) -> Option<usize> {
        match far {
            Far::Worker(at) => self.workers[at].wire,
            Far::Client(at) => self.clients[at].wire,
        }
    }

    fn link(&mut self, far: Far) {
        let office = self.offices.last_mut().expect("somebody is in office");
        let wire = Wire::new(office.term, office.new_link(), far);
        let at = self.wires.len();
        self.wires.push(wire);
        match far {
            Far::Worker(it) => self.workers[it].on_linked(at),
            Far::Client(it) => self.clients[it].on_linked(at),
        }
    }

    /// A link ends, and the controller at its other end sees it.
    fn cut(&mut self, wire: usize) {
        let Wire { term, link, .. } = self.wires[wire];
        if !std::mem::replace(&mut self.wires[wire].is_open, false) {
            return;
        }
        if let Some(office) = self.offices.iter_mut().find(|it| it.term == term) {
            office.on_lost(self.now, link, (&self.shelf, &mut self.chronicle));
        }
    }

    fn send_all(&mut self) {
        for far in self.everybody() {
            let parcels = match far {
                Far::Worker(at) if self.workers[at].runs(self.now) => self.workers[at].take(),
                Far::Worker(_) => continue,
                Far::Client(at) => self.clients[at].take(),
            };
            if let Some(wire) = self.wire_of(far) {
                self.wires[wire].up.extend(parcels);
            }
        }
        for office in &mut self.offices {
            for (link, parcel) in office.take() {
                let is_it = |it: &&mut Wire| (it.term, it.link) == (office.term, link);
                if let Some(wire) = self.wires.iter_mut().rev().find(is_it) {
                    wire.down.push_back(parcel);
                }
            }
        }
    }

    fn deliver_all(&mut self) {
        for at in 0..self.wires.len() {
            if !self.wires[at].is_open {
                continue;
            }
            for _ in 0..self.chance.below(4) {
                self.deliver_up(at);
            }
            for _ in 0..self.chance.below(4) {
                self.deliver_down(at);
            }
        }
    }

    fn deliver_up(&mut self, at: usize) {
        let wire = &mut self.wires[at];
        let Some(office) = self.offices.iter_mut().find(|it| it.term == wire.term) else {
            return;
        };
        if self.now < wire.up_blocked || self.now < office.stopped_until || office.is_deposed {
            return;
        }
        if let Some(parcel) = wire.up.pop_front() {
            let world = (&self.shelf, &mut self.chronicle);
            office.on_parcel(self.now, wire.link, parcel, world);
        }
    }

    fn deliver_down(&mut self, at: usize) {
        let wire = &mut self.wires[at];
        if self.now < wire.down_blocked {
            return;
        }
        match wire.far {
            Far::Worker(it) if !self.workers[it].runs(self.now) => {}
            Far::Worker(it) => {
                if let Some(parcel) = wire.down.pop_front() {
                    self.workers[it].on_parcel(parcel, &self.shelf);
                }
                if self.workers[it].exit.is_some() {
                    self.chronicle
                        .tell(self.now, format!("{it}: fenced, it ends"));
                    self.cut(at);
                }
            }
            Far::Client(it) => {
                if let Some(parcel) = wire.down.pop_front() {
                    self.clients[it].on_parcel(parcel);
                }
            }
        }
    }

    // ---- what clients get

    /// A client whose job is over takes the results from those who have them.
    fn fetch(&mut self) {
        for at in 0..self.clients.len() {
            let client = &self.clients[at];
            let Some(key) = client
                .key
                .filter(|_| client.is_over && client.outcome.is_none())
            else {
                continue;
            };
            let mut results: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
            for worker in self.workers.iter().filter(|it| it.runs(self.now)) {
                let part = worker.parts.get(&key);
                for shard in 0..SHARDS {
                    let found = part.and_then(|it| it.result(shard));
                    results.entry(shard).or_default().extend(found);
                }
            }
            if results.values().any(|found| found.is_empty()) {
                continue;
            }
            for (shard, found) in results {
                assert_eq!(found, [expected(shard)], "shard {shard} of {key}");
            }
            self.clients[at].is_done();
        }
    }
}

/// Whoever reads that it has failed wants to know where, and what had happened.
impl Drop for World<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}, at {}:", self.seed, self.now);
            self.chronicle.story.iter().for_each(|it| eprintln!("{it}"));
        }
    }
}
