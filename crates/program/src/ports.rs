//! What scatter and gather kernels hold: typed views of the exchange.
#![allow(unsafe_code)] // Piece buffers are erased; the builder fixed their type.

use crate::slots::{SlotsIn, SlotsOut};
use crate::{Payload, PieceSink, PieceSource};
use std::marker::PhantomData;

/// The pieces that a scatter sends: at most one to each destination of its relation.
pub struct Outbox<'a, P> {
    sink: &'a mut dyn PieceSink,
    slots: Option<SlotsOut>,
    piece: PhantomData<fn() -> P>,
}

impl<'a, P: Payload> Outbox<'a, P> {
    /// # Safety
    /// The sink's buffers hold values of type `P`.
    #[inline]
    pub(crate) unsafe fn new(sink: &'a mut dyn PieceSink) -> Self {
        let slots = sink.slots();
        Outbox {
            sink,
            slots,
            piece: PhantomData,
        }
    }

    /// The piece to a destination, to be written in place. Its buffer comes from an earlier turn and keeps
    /// that turn's content, so that vectors keep their capacity: overwrite or clear it.
    ///
    /// # Panics
    /// When the relation does not let this source send to that destination at this turn.
    #[track_caller]
    pub fn piece(&mut self, destination: u32) -> &mut P {
        let slot = match &self.slots {
            // SAFETY: the sink lent these slots for the call, and the borrow of self keeps a second use away.
            Some(slots) => unsafe { slots.route(destination).map(|route| slots.write(route)) },
            None => self.sink.slot(destination),
        };
        let Some(slot) = slot else {
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
        if let Some(slots) = self.slots {
            // SAFETY: as in `piece`.
            for route in unsafe { slots.routes() } {
                // SAFETY: as in `piece`.
                write(route.destination, unsafe {
                    &mut *slots.write(route).cast::<P>()
                });
            }
            return;
        }
        for place in 0..self.sink.fan_out() {
            let (destination, slot) = self.sink.slot_at(place);
            // SAFETY: buffers are of type P, and the borrow of self keeps a second one away.
            write(destination, unsafe { &mut *slot.cast::<P>() });
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
    source: &'a mut dyn PieceSource,
    slots: Option<SlotsIn>,
    piece: PhantomData<fn() -> P>,
}

impl<'a, P: Payload> Inbox<'a, P> {
    /// # Safety
    /// The source's buffers hold values of type `P`, each handed out once, alive for `'a`.
    #[inline]
    pub(crate) unsafe fn new(source: &'a mut dyn PieceSource) -> Self {
        let slots = source.slots();
        Inbox {
            source,
            slots,
            piece: PhantomData,
        }
    }
}

impl<'a, P: Payload> Iterator for Inbox<'a, P> {
    type Item = (u32, &'a mut P);

    #[inline]
    fn next(&mut self) -> Option<(u32, &'a mut P)> {
        let (source, slot) = match &mut self.slots {
            // SAFETY: the source lent these slots for the call; each is handed out once.
            Some(slots) => unsafe { slots.next() }?,
            None => self.source.next()?,
        };
        // SAFETY: see `new`.
        Some((source, unsafe { &mut *slot.cast::<P>() }))
    }
}
