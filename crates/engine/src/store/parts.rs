//! Writes the parts of a snapshot: encodings of partitions, several to an object.

use super::key;
use brambling_memory::{Memory, Spare, SpillError};
use brambling_program::{DatasetId, Encoder, Value};
use brambling_protocol::kept::{PartsEnd, PartsHead, StoredPart};
use brambling_storage::{ObjectStore, ObjectWriter, StoreError, StoreTrouble};
use std::sync::Arc;
use xxhash_rust::xxh3::Xxh3;

/// An object that has so many bytes is ended, and another begun.
const OBJECT_BYTES: u64 = 64 << 20;
/// A partition is encoded in pieces of at most so many bytes.
const CHUNK_BYTES: usize = 1 << 20;

/// The parts of one cut.
pub(crate) struct SnapshotWriter {
    store: Arc<dyn ObjectStore>,
    /// How the keys of its objects begin.
    prefix: String,
    objects: Vec<String>,
    parts: Vec<StoredPart>,
    open: Option<OpenObject>,
    /// Where copies are kept.
    near: Option<Memory>,
    copies: Vec<Spare>,
}

/// What was written.
#[derive(Default)]
pub(crate) struct WrittenParts {
    pub(crate) objects: Vec<String>,
    pub(crate) parts: Vec<StoredPart>,
    /// Copies of the parts, where they are wanted.
    pub(crate) copies: Vec<Spare>,
}

struct OpenObject {
    writer: Box<dyn ObjectWriter>,
    bytes: u64,
    /// Its first part.
    first: usize,
}

impl SnapshotWriter {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, prefix: String) -> SnapshotWriter {
        SnapshotWriter {
            store,
            prefix,
            objects: Vec::new(),
            parts: Vec::new(),
            open: None,
            near: None,
            copies: Vec::new(),
        }
    }

    /// Keeps a copy of each part, as long as nobody wants the room.
    pub(crate) fn keeping(mut self, memory: Memory) -> SnapshotWriter {
        self.near = Some(memory);
        self
    }

    /// Appends a partition's encoding. It may need an interpreter if its type does.
    pub(crate) fn value(
        &mut self,
        dataset: DatasetId,
        shard: u32,
        value: &Value,
    ) -> Result<(), StoreError> {
        let mut encoder = Encoder::default();
        let name = self.store.name().to_owned();
        self.part(dataset, shard, |write| {
            let unread = |error: SpillError| StoreError {
                store: name.clone(),
                doing: format!("saving partition {shard} of {dataset}"),
                trouble: StoreTrouble::Other(error.to_string()),
            };
            while let Some(chunk) = encoder.next(value, CHUNK_BYTES).map_err(unread)? {
                chunk.parts().into_iter().try_for_each(&mut *write)?;
            }
            Ok(())
        })
    }

    /// Appends an encoding that is there.
    pub(crate) fn encoded(
        &mut self,
        dataset: DatasetId,
        shard: u32,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        self.part(dataset, shard, |write| write(bytes))
    }

    fn part(
        &mut self,
        dataset: DatasetId,
        shard: u32,
        encode: impl FnOnce(&mut dyn FnMut(&[u8]) -> Result<(), StoreError>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let name = format!("{}-{}", self.prefix, self.objects.len());
                let mut writer = self.store.begin(&key(&name))?;
                writer.write(&PartsHead::BYTES)?;
                self.objects.push(name);
                let first = self.parts.len();
                let bytes = PartsHead::BYTES.len() as u64;
                self.open.insert(OpenObject {
                    writer,
                    bytes,
                    first,
                })
            }
        };
        let start = open.bytes;
        let mut checksum = Xxh3::new();
        let copy = self.near.as_ref().map(Memory::spare);
        encode(&mut |bytes| {
            checksum.update(bytes);
            copy.iter().for_each(|it| it.push(bytes.to_vec()));
            open.bytes += bytes.len() as u64;
            open.writer.write(bytes)
        })?;
        self.copies.extend(copy);
        self.parts.push(StoredPart {
            dataset,
            shard,
            object: self.objects.len() as u32 - 1,
            start,
            bytes: open.bytes - start,
            checksum: checksum.digest(),
        });
        match open.bytes >= OBJECT_BYTES {
            true => self.end_object(),
            false => Ok(()),
        }
    }

    fn end_object(&mut self) -> Result<(), StoreError> {
        let Some(mut open) = self.open.take() else {
            return Ok(());
        };
        open.writer
            .write(&PartsEnd::bytes(&self.parts[open.first..]))?;
        open.writer.create()
    }

    /// Lets the last object exist, and tells the objects and the parts.
    pub(crate) fn finish(mut self) -> Result<WrittenParts, StoreError> {
        self.end_object()?;
        Ok(WrittenParts {
            objects: self.objects,
            parts: self.parts,
            copies: self.copies,
        })
    }
}
