//! Owns the policy: which shards should move so that no worker keeps the others waiting. The scales
//! ask it once a round (`balance/scales.rs`), and whoever runs the controller orders what it
//! proposes ([`Controller::order`](crate::Controller::order)), and may refuse. Pure: it never
//! orders a move itself.

mod scales;

pub use scales::{SILENT, Scales, ShardLocation, TURNS, WorkerCapacity};

use brambling_program::ShardId;
use brambling_protocol::WorkerId;
use std::collections::{BTreeMap, VecDeque};
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
#[derive(Clone, PartialEq, Debug)]
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
    /// By which share what the same shards take here has changed since the last round, up or down; none: nothing to compare.
    pub swing: Option<f64>,
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
/// * Nothing moves unless a worker takes more than `slack` beyond the mean in `rounds` rounds one after another, and by then it adds up to
///   `patience` times `slack`: what costs little may last a little longer before it is believed. From the first moves on, for `settling`
///   rounds, shards move until the slowest takes no more than `rest_slack` beyond.
/// * What gains little has to last longer still: of a move that takes only a part of the shard's time off the slowest, since its new worker becomes
///   nearly as slow, that part of the sum counts. Were it all noise, such a move would make things worse by the whole shard.
/// * Noise moves nothing: where workers swing, as threads do that share processors, slack is at least `swings` times as much as is usual there,
///   and what is left `rest_swings` times. Usual is the median of [`MEMORY`] rounds, or what the last round had if that is more; of a round it is
///   the median of its workers, so that one that becomes slow, alone, is no noise.
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
    /// As many usual swings are no imbalance.
    pub swings: f64,
    /// As many are left.
    pub rest_swings: f64,
    /// Rounds in which what has begun goes on.
    pub settling: u32,
    /// Rounds that an imbalance has to last.
    pub rounds: u32,
    /// What it has to add up to in them, in slacks, for a move that takes all of its shard's time off the slowest.
    pub patience: f64,
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
    /// For how many rounds each of those that take too long has, and how much too long in all, in slacks.
    slow: BTreeMap<WorkerId, (u32, f64)>,
    /// Rounds in which what has begun still goes on, and what the imbalance had added up to then, in slacks.
    goes_on: u32,
    sum: f64,
    /// For how many rounds shards still stay.
    resting: BTreeMap<ShardId, u32>,
    /// How much the workers swung in the last rounds.
    swung: VecDeque<f64>,
}

/// Rounds that tell what is usual.
pub const MEMORY: usize = 6;

impl Default for Levelling {
    fn default() -> Levelling {
        Levelling {
            slack: 0.06,
            rest_slack: 0.03,
            swings: 2.0,
            rest_swings: 0.5,
            settling: 4,
            rounds: 2,
            patience: 6.0,
            horizon: 10,
            move_seconds: 1e-3,
            bytes_per_second: 1e9,
            rest: 5,
            moves: 64,
            slow: BTreeMap::new(),
            goes_on: 0,
            sum: 0.0,
            resting: BTreeMap::new(),
            swung: VecDeque::new(),
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
        // Rounds are counted whether or not anything moves in them.
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
            let limit = mean * (1.0 + slack);
            sides.iter().any(|side| side.seconds > limit)
        };
        // Asked in each round, even while nothing may move: it remembers what it has seen.
        let usual = self.usual_swing(loads);
        let slack = self.slack.max(self.swings * usual);
        let rest_slack = self.rest_slack.max(self.rest_swings * usual);
        let is_new = self.goes_on == 0;
        let Some(sum) = self.time_has_come(&sides, mean, slack) else {
            return Vec::new();
        };
        let mut proposals = Vec::new();
        // Each proposal changes the sides, so the next is chosen as if it had happened.
        while proposals.len() < self.moves && is_uneven(&sides, rest_slack) {
            let Some(proposal) = self.best(&mut sides, sum) else {
                break;
            };
            // One more than `rest`: the next round takes one off before it looks.
            self.resting.insert(proposal.shard, self.rest + 1);
            proposals.push(proposal);
        }
        if proposals.is_empty() {
            // No move makes it more level.
            self.goes_on = 0;
        } else if is_new {
            // Slowness that has lasted is used up: after the settling it has to last again.
            self.slow.clear();
            (self.goes_on, self.sum) = (self.settling, sum);
        }
        proposals
    }
}

/// The smaller one of two in the middle.
fn median(shares: impl Iterator<Item = f64>) -> Option<f64> {
    let mut shares: Vec<f64> = shares.collect();
    shares.sort_by(f64::total_cmp);
    shares.get(shares.len().checked_sub(1)? / 2).copied()
}

impl Levelling {
    /// By which share workers swing from one round to the next without anything having changed.
    fn usual_swing(&mut self, loads: &[WorkerLoad]) -> f64 {
        let Some(now) = median(loads.iter().filter_map(|load| load.swing)) else {
            return 0.0;
        };
        if self.swung.len() == MEMORY {
            self.swung.pop_front();
        }
        self.swung.push_back(now);
        median(self.swung.iter().copied()).map_or(now, |usual| usual.max(now))
    }

    /// What the imbalance adds up to, in slacks, if shards may move in this round, in which it is too long for a worker to take more than
    /// `slack` beyond the mean.
    fn time_has_come(&mut self, sides: &[Side<'_>], mean: f64, slack: f64) -> Option<f64> {
        if self.goes_on > 0 {
            self.goes_on -= 1;
            return Some(self.sum);
        }
        // A worker that is not slow in this round begins at nothing the next time: slow rounds have
        // to follow each other.
        let before = std::mem::take(&mut self.slow);
        for side in sides {
            let slacks = (side.seconds / mean - 1.0) / slack;
            if slacks > 1.0 {
                let worker = side.load.worker;
                let (rounds, sum) = before.get(&worker).copied().unwrap_or_default();
                self.slow.insert(worker, (rounds + 1, sum + slacks));
            }
        }
        let lasting = self.slow.values().filter(|it| it.0 >= self.rounds);
        lasting.map(|it| it.1).max_by(f64::total_cmp)
    }

    /// The move from the slowest worker that gains most, if one pays; the sides are then as if it had happened.
    /// `sum` is what the imbalance adds up to.
    fn best(&self, sides: &mut [Side<'_>], sum: f64) -> Option<Proposal> {
        let by_time = |a: &&usize, b: &&usize| sides[**a].seconds.total_cmp(&sides[**b].seconds);
        let places: Vec<usize> = (0..sides.len()).collect();
        // Only the slowest worker gives: all wait for it, and a move from any other gains nothing.
        let from = *places.iter().max_by(by_time)?;
        let takes = |at: &&usize| **at != from && sides[**at].load.takes_shards;
        let to = *places.iter().filter(takes).min_by(by_time)?;
        // The part of a shard's time in that of the slowest worker.
        let time = |shard: &ShardLoad| shard.ran.as_secs_f64() / threads(sides[from].load);
        let each_round = |shard: &ShardLoad| {
            let here = sides[from].seconds - time(shard);
            // What counts is the slowest worker afterwards, so a move that only exchanges the two
            // gains nothing.
            let there = sides[to].seconds + shard.ran.as_secs_f64() / threads(sides[to].load);
            sides[from].seconds - here.max(there)
        };
        let gain = |shard: &ShardLoad| {
            let cost = self.move_seconds + shard.bytes as f64 / self.bytes_per_second;
            each_round(shard) * f64::from(self.horizon) - cost
        };
        // A small gain is believed only after it has lasted: it may be noise, and the move would
        // cost the whole shard.
        let is_sure = |shard: &ShardLoad| sum * each_round(shard) >= self.patience * time(shard);
        let may_move = |shard: &&ShardLoad| {
            shard.bytes <= sides[to].free_bytes
                && !self.resting.contains_key(&shard.shard)
                && is_sure(shard)
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
        // Taken off, so that the next proposal does not count on the same room.
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
            swing: None,
        }
    }

    fn eager() -> Levelling {
        Levelling {
            rounds: 1,
            patience: 1.0,
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

    /// The same load as noise of so many percent shows it, and how much it differs from round to round.
    fn noisy(percent: &[i64], swing: f64) -> Vec<WorkerLoad> {
        let of = |(worker, percent): (u32, &i64)| WorkerLoad {
            swing: Some(swing),
            ..load(worker, 1, &[(200 + 2 * percent) as u64; 50])
        };
        (1..).zip(percent).map(of).collect()
    }

    #[test]
    fn where_workers_swing_more_is_noise() {
        // The first is slow in all rounds, by less than what all of them change by.
        let rounds = [
            noisy(&[20, -4, -8, -8], 0.16),
            noisy(&[20, 0, 0, -20], 0.16),
        ];
        let mut policy = Levelling::default();
        for round in rounds.iter().cycle().take(20) {
            assert_eq!(policy.propose(round), []);
        }
        // If only the first did, it would not be.
        let mut steady = rounds.clone();
        let all = steady.iter_mut().flatten();
        all.filter(|it| it.worker != WorkerId(1))
            .for_each(|it| it.swing = Some(0.01));
        let mut policy = Levelling::default();
        assert_eq!(policy.propose(&steady[0]), []);
        assert_ne!(policy.propose(&steady[1]), []);
        // Much more than what is usual is not noise there either, and is levelled until half of what is usual is left.
        let mut policy = Levelling::default();
        for round in rounds.iter().cycle().take(6) {
            policy.propose(round);
        }
        let mut slow = noisy(&[60, -20, -20, -20], 0.16);
        for _ in 0..3 {
            assert_eq!(policy.propose(&slow), [], "it is not sure yet");
        }
        let (_, now) = after(&mut policy, &mut slow);
        assert_eq!(now[0], 10_560);
    }

    #[test]
    fn one_round_of_noise_holds_moves_back_and_is_not_what_is_usual() {
        let slow = |swing| noisy(&[30, -10, -10, -10], swing);
        let mut policy = Levelling::default();
        // What was usual once is forgotten.
        for swing in [[0.3; 2 * MEMORY], [0.01; 2 * MEMORY]]
            .concat()
            .iter()
            .take(3 * MEMORY)
        {
            policy.propose(&noisy(&[0, 0, 0, 0], *swing));
        }
        assert_eq!(policy.propose(&slow(0.4)), [], "all became slower");
        assert_eq!(policy.propose(&slow(0.01)), [], "it may be over");
        assert_ne!(policy.propose(&slow(0.01)), []);
    }

    #[test]
    fn one_that_is_fast_beside_equals_is_filled() {
        // Whoever of the equals is the slowest, by the last digit, changes.
        let mut policy = Levelling::default();
        let rounds = (0..4).map(|round| {
            let mut loads = noisy(&[10, 10, 10, -30], 0.0);
            loads[round % 3].shards[0].ran += Duration::from_nanos(1);
            policy.propose(&loads).len()
        });
        let rounds: Vec<usize> = rounds.collect();
        assert_eq!(rounds[..3], [0, 0, 0]);
        assert!(rounds[3] > 0, "{rounds:?}");
    }

    #[test]
    fn what_is_hardly_too_much_has_to_last_longer() {
        let rounds_until = |percent: i64| {
            let mut policy = Levelling::default();
            let load = noisy(&[percent, 0, 0, -percent], 0.0);
            (1..20).find(|_| !policy.propose(&load).is_empty())
        };
        let rounds = [5, 7, 8, 10, 50].map(rounds_until);
        assert_eq!(rounds, [None, Some(6), Some(5), Some(4), Some(2)]);
        // Once it is over, it begins anew.
        let mut policy = Levelling::default();
        for percent in [8, 8, 8, 8, 0, 8, 8, 8, 8, 0, 8, 8, 8, 8] {
            assert_eq!(policy.propose(&noisy(&[percent, 0, 0, -percent], 0.0)), []);
        }
    }

    #[test]
    fn what_gains_little_has_to_last_longer_still() {
        // Of ten shards one is a tenth: its new worker takes nearly as long as the old one did, unless that took much longer.
        let coarse = |percent: i64| {
            let ms = |percent: i64| (200 + 2 * percent) as u64;
            [
                load(1, 1, &[ms(percent); 10]),
                load(2, 1, &[ms(-percent); 10]),
            ]
        };
        let rounds_until = |percent: i64| {
            let mut policy = Levelling::default();
            (1..20).find(|_| !policy.propose(&coarse(percent)).is_empty())
        };
        let rounds = [5, 7, 9, 12, 50].map(rounds_until);
        assert_eq!(rounds, [None, Some(17), Some(7), Some(3), Some(2)]);
        // While what has begun goes on, what it was begun for counts.
        let next = |begins_with: i64| {
            let mut policy = Levelling::default();
            while policy.propose(&coarse(begins_with)).is_empty() {}
            policy.propose(&coarse(7)).len()
        };
        assert_eq!([12, 80].map(next), [0, 1]);
    }

    #[test]
    fn once_it_is_level_all_begins_anew() {
        let mut policy = Levelling::default();
        let uneven = noisy(&[50, 0, 0, -50], 0.0);
        while policy.propose(&uneven).is_empty() {}
        assert_eq!(policy.propose(&noisy(&[0, 0, 0, 0], 0.0)), []);
        let hardly = noisy(&[8, 0, 0, -8], 0.0);
        let rounds = (1..20).find(|_| !policy.propose(&hardly).is_empty());
        assert_eq!(rounds, Some(5));
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
