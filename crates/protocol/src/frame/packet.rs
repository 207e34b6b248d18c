//! Frames as they are sent and as they come: large payloads lie where they are, and are not copied.

use bytes::Bytes;

/// A payload of so many bytes or more is sent from where it lies, and kept where it came.
pub const SHARED_BYTES: usize = 1 << 12;

/// A frame's bytes on their way: the header with its tables, and then large payloads, each where it lies. Clones share them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Packet {
    head: Bytes,
    payloads: Vec<Bytes>,
}

impl Packet {
    pub(super) fn new(head: Bytes, payloads: Vec<Bytes>) -> Packet {
        Packet { head, payloads }
    }

    /// Its bytes, part after part.
    pub fn parts(&self) -> impl Iterator<Item = &Bytes> {
        std::iter::once(&self.head).chain(&self.payloads)
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> usize {
        self.parts().map(Bytes::len).sum()
    }

    /// Its bytes in a row: copied where there are large payloads.
    pub fn to_bytes(&self) -> Bytes {
        match self.payloads[..] {
            [] => self.head.clone(),
            _ => {
                let mut row = Vec::with_capacity(self.bytes());
                self.parts().for_each(|part| row.extend_from_slice(part));
                row.into()
            }
        }
    }
}

impl From<Bytes> for Packet {
    fn from(head: Bytes) -> Packet {
        Packet::new(head, Vec::new())
    }
}

impl IntoIterator for Packet {
    type Item = Bytes;
    type IntoIter = std::iter::Chain<std::iter::Once<Bytes>, std::vec::IntoIter<Bytes>>;
    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self.head).chain(self.payloads)
    }
}

/// A whole frame that has come, perhaps in a buffer in which it lies alone, or with its last payload apart.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    bytes: &'a [u8],
    buffer: Option<&'a Bytes>,
    apart: Option<&'a Bytes>,
}

impl<'a> Incoming<'a> {
    /// A frame whose last payload lies apart from what comes before it.
    pub fn in_two(bytes: &'a [u8], last: &'a Bytes) -> Incoming<'a> {
        Incoming {
            bytes,
            buffer: None,
            apart: Some(last),
        }
    }

    /// Its bytes, but for a payload that lies apart.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The last payload, where that lies apart.
    pub(super) fn apart(&self) -> Option<&'a [u8]> {
        self.apart.map(|last| &last[..])
    }

    /// How long it is, in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() + self.apart.map_or(0, Bytes::len)
    }

    /// Whether it has no bytes: no frame is like that.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A part of it, to be kept: large parts are shared with the buffer that the frame came in, small ones copied.
    pub fn keep(&self, part: &[u8]) -> Bytes {
        let lies_in = |buffer: &&Bytes| buffer.as_ptr_range().contains(&part.as_ptr());
        let mut buffers = [self.apart, self.buffer].into_iter().flatten();
        match buffers.find(lies_in) {
            Some(buffer) if part.len() >= SHARED_BYTES => buffer.slice_ref(part),
            _ => Bytes::copy_from_slice(part),
        }
    }
}

impl<'a> From<&'a [u8]> for Incoming<'a> {
    fn from(bytes: &'a [u8]) -> Incoming<'a> {
        Incoming {
            bytes,
            buffer: None,
            apart: None,
        }
    }
}

impl<'a> From<&'a Vec<u8>> for Incoming<'a> {
    fn from(bytes: &'a Vec<u8>) -> Incoming<'a> {
        bytes.as_slice().into()
    }
}

impl<'a> From<&'a Bytes> for Incoming<'a> {
    fn from(buffer: &'a Bytes) -> Incoming<'a> {
        Incoming {
            bytes: buffer,
            buffer: Some(buffer),
            apart: None,
        }
    }
}
