//! Where kernels put their pieces and take them from: plain maps.

use brambling_program::{
    ExchangeId, PayloadType, PieceSink, PieceSource, Polled, StreamPorts, Value,
};
use std::collections::{BTreeMap, VecDeque};

/// The pieces of one scatter.
pub(crate) struct SinkMap {
    source: u32,
    destinations: Vec<u32>,
    piece: &'static PayloadType,
    pub(crate) sent: BTreeMap<u32, Value>,
}

impl SinkMap {
    pub(crate) fn new(source: u32, destinations: Vec<u32>, piece: &'static PayloadType) -> SinkMap {
        SinkMap {
            source,
            destinations,
            piece,
            sent: BTreeMap::new(),
        }
    }
}

impl PieceSink for SinkMap {
    fn slot(&mut self, destination: u32) -> Option<*mut u8> {
        let piece = self.piece;
        let place = || Value::default_of(piece);
        let allowed = self.destinations.contains(&destination);
        allowed.then(|| self.sent.entry(destination).or_insert_with(place).as_ptr())
    }
    fn source(&self) -> u32 {
        self.source
    }
    fn fan_out(&self) -> u32 {
        self.destinations.len() as u32
    }
    fn destination(&self, place: u32) -> u32 {
        self.destinations[place as usize]
    }
}

/// The pieces of one gather, by ascending source.
pub(crate) struct SimulatedQueue {
    left: VecDeque<(u32, Value)>,
    /// Alive as long as the kernel may look at them.
    given: Vec<Value>,
}

impl SimulatedQueue {
    pub(crate) fn new(pieces: impl IntoIterator<Item = (u32, Value)>) -> SimulatedQueue {
        SimulatedQueue {
            left: pieces.into_iter().collect(),
            given: Vec::new(),
        }
    }
}

impl PieceSource for SimulatedQueue {
    fn next(&mut self) -> Option<(u32, *mut u8)> {
        let (source, mut piece) = self.left.pop_front()?;
        piece.make_unique();
        let place = piece.as_ptr();
        self.given.push(piece);
        Some((source, place))
    }
}

/// The streams of one task: all of its inputs are there, and there is room for all that it sends.
pub(crate) struct StreamMap {
    /// In the order in which the stage takes them.
    takes: Vec<(ExchangeId, &'static PayloadType)>,
    pub(crate) inputs: BTreeMap<ExchangeId, VecDeque<(u32, Value)>>,
    /// Alive as long as the kernel may look at them.
    given: Vec<Value>,
    output: Option<(ExchangeId, &'static PayloadType)>,
    destinations: Vec<u32>,
    begun: BTreeMap<u32, Value>,
    /// In the order in which it was sent.
    pub(crate) sent: Vec<(u32, Value)>,
}

impl StreamMap {
    pub(crate) fn new(
        takes: Vec<(ExchangeId, &'static PayloadType)>,
        inputs: BTreeMap<ExchangeId, VecDeque<(u32, Value)>>,
        output: Option<(ExchangeId, &'static PayloadType)>,
        destinations: Vec<u32>,
    ) -> StreamMap {
        StreamMap {
            takes,
            inputs,
            given: Vec::new(),
            output,
            destinations,
            begun: BTreeMap::new(),
            sent: Vec::new(),
        }
    }
}

impl StreamMap {
    /// The task is done: what it has written is sent.
    pub(crate) fn end(&mut self) {
        self.sent.extend(std::mem::take(&mut self.begun));
    }
}

impl StreamPorts for StreamMap {
    fn poll(&mut self, from: ExchangeId) -> Polled {
        let input = self.inputs.get_mut(&from).expect("an input of the stage");
        let Some((source, chunk)) = input.pop_front() else {
            return Polled::Ended;
        };
        let place = chunk.as_ptr();
        self.given.push(chunk);
        Polled::Chunk(source, place)
    }
    fn input(&self, place: usize) -> Option<(ExchangeId, &'static PayloadType)> {
        self.takes.get(place).copied()
    }
    fn output(&self) -> Option<(ExchangeId, &'static PayloadType)> {
        self.output
    }
    fn slot(&mut self, destination: u32) -> Option<*mut u8> {
        let (_, piece) = self.output?;
        let allowed = self.destinations.contains(&destination);
        let place = || Value::default_of(piece);
        allowed.then(|| self.begun.entry(destination).or_insert_with(place).as_ptr())
    }
    fn flush(&mut self, destination: u32) {
        let begun = self.begun.remove(&destination);
        self.sent.extend(begun.map(|chunk| (destination, chunk)));
    }
    fn has_room(&mut self, _: u32) -> bool {
        true
    }
    fn fan_out(&self) -> u32 {
        self.destinations.len() as u32
    }
    fn destination(&self, place: u32) -> u32 {
        self.destinations[place as usize]
    }
}
