//! Objects of parts: encodings of partitions, one behind the other, and at the end what they are. So a process writes them as they come, and an
//! object can be understood without its manifest.

use super::StoredPart;
use xxhash_rust::xxh3::xxh3_64;

/// The checksum of a part.
pub fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// How an object of parts begins.
#[derive(Clone, Copy, Debug)]
pub struct PartsHead;

impl PartsHead {
    /// Its bytes: a mark and the version.
    pub const BYTES: [u8; 6] = [b'B', b'R', b'P', b'T', 1, 0];
}

/// How it ends.
#[derive(Clone, Copy, Debug)]
pub struct PartsEnd;

impl PartsEnd {
    /// Its bytes: what the parts are, how long that is, and the mark.
    pub fn bytes(parts: &[StoredPart]) -> Vec<u8> {
        let mut bytes = postcard::to_stdvec(parts).expect("nothing in it refuses to be written");
        let len = bytes.len() as u64;
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(&PartsHead::BYTES[..4]);
        bytes
    }

    /// The parts of an object, from its bytes; none where they are no such object.
    pub fn read(object: &[u8]) -> Option<Vec<StoredPart>> {
        let rest = object.strip_prefix(&PartsHead::BYTES)?;
        let rest = rest.strip_suffix(&PartsHead::BYTES[..4])?;
        let (rest, len) = rest.split_last_chunk::<8>()?;
        let start = rest
            .len()
            .checked_sub(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
        postcard::from_bytes(&rest[start..]).ok()
    }
}
