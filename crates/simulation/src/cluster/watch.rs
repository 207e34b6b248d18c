//! Invariants, asserted while the cluster runs.

use crate::executor::SimulatedView;
use brambling_program::{ExchangeId, LoopId, Plan, Position, ShardId, StageId, Turn};
use brambling_protocol::{PartitionMap, Version, WorkerId};
use brambling_worker::piece_data::{PieceBytes, Taken};
use brambling_worker::{Issue, Surroundings, WINDOW};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const STORY_LINES: usize = 60;

/// One turn of an exchange at one destination.
type Slot = (ShardId, ExchangeId, Turn);

/// What has happened, as far as invariants ask.
pub(super) struct InvariantWatch {
    /// The group of each exchange's destinations.
    leads_to: Vec<Option<brambling_program::GroupId>>,
    /// By worker: the versions that it knows.
    versions: Vec<BTreeMap<ShardId, Version>>,
    /// By destination: what each source sent, or that it sent nothing.
    sent: BTreeMap<Slot, BTreeMap<u32, Option<PieceBytes>>>,
    merged: BTreeSet<Slot>,
    decided: BTreeMap<Position, bool>,
    retired: BTreeSet<(ShardId, u32, Turn)>,
    /// Who was named by a version of an entry.
    owners: BTreeMap<(ShardId, Version), WorkerId>,
    /// Who holds a shard now; nobody while it is on its way.
    holders: BTreeMap<ShardId, WorkerId>,
    /// Shards whose holder has heard that they move.
    flagged: BTreeSet<ShardId>,
    /// Workers that have heard that the job is over.
    ended: BTreeSet<WorkerId>,
    story: VecDeque<String>,
}

impl InvariantWatch {
    pub(super) fn new(plan: &Plan, workers: usize) -> InvariantWatch {
        let leads_to = plan.exchanges.iter();
        InvariantWatch {
            leads_to: leads_to
                .map(|it| it.as_ref().map(|it| it.destination))
                .collect(),
            versions: vec![BTreeMap::new(); workers],
            sent: BTreeMap::new(),
            merged: BTreeSet::new(),
            decided: BTreeMap::new(),
            retired: BTreeSet::new(),
            owners: BTreeMap::new(),
            holders: BTreeMap::new(),
            flagged: BTreeSet::new(),
            ended: BTreeSet::new(),
            story: VecDeque::new(),
        }
    }

    /// A worker joins, which knows nothing.
    pub(super) fn joins(&mut self) {
        self.note(|| "a worker joins".into());
        self.versions.push(BTreeMap::new());
    }

    pub(super) fn note(&mut self, event: impl FnOnce() -> String) {
        if self.story.len() == STORY_LINES {
            self.story.pop_front();
        }
        self.story.push_back(event());
    }

    pub(super) fn story(&self) -> String {
        let mut text = String::from("the story's end:\n");
        self.story
            .iter()
            .for_each(|line| text.extend(["  ", line, "\n"]));
        text
    }

    /// Invariant 1: a shard is in one place at a time.
    pub(super) fn settles(&mut self, id: ShardId, worker: WorkerId) {
        self.note(|| format!("{id} settles on {worker}"));
        let before = self.holders.insert(id, worker);
        assert!(
            before.is_none(),
            "{id} settles on {worker} while {before:?} holds it (invariant 1)"
        );
        self.flagged.remove(&id);
    }

    /// The holder of a shard has heard that it moves.
    pub(super) fn flags(&mut self, id: ShardId, worker: WorkerId) {
        self.note(|| format!("{id} is flagged on {worker}"));
        self.flagged.insert(id);
    }

    /// A worker hears that the job is over.
    pub(super) fn ends(&mut self, worker: WorkerId) {
        self.note(|| format!("{worker} hears that the job is over"));
        assert!(
            self.ended.insert(worker),
            "{worker} hears twice that the job is over"
        );
    }

    /// How many have heard it.
    pub(super) fn ended(&self) -> usize {
        self.ended.len()
    }

    pub(super) fn departs(&mut self, id: ShardId, worker: WorkerId) {
        self.note(|| format!("{id} leaves {worker}"));
        let before = self.holders.remove(&id);
        assert_eq!(
            before,
            Some(worker),
            "{id} leaves where it is not (invariant 1)"
        );
    }

    /// Invariant 1: it runs where it is held. Invariant 6: nothing of it starts once it is flagged, but what a task may wait for that keeps it. Invariant 2: a
    /// shard that runs a stage holds all its datasets.
    pub(super) fn starts(
        &mut self,
        id: ShardId,
        worker: WorkerId,
        (at, is_kept): (Position, bool),
        plan: &Plan,
    ) {
        self.note(|| format!("{id} runs {at} on {worker}"));
        assert_eq!(
            self.holders.get(&id),
            Some(&worker),
            "{id} runs {at} on {worker} (invariant 1)"
        );
        assert!(
            is_kept || !self.flagged.contains(&id),
            "{id} starts {at} after it was flagged (invariant 6)"
        );
        let held = &plan.groups[id.group.index()].datasets;
        for (dataset, _) in &plan.program.spec().stages[at.stage.index()].uses {
            assert!(
                held.contains(dataset),
                "{id} runs {at} without {dataset} (invariant 2)"
            );
        }
    }

    /// Invariant 3: what a worker knows never becomes older. Invariant 1: a version names one owner.
    pub(super) fn map(&mut self, at: usize, map: &PartitionMap) {
        for entries in map.entries() {
            for index in entries.first..entries.end {
                let shard = ShardId {
                    group: entries.group,
                    index,
                };
                let version = entries.entry.version;
                let owner = entries.entry.owner;
                let named = *self.owners.entry((shard, version)).or_insert(owner);
                assert_eq!(
                    named, owner,
                    "{shard} has two owners at version {version} (invariant 1)"
                );
                let before = self.versions[at].insert(shard, version);
                assert!(
                    before.is_none_or(|before| before <= version),
                    "w{at} forgets version {before:?} of {shard} for {version} (invariant 3)"
                );
            }
        }
    }

    pub(super) fn scattered(
        &mut self,
        id: ShardId,
        at: (ExchangeId, Turn),
        related: &[u32],
        pieces: &BTreeMap<u32, PieceBytes>,
    ) {
        let group = self.leads_to[at.0.index()].expect("an exchange that is used");
        for index in related {
            let slot = (
                ShardId {
                    group,
                    index: *index,
                },
                at.0,
                at.1,
            );
            assert!(
                !self.merged.contains(&slot),
                "{slot:?} was merged before {id} sent"
            );
            let piece = pieces.get(index).cloned();
            let before = self.sent.entry(slot).or_default().insert(id.index, piece);
            assert!(
                before.is_none(),
                "{id} sends twice at {slot:?} (invariant 7)"
            );
        }
    }

    /// Invariant 4: a gather gets what every source sent, once, in the order of sources; what was merged on its way shows in the results.
    /// Invariant 12: all of it is counted.
    pub(super) fn merged(
        &mut self,
        id: ShardId,
        at: (ExchangeId, Turn),
        (fan_in, is_combined): (usize, bool),
        taken: &[(u32, Taken)],
        counted_bytes: u64,
    ) {
        let slot = (id, at.0, at.1);
        assert!(
            self.merged.insert(slot),
            "{slot:?} is merged twice (invariant 4)"
        );
        let sent = self.sent.remove(&slot).unwrap_or_default();
        assert_eq!(
            sent.len(),
            fan_in,
            "{slot:?} is merged before all have sent (invariant 4)"
        );
        let bytes: u64 = taken.iter().map(|(_, piece)| piece.bytes()).sum();
        assert!(
            bytes <= counted_bytes,
            "{slot:?} has {bytes} bytes, but {counted_bytes} are counted (invariant 12)"
        );
        if is_combined {
            let mut sources = taken.iter().map(|(source, _)| *source);
            assert!(
                sources.clone().is_sorted() && sources.all(|it| sent.contains_key(&it)),
                "{slot:?} merges what nobody sent (invariant 4)"
            );
            return;
        }
        let expected = sent
            .iter()
            .filter_map(|(source, piece)| Some((*source, piece.as_deref()?)));
        let found = taken
            .iter()
            .map(|(source, piece)| (*source, piece.to_vec()));
        assert!(
            expected
                .map(|(source, bytes)| (source, bytes.to_vec()))
                .eq(found),
            "{slot:?} merges other pieces than were sent (invariant 4)"
        );
    }

    pub(super) fn decided(&mut self, at: Position, outcome: bool) {
        self.note(|| format!("{at} is {outcome}"));
        let before = self.decided.insert(at, outcome);
        assert!(before.is_none(), "{at} is given twice (invariant 7)");
    }

    /// Invariant 7: a position of a shard retires once.
    pub(super) fn retired(&mut self, id: ShardId, issue: Issue) {
        let position = (id, issue.task, issue.turn);
        assert!(
            self.retired.insert(position),
            "{position:?} retires twice (invariant 7)"
        );
    }

    /// One place beyond the window is for what waits for a completion.
    pub(super) fn window(&self, id: ShardId, stalled: usize) {
        assert!(
            stalled <= WINDOW + 1,
            "{id} looks past {stalled} stalled instructions"
        );
    }

    pub(super) fn around<'a>(&'a mut self, around: SimulatedView<'a>) -> Watched<'a> {
        Watched {
            around,
            watch: self,
        }
    }

    /// Every piece has been merged.
    pub(super) fn at_rest(&self) {
        assert!(
            self.sent.is_empty(),
            "pieces are left: {:?}",
            self.sent.keys().next()
        );
    }
}

/// What a shard sees, and the watch with it.
pub(super) struct Watched<'a> {
    around: SimulatedView<'a>,
    watch: &'a mut InvariantWatch,
}

impl Surroundings for Watched<'_> {
    fn is_complete(&mut self, exchange: ExchangeId, turn: Turn) -> bool {
        self.around.is_complete(exchange, turn)
    }

    fn has_room(&mut self, exchange: ExchangeId, turn: Turn) -> bool {
        self.around.has_room(exchange, turn)
    }

    /// Invariant 5: whoever sees an outcome sees the one that was given there.
    fn outcome(&mut self, signal: StageId, turn: Turn) -> Option<bool> {
        let outcome = self.around.outcome(signal, turn)?;
        let position = Position {
            stage: signal,
            turn,
        };
        let given = self.watch.decided.get(&position);
        assert_eq!(
            given,
            Some(&outcome),
            "another branch at {position} (invariant 5)"
        );
        Some(outcome)
    }

    fn has_ended(&mut self, outermost: LoopId) -> bool {
        self.around.has_ended(outermost)
    }

    fn announce(&mut self, outermost: LoopId) {
        self.around.announce(outermost);
    }
}
