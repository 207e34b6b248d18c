//! What a partition holds. A payload can encode itself, tell its bytes, and be shared.

use std::borrow::Cow;
use std::sync::Arc;
#[cfg(target_endian = "little")]
use zerocopy::IntoBytes;

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
/// of your own that serde can handle, write `brambling::payload!(MyType)`.
pub trait Payload: Default + Clone + Send + Sync + 'static {
    /// Whether [`heap_bytes`](Payload::heap_bytes) is always 0, so that nobody need ask.
    const FIXED: bool = false;
    /// Whether clones share their memory, so that a clone costs next to nothing. Of what comes alike for several shards of a worker
    /// one is decoded then, and the others are clones of it.
    const SHARED: bool = false;
    /// Whether encoding, decoding, cloning or dropping a value may run what an interpreter runs, or wait for one; `heap_bytes` never does. Such
    /// values are not handled under locks that a task may want ([`brambling_memory::held`]).
    const INTERPRETED: bool = false;
    /// A stable name: workers compare it before a program starts.
    fn type_name() -> Cow<'static, str>;
    /// Bytes this value owns beyond its own size. Borrowed memory does not count.
    fn heap_bytes(&self) -> usize;
    /// Appends the value's encoding.
    fn encode(&self, out: &mut Vec<u8>);
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

    /// Becomes what the bytes are the whole encoding of. They come in parts, which may be cut anywhere; memory that this value
    /// owns is used again.
    ///
    /// # Errors
    /// As [`Payload::decode`], and when bytes are left over. What the value is then is not said.
    fn decode_parts(&mut self, parts: &[&[u8]]) -> Result<(), DecodeError> {
        decode_joined(self, parts)
    }
}

fn decode_joined<T: Payload>(value: &mut T, parts: &[&[u8]]) -> Result<(), DecodeError> {
    let joined;
    let mut input = match parts {
        [whole] => *whole,
        _ => {
            joined = parts.concat();
            &joined
        }
    };
    *value = T::decode(&mut input)?;
    match input.len() {
        0 => Ok(()),
        left => Err(DecodeError::of::<T>(format!("{left} bytes are left over"))),
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
    let bytes = take::<T>(input, bytes)?;
    let mut values = vec![T::default(); count];
    let place = T::plain_mut(&mut values).expect("values lie as they are encoded");
    place.copy_from_slice(bytes);
    Ok(values)
}

fn take<'a, T: Payload>(input: &mut &'a [u8], bytes: usize) -> Result<&'a [u8], DecodeError> {
    match input.split_at_checked(bytes) {
        Some((head, tail)) => {
            *input = tail;
            Ok(head)
        }
        None => Err(DecodeError::of::<T>(format!(
            "{bytes} bytes wanted, {} left",
            input.len()
        ))),
    }
}

fn decode_len<T: Payload>(
    input: &mut &[u8],
    least_bytes_each: usize,
) -> Result<usize, DecodeError> {
    let len = u64::decode(input)?;
    if len > (input.len() / least_bytes_each.max(1)) as u64 && least_bytes_each > 0 {
        return Err(DecodeError::of::<T>(format!(
            "a length of {len} exceeds the {} bytes left",
            input.len()
        )));
    }
    usize::try_from(len).map_err(|_| DecodeError::of::<T>("a length beyond this machine"))
}

macro_rules! number {
    ($($t:ty),*) => {$(
        impl Payload for $t {
            const FIXED: bool = true;
            fn type_name() -> Cow<'static, str> {
                Cow::Borrowed(stringify!($t))
            }
            fn heap_bytes(&self) -> usize {
                0
            }
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
                let bytes = take::<$t>(input, size_of::<$t>())?;
                Ok(<$t>::from_le_bytes(bytes.try_into().expect("the length was just taken")))
            }
            // Where numbers lie in memory as they are encoded, rows of them are copied.
            #[cfg(target_endian = "little")]
            fn encode_all(values: &[Self], out: &mut Vec<u8>) {
                out.extend_from_slice(values.as_bytes());
            }
            #[cfg(target_endian = "little")]
            fn decode_all(count: usize, input: &mut &[u8]) -> Result<Vec<Self>, DecodeError> {
                decode_plain(count, input)
            }
            #[cfg(target_endian = "little")]
            fn plain(values: &[Self]) -> Option<&[u8]> {
                Some(values.as_bytes())
            }
            #[cfg(target_endian = "little")]
            fn plain_mut(values: &mut [Self]) -> Option<&mut [u8]> {
                Some(values.as_mut_bytes())
            }
        }
    )*};
}
number!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64);

impl Payload for bool {
    const FIXED: bool = true;
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("bool")
    }
    fn heap_bytes(&self) -> usize {
        0
    }
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        match take::<bool>(input, 1)?[0] {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::of::<bool>(format!("byte {other}"))),
        }
    }
}

impl Payload for usize {
    const FIXED: bool = true;
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("usize")
    }
    fn heap_bytes(&self) -> usize {
        0
    }
    fn encode(&self, out: &mut Vec<u8>) {
        (*self as u64).encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        usize::try_from(u64::decode(input)?)
            .map_err(|_| DecodeError::of::<usize>("a number beyond this machine"))
    }
}

impl Payload for () {
    const FIXED: bool = true;
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("()")
    }
    fn heap_bytes(&self) -> usize {
        0
    }
    fn encode(&self, _: &mut Vec<u8>) {}
    fn decode(_: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(())
    }
}

impl Payload for String {
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("String")
    }
    fn heap_bytes(&self) -> usize {
        self.capacity()
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.len().encode(out);
        out.extend_from_slice(self.as_bytes());
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let len = decode_len::<String>(input, 1)?;
        let bytes = take::<String>(input, len)?;
        String::from_utf8(bytes.to_vec()).map_err(|e| DecodeError::of::<String>(e.to_string()))
    }
}

impl<T: Payload> Payload for Vec<T> {
    const INTERPRETED: bool = T::INTERPRETED;
    fn type_name() -> Cow<'static, str> {
        Cow::Owned(format!("Vec<{}>", T::type_name()))
    }
    /// O(1) for elements of fixed size; otherwise visits the elements.
    fn heap_bytes(&self) -> usize {
        let own = self.capacity() * size_of::<T>();
        if T::FIXED {
            own
        } else {
            own + self.iter().map(T::heap_bytes).sum::<usize>()
        }
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.len().encode(out);
        T::encode_all(self, out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        // Every element but `()` takes at least a byte, so a hostile length cannot ask for more than it sent.
        let len = decode_len::<Self>(input, usize::from(size_of::<T>() > 0))?;
        T::decode_all(len, input)
    }
    fn encode_head<'a>(&'a self, out: &mut Vec<u8>) -> &'a [u8] {
        match T::plain(self) {
            Some(bytes) => {
                self.len().encode(out);
                bytes
            }
            None => {
                self.encode(out);
                &[]
            }
        }
    }
    fn receive(&mut self, head: &[u8], bytes_max: usize) -> Option<&mut [u8]> {
        let len = usize::try_from(u64::from_le_bytes(head.try_into().ok()?)).ok()?;
        let fits = len
            .checked_mul(size_of::<T>())
            .is_some_and(|bytes| bytes <= bytes_max);
        if !fits || T::plain(&[]).is_none() {
            return None;
        }
        self.resize(len, T::default());
        T::plain_mut(self)
    }
    fn decode_parts(&mut self, parts: &[&[u8]]) -> Result<(), DecodeError> {
        let head = parts.first().and_then(|first| first.split_first_chunk());
        let (Some((len, rest)), true) = (head, T::plain(&[]).is_some()) else {
            return decode_joined(self, parts);
        };
        let found = rest.len() + parts[1..].iter().map(|part| part.len()).sum::<usize>();
        let len = u64::from_le_bytes(*len);
        if u128::from(len) * size_of::<T>() as u128 != found as u128 {
            let reason = format!("{found} bytes where {len} elements were to be");
            return Err(DecodeError::of::<Self>(reason));
        }
        // As many as there are bytes for, so it fits.
        self.resize(len as usize, T::default());
        let mut place = T::plain_mut(self).expect("just asked");
        for part in std::iter::once(&rest).chain(&parts[1..]) {
            let (here, after) = place.split_at_mut(part.len());
            here.copy_from_slice(part);
            place = after;
        }
        Ok(())
    }
}

impl<T: Payload> Payload for Option<T> {
    const FIXED: bool = T::FIXED;
    const INTERPRETED: bool = T::INTERPRETED;
    fn type_name() -> Cow<'static, str> {
        Cow::Owned(format!("Option<{}>", T::type_name()))
    }
    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, T::heap_bytes)
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        if bool::decode(input)? {
            T::decode(input).map(Some)
        } else {
            Ok(None)
        }
    }
}

impl<T: Payload> Payload for Arc<T> {
    const SHARED: bool = true;
    const INTERPRETED: bool = T::INTERPRETED;
    fn type_name() -> Cow<'static, str> {
        Cow::Owned(format!("Arc<{}>", T::type_name()))
    }
    fn heap_bytes(&self) -> usize {
        size_of::<T>() + T::heap_bytes(self)
    }
    fn encode(&self, out: &mut Vec<u8>) {
        T::encode(self, out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        T::decode(input).map(Arc::new)
    }
    fn encode_head<'a>(&'a self, out: &mut Vec<u8>) -> &'a [u8] {
        T::encode_head(self, out)
    }
    fn receive(&mut self, head: &[u8], bytes_max: usize) -> Option<&mut [u8]> {
        if Arc::get_mut(self).is_none() {
            *self = Arc::default();
        }
        Arc::get_mut(self)?.receive(head, bytes_max)
    }
    fn let_go(&mut self) -> bool {
        match Arc::get_mut(self) {
            Some(own) => own.let_go() && own.heap_bytes() > 0,
            None => {
                *self = Arc::default();
                false
            }
        }
    }
    fn decode_parts(&mut self, parts: &[&[u8]]) -> Result<(), DecodeError> {
        match Arc::get_mut(self) {
            Some(own) => own.decode_parts(parts),
            None => decode_joined(self, parts),
        }
    }
}

impl<T: Payload + Copy, const N: usize> Payload for [T; N]
where
    [T; N]: Default,
{
    const FIXED: bool = T::FIXED;
    const INTERPRETED: bool = T::INTERPRETED;
    fn type_name() -> Cow<'static, str> {
        Cow::Owned(format!("[{}; {N}]", T::type_name()))
    }
    fn heap_bytes(&self) -> usize {
        if T::FIXED {
            0
        } else {
            self.iter().map(T::heap_bytes).sum()
        }
    }
    fn encode(&self, out: &mut Vec<u8>) {
        T::encode_all(self, out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let mut values = [T::default(); N];
        for value in &mut values {
            *value = T::decode(input)?;
        }
        Ok(values)
    }
    fn encode_all(values: &[Self], out: &mut Vec<u8>) {
        T::encode_all(values.as_flattened(), out);
    }
    fn plain(values: &[Self]) -> Option<&[u8]> {
        T::plain(values.as_flattened())
    }
    fn plain_mut(values: &mut [Self]) -> Option<&mut [u8]> {
        T::plain_mut(values.as_flattened_mut())
    }
}

macro_rules! tuple {
    ($($name:ident . $index:tt),*) => {
        impl<$($name: Payload),*> Payload for ($($name,)*) {
            const FIXED: bool = $($name::FIXED &&)* true;
            const INTERPRETED: bool = $($name::INTERPRETED ||)* false;
            fn type_name() -> Cow<'static, str> {
                let parts = [$($name::type_name()),*];
                Cow::Owned(format!("({})", parts.join(", ")))
            }
            fn heap_bytes(&self) -> usize {
                $(self.$index.heap_bytes() +)* 0
            }
            fn encode(&self, out: &mut Vec<u8>) {
                $(self.$index.encode(out);)*
            }
            fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
                Ok(($($name::decode(input)?,)*))
            }
        }
    };
}
tuple!(A.0);
tuple!(A.0, B.1);
tuple!(A.0, B.1, C.2);
tuple!(A.0, B.1, C.2, D.3);

/// Makes a serde type a [`Payload`], encoded by postcard. Its heap bytes are what the expression gives
/// (none when left out), a function of `&self` that must be O(1).
///
/// ```
/// #[derive(Default, Clone, serde::Serialize, serde::Deserialize)]
/// struct Strip { rows: Vec<f64>, width: usize }
/// brambling_program::payload!(Strip, |strip| strip.rows.capacity() * 8);
/// ```
#[macro_export]
macro_rules! payload {
    ($t:ty) => {
        $crate::payload!($t, |_value| 0);
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
        }
    };
}

#[doc(hidden)]
pub mod payload_serde {
    use super::{DecodeError, Payload};

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
    use std::fmt::Debug;

    /// Whatever way a value is encoded, and wherever its bytes are cut, it is what comes back.
    fn travels<T: Payload + PartialEq + Debug>(value: &T, mut spare: T) {
        let (mut whole, mut head) = (Vec::new(), Vec::new());
        value.encode(&mut whole);
        let tail = value.encode_head(&mut head);
        assert_eq!([&head[..], tail].concat(), whole, "{value:?}");
        for first in 0..=whole.len() {
            for second in [first, (first + 3).min(whole.len()), whole.len()] {
                let parts = [&whole[..first], &whole[first..second], &whole[second..]];
                spare.decode_parts(&parts).unwrap();
                assert_eq!(&spare, value, "cut at {first} and {second}");
            }
        }
        spare.decode_parts(&[&whole]).unwrap();
        assert_eq!(&spare, value);
        for cut in 0..whole.len() {
            assert!(
                spare.decode_parts(&[&whole[..cut]]).is_err(),
                "{value:?}, {cut} bytes"
            );
        }
        let more = [&whole[..], &[0; 8]];
        assert!(spare.decode_parts(&more).is_err(), "{value:?} and more");
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
        spare
            .decode_parts(&[&bytes[..5_000], &bytes[5_000..]])
            .unwrap();
        assert_eq!((spare.as_ptr(), &spare), (at, &values));
    }

    /// A length that is not borne out by bytes takes no memory.
    #[test]
    fn hostile_lengths_are_refused() {
        let mut spare = Vec::<f64>::new();
        for len in [u64::MAX, u64::MAX / 8 + 1, 1 << 40] {
            let head = len.to_le_bytes();
            assert!(spare.decode_parts(&[&head, &[0; 16]]).is_err());
            assert_eq!(spare.capacity(), 0);
        }
    }
}
