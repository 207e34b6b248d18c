//! Random programs on several executors and a controller, connected by links over TCP, with and without TLS, that are cut again and again.
//!
//! Between what `members` tries and what processes do: sessions over real connections, with greetings, lost links and links made
//! again. The results must be those of the interpreter.

#[path = "../../exchange/tests/support/certificates.rs"]
mod certificates;

use brambling_controller::{Controller, ControllerEffect};
use brambling_exchange::CombiningOptions;
use brambling_exchange::transports::switchboard::{Party, PartyRefusal, Switchboard};
use brambling_exchange::transports::tcp::{Lost, NetOptions, ReadTarget};
use brambling_exchange::transports::tls::Tls;
use brambling_memory::Budget;
use brambling_memory::held;
use brambling_program::{
    Bindings, DatasetId, GroupId, Inbox, Outbox, Plan, Program, Relation, Rng, ShardId, StageId,
};
use brambling_protocol::frame::{Incoming, Packet};
use brambling_protocol::greeting::{Nonce, Token};
use brambling_protocol::{
    Entry, EntryRange, Generation, JobId, JobKey, PartitionMap, Priority, Sequence, WorkerId,
};
use brambling_simulation::{Results, interpret, random_program, seeds};
use brambling_worker::executor::{Job, JobOptions, Membership, Pool, QuietCaller, Transport};
use brambling_worker::node::{Node, NodeOptions};
use certificates::Authority;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const JOB: JobId = JobId(9);
const KEY: JobKey = JobKey {
    job: JOB,
    generation: NOW,
};
const NOW: Generation = Generation(0);
/// Far more than any job takes, also on a machine that is busy with others.
const PATIENCE: Duration = Duration::from_secs(60);

fn nonce() -> Nonce {
    static USED: AtomicU64 = AtomicU64::new(0);
    let mut nonce = [0; 32];
    nonce[..8].copy_from_slice(&USED.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    nonce
}

fn board(epoch: u64, tls: Option<&Tls>, local: bool) -> Arc<Switchboard> {
    let options = NetOptions {
        bind: Some("127.0.0.1:0".parse().unwrap()),
        token: Token::new([3; 32]),
        nonce,
        tls: tls.cloned(),
        local,
        budget: Budget::unlimited(),
    };
    Arc::new(Switchboard::new(options, epoch).unwrap())
}

struct Wire(Arc<Switchboard>);

impl Transport for Wire {
    fn send(&self, frames: Vec<(WorkerId, Priority, Packet)>) {
        let frames = frames.into_iter();
        self.0.send(KEY, frames.map(|(to, _, frame)| (to, frame)));
    }
    fn poll(&self) -> bool {
        self.0.poll()
    }
    fn rest(&self) {
        self.0.rest();
    }
    fn look(&self) {
        self.0.look();
    }
    fn resume(&self) {
        self.0.resume();
    }
}

/// A job, how often it has lost a link, and how often it knew where a large frame was to end.
struct Worker(Arc<Job>, Arc<AtomicU64>, Arc<AtomicU64>);

impl Party for Worker {
    fn received(&self, peer: WorkerId) -> Sequence {
        self.0.received(peer)
    }
    fn on_reconnect(&self, peer: WorkerId, received: Sequence) -> Result<(), PartyRefusal> {
        Ok(self.0.on_reconnect(peer, received)?)
    }
    fn place(&self, _: WorkerId, begun: &[u8]) -> Option<ReadTarget> {
        let place = self.0.place(begun);
        self.2
            .fetch_add(u64::from(place.is_some()), Ordering::Relaxed);
        place
    }
    fn on_frame(&self, peer: WorkerId, frame: Incoming<'_>) -> Result<(), PartyRefusal> {
        Ok(self.0.on_frame(peer, frame)?)
    }
    fn on_lost(&self, _: WorkerId, why: &Lost) {
        let is_cut = matches!(why, Lost::Closed | Lost::Ended | Lost::Io(_));
        assert!(is_cut, "{why}");
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

struct Control {
    controller: Mutex<Controller>,
    board: Arc<Switchboard>,
    moves: AtomicU64,
}

impl Control {
    fn with<R>(&self, act: impl FnOnce(&mut Controller) -> R) -> R {
        let mut controller = self.controller.lock().unwrap();
        let result = act(&mut controller);
        let effects = controller.take_effects();
        drop(controller);
        for effect in effects {
            match effect {
                ControllerEffect::Send { to, bytes, .. } => self.board.send(KEY, [(to, bytes)]),
                ControllerEffect::Moved { .. } => {
                    self.moves.fetch_add(1, Ordering::Relaxed);
                }
                ControllerEffect::Ended { failure } => assert_eq!(failure, None),
                ControllerEffect::Stays { shard, .. } => panic!("there is room for {shard}"),
                ControllerEffect::Left { worker } => panic!("{worker} was not told to leave"),
                other => panic!("nobody dies here, and nothing is saved: {other:?}"),
            }
        }
        result
    }
}

impl Party for Control {
    fn received(&self, peer: WorkerId) -> Sequence {
        self.with(|controller| controller.received(peer))
    }
    fn on_reconnect(&self, peer: WorkerId, received: Sequence) -> Result<(), PartyRefusal> {
        Ok(self.with(|controller| controller.on_reconnect(peer, received))?)
    }
    fn on_frame(&self, peer: WorkerId, frame: Incoming<'_>) -> Result<(), PartyRefusal> {
        Ok(self.with(|controller| controller.on_frame(peer, frame.bytes()))?)
    }
}

fn shards(plan: &Plan) -> impl Iterator<Item = ShardId> + '_ {
    plan.counts.iter().zip(0..).flat_map(|(count, group)| {
        let group = GroupId(group);
        (0..*count).map(move |index| ShardId { group, index })
    })
}

fn placed(plan: &Plan, workers: u32, random: &mut Rng) -> PartitionMap {
    let mut map = PartitionMap::new(plan.counts.iter().copied());
    for ShardId { group, index } in shards(plan) {
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
    map
}

fn member(
    me: WorkerId,
    plan: &Plan,
    map: &PartitionMap,
    pools: &[Pool],
    board: &Arc<Switchboard>,
    sizes: Sizes,
) -> Arc<Job> {
    let everybody = (0..pools.len() as u32).map(WorkerId);
    let options = NodeOptions {
        me,
        peers: everybody.filter(|peer| *peer != me).collect(),
        job: JOB,
        generation: NOW,
        open_turns: brambling_exchange::OPEN_TURNS,
        chunk_bytes: sizes.chunk_bytes,
        frame_bytes: sizes.frame_bytes,
        part_bytes: sizes.part_bytes,
        fan_out: 1,
        combining: CombiningOptions {
            sources_min: 0,
            bits: 1,
        },
        budget: Budget::unlimited(),
        spill: None,
    };
    let here = shards(plan).filter(|shard| map.entry(*shard).unwrap().unwrap().owner == me);
    let membership = Membership {
        node: Node::new(plan, map.clone(), options),
        carrier: Arc::new(Wire(board.clone())),
        placed: here.map(|shard| (shard, 1)).collect(),
    };
    let parkers = pools[me.0 as usize].parkers();
    Job::member(plan.clone(), parkers, JobOptions::default(), membership).unwrap()
}

/// How what is sent is cut.
#[derive(Clone, Copy)]
struct Sizes {
    chunk_bytes: usize,
    frame_bytes: usize,
    part_bytes: usize,
}

/// For the values of random programs, which are small.
const SMALL: Sizes = Sizes {
    chunk_bytes: 64,
    frame_bytes: 1_000,
    part_bytes: 256,
};
/// As workers cut.
const LARGE: Sizes = Sizes {
    chunk_bytes: 1 << 16,
    frame_bytes: (1 << 16) + (1 << 12),
    part_bytes: 1 << 16,
};

/// What a run left.
struct Left {
    jobs: Vec<Arc<Job>>,
    moves: u64,
    breaks: u64,
    places: u64,
}

fn run(seed: u64, plan: &Plan, pools: &[Pool], sizes: Sizes, tls: Option<&Tls>) -> Left {
    let mut random = Rng::new(seed, StageId(u32::MAX), 3, 0);
    let workers = pools.len() as u32;
    let map = placed(plan, workers, &mut random);
    // Over Unix sockets too.
    let local = seed % 4 < 2;
    let boards = (0..=workers).map(|at| board(u64::from(at), tls, local));
    let boards: Vec<Arc<Switchboard>> = boards.collect();
    let (central, boards) = boards.split_last().unwrap();
    let controller = Controller::new(JOB, NOW, map.clone(), (0..workers).map(WorkerId));
    let control = Arc::new(Control {
        controller: Mutex::new(controller.with_fan_out(1)),
        board: central.clone(),
        moves: AtomicU64::new(0),
    });
    central.enter(KEY, WorkerId::CONTROLLER, control.clone());
    let jobs: Vec<Arc<Job>> = (0..workers)
        .map(|me| member(WorkerId(me), plan, &map, pools, &boards[me as usize], sizes))
        .collect();
    let [breaks, places] = [0, 0].map(|none| Arc::new(AtomicU64::new(none)));
    for ((me, board), job) in (0..).zip(boards).zip(&jobs) {
        board.enter(
            KEY,
            WorkerId(me),
            Arc::new(Worker(job.clone(), breaks.clone(), places.clone())),
        );
        board.dial(KEY, WorkerId::CONTROLLER, central.listens_at().unwrap());
        for peer in 0..me {
            let at = boards[peer as usize].listens_at().unwrap();
            board.dial(KEY, WorkerId(peer), at);
        }
    }
    let working = AtomicUsize::new(jobs.len());
    std::thread::scope(|scope| {
        for (pool, job) in pools.iter().zip(&jobs) {
            let working = &working;
            scope.spawn(move || {
                pool.run(job, &mut QuietCaller).unwrap();
                working.fetch_sub(1, Ordering::SeqCst);
            });
        }
        let shards: Vec<ShardId> = shards(plan).collect();
        let started = Instant::now();
        while working.load(Ordering::SeqCst) > 0 {
            if started.elapsed() > PATIENCE {
                jobs.iter().for_each(|job| job.cancel());
                panic!("seed {seed}: the job does not end");
            }
            std::thread::sleep(Duration::from_micros(300));
            jobs.iter().for_each(|job| job.on_tick());
            let mut below = |bound: usize| random.below(bound as u64) as usize;
            let (at, to) = (below(boards.len()), below(boards.len() + 1) as u32);
            if below(4) == 0 {
                let peer = if to == workers {
                    WorkerId::CONTROLLER
                } else {
                    WorkerId(to)
                };
                boards[at].cut(KEY, peer);
            }
            let (shard, to) = (shards[below(shards.len())], WorkerId(at as u32));
            // A move that makes no sense is refused.
            let _ = control.with(|controller| controller.order(shard, to, 100));
            control.with(Controller::on_tick);
        }
        // Shards may still be on their way: they have come when all that was said is acknowledged.
        while !jobs.iter().all(|job| job.is_settled()) {
            assert!(started.elapsed() < PATIENCE, "seed {seed}: no rest");
            jobs.iter().for_each(|job| job.on_tick());
            std::thread::sleep(Duration::from_micros(300));
        }
    });
    central.leave(KEY);
    boards.iter().for_each(|board| board.leave(KEY));
    Left {
        jobs,
        moves: control.moves.load(Ordering::Relaxed),
        breaks: breaks.load(Ordering::Relaxed),
        places: places.load(Ordering::Relaxed),
    }
}

fn results(program: &Program, jobs: Vec<Arc<Job>>) -> Results {
    let mut jobs: Vec<Job> = jobs.into_iter().map(sole).collect();
    let mut results = Results::default();
    for (dataset, spec) in program.spec().datasets.iter().enumerate() {
        let id = DatasetId(dataset as u32);
        let plan = jobs[0].plan();
        let count = plan.counts[plan.group_of_dataset[dataset].index()];
        for index in (0..count).filter(|_| spec.keep) {
            let mut holders = jobs
                .iter_mut()
                .filter_map(|job| job.holds(id, index).unwrap().then_some(job));
            let holder = holders.next().expect("somebody holds it");
            results.add(dataset, index, holder.value(id, index));
        }
    }
    results
}

/// A thread of the net may still hold it, for a moment.
fn sole(mut job: Arc<Job>) -> Job {
    loop {
        match Arc::try_unwrap(job) {
            Ok(job) => return job,
            Err(shared) => job = shared,
        }
        std::thread::yield_now();
    }
}

/// Runs programs of so many seeds, and gives how many shards moved and links broke.
fn check(count: u64, tls: Option<&Tls>) -> (u64, u64) {
    // No file is written or read, nor a socket, under a lock that tasks want; nor could two threads wait for each other.
    held::watch();
    let pool = |threads| Pool::new(threads, true).unwrap();
    let clusters = [vec![pool(1), pool(1)], vec![pool(2), pool(1), pool(1)]];
    let (mut moves, mut breaks) = (0, 0);
    for seed in seeds(count) {
        let random = random_program(seed);
        let program = Arc::new(random.program.clone());
        let plan = Plan::compile(program, &random.bindings()).expect("random programs are valid");
        let expected = interpret(&random.program, &random.symbols);
        let left = run(seed, &plan, &clusters[(seed % 2) as usize], SMALL, tls);
        moves += left.moves;
        breaks += left.breaks;
        let found = results(&random.program, left.jobs);
        if let Some(difference) = found.difference(&expected, &random.program) {
            panic!("seed {seed}:\n{difference}\n{}", random.program.spec());
        }
    }
    (moves, breaks)
}

#[test]
fn links_that_break_lose_nothing() {
    let (moves, breaks) = check(60, None);
    assert!(moves > 50 && breaks > 200, "{moves} moves, {breaks} breaks");
}

/// A link is made again with a handshake of its own, and whatever lay in the old one's records is sent again.
#[test]
fn links_under_tls_that_break_lose_nothing() {
    let tls = Authority::new("ours").member();
    let (moves, breaks) = check(60, Some(&tls));
    assert!(moves > 50 && breaks > 200, "{moves} moves, {breaks} breaks");
}

const SHARDS: u32 = 5;
const TURNS: u64 = 12;

/// In each turn every shard sends every other one a large piece of its own, and all of them the same; who gets them counts everything.
fn large_pieces() -> Program {
    let mut p = Program::new("large pieces");
    let turn = p.value("turn", SHARDS, 0u64);
    let seen = p.like::<Vec<u64>, _>("seen", &turn);
    p.keep(&seen);
    p.repeat(TURNS, |p| {
        let own = p.exchange::<Vec<u64>>("own", Relation::AllToAll);
        p.scatter("send each its own", &own).read(&turn).run(
            |turn: &u64, out: &mut Outbox<'_, Vec<u64>>| {
                let source = u64::from(out.source());
                out.for_each(|destination, piece| {
                    let destination = u64::from(destination);
                    let words = 20_000 + 3_001 * (source + destination + turn) % 9_000;
                    let first = source * 1_000_003 + destination * 101 + turn;
                    piece.clear();
                    piece.extend((0..words).map(|at| first + at * 7));
                });
            },
        );
        let same = p.exchange::<Arc<Vec<u64>>>("same", Relation::AllToAll);
        p.scatter("send all the same", &same).read(&turn).run(
            |turn: &u64, out: &mut Outbox<'_, Arc<Vec<u64>>>| {
                let source = u64::from(out.source());
                let words = 30_000 + source * 17 + turn;
                let piece: Arc<Vec<u64>> = Arc::new((0..words).map(|at| at ^ source).collect());
                out.for_each(|_, place| *place = piece.clone());
            },
        );
        let next = p.compute("next").update(&turn);
        next.run(|turn: &mut u64| *turn += 1);
        let look = p.gather("look at each", &own).update(&seen);
        look.run(|inbox: &mut Inbox<'_, Vec<u64>>, seen: &mut Vec<u64>| {
            seen.extend(inbox.map(|(_, piece)| digest(piece)));
        });
        let look = p.gather("look at all", &same).update(&seen);
        look.run(
            |inbox: &mut Inbox<'_, Arc<Vec<u64>>>, seen: &mut Vec<u64>| {
                seen.extend(inbox.map(|(_, piece)| digest(piece)));
            },
        );
    });
    p
}

fn digest(piece: &[u64]) -> u64 {
    let step = |sum: u64, word: &u64| sum.wrapping_mul(31).wrapping_add(*word);
    piece.iter().fold(piece.len() as u64, step)
}

/// Also while what was read of a piece is lost with its link, comes again, and its shard is elsewhere by then.
#[test]
fn large_pieces_come_whole_where_links_break() {
    let pools = [2, 1].map(|threads| Pool::new(threads, true).unwrap());
    let program = large_pieces();
    let plan = Plan::compile(Arc::new(program.clone()), &Bindings::default()).unwrap();
    let expected = interpret(&program, &[]);
    let (mut moves, mut breaks, mut places) = (0, 0, 0);
    for seed in seeds(8) {
        let left = run(seed, &plan, &pools, LARGE, None);
        moves += left.moves;
        breaks += left.breaks;
        places += left.places;
        let found = results(&program, left.jobs);
        if let Some(difference) = found.difference(&expected, &program) {
            panic!("seed {seed}:\n{difference}");
        }
    }
    assert!(
        moves > 5 && breaks > 20 && places > 100,
        "{moves} moves, {breaks} breaks, {places} places"
    );
}
