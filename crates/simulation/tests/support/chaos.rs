//! Several executors, each a worker of a cluster whose frames a thread of the test carries: out of order, some twice, hints sometimes not at all, while a
//! controller moves shards about; half of them spill all early pieces.

use brambling_controller::{Controller, ControllerEffect};
use brambling_exchange::CombiningOptions;
use brambling_memory::{Budget, Floors, Spill};
use brambling_program::{DatasetId, GroupId, Plan, Rng, ShardId, StageId};
use brambling_protocol::frame::Frame;
use brambling_protocol::frame::Packet as Sent;
use brambling_protocol::{Entry, EntryRange, Generation, JobId, PartitionMap, Priority, WorkerId};
use brambling_simulation::{RandomProgram, Results, attached};
use brambling_storage::{FilePool, SpillDirectory};
use brambling_worker::executor::{
    Caller, Interrupted, Job, JobOptions, Membership, Pool, Transport,
};
use brambling_worker::node::{Node, NodeOptions};
use brambling_worker::piece_data::PieceBytes;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

const JOB: JobId = JobId(7);
const NOW: Generation = Generation(0);
/// Far more than any job takes, also on a machine that is busy with others.
const PATIENCE: Duration = Duration::from_secs(60);

struct Packet {
    from: WorkerId,
    to: WorkerId,
    bytes: PieceBytes,
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

/// What is said to nobody who is not there would be a fault.
struct Network {
    random: Rng,
    controller: Controller,
    jobs: Vec<Arc<Job>>,
    shards: Vec<ShardId>,
    /// Not delivered yet.
    packets: Vec<Packet>,
    moves: u64,
    failure: Option<String>,
    is_over: bool,
}

impl Network {
    /// Carries frames until all workers have left the job, and then what is still under way: shards may be.
    fn run(mut self, wire: &Receiver<Packet>, working: &AtomicUsize) -> (u64, Option<String>) {
        let started = Instant::now();
        while working.load(Ordering::SeqCst) > 0 {
            assert!(started.elapsed() < PATIENCE, "the job does not end");
            match wire.recv_timeout(Duration::from_millis(1)) {
                Ok(packet) => {
                    self.packets.push(packet);
                    self.packets.extend(wire.try_iter());
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.jobs.iter().for_each(|job| job.on_tick());
                    self.controller.on_tick();
                }
                Err(RecvTimeoutError::Disconnected) => unreachable!("the jobs hold the wires"),
            }
            self.deliver_all();
        }
        assert!(self.is_over, "the workers left before the job was over");
        loop {
            self.packets.extend(wire.try_iter());
            if self.packets.is_empty() {
                return (self.moves, self.failure);
            }
            self.deliver_all();
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    fn deliver_all(&mut self) {
        while !self.packets.is_empty() {
            self.deliver();
        }
    }

    fn deliver(&mut self) {
        let place = self.below(self.packets.len());
        let again = self.below(16) == 0;
        let Packet { from, to, bytes } = self.packets.swap_remove(place);
        let is_hint = Frame::decode(&bytes).unwrap().0.sequence.is_none();
        if is_hint && self.below(8) == 0 {
            return;
        }
        if to == WorkerId::CONTROLLER {
            self.controller.on_frame(from, &bytes).unwrap();
        } else {
            self.jobs[to.0 as usize].on_frame(from, &bytes).unwrap();
        }
        if again {
            self.packets.push(Packet { from, to, bytes });
        }
        if self.below(8) == 0 {
            let at = self.below(self.shards.len());
            let to = WorkerId(self.below(self.jobs.len()) as u32);
            // A move that makes no sense is refused.
            let _ = self.controller.order(self.shards[at], to, 100);
        }
        for effect in self.controller.take_effects() {
            match effect {
                ControllerEffect::Send { to, bytes, .. } => self.packets.push(Packet {
                    from: WorkerId::CONTROLLER,
                    to,
                    bytes,
                }),
                ControllerEffect::Moved { .. } => self.moves += 1,
                ControllerEffect::Stays { shard, .. } => panic!("there is room for {shard}"),
                ControllerEffect::Left { worker } => panic!("{worker} was not told to leave"),
                ControllerEffect::Ended { failure } => {
                    self.is_over = true;
                    self.failure = failure;
                }
                other => panic!("nobody dies here, and nothing is saved: {other:?}"),
            }
        }
    }
}

/// Has the interpreter while it runs stages, several of them at a time, as Python's caller does: it wants the node's lock meanwhile.
struct Attached;

impl Caller for Attached {
    fn check(&mut self) -> Result<(), Interrupted> {
        Ok(())
    }
    fn run_stages(&mut self, run: &mut dyn FnMut()) {
        attached(run);
    }
}

pub struct Cluster {
    pools: Vec<Pool>,
}

/// What a job left on its workers.
pub struct Left {
    pub jobs: Vec<Arc<Job>>,
    pub moves: u64,
    pub failure: Option<String>,
}

impl Cluster {
    /// Workers of these many threads.
    pub fn new(threads: &[u32]) -> Cluster {
        let pool = |threads: &u32| Pool::new(*threads, true).unwrap();
        Cluster {
            pools: threads.iter().map(pool).collect(),
        }
    }

    /// Runs a program; the seed decides what is carried when, and which shards move.
    pub fn run(&self, seed: u64, plan: &Plan) -> Left {
        let mut random = Rng::new(seed, StageId(u32::MAX), 2, 0);
        let workers = self.pools.len() as u32;
        let mut map = PartitionMap::new(plan.counts.iter().copied());
        let shards: Vec<ShardId> = shards(plan).collect();
        for &ShardId { group, index } in &shards {
            let entry = Entry {
                owner: WorkerId(random.below(u64::from(workers)) as u32),
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
        let (network, wire) = channel();
        let jobs: Vec<Arc<Job>> = (0..workers)
            .map(|me| self.job(WorkerId(me), plan, &map, &network))
            .collect();
        drop(network);
        let controller = Controller::new(JOB, NOW, map, (0..workers).map(WorkerId));
        let carrying = Network {
            random,
            controller: controller.with_fan_out(1),
            jobs: jobs.clone(),
            shards,
            packets: Vec::new(),
            moves: 0,
            failure: None,
            is_over: false,
        };
        let working = AtomicUsize::new(jobs.len());
        let working = &working;
        let (moves, failure) = std::thread::scope(|scope| {
            let carrying = scope.spawn(move || {
                let jobs = carrying.jobs.clone();
                let stops = StopsAll(&jobs);
                let carried = carrying.run(&wire, working);
                drop(stops);
                carried
            });
            for (pool, job) in self.pools.iter().zip(&jobs) {
                scope.spawn(move || {
                    // How it failed, if it did, the controller hears.
                    let _ = pool.run(job, &mut Attached);
                    working.fetch_sub(1, Ordering::SeqCst);
                });
            }
            carrying.join().unwrap()
        });
        Left {
            jobs,
            moves,
            failure,
        }
    }

    fn job(
        &self,
        me: WorkerId,
        plan: &Plan,
        map: &PartitionMap,
        network: &Sender<Packet>,
    ) -> Arc<Job> {
        let parkers = self.pools[me.0 as usize].parkers();
        let everybody = (0..self.pools.len() as u32).map(WorkerId);
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
            peers: everybody.filter(|peer| *peer != me).collect(),
            job: JOB,
            generation: NOW,
            open_turns: brambling_exchange::OPEN_TURNS,
            chunk_bytes: 64,
            frame_bytes: 1000,
            part_bytes: 256,
            fan_out: 1,
            combining: CombiningOptions {
                sources_min: 0,
                bits: 1,
            },
            budget: budget.clone(),
            spill,
        };
        let placed = shards(plan).filter(|shard| {
            let entry = map.entry(*shard).unwrap().unwrap();
            entry.owner == me
        });
        let membership = Membership {
            node: Node::new(plan, map.clone(), options),
            carrier: Arc::new(Wire {
                me,
                network: Mutex::new(network.clone()),
            }),
            placed: placed.map(|shard| (shard, 1)).collect(),
        };
        let options = JobOptions {
            budget,
            files: Some(files()),
            ..JobOptions::default()
        };
        Job::member(plan.clone(), parkers, options, membership).unwrap()
    }
}

/// Lets no thread wait for ever when the test has failed.
struct StopsAll<'a>(&'a [Arc<Job>]);

impl Drop for StopsAll<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|job| job.cancel());
    }
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

fn shards(plan: &Plan) -> impl Iterator<Item = ShardId> + '_ {
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
