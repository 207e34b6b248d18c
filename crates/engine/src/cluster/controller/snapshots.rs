//! Writes the manifests of a cluster's jobs, on a thread of its own: the controller waits for no disk.

use super::super::ClusterError;
use super::super::snapshots::{JobPlace, SnapshotOptions, key, mark_of, open};
use super::log::{ClusterLog, LogEnd};
use super::{ControllerShared, numbers_from};
use crate::restore::{copied, found};
use crate::store::SnapshotWriter;
use brambling_protocol::kept::{CutManifest, LogEntry, StoredPart};
use brambling_protocol::message::KeptPlace;
use brambling_protocol::{JobId, JobKey};
use brambling_storage::{ObjectKey, PlacedStore, StoreError, StoreTrouble};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// What the thread is to do.
enum StoreTask {
    /// A job begins that is saved.
    Raise(JobId, String),
    Commit(JobKey, String, Box<CutManifest>),
    Clear(JobId, String),
    /// Makes a snapshot of a job's own of another one.
    Copy(JobKey, KeptPlace, String),
}

/// The thread that writes.
pub(super) struct SnapshotWriting {
    tasks: Option<Sender<StoreTask>>,
    thread: Option<JoinHandle<()>>,
    /// How the keys of this cluster begin.
    pub(super) prefix: String,
}

impl SnapshotWriting {
    /// Opens the store, and marks it.
    pub(super) fn start(
        options: &SnapshotOptions,
        (cluster, log): (u64, Option<Arc<ClusterLog>>),
        found: &BTreeMap<JobId, Vec<u64>>,
        shared: &Arc<ControllerShared>,
    ) -> Result<SnapshotWriting, ClusterError> {
        let unusable = |source: StoreError| ClusterError::Store { source };
        let store = open(&options.store).map_err(unusable)?;
        let prefix = format!("cluster-{cluster:016x}");
        match store.create(&mark_of(&prefix), &[]) {
            // A controller before this one has.
            Err(error) if error.trouble == StoreTrouble::Exists && log.is_some() => {}
            made => made.map_err(unusable)?,
        }
        let (tasks, come) = channel();
        let mut works = Works {
            store,
            prefix: prefix.clone(),
            shared: Arc::downgrade(shared),
            log,
            kept: BTreeMap::new(),
            raised: BTreeSet::new(),
        };
        // What earlier controllers have made is needed before a job begins there.
        for (job, cuts) in found {
            let place = format!("{prefix}/{}", job.0);
            let manifests = works.found(*job, &place, cuts);
            shared.state().bases.insert(*job, manifests);
        }
        // Before a job begins that is not among those.
        let released = works.released(found);
        let builder = std::thread::Builder::new().name("brambling-store".into());
        let thread = builder
            .spawn(move || {
                for job in released {
                    let _ = works.place(&format!("{}/{}", works.prefix, job.0)).clear();
                }
                works.work(&come);
            })
            .map_err(|source| ClusterError::System { source })?;
        Ok(SnapshotWriting {
            tasks: Some(tasks),
            thread: Some(thread),
            prefix,
        })
    }

    pub(super) fn raise(&self, job: JobId, place: String) {
        self.give(StoreTask::Raise(job, place));
    }

    pub(super) fn commit(&self, key: JobKey, place: String, manifest: Box<CutManifest>) {
        self.give(StoreTask::Commit(key, place, manifest));
    }

    pub(super) fn copy_snapshot(&self, key: JobKey, from: KeptPlace, place: String) {
        self.give(StoreTask::Copy(key, from, place));
    }

    pub(super) fn clear(&self, job: JobId, place: KeptPlace) {
        self.give(StoreTask::Clear(job, place.place));
    }

    fn give(&self, task: StoreTask) {
        // The thread lives as long as this.
        let _ = self.tasks.as_ref().map(|tasks| tasks.send(task));
    }

    /// Writes what was asked for, and takes away all of this cluster's.
    pub(super) fn end(mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Works {
    store: Arc<dyn PlacedStore>,
    prefix: String,
    shared: Weak<ControllerShared>,
    /// Where snapshots are noted, if jobs outlive the controller.
    log: Option<Arc<ClusterLog>>,
    /// Of each job, the manifests that are kept.
    kept: BTreeMap<JobId, Vec<CutManifest>>,
    /// Jobs whose places stand.
    raised: BTreeSet<JobId>,
}

impl Works {
    /// Jobs that have something here, and for which nobody asks: an earlier controller may have died after it had noted that, and before it took
    /// away what they had. A store that does not say now is not asked again.
    fn released(&self, jobs: &BTreeMap<JobId, Vec<u64>>) -> BTreeSet<JobId> {
        let all = match &self.log {
            Some(_) => self.store.list(&key(&self.prefix)).unwrap_or_default(),
            None => Vec::new(),
        };
        let job = |it: &ObjectKey| {
            let behind = it.as_str().strip_prefix(&self.prefix)?;
            behind.split('/').nth(1)?.parse().ok().map(JobId)
        };
        let found = all.iter().filter_map(job);
        found.filter(|job| !jobs.contains_key(job)).collect()
    }

    fn place(&self, place: &str) -> JobPlace {
        JobPlace::new(self.store.clone(), place)
    }

    /// What cannot be marked now is marked with its next snapshot.
    fn raise(&mut self, job: JobId, place: &str) {
        if !self.raised.contains(&job) && self.place(place).raise().is_ok() {
            self.raised.insert(job);
        }
    }

    fn work(&mut self, come: &Receiver<StoreTask>) {
        while let Ok(task) = come.recv() {
            match task {
                StoreTask::Raise(job, place) => self.raise(job, &place),
                StoreTask::Commit(key, place, manifest) => self.commit(key, &place, *manifest),
                StoreTask::Copy(key, from, place) => self.copy_snapshot(key, &from, &place),
                StoreTask::Clear(job, place) => {
                    self.kept.remove(&job);
                    self.raised.remove(&job);
                    // What is left lies under the name of a cluster that nobody else has.
                    let _ = self.place(&place).clear();
                }
            }
        }
        // What outlives this controller is another's.
        if self.log.is_none() {
            let _ = self.store.clear(&key(&self.prefix));
        }
    }

    /// Manifests that an earlier controller has made of a job.
    fn found(&mut self, job: JobId, place: &str, cuts: &[u64]) -> Vec<CutManifest> {
        let place = self.place(place);
        let found: Vec<CutManifest> = cuts.iter().filter_map(|cut| place.read(*cut)).collect();
        self.kept.insert(job, found.clone());
        found
    }

    /// A job begins at another one's snapshot. It gets a copy: what becomes of that one does not matter to it.
    fn copy_snapshot(&mut self, of: JobKey, from: &KeptPlace, place: &str) {
        self.raise(of.job, place);
        let made = self.copy(of, from, place);
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let manifest = match made {
            Ok(manifest) => manifest,
            Err(why) => return shared.on_uncopied(of, why),
        };
        if let Some(log) = &self.log {
            let (job, cut) = (of.job, manifest.cut);
            match log.append(LogEntry::Snapshot { job, cut }) {
                Ok(()) => {}
                Err(LogEnd::Deposed) => return shared.on_deposed(),
                Err(LogEnd::Store(error)) => return shared.on_uncopied(of, error.to_string()),
            }
        }
        self.kept.insert(of.job, vec![manifest.clone()]);
        shared.on_copied(of, manifest);
    }

    fn copy(&self, of: JobKey, from: &KeptPlace, place: &str) -> Result<CutManifest, String> {
        let (objects, manifest) = found(from)?;
        let place = self.place(place);
        let cut = numbers_from(of) + 1;
        let writer = SnapshotWriter::new(self.store.clone(), place.parts_of(cut, "restored"));
        let copied = copied(&*objects, &manifest, writer);
        let manifest = CutManifest {
            cut,
            ..copied.map_err(|why| {
                format!("the snapshot cannot be copied into this cluster's store: {why}")
            })?
        };
        place.commit(&manifest).map_err(|error| error.to_string())?;
        Ok(manifest)
    }

    fn commit(&mut self, of: JobKey, place: &str, manifest: CutManifest) {
        self.raise(of.job, place);
        let place = self.place(place);
        let cut = manifest.cut;
        let made = place.commit(&manifest);
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        if let Err(error) = made {
            let line = format!("no snapshot was taken, and the job goes on: {error}");
            return shared.on_uncommitted(of, cut, &line);
        }
        if let Some(log) = &self.log {
            let job = of.job;
            match log.append(LogEntry::Snapshot { job, cut }) {
                Ok(()) => {}
                // What it has made is nobody's: another's snapshots count.
                Err(LogEnd::Deposed) => return shared.on_deposed(),
                Err(LogEnd::Store(error)) => {
                    let line = format!("no snapshot was taken, and the job goes on: {error}");
                    return shared.on_uncommitted(of, cut, &line);
                }
            }
        }
        // It exists from now on, and what the job loses it finds there.
        let cuts = shared.on_committed(of, &manifest);
        drop(shared);
        let kept = self.kept.entry(of.job).or_default();
        kept.push(manifest);
        let old: Vec<u64> = (kept.iter().map(|it| it.cut))
            .filter(|cut| !cuts.contains(cut))
            .collect();
        kept.retain(|it| cuts.contains(&it.cut));
        // What is not deleted now is deleted with the next.
        let _ = place.sweep(&old, kept, cut);
    }
}

impl ControllerShared {
    fn on_copied(self: &Arc<Self>, of: JobKey, manifest: CutManifest) {
        let mut state = self.state();
        let cut = manifest.cut;
        state.bases.insert(of.job, vec![manifest]);
        state.registry.on_copied(of, cut);
        state.act(self);
    }

    fn on_uncopied(self: &Arc<Self>, of: JobKey, why: String) {
        let mut state = self.state();
        state.registry.on_uncopied(of, why);
        state.act(self);
    }

    fn on_committed(self: &Arc<Self>, of: JobKey, manifest: &CutManifest) -> Vec<u64> {
        let mut state = self.state();
        let own = format!("/parts/{}-", manifest.cut);
        let is_own = |it: &&StoredPart| manifest.objects[it.object as usize].contains(&own);
        let bytes = manifest.parts.iter().filter(is_own).map(|it| it.bytes);
        let bytes = bytes.sum();
        let took = state.jobs.get(&of).map(|machine| machine.saved_for());
        let took = took.unwrap_or_default();
        let cuts = state.registry.on_snapshot(of, manifest.cut, bytes, took);
        let bases = state.bases.entry(of.job).or_default();
        bases.push(manifest.clone());
        bases.retain(|it| cuts.contains(&it.cut));
        if let Some(machine) = state.jobs.get_mut(&of) {
            machine.on_committed(manifest.clone());
        }
        state.act(self);
        cuts
    }

    fn on_uncommitted(self: &Arc<Self>, of: JobKey, cut: u64, line: &str) {
        let mut state = self.state();
        state.registry.on_no_snapshot(of, line);
        if let Some(machine) = state.jobs.get_mut(&of) {
            machine.on_uncommitted(cut);
        }
        state.act(self);
    }
}
