//! When a policy is asked, and what it is shown: workers tell what their shards took, and once a round that becomes loads.
//!
//! # Rules
//! * A round begins when a period has passed and all who have told something before have told again; when some are silent, after
//!   [`SILENT`] periods. The first period begins when somebody tells something: what a job does in its first moments tells little.
//! * Each group is looked at by itself, with a policy of its own: groups run in turns as often as side by side, and who has a large shard of
//!   one is no worse for it a holder of the others.
//! * What a shard takes is its time for a turn, from where it is now or was last, times the turns of its group: so reports that come in the
//!   midst of turns, and not at the same time, compare. A group of which no shard has ended [`TURNS`] turns waits for the next round.
//! * A worker's time is that of the last round, and each shard's part of it what has been usual: noise in the time of a shard, such as when
//!   throttling falls into its task, chooses none.
//! * How much a worker swings is told by the shards that were there in this round and in the one before: moves are no swings.
//! * Shards on their way count where they go. A shard that a user has moved is not moved by the policy any more.

use super::{Balancer, Levelling, Proposal, ShardLoad, WorkerLoad};
use brambling_program::{GroupId, ShardId};
use brambling_protocol::WorkerId;
use brambling_protocol::message::ShardTime;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// Turns of a group that make a round of it.
pub const TURNS: u64 = 2;
/// Periods after which nobody waits for who is silent.
pub const SILENT: u32 = 3;

/// Where a shard is, or will be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShardLocation {
    /// It is there.
    Here(WorkerId),
    /// It is on its way there.
    Towards(WorkerId),
}

/// A worker as a place for shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerCapacity {
    /// Who.
    pub worker: WorkerId,
    /// Its threads.
    pub threads: u32,
    /// Bytes that it has room for.
    pub free_bytes: u64,
}

/// What is known of a shard.
struct ShardTiming {
    /// Who told it.
    by: WorkerId,
    /// Whether it has ended a turn there: until then what is known is from elsewhere.
    is_settled: bool,
    /// Since the last round of its group.
    turns: u64,
    ran_ns: u64,
    /// How long a turn took, as of the last round in which it had ended one, and as of several.
    turn_ns: f64,
    usual_ns: f64,
    bytes: u64,
}

/// How much of what is usual a round is.
const NEW: f64 = 0.4;

impl ShardTiming {
    /// How long a turn took in the round before and takes in this one, of a shard that was here in both.
    fn end_round(&mut self) -> Option<(f64, f64)> {
        let (turns, ran_ns) = (
            std::mem::take(&mut self.turns),
            std::mem::take(&mut self.ran_ns),
        );
        // The turn is longer than a round: what was known before still holds.
        if turns == 0 {
            return None;
        }
        let turn_ns = ran_ns as f64 / turns as f64;
        let before = std::mem::replace(&mut self.turn_ns, turn_ns);
        // The first turn after a move is compared with nothing: the turns before it ran elsewhere.
        if std::mem::replace(&mut self.is_settled, true) {
            self.usual_ns = NEW * turn_ns + (1.0 - NEW) * self.usual_ns;
            Some((before, turn_ns))
        } else {
            self.usual_ns = turn_ns;
            None
        }
    }
}

/// What the shards of a worker take for a turn, all of them.
#[derive(Default)]
struct Sums {
    /// As of the last round, and as they usually do.
    turn_ns: f64,
    usual_ns: f64,
    /// Those that stayed, in the round before and in this one.
    before_ns: f64,
    now_ns: f64,
}

impl Sums {
    fn swing(&self) -> Option<f64> {
        (self.before_ns > 0.0).then(|| (self.now_ns / self.before_ns - 1.0).abs())
    }
}

/// Ends a round for these shards, and adds them up by worker.
fn end_round<'w>(
    weights: impl Iterator<Item = (&'w ShardId, &'w mut ShardTiming)>,
    at: &impl Fn(ShardId) -> Option<ShardLocation>,
) -> BTreeMap<WorkerId, Sums> {
    let mut sums = BTreeMap::<WorkerId, Sums>::new();
    for (shard, weight) in weights {
        let both = weight.end_round();
        let Some(at) = at(*shard) else { continue };
        let (ShardLocation::Here(worker) | ShardLocation::Towards(worker)) = at;
        let sum = sums.entry(worker).or_default();
        sum.turn_ns += weight.turn_ns;
        sum.usual_ns += weight.usual_ns;
        // A shard on its way would show as a swing of both workers.
        if let (Some((before_ns, now_ns)), ShardLocation::Here(_)) = (both, at) {
            sum.before_ns += before_ns;
            sum.now_ns += now_ns;
        }
    }
    sums
}

struct Group {
    policy: Box<dyn Balancer + Send>,
    /// When its last round was.
    since: Duration,
}

/// What the shards of a job weigh, and who is asked what should move.
pub struct Scales {
    period: Duration,
    policy: fn() -> Box<dyn Balancer + Send>,
    groups: BTreeMap<GroupId, Group>,
    weights: BTreeMap<ShardId, ShardTiming>,
    pinned: BTreeSet<ShardId>,
    /// Who has told something, ever.
    known: BTreeSet<WorkerId>,
    /// Who has since the last round.
    told: BTreeSet<WorkerId>,
    /// When that was.
    since: Duration,
}

impl Scales {
    /// With a policy for each group, which is asked once a period.
    pub fn new(period: Duration, policy: fn() -> Box<dyn Balancer + Send>) -> Scales {
        Scales {
            period,
            policy,
            groups: BTreeMap::new(),
            weights: BTreeMap::new(),
            pinned: BTreeSet::new(),
            known: BTreeSet::new(),
            told: BTreeSet::new(),
            since: Duration::ZERO,
        }
    }

    /// With [`Levelling`] as it is.
    pub fn levelling(period: Duration) -> Scales {
        Scales::new(period, || Box::new(Levelling::default()))
    }

    /// A worker tells what a shard took there. Those that the job does not have are the caller's to keep out.
    pub fn on_time(&mut self, by: WorkerId, time: &ShardTime) {
        let weight = self.weights.entry(time.shard).or_insert(ShardTiming {
            by,
            is_settled: false,
            turns: 0,
            ran_ns: 0,
            turn_ns: 0.0,
            usual_ns: 0.0,
            bytes: 0,
        });
        // The shard has moved: times of two workers are not added up, and its usual time is kept
        // until it has ended a turn here.
        if weight.by != by {
            (weight.by, weight.turns, weight.ran_ns) = (by, 0, 0);
            weight.is_settled = false;
        }
        weight.turns = weight.turns.saturating_add(time.turns);
        weight.ran_ns = weight.ran_ns.saturating_add(time.ran_ns);
        weight.bytes = time.bytes;
    }

    /// A worker has told all that it had to tell.
    pub fn on_told(&mut self, by: WorkerId) {
        self.known.insert(by);
        self.told.insert(by);
    }

    /// A shard stays where a user wants it.
    pub fn pin(&mut self, shard: ShardId) {
        self.pinned.insert(shard);
    }

    /// What should move, if it is time for a round. `at` knows where each shard is; nothing moves from or to others than `places`.
    pub fn round(
        &mut self,
        now: Duration,
        places: &[WorkerCapacity],
        at: impl Fn(ShardId) -> Option<ShardLocation>,
    ) -> Vec<Proposal> {
        // No period begins before some worker tells times, however long programs take to build.
        if self.known.is_empty() {
            self.since = now;
            return Vec::new();
        }
        let passed = now.saturating_sub(self.since);
        let have_told = |it: &WorkerCapacity| {
            self.told.contains(&it.worker) || !self.known.contains(&it.worker)
        };
        let is_due = passed >= self.period && places.iter().all(have_told);
        // One silent worker must not keep the others from being levelled for ever.
        if !is_due && passed < self.period * SILENT {
            return Vec::new();
        }
        let before = std::mem::replace(&mut self.since, now);
        self.told.clear();
        // A worker that has not told anything yet is still preparing itself.
        let known = places.iter().filter(|it| self.known.contains(&it.worker));
        let places: Vec<WorkerCapacity> = known.copied().collect();
        let mut turns = BTreeMap::<GroupId, u64>::new();
        for (shard, weight) in &self.weights {
            let most = turns.entry(shard.group).or_default();
            // The furthest shard stands for its group: the others are still within that turn.
            *most = weight.turns.max(*most);
        }
        let groups = turns.into_iter().filter(|(_, turns)| *turns >= TURNS);
        let groups = groups.collect::<Vec<_>>().into_iter();
        groups
            .flat_map(|(id, turns)| self.round_of(id, turns, before..now, &places, &at))
            .collect()
    }

    fn round_of(
        &mut self,
        id: GroupId,
        turns: u64,
        round: Range<Duration>,
        places: &[WorkerCapacity],
        at: &impl Fn(ShardId) -> Option<ShardLocation>,
    ) -> Vec<Proposal> {
        let group = self.groups.entry(id).or_insert_with(|| Group {
            policy: (self.policy)(),
            since: round.start,
        });
        let since = std::mem::replace(&mut group.since, round.end);
        let passed = round.end.saturating_sub(since);
        // Turns in a period.
        let rate = turns as f64 * self.period.as_secs_f64() / passed.as_secs_f64().max(1e-9);
        let of_group = |index| ShardId { group: id, index };
        let of_this = of_group(0)..=of_group(u32::MAX);
        let sums = end_round(self.weights.range_mut(of_this.clone()), at);
        let load = |place: &WorkerCapacity| WorkerLoad {
            worker: place.worker,
            threads: place.threads,
            free_bytes: place.free_bytes,
            takes_shards: true,
            stays: Duration::ZERO,
            shards: Vec::new(),
            swing: sums.get(&place.worker).and_then(Sums::swing),
        };
        let mut loads: BTreeMap<WorkerId, WorkerLoad> =
            places.iter().map(|it| (it.worker, load(it))).collect();
        for (shard, weight) in self.weights.range(of_this) {
            let Some(at) = at(*shard) else { continue };
            let (ShardLocation::Here(worker) | ShardLocation::Towards(worker)) = at;
            let sum = &sums[&worker];
            // The worker's time of this round, divided as its shards usually divide it: noise in
            // one shard's time chooses none.
            let ran_ns = weight.usual_ns * (sum.turn_ns / sum.usual_ns.max(1.0)) * rate;
            let ran = Duration::from_nanos(ran_ns as u64);
            let Some(load) = loads.get_mut(&worker) else {
                continue;
            };
            if matches!(at, ShardLocation::Towards(_)) || self.pinned.contains(shard) {
                // The shard's time counts, but no move of it is offered to the policy.
                load.stays += ran;
            } else {
                let (shard, bytes) = (*shard, weight.bytes);
                load.shards.push(ShardLoad { shard, ran, bytes });
            }
        }
        let loads: Vec<WorkerLoad> = loads.into_values().collect();
        group.policy.propose(&loads)
    }
}

#[cfg(test)]
mod tests;
