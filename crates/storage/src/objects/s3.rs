//! A store that is a part of a bucket: of Amazon S3, or of a server that speaks its language.
//!
//! An object is made by one request on the condition that there is none of its key (`If-None-Match: *`). What is written is kept in memory until
//! then. A request whose answer was lost is made again; if the second one is told that the object exists, the bytes that are there say whether the
//! first one had made it. That is exact for objects that have the name of whoever made them in their key or their content, which all of ours have:
//! parts in their keys, manifests through the keys of their parts, leases in their content.

mod access;
mod client;
mod profiles;
mod trouble;

use super::lease::{self, LeaseTimes};
use super::probe::{self, probe_once};
use super::{
    LockWait, Locking, ObjectKey, ObjectStore, ObjectWriter, PlacedStore, S3Place, StoreError,
    StoreTrouble,
};
use access::S3Access;
use client::{Doubt, S3Client};
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{ObjectStore as _, ObjectStoreExt as _, PutPayload, PutPayloadMut};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A range is read in requests of at most so many bytes, each of which ends in time.
const READ_BYTES: u64 = 16 << 20;
/// What one request may write, by the rules of S3.
const OBJECT_BYTES_MAX: u64 = 5 << 30;
/// How often an object is tried to be made.
const ATTEMPTS: u32 = 5;
/// Before the second try; twice as long before each further one.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// A part of a bucket, in which objects are.
#[derive(Clone)]
pub struct S3Store {
    client: Arc<S3Client>,
    place: S3Place,
    name: String,
}

// Credentials appear nowhere.
impl std::fmt::Debug for S3Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3Store")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl S3Store {
    /// A store whose server, region and credentials this process's environment names, and the files that AWS's own tools read. The first time that
    /// a process opens it, the store is tried out.
    ///
    /// # Errors
    /// When it cannot be reached, may not be used, or does not keep what a store promises.
    pub fn open(place: &S3Place) -> Result<S3Store, StoreError> {
        let variables: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let store = S3Store::with_variables(place, &variables)?;
        // Of another client, with connections of its own.
        let other = S3Store::with_variables(place, &variables)?;
        probe_once([&store, &other], probe::OF_SERVERS)?;
        Ok(store)
    }

    /// A store as these variables name it, which is not tried out.
    ///
    /// # Errors
    /// When they name no server that could be asked.
    pub fn with_variables(
        place: &S3Place,
        variables: &BTreeMap<String, String>,
    ) -> Result<S3Store, StoreError> {
        let name = place.to_string();
        let refused = |trouble| StoreError::new(&name, "opening it".into(), trouble);
        let access = S3Access::of(variables).map_err(refused)?;
        Ok(S3Store {
            client: Arc::new(S3Client::new(place, access)),
            place: place.clone(),
            name,
        })
    }

    /// Tries the store out by this client and another one.
    ///
    /// # Errors
    /// What it did, if it does not keep what a store promises.
    pub fn probe(&self, other: &S3Store) -> Result<(), StoreError> {
        probe::probe([self, other], probe::OF_SERVERS)
    }

    fn path(&self, key: &ObjectKey) -> Path {
        match self.place.prefix.as_str() {
            "" => Path::from(key.as_str()),
            prefix => Path::from(format!("{prefix}/{key}")),
        }
    }

    fn error(&self, doing: String, trouble: StoreTrouble) -> StoreError {
        StoreError::new(&self.name, doing, trouble)
    }

    /// The bytes of an object, if there is one.
    fn size(&self, path: &Path) -> Result<Option<u64>, StoreTrouble> {
        let path = path.clone();
        let asked = self
            .client
            .ask(move |s3| async move { s3.head(&path).await });
        match asked {
            Ok(meta) => Ok(Some(meta.size)),
            Err(StoreTrouble::Absent) => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    fn read_range(&self, path: &Path, range: Range<u64>) -> Result<Vec<u8>, StoreTrouble> {
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        let mut at = range.start;
        while at < range.end {
            let piece = at..range.end.min(at + READ_BYTES);
            let (path, asked) = (path.clone(), piece.clone());
            let read = self
                .client
                .ask(move |s3| async move { s3.get_range(&path, asked).await });
            bytes.extend_from_slice(&read?);
            at = piece.end;
        }
        Ok(bytes)
    }

    /// Makes an object once, however often it is tried.
    fn make(&self, path: &Path, payload: &PutPayload) -> Result<(), StoreTrouble> {
        let (mut pause, mut is_in_doubt) = (RETRY_PAUSE, false);
        for attempt in 1.. {
            let trouble = match self.client.create(path, payload.clone()) {
                Ok(()) => return Ok(()),
                Err((StoreTrouble::Exists, _)) => {
                    match self.who_made(path, payload, is_in_doubt)? {
                        Maker::Ours => return Ok(()),
                        Maker::Other => return Err(StoreTrouble::Exists),
                        Maker::Nobody => StoreTrouble::Other(NEITHER.into()),
                    }
                }
                Err((trouble, Doubt::Refused)) => return Err(trouble),
                Err((trouble, doubt)) => {
                    is_in_doubt |= doubt == Doubt::MayHaveArrived;
                    trouble
                }
            };
            if attempt == ATTEMPTS {
                return Err(trouble);
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
        unreachable!("the last attempt returns")
    }

    /// Who has made an object that exists.
    fn who_made(
        &self,
        path: &Path,
        payload: &PutPayload,
        is_in_doubt: bool,
    ) -> Result<Maker, StoreTrouble> {
        // Some servers say so as well when another request of that key is under way, or was.
        let Some(size) = self.size(path)? else {
            return Ok(Maker::Nobody);
        };
        let is_settled_by_bytes =
            is_in_doubt && !brambling_memory::mutants::is_on("lost-answers-are-refusals");
        if !is_settled_by_bytes || size != payload.content_length() as u64 {
            return Ok(Maker::Other);
        }
        let there = self.read_range(path, 0..size)?;
        let mut behind = there.as_slice();
        let is_ours = payload.iter().all(|chunk| {
            let (own, rest) = behind.split_at(chunk.len().min(behind.len()));
            behind = rest;
            own == chunk.as_ref()
        });
        Ok(if is_ours { Maker::Ours } else { Maker::Other })
    }
}

/// Some servers say so while another request of the key is under way; one that goes on saying so is not sound.
const NEITHER: &str = "the server says that it exists already, and that it is not there";

enum Maker {
    Ours,
    Other,
    Nobody,
}

impl S3Store {
    /// The objects whose paths begin so, in order.
    fn listed(&self, path: Path) -> Result<Vec<ObjectKey>, StoreTrouble> {
        let listing = move |s3: client::S3Handle| async move {
            s3.list(Some(&path))
                .map_ok(|meta| meta.location)
                .try_collect::<Vec<_>>()
                .await
        };
        let listed = self.client.ask(listing)?;
        let skipped = match self.place.prefix.len() {
            0 => 0,
            of_prefix => of_prefix + 1,
        };
        // Other names are nobody's objects.
        let key = |path: &Path| ObjectKey::new(path.as_ref().get(skipped..)?);
        let mut keys: Vec<ObjectKey> = listed.iter().filter_map(key).collect();
        keys.sort();
        Ok(keys)
    }
}

impl ObjectStore for S3Store {
    fn begin(&self, key: &ObjectKey) -> Result<Box<dyn ObjectWriter>, StoreError> {
        Ok(Box::new(S3Writer {
            path: self.path(key),
            doing: format!("writing {key}"),
            store: self.clone(),
            payload: PutPayloadMut::new().with_block_size(1 << 20),
        }))
    }

    fn read(&self, key: &ObjectKey, range: Option<Range<u64>>) -> Result<Vec<u8>, StoreError> {
        let path = self.path(key);
        let failed = |trouble| self.error(format!("reading {key}"), trouble);
        let Some(range) = range else {
            let whole =
                move |s3: client::S3Handle| async move { s3.get(&path).await?.bytes().await };
            return Ok(self.client.ask(whole).map_err(failed)?.to_vec());
        };
        let asked = range.end - range.start;
        let read = match asked {
            0 => Ok(Vec::new()),
            _ => self.read_range(&path, range.clone()),
        };
        // What is said of a range that is not there differs from server to server.
        let is_whole = read
            .as_ref()
            .is_ok_and(|it| it.len() as u64 == asked && asked > 0);
        if !is_whole && !matches!(&read, Err(StoreTrouble::Absent)) {
            let has = self
                .size(&path)
                .map_err(failed)?
                .ok_or(StoreTrouble::Absent);
            let has = has.map_err(failed)?;
            if range.end > has {
                let how = format!("it has {has} bytes, and {} were asked for", range.end);
                return Err(failed(StoreTrouble::Damaged(how)));
            }
        }
        read.map_err(failed)
    }

    fn delete(&self, key: &ObjectKey) -> Result<(), StoreError> {
        let path = self.path(key);
        match self
            .client
            .ask(move |s3| async move { s3.delete(&path).await })
        {
            Err(StoreTrouble::Absent) | Ok(()) => Ok(()),
            Err(trouble) => Err(self.error(format!("deleting {key}"), trouble)),
        }
    }

    fn list(&self, prefix: &ObjectKey) -> Result<Vec<ObjectKey>, StoreError> {
        let listed = self.listed(self.path(prefix));
        listed.map_err(|trouble| self.error(format!("listing {prefix}"), trouble))
    }

    fn name(&self) -> &str {
        &self.name
    }
}

impl PlacedStore for S3Store {
    fn lock(&self, key: &ObjectKey, waits: &mut LockWait<'_>) -> Result<Locking, StoreError> {
        let store: Arc<dyn ObjectStore> = Arc::new(self.clone());
        lease::take(&store, key, LeaseTimes::USUAL, waits)
    }

    fn clear(&self, key: &ObjectKey) -> Result<(), StoreError> {
        let paths: Vec<Path> = self.list(key)?.iter().map(|key| self.path(key)).collect();
        let cleared = self.client.ask(move |s3| async move {
            let paths = futures_util::stream::iter(paths).map(Ok).boxed();
            let gone = |deleted| match deleted {
                Ok(_) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(error),
            };
            let deleted = s3.delete_stream(paths).map(gone);
            deleted.try_for_each(|()| std::future::ready(Ok(()))).await
        });
        cleared.map_err(|trouble| self.error(format!("clearing {key}"), trouble))
    }

    fn clear_empty(&self, _: &ObjectKey) -> Result<(), StoreError> {
        // There are no directories.
        Ok(())
    }

    fn list_all(&self) -> Result<Vec<ObjectKey>, StoreError> {
        let listed = self.listed(Path::from(self.place.prefix.as_str()));
        listed.map_err(|trouble| self.error("listing it".into(), trouble))
    }

    fn within(&self, key: &ObjectKey) -> Result<Arc<dyn PlacedStore>, StoreError> {
        let prefix = match self.place.prefix.as_str() {
            "" => key.to_string(),
            prefix => format!("{prefix}/{key}"),
        };
        let place = S3Place {
            bucket: self.place.bucket.clone(),
            prefix,
        };
        Ok(Arc::new(S3Store {
            client: self.client.clone(),
            name: place.to_string(),
            place,
        }))
    }
}

struct S3Writer {
    store: S3Store,
    path: Path,
    doing: String,
    payload: PutPayloadMut,
}

impl ObjectWriter for S3Writer {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let has = (self.payload.content_length() + bytes.len()) as u64;
        if has > OBJECT_BYTES_MAX {
            let why = "one request cannot write more than 5 GiB; give the dataset more partitions";
            let trouble = StoreTrouble::Other(why.into());
            return Err(self.store.error(self.doing.clone(), trouble));
        }
        self.payload.extend_from_slice(bytes);
        Ok(())
    }

    fn create(self: Box<Self>) -> Result<(), StoreError> {
        let S3Writer {
            store,
            path,
            doing,
            payload,
        } = *self;
        let made = store.make(&path, &payload.freeze());
        made.map_err(|trouble| store.error(doing, trouble))
    }
}
