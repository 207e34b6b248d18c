//! What shards that are here have saved last, beside what lies in the store: a job that begins again at a snapshot has it of those who held it, and reads from the
//! store only what was lost.
//!
//! # Rules
//! * A part is the one that a manifest lists if object, range and checksum are the same. Objects have names of their own, so parts of other cuts, generations
//!   and workers are never taken for it.
//! * Of each partition the part of the last snapshot is here, and that of the open cut until there is a snapshot of it. What was not written since the last one
//!   stays what it is. What was saved for a void cut goes when something is saved for the next.
//! * A shard that has saved elsewhere has nothing here.
//! * Parts are [spares](Spare): whoever finds no room in the worker's budget gets theirs. What went so is read from the store.
//! * They outlive the generation that saved them, by [`UNUSED_TIME`] where no other one comes.

use crate::store::{NearParts, PartChunks};
use brambling_memory::held::{self, Held};
use brambling_memory::{Memory, Spare};
use brambling_program::{DatasetId, ShardId};
use brambling_protocol::kept::{CutManifest, StoredPart};
use brambling_protocol::{Generation, JobId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long parts of a job that was lost here wait for its next generation. Shorter: a job that waits a minute for a newcomer reads all of them from the store. Longer:
/// what nobody asks for any more lies here, if nobody wants its room.
const UNUSED_TIME: Duration = Duration::from_secs(90);

/// A partition.
type Of = (DatasetId, u32);

/// The parts of one job.
pub(super) struct LocalParts {
    memory: Memory,
    kept: Mutex<KeptParts>,
}

#[derive(Default)]
struct KeptParts {
    /// Whose words count.
    generation: Option<Generation>,
    /// The last cut of which there is a snapshot.
    committed: u64,
    /// The last cut for which something was saved, and who has saved for it here.
    open: u64,
    here: BTreeSet<ShardId>,
    /// The newest last.
    parts: BTreeMap<Of, Vec<LocalPart>>,
}

struct LocalPart {
    cut: u64,
    shard: ShardId,
    object: Arc<str>,
    part: StoredPart,
    bytes: Spare,
}

impl LocalPart {
    fn is(&self, object: &str, part: &StoredPart) -> bool {
        let place = |it: &StoredPart| (it.start, it.bytes, it.checksum);
        *self.object == *object && place(&self.part) == place(part)
    }
}

/// What was saved for a cut, once it lies in the store.
pub(super) struct SavedHere<'a> {
    pub(super) cut: u64,
    pub(super) shards: &'a [ShardId],
    pub(super) objects: &'a [String],
    pub(super) parts: Vec<(ShardId, StoredPart, Spare)>,
}

impl LocalParts {
    pub(super) fn new(memory: Memory) -> LocalParts {
        LocalParts {
            memory,
            kept: Mutex::default(),
        }
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    fn kept(&self) -> Held<'_, KeptParts> {
        held::lock(&self.kept)
    }

    /// A generation begins: at a snapshot, of which it will hold these shards, or at the job's start. What is not of that snapshot goes.
    pub(super) fn begin(
        &self,
        generation: Generation,
        manifest: Option<&CutManifest>,
        is_here: impl Fn(ShardId) -> bool,
    ) {
        let listed: BTreeMap<Of, &StoredPart> = (manifest.iter())
            .flat_map(|it| {
                it.parts
                    .iter()
                    .map(|part| ((part.dataset, part.shard), part))
            })
            .collect();
        let mut kept = self.kept();
        let kept = &mut *kept;
        let cut = manifest.map_or(0, |it| it.cut);
        (kept.generation, kept.committed, kept.open) = (Some(generation), cut, cut);
        kept.here.clear();
        kept.parts.retain(|of, parts| {
            let part = listed.get(of).zip(manifest);
            let is_it = |it: &LocalPart| {
                let named = part.is_some_and(|(part, manifest)| {
                    it.is(&manifest.objects[part.object as usize], part)
                });
                named && is_here(it.shard)
            };
            parts.retain(is_it);
            !parts.is_empty()
        });
    }

    /// Shards that are here have saved.
    pub(super) fn save(&self, generation: Generation, saved: SavedHere<'_>) {
        let mut kept = self.kept();
        if kept.generation != Some(generation) {
            return;
        }
        if kept.open != saved.cut {
            let committed = kept.committed;
            kept.drop_parts(|it| it.cut > committed);
            kept.open = saved.cut;
            kept.here.clear();
        }
        kept.here.extend(saved.shards);
        let objects: Vec<Arc<str>> = saved.objects.iter().map(|it| it.as_str().into()).collect();
        for (shard, part, bytes) in saved.parts {
            let of = (part.dataset, part.shard);
            kept.parts.entry(of).or_default().push(LocalPart {
                cut: saved.cut,
                shard,
                object: objects[part.object as usize].clone(),
                part,
                bytes,
            });
        }
    }

    /// There is a snapshot of a cut.
    pub(super) fn commit(&self, generation: Generation, cut: u64) {
        let mut kept = self.kept();
        if kept.generation != Some(generation) {
            return;
        }
        let kept = &mut *kept;
        if kept.open != cut {
            // Nobody here has saved for it.
            kept.here.clear();
        }
        (kept.committed, kept.open) = (cut, cut);
        let here = &kept.here;
        kept.parts.retain(|_, parts| {
            let newest = parts.pop();
            parts.clear();
            parts.extend(newest.filter(|it| here.contains(&it.shard)));
            !parts.is_empty()
        });
    }

    fn find(&self, object: &str, part: &StoredPart) -> Option<PartChunks> {
        let kept = self.kept();
        let parts = kept.parts.get(&(part.dataset, part.shard))?;
        parts.iter().find(|it| it.is(object, part))?.bytes.chunks()
    }

    /// A part was read from the store.
    fn add(&self, shard: ShardId, object: &str, part: &StoredPart, bytes: Vec<u8>) {
        let spare = self.memory.spare();
        spare.push(bytes);
        let mut kept = self.kept();
        let cut = kept.committed;
        let parts = kept.parts.entry((part.dataset, part.shard)).or_default();
        parts.clear();
        parts.push(LocalPart {
            cut,
            shard,
            object: object.into(),
            part: *part,
            bytes: spare,
        });
    }
}

impl KeptParts {
    fn drop_parts(&mut self, is_void: impl Fn(&LocalPart) -> bool) {
        self.parts.retain(|_, parts| {
            parts.retain(|it| !is_void(it));
            !parts.is_empty()
        });
    }
}

/// What a generation that begins at a snapshot has from where.
pub(super) struct Restoring<'a> {
    parts: &'a LocalParts,
    read_bytes: AtomicU64,
    local_bytes: AtomicU64,
}

impl<'a> Restoring<'a> {
    pub(super) fn new(parts: &'a LocalParts) -> Restoring<'a> {
        Restoring {
            parts,
            read_bytes: AtomicU64::new(0),
            local_bytes: AtomicU64::new(0),
        }
    }

    /// Bytes that were read from the store, and bytes that were here.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let read = |of: &AtomicU64| of.load(Ordering::Relaxed);
        (read(&self.read_bytes), read(&self.local_bytes))
    }
}

impl NearParts for Restoring<'_> {
    fn find(&self, object: &str, part: &StoredPart) -> Option<PartChunks> {
        self.parts.find(object, part)
    }

    fn used(&self, part: &StoredPart) {
        self.local_bytes.fetch_add(part.bytes, Ordering::Relaxed);
    }

    fn read(&self, shard: ShardId, object: &str, part: &StoredPart, bytes: Vec<u8>) {
        self.read_bytes.fetch_add(part.bytes, Ordering::Relaxed);
        self.parts.add(shard, object, part, bytes);
    }
}

/// The parts of all jobs that are saved here.
#[derive(Default)]
pub(super) struct LocalJobs(BTreeMap<JobId, LocalJob>);

struct LocalJob {
    parts: Arc<LocalParts>,
    /// Since when no generation of it is here.
    unused: Option<Instant>,
}

impl LocalJobs {
    /// Those of a job that begins.
    pub(super) fn of(&mut self, job: JobId, memory: &Memory) -> Arc<LocalParts> {
        let job = self.0.entry(job).or_insert_with(|| LocalJob {
            parts: Arc::new(LocalParts::new(memory.clone())),
            unused: None,
        });
        job.unused = None;
        job.parts.clone()
    }

    /// A generation was released here. One that has ended leaves nothing to another.
    pub(super) fn released(&mut self, job: JobId, has_ended: bool, now: Instant) {
        if has_ended {
            self.0.remove(&job);
        } else if let Some(job) = self.0.get_mut(&job) {
            job.unused = Some(now);
        }
    }

    /// Drops what nobody has asked for.
    pub(super) fn tick(&mut self, now: Instant) {
        self.0.retain(|_, job| {
            let unused = job.unused.map(|since| now.saturating_duration_since(since));
            unused.is_none_or(|unused| unused < UNUSED_TIME)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_memory::Class;
    use brambling_program::{Cut, CutStates, GroupId};

    const DATASET: DatasetId = DatasetId(2);
    const BYTES: u64 = 100;

    fn shard(index: u32) -> ShardId {
        let group = GroupId(0);
        ShardId { group, index }
    }

    fn part(index: u32, object: u32) -> StoredPart {
        StoredPart {
            dataset: DATASET,
            shard: index,
            object,
            start: 8,
            bytes: BYTES,
            checksum: u64::from(index),
        }
    }

    fn name(cut: u64) -> String {
        format!("parts/{cut}-g1-w1-0")
    }

    /// These shards save for a cut, and some of them a partition.
    fn save(parts: &LocalParts, cut: u64, shards: &[u32], written: &[u32]) {
        let copy = |index: &u32| {
            let bytes = parts.memory().spare();
            bytes.push(vec![*index as u8; BYTES as usize]);
            (shard(*index), part(*index, 0), bytes)
        };
        let shards: Vec<ShardId> = shards.iter().map(|it| shard(*it)).collect();
        let saved = SavedHere {
            cut,
            shards: &shards,
            objects: &[name(cut)],
            parts: written.iter().map(copy).collect(),
        };
        parts.save(Generation(1), saved);
    }

    fn has(parts: &LocalParts, cut: u64, index: u32) -> bool {
        parts.find(&name(cut), &part(index, 0)).is_some()
    }

    fn saved() -> LocalParts {
        let parts = LocalParts::new(Memory::new(1 << 20));
        parts.begin(Generation(1), None, |_| true);
        parts
    }

    #[test]
    fn a_part_is_here_until_a_snapshot_has_another() {
        let parts = saved();
        save(&parts, 1, &[0, 1], &[0, 1]);
        parts.commit(Generation(1), 1);
        save(&parts, 2, &[0, 1], &[0]);
        assert!(has(&parts, 1, 0) && has(&parts, 2, 0), "either may be used");
        parts.commit(Generation(1), 2);
        assert!(!has(&parts, 1, 0) && has(&parts, 2, 0));
        // Not written since.
        assert!(has(&parts, 1, 1));
    }

    #[test]
    fn void_cuts_leave_nothing_and_what_was_saved_before_stays() {
        let parts = saved();
        save(&parts, 1, &[0], &[0]);
        parts.commit(Generation(1), 1);
        save(&parts, 2, &[0], &[0]);
        save(&parts, 3, &[0], &[]);
        assert!(has(&parts, 1, 0) && !has(&parts, 2, 0));
        parts.commit(Generation(1), 3);
        assert!(has(&parts, 1, 0));
    }

    #[test]
    fn who_saves_elsewhere_has_nothing_here() {
        let parts = saved();
        save(&parts, 1, &[0, 1], &[0, 1]);
        parts.commit(Generation(1), 1);
        save(&parts, 2, &[1], &[]);
        parts.commit(Generation(1), 2);
        assert!(!has(&parts, 1, 0) && has(&parts, 1, 1));
        // All have left.
        parts.commit(Generation(1), 3);
        assert!(!has(&parts, 1, 1));
        assert_eq!(parts.memory().spare_bytes(), 0);
    }

    #[test]
    fn only_what_a_manifest_lists_is_used() {
        let parts = saved();
        save(&parts, 1, &[0, 1, 2], &[0, 1, 2]);
        parts.commit(Generation(1), 1);
        let whole = part(0, 0);
        for other in [
            StoredPart { start: 9, ..whole },
            StoredPart {
                bytes: BYTES + 1,
                ..whole
            },
            StoredPart {
                checksum: 7,
                ..whole
            },
            StoredPart { shard: 3, ..whole },
            StoredPart {
                dataset: DatasetId(3),
                ..whole
            },
        ] {
            assert!(parts.find(&name(1), &other).is_none(), "{other:?}");
        }
        assert!(!has(&parts, 2, 0), "another object");
        // The next generation keeps what its snapshot has, of shards that it has.
        let manifest = CutManifest {
            program: 0,
            name: "x".into(),
            cut: 2,
            at: Cut::LoopTop(0),
            turns: 1,
            states: CutStates::default(),
            outcomes: Vec::new(),
            sources: Vec::new(),
            objects: vec![name(2), name(1)],
            parts: vec![part(0, 0), part(1, 1), part(2, 1)],
            results: None,
        };
        parts.begin(Generation(2), Some(&manifest), |it| it.index < 2);
        let kept: Vec<bool> = (0..3).map(|index| has(&parts, 1, index)).collect();
        assert_eq!(kept, [false, true, false]);
        // The one before says nothing any more.
        save(&parts, 3, &[0], &[0]);
        parts.commit(Generation(1), 3);
        assert!(has(&parts, 1, 1) && !has(&parts, 3, 0));
    }

    #[test]
    fn who_wants_the_room_gets_it() {
        let parts = saved();
        save(&parts, 1, &[0], &[0]);
        parts.commit(Generation(1), 1);
        let own = parts.memory().own();
        assert!(own.reserve(Class::Resident, 1 << 20).is_ok());
        assert!(!has(&parts, 1, 0));
    }

    #[test]
    fn parts_wait_for_the_next_generation_of_a_job_that_was_lost() {
        let (memory, now) = (Memory::new(1 << 20), Instant::now());
        let (job, mut jobs) = (JobId(3), LocalJobs::default());
        let first = jobs.of(job, &memory);
        jobs.released(job, false, now);
        jobs.tick(now + UNUSED_TIME / 2);
        assert!(Arc::ptr_eq(&first, &jobs.of(job, &memory)));
        // It is used: time does not matter.
        jobs.tick(now + 2 * UNUSED_TIME);
        assert!(Arc::ptr_eq(&first, &jobs.of(job, &memory)));
        jobs.released(job, false, now);
        jobs.tick(now + UNUSED_TIME);
        assert!(!Arc::ptr_eq(&first, &jobs.of(job, &memory)));
        jobs.released(job, true, now);
        assert!(jobs.0.is_empty(), "a job that has ended leaves nothing");
    }
}
