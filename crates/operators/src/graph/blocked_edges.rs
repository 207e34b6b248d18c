//! The edges of a partition, laid out so that sums over in-edges read a table that stays in the cache.
//!
//! Sources are numbered by falling degree and cut into blocks of 65,536: what the edges of a block read is
//! one table of 512 KiB, and a place in it takes two bytes. Most edges of a skewed graph are in its first
//! block. In a block the edges of a target are a row; rows of equal length lie together, so that the loop
//! over a row has a length that the compiler knows, or that the processor need not guess, and eight of them lie
//! side by side: a vector takes an edge of each.

use super::meeting::{Cell, Meeting, Real, Sums, TABLE};
use super::rows;
use super::vertex_cut::{Edge, VertexCut};
use crate::simd::Isa;
use brambling_program::{DecodeError, Payload};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Rows longer than this lie behind the others, and none of them side by side.
pub(super) const SHORT: usize = 64;

/// Edges on their way into a partition.
#[derive(Clone, Debug, Default)]
pub struct Bin {
    /// The edges.
    pub edges: Vec<Edge>,
    /// Their weights; empty when all weigh 1.
    pub weights: Vec<f64>,
}

impl Payload for Bin {
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("graph::Bin")
    }
    fn heap_bytes(&self) -> usize {
        self.edges.heap_bytes() + self.weights.heap_bytes()
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.weights.encode(out);
        self.edges.encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let (weights, edges) = (Vec::decode(input)?, Vec::decode(input)?);
        Ok(Bin { edges, weights })
    }
    // The edges stay where they lie.
    fn encode_head<'a>(&'a self, out: &mut Vec<u8>) -> &'a [u8] {
        self.weights.encode(out);
        self.edges.encode_head(out)
    }
}

/// A partition's edges.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockedEdges {
    blocks: Vec<SourceBlock>,
    /// The slots that are the target of some edge, ascending.
    targets: Vec<u32>,
    heap_bytes: usize,
}
brambling_program::payload!(BlockedEdges, |edges| edges.heap_bytes);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct SourceBlock {
    /// The slot of each source, by its place in the table.
    sources: Vec<u32>,
    /// How many rows there are of each length from 1 to [`SHORT`].
    pub(super) counts: Vec<u32>,
    /// The target of each row, as a place among the partition's: the short rows by length, then the others, by length too, so that
    /// the processor can guess where each ends.
    pub(super) targets: Vec<u32>,
    /// The lengths of the others.
    pub(super) lengths: Vec<u32>,
    /// Where each edge reads the table. Of rows of a short length every eight lie side by side, then the other
    /// rows one after another.
    pub(super) places: Vec<u16>,
    /// What each edge weighs, if they weigh anything.
    pub(super) weights: Vec<f64>,
}

impl BlockedEdges {
    /// Lays out the edges of some bins. Edges of a row stay in the order of the bins.
    pub fn new(bins: Vec<Bin>, source_slots: usize, target_slots: usize) -> BlockedEdges {
        if bins.iter().any(|bin| !bin.weights.is_empty()) {
            lay_out::<f64>(bins, source_slots, target_slots)
        } else {
            lay_out::<()>(bins, source_slots, target_slots)
        }
    }

    /// As [`BlockedEdges::new`], for the slots of a cut.
    pub fn of_cut(bins: Vec<Bin>, cut: VertexCut) -> BlockedEdges {
        BlockedEdges::new(bins, cut.source_slots(), cut.target_slots())
    }

    /// Adds each edge's weight to that of its source's slot.
    pub fn add_out_weights(&self, weights: &mut [f64]) {
        for block in &self.blocks {
            for (at, &place) in block.places.iter().enumerate() {
                let weight = block.weights.get(at).copied().unwrap_or(1.0);
                weights[block.sources[usize::from(place)] as usize] += weight;
            }
        }
    }

    /// The slots that are the target of some edge, ascending.
    pub fn targets(&self) -> &[u32] {
        &self.targets
    }

    /// The slots that are the source of some edge, ascending.
    pub(super) fn sources(&self) -> Vec<u32> {
        let all = self.blocks.iter().flat_map(|block| &block.sources);
        let mut sources: Vec<u32> = all.copied().collect();
        sources.sort_unstable();
        sources
    }

    /// Gives sources other slots.
    pub(super) fn rename_sources(&mut self, slot: impl Fn(u32) -> u32) {
        let all = self.blocks.iter_mut().flat_map(|block| &mut block.sources);
        all.for_each(|source| *source = slot(*source));
    }

    /// How many edges there are.
    pub fn len(&self) -> usize {
        self.blocks.iter().map(|block| block.places.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds to the sum of each of [`BlockedEdges::targets`] what its edges bring, their source's share times their
    /// weight: the same bits for every instruction set.
    pub fn sum_into<R: Real>(&self, isa: Isa, share: impl Fn(u32) -> R, sums: &mut [R]) {
        self.meet_into::<Sums<R>>(isa, share, sums);
    }

    /// Joins to what each of [`BlockedEdges::targets`] has what its edges bring: `share` says what a source has, by
    /// its slot.
    pub(super) fn meet_into<M: Meeting>(
        &self,
        isa: Isa,
        share: impl Fn(u32) -> M::Value,
        into: &mut [M::Value],
    ) {
        M::Value::with_table(|table| {
            for block in &self.blocks {
                for (value, &slot) in table.iter_mut().zip(&block.sources) {
                    *value = share(slot);
                }
                rows::meet::<M>(isa, block, table, into);
            }
        });
    }
}

impl SourceBlock {
    fn heap_bytes(&self) -> usize {
        (self.sources.capacity()
            + self.counts.capacity()
            + self.targets.capacity()
            + self.lengths.capacity())
            * size_of::<u32>()
            + self.places.capacity() * size_of::<u16>()
            + self.weights.capacity() * size_of::<f64>()
    }
}

/// An edge's weight while edges are sorted: nothing when all weigh 1.
trait Weight: Copy + Default {
    fn of(bin: &Bin, at: usize) -> Self;
    fn keep(self, weights: &mut [f64], at: usize);
    const WEIGHTED: bool;
}

impl Weight for () {
    const WEIGHTED: bool = false;
    fn of(_: &Bin, _: usize) {}
    fn keep(self, _: &mut [f64], _: usize) {}
}

impl Weight for f64 {
    const WEIGHTED: bool = true;
    fn of(bin: &Bin, at: usize) -> f64 {
        bin.weights[at]
    }
    fn keep(self, weights: &mut [f64], at: usize) {
        weights[at] = self;
    }
}

/// An edge whose source has its place in the order of degrees.
#[derive(Clone, Copy, Default)]
struct Placed<W> {
    target: u32,
    place: u32,
    weight: W,
}

fn lay_out<W: Weight>(bins: Vec<Bin>, source_slots: usize, target_slots: usize) -> BlockedEdges {
    let order = Order::by_degree(&bins, source_slots);
    let mut by_target = sorted_by_target::<W>(bins, &order.places, target_slots);
    let targets = name_by_place(&mut by_target);
    let count = order.slots.len().div_ceil(TABLE);
    let (sorted, ends) = sorted_by_block(&by_target, count);
    drop((by_target, order.places));
    let mut start = 0;
    let blocks: Vec<SourceBlock> = order
        .slots
        .chunks(TABLE)
        .zip(ends)
        .map(|(slots, end)| {
            SourceBlock::new(slots, &sorted[std::mem::replace(&mut start, end)..end])
        })
        .collect();
    BlockedEdges {
        heap_bytes: targets.capacity() * size_of::<u32>()
            + blocks.capacity() * size_of::<SourceBlock>()
            + blocks.iter().map(SourceBlock::heap_bytes).sum::<usize>(),
        targets,
        blocks,
    }
}

/// The sources by falling degree.
struct Order {
    /// Their slots.
    slots: Vec<u32>,
    /// The place of each slot in that order; of no meaning for a slot without an edge.
    places: Vec<u32>,
}

impl Order {
    /// Degrees of as many binary digits count as equal and keep the order of the slots: the table is then
    /// filled from memory that ascends.
    fn by_degree(bins: &[Bin], source_slots: usize) -> Order {
        let mut degrees = vec![0u32; source_slots];
        for edge in bins.iter().flat_map(|bin| &bin.edges) {
            let degree = &mut degrees[edge.source as usize];
            *degree = degree.saturating_add(1);
        }
        let digits = |degree: u32| degree.leading_zeros() as usize;
        let used = degrees.iter().filter(|degree| **degree > 0);
        let mut starts = starts(32, used.clone().map(|&degree| digits(degree)));
        let mut order = Order {
            slots: vec![0; used.count()],
            places: degrees,
        };
        for (slot, place) in order.places.iter_mut().enumerate() {
            if *place > 0 {
                let next = &mut starts[digits(*place)];
                *place = *next as u32;
                order.slots[*next] = slot as u32;
                *next += 1;
            }
        }
        order
    }
}

/// Where the items of each key begin when they are sorted by key.
fn starts(keys: usize, all: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut starts = vec![0; keys];
    all.for_each(|key| starts[key] += 1);
    let mut sum = 0;
    for start in &mut starts {
        sum += std::mem::replace(start, sum);
    }
    starts
}

/// Edges by target, those of a target in the order of the bins. A bin is freed when it has been read.
fn sorted_by_target<W: Weight>(bins: Vec<Bin>, places: &[u32], targets: usize) -> Vec<Placed<W>> {
    let all = bins.iter().flat_map(|bin| &bin.edges);
    let mut starts = starts(targets, all.map(|edge| edge.target as usize));
    let count = bins.iter().map(|bin| bin.edges.len()).sum();
    let mut sorted = vec![Placed::default(); count];
    for bin in bins {
        for (at, edge) in bin.edges.iter().enumerate() {
            let next = &mut starts[edge.target as usize];
            sorted[*next] = Placed {
                target: edge.target,
                place: places[edge.source as usize],
                weight: W::of(&bin, at),
            };
            *next += 1;
        }
    }
    sorted
}

/// Gives targets, which ascend, as places among those that occur; and those.
fn name_by_place<W>(edges: &mut [Placed<W>]) -> Vec<u32> {
    let mut targets = Vec::with_capacity(edges.chunk_by(|a, b| a.target == b.target).count());
    for row in edges.chunk_by_mut(|a, b| a.target == b.target) {
        let place = targets.len() as u32;
        targets.push(row[0].target);
        row.iter_mut().for_each(|edge| edge.target = place);
    }
    targets
}

/// Edges by block, those of a block in the order they had; and where each block ends.
fn sorted_by_block<W: Weight>(edges: &[Placed<W>], blocks: usize) -> (Vec<Placed<W>>, Vec<usize>) {
    let block = |edge: &Placed<W>| edge.place as usize / TABLE;
    let mut next = starts(blocks, edges.iter().map(block));
    let mut sorted = vec![Placed::default(); edges.len()];
    for edge in edges {
        let next = &mut next[block(edge)];
        sorted[*next] = *edge;
        *next += 1;
    }
    (sorted, next)
}

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
    /// Lays out edges that are sorted by target.
    fn new<W: Weight>(slots: &[u32], edges: &[Placed<W>]) -> SourceBlock {
        let rows = || edges.chunk_by(|a, b| a.target == b.target);
        let mut counts = vec![0; SHORT];
        let mut longer = 0;
        for row in rows() {
            match counts.get_mut(row.len() - 1) {
                Some(count) => *count += 1,
                None => longer += 1,
            }
        }
        let mut nexts = [Next::default(); SHORT + 1];
        for length in 1..=SHORT {
            let (last, count) = (nexts[length - 1], counts[length - 1] as usize);
            nexts[length] = Next {
                row: 0,
                target: last.target + count,
                place: last.place + count * length,
            };
        }
        let mut block = SourceBlock {
            sources: slots.to_vec(),
            counts: counts.clone(),
            targets: vec![0; nexts[SHORT].target + longer],
            lengths: Vec::with_capacity(longer),
            places: vec![0; edges.len()],
            weights: vec![0.0; if W::WEIGHTED { edges.len() } else { 0 }],
        };
        let mut long = Vec::with_capacity(longer);
        for row in rows() {
            match counts.get(row.len() - 1) {
                Some(&count) => block.put_short(row, count as usize, &mut nexts[row.len() - 1]),
                None => long.push(row),
            }
        }
        long.sort_by_key(|row| row.len());
        for row in long {
            block.put_long(row, &mut nexts[SHORT]);
        }
        block
    }

    fn put_short<W: Weight>(&mut self, row: &[Placed<W>], count: usize, next: &mut Next) {
        let side_by_side = count / 8 * 8;
        let (first, step) = if next.row < side_by_side {
            (next.row / 8 * 8 * row.len() + next.row % 8, 8)
        } else {
            (next.row * row.len(), 1)
        };
        self.targets[next.target + next.row] = row[0].target;
        self.put(row, next.place + first, step);
        next.row += 1;
    }

    fn put_long<W: Weight>(&mut self, row: &[Placed<W>], next: &mut Next) {
        self.targets[next.target + next.row] = row[0].target;
        self.lengths.push(row.len() as u32);
        self.put(row, next.place, 1);
        next.row += 1;
        next.place += row.len();
    }

    fn put<W: Weight>(&mut self, row: &[Placed<W>], first: usize, step: usize) {
        for (at, edge) in (first..).step_by(step).zip(row) {
            self.places[at] = (edge.place as usize % TABLE) as u16;
            edge.weight.keep(&mut self.weights, at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Edges on their way are as many bytes as they take, and lie where they were put until they have gone.
    #[test]
    fn bins_travel() {
        let edges = (0..100).map(|at| Edge {
            source: at,
            target: at * at,
        });
        let weighted = Bin {
            edges: edges.clone().collect(),
            weights: (0..100).map(f64::from).collect(),
        };
        let alike = Bin {
            edges: edges.collect(),
            weights: Vec::new(),
        };
        for (bin, bytes) in [(weighted, 16 + 16 * 100), (alike, 16 + 8 * 100)] {
            let mut encoded = Vec::new();
            let tail = bin.encode_head(&mut encoded);
            assert_eq!(tail.as_ptr(), bin.edges.as_ptr().cast());
            encoded.extend_from_slice(tail);
            assert_eq!(encoded.len(), bytes);
            let mut whole = Vec::new();
            bin.encode(&mut whole);
            assert_eq!(whole, encoded);
            let mut one_by_one = Vec::new();
            bin.weights.encode(&mut one_by_one);
            bin.edges.len().encode(&mut one_by_one);
            let edges = bin.edges.iter();
            edges.for_each(|edge| edge.encode(&mut one_by_one));
            assert_eq!(one_by_one, encoded);
            let mut came = Bin::default();
            came.decode_parts(&[&encoded[..11], &encoded[11..]])
                .unwrap();
            assert_eq!((came.edges, came.weights), (bin.edges, bin.weights));
            let short = Bin::default().decode_parts(&[&encoded[..bytes - 1]]);
            assert!(short.is_err());
        }
    }

    /// Sources that have other slots read what lies there: so shares need no place for vertices that are no source.
    #[test]
    fn sources_have_other_slots() {
        let edge = |source, target| Edge { source, target };
        let edges = vec![edge(7, 0), edge(2, 0), edge(7, 3), edge(9, 3), edge(7, 1)];
        let weights = Vec::new();
        let mut edges = BlockedEdges::new(vec![Bin { edges, weights }], 10, 4);
        let sources = edges.sources();
        assert_eq!(sources, [2, 7, 9]);
        let share = |slot: u32| f64::from(slot * slot);
        let sums = |edges: &BlockedEdges, share: &dyn Fn(u32) -> f64| {
            let mut sums = vec![0.0; edges.targets().len()];
            edges.sum_into(Isa::V2, share, &mut sums);
            sums
        };
        let right = sums(&edges, &share);
        assert_eq!(right, [53.0, 49.0, 130.0]);
        edges.rename_sources(|slot| sources.binary_search(&slot).expect("is one") as u32);
        let lent: Vec<f64> = sources.iter().map(|&slot| share(slot)).collect();
        assert_eq!(sums(&edges, &|slot| lent[slot as usize]), right);
    }
}
