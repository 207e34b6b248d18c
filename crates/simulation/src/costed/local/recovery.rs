//! A worker dies in the middle of a job that is saved, and the job begins again on the others.
//!
//! Real are the registry, which finds the worker gone and begins the next generation, its maps and messages, and the manifest. Modelled are the store, the links
//! that workers make to each other, and what a worker does until it is ready: with measured costs, one after the other, on one thread.

use super::super::control::Control;
use super::super::hosts::Hosts;
use super::super::worker::CostedWorker;
use super::super::{LocalOutcome, Nanos};
use super::saving::CostedSaving;
use super::{CONTROLLER_TICK, Event, Run, Scenario, id, number, prepared, shard_id};
use brambling_protocol::kept::CutManifest;
use brambling_protocol::{PartitionMap, WorkerId};
use serde::Serialize;

/// What a store takes. It serves all hosts at once, each as fast as its link: a bucket, or a parallel file system.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StoreCosts {
    /// From a request to its answer's first byte, in nanoseconds.
    pub request_ns: u64,
}

/// What is simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recovery {
    /// The job and its cluster; nothing else happens to it. It runs until it was saved and the worker has died, and then for so many iterations.
    pub scenario: Scenario,
    /// Who dies. The first is 0, and the last holds the model.
    pub dies: u32,
    /// Where it is saved.
    pub store: StoreCosts,
    /// Whether survivors have by themselves what they had saved, and read only what is new to them.
    pub keep: bool,
    /// The program, which the client sends to each worker again.
    pub program_bytes: u64,
}

/// What has become of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecoveryOutcome {
    /// From the worker's death until the registry has given it up, in seconds of virtual time.
    pub noticed_s: f64,
    /// From then until all survivors have what they begin with, and links to each other.
    pub ready_s: f64,
    /// From then until all shards have run an iteration.
    pub iteration_s: f64,
    /// All of these.
    pub recovered_s: f64,
    /// What it takes to read the lost shards' bytes over one link.
    pub reading_s: f64,
    /// Bytes of the lost shards.
    pub lost_bytes: u64,
    /// Bytes that were read from the store, manifests aside.
    pub read_bytes: u64,
    /// The controller's time, from the death until all are ready.
    pub controller_cpu_s: f64,
    /// How the job went on.
    pub after: LocalOutcome,
}

impl RecoveryOutcome {
    /// What it took beside reading the lost shards' bytes.
    pub fn beyond_reading_s(&self) -> f64 {
        self.recovered_s - self.reading_s
    }
}

/// Runs it.
///
/// # Panics
/// When no cut is taken, or the job does not begin again: faults of the simulation or of what it drives. After the death, as [`local`](super::local).
pub fn recover(of: &Recovery) -> RecoveryOutcome {
    let unending = Scenario {
        work: super::CostedWork {
            iterations: u32::MAX,
            ..of.scenario.work
        },
        ..of.scenario.clone()
    };
    let mut before = Run::new(&unending);
    before.control = Control::saving(of.scenario.costs);
    before.saving = Some(CostedSaving::new(of.store, true));
    before.begin();
    let died = loop {
        match before.agenda.next().expect("clocks run") {
            (now, Event::Dies) => break now,
            (now, event) => before.take(now, event),
        }
    };
    let old: PartitionMap = before.control.machine().map().clone();
    Again::of(of, before.control, old).run(died)
}

/// The job begins again.
struct Again<'a> {
    of: &'a Recovery,
    control: Control,
    /// Where shards were.
    old: PartitionMap,
    hosts: Hosts,
    manifest_bytes: u64,
    outcome: RecoveryOutcome,
}

impl<'a> Again<'a> {
    fn of(of: &'a Recovery, control: Control, old: PartitionMap) -> Again<'a> {
        let workers = of.scenario.work.workers as usize;
        Again {
            of,
            control,
            old,
            // Behind them the controller's and the client's.
            hosts: Hosts::new(workers + 2, of.scenario.network),
            manifest_bytes: 0,
            outcome: RecoveryOutcome::default(),
        }
    }

    fn run(mut self, died: Nanos) -> RecoveryOutcome {
        let cpu_s = self.control.load().cpu_s;
        let noticed = self.notice(died);
        let mut next = Run::new(&self.of.scenario);
        let ready = self.prepare(&mut next, noticed);
        self.outcome.controller_cpu_s = self.control.load().cpu_s - cpu_s;
        next.control = self.control;
        next.saving = Some(CostedSaving::new(self.of.store, false));
        next.settle();
        next.start(ready);
        let mut first = None;
        while let Some((now, event)) = next.agenda.next() {
            next.take(now, event);
            first = first.or((next.iteration == 1).then_some(now));
        }
        let first = first.expect("at least one iteration");
        let seconds = |from: Nanos, to: Nanos| (to - from) as f64 / 1e9;
        RecoveryOutcome {
            noticed_s: seconds(died, noticed),
            ready_s: seconds(noticed, ready),
            iteration_s: seconds(ready, first),
            recovered_s: seconds(died, first),
            after: next.outcome(),
            ..self.outcome
        }
    }

    /// The controller sees that the link has ended, and gives the worker time to come back. Gives when it has not.
    fn notice(&mut self, died: Nanos) -> Nanos {
        let key = self.control.key();
        let mut now = died + self.of.scenario.network.latency_ns;
        let _ = self.control.take();
        self.control.on_lost(now, id(self.of.dies));
        while self.control.key() == key {
            assert!(now - died < super::HANGS, "nobody begins again");
            now += CONTROLLER_TICK;
            self.control.tick_registry(now);
        }
        now
    }

    /// All survivors are told, read what they need, and make links. Gives when the last of them is ready.
    fn prepare(&mut self, next: &mut Run<'_>, noticed: Nanos) -> Nanos {
        let work = self.of.scenario.work;
        let key = self.control.key();
        let manifest = self.control.base().expect("there is a snapshot").clone();
        self.manifest_bytes = manifest.encode().len() as u64;
        let nothing = || PartitionMap::new([work.shards(), 1]);
        let all = (0..work.workers).map(|_| CostedWorker::new(key, work.cores, nothing(), false));
        next.workers = all.collect();
        self.note_lost();
        let members = work.workers - 1;
        let (mut ready, mut told) = (noticed, 0);
        for frame in self.control.take().0 {
            let worker = number(frame.to);
            let bytes = frame.bytes.len() as u64;
            let controller = work.workers as usize;
            let come = self
                .hosts
                .send(frame.at, controller, worker as usize, bytes);
            let Some(map) = prepared(&frame.bytes) else {
                // It lets go of the generation before.
                continue;
            };
            told += 1;
            let sent = self.send_program(worker);
            let known = come + (self.of.scenario.costs.table_byte_ns * bytes as f64) as Nanos;
            let read = self.read(known.max(sent), worker, &map, &manifest);
            ready = ready.max(self.link(read, members));
            let it = &mut next.workers[worker as usize];
            (it.map, it.knows_map) = (map, true);
        }
        assert_eq!(told, members, "all survivors are told");
        // Links to the controller, which takes them in one after the other.
        ready.max(noticed + (f64::from(members) * self.of.scenario.costs.link_ns()) as Nanos)
    }

    fn note_lost(&mut self) {
        let lost = u64::from(self.held(&self.old, id(self.of.dies)));
        self.outcome.lost_bytes = lost * self.of.scenario.work.shard_bytes;
        let reading = self
            .of
            .scenario
            .network
            .occupied_ns(self.outcome.lost_bytes);
        self.outcome.reading_s = reading as f64 / 1e9;
    }

    fn held(&self, map: &PartitionMap, worker: WorkerId) -> u32 {
        let of_data = map.entries().filter(|it| it.group == super::GROUPS[0]);
        let held = of_data.filter(|it| it.entry.owner == worker);
        held.map(|it| it.end - it.first).sum()
    }

    /// The client sends the program to a member. Gives when it is there.
    fn send_program(&mut self, worker: u32) -> Nanos {
        let client = self.of.scenario.work.workers as usize + 1;
        let accepted = self.control.accepted() + self.of.scenario.network.latency_ns;
        let bytes = self.of.program_bytes;
        self.hosts.send(accepted, client, worker as usize, bytes)
    }

    /// A worker reads the manifest, and then its parts, one request each. Gives when its job is made.
    fn read(
        &mut self,
        at: Nanos,
        worker: u32,
        map: &PartitionMap,
        manifest: &CutManifest,
    ) -> Nanos {
        let (costs, store) = (&self.of.scenario.costs, &self.of.store);
        let network = &self.of.scenario.network;
        let of_manifest = self.manifest_bytes;
        let mut at = at + store.request_ns + network.occupied_ns(of_manifest);
        at += (costs.manifest_part_ns * manifest.parts.len() as f64) as Nanos;
        let mine = map.entries().filter(|it| it.group == super::GROUPS[0]);
        let mine = mine.filter(|it| it.entry.owner == id(worker));
        let mine = mine.flat_map(|it| it.first..it.end);
        let has = |shard: &u32| {
            let entry = self
                .old
                .entry(shard_id(*shard))
                .expect("a shard of the job");
            self.of.keep && entry.is_some_and(|it| it.owner == id(worker))
        };
        let parts = mine.filter(|shard| !has(shard)).count() as u64;
        let bytes = parts * self.of.scenario.work.shard_bytes;
        self.outcome.read_bytes += bytes;
        at += parts * store.request_ns + network.occupied_ns(bytes);
        at + (costs.part_byte_ns * bytes as f64 + costs.node_ns) as Nanos
    }

    /// It makes links to all the others. Gives when it has them.
    fn link(&self, at: Nanos, members: u32) -> Nanos {
        let costs = &self.of.scenario.costs;
        // A connection, and a greeting each way.
        let trips = 3 * 2 * self.of.scenario.network.latency_ns;
        at + trips + (f64::from(members) * costs.link_ns()) as Nanos
    }
}
