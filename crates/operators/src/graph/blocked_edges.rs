//! The edges of a partition, laid out so that sums over in-edges read a table that stays in the cache.
//!
//! Sources are numbered by falling degree and cut into blocks of 65,536: what the edges of a block read is
//! one table of 512 KiB, and a place in it takes two bytes. Most edges of a skewed graph are in its first
//! block. In a block the edges of a target are a row; rows of equal length lie together, so that the loop
//! over a row has a length that the compiler knows and the processor need not guess.

use super::vertex_cut::Edge;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;

/// Sources of a block.
const TABLE: usize = 1 << 16;
/// Rows longer than this lie behind the others.
const SHORT: usize = 16;

type Table = [f64; TABLE];

thread_local! {
    /// One a thread, so that it is in that core's cache when the next partition fills it.
    static SCRATCH: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}

/// Edges on their way into a partition.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Bin {
    /// The edges.
    pub edges: Vec<Edge>,
    /// Their weights; empty when all weigh 1.
    pub weights: Vec<f64>,
}
brambling_program::payload!(Bin, |bin| bin.edges.capacity() * size_of::<Edge>()
    + bin.weights.capacity() * size_of::<f64>());

/// A partition's edges.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockedEdges {
    blocks: Vec<SourceBlock>,
    weighted: bool,
    heap_bytes: usize,
}
brambling_program::payload!(BlockedEdges, |edges| edges.heap_bytes);

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct SourceBlock {
    /// The slot of each source, by its place in the table.
    sources: Vec<u32>,
    /// How many rows there are of each length from 1 to [`SHORT`].
    counts: [u32; SHORT],
    /// The target slot of each row: the short ones by length, then the others.
    targets: Vec<u32>,
    /// The lengths of the others.
    lengths: Vec<u32>,
    /// Where each edge reads the table, row after row.
    places: Vec<u16>,
    /// What each edge weighs, if they weigh anything.
    weights: Vec<f64>,
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

    /// How many edges there are.
    pub fn len(&self) -> usize {
        self.blocks.iter().map(|block| block.places.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds to each target's sum what its edges bring: their source's share, times their weight.
    pub fn add_into(&self, share: impl Fn(u32) -> f64, sums: &mut [f64]) {
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.resize(TABLE, 0.0);
            let table: &mut Table = scratch
                .as_mut_slice()
                .try_into()
                .expect("as long as asked for");
            for block in &self.blocks {
                for (value, &slot) in table.iter_mut().zip(&block.sources) {
                    *value = share(slot);
                }
                if self.weighted {
                    block.add_rows::<true>(table, sums);
                } else {
                    block.add_rows::<false>(table, sums);
                }
            }
        });
    }
}

impl SourceBlock {
    fn add_rows<const WEIGHTED: bool>(&self, table: &Table, sums: &mut [f64]) {
        let mut rows = Rows {
            targets: &self.targets,
            places: &self.places,
            weights: &self.weights,
        };
        macro_rules! short {
            ($($length:literal),*) => {$(
                rows.add_short::<$length, WEIGHTED>(self.counts[$length - 1] as usize, table, sums);
            )*};
        }
        short!(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
        for (&target, &length) in rows.targets.iter().zip(&self.lengths) {
            let (places, weights) = rows.next::<WEIGHTED>(length as usize);
            sums[target as usize] += long_sum::<WEIGHTED>(table, places, weights);
        }
    }

    fn heap_bytes(&self) -> usize {
        (self.sources.capacity() + self.targets.capacity() + self.lengths.capacity())
            * size_of::<u32>()
            + self.places.capacity() * size_of::<u16>()
            + self.weights.capacity() * size_of::<f64>()
    }
}

/// The rows that have not been added yet.
struct Rows<'a> {
    targets: &'a [u32],
    places: &'a [u16],
    weights: &'a [f64],
}

impl<'a> Rows<'a> {
    /// The edges of the next rows.
    #[inline]
    fn next<const WEIGHTED: bool>(&mut self, edges: usize) -> (&'a [u16], &'a [f64]) {
        let (places, rest) = self.places.split_at(edges);
        self.places = rest;
        let (weights, rest) = self.weights.split_at(if WEIGHTED { edges } else { 0 });
        self.weights = rest;
        (places, weights)
    }

    fn add_short<const LENGTH: usize, const WEIGHTED: bool>(
        &mut self,
        count: usize,
        table: &Table,
        sums: &mut [f64],
    ) {
        let (places, weights) = self.next::<WEIGHTED>(count * LENGTH);
        let (targets, rest) = self.targets.split_at(count);
        self.targets = rest;
        let (places, weights) = (
            places.as_chunks::<LENGTH>().0,
            weights.as_chunks::<LENGTH>().0,
        );
        for (row, (&target, places)) in targets.iter().zip(places).enumerate() {
            let mut sum = 0.0;
            for (at, &place) in places.iter().enumerate() {
                let value = table[usize::from(place)];
                sum += if WEIGHTED {
                    weights[row][at] * value
                } else {
                    value
                };
            }
            sums[target as usize] += sum;
        }
    }
}

/// Four sums side by side: one would wait for each of its additions.
fn long_sum<const WEIGHTED: bool>(table: &Table, places: &[u16], weights: &[f64]) -> f64 {
    const LANES: usize = 4;
    let value = |at: usize, place: u16| {
        let value = table[usize::from(place)];
        if WEIGHTED { weights[at] * value } else { value }
    };
    let mut lanes = [0.0; LANES];
    let (fours, rest) = places.as_chunks::<LANES>();
    for (four, places) in fours.iter().enumerate() {
        for lane in 0..LANES {
            lanes[lane] += value(four * LANES + lane, places[lane]);
        }
    }
    let first = fours.len() * LANES;
    for (at, &place) in rest.iter().enumerate() {
        lanes[at] += value(first + at, place);
    }
    (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
}

/// An edge's weight while edges are sorted: nothing when all weigh 1.
trait Weight: Copy + Default {
    fn of(bin: &Bin, at: usize) -> Self;
    fn keep(self, weights: &mut Vec<f64>);
    const WEIGHTED: bool;
}

impl Weight for () {
    const WEIGHTED: bool = false;
    fn of(_: &Bin, _: usize) {}
    fn keep(self, _: &mut Vec<f64>) {}
}

impl Weight for f64 {
    const WEIGHTED: bool = true;
    fn of(bin: &Bin, at: usize) -> f64 {
        bin.weights[at]
    }
    fn keep(self, weights: &mut Vec<f64>) {
        weights.push(self);
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
    let by_target = sorted_by_target::<W>(bins, &order.places, target_slots);
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
        weighted: W::WEIGHTED,
        heap_bytes: blocks.capacity() * size_of::<SourceBlock>()
            + blocks.iter().map(SourceBlock::heap_bytes).sum::<usize>(),
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

impl SourceBlock {
    /// Lays out edges that are sorted by target.
    fn new<W: Weight>(slots: &[u32], edges: &[Placed<W>]) -> SourceBlock {
        let rows = || edges.chunk_by(|a, b| a.target == b.target);
        let mut counts = [0; SHORT];
        let mut longer = 0;
        for row in rows() {
            match counts.get_mut(row.len() - 1) {
                Some(count) => *count += 1,
                None => longer += 1,
            }
        }
        let short: u32 = counts.iter().sum();
        let mut block = SourceBlock {
            sources: slots.to_vec(),
            counts,
            targets: Vec::with_capacity(short as usize + longer),
            lengths: Vec::with_capacity(longer),
            places: Vec::with_capacity(edges.len()),
            weights: Vec::with_capacity(if W::WEIGHTED { edges.len() } else { 0 }),
        };
        for length in (1..=SHORT).filter(|length| counts[length - 1] > 0) {
            rows()
                .filter(|row| row.len() == length)
                .for_each(|row| block.push(row));
        }
        for row in rows().filter(|row| row.len() > SHORT) {
            block.lengths.push(row.len() as u32);
            block.push(row);
        }
        block
    }

    fn push<W: Weight>(&mut self, row: &[Placed<W>]) {
        self.targets.push(row[0].target);
        for edge in row {
            self.places.push((edge.place as usize % TABLE) as u16);
            edge.weight.keep(&mut self.weights);
        }
    }
}
