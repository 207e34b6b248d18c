//! Orders the cuts of a job, and knows when one is complete (keeper of invariant 8). Pure: what shards say goes in, [`SnapshotEffect`]s come out.
//!
//! # Rules
//! * One cut is open at a time.
//! * A cut of a counted loop is ordered ahead of all shards: the fastest may not come to it before all have heard. One that has passed it makes the cut
//!   void, and the next is ordered further ahead.
//! * A cut is complete when each shard of each group has saved, and all shards of a group stood at one place. What is saved twice counts once.
//! * A snapshot exists when whoever carries out [`SnapshotEffect::Commit`] has made its manifest. What a void cut has written is deleted.

use brambling_memory::mutants;
use brambling_program::{
    CutAnswer, CutPlan, CutStates, CutTurn, GroupId, GroupState, LoopId, ShardId, Turn,
};
pub use brambling_protocol::message::SnapshotEvery;
use std::collections::BTreeMap;
use std::time::Duration;

/// Shards are asked twice where they stand, so long apart: that tells how fast the fastest is.
const LOOK: Duration = Duration::from_millis(50);
/// After a store has failed it is left alone for so long at least; and a cut that is open so long is worth a word.
const PAUSE: Duration = Duration::from_secs(1);
/// The margin doubles with each cut that somebody has passed, up to this.
const MARGIN_MAX: u64 = 1 << 16;
/// What saving threads may take of the time, as they measure it themselves: half of the 3 % that saving may cost. As much again goes where none of them measures: to caches and
/// memory that they share with tasks, to whoever makes manifests, and to workers of one machine that save at once on the same CPUs.
const SHARE_MAX: f64 = 0.015;

/// What has to be done.
#[derive(Clone, PartialEq, Debug)]
pub enum SnapshotEffect {
    /// Ask all shards where they stand.
    Look,
    /// Tell all shards of a cut.
    Order {
        /// Its number.
        cut: u64,
        /// The loop.
        outermost: LoopId,
        /// The turn.
        turn: CutTurn,
        /// Groups whose shards save each for itself.
        free: Vec<GroupId>,
    },
    /// All shards have been told of a cut whose turn a signal names: the next outcome may.
    Name(u64),
    /// Tell all shards that there is no cut.
    Forget,
    /// All is saved: make the manifest.
    Commit {
        /// The cut.
        cut: u64,
        /// Where all stand.
        states: CutStates,
    },
    /// Delete what was saved for a cut.
    Discard(u64),
    /// Tell people.
    Tell(SnapshotNotice),
}

/// What people are told, once each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnapshotNotice {
    /// A turn of the loop that begins with this stage takes longer than there is to be between snapshots.
    LongTurn(String),
    /// An exchange is open across the loop that begins with this stage: it has no cuts.
    Crossed(String),
    /// The loop that begins with this stage is several that have nothing to do with each other, or its signal waits for nobody.
    Split(String),
    /// The program has no loop.
    NoLoop,
}

impl SnapshotNotice {
    /// As people are told it, of a job of this name.
    pub fn words(&self, name: &str) -> String {
        match self {
            SnapshotNotice::LongTurn(stage) => format!(
                "`{name}` is saved less often than snapshot_every asks: a turn of the loop that begins with `{stage}` takes longer"
            ),
            SnapshotNotice::Crossed(stage) => format!(
                "`{name}` is not saved in the loop that begins with `{stage}`: an exchange is open across it; gather before the loop"
            ),
            SnapshotNotice::Split(stage) => format!(
                "`{name}` is not saved in the loop that begins with `{stage}`: parts of it exchange nothing with the others, or its signal follows from nothing that they send; write those as loops of their own"
            ),
            SnapshotNotice::NoLoop => format!(
                "`{name}` has no loop at whose turns it could be saved: only its results are kept"
            ),
        }
    }
}

/// The loop of a cut, and the turns done of it, by those that have done the fewest. A shard of it stands where a turn ends: that turn is done as
/// well. `turn_of` knows the turns done where a group stands. None where groups that exchange something there stand at different turns, which none do.
pub fn place(
    plan: &CutPlan,
    outermost: LoopId,
    states: &CutStates,
    turn_of: impl Fn(GroupId, &GroupState) -> Option<(LoopId, Turn)>,
) -> Option<(LoopId, Turn)> {
    let done = |group: GroupId, state: &GroupState| match turn_of(group, state) {
        Some((of, done)) if of == outermost => Some(done + 1),
        _ => None,
    };
    let of = plan.loops.get(outermost as usize)?;
    let is_tied = |group: &&GroupId| !of.free.contains(group);
    let tied = of.takers.iter().filter(is_tied);
    let mut tied = tied.map(|group| done(*group, &states.groups[group.index()]));
    if let Some(first) = tied.next() {
        return tied.all(|its| its == first).then_some((outermost, first?));
    }
    let groups = of.takers.iter();
    let groups = groups.filter_map(|group| done(*group, &states.groups[group.index()]));
    let shards = states.shards.iter();
    let shards = shards.filter_map(|(shard, state)| done(shard.group, state));
    // All of them have left it.
    let turns = groups.chain(shards).min().or(of.turns);
    Some((outermost, turns.unwrap_or(0)))
}

struct OpenCut {
    id: u64,
    /// Whether it was ordered so many turns ahead.
    is_ahead: bool,
    /// Whether a signal names its turn.
    is_signalled: bool,
    outermost: LoopId,
    since: Duration,
    /// By group and shard: those that have said that they will save.
    told: Vec<Vec<bool>>,
    untold: u64,
    /// By group.
    states: Vec<Option<GroupState>>,
    /// Of shards that stand for themselves.
    own: BTreeMap<ShardId, GroupState>,
    /// By group and shard.
    saved: Vec<Vec<bool>>,
    left: u64,
}

enum Phase {
    /// No cut before this time.
    Idle(Duration),
    /// How fast is the fastest?
    Looking {
        asked: Duration,
        first: Option<(LoopId, Turn)>,
        /// Whether any shard has answered, and the furthest.
        heard: bool,
        furthest: Option<(LoopId, Turn)>,
    },
    Open(OpenCut),
    /// The manifest is being made, of a cut that was ordered at a time.
    Committing {
        cut: u64,
        since: Duration,
    },
}

/// The cuts of one job.
pub struct Snapshots {
    plan: CutPlan,
    every: SnapshotEvery,
    phase: Phase,
    next_id: u64,
    margin: u64,
    /// Outermost loops that have ended: somebody has left each of them, and others may not have.
    ended: Vec<bool>,
    /// Turns done of the loop at the last snapshot.
    last: Option<(LoopId, Turn)>,
    told: Vec<SnapshotNotice>,
    /// Somebody waits for the next one.
    hurries: bool,
    effects: Vec<SnapshotEffect>,
}

impl Snapshots {
    /// Of a job that begins now. `from`: the number of the cut at which it begins, with turns done.
    pub fn new(
        plan: CutPlan,
        every: SnapshotEvery,
        from: Option<(u64, LoopId, Turn)>,
    ) -> Snapshots {
        let (cut, last) = from.map_or((0, None), |(cut, outermost, turns)| {
            (cut, Some((outermost, turns)))
        });
        Snapshots {
            ended: vec![false; plan.loops.len()],
            plan,
            every,
            phase: Phase::Idle(every.time()),
            next_id: cut + 1,
            margin: 1,
            last,
            told: Vec::new(),
            hurries: false,
            effects: Vec::new(),
        }
    }

    /// What has to be done now, in order.
    pub fn take_effects(&mut self) -> Vec<SnapshotEffect> {
        std::mem::take(&mut self.effects)
    }

    /// The open cut.
    pub fn open(&self) -> Option<u64> {
        match &self.phase {
            Phase::Open(open) => Some(open.id),
            Phase::Idle(_) | Phase::Looking { .. } | Phase::Committing { .. } => None,
        }
    }

    /// The last cut that was ordered, whatever has become of it, or the number after which they are counted.
    pub fn last_given(&self) -> u64 {
        self.next_id - 1
    }

    /// Time passes.
    pub fn on_tick(&mut self, now: Duration) {
        if self.every == SnapshotEvery::Off {
            return;
        }
        match &self.phase {
            Phase::Idle(until) if now >= *until => match self.plan.loops.is_empty() {
                true => self.tell(SnapshotNotice::NoLoop),
                false => self.look(now, None),
            },
            Phase::Looking {
                asked,
                first,
                heard,
                furthest,
            } if now >= *asked + LOOK && *heard => {
                let (first, furthest) = (*first, *furthest);
                self.decide(now, first, furthest);
            }
            Phase::Open(open) => {
                let (since, outermost) = (open.since, open.outermost);
                let is_late = now > since + self.every.time().max(PAUSE);
                // So many turns ahead it may well be open for long.
                if is_late && self.every_turns().is_none() {
                    let stage = self.plan.loops[outermost as usize].first_stage.clone();
                    self.tell(SnapshotNotice::LongTurn(stage));
                }
            }
            Phase::Idle(_) | Phase::Looking { .. } | Phase::Committing { .. } => {}
        }
    }

    fn every_turns(&self) -> Option<u64> {
        if self.hurries {
            return None;
        }
        match self.every {
            SnapshotEvery::Turns(turns) => Some(turns),
            SnapshotEvery::Off | SnapshotEvery::Time(_) => None,
        }
    }

    fn tell(&mut self, notice: SnapshotNotice) {
        if !self.told.contains(&notice) {
            self.told.push(notice.clone());
            self.effects.push(SnapshotEffect::Tell(notice));
        }
    }

    fn look(&mut self, asked: Duration, first: Option<(LoopId, Turn)>) {
        self.effects.push(SnapshotEffect::Look);
        self.phase = Phase::Looking {
            asked,
            first,
            heard: false,
            furthest: None,
        };
    }

    /// A shard says where it stands: turns done of an outermost loop, or between loops.
    pub fn on_stands(&mut self, shard: ShardId, at: Option<(LoopId, Turn)>) {
        // Those that run as they like say nothing of the others, unless there are none.
        let is_one_of_some = |outermost: LoopId| {
            let of = self.plan.loops.get(outermost as usize);
            // Of a loop that there is not, nothing is believed.
            of.is_none_or(|of| of.free.contains(&shard.group) && of.free.len() < of.takers.len())
        };
        if at.is_some_and(|(outermost, _)| is_one_of_some(outermost)) {
            return;
        }
        if let Phase::Looking {
            heard, furthest, ..
        } = &mut self.phase
        {
            *heard = true;
            *furthest = (*furthest).max(at);
        }
    }

    /// Why a loop has no cuts.
    fn refusal(&self, outermost: LoopId) -> Option<SnapshotNotice> {
        let of = &self.plan.loops[outermost as usize];
        let stage = || of.first_stage.clone();
        match (of.is_crossed, of.is_split) {
            (true, _) => Some(SnapshotNotice::Crossed(stage())),
            (_, true) => Some(SnapshotNotice::Split(stage())),
            (false, false) => None,
        }
    }

    fn decide(
        &mut self,
        now: Duration,
        first: Option<(LoopId, Turn)>,
        furthest: Option<(LoopId, Turn)>,
    ) {
        // Between loops: soon there may be one.
        let Some((outermost, done)) = furthest else {
            return self.look(now, None);
        };
        if self.ended[outermost as usize] {
            self.phase = Phase::Idle(now + PAUSE);
            return;
        }
        if let Some(notice) = self.refusal(outermost) {
            self.tell(notice);
            self.phase = Phase::Idle(now + self.every.time().max(LOOK));
            return;
        }
        let of = &self.plan.loops[outermost as usize];
        let last = self.last.filter(|(of, _)| *of == outermost);
        let last = last.map_or(0, |(_, turns)| turns);
        if of.free.len() == of.takers.len() {
            let due = last.saturating_add(self.every_turns().unwrap_or(0));
            return match done + 1 >= due {
                true => self.order(now, outermost, CutTurn::Next),
                false => self.look(now, None),
            };
        }
        let (turns, before) = (of.turns, first.filter(|(of, _)| *of == outermost));
        let Some(turns) = turns else {
            // Whoever gives the signal knows the turn.
            return match self.every {
                SnapshotEvery::Turns(each)
                    if done + 1 < last.saturating_add(each) && !self.hurries =>
                {
                    self.look(now, furthest)
                }
                _ => self.order(now, outermost, CutTurn::Signalled),
            };
        };
        let Some((_, before)) = before else {
            return self.look(now, furthest);
        };
        let ahead = 1 + 2 * (done - before.min(done)) * self.margin;
        let mut after = done + ahead.max(self.margin + 1);
        if let SnapshotEvery::Turns(each) = self.every
            && !self.hurries
        {
            let each = each.max(1);
            after = after
                .max(last.saturating_add(each))
                .div_ceil(each)
                .saturating_mul(each);
        }
        match after < turns {
            true => self.order(now, outermost, CutTurn::After(after)),
            // The loop is about to end, and another may come.
            false => self.look(now, furthest),
        }
    }

    fn order(&mut self, since: Duration, outermost: LoopId, turn: CutTurn) {
        let id = self.next_id;
        self.next_id += 1;
        let shards = &self.plan.shards;
        let free = self.plan.loops[outermost as usize].free.clone();
        let none: Vec<Vec<bool>> = shards
            .iter()
            .map(|count| vec![false; *count as usize])
            .collect();
        let all = shards.iter().map(|count| u64::from(*count)).sum();
        self.phase = Phase::Open(OpenCut {
            id,
            is_ahead: matches!(turn, CutTurn::After(_)),
            is_signalled: turn == CutTurn::Signalled,
            outermost,
            since,
            told: none.clone(),
            untold: all,
            own: BTreeMap::new(),
            states: vec![None; shards.len()],
            saved: none,
            left: all,
        });
        self.effects.push(SnapshotEffect::Order {
            cut: id,
            outermost,
            turn,
            free,
        });
    }

    /// A shard has been told of a cut.
    pub fn on_answer(&mut self, now: Duration, cut: u64, answer: CutAnswer) {
        let Phase::Open(open) = &self.phase else {
            return;
        };
        if open.id == cut && answer == CutAnswer::Past {
            // Where the loop has ended, no turn of it is far enough ahead.
            if open.is_ahead && !self.ended[open.outermost as usize] {
                self.margin = (self.margin * 2).min(MARGIN_MAX);
            }
            self.void(now + self.pause(), cut);
        }
    }

    /// A shard has been told of a cut, and will save there. Where a signal names the turn, that may only happen when all have been told.
    pub fn on_will(&mut self, cut: u64, shard: ShardId) {
        let Phase::Open(open) = &mut self.phase else {
            return;
        };
        if open.id != cut {
            return;
        }
        let told = &mut open.told[shard.group.index()][shard.index as usize];
        if !std::mem::replace(told, true) {
            open.untold -= 1;
            let is_first = mutants::is_on("cuts-are-named-early") && open.untold + 1 == open.left;
            if (open.untold == 0 || is_first) && open.is_signalled {
                self.effects.push(SnapshotEffect::Name(cut));
            }
        }
    }

    /// The next cut does not wait for its time.
    pub fn hurry(&mut self) {
        if let Phase::Idle(until) = &mut self.phase {
            *until = Duration::ZERO;
        }
        // Nor for its turn.
        self.hurries = true;
    }

    /// The open cut comes to nothing, for a reason that is not its own.
    pub fn give_up(&mut self, now: Duration) {
        if let Phase::Open(open) = &self.phase {
            let cut = open.id;
            self.void(now + PAUSE, cut);
        }
    }

    /// Between a cut that came to nothing and the next: the more of them, the longer.
    fn pause(&self) -> Duration {
        let margin = u32::try_from(self.margin).unwrap_or(u32::MAX);
        LOOK.saturating_mul(margin)
            .min(self.every.time().max(PAUSE))
    }

    /// The cut comes to nothing, and another is ordered at once, or at a time.
    fn void(&mut self, until: Duration, cut: u64) {
        self.effects.push(SnapshotEffect::Forget);
        self.effects.push(SnapshotEffect::Discard(cut));
        self.phase = Phase::Idle(until);
    }

    /// A shard's part of a cut is in the store. False where its place is not that of its group's other shards: then the cut is void.
    pub fn on_saved(&mut self, now: Duration, cut: u64, shard: ShardId, state: GroupState) -> bool {
        let Phase::Open(open) = &mut self.phase else {
            return true;
        };
        if open.id != cut {
            return true;
        }
        let of_group = open.states[shard.group.index()].get_or_insert_with(|| state.clone());
        if *of_group != state {
            if !self.plan.loops[open.outermost as usize]
                .free
                .contains(&shard.group)
            {
                self.void(now, cut);
                return false;
            }
            open.own.insert(shard, state);
        }
        let saved = &mut open.saved[shard.group.index()][shard.index as usize];
        if !std::mem::replace(saved, true) {
            open.left -= 1;
        }
        if open.left == u64::from(mutants::is_on("commits-incomplete-cuts")) {
            let states = open.states.iter().cloned().map(Option::unwrap_or_default);
            let states = CutStates {
                groups: states.collect(),
                shards: std::mem::take(&mut open.own),
            };
            let since = open.since;
            self.phase = Phase::Committing { cut, since };
            self.effects.push(SnapshotEffect::Commit { cut, states });
        }
        true
    }

    /// The manifest is made, of a cut after so many turns. Saving took so long of the threads' time.
    pub fn on_committed(&mut self, now: Duration, at: (LoopId, Turn), cost: Duration) {
        let Phase::Committing { since, .. } = self.phase else {
            return;
        };
        self.last = Some(at);
        self.hurries = false;
        self.margin = (self.margin / 2).max(1);
        let stretched = cost.div_f64(SHARE_MAX);
        self.phase = Phase::Idle((since + self.every.time().max(stretched)).max(now));
    }

    /// Something of a cut could not be written: it is void, and the next comes when it would have.
    pub fn on_failed(&mut self, now: Duration, cut: u64) {
        let until = now + self.every.time().max(PAUSE);
        match &self.phase {
            Phase::Open(open) if open.id == cut => self.void(until, cut),
            // What could not be written of an earlier cut says nothing of this one.
            Phase::Committing { cut: its, .. } if *its == cut => {
                self.effects.push(SnapshotEffect::Discard(cut));
                self.phase = Phase::Idle(until);
            }
            Phase::Open(_) | Phase::Idle(_) | Phase::Looking { .. } | Phase::Committing { .. } => {}
        }
    }

    /// An outermost loop has ended. A cut that its signal was to name, and never named, is void.
    pub fn on_loop_ended(&mut self, now: Duration, outermost: LoopId) {
        self.ended[outermost as usize] = true;
        let Phase::Open(open) = &self.phase else {
            return;
        };
        let takers = &self.plan.loops[outermost as usize].takers;
        // Who announces a loop's end has saved before it, if there was a cut.
        let is_named = takers
            .iter()
            .any(|group| open.states[group.index()].is_some());
        if open.outermost == outermost && !is_named {
            let cut = open.id;
            self.void(now, cut);
        }
    }
}
