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

use super::{ENTRIES_MAX, Effect, Node, NodeError};
use brambling_memory::mutants;
use brambling_program::{ExchangeId, ShardId, Turn};
use brambling_protocol::frame::{Body, Credit, MapUpdate, News, Retired, SourceCredit};
use brambling_protocol::{Entry, EntryRange, Priority, WorkerId};
use std::collections::BTreeMap;
use std::ops::Range;

impl Node {
    /// Tells what is due.
    pub(super) fn tell_retired(&mut self) {
        for (exchange, due) in std::mem::take(&mut self.due) {
            if self.slower_ones_count(exchange, &due) {
                self.due.insert(exchange, due);
                continue;
            }
            for credit in self.credits_of(exchange, due) {
                match self.source_of(exchange) {
                    Some((shard, source)) if source.owner == self.options.me => {
                        match self.router.holder(shard, (self.options.me, 0)) {
                            Some(holder) => self.send_credit(holder, credit),
                            None => self.note(exchange, shard),
                        }
                    }
                    Some((_, source)) => self.send_credit(source, credit),
                    None => self.spread(self.options.peers.clone(), &News::Credit(credit)),
                }
            }
        }
    }

    /// Whether a shard here has retired fewer turns than any of which it is due to tell: where all send to all, sources wait for that one.
    fn slower_ones_count(&self, exchange: ExchangeId, due: &BTreeMap<u32, Turn>) -> bool {
        if !self.relations.is_dense(exchange) {
            return false;
        }
        let group = self.relations.destination_group(exchange);
        let least = due.values().copied().min().unwrap_or(0);
        // Others say so only at every so many turns.
        let least = least - least % (self.options.open_turns / 2).max(1);
        let all = ShardId { group, index: 0 }..=ShardId {
            group,
            index: u32::MAX,
        };
        let mut here = self.router.here_in(all);
        here.any(|shard| self.credits.retired_by(exchange, shard.index) < least)
    }

    /// Tells how many turns of an exchange destinations have retired, by ascending index.
    pub(super) fn credits_of(
        &self,
        exchange: ExchangeId,
        destinations: impl IntoIterator<Item = (u32, Turn)>,
    ) -> Vec<Credit> {
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
        let credit = |retired: &[Retired]| Credit {
            job: self.options.job,
            generation: self.options.generation,
            exchange,
            group: self.relations.destination_group(exchange),
            retired: retired.to_vec(),
        };
        runs.chunks(ENTRIES_MAX).map(credit).collect()
    }

    /// The one source of an exchange, and where it is as far as known here; none if there are more, or nobody has said where.
    fn source_of(&self, exchange: ExchangeId) -> Option<(ShardId, Entry)> {
        let source = self.relations.only_source(exchange)?;
        let entry = self.map().entry(source).ok()??;
        Some((source, entry))
    }

    fn send_credit(&mut self, source: Entry, credit: Credit) {
        let version = source.version;
        let body = Body::SourceCredit(SourceCredit { version, credit });
        self.send(source.owner, Priority::FIRST, &body);
    }

    pub(super) fn on_source_credit(
        &mut self,
        from: WorkerId,
        credit: SourceCredit,
    ) -> Result<(), NodeError> {
        let SourceCredit { version, credit } = credit;
        self.expect_exchange(credit.exchange, credit.group)?;
        if let Some(source) = self.relations.only_source(credit.exchange) {
            // Who sent it knows that the version names this worker, which calls the shard then.
            self.learn_version(source, version)?;
        }
        let Some((source, entry)) = self.source_of(credit.exchange) else {
            return self.on_credit(credit);
        };
        let is_elsewhere = entry.owner != self.options.me && entry.version > version;
        if is_elsewhere && !self.router.is_here(source) && !mutants::is_on("credits-stay-behind") {
            let ShardId { group, index } = source;
            let (first, end) = (index, index + 1);
            let entries = vec![EntryRange {
                group,
                first,
                end,
                entry,
            }];
            let (job, generation) = (self.options.job, self.options.generation);
            self.send(
                from,
                Priority::FIRST,
                &Body::MapUpdate(MapUpdate {
                    job,
                    generation,
                    entries,
                }),
            );
            self.send_credit(entry, credit);
            return Ok(());
        }
        // A task of the source may wait for it before that leaves.
        if let Some(holder) = self.router.holder(source, (from, version)) {
            self.send_credit(holder, credit);
            return Ok(());
        }
        self.note(credit.exchange, source);
        self.on_credit(credit)
    }

    /// What is noted of an exchange waits for its source, unless that is here.
    fn note(&mut self, exchange: ExchangeId, source: ShardId) {
        if !self.router.is_here(source) {
            self.noted.insert(exchange);
        }
    }

    /// After news of the map: what was noted for a source that was to come, and is elsewhere, goes there.
    pub(super) fn pass_credits_on(&mut self, update: &EntryRange) {
        let is_meant = |source: ShardId| {
            source.group == update.group && (update.first..update.end).contains(&source.index)
        };
        let noted = self.noted.iter().filter_map(|exchange| {
            let (source, entry) = self.source_of(*exchange)?;
            let is_elsewhere = entry.owner != self.options.me && !self.router.is_here(source);
            (is_meant(source) && is_elsewhere).then_some((*exchange, entry))
        });
        for (exchange, entry) in noted.collect::<Vec<_>>() {
            self.noted.remove(&exchange);
            let retired = self.credits.retired(exchange).into_iter();
            let each = retired.flat_map(|(run, turns)| run.map(move |index| (index, turns)));
            for credit in self.credits_of(exchange, each) {
                self.send_credit(entry, credit);
            }
        }
    }

    /// Takes down what has been retired.
    pub(super) fn on_credit(&mut self, credit: Credit) -> Result<(), NodeError> {
        self.expect_exchange(credit.exchange, credit.group)?;
        for Retired { first, end, turns } in credit.retired {
            self.credit(credit.exchange, first..end, turns)?;
        }
        Ok(())
    }

    pub(super) fn credit(
        &mut self,
        exchange: ExchangeId,
        destinations: Range<u32>,
        turns: Turn,
    ) -> Result<(), NodeError> {
        self.credits
            .on_credit(exchange, destinations.clone(), turns)?;
        self.effects.push(Effect::Room {
            exchange,
            destinations,
            turns,
        });
        Ok(())
    }

    /// The exchanges of which a shard takes along what was told: it alone sends, or it merges what others send.
    fn told_to(&self, shard: ShardId) -> Vec<ExchangeId> {
        let mut exchanges = self.relations.with_only_source(shard);
        exchanges.extend_from_slice(self.relations.merged_by(shard.group));
        exchanges
    }

    /// What a shard takes along of what destinations have retired.
    pub(super) fn credits_along(&self, shard: ShardId) -> Vec<(ExchangeId, Vec<Retired>)> {
        if mutants::is_on("credits-stay-behind") {
            return Vec::new();
        }
        let exchanges = self.told_to(shard).into_iter();
        let retired = |exchange| {
            let runs = self.credits.retired(exchange).into_iter();
            let run = |(destinations, turns): (Range<u32>, Turn)| Retired {
                first: destinations.start,
                end: destinations.end,
                turns,
            };
            (exchange, runs.map(run).collect())
        };
        exchanges.map(retired).collect()
    }

    /// What it has brought along.
    pub(super) fn unpack_credits(
        &mut self,
        shard: ShardId,
        credits: Vec<(ExchangeId, Vec<Retired>)>,
    ) -> Result<(), NodeError> {
        let its = self.told_to(shard);
        for (exchange, retired) in credits {
            if !its.contains(&exchange) {
                return Err(NodeError::State(shard));
            }
            self.noted.remove(&exchange);
            for Retired { first, end, turns } in retired {
                self.credit(exchange, first..end, turns)?;
            }
        }
        Ok(())
    }
}
