//! Owns one open turn of one exchange in an inbox: which sources are accounted for, their pieces,
//! and chunks of which others are missing. The inbox calls it (`inbox.rs`). It never ends its turn
//! by itself: the inbox retires it.

mod fault;
mod seen;
mod streamed;

pub(crate) use fault::Fault;
pub use streamed::NextChunk;

use super::Acceptance;
use crate::parcel::Item;
use crate::sources::Sources;
use brambling_memory::mutants;
use brambling_program::tree::TreeNode;
use seen::Seen;
use std::collections::BTreeMap;
use std::ops::Range;
use streamed::Streamed;

/// A piece as it is handed out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gathered<P> {
    /// Who sent it.
    pub source: TreeNode,
    /// The place of the chunk.
    pub chunk: u32,
    /// Whether it is the source's last chunk.
    pub last: bool,
    /// What was sent.
    pub payload: P,
}

/// A source of which some chunks are missing.
#[derive(Debug)]
struct Partial {
    source: TreeNode,
    /// One past its last place.
    end: u64,
    seen: Seen,
    /// How many chunks there are, once the last one came.
    chunks: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct OpenTurn<P> {
    /// One bit for each source, by its place: whether it is accounted for.
    covered: Vec<u64>,
    covered_count: u64,
    /// In the order of arrival until they are taken.
    pieces: Vec<Gathered<P>>,
    /// Ranges of leaves that send nothing, as they came.
    empties: Vec<Range<u64>>,
    /// By first place; they do not overlap.
    partials: BTreeMap<u64, Partial>,
    taken: bool,
    /// For whoever has the inbox.
    known: u32,
    /// How far it was handed out, where that is done by chunks.
    streamed: Option<Box<Streamed<P>>>,
}

impl<P> Default for OpenTurn<P> {
    fn default() -> Self {
        OpenTurn {
            covered: Vec::new(),
            covered_count: 0,
            pieces: Vec::new(),
            empties: Vec::new(),
            partials: BTreeMap::new(),
            taken: false,
            known: 0,
            streamed: None,
        }
    }
}

/// How many places of a range are accounted for.
enum Covered {
    None,
    Some,
    All,
}

impl<P> OpenTurn<P> {
    pub(crate) fn accept(
        &mut self,
        item: Item<P>,
        sources: &Sources<'_>,
    ) -> Result<Acceptance, Fault> {
        self.make_room(sources);
        let taken = match item {
            Item::Piece {
                source,
                chunk,
                last,
                payload,
            } => self.accept_piece(
                Gathered {
                    source,
                    chunk,
                    last,
                    payload,
                },
                sources,
            )?,
            Item::Empty { sources: leaves } => self.accept_empty(leaves, sources)?,
        };
        Ok(match taken {
            false => Acceptance::Repeated,
            true if self.is_complete(sources) => Acceptance::Complete,
            true => Acceptance::Waiting,
        })
    }

    fn make_room(&mut self, sources: &Sources<'_>) {
        let words = sources.count().div_ceil(64) as usize;
        // Grown when the first item comes: most turns of most shards have their pieces in slots.
        if self.covered.len() < words {
            self.covered.resize(words, 0);
        }
    }

    pub(super) fn known(&mut self) -> &mut u32 {
        &mut self.known
    }

    pub(super) fn cover_places(
        &mut self,
        places: impl IntoIterator<Item = u32>,
        sources: &Sources<'_>,
    ) {
        self.make_room(sources);
        for place in places {
            let (word, mask) = (place as usize / 64, 1 << (place % 64));
            let only = u64::from(place)..u64::from(place) + 1;
            // A source that has its bit, or of which chunks are missing, has sent something: the
            // rest of it is still to come.
            if self.covered[word] & mask == 0 && self.fits_partials(&only, None) {
                self.covered_count += 1;
                self.covered[word] |= mask;
                // Nothing of this source came, and the mark says so wherever the turn is merged.
                let leaf = sources.leaf(place);
                self.add_empty(leaf..leaf + 1);
            }
        }
    }

    fn add_empty(&mut self, leaves: Range<u64>) {
        match self.empties.last_mut() {
            // Marks come source after source, so a thousand of them are one range.
            Some(before) if before.end == leaves.start => before.end = leaves.end,
            _ => self.empties.push(leaves),
        }
    }

    /// What is here of sources of which all is here.
    pub(super) fn take_whole(
        &mut self,
        sources: &Sources<'_>,
    ) -> (Vec<Gathered<P>>, Vec<Range<u64>>) {
        let partials = &self.partials;
        let is_whole = |piece: &mut Gathered<P>| {
            let places = piece.source.leaves().map(|leaves| sources.places(leaves));
            places.is_none_or(|places| !partials.contains_key(&places.start))
        };
        let mut whole: Vec<_> = match partials.is_empty() {
            // No piece is here in part, so all pieces go at once.
            true => std::mem::take(&mut self.pieces),
            false => self.pieces.extract_if(.., is_whole).collect(),
        };
        whole.sort_by_key(|piece| (piece.source.start(), piece.chunk));
        (whole, std::mem::take(&mut self.empties))
    }

    pub(super) fn put_back(&mut self, source: u32, piece: Option<P>, sources: &Sources<'_>) {
        let leaf = TreeNode::leaf(source.into());
        let leaves = u64::from(source)..u64::from(source) + 1;
        self.make_room(sources);
        self.cover(&sources.places(leaves.clone()));
        match piece {
            Some(payload) => self.pieces.push(Gathered {
                source: leaf,
                chunk: 0,
                last: true,
                payload,
            }),
            None => self.empties.push(leaves),
        }
    }

    fn accept_piece(&mut self, piece: Gathered<P>, sources: &Sources<'_>) -> Result<bool, Fault> {
        let source = piece.source;
        let leaves = source.leaves().ok_or(Fault::Stranger(source))?;
        let places = sources.places(leaves);
        if places.is_empty() {
            return Err(Fault::Stranger(source));
        }
        match self.covered(&places) {
            Covered::All if mutants::is_on("inbox-merges-twice") => {}
            // A repetition, whoever sends it: all of these places were taken.
            Covered::All => return Ok(false),
            // Two nodes that share a source would merge that source twice (invariant 4).
            Covered::Some => return Err(Fault::Overlap(source)),
            Covered::None => {}
        }
        if !self.fits_partials(&places, Some(source)) {
            return Err(Fault::Overlap(source));
        }
        // The usual case keeps no list of chunks.
        let whole = piece.last && piece.chunk == 0;
        if whole && !self.partials.contains_key(&places.start) {
            self.cover(&places);
        } else {
            match self.accept_chunk(&piece, &places) {
                Some(true) => {}
                Some(false) => return Ok(false),
                None => return Err(Fault::Overlap(source)),
            }
        }
        self.pieces.push(piece);
        Ok(true)
    }

    /// Whether the chunk is new; none when it contradicts the chunks before.
    fn accept_chunk(&mut self, piece: &Gathered<P>, places: &Range<u64>) -> Option<bool> {
        let fresh = || Partial {
            source: piece.source,
            end: places.end,
            seen: Seen::default(),
            chunks: None,
        };
        let partial = self.partials.entry(places.start).or_insert_with(fresh);
        // Only the last chunk says how many there are, and it may come first.
        let named = piece.last.then_some(u64::from(piece.chunk) + 1);
        let chunks = partial.chunks.or(named);
        let end = partial.seen.end().max(u64::from(piece.chunk) + 1);
        let beyond = |chunks: u64| end > chunks;
        // Two ends, or a chunk after the end: the sender breaks the rules, and nothing of the piece
        // may be merged.
        if (named.is_some() && named != chunks) || chunks.is_some_and(beyond) {
            return None;
        }
        if !partial.seen.insert(piece.chunk) && !mutants::is_on("inbox-merges-chunks-twice") {
            return Some(false);
        }
        partial.chunks = chunks;
        if partial.chunks == Some(partial.seen.count()) || mutants::is_on("inbox-misses-chunks") {
            self.partials.remove(&places.start);
            self.cover(places);
        }
        Some(true)
    }

    fn accept_empty(&mut self, leaves: Range<u64>, sources: &Sources<'_>) -> Result<bool, Fault> {
        let places = sources.places(leaves.clone());
        if places.is_empty() || matches!(self.covered(&places), Covered::All) {
            return Ok(false);
        }
        if !self.fits_partials(&places, None) {
            return Err(Fault::Overlap(TreeNode::leaf(leaves.start)));
        }
        self.cover(&places);
        self.add_empty(leaves);
        Ok(true)
    }

    /// Whether no other source of which chunks are missing shares one of these places.
    fn fits_partials(&self, places: &Range<u64>, source: Option<TreeNode>) -> bool {
        // Partial sources do not overlap, so the last one that begins before the end is the only
        // one that can.
        let below = self.partials.range(..places.end).next_back();
        below.is_none_or(|(_, partial)| {
            Some(partial.source) == source || partial.end <= places.start
        })
    }

    /// Whether the next chunk is here, or the end is; sources that are through are passed.
    pub(super) fn has_next(&mut self, sources: &Sources<'_>) -> bool {
        self.make_room(sources);
        self.taken = true;
        let Streamed {
            place,
            chunk,
            sorted,
        } = &mut **self.streamed.get_or_insert_default();
        let arrived = self.pieces.drain(..);
        // Sorted at each call: little has come since the last one.
        sorted.extend(arrived.map(|piece| ((piece.source.start(), piece.chunk), piece)));
        while u64::from(*place) < sources.count() {
            let leaf = sources.leaf(*place);
            let first = sorted.first_key_value().filter(|(key, _)| key.0 == leaf);
            match first {
                Some(((_, at), piece)) if at == chunk && !piece.last => return true,
                // The source has sent so many chunks, and ends.
                Some(((_, at), _)) if at == chunk => drop(sorted.pop_first()),
                Some(((_, at), _)) if mutants::is_on("streams-skip-what-lacks") => {
                    *chunk = *at;
                    continue;
                }
                // A later chunk is here and the next one is not: chunks are handed out in order.
                Some(_) => return false,
                // Nothing of the source is here, nor that it has ended.
                None if self.covered[*place as usize / 64] & (1 << (*place % 64)) == 0
                    && !mutants::is_on("streams-pass-silent-sources") =>
                {
                    return false;
                }
                None => {}
            }
            (*place, *chunk) = (*place + 1, 0);
        }
        true
    }

    /// What is next, if it is here and is a chunk.
    pub(super) fn next_mut(&mut self, sources: &Sources<'_>) -> Option<&mut P> {
        if !self.has_next(sources) {
            return None;
        }
        let streamed = self.streamed.as_mut().expect("begun above");
        let is_chunk = u64::from(streamed.place) < sources.count();
        let first = streamed.sorted.values_mut().next();
        first.filter(|_| is_chunk).map(|piece| &mut piece.payload)
    }

    /// The next chunk, once.
    pub(super) fn take_next(&mut self, sources: &Sources<'_>) -> NextChunk<P> {
        if !self.has_next(sources) {
            return NextChunk::Nothing;
        }
        let streamed = self.streamed.as_mut().expect("begun above");
        if u64::from(streamed.place) == sources.count() {
            return NextChunk::Ended;
        }
        streamed.chunk += 1;
        let (_, piece) = streamed.sorted.pop_first().expect("it is here");
        NextChunk::Chunk(piece)
    }

    pub(crate) fn is_complete(&self, sources: &Sources<'_>) -> bool {
        if mutants::is_on("inbox-completes-early") {
            return self.covered_count + 1 >= sources.count();
        }
        self.covered_count == sources.count()
    }

    pub(crate) fn take(&mut self, pieces: &mut Vec<Gathered<P>>) {
        assert!(!self.taken, "a turn is handed out once");
        self.taken = true;
        if !mutants::is_on("inbox-keeps-order-of-arrival") {
            self.pieces
                // By source, not by arrival: the bits of a sum depend on the order.
                .sort_by_key(|piece| (piece.source.start(), piece.chunk));
        }
        pieces.append(&mut self.pieces);
    }

    /// What has come and was not handed out.
    pub(crate) fn pieces_mut(&mut self) -> impl Iterator<Item = &mut P> {
        let sorted = self
            .streamed
            .iter_mut()
            .flat_map(|it| it.sorted.values_mut());
        let pieces = self.pieces.iter_mut().chain(sorted);
        pieces.map(|piece| &mut piece.payload)
    }

    pub(super) fn close(&mut self) {
        assert!(self.taken, "a turn retires after it was handed out");
        self.reset();
    }

    pub(super) fn reset(&mut self) {
        self.known = 0;
        self.covered.fill(0);
        self.covered_count = 0;
        self.pieces.clear();
        self.empties.clear();
        self.partials.clear();
        self.taken = false;
        self.streamed = None;
    }

    pub(super) fn is_untouched(&self) -> bool {
        self.pieces.is_empty() && self.empties.is_empty() && !self.taken
    }

    /// What it holds, for a move; a turn that was handed out belongs to a task, which does not move.
    pub(super) fn contents(&mut self) -> (&mut [Gathered<P>], &[Range<u64>]) {
        assert!(
            !self.taken,
            "a turn moves before it is handed out or after it is retired"
        );
        (&mut self.pieces, &self.empties)
    }

    /// What has come, with the ranges of leaves that send nothing.
    pub(crate) fn into_contents(self) -> (Vec<Gathered<P>>, Vec<Range<u64>>) {
        (self.pieces, self.empties)
    }

    fn covered(&self, places: &Range<u64>) -> Covered {
        let (mut any, mut all) = (false, true);
        for (word, mask) in words(places) {
            // Word by word: an aligned node of 4,096 sources takes 64 looks, not 4,096.
            any |= self.covered[word] & mask != 0;
            all &= self.covered[word] & mask == mask;
        }
        match (any, all) {
            (_, true) => Covered::All,
            (true, false) => Covered::Some,
            (false, false) => Covered::None,
        }
    }

    fn cover(&mut self, places: &Range<u64>) {
        for (word, mask) in words(places) {
            // Only new bits are counted: empty marks may cover what came before.
            self.covered_count += u64::from((mask & !self.covered[word]).count_ones());
            self.covered[word] |= mask;
        }
    }
}

/// The words and masks of a range of bits.
fn words(places: &Range<u64>) -> impl Iterator<Item = (usize, u64)> + use<> {
    let (start, end) = (places.start, places.end);
    (start / 64..end.div_ceil(64)).map(move |word| {
        // The first and the last word are cut; those between are whole.
        let low = start.saturating_sub(word * 64);
        let high = (end - word * 64).min(64);
        (word as usize, (u64::MAX << low) & (u64::MAX >> (64 - high)))
    })
}
