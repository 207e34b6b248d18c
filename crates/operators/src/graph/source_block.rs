//! How the edges lie that read one table.
//!
//! The edges of a target are a row. Targets are cut into bands, so that what is joined to them stays in the cache
//! too; in a band, rows of equal length lie together, so that the loop over a row has a length that the compiler
//! knows, or that the processor need not guess, and eight of them lie side by side: a vector takes an edge of each.

use super::blocked_edges::{EdgeWeight, Placed};

/// Rows longer than this lie behind the others of their band, and none of them side by side.
pub(super) const SHORT: usize = 64;

/// The targets of a band: a power of two at least the first, at most the last, with which it has [`BAND_EDGES`] edges.
const BAND: (usize, usize) = (4 << 10, 64 << 10);

/// So many that what comes with each length of rows, a loop whose end is guessed wrong, counts for little.
const BAND_EDGES: usize = 64 << 10;

/// Some sources, and the edges that begin there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SourceBlock {
    /// The slot of each source, by its place in the table.
    pub(super) sources: Vec<u32>,
    /// How many of the partition's targets make a band.
    pub(super) band: usize,
    /// For each band, how many rows there are of each length from 1 to [`SHORT`], and how many are longer.
    pub(super) counts: Vec<u32>,
    /// The target of each row, as a place in its band: the short rows by length, then the others, by length too, so
    /// that the processor can guess where each ends.
    pub(super) targets: Vec<u16>,
    /// The lengths of the others.
    pub(super) lengths: Vec<u32>,
    /// Where each edge reads the table. Of rows of a short length every eight lie side by side, then the other
    /// rows one after another.
    pub(super) places: Vec<u16>,
    /// What each edge weighs, if they weigh anything.
    pub(super) weights: Vec<f64>,
}

brambling_program::payload!(SourceBlock {
    sources,
    band,
    counts,
    targets,
    lengths,
    places,
    weights
});

/// Where the next row of a length goes.
#[derive(Clone, Copy, Default)]
struct Next {
    /// Among the rows of this length.
    row: usize,
    /// Of the first.
    target: usize,
    place: usize,
}

impl SourceBlock {
    /// Lays out edges that are sorted by target, of which there are so many in all.
    pub(super) fn new<W: EdgeWeight>(
        slots: &[u32],
        edges: &[Placed<W>],
        targets: usize,
    ) -> SourceBlock {
        let band = BAND_EDGES * targets / edges.len().max(1);
        let band = band.next_power_of_two().clamp(BAND.0, BAND.1);
        let bands = targets.div_ceil(band);
        let rows = edges.chunk_by(|a, b| a.target == b.target);
        let mut block = SourceBlock {
            sources: slots.to_vec(),
            band,
            counts: Vec::with_capacity(bands * (SHORT + 1)),
            targets: vec![0; rows.count()],
            lengths: Vec::new(),
            places: vec![0; edges.len()],
            weights: vec![0.0; if W::WEIGHTED { edges.len() } else { 0 }],
        };
        let (mut next, mut rest) = (Next::default(), edges);
        for end in (1..=bands).map(|band_at| band_at * band) {
            let own = rest.partition_point(|edge| (edge.target as usize) < end);
            let (own, others) = rest.split_at(own);
            next = block.put_band(own, next);
            rest = others;
        }
        block.lengths.shrink_to_fit();
        block
    }

    pub(super) fn heap_bytes(&self) -> usize {
        (self.sources.capacity() + self.counts.capacity() + self.lengths.capacity())
            * size_of::<u32>()
            + (self.targets.capacity() + self.places.capacity()) * size_of::<u16>()
            + self.weights.capacity() * size_of::<f64>()
    }

    /// Lays out the next band; where the one after it begins.
    fn put_band<W: EdgeWeight>(&mut self, edges: &[Placed<W>], start: Next) -> Next {
        let rows = || edges.chunk_by(|a, b| a.target == b.target);
        let mut counts = [0; SHORT + 1];
        rows().for_each(|row| counts[row.len().min(SHORT + 1) - 1] += 1);
        self.counts.extend(counts);
        let mut nexts = [start; SHORT + 1];
        for length in 1..=SHORT {
            let (last, count) = (nexts[length - 1], counts[length - 1] as usize);
            nexts[length] = Next {
                row: 0,
                target: last.target + count,
                place: last.place + count * length,
            };
        }
        let mut long = Vec::with_capacity(counts[SHORT] as usize);
        for row in rows() {
            if row.len() <= SHORT {
                let count = counts[row.len() - 1] as usize;
                self.put_short(row, count, &mut nexts[row.len() - 1]);
            } else {
                long.push(row);
            }
        }
        long.sort_by_key(|row| row.len());
        for row in long {
            self.put_long(row, &mut nexts[SHORT]);
        }
        Next {
            row: 0,
            target: nexts[SHORT].target + nexts[SHORT].row,
            place: nexts[SHORT].place,
        }
    }

    fn put_short<W: EdgeWeight>(&mut self, row: &[Placed<W>], count: usize, next: &mut Next) {
        let side_by_side = count / 8 * 8;
        let (first, step) = if next.row < side_by_side {
            (next.row / 8 * 8 * row.len() + next.row % 8, 8)
        } else {
            (next.row * row.len(), 1)
        };
        self.put(row, next.target + next.row, next.place + first, step);
        next.row += 1;
    }

    fn put_long<W: EdgeWeight>(&mut self, row: &[Placed<W>], next: &mut Next) {
        self.lengths.push(row.len() as u32);
        self.put(row, next.target + next.row, next.place, 1);
        next.row += 1;
        next.place += row.len();
    }

    fn put<W: EdgeWeight>(&mut self, row: &[Placed<W>], row_at: usize, first: usize, step: usize) {
        self.targets[row_at] = (row[0].target as usize % self.band) as u16;
        for (at, edge) in (first..).step_by(step).zip(row) {
            self.places[at] = edge.place as u16;
            edge.weight.keep(&mut self.weights, at);
        }
    }
}
