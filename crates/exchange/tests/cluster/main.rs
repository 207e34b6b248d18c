//! Three workers, shards that move, and a network that delays, repeats, reorders and breaks: each
//! destination still gathers each turn once, complete, in order, and nothing is left lying about.
//!
//! Catches a piece that is lost, doubled, misplaced or late for ever. Says nothing about speed, and
//! the controller here is trusted: it numbers versions as it should.

mod model;

use brambling_exchange::*;
use brambling_memory::Budget;
use brambling_program::tree::TreeNode;
use brambling_program::{ShardId, Turn};
use brambling_protocol::{Entry, EntryRange, PartitionMap, Received, Session, WorkerId};
use model::*;
use std::collections::BTreeMap;

struct Cluster {
    random: u64,
    workers: Vec<Worker>,
    budget: Budget,
    /// Session (a, b) is a's side of the one between a and b.
    sessions: BTreeMap<(usize, usize), Session<Message>>,
    wire: Vec<(usize, usize, Packet)>,
    gathered: BTreeMap<(u32, Turn), Vec<Payload>>,
    /// What the controller knows.
    placed: Vec<Entry>,
}

impl Cluster {
    fn new(seed: u64) -> Cluster {
        let placed: Vec<Entry> = (0..DESTINATIONS)
            .map(|index| Entry {
                owner: WorkerId(index % WORKERS as u32),
                version: 1,
            })
            .collect();
        let mut map = PartitionMap::new([DESTINATIONS]);
        for (index, &entry) in (0..).zip(&placed) {
            let _ = map
                .apply(&EntryRange {
                    group: G,
                    first: index,
                    end: index + 1,
                    entry,
                })
                .unwrap();
        }
        let budget = Budget::unlimited();
        let worker = |me: usize| {
            let mut worker = Worker {
                router: Router::new(
                    WorkerId(me as u32),
                    NOW,
                    map.clone(),
                    PieceRoom::new(budget.clone(), None),
                ),
                inboxes: BTreeMap::new(),
                credits: Credits::new([(X, DESTINATIONS)]),
                sources: (0..SOURCES)
                    .filter(|s| *s as usize % WORKERS == me)
                    .map(|s| (s, 0))
                    .collect(),
            };
            for index in (0..DESTINATIONS).filter(|index| *index as usize % WORKERS == me) {
                worker
                    .inboxes
                    .insert(shard(index), ShardInbox::new(shard(index), [X], OPEN));
                worker.router.arrive(shard(index), &mut Vec::new());
            }
            worker
        };
        Cluster {
            random: mix(seed, 0, 0, 0) | 1,
            workers: (0..WORKERS).map(worker).collect(),
            budget: budget.clone(),
            sessions: BTreeMap::new(),
            wire: Vec::new(),
            gathered: BTreeMap::new(),
            placed,
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % end as u64) as usize
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        if from == to {
            return self.handle(from, to, message);
        }
        let session = self.sessions.entry((from, to)).or_default();
        let sequence = session.send(message.clone()).expect("few wait");
        self.wire.push((from, to, Packet::Frame(sequence, message)));
    }

    fn deliver(&mut self, from: usize, to: usize, packet: Packet) {
        let session = self.sessions.entry((to, from)).or_default();
        match packet {
            Packet::Ack(received) => {
                let _ = session.on_ack(received).unwrap();
            }
            Packet::Frame(sequence, message) => {
                if session.receive(sequence).unwrap() == Received::New {
                    // Every handler but a shard's own is insensitive to repetition by itself: a
                    // session is not what makes a piece merge once.
                    let repeats = !matches!(message, Message::Shard(..)) && self.below(4) == 0;
                    if repeats {
                        self.handle(from, to, message.clone());
                    }
                    self.handle(from, to, message);
                }
                let session = self.sessions.entry((to, from)).or_default();
                if let Some(received) = session.ack() {
                    self.wire.push((to, from, Packet::Ack(received)));
                }
            }
        }
    }

    fn handle(&mut self, from: usize, at: usize, message: Message) {
        let mut effects = Vec::new();
        let worker = &mut self.workers[at];
        match message {
            Message::Parcel(parcel) => {
                let from = WorkerId(from as u32);
                worker
                    .router
                    .receive(from, NOW, parcel, &mut effects)
                    .unwrap();
            }
            Message::Update(update) => {
                let _ = worker.router.on_update(&update, &mut effects).unwrap();
            }
            Message::Credit(destination, turns) => {
                worker
                    .credits
                    .on_credit(X, destination..destination + 1, turns)
                    .unwrap();
            }
            Message::Shard(shard, state) => {
                let inbox = ShardInbox::import(shard, [X], OPEN, state, &links()).unwrap();
                assert!(
                    worker.inboxes.insert(shard, inbox).is_none(),
                    "a shard is in one place"
                );
                worker.router.arrive(shard, &mut effects);
            }
        }
        self.perform(at, effects);
        self.move_out(at);
    }

    fn perform(&mut self, at: usize, effects: Vec<RouterEffect<Payload>>) {
        for effect in effects {
            match effect {
                RouterEffect::Deliver(parcel) => {
                    for index in parcel.destinations {
                        let inbox = self.workers[at].inboxes.get_mut(&shard(index)).unwrap();
                        inbox
                            .accept(X, parcel.turn, parcel.item.clone(), &links())
                            .unwrap();
                    }
                }
                RouterEffect::Forward { to, parcel } => {
                    self.send(at, to.0 as usize, Message::Parcel(parcel));
                }
                RouterEffect::SendEntry { to, entry } => {
                    self.send(at, to.0 as usize, Message::Update(entry));
                }
            }
        }
    }

    /// Shards that the map places elsewhere leave, inbox and all.
    fn move_out(&mut self, at: usize) {
        let worker = &mut self.workers[at];
        let mut leaving = Vec::new();
        for &shard in worker.inboxes.keys() {
            let entry = worker.router.map().entry(shard).unwrap().unwrap();
            if entry.owner != WorkerId(at as u32) {
                leaving.push((shard, entry.owner));
            }
        }
        for (shard, owner) in leaving {
            let mut inbox = self.workers[at].inboxes.remove(&shard).unwrap();
            self.workers[at].router.leave(shard);
            let state = inbox.export(|payload| *payload);
            self.send(at, owner.0 as usize, Message::Shard(shard, state));
        }
    }

    fn scatter(&mut self, at: usize, source: u64) -> bool {
        let worker = &mut self.workers[at];
        let turn = worker.sources[&source];
        if turn == TURNS || !fits(turn, worker.credits.lowest_open(X), OPEN) {
            return false;
        }
        worker.sources.insert(source, turn + 1);
        for index in 0..DESTINATIONS {
            let entry = self.workers[at]
                .router
                .map()
                .entry(shard(index))
                .unwrap()
                .unwrap();
            let count = chunks(turn, source, index);
            let mut items: Vec<Item<Payload>> = (0..count)
                .map(|chunk| Item::Piece {
                    source: TreeNode::leaf(source),
                    chunk,
                    last: chunk + 1 == count,
                    payload: payload(turn, source, index, chunk),
                })
                .collect();
            if count == 0 {
                items.push(Item::Empty {
                    sources: source..source + 1,
                });
            }
            for item in items {
                let parcel = Parcel {
                    exchange: X,
                    turn,
                    group: G,
                    destinations: index..index + 1,
                    version: entry.version,
                    bytes: 8,
                    item,
                };
                self.send(at, entry.owner.0 as usize, Message::Parcel(parcel));
            }
        }
        true
    }

    fn gather(&mut self, at: usize, shard: ShardId) -> bool {
        let inbox = self.workers[at].inboxes.get_mut(&shard).unwrap();
        let (turn, mut pieces) = (inbox.next(X), Vec::new());
        if turn == TURNS || !inbox.take(X, turn, &links(), &mut pieces) {
            return false;
        }
        inbox.retire(X, turn);
        let pieces = pieces.into_iter().map(|piece| piece.payload).collect();
        let before = self.gathered.insert((shard.index, turn), pieces);
        assert!(before.is_none(), "a turn is gathered once");
        for to in 0..WORKERS {
            self.send(at, to, Message::Credit(shard.index, turn + 1));
        }
        true
    }

    /// Places a shard elsewhere and tells everybody, some of them twice.
    fn place(&mut self) {
        let index = self.below(DESTINATIONS as usize);
        let owner = WorkerId(self.below(WORKERS) as u32);
        self.placed[index] = Entry {
            owner,
            version: self.placed[index].version + 1,
        };
        let (first, entry) = (index as u32, self.placed[index]);
        for to in 0..WORKERS {
            let update = EntryRange {
                group: G,
                first,
                end: first + 1,
                entry,
            };
            for _ in 0..1 + self.below(2) {
                self.send(CONTROLLER, to, Message::Update(update));
            }
        }
    }

    /// A connection breaks: what is under way on it is lost, and sent again.
    fn reconnect(&mut self, a: usize, b: usize) {
        let between = |from: usize, to: usize| (from, to) == (a, b) || (from, to) == (b, a);
        self.wire.retain(|(from, to, _)| !between(*from, *to));
        for (from, to) in [(a, b), (b, a)] {
            let received = self.sessions.entry((to, from)).or_default().received();
            let session = self.sessions.entry((from, to)).or_default();
            let again = session.on_reconnect(received).unwrap();
            let again = again
                .map(|(sequence, message)| (from, to, Packet::Frame(sequence, message.clone())));
            self.wire.extend(again);
        }
    }

    fn step(&mut self) {
        match self.below(20) {
            0..12 if !self.wire.is_empty() => {
                let at = self.below(self.wire.len());
                let (from, to, packet) = self.wire[at].clone();
                // Sometimes it stays under way, and comes again.
                if self.below(4) > 0 {
                    self.wire.swap_remove(at);
                }
                self.deliver(from, to, packet);
            }
            12..17 => {
                let at = self.below(WORKERS);
                self.work(at);
            }
            17 => {
                let (a, b) = (self.below(WORKERS + 1), self.below(WORKERS + 1));
                if a != b {
                    self.reconnect(a, b);
                }
            }
            18 if self.below(3) == 0 => self.place(),
            _ => {}
        }
    }

    /// Runs what can run on one worker, one task of each kind.
    fn work(&mut self, at: usize) -> bool {
        let sources: Vec<u64> = self.workers[at].sources.keys().copied().collect();
        let shards: Vec<ShardId> = self.workers[at].inboxes.keys().copied().collect();
        let mut ran = false;
        for shard in shards {
            ran |= self.gather(at, shard);
        }
        let source = sources[self.below(sources.len())];
        self.scatter(at, source) || ran
    }

    /// No more breaks or moves: everything under way arrives, and all work is done.
    fn settle(&mut self) {
        for (a, b) in [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)] {
            self.reconnect(a, b);
        }
        let (mut idle, mut arrivals) = (0, 0);
        while idle < 100 {
            while !self.wire.is_empty() {
                arrivals += 1;
                assert!(arrivals < 20_000, "nothing comes to rest");
                let at = self.below(self.wire.len());
                let (from, to, packet) = self.wire.swap_remove(at);
                self.deliver(from, to, packet);
            }
            idle += 1;
            for at in 0..WORKERS {
                if self.work(at) {
                    idle = 0;
                }
            }
        }
    }

    fn check(&self) {
        for index in 0..DESTINATIONS {
            for turn in 0..TURNS {
                let expected: Vec<Payload> = (0..SOURCES)
                    .flat_map(|source| (0..chunks(turn, source, index)).map(move |c| (source, c)))
                    .map(|(source, chunk)| payload(turn, source, index, chunk))
                    .collect();
                assert_eq!(
                    self.gathered.get(&(index, turn)),
                    Some(&expected),
                    "{index} {turn}"
                );
            }
            let owner = self.placed[index as usize].owner.0 as usize;
            assert!(
                self.workers[owner].inboxes.contains_key(&shard(index)),
                "not where it belongs"
            );
        }
        for worker in &self.workers {
            assert_eq!(worker.router.held(), 0, "something is held for ever");
        }
        assert!(
            self.sessions.values().all(Session::is_settled),
            "something is not acknowledged"
        );
        assert_eq!(self.budget.in_use_bytes(), 0);
    }
}

fn seeds(count: u64) {
    for seed in 0..count {
        let mut cluster = Cluster::new(seed);
        for _ in 0..600 {
            cluster.step();
        }
        cluster.settle();
        cluster.check();
    }
}

#[test]
fn three_workers_with_moves_repeats_and_breaks() {
    seeds(1_000);
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_are_caught() {
    for name in [
        "inbox-merges-twice",
        "inbox-completes-early",
        "inbox-keeps-order-of-arrival",
        "inbox-moves-without-what-it-retired",
        "credit-opens-one-too-many",
        "session-delivers-twice",
        "session-forgets-on-reconnect",
        "session-acknowledges-gaps",
        "router-never-forwards",
        "router-forgets-what-it-holds",
        "map-takes-older",
    ] {
        brambling_memory::mutants::assert_caught(name, || seeds(300));
    }
}
