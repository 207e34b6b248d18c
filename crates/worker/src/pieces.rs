//! Pieces of one task's exchange as values: where pieces travel, and cannot lie in their destination's slots.

use brambling_program::{PayloadType, PieceSink, PieceSource, Value};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::vec::IntoIter;

/// Values of an exchange's pieces that nobody needs: their memory is used again.
pub struct Spares {
    piece: &'static PayloadType,
    values: Mutex<Vec<Value>>,
}

impl Spares {
    /// None yet, of pieces of this type.
    pub fn new(piece: &'static PayloadType) -> Spares {
        let values = Mutex::default();
        Spares { piece, values }
    }

    /// Whether clones of a piece share its memory.
    pub fn are_shared(&self) -> bool {
        self.piece.is_shared()
    }

    /// A value to be overwritten: what it is is not said.
    pub fn take(&self) -> Value {
        let spare = self.values().pop();
        spare.unwrap_or_else(|| Value::default_of(self.piece))
    }

    /// Nobody needs the value any more.
    pub fn put(&self, mut value: Value) {
        value.let_go();
        self.values().push(value);
    }

    fn values(&self) -> MutexGuard<'_, Vec<Value>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pieces of one scatter.
pub struct PieceMap<'a> {
    source: u32,
    spares: &'a Spares,
    /// By destination, ascending.
    places: Vec<(u32, Option<Value>)>,
}

impl<'a> PieceMap<'a> {
    /// No pieces yet, from `source` to any of `destinations`, which ascend.
    pub fn new(
        source: u32,
        destinations: impl IntoIterator<Item = u32>,
        spares: &'a Spares,
    ) -> PieceMap<'a> {
        let places: Vec<_> = destinations
            .into_iter()
            .map(|destination| (destination, None))
            .collect();
        debug_assert!(places.is_sorted_by_key(|(destination, _)| *destination));
        PieceMap {
            source,
            spares,
            places,
        }
    }

    /// What was sent to whom, ascending.
    pub fn sent(self) -> impl Iterator<Item = (u32, Value)> {
        let sent = |(destination, piece): (u32, Option<Value>)| Some((destination, piece?));
        self.places.into_iter().filter_map(sent)
    }
}

impl PieceSink for PieceMap<'_> {
    fn slot(&mut self, destination: u32) -> Option<*mut u8> {
        let by_destination = |place: &(u32, Option<Value>)| place.0;
        let place = self
            .places
            .binary_search_by_key(&destination, by_destination)
            .ok()?;
        Some(self.slot_at(place as u32).1)
    }
    fn slot_at(&mut self, place: u32) -> (u32, *mut u8) {
        let (destination, slot) = &mut self.places[place as usize];
        let value = slot.get_or_insert_with(|| self.spares.take());
        (*destination, value.as_ptr())
    }
    fn source(&self) -> u32 {
        self.source
    }
    fn fan_out(&self) -> u32 {
        self.places.len() as u32
    }
    fn destination(&self, place: u32) -> u32 {
        self.places[place as usize].0
    }
}

/// The pieces of one gather.
pub struct PieceQueue {
    left: IntoIter<(u32, Value)>,
    /// Alive as long as the kernel may look at them.
    given: Vec<Value>,
}

impl PieceQueue {
    /// Pieces by ascending source.
    pub fn new(pieces: Vec<(u32, Value)>) -> PieceQueue {
        PieceQueue {
            given: Vec::with_capacity(pieces.len()),
            left: pieces.into_iter(),
        }
    }

    /// What is left of them.
    pub fn into_values(self) -> impl Iterator<Item = Value> {
        self.given
            .into_iter()
            .chain(self.left.map(|(_, piece)| piece))
    }
}

impl PieceSource for PieceQueue {
    fn next(&mut self) -> Option<(u32, *mut u8)> {
        let (source, mut piece) = self.left.next()?;
        piece.make_unique();
        let place = piece.as_ptr();
        self.given.push(piece);
        Some((source, place))
    }
}
