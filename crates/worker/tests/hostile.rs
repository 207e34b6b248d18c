//! Whatever a peer that was let in says, a node answers with an error, never with a panic.
//!
//! Catches what is taken on trust: names, ranges and versions that the program does not have, outcomes that contradict each
//! other, shards that come where they are. It does not catch a node that takes what it should refuse: a peer that lies well is
//! believed.

mod support;

use brambling_exchange::CombiningOptions;
use brambling_program::tree::TreeNode;
use brambling_program::{
    Bindings, BlockId, ExchangeId, GroupId, Max, Plan, Position, Program, Relation, ShardId,
    StageId,
};
use brambling_protocol::frame::{
    Ack, Body, Credit, Data, DataHead, EmptyMarks, Ended, Frame, Joined, LoopEnd, MapUpdate, News,
    Piece as Sent, Relay, Reserve, Retired, Route, ShardPart, SignalOutcome, SignalQuery,
    SourceCredit, VersionRange,
};
use brambling_protocol::{Entry, EntryRange, Generation, JobId, Priority, Version, WorkerId};
use brambling_worker::Surroundings;
use brambling_worker::node::{NodeEffect, NodeError, NodeOptions};
use brambling_worker::piece_data::{Encoded, PieceBytes};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use support::executor::SentPiece;
use support::{JOB, ME, PEER, Worker, one, options};

const NOW: Generation = Generation(1);
const COUNT: u32 = 4;

/// Two loops over reductions and broadcasts, of which a signal ends the second.
fn plan() -> Plan {
    let mut p = Program::new("until");
    let counts = p.dataset::<u64>("counts", COUNT);
    let total = p.dataset::<u64>("total", 1);
    p.repeat(5, |p| p.all_reduce(Max, &counts, &counts));
    let goes_on = |total: &u64| *total < 3;
    p.repeat_while("goes on", &total, goes_on, |p| {
        p.reduce_to(Max, &counts, &total);
    });
    Plan::compile(Arc::new(p), &Bindings::default()).unwrap()
}

fn node(plan: &Plan, me: WorkerId) -> Worker {
    let options = NodeOptions {
        generation: NOW,
        open_turns: 2,
        chunk_bytes: 8,
        frame_bytes: 200,
        combining: CombiningOptions {
            sources_min: 0,
            bits: 1,
        },
        ..options(me, [ME, PEER])
    };
    support::worker(plan, options)
}

/// What travels of a shard that has never run.
fn metadata(plan: &Plan, shard: ShardId) -> Vec<u8> {
    let mut holder = node(plan, PEER);
    holder.settle(shard, 1).unwrap();
    holder.on_update(&one(shard, ME, 2)).unwrap();
    holder.depart(shard, b"its data").unwrap();
    let part = |effect| match effect {
        NodeEffect::Send { packet, .. } => {
            match Frame::decode(&packet.to_bytes()).unwrap().0.body {
                Body::ShardPart(part) => Some(part.bytes.to_vec()),
                _ => None,
            }
        }
        _ => None,
    };
    let effects = holder.take_effects().into_iter();
    effects.filter_map(part).collect::<Vec<_>>().concat()
}

/// What travels of a shard that knows nothing but an outcome of 2⁶³ turns.
fn endless(outcome: bool) -> Vec<u8> {
    let signal = 1;
    let turns = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1];
    let metadata = [
        &[5, 0, 0, 0, 1, signal, 0][..],
        &turns,
        &[outcome.into(), 0, 0, 0],
    ]
    .concat();
    with_nothing(&metadata)
}

/// What travels with this metadata of a shard for which nothing has come, and that has no data.
fn with_nothing(metadata: &[u8]) -> Vec<u8> {
    [
        &(metadata.len() as u64).to_le_bytes()[..],
        metadata,
        &1u64.to_le_bytes(),
        &[0],
    ]
    .concat()
}

#[derive(Clone, Debug)]
enum Step {
    Says(WorkerId, Said),
    Calls(WorkerId, u64),
    /// The node's own shards go on where they can.
    Work,
    Flush,
    Tick,
    /// Shards that have to leave do.
    Depart,
    Decides(Position, bool),
}

/// A body, but for what it borrows.
#[derive(Clone, Debug)]
enum Said {
    Owned(Body<'static>),
    Part(ShardId, Version, (u32, u32), ShardMetadata),
    Data {
        head: DataHead,
        versions: (u32, u32, Version),
        pieces: Vec<(TreeNode, u32, bool)>,
        empties: Vec<(u64, u64)>,
        routes: Vec<(u32, u32, WorkerId)>,
    },
}

#[derive(Clone, Debug)]
enum ShardMetadata {
    Garbage(Vec<u8>),
    Honest,
    /// In which nothing is said, of the map neither.
    Empty,
    /// With an outcome of more turns than anybody counts to.
    Endless(bool),
    /// One byte of it is another.
    Damaged(usize, u8),
}

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => 0u64..6,
        1 => Just(u64::MAX),
        1 => Just(u64::MAX - 1),
    ]
}

fn index() -> impl Strategy<Value = u32> {
    prop_oneof![12 => 0..=COUNT, 1 => Just(u32::MAX)]
}

fn group() -> impl Strategy<Value = GroupId> {
    prop_oneof![12 => 0u32..3, 1 => Just(u32::MAX)].prop_map(GroupId)
}

fn exchange() -> impl Strategy<Value = ExchangeId> {
    prop_oneof![12 => 0u32..5, 1 => Just(u32::MAX)].prop_map(ExchangeId)
}

fn shard() -> impl Strategy<Value = ShardId> {
    (group(), index()).prop_map(|(group, index)| ShardId { group, index })
}

fn worker() -> impl Strategy<Value = WorkerId> {
    prop_oneof![(0u32..4).prop_map(WorkerId), Just(WorkerId::CONTROLLER),]
}

fn hearers() -> impl Strategy<Value = BTreeSet<u32>> {
    let worker = prop_oneof![8 => 0u32..20, 1 => Just(u32::MAX - 1)];
    prop::collection::btree_set(worker, 0..20)
}

fn generation() -> impl Strategy<Value = Generation> {
    prop_oneof![9 => Just(NOW), 1 => (0u64..3).prop_map(Generation)]
}

fn position() -> impl Strategy<Value = Position> {
    let stage = prop_oneof![9 => 0u32..8, 1 => Just(u32::MAX)].prop_map(StageId);
    (stage, number()).prop_map(|(stage, turn)| Position { stage, turn })
}

fn entries() -> impl Strategy<Value = EntryRange> {
    (group(), index(), index(), worker(), number()).prop_map(
        |(group, first, end, owner, version)| EntryRange {
            group,
            first,
            end,
            entry: Entry { owner, version },
        },
    )
}

fn owned() -> impl Strategy<Value = Body<'static>> {
    let job = JOB;
    let credit = || (index(), index(), number());
    prop_oneof![
        1 => (generation(), position(), any::<bool>()).prop_map(move |(generation, position, outcome)| {
            Body::Signal(SignalOutcome {
                job,
                generation,
                position,
                outcome,
                cut: None,
            })
        }),
        1 => (generation(), position()).prop_map(move |(generation, position)| {
            Body::SignalQuery(SignalQuery {
                job,
                generation,
                position,
            })
        }),
        1 => (generation(), 0u32..4, number()).prop_map(move |(generation, body, turns)| {
            Body::LoopEnd(LoopEnd {
                job,
                generation,
                body: BlockId(body),
                turns,
            })
        }),
        3 => (generation(), exchange(), group(), prop::collection::vec(credit(), 0..3)).prop_map(
            move |(generation, exchange, group, retired)| {
                let retired = retired.into_iter();
                let retired = retired.map(|(first, end, turns)| Retired { first, end, turns });
                Body::Credit(Credit {
                    job,
                    generation,
                    exchange,
                    group,
                    retired: retired.collect(),
                })
            }
        ),
        4 => (generation(), prop::collection::vec(entries(), 0..3))
            .prop_map(move |(generation, entries)| Body::MapUpdate(MapUpdate { job, generation, entries })),
        1 => number().prop_map(|received| Body::Ack(Ack { received })),
        4 => (generation(), shard(), number(), worker(), number()).prop_map(
            move |(generation, shard, version, holder, bytes)| {
                Body::Reserve(Reserve {
                    job,
                    generation,
                    shard,
                    version,
                    holder,
                    bytes,
                })
            }
        ),
        2 => (generation(), exchange(), group(), prop::collection::vec(credit(), 0..3), number(), hearers(), any::<bool>()).prop_map(
            move |(generation, exchange, group, retired, version, hearers, is_news)| {
                let retired = retired.into_iter();
                let retired = retired.map(|(first, end, turns)| Retired { first, end, turns });
                let credit = Credit {
                    job,
                    generation,
                    exchange,
                    group,
                    retired: retired.collect(),
                };
                let to = hearers.into_iter().map(WorkerId).collect();
                match is_news {
                    true => Body::Relay(Relay { to, news: News::Credit(credit) }),
                    false => Body::SourceCredit(SourceCredit { version, credit }),
                }
            }
        ),
        1 => (generation(), 0u32..4, number(), hearers()).prop_map(move |(generation, body, turns, hearers)| {
            let body = BlockId(body);
            let news = News::LoopEnd(LoopEnd { job, generation, body, turns });
            let to = hearers.into_iter().map(WorkerId).collect();
            Body::Relay(Relay { to, news })
        }),
        1 => worker().prop_map(|worker| Body::Joined(Joined { worker })),
        2 => (hearers(), generation(), position(), any::<bool>()).prop_map(
            move |(to, generation, position, outcome)| {
                let to = to.into_iter().map(WorkerId).collect();
                let news = News::Signal(SignalOutcome {
                    job,
                    generation,
                    position,
                    outcome,
                    cut: None,
                });
                Body::Relay(Relay { to, news })
            }
        ),
        3 => (hearers(), generation(), prop::collection::vec(entries(), 0..3)).prop_map(move |(to, generation, entries)| {
            let to = to.into_iter().map(WorkerId).collect();
            let news = News::MapUpdate(MapUpdate { job, generation, entries });
            Body::Relay(Relay { to, news })
        }),
        1 => (generation(), any::<bool>()).prop_map(move |(generation, fails)| {
            Body::Ended(Ended {
                job,
                generation,
                failure: fails.then_some("gone"),
            })
        }),
    ]
}

fn said() -> impl Strategy<Value = Said> {
    let metadata = prop_oneof![
        4 => Just(ShardMetadata::Honest),
        2 => Just(ShardMetadata::Empty),
        1 => any::<bool>().prop_map(ShardMetadata::Endless),
        2 => (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| ShardMetadata::Damaged(at, byte)),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(ShardMetadata::Garbage),
    ];
    let parts = prop_oneof![4 => Just((0, 1)), 1 => (0u32..3, 0u32..3)];
    let head = (generation(), exchange(), number(), group()).prop_map(
        |(generation, exchange, turn, group)| DataHead {
            job: JOB,
            generation,
            exchange,
            turn,
            group,
        },
    );
    let source = (prop_oneof![8 => Just(0u8), 1 => 0..63u8], number())
        .prop_map(|(level, index)| TreeNode { level, index });
    let chunk = prop_oneof![4 => 0..2u32, 1 => Just(u32::MAX)];
    let pieces = prop::collection::vec((source, chunk, any::<bool>()), 0..4);
    let empties = prop::collection::vec((number(), number()), 0..3);
    let routes = prop::collection::vec((index(), index(), worker()), 0..3);
    prop_oneof![
        2 => owned().prop_map(Said::Owned),
        1 => (shard(), number(), parts, metadata)
            .prop_map(|(shard, version, parts, metadata)| Said::Part(shard, version, parts, metadata)),
        2 => (head, (index(), index(), number()), pieces, empties, routes).prop_map(
            |(head, versions, pieces, empties, routes)| Said::Data {
                head,
                versions,
                pieces,
                empties,
                routes,
            }
        ),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => (worker(), said()).prop_map(|(worker, said)| Step::Says(worker, said)),
        1 => (worker(), number()).prop_map(|(worker, received)| Step::Calls(worker, received)),
        2 => Just(Step::Work),
        2 => Just(Step::Flush),
        1 => Just(Step::Tick),
        2 => Just(Step::Depart),
        1 => (position(), any::<bool>()).prop_map(|(at, outcome)| Step::Decides(at, outcome)),
    ]
}

/// A node, and what whoever runs it has to know.
struct Run {
    plan: Plan,
    node: Worker,
    /// How many frames each peer has said.
    said: BTreeMap<WorkerId, u64>,
    /// The next turn of each shard's gathers and scatters that was here from the beginning.
    turns: BTreeMap<(ShardId, ExchangeId), u64>,
    draining: BTreeSet<ShardId>,
    metadata: Vec<u8>,
}

impl Run {
    fn new() -> Run {
        let plan = plan();
        let mut node = node(&plan, ME);
        let counts = plan.counts.clone();
        for (group, count) in (0..).map(GroupId).zip(counts) {
            for index in 0..count.div_ceil(2) {
                node.settle(ShardId { group, index }, 1).unwrap();
            }
        }
        let away = ShardId {
            group: plan.exchanges[0].as_ref().unwrap().source,
            index: COUNT - 1,
        };
        let mut turns = BTreeMap::new();
        for (exchange, ends) in (0..).map(ExchangeId).zip(plan.exchanges.iter().flatten()) {
            for group in [ends.source, ends.destination] {
                let here = 0..plan.counts[group.index()].div_ceil(2);
                turns.extend(here.map(|index| ((ShardId { group, index }, exchange), 0)));
            }
        }
        Run {
            metadata: metadata(&plan, away),
            node,
            plan,
            said: BTreeMap::new(),
            turns,
            draining: BTreeSet::new(),
        }
    }

    fn step(&mut self, step: Step) -> Result<(), NodeError> {
        let done = match step {
            Step::Says(from, said) => self.says(from, said),
            Step::Calls(from, received) => self.node.on_reconnect(from, received),
            Step::Work => self.work(),
            Step::Flush => {
                self.node.flush();
                Ok(())
            }
            Step::Tick => {
                self.node.on_tick();
                Ok(())
            }
            Step::Depart => std::mem::take(&mut self.draining)
                .into_iter()
                .try_for_each(|shard| self.node.depart(shard, &[])),
            Step::Decides(at, outcome) => self.node.decided(at, outcome),
        };
        for effect in self.node.take_effects() {
            match effect {
                NodeEffect::Drain(shard) => {
                    assert!(self.draining.insert(shard), "{shard} is drained twice");
                    self.turns.retain(|(it, _), _| *it != shard);
                }
                NodeEffect::Settle { shard, .. } => self.asks(shard),
                NodeEffect::Send { packet, .. } => {
                    Frame::decode(&packet.to_bytes()).unwrap();
                }
                NodeEffect::Combine { at, group } => {
                    let (pieces, _charges) = self.node.take_group(at, group)?;
                    assert!(!pieces.is_empty(), "{at:?} {group:?}");
                    let first = pieces[0].to_vec();
                    let piece = Encoded::from(PieceBytes::from(first));
                    self.node.combined(at, group, SentPiece::Encoded(piece))?;
                }
                NodeEffect::End { .. }
                | NodeEffect::Forget(_)
                | NodeEffect::Cut(_)
                | NodeEffect::CutNamed { .. } => {}
                effect => unreachable!("{effect:?}"),
            }
        }
        // What runs asks for what has come at once.
        for shard in self.node.take_woken() {
            if self.node.node().is_here(shard) {
                self.asks(shard);
            }
        }
        done
    }

    /// A shard that is here asks what has come for it.
    fn asks(&mut self, shard: ShardId) {
        let count = self.plan.counts.get(shard.group.index());
        assert!(count.is_some_and(|count| shard.index < *count), "{shard}");
        let exchanges = self.plan.exchanges.iter().flatten();
        for (exchange, ends) in (0..).map(ExchangeId).zip(exchanges) {
            if ends.destination == shard.group {
                self.node.around(shard).is_complete(exchange, 0);
            }
        }
    }

    fn says(&mut self, from: WorkerId, said: Said) -> Result<(), NodeError> {
        let damaged;
        let body = match &said {
            Said::Owned(body) => body.clone(),
            Said::Part(shard, version, (part, parts), metadata) => {
                let bytes = match metadata {
                    ShardMetadata::Garbage(bytes) => bytes,
                    ShardMetadata::Honest => &self.metadata,
                    ShardMetadata::Empty => {
                        damaged = with_nothing(&[5, 0, 0, 0, 0, 0, 0, 0]);
                        &damaged
                    }
                    ShardMetadata::Endless(outcome) => {
                        damaged = endless(*outcome);
                        &damaged
                    }
                    ShardMetadata::Damaged(at, byte) => {
                        let mut bytes = self.metadata.clone();
                        let at = at % bytes.len();
                        bytes[at] = *byte;
                        damaged = bytes;
                        &damaged
                    }
                };
                Body::ShardPart(ShardPart {
                    job: JOB,
                    generation: NOW,
                    shard: *shard,
                    version: *version,
                    part: *part,
                    parts: *parts,
                    bytes,
                })
            }
            Said::Data {
                head,
                versions: (first, end, version),
                pieces,
                empties,
                routes,
            } => {
                let (first, end, version) = (*first, *end, *version);
                if first >= end {
                    // No frame can say that.
                    return Ok(());
                }
                let countable = |source: &TreeNode| {
                    let end = source.index.checked_add(1);
                    end.is_some_and(|end| end <= u64::MAX >> source.level)
                };
                let piece = |(source, chunk, last): &(TreeNode, u32, bool)| Sent {
                    first,
                    end,
                    source: *source,
                    chunk: *chunk,
                    last: *last,
                    payload: b"eight of",
                };
                let marks = |&(start, stop): &(u64, u64)| EmptyMarks {
                    first,
                    end,
                    sources: start..stop,
                };
                // As a frame has them: each destination once.
                let mut before = first;
                let route = |&(first, stop, to): &(u32, u32, WorkerId)| {
                    let route = Route {
                        first: first.max(before),
                        end: stop.min(end),
                        to,
                    };
                    before = before.max(route.end);
                    (route.first < route.end && to != WorkerId::CONTROLLER).then_some(route)
                };
                Body::Data(Data {
                    head: *head,
                    routes: routes.iter().filter_map(route).collect(),
                    versions: vec![VersionRange {
                        first,
                        end,
                        version,
                    }],
                    pieces: pieces
                        .iter()
                        .filter(|(source, ..)| countable(source))
                        .map(piece)
                        .collect(),
                    empties: empties
                        .iter()
                        .filter(|(start, stop)| start < stop)
                        .map(marks)
                        .collect(),
                })
            }
        };
        let is_hint = matches!(body, Body::Ack(_) | Body::Signal(_) | Body::SignalQuery(_));
        let said = self.said.entry(from).or_default();
        let sequence = (!is_hint).then_some(*said);
        *said += u64::from(!is_hint);
        let frame = Frame {
            priority: Priority::FIRST,
            sequence,
            body,
        };
        self.node.on_frame(from, &frame.to_bytes())
    }

    /// Every shard that was here from the beginning scatters and gathers what it can.
    fn work(&mut self) -> Result<(), NodeError> {
        let exchanges = self.plan.exchanges.iter().flatten();
        let ends: Vec<_> = (0..).map(ExchangeId).zip(exchanges.cloned()).collect();
        for (exchange, ends) in ends {
            for gathers in [false, true] {
                let group = if gathers {
                    ends.destination
                } else {
                    ends.source
                };
                let count = self.plan.counts[group.index()].div_ceil(2);
                for index in 0..count {
                    let shard = ShardId { group, index };
                    self.exchange(shard, exchange, gathers)?;
                }
            }
        }
        Ok(())
    }

    fn exchange(
        &mut self,
        shard: ShardId,
        exchange: ExchangeId,
        gathers: bool,
    ) -> Result<(), NodeError> {
        let Some(turn) = self.turns.get(&(shard, exchange)).copied() else {
            return Ok(());
        };
        let at = (exchange, turn);
        if gathers && self.node.around(shard).is_complete(exchange, turn) {
            self.node.take(shard, at)?;
            *self.turns.get_mut(&(shard, exchange)).unwrap() += 1;
            return self.node.gathered(shard, at);
        }
        if !gathers && self.node.around(shard).has_room(exchange, turn) {
            *self.turns.get_mut(&(shard, exchange)).unwrap() += 1;
            return self.node.scattered(shard, at, BTreeMap::new());
        }
        Ok(())
    }
}

#[test]
fn whatever_peers_say_a_node_does_not_panic() {
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(4_000)
    };
    let steps = prop::collection::vec(step(), 0..80);
    let ran = TestRunner::new(config).run(&steps, |steps| {
        let mut run = Run::new();
        for step in steps {
            // What it refuses is its business.
            let _ = run.step(step);
        }
        Ok(())
    });
    ran.map_err(|error| error.to_string()).unwrap();
}

/// How a fresh node answers.
fn answer(bodies: impl IntoIterator<Item = Body<'static>>) -> Result<(), NodeError> {
    let mut run = Run::new();
    let mut says = |body| run.step(Step::Says(PEER, Said::Owned(body)));
    bodies.into_iter().try_for_each(&mut says)
}

/// The first reduction and the group that it leads to.
fn reduction() -> (ExchangeId, GroupId, GroupId) {
    let plan = plan();
    let ends = plan.exchanges[0].as_ref().unwrap();
    (ExchangeId(0), ends.source, ends.destination)
}

fn signal(outcome: bool) -> Body<'static> {
    Body::Signal(SignalOutcome {
        job: JOB,
        generation: NOW,
        position: Position {
            stage: StageId(1),
            turn: 0,
        },
        outcome,
        cut: None,
    })
}

fn data(exchange: ExchangeId, turn: u64, group: GroupId, end: u32) -> Said {
    let head = DataHead {
        job: JOB,
        generation: NOW,
        exchange,
        turn,
        group,
    };
    Said::Data {
        head,
        versions: (0, end, 1),
        pieces: vec![(TreeNode::leaf(1), 0, true)],
        empties: Vec::new(),
        routes: Vec::new(),
    }
}

#[test]
fn a_position_with_two_outcomes_is_refused() {
    answer([signal(true), signal(true)]).unwrap();
    let two = answer([signal(true), signal(false)]);
    assert!(matches!(two, Err(NodeError::TwoOutcomes(_))), "{two:?}");
    // Also when this side decides.
    let mut run = Run::new();
    run.step(Step::Says(PEER, Said::Owned(signal(true))))
        .unwrap();
    let at = Position {
        stage: StageId(1),
        turn: 0,
    };
    let two = run.step(Step::Decides(at, false));
    assert!(matches!(two, Err(NodeError::TwoOutcomes(_))), "{two:?}");
    assert!(run.step(Step::Decides(at, true)).is_ok());
}

#[test]
fn pieces_that_fit_no_exchange_are_refused() {
    let (exchange, _, destination) = reduction();
    let says = |said| Run::new().step(Step::Says(PEER, said));
    says(data(exchange, 0, destination, 1)).unwrap();
    // A node that forwarded such a piece would look up where its exchange leads.
    let unknown = ExchangeId(77);
    for (exchange, group) in [(unknown, destination), (exchange, GroupId(77))] {
        let refused = says(data(exchange, 0, group, 1));
        let is_named = matches!(refused, Err(NodeError::UnknownExchange { .. }));
        assert!(is_named, "{refused:?}");
    }
    let refused = says(data(exchange, 0, destination, 2));
    assert!(matches!(refused, Err(NodeError::Router(_))), "{refused:?}");
    // Who merges pieces on their way has some sources, not all.
    let (_, source, _) = reduction();
    says(data(exchange, 0, source, 1)).unwrap();
    let mut stranger = data(exchange, 0, source, 1);
    if let Said::Data { pieces, .. } = &mut stranger {
        pieces[0].0 = TreeNode::leaf(2);
    }
    let refused = says(stranger);
    assert!(
        matches!(refused, Err(NodeError::NoRelay { .. })),
        "{refused:?}"
    );
    // Nor does it keep what cannot be open.
    for turn in [6, u64::MAX] {
        let refused = says(data(exchange, turn, source, 1));
        assert!(matches!(refused, Err(NodeError::Inbox(_))), "{refused:?}");
    }
    let refused = says(data(exchange, u64::MAX, destination, 1));
    assert!(matches!(refused, Err(NodeError::Inbox(_))), "{refused:?}");
}

#[test]
fn what_is_no_frame_is_refused() {
    let refused = Run::new().node.on_frame(PEER, b"GET / HTTP/1.1".as_slice());
    assert!(matches!(refused, Err(NodeError::Frame(_))), "{refused:?}");
}

/// Each would be refused if it were taken for one of this job's.
#[test]
fn frames_of_another_job_or_generation_change_nothing() {
    let unknown = GroupId(77);
    let (later, other) = (Generation(NOW.0 + 1), JobId(JOB.0 + 1));
    let data = |job| {
        Body::Data(Data {
            head: DataHead {
                job,
                generation: NOW,
                exchange: ExchangeId(77),
                turn: 0,
                group: unknown,
            },
            versions: Vec::new(),
            pieces: Vec::new(),
            empties: Vec::new(),
            routes: Vec::new(),
        })
    };
    let update = |job, generation| {
        let shard = ShardId {
            group: unknown,
            index: 0,
        };
        let entries = vec![one(shard, PEER, 9)];
        Body::MapUpdate(MapUpdate {
            job,
            generation,
            entries,
        })
    };
    let part = |job, generation| {
        Body::ShardPart(ShardPart {
            job,
            generation,
            shard: ShardId {
                group: unknown,
                index: 0,
            },
            version: 9,
            part: 0,
            parts: 1,
            bytes: b"anything",
        })
    };
    let says = |body: Body<'_>| {
        let mut run = Run::new();
        let frame = Frame {
            priority: Priority::FIRST,
            sequence: Some(0),
            body,
        };
        let answer = run.node.on_frame(PEER, &frame.to_bytes());
        assert!(run.node.take_effects().is_empty());
        answer
    };
    for ours in [data(JOB), update(JOB, NOW), part(JOB, NOW)] {
        assert!(says(ours.clone()).is_err(), "{ours:?}");
    }
    for void in [
        data(other),
        update(other, NOW),
        update(JOB, later),
        part(other, NOW),
        part(JOB, later),
    ] {
        assert!(says(void.clone()).is_ok(), "{void:?}");
    }
}

/// An exchange that was declared and that no stage uses leads nowhere.
#[test]
fn pieces_of_an_exchange_without_stages_are_refused() {
    let mut p = Program::new("unused");
    let counts = p.dataset::<u64>("counts", COUNT);
    let unused = p.exchange::<u64>("unused", Relation::AllToAll).id();
    p.all_reduce(Max, &counts, &counts);
    let plan = Plan::compile(Arc::new(p), &Bindings::default()).unwrap();
    let mut node = node(&plan, ME);
    let group = plan.exchanges[1].as_ref().unwrap().destination;
    let frame = Frame {
        priority: Priority::FIRST,
        sequence: Some(0),
        body: Body::Credit(Credit {
            job: JOB,
            generation: NOW,
            exchange: unused,
            group,
            retired: Vec::new(),
        }),
    };
    let refused = node.on_frame(PEER, &frame.to_bytes());
    let is_named =
        matches!(refused, Err(NodeError::UnknownExchange { exchange, .. }) if exchange == unused);
    assert!(is_named, "{refused:?}");
}

#[test]
fn credits_that_fit_no_exchange_are_refused() {
    let (exchange, source, destination) = reduction();
    let credit = |exchange, group, end| {
        let retired = vec![Retired {
            first: 0,
            end,
            turns: 1,
        }];
        answer([Body::Credit(Credit {
            job: JOB,
            generation: NOW,
            exchange,
            group,
            retired,
        })])
    };
    credit(exchange, destination, 1).unwrap();
    for (exchange, group) in [(ExchangeId(77), destination), (exchange, source)] {
        let refused = credit(exchange, group, 1);
        let is_named = matches!(refused, Err(NodeError::UnknownExchange { .. }));
        assert!(is_named, "{refused:?}");
    }
    let refused = credit(exchange, destination, 2);
    assert!(matches!(refused, Err(NodeError::Credit(_))), "{refused:?}");
}

#[test]
fn no_room_is_made_for_a_shard_that_is_here_or_nowhere() {
    let (_, source, _) = reduction();
    let reserve = |group, index| {
        answer([Body::Reserve(Reserve {
            job: JOB,
            generation: NOW,
            shard: ShardId { group, index },
            version: 2,
            holder: PEER,
            bytes: 10,
        })])
    };
    reserve(source, COUNT - 1).unwrap();
    let refused = reserve(source, 0);
    assert!(
        matches!(refused, Err(NodeError::AlreadyHere(_))),
        "{refused:?}"
    );
    for (group, index) in [(source, COUNT), (GroupId(77), 0)] {
        let refused = reserve(group, index);
        assert!(matches!(refused, Err(NodeError::Router(_))), "{refused:?}");
    }
}

/// Its parts are all there, and by then the map gives its version to somebody else: it does not come, not even half.
#[test]
fn a_shard_does_not_come_by_a_version_that_names_another() {
    let (_, group, _) = reduction();
    let (shard, version) = (
        ShardId {
            group,
            index: COUNT - 1,
        },
        2,
    );
    let mut run = Run::new();
    let mut says = |said| run.step(Step::Says(WorkerId::CONTROLLER, said));
    let reserve = Body::Reserve(Reserve {
        job: JOB,
        generation: NOW,
        shard,
        version,
        holder: PEER,
        bytes: 10,
    });
    says(Said::Owned(reserve)).unwrap();
    let entries = vec![one(shard, PEER, version)];
    says(Said::Owned(Body::MapUpdate(MapUpdate {
        job: JOB,
        generation: NOW,
        entries,
    })))
    .unwrap();
    let refused = says(Said::Part(shard, version, (0, 1), ShardMetadata::Empty));
    assert!(matches!(refused, Err(NodeError::Router(_))), "{refused:?}");
}

/// A node counted an outcome's turns one by one, and was busy for as long as a peer liked.
#[test]
fn a_shard_that_brings_more_outcomes_than_can_be_counted() {
    let (_, group, _) = reduction();
    let mut run = Run::new();
    for (index, outcome) in [(COUNT - 1, true), (COUNT - 2, false)] {
        let shard = ShardId { group, index };
        let reserve = Body::Reserve(Reserve {
            job: JOB,
            generation: NOW,
            shard,
            version: 2,
            holder: PEER,
            bytes: 100,
        });
        let mut says = |said| run.step(Step::Says(WorkerId::CONTROLLER, said));
        says(Said::Owned(reserve)).unwrap();
        let came = says(Said::Part(
            shard,
            2,
            (0, 1),
            ShardMetadata::Endless(outcome),
        ));
        let contradicts = matches!(came, Err(NodeError::TwoOutcomes(at)) if at.turn == 0);
        assert_eq!(contradicts, !outcome, "{came:?}");
        assert_eq!(came.is_ok(), outcome, "{came:?}");
    }
}
