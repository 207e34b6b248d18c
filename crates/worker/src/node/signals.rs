//! What is decided once for all shards of a job: outcomes of signals, and the ends of outermost loops; and which shards have finished.
//!
//! # States
//! A signal's outcome at a turn is *unknown* and then *known*, the same everywhere and for good (`signals/outcomes.rs`). A loop runs, and *has ended*.
//! A shard *has finished* until the controller was told (`signals/ends.rs`), once wherever it goes later.
//!
//! # Rules
//! * Who decides a signal tells everybody; what comes for the shards here goes to whoever runs them, once.
//! * A signal's broadcast is a hint, never sent again: a tick asks for outcomes that shards here wait for, a few workers each time, and others the next.
//! * The end of a loop is numbered like all that is no hint.
//!
//! # Why nobody waits for ever
//! Who waits for an outcome asks everybody by and by, and whoever has decided it is among them, or has left and told others before. A shard that
//! moves brings along all outcomes that its last holder knew.

mod ends;
mod outcomes;

pub(super) use outcomes::OutcomeRun;

use super::post::Post;
use super::{NodeEffect, NodeError};
use brambling_program::{
    BlockId, LoopId, Plan, Position, ProgramNode, ShardId, Spec, StageId, Turn,
};
use brambling_protocol::WorkerId;
use brambling_protocol::frame::{Body, LoopEnd, News, SignalOutcome, SignalQuery};
use outcomes::Outcomes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What is known of a program's signals and loops, and what the controller was not told yet.
pub(super) struct Signals {
    /// The outermost loops of the program.
    loops: Vec<ProgramNode>,
    /// Outcomes seen. A later form forgets those before the last committed cut.
    outcomes: Outcomes,
    /// By signal, the last turn after which there is a cut, and which.
    cuts: BTreeMap<StageId, (Turn, u64)>,
    ended: BTreeSet<LoopId>,
    /// Shards that have finished, of which the controller was not told yet.
    finished: BTreeSet<ShardId>,
    /// All shards here that have finished.
    over: BTreeSet<ShardId>,
    /// How many of the workers have been asked for outcomes, one after the other.
    asked: usize,
}

impl Signals {
    /// Nothing known of a program yet.
    pub(super) fn new(plan: &Plan) -> Signals {
        let root = &plan.program.spec().blocks[Spec::ROOT.index()];
        let is_loop = |node: &&ProgramNode| body_of(**node).is_some();
        Signals {
            loops: root.iter().filter(is_loop).copied().collect(),
            outcomes: Outcomes::default(),
            cuts: BTreeMap::new(),
            ended: BTreeSet::new(),
            finished: BTreeSet::new(),
            over: BTreeSet::new(),
            asked: 0,
        }
    }

    /// A signal has been given, here or elsewhere.
    pub(super) fn on_signal(
        &mut self,
        post: &mut Post,
        signal: SignalOutcome,
    ) -> Result<(), NodeError> {
        let Position { stage, turn } = signal.position;
        let end = turn.checked_add(1);
        let end = end.ok_or(NodeError::NoTurn(signal.position))?;
        if let Some(cut) = signal
            .cut
            .filter(|_| self.outcomes.get(signal.position).is_none())
        {
            self.cuts.insert(stage, (turn, cut));
            // Before the outcome: who has that looks for the cut.
            post.effects.push(NodeEffect::CutNamed {
                signal: stage,
                turn,
                cut,
            });
        }
        self.learn(post, stage, turn..end, signal.outcome)
    }

    fn learn(
        &mut self,
        post: &mut Post,
        signal: StageId,
        turns: Range<Turn>,
        outcome: bool,
    ) -> Result<(), NodeError> {
        let learnt = self.outcomes.learn(signal, turns.clone(), outcome);
        if learnt.map_err(NodeError::TwoOutcomes)? {
            post.effects.push(NodeEffect::Outcome {
                signal,
                turns,
                outcome,
            });
        }
        Ok(())
    }

    /// The job begins at a cut: these turns of signals are over, and these loops.
    pub(super) fn begin_at(
        &mut self,
        decided: impl IntoIterator<Item = (StageId, Range<Turn>, bool)>,
        ended: impl IntoIterator<Item = LoopId>,
    ) {
        for (signal, turns, outcome) in decided {
            let _ = self.outcomes.learn(signal, turns, outcome);
        }
        self.ended.extend(ended);
    }

    /// All outcomes that are known, as a shard takes them along.
    pub(super) fn runs(&self) -> Vec<OutcomeRun> {
        self.outcomes.runs()
    }

    /// What a shard has brought along.
    pub(super) fn unpack(
        &mut self,
        post: &mut Post,
        shard: ShardId,
        runs: Vec<OutcomeRun>,
    ) -> Result<(), NodeError> {
        for run in runs {
            let (signal, turns, outcome) = run.parts().ok_or(NodeError::State(shard))?;
            self.learn(post, signal, turns, outcome)?;
        }
        Ok(())
    }

    /// Somebody waits for an outcome: who knows it says so.
    pub(super) fn on_query(&self, post: &mut Post, from: WorkerId, query: SignalQuery) {
        let SignalQuery {
            job,
            generation,
            position,
        } = query;
        if let Some(outcome) = self.outcomes.get(position) {
            let signal = SignalOutcome {
                job,
                generation,
                position,
                outcome,
                cut: (self.cuts.get(&position.stage))
                    .and_then(|(turn, cut)| (*turn == position.turn).then_some(*cut)),
            };
            post.hint(from, Body::Signal(signal));
        }
    }

    /// Asks for outcomes that shards here wait for: a few workers, and others the next time.
    pub(super) fn ask(&mut self, post: &mut Post, wanted: impl IntoIterator<Item = Position>) {
        let wanted = wanted.into_iter();
        let unknown = wanted.filter(|it| self.outcomes.get(*it).is_none());
        let unknown: Vec<Position> = unknown.collect();
        let others = post.members.others();
        if unknown.is_empty() || others.is_empty() {
            return;
        }
        let count = post.options.fan_out.clamp(1, others.len());
        let places = (self.asked..self.asked + count).map(|at| at % others.len());
        let asked: Vec<WorkerId> = places.map(|at| others[at]).collect();
        self.asked = (self.asked + count) % others.len();
        let (job, generation) = post.key();
        for position in unknown {
            for to in &asked {
                let query = SignalQuery {
                    job,
                    generation,
                    position,
                };
                post.hint(*to, Body::SignalQuery(query));
            }
        }
    }

    /// An outermost loop has ended for a shard here.
    pub(super) fn announce(&mut self, post: &mut Post, outermost: LoopId) {
        if self.ended.contains(&outermost) {
            return;
        }
        self.end(post, outermost);
        post.spread(&News::LoopEnd(self.end_of(post, outermost)));
    }

    /// One has ended elsewhere.
    pub(super) fn on_loop_end(&mut self, post: &mut Post, end: LoopEnd) -> Result<(), NodeError> {
        let body = |node: &ProgramNode| body_of(*node) == Some(end.body);
        let outermost = self.loops.iter().position(body);
        let outermost = outermost.ok_or(NodeError::UnknownLoop(end.body))?;
        self.end(post, outermost as LoopId);
        Ok(())
    }

    fn end(&mut self, post: &mut Post, outermost: LoopId) {
        if self.ended.insert(outermost) {
            post.effects.push(NodeEffect::LoopEnd(outermost));
        }
    }

    /// The loops that have ended, as a newcomer hears it.
    pub(super) fn ends(&self, post: &Post) -> Vec<LoopEnd> {
        let ended = self.ended.iter();
        ended.map(|it| self.end_of(post, *it)).collect()
    }

    fn end_of(&self, post: &Post, outermost: LoopId) -> LoopEnd {
        let (job, generation) = post.key();
        let node = self.loops[outermost as usize];
        LoopEnd {
            job,
            generation,
            body: body_of(node).expect("a loop"),
            turns: self.turns(node),
        }
    }

    /// How often the body of an outermost loop ran, when its end is announced here.
    fn turns(&self, outermost: ProgramNode) -> Turn {
        match outermost {
            ProgramNode::Repeat { turns, .. } => turns,
            ProgramNode::While { test, .. } => self.outcomes.turns_true(test),
            ProgramNode::Stage(_) | ProgramNode::Branch { .. } => unreachable!("not a loop"),
        }
    }
}

fn body_of(node: ProgramNode) -> Option<BlockId> {
    match node {
        ProgramNode::Repeat { body, .. } | ProgramNode::While { body, .. } => Some(body),
        ProgramNode::Stage(_) | ProgramNode::Branch { .. } => None,
    }
}
