//! Snapshots of a cluster's jobs: where they lie in a store, and how a worker reads its part of one. All processes of the cluster use one store, each by its own
//! way there.

use crate::store::{NearParts, read_values};
use brambling_program::{DatasetId, Plan, ShardId, Value};
use brambling_protocol::kept::{CutManifest, KeptProgram};
use brambling_protocol::message::{KeptPlace, SnapshotEvery};
use brambling_storage::{ObjectKey, PlacedStore, StoreError, StoreLocation, StoreTrouble};
use brambling_worker::executor::Restored;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// Where a controller has its jobs saved.
#[derive(Clone, Debug)]
pub struct SnapshotOptions {
    /// A directory that the cluster's hosts see, or `s3://BUCKET/PREFIX`.
    pub store: String,
    /// How often a job is saved that does not say.
    pub every: SnapshotEvery,
}

/// The store of a cluster, as a controller opens it.
pub(super) fn open(store: &str) -> Result<Arc<dyn PlacedStore>, StoreError> {
    let location = StoreLocation::parse(store).map_err(|why| StoreError {
        store: StoreLocation::without_user(store),
        doing: "opening it".into(),
        trouble: StoreTrouble::Other(why),
    })?;
    location.open()
}

/// What a controller leaves in its store, for workers to see that it is the same.
pub(super) fn mark_of(prefix: &str) -> ObjectKey {
    key(&format!("{prefix}/cluster"))
}

/// What a job has in a store.
#[derive(Debug)]
pub(super) struct JobPlace {
    pub(super) store: Arc<dyn PlacedStore>,
    place: String,
}

impl JobPlace {
    pub(super) fn new(store: Arc<dyn PlacedStore>, place: &str) -> JobPlace {
        JobPlace {
            store,
            place: place.to_owned(),
        }
    }

    /// The place of a job on a worker, whose host has to see what the controller's sees.
    pub(super) fn seen(kept: &KeptPlace) -> Result<JobPlace, StoreError> {
        let unseen = |why: &str| StoreError {
            store: kept.store.clone(),
            doing: "opening it".into(),
            trouble: StoreTrouble::Other(why.to_owned()),
        };
        let other = "this host has another directory of that name; give a store that all hosts of the cluster see, or set snapshot_every = \"off\"";
        let is_directory = matches!(
            StoreLocation::parse(&kept.store),
            Ok(StoreLocation::Directory(_))
        );
        if is_directory && !Path::new(&kept.store).is_dir() {
            return Err(unseen(
                "this host has no such directory; give a store that all hosts of the cluster see, or set snapshot_every = \"off\"",
            ));
        }
        let store = open(&kept.store)?;
        let prefix = kept.place.rsplit_once('/').map_or("", |(prefix, _)| prefix);
        match store.read(&mark_of(prefix), None) {
            Ok(_) => Ok(JobPlace::new(store, &kept.place)),
            Err(StoreError {
                trouble: StoreTrouble::Absent,
                ..
            }) => Err(unseen(other)),
            Err(error) => Err(error),
        }
    }

    /// How the keys of the parts begin that somebody saves for a cut.
    pub(super) fn parts_of(&self, cut: u64, by: &str) -> String {
        format!("{}/parts/{cut}-{by}", self.place)
    }

    /// Keeps the job's program. One that is there is the same.
    pub(super) fn keep_program(&self, program: &KeptProgram) -> Result<(), StoreError> {
        let at = key(&format!("{}/program", self.place));
        match self.store.create(&at, &program.encode()) {
            Err(error) if error.trouble == StoreTrouble::Exists => Ok(()),
            made => made,
        }
    }

    /// The place stands from now on: until it is cleared.
    pub(super) fn raise(&self) -> Result<(), StoreError> {
        match self.store.create(&self.mark(), &[]) {
            // For an earlier generation, or by an earlier controller.
            Err(error) if error.trouble == StoreTrouble::Exists => Ok(()),
            made => made,
        }
    }

    /// Whether it stands. One that did and does not any more is a job's that nobody asks for: what is written there is nobody's.
    pub(super) fn stands(&self) -> Result<bool, StoreError> {
        match self.store.read(&self.mark(), None) {
            Ok(_) => Ok(true),
            Err(error) if error.trouble == StoreTrouble::Absent => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Takes away all that the job has here.
    pub(super) fn clear(&self) -> Result<(), StoreError> {
        // First: whoever writes something here that is not seen now sees then that nothing stands.
        self.store.delete(&self.mark())?;
        self.store.clear(&key(&self.place))
    }

    fn mark(&self) -> ObjectKey {
        key(&format!("{}/job", self.place))
    }

    /// Makes a snapshot exist.
    pub(super) fn commit(&self, manifest: &CutManifest) -> Result<(), StoreError> {
        self.store
            .create(&self.manifest(manifest.cut), &manifest.encode())
    }

    /// A manifest that can be read.
    pub(super) fn read(&self, cut: u64) -> Option<CutManifest> {
        let bytes = self.store.read(&self.manifest(cut), None).ok()?;
        CutManifest::decode(&bytes).ok()
    }

    fn manifest(&self, cut: u64) -> ObjectKey {
        key(&format!("{}/manifests/{cut:020}", self.place))
    }

    /// Takes away a manifest that is not kept, and then what no other names of all that was saved up to a cut.
    pub(super) fn sweep(
        &self,
        old: &[u64],
        kept: &[CutManifest],
        up_to: u64,
    ) -> Result<(), StoreError> {
        old.iter()
            .try_for_each(|cut| self.store.delete(&self.manifest(*cut)))?;
        let named: BTreeSet<&str> = (kept.iter())
            .flat_map(|it| it.objects.iter().map(String::as_str))
            .collect();
        let prefix = format!("{}/parts", self.place);
        let is_old = |object: &ObjectKey| {
            let behind = object.as_str().strip_prefix(&prefix);
            let cut = behind.and_then(|it| it.trim_start_matches('/').split('-').next());
            // What is saved for a cut that is open now is named by nobody yet.
            cut.and_then(|cut| cut.parse::<u64>().ok())
                .is_some_and(|cut| cut <= up_to)
        };
        let all = self.store.list(&key(&prefix))?.into_iter();
        let mut unnamed = all.filter(|it| is_old(it) && !named.contains(it.as_str()));
        unnamed.try_for_each(|it| self.store.delete(&it))
    }

    /// The manifest of a snapshot at which a job is to begin.
    ///
    /// # Errors
    /// Why this snapshot cannot be used.
    pub(super) fn manifest_for(&self, plan: &Plan, cut: u64) -> Result<CutManifest, String> {
        let bytes = self.store.read(&self.manifest(cut), None);
        let bytes = bytes.map_err(|error| error.to_string())?;
        let manifest = CutManifest::decode(&bytes)
            .map_err(|why| format!("snapshot {cut} in {}: {why}", self.store.name()))?;
        if manifest.program != plan.program.spec().hash() {
            return Err(format!(
                "snapshot {cut} in {} is of another program",
                self.store.name()
            ));
        }
        Ok(manifest)
    }

    /// What a job's shards here begin with: read from the store, as far as it is not near.
    ///
    /// # Errors
    /// Why this snapshot cannot be used.
    pub(super) fn restore(
        &self,
        plan: &Plan,
        manifest: CutManifest,
        is_here: impl Fn(ShardId) -> bool,
        near: &impl NearParts,
    ) -> Result<Restored, String> {
        let cut = manifest.cut;
        let values: BTreeMap<(DatasetId, u32), Value> =
            read_values(&*self.store, plan, &manifest, &is_here, near)
                .map_err(|error| error.to_string())?
                .map_err(|why| format!("snapshot {cut} in {}: {why}", self.store.name()))?;
        let CutManifest {
            at,
            states,
            outcomes,
            ..
        } = manifest;
        Restored::new(plan, at, states, outcomes, values, is_here).ok_or_else(|| {
            format!(
                "snapshot {cut} in {} is not one of this program",
                self.store.name()
            )
        })
    }
}

pub(super) fn key(key: &str) -> ObjectKey {
    ObjectKey::new(key).expect("a key of ours")
}
