//! Invariant 4: whatever the network repeats and reorders, and wherever the shard moves meanwhile,
//! every gather sees each piece once, in the order of sources and chunks.

use brambling_exchange::*;
use brambling_program::tree::{TreeNode, aligned_nodes};
use brambling_program::{ExchangeId, GroupId, ShardId, Turn};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

const X: ExchangeId = ExchangeId(3);
const HERE: ShardId = ShardId {
    group: GroupId(1),
    index: 2,
};
const SOURCES: u64 = 70;
const OPEN: u64 = 3;
const TURNS: Turn = 5;

/// Even turns: all sources. Odd turns: every third.
struct Links;
static EVERY_THIRD: [u32; 24] = {
    let mut list = [0; 24];
    let mut i = 0;
    while i < 24 {
        list[i] = i as u32 * 3;
        i += 1;
    }
    list
};

impl SourceRelation for Links {
    fn sources(&self, _: ExchangeId, turn: Turn, _: ShardId) -> Sources<'_> {
        if turn.is_multiple_of(2) {
            Sources::Dense(SOURCES)
        } else {
            Sources::Sparse(&EVERY_THIRD)
        }
    }
}

type Message = (Turn, Item<u64>);

fn piece(source: TreeNode, chunk: u32, last: bool, payload: u64) -> Item<u64> {
    Item::Piece {
        source,
        chunk,
        last,
        payload,
    }
}

/// What the sources of one turn send. Dense turns are tiled by aligned nodes of ranges that begin at
/// `cuts`; `kinds` says how many chunks each node has, 0 for an empty mark.
fn sent(turn: Turn, cuts: &[u64], kinds: &[u8]) -> Vec<Message> {
    let mut nodes = Vec::new();
    if turn.is_multiple_of(2) {
        let mut edges: Vec<u64> = [&[0, SOURCES][..], cuts].concat();
        edges.sort_unstable();
        edges
            .windows(2)
            .for_each(|range| nodes.extend(aligned_nodes(range[0], range[1])));
    } else {
        nodes.extend(
            EVERY_THIRD
                .iter()
                .map(|&source| TreeNode::leaf(source.into())),
        );
    }
    let mut messages = Vec::new();
    for (node, &kind) in nodes.into_iter().zip(kinds.iter().cycle()) {
        let leaves = node.start()..node.start() + (1 << node.level);
        if kind == 0 {
            messages.push((turn, Item::Empty { sources: leaves }));
            continue;
        }
        for chunk in 0..u32::from(kind) {
            let payload = turn * 1_000_000 + node.start() * 100 + u64::from(chunk);
            messages.push((
                turn,
                piece(node, chunk, chunk + 1 == u32::from(kind), payload),
            ));
        }
    }
    messages
}

#[derive(Clone, Debug)]
struct Case {
    /// By turn, in order.
    sent: Vec<Vec<Message>>,
    /// Everything twice, in any order that credit allows.
    arriving: Vec<Message>,
    /// Before which arrivals the shard moves.
    moves: Vec<bool>,
}

fn cases() -> impl Strategy<Value = Case> {
    let cuts = prop::collection::vec(1..SOURCES, 0..5);
    let kinds = prop::collection::vec(prop_oneof![2 => Just(0u8), 6 => Just(1), 2 => 2..4u8], 1..9);
    let moves = prop::collection::vec(prop::bool::weighted(0.02), 1..200);
    (cuts, kinds, moves).prop_flat_map(|(cuts, kinds, moves)| {
        let sent: Vec<_> = (0..TURNS).map(|turn| sent(turn, &cuts, &kinds)).collect();
        let all: Vec<Message> = sent.iter().flatten().cloned().collect();
        let twice = Just([all.clone(), all].concat()).prop_shuffle();
        (Just(sent), twice, Just(moves)).prop_map(|(sent, arriving, moves)| Case {
            sent,
            arriving,
            moves,
        })
    })
}

fn expected(sent: &[Message]) -> Vec<u64> {
    let payload = |(_, item): &Message| match item {
        Item::Piece { payload, .. } => Some(*payload),
        Item::Empty { .. } => None,
    };
    // Payloads were numbered in the order of sources and chunks.
    let mut payloads: Vec<u64> = sent.iter().filter_map(payload).collect();
    payloads.sort_unstable();
    payloads
}

fn moved(inbox: &mut ShardInbox<u64>) -> ShardInbox<u64> {
    let bytes = postcard::to_stdvec(&inbox.export(|payload| *payload)).unwrap();
    let state: InboxState<u64> = postcard::from_bytes(&bytes).unwrap();
    let mut there = ShardInbox::import(HERE, [X], OPEN, state, &Links).unwrap();
    assert_eq!(
        there.export(|payload| *payload),
        inbox.export(|payload| *payload)
    );
    there
}

fn check(case: Case) -> Result<(), TestCaseError> {
    let mut inbox = ShardInbox::new(HERE, [X], OPEN);
    let mut waiting = case.arriving;
    let mut moves = case.moves.iter().cycle();
    let mut gathered: Vec<Vec<Gathered<u64>>> = Vec::new();
    while !waiting.is_empty() {
        let mut later = Vec::new();
        for (turn, item) in waiting {
            if *moves.next().unwrap() {
                inbox = moved(&mut inbox);
            }
            if turn >= inbox.next(X) + OPEN {
                // The sender has no credit yet.
                prop_assert!(inbox.accept(X, turn, item.clone(), &Links).is_err());
                later.push((turn, item));
                continue;
            }
            let before = inbox.is_complete(X, turn, &Links);
            let accepted = inbox.accept(X, turn, item.clone(), &Links)?;
            let completes = inbox.is_complete(X, turn, &Links) && !before;
            prop_assert_eq!(accepted == Acceptance::Complete, completes);
            prop_assert_eq!(
                inbox.accept(X, turn, item, &Links)?,
                Acceptance::Repeated,
                "twice"
            );
            let next = inbox.next(X);
            let mut pieces = Vec::new();
            if inbox.take(X, next, &Links, &mut pieces) {
                gathered.push(pieces);
                inbox.retire(X, next);
            }
        }
        waiting = later;
        // Turns that were complete before their turn came.
        loop {
            let (next, mut pieces) = (inbox.next(X), Vec::new());
            if !inbox.take(X, next, &Links, &mut pieces) {
                break;
            }
            gathered.push(pieces);
            inbox.retire(X, next);
        }
    }
    prop_assert_eq!(gathered.len(), TURNS as usize);
    for (turn, sent) in case.sent.iter().enumerate() {
        let payloads: Vec<u64> = gathered[turn].iter().map(|piece| piece.payload).collect();
        prop_assert_eq!(payloads, expected(sent), "turn {}", turn);
    }
    Ok(())
}

fn run() -> Result<(), String> {
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(200)
    };
    TestRunner::new(config)
        .run(&cases(), check)
        .map_err(|error| error.to_string())
}

#[test]
fn every_piece_is_merged_once_and_in_order() {
    run().unwrap();
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_are_caught() {
    for name in [
        "inbox-merges-twice",
        "inbox-merges-chunks-twice",
        "inbox-misses-chunks",
        "inbox-reopens-turns",
        "inbox-completes-early",
        "inbox-keeps-order-of-arrival",
        "inbox-moves-without-what-it-retired",
    ] {
        brambling_memory::mutants::assert_caught(name, || run().unwrap());
    }
}

#[test]
fn a_turn_without_sources_is_complete_at_once() {
    let mut inbox: ShardInbox<u64> = ShardInbox::new(HERE, [X], OPEN);
    let nobody = Sources::Sparse(&[]);
    let mut pieces = Vec::new();
    assert!(inbox.take(X, 0, &nobody, &mut pieces));
    assert!(pieces.is_empty());
    inbox.retire(X, 0);
    assert_eq!(inbox.next(X), 1);
}

#[test]
fn what_no_honest_sender_sends_is_an_error_and_changes_nothing() {
    let mut inbox: ShardInbox<u64> = ShardInbox::new(HERE, [X], OPEN);
    let dense = Sources::Dense(10);
    let leaf = TreeNode::leaf;
    inbox
        .accept(
            X,
            0,
            piece(TreeNode { level: 1, index: 1 }, 0, true, 1),
            &dense,
        )
        .unwrap();
    inbox
        .accept(X, 0, piece(leaf(5), 1, true, 2), &dense)
        .unwrap();
    let before = inbox.export(|payload| *payload);
    let high = |level, index| TreeNode { level, index };
    for (why, exchange, turn, item) in [
        (
            "an exchange of others",
            ExchangeId(4),
            0,
            piece(leaf(0), 0, true, 9),
        ),
        ("a turn without credit", X, OPEN, piece(leaf(0), 0, true, 9)),
        (
            "the last turn there is",
            X,
            Turn::MAX,
            piece(leaf(0), 0, true, 9),
        ),
        ("a stranger", X, 0, piece(leaf(10), 0, true, 9)),
        (
            "a node that cannot be counted",
            X,
            0,
            piece(high(64, 0), 0, true, 9),
        ),
        (
            "a node beyond 64 bits",
            X,
            0,
            piece(high(63, 1), 0, true, 9),
        ),
        (
            "a leaf beyond 64 bits",
            X,
            0,
            piece(leaf(u64::MAX), 0, true, 9),
        ),
        (
            "a node over one that came",
            X,
            0,
            piece(high(2, 0), 0, true, 9),
        ),
        (
            "a node over one that is coming",
            X,
            0,
            piece(high(1, 2), 0, true, 9),
        ),
        (
            "a mark over one that is coming",
            X,
            0,
            Item::Empty { sources: 4..10 },
        ),
        ("a chunk beyond the last", X, 0, piece(leaf(5), 2, false, 9)),
        ("another last chunk", X, 0, piece(leaf(5), 0, true, 9)),
    ] {
        let error = inbox.accept(exchange, turn, item, &dense);
        assert!(error.is_err(), "{why}: {error:?}");
        assert_eq!(inbox.export(|payload| *payload), before, "{why}");
    }
    let sparse = Sources::Sparse(&[2, 7]);
    assert!(
        inbox
            .accept(X, 1, piece(leaf(3), 0, true, 9), &sparse)
            .is_err()
    );
    assert_eq!(
        inbox.accept(X, 1, Item::Empty { sources: 3..7 }, &sparse),
        Ok(Acceptance::Repeated)
    );
}

#[test]
fn a_damaged_state_is_refused() {
    let mut inbox = ShardInbox::new(HERE, [X], OPEN);
    let dense = Sources::Dense(3);
    inbox
        .accept(X, 0, piece(TreeNode::leaf(1), 0, true, 1), &dense)
        .unwrap();
    let good: InboxState<u64> = inbox.export(|payload| *payload);
    let import = |state| ShardInbox::import(HERE, [X], OPEN, state, &dense).map(|_| ());
    assert_eq!(import(good.clone()), Ok(()));
    let mut twice = good.clone();
    let again = twice.exchanges[0].turns[0].pieces[0].clone();
    twice.exchanges[0].turns[0].pieces.push(again);
    assert_eq!(
        import(twice),
        Err(InboxError::Damaged {
            exchange: X,
            turn: 0
        })
    );
    let mut late = good.clone();
    late.exchanges[0].next = 1;
    assert_eq!(
        import(late),
        Err(InboxError::Damaged {
            exchange: X,
            turn: 0
        })
    );
    // One exchange twice: what was retired there is said already.
    let mut again = good.clone();
    again.exchanges[0].next = 1;
    again.exchanges[0].turns.clear();
    again.exchanges.push(good.exchanges[0].clone());
    assert_eq!(
        import(again),
        Err(InboxError::Damaged {
            exchange: X,
            turn: 0
        })
    );
    // A piece that would be refused if it arrived is refused here too.
    let mut strange = good.clone();
    strange.exchanges[0].turns[0].pieces[0].source = TreeNode::leaf(3);
    assert_eq!(
        import(strange),
        Err(InboxError::Stranger {
            exchange: X,
            turn: 0,
            source_node: TreeNode::leaf(3)
        })
    );
    let mut other = good;
    other.exchanges[0].exchange = ExchangeId(8);
    assert_eq!(
        import(other),
        Err(InboxError::UnknownExchange(ExchangeId(8)))
    );
}

/// A state names an exchange twice, the first time with nothing retired: the piece of turn 0 would be one of turn 6.
#[test]
fn a_state_that_names_an_exchange_twice_is_refused() {
    let mut inbox = ShardInbox::new(HERE, [X], OPEN);
    let dense = Sources::Dense(1);
    let only = piece(TreeNode::leaf(0), 0, true, 1);
    inbox.accept(X, 0, only, &dense).unwrap();
    let mut state: InboxState<u64> = inbox.export(|payload| *payload);
    let mut again = state.exchanges[0].clone();
    (again.next, again.turns) = (5, Vec::new());
    state.exchanges.push(again);
    let imported = ShardInbox::import(HERE, [X], OPEN, state, &dense);
    if let Ok(inbox) = &imported {
        assert!(
            !inbox.is_complete(X, 6, &dense),
            "nobody has sent for turn 6"
        );
    }
    assert!(matches!(imported, Err(InboxError::Damaged { .. })));
}

#[test]
#[should_panic(expected = "retires out of order")]
fn retiring_out_of_order_is_our_bug() {
    let mut inbox: ShardInbox<u64> = ShardInbox::new(HERE, [X], OPEN);
    assert!(inbox.take(X, 1, &Sources::Dense(0), &mut Vec::new()));
    inbox.retire(X, 1);
}

/// Of each source so many chunks of a stream; then that it has ended.
fn streamed(turn: Turn, counts: &[u32]) -> Vec<(u64, Item<u64>)> {
    let sources = Links.sources(X, turn, HERE);
    let mut all = Vec::new();
    for (place, count) in (0..sources.count()).zip(counts.iter().cycle()) {
        let source = if turn.is_multiple_of(2) {
            place
        } else {
            place * 3
        };
        let leaf = TreeNode::leaf(source);
        let chunk = |at| (source, piece(leaf, at, false, source * 100 + u64::from(at)));
        all.extend((0..*count).map(chunk));
        let end = match count {
            0 => Item::Empty {
                sources: source..source + 1,
            },
            _ => piece(leaf, *count, true, 0),
        };
        all.push((source, end));
    }
    all
}

/// Chunks come in any order, many of them twice, some after they were handed out: each is handed out once, by source and number.
#[test]
fn chunks_are_handed_out_in_order_whatever_came_first() {
    let counts = prop::collection::vec(0u32..6, 1..9);
    let orders = prop::collection::vec(any::<prop::sample::Index>(), 700);
    let property = |(turn, counts, orders): (Turn, Vec<u32>, Vec<prop::sample::Index>)| {
        let mut inbox = ShardInbox::new(HERE, [X], OPEN);
        let all = streamed(turn, &counts);
        let is_chunk = |it: &&(u64, Item<u64>)| matches!(it.1, Item::Piece { last: false, .. });
        let expected: Vec<(u64, Item<u64>)> = all.iter().filter(is_chunk).cloned().collect();
        let (mut left, mut found) = (all.clone(), Vec::new());
        let mut take = |inbox: &mut ShardInbox<u64>| loop {
            match inbox.take_next(X, turn, &Links) {
                NextChunk::Chunk(it) => {
                    found.push((
                        it.source.start(),
                        piece(it.source, it.chunk, it.last, it.payload),
                    ));
                }
                NextChunk::Nothing => return false,
                NextChunk::Ended => return true,
            }
        };
        for order in orders {
            let (again, at) = (&all[order.index(all.len())], order.index(left.len().max(1)));
            if let Some((source, _)) = left.get(at).cloned() {
                let (_, item) = left.swap_remove(at);
                prop_assert_ne!(
                    inbox.accept(X, turn, item, &Links),
                    Ok(Acceptance::Repeated),
                    "of {}",
                    source
                );
            }
            if !left.contains(again) {
                let repeated = inbox.accept(X, turn, again.1.clone(), &Links);
                prop_assert_eq!(repeated, Ok(Acceptance::Repeated));
            }
            let _ = take(&mut inbox);
        }
        for (_, item) in left.drain(..) {
            prop_assert!(inbox.accept(X, turn, item, &Links).is_ok());
        }
        prop_assert!(take(&mut inbox), "all have come");
        prop_assert_eq!(found, expected);
        Ok(())
    };
    let mut runner = TestRunner::new(Config::with_cases(100));
    let cases = (0..2 as Turn, counts, orders);
    runner.run(&cases, property).unwrap();
}
