//! A job whose workers schedule their own tasks, from the first registration to the job's end.

mod control;
mod recovery;
mod saving;
mod turns;

pub use recovery::{Recovery, RecoveryOutcome, StoreCosts, recover};

use super::agenda::Agenda;
use super::control::{Control, CostedFrame};
use super::hosts::Hosts;
use super::outcome::{DurationSummary, LocalOutcome};
use super::worker::{Core, CostedWorker};
use super::{CostedWork, Costs, LinkCosts, Nanos};
use brambling_exchange::{CombiningOptions, CombiningTree};
use brambling_program::tree::TreeNode;
use brambling_program::{GroupId, ShardId};
use brambling_protocol::WorkerId;
use brambling_protocol::frame::{Body, Frame};
use brambling_protocol::kept::CutManifest;
use brambling_protocol::message::Message;
use brambling_protocol::{PartitionMap, Version};
use saving::{CostedSaving, job_cuts};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// How a broadcast and a reduction travel. Signals and news of the map are handed on along a tree in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum SpreadShape {
    /// Straight from source to destination, each shard for itself: to compare with.
    Direct,
    /// As the engine does: what is broadcast is handed on from worker to worker, each to so many, signals as well; what is added up is merged on
    /// its way, on the engine's own tree over shards; a worker's shards tell together what they have retired.
    Relayed {
        /// How many.
        fan_out: u32,
    },
}

/// Something that happens to the cluster when an iteration begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Change {
    /// A worker gives all its shards to the others in turn.
    Drain {
        /// The iteration.
        at: u32,
        /// The worker: the first is 0, and the last holds the model.
        worker: u32,
    },
    /// A worker joins, and gets as many shards as the others have, from those that have most.
    Join {
        /// The iteration.
        at: u32,
    },
}

/// What is simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Scenario {
    /// The job.
    pub work: CostedWork,
    /// What things cost.
    pub costs: Costs,
    /// The links.
    pub network: LinkCosts,
    /// How things travel.
    pub spread: SpreadShape,
    /// What happens meanwhile.
    pub changes: Vec<Change>,
    /// Orders of a change that are under way at once.
    pub moves_at_once: u32,
}

impl Scenario {
    /// The job on the paper's network, nothing happening to its cluster.
    pub fn quiet(work: CostedWork, costs: Costs, spread: SpreadShape) -> Scenario {
        Scenario {
            work,
            costs,
            network: LinkCosts::of_the_paper(),
            spread,
            changes: Vec::new(),
            moves_at_once: 8,
        }
    }
}

/// Runs it: the job's iterations, and more as long as a change is under way.
///
/// # Panics
/// When a task would run twice or not at all, a worker's map is not the controller's at the end, or somebody breaks the protocol: faults
/// of the simulation or of what it drives.
pub fn local(scenario: &Scenario) -> LocalOutcome {
    let mut run = Run::new(scenario);
    run.begin();
    while let Some((now, event)) = run.agenda.next() {
        run.take(now, event);
    }
    run.outcome()
}

/// The group of what computes, and of the model.
const GROUPS: [GroupId; 2] = [GroupId(0), GroupId(1)];
/// A worker reports so often (`engine::cluster::worker`).
const REPORTS: Nanos = 250_000_000;
/// A worker's jobs are told so often that time passes (there as well).
const TICK: Nanos = 5_000_000;
/// The controller's jobs are (`engine::cluster::controller`).
const CONTROLLER_TICK: Nanos = 50_000_000;
/// Eight neighbours are merged (`exchange::Combining`).
const MERGED_BITS: u8 = CombiningOptions::USUAL.bits;
/// No iteration takes so long: the job hangs.
const HANGS: Nanos = 3_600_000_000_000;
/// What a frame of the job takes beside what it carries.
const FRAME_BYTES: u64 = 80;

/// What workers say to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Note {
    /// The signal's outcome: iteration `.0` begins, or the job is over.
    Signal(u32),
    /// The model for an iteration.
    Model(u32),
    /// What so many shards have found in an iteration, under the node of the tree that they make.
    Partial {
        iteration: u32,
        shards: u32,
        node: TreeNode,
    },
    /// Who has joined hears of somebody.
    Greeting,
}

enum Event {
    /// A frame comes to a worker, whose helper takes it in.
    Comes {
        to: u32,
        note: Note,
    },
    /// The helper has taken it in.
    Heard {
        to: u32,
        note: Note,
    },
    /// The model's shard has all that it waits for: whether to go on is decided.
    Decided,
    /// A core looks what there is to do.
    Core {
        worker: u32,
        core: u16,
    },
    /// A shard has come as a whole.
    Settles {
        shard: u32,
        to: u32,
    },
    /// A frame of the controller is written; comes to a worker; has been taken in.
    Written {
        to: u32,
        bytes: CostedFrame,
    },
    Told {
        to: u32,
        bytes: CostedFrame,
    },
    Obeyed {
        to: u32,
        bytes: CostedFrame,
    },
    /// What the controller has said comes to a worker from one that hands it on; has been taken in.
    Handed {
        to: u32,
        bytes: CostedFrame,
    },
    Taken {
        to: u32,
        bytes: CostedFrame,
    },
    /// A frame of a worker comes to the controller.
    Says {
        from: u32,
        bytes: CostedFrame,
    },
    /// A worker's clock.
    Tick {
        worker: u32,
    },
    /// The controller's.
    ControllerTick,
    Report {
        worker: u32,
    },
    /// An order may follow.
    Orders,
    /// A worker's shards are in the store; so is the manifest of a cut.
    Saved {
        worker: u32,
    },
    Committed(Box<CutManifest>),
    /// A worker dies.
    Dies,
}

/// Where a shard is.
#[derive(Clone, Copy)]
struct Place {
    /// Iterations that it has run.
    done: u32,
    worker: u32,
    /// On its way out: where to, by which version.
    leaves: Option<(u32, Version)>,
    is_here: bool,
}

/// Moves that are to be ordered, of one change.
struct Orders {
    /// When the first was given.
    began: Option<Nanos>,
    /// Who has to know the map before shards are chosen for it.
    waits_for: Option<u32>,
    left: VecDeque<(u32, u32)>,
    under_way: u32,
}

struct Run<'a> {
    scenario: &'a Scenario,
    agenda: Agenda<Event>,
    hosts: Hosts,
    control: Control,
    workers: Vec<CostedWorker>,
    places: Vec<Place>,
    /// The workers of the tree, the one that holds the model first, and everybody's place in it.
    tree: Vec<u32>,
    place_in_tree: Vec<Option<usize>>,
    /// On which what shards have found is merged, if anything is; and by level and group, how many of its shards have met.
    merging: Option<CombiningTree>,
    met: Vec<Vec<u32>>,
    /// The iteration that runs; the first is 0.
    iteration: u32,
    /// Whether the signal has said that there is no other.
    is_over: bool,
    /// Shards whose results have come to the model, and in how many pieces.
    collected: u32,
    pieces: u32,
    /// Whether the controller has not been told that the model's shard has finished.
    model_is_left: bool,
    decided_at: Nanos,
    began_at: Nanos,
    /// Workers that have not heard the signal.
    deaf: u32,
    orders: VecDeque<Orders>,
    /// How it is saved, if it is.
    saving: Option<CostedSaving>,
    /// By shard and version: when it was published, how many workers there were, and how many of them have not heard.
    published: BTreeMap<(u32, Version), (Nanos, u32, u32)>,
    /// Since when no change has been under way, and what the controller had heard and said by then.
    quiet_since: Option<(Nanos, u64)>,
    /// Until then what came of the last change is acknowledged.
    calm_at: Nanos,
    quiet: (Nanos, u64),
    outcome: LocalOutcome,
    /// Those that began and ended without a change under way, and the others.
    quiet_iterations: Vec<Nanos>,
    changing_iterations: Vec<Nanos>,
    signals: Vec<Nanos>,
    updates: Vec<Nanos>,
}

/// Workers are numbered from 1 by the registry, and from 0 here.
fn id(worker: u32) -> WorkerId {
    WorkerId(worker + 1)
}

fn number(id: WorkerId) -> u32 {
    id.0 - 1
}

fn shard_id(shard: u32) -> ShardId {
    ShardId {
        group: GROUPS[0],
        index: shard,
    }
}

impl Run<'_> {
    fn new(scenario: &Scenario) -> Run<'_> {
        let work = &scenario.work;
        let newcomers = scenario.changes.iter();
        let newcomers = newcomers.filter(|it| matches!(it, Change::Join { .. }));
        let hosts = work.workers as usize + newcomers.count() + 1;
        Run {
            scenario,
            agenda: Agenda::new(),
            hosts: Hosts::new(hosts, scenario.network),
            control: Control::new(scenario.costs),
            workers: Vec::new(),
            places: Vec::new(),
            tree: Vec::new(),
            place_in_tree: Vec::new(),
            merging: match scenario.spread {
                SpreadShape::Direct => None,
                SpreadShape::Relayed { .. } => CombiningTree::new(work.shards(), MERGED_BITS),
            },
            met: Vec::new(),
            iteration: 0,
            is_over: false,
            collected: 0,
            pieces: 0,
            model_is_left: true,
            decided_at: 0,
            began_at: 0,
            deaf: 0,
            orders: VecDeque::new(),
            saving: None,
            published: BTreeMap::new(),
            quiet_since: None,
            calm_at: 0,
            quiet: (0, 0),
            outcome: LocalOutcome::default(),
            quiet_iterations: Vec::new(),
            changing_iterations: Vec::new(),
            signals: Vec::new(),
            updates: Vec::new(),
        }
    }

    /// The controller's host, behind all workers.
    fn controller(&self) -> usize {
        let newcomers = self.scenario.changes.iter();
        let newcomers = newcomers.filter(|it| matches!(it, Change::Join { .. }));
        self.scenario.work.workers as usize + newcomers.count()
    }

    fn root(&self) -> u32 {
        self.tree[0]
    }

    /// Workers register, a job is submitted, everybody learns of it; then its first iteration begins.
    fn begin(&mut self) {
        let work = self.scenario.work;
        for worker in 0..work.workers {
            self.control.register(0, id(worker), work.cores);
        }
        let _ = self.control.take();
        let submitted = self.control.load().cpu_s * 1e9;
        let submitted = submitted as Nanos;
        if self.saving.is_some() {
            self.control.survive(submitted, job_cuts(&work));
        }
        self.control.submit(submitted, &[work.shards(), 1]);
        let mut known = submitted;
        for outgoing in self.control.take().0 {
            let bytes = outgoing.bytes.len() as u64;
            let from = self.controller();
            let to = self.workers.len();
            assert_eq!(outgoing.to, id(to as u32), "members hear of it in turn");
            let come = self.hosts.send(outgoing.at, from, to, bytes);
            let read = self.scenario.costs.table_byte_ns * bytes as f64;
            known = known.max(come + read as Nanos);
            let map = map_of(&outgoing.bytes);
            let key = self.control.key();
            self.workers
                .push(CostedWorker::new(key, work.cores, map, true));
        }
        self.outcome.map_ms = (known - submitted) as f64 / 1e6;
        self.settle();
        self.start(known);
    }

    /// The first iteration begins, and clocks run.
    fn start(&mut self, known: Nanos) {
        let work = self.scenario.work;
        self.agenda.note(known, Event::Decided);
        self.agenda.note(known, Event::ControllerTick);
        self.began_at = known;
        for worker in (0..work.workers).filter(|it| self.workers[*it as usize].knows_map) {
            let first = REPORTS * u64::from(worker) / u64::from(work.workers);
            self.agenda.note(known + first, Event::Report { worker });
        }
    }

    /// Shards are where the map says.
    fn settle(&mut self) {
        let shards = self.scenario.work.shards();
        let map = self.control.machine().map();
        let owner = |shard| {
            let entry = map.entry(shard).expect("a shard of the job");
            number(entry.expect("all are placed").owner)
        };
        let model = ShardId {
            group: GROUPS[1],
            index: 0,
        };
        let root = owner(model);
        let owners: Vec<u32> = (0..shards).map(|shard| owner(shard_id(shard))).collect();
        for (shard, worker) in (0..).zip(owners) {
            self.workers[worker as usize].take_in(shard);
            self.places.push(Place {
                done: 0,
                worker,
                leaves: None,
                is_here: true,
            });
        }
        self.plant(root);
    }

    /// The tree of those who know the map.
    fn plant(&mut self, root: u32) {
        let knows = |worker: &u32| self.workers[*worker as usize].knows_map && *worker != root;
        let others = (0..self.workers.len() as u32).filter(knows);
        self.tree = std::iter::once(root).chain(others).collect();
        self.place_in_tree = vec![None; self.workers.len()];
        for (place, worker) in self.tree.iter().enumerate() {
            self.place_in_tree[*worker as usize] = Some(place);
        }
    }

    fn take(&mut self, now: Nanos, event: Event) {
        match event {
            Event::Comes { to, note } => {
                let costs = &self.scenario.costs;
                let ns = costs.read_ns()
                    + match note {
                        Note::Signal(_) => costs.hint_in_ns,
                        Note::Model(_) => costs.piece_in_ns,
                        Note::Partial { .. } => costs.piece_in_ns + self.merge_ns(),
                        // Joined, and what its shards have retired.
                        Note::Greeting => 2.0 * costs.hint_in_ns,
                    };
                let at = self.helper(now, to, ns);
                if matches!(note, Note::Partial { .. }) && to == self.root() {
                    // It only adds to what has come, which nobody sees before the last: no event of its own, of millions.
                    return self.on_note(at, to, note);
                }
                self.agenda.note(at, Event::Heard { to, note });
            }
            Event::Heard { to, note } => self.on_note(now, to, note),
            Event::Decided => self.on_decided(now),
            Event::Core { worker, core } => self.on_core(now, worker, usize::from(core)),
            Event::Settles { shard, to } => self.on_settles(now, shard, to),
            Event::Written { to, bytes } => {
                let (near, far) = (self.controller(), to as usize);
                let come = self.hosts.send(now, near, far, bytes.len() as u64);
                self.agenda.note(come, Event::Told { to, bytes });
            }
            Event::Told { to, bytes } => {
                let costs = &self.scenario.costs;
                let at = self.helper(now, to, costs.read_ns() + costs.update_in_ns);
                self.agenda.note(at, Event::Obeyed { to, bytes });
            }
            Event::Obeyed { to, bytes } => self.on_controller(now, to, &bytes),
            Event::Handed { to, bytes } => {
                let costs = &self.scenario.costs;
                let at = self.helper(now, to, costs.read_ns() + costs.update_in_ns);
                self.agenda.note(at, Event::Taken { to, bytes });
            }
            Event::Taken { to, bytes } => self.on_handed(now, to, &bytes),
            Event::Says { from, bytes } => self.on_said(now, from, &bytes),
            Event::Tick { worker } => {
                if let Some(ack) = self.workers[worker as usize].tick() {
                    self.say(now, worker, ack);
                }
            }
            Event::ControllerTick => self.on_controller_tick(now),
            Event::Report { worker } => self.on_report(now, worker),
            Event::Orders => self.give_orders(now),
            Event::Saved { worker } => self.on_worker_saved(now, worker),
            Event::Committed(manifest) => self.on_committed(now, *manifest),
            Event::Dies => unreachable!("whoever notes it looks for it"),
        }
    }

    /// When the helper of a worker has done what comes now.
    fn helper(&mut self, now: Nanos, worker: u32, ns: f64) -> Nanos {
        let helper = &mut self.workers[worker as usize].helper_free;
        *helper = now.max(*helper) + ns as Nanos;
        *helper
    }

    /// A frame from worker to worker.
    fn send(&mut self, at: Nanos, from: u32, to: u32, note: Note) {
        let carried = match note {
            Note::Model(_) | Note::Partial { .. } => self.scenario.work.model_bytes,
            Note::Signal(_) => 0,
            // A credit for each of its shards.
            Note::Greeting => 8 * u64::from(self.scenario.work.shards_per_core),
        };
        self.outcome.frames += 1;
        let (near, far) = (from as usize, to as usize);
        let come = self.hosts.send(at, near, far, FRAME_BYTES + carried);
        self.agenda.note(come, Event::Comes { to, note });
    }

    /// A core has something to look for.
    fn call(&mut self, now: Nanos, worker: u32, core: usize) {
        let cores = &mut self.workers[worker as usize].cores;
        if let Core::Idle(since) = cores[core] {
            cores[core] = Core::Called;
            let asleep = now > since + super::worker::POLL;
            let wake = if asleep {
                self.scenario.costs.machine.wake_ns as Nanos
            } else {
                0
            };
            let core = core as u16;
            self.agenda.note(now + wake, Event::Core { worker, core });
        }
    }

    fn outcome(mut self) -> LocalOutcome {
        let work = &self.scenario.work;
        let machine = self.control.machine();
        assert!(machine.is_over(), "the job does not end");
        assert!(self.orders.is_empty(), "the job ends before its changes");
        let theirs = machine.map();
        let (dead, _) = self
            .workers
            .iter()
            .partition::<Vec<_>, _>(|it| !it.knows_map);
        assert!(dead.len() <= 1, "one is dead at most");
        for worker in self.workers.iter().filter(|it| it.knows_map) {
            assert!(worker.is_over, "a worker does not hear of the end");
            assert_eq!(
                &worker.map, theirs,
                "a worker's map is not the controller's"
            );
        }
        for (shard, place) in (0..).zip(&self.places) {
            let entry = theirs.entry(shard_id(shard)).expect("a shard of the job");
            let owner = entry.expect("all are placed").owner;
            assert_eq!((id(place.worker), place.is_here), (owner, true));
            assert_eq!(place.done, self.iteration, "shard {shard} has missed some");
        }
        let turns = u64::from(work.shards()) * u64::from(self.iteration);
        assert_eq!(self.outcome.turns, turns, "each runs each iteration once");
        self.outcome.virtual_s = (self.decided_at - self.began_at) as f64 / 1e9;
        self.outcome.iterations = self.iteration;
        self.outcome.iteration_ms = DurationSummary::of(self.quiet_iterations);
        self.outcome.changing_iteration_ms = DurationSummary::of(self.changing_iterations);
        self.outcome.signal_ms = DurationSummary::of(self.signals);
        self.outcome.map_update_ms = DurationSummary::of(self.updates);
        self.outcome.controller = self.control.load();
        let (time, messages) = self.quiet;
        self.outcome.controller_quiet_messages_per_s = match time {
            0 => 0.0,
            time => messages as f64 * 1e9 / time as f64,
        };
        self.outcome.events = self.agenda.noted();
        self.outcome
    }
}

/// The map that a worker is told when a job begins.
fn map_of(bytes: &[u8]) -> PartitionMap {
    prepared(bytes).expect("a member is told to prepare")
}

/// The same, if that is what it is told.
fn prepared(bytes: &[u8]) -> Option<PartitionMap> {
    let frame = Frame::decode(bytes).expect("the controller sends whole frames");
    let Body::Message(Message::Prepare(prepare)) = frame.0.body else {
        return None;
    };
    let mut map = PartitionMap::new(prepare.shards.iter().copied());
    for entry in &prepare.map {
        let _ = map.apply(entry).expect("an entry of the job");
    }
    Some(map)
}
