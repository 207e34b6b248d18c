//! How a worker leaves while the job runs: its shards move to the others, then nobody speaks to it any more, then it goes.
//!
//! # Rules
//! * From the order on nothing moves to it. Its shards move, some at a time, to whoever has the fewest for its threads.
//! * When none is there, and none on its way, all others hear where shards are and that it [`Leaves`]. Each says [`Parted`] when its own map
//!   does not name the worker, and all that it sent there was acknowledged.
//! * When all have, the worker hears that it may go ([`Gone`]), and says [`Parted`] when all that it forwarded was acknowledged.
//! * Then it is no member: the others forget it, and its end is nobody's loss.
//!
//! # Why nothing is lost
//! Who has parted sends no piece there: its map is as new as the controller's was when no shard was there, and versions only grow. What
//! was sent before has come to the worker, which forwards it; and it goes only when those to whom it forwarded have that.

use crate::moves::OrderedMove;
use crate::{Controller, ControllerEffect};
use brambling_program::ShardId;
use brambling_protocol::WorkerId;
use brambling_protocol::frame::{Body, Gone, Leaves, Parted};
use std::collections::{BTreeMap, BTreeSet};

/// So many shards of a worker that leaves are on their way at a time.
const MOVES_AT_ONCE: usize = 64;

/// A worker that leaves.
pub(crate) struct Leaving {
    /// How large its shards are thought to be.
    bytes: u64,
    /// Who had no room lately.
    full: BTreeSet<WorkerId>,
    stage: Stage,
}

enum Stage {
    /// Its shards move.
    Emptying,
    /// These may still have sent it something.
    Parting(BTreeSet<WorkerId>),
    /// It goes when what it forwarded has come.
    Going,
}

impl Controller {
    /// How many threads a worker has: its share of what moves. One, unless it is said.
    pub fn weigh(&mut self, worker: WorkerId, threads: u32) {
        self.threads.insert(worker, threads.max(1));
    }

    /// A worker is to leave; [`ControllerEffect::Left`] tells when it has. `bytes` is how large its shards are thought to be.
    pub fn drain(&mut self, worker: WorkerId, bytes: u64) {
        // A second order would begin the drain anew.
        if !self.workers.contains_key(&worker) || self.leaving.contains_key(&worker) {
            return;
        }
        let (full, stage) = (BTreeSet::new(), Stage::Emptying);
        let leaving = Leaving { bytes, full, stage };
        self.leaving.insert(worker, leaving);
        self.empty(worker);
    }

    /// Whether a worker leaves.
    pub fn is_leaving(&self, worker: WorkerId) -> bool {
        self.leaving.contains_key(&worker)
    }

    /// Whether a worker hands nothing on any more: it goes, or may at any time.
    pub(crate) fn is_going(&self, worker: WorkerId) -> bool {
        let leaving = self.leaving.get(&worker);
        leaving.is_some_and(|it| !matches!(it.stage, Stage::Emptying))
    }

    /// Now and then: what has moved is told to all, and who had no room may have some now.
    pub fn on_tick(&mut self) {
        self.tell_news();
        for worker in self.leaving.keys().copied().collect::<Vec<_>>() {
            if let Some(leaving) = self.leaving.get_mut(&worker) {
                // Room comes and goes: a worker that had none is asked again once a tick, not once
                // a shard.
                leaving.full.clear();
            }
            self.empty(worker);
        }
    }

    /// A worker had no room for a shard of another.
    pub(crate) fn note_full(&mut self, holder: WorkerId, full: WorkerId) {
        if let Some(leaving) = self.leaving.get_mut(&holder) {
            leaving.full.insert(full);
        }
    }

    /// A move has ended: those that leave go on.
    pub(crate) fn go_on(&mut self) {
        for worker in self.leaving.keys().copied().collect::<Vec<_>>() {
            self.empty(worker);
        }
    }

    /// Orders moves of a worker that leaves; when none of its shards is left, nor one on its way there or from there, it is to be parted from.
    fn empty(&mut self, worker: WorkerId) {
        if !matches!(self.leaving[&worker].stage, Stage::Emptying) {
            return;
        }
        // Shards that are on their way to the worker count as well: it would be left with one of
        // them.
        let touches = self
            .moves
            .values()
            .filter(|it| it.from == worker || it.to == worker);
        let on_their_way = touches.count();
        let here: Vec<ShardId> = self
            .map
            .entries()
            .filter(|range| range.entry.owner == worker)
            .flat_map(|range| {
                let group = range.group;
                (range.first..range.end).map(move |index| ShardId { group, index })
            })
            .filter(|shard| !self.moves.contains_key(shard))
            .collect();
        // Orders go out in batches, whenever half of those before have ended.
        if self.ends.are_near() || on_their_way > MOVES_AT_ONCE / 2 {
            return;
        }
        if here.is_empty() {
            if on_their_way == 0 {
                self.begin_parting(worker);
            }
            return;
        }
        let mut held = self.candidates(worker);
        let bytes = self.leaving[&worker].bytes;
        for shard in here.into_iter().take(MOVES_AT_ONCE - on_their_way) {
            // The worker that has the fewest shards for its threads, once this one has come.
            let share = |(to, held): &(&WorkerId, &mut u64)| {
                let threads = self.threads.get(*to).copied().unwrap_or(1);
                ((**held + 1) << 32) / u64::from(threads)
            };
            let Some((to, held)) = held.iter_mut().min_by_key(share) else {
                break;
            };
            *held += 1;
            let to = *to;
            let ordered = self.order(shard, to, bytes);
            debug_assert!(ordered.is_ok(), "{ordered:?}");
        }
    }

    /// Who may get shards of a worker that leaves, and how many each has.
    fn candidates(&self, worker: WorkerId) -> BTreeMap<WorkerId, u64> {
        let full = &self.leaving[&worker].full;
        let may = |it: &&WorkerId| !self.leaving.contains_key(*it) && !full.contains(*it);
        let mut held: BTreeMap<WorkerId, u64> =
            self.workers.keys().filter(may).map(|it| (*it, 0)).collect();
        // Silent and stuck workers are better than none: without any the drain would never end.
        if held.keys().any(|it| !self.left_out.contains(it)) {
            held.retain(|it, _| !self.left_out.contains(it));
        }
        for range in self.map.entries() {
            if let Some(held) = held.get_mut(&range.entry.owner) {
                *held += u64::from(range.end - range.first);
            }
        }
        // Published moves are in the map already.
        for coming in self.moves.values().filter(|it| !it.is_published) {
            if let Some(held) = held.get_mut(&coming.to) {
                *held += 1;
            }
        }
        held
    }

    fn begin_parting(&mut self, worker: WorkerId) {
        let others = self.workers.keys().copied().filter(|it| *it != worker);
        // Only the members of this moment: `tell_leavers` adds those that join later.
        let others: BTreeSet<WorkerId> = others.collect();
        for &to in &others {
            self.tell_map(to);
            self.send(to, &Body::Leaves(Leaves { worker }));
        }
        if let Some(leaving) = self.leaving.get_mut(&worker) {
            leaving.stage = Stage::Parting(others);
        }
        self.dismiss_if_parted(worker);
    }

    /// A newcomer, which has heard where shards are, hears who leaves and who has left.
    pub(crate) fn tell_leavers(&mut self, to: WorkerId) {
        for (worker, leaving) in &mut self.leaving {
            match &mut leaving.stage {
                Stage::Emptying => continue,
                // The newcomer has the whole map, but it may hold older frames: it parts as the
                // others do.
                Stage::Parting(awaited) => drop(awaited.insert(to)),
                Stage::Going => {}
            }
            let body = Body::Leaves(Leaves { worker: *worker });
            let peer = self.workers.get_mut(&to).expect("it has just joined");
            self.effects.extend(crate::say(peer, to, &body));
        }
        for worker in self.gone.iter().copied().collect::<Vec<_>>() {
            self.send(to, &Body::Gone(Gone { worker }));
        }
    }

    /// Nothing of `from` is on its way to a worker that leaves.
    pub(crate) fn on_parted(&mut self, from: WorkerId, parted: Parted) {
        let Parted { worker } = parted;
        let Some(leaving) = self.leaving.get_mut(&worker) else {
            return;
        };
        match &mut leaving.stage {
            Stage::Parting(awaited) => {
                awaited.remove(&from);
                self.dismiss_if_parted(worker);
            }
            // All frames that it forwarded were acknowledged, so it may end.
            Stage::Going if from == worker => self.let_go(worker),
            Stage::Going | Stage::Emptying => {}
        }
    }

    fn dismiss_if_parted(&mut self, worker: WorkerId) {
        let leaving = self.leaving.get_mut(&worker).expect("the caller saw it");
        let has_parted = matches!(&leaving.stage, Stage::Parting(awaited) if awaited.is_empty());
        if has_parted {
            leaving.stage = Stage::Going;
            self.send(worker, &Body::Gone(Gone { worker }));
        }
    }

    /// Whether nothing is lost with a worker: no shard was ever there, so that no piece was sent there, and it hands nothing on for others.
    pub(crate) fn can_spare(&self, worker: WorkerId) -> bool {
        let others = self.workers.len().saturating_sub(1);
        !self.holders.contains(&worker) && others <= self.fan_out
    }

    /// A worker is lost that can be spared: it has left. What was to move there stays.
    pub(crate) fn spare(&mut self, worker: WorkerId) {
        if !self.workers.contains_key(&worker) {
            return;
        }
        let stays = |(shard, it): (&ShardId, &OrderedMove)| (it.to == worker).then_some(*shard);
        let stay: Vec<ShardId> = self.moves.iter().filter_map(stays).collect();
        // These shards never left their holder: nothing was published, or the worker would be among
        // the holders.
        for shard in stay {
            self.moves.remove(&shard);
            let to = worker;
            self.effects.push(ControllerEffect::Stays { shard, to });
        }
        self.let_go(worker);
        self.go_on();
    }

    /// It is no member any more.
    fn let_go(&mut self, worker: WorkerId) {
        self.leaving.remove(&worker);
        self.workers.remove(&worker);
        self.threads.remove(&worker);
        self.gone.insert(worker);
        // Told after the worker is out of the members: nothing is said to it any more.
        for to in self.workers.keys().copied().collect::<Vec<_>>() {
            self.send(to, &Body::Gone(Gone { worker }));
        }
        self.effects.push(ControllerEffect::Left { worker });
        // Other workers that leave need not wait for it: all that it said has come.
        for other in self.leaving.keys().copied().collect::<Vec<_>>() {
            let parted = Parted { worker: other };
            let stage = &self.leaving[&other].stage;
            if matches!(stage, Stage::Parting(awaited) if awaited.contains(&worker)) {
                self.on_parted(worker, parted);
            }
        }
    }
}
