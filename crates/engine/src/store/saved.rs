//! Snapshots as they lie in a store, whoever made them: jobs of one process, and of clusters.

use super::key;
use brambling_protocol::JobId;
use brambling_protocol::kept::{CutManifest, KeptError, StoredPart, checksum};
use brambling_storage::{ObjectKey, ObjectStore, PlacedStore, StoreError, StoreTrouble};
use std::sync::Arc;

/// How the names of clusters' places begin.
const OF_CLUSTERS: &str = "cluster-";

/// A snapshot of a store: the place of its job, and its cut.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SnapshotName {
    pub(crate) place: String,
    pub(crate) cut: u64,
}

impl std::fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.place, self.cut)
    }
}

impl SnapshotName {
    /// The snapshot whose manifest has this key.
    pub(crate) fn of_manifest(manifest: &ObjectKey) -> Option<SnapshotName> {
        let (rest, cut) = manifest.as_str().rsplit_once('/')?;
        let (place, cut) = (rest.strip_suffix("/manifests")?.to_owned(), cut.parse());
        Some(SnapshotName {
            place,
            cut: cut.ok()?,
        })
    }

    fn manifest(&self) -> ObjectKey {
        key(&format!("{}/manifests/{:020}", self.place, self.cut))
    }

    /// Where the job's program is, if it was kept.
    pub(crate) fn program(&self) -> ObjectKey {
        key(&format!("{}/program", self.place))
    }

    /// The job of a cluster that made it.
    pub(crate) fn job(&self) -> Option<JobId> {
        let (_, job) = self.place.strip_prefix(OF_CLUSTERS)?.split_once('/')?;
        job.parse().ok().map(JobId)
    }

    /// Reads what it consists of. An inner error says why it cannot be used.
    pub(crate) fn read(
        &self,
        all: &dyn ObjectStore,
    ) -> Result<Result<CutManifest, KeptError>, StoreError> {
        let bytes = all.read(&self.manifest(), None)?;
        Ok(CutManifest::decode(&bytes))
    }

    /// Where its objects' keys lead: those of clusters are keys of the store, all others begin at the job's place.
    pub(crate) fn objects(
        &self,
        all: &Arc<dyn PlacedStore>,
    ) -> Result<Arc<dyn PlacedStore>, StoreError> {
        match self.place.starts_with(OF_CLUSTERS) {
            true => Ok(all.clone()),
            false => all.within(&key(&self.place)),
        }
    }
}

/// Reads the parts of a snapshot one after the other, and compares them with their checksums. An inner error says what is damaged or missing.
pub(crate) fn each_part(
    objects: &dyn ObjectStore,
    manifest: &CutManifest,
    mut take: impl FnMut(&StoredPart, &[u8]) -> Result<(), StoreError>,
) -> Result<Result<(), String>, StoreError> {
    for part in &manifest.parts {
        let object = &manifest.objects[part.object as usize];
        let Some(at) = ObjectKey::new(object.as_str()) else {
            return Ok(Err(format!("`{object}` is no name of an object")));
        };
        let bytes = match objects.read(&at, Some(part.start..part.start + part.bytes)) {
            Ok(bytes) => bytes,
            Err(error) => match error.trouble {
                StoreTrouble::Absent => return Ok(Err(format!("{object} is not there"))),
                StoreTrouble::Damaged(how) => {
                    return Ok(Err(format!("{object} is damaged: {how}")));
                }
                _ => return Err(error),
            },
        };
        if checksum(&bytes) != part.checksum {
            return Ok(Err(format!(
                "{object} is damaged: the checksum of {} bytes from byte {} on, partition {} of dataset {}, is not the one that was written",
                part.bytes,
                part.start,
                part.shard,
                part.dataset.index()
            )));
        }
        take(part, &bytes)?;
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_named_after_their_manifests() {
        let name = |text: &str| SnapshotName::of_manifest(&key(text));
        let of_cluster = name("cluster-00000000000000ff/7/manifests/00000000004294967297").unwrap();
        assert_eq!(
            of_cluster.to_string(),
            "cluster-00000000000000ff/7/4294967297"
        );
        assert_eq!(of_cluster.job(), Some(JobId(7)));
        let of_process = name("flights-12/delays-34-1/manifests/00000000000000000002").unwrap();
        assert_eq!(of_process.to_string(), "flights-12/delays-34-1/2");
        assert_eq!(of_process.job(), None);
        assert_eq!(
            of_process.manifest().as_str(),
            "flights-12/delays-34-1/manifests/00000000000000000002"
        );
        for other in [
            "cluster-00000000000000ff/cluster",
            "a/parts/3-w1-0",
            "manifests/1",
        ] {
            assert_eq!(name(other), None, "{other}");
        }
    }
}
