//! A worker of a test's cluster: a real executor whose frames a thread of the test carries, out of order, some twice, hints sometimes not at all; half of
//! them spill all early pieces.

use brambling_exchange::CombiningOptions;
use brambling_memory::{Budget, Floors, Spill};
use brambling_program::{DatasetId, GroupId, Plan, Rng, ShardId};
use brambling_protocol::frame::Frame;
use brambling_protocol::frame::Packet as Sent;
use brambling_protocol::{Entry, EntryRange, Generation, JobId, PartitionMap, Priority, WorkerId};
use brambling_simulation::{RandomProgram, Results, attached};
use brambling_storage::{FilePool, SpillDirectory};
use brambling_worker::executor::{
    Caller, CutKeeper, Interrupted, Job, JobOptions, Membership, Pool, Restored, Transport,
};
use brambling_worker::node::{Node, NodeOptions};
use brambling_worker::piece_data::PieceBytes;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock};

/// The job of all tests here.
pub const JOB: JobId = JobId(7);

/// A frame on its way.
pub struct Packet {
    pub from: WorkerId,
    pub to: WorkerId,
    pub bytes: PieceBytes,
}

impl Packet {
    /// Whether the controller says it, or hears it.
    pub fn is_controllers(&self) -> bool {
        [self.from, self.to].contains(&WorkerId::CONTROLLER)
    }
}

/// What does not come through for a while.
// Not every test that has members has such.
#[allow(dead_code)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Block {
    /// What one says to another.
    OneWay(WorkerId, WorkerId),
    /// What one says, and what is said to it.
    Silent(WorkerId),
}

impl Block {
    fn has(self, packet: &Packet) -> bool {
        match self {
            Block::OneWay(from, to) => (packet.from, packet.to) == (from, to),
            Block::Silent(of) => [packet.from, packet.to].contains(&of),
        }
    }
}

/// Frames on their way.
pub struct Packets {
    all: Vec<Packet>,
    pub blocked: Option<Block>,
    pub in_order: bool,
}

impl Packets {
    /// None. `in_order`: what the controller says to a worker, and it to the controller, is to come in order.
    pub fn new(in_order: bool) -> Packets {
        Packets {
            all: Vec::new(),
            blocked: None,
            in_order,
        }
    }

    pub fn add(&mut self, packets: impl IntoIterator<Item = Packet>) {
        self.all.extend(packets);
    }

    pub fn are_none(&self) -> bool {
        self.all.is_empty()
    }

    /// One of them, whichever: it comes again, perhaps, and a hint perhaps never. `hastes` says that the controller's go first.
    pub fn take(&mut self, random: &mut Rng, hastes: bool) -> Option<Packet> {
        let Some(block) = self.blocked else {
            return self.take_one(random, hastes);
        };
        let held = self.all.extract_if(.., |packet| block.has(packet));
        let held: Vec<Packet> = held.collect();
        let taken = self.take_one(random, hastes);
        // Their order among themselves stays.
        self.all.extend(held);
        taken
    }

    fn take_one(&mut self, random: &mut Rng, hastes: bool) -> Option<Packet> {
        while !self.all.is_empty() {
            let place = self.place(random, hastes);
            let again = random.below(16) == 0;
            let packet = self.all.remove(place);
            let is_hint = Frame::decode(&packet.bytes).unwrap().0.sequence.is_none();
            if is_hint && random.below(8) == 0 {
                continue;
            }
            if again {
                let Packet {
                    from,
                    to,
                    ref bytes,
                } = packet;
                let bytes = bytes.clone();
                self.all.push(Packet { from, to, bytes });
            }
            return Some(packet);
        }
        None
    }

    fn place(&self, random: &mut Rng, hastes: bool) -> usize {
        let mut place = random.below(self.all.len() as u64) as usize;
        if hastes {
            let first = self.all.iter().position(Packet::is_controllers);
            place = first.unwrap_or(place);
        }
        let Packet { from, to, .. } = self.all[place];
        if self.in_order && self.all[place].is_controllers() {
            let is_it = |it: &Packet| (it.from, it.to) == (from, to);
            place = self.all.iter().position(is_it).expect("it is one");
        }
        place
    }
}

/// A worker's end of the network.
struct Wire {
    me: WorkerId,
    network: Mutex<Sender<Packet>>,
}

impl Transport for Wire {
    fn send(&self, frames: Vec<(WorkerId, Priority, Sent)>) {
        let from = self.me;
        for (to, _, sent) in frames {
            let bytes = sent.to_bytes();
            // Nobody listens any more when the job is over.
            let _ = self
                .network
                .lock()
                .unwrap()
                .send(Packet { from, to, bytes });
        }
    }
}

/// Has the interpreter while it runs stages, several of them at a time, as Python's caller does: it wants the node's lock meanwhile.
pub struct Attached;

impl Caller for Attached {
    fn check(&mut self) -> Result<(), Interrupted> {
        Ok(())
    }
    fn run_stages(&mut self, run: &mut dyn FnMut()) {
        attached(run);
    }
}

/// A member of a generation of a job.
pub struct Member<'a> {
    pub me: WorkerId,
    pub peers: Vec<WorkerId>,
    pub generation: Generation,
    pub fan_out: usize,
    pub map: PartitionMap,
    pub network: &'a Sender<Packet>,
    pub cuts: Option<Arc<dyn CutKeeper>>,
    pub restored: Option<Arc<Restored>>,
}

impl Member<'_> {
    /// Its part of the job, on the threads of a pool.
    pub fn job(self, plan: &Plan, pool: &Pool) -> Arc<Job> {
        let me = self.me;
        // One in two has no room for early pieces.
        let (budget, spill) = match me.0 % 2 {
            0 => (Budget::unlimited(), None),
            _ => (
                no_room_for_early_pieces(),
                Some(Arc::new(spills()) as Arc<dyn Spill>),
            ),
        };
        let options = NodeOptions {
            me,
            peers: self.peers,
            job: JOB,
            generation: self.generation,
            open_turns: brambling_exchange::OPEN_TURNS,
            chunk_bytes: 64,
            frame_bytes: 1000,
            part_bytes: 256,
            fan_out: self.fan_out,
            combining: CombiningOptions {
                sources_min: 0,
                bits: 1,
            },
            budget: budget.clone(),
            spill,
        };
        let entry = |shard| (shard, self.map.entry(shard).unwrap().unwrap());
        let placed = shards(plan).map(entry);
        let placed = placed.filter(|(_, entry)| entry.owner == me);
        let membership = Membership {
            placed: placed
                .map(|(shard, entry)| (shard, entry.version))
                .collect(),
            node: Node::new(plan, self.map.clone(), options),
            carrier: Arc::new(Wire {
                me,
                network: Mutex::new(self.network.clone()),
            }),
        };
        let options = JobOptions {
            budget,
            files: Some(files()),
            cuts: self.cuts,
            restored: self.restored,
            ..JobOptions::default()
        };
        Job::member(plan.clone(), pool.parkers(), options, membership).unwrap()
    }
}

/// Every shard on one of these workers.
pub fn scattered(plan: &Plan, random: &mut Rng, workers: &[WorkerId]) -> PartitionMap {
    let mut map = PartitionMap::new(plan.counts.iter().copied());
    for ShardId { group, index } in shards(plan) {
        let entry = Entry {
            owner: workers[random.below(workers.len() as u64) as usize],
            version: 1,
        };
        let (first, end) = (index, index + 1);
        let _ = map
            .apply(&EntryRange {
                group,
                first,
                end,
                entry,
            })
            .unwrap();
    }
    map
}

/// Where all workers spill that do.
pub fn spills() -> SpillDirectory {
    static SPILLS: OnceLock<SpillDirectory> = OnceLock::new();
    let open = || SpillDirectory::open(&std::env::temp_dir(), None).unwrap();
    SPILLS.get_or_init(open).clone()
}

/// Who reads back what was spilled.
fn files() -> Arc<FilePool> {
    static FILES: OnceLock<Arc<FilePool>> = OnceLock::new();
    let start = || Arc::new(FilePool::start().unwrap());
    FILES.get_or_init(start).clone()
}

fn no_room_for_early_pieces() -> Budget {
    let floors = Floors {
        resident_bytes: 1 << 40,
        exchange_bytes: 1 << 40,
        transfer_bytes: 1 << 40,
    };
    Budget::new(3 << 40, floors)
}

/// All shards of a program.
pub fn shards(plan: &Plan) -> impl Iterator<Item = ShardId> + '_ {
    plan.counts.iter().zip(0..).flat_map(|(count, group)| {
        let group = GroupId(group);
        (0..*count).map(move |index| ShardId { group, index })
    })
}

/// What the workers have together.
pub fn results(random: &RandomProgram, jobs: Vec<Arc<Job>>) -> Results {
    let mut jobs: Vec<Job> = jobs.into_iter().map(sole).collect();
    let mut results = Results::default();
    for (dataset, spec) in random.program.spec().datasets.iter().enumerate() {
        let id = DatasetId(dataset as u32);
        let plan = jobs[0].plan();
        let count = plan.counts[plan.group_of_dataset[dataset].index()];
        for index in (0..count).filter(|_| spec.keep) {
            let mut holders = jobs
                .iter_mut()
                .filter_map(|job| job.holds(id, index).unwrap().then_some(job));
            let holder = holders.next().expect("somebody holds it");
            results.add(dataset, index, holder.value(id, index));
            assert!(
                holders.next().is_none(),
                "two hold dataset {dataset}, {index}"
            );
        }
    }
    results
}

/// A completion may still hold it, for a moment.
pub fn sole(mut job: Arc<Job>) -> Job {
    loop {
        match Arc::try_unwrap(job) {
            Ok(job) => return job,
            Err(shared) => job = shared,
        }
        std::thread::yield_now();
    }
}
