//! What a controller writes, as the engine's does: records one behind the other, and manifests, each of which counts when its record is there.

use super::super::chance::Chance;
use super::super::part::manifest_key;
use super::super::shelf::{Made, Shelf};
use super::{Chronicle, Office, Write};
use brambling_protocol::JobKey;
use brambling_protocol::kept::{CutManifest, LogEntry, LogRecord};
use std::collections::BTreeSet;
use std::time::Duration;

impl Office {
    /// The next record or manifest is written, or tried again later.
    pub(super) fn write(
        &mut self,
        now: u64,
        shelf: &mut Shelf,
        chronicle: &mut Chronicle,
        chance: &mut Chance,
    ) {
        match self.writes.pop_front().expect("the caller has seen it") {
            Write::Record(entry) => match self.append(now, &entry, shelf, chance) {
                Appended::Yes => self.unlogged -= 1,
                Appended::Deposed => self.depose(now, chronicle),
                Appended::Later => self.writes.push_front(Write::Record(entry)),
            },
            Write::Commit(key, place, manifest) => {
                self.commit(now, (key, &place, *manifest), shelf, (chronicle, chance));
            }
        }
    }

    /// Whether another has taken over: it looks now and then, for one that logs nothing would not know.
    pub(super) fn is_superseded(&self, shelf: &Shelf) -> bool {
        let is_there = shelf.records() > self.number;
        is_there && shelf.record_at(self.number).nonce.0 != u64::from(self.term)
    }

    pub(super) fn depose(&mut self, now: u64, chronicle: &mut Chronicle) {
        chronicle.tell(now, format!("term {} is deposed", self.term));
        chronicle.deposed += 1;
        self.is_deposed = true;
    }

    /// As the engine's log does: an answer that was lost is found by reading back.
    fn append(
        &mut self,
        now: u64,
        entry: &LogEntry,
        shelf: &mut Shelf,
        chance: &mut Chance,
    ) -> Appended {
        loop {
            let record = LogRecord {
                nonce: (u64::from(self.term), self.count),
                entry: entry.clone(),
            };
            match shelf.record(now, self.number, &record, chance) {
                Made::Yes => break,
                Made::Unknown => return Appended::Later,
                Made::Exists => {}
            }
            let found = shelf.record_at(self.number);
            if found == record {
                break;
            }
            if found.nonce.0 != u64::from(self.term) {
                return Appended::Deposed;
            }
            // An earlier one, that was given up: it counts.
            (self.number, self.count) = (self.number + 1, self.count + 1);
        }
        (self.number, self.count) = (self.number + 1, self.count + 1);
        Appended::Yes
    }

    fn commit(
        &mut self,
        now: u64,
        (key, place, manifest): (JobKey, &str, CutManifest),
        shelf: &mut Shelf,
        (chronicle, chance): (&mut Chronicle, &mut Chance),
    ) {
        let cut = manifest.cut;
        let at = manifest_key(place, cut);
        let bytes = manifest.encode();
        let is_made = match shelf.put(now, &at, &bytes, chance) {
            Made::Yes => true,
            Made::Exists | Made::Unknown => shelf.get(&at) == Some(&bytes[..]),
        };
        let entry = LogEntry::Snapshot { job: key.job, cut };
        let done = match is_made {
            true => self.append(now, &entry, shelf, chance),
            false => Appended::Later,
        };
        match done {
            Appended::Yes => {
                assert!(
                    chronicle.cuts.insert((key.job, cut)),
                    "cut {cut} of {key} twice"
                );
                chronicle.tell(now, format!("term {}: {key} was saved at {cut}", self.term));
                self.committed(key, place, manifest, shelf);
            }
            Appended::Deposed => self.depose(now, chronicle),
            Appended::Later => {
                self.registry.on_no_snapshot(key, "the store is full");
                if let Some(machine) = self.jobs.get_mut(&key) {
                    machine.on_uncommitted(cut);
                }
            }
        }
    }

    fn committed(&mut self, key: JobKey, place: &str, manifest: CutManifest, shelf: &mut Shelf) {
        let cut = manifest.cut;
        let kept = self.registry.on_snapshot(key, cut, 1, Duration::ZERO);
        let bases = self.bases.entry(key.job).or_default();
        bases.push(manifest.clone());
        let is_old = |it: &CutManifest| !kept.contains(&it.cut);
        let old: Vec<String> = (bases.iter().filter(|it| is_old(it)))
            .map(|it| manifest_key(place, it.cut))
            .collect();
        bases.retain(|it| !is_old(it));
        let named: BTreeSet<&String> = bases.iter().flat_map(|it| &it.objects).collect();
        let parts = format!("{place}/parts/");
        let cut_of = |object: &str| -> Option<u64> {
            object.strip_prefix(&parts)?.split('-').next()?.parse().ok()
        };
        shelf.sweep(|object| {
            let is_unnamed = cut_of(object).is_some_and(|it| it <= cut);
            old.iter().any(|it| it == object) || is_unnamed && !named.contains(&object.to_owned())
        });
        if let Some(machine) = self.jobs.get_mut(&key) {
            machine.on_committed(manifest);
        }
    }
}

/// What has come of a record.
enum Appended {
    Yes,
    Deposed,
    Later,
}
