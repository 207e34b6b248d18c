//! What saves a member's shards at cuts: it writes what they give into a store in memory, and tells the controller. As the engine's, it is slow at times.

use crate::store::{Put, Store};
use brambling_program::{
    CutAnswer, GroupId, GroupState, LoopId, Rng, ShardId, Spec, StageId, StageKind, Turn,
};
use brambling_protocol::frame::{CutWord, SavedParts, SavedShards};
use brambling_protocol::kept::{StoredPart, checksum};
use brambling_worker::executor::{Capture, CapturedValue, CutKeeper, Job};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

enum Said {
    Stands(ShardId, GroupState),
    Answered(u64, ShardId, CutAnswer),
    Captured(u64, Capture),
}

/// What a job's threads say, on its way to the saver.
struct Mailbox(Mutex<Sender<Said>>);

impl Mailbox {
    fn put(&self, said: Said) {
        // Nobody listens any more when the generation is over.
        let _ = self.0.lock().unwrap().send(said);
    }
}

impl std::fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mailbox")
    }
}

impl CutKeeper for Mailbox {
    fn stands(&self, shard: ShardId, at: GroupState) {
        self.put(Said::Stands(shard, at));
    }

    fn answered(&self, cut: u64, shard: ShardId, answer: CutAnswer) {
        self.put(Said::Answered(cut, shard, answer));
    }

    fn captured(&self, cut: u64, capture: Capture) {
        self.put(Said::Captured(cut, capture));
    }
}

/// Saves a member's shards.
pub struct Saver {
    said: Receiver<Said>,
    /// Tells its objects from those of others, and of other generations.
    by: String,
    made: u32,
    stand: BTreeMap<GroupId, Option<(LoopId, Turn)>>,
    will: BTreeMap<u64, Vec<ShardId>>,
    captures: Vec<(u64, Capture)>,
    ended: BTreeSet<LoopId>,
    /// The last cut of which its shards were told.
    pub told: Option<u64>,
    /// The last cut of which one of them has saved.
    pub saved: Option<u64>,
}

impl Saver {
    pub fn new(by: String) -> (Saver, Arc<dyn CutKeeper>) {
        let (sender, said) = channel();
        let saver = Saver {
            said,
            by,
            made: 0,
            stand: BTreeMap::new(),
            will: BTreeMap::new(),
            captures: Vec::new(),
            ended: BTreeSet::new(),
            told: None,
            saved: None,
        };
        (saver, Arc::new(Mailbox(Mutex::new(sender))))
    }

    /// Goes on, or does not yet: one time in so many.
    pub fn step(&mut self, job: &Job, store: &mut Store, (random, slow): (&mut Rng, u64)) {
        let plan = job.plan();
        let mut passed = BTreeSet::new();
        for said in self.said.try_iter() {
            match said {
                Said::Stands(shard, at) => {
                    let at = plan.turn_of(shard.group, &at);
                    let furthest = self.stand.entry(shard.group).or_default();
                    *furthest = (*furthest).max(at);
                }
                Said::Answered(cut, _, CutAnswer::Past) => drop(passed.insert(cut)),
                Said::Answered(cut, shard, CutAnswer::Will) => {
                    self.told = Some(cut);
                    self.will.entry(cut).or_default().push(shard);
                }
                Said::Captured(cut, capture) => self.captures.push((cut, capture)),
            }
        }
        for cut in passed {
            job.tell_cut(told(cut, CutAnswer::Past, Vec::new()));
        }
        if random.below(slow) > 0 {
            return;
        }
        if !self.stand.is_empty() {
            let stand = std::mem::take(&mut self.stand).into_iter();
            job.tell_cut(CutWord::Stand(stand.collect()));
        }
        for (cut, shards) in std::mem::take(&mut self.will) {
            job.tell_cut(told(cut, CutAnswer::Will, shards));
        }
        if !self.captures.is_empty() {
            self.save(job, store, random);
        }
        self.tell_ends(job);
    }

    /// Writes an object of what has come of one cut, or of some of it.
    fn save(&mut self, job: &Job, store: &mut Store, random: &mut Rng) {
        let plan = job.plan();
        let cut = self.captures[0].0;
        self.saved = self.saved.max(Some(cut));
        let count = 1 + random.below(self.captures.len() as u64) as usize;
        let of_cut = self.captures.iter().take_while(|it| it.0 == cut).count();
        let mut saved = SavedParts {
            cut,
            shards: Vec::new(),
            outcomes: root_outcomes(job),
            objects: vec![format!("{cut}-{}-{}", self.by, self.made)],
            parts: Vec::new(),
            spent_ns: random.below(1 << 16),
        };
        self.made += 1;
        let mut object = Vec::new();
        for (_, capture) in self.captures.drain(..count.min(of_cut)) {
            let ShardId { group, index } = capture.shard;
            for (dataset, value) in &capture.values {
                let start = object.len();
                match value {
                    CapturedValue::Shared(value) => value.encode(&mut object),
                    CapturedValue::Encoded(bytes) => {
                        object.extend_from_slice(bytes.as_ref().expect("objects can be kept"));
                    }
                }
                saved.parts.push(StoredPart {
                    dataset: *dataset,
                    shard: index,
                    object: 0,
                    start: start as u64,
                    bytes: (object.len() - start) as u64,
                    checksum: checksum(&object[start..]),
                });
            }
            saved.shards.push(SavedShards {
                turns: plan.turn_of(group, &capture.state),
                state: capture.state.clone(),
                shards: vec![capture.shard],
            });
        }
        match store.put(saved.objects[0].clone(), object, random) {
            Put::Made => job.tell_cut(CutWord::Saved(saved)),
            Put::Refused => {
                // What came of another cut is still to be saved.
                self.captures.retain(|(of, _)| *of != cut);
                let why = "the store is full".into();
                job.tell_cut(CutWord::Unsaved { cut, why });
            }
        }
    }

    /// Whether it has not told everything yet.
    pub fn is_saving(&self, job: &Job) -> bool {
        !(self.captures.is_empty() && self.will.is_empty()) || self.untold_end(job).is_some()
    }

    /// A loop that has ended, of which it has not told that.
    fn untold_end(&self, job: &Job) -> Option<LoopId> {
        let is_untold = |it: &LoopId| job.has_ended(*it) && !self.ended.contains(it);
        (0..job.plan().loops).find(is_untold)
    }

    fn tell_ends(&mut self, job: &Job) {
        while let Some(outermost) = self.untold_end(job) {
            self.ended.insert(outermost);
            job.tell_cut(CutWord::Ended(outermost));
        }
    }
}

fn told(cut: u64, answer: CutAnswer, shards: Vec<ShardId>) -> CutWord {
    CutWord::Told {
        cut,
        answer,
        shards,
    }
}

/// Outcomes of signals of the program's own block, as far as they are known.
fn root_outcomes(job: &Job) -> Vec<(StageId, bool)> {
    let stages = (0..).map(StageId).zip(&job.plan().program.spec().stages);
    let is_root = |kind, block| kind == StageKind::Signal && block == Spec::ROOT;
    let signals = stages.filter(|(_, stage)| is_root(stage.kind, stage.block));
    let outcome = |(id, _)| Some((id, job.first_outcome(id)?));
    signals.filter_map(outcome).collect()
}
