//! Owns the step from parcels, one for each run of destinations, to what a frame holds, and back.
//! The worker's node calls it when it sends and when it receives. It never looks into a piece.

use brambling_memory::{OutOfMemory, Spill, SpillError, mutants};
use brambling_program::tree::TreeNode;
use brambling_program::{ExchangeId, GroupId, Turn};
use brambling_protocol::Version;
use brambling_protocol::frame::{Data, DataHead, EmptyMarks, Piece, VersionRange};
use std::convert::Infallible;
use std::ops::Range;

/// What one source, or some, send to a destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item<P> {
    /// One chunk of what a source sends.
    Piece {
        /// The source: a leaf, or a node for all its leaves together.
        source: TreeNode,
        /// The place of this chunk, from 0.
        chunk: u32,
        /// Whether it is the last one.
        last: bool,
        /// What is sent.
        payload: P,
    },
    /// These leaves send nothing.
    Empty {
        /// The leaves.
        sources: Range<u64>,
    },
}

impl<P> Item<P> {
    /// All that a source sends, in one chunk.
    pub fn whole(source: TreeNode, payload: P) -> Item<P> {
        Item::Piece {
            source,
            chunk: 0,
            last: true,
            payload,
        }
    }

    /// What is sent, if anything is.
    pub fn payload_mut(&mut self) -> Option<&mut P> {
        match self {
            Item::Piece { payload, .. } => Some(payload),
            Item::Empty { .. } => None,
        }
    }

    /// The same with another payload.
    pub fn map<Q>(self, payload: impl FnOnce(P) -> Q) -> Item<Q> {
        let Ok(item) = self.try_map(|before| Ok::<_, Infallible>(payload(before)));
        item
    }

    /// The same, where that may fail.
    ///
    /// # Errors
    /// That of `payload`.
    pub fn try_map<Q, E>(self, payload: impl FnOnce(P) -> Result<Q, E>) -> Result<Item<Q>, E> {
        Ok(match self {
            Item::Piece {
                source,
                chunk,
                last,
                payload: before,
            } => Item::Piece {
                source,
                chunk,
                last,
                payload: payload(before)?,
            },
            Item::Empty { sources } => Item::Empty { sources },
        })
    }
}

/// An item for destinations whose entries have one version in the sender's map.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parcel<P> {
    /// The exchange.
    pub exchange: ExchangeId,
    /// Its turn.
    pub turn: Turn,
    /// The group of the destinations.
    pub group: GroupId,
    /// The destinations: more than one for a broadcast and for batched empty marks.
    pub destinations: Range<u32>,
    /// The sender's version.
    pub version: Version,
    /// What its payload takes, as it was made.
    pub bytes: u64,
    /// The item.
    pub item: Item<P>,
}

/// A payload that knows what it takes.
pub trait PayloadWeight {
    /// Bytes that it occupies while it waits.
    fn bytes(&self) -> u64;

    /// Has it wait outside of memory, where it can: then it occupies none. `refused` says what there was no memory for.
    ///
    /// # Errors
    /// When it finds no room there either; it stays as it is.
    fn spill(&mut self, _to: &dyn Spill, _refused: &OutOfMemory) -> Result<(), SpillError> {
        Ok(())
    }
}

impl<P: AsRef<[u8]>> PayloadWeight for P {
    fn bytes(&self) -> u64 {
        self.as_ref().len() as u64
    }
}

impl<P> Parcel<P> {
    /// The same with another payload, of as many bytes.
    pub fn map<Q>(self, payload: impl FnOnce(P) -> Q) -> Parcel<Q> {
        Parcel {
            exchange: self.exchange,
            turn: self.turn,
            group: self.group,
            destinations: self.destinations,
            version: self.version,
            bytes: self.bytes,
            item: self.item.map(payload),
        }
    }
}

impl<P: PayloadWeight> Parcel<P> {
    /// A parcel to destinations of a group. It occupies what its payload takes.
    pub fn new(
        (exchange, turn, group): (ExchangeId, Turn, GroupId),
        destinations: Range<u32>,
        version: Version,
        item: Item<P>,
    ) -> Parcel<P> {
        let bytes = match &item {
            Item::Piece { payload, .. } => payload.bytes(),
            Item::Empty { .. } => 0,
        };
        Parcel {
            exchange,
            turn,
            group,
            destinations,
            version,
            bytes,
            item,
        }
    }
}

impl<P: AsRef<[u8]>> Parcel<P> {
    /// Whether the next one has the same of the same source, for the destinations that follow: in a frame it is one piece then.
    pub fn goes_on_in(&self, next: &Parcel<P>) -> bool {
        let follows = self.destinations.end == next.destinations.start;
        let name = |parcel: &Parcel<P>| match &parcel.item {
            Item::Piece {
                source,
                chunk,
                payload,
                ..
            } => Some((*source, *chunk, payload.as_ref().as_ptr_range())),
            Item::Empty { .. } => None,
        };
        // The same memory, not equal bytes: comparing large pieces would cost as much as sending
        // them.
        follows && name(self).is_some() && name(self) == name(next)
    }
}

/// The parcels of a frame; `share` makes payloads that outlive it.
pub fn parcels<P: PayloadWeight + Clone>(
    data: &Data<'_>,
    mut share: impl FnMut(&[u8]) -> P,
    mut each: impl FnMut(Parcel<P>),
) {
    let DataHead {
        exchange,
        turn,
        group,
        ..
    } = data.head;
    let mut split = |first: u32, end: u32, item: Item<P>| {
        let start = data.versions.partition_point(|range| range.end <= first);
        // A piece for several destinations is one parcel for each version that the sender had of
        // them.
        let ranges = data.versions[start..].iter();
        for range in ranges.take_while(|range| range.first < end) {
            let destinations = range.first.max(first)..range.end.min(end);
            each(Parcel::new(
                (exchange, turn, group),
                destinations,
                range.version,
                item.clone(),
            ));
        }
    };
    for piece in &data.pieces {
        let item = Item::Piece {
            source: piece.source,
            chunk: piece.chunk,
            last: piece.last,
            payload: share(piece.payload),
        };
        split(piece.first, piece.end, item);
    }
    for marks in &data.empties {
        let sources = marks.sources.clone();
        split(marks.first, marks.end, Item::Empty { sources });
    }
}

/// One frame's data from parcels of one exchange turn. Empty marks of neighbouring sources become one.
///
/// Where parcels give one destination two versions, because the map changed between them, the frame
/// has the older one: the receiver then holds or forwards, both of which are safe.
pub fn coalesce<'a, P: AsRef<[u8]>>(head: DataHead, parcels: &'a [Parcel<P>]) -> Data<'a> {
    let mut data = Data {
        head,
        versions: oldest_versions(parcels),
        pieces: Vec::new(),
        empties: Vec::new(),
        routes: Vec::new(),
    };
    let mut before: Option<&Parcel<P>> = None;
    for parcel in parcels {
        assert_eq!(
            (parcel.exchange, parcel.turn, parcel.group),
            (head.exchange, head.turn, head.group),
            "a frame is of one turn of one exchange"
        );
        let Range { start: first, end } = parcel.destinations;
        let goes_on = before.is_some_and(|before| before.goes_on_in(parcel));
        before = Some(parcel);
        match &parcel.item {
            // A broadcast is one piece for all of its destinations in a frame.
            Item::Piece { .. } if goes_on => {
                data.pieces.last_mut().expect("the one before").end = end;
            }
            Item::Piece {
                source,
                chunk,
                last,
                payload,
            } => data.pieces.push(Piece {
                first,
                end,
                source: *source,
                chunk: *chunk,
                last: *last,
                payload: payload.as_ref(),
            }),
            Item::Empty { .. } if mutants::is_on("coalesce-forgets-empty-marks") => {}
            Item::Empty { sources } => add_empty(&mut data.empties, first..end, sources),
        }
    }
    data
}

/// Sources send nothing to these destinations: one mark with that of the sources before them, if there is one.
fn add_empty(empties: &mut Vec<EmptyMarks>, to: Range<u32>, sources: &Range<u64>) {
    match empties.last_mut() {
        Some(before) if (before.first..before.end) == to && before.sources.end == sources.start => {
            before.sources.end = sources.end;
        }
        _ => empties.push(EmptyMarks {
            first: to.start,
            end: to.end,
            sources: sources.clone(),
        }),
    }
}

/// The oldest version that parcels give each destination.
fn oldest_versions<P>(parcels: &[Parcel<P>]) -> Vec<VersionRange> {
    let mut edges: Vec<u32> = parcels
        .iter()
        .flat_map(|p| [p.destinations.start, p.destinations.end])
        .collect();
    edges.sort_unstable();
    // Destinations between two edges have the same parcels, so one version serves them.
    edges.dedup();
    // One version for each stretch between an edge and the next.
    let mut oldest: Vec<Option<Version>> = vec![None; edges.len()];
    for parcel in parcels {
        let at = edges.partition_point(|&edge| edge < parcel.destinations.start);
        let to = edges.partition_point(|&edge| edge < parcel.destinations.end);
        for version in &mut oldest[at..to] {
            // The oldest: a version that is too new would keep a receiver from forwarding.
            *version = Some(version.map_or(parcel.version, |other| other.min(parcel.version)));
        }
    }
    let mut versions: Vec<VersionRange> = Vec::new();
    for (bounds, version) in edges.windows(2).zip(oldest) {
        let (first, end) = (bounds[0], bounds[1]);
        let Some(version) = version else { continue };
        match versions.last_mut() {
            Some(before) if before.end == first && before.version == version => before.end = end,
            _ => versions.push(VersionRange {
                first,
                end,
                version,
            }),
        }
    }
    versions
}
