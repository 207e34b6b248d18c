//! Checks that an output is its input, in order.
//!
//! A segment is a file, or a part of one. Each is checked alone, anywhere, and the summaries of
//! segments that follow each other are joined. The command compares the summary of the outputs with
//! that of the inputs.
//!
//! It cannot see whether records with equal keys have changed places.

use super::format::{RecordFormat, RecordJoiner};
use super::layout::{RecordLayout, with_layout};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use xxhash_rust::xxh3::xxh3_128;

/// What there is to say about a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordSummary {
    /// Its records.
    pub records: u64,
    /// Its bytes.
    pub bytes: u64,
    /// The sum, modulo 2¹²⁸, of each record's hash (XXH3 of 128 bits): the same in any order.
    pub checksum: u128,
    /// Records whose key is that of the one before.
    pub duplicates: u64,
    /// The first place where the order is broken.
    pub fault: Option<OrderFault>,
    /// The keys of its first and its last record.
    ends: Option<(Vec<u8>, Vec<u8>)>,
}
brambling_program::payload!(RecordSummary);

/// Two neighbours in the wrong order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderFault {
    /// The number of the second one, from 0 on.
    pub record: u64,
    /// The key of the first one, which is greater.
    pub before: Vec<u8>,
    /// The key of the second one.
    pub key: Vec<u8>,
}

/// A segment that ends within a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the last record has {bytes} bytes of {width}: the file was cut, or its records have another width (--width)"
)]
pub struct TruncatedRecord {
    /// Bytes behind the last whole record.
    pub bytes: usize,
    /// Bytes that a record has.
    pub width: usize,
}

impl RecordSummary {
    /// Whether both have the same records, in whatever order. Different ones pass with a
    /// probability of about 2⁻¹²⁸.
    pub fn has_records_of(&self, other: &RecordSummary) -> bool {
        (self.records, self.bytes, self.checksum) == (other.records, other.bytes, other.checksum)
    }

    /// The summary of this segment and the one that follows it.
    pub fn then(mut self, next: RecordSummary, format: &RecordFormat) -> RecordSummary {
        if let (Some((_, last)), Some((first, _))) = (&self.ends, &next.ends) {
            let order = format.compare_keys(last, first);
            self.duplicates += u64::from(order == Ordering::Equal);
            if order == Ordering::Greater && self.fault.is_none() {
                self.fault = Some(OrderFault {
                    record: self.records,
                    before: last.clone(),
                    key: first.clone(),
                });
            }
        }
        let records = self.records;
        let fault = self.fault.or_else(|| {
            next.fault.map(|fault| OrderFault {
                record: fault.record + records,
                ..fault
            })
        });
        let ends = match (self.ends, next.ends) {
            (Some((first, _)), Some((_, last))) => Some((first, last)),
            (one, other) => one.or(other),
        };
        RecordSummary {
            records: records + next.records,
            bytes: self.bytes + next.bytes,
            checksum: self.checksum.wrapping_add(next.checksum),
            duplicates: self.duplicates + next.duplicates,
            fault,
            ends,
        }
    }
}

/// Checks a segment as its bytes come.
#[derive(Clone, Debug)]
pub struct OrderCheck {
    format: RecordFormat,
    joiner: RecordJoiner,
    summary: RecordSummary,
    /// The record before.
    last: Vec<u8>,
}

impl OrderCheck {
    /// Nothing has come.
    pub fn new(format: RecordFormat) -> OrderCheck {
        OrderCheck {
            format,
            joiner: RecordJoiner::default(),
            summary: RecordSummary::default(),
            last: Vec::new(),
        }
    }

    /// The next bytes, which may end within a record.
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut joiner = std::mem::take(&mut self.joiner);
        for records in joiner.feed(&self.format, bytes) {
            self.feed_records(records);
        }
        self.joiner = joiner;
    }

    /// What was fed. A last line without a newline counts as one with it.
    ///
    /// # Errors
    /// When a record of fixed width is not whole.
    pub fn finish(mut self) -> Result<RecordSummary, TruncatedRecord> {
        let mut rest = self.joiner.take_rest();
        if !rest.is_empty() {
            if let Some(width) = self.format.width() {
                let bytes = rest.len();
                return Err(TruncatedRecord { bytes, width });
            }
            rest.push(b'\n');
            self.feed_records(&rest);
        }
        if let Some((_, last)) = &mut self.summary.ends {
            *last = self.format.key(&self.last).to_vec();
        }
        Ok(self.summary)
    }

    fn feed_records(&mut self, records: &[u8]) {
        if !records.is_empty() {
            with_layout!(self.format, layout => self.feed_with(layout, records));
        }
    }

    fn feed_with<L: RecordLayout>(&mut self, layout: L, records: &[u8]) {
        let summary = &mut self.summary;
        let mut last: &[u8] = &self.last;
        let mut at = 0;
        while let Some(end) = layout.end(records, at) {
            let record = &records[at..end];
            if summary.records == 0 {
                summary.ends = Some((layout.key(record).to_vec(), Vec::new()));
            } else {
                match layout.compare(last, record) {
                    Ordering::Less => {}
                    Ordering::Equal => summary.duplicates += 1,
                    Ordering::Greater if summary.fault.is_none() => {
                        summary.fault = Some(OrderFault {
                            record: summary.records,
                            before: layout.key(last).to_vec(),
                            key: layout.key(record).to_vec(),
                        });
                    }
                    Ordering::Greater => {}
                }
            }
            summary.records += 1;
            summary.checksum = summary.checksum.wrapping_add(xxh3_128(record));
            last = record;
            at = end;
        }
        summary.bytes += at as u64;
        // It may lie in the piece that is given back.
        let last = last.to_vec();
        self.last = last;
    }
}
