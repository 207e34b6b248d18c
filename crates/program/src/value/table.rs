//! The operations of a payload type, behind pointers whose type is erased.
#![allow(unsafe_code)] // The pointers are cast back to the type whose table it is.

use crate::chunks::{Chunk, ChunkError, Cursor};
use crate::{DecodeError, Payload};
use brambling_memory::{SpillError, held};
use std::alloc::Layout;
use std::any::TypeId;
use std::borrow::Cow;
use std::sync::Arc;

/// The operations of one payload type over erased pointers.
pub struct PayloadType {
    pub(super) id: fn() -> TypeId,
    pub(super) name: fn() -> Cow<'static, str>,
    pub(super) layout: Layout,
    pub(super) fixed: bool,
    pub(super) shared: bool,
    pub(super) interpreted: bool,
    pub(super) write_default: unsafe fn(*mut u8),
    pub(super) drop_in_place: unsafe fn(*mut u8),
    pub(super) new: fn() -> *mut u8,
    pub(super) drop_owned: unsafe fn(*mut u8),
    pub(super) drop_shared: unsafe fn(*mut u8),
    pub(super) clone_owned: unsafe fn(*const u8) -> *mut u8,
    pub(super) clone_shared: unsafe fn(*mut u8),
    pub(super) share: unsafe fn(*mut u8) -> *mut u8,
    pub(super) unshare: unsafe fn(*mut u8) -> *mut u8,
    pub(super) heap_bytes: unsafe fn(*const u8) -> usize,
    pub(super) spilled_bytes: unsafe fn(*const u8) -> u64,
    pub(super) encode: unsafe fn(*const u8, &mut Vec<u8>),
    pub(super) encode_kept: unsafe fn(*const u8, &mut Vec<u8>) -> Result<(), String>,
    pub(super) encode_head: unsafe fn(*const u8, &mut Vec<u8>) -> *const [u8],
    pub(super) receive: unsafe fn(*mut u8, &[u8], usize) -> Option<*mut [u8]>,
    pub(super) let_go: unsafe fn(*mut u8) -> bool,
    pub(super) encode_some: EncodeSome,
    pub(super) decode_some: unsafe fn(*mut u8, &mut Cursor, &mut &[u8]) -> Result<bool, ChunkError>,
    pub(super) decode: fn(&mut &[u8]) -> Result<*mut u8, DecodeError>,
}

/// What is lent to the chunk lives as long as whoever calls says.
type EncodeSome =
    for<'a> unsafe fn(*const u8, &mut Cursor, &mut Chunk<'a>) -> Result<bool, SpillError>;

trait Table: Payload {
    const TABLE: PayloadType;
}

// SAFETY (each closure below): called only by `Value`, with pointers it made from a `Box<T>` or an
// `Arc<T>` of this very table's `T`; owned pointers come from boxes, shared ones from arcs.
impl<T: Payload> Table for T {
    const TABLE: PayloadType = PayloadType {
        id: TypeId::of::<T>,
        name: T::type_name,
        layout: Layout::new::<T>(),
        fixed: T::FIXED,
        shared: T::SHARED,
        interpreted: T::INTERPRETED,
        // SAFETY: see above; here the caller owns the place.
        write_default: |p| unsafe { p.cast::<T>().write(T::default()) },
        // SAFETY: see above; here the caller owns the place.
        drop_in_place: |p| unsafe { p.cast::<T>().drop_in_place() },
        new: || Box::into_raw(Box::<T>::default()).cast(),
        // SAFETY: see above.
        drop_owned: |p| drop(unsafe { Box::from_raw(p.cast::<T>()) }),
        // SAFETY: see above.
        drop_shared: |p| drop(unsafe { Arc::from_raw(p.cast::<T>()) }),
        // SAFETY: see above.
        clone_owned: |p| Box::into_raw(Box::new(unsafe { &*p.cast::<T>() }.clone())).cast(),
        // SAFETY: see above.
        clone_shared: |p| unsafe { Arc::increment_strong_count(p.cast::<T>()) },
        share: |p| {
            // SAFETY: see above; here the pointer is an owned one.
            let shared = Arc::new(*unsafe { Box::from_raw(p.cast::<T>()) });
            Arc::into_raw(shared).cast_mut().cast()
        },
        unshare: |p| {
            // SAFETY: see above.
            let shared = unsafe { Arc::from_raw(p.cast::<T>()) };
            // The last handle gives its payload away without a copy.
            let owned = Arc::try_unwrap(shared).unwrap_or_else(|shared| T::clone(&shared));
            Box::into_raw(Box::new(owned)).cast()
        },
        // SAFETY: see above.
        heap_bytes: |p| unsafe { &*p.cast::<T>() }.heap_bytes(),
        // SAFETY: see above.
        spilled_bytes: |p| unsafe { &*p.cast::<T>() }.spilled_bytes(),
        // SAFETY: see above.
        encode: |p, out| unsafe { &*p.cast::<T>() }.encode(out),
        // SAFETY: see above.
        encode_kept: |p, out| unsafe { &*p.cast::<T>() }.encode_kept(out),
        // SAFETY: see above.
        encode_head: |p, out| unsafe { &*p.cast::<T>() }.encode_head(out),
        receive: |p, head, max| {
            // SAFETY: see above; here the value is owned, and borrowed mutably.
            let value = unsafe { &mut *p.cast::<T>() };
            value.receive(head, max).map(std::ptr::from_mut)
        },
        // SAFETY: as above.
        let_go: |p| unsafe { &mut *p.cast::<T>() }.let_go(),
        // SAFETY: see above; the caller answers for how long what is lent lives.
        encode_some: |p, cursor, chunk| unsafe { &*p.cast::<T>() }.encode_some(cursor, chunk),
        // SAFETY: as for `let_go`.
        decode_some: |p, cursor, input| unsafe { &mut *p.cast::<T>() }.decode_some(cursor, input),
        decode: |input| T::decode(input).map(|value| Box::into_raw(Box::new(value)).cast()),
    };
}

impl PayloadType {
    /// The table of `T`.
    pub fn of<T: Payload>() -> &'static PayloadType {
        &<T as Table>::TABLE
    }

    /// The stable name of the type.
    pub fn name(&self) -> Cow<'static, str> {
        (self.name)()
    }

    /// What gives the name.
    pub(crate) fn name_of(&self) -> fn() -> Cow<'static, str> {
        self.name
    }

    /// Whether it is the type of the same values.
    pub fn is_same(&self, other: &PayloadType) -> bool {
        // By type, not by address: a table may be in the binary several times.
        (self.id)() == (other.id)()
    }

    /// Whether this is the table of `T`.
    pub fn is<T: Payload>(&self) -> bool {
        (self.id)() == TypeId::of::<T>()
    }

    /// Size and alignment of a value.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Writes a default value.
    ///
    /// # Safety
    /// `place` is free memory of this type's layout.
    pub unsafe fn write_default(&self, place: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { (self.write_default)(place) }
    }

    /// Drops a value where it lies.
    ///
    /// # Safety
    /// `place` holds a value of this type that nobody uses again.
    pub unsafe fn drop_in_place(&self, place: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { (self.drop_in_place)(place) }
    }

    /// Bytes that a value owns beyond its own size.
    ///
    /// # Safety
    /// `place` holds a value of this type, not being written.
    pub unsafe fn heap_bytes(&self, place: *const u8) -> usize {
        // SAFETY: the caller's promise.
        unsafe { (self.heap_bytes)(place) }
    }

    /// Whether values own no heap memory.
    pub fn is_fixed(&self) -> bool {
        self.fixed
    }

    /// Whether clones of a value share its memory.
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Whether handling a value may wait for an interpreter ([`Payload::INTERPRETED`]).
    pub fn is_interpreted(&self) -> bool {
        self.interpreted
    }

    /// A value of it is handled: not under a lock, if that may wait for an interpreter.
    #[inline]
    #[track_caller]
    pub(super) fn handle(&self, what: &str) {
        if self.interpreted {
            held::forbid(what);
        }
    }
}

impl std::fmt::Debug for PayloadType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}
