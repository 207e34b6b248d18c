//! A random program that saves at cuts, and begins again from what was saved, gives what the sequential interpreter gives.
//!
//! Catches a save that is early, late or incomplete, a payload that is written after it was saved, and a job that begins at a cut with
//! exchanges, signals or ends of loops that are one off. Says nothing about files.

use brambling_memory::held;
use brambling_program::{
    Cut, CutAnswer, CutStates, CutTurn, DatasetId, GroupState, LoopId, Plan, ShardId, StageId,
    Value,
};
use brambling_simulation::{RandomProgram, Results, interpret, random_program, seeds};
use brambling_worker::executor::{
    Capture, CapturedValue, CutKeeper, CutQuestion, CutRequest, Job, JobOptions, Pool, QuietCaller,
    Restored,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// Asks for a cut, and for another when all have come to it.
struct Keeper {
    plan: Arc<Plan>,
    outermost: LoopId,
    job: OnceLock<Weak<Job>>,
    /// The first cut is given up when a shard has come to it.
    gives_up: bool,
    cuts: Mutex<Vec<Saved>>,
}

/// What was saved at a cut.
#[derive(Debug, Default)]
struct Saved {
    past: u32,
    captures: Vec<Capture>,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keeper")
    }
}

impl Keeper {
    fn shards(&self) -> usize {
        self.plan.counts.iter().sum::<u32>() as usize
    }

    /// Where the groups stand at a cut that is complete.
    fn states(&self, saved: &Saved) -> Option<CutStates> {
        if saved.past > 0 || saved.captures.len() < self.shards() {
            return None;
        }
        let free = &self.plan.cut_plan().loops[self.outermost as usize].free;
        let mut groups = vec![None; self.plan.codes.len()];
        let mut shards = BTreeMap::new();
        for Capture { shard, state, .. } in &saved.captures {
            let of_group: &mut &GroupState = groups[shard.group.index()].get_or_insert(state);
            if *of_group != state {
                let is_free = free.contains(&shard.group);
                assert!(
                    is_free,
                    "all of a group stand at one place: {of_group:?}, {state:?}"
                );
                shards.insert(*shard, state.clone());
            }
        }
        let groups = groups
            .into_iter()
            .map(|state| state.expect("each has shards").clone());
        let groups = groups.collect();
        Some(CutStates { groups, shards })
    }

    fn request(&self, id: u64, base: Option<CutStates>, after: u64) -> Option<CutQuestion> {
        let turn = match self.plan.loop_turns(self.outermost) {
            Some(turns) if after < turns => CutTurn::After(after),
            Some(_) => return None,
            None => CutTurn::Signalled,
        };
        Some(CutQuestion::Save(CutRequest {
            id,
            outermost: self.outermost,
            turn,
            free: self.plan.cut_plan().loops[self.outermost as usize]
                .free
                .clone(),
            base: base.map(Arc::new),
        }))
    }
}

impl CutKeeper for Keeper {
    fn stands(&self, _: ShardId, _: GroupState) {
        unreachable!("nobody asks where shards stand")
    }

    fn answered(&self, cut: u64, _: ShardId, answer: CutAnswer) {
        if answer == CutAnswer::Past {
            held::lock(&self.cuts)[cut as usize].past += 1;
        }
    }

    fn captured(&self, cut: u64, capture: Capture) {
        let mut cuts = held::lock(&self.cuts);
        let after = capture.state.counters.iter().max().copied().unwrap_or(0);
        cuts[cut as usize].captures.push(capture);
        let base = match self.gives_up {
            false => self.states(&cuts[cut as usize]),
            true => None,
        };
        if (self.gives_up || base.is_some()) && cuts.len() < 2 {
            cuts.push(Saved::default());
            drop(cuts);
            let job = self.job.get().and_then(Weak::upgrade);
            // A turn or two ahead: some may have passed it.
            if let (Some(job), Some(question)) = (job, self.request(cut + 1, base, after + 2)) {
                if self.gives_up {
                    job.ask(CutQuestion::Forget);
                }
                job.ask(question);
            }
        }
    }
}

fn options() -> JobOptions {
    JobOptions {
        stall: Duration::from_secs(20),
        ..JobOptions::default()
    }
}

fn run(
    (seed, plan): (u64, &Plan),
    pool: &Pool,
    options: JobOptions,
    begin: impl FnOnce(&Arc<Job>),
) -> Job {
    let mut job = Job::new(plan.clone(), pool.parkers(), options);
    begin(&job);
    if let Err(failure) = pool.run(&job, &mut QuietCaller) {
        panic!("seed {seed}: {failure}\n{}", plan.program.spec());
    }
    loop {
        match Arc::try_unwrap(job) {
            Ok(job) => return job,
            Err(shared) => job = shared,
        }
        std::thread::yield_now();
    }
}

fn results(random: &RandomProgram, job: &mut Job) -> Results {
    let mut results = Results::default();
    for (dataset, spec) in random.program.spec().datasets.iter().enumerate() {
        let id = DatasetId(dataset as u32);
        let count = job.plan().counts[job.plan().group_of_dataset[dataset].index()];
        for index in (0..count).filter(|_| spec.keep) {
            results.add(dataset, index, job.value(id, index));
        }
    }
    results
}

fn outcomes(plan: &Plan, job: &Job) -> Vec<(StageId, bool)> {
    let stages = (0..plan.program.spec().stages.len() as u32).map(StageId);
    let outcome = |stage| Some((stage, job.first_outcome(stage)?));
    stages.filter_map(outcome).collect()
}

/// How many cuts were complete, and begun at.
fn check(seed: u64, pools: &[Pool]) -> usize {
    let random = random_program(seed);
    let program = Arc::new(random.program.clone());
    let plan = Plan::compile(program, &random.bindings()).expect("random programs are valid");
    let loops: Vec<LoopId> = plan
        .cuts
        .iter()
        .filter_map(|cut| match cut {
            Cut::LoopTop(outermost) => Some(*outermost),
            Cut::Start | Cut::End => None,
        })
        .collect();
    let Some(&outermost) = loops.get(seed as usize % loops.len().max(1)) else {
        return 0;
    };
    let expected = interpret(&random.program, &random.symbols);
    let same = |job: &mut Job, what: &str| {
        if let Some(difference) = results(&random, job).difference(&expected, &random.program) {
            let spec = random.program.spec();
            panic!("seed {seed}, {what}:\n{difference}\n{spec}");
        }
    };
    let keeper = Arc::new(Keeper {
        plan: Arc::new(plan.clone()),
        outermost,
        job: OnceLock::new(),
        gives_up: seed % 4 == 3,
        cuts: Mutex::new(vec![Saved::default()]),
    });
    let pool = &pools[seed as usize % pools.len()];
    let Some(question) = keeper.request(0, None, 1) else {
        return 0;
    };
    let cuts = Some(keeper.clone() as Arc<dyn CutKeeper>);
    let mut job = run(
        (seed, &plan),
        pool,
        JobOptions { cuts, ..options() },
        |job| {
            let _ = keeper.job.set(Arc::downgrade(job));
            job.ask(question);
        },
    );
    same(&mut job, "the run that saves");
    let outcomes = outcomes(&plan, &job);
    drop(job);
    let mut values: BTreeMap<(DatasetId, u32), Value> = BTreeMap::new();
    let mut begun = 0;
    let cuts = std::mem::take(&mut *held::lock(&keeper.cuts));
    for (number, saved) in cuts.into_iter().enumerate() {
        if number == 0 && keeper.gives_up {
            continue;
        }
        let Some(states) = keeper.states(&saved) else {
            // A counted loop has each of its turns.
            let is_counted = plan.loop_turns(outermost).is_some();
            assert!(number > 0 || !is_counted, "seed {seed}: an incomplete cut");
            break;
        };
        for capture in saved.captures {
            for (dataset, value) in capture.values {
                let value = match value {
                    CapturedValue::Shared(value) => value,
                    CapturedValue::Encoded(bytes) => {
                        let bytes = bytes.expect("objects of the tests can be kept");
                        let table = plan.program.payload_type(dataset);
                        Value::decode(table, &mut &bytes[..]).expect("as it was encoded")
                    }
                };
                values.insert((dataset, capture.shard.index), value);
            }
        }
        let cut = Cut::LoopTop(outermost);
        let restored = Restored::new(&plan, cut, states, outcomes.clone(), values.clone(), |_| {
            true
        });
        let restored = Some(Arc::new(restored.expect("all was saved")));
        let options = JobOptions {
            restored,
            ..options()
        };
        let mut job = run((seed, &plan), pool, options, |_| {});
        same(&mut job, "the run from the cut");
        begun += 1;
    }
    begun
}

fn pools() -> Vec<Pool> {
    let pool = |threads| Pool::new(threads, threads > 2).unwrap();
    (1..=3).map(pool).collect()
}

#[test]
fn what_is_saved_at_a_cut_is_a_beginning() {
    let pools = pools();
    let (mut first, mut second, mut all) = (0, 0, 0);
    for seed in seeds(4_000) {
        let begun = check(seed, &pools);
        (first, second) = (
            first + usize::from(begun > 0),
            second + usize::from(begun > 1),
        );
        all += 1;
    }
    assert!(
        all < 1_000 || first * 4 > all && second * 40 > all,
        "{first}, {second} of {all}"
    );
}

/// Whoever runs tasks has the mutant: the pool's threads.
#[cfg(feature = "mutants")]
#[test]
fn mutants_of_cuts_are_caught() {
    use brambling_memory::mutants::on_every_thread;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let pools = pools();
    for name in ["cuts-count-one-more", "saves-early", "writers-copy-nothing"] {
        let _on = on_every_thread(name);
        let all = || (0..2_000).for_each(|seed| drop(check(seed, &pools)));
        assert!(
            catch_unwind(AssertUnwindSafe(all)).is_err(),
            "nobody notices {name}"
        );
    }
}
