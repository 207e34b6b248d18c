//! Workers that have little memory: each of one thread, a disk that is slow or fails, and shards that move.
//!
//! Catches a thread that waits for the disk while other shards could run, a gather that nobody calls again, a failure that is not told, and a shard that
//! counts twice on its way, or for ever. What a disk does by itself the tests of `storage` check.

use brambling_controller::{Controller, ControllerEffect};
use brambling_exchange::CombiningOptions;
use brambling_memory::{Budget, Class, Floors, OutOfMemory, Spill, SpillError, Spilled};
use brambling_program::{
    Bindings, DatasetId, GroupId, Inbox, Outbox, Partitioner, Plan, Program, Relation, ShardId,
};
use brambling_protocol::frame::Packet;
use brambling_protocol::{Entry, EntryRange, Generation, JobId, PartitionMap, Priority, WorkerId};
use brambling_storage::FilePool;
use brambling_worker::executor::{Job, JobOptions, Membership, Pool, QuietCaller, Transport};
use brambling_worker::node::{Node, NodeOptions};
use brambling_worker::piece_data::PieceBytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const JOB: JobId = JobId(7);
const NOW: Generation = Generation(0);
const ME: WorkerId = WorkerId(0);
/// Far more than any job takes, also on a machine that is busy with others.
const PATIENCE: Duration = Duration::from_secs(120);

const PARTITIONS: u32 = 4;
const TURNS: u64 = 3;
const NUMBERS: usize = 1_000;
const PART_BYTES: u64 = 16 << 10;
/// What one partition gets in a turn, and a little.
const TURN_BYTES: u64 = PARTITIONS as u64 * (NUMBERS as u64 * 8 + 100);
/// Of those who wait for no disk, in each turn.
const STEPS: u64 = 50;

/// Says when it may be read.
#[derive(Debug, Default)]
struct Disk {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_open: bool,
    is_damaged: bool,
    reads: u64,
}

impl Disk {
    fn open(&self, is_damaged: bool) {
        let mut state = self.state.lock().unwrap();
        (state.is_open, state.is_damaged) = (true, is_damaged);
        self.news.notify_all();
    }

    fn reads(&self) -> u64 {
        self.state.lock().unwrap().reads
    }
}

#[derive(Debug)]
struct Place(Arc<Disk>);

#[derive(Debug)]
struct There {
    disk: Arc<Disk>,
    bytes: Vec<u8>,
}

impl Spill for Place {
    fn put(&self, parts: &[&[u8]], _: &OutOfMemory) -> Result<Arc<dyn Spilled>, SpillError> {
        let (disk, bytes) = (self.0.clone(), parts.concat());
        Ok(Arc::new(There { disk, bytes }))
    }
}

impl Spilled for There {
    fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }
    fn read(&self) -> Result<Vec<u8>, SpillError> {
        let mut state = self.disk.state.lock().unwrap();
        state.reads += 1;
        while !state.is_open {
            state = self.disk.news.wait(state).unwrap();
        }
        match state.is_damaged {
            false => Ok(self.bytes.clone()),
            true => Err(SpillError::Damaged {
                directory: "the disk".into(),
                bytes: self.bytes(),
            }),
        }
    }
}

struct Wire {
    me: WorkerId,
    network: Mutex<Sender<(WorkerId, WorkerId, PieceBytes)>>,
}

impl Transport for Wire {
    fn send(&self, frames: Vec<(WorkerId, Priority, Packet)>) {
        for (to, _, packet) in frames {
            let frame = (self.me, to, packet.to_bytes());
            // Nobody listens any more when the job is over.
            let _ = self.network.lock().unwrap().send(frame);
        }
    }
}

/// Each partition sends numbers of its own to each, and others count meanwhile.
fn program(steps: &Arc<AtomicU64>) -> (Program, DatasetId) {
    let mut p = Program::new("copies");
    let exchange = p.exchange::<Vec<u64>>("copies", Relation::AllToAll);
    let sums = p.load("sums", PARTITIONS, Partitioner::Opaque, |index, _| {
        u64::from(index)
    });
    p.keep(&sums);
    let others = p.dataset::<u64>("others", 1);
    let steps = steps.clone();
    // Inside of one loop: after one, others would wait for its end.
    p.repeat(TURNS, |p| {
        p.scatter("send", &exchange).read(&sums).run(
            |sum: &u64, out: &mut Outbox<'_, Vec<u64>>| {
                for to in 0..out.fan_out() {
                    let piece = out.piece(to);
                    piece.clear();
                    piece.resize(NUMBERS, sum + u64::from(to));
                }
            },
        );
        p.gather("take", &exchange).update(&sums).run(
            |inbox: &mut Inbox<'_, Vec<u64>>, sum: &mut u64| {
                for (_, piece) in inbox {
                    assert_eq!(piece.len(), NUMBERS);
                    *sum = sum.wrapping_mul(7).wrapping_add(piece[NUMBERS - 1]);
                }
            },
        );
        p.repeat(STEPS, |p| {
            let steps = steps.clone();
            p.compute("step")
                .update(&others)
                .run(move |other: &mut u64| {
                    *other += 1;
                    std::thread::sleep(Duration::from_millis(1));
                    steps.fetch_add(1, Ordering::SeqCst);
                });
        });
    });
    (p, sums.id())
}

fn expected() -> Vec<u64> {
    let mut sums: Vec<u64> = (0..u64::from(PARTITIONS)).collect();
    for _ in 0..TURNS {
        let before = sums.clone();
        for (to, sum) in (0..).zip(&mut sums) {
            for sent in &before {
                *sum = sum.wrapping_mul(7).wrapping_add(sent + to);
            }
        }
    }
    sums
}

/// What a worker has.
#[derive(Clone)]
struct Has {
    budget: Budget,
    disk: Option<Arc<Disk>>,
}

/// The part of a worker in a job all of whose shards begin at the first one.
fn job(
    me: WorkerId,
    plan: &Plan,
    map: &PartitionMap,
    has: &Has,
    pool: &Pool,
    wire: Wire,
) -> Arc<Job> {
    let shards = plan.counts.iter().zip(0..).flat_map(|(count, group)| {
        let group = GroupId(group);
        (0..*count).map(move |index| (ShardId { group, index }, 1))
    });
    let node = NodeOptions {
        me,
        peers: Vec::new(),
        job: JOB,
        generation: NOW,
        open_turns: brambling_exchange::OPEN_TURNS,
        chunk_bytes: 1 << 20,
        frame_bytes: 1 << 20,
        part_bytes: PART_BYTES as usize,
        fan_out: 2,
        combining: CombiningOptions::USUAL,
        budget: has.budget.clone(),
        spill: (has.disk.clone()).map(|disk| Arc::new(Place(disk)) as Arc<dyn Spill>),
    };
    let membership = Membership {
        node: Node::new(plan, map.clone(), node),
        carrier: Arc::new(wire),
        placed: shards.filter(|_| me == ME).collect(),
    };
    let options = JobOptions {
        budget: has.budget.clone(),
        files: Some(Arc::new(FilePool::start().unwrap())),
        ..JobOptions::default()
    };
    Job::member(plan.clone(), pool.parkers(), options, membership).unwrap()
}

/// Runs a program on workers; `meanwhile` is asked again and again whether it has seen what it wants. How the job ended.
fn run(
    plan: &Plan,
    workers: &[Has],
    mut meanwhile: impl FnMut(&mut Controller) -> bool,
) -> (Vec<Arc<Job>>, Option<String>) {
    let mut map = PartitionMap::new(plan.counts.iter().copied());
    for (&end, group) in plan.counts.iter().zip(0..) {
        let (owner, version) = (ME, 1);
        let range = EntryRange {
            group: GroupId(group),
            first: 0,
            end,
            entry: Entry { owner, version },
        };
        let _ = map.apply(&range).unwrap();
    }
    let (network, frames) = channel();
    let pools: Vec<Pool> = workers
        .iter()
        .map(|_| Pool::new(1, true).unwrap())
        .collect();
    let names = || (0..workers.len() as u32).map(WorkerId);
    let jobs = names().zip(workers).zip(&pools).map(|((me, has), pool)| {
        let network = Mutex::new(network.clone());
        job(me, plan, &map, has, pool, Wire { me, network })
    });
    let jobs: Vec<Arc<Job>> = jobs.collect();
    let mut controller = Controller::new(JOB, NOW, map, names());
    let mut ended = None;
    std::thread::scope(|scope| {
        let working = pools.iter().zip(&jobs);
        let working = working.map(|(pool, job)| scope.spawn(|| pool.run(job, &mut QuietCaller)));
        let working: Vec<_> = working.collect();
        let (started, mut is_seen) = (Instant::now(), false);
        while !working.iter().all(|it| it.is_finished()) {
            if started.elapsed() >= PATIENCE {
                jobs.iter().for_each(|job| job.cancel());
                let disks = workers.iter().filter_map(|it| it.disk.as_ref());
                disks.for_each(|disk| disk.open(false));
                panic!("it does not end; whether all was seen: {is_seen}");
            }
            is_seen = is_seen || meanwhile(&mut controller);
            if let Ok((from, to, frame)) = frames.recv_timeout(Duration::from_millis(1)) {
                match to {
                    WorkerId::CONTROLLER => controller.on_frame(from, &frame).unwrap(),
                    _ => jobs[to.0 as usize].on_frame(from, &frame).unwrap(),
                }
            } else {
                jobs.iter().for_each(|job| job.on_tick());
                controller.on_tick();
            }
            for effect in controller.take_effects() {
                match effect {
                    ControllerEffect::Send { to, bytes, .. } => {
                        let frame = (WorkerId::CONTROLLER, to, bytes);
                        network.send(frame).expect("it is received here");
                    }
                    ControllerEffect::Ended { failure } => ended = Some(failure),
                    ControllerEffect::Moved { .. } => {}
                    effect => panic!("{effect:?}"),
                }
            }
        }
        assert!(is_seen, "the job has ended before");
    });
    (jobs, ended.expect("the controller has heard of the end"))
}

/// Runs what sends copies on a worker whose disk this is.
fn copies(
    disk: &Arc<Disk>,
    meanwhile: impl Fn(u64) -> bool,
) -> (Has, Job, DatasetId, Option<String>) {
    let steps = Arc::<AtomicU64>::default();
    let (program, sums) = program(&steps);
    let plan = Plan::compile(Arc::new(program), &Bindings::default()).unwrap();
    let floors = Floors {
        resident_bytes: 1 << 20,
        exchange_bytes: TURN_BYTES,
        transfer_bytes: 1 << 20,
    };
    let has = Has {
        budget: Budget::new(TURN_BYTES + (2 << 20), floors),
        disk: Some(disk.clone()),
    };
    let workers = [has.clone()];
    let (jobs, failure) = run(&plan, &workers, |_| meanwhile(steps.load(Ordering::SeqCst)));
    let mut jobs = jobs.into_iter().map(sole);
    (has, jobs.next().expect("one worker"), sums, failure)
}

/// A completion may still hold it, for a moment.
fn sole(mut job: Arc<Job>) -> Job {
    loop {
        match Arc::try_unwrap(job) {
            Ok(job) => return job,
            Err(shared) => job = shared,
        }
        std::thread::yield_now();
    }
}

#[test]
fn others_run_while_the_disk_reads() {
    let disk = Arc::<Disk>::default();
    let (has, mut job, sums, failure) = copies(&disk, |steps| {
        // All of them, while nothing has been read.
        let is_seen = steps == TURNS * STEPS && disk.reads() > 0;
        if is_seen {
            disk.open(false);
        }
        is_seen
    });
    assert_eq!(failure, None);
    for (index, expected) in (0..).zip(expected()) {
        assert_eq!(job.take::<u64>(sums, index), expected, "partition {index}");
    }
    assert_eq!(has.budget.class_in_use_bytes(Class::Exchange), 0);
    drop(job);
    assert_eq!(has.budget.in_use_bytes(), 0);
}

#[test]
fn a_disk_that_fails_ends_the_job_with_its_name() {
    let disk = Arc::<Disk>::default();
    let (has, job, _, failure) = copies(&disk, |_| {
        let is_seen = disk.reads() > 0;
        if is_seen {
            disk.open(true);
        }
        is_seen
    });
    let failure = failure.expect("it was told");
    assert!(
        failure.contains("spilled to the disk came back damaged"),
        "{failure}"
    );
    drop(job);
    assert_eq!(has.budget.in_use_bytes(), 0);
}

/// Wherever it is, and on its way, a shard counts once; beside it there is little.
#[test]
fn a_shard_that_moves_counts_once_on_either_side() {
    const ROWS: usize = 200_000;
    let moved = Arc::<AtomicU64>::default();
    let mut p = Program::new("moves");
    let rows = p.load("rows", 1, Partitioner::Opaque, |_, _| vec![0.5f64; ROWS]);
    p.keep(&rows);
    let waits = moved.clone();
    p.repeat(10_000, |p| {
        let waits = waits.clone();
        p.compute("step")
            .update(&rows)
            .run(move |rows: &mut Vec<f64>| {
                rows[7] += 1.0;
                if waits.load(Ordering::SeqCst) == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
    });
    let plan = Plan::compile(Arc::new(p), &Bindings::default()).unwrap();
    let has = || Has {
        budget: Budget::unlimited(),
        disk: None,
    };
    let workers = [has(), has()];
    let (group, index) = (GroupId(0), 0);
    let bytes = ROWS as u64 * 8;
    let there = &workers[1].budget;
    let (jobs, failure) = run(&plan, &workers, |controller| {
        // Again and again, until it is believed.
        let _ = controller.order(ShardId { group, index }, WorkerId(1), bytes);
        let is_there = there.class_in_use_bytes(Class::Resident) >= bytes;
        moved.fetch_add(u64::from(is_there), Ordering::SeqCst);
        is_there
    });
    assert_eq!(failure, None);
    for (job, has) in jobs.into_iter().zip(&workers) {
        let (peak, most) = (has.budget.peak_bytes(), bytes + 2 * PART_BYTES);
        assert!((bytes..most).contains(&peak), "{peak} of {bytes}");
        let mut job = sole(job);
        if job.holds(rows.id(), 0).unwrap() {
            assert_eq!(job.take::<Vec<f64>>(rows.id(), 0)[7], 10_000.5);
        }
        drop(job);
        assert_eq!(has.budget.in_use_bytes(), 0);
    }
}
