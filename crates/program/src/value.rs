//! A payload whose type is known only when it runs: what a shard's cells hold.
#![allow(unsafe_code)] // Type erasure: a pointer and the table of its type travel together.

mod table;

pub use table::PayloadType;

use crate::chunks::{Chunk, ChunkError, Chunks, Cursor, Pending};
use crate::{DecodeError, Payload};
use brambling_memory::{SpillError, held, mutants};
use std::sync::Arc;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Holding {
    Owned,
    Shared,
}

/// A payload behind a pointer, owned or shared until written.
pub struct Value {
    pointer: *mut u8,
    holding: Holding,
    table: &'static PayloadType,
}

// SAFETY: payloads are Send and Sync, and a Value gives `&mut` only through `&mut self`.
unsafe impl Send for Value {}
// SAFETY: as above; `&Value` gives only `&T`.
unsafe impl Sync for Value {}

impl Value {
    /// Takes a value.
    pub fn new<T: Payload>(value: T) -> Value {
        Value {
            pointer: Box::into_raw(Box::new(value)).cast(),
            holding: Holding::Owned,
            table: PayloadType::of::<T>(),
        }
    }

    /// A default value of a type.
    pub fn default_of(table: &'static PayloadType) -> Value {
        Value {
            pointer: (table.new)(),
            holding: Holding::Owned,
            table,
        }
    }

    /// A value shared with whoever else holds the `Arc`.
    pub fn shared<T: Payload>(value: Arc<T>) -> Value {
        Value {
            pointer: Arc::into_raw(value).cast_mut().cast(),
            holding: Holding::Shared,
            table: PayloadType::of::<T>(),
        }
    }

    /// Reads a value of a type from bytes.
    ///
    /// # Errors
    /// When the bytes are no encoding of the type.
    pub fn decode(table: &'static PayloadType, input: &mut &[u8]) -> Result<Value, DecodeError> {
        table.handle("a value is decoded");
        Ok(Value {
            pointer: (table.decode)(input)?,
            holding: Holding::Owned,
            table,
        })
    }

    /// The type's table.
    pub fn payload_type(&self) -> &'static PayloadType {
        self.table
    }

    /// The payload, when it is a `T`.
    pub fn get<T: Payload>(&self) -> Option<&T> {
        // SAFETY: the table says that the pointer is to a T, alive as long as self.
        self.table
            .is::<T>()
            .then(|| unsafe { &*self.pointer.cast::<T>() })
    }

    /// The payload for writing, when it is a `T`. A shared payload is copied first.
    pub fn get_mut<T: Payload>(&mut self) -> Option<&mut T> {
        if !self.table.is::<T>() {
            return None;
        }
        self.make_unique();
        // SAFETY: as in `get`; unique now, and borrowed mutably from self.
        Some(unsafe { &mut *self.pointer.cast::<T>() })
    }

    /// Moves the payload out (copying it when others share it), when it is a `T`.
    ///
    /// # Errors
    /// Gives the value back when it is of another type.
    pub fn take<T: Payload>(mut self) -> Result<T, Value> {
        if !self.table.is::<T>() {
            return Err(self);
        }
        self.make_unique();
        let pointer = self.pointer.cast::<T>();
        // Dropping the value would free what is given away.
        std::mem::forget(self);
        // SAFETY: owned and of type T; self was forgotten, so nobody else frees it.
        Ok(*unsafe { Box::from_raw(pointer) })
    }

    /// Shares the payload: this value and the result refer to the same bytes until either is written.
    pub fn share<T: Payload>(&mut self) -> Option<Arc<T>> {
        if !self.table.is::<T>() {
            return None;
        }
        let pointer = self.pointer.cast::<T>();
        // A payload is moved into an arc when it is first shared: until then it has no count.
        if self.holding == Holding::Owned {
            // SAFETY: owned and of type T; the pointer is replaced at once.
            let shared = Arc::new(*unsafe { Box::from_raw(pointer) });
            self.pointer = Arc::into_raw(shared).cast_mut().cast();
            self.holding = Holding::Shared;
        }
        let pointer = self.pointer.cast::<T>().cast_const();
        // SAFETY: the pointer came from Arc::into_raw; the count is raised before a second handle is made.
        unsafe {
            Arc::increment_strong_count(pointer);
            Some(Arc::from_raw(pointer))
        }
    }

    /// As [`Value::share`], of whatever type. The payload may come to lie elsewhere.
    pub fn share_any(&mut self) -> Value {
        if self.holding == Holding::Owned {
            // SAFETY: owned, and of the table's type; the pointer is replaced at once.
            self.pointer = unsafe { (self.table.share)(self.pointer) };
            self.holding = Holding::Shared;
        }
        // A clone of what is shared is a second handle.
        self.clone()
    }

    /// Whether the payload may be seen by others.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.holding == Holding::Shared
    }

    /// Copies a payload that others see, so that this value may write.
    #[inline]
    pub fn make_unique(&mut self) {
        if self.holding == Holding::Shared {
            // Only where there is something to copy: a value that is its owner's alone goes on as
            // it is.
            self.table.handle("a value is copied");
            // SAFETY: a shared pointer came from Arc::into_raw of this table's type.
            self.pointer = unsafe { (self.table.unshare)(self.pointer) };
            self.holding = Holding::Owned;
        }
    }

    /// Where the payload lies. Writing through it is allowed only after [`Value::make_unique`].
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.pointer
    }

    /// Exchanges the payload with another of its type, wherever that lies.
    ///
    /// # Safety
    /// `place` holds a payload of this value's type that nobody else uses.
    pub unsafe fn exchange(&mut self, place: *mut u8) {
        self.make_unique();
        // SAFETY: the caller's promise, and an owned payload; the two do not overlap.
        unsafe { std::ptr::swap_nonoverlapping(self.pointer, place, self.table.layout.size()) };
    }

    /// Bytes of memory that the payload takes. O(1) as far as the payload's own answer is.
    pub fn bytes(&self) -> usize {
        if self.table.fixed {
            return self.table.layout.size();
        }
        // SAFETY: the pointer is to a value of the table's type.
        self.table.layout.size() + unsafe { (self.table.heap_bytes)(self.pointer) }
    }

    /// Bytes that the payload has on a disk. O(1) as [`Value::bytes`] is.
    pub fn spilled_bytes(&self) -> u64 {
        // SAFETY: the pointer is to a value of the table's type.
        unsafe { (self.table.spilled_bytes)(self.pointer) }
    }

    /// Its encoding in chunks of at most so many bytes, which keep it for as long as they are there. It may need an interpreter if its type does:
    /// then nothing is lent.
    pub fn into_chunks(self, bytes_max: usize) -> Chunks {
        Chunks::of(self, bytes_max)
    }

    /// As [`Payload::encode_some`].
    pub(crate) fn encode_some<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        self.table.handle("a value is encoded");
        // SAFETY: the pointer is to a value of the table's type, from which what is lent is borrowed for `'a`.
        unsafe { (self.table.encode_some)(self.pointer, cursor, chunk) }
    }

    /// As [`Payload::decode_some`]; others see nothing of it.
    pub(crate) fn decode_some(
        &mut self,
        cursor: &mut Cursor,
        input: &mut &[u8],
    ) -> Result<bool, ChunkError> {
        self.table.handle("a value is decoded");
        // A payload that others see must not be overwritten, and one that is replaced need not be
        // copied.
        self.forget_shared();
        // SAFETY: the pointer is to a value of the table's type, owned now, and borrowed mutably from self.
        unsafe { (self.table.decode_some)(self.pointer, cursor, input) }
    }

    /// What others see of it they keep; this one is a default then.
    pub(crate) fn forget_shared(&mut self) {
        if self.holding == Holding::Shared {
            *self = Value::default_of(self.table);
        }
    }

    /// Appends the payload's encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.table.handle("a value is encoded");
        // SAFETY: the pointer is to a value of the table's type.
        unsafe { (self.table.encode)(self.pointer, out) }
    }

    /// As [`Payload::encode_kept`].
    ///
    /// # Errors
    /// Why the payload cannot be kept.
    pub fn encode_kept(&self, out: &mut Vec<u8>) -> Result<(), String> {
        self.table.handle("a value is encoded");
        // SAFETY: the pointer is to a value of the table's type.
        unsafe { (self.table.encode_kept)(self.pointer, out) }
    }

    /// Appends the payload's encoding but for its last bytes, and gives those where they lie.
    pub fn encode_head(&self, out: &mut Vec<u8>) -> &[u8] {
        self.table.handle("a value is encoded");
        // SAFETY: the pointer is to a value of the table's type, and what is given is borrowed from it.
        unsafe { &*(self.table.encode_head)(self.pointer, out) }
    }

    /// Becomes a value of its type whose encoding begins with `head`, and gives the place for the rest, if that is at most `bytes_max`
    /// bytes which may be written where they will lie: see [`Payload::receive`].
    pub fn receive(&mut self, head: &[u8], bytes_max: usize) -> Option<&mut [u8]> {
        self.table.handle("a value is received");
        self.make_unique();
        // SAFETY: the pointer is to a value of the table's type, owned now, and what is given is borrowed mutably from self.
        unsafe { (self.table.receive)(self.pointer, head, bytes_max).map(|place| &mut *place) }
    }

    /// It will be overwritten: what it shares with others it lets go of. Whether it has memory that what comes next can be written to.
    pub fn let_go(&mut self) -> bool {
        if self.holding == Holding::Shared {
            *self = Value::default_of(self.table);
            return false;
        }
        self.table.handle("a value is let go of");
        // SAFETY: the pointer is to a value of the table's type, owned, and borrowed mutably from self.
        unsafe { (self.table.let_go)(self.pointer) }
    }

    /// Becomes another value of its type, of which the parts are the whole encoding. Memory that it owns is used again.
    ///
    /// # Errors
    /// When the bytes are no encoding of the type.
    pub fn decode_parts(&mut self, parts: &[&[u8]]) -> Result<(), DecodeError> {
        let name = self.table.name;
        Pending::whole(name, parts, &mut |cursor, input| {
            self.decode_some(cursor, input)
        })
    }
}

impl Clone for Value {
    fn clone(&self) -> Value {
        let pointer = match self.holding {
            Holding::Owned => {
                self.table.handle("a value is copied");
                // SAFETY: the pointer is to a value of the table's type.
                unsafe { (self.table.clone_owned)(self.pointer) }
            }
            Holding::Shared => {
                // SAFETY: a shared pointer came from Arc::into_raw of this table's type.
                unsafe { (self.table.clone_shared)(self.pointer) };
                self.pointer
            }
        };
        Value {
            pointer,
            holding: self.holding,
            table: self.table,
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if self.table.interpreted
            // A thread that has the interpreter may want one of these locks, and dropping waits for
            // the interpreter.
            && held::any()
            && !mutants::is_on("values-are-dropped-under-the-lock")
        {
            let Value {
                pointer,
                holding,
                table,
            } = *self;
            return held::drop_later(Value {
                pointer,
                holding,
                table,
            });
        }
        match self.holding {
            // SAFETY: each Value owns its box or one count of its arc.
            Holding::Owned => unsafe { (self.table.drop_owned)(self.pointer) },
            // SAFETY: as above.
            Holding::Shared => unsafe { (self.table.drop_shared)(self.pointer) },
        }
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Value({}, {} bytes)", self.table.name(), self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;

    #[test]
    fn a_shared_value_is_copied_when_written() {
        let mut first = Value::new(vec![1u64, 2]);
        let handle = first.share::<Vec<u64>>().unwrap();
        let second = Value::shared(handle.clone());
        first.get_mut::<Vec<u64>>().unwrap().push(3);
        assert_eq!(first.get::<Vec<u64>>().unwrap(), &[1, 2, 3]);
        assert_eq!(second.get::<Vec<u64>>().unwrap(), &[1, 2]);
        assert_eq!(Arc::strong_count(&handle), 2);
        drop(second);
        assert_eq!(Arc::strong_count(&handle), 1);
    }

    /// As an object of Python's, whose last drop runs what it likes.
    #[derive(Default, Clone)]
    struct Object(Arc<std::sync::Mutex<Vec<bool>>>);

    impl Drop for Object {
        fn drop(&mut self) {
            self.0.lock().unwrap().push(held::any());
        }
    }

    impl Payload for Object {
        const INTERPRETED: bool = true;
        fn type_name() -> Cow<'static, str> {
            Cow::Borrowed("Object")
        }
        fn heap_bytes(&self) -> usize {
            0
        }
        fn encode(&self, _: &mut Vec<u8>) {}
        fn decode(_: &mut &[u8]) -> Result<Self, DecodeError> {
            Ok(Object::default())
        }
    }

    #[test]
    fn what_an_interpreter_has_made_outlives_the_lock_it_is_dropped_under() {
        let dropped = Object::default();
        let value = Value::new(dropped.clone());
        let mutex = std::sync::Mutex::new(Some(value));
        let mut held = held::lock(&mutex);
        *held = None;
        assert!(dropped.0.lock().unwrap().is_empty());
        drop(held);
        assert_eq!(*dropped.0.lock().unwrap(), [false]);
        assert!(PayloadType::of::<Vec<(u8, Option<Object>)>>().is_interpreted());
        assert!(!PayloadType::of::<Vec<(u8, Option<u8>)>>().is_interpreted());
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn mutant_of_a_value_that_is_dropped_under_the_lock() {
        brambling_memory::mutants::assert_caught("values-are-dropped-under-the-lock", || {
            what_an_interpreter_has_made_outlives_the_lock_it_is_dropped_under();
        });
    }

    #[test]
    fn another_type_is_refused_and_given_back() {
        let value = Value::new(7u32);
        assert!(value.get::<u64>().is_none());
        let value = value.take::<u64>().unwrap_err();
        assert_eq!(value.take::<u32>().unwrap(), 7);
    }

    #[test]
    fn values_survive_encoding() {
        let value = Value::new((3u8, vec![Some(1.5f64), None]));
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        let back = Value::decode(value.payload_type(), &mut &bytes[..]).unwrap();
        assert_eq!(
            back.take::<(u8, Vec<Option<f64>>)>().unwrap(),
            (3, vec![Some(1.5), None])
        );
        for cut in 0..bytes.len() {
            assert!(
                Value::decode(value.payload_type(), &mut &bytes[..cut]).is_err(),
                "cut at {cut}"
            );
        }
    }
}
