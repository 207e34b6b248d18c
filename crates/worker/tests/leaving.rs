//! Who has said all it has to say, and who may go: nothing that waits for a flush is forgotten.
//!
//! Catches a node that parts from a worker for which it still has pieces, one that goes while something of it is not said, and late words of
//! who has left that bring it back. That all this holds while frames are late, repeated and lost, the simulated cluster checks.

mod support;

use brambling_program::{Bindings, BlockId, ExchangeId, Max, Plan, Program, ShardId};
use brambling_protocol::frame::{
    Ack, Body, Frame, Gone, Joined, Leaves, LoopEnd, MapUpdate, Reserve,
};
use brambling_protocol::session::WINDOW;
use brambling_protocol::{FrameSession, Priority, WorkerId};
use brambling_worker::Surroundings;
use brambling_worker::node::{NodeEffect, NodeOptions};
use brambling_worker::piece_data::PieceBytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use support::executor::SentPiece;
use support::{JOB, ME, NOW, PEER, Worker, one, options};

const OTHER: WorkerId = WorkerId(2);
const REDUCTION: ExchangeId = ExchangeId(0);

/// A node with two peers and a controller, each of which has a session with it.
struct Fixture {
    plan: Plan,
    node: Worker,
    sessions: BTreeMap<WorkerId, FrameSession>,
}

/// What was sent, to whom: whether a frame is numbered, and its kind in a word.
type Sent = Vec<(WorkerId, &'static str)>;

impl Fixture {
    /// One shard sends to one, turn after turn; neither is here.
    fn new() -> Fixture {
        let mut p = Program::new("reduce");
        let counts = p.dataset::<u64>("counts", 1);
        let total = p.dataset::<u64>("total", 1);
        p.repeat(5, |p| p.reduce_to(Max, &counts, &total));
        let plan = Plan::compile(Arc::new(p), &Bindings::default()).unwrap();
        let node = support::worker(
            &plan,
            NodeOptions {
                open_turns: 2,
                ..options(ME, [PEER, OTHER])
            },
        );
        let sessions = BTreeMap::new();
        Fixture {
            plan,
            node,
            sessions,
        }
    }

    fn source(&self) -> ShardId {
        support::source(&self.plan, REDUCTION, 0)
    }

    fn destination(&self) -> ShardId {
        support::destination(&self.plan, REDUCTION, 0)
    }

    fn says(&mut self, from: WorkerId, body: &Body<'_>) {
        let session = self.sessions.entry(from).or_default();
        let packet = session.say(Priority::FIRST, body).unwrap();
        self.node.on_frame(from, &packet.to_bytes()).unwrap();
    }

    fn places(&mut self, shard: ShardId, owner: WorkerId, version: u64) {
        let entries = vec![one(shard, owner, version)];
        let news = MapUpdate {
            job: JOB,
            generation: NOW,
            entries,
        };
        self.says(WorkerId::CONTROLLER, &Body::MapUpdate(news));
    }

    /// What was sent since the last call, but for what may be lost.
    fn sent(&mut self) -> Sent {
        let mut sent = Vec::new();
        for effect in self.node.take_effects() {
            let NodeEffect::Send { to, packet, .. } = effect else {
                continue;
            };
            let bytes = packet.to_bytes();
            let frame = Frame::decode(&bytes).unwrap().0;
            let Some(sequence) = frame.sequence else {
                continue;
            };
            let session = self.sessions.entry(to).or_default();
            session.receive(sequence).unwrap();
            let kind = match frame.body {
                Body::Data(_) => "pieces",
                Body::SourceCredit(_) => "credit",
                Body::Joined(_) => "joined",
                Body::MapUpdate(_) => "news",
                Body::Finished(_) => "finished",
                Body::Reserved(_) => "reserved",
                Body::ShardPart(_) => "shard",
                Body::Parted(it) if it.worker == ME => "parted from all",
                Body::Parted(_) => "parted",
                other => panic!("{other:?}"),
            };
            sent.push((to, kind));
        }
        sent
    }

    /// All that was sent has come.
    fn acknowledge(&mut self) -> Sent {
        let sent = self.sent();
        for from in [PEER, OTHER, WorkerId::CONTROLLER] {
            let session = self.sessions.entry(from).or_default();
            let received = session.received();
            let frame = Frame {
                priority: Priority::FIRST,
                sequence: None,
                body: Body::Ack(Ack { received }),
            };
            self.node.on_frame(from, &frame.to_bytes()).unwrap();
        }
        sent
    }

    fn scatters(&mut self, turn: u64) {
        let piece = SentPiece::Encoded(PieceBytes::from_static(b"eight of").into());
        let shard = self.source();
        let scattered = self.node.scattered(shard, (REDUCTION, turn), [(0, piece)]);
        scattered.unwrap();
    }

    /// Both ends are here, and one turn has gone by: a credit is due.
    fn one_turn(&mut self) {
        let (source, destination) = (self.source(), self.destination());
        self.node.settle(source, 1).unwrap();
        self.node.settle(destination, 1).unwrap();
        self.scatters(0);
        self.node.take(destination, (REDUCTION, 0)).unwrap();
        self.node.gathered(destination, (REDUCTION, 0)).unwrap();
    }

    fn departs(&mut self, shard: ShardId) {
        self.places(shard, PEER, 2);
        self.node.depart(shard, &[]).unwrap();
    }
}

fn leaves(worker: WorkerId) -> Body<'static> {
    Body::Leaves(Leaves { worker })
}

fn gone(worker: WorkerId) -> Body<'static> {
    Body::Gone(Gone { worker })
}

/// A piece was sent by what the map said then, and waits for the end of a slice.
#[test]
fn nobody_parts_from_a_worker_for_which_pieces_wait() {
    let mut it = Fixture::new();
    let (source, destination) = (it.source(), it.destination());
    it.node.settle(source, 1).unwrap();
    it.places(destination, PEER, 1);
    it.scatters(0);
    it.places(destination, OTHER, 2);
    it.says(WorkerId::CONTROLLER, &leaves(PEER));
    it.node.on_tick();
    assert_eq!(it.sent(), []);
    it.node.flush();
    assert_eq!(it.sent(), [(PEER, "pieces")]);
    it.node.on_tick();
    assert_eq!(it.sent(), [], "they are on their way");
    it.acknowledge();
    it.node.on_tick();
    assert_eq!(it.sent(), [(WorkerId::CONTROLLER, "parted")]);
}

#[test]
fn what_waits_for_a_flush_is_not_settled() {
    let flushed = |mut it: Fixture, sent: &[(WorkerId, &'static str)]| {
        it.acknowledge();
        assert!(!it.node.is_settled());
        it.node.flush();
        assert_eq!(it.acknowledge(), sent);
        assert!(it.node.is_settled());
    };
    assert!(Fixture::new().node.is_settled());
    let mut pieces = Fixture::new();
    let (source, destination) = (pieces.source(), pieces.destination());
    pieces.node.settle(source, 1).unwrap();
    pieces.places(destination, PEER, 1);
    pieces.scatters(0);
    flushed(pieces, &[(PEER, "pieces")]);
    let mut credit = Fixture::new();
    credit.one_turn();
    credit.departs(source);
    flushed(credit, &[(PEER, "credit")]);
    let mut finished = Fixture::new();
    finished.node.finished(source);
    flushed(finished, &[(WorkerId::CONTROLLER, "finished")]);
}

/// All others have parted from it. It is the last that goes, whatever it has still to do.
#[test]
fn a_worker_goes_when_nothing_of_it_is_left() {
    let may_go = |it: &mut Fixture| {
        it.acknowledge();
        it.node.on_tick();
        let said = it
            .sent()
            .contains(&(WorkerId::CONTROLLER, "parted from all"));
        assert_eq!(said, it.node.has_left());
        said
    };
    let mut nothing = Fixture::new();
    nothing.says(WorkerId::CONTROLLER, &gone(ME));
    assert!(nothing.node.has_left());

    let mut shard = Fixture::new();
    let here = shard.source();
    shard.node.settle(here, 1).unwrap();
    shard.says(WorkerId::CONTROLLER, &gone(ME));
    assert!(!may_go(&mut shard), "a shard is here");
    shard.departs(here);
    assert!(may_go(&mut shard));

    let mut credit = Fixture::new();
    credit.one_turn();
    let (source, destination) = (credit.source(), credit.destination());
    credit.departs(source);
    credit.departs(destination);
    credit.says(WorkerId::CONTROLLER, &gone(ME));
    assert!(!may_go(&mut credit), "others wait for a credit");
    credit.node.flush();
    assert!(may_go(&mut credit));

    let mut finished = Fixture::new();
    finished.node.settle(here, 1).unwrap();
    finished.node.finished(here);
    finished.departs(here);
    finished.says(WorkerId::CONTROLLER, &gone(ME));
    assert!(!may_go(&mut finished), "the controller waits for its end");
    finished.node.flush();
    assert!(may_go(&mut finished));
}

/// Frames overtake each other on two connections: what was said before it left comes after it has.
#[test]
fn late_words_of_who_has_left_bring_nobody_back() {
    let mut it = Fixture::new();
    it.says(WorkerId::CONTROLLER, &gone(PEER));
    assert!(!it.node.knows(PEER));
    it.node.take_effects();
    let joined = Body::Joined(Joined { worker: PEER });
    it.says(PEER, &joined);
    // It would be refused if it were heard: the program has no such loop.
    it.says(
        PEER,
        &Body::LoopEnd(LoopEnd {
            job: JOB,
            generation: NOW,
            body: BlockId(99),
            turns: 1,
        }),
    );
    it.says(OTHER, &joined);
    it.node.on_reconnect(PEER, 7).unwrap();
    it.says(WorkerId::CONTROLLER, &leaves(PEER));
    it.node.on_tick();
    assert_eq!(it.sent(), [], "neither a greeting nor a farewell");
    assert!(!it.node.knows(PEER));
}

/// That it leaves is news for the others: it does not part from itself.
#[test]
fn who_leaves_goes_on_until_all_others_have_parted() {
    let mut it = Fixture::new();
    it.says(WorkerId::CONTROLLER, &leaves(ME));
    it.node.on_tick();
    assert_eq!(it.sent(), []);
    assert!(!it.node.has_left());
}

/// A request for room names a holder that has left since: there is nobody to call.
#[test]
fn who_has_left_is_told_nothing() {
    let mut it = Fixture::new();
    it.says(WorkerId::CONTROLLER, &gone(PEER));
    let shard = it.source();
    let reserve = Reserve {
        job: JOB,
        generation: NOW,
        shard,
        version: 2,
        holder: PEER,
        bytes: 10,
    };
    it.says(WorkerId::CONTROLLER, &Body::Reserve(reserve));
    it.places(shard, ME, 2);
    assert_eq!(it.sent(), [(WorkerId::CONTROLLER, "reserved")]);
}

/// The shard is on its way to another when a peer tells that the loop has ended, and it says so itself where it arrives.
#[test]
fn the_end_of_a_loop_is_told_once() {
    let mut it = Fixture::new();
    let shard = it.source();
    let ends = |it: &mut Fixture| {
        it.node.around(shard).announce(0);
        it.node.take_effects().len()
    };
    assert_eq!(ends(&mut it), 2, "each peer");
    assert_eq!(ends(&mut it), 0);
}

/// A peer that acknowledges nothing: what is said to it waits here, and comes in its order.
#[test]
fn no_more_than_a_window_is_under_way() {
    let mut it = Fixture::new();
    for _ in 0..WINDOW + 3 {
        it.node.failed("again");
    }
    assert_eq!(it.node.take_effects().len() as u64, WINDOW);
    let ack = Frame {
        priority: Priority::FIRST,
        sequence: None,
        body: Body::Ack(Ack { received: 2 }),
    };
    let from = WorkerId::CONTROLLER;
    it.node.on_frame(from, &ack.to_bytes()).unwrap();
    let numbers = it
        .node
        .take_effects()
        .into_iter()
        .map(|effect| match effect {
            NodeEffect::Send { packet, .. } => {
                Frame::decode(&packet.to_bytes()).unwrap().0.sequence
            }
            other => panic!("{other:?}"),
        });
    let next = [WINDOW, WINDOW + 1].map(Some);
    assert_eq!(numbers.collect::<Vec<_>>(), next);
}

/// A failure is for people: as much of its beginning as a frame should carry, of whole characters.
#[test]
fn a_long_failure_is_cut_between_characters() {
    let told = |text: &str| {
        let mut it = Fixture::new();
        it.node.failed(text);
        let effects = it.node.take_effects();
        let [NodeEffect::Send { packet, .. }] = &effects[..] else {
            panic!("{effects:?}");
        };
        let bytes = packet.to_bytes();
        match Frame::decode(&bytes).unwrap().0.body {
            Body::Failed(failed) => failed.failure.to_owned(),
            other => panic!("{other:?}"),
        }
    };
    const MAX: usize = 1 << 16;
    for (text, bytes) in [
        ("e".repeat(7), 7),
        ("e".repeat(MAX), MAX),
        ("e".repeat(MAX + 1), MAX),
        ("é".repeat(MAX), MAX),
        (format!("e{}", "é".repeat(MAX)), MAX - 1),
        (format!("e{}", "🌿".repeat(MAX)), MAX - 3),
    ] {
        let told = told(&text);
        assert_eq!(told.len(), bytes);
        assert!(text.starts_with(&told));
    }
}
