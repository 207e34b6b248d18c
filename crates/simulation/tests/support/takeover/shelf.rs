//! What outlives controllers: the log and the store, each of which may be full for a while, lose an answer, or keep something else than what was written.

use super::chance::Chance;
use brambling_controller::log::LoggedCluster;
use brambling_protocol::kept::{LogEntry, LogRecord, checksum};
use std::collections::BTreeMap;

/// What has come of a write.
#[derive(PartialEq, Eq)]
pub enum Made {
    Yes,
    /// There is one already.
    Exists,
    /// It is full, or the answer was lost.
    Unknown,
}

/// The log, and objects.
#[derive(Default)]
pub struct Shelf {
    records: Vec<Vec<u8>>,
    objects: BTreeMap<String, Vec<u8>>,
    /// Until then it is full.
    pub full_until: u64,
    /// One object in so many is torn or lost; 0: none is.
    pub torn: u64,
    pub damaged: u64,
}

impl Shelf {
    /// Creates a record under a number.
    pub fn record(
        &mut self,
        now: u64,
        number: usize,
        record: &LogRecord,
        chance: &mut Chance,
    ) -> Made {
        if now < self.full_until {
            return Made::Unknown;
        }
        assert!(number <= self.records.len(), "a gap in the log");
        if number < self.records.len() {
            return Made::Exists;
        }
        self.records.push(record.encode());
        match chance.one_in(12) {
            true => Made::Unknown,
            false => Made::Yes,
        }
    }

    /// A record that there is.
    pub fn record_at(&self, number: usize) -> LogRecord {
        LogRecord::decode(&self.records[number]).expect("records are whole or not there")
    }

    /// How many records there are.
    pub fn records(&self) -> usize {
        self.records.len()
    }

    /// The cluster, as the log tells it.
    pub fn cluster(&self) -> LoggedCluster {
        let mut cluster = LoggedCluster::default();
        (0..self.records.len()).for_each(|number| cluster.take(self.record_at(number).entry));
        cluster
    }

    /// Whether the log has an entry.
    pub fn has(&self, entry: &LogEntry) -> bool {
        (0..self.records.len()).any(|number| self.record_at(number).entry == *entry)
    }

    /// Makes an object.
    pub fn put(&mut self, now: u64, key: &str, bytes: &[u8], chance: &mut Chance) -> Made {
        if now < self.full_until {
            return Made::Unknown;
        }
        if self.objects.contains_key(key) {
            return Made::Exists;
        }
        let mut bytes = bytes.to_vec();
        if self.torn > 0 && chance.one_in(self.torn) {
            self.damaged += 1;
            let at = chance.below(bytes.len() as u64) as usize;
            match chance.below(3) {
                // Lost.
                0 => return Made::Yes,
                1 => bytes.truncate(at),
                _ => bytes[at] ^= 1,
            }
        }
        self.objects.insert(key.to_owned(), bytes);
        match chance.one_in(20) {
            true => Made::Unknown,
            false => Made::Yes,
        }
    }

    /// An object.
    pub fn get(&self, key: &str) -> Option<&[u8]> {
        self.objects.get(key).map(Vec::as_slice)
    }

    /// Bytes of an object, if they are those that were written.
    pub fn part(&self, key: &str, start: u64, bytes: u64, sum: u64) -> Option<&[u8]> {
        let place = start as usize..(start + bytes) as usize;
        let found = self.get(key)?.get(place)?;
        (checksum(found) == sum).then_some(found)
    }

    /// Deletes objects.
    pub fn sweep(&mut self, is_old: impl Fn(&str) -> bool) {
        self.objects.retain(|key, _| !is_old(key));
    }
}
