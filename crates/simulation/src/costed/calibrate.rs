//! Costs of production code, taken by running it.
//!
//! Small loops, each repeated, the best kept: a repetition that was descheduled says nothing. A second in all. What TCP and waking
//! cost is the machine's matter and is handed in.

use super::worker::running;
use super::{Costs, Machine};
use crate::executor::{SentPiece, SimulatedExecutor};
use brambling_controller::registry::{PeerLink, Registry};
use brambling_controller::{Controller, ControllerEffect, place};
use brambling_exchange::CombiningOptions;
use brambling_memory::Budget;
use brambling_program::tree::TreeNode;
use brambling_program::{
    Bindings, Cut, CutStates, DatasetId, ExchangeId, GroupId, Payload, Plan, Position, Program,
    ShardId, StageId, Sum, Value,
};
use brambling_protocol::frame::{Ack, Body, Frame, MapUpdate, Reserved, SignalOutcome};
use brambling_protocol::kept::{CutManifest, StoredPart, checksum};
use brambling_protocol::message::{Load, Message, Register};
use brambling_protocol::{
    Entry, EntryRange, FrameSession, Generation, JobId, JobKey, PartitionMap, Priority, WorkerId,
};
use brambling_worker::Spares;
use brambling_worker::executor::{Job, JobOptions, Pool, QuietCaller};
use brambling_worker::node::{Node, NodeEffect, NodeOptions};
use brambling_worker::piece_data::PieceBytes;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The time since some moment: whoever calibrates has a clock.
pub type Clock<'a> = &'a dyn Fn() -> Duration;

const JOB: JobId = JobId(1);
const NOW: Generation = Generation(0);
/// A thousand workers, which is what the simulation is for.
const WORKERS: u32 = 1_000;
const ROUNDS: usize = 9;
/// Shards of the small jobs here.
const SHARDS: u32 = 20;
const VERSION: &str = "calibrated";
/// The broadcast is the program's first exchange, the reduction its second.
const REDUCTION: ExchangeId = ExchangeId(1);

/// Measures what the simulated job's steps cost this machine.
///
/// # Panics
/// When the system gives no thread for the executor.
pub fn calibrate(clock: Clock<'_>, machine: Machine) -> Costs {
    let (piece_out_ns, piece_in_ns, fold_ns) = best_of(|| pieces(clock));
    let (hint_out_ns, hint_in_ns, update_in_ns) = best_of(|| hints(clock));
    let (controller_in_ns, controller_out_ns, table_byte_ns) = best_of(|| controller(clock));
    let (report_in_ns, codec_ns, _) = best_of(|| (reports(clock), codec(clock), 0.0));
    let (node_ns, manifest_part_ns, part_byte_ns) =
        best_of(|| (nodes(clock), manifests(clock), checksums(clock)));
    let (task_ns, turn_ns, merge_ns) = best_of(|| (tasks(clock), turns(clock), merges(clock)));
    Costs {
        machine,
        task_ns,
        turn_ns,
        piece_out_ns,
        piece_in_ns,
        fold_ns,
        merge_ns,
        hint_out_ns,
        hint_in_ns,
        update_in_ns,
        controller_in_ns,
        controller_out_ns,
        report_in_ns,
        table_byte_ns,
        codec_ns,
        node_ns,
        manifest_part_ns,
        part_byte_ns,
    }
}

fn best_of(mut measure: impl FnMut() -> (f64, f64, f64)) -> (f64, f64, f64) {
    let rounds = (0..ROUNDS).map(|_| measure());
    let best = |a: (f64, f64, f64), b: (f64, f64, f64)| (a.0.min(b.0), a.1.min(b.1), a.2.min(b.2));
    rounds.reduce(best).expect("some rounds")
}

/// Nanoseconds for each of so many.
fn each(clock: Clock<'_>, many: u64, run: impl FnOnce()) -> f64 {
    let start = clock();
    run();
    (clock() - start).as_secs_f64() * 1e9 / many as f64
}

// ---- the executor

fn run(clock: Clock<'_>, program: Program, each_of: u64) -> f64 {
    let plan = Plan::compile(Arc::new(program), &Bindings::default()).expect("a valid program");
    let pool = Pool::new(1, true).expect("a thread");
    let job = Job::new(plan, pool.parkers(), JobOptions::default());
    let ran = || {
        let ended = pool.run(&job, &mut QuietCaller);
        ended.expect("kernels that do not fail");
    };
    each(clock, each_of, ran)
}

fn tasks(clock: Clock<'_>) -> f64 {
    let turns = 20_000;
    let mut p = Program::new("tasks");
    let counts = p.dataset::<u64>("counts", SHARDS);
    p.repeat(turns, |p| {
        p.compute("count")
            .update(&counts)
            .run(|count: &mut u64| *count += 1);
    });
    run(clock, p, turns * u64::from(SHARDS))
}

/// The simulated job on one thread: a broadcast, a stage that does nothing, a reduction.
fn iterations(turns: u64, shards: u32) -> Program {
    let mut p = Program::new("iterations");
    let model = p.dataset::<[f64; 8]>("model", 1);
    let local = p.dataset::<[f64; 8]>("local", shards);
    let found = p.dataset::<[f64; 8]>("found", shards);
    p.repeat(turns, |p| {
        p.broadcast(&model, &local);
        p.compute("find").read(&local).write(&found).run(
            |local: &[f64; 8], found: &mut [f64; 8]| {
                found.clone_from(local);
            },
        );
        p.reduce(
            Sum,
            &found,
            &model,
            |model: &mut [f64; 8], sum: &[f64; 8]| model.clone_from(sum),
        );
    });
    p
}

fn turns(clock: Clock<'_>) -> f64 {
    let turns = 5_000;
    run(clock, iterations(turns, SHARDS), turns * u64::from(SHARDS))
}

// ---- the node

/// Worker 0 has the shards that compute, worker 1 the model; the map speaks of all workers.
fn plan(shards: u32) -> Plan {
    let program = Arc::new(iterations(1, shards));
    Plan::compile(program, &Bindings::default()).expect("a valid program")
}

fn node(plan: &Plan, me: u32) -> SimulatedExecutor {
    let mut map = PartitionMap::new(plan.counts.iter().copied());
    for (group, &count) in (0..).map(GroupId).zip(&plan.counts) {
        let owner = WorkerId(u32::from(count == 1));
        let entry = Entry { owner, version: 1 };
        let range = EntryRange {
            group,
            first: 0,
            end: count,
            entry,
        };
        let _ = map.apply(&range).expect("shards of the plan");
    }
    let mut node = SimulatedExecutor::new(Node::new(plan, map, options(me)), 4);
    for (group, &count) in (0..).map(GroupId).zip(&plan.counts) {
        for index in (0..count).filter(|_| me == u32::from(count == 1)) {
            let settled = node.settle(ShardId { group, index }, 1);
            settled.expect("nothing is held yet");
        }
    }
    node
}

fn options(me: u32) -> NodeOptions {
    let peers = (0..WORKERS).filter(|peer| *peer != me);
    NodeOptions {
        me: WorkerId(me),
        peers: peers.map(WorkerId).collect(),
        job: JOB,
        generation: NOW,
        open_turns: 4,
        chunk_bytes: 1 << 20,
        frame_bytes: 1 << 20,
        part_bytes: 1 << 20,
        // What is said to each is measured by what is said to all.
        fan_out: WORKERS as usize,
        combining: CombiningOptions::USUAL,
        budget: Budget::unlimited(),
        spill: None,
    }
}

fn frames(executor: &mut SimulatedExecutor) -> Vec<PieceBytes> {
    let sent = |effect| match effect {
        NodeEffect::Send { packet, .. } => Some(packet.to_bytes()),
        _ => None,
    };
    carried_out(executor).into_iter().filter_map(sent).collect()
}

/// Does what the node asks for, as far as that is here; what is left.
fn carried_out(executor: &mut SimulatedExecutor) -> Vec<NodeEffect> {
    let mut left = Vec::new();
    loop {
        let effects = executor.node().take_effects();
        if effects.is_empty() {
            return left;
        }
        for effect in effects {
            left.extend(executor.perform(effect).expect("there is room"));
        }
    }
}

/// A frame with one piece: out, in, and into its gather.
fn pieces(clock: Clock<'_>) -> (f64, f64, f64) {
    let plan = plan(SHARDS);
    let group = |count: u32| {
        let found = plan.counts.iter().position(|it| *it == count);
        GroupId(found.expect("two groups") as u32)
    };
    let (mut from, mut to) = (node(&plan, 0), node(&plan, 1));
    let turn = (REDUCTION, 0);
    let piece: PieceBytes = vec![0; 80].into();
    let mut sent = Vec::new();
    let out_ns = each(clock, u64::from(SHARDS), || {
        for index in 0..SHARDS {
            let shard = ShardId {
                group: group(SHARDS),
                index,
            };
            let pieces = [(0, SentPiece::Encoded(piece.clone().into()))];
            from.scattered(shard, turn, pieces).expect("there is room");
            from.node().flush();
            sent.extend(frames(&mut from));
        }
    });
    assert_eq!(sent.len(), SHARDS as usize, "one frame for each shard");
    let in_ns = each(clock, u64::from(SHARDS), || {
        for frame in &sent {
            let taken = to.node().on_frame(WorkerId(0), frame);
            taken.expect("an honest peer");
            carried_out(&mut to);
        }
    });
    let model = ShardId {
        group: group(1),
        index: 0,
    };
    let fold_ns = each(clock, u64::from(SHARDS), || {
        let taken = to.take(model, turn).expect("nothing is spilled");
        assert_eq!(taken.len(), SHARDS as usize);
    });
    (out_ns, in_ns, fold_ns)
}

/// A piece among many of one process, until all of them are merged.
fn merges(clock: Clock<'_>) -> f64 {
    let shards = 512;
    let plan = plan(shards);
    let mut from = node(&plan, 0);
    let turn = (REDUCTION, 0);
    let kind = plan.program.piece_type(REDUCTION);
    let merge = plan.program.combiner(REDUCTION).expect("a reduction");
    let group = plan.exchanges[REDUCTION.index()]
        .as_ref()
        .map(|it| it.source);
    let group = group.expect("it is used");
    let spares = Spares::new(kind);
    // What one partition has, as its scatter writes it.
    let piece = |index: u32| {
        let mut bytes = vec![];
        1usize.encode(&mut bytes);
        TreeNode::leaf(index.into()).encode(&mut bytes);
        [1.0f64; 8].encode(&mut bytes);
        Value::decode(kind, &mut &bytes[..]).expect("a partial result")
    };
    let pieces: Vec<Value> = (0..shards).map(piece).collect();
    let mut merged = 0;
    let ns = each(clock, shards.into(), || {
        for (index, piece) in (0..shards).zip(pieces) {
            let pieces = [(0, SentPiece::Value(piece))];
            let shard = ShardId { group, index };
            from.scattered(shard, turn, pieces).expect("there is room");
            loop {
                let asked = carried_out(&mut from).into_iter();
                let complete: Vec<TreeNode> = asked.filter_map(to_merge).collect();
                if complete.is_empty() {
                    break;
                }
                for group in complete {
                    let taken = from.take_group(turn, group);
                    let (taken, _charges) = taken.expect("nothing is spilled");
                    let values = taken.into_iter().map(|it| it.into_value(&spares));
                    let values: Result<Vec<Value>, _> = values.collect();
                    let mut values = values.expect("made above");
                    let (first, others) = values.split_first_mut().expect("some pieces");
                    merge(first, others);
                    let first = values.swap_remove(0);
                    let done = from.combined(turn, group, SentPiece::Value(first));
                    done.expect("there is room");
                    merged += 1;
                }
            }
        }
    });
    assert_eq!(merged, 64 + 8, "groups of eight, and of sixty-four");
    ns
}

fn to_merge(effect: NodeEffect) -> Option<TreeNode> {
    match effect {
        NodeEffect::Combine { group, .. } => Some(group),
        _ => None,
    }
}

/// A signal for a peer, a signal from a peer, news of an entry.
fn hints(clock: Clock<'_>) -> (f64, f64, f64) {
    let plan = plan(SHARDS);
    let mut one = node(&plan, 1);
    let stage = StageId(0);
    let out_ns = each(clock, u64::from(WORKERS), || {
        let decided = one.decided(Position { stage, turn: 0 }, true);
        decided.expect("one outcome");
        assert_eq!(frames(&mut one).len(), WORKERS as usize - 1);
    });
    let other = node(&plan, 0);
    let signal = |turn| {
        let body = Body::Signal(SignalOutcome {
            job: JOB,
            generation: NOW,
            position: Position { stage, turn },
            outcome: true,
            cut: None,
        });
        unnumbered(body)
    };
    let signals: Vec<PieceBytes> = (0..100).map(signal).collect();
    let in_ns = each(clock, 100, || {
        for frame in &signals {
            let taken = other.node().on_frame(WorkerId(1), frame);
            taken.expect("an honest peer");
        }
    });
    (out_ns, in_ns, updates(clock))
}

/// News of one entry of a map of a thousand workers.
fn updates(clock: Clock<'_>) -> f64 {
    let mut map = thousand();
    let frames: Vec<PieceBytes> = (0..50)
        .map(|shard| unnumbered(update(shard * 100)))
        .collect();
    each(clock, 50, || {
        for frame in &frames {
            let (frame, _) = Frame::decode(frame).expect("a whole frame");
            let Body::MapUpdate(update) = frame.body else {
                unreachable!("made above");
            };
            let _ = map.apply(&update.entries[0]).expect("a shard of the job");
        }
    })
}

fn update(shard: u32) -> Body<'static> {
    let entry = Entry {
        owner: WorkerId(7),
        version: 2,
    };
    Body::MapUpdate(MapUpdate {
        job: JOB,
        generation: NOW,
        entries: vec![EntryRange {
            group: GroupId(0),
            first: shard,
            end: shard + 1,
            entry,
        }],
    })
}

fn unnumbered(body: Body<'_>) -> PieceBytes {
    let priority = Priority::FIRST;
    let sequence = None;
    Frame {
        priority,
        sequence,
        body,
    }
    .to_bytes()
}

// ---- the controller

fn thousand() -> PartitionMap {
    let weights: Vec<(WorkerId, u32)> = (0..WORKERS).map(|worker| (WorkerId(worker), 18)).collect();
    place(&[180 * WORKERS], &[0], &weights)
}

/// An acknowledgement taken in; a frame of what all are told; a byte of a large table.
fn controller(clock: Clock<'_>) -> (f64, f64, f64) {
    let mut machine = Controller::new(JOB, NOW, thousand(), (0..WORKERS).map(WorkerId));
    let (shard, to) = (
        ShardId {
            group: GroupId(0),
            index: 0,
        },
        WorkerId(1),
    );
    machine.order(shard, to, 0).expect("it makes sense");
    let granted = Body::Reserved(Reserved {
        job: JOB,
        generation: NOW,
        shard,
        version: 2,
        granted: true,
    });
    let mut session = FrameSession::default();
    let granted = session
        .say(Priority::FIRST, &granted)
        .expect("the first")
        .to_bytes();
    let _ = machine.take_effects();
    let out_ns = each(clock, u64::from(WORKERS), || {
        machine.on_frame(to, &granted).expect("it was asked");
        // Nobody has acknowledged anything: all are told from here.
        machine.on_tick();
        let sends = machine.take_effects();
        let sends = sends
            .iter()
            .filter(|it| matches!(it, ControllerEffect::Send { .. }));
        assert_eq!(sends.count(), WORKERS as usize + 1);
    });
    let ack = unnumbered(Body::Ack(Ack { received: 1 }));
    let in_ns = each(clock, u64::from(WORKERS), || {
        for worker in 0..WORKERS {
            let taken = machine.on_frame(WorkerId(worker), &ack);
            taken.expect("one frame was sent");
        }
    });
    (in_ns, out_ns, tables(clock))
}

fn tables(clock: Clock<'_>) -> f64 {
    let entries: Vec<EntryRange> = thousand().entries().collect();
    let body = Body::MapUpdate(MapUpdate {
        job: JOB,
        generation: NOW,
        entries,
    });
    let bytes = unnumbered(body.clone()).len() as u64;
    each(clock, bytes, || {
        assert_eq!(unnumbered(body).len() as u64, bytes);
    })
}

/// A worker's report, among a thousand workers.
fn reports(clock: Clock<'_>) -> f64 {
    let mut registry = Registry::new(VERSION);
    for worker in 0..WORKERS {
        let register = Message::Register(Register {
            version: VERSION,
            known_as: None,
            epoch: u64::from(worker),
            pid: worker,
            host: "host",
            threads: 18,
            memory_bytes: 0,
            listens_at: SocketAddr::from((Ipv4Addr::LOCALHOST, 7078)),
            jobs: Vec::new(),
        });
        let taken = registry.on_message(PeerLink(u64::from(worker)), register);
        taken.expect("it follows the rules");
    }
    let load = Frame::message(Message::Load(Load {
        memory_bytes: 1 << 30,
        idle_permille: 100,
        tasks: vec![(JobKey::new(JOB, NOW), 1 << 30)],
        running: running(JobKey::new(JOB, NOW)),
    }))
    .to_bytes();
    each(clock, u64::from(WORKERS), || {
        for worker in 0..WORKERS {
            let Body::Message(message) = Frame::decode(&load).expect("a whole frame").0.body else {
                unreachable!("made above");
            };
            let taken = registry.on_message(PeerLink(u64::from(worker)), message);
            taken.expect("it has registered");
        }
    })
}

/// A request and an answer of some numbers, as a central scheduler would have for each task.
fn codec(clock: Clock<'_>) -> f64 {
    let many = 1_000;
    let answer = unnumbered(update(9));
    let mut bytes = Vec::new();
    each(clock, many, || {
        for shard in 0..many {
            bytes.clear();
            let body = update(shard as u32);
            Frame {
                priority: Priority::FIRST,
                sequence: Some(shard),
                body,
            }
            .encode(&mut bytes);
            let (answer, _) = Frame::decode(&answer).expect("a whole frame");
            assert!(!bytes.is_empty() && answer.sequence.is_none());
        }
    })
}

// ---- a generation that begins

/// A node of a thousand workers with 180,000 shards.
fn nodes(clock: Clock<'_>) -> f64 {
    let plan = plan(180 * WORKERS);
    let mut map = PartitionMap::new(plan.counts.iter().copied());
    let many = plan.counts.iter().position(|count| *count > 1);
    let group = GroupId(many.expect("a group that computes") as u32);
    for range in thousand().entries() {
        let applied = map.apply(&EntryRange { group, ..range });
        let _ = applied.expect("shards of the plan");
    }
    each(clock, 1, || {
        let node = Node::new(&plan, map, options(0));
        assert_eq!(node.held(), 0);
    })
}

fn manifests(clock: Clock<'_>) -> f64 {
    let parts = 180 * WORKERS;
    let part = |shard| StoredPart {
        dataset: DatasetId(0),
        shard,
        object: shard / 180,
        start: u64::from(shard % 180) << 20,
        bytes: 1 << 20,
        checksum: u64::from(shard),
    };
    let bytes = CutManifest {
        program: 1,
        name: "iterations".into(),
        cut: 1,
        at: Cut::LoopTop(0),
        turns: 1,
        states: CutStates::default(),
        outcomes: Vec::new(),
        sources: Vec::new(),
        objects: (0..WORKERS)
            .map(|it| format!("cluster/1/parts/1-g0-w{it}-0"))
            .collect(),
        parts: (0..parts).map(part).collect(),
        results: None,
    }
    .encode();
    each(clock, u64::from(parts), || {
        assert!(CutManifest::decode(&bytes).is_ok());
    })
}

fn checksums(clock: Clock<'_>) -> f64 {
    let bytes = vec![7; 1 << 20];
    each(clock, 1 << 20, || assert_ne!(checksum(&bytes), 0))
}
