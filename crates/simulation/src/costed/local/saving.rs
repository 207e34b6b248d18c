//! A job that is saved: what its workers say of cuts, and when what they have saved lies in the store.
//!
//! The cuts are the real controller's. A worker's shards give what they have without waiting, as the engine's do; how long writing takes on the worker's link is
//! modelled.

use super::super::Nanos;
use super::super::work::CostedWork;
use super::recovery::StoreCosts;
use super::{Event, GROUPS, Run, shard_id};
use brambling_program::{CutAnswer, CutPlan, DatasetId, GroupState, OutermostLoop, ShardId};
use brambling_protocol::frame::{CutAsk, CutWord, SavedParts, SavedShards};
use brambling_protocol::kept::{CutManifest, StoredPart};
use brambling_protocol::message::{JobCuts, SnapshotEvery};
use std::time::Duration;

/// How a job is saved.
pub(super) struct CostedSaving {
    store: StoreCosts,
    /// A cut that the next outcome of the signal names.
    to_name: Option<u64>,
    /// A cut, and the iteration before which it is.
    named: Option<(u64, u32)>,
    /// A worker dies in the middle of an iteration after the first snapshot.
    is_fatal: bool,
}

impl CostedSaving {
    pub(super) fn new(store: StoreCosts, is_fatal: bool) -> CostedSaving {
        CostedSaving {
            store,
            to_name: None,
            named: None,
            is_fatal,
        }
    }
}

/// Where the job may be saved: a signal ends its loop. As soon as there is a cut it is.
pub(super) fn job_cuts(work: &CostedWork) -> JobCuts {
    let plan = CutPlan {
        shards: vec![work.shards(), 1],
        loops: vec![OutermostLoop {
            turns: None,
            is_crossed: false,
            is_split: false,
            takers: GROUPS.to_vec(),
            free: Vec::new(),
            first_stage: "iterate".into(),
        }],
    };
    JobCuts {
        program: 1,
        plan,
        every: Some(SnapshotEvery::Time(Duration::ZERO)),
    }
}

const MODEL: ShardId = ShardId {
    group: GROUPS[1],
    index: 0,
};

impl Run<'_> {
    /// A worker's shards are asked something.
    pub(super) fn on_cut(&mut self, now: Nanos, worker: u32, ask: &CutAsk) {
        let is_root = worker == self.root();
        let groups = &GROUPS[..1 + usize::from(is_root)];
        let word = match ask {
            CutAsk::Where => {
                let at = Some((0, u64::from(self.iteration)));
                CutWord::Stand(groups.iter().map(|group| (*group, at)).collect())
            }
            CutAsk::Save(order) => CutWord::Told {
                cut: order.cut,
                answer: CutAnswer::Will,
                shards: self.shards_of(worker),
            },
            CutAsk::Name { cut } => {
                if is_root {
                    self.saving.as_mut().expect("a job that is saved").to_name = Some(*cut);
                }
                return;
            }
            // Workers there have parts, or have not.
            CutAsk::Committed { .. } => return,
            CutAsk::Forget => unreachable!("no cut comes to nothing here"),
        };
        let frame = self.workers[worker as usize].of_cut(word);
        self.say(now, worker, frame);
    }

    fn shards_of(&self, worker: u32) -> Vec<ShardId> {
        let resident = self.workers[worker as usize].resident();
        let mut shards: Vec<ShardId> = resident.map(shard_id).collect();
        shards.extend((worker == self.root()).then_some(MODEL));
        shards
    }

    /// The signal's outcome names a cut, if one is to be named.
    pub(super) fn name_cut(&mut self, now: Nanos) {
        let Some(saving) = &mut self.saving else {
            return;
        };
        if let Some(cut) = saving.to_name.take() {
            saving.named = Some((cut, self.iteration));
            let root = self.root();
            self.save(now, root, self.iteration);
        }
    }

    /// A worker knows an outcome that may name a cut: what its shards have goes to the store.
    pub(super) fn save(&mut self, now: Nanos, worker: u32, iteration: u32) {
        let Some(saving) = &self.saving else { return };
        if saving.named.is_none_or(|(_, at)| at != iteration) {
            return;
        }
        let shards = self.workers[worker as usize].resident().count() as u64;
        let bytes = shards * self.scenario.work.shard_bytes;
        let written = now + saving.store.request_ns + self.scenario.network.occupied_ns(bytes);
        self.agenda.note(written, Event::Saved { worker });
    }

    /// They are there.
    pub(super) fn on_worker_saved(&mut self, now: Nanos, worker: u32) {
        let saving = self.saving.as_ref().expect("a job that is saved");
        let (cut, iteration) = saving.named.expect("it was named");
        let bytes = self.scenario.work.shard_bytes;
        let shards = self.shards_of(worker);
        let part = |(place, shard): (u64, &ShardId)| StoredPart {
            dataset: DatasetId(shard.group.0),
            shard: shard.index,
            object: 0,
            start: place * bytes,
            bytes,
            checksum: place,
        };
        let groups = GROUPS.iter().enumerate().map(|(at, group)| SavedShards {
            state: GroupState {
                at: 3 + at as u32,
                entered: vec![1, u64::from(iteration)],
                counters: Vec::new(),
            },
            turns: Some((0, u64::from(iteration) - 1)),
            shards: (shards.iter().copied())
                .filter(|shard| shard.group == *group)
                .collect(),
        });
        let saved = SavedParts {
            cut,
            shards: groups.filter(|it| !it.shards.is_empty()).collect(),
            outcomes: Vec::new(),
            objects: vec![format!("cluster/1/parts/{cut}-g0-w{worker}-0")],
            parts: (0..).zip(&shards).map(part).collect(),
            spent_ns: 0,
        };
        let frame = self.workers[worker as usize].of_cut(CutWord::Saved(saved));
        self.say(now, worker, frame);
    }

    /// All are: the manifest is written.
    pub(super) fn on_all_saved(&mut self, now: Nanos, manifest: Box<CutManifest>) {
        let store = &self.saving.as_ref().expect("a job that is saved").store;
        let bytes = manifest.encode().len() as u64;
        let written = now + store.request_ns + self.scenario.network.occupied_ns(bytes);
        self.agenda.note(written, Event::Committed(manifest));
    }

    /// There is a snapshot.
    pub(super) fn on_committed(&mut self, now: Nanos, manifest: CutManifest) {
        self.control.on_committed(now, manifest);
        self.pass_on(now);
        let saving = self.saving.as_mut().expect("a job that is saved");
        if std::mem::take(&mut saving.is_fatal) {
            let half = self.scenario.work.ideal_ns() / 2.0;
            self.agenda.note(now + half as Nanos, Event::Dies);
        }
    }
}
