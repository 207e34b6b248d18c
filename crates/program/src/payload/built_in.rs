//! The payloads that come with the language: numbers, texts, and what is made of payloads.

use super::{DecodeError, Payload, decode_plain};
use crate::chunks::{Chunk, ChunkError, Cursor, possible_len};
use brambling_memory::SpillError;
use std::borrow::Cow;
use std::sync::Arc;
#[cfg(target_endian = "little")]
use zerocopy::IntoBytes;

pub(super) fn take<'a, T: Payload>(
    input: &mut &'a [u8],
    bytes: usize,
) -> Result<&'a [u8], DecodeError> {
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
    // Compared before anything is allocated: whoever has written the bytes may have written any
    // length.
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
            const ENCODED_BYTES_MAX: usize = size_of::<$t>();
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
    const ENCODED_BYTES_MAX: usize = 1;
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
    const ENCODED_BYTES_MAX: usize = size_of::<u64>();
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
    const ENCODED_BYTES_MAX: usize = 0;
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
    fn encode_some<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        cursor.encode_rows(self.as_bytes(), chunk)
    }
    fn decode_some(&mut self, cursor: &mut Cursor, input: &mut &[u8]) -> Result<bool, ChunkError> {
        let Some(bytes) = cursor.build(input)? else {
            return Ok(false);
        };
        let text = String::from_utf8(bytes);
        *self = text.map_err(|error| DecodeError::of::<String>(error.to_string()))?;
        Ok(true)
    }
}

impl<T: Payload> Payload for Vec<T> {
    const INTERPRETED: bool = T::INTERPRETED;
    const SPILLS: bool = T::SPILLS;
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
    /// As `heap_bytes`.
    fn spilled_bytes(&self) -> u64 {
        match T::SPILLS {
            true => self.iter().map(T::spilled_bytes).sum(),
            false => 0,
        }
    }
    fn encode_some<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        cursor.encode_rows(self, chunk)
    }
    fn decode_some(&mut self, cursor: &mut Cursor, input: &mut &[u8]) -> Result<bool, ChunkError> {
        cursor.decode_rows(self, input)
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.len().encode(out);
        T::encode_all(self, out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        // Every element but `()` takes at least a byte, so a hostile length cannot ask for more than it sent.
        let len = decode_len::<Self>(input, usize::from(size_of::<T>() > 0))?;
        T::decode_all(possible_len::<T>(len as u64)?, input)
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
        // The head comes from another process, so its length is bounded before memory is taken.
        let fits = len
            .checked_mul(size_of::<T>())
            .is_some_and(|bytes| bytes <= bytes_max);
        if !fits || T::plain(&[]).is_none() {
            return None;
        }
        self.resize(len, T::default());
        T::plain_mut(self)
    }
}

impl<T: Payload> Payload for Option<T> {
    const FIXED: bool = T::FIXED;
    const INTERPRETED: bool = T::INTERPRETED;
    const ENCODED_BYTES_MAX: usize = T::ENCODED_BYTES_MAX.saturating_add(1);
    const SPILLS: bool = T::SPILLS;
    fn type_name() -> Cow<'static, str> {
        Cow::Owned(format!("Option<{}>", T::type_name()))
    }
    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, T::heap_bytes)
    }
    fn spilled_bytes(&self) -> u64 {
        self.as_ref().map_or(0, T::spilled_bytes)
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
    fn encode_some<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        match self {
            Some(value) => cursor.encode_parts(&[&true, value], chunk),
            None => cursor.encode_parts(&[&false], chunk),
        }
    }
    fn decode_some(&mut self, cursor: &mut Cursor, input: &mut &[u8]) -> Result<bool, ChunkError> {
        if *cursor.step() == 0 {
            let mut is_some = false;
            if !is_some.decode_some(cursor, input)? {
                return Ok(false);
            }
            *cursor.step() = 1;
            if !is_some {
                *self = None;
                return Ok(true);
            }
        }
        // A value that is there is decoded into, so its buffers are used again.
        let value = self.get_or_insert_default();
        cursor.inside(|cursor| value.decode_some(cursor, input))
    }
}

impl<T: Payload> Payload for Arc<T> {
    const SHARED: bool = true;
    const INTERPRETED: bool = T::INTERPRETED;
    const ENCODED_BYTES_MAX: usize = T::ENCODED_BYTES_MAX;
    const SPILLS: bool = T::SPILLS;
    fn type_name() -> Cow<'static, str> {
        Cow::Owned(format!("Arc<{}>", T::type_name()))
    }
    fn heap_bytes(&self) -> usize {
        size_of::<T>() + T::heap_bytes(self)
    }
    fn spilled_bytes(&self) -> u64 {
        T::spilled_bytes(self)
    }
    fn encode(&self, out: &mut Vec<u8>) {
        T::encode(self, out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        T::decode(input).map(Arc::new)
    }
    fn encode_some<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        T::encode_some(self, cursor, chunk)
    }
    fn decode_some(&mut self, cursor: &mut Cursor, input: &mut &[u8]) -> Result<bool, ChunkError> {
        if Arc::get_mut(self).is_none() {
            *self = Arc::default();
        }
        // Now this handle is the only one: others must not see a payload change while they read it.
        let own = Arc::get_mut(self).expect("nobody else has it");
        own.decode_some(cursor, input)
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
}

impl<T: Payload + Copy, const N: usize> Payload for [T; N]
where
    [T; N]: Default,
{
    const FIXED: bool = T::FIXED;
    const INTERPRETED: bool = T::INTERPRETED;
    const ENCODED_BYTES_MAX: usize = T::ENCODED_BYTES_MAX.saturating_mul(N);
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
            const ENCODED_BYTES_MAX: usize = 0usize$(.saturating_add($name::ENCODED_BYTES_MAX))*;
            const SPILLS: bool = $($name::SPILLS ||)* false;
            fn type_name() -> Cow<'static, str> {
                let parts = [$($name::type_name()),*];
                Cow::Owned(format!("({})", parts.join(", ")))
            }
            fn heap_bytes(&self) -> usize {
                $(self.$index.heap_bytes() +)* 0
            }
            fn spilled_bytes(&self) -> u64 {
                $(self.$index.spilled_bytes() +)* 0
            }
            crate::payload_fields!($($index),*);
        }
    };
}
tuple!(A.0);
tuple!(A.0, B.1);
tuple!(A.0, B.1, C.2);
tuple!(A.0, B.1, C.2, D.3);
