//! Jobs that survive their process: what of them is kept in a store, and how one that is started again goes on from there.
//!
//! A command (a script with its arguments) has a directory in the store, and each of its jobs one in there, named after the program, its hash, and
//! how often the command has begun that program before. A job's snapshots lie there, and when it has ended its results: a command that is
//! started again finds both. What a command has stored goes when it has ended well.

mod coordinator;
mod every;
mod found;
mod mailbox;
mod marks;
mod parts;
mod places;
mod saved;
mod stored;

pub use places::{clear_stored, is_commanded, set_command, set_fresh, set_store};

pub(crate) use places::of_process;

pub(crate) use every::{GIVE as EVERY_GIVE, parse as parse_every};
pub(crate) use found::{NearParts, NotNear, PartChunks, changed, read_values};
pub(crate) use mailbox::{CutMailbox, Said};
pub(crate) use parts::{SnapshotWriter, WrittenParts};
pub(crate) use saved::{SnapshotName, each_part};
pub(crate) use stored::{StoreCaller, Stored};

/// Outcomes of a program's own signals, as far as they are known.
pub(crate) fn root_outcomes(plan: &Plan, job: &Job) -> Vec<(StageId, bool)> {
    let spec = plan.program.spec();
    let stages = (0..).map(StageId).zip(&spec.stages);
    let signals =
        stages.filter(|(_, stage)| stage.kind == StageKind::Signal && stage.block == Spec::ROOT);
    let outcome = |(id, _)| Some((id, job.first_outcome(id)?));
    signals.filter_map(outcome).collect()
}

/// Fingerprints of what a program begins with, all of which is read.
pub(crate) fn sources(plan: &Plan) -> Option<Vec<SourceMark>> {
    marks::sources(plan, || true)
}

use crate::Outcome;
use brambling_program::{CutStates, DatasetId, Plan, Spec, StageId, StageKind};
use brambling_protocol::kept::{CutManifest, KeptError, SourceMark};
use brambling_storage::{
    LockWait, ObjectKey, PlacedStore, StoreError, StoreLocation, StoreLock, StoreTrouble,
};
use brambling_worker::executor::Job;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Manifests that are kept: if the newest is damaged, the one before it is used.
const MANIFESTS: usize = 2;

/// What one job has in a store.
#[derive(Debug)]
pub(crate) struct JobStore {
    pub(crate) store: Arc<dyn PlacedStore>,
    /// Of its place; without it another process may have the place.
    lock: Arc<StoreLock>,
    pub(crate) program: u128,
    pub(crate) name: String,
    /// What people are to be told.
    pub(crate) told: Vec<String>,
    /// Manifests that are there, oldest first.
    manifests: Vec<u64>,
    /// Tells this run's objects from those of others.
    run: String,
}

impl JobStore {
    /// The place of a job of this program that begins now; none if whoever asked did not wait.
    ///
    /// # Errors
    /// Why nothing can be kept there.
    pub(crate) fn open(
        location: &StoreLocation,
        plan: &Plan,
        waits: &mut LockWait<'_>,
    ) -> Result<Option<JobStore>, StoreError> {
        let program = plan.program.spec().hash();
        let name = plan.program.spec().name.clone();
        let all = location.open()?;
        let mut told = Vec::new();
        let Some((store, lock)) = places::take(&all, &name, program, &mut told, waits)? else {
            return Ok(None);
        };
        if places::is_fresh() {
            for key in store.list(&key("manifests"))? {
                store.delete(&key)?;
            }
        }
        let listed = store.list(&key("manifests"))?;
        let mut manifests: Vec<u64> = listed.iter().filter_map(number).collect();
        manifests.sort_unstable();
        Ok(Some(JobStore {
            store,
            lock,
            program,
            name,
            told,
            manifests,
            run: places::run_name(),
        }))
    }

    /// The number of the last cut that is known.
    pub(crate) fn last_cut(&self) -> u64 {
        self.manifests.last().copied().unwrap_or(0)
    }

    /// Begins the parts of a cut.
    pub(crate) fn parts(&self, cut: u64) -> SnapshotWriter {
        SnapshotWriter::new(self.store.clone(), format!("parts/{cut}-{}", self.run))
    }

    /// Makes a snapshot exist, and takes away those that are not kept any more.
    pub(crate) fn commit(&mut self, manifest: &CutManifest) -> Result<(), StoreError> {
        let cut = manifest.cut;
        if !self.lock.is_held() {
            let doing = format!("writing {}", manifest_key(cut));
            return Err(self.trouble(doing, StoreTrouble::Taken));
        }
        self.store.create(&manifest_key(cut), &manifest.encode())?;
        self.manifests.push(cut);
        let kept = self.manifests.len().saturating_sub(MANIFESTS);
        // It exists. What is not deleted now is deleted another time.
        for cut in self.manifests.drain(..kept) {
            let _ = self.store.delete(&manifest_key(cut));
        }
        let _ = self.sweep();
        Ok(())
    }

    /// Deletes objects that no manifest names. Called while nothing is being written.
    pub(crate) fn sweep(&self) -> Result<(), StoreError> {
        if !self.lock.is_held() {
            // What is there may be another process's.
            return Ok(());
        }
        let mut named = BTreeSet::new();
        for cut in &self.manifests {
            let bytes = self.store.read(&manifest_key(*cut), None)?;
            match CutManifest::decode(&bytes) {
                Ok(manifest) => named.extend(manifest.objects),
                // Its own Brambling can read it.
                Err(KeptError::Newer { .. }) => return Ok(()),
                // It names nothing that could be used.
                Err(KeptError::Damaged | KeptError::OtherKind(_)) => {}
            }
        }
        let parts = self.store.list(&key("parts"))?;
        let mut unnamed = parts.iter().filter(|it| !named.contains(it.as_str()));
        unnamed.try_for_each(|it| self.store.delete(it))
    }

    /// A partition's value cannot be made again of anything that could be kept.
    pub(crate) fn unkept(
        &self,
        plan: &Plan,
        (dataset, index): (DatasetId, u32),
        why: &str,
    ) -> StoreError {
        let name = &plan.program.spec().datasets[dataset.index()].name;
        let doing = format!("saving partition {index} of `{name}`");
        self.trouble(doing, StoreTrouble::Other(why.to_owned()))
    }

    fn trouble(&self, doing: String, trouble: StoreTrouble) -> StoreError {
        StoreError {
            store: self.store.name().to_owned(),
            doing,
            trouble,
        }
    }

    /// Keeps the results of a job that has ended, instead of its snapshots.
    pub(crate) fn keep_results(
        &mut self,
        outcome: &mut Outcome,
        sources: Vec<SourceMark>,
    ) -> Result<(), StoreError> {
        let cut = self.last_cut() + 1;
        // Names of its own: a cut of that number may have been begun.
        let prefix = format!("parts/end-{}", self.run);
        let mut writer = SnapshotWriter::new(self.store.clone(), prefix);
        for dataset in outcome.kept() {
            for index in 0..outcome.partitions(dataset) {
                let value = outcome.value(dataset, index);
                if !value.payload_type().is_interpreted() {
                    writer.value(dataset, index, value)?;
                    continue;
                }
                let mut bytes = Vec::new();
                let kept = value.encode_kept(&mut bytes);
                kept.map_err(|why| self.unkept(outcome.plan(), (dataset, index), &why))?;
                writer.encoded(dataset, index, &bytes)?;
            }
        }
        let results = stored::results_of(outcome);
        let WrittenParts { objects, parts, .. } = writer.finish()?;
        self.commit(&CutManifest {
            program: self.program,
            name: self.name.clone(),
            cut,
            at: brambling_program::Cut::End,
            turns: 0,
            states: CutStates::default(),
            outcomes: Vec::new(),
            sources,
            objects,
            parts,
            results: Some(results),
        })
    }
}

fn key(key: &str) -> ObjectKey {
    ObjectKey::new(key).expect("a key of ours")
}

fn manifest_key(cut: u64) -> ObjectKey {
    key(&format!("manifests/{cut:020}"))
}

fn number(key: &ObjectKey) -> Option<u64> {
    key.as_str().rsplit('/').next()?.parse().ok()
}
