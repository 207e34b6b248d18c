//! A job whose shards all take their turns together, as iterations do, and workers of some speed that tell once a second. Catches a policy that
//! is shown too little or too late; what reports cost, and how long moves take, it does not know.

use super::*;
use std::cell::RefCell;

const GROUP: GroupId = GroupId(0);
const PERIOD: Duration = Duration::from_secs(1);

fn shard(index: u32) -> ShardId {
    let group = GROUP;
    ShardId { group, index }
}

/// A job that takes turns. Work is in milliseconds of a worker of speed 1.
struct Cluster {
    scales: Scales,
    speeds: BTreeMap<WorkerId, f64>,
    owners: Vec<WorkerId>,
    works_ms: Vec<f64>,
    now_ms: f64,
    /// Turns that have ended, as a share of the one at hand as well.
    turns: f64,
    told: BTreeMap<WorkerId, u64>,
    moves: usize,
    random: u64,
    /// By how much of its time what is told of a shard may be wrong, and how much faster or slower a worker may be in a report.
    noise: f64,
    wobble: f64,
}

impl Cluster {
    fn new(speeds: &[f64], works_ms: Vec<f64>) -> Cluster {
        let names = (1..).map(WorkerId);
        let speeds: BTreeMap<_, _> = names.zip(speeds.iter().copied()).collect();
        let workers = speeds.len();
        let owner = |index| WorkerId((index * workers / works_ms.len()) as u32 + 1);
        Cluster {
            scales: Scales::levelling(PERIOD),
            owners: (0..works_ms.len()).map(owner).collect(),
            speeds,
            works_ms,
            now_ms: 0.0,
            turns: 0.0,
            told: BTreeMap::new(),
            moves: 0,
            random: 1,
            noise: 0.0,
            wobble: 0.0,
        }
    }

    fn even(shards: usize) -> Cluster {
        Cluster::new(&[0.4; 4], vec![160.0 / shards as f64; shards])
    }

    fn ran_ms(&self, index: usize) -> f64 {
        self.works_ms[index] / self.speeds[&self.owners[index]]
    }

    fn of(&self, worker: WorkerId) -> f64 {
        let its = (0..self.owners.len()).filter(|it| self.owners[*it] == worker);
        its.map(|it| self.ran_ms(it)).sum()
    }

    /// How long a turn takes.
    fn turn_ms(&self) -> f64 {
        let workers = self.speeds.keys().map(|it| self.of(*it));
        workers.fold(0.0, f64::max)
    }

    /// How long it takes at least.
    fn allowed_ms(&self) -> f64 {
        self.works_ms.iter().sum::<f64>() / self.speeds.values().sum::<f64>()
    }

    fn random(&mut self) -> f64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = self.random.wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as f64 / f64::from(1u32 << 31)
    }

    fn tell(&mut self, worker: WorkerId) {
        let turns = self.turns as u64;
        let since = self.told.insert(worker, turns).unwrap_or(0);
        let its: Vec<usize> = (0..self.owners.len())
            .filter(|it| self.owners[*it] == worker)
            .collect();
        let wobble = 1.0 + self.wobble * (2.0 * self.random() - 1.0);
        let (noise, mut random) = (self.noise, || self.random());
        let wrongs: Vec<f64> = its
            .iter()
            .map(|_| 1.0 + noise * (2.0 * random() - 1.0))
            .collect();
        // What throttling adds to one shard it does not add to another: the worker's sum is right.
        let scale = wobble * its.len() as f64 / wrongs.iter().sum::<f64>();
        for (index, wrong) in its.into_iter().zip(wrongs) {
            let ran_ms = self.ran_ms(index) * wrong * scale * (turns - since) as f64;
            let time = ShardTime {
                shard: shard(index as u32),
                turns: turns - since,
                ran_ns: (ran_ms * 1e6) as u64,
                bytes: 1 << 20,
            };
            self.scales.on_time(worker, &time);
        }
        self.scales.on_told(worker);
    }

    /// Workers tell, each at its own time of the second, and what is proposed happens at once.
    fn pass(&mut self, seconds: u32) {
        const STEPS: u32 = 20;
        for step in 0..seconds * STEPS {
            let passed_ms = 1e3 / f64::from(STEPS);
            self.now_ms += passed_ms;
            self.turns += passed_ms / self.turn_ms();
            for worker in self.speeds.keys().copied().collect::<Vec<_>>() {
                if (step + worker.0 * 7).is_multiple_of(STEPS) {
                    self.tell(worker);
                }
            }
            self.round();
        }
    }

    fn round(&mut self) {
        let place = |worker: &WorkerId| WorkerCapacity {
            worker: *worker,
            threads: 1,
            free_bytes: 1 << 40,
        };
        let places: Vec<WorkerCapacity> = self.speeds.keys().map(place).collect();
        let at = |it: ShardId| Some(ShardLocation::Here(self.owners[it.index as usize]));
        let now = Duration::from_secs_f64(self.now_ms / 1e3);
        for proposal in self.scales.round(now, &places, at) {
            self.owners[proposal.shard.index as usize] = proposal.to;
            self.moves += 1;
        }
    }

    fn held(&self, worker: u32) -> usize {
        let is_its = |it: &&WorkerId| it.0 == worker;
        self.owners.iter().filter(is_its).count()
    }
}

#[test]
fn a_worker_that_falls_to_half_sheds_within_five_seconds_and_then_nothing_moves() {
    for (shards, noise, wobble) in [
        (40, 0.0, 0.0),
        (80, 0.0, 0.0),
        (160, 0.0, 0.0),
        (1_000, 0.0, 0.0),
        (80, 0.4, 0.0),
        (160, 0.4, 0.045),
    ] {
        let mut cluster = Cluster::even(shards);
        (cluster.noise, cluster.wobble) = (noise, wobble);
        cluster.pass(10);
        assert_eq!(cluster.moves, 0, "{shards} shards: it was level");
        cluster.speeds.insert(WorkerId(2), 0.2);
        cluster.pass(5);
        let over = cluster.turn_ms() / cluster.allowed_ms();
        assert!(over < 1.07, "{shards} shards, noise {noise}: {over}");
        let moves = cluster.moves;
        cluster.pass(30);
        let late = cluster.moves - moves;
        assert!(late * 50 <= shards, "{shards} shards: {late} moves more");
        // It comes back.
        cluster.speeds.insert(WorkerId(2), 0.4);
        cluster.pass(6);
        let over = cluster.turn_ms() / cluster.allowed_ms();
        assert!(over < 1.07, "{shards} shards, back: {over}");
    }
}

#[test]
fn workers_that_swing_keep_what_they_have_and_one_that_falls_sheds_all_the_same() {
    let mut cluster = Cluster::new(&[0.4; 16], vec![1.0; 160]);
    cluster.wobble = 0.12;
    cluster.pass(120);
    assert_eq!(cluster.moves, 0);
    cluster.speeds.insert(WorkerId(2), 0.1);
    cluster.pass(10);
    let over = cluster.turn_ms() / cluster.allowed_ms();
    assert!(over < 1.3, "{over}, and it was 3.8");
}

#[test]
fn who_joins_is_filled_once_it_tells() {
    let mut cluster = Cluster::even(80);
    cluster.pass(5);
    cluster.speeds.insert(WorkerId(5), 0.4);
    for _ in 0..60 {
        cluster.now_ms += 50.0;
        cluster.turns += 1.0;
        (1..5).for_each(|worker| cluster.tell(WorkerId(worker)));
        cluster.round();
    }
    assert_eq!(cluster.held(5), 0, "it is still preparing itself");
    cluster.pass(5);
    assert_eq!(cluster.held(5), 16);
    assert_eq!(cluster.turn_ms(), cluster.allowed_ms());
}

#[test]
fn turns_of_any_length_compare() {
    for turn_ms in [0.05, 1.0, 300.0, 1_700.0, 5_000.0] {
        let mut cluster = Cluster::new(&[1.0; 4], vec![turn_ms / 10.0; 40]);
        cluster.pass(60);
        assert_eq!(cluster.moves, 0, "turns of {turn_ms} ms");
        cluster.speeds.insert(WorkerId(2), 0.5);
        // Five seconds, or ten turns.
        let turns = (10.0 * 2.0 * turn_ms / 1e3) as u32;
        cluster.pass(turns.max(5));
        let over = cluster.turn_ms() / cluster.allowed_ms();
        assert!(over < 1.1, "turns of {turn_ms} ms: {over}");
    }
}

#[test]
fn shards_that_take_longer_than_others_are_levelled_too() {
    let works = (0..80).map(|it| 1.0 + f64::from(it * it) / 800.0).collect();
    let mut cluster = Cluster::new(&[1.0; 4], works);
    let before = cluster.turn_ms() / cluster.allowed_ms();
    assert!(before > 1.9, "{before}");
    cluster.pass(6);
    let over = cluster.turn_ms() / cluster.allowed_ms();
    assert!(over < 1.05, "{over}");
}

/// Who tells that a turn of which shard takes so many milliseconds.
fn told(scales: &mut Scales, times: &[(u32, u32, u64)]) {
    for (worker, index, ms) in times {
        let time = ShardTime {
            shard: shard(*index),
            turns: TURNS,
            ran_ns: ms * 1_000_000 * TURNS,
            bytes: 1,
        };
        scales.on_time(WorkerId(*worker), &time);
        scales.on_told(WorkerId(*worker));
    }
}

fn places(workers: &[u32]) -> Vec<WorkerCapacity> {
    let place = |worker: &u32| WorkerCapacity {
        worker: WorkerId(*worker),
        threads: 1,
        free_bytes: 1 << 40,
    };
    workers.iter().map(place).collect()
}

/// Two shards of 200 ms on the first worker, one of 10 ms on the second: which are proposed to move, second by second.
fn rounds(
    scales: &mut Scales,
    at: impl Fn(ShardId) -> Option<ShardLocation>,
    seconds: u64,
) -> Vec<Vec<u32>> {
    let round = |second| {
        told(scales, &[(1, 0, 200), (1, 1, 200), (2, 2, 10)]);
        let now = Duration::from_secs(second);
        let proposed = scales.round(now, &places(&[1, 2]), &at);
        proposed.iter().map(|it| it.shard.index).collect()
    };
    (1..=seconds).map(round).collect()
}

fn owner(shard: ShardId) -> WorkerId {
    WorkerId(if shard.index < 2 { 1 } else { 2 })
}

#[test]
fn what_is_on_its_way_counts_where_it_goes_and_what_users_have_moved_stays() {
    let here = |shard| Some(ShardLocation::Here(owner(shard)));
    let mut scales = Scales::levelling(PERIOD);
    let nothing: Vec<u32> = Vec::new();
    assert_eq!(rounds(&mut scales, here, 2), [nothing.clone(), vec![1]]);
    // One is on its way: as if it were there already.
    let moving = |shard: ShardId| match shard.index {
        0 => Some(ShardLocation::Towards(WorkerId(2))),
        _ => here(shard),
    };
    let mut scales = Scales::levelling(PERIOD);
    assert_eq!(rounds(&mut scales, moving, 4), vec![nothing.clone(); 4]);
    // Both are, which is too much: neither turns back on the way.
    let moving = |shard: ShardId| match shard.index {
        2 => here(shard),
        _ => Some(ShardLocation::Towards(WorkerId(2))),
    };
    let mut scales = Scales::levelling(PERIOD);
    assert_eq!(rounds(&mut scales, moving, 2), [nothing.clone(), vec![2]]);
    let mut scales = Scales::levelling(PERIOD);
    scales.pin(shard(0));
    scales.pin(shard(1));
    assert_eq!(rounds(&mut scales, here, 4), vec![nothing; 4]);
}

#[test]
fn what_a_shard_took_at_another_worker_is_not_added_to_what_it_takes_here() {
    let mut scales = Scales::levelling(PERIOD);
    for (worker, ms) in [(1, 200), (2, 10), (2, 20)] {
        told(&mut scales, &[(worker, 0, ms)]);
    }
    let weight = &scales.weights[&shard(0)];
    assert_eq!((weight.by, weight.turns), (WorkerId(2), 2 * TURNS));
    assert_eq!(weight.ran_ns, 30_000_000 * TURNS);
}

#[test]
fn one_round_makes_no_shard_large() {
    let mut scales = Scales::levelling(PERIOD);
    let at = |shard: ShardId| {
        Some(ShardLocation::Here(WorkerId(if shard.index < 3 {
            1
        } else {
            2
        })))
    };
    told(
        &mut scales,
        &[(1, 0, 100), (1, 1, 100), (1, 2, 100), (2, 3, 40)],
    );
    assert_eq!(scales.round(PERIOD, &places(&[1, 2]), at), []);
    // By these times the third would be as large there as all are here.
    told(
        &mut scales,
        &[(1, 0, 20), (1, 1, 10), (1, 2, 270), (2, 3, 40)],
    );
    let proposed = scales.round(2 * PERIOD, &places(&[1, 2]), at);
    assert_eq!(proposed[0].shard, shard(2));
}

thread_local! {
    /// What the policy is shown, round by round.
    static SHOWN: RefCell<Vec<Vec<WorkerLoad>>> = const { RefCell::new(Vec::new()) };
}

/// Moves nothing, and notes what it is shown.
struct Notes;

impl Balancer for Notes {
    fn propose(&mut self, loads: &[WorkerLoad]) -> Vec<Proposal> {
        SHOWN.with_borrow_mut(|rounds| rounds.push(loads.to_vec()));
        Vec::new()
    }
}

#[test]
fn workers_swing_by_what_the_shards_that_stay_take() {
    let (on_its_way, here) = (ShardLocation::Towards, ShardLocation::Here);
    // Who tells that a turn of which shard takes so many milliseconds, where the second shard is, and the swings in permille.
    type Round<'a> = (&'a [(u32, u32, u64)], ShardLocation, [Option<i64>; 2]);
    let rounds: [Round<'_>; 6] = [
        (
            &[(1, 0, 100), (1, 1, 300), (2, 2, 100)],
            here(WorkerId(1)),
            [None, None],
        ),
        (
            &[(1, 0, 100), (1, 1, 400), (2, 2, 80)],
            here(WorkerId(1)),
            [Some(250), Some(200)],
        ),
        (
            &[(1, 0, 100), (1, 1, 900), (2, 2, 80)],
            on_its_way(WorkerId(2)),
            [Some(0), Some(0)],
        ),
        // It takes as long as it likes where it has come.
        (
            &[(1, 0, 100), (2, 1, 200), (2, 2, 80)],
            here(WorkerId(2)),
            [Some(0), Some(0)],
        ),
        (
            &[(1, 0, 100), (2, 1, 200), (2, 2, 108)],
            here(WorkerId(2)),
            [Some(0), Some(100)],
        ),
        // The first ends no turn.
        (
            &[(2, 1, 200), (2, 2, 108)],
            here(WorkerId(2)),
            [None, Some(0)],
        ),
    ];
    let mut scales = Scales::new(PERIOD, || Box::new(Notes));
    for (second, (times, of_the_second, expected)) in (1..).zip(rounds) {
        told(&mut scales, times);
        scales.on_told(WorkerId(1));
        let others = [1, 0, 2].map(WorkerId);
        let at = |shard: ShardId| match shard.index {
            1 => Some(of_the_second),
            other => Some(here(others[other as usize])),
        };
        scales.round(Duration::from_secs(second), &places(&[1, 2]), at);
        let shown = SHOWN.take();
        let permille = |load: &WorkerLoad| load.swing.map(|it| (it * 1e3).round() as i64);
        let swings: Vec<_> = shown[0].iter().map(permille).collect();
        assert_eq!(swings, expected, "round {second}");
    }
}

#[test]
fn the_first_moments_of_a_job_make_no_round() {
    let mut scales = Scales::new(PERIOD, || Box::new(Notes));
    // The cluster has been up for an hour, and the workers prepare themselves until they tell something.
    for (ms, tells) in [
        (3_600_000, false),
        (3_600_800, false),
        (3_600_900, true),
        (3_601_000, false),
        (3_601_800, true),
    ] {
        if tells {
            told(&mut scales, &[(1, 0, 200), (1, 1, 200), (2, 2, 10)]);
        }
        assert_eq!(SHOWN.with_borrow(Vec::len), 0, "before {ms} ms");
        let here = |shard| Some(ShardLocation::Here(owner(shard)));
        scales.round(Duration::from_millis(ms), &places(&[1, 2]), here);
    }
    let rounds = SHOWN.take();
    let second_ms: u128 = (rounds.iter().flatten().flat_map(|load| &load.shards))
        .map(|shard| shard.ran.as_millis())
        .sum();
    // Twice two turns of 410 ms have been told in a second.
    assert_eq!((rounds.len(), second_ms), (1, 1_640));
}

#[test]
fn groups_are_looked_at_one_by_one() {
    // The second worker has a shard of another group, as large as all of this one.
    let model = ShardId {
        group: GroupId(1),
        index: 0,
    };
    let mut scales = Scales::levelling(PERIOD);
    for second in 1..5 {
        told(
            &mut scales,
            &[(1, 0, 100), (1, 1, 100), (2, 2, 100), (2, 3, 100)],
        );
        let time = ShardTime {
            shard: model,
            turns: TURNS,
            ran_ns: 200_000_000 * TURNS,
            bytes: 1,
        };
        scales.on_time(WorkerId(2), &time);
        let at = |shard: ShardId| match shard == model {
            true => Some(ShardLocation::Here(WorkerId(2))),
            false => Some(ShardLocation::Here(owner(shard))),
        };
        let now = Duration::from_secs(second);
        assert_eq!(scales.round(now, &places(&[1, 2]), at), []);
    }
}

#[test]
fn nobody_waits_long_for_who_is_silent() {
    let mut scales = Scales::levelling(PERIOD);
    let here = |shard| Some(ShardLocation::Here(owner(shard)));
    let everybody = [(1, 0, 200), (1, 1, 200), (2, 2, 10)];
    told(&mut scales, &everybody);
    let round = |scales: &mut Scales, second: u64| {
        let now = Duration::from_secs(second);
        scales.round(now, &places(&[1, 2]), here).len()
    };
    assert_eq!(round(&mut scales, 1), 0, "once is noise");
    for second in [2, 3] {
        told(&mut scales, &everybody[..2]);
        assert_eq!(round(&mut scales, second), 0, "the other may tell yet");
    }
    assert_eq!(round(&mut scales, 4), 1);
}
