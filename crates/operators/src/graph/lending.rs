//! Arrays that partitions of a process show each other without a copy: whoever owns one lends it for a turn,
//! and writes it again when all borrowers have returned it.

use brambling_program::{Chunk, ChunkError, Cursor, DecodeError, Outbox, Payload, SpillError};
use std::borrow::Cow;
use std::sync::Arc;

/// Values that a partition lends to others of the process for a turn, and then writes again.
#[derive(Clone, Debug)]
pub(super) struct Lending<T>(Arc<Vec<T>>);

/// What was lent. Nothing before the first turn, and nothing once it has been returned.
#[derive(Clone, Debug)]
pub(super) struct LentValues<T>(Option<Arc<Vec<T>>>);

impl<T> Default for Lending<T> {
    fn default() -> Self {
        Lending(Arc::default())
    }
}

impl<T> Default for LentValues<T> {
    fn default() -> Self {
        LentValues(None)
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

    pub(super) fn values(&self) -> &[T] {
        &self.0
    }

    /// Lends the values to every destination.
    pub(super) fn lend(&self, out: &mut Outbox<'_, LentValues<T>>) {
        out.for_each(|_, piece| piece.0 = Some(self.0.clone()));
    }
}

impl<T> LentValues<T> {
    pub(super) fn values(&self) -> &[T] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }

    /// The lender writes its buffer again in the next turn. One that nobody else has, since it came from another process, stays for
    /// what comes next.
    pub(super) fn return_it(&mut self) {
        if self.0.as_mut().and_then(Arc::get_mut).is_none() {
            self.0 = None;
        }
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
    fn encode_some<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        self.0.encode_some(cursor, chunk)
    }
    fn decode_some(&mut self, cursor: &mut Cursor, input: &mut &[u8]) -> Result<bool, ChunkError> {
        self.0.decode_some(cursor, input)
    }
}

impl<T: Payload + Clone> Payload for LentValues<T> {
    const SHARED: bool = true;
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
        Vec::decode(input).map(|values| LentValues(Some(Arc::new(values))))
    }
    fn encode_some<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        cursor.encode_rows(self.values(), chunk)
    }
    fn decode_some(&mut self, cursor: &mut Cursor, input: &mut &[u8]) -> Result<bool, ChunkError> {
        self.0.get_or_insert_default().decode_some(cursor, input)
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
    fn receive(&mut self, head: &[u8], bytes_max: usize) -> Option<&mut [u8]> {
        self.0.get_or_insert_default().receive(head, bytes_max)
    }
    fn let_go(&mut self) -> bool {
        self.return_it();
        self.0.as_ref().is_some_and(|values| values.capacity() > 0)
    }
}

/// As a vector is encoded.
fn encode<T: Payload>(values: &[T], out: &mut Vec<u8>) {
    values.len().encode(out);
    T::encode_all(values, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_program::decode_parts;

    /// Whoever lends writes the same memory again once all have returned it; what came by itself stays for the next.
    #[test]
    fn what_is_returned_is_used_again() {
        let mut lending = Lending::default();
        lending.fill([1.5, 2.5].into_iter());
        let at = lending.0.as_ptr();
        let mut lent = [
            LentValues(Some(lending.0.clone())),
            LentValues(Some(lending.0.clone())),
        ];
        assert_eq!(lent[1].values(), [1.5, 2.5]);
        lent.iter_mut().for_each(LentValues::return_it);
        assert!(lent.iter().all(|lent| lent.values().is_empty()));
        assert_eq!(lending.filled(2, 0.0).as_ptr(), at);

        let mut bytes = Vec::new();
        LentValues(Some(Arc::new(vec![3.5; 1_000]))).encode(&mut bytes);
        let mut came: LentValues<f64> = LentValues::default();
        decode_parts(&mut came, &[&bytes]).unwrap();
        let at = came.values().as_ptr();
        came.return_it();
        decode_parts(&mut came, &[&bytes[..100], &bytes[100..]]).unwrap();
        assert_eq!(
            (came.values().as_ptr(), came.values()),
            (at, &[3.5; 1_000][..])
        );
        // A clone shares it: then it is the last one's.
        let mut other = came.clone();
        assert_eq!(other.values().as_ptr(), at);
        came.return_it();
        assert!(came.values().is_empty());
        other.return_it();
        assert_eq!(other.values().as_ptr(), at);
    }
}
