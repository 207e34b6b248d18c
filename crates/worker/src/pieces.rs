//! Pieces of one task's exchange as values: where pieces travel, and cannot lie in their destination's slots.

use brambling_memory::held::{self, Held};
use brambling_program::{PayloadType, PieceSink, PieceSource, Value};
use std::sync::Mutex;
use std::vec::IntoIter;

/// Values of an exchange's pieces that nobody needs: their memory is used again.
///
/// Pieces whose clones share their memory are sent as clones of what their source has. What is overwritten so would lose the memory that
/// came with it, into which what comes next could be read: such values are kept apart from those that have none.
pub struct Spares {
    piece: &'static PayloadType,
    lists: Mutex<Lists>,
}

#[derive(Default)]
struct Lists {
    /// With memory of their own.
    roomy: Vec<Value>,
    /// Without.
    empty: Vec<Value>,
}

impl Spares {
    /// None yet, of pieces of this type.
    pub fn new(piece: &'static PayloadType) -> Spares {
        let lists = Mutex::default();
        Spares { piece, lists }
    }

    /// Whether clones of a piece share its memory.
    pub fn are_shared(&self) -> bool {
        self.piece.is_shared()
    }

    /// Whether to handle one may need an interpreter.
    pub fn are_interpreted(&self) -> bool {
        self.piece.is_interpreted()
    }

    /// A value that what has come is written to: what it is is not said.
    pub fn take(&self) -> Value {
        let mut lists = self.lists();
        let spare = lists.roomy.pop().or_else(|| lists.empty.pop());
        drop(lists);
        spare.unwrap_or_else(|| Value::default_of(self.piece))
    }

    /// A value that a kernel overwrites with what it sends.
    pub fn take_to_send(&self) -> Value {
        if !self.are_shared() {
            return self.take();
        }
        let spare = self.lists().empty.pop();
        spare.unwrap_or_else(|| Value::default_of(self.piece))
    }

    /// Nobody needs the value any more.
    pub fn put(&self, mut value: Value) {
        let is_roomy = value.let_go();
        let mut lists = self.lists();
        match is_roomy {
            true => lists.roomy.push(value),
            false => lists.empty.push(value),
        }
    }

    fn lists(&self) -> Held<'_, Lists> {
        held::lock(&self.lists)
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
        let value = slot.get_or_insert_with(|| self.spares.take_to_send());
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

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_program::Payload;
    use std::sync::Arc;

    fn spares<P: Payload>() -> Spares {
        Spares::new(PayloadType::of::<P>())
    }

    /// What came in once is what the next is read to, however many were sent meanwhile.
    #[test]
    fn memory_of_what_came_outlives_what_is_sent() {
        let spares = spares::<Arc<Vec<f64>>>();
        let ours = Arc::new(vec![1.0; 100]);
        let came = Arc::new(vec![2.0; 100]);
        let at = came.as_ptr();
        spares.put(Value::new(came));
        for _ in 0..3 {
            let mut sent = [(); 2].map(|()| spares.take_to_send());
            for value in &mut sent {
                *value.get_mut::<Arc<Vec<f64>>>().unwrap() = ours.clone();
            }
            sent.into_iter().for_each(|value| spares.put(value));
            let came = spares.take();
            assert_eq!(came.get::<Arc<Vec<f64>>>().unwrap().as_ptr(), at);
            spares.put(came);
        }
        assert_eq!(
            Arc::strong_count(&ours),
            1,
            "spare ones hold nothing of others"
        );
    }

    /// Where a kernel writes what it sends in place, it gets the memory.
    #[test]
    fn vectors_keep_their_memory_either_way() {
        let spares = spares::<Vec<f64>>();
        let came = vec![2.0; 100];
        let at = came.as_ptr();
        spares.put(Value::new(came));
        for take in [Spares::take, Spares::take_to_send] {
            let value = take(&spares);
            assert_eq!(value.get::<Vec<f64>>().unwrap().as_ptr(), at);
            spares.put(value);
        }
    }
}
