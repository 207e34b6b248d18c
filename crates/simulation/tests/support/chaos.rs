//! Several executors, each a worker of a cluster whose frames a thread of the test carries: out of order, some twice, hints sometimes not at all, while a
//! controller moves shards about; half of them spill all early pieces.

pub mod member;

use brambling_controller::{Controller, ControllerEffect};
use brambling_program::{Plan, Rng, ShardId, StageId};
use brambling_protocol::{Generation, WorkerId};
use brambling_worker::executor::{Job, Pool};
use member::{Attached, JOB, Member, Packet, Packets, scattered, shards};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const NOW: Generation = Generation(0);
/// Far more than any job takes, also on a machine that is busy with others.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is said to nobody who is not there would be a fault.
struct Network {
    random: Rng,
    controller: Controller,
    jobs: Vec<Arc<Job>>,
    shards: Vec<ShardId>,
    /// Not delivered yet.
    packets: Packets,
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
                    self.packets.add([packet]);
                    self.packets.add(wire.try_iter());
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
            self.packets.add(wire.try_iter());
            if self.packets.are_none() {
                return (self.moves, self.failure);
            }
            self.deliver_all();
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    fn deliver_all(&mut self) {
        while let Some(packet) = self.packets.take(&mut self.random, false) {
            self.deliver(&packet);
        }
    }

    fn deliver(&mut self, packet: &Packet) {
        let Packet {
            from,
            to,
            ref bytes,
        } = *packet;
        if to == WorkerId::CONTROLLER {
            self.controller.on_frame(from, bytes).unwrap();
        } else {
            self.jobs[to.0 as usize].on_frame(from, bytes).unwrap();
        }
        if self.below(8) == 0 {
            let at = self.below(self.shards.len());
            let to = WorkerId(self.below(self.jobs.len()) as u32);
            // A move that makes no sense is refused.
            let _ = self.controller.order(self.shards[at], to, 100);
        }
        for effect in self.controller.take_effects() {
            match effect {
                ControllerEffect::Send { to, bytes, .. } => {
                    let from = WorkerId::CONTROLLER;
                    self.packets.add([Packet { from, to, bytes }]);
                }
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
        let shards: Vec<ShardId> = shards(plan).collect();
        let everybody: Vec<WorkerId> = (0..workers).map(WorkerId).collect();
        let map = scattered(plan, &mut random, &everybody);
        let (network, wire) = channel();
        let member = |me: &WorkerId| Member {
            me: *me,
            peers: everybody.iter().copied().filter(|it| it != me).collect(),
            generation: NOW,
            fan_out: 1,
            map: map.clone(),
            network: &network,
            cuts: None,
            restored: None,
        };
        let on_pools = everybody.iter().zip(&self.pools);
        let jobs: Vec<Arc<Job>> = on_pools
            .map(|(me, pool)| member(me).job(plan, pool))
            .collect();
        drop(network);
        let controller = Controller::new(JOB, NOW, map, (0..workers).map(WorkerId));
        let carrying = Network {
            random,
            controller: controller.with_fan_out(1),
            jobs: jobs.clone(),
            shards,
            packets: Packets::new(false),
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
}

/// Lets no thread wait for ever when the test has failed.
struct StopsAll<'a>(&'a [Arc<Job>]);

impl Drop for StopsAll<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|job| job.cancel());
    }
}
