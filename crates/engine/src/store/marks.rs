//! Fingerprints of what a program begins with: another input is another job.

use brambling_program::{DatasetId, Encoder, Plan};
use brambling_protocol::kept::SourceMark;
use brambling_worker::executor::initial;
use xxhash_rust::xxh3::Xxh3;

const CHUNK_BYTES: usize = 1 << 20;

/// Of all datasets that the caller gives. Reads all of them. `goes_on` is asked now and then; none when it says no.
pub(super) fn sources(plan: &Plan, goes_on: impl Fn() -> bool) -> Option<Vec<SourceMark>> {
    let given = plan.program.sourced();
    let mark = |dataset: DatasetId| {
        let count = plan.counts[plan.group_of_dataset[dataset.index()].index()];
        let mut checksum = Xxh3::new();
        for index in 0..count {
            if !goes_on() {
                return None;
            }
            // A source that fails when it is read once more has no mark.
            let value = initial(&plan.program, dataset, index, count).ok()?;
            let mut encoder = Encoder::default();
            while let Ok(Some(chunk)) = encoder.next(&value, CHUNK_BYTES) {
                chunk
                    .parts()
                    .into_iter()
                    .for_each(|part| checksum.update(part));
            }
            checksum.update(&index.to_le_bytes());
        }
        Some(SourceMark {
            dataset,
            checksum: checksum.digest(),
        })
    };
    given.map(mark).collect()
}
