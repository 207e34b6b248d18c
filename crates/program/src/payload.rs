//! What a partition holds. A payload can encode itself, tell its bytes, and be shared.

mod built_in;

use crate::chunks::{Chunk, ChunkError, Cursor, decode_whole};
use brambling_memory::SpillError;
use std::borrow::Cow;

/// Bytes that are not a payload of the expected type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("these bytes are not a {expected}: {reason}")]
pub struct DecodeError {
    /// The type that was asked for.
    pub expected: Cow<'static, str>,
    /// What is wrong with the bytes.
    pub reason: String,
}

impl DecodeError {
    /// An error for `T` with a reason.
    pub fn of<T: Payload>(reason: impl Into<String>) -> Self {
        DecodeError {
            expected: T::type_name(),
            reason: reason.into(),
        }
    }
}

/// A value of one partition of a dataset, or a piece of an exchange.
///
/// Implemented for numbers, `bool`, `String`, `Vec`, `Option`, arrays and tuples of payloads. For a type
/// of your own that serde can handle, write `brambling::payload!(MyType)`; of one that is large, `brambling::payload!(MyType { its, fields })`.
pub trait Payload: Default + Clone + Send + Sync + 'static {
    /// Whether [`heap_bytes`](Payload::heap_bytes) is always 0, so that nobody need ask.
    const FIXED: bool = false;
    /// Whether clones share their memory, so that a clone costs next to nothing. Of what comes alike for several shards of a worker
    /// one is decoded then, and the others are clones of it.
    const SHARED: bool = false;
    /// Whether encoding, decoding, cloning or dropping a value may run what an interpreter runs, or wait for one; `heap_bytes` never does. Such
    /// values are not handled under locks that a task may want ([`brambling_memory::held`]).
    const INTERPRETED: bool = false;
    /// The most bytes that a value's encoding takes, where that is known and small.
    const ENCODED_BYTES_MAX: usize = usize::MAX;
    /// Whether a value may have bytes on a disk.
    const SPILLS: bool = false;
    /// A stable name: workers compare it before a program starts.
    fn type_name() -> Cow<'static, str>;
    /// Bytes of memory that this value owns beyond its own size. Borrowed memory does not count, nor does what lies on a disk. It is asked
    /// often, and must be O(1) in what the value holds.
    fn heap_bytes(&self) -> usize;
    /// Bytes that this value has on a disk, O(1) as well.
    fn spilled_bytes(&self) -> u64 {
        0
    }
    /// Appends the value's encoding.
    fn encode(&self, out: &mut Vec<u8>);
    /// The same for a value that is kept: one that could not be made again of its encoding is refused.
    ///
    /// # Errors
    /// Why it cannot be kept.
    fn encode_kept(&self, out: &mut Vec<u8>) -> Result<(), String> {
        self.encode(out);
        Ok(())
    }
    /// Reads a value from the front of `input` and advances it.
    ///
    /// # Errors
    /// When the bytes are not an encoding of this type. Allocates no more than the input justifies.
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError>;

    /// Appends the encodings of values in a row: the same bytes as one after the other, perhaps faster.
    fn encode_all(values: &[Self], out: &mut Vec<u8>) {
        values.iter().for_each(|value| value.encode(out));
    }

    /// Reads so many values in a row: the same as one after the other, perhaps faster.
    ///
    /// # Errors
    /// As [`Payload::decode`].
    fn decode_all(count: usize, input: &mut &[u8]) -> Result<Vec<Self>, DecodeError> {
        // Every value but `()` takes at least a byte.
        let mut values = Vec::with_capacity(count.min(input.len()));
        for _ in 0..count {
            values.push(Self::decode(input)?);
        }
        Ok(values)
    }

    /// Values in a row as they lie in memory, where that is their encoding: so it is with numbers.
    fn plain(_values: &[Self]) -> Option<&[u8]> {
        None
    }
    /// The same, to be overwritten. Any bytes are values.
    fn plain_mut(_values: &mut [Self]) -> Option<&mut [u8]> {
        None
    }

    /// Goes on with the encoding where `cursor` stands, until the chunk is full or nothing is left: then it is true. The chunks, in a row, are
    /// what [`Payload::encode`] gives. A type of several parts goes through them by [`Cursor::encode_parts`] or
    /// [`Cursor::encode_rows`]; one that does not lies in memory a second time while it is sent.
    ///
    /// # Errors
    /// When what the value has on a disk cannot be read.
    fn encode_some<'a>(
        &'a self,
        _cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        self.encode(chunk.buffer());
        Ok(true)
    }

    /// Goes on with becoming another value, where `cursor` stands: takes from the front of `input` what it can use, and keeps the rest of
    /// what it needs in mind. True when it is whole; false when it takes more than `input` has, of which it leaves less than one part. At
    /// first the value is any of its type, and its memory may be used again. By default a value is read at once, once all its bytes
    /// lie in a row.
    ///
    /// # Errors
    /// As [`Payload::decode`], and when what belongs on a disk finds no room there. What the value is then is not said.
    fn decode_some(&mut self, cursor: &mut Cursor, input: &mut &[u8]) -> Result<bool, ChunkError> {
        Ok(match decode_whole(cursor, input)? {
            Some(value) => {
                *self = value;
                true
            }
            None => false,
        })
    }

    /// Appends the encoding but for its last bytes, and gives those where they lie: what is large is not copied.
    fn encode_head<'a>(&'a self, out: &mut Vec<u8>) -> &'a [u8] {
        self.encode(out);
        &[]
    }

    /// Becomes a value whose encoding begins with `head` and ends with bytes that are still to come, and gives the place where they
    /// are to be written: what is large need not be copied then. Memory that this value owns is used again. None where the type
    /// cannot, where it is no head of [`Payload::encode_head`], and where more than `bytes_max` would have to come; what the value is
    /// then is not said.
    fn receive(&mut self, _head: &[u8], _bytes_max: usize) -> Option<&mut [u8]> {
        None
    }

    /// It will be overwritten: what it shares with others it lets go of. Memory of its own it may keep; whether it has any that what
    /// comes next can be written to.
    fn let_go(&mut self) -> bool {
        true
    }
}

/// The value that all of some bytes are.
///
/// # Errors
/// When they are not, or more.
pub(crate) fn decode_all_of<T: Payload>(mut bytes: &[u8]) -> Result<T, DecodeError> {
    let value = T::decode(&mut bytes)?;
    match bytes {
        [] => Ok(value),
        more => Err(DecodeError::of::<T>(format!(
            "{} bytes too many",
            more.len()
        ))),
    }
}

/// [`Payload::decode_all`] of a type whose values lie in memory as they are encoded.
///
/// # Errors
/// When the input is shorter than so many values.
///
/// # Panics
/// If the type has no [`Payload::plain_mut`].
pub fn decode_plain<T: Payload>(count: usize, input: &mut &[u8]) -> Result<Vec<T>, DecodeError> {
    let bytes = count.checked_mul(size_of::<T>());
    let bytes = bytes.ok_or_else(|| DecodeError::of::<T>("a length beyond this machine"))?;
    // Taken before the vector is made: a hostile length must not cost memory.
    let bytes = built_in::take::<T>(input, bytes)?;
    let mut values = vec![T::default(); count];
    let place = T::plain_mut(&mut values).expect("values lie as they are encoded");
    place.copy_from_slice(bytes);
    Ok(values)
}

/// Makes a type of yours a [`Payload`]. Its heap bytes are what the expression gives (none when left out), a function of `&self` that
/// must be O(1).
///
/// A serde type is encoded by postcard. It cannot be stopped halfway: what is sent of it is made an eighth at a time, and all its bytes lie in
/// memory before it is made of them.
///
/// ```
/// #[derive(Default, Clone, serde::Serialize, serde::Deserialize)]
/// struct Strip { rows: Vec<f64>, width: usize }
/// brambling_program::payload!(Strip, |strip| strip.rows.capacity() * 8);
/// ```
///
/// With the names of its fields, all of them payloads, it is encoded field by field: what is large is neither copied to be sent
/// nor kept before it is read. Its heap bytes are those of its fields if nothing else is said.
///
/// ```
/// #[derive(Default, Clone)]
/// struct Table { rows: Vec<f64>, width: usize }
/// brambling_program::payload!(Table { rows, width }, |table| table.rows.capacity() * 8);
/// ```
#[macro_export]
macro_rules! payload {
    ($t:ident { $($field:tt),* $(,)? }) => {
        $crate::payload!($t { $($field),* }, |value| {
            0 $(+ $crate::Payload::heap_bytes(&value.$field))*
        });
    };
    ($t:ty) => {
        $crate::payload!($t, |_value| 0);
    };
    ($t:ident { $($field:tt),* $(,)? }, |$value:ident| $bytes:expr) => {
        impl $crate::Payload for $t {
            fn type_name() -> std::borrow::Cow<'static, str> {
                std::borrow::Cow::Borrowed(concat!(module_path!(), "::", stringify!($t)))
            }
            fn heap_bytes(&self) -> usize {
                let $value = self;
                $bytes
            }
            const SPILLS: bool = true;
            fn spilled_bytes(&self) -> u64 {
                0 $(+ $crate::Payload::spilled_bytes(&self.$field))*
            }
            $crate::payload_fields!($($field),*);
        }
    };
    ($t:ty, |$value:ident| $bytes:expr) => {
        impl $crate::Payload for $t {
            fn type_name() -> std::borrow::Cow<'static, str> {
                std::borrow::Cow::Borrowed(concat!(module_path!(), "::", stringify!($t)))
            }
            fn heap_bytes(&self) -> usize {
                let $value = self;
                $bytes
            }
            fn encode(&self, out: &mut Vec<u8>) {
                $crate::payload_serde::encode(self, out);
            }
            fn decode(input: &mut &[u8]) -> Result<Self, $crate::DecodeError> {
                $crate::payload_serde::decode(input)
            }
            fn encode_some<'a>(
                &'a self,
                cursor: &mut $crate::Cursor,
                chunk: &mut $crate::Chunk<'a>,
            ) -> Result<bool, $crate::SpillError> {
                Ok($crate::payload_serde::encode_some(self, cursor, chunk))
            }
        }
    };
}

/// What a [`Payload`] whose fields are payloads does with their bytes: for an `impl` of your own.
#[macro_export]
macro_rules! payload_fields {
    ($($field:tt),*) => {
        fn encode(&self, out: &mut Vec<u8>) {
            $($crate::Payload::encode(&self.$field, out);)*
        }
        fn decode(input: &mut &[u8]) -> Result<Self, $crate::DecodeError> {
            let mut value = Self::default();
            $(value.$field = $crate::Payload::decode(input)?;)*
            Ok(value)
        }
        fn encode_some<'a>(
            &'a self,
            cursor: &mut $crate::Cursor,
            chunk: &mut $crate::Chunk<'a>,
        ) -> Result<bool, $crate::SpillError> {
            cursor.encode_parts(&[$(&self.$field),*], chunk)
        }
        fn decode_some(
            &mut self,
            cursor: &mut $crate::Cursor,
            input: &mut &[u8],
        ) -> Result<bool, $crate::ChunkError> {
            cursor.decode_parts(&mut [$(&mut self.$field),*], input)
        }
    };
}

#[doc(hidden)]
pub mod payload_serde {
    use super::{Chunk, Cursor, DecodeError, Payload};
    use postcard::ser_flavors::Flavor;

    /// So few parts a value is made in, as it is gone through anew for each.
    const WINDOWS: usize = 8;

    /// Some of the bytes that are written.
    struct Window<'w> {
        skipped_bytes: u64,
        room_bytes: &'w mut usize,
        out: &'w mut Vec<u8>,
    }

    impl Flavor for Window<'_> {
        type Output = ();

        fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
            // Chunks before this one have had these bytes.
            let skipped = self.skipped_bytes.min(bytes.len() as u64);
            self.skipped_bytes -= skipped;
            let bytes = &bytes[skipped as usize..];
            let written = bytes.len().min(*self.room_bytes);
            *self.room_bytes -= written;
            self.out.extend_from_slice(&bytes[..written]);
            match written < bytes.len() {
                // The error stops the serialiser: nothing that follows would fit.
                true => Err(postcard::Error::SerializeBufferFull),
                false => Ok(()),
            }
        }

        fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
            self.try_extend(&[byte])
        }

        fn finalize(self) -> postcard::Result<()> {
            Ok(())
        }
    }

    pub fn encode_some<T: Payload + serde::Serialize>(
        value: &T,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'_>,
    ) -> bool {
        // Each call serialises the value from its beginning and drops what has gone already. So a
        // chunk of a large value may be larger than it should: with many small ones the work would
        // be quadratic.
        let mut room_bytes = chunk.room().max(value.heap_bytes() / WINDOWS);
        let window = Window {
            skipped_bytes: *cursor.step(),
            room_bytes: &mut room_bytes,
            out: chunk.buffer(),
        };
        let before = window.out.len();
        let written = postcard::serialize_with_flavor::<T, _, _>(value, window);
        *cursor.step() += (chunk.buffer().len() - before) as u64;
        match written {
            Ok(()) => true,
            Err(postcard::Error::SerializeBufferFull) => false,
            // As in `encode`: a type whose own Serialize fails has broken its contract.
            Err(error) => panic!("a payload serialises into memory: {error}"),
        }
    }

    pub fn encode<T: serde::Serialize>(value: &T, out: &mut Vec<u8>) {
        // Writing to a vector cannot fail, and a type whose own Serialize fails has broken its contract.
        postcard::to_io(value, out).expect("a payload serialises into memory");
    }

    pub fn decode<T: Payload + serde::de::DeserializeOwned>(
        input: &mut &[u8],
    ) -> Result<T, DecodeError> {
        match postcard::take_from_bytes(input) {
            Ok((value, rest)) => {
                *input = rest;
                Ok(value)
            }
            Err(error) => Err(DecodeError::of::<T>(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunks::decode_parts;
    use std::fmt::Debug;
    use std::sync::Arc;

    /// Whatever way a value is encoded, and wherever its bytes are cut, it is what comes back.
    fn travels<T: Payload + PartialEq + Debug>(value: &T, mut spare: T) {
        let (mut whole, mut head) = (Vec::new(), Vec::new());
        value.encode(&mut whole);
        let tail = value.encode_head(&mut head);
        assert_eq!([&head[..], tail].concat(), whole, "{value:?}");
        for first in 0..=whole.len() {
            for second in [first, (first + 3).min(whole.len()), whole.len()] {
                let parts = [&whole[..first], &whole[first..second], &whole[second..]];
                decode_parts(&mut spare, &parts).unwrap();
                assert_eq!(&spare, value, "cut at {first} and {second}");
            }
        }
        decode_parts(&mut spare, &[&whole]).unwrap();
        assert_eq!(&spare, value);
        for cut in 0..whole.len() {
            assert!(
                decode_parts(&mut spare, &[&whole[..cut]]).is_err(),
                "{value:?}, {cut} bytes"
            );
        }
        let more = [&whole[..], &[0; 8]];
        assert!(
            decode_parts(&mut spare, &more).is_err(),
            "{value:?} and more"
        );
    }

    #[test]
    fn values_travel_in_parts() {
        travels(&vec![1.5f64, -0.0, 7e300], vec![9.0; 10]);
        travels(&vec![1.5f64; 20], Vec::new());
        travels(&Vec::<f64>::new(), vec![1.0]);
        travels(&vec![[1u16, 2, 3]; 5], vec![[0; 3]; 2]);
        travels(&vec![true, false], vec![true; 9]);
        travels(&vec!["a".to_owned(), "bc".into()], Vec::new());
        travels(&(3u8, vec![1u32, 2]), (0, vec![7; 7]));
        travels(&Some(vec![4i64]), None);
        let shared = Arc::new(vec![1u64]);
        travels(&Arc::new(vec![2u64, 3]), shared.clone());
        assert_eq!(*shared, [1], "others see what they saw");
    }

    /// Numbers in a row are not copied to be sent, nor is memory taken for them each time they come.
    #[test]
    fn numbers_in_a_row_stay_where_they_lie() {
        let values = vec![0.5f64; 1_000];
        let tail = values.encode_head(&mut Vec::new());
        assert_eq!(tail.as_ptr(), values.as_ptr().cast());
        assert_eq!(tail.len(), 8_000);
        let mut bytes = Vec::new();
        values.encode(&mut bytes);
        let mut spare = vec![1.0f64; 2_000];
        let at = spare.as_ptr();
        decode_parts(&mut spare, &[&bytes[..5_000], &bytes[5_000..]]).unwrap();
        assert_eq!((spare.as_ptr(), &spare), (at, &values));
    }

    /// A length that is not borne out by bytes takes no memory.
    #[test]
    fn hostile_lengths_are_refused() {
        let mut spare = Vec::<f64>::new();
        for len in [u64::MAX, u64::MAX / 8 + 1, 1 << 40] {
            let head = len.to_le_bytes();
            assert!(decode_parts(&mut spare, &[&head, &[0; 16]]).is_err());
            assert_eq!(spare.capacity(), 0);
        }
    }
}
