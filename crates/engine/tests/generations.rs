//! Two generations of one job on the same two workers at once: each has its links, its prints and its results. The younger begins, and its cells exchange,
//! while kernels of the older sleep on a thread of each worker; the older ends meanwhile, and that is nothing to the younger.
//!
//! What begins generations is a controller of the test's own: a machine for each, which tells workers what a controller tells them.

mod support;

use brambling::cluster::{
    Generation, GroupId, JobId, JobKey, PrintStream, Prints, Rendezvous, Source, Token, WorkerId,
    WorkerProcess,
};
use brambling::prelude::*;
use brambling::program::{Bindings, Payload, Plan};
use brambling::{Caller, QuietCaller};
use brambling_controller::{Controller, ControllerEffect};
use brambling_exchange::transports::switchboard::{Party, PartyRefusal, Reception, Switchboard};
use brambling_exchange::transports::tcp::{LinkId, NetOptions};
use brambling_memory::Budget;
use brambling_protocol::frame::{Body, Frame, Incoming};
use brambling_protocol::message::{Member, Message, Parts, Prepare, Registered, parts};
use brambling_protocol::{Entry, EntryRange, PartitionMap, Sequence};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};
use support::cluster::{PATIENCE, threads, worker};

const OLD: JobKey = key(0);
const YOUNG: JobKey = key(1);
const TOKEN: [u8; 32] = [9; 32];
const PARTITIONS: u32 = 4;
/// Turns of the younger: more than the test waits for. The older has no end.
const TURNS: u64 = 8_000;
/// Each so many turns a cell says where it is.
const SAID_EACH: u64 = 1_000;

const fn key(generation: u64) -> JobKey {
    JobKey {
        job: JobId(1),
        generation: Generation(generation),
    }
}

// ---- the program

/// What kernels of both generations tell the test, and it tells them.
#[derive(Default)]
struct Stage {
    /// Kernels of the older that sleep, once they are to, until they are woken.
    asleep: AtomicU32,
    /// From which turn on they sleep: one that no partition has come to when it is set. One of them may be two turns ahead of another.
    sleeps_at: AtomicU64,
    /// The last turn that any of them has come to.
    latest: AtomicU64,
    is_woken: AtomicBool,
    /// How many turns cells of the younger have ended, together.
    turns: AtomicU64,
    /// The younger need not wait any more.
    is_seen: AtomicBool,
}

impl Stage {
    fn old(&self, partition: u32, turn: u64) {
        std::thread::sleep(Duration::from_millis(1));
        self.latest.fetch_max(turn, Ordering::SeqCst);
        let sleeps_at = self.sleeps_at.load(Ordering::SeqCst);
        // One on each worker.
        if partition.is_multiple_of(2) && sleeps_at > 0 && turn >= sleeps_at {
            self.asleep.fetch_add(1, Ordering::SeqCst);
            within("woken", || self.is_woken.load(Ordering::SeqCst));
        }
    }

    fn young(&self) {
        self.turns.fetch_add(1, Ordering::SeqCst);
        if !self.is_seen.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

type Cell = (u64, u64);

/// Cells in a row, of which each adds up what is beside it.
fn beside(
    p: &mut Program,
    cells: &Dataset<Cell>,
    turns: u64,
    step: impl Fn(&Context<'_>) + Clone + Send + Sync + 'static,
) {
    p.repeat(turns, |p| {
        let send = |cell: &Cell, _: u32, piece: &mut u64| *piece = cell.0;
        let receive = |cell: &mut Cell, _: u32, piece: &u64| cell.1 = cell.1.wrapping_add(*piece);
        p.exchange_neighbours("beside", cells, &[-1, 1], false, send, receive);
        let each = p.compute("step").update(cells);
        let step = step.clone();
        each.run_with_context(move |context: &mut Context<'_>, cell: &mut Cell| {
            step(context);
            *cell = (cell.0.wrapping_add(cell.1).wrapping_add(1), 0);
        });
    });
}

fn program(stage: &Arc<Stage>, prints: &Prints, is_old: bool) -> Program {
    let mut p = Program::new("cells");
    let cells = p.load("cells", PARTITIONS, Partitioner::Opaque, |index, _| {
        (u64::from(index), 0)
    });
    p.keep(&cells);
    let says = |who: &'static str, prints: &Prints, context: &Context<'_>| {
        let (turn, partition) = (context.turn(), context.partition());
        if turn % SAID_EACH == 0 {
            let text = format!("{who} {partition} {turn}\n");
            prints.print(PrintStream::Out, "step", &text);
        }
    };
    let (stage, prints) = (stage.clone(), prints.clone());
    if is_old {
        beside(&mut p, &cells, u64::MAX, move |context| {
            says("old", &prints, context);
            stage.old(context.partition(), context.turn());
        });
        return p;
    }
    beside(&mut p, &cells, TURNS, move |context| {
        says("young", &prints, context);
        stage.young();
    });
    p
}

/// The same without an engine.
fn expected() -> Vec<u64> {
    let mut cells: Vec<u64> = (0..u64::from(PARTITIONS)).collect();
    for _ in 0..TURNS {
        let at = |at: usize| cells.get(at).copied().unwrap_or(0);
        let beside = |it: usize| at(it.wrapping_sub(1)).wrapping_add(at(it + 1));
        let next = |it: usize| at(it).wrapping_add(beside(it)).wrapping_add(1);
        cells = (0..cells.len()).map(next).collect();
    }
    cells
}

struct Builds(Arc<Stage>);

impl Source for Builds {
    fn program(&self, bytes: &[u8], prints: &Prints) -> Result<Program, String> {
        Ok(program(&self.0, prints, bytes == b"old"))
    }
    fn caller(&self) -> Box<dyn Caller> {
        Box::new(QuietCaller)
    }
}

// ---- who begins generations

fn nonce() -> [u8; 32] {
    static USED: AtomicU64 = AtomicU64::new(0);
    let mut nonce = [0; 32];
    nonce[..8].copy_from_slice(&USED.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    nonce
}

fn board(epoch: u64, reception: Arc<dyn Reception>) -> Switchboard {
    let options = NetOptions {
        bind: Some("127.0.0.1:0".parse().unwrap()),
        token: Token::new(TOKEN),
        nonce,
        tls: None,
        local: true,
        budget: Budget::unlimited(),
    };
    Switchboard::receiving(options, epoch, reception).unwrap()
}

#[derive(Default)]
struct Known {
    machines: BTreeMap<JobKey, Controller>,
    workers: BTreeMap<WorkerId, (LinkId, SocketAddr)>,
    /// Generations that are over, and how.
    over: BTreeMap<JobKey, Option<String>>,
    /// Of which generations each worker told last what they have done there.
    told: BTreeMap<LinkId, BTreeMap<JobKey, u64>>,
}

/// What a controller is to workers.
#[derive(Default)]
struct Central {
    board: OnceLock<Switchboard>,
    known: Mutex<Known>,
}

impl Central {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap()
    }

    fn board(&self) -> &Switchboard {
        self.board.get().unwrap()
    }

    fn say(&self, link: LinkId, message: Message<'_>) {
        self.board().say(link, [Frame::message(message).to_bytes()]);
    }

    /// Does something with a machine, and what it asks for.
    fn with<R>(&self, key: JobKey, act: impl FnOnce(&mut Controller) -> R) -> Option<R> {
        let mut known = self.known();
        let machine = known.machines.get_mut(&key)?;
        let result = act(machine);
        for effect in machine.take_effects() {
            match effect {
                ControllerEffect::Send { to, bytes, .. } => self.board().send(key, [(to, bytes)]),
                ControllerEffect::Ended { failure } => drop(known.over.insert(key, failure)),
                other => panic!("{other:?}"),
            }
        }
        Some(result)
    }

    /// A generation begins on all workers, of which each gets as many shards.
    fn begin(self: &Arc<Self>, key: JobKey, counts: &[u32]) {
        let mut known = self.known();
        let workers: Vec<WorkerId> = known.workers.keys().copied().collect();
        let mut map = PartitionMap::new(counts.iter().copied());
        for (group, count) in (0..).map(GroupId).zip(counts) {
            let each = count / workers.len() as u32;
            for (first, &owner) in (0..).step_by(each as usize).zip(&workers) {
                let (end, version) = (first + each, 1);
                let entry = Entry { owner, version };
                let range = EntryRange {
                    group,
                    first,
                    end,
                    entry,
                };
                let _ = map.apply(&range).unwrap();
            }
        }
        let all = known.workers.iter();
        let member =
            |(&worker, &(_, at)): (&WorkerId, &(LinkId, SocketAddr))| Member { worker, at };
        let prepare = Prepare {
            key,
            members: all.map(member).collect(),
            shards: counts.to_vec(),
            map: map.entries().collect(),
            kept: None,
        };
        let machine = Controller::new(key.job, key.generation, map, workers);
        known.machines.insert(key, machine);
        let side = Arc::new(Side(key, Arc::downgrade(self)));
        self.board().enter(key, WorkerId::CONTROLLER, side);
        for (link, _) in known.workers.values() {
            self.say(*link, Message::Prepare(prepare.clone()));
        }
    }

    /// Nobody asks for a generation any more.
    fn release(&self, key: JobKey) {
        let mut known = self.known();
        known.machines.remove(&key);
        self.board().leave(key);
        for (link, _) in known.workers.values() {
            self.say(*link, Message::Release(key));
        }
    }
}

/// Has the links outside of jobs.
struct TestReception(Weak<Central>);

impl Reception for TestReception {
    fn on_frame(&self, link: LinkId, frame: &[u8]) -> Result<(), PartyRefusal> {
        let Some(central) = self.0.upgrade() else {
            return Ok(());
        };
        let Body::Message(message) = Frame::decode(frame)?.0.body else {
            panic!("a message");
        };
        match message {
            Message::Register(it) => {
                let mut known = central.known();
                let worker = WorkerId(known.workers.len() as u32 + 1);
                known.workers.insert(worker, (link, it.listens_at));
                central.say(link, Message::Registered(Registered { worker }));
            }
            Message::Load(load) => {
                let tasks = load.tasks.into_iter().collect();
                central.known().told.insert(link, tasks);
            }
            Message::Times(_) | Message::Stuck(_) | Message::Uses(_) => {}
            other => panic!("{other:?}"),
        }
        Ok(())
    }
}

/// The controller's side of a generation's links.
struct Side(JobKey, Weak<Central>);

impl Side {
    fn with<R>(&self, act: impl FnOnce(&mut Controller) -> R) -> Option<R> {
        self.1.upgrade()?.with(self.0, act)
    }
}

impl Party for Side {
    fn received(&self, peer: WorkerId) -> Sequence {
        self.with(|it| it.received(peer)).unwrap_or(0)
    }
    fn on_reconnect(&self, peer: WorkerId, received: Sequence) -> Result<(), PartyRefusal> {
        Ok(self
            .with(|it| it.on_reconnect(peer, received))
            .unwrap_or(Ok(()))?)
    }
    fn on_frame(&self, peer: WorkerId, frame: Incoming<'_>) -> Result<(), PartyRefusal> {
        Ok(self
            .with(|it| it.on_frame(peer, frame.bytes()))
            .unwrap_or(Ok(()))?)
    }
}

// ---- a client

/// Hands on what workers say.
struct Ear(Mutex<Sender<(LinkId, Bytes)>>);

impl Reception for Ear {
    fn on_open(&self, link: LinkId) {
        let _ = self.0.lock().unwrap().send((link, Bytes::new()));
    }
    fn on_frame(&self, link: LinkId, frame: &[u8]) -> Result<(), PartyRefusal> {
        let frame = Bytes::copy_from_slice(frame);
        let _ = self.0.lock().unwrap().send((link, frame));
        Ok(())
    }
}

/// What a client has of a generation.
#[derive(Default)]
struct Heard {
    lines: Vec<String>,
    values: BTreeMap<u32, Vec<u8>>,
    /// Workers that have sent all that they had, and how many tasks they ran.
    fetched: Vec<u64>,
    all_printed: u32,
}

struct Client {
    board: Switchboard,
    says: Receiver<(LinkId, Bytes)>,
    links: Vec<LinkId>,
    heard: BTreeMap<JobKey, Heard>,
    parts: BTreeMap<LinkId, Parts>,
}

impl Client {
    fn new(workers: &[WorkerProcess]) -> Client {
        let (sender, says) = channel();
        let board = board(3, Arc::new(Ear(Mutex::new(sender))));
        let visit = |it: &WorkerProcess| board.visit(it.listens_at()).unwrap();
        let links: Vec<LinkId> = workers.iter().map(visit).collect();
        for _ in &links {
            let (_, opened) = says.recv_timeout(PATIENCE).unwrap();
            assert!(opened.is_empty());
        }
        Client {
            board,
            says,
            links,
            heard: BTreeMap::new(),
            parts: BTreeMap::new(),
        }
    }

    fn say(&self, message: &Message<'_>) {
        for link in &self.links {
            let frame = Frame::message(message.clone()).to_bytes();
            self.board.say(*link, [frame]);
        }
    }

    fn send_program(&self, key: JobKey, bytes: &[u8]) {
        parts(key, bytes).for_each(|part| self.say(&Message::Program(part)));
    }

    fn hear(&mut self, at_most: Duration) {
        let Ok((link, frame)) = self.says.recv_timeout(at_most) else {
            return;
        };
        let Body::Message(message) = Frame::decode(&frame).unwrap().0.body else {
            panic!("a message");
        };
        let heard = &mut self.heard;
        match message {
            Message::Printed(it) => {
                let lines = it.lines.iter().map(|line| line.text.to_owned());
                heard.entry(it.key).or_default().lines.extend(lines);
                let (key, number) = (it.key, it.number);
                let shown = Frame::message(Message::Shown { key, number });
                self.board.say(link, [shown.to_bytes()]);
            }
            Message::AllPrinted(key) => heard.entry(key).or_default().all_printed += 1,
            Message::Partition { index, part, .. } => {
                if let Some(whole) = self.parts.entry(link).or_default().take(&part).unwrap() {
                    heard
                        .entry(part.key)
                        .or_default()
                        .values
                        .insert(index, whole);
                }
            }
            Message::Fetched { key, tasks, .. } => {
                heard.entry(key).or_default().fetched.push(tasks);
            }
            // What threads did is no matter here.
            Message::Ledger(_) => {}
            other => panic!("{other:?}"),
        }
    }

    /// Asks the workers for all that they have of a generation.
    fn fetch(&mut self, key: JobKey) -> Heard {
        let before = self.heard.entry(key).or_default().fetched.len();
        assert_eq!(before, 0);
        self.say(&Message::AskPrinted(key));
        self.say(&Message::Fetch(key));
        within("fetched", || {
            self.hear(Duration::from_millis(1));
            let (heard, all) = (&self.heard[&key], self.links.len());
            heard.fetched.len() == all && heard.all_printed as usize == all
        });
        self.heard.remove(&key).unwrap()
    }
}

fn within(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn central() -> (Arc<Central>, Rendezvous) {
    let central = Arc::<Central>::default();
    let board = board(7, Arc::new(TestReception(Arc::downgrade(&central))));
    let at = Rendezvous {
        address: board.listens_at().unwrap(),
        token: Token::new(TOKEN),
        tls: None,
    };
    assert!(central.board.set(board).is_ok());
    (central, at)
}

#[test]
fn the_younger_runs_beside_kernels_of_the_older_that_sleep() {
    let stage = Arc::<Stage>::default();
    let (central, at) = central();
    let workers = [(); 2].map(|()| worker(&at, threads(2), Builds(stage.clone())));
    let mut client = Client::new(&workers);
    let program = program(&stage, &Prints::default(), false);
    let counts = Plan::compile(Arc::new(program), &Bindings::default());
    let counts = counts.unwrap().counts;
    for (key, bytes) in [(OLD, "old"), (YOUNG, "young")] {
        client.send_program(key, bytes.as_bytes());
    }
    let mut until = |what: &str, is_so: &dyn Fn() -> bool| {
        within(what, || {
            client.hear(Duration::from_millis(1));
            is_so()
        });
    };
    let tells_of = |key: JobKey| {
        let (mut told, known) = (Vec::new(), central.known());
        for tasks in known.told.values() {
            told.push(tasks.get(&key).is_some_and(|tasks| *tasks > 0));
        }
        told
    };
    central.begin(OLD, &counts);
    until("the older runs everywhere, and is told of", &|| {
        tells_of(OLD) == [true; 2]
    });
    let latest = stage.latest.load(Ordering::SeqCst);
    stage.sleeps_at.store(latest + 10, Ordering::SeqCst);
    until("a kernel of the older sleeps on each worker", &|| {
        stage.asleep.load(Ordering::SeqCst) == 2
    });

    let turns = || stage.turns.load(Ordering::SeqCst);
    central.begin(YOUNG, &counts);
    until("the younger begins without the threads that sleep", &|| {
        turns() > 40 * u64::from(PARTITIONS)
    });
    until("both are told of", &|| {
        [tells_of(OLD), tells_of(YOUNG)] == [[true; 2]; 2]
    });
    central.release(OLD);
    until("the workers let go of the older", &|| {
        tells_of(OLD) == [false; 2]
    });
    let before = turns();
    until("the younger goes on", &|| {
        turns() > before + 40 * u64::from(PARTITIONS)
    });
    assert_eq!(tells_of(YOUNG), [true; 2]);
    assert!(turns() < TURNS * u64::from(PARTITIONS), "it computes");
    assert!(!stage.is_woken.load(Ordering::SeqCst), "they sleep");
    // Threads come back from their kernels into a job that has begun without them.
    stage.is_woken.store(true, Ordering::SeqCst);
    stage.is_seen.store(true, Ordering::SeqCst);
    until("the younger ends", &|| {
        central.known().over.contains_key(&YOUNG)
    });
    assert_eq!(central.known().over[&YOUNG], None, "how it ends");
    assert!(!central.known().over.contains_key(&OLD));

    // Of the older nothing is left but what it had printed; of the younger all is there.
    let of_old = client.fetch(OLD);
    assert_eq!((of_old.values.len(), &of_old.fetched[..]), (0, &[0, 0][..]));
    let is_of_old = |it: &String| it.starts_with("old ");
    assert!(!of_old.lines.is_empty() && of_old.lines.iter().all(is_of_old));
    let of_young = client.fetch(YOUNG);
    let mut expected_lines = Vec::new();
    for partition in 0..PARTITIONS {
        let said = (0..TURNS).step_by(SAID_EACH as usize);
        expected_lines.extend(said.map(|turn| format!("young {partition} {turn}")));
    }
    let mut lines = of_young.lines;
    lines.sort();
    expected_lines.sort();
    assert_eq!(lines, expected_lines);
    assert!(of_young.fetched.iter().all(|tasks| *tasks > 0));
    let encoded = |cell: u64| {
        let mut bytes = Vec::new();
        (cell, 0_u64).encode(&mut bytes);
        bytes
    };
    let values: Vec<Vec<u8>> = of_young.values.into_values().collect();
    let expected: Vec<Vec<u8>> = expected().into_iter().map(encoded).collect();
    assert_eq!(values, expected);
}
