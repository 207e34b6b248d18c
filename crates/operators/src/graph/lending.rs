//! Arrays that partitions of a process show each other without a copy: whoever owns one lends it for a turn,
//! and writes it again when all borrowers have returned it.

use brambling_program::{DecodeError, Outbox, Payload};
use std::borrow::Cow;
use std::sync::Arc;

/// Values that a partition lends to others of the process for a turn, and then writes again.
#[derive(Clone, Debug)]
pub(super) struct Lending<T>(Arc<Vec<T>>);

/// What was lent. Nothing before the first turn, and nothing once it has been returned.
#[derive(Clone, Debug)]
pub(super) struct Lent<T>(Option<Arc<Vec<T>>>);

/// What a partition has been lent, by source. A dataset of its own, so that its buffer is kept.
#[derive(Clone, Debug)]
pub(super) struct Incoming<T>(pub(super) Vec<Lent<T>>);

impl<T> Default for Lending<T> {
    fn default() -> Self {
        Lending(Arc::default())
    }
}

impl<T> Default for Lent<T> {
    fn default() -> Self {
        Lent(None)
    }
}

impl<T> Default for Incoming<T> {
    fn default() -> Self {
        Incoming(Vec::new())
    }
}

impl<T: Payload + Copy + Default> Lending<T> {
    /// The buffer. It is new only where somebody kept what was lent.
    fn buffer(&mut self) -> &mut Vec<T> {
        if Arc::get_mut(&mut self.0).is_none() {
            self.0 = Arc::default();
        }
        Arc::get_mut(&mut self.0).expect("nobody else has it")
    }

    /// So often this value, to be written.
    pub(super) fn filled(&mut self, len: usize, value: T) -> &mut [T] {
        let buffer = self.buffer();
        buffer.clear();
        buffer.resize(len, value);
        buffer
    }

    /// Takes these values.
    pub(super) fn fill(&mut self, values: impl Iterator<Item = T>) {
        let buffer = self.buffer();
        buffer.clear();
        buffer.extend(values);
    }

    /// Lends the values to every destination.
    pub(super) fn lend(&self, out: &mut Outbox<'_, Lent<T>>) {
        out.for_each(|_, piece| piece.0 = Some(self.0.clone()));
    }
}

impl<T> Lent<T> {
    pub(super) fn values(&self) -> &[T] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }

    /// The lender writes its buffer again in the next turn.
    pub(super) fn return_it(&mut self) {
        self.0 = None;
    }
}

impl<T: Payload + Clone> Payload for Lending<T> {
    fn type_name() -> Cow<'static, str> {
        Cow::Owned(format!("graph::Lending<{}>", T::type_name()))
    }
    fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<T>()
    }
    fn encode(&self, out: &mut Vec<u8>) {
        encode(&self.0, out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Vec::decode(input).map(|values| Lending(Arc::new(values)))
    }
}

impl<T: Payload + Clone> Payload for Lent<T> {
    fn type_name() -> Cow<'static, str> {
        Cow::Owned(format!("graph::Lent<{}>", T::type_name()))
    }
    fn heap_bytes(&self) -> usize {
        // The lender answers for the bytes.
        0
    }
    fn encode(&self, out: &mut Vec<u8>) {
        encode(self.values(), out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Vec::decode(input).map(|values| Lent(Some(Arc::new(values))))
    }
    fn encode_head<'a>(&'a self, out: &mut Vec<u8>) -> &'a [u8] {
        match &self.0 {
            Some(values) => values.encode_head(out),
            None => {
                self.encode(out);
                &[]
            }
        }
    }
    fn decode_parts(&mut self, parts: &[&[u8]]) -> Result<(), DecodeError> {
        self.0.get_or_insert_default().decode_parts(parts)
    }
    fn let_go(&mut self) {
        if self.0.as_mut().and_then(Arc::get_mut).is_none() {
            self.return_it();
        }
    }
}

impl<T: Payload + Clone> Payload for Incoming<T> {
    fn type_name() -> Cow<'static, str> {
        Cow::Owned(format!("graph::Incoming<{}>", T::type_name()))
    }
    fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Lent<T>>()
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Vec::decode(input).map(Incoming)
    }
}

/// As a vector is encoded.
fn encode<T: Payload>(values: &[T], out: &mut Vec<u8>) {
    values.len().encode(out);
    T::encode_all(values, out);
}
