//! What destinations have retired, and who hears of it.
//!
//! # Rules
//! * Of an exchange that has many sources all workers hear, handed on from one to the next: sources are everywhere.
//! * Of one that has one source, as a broadcast has, only the worker that holds it hears: of a thousand others each would else tell all.
//!   Such credit goes the way of a piece for that shard, by the versions of its entry: where the shard no longer is, the worker forwards it, and tells
//!   the sender. Otherwise it is noted: the shard is here, or on its way here.
//! * Where every source sends to every destination it waits for the slowest, so shards of one worker tell together, when the slowest of them has
//!   retired as many turns as any of which there is to tell.
//! * As with a piece, who is sent it learns the version that names it, and calls the shard.
//! * A source that moves takes along what was noted where it was, and so does a shard that merges what others send.
//!
//! * What was noted for a source that was to come here, and does not, is sent after it when the map says where it is.
//!
//! So whatever was noted anywhere reaches the source: with it, or behind it by newer and newer versions.

use super::super::{ENTRIES_MAX, one, shards};
use super::{NodeEffect, NodeError, PieceRouting, Post};
use brambling_memory::mutants;
use brambling_program::{ExchangeId, ShardId, Turn};
use brambling_protocol::frame::{Credit, Retired, SourceCredit};
use brambling_protocol::{Entry, EntryRange, WorkerId};
use std::collections::BTreeMap;
use std::ops::Range;

impl PieceRouting {
    /// The job begins at a cut: all destinations have retired so many turns of each exchange.
    pub(crate) fn begin_at(&mut self, post: &Post, turns: &[Turn]) -> Result<(), NodeError> {
        for (exchange, count) in post.relations.destinations() {
            if let Some(turns) = turns.get(exchange.index()) {
                self.credits.on_credit(exchange, 0..count, *turns)?;
            }
        }
        Ok(())
    }

    /// A shard here has retired all turns of an exchange before this one: sources elsewhere are told when it is due.
    pub(crate) fn retired(
        &mut self,
        post: &mut Post,
        shard: ShardId,
        exchange: ExchangeId,
        turns: Turn,
    ) -> Result<(), NodeError> {
        let due = self.due.entry(exchange).or_default();
        due.insert(shard.index, turns);
        self.credit(post, exchange, shard.index..shard.index + 1, turns)
    }

    /// What is due: to where the one source is, or to all.
    pub(crate) fn take_due(&mut self, post: &Post) -> Vec<(Option<Entry>, Credit)> {
        let mut told = Vec::new();
        for (exchange, due) in std::mem::take(&mut self.due) {
            if self.slower_ones_count(post, exchange, &due) {
                // The credit waits for the slower destinations here: then one message tells of all.
                self.due.insert(exchange, due);
                continue;
            }
            for credit in credits_of(post, exchange, &runs(due)) {
                match self.source_of(post, exchange) {
                    Some((shard, source)) if source.owner == post.me() => {
                        match self.router.holder(shard, (post.me(), 0)) {
                            Some(holder) => told.push((Some(holder), credit)),
                            None => self.note(exchange, shard),
                        }
                    }
                    source => told.push((source.map(|(_, entry)| entry), credit)),
                }
            }
        }
        told
    }

    /// Whether a shard here has retired fewer turns than any of which it is due to tell: where all send to all, sources wait for that one.
    fn slower_ones_count(
        &self,
        post: &Post,
        exchange: ExchangeId,
        due: &BTreeMap<u32, Turn>,
    ) -> bool {
        if !post.relations.is_dense(exchange) {
            return false;
        }
        let group = post.relations.destination_group(exchange);
        // A source of a dense exchange waits for its slowest destination, so to tell more than the
        // least helps nobody.
        let least = due.values().copied().min().unwrap_or(0);
        // Destinations are due only every so many turns, so the slower ones are waited for no
        // further than that.
        let least = least - least % (post.options.open_turns / 2).max(1);
        let all = ShardId { group, index: 0 }..=ShardId {
            group,
            index: u32::MAX,
        };
        let mut here = self.router.here_in(all);
        here.any(|shard| self.credits.retired_by(exchange, shard.index) < least)
    }

    /// The one source of an exchange, and where it is as far as known here; none if there are more, or nobody has said where.
    fn source_of(&self, post: &Post, exchange: ExchangeId) -> Option<(ShardId, Entry)> {
        let source = post.relations.only_source(exchange)?;
        let entry = self.entry(source).ok()??;
        Some((source, entry))
    }

    /// Credit has come for an exchange's source, whose version is known here. If it has gone on from here: where it is.
    pub(crate) fn on_source_credit(
        &mut self,
        post: &mut Post,
        from: WorkerId,
        credit: SourceCredit,
    ) -> Result<Option<(Entry, Credit)>, NodeError> {
        let SourceCredit { version, credit } = credit;
        if let Some((source, entry)) = self.source_of(post, credit.exchange) {
            let is_elsewhere = entry.owner != post.me() && entry.version > version;
            let stays = mutants::is_on("credits-stay-behind");
            if is_elsewhere && !self.is_here(source) && !stays {
                post.send_entry(from, one(source, entry));
                return Ok(Some((entry, credit)));
            }
            // A task of the source may wait for this credit before the source leaves its holder.
            if let Some(holder) = self.router.holder(source, (from, version)) {
                return Ok(Some((holder, credit)));
            }
            // Taken and noted: if the source does not come after all, the credit is sent after it.
            self.note(credit.exchange, source);
        }
        self.on_credit(post, credit)?;
        Ok(None)
    }

    /// What is noted of an exchange waits for its source, unless that is here.
    fn note(&mut self, exchange: ExchangeId, source: ShardId) {
        if !self.is_here(source) {
            self.noted.insert(exchange);
        }
    }

    /// After news of the map: what was noted for a source that was to come, and is elsewhere, and where that is.
    pub(crate) fn take_noted(&mut self, post: &Post, update: &EntryRange) -> Vec<(Entry, Credit)> {
        let updated = shards(update);
        let noted = self.noted.iter().filter_map(|exchange| {
            let (source, entry) = self.source_of(post, *exchange)?;
            let is_elsewhere = entry.owner != post.me() && !self.is_here(source);
            (updated.contains(&source) && is_elsewhere).then_some((*exchange, entry))
        });
        let mut taken = Vec::new();
        for (exchange, entry) in noted.collect::<Vec<_>>() {
            self.noted.remove(&exchange);
            let credits = credits_of(post, exchange, &self.told(exchange)).into_iter();
            taken.extend(credits.map(|credit| (entry, credit)));
        }
        taken
    }

    /// Takes down what has been retired.
    pub(crate) fn on_credit(&mut self, post: &mut Post, credit: Credit) -> Result<(), NodeError> {
        post.relations.expect(credit.exchange, credit.group)?;
        for Retired { first, end, turns } in credit.retired {
            self.credit(post, credit.exchange, first..end, turns)?;
        }
        Ok(())
    }

    fn credit(
        &mut self,
        post: &mut Post,
        exchange: ExchangeId,
        destinations: Range<u32>,
        turns: Turn,
    ) -> Result<(), NodeError> {
        self.credits
            .on_credit(exchange, destinations.clone(), turns)?;
        post.effects.push(NodeEffect::Room {
            exchange,
            destinations,
            turns,
        });
        Ok(())
    }

    /// What the shards here have retired, by exchange, as far as was told here.
    pub(crate) fn retired_here(&self, post: &Post) -> Vec<Credit> {
        let mut retired: BTreeMap<ExchangeId, Vec<(u32, Turn)>> = BTreeMap::new();
        for shard in self.router.here() {
            for &exchange in post.relations.to_group(shard.group) {
                let turns = self.credits.retired_by(exchange, shard.index);
                if turns > 0 {
                    let its = retired.entry(exchange).or_default();
                    its.push((shard.index, turns));
                }
            }
        }
        let credits = |(exchange, retired)| credits_of(post, exchange, &runs(retired));
        retired.into_iter().flat_map(credits).collect()
    }

    /// What a shard takes along of what destinations have retired.
    pub(crate) fn credits_along(
        &self,
        post: &Post,
        shard: ShardId,
    ) -> Vec<(ExchangeId, Vec<Retired>)> {
        if mutants::is_on("credits-stay-behind") {
            return Vec::new();
        }
        let exchanges = told_to(post, shard).into_iter();
        exchanges.map(|it| (it, self.told(it))).collect()
    }

    /// What was told here of an exchange.
    fn told(&self, exchange: ExchangeId) -> Vec<Retired> {
        let runs = self.credits.retired(exchange).into_iter();
        let run = |(destinations, turns): (Range<u32>, Turn)| Retired {
            first: destinations.start,
            end: destinations.end,
            turns,
        };
        runs.map(run).collect()
    }

    /// What it has brought along.
    pub(crate) fn unpack_credits(
        &mut self,
        post: &mut Post,
        shard: ShardId,
        credits: Vec<(ExchangeId, Vec<Retired>)>,
    ) -> Result<(), NodeError> {
        let its = told_to(post, shard);
        for (exchange, retired) in credits {
            if !its.contains(&exchange) {
                return Err(NodeError::State(shard));
            }
            self.noted.remove(&exchange);
            for Retired { first, end, turns } in retired {
                self.credit(post, exchange, first..end, turns)?;
            }
        }
        Ok(())
    }
}

/// How many turns destinations have retired, by ascending index: neighbours that have retired as many are one run.
fn runs(destinations: impl IntoIterator<Item = (u32, Turn)>) -> Vec<Retired> {
    let mut runs: Vec<Retired> = Vec::new();
    for (first, turns) in destinations {
        match runs.last_mut() {
            Some(run) if run.end == first && run.turns == turns => run.end += 1,
            _ => runs.push(Retired {
                first,
                end: first + 1,
                turns,
            }),
        }
    }
    runs
}

/// As it is told, in frames that stay small.
fn credits_of(post: &Post, exchange: ExchangeId, runs: &[Retired]) -> Vec<Credit> {
    let (job, generation) = post.key();
    let credit = |retired: &[Retired]| Credit {
        job,
        generation,
        exchange,
        group: post.relations.destination_group(exchange),
        retired: retired.to_vec(),
    };
    runs.chunks(ENTRIES_MAX).map(credit).collect()
}

/// The exchanges of which a shard takes along what was told: it alone sends, or it merges what others send.
fn told_to(post: &Post, shard: ShardId) -> Vec<ExchangeId> {
    let mut exchanges = post.relations.with_only_source(shard);
    exchanges.extend_from_slice(post.relations.merged_by(shard.group));
    exchanges
}
