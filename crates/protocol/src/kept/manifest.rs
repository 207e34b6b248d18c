//! Manifests: what a snapshot consists of. A snapshot exists when its manifest does.

use super::{Form, KeptError};
use brambling_program::{Cut, CutStates, DatasetId, StageId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

const MANIFEST: Form = Form {
    name: "manifest",
    mark: *b"BRMF",
    version: 1,
};

/// Where the encoding of a partition lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredPart {
    /// The dataset.
    pub dataset: DatasetId,
    /// The partition.
    pub shard: u32,
    /// Which of the manifest's objects.
    pub object: u32,
    /// Where in it.
    pub start: u64,
    /// How long.
    pub bytes: u64,
    /// Of these bytes.
    pub checksum: u64,
}

/// What a dataset of the caller's was, so that another one is noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceMark {
    /// The dataset.
    pub dataset: DatasetId,
    /// Of all its partitions' encodings.
    pub checksum: u64,
}

/// A job's state at a cut, as it lies in a store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CutManifest {
    /// The program, by its hash.
    pub program: u128,
    /// Its name, for people.
    pub name: String,
    /// The cut's number: later ones have larger ones.
    pub cut: u64,
    /// Where it is.
    pub at: Cut,
    /// Turns done of its loop.
    pub turns: u64,
    /// Where all stand; nothing at the end.
    pub states: CutStates,
    /// Signals of the program's own block.
    pub outcomes: Vec<(StageId, bool)>,
    /// What the caller gave.
    pub sources: Vec<SourceMark>,
    /// The keys of the objects that have the parts.
    pub objects: Vec<String>,
    /// The parts: of each partition that was written, one.
    pub parts: Vec<StoredPart>,
    /// At the end: what the job has done.
    pub results: Option<KeptResults>,
}

/// What is told of a job that has ended, beside its results.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeptResults {
    /// What it counted, by name.
    pub counts: Vec<(String, u64)>,
    /// What it did and where its threads' time went, as JSON.
    pub ledger: String,
}

impl CutManifest {
    /// What was not written since an earlier one is where it was.
    pub fn fill_from(&mut self, base: &CutManifest) {
        let new: BTreeSet<(DatasetId, u32)> =
            (self.parts.iter().map(|part| (part.dataset, part.shard))).collect();
        let mut places = BTreeMap::new();
        for part in &base.parts {
            if new.contains(&(part.dataset, part.shard)) {
                continue;
            }
            let object = *places.entry(part.object).or_insert_with(|| {
                self.objects
                    .push(base.objects[part.object as usize].clone());
                self.objects.len() as u32 - 1
            });
            self.parts.push(StoredPart { object, ..*part });
        }
    }

    /// As it is kept.
    pub fn encode(&self) -> Vec<u8> {
        MANIFEST.write(self)
    }

    /// From what was kept.
    ///
    /// # Errors
    /// When it is none, was written by a newer version, or is damaged.
    pub fn decode(bytes: &[u8]) -> Result<CutManifest, KeptError> {
        let manifest: CutManifest = MANIFEST.read(bytes)?;
        let objects = manifest.objects.len() as u32;
        let mut seen = BTreeSet::new();
        let is_whole = manifest.parts.iter().all(|part| {
            let ends = part.start.checked_add(part.bytes).is_some();
            part.object < objects && ends && seen.insert((part.dataset, part.shard))
        });
        is_whole.then_some(manifest).ok_or(KeptError::Damaged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::{PartsEnd, PartsHead, checksum};
    use brambling_program::{GroupId, GroupState, ShardId};

    fn manifest() -> CutManifest {
        let part = |shard| StoredPart {
            dataset: DatasetId(2),
            shard,
            object: 0,
            start: 6 + 8 * u64::from(shard),
            bytes: 8,
            checksum: checksum(&[shard as u8; 8]),
        };
        let state = |turns| GroupState {
            at: 7,
            entered: vec![1, turns + 1],
            counters: vec![turns],
        };
        let shard = ShardId {
            group: GroupId(0),
            index: 1,
        };
        CutManifest {
            program: 0xfeed << 100,
            name: "demo".into(),
            cut: 3,
            at: Cut::LoopTop(1),
            turns: 40,
            states: CutStates {
                groups: vec![state(40)],
                shards: [(shard, state(39))].into(),
            },
            outcomes: vec![(StageId(4), true)],
            sources: vec![SourceMark {
                dataset: DatasetId(0),
                checksum: 9,
            }],
            objects: vec!["parts/3-0".into()],
            parts: vec![part(0), part(1)],
            results: None,
        }
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written_or_refused() {
        let bytes = manifest().encode();
        assert_eq!(CutManifest::decode(&bytes), Ok(manifest()));
        // Each byte counts.
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(CutManifest::decode(&other).is_err(), "byte {at}");
            assert!(CutManifest::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
        let mut newer = bytes.clone();
        newer[4] = 2;
        let error = CutManifest::decode(&newer).unwrap_err();
        let (found, known) = (2, 1);
        assert_eq!(error, KeptError::Newer { found, known });
    }

    /// Guards the form: written once by the first version, and read for ever.
    #[test]
    fn manifests_of_the_first_version_are_read() {
        let golden = include_bytes!("golden/manifest-1");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/kept/golden/manifest-1");
            std::fs::write(path, manifest().encode()).unwrap();
            return;
        }
        assert_eq!(CutManifest::decode(golden), Ok(manifest()));
        assert_eq!(manifest().encode(), golden, "a new form is a new version");
    }

    #[test]
    fn a_part_is_named_once() {
        let mut twice = manifest();
        twice.parts.push(twice.parts[0]);
        assert_eq!(
            CutManifest::decode(&twice.encode()),
            Err(KeptError::Damaged)
        );
        let mut elsewhere = manifest();
        elsewhere.parts[0].object = 1;
        assert_eq!(
            CutManifest::decode(&elsewhere.encode()),
            Err(KeptError::Damaged)
        );
    }

    #[test]
    fn an_object_of_parts_explains_itself() {
        let parts = manifest().parts;
        let mut object = PartsHead::BYTES.to_vec();
        object.extend_from_slice(&[0; 8]);
        object.extend_from_slice(&[1; 8]);
        object.extend_from_slice(&PartsEnd::bytes(&parts));
        assert_eq!(PartsEnd::read(&object), Some(parts.clone()));
        for part in &parts {
            let bytes = &object[part.start as usize..][..part.bytes as usize];
            assert_eq!(checksum(bytes), part.checksum);
        }
        assert_eq!(PartsEnd::read(&object[..object.len() - 1]), None);
        assert_eq!(PartsEnd::read(b"short"), None);
    }
}
