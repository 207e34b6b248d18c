//! What scatter and gather kernels hold: typed views of the exchange.
#![allow(unsafe_code)] // Piece buffers are erased; the builder fixed their type.

use crate::slots::{SlotHeader, SlotsIn};
use crate::{GatherPieces, Payload, Sink};
use std::marker::PhantomData;

/// The pieces that a scatter sends: at most one to each destination of its relation.
pub struct Outbox<'a, P> {
    sink: &'a mut Sink<'static>,
    piece: PhantomData<fn() -> P>,
}

impl<'a, P: Payload> Outbox<'a, P> {
    /// # Safety
    /// The sink's buffers hold values of type `P`.
    #[inline]
    pub(crate) unsafe fn new(sink: &'a mut Sink<'static>) -> Self {
        Outbox {
            sink,
            piece: PhantomData,
        }
    }

    /// The piece to a destination, to be written in place. Its buffer is that of some piece of the exchange that nobody needs any
    /// more, so that vectors keep their capacity. What it holds is not said, and on a cluster never the same: overwrite or clear it.
    ///
    /// # Panics
    /// When the relation does not let this source send to that destination at this turn.
    #[track_caller]
    pub fn piece(&mut self, destination: u32) -> &mut P {
        let Some(slot) = self.sink.slot(destination) else {
            panic!(
                "this source may not send to partition {destination} at this turn; widen the exchange's relation"
            );
        };
        // SAFETY: buffers are of type P, and the borrow of self keeps a second one away.
        unsafe { &mut *slot.cast::<P>() }
    }

    /// Writes the piece to each destination of this turn in place, as [`Outbox::piece`].
    #[inline]
    pub fn for_each(&mut self, mut write: impl FnMut(u32, &mut P)) {
        match self.sink {
            Sink::Slots(slots) => {
                // SAFETY: the executor lent these slots for the call.
                for route in unsafe { slots.routes() } {
                    // SAFETY: as in `piece`; the slots were laid out for pieces of this size and alignment.
                    let slot = unsafe {
                        // A slot counts as written when it is handed to the kernel: a kernel that
                        // leaves it as it is sends what lay there.
                        slots.stamp(route);
                        let offset = SlotHeader::piece_offset(align_of::<P>());
                        &mut *slots.base.add(route.offset + offset).cast::<P>()
                    };
                    write(route.destination, slot);
                }
            }
            Sink::Other(sink) => {
                for place in 0..sink.fan_out() {
                    let (destination, slot) = sink.slot_at(place);
                    // SAFETY: buffers are of type P, and the borrow of self keeps a second one away.
                    write(destination, unsafe { &mut *slot.cast::<P>() });
                }
            }
        }
    }

    /// Sends a value.
    ///
    /// # Panics
    /// As [`Outbox::piece`].
    #[track_caller]
    pub fn put(&mut self, destination: u32, value: P) {
        *self.piece(destination) = value;
    }

    /// The destinations that this source may send to at this turn, ascending.
    pub fn destinations(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.fan_out()).map(|place| self.destination(place))
    }

    /// Index of the partition that sends.
    pub fn source(&self) -> u32 {
        self.sink.source()
    }

    /// How many destinations there are at this turn.
    pub fn fan_out(&self) -> u32 {
        self.sink.fan_out()
    }

    /// The destination at a place, 0 to [`Outbox::fan_out`].
    pub fn destination(&self, place: u32) -> u32 {
        self.sink.destination(place)
    }
}

/// The pieces that reached a gather, in source order: pairs of source and piece. Pieces may be taken apart.
pub struct Inbox<'a, P> {
    /// Here, not behind a pointer, so that a kernel's loop keeps it in registers.
    slots: Option<SlotsIn>,
    pieces: &'a mut GatherPieces<'static>,
    piece: PhantomData<fn() -> P>,
}

impl<'a, P: Payload> Inbox<'a, P> {
    /// # Safety
    /// The pieces' buffers hold values of type `P`, each handed out once, alive for `'a`.
    #[inline]
    pub(crate) unsafe fn new(pieces: &'a mut GatherPieces<'static>) -> Self {
        let slots = match pieces {
            GatherPieces::Slots(slots) => Some(*slots),
            GatherPieces::Other(_) => None,
        };
        Inbox {
            slots,
            pieces,
            piece: PhantomData,
        }
    }
}

impl<'a, P: Payload> Iterator for Inbox<'a, P> {
    type Item = (u32, &'a mut P);

    #[inline]
    fn next(&mut self) -> Option<(u32, &'a mut P)> {
        let (source, slot) = match &mut self.slots {
            // SAFETY: the executor lent these slots, laid out for pieces of this size and alignment, for the
            // call; each is handed out once.
            Some(slots) => unsafe { slots.next_of(size_of::<P>(), align_of::<P>()) }?,
            None => self.pieces.next()?,
        };
        // SAFETY: see `new`.
        Some((source, unsafe { &mut *slot.cast::<P>() }))
    }
}
