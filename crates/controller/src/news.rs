//! News of the map: the two workers of a move are told at once, the others when a tick comes, with all that has moved meanwhile.
//!
//! # Rules
//! * Who loses a shard, and who gets it, hear of the version from here, at once: the move waits for nobody else. What others send by an older one
//!   finds its way, and so do they.
//! * A tick's news are one frame, which goes along a tree of workers ([`Relay`](brambling_protocol::frame::Relay)). Who knows them all already is left out.
//! * Who has neither acknowledged nor said anything yet may still be building its program, and would keep others waiting: it is told from here and hands
//!   nothing on. So is a worker from which others part: what they would not send it any more it could not hand on.
//! * A newcomer is told the whole map when it joins, and all are before they part from a worker: both from here, by the newest versions.

use crate::{Controller, ENTRIES_MAX};
use brambling_memory::mutants;
use brambling_program::ShardId;
use brambling_protocol::frame::{Body, News};
use brambling_protocol::{EntryRange, PartitionMap, WorkerId};
use std::collections::BTreeMap;

/// Shards that have moved since the last tick, each with those who know.
#[derive(Default)]
pub(crate) struct Untold(BTreeMap<ShardId, [WorkerId; 2]>);

impl Untold {
    /// What they belong to now, as ranges.
    fn entries(&self, map: &PartitionMap) -> Vec<EntryRange> {
        let mut entries: Vec<EntryRange> = Vec::new();
        for &ShardId { group, index } in self.0.keys() {
            let entry = map.entry(ShardId { group, index }).ok().flatten();
            let entry = entry.expect("what has moved has been placed");
            match entries.last_mut() {
                // Shards that moved together have equal entries, so a drain of thousands is a few
                // ranges.
                Some(last) if (last.group, last.end, last.entry) == (group, index, entry) => {
                    last.end += 1;
                }
                _ => entries.push(EntryRange {
                    group,
                    first: index,
                    end: index + 1,
                    entry,
                }),
            }
        }
        entries
    }

    fn is_news_for(&self, worker: WorkerId) -> bool {
        self.0.values().any(|know| !know.contains(&worker))
    }
}

impl Controller {
    /// A shard has a new version: those of its move are told, and the others are to be.
    pub(crate) fn publish(&mut self, shard: ShardId, entry: EntryRange, movers: [WorkerId; 2]) {
        let update = Body::MapUpdate(self.update(vec![entry]));
        for to in movers {
            self.send(to, &update);
        }
        // A later move of the same shard replaces this entry: only the newest version matters.
        self.untold.0.insert(shard, movers);
    }

    /// Tells all what has moved.
    pub(crate) fn tell_news(&mut self) {
        let untold = std::mem::take(&mut self.untold);
        if untold.0.is_empty() {
            return;
        }
        let entries = untold.entries(&self.map);
        let hearers = self.workers.keys().copied();
        let hearers: Vec<WorkerId> = hearers.filter(|it| untold.is_news_for(*it)).collect();
        let (relays, others): (Vec<_>, Vec<_>) =
            // A worker that may fall silent hands nothing on: those below it would hear nothing.
            hearers.into_iter().partition(|it| self.hands_on(*it));
        for entries in entries.chunks(ENTRIES_MAX) {
            let news = News::MapUpdate(self.update(entries.to_vec()));
            for (to, body) in news.relayed(&relays, self.fan_out) {
                self.send(to, &body);
            }
            for to in &others {
                self.send(*to, &news.body());
            }
        }
    }

    /// Whether a worker is up, and stays until it has handed on what it is told.
    fn hands_on(&self, worker: WorkerId) -> bool {
        if mutants::is_on("anybody-hands-on") {
            return true;
        }
        let is_up = |worker| self.workers.get(&worker).is_some_and(|it| it.is_up());
        is_up(worker) && !self.is_going(worker)
    }
}
