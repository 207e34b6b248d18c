//! What a store has of a job that begins: results, a snapshot, or nothing that can be used.

use super::{JobStore, manifest_key, marks};
use brambling_program::{Cut, DatasetId, Decoder, LoopId, Plan, ShardId, Turn, Value};
use brambling_protocol::kept::{CutManifest, KeptResults, SourceMark, StoredPart, checksum};
use brambling_storage::{ObjectStore, StoreError, StoreTrouble};
use brambling_worker::executor::Restored;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// Partitions' values.
type Values = BTreeMap<(DatasetId, u32), Value>;

/// What there is.
pub(crate) enum FoundJob {
    Nothing,
    /// The job has ended: its kept datasets.
    Results(Values, KeptResults),
    /// It goes on from a snapshot.
    Snapshot(Box<FoundSnapshot>),
}

pub(crate) struct FoundSnapshot {
    pub(crate) restored: Restored,
    pub(crate) manifest: CutManifest,
    pub(crate) at: (LoopId, Turn),
}

impl JobStore {
    /// The newest that can be used. What cannot is told, and what was before it is used.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) fn find(&mut self, plan: &Plan) -> Result<FoundJob, StoreError> {
        let mut sources = None;
        for cut in self.manifests.clone().into_iter().rev() {
            match self.read(cut, plan, &mut sources)? {
                Ok(found) => return Ok(found),
                Err(why) => {
                    let name = &self.name;
                    let store = self.store.name();
                    self.told.push(format!(
                        "snapshot {cut} of `{name}` in {store} is not used: {why}"
                    ));
                }
            }
        }
        Ok(FoundJob::Nothing)
    }

    fn read(
        &self,
        cut: u64,
        plan: &Plan,
        sources: &mut Option<Vec<SourceMark>>,
    ) -> Result<Result<FoundJob, String>, StoreError> {
        let manifest = match CutManifest::decode(&self.store.read(&manifest_key(cut), None)?) {
            Ok(manifest) => manifest,
            Err(error) => return Ok(Err(error.to_string())),
        };
        if manifest.program != self.program {
            return Ok(Err(
                "the program has changed since; the job begins at its start".into(),
            ));
        }
        let sources =
            sources.get_or_insert_with(|| marks::sources(plan, || true).unwrap_or_default());
        if let Some(dataset) = changed(sources, &manifest.sources) {
            let dataset = &plan.program.spec().datasets[dataset.index()].name;
            return Ok(Err(format!(
                "the input `{dataset}` has changed since; the job begins at its start"
            )));
        }
        let values = match read_values(&*self.store, plan, &manifest, |_| true, &NotNear)? {
            Ok(values) => values,
            Err(why) => return Ok(Err(why)),
        };
        if let Some(results) = manifest.results {
            return Ok(Ok(FoundJob::Results(values, results)));
        }
        let Cut::LoopTop(outermost) = manifest.at else {
            return Ok(Err("it is of no loop".into()));
        };
        let (states, outcomes) = (manifest.states.clone(), manifest.outcomes.clone());
        let restored = Restored::new(plan, manifest.at, states, outcomes, values, |_| true);
        let restored = restored.ok_or("it is not one of this program");
        Ok(restored.map_err(str::to_owned).map(|restored| {
            let at = (outermost, manifest.turns);
            FoundJob::Snapshot(Box::new(FoundSnapshot {
                restored,
                manifest,
                at,
            }))
        }))
    }
}

/// A part's bytes, in order.
pub(crate) type PartChunks = Vec<Arc<Vec<u8>>>;

/// Where parts may be had without their store.
pub(crate) trait NearParts {
    /// The bytes of that part of that object, and of no other.
    fn find(&self, object: &str, part: &StoredPart) -> Option<PartChunks>;
    /// What was found is used.
    fn used(&self, part: &StoredPart);
    /// A part was read from the store.
    fn read(&self, shard: ShardId, object: &str, part: &StoredPart, bytes: Vec<u8>);
}

/// All parts are in the store only.
pub(crate) struct NotNear;

impl NearParts for NotNear {
    fn find(&self, _: &str, _: &StoredPart) -> Option<PartChunks> {
        None
    }
    fn used(&self, _: &StoredPart) {}
    fn read(&self, _: ShardId, _: &str, _: &StoredPart, _: Vec<u8>) {}
}

/// Reads what a snapshot has of partitions of shards that are here, as far as it is not near. An inner error says why the snapshot cannot be used.
///
/// # Errors
/// When the store cannot be read.
pub(crate) fn read_values(
    store: &dyn ObjectStore,
    plan: &Plan,
    manifest: &CutManifest,
    is_here: impl Fn(ShardId) -> bool,
    near: &impl NearParts,
) -> Result<Result<Values, String>, StoreError> {
    let mut values = Values::new();
    let here = |part: &StoredPart| {
        let group = *plan.group_of_dataset.get(part.dataset.index())?;
        let index = part.shard;
        Some(ShardId { group, index }).filter(|shard| is_here(*shard))
    };
    let here = (manifest.parts.iter()).filter_map(|part| Some((here(part)?, part)));
    for (shard, part) in here {
        let object = &manifest.objects[part.object as usize];
        let found = near.find(object, part);
        if let Some(chunks) = found
            && is_whole(&chunks, part)
            && let Some(value) = value_of(plan, part, chunks.iter().map(|it| &it[..]))
        {
            near.used(part);
            values.insert((part.dataset, part.shard), value);
            continue;
        }
        let range = part.start..part.start + part.bytes;
        let bytes = match store.read(&super::key(object), Some(range)) {
            Ok(bytes) => bytes,
            Err(error) if is_of_the_object(&error) => return Ok(Err(error.to_string())),
            Err(error) => return Err(error),
        };
        let spec = &plan.program.spec().datasets[part.dataset.index()];
        let damaged = || {
            format!(
                "partition {} of `{}` in {object} is damaged",
                part.shard, spec.name
            )
        };
        if checksum(&bytes) != part.checksum {
            return Ok(Err(damaged()));
        }
        let Some(value) = value_of(plan, part, [&bytes[..]]) else {
            return Ok(Err(damaged()));
        };
        values.insert((part.dataset, part.shard), value);
        near.read(shard, object, part, bytes);
    }
    Ok(Ok(values))
}

/// Whether memory has kept a part as it was.
fn is_whole(chunks: &PartChunks, part: &StoredPart) -> bool {
    let mut checksum = Xxh3::new();
    chunks.iter().for_each(|it| checksum.update(it));
    checksum.digest() == part.checksum
}

/// The partition whose encoding that is.
fn value_of<'a>(
    plan: &Plan,
    part: &StoredPart,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> Option<Value> {
    let empty = Value::default_of(plan.program.payload_type(part.dataset));
    let mut decoder = Decoder::new(empty).expecting(part.bytes);
    for chunk in chunks {
        decoder.feed(chunk).ok()?;
    }
    decoder.finish().ok()
}

/// Whether an error says something of an object, and not of its store: another object may do.
fn is_of_the_object(error: &StoreError) -> bool {
    matches!(
        error.trouble,
        StoreTrouble::Absent | StoreTrouble::Damaged(_)
    )
}

/// The first dataset that is not what it was, on either side.
pub(crate) fn changed(now: &[SourceMark], then: &[SourceMark]) -> Option<DatasetId> {
    let marks = |of: &[SourceMark]| -> BTreeSet<(DatasetId, u64)> {
        of.iter().map(|it| (it.dataset, it.checksum)).collect()
    };
    let (now, then) = (marks(now), marks(then));
    now.symmetric_difference(&then).next().map(|mark| mark.0)
}
