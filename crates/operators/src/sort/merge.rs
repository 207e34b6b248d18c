//! Merges sorted runs that come block by block.
//!
//! Whoever drives a [`Merge`] reads the runs: it gives each run's next block when asked to, and
//! takes merged bytes out. Equal keys come in the order of the runs, unless the merge is unstable.

use super::format::RecordFormat;
use super::layout::{RecordLayout, with_layout};
use std::cmp::Ordering;
use std::hint::select_unpredictable;
use std::ops::Deref;

/// What a merge needs, or has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeStep {
    /// The room is full.
    Full,
    /// This run's next block must come first ([`Merge::give`]), or its end ([`Merge::end`]).
    Needs(usize),
    /// All runs have ended and everything has been taken out.
    Done,
}

/// Sorted runs on their way into one. `B` is a block of a run. Records may go over its end.
#[derive(Debug)]
pub struct Merge<B> {
    format: RecordFormat,
    runs: Vec<MergedRun<B>>,
    /// A tournament: at 0 stands the run whose record comes next, at each other node the run that
    /// lost there. The leaves are the runs, behind the nodes.
    nodes: Vec<Player>,
    phase: Phase,
    /// Equal keys come in the order of the runs.
    is_stable: bool,
    /// Bytes of the next record that have been taken out.
    written: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Runs lack their first record.
    Begin,
    /// The run at 0 has another record than that with which it won.
    Replay,
    /// The record of the run at 0 comes next.
    Won,
}

/// A run in the tournament, with the prefix of its record's key.
#[derive(Clone, Copy, Debug)]
struct Player {
    prefix: u64,
    run: u32,
}

#[derive(Debug)]
struct MergedRun<B> {
    block: Option<B>,
    /// Where in the block what has not been merged begins.
    at: usize,
    /// A record that began in an earlier block: its bytes so far, then all of it.
    joined: Vec<u8>,
    head: Head,
}

/// The record with which a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// None yet: a block has to come.
    Missing,
    /// It lies in the block, up to here.
    InBlock(usize),
    /// It is in `joined`, and whole.
    Joined,
    /// The run has no more.
    Ended,
}

impl<B: Deref<Target = [u8]>> Merge<B> {
    /// So many runs, none of whose blocks has come.
    pub fn new(format: RecordFormat, runs: usize) -> Merge<B> {
        let run = |_| MergedRun {
            block: None,
            at: 0,
            joined: Vec::new(),
            head: Head::Missing,
        };
        Merge {
            format,
            runs: (0..runs).map(run).collect(),
            nodes: vec![Player { prefix: 0, run: 0 }; runs],
            phase: Phase::Begin,
            is_stable: true,
            written: 0,
        }
    }

    /// As [`Merge::new`]; equal keys come in any order, and are compared no further.
    pub fn unstable(format: RecordFormat, runs: usize) -> Merge<B> {
        Merge {
            is_stable: false,
            ..Merge::new(format, runs)
        }
    }

    /// The block of a run that needs the next one, if it had one: to be read into again.
    pub fn take_spent(&mut self, run: usize) -> Option<B> {
        let run = &mut self.runs[run];
        match run.head {
            Head::Missing | Head::Ended => run.block.take(),
            Head::InBlock(_) | Head::Joined => None,
        }
    }

    /// The next block of a run that needs one. Returns the one before, unless it was taken.
    ///
    /// # Panics
    /// When the run needs none.
    pub fn give(&mut self, run: usize, block: B) -> Option<B> {
        let run = &mut self.runs[run];
        assert!(run.head == Head::Missing, "a run is given what it lacks");
        let spent = run.block.replace(block);
        run.at = 0;
        with_layout!(self.format, layout => run.seek(layout));
        spent
    }

    /// A run that needs a block has no more.
    ///
    /// # Panics
    /// When the run needs none, and when it ends within a record.
    pub fn end(&mut self, run: usize) {
        let run = &mut self.runs[run];
        assert!(
            run.head == Head::Missing,
            "a run ends when it lacks a block"
        );
        assert!(run.joined.is_empty(), "a run ends within a record");
        run.head = Head::Ended;
    }

    /// Merges into `out`, and says how many bytes and why no more. The next call goes on where this
    /// one stopped, within a record too.
    pub fn fill(&mut self, out: &mut [u8]) -> (usize, MergeStep) {
        with_layout!(self.format, layout => self.fill_with(layout, out))
    }

    fn fill_with<L: RecordLayout>(&mut self, layout: L, out: &mut [u8]) -> (usize, MergeStep) {
        let mut filled = 0;
        if self.runs.is_empty() {
            return (0, MergeStep::Done);
        }
        if self.phase == Phase::Begin {
            let missing = self.runs.iter().position(|run| run.head == Head::Missing);
            if let Some(run) = missing {
                return (0, MergeStep::Needs(run));
            }
            self.build(layout);
        }
        loop {
            let first = self.nodes[0].run as usize;
            if self.phase == Phase::Replay {
                if self.runs[first].head == Head::Missing {
                    return (filled, MergeStep::Needs(first));
                }
                self.replay(layout, first);
                continue;
            }
            let run = &mut self.runs[first];
            if run.head == Head::Ended {
                return (filled, MergeStep::Done);
            }
            let record = run.record();
            let rest = &record[self.written..];
            let room = &mut out[filled..];
            if rest.len() > room.len() {
                room.copy_from_slice(&rest[..room.len()]);
                self.written += room.len();
                return (out.len(), MergeStep::Full);
            }
            match self.written {
                0 => layout.copy(record, &mut room[..record.len()]),
                _ => room[..rest.len()].copy_from_slice(rest),
            }
            filled += rest.len();
            self.written = 0;
            run.advance(layout);
            self.phase = Phase::Replay;
        }
    }

    fn player<L: RecordLayout>(&self, layout: L, run: usize) -> Player {
        let prefix = match self.runs[run].head {
            Head::Ended => u64::MAX,
            _ => layout.prefix(self.runs[run].record()),
        };
        Player {
            prefix,
            run: run as u32,
        }
    }

    /// Plays all games.
    fn build<L: RecordLayout>(&mut self, layout: L) {
        let count = self.runs.len();
        let mut winners: Vec<Player> = vec![self.nodes[0]; count];
        winners.extend((0..count).map(|run| self.player(layout, run)));
        for node in (1..count).rev() {
            let (a, b) = (winners[2 * node], winners[2 * node + 1]);
            let (winner, loser) = match self.beats(layout, a, b) {
                true => (a, b),
                false => (b, a),
            };
            winners[node] = winner;
            self.nodes[node] = loser;
        }
        // With one run the leaf is the only node.
        self.nodes[0] = winners[1];
        self.phase = Phase::Won;
    }

    /// Plays the games of a run's path again.
    #[inline(always)]
    fn replay<L: RecordLayout>(&mut self, layout: L, run: usize) {
        let mut player = self.player(layout, run);
        let mut node = (self.runs.len() + run) / 2;
        while node > 0 {
            let other = self.nodes[node];
            // Who wins is as good as random: a branch would be mispredicted at every other game.
            let wins = self.beats(layout, other, player);
            self.nodes[node] = select_unpredictable(wins, player, other);
            player = select_unpredictable(wins, other, player);
            node /= 2;
        }
        self.nodes[0] = player;
        self.phase = Phase::Won;
    }

    #[inline(always)]
    fn beats<L: RecordLayout>(&self, layout: L, a: Player, b: Player) -> bool {
        match a.prefix == b.prefix {
            false => a.prefix < b.prefix,
            true => self.beats_on_tie(layout, a, b),
        }
    }

    #[inline(never)]
    fn beats_on_tie<L: RecordLayout>(&self, layout: L, a: Player, b: Player) -> bool {
        let [one, other] = [a, b].map(|player| &self.runs[player.run as usize]);
        // A key of ones has the prefix of a run that has ended.
        match (one.head == Head::Ended, other.head == Head::Ended) {
            (false, false) => {}
            (ended, _) => return !ended,
        }
        let order = match layout.prefix_decides() {
            true => Ordering::Equal,
            false => layout.compare(one.record(), other.record()),
        };
        match self.is_stable {
            true => order.then(a.run.cmp(&b.run)) == Ordering::Less,
            false => order == Ordering::Less,
        }
    }
}

impl<B: Deref<Target = [u8]>> MergedRun<B> {
    #[inline(always)]
    fn record(&self) -> &[u8] {
        match (self.head, &self.block) {
            (Head::InBlock(end), Some(block)) => &block[self.at..end],
            (Head::Joined, _) => &self.joined,
            _ => unreachable!("a run without a record is in no game"),
        }
    }

    /// Goes on to the next record.
    #[inline(always)]
    fn advance<L: RecordLayout>(&mut self, layout: L) {
        match self.head {
            Head::InBlock(end) => self.at = end,
            _ => self.joined.clear(),
        }
        self.seek(layout);
    }

    /// Looks for the record at which the run stands.
    #[inline(always)]
    fn seek<L: RecordLayout>(&mut self, layout: L) {
        let Some(block) = &self.block else {
            self.head = Head::Missing;
            return;
        };
        if self.joined.is_empty()
            && let Some(end) = layout.end(block, self.at)
        {
            self.head = Head::InBlock(end);
            return;
        }
        let piece = &block[self.at..];
        let missing = layout.missing(&self.joined, piece);
        let end = missing.unwrap_or(piece.len());
        self.joined.extend_from_slice(&piece[..end]);
        self.at += end;
        self.head = match missing {
            Some(_) => Head::Joined,
            None => Head::Missing,
        };
    }
}
