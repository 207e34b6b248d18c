//! A controller whose job is saved: it asks the workers' shards for cuts, gathers what they say of what lies in the store, and says when a snapshot may exist. Which
//! cut comes when is the job's [`Snapshots`]'.
//!
//! # Rules
//! * A cut and a move take turns. No cut is ordered while a shard is on its way, and an order to move makes an open cut void; balancing waits for one
//!   for [`MOVES_WAIT`]. So while a cut is open every shard is saved by the worker that was told of it.
//! * Completeness counts shards. Who has saved them does not matter.
//! * What is said of a cut that is not open changes nothing.

use crate::snapshots::{SnapshotEffect, SnapshotEvery, Snapshots, place};
use crate::{Controller, ControllerEffect, ControllerError};
use brambling_memory::mutants;
use brambling_program::{
    Cut, CutAnswer, CutPlan, CutStates, GroupId, GroupState, LoopId, ShardId, StageId, Turn,
};
use brambling_protocol::frame::{
    Body, CutAsk, CutCall, CutOrder, CutReply, CutWord, SavedParts, SavedShards,
};
use brambling_protocol::kept::{CutManifest, StoredPart};
use brambling_protocol::{JobKey, PartitionMap, WorkerId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Balancing waits so long for an open cut. Shorter: a cluster that levels itself is seldom saved. Longer: where turns are long, nothing is levelled.
pub const MOVES_WAIT: Duration = Duration::from_secs(1);

/// How a job is saved.
#[derive(Clone, Debug)]
pub struct SnapshotSetup {
    /// The program, by its hash.
    pub program: u128,
    /// Its name.
    pub name: String,
    /// Where it may be saved.
    pub plan: CutPlan,
    /// How often it is.
    pub every: SnapshotEvery,
    /// The snapshot at which it begins.
    pub base: Option<CutManifest>,
    /// Cuts have larger numbers: those of earlier controllers and generations are not given again.
    pub after: u64,
}

/// The cuts of a controller's job.
pub(crate) struct Cuts {
    machine: Snapshots,
    setup: SnapshotSetup,
    /// Of the cut that is open, or is being committed.
    open: Gathered,
    /// When it was first told the time.
    began: Option<Duration>,
    /// How long that is ago.
    now: Duration,
    /// Who has copies of what was saved: where shards were at the newest snapshot, or began.
    savers: PartitionMap,
    /// The same of the cut that is being committed.
    committing: Option<PartitionMap>,
}

/// Where shards of a group stand, and the turns done there of an outermost loop.
type Stood = (GroupId, GroupState, Option<(LoopId, Turn)>);

/// What workers have said of a cut.
#[derive(Default)]
struct Gathered {
    cut: u64,
    outermost: LoopId,
    since: Duration,
    objects: Vec<String>,
    parts: Vec<StoredPart>,
    outcomes: BTreeMap<StageId, bool>,
    /// Turns done where shards stand.
    stood: Vec<Stood>,
    /// How long saving took on each worker.
    spent: BTreeMap<WorkerId, Duration>,
    /// Turns done at the cut.
    at: (LoopId, Turn),
}

impl Gathered {
    /// The loop of the cut, and the turns that are done of it.
    fn place(&self, plan: &CutPlan, states: &CutStates) -> Option<(LoopId, Turn)> {
        place(plan, self.outermost, states, |group, state| {
            let is_it = |(of, its, _): &&Stood| *of == group && its == state;
            self.stood
                .iter()
                .find(is_it)
                .and_then(|(_, _, turns)| *turns)
        })
    }

    fn add(&mut self, from: WorkerId, saved: &SavedParts) {
        let before = self.objects.len() as u32;
        self.objects.extend(saved.objects.iter().cloned());
        let parts = saved.parts.iter();
        self.parts.extend(parts.map(|part| StoredPart {
            object: part.object + before,
            ..*part
        }));
        self.outcomes.extend(saved.outcomes.iter().copied());
        *self.spent.entry(from).or_default() += Duration::from_nanos(saved.spent_ns);
    }

    fn stand(&mut self, saved: &SavedShards, group: GroupId) {
        let is_it = |(of, its, _): &Stood| *of == group && *its == saved.state;
        if !self.stood.iter().any(is_it) {
            self.stood.push((group, saved.state.clone(), saved.turns));
        }
    }
}

impl Controller {
    /// The job is saved from now on.
    pub fn keep(&mut self, setup: SnapshotSetup) {
        let from = setup.base.as_ref().map(|base| {
            let outermost = match base.at {
                Cut::LoopTop(outermost) => outermost,
                Cut::Start | Cut::End => 0,
            };
            (base.cut.max(setup.after), outermost, base.turns)
        });
        let from = from.or(Some((setup.after, 0, 0)));
        let machine = Snapshots::new(setup.plan.clone(), setup.every, from);
        self.cuts = Some(Box::new(Cuts {
            machine,
            setup,
            open: Gathered::default(),
            began: None,
            now: Duration::ZERO,
            savers: self.map.clone(),
            committing: None,
        }));
    }

    /// The time passes: orders a cut when it is due. To be called many times a second.
    pub fn snapshot(&mut self, now: Duration) {
        // A shard on its way would save nowhere, or twice.
        let is_still = self.moves.is_empty() || mutants::is_on("cuts-come-while-shards-move");
        let is_at_rest = is_still && self.leaving.is_empty() && !self.is_over();
        let Some(cuts) = &mut self.cuts else { return };
        let began = *cuts.began.get_or_insert(now);
        cuts.now = now.saturating_sub(began);
        if is_at_rest || cuts.machine.open().is_some() {
            cuts.machine.on_tick(cuts.now);
        }
        self.carry_out_cuts();
    }

    /// The manifest of a cut exists, as [`ControllerEffect::Commit`] asked.
    pub fn on_committed(&mut self, manifest: CutManifest) {
        let Some(cuts) = self.cuts.as_mut().filter(|it| it.open.cut == manifest.cut) else {
            return;
        };
        let spent = cuts.open.spent.values().max().copied();
        let at = cuts.open.at;
        cuts.setup.base = Some(manifest);
        if let Some(savers) = cuts.committing.take() {
            cuts.savers = savers;
        }
        let cut = cuts.open.cut;
        cuts.machine
            .on_committed(cuts.now, at, spent.unwrap_or_default());
        self.ask_all(CutAsk::Committed { cut });
        self.carry_out_cuts();
    }

    /// Who had better have which shard if the job begins again: who has copies of what was saved. A shard that has moved since left its copy behind.
    pub(crate) fn savers(&self) -> &PartitionMap {
        self.cuts.as_ref().map_or(&self.map, |cuts| &cuts.savers)
    }

    /// How long the last cut was open, until now.
    pub fn saved_for(&self) -> Duration {
        let cuts = self.cuts.as_ref();
        cuts.map_or(Duration::ZERO, |it| it.now.saturating_sub(it.open.since))
    }

    /// The next cut is ordered as soon as it can be.
    pub fn hurry(&mut self) {
        if let Some(cuts) = &mut self.cuts {
            cuts.machine.hurry();
        }
    }

    /// It could not be made.
    pub fn on_uncommitted(&mut self, cut: u64) {
        if let Some(cuts) = &mut self.cuts {
            cuts.machine.on_failed(cuts.now, cut);
        }
        self.carry_out_cuts();
    }

    /// The cut at which the newest snapshot was taken, and the turns of its loop that were done.
    pub fn last_cut(&self) -> Option<(u64, Turn)> {
        let base = self.cuts.as_ref()?.setup.base.as_ref()?;
        Some((base.cut, base.turns))
    }

    /// The last number that a cut has had: the job's next generation gives larger ones, so that what this one has left in the store is never taken for another's.
    pub fn last_given(&self) -> u64 {
        let cuts = self.cuts.as_ref();
        cuts.map_or(0, |it| it.machine.last_given())
    }

    /// Whether balancing had better wait for a cut.
    pub(crate) fn is_saving(&self) -> bool {
        let cuts = self.cuts.as_ref();
        cuts.is_some_and(|it| it.machine.open().is_some() && it.now < it.open.since + MOVES_WAIT)
    }

    /// A shard is to move: an open cut comes to nothing.
    pub(crate) fn give_up_cut(&mut self) {
        if mutants::is_on("cuts-outlive-moves") {
            return;
        }
        if let Some(cuts) = &mut self.cuts {
            cuts.machine.give_up(cuts.now);
        }
        self.carry_out_cuts();
    }

    pub(crate) fn on_cut_reply(
        &mut self,
        from: WorkerId,
        reply: CutReply,
    ) -> Result<(), ControllerError> {
        if JobKey::new(reply.job, reply.generation) != self.key {
            return Ok(());
        }
        self.expect_shards(from, &reply.what)?;
        let Some(cuts) = &mut self.cuts else {
            return Ok(());
        };
        let now = cuts.now;
        match reply.what {
            CutWord::Stand(furthest) => {
                for (group, at) in furthest {
                    cuts.machine.on_stands(ShardId { group, index: 0 }, at);
                }
            }
            CutWord::Told {
                cut,
                answer,
                shards,
            } => match answer {
                CutAnswer::Past => cuts.machine.on_answer(now, cut, answer),
                CutAnswer::Will => {
                    let shards = shards.into_iter();
                    shards.for_each(|shard| cuts.machine.on_will(cut, shard));
                }
            },
            CutWord::Ended(outermost) => cuts.machine.on_loop_ended(now, outermost),
            CutWord::Saved(saved) => cuts.on_saved(from, saved),
            CutWord::Unsaved { cut, why } => {
                if cuts.machine.open() == Some(cut) {
                    let text = format!(
                        "on worker {from}: no snapshot was taken, and the job goes on: {why}"
                    );
                    self.effects.push(ControllerEffect::Say(text));
                }
                cuts.machine.on_failed(now, cut);
            }
        }
        self.carry_out_cuts();
        Ok(())
    }

    /// What no honest worker says is not believed.
    fn expect_shards(&self, worker: WorkerId, what: &CutWord) -> Result<(), ControllerError> {
        let is_there = |shard: &ShardId| shard.index < self.map.shards(shard.group);
        let loops = self.cuts.as_ref().map_or(0, |it| it.setup.plan.loops.len());
        let is_loop = |outermost: LoopId| (outermost as usize) < loops;
        let fits = match what {
            CutWord::Stand(furthest) => furthest.iter().all(|(group, at)| {
                self.map.shards(*group) > 0 && at.is_none_or(|(outermost, _)| is_loop(outermost))
            }),
            CutWord::Told { shards, .. } => shards.iter().all(is_there),
            CutWord::Ended(outermost) => is_loop(*outermost),
            CutWord::Saved(saved) => {
                let objects = saved.objects.len() as u32;
                let mut shards = saved.shards.iter().flat_map(|it| &it.shards);
                shards.all(is_there) && saved.parts.iter().all(|it| it.object < objects)
            }
            CutWord::Unsaved { .. } => true,
        };
        match fits {
            true => Ok(()),
            false => Err(ControllerError::NoSuchShards { worker }),
        }
    }

    /// Does what the machine asks for.
    fn carry_out_cuts(&mut self) {
        loop {
            let Some(cuts) = &mut self.cuts else { return };
            let effects = cuts.machine.take_effects();
            if effects.is_empty() {
                return;
            }
            effects.into_iter().for_each(|it| self.carry_out_cut(it));
        }
    }

    fn carry_out_cut(&mut self, effect: SnapshotEffect) {
        let Some(cuts) = &mut self.cuts else { return };
        let ask = match effect {
            SnapshotEffect::Look => CutAsk::Where,
            SnapshotEffect::Forget => CutAsk::Forget,
            SnapshotEffect::Name(cut) => CutAsk::Name { cut },
            SnapshotEffect::Order {
                cut,
                outermost,
                turn,
                free,
            } => {
                cuts.open = Gathered {
                    cut,
                    outermost,
                    since: cuts.now,
                    ..Gathered::default()
                };
                let base = cuts.setup.base.as_ref().map(|base| base.states.clone());
                return self.tell_cut(CutOrder {
                    cut,
                    outermost,
                    turn,
                    free,
                    base,
                });
            }
            SnapshotEffect::Commit { cut, states } => {
                let effect = cuts.commit(cut, states);
                return match effect {
                    Some(manifest) => {
                        cuts.committing = Some(self.map.clone());
                        self.effects.push(ControllerEffect::Commit(manifest));
                    }
                    None => {
                        self.effects.push(ControllerEffect::Say(DEFECT.into()));
                        self.on_uncommitted(cut);
                    }
                };
            }
            SnapshotEffect::Discard(cut) => {
                return self.effects.push(ControllerEffect::Discard(cut));
            }
            SnapshotEffect::Tell(notice) => {
                let text = notice.words(&cuts.setup.name);
                return self.effects.push(ControllerEffect::Say(text));
            }
        };
        self.ask_all(ask);
    }

    fn ask_all(&mut self, what: CutAsk) {
        let call = self.cut_call(what);
        for to in self.workers.keys().copied().collect::<Vec<_>>() {
            self.send(to, &call);
        }
    }

    fn cut_call(&self, what: CutAsk) -> Body<'static> {
        Body::CutCall(CutCall {
            job: self.key.job,
            generation: self.key.generation,
            what,
        })
    }

    /// Tells all of a cut. Shards that stood for themselves may be as many as there are: each worker hears of its own, none of which is on its way.
    fn tell_cut(&mut self, mut order: CutOrder) {
        let own = order
            .base
            .as_mut()
            .map(|base| std::mem::take(&mut base.shards));
        let mut of_workers: BTreeMap<WorkerId, BTreeMap<ShardId, GroupState>> = BTreeMap::new();
        for (shard, state) in own.into_iter().flatten() {
            if let Ok(Some(entry)) = self.map.entry(shard) {
                let its = of_workers.entry(entry.owner).or_default();
                its.insert(shard, state);
            }
        }
        for to in self.workers.keys().copied().collect::<Vec<_>>() {
            if let Some(base) = &mut order.base {
                base.shards = of_workers.remove(&to).unwrap_or_default();
            }
            let call = self.cut_call(CutAsk::Save(order.clone()));
            self.send(to, &call);
        }
    }
}

/// What is told of a cut at which shards stood at different turns.
const DEFECT: &str = "a snapshot was not taken: shards stood at different turns of one cut; this is a defect, please report it";

impl Cuts {
    fn on_saved(&mut self, from: WorkerId, saved: SavedParts) {
        if self.machine.open() != Some(saved.cut) {
            return;
        }
        self.open.add(from, &saved);
        for of in saved.shards {
            for shard in &of.shards {
                self.open.stand(&of, shard.group);
                let fits = self
                    .machine
                    .on_saved(self.now, saved.cut, *shard, of.state.clone());
                debug_assert!(fits, "{DEFECT}");
            }
        }
    }

    /// The manifest of a cut that is complete. None where groups stand at different turns, which none do.
    fn commit(&mut self, cut: u64, states: CutStates) -> Option<Box<CutManifest>> {
        let (outermost, turns) = self.open.place(&self.setup.plan, &states)?;
        self.open.at = (outermost, turns);
        let mut manifest = CutManifest {
            program: self.setup.program,
            name: self.setup.name.clone(),
            cut,
            at: Cut::LoopTop(outermost),
            turns,
            states,
            outcomes: std::mem::take(&mut self.open.outcomes)
                .into_iter()
                .collect(),
            sources: Vec::new(),
            objects: std::mem::take(&mut self.open.objects),
            parts: std::mem::take(&mut self.open.parts),
            results: None,
        };
        let base = self.setup.base.as_ref();
        if let Some(base) = base.filter(|_| !mutants::is_on("manifests-forget-their-base")) {
            manifest.fill_from(base);
        }
        Some(Box::new(manifest))
    }
}
