//! Shards on their way: what no honest peer sends is refused, and where there is no room nobody is told to send.
//!
//! Catches state that is taken on trust. That shards arrive whole, and once, the simulated cluster checks.

mod support;

use brambling_exchange::inbox::ExchangeState;
use brambling_exchange::{InboxError, InboxState, Sources};
use brambling_memory::{Budget, Class, Floors};
use brambling_program::{ExchangeId, GroupId, Position, ShardId, StageId};
use brambling_protocol::frame::{Body, Frame, MapUpdate, Reserve, ShardPart};
use brambling_protocol::{Entry, EntryRange, Priority, Sequence, WorkerId};
use brambling_worker::arrivals::{ArrivalRefusal, Arrivals};
use brambling_worker::node::{Node, NodeEffect, NodeError, NodeOptions};
use brambling_worker::parts::Unpacking;
use brambling_worker::piece_data::PieceBytes;
use brambling_worker::waiting::WaitingRoom;
use brambling_worker::{BadState, Shard, ShardState};
use support::{JOB, ME, NOW, PEER, counting, one, options};

const SHARD: ShardId = ShardId {
    group: GroupId(0),
    index: 1,
};
const VERSION: u64 = 4;

fn node(budget: Budget) -> Node {
    node_of(ME, vec![PEER], budget)
}

fn node_of(me: WorkerId, peers: Vec<WorkerId>, budget: Budget) -> Node {
    let options = options(me, peers);
    support::node(&counting(), NodeOptions { budget, ..options })
}

/// Takes frames, numbered as they come, from one peer.
struct Says<'a>(&'a mut Node, WorkerId, Sequence);

impl Says<'_> {
    fn say(&mut self, body: Body<'_>) -> Result<(), NodeError> {
        let mut bytes = Vec::new();
        Frame {
            priority: Priority::FIRST,
            sequence: Some(self.2),
            body,
        }
        .encode(&mut bytes);
        self.2 += 1;
        self.0.on_frame(self.1, &bytes)
    }
}

/// The shard leaves for where the map gives it to.
fn leaves_with(holder: &mut Node, body: &[u8]) {
    holder.leave(SHARD);
    let body = vec![PieceBytes::copy_from_slice(body)];
    holder.depart(SHARD, Vec::new(), body).unwrap();
}

fn part(version: u64, (part, parts): (u32, u32), bytes: &[u8]) -> Body<'_> {
    Body::ShardPart(ShardPart {
        job: JOB,
        generation: NOW,
        shard: SHARD,
        version,
        part,
        parts,
        bytes,
    })
}

fn reserve(node: &mut Node, bytes: u64) -> bool {
    let reserve = Reserve {
        job: JOB,
        generation: NOW,
        shard: SHARD,
        version: VERSION,
        holder: PEER,
        bytes,
    };
    Says(node, WorkerId::CONTROLLER, 0)
        .say(Body::Reserve(reserve))
        .unwrap();
    let answer = |effect: &NodeEffect| match effect {
        NodeEffect::Send { to, packet, .. } if *to == WorkerId::CONTROLLER => {
            match Frame::decode(&packet.to_bytes()).unwrap().0.body {
                Body::Reserved(reserved) => Some(reserved.granted),
                _ => None,
            }
        }
        _ => None,
    };
    let effects = node.take_effects();
    effects.iter().find_map(answer).expect("it answers")
}

#[test]
fn a_shard_that_nobody_expects_is_refused() {
    let mut node = node(Budget::unlimited());
    let refused = Says(&mut node, PEER, 0).say(part(VERSION, (0, 1), b"anything"));
    assert!(
        matches!(refused, Err(NodeError::Unexpected { .. })),
        "{refused:?}"
    );
    assert!(reserve(&mut node, 10));
    let refused = Says(&mut node, PEER, 1).say(part(VERSION + 1, (0, 1), b"anything"));
    assert!(
        matches!(refused, Err(NodeError::Unexpected { .. })),
        "{refused:?}"
    );
}

#[test]
fn parts_that_do_not_fit_and_states_that_cannot_be_read_are_refused() {
    let mut beyond = node(Budget::unlimited());
    assert!(reserve(&mut beyond, 10));
    let refused = Says(&mut beyond, PEER, 0).say(part(VERSION, (3, 3), b"x"));
    assert!(
        matches!(refused, Err(NodeError::Parts(SHARD))),
        "{refused:?}"
    );

    let mut twice = node(Budget::unlimited());
    assert!(reserve(&mut twice, 10));
    let mut says = Says(&mut twice, PEER, 0);
    says.say(part(VERSION, (0, 2), b"x")).unwrap();
    let refused = says.say(part(VERSION, (0, 2), b"x"));
    assert!(
        matches!(refused, Err(NodeError::Parts(SHARD))),
        "{refused:?}"
    );

    // A list of outcomes that is said to have 2⁶⁴ − 1 elements.
    let endless = [3, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
    let of_length = |bytes: u64| [&bytes.to_le_bytes()[..], &endless].concat();
    let lengths = [14, 13, 15, u64::MAX, u64::MAX - 8].map(of_length);
    for garbage in lengths.into_iter().chain([vec![], vec![0; 7]]) {
        let mut node = node(Budget::unlimited());
        assert!(reserve(&mut node, 10));
        let refused = Says(&mut node, PEER, 0).say(part(VERSION, (0, 1), &garbage));
        assert!(
            matches!(refused, Err(NodeError::State(SHARD))),
            "{garbage:?}: {refused:?}"
        );
    }
}

/// What travels before a shard's body: its form, what it has retired, what it merges no more, what destinations have retired, outcomes of
/// signals, members and the map.
type TravellingMetadata = (
    u16,
    Vec<(ExchangeId, u64)>,
    Vec<(ExchangeId, u64)>,
    Vec<(ExchangeId, Vec<()>)>,
    Vec<(StageId, u64, u64, bool)>,
    Vec<WorkerId>,
    Vec<EntryRange>,
    bool,
);

/// How a node answers that has made room, and knows that a signal was true at turn 3.
fn answer(metadata: &TravellingMetadata) -> Result<(), NodeError> {
    let bytes = postcard::to_stdvec(metadata).unwrap();
    let bytes = [&(bytes.len() as u64).to_le_bytes()[..], &bytes].concat();
    let mut node = node(Budget::unlimited());
    assert!(reserve(&mut node, 10));
    let position = Position {
        stage: StageId(5),
        turn: 3,
    };
    node.decided(position, true, None).unwrap();
    Says(&mut node, PEER, 0).say(part(VERSION, (0, 1), &bytes))
}

/// It is of the right form, and says what cannot be.
#[test]
fn luggage_that_contradicts_what_is_known_is_refused() {
    let good: TravellingMetadata = (
        5,
        vec![],
        vec![],
        vec![],
        vec![(StageId(5), 0, 4, true)],
        vec![],
        vec![],
        false,
    );
    answer(&good).unwrap();
    let refused = |change: fn(&mut TravellingMetadata)| {
        let mut metadata = good.clone();
        change(&mut metadata);
        answer(&metadata).unwrap_err()
    };
    let of_another_form = refused(|it| it.0 = 4);
    assert!(matches!(of_another_form, NodeError::State(SHARD)));
    let of_another_program = refused(|it| it.1.push((ExchangeId(9), 1)));
    assert!(matches!(of_another_program, NodeError::State(SHARD)));
    let merges_nothing = refused(|it| it.2.push((ExchangeId(9), 1)));
    assert!(matches!(merges_nothing, NodeError::State(SHARD)));
    let is_no_source = refused(|it| it.3.push((ExchangeId(0), vec![])));
    assert!(matches!(is_no_source, NodeError::State(SHARD)));
    let beyond_all_turns = refused(|it| it.4[0] = (StageId(5), 7, u64::MAX, true));
    assert!(matches!(beyond_all_turns, NodeError::State(SHARD)));
    let otherwise = refused(|it| it.4[0].3 = false);
    assert!(matches!(otherwise, NodeError::TwoOutcomes(it) if it.turn == 3));
    let of_shards_that_are_none = refused(|it| {
        it.6.push(EntryRange {
            group: SHARD.group,
            first: 2,
            end: 9,
            entry: Entry {
                owner: PEER,
                version: 1,
            },
        });
    });
    assert!(matches!(of_shards_that_are_none, NodeError::Router(_)));
}

/// What had come for a shard elsewhere is judged as if it came here: of an exchange that does not lead to it nothing does.
#[test]
fn a_shard_that_brings_what_is_not_its_own_is_refused() {
    let waits = WaitingRoom::new(Budget::unlimited(), None);
    let mine = ExchangeId(0);
    let import = |exchange| {
        let (next, turns) = (3, Vec::new());
        let exchanges = vec![ExchangeState {
            exchange,
            next,
            turns,
        }];
        let state = InboxState { exchanges };
        let mut nothing =
            Unpacking::new([], Budget::unlimited().reserve(Class::Transfer, 0).unwrap());
        let sources = Sources::Dense(1);
        Arrivals::unpack(SHARD, [mine], 4, state, &mut nothing, &sources, &waits)
    };
    assert_eq!(import(mine).unwrap().next(mine), 3);
    let other = ExchangeId(9);
    let refused = import(other).unwrap_err();
    let is_named = matches!(
        refused,
        ArrivalRefusal::Inbox(InboxError::UnknownExchange(it)) if it == other
    );
    assert!(is_named, "{refused:?}");
    assert!(matches!(refused.into(), NodeError::Inbox(_)));
}

#[test]
fn without_room_it_says_no_and_a_larger_shard_than_was_said_is_an_error() {
    let budget = Budget::new(1_000, Floors::of(1_000));
    let mut node = node(budget.clone());
    assert!(!reserve(&mut node, 2_000));
    assert_eq!(budget.in_use_bytes(), 0);
    let mut node = self::node(budget.clone());
    assert!(reserve(&mut node, 100));
    assert_eq!(budget.in_use_bytes(), 100);
    let mut says = Says(&mut node, PEER, 0);
    says.say(part(VERSION, (0, 2), &[0; 150])).unwrap();
    assert_eq!(budget.in_use_bytes(), 150);
    let refused = says.say(part(VERSION, (1, 2), &[0; 2_000]));
    assert!(
        matches!(refused, Err(NodeError::NoRoom { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_newcomer_hears_from_a_shard_whom_its_holder_knew() {
    let newcomer = WorkerId(7);
    let mut holder = node(Budget::unlimited());
    holder.settle(SHARD, VERSION - 1).unwrap();
    holder.on_update(&one(SHARD, newcomer, VERSION)).unwrap();
    leaves_with(&mut holder, b"its data");

    let mut there = node_of(newcomer, Vec::new(), Budget::unlimited());
    assert!(reserve(&mut there, 100));
    for effect in holder.take_effects() {
        if let NodeEffect::Send { to, packet, .. } = effect
            && to == newcomer
        {
            there.on_frame(ME, &packet.to_bytes()).unwrap();
        }
    }
    let mut effects = there.take_effects();
    let settles = |effect: &mut NodeEffect| match effect {
        NodeEffect::Settle { shard: SHARD, body } => body.take(body.bytes()).unwrap() == "its data",
        _ => false,
    };
    assert!(effects.iter_mut().any(settles), "{effects:?}");
    assert!(there.knows(ME) && there.knows(PEER));
    let greets = |effect: &NodeEffect| matches!(effect, NodeEffect::Send { to: PEER, .. });
    assert!(effects.iter().any(greets), "{effects:?}");
}

/// Whoever has a connection was let in, also before the controller has named it.
#[test]
fn a_newcomer_that_calls_first_is_greeted() {
    let newcomer = WorkerId(7);
    let mut node = node(Budget::unlimited());
    // It has heard nothing, so it cannot have what it says.
    let refused = node.on_reconnect(newcomer, 1);
    assert!(matches!(refused, Err(NodeError::Session(_))), "{refused:?}");
    assert!(!node.knows(newcomer));

    node.on_reconnect(newcomer, 0).unwrap();
    assert!(node.knows(newcomer));
    let mut greetings = 0;
    for effect in node.take_effects() {
        if let NodeEffect::Send { to, packet, .. } = effect {
            assert_eq!(to, newcomer);
            let bytes = packet.to_bytes();
            let (frame, _) = Frame::decode(&bytes).unwrap();
            assert!(matches!(frame.body, Body::Joined(joined) if joined.worker == ME));
            greetings += 1;
        }
    }
    assert_eq!(greetings, 1);
    // A connection that broke: the same again, as its number says.
    node.on_reconnect(newcomer, 0).unwrap();
    assert_eq!(node.take_effects().len(), 1);
    node.on_reconnect(newcomer, 1).unwrap();
    assert!(node.take_effects().is_empty());
    let oneself = node.on_reconnect(ME, 0);
    assert!(
        matches!(oneself, Err(NodeError::Stranger(ME))),
        "{oneself:?}"
    );
}

#[test]
fn older_news_do_not_send_a_shard_away() {
    let mut node = node(Budget::unlimited());
    node.settle(SHARD, VERSION).unwrap();
    let mut says = Says(&mut node, WorkerId::CONTROLLER, 0);
    let news = |version| {
        Body::MapUpdate(MapUpdate {
            job: JOB,
            generation: NOW,
            entries: vec![EntryRange {
                group: SHARD.group,
                first: 0,
                end: 3,
                entry: Entry {
                    owner: PEER,
                    version,
                },
            }],
        })
    };
    says.say(news(VERSION - 1)).unwrap();
    assert!(says.0.may_run(SHARD));
    says.say(news(VERSION + 1)).unwrap();
    assert!(!node.may_run(SHARD));
    let effects = node.take_effects();
    let drains = |effect: &&NodeEffect| matches!(effect, NodeEffect::Drain(SHARD));
    assert_eq!(effects.iter().filter(drains).count(), 1);
}

#[test]
fn positions_that_the_program_does_not_have_are_refused() {
    let plan = counting();
    let code = &plan.codes[0];
    type Parts = (u32, Vec<u64>, Vec<u64>, Vec<(u32, u64)>);
    let import = |parts: Parts| {
        let bytes = postcard::to_stdvec(&parts).unwrap();
        let state: ShardState = postcard::from_bytes(&bytes).unwrap();
        Shard::import(SHARD, code, state)
    };
    let fresh = Shard::new(SHARD, code);
    let bytes = postcard::to_stdvec(&fresh.export()).unwrap();
    let (at, entered, counters, window): Parts = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(
        import((at, entered.clone(), counters.clone(), window)),
        Ok(fresh)
    );
    let bad = Err(BadState(SHARD));
    let end = code.ops.len() as u32;
    assert_eq!(
        import((end, entered.clone(), counters.clone(), vec![])),
        bad
    );
    assert_eq!(import((at, vec![], counters.clone(), vec![])), bad);
    assert_eq!(import((at, entered.clone(), vec![7; 9], vec![])), bad);
    let task = code.tasks.len() as u32;
    assert_eq!(
        import((at, entered.clone(), counters.clone(), vec![(task, 0)])),
        bad
    );
    let many = vec![(0, 0); 10];
    assert_eq!(import((at, entered.clone(), counters.clone(), many)), bad);
    // A task of a block that was never entered.
    let is_inner = |op: &brambling_program::Op| matches!(op, brambling_program::Op::Task { .. });
    let inner = code.ops.iter().position(is_inner).unwrap() as u32;
    let never = vec![0; entered.len()];
    assert_eq!(import((inner, never, counters, vec![])), bad);
}

/// A worker that has just joined, and that the controller has not told where shards are, hears it with the first shard
/// that comes: otherwise it would hold for ever what that shard sends, should the controller have fallen silent.
#[test]
fn a_shard_brings_the_map() {
    const THIRD: WorkerId = WorkerId(2);
    let entry = |index, owner, version| {
        let group = SHARD.group;
        one(ShardId { group, index }, owner, version)
    };
    let mut holder = node_of(PEER, vec![THIRD], Budget::unlimited());
    for (index, owner) in [(0, THIRD), (1, PEER), (2, THIRD)] {
        holder.on_update(&entry(index, owner, VERSION - 1)).unwrap();
    }
    holder.settle(SHARD, VERSION - 1).unwrap();
    let mut newcomer = node(Budget::unlimited());
    assert!(reserve(&mut newcomer, 10));
    holder.on_update(&entry(SHARD.index, ME, VERSION)).unwrap();
    holder.take_effects();
    leaves_with(&mut holder, b"where it stands");
    for effect in holder.take_effects() {
        if let NodeEffect::Send { to: ME, packet, .. } = effect {
            newcomer.on_frame(PEER, &packet.to_bytes()).unwrap();
        }
    }
    let settled = |effect: &NodeEffect| matches!(effect, NodeEffect::Settle { shard: SHARD, .. });
    assert!(newcomer.take_effects().iter().any(settled));
    for index in [0, 2] {
        let group = SHARD.group;
        let known = newcomer.map().entry(ShardId { group, index }).unwrap();
        let there = Entry {
            owner: THIRD,
            version: VERSION - 1,
        };
        assert_eq!(known, Some(there), "shard {index}");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn mutant_of_10_a_shard_travels_without_a_map() {
    brambling_memory::mutants::assert_caught("shards-travel-without-a-map", a_shard_brings_the_map);
}
