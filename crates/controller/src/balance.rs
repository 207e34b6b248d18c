//! Which shards should move so that no worker keeps the others waiting. Pure: what workers tell goes in, proposals come out; whoever runs
//! the controller orders them ([`Controller::order`](crate::Controller::order)), and may refuse.

mod scales;

pub use scales::{At, Place, SILENT, Scales, TURNS};

use brambling_program::ShardId;
use brambling_protocol::WorkerId;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a shard took since the last round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardLoad {
    /// Which.
    pub shard: ShardId,
    /// How long its slices ran, by the clock: a throttled CPU shows in it.
    pub ran: Duration,
    /// How large it is thought to be.
    pub bytes: u64,
}

/// A worker, as it told last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerLoad {
    /// Who.
    pub worker: WorkerId,
    /// Its threads.
    pub threads: u32,
    /// Bytes that it has room for.
    pub free_bytes: u64,
    /// Whether shards may move to it: not while it is drained.
    pub takes_shards: bool,
    /// How long what cannot move ran: what is on its way there, and what users have moved there.
    pub stays: Duration,
    /// The other shards that it holds.
    pub shards: Vec<ShardLoad>,
}

/// A move that would pay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// Which shard.
    pub shard: ShardId,
    /// Where it should be.
    pub to: WorkerId,
    /// How large it is thought to be.
    pub bytes: u64,
}

/// Decides what should move. Asked once a round, such as every second.
pub trait Balancer {
    /// What should move, by the loads since the last round.
    fn propose(&mut self, loads: &[WorkerLoad]) -> Vec<Proposal>;
}

/// Moves shards from the worker that takes longest for its threads to the one that takes least.
///
/// # Rules
/// * Nothing moves unless the slowest takes more than `slack` beyond the mean, and is the same in `patience` rounds one after another: noise
///   moves nothing. From the first moves on, for `settling` rounds, shards move until the slowest takes no more than `rest_slack` beyond.
/// * A shard is thought to take as long there as here. From a worker that is slow that is too long: too few move, and the next round moves
///   some more.
/// * A move pays if what it takes off the slowest worker's time, over `horizon` rounds, exceeds what it costs: `move_seconds`, and the transfer
///   at `bytes_per_second`. Of those the one that gains most is proposed. So it never only exchanges the two.
/// * It needs room at its destination.
/// * A shard that has moved stays for `rest` rounds, and there are at most `moves` in a round.
#[derive(Clone, Debug)]
pub struct Levelling {
    /// The share of the mean that is no imbalance.
    pub slack: f64,
    /// The share of the mean that is left.
    pub rest_slack: f64,
    /// Rounds in which what has begun goes on.
    pub settling: u32,
    /// Rounds that an imbalance has to last.
    pub patience: u32,
    /// Rounds over which a move has to pay.
    pub horizon: u32,
    /// What any move costs.
    pub move_seconds: f64,
    /// How fast shards travel.
    pub bytes_per_second: f64,
    /// Rounds that a shard stays where it has moved.
    pub rest: u32,
    /// Moves in a round.
    pub moves: usize,
    /// For how many rounds the load has been uneven, and who was the slowest.
    uneven: Option<(WorkerId, u32)>,
    /// Rounds in which what has begun still goes on.
    goes_on: u32,
    /// For how many rounds shards still stay.
    resting: BTreeMap<ShardId, u32>,
}

impl Default for Levelling {
    fn default() -> Levelling {
        Levelling {
            slack: 0.06,
            rest_slack: 0.03,
            settling: 4,
            patience: 2,
            horizon: 10,
            move_seconds: 1e-3,
            bytes_per_second: 1e9,
            rest: 5,
            moves: 64,
            uneven: None,
            goes_on: 0,
            resting: BTreeMap::new(),
        }
    }
}

/// A worker's time for each of its threads, while moves are thought of.
struct Side<'a> {
    load: &'a WorkerLoad,
    seconds: f64,
    free_bytes: u64,
    left: Vec<ShardLoad>,
}

impl<'a> Side<'a> {
    fn new(load: &'a WorkerLoad) -> Side<'a> {
        let ran = load.stays + load.shards.iter().map(|shard| shard.ran).sum::<Duration>();
        Side {
            load,
            seconds: ran.as_secs_f64() / threads(load),
            free_bytes: load.free_bytes,
            left: load.shards.clone(),
        }
    }
}

fn threads(load: &WorkerLoad) -> f64 {
    f64::from(load.threads.max(1))
}

impl Balancer for Levelling {
    fn propose(&mut self, loads: &[WorkerLoad]) -> Vec<Proposal> {
        self.resting.retain(|_, rounds| {
            *rounds -= 1;
            *rounds > 0
        });
        let mut sides: Vec<Side<'_>> = loads.iter().map(Side::new).collect();
        let all: f64 = sides
            .iter()
            .map(|side| side.seconds * threads(side.load))
            .sum();
        let mean = all / loads.iter().map(threads).sum::<f64>().max(1.0);
        let is_uneven = |sides: &[Side<'_>], slack: f64| {
            let slowest = sides.iter().map(|side| side.seconds).fold(0.0, f64::max);
            slowest > mean * (1.0 + slack)
        };
        if !self.is_time(&sides, is_uneven(&sides, self.slack)) {
            return Vec::new();
        }
        let mut proposals = Vec::new();
        while proposals.len() < self.moves && is_uneven(&sides, self.rest_slack) {
            let Some(proposal) = self.best(&mut sides) else {
                break;
            };
            self.resting.insert(proposal.shard, self.rest + 1);
            proposals.push(proposal);
        }
        if proposals.is_empty() {
            // As level as it gets.
            self.goes_on = 0;
        }
        proposals
    }
}

impl Levelling {
    /// Whether shards may move in this round.
    fn is_time(&mut self, sides: &[Side<'_>], is_uneven: bool) -> bool {
        if self.goes_on > 0 {
            self.goes_on -= 1;
            return true;
        }
        let slowest = sides
            .iter()
            .max_by(|a, b| a.seconds.total_cmp(&b.seconds))
            .filter(|_| is_uneven)
            .map(|side| side.load.worker);
        self.uneven = slowest.map(|slowest| match self.uneven {
            Some((before, rounds)) if before == slowest => (slowest, rounds + 1),
            _ => (slowest, 1),
        });
        let lasts = self
            .uneven
            .is_some_and(|(_, rounds)| rounds >= self.patience);
        if lasts {
            (self.uneven, self.goes_on) = (None, self.settling);
        }
        lasts
    }

    /// The move from the slowest worker that gains most, if one pays; the sides are then as if it had happened.
    fn best(&self, sides: &mut [Side<'_>]) -> Option<Proposal> {
        let by_time = |a: &&usize, b: &&usize| sides[**a].seconds.total_cmp(&sides[**b].seconds);
        let places: Vec<usize> = (0..sides.len()).collect();
        let from = *places.iter().max_by(by_time)?;
        let takes = |at: &&usize| **at != from && sides[**at].load.takes_shards;
        let to = *places.iter().filter(takes).min_by(by_time)?;
        let gain = |shard: &ShardLoad| {
            let ran = shard.ran.as_secs_f64();
            let here = sides[from].seconds - ran / threads(sides[from].load);
            let there = sides[to].seconds + ran / threads(sides[to].load);
            let each_round = sides[from].seconds - here.max(there);
            let cost = self.move_seconds + shard.bytes as f64 / self.bytes_per_second;
            each_round * f64::from(self.horizon) - cost
        };
        let may_move = |shard: &&ShardLoad| {
            shard.bytes <= sides[to].free_bytes && !self.resting.contains_key(&shard.shard)
        };
        let moved = *sides[from]
            .left
            .iter()
            .filter(may_move)
            .max_by(|a, b| gain(a).total_cmp(&gain(b)))?;
        if gain(&moved) <= 0.0 {
            return None;
        }
        let ran = moved.ran.as_secs_f64();
        sides[from].left.retain(|shard| shard.shard != moved.shard);
        sides[from].seconds -= ran / threads(sides[from].load);
        sides[to].seconds += ran / threads(sides[to].load);
        sides[to].free_bytes -= moved.bytes;
        Some(Proposal {
            shard: moved.shard,
            to: sides[to].load.worker,
            bytes: moved.bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_program::GroupId;

    fn shard(index: u32) -> ShardId {
        let group = GroupId(0);
        ShardId { group, index }
    }

    /// A worker whose shards took so many milliseconds each; they count from 100 times its name.
    fn load(worker: u32, threads: u32, ms: &[u64]) -> WorkerLoad {
        let one = |(index, ms): (u32, &u64)| ShardLoad {
            shard: shard(worker * 100 + index),
            ran: Duration::from_millis(*ms),
            bytes: 1_000_000,
        };
        WorkerLoad {
            worker: WorkerId(worker),
            threads,
            free_bytes: 1 << 30,
            takes_shards: true,
            stays: Duration::ZERO,
            shards: (0..).zip(ms).map(one).collect(),
        }
    }

    fn eager() -> Levelling {
        Levelling {
            patience: 1,
            ..Levelling::default()
        }
    }

    /// The moves, and what each worker's shards take then.
    fn after(policy: &mut Levelling, loads: &mut [WorkerLoad]) -> (usize, Vec<u64>) {
        let proposals = policy.propose(loads);
        for Proposal { shard, to, .. } in &proposals {
            let from = loads
                .iter_mut()
                .find(|it| it.shards.iter().any(|it| it.shard == *shard));
            let from = from.expect("somebody has it");
            assert_ne!(from.worker, *to);
            let place = from
                .shards
                .iter()
                .position(|it| it.shard == *shard)
                .unwrap();
            let moved = from.shards.remove(place);
            let to = loads.iter_mut().find(|it| it.worker == *to).unwrap();
            to.shards.push(moved);
        }
        let sum = |load: &WorkerLoad| load.shards.iter().map(|it| it.ran.as_millis() as u64).sum();
        (proposals.len(), loads.iter().map(sum).collect())
    }

    #[test]
    fn a_newcomer_is_filled_by_its_threads() {
        let mut loads = [
            load(1, 1, &[50; 12]),
            load(2, 1, &[50; 12]),
            load(3, 2, &[]),
        ];
        let mut policy = Levelling {
            moves: 100,
            ..eager()
        };
        assert_eq!(after(&mut policy, &mut loads), (12, vec![300, 300, 600]));
        assert_eq!(after(&mut policy, &mut loads).0, 0, "it is level");
    }

    #[test]
    fn noise_moves_nothing() {
        let mut policy = Levelling::default();
        let level = [load(1, 1, &[50; 10]), load(2, 1, &[52; 10])];
        let uneven = [load(1, 1, &[50; 10]), load(2, 1, &[90; 10])];
        for _ in 0..10 {
            assert_eq!(policy.propose(&level), []);
            assert_eq!(policy.propose(&uneven), [], "it may be over the next time");
        }
        assert_ne!(policy.propose(&uneven), []);
        // Now one is the slowest, now the other.
        let mut policy = Levelling::default();
        let other = [load(1, 1, &[90; 10]), load(2, 1, &[50; 10])];
        for _ in 0..10 {
            assert_eq!(policy.propose(&uneven), []);
            assert_eq!(policy.propose(&other), []);
        }
        assert_eq!(eager().propose(&[]), []);
        assert_eq!(eager().propose(&[load(1, 1, &[]), load(2, 1, &[])]), []);
    }

    #[test]
    fn what_has_begun_goes_on_for_a_while() {
        let mut policy = Levelling::default();
        let uneven = [load(1, 1, &[10; 99]), load(2, 1, &[10; 30])];
        assert_eq!(policy.propose(&uneven), []);
        assert_ne!(policy.propose(&uneven), []);
        // Too little to begin with.
        let nearly = [load(1, 1, &[10; 99]), load(2, 1, &[10; 90])];
        let rounds = (0..20).map(|_| !policy.propose(&nearly).is_empty());
        let rounds: Vec<bool> = rounds.collect();
        let settling = policy.settling as usize;
        assert_eq!(
            rounds,
            [vec![true; settling], vec![false; 20 - settling]].concat()
        );
    }

    #[test]
    fn what_gains_nothing_stays() {
        // One large shard: wherever it is, somebody takes as long.
        let large = [load(1, 1, &[500]), load(2, 1, &[])];
        assert_eq!(eager().propose(&large), []);
        // The transfer takes longer than what it saves in ten rounds.
        let mut heavy = [load(1, 1, &[1, 1]), load(2, 1, &[])];
        assert_eq!(eager().propose(&heavy).len(), 1);
        heavy[0]
            .shards
            .iter_mut()
            .for_each(|it| it.bytes = 11_000_000);
        assert_eq!(eager().propose(&heavy), []);
        // No room, or no wish for any.
        let mut full = [load(1, 1, &[50; 10]), load(2, 1, &[])];
        assert_eq!(eager().propose(&full).len(), 5);
        full[1].free_bytes = 2_500_000;
        assert_eq!(eager().propose(&full).len(), 2);
        full[1].takes_shards = false;
        assert_eq!(eager().propose(&full), []);
    }

    #[test]
    fn what_has_moved_stays_for_a_while() {
        let mut policy = eager();
        let before = [load(1, 1, &[50, 50]), load(2, 1, &[])];
        let moved = policy.propose(&before)[0].shard;
        // The worker that got it becomes slow, and to send it back would gain most.
        let mut now = [load(1, 1, &[]), load(2, 1, &[50, 30, 30])];
        now[1].shards[0].shard = moved;
        let mut sends_it_back = || {
            let proposed = policy.propose(&now);
            proposed.iter().any(|it| it.shard == moved)
        };
        let rounds = (0..20).take_while(|_| !sends_it_back()).count();
        assert_eq!(rounds, 5);
    }

    #[test]
    fn a_slow_worker_of_many_is_relieved_first() {
        let mut loads = [
            load(1, 2, &[40; 10]),
            load(2, 2, &[90; 10]),
            load(3, 2, &[40; 10]),
        ];
        let (moves, now) = after(&mut eager(), &mut loads);
        assert!(moves <= 8, "{moves}");
        assert!(now[1] < 700 && now.iter().all(|ms| *ms < 700), "{now:?}");
    }
}
