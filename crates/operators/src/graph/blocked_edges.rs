//! The edges of a partition, laid out so that sums over in-edges read a table that stays in the cache.
//!
//! Sources are numbered by falling degree and cut into blocks of at most 65,536: what the edges of a block read is
//! one table of at most 512 KiB, and a place in it takes two bytes. Most edges of a skewed graph are in its first
//! blocks, which have 8,192 sources where these have edges enough: 64 KiB are mostly in the cache that is nearest.
//! How the edges of a block lie: [`super::source_block`].

use super::meeting::{EdgeFold, Real, Sums, TABLE, VertexValue};
use super::rows;
use super::source_block::SourceBlock;
use super::vertex_cut::{SlotEdge, VertexCut};
use crate::simd::Isa;
use brambling_program::{Payload, Work};
use std::borrow::Cow;

/// The sources of the smallest blocks, unless there are no more.
const STEP: usize = 8 << 10;

/// Edges for each target with which a block needs no more sources. With fewer, what the rows cost is more than what
/// a small table saves.
const DENSE: usize = 2;

/// Edges on their way into a partition.
#[derive(Clone, Debug, Default)]
pub struct Bin {
    /// The edges.
    pub edges: Vec<SlotEdge>,
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
    brambling_program::payload_fields!(weights, edges);
    // The edges stay where they lie.
    fn encode_head<'a>(&'a self, out: &mut Vec<u8>) -> &'a [u8] {
        self.weights.encode(out);
        self.edges.encode_head(out)
    }
}

/// A partition's edges.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockedEdges {
    blocks: Vec<SourceBlock>,
    /// The slots that are the target of some edge, ascending.
    targets: Vec<u32>,
    heap_bytes: usize,
}
brambling_program::payload!(
    BlockedEdges {
        blocks,
        targets,
        heap_bytes
    },
    |edges| edges.heap_bytes
);

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

    /// The slots that are the source of some edge, in the order in which tables are filled: by falling degree.
    pub(super) fn sources(&self) -> impl Iterator<Item = u32> {
        let blocks = self.blocks.iter();
        blocks.flat_map(|block| &block.sources).copied()
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

    /// What it takes to pass all of them once, where a source has `value_bytes`: each edge is read in order, its source's value out
    /// of a block's table.
    pub(super) fn work(&self, value_bytes: usize) -> Work {
        let edges = self.len() as u64;
        let sources = self.blocks.iter().map(|block| block.sources.len());
        let table = sources.clone().max().unwrap_or_default() * value_bytes;
        let filled = sources.sum::<usize>() as u64;
        Work::streamed(self.heap_bytes as u64 + 16 * self.targets.len() as u64)
            .and_random(edges + filled, table as u64)
            .and_flops(2 * edges)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds to the sum of each of [`BlockedEdges::targets`] what its edges bring, their source's share times their
    /// weight: the same bits for every instruction set.
    pub fn sum_into<R: Real>(&self, isa: Isa, share: impl Fn(u32) -> R, sums: &mut [f64]) {
        self.meet_into::<Sums<R>>(isa, share, sums);
    }

    /// Joins to what each of [`BlockedEdges::targets`] has what its edges bring: `share` says what a source has, by
    /// its slot.
    pub(super) fn meet_into<M: EdgeFold>(
        &self,
        isa: Isa,
        share: impl Fn(u32) -> M::Value,
        into: &mut [M::Met],
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

/// An edge's weight while edges are sorted: nothing when all weigh 1.
pub(super) trait EdgeWeight: Copy + Default {
    fn of(bin: &Bin, at: usize) -> Self;
    fn keep(self, weights: &mut [f64], at: usize);
    const WEIGHTED: bool;
}

impl EdgeWeight for () {
    const WEIGHTED: bool = false;
    fn of(_: &Bin, _: usize) {}
    fn keep(self, _: &mut [f64], _: usize) {}
}

impl EdgeWeight for f64 {
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
pub(super) struct Placed<W> {
    /// As a slot, then as a place among the partition's targets.
    pub(super) target: u32,
    /// In the order of all sources, then in the block's table.
    pub(super) place: u32,
    pub(super) weight: W,
}

fn lay_out<W: EdgeWeight>(
    bins: Vec<Bin>,
    source_slots: usize,
    target_slots: usize,
) -> BlockedEdges {
    let order = Order::by_degree(&bins, source_slots);
    let mut by_target = sorted_by_target::<W>(bins, &order.places, target_slots);
    let targets = name_by_place(&mut by_target);
    let lens = block_lens(&by_target, order.slots.len(), targets.len());
    let (sorted, ends) = sorted_by_block(&by_target, &lens);
    drop((by_target, order.places));
    let (mut slots, mut start) = (order.slots.as_slice(), 0);
    let blocks: Vec<SourceBlock> = lens
        .into_iter()
        .zip(ends)
        .map(|(len, end)| {
            let own = slots.split_off(..len).expect("as many slots as places");
            let edges = &sorted[std::mem::replace(&mut start, end)..end];
            SourceBlock::new(own, edges, targets.len())
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
fn sorted_by_target<W: EdgeWeight>(
    bins: Vec<Bin>,
    places: &[u32],
    targets: usize,
) -> Vec<Placed<W>> {
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

/// How many sources each block has, by falling degree: [`STEP`], or so many more that the block has [`DENSE`] edges
/// for each target, but no more than fit in a table.
fn block_lens<W>(edges: &[Placed<W>], sources: usize, targets: usize) -> Vec<usize> {
    let mut counts = vec![0; sources.div_ceil(STEP)];
    for edge in edges {
        counts[edge.place as usize / STEP] += 1;
    }
    let mut lens = Vec::new();
    let (mut start, mut count) = (0, 0);
    for (step, edges) in counts.into_iter().enumerate() {
        count += edges;
        let end = sources.min((step + 1) * STEP);
        if count >= DENSE * targets || end - start == TABLE || end == sources {
            lens.push(end - std::mem::replace(&mut start, end));
            count = 0;
        }
    }
    lens
}

/// Edges by block, those of a block in the order they had, by their source's place in it; and where each block ends.
fn sorted_by_block<W: EdgeWeight>(
    edges: &[Placed<W>],
    lens: &[usize],
) -> (Vec<Placed<W>>, Vec<usize>) {
    // Of each step, its block and the first place there.
    let mut of_step = Vec::new();
    let mut first = 0;
    for (block, len) in lens.iter().enumerate() {
        of_step.resize((first + len).div_ceil(STEP), (block, first as u32));
        first += len;
    }
    let of = |edge: &Placed<W>| of_step[edge.place as usize / STEP];
    let mut next = starts(lens.len(), edges.iter().map(|edge| of(edge).0));
    let mut sorted = vec![Placed::default(); edges.len()];
    for edge in edges {
        let (block, first) = of(edge);
        let next = &mut next[block];
        sorted[*next] = Placed {
            place: edge.place - first,
            ..*edge
        };
        *next += 1;
    }
    (sorted, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use brambling_program::decode_parts;

    /// Edges on their way are as many bytes as they take, and lie where they were put until they have gone.
    #[test]
    fn bins_travel() {
        let edges = (0..100).map(|at| SlotEdge {
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
            decode_parts(&mut came, &[&encoded[..11], &encoded[11..]]).unwrap();
            assert_eq!((came.edges, came.weights), (bin.edges, bin.weights));
            let short = decode_parts(&mut Bin::default(), &[&encoded[..bytes - 1]]);
            assert!(short.is_err());
        }
    }

    /// Sources that have other slots read what lies there: so shares need no place for vertices that are no source.
    #[test]
    fn sources_have_other_slots() {
        let edge = |source, target| SlotEdge { source, target };
        let edges = vec![edge(7, 0), edge(2, 0), edge(7, 3), edge(9, 3), edge(7, 1)];
        let weights = Vec::new();
        let mut edges = BlockedEdges::new(vec![Bin { edges, weights }], 10, 4);
        let sources: Vec<u32> = edges.sources().collect();
        // The one with most edges first.
        assert_eq!(sources, [7, 2, 9]);
        let share = |slot: u32| f64::from(slot * slot);
        let sums = |edges: &BlockedEdges, share: &dyn Fn(u32) -> f64| {
            let mut sums = vec![0.0; edges.targets().len()];
            edges.sum_into(Isa::V2, share, &mut sums);
            sums
        };
        let right = sums(&edges, &share);
        assert_eq!(right, [53.0, 49.0, 130.0]);
        let place = |slot| sources.iter().position(|&source| source == slot);
        edges.rename_sources(|slot| place(slot).expect("is one") as u32);
        let lent: Vec<f64> = sources.iter().map(|&slot| share(slot)).collect();
        assert_eq!(sums(&edges, &|slot| lent[slot as usize]), right);
    }

    /// A graph with blocks of several sizes, bands, and rows of all lengths: what meets is what a loop over the edges
    /// finds, for every instruction set. All sums are whole numbers, so that their order does not enter.
    #[test]
    fn blocks_and_bands_keep_every_edge() {
        let (sources, targets) = (100_000, 60_000);
        let mut edges = Vec::new();
        for target in 0..targets {
            // A few rows are long, and every third target has hardly an edge.
            let row = match target {
                _ if target % 1_000 == 7 => 300,
                _ if target % 3 == 0 => 1,
                _ => target % 90,
            };
            // Low sources have most of them.
            edges.extend((0..row).map(|at| {
                let source = (target * 31 + at * at * 97) % sources;
                let source = if at % 64 == 63 {
                    source
                } else {
                    source % 9_000
                };
                SlotEdge { source, target }
            }));
        }
        edges.extend((0..sources).map(|source| SlotEdge {
            source,
            target: source % 5,
        }));
        let weight = |at: usize| (at % 7) as f64;
        for weighted in [false, true] {
            let weights = (0..edges.len()).map(weight);
            let weights: Vec<f64> = if weighted {
                weights.collect()
            } else {
                Vec::new()
            };
            let share = |slot: u32| f64::from(slot % 1_000);
            let mut right = vec![0.0; targets as usize];
            for (at, edge) in edges.iter().enumerate() {
                right[edge.target as usize] +=
                    share(edge.source) * weights.get(at).copied().unwrap_or(1.0);
            }
            let bin = Bin {
                edges: edges.clone(),
                weights,
            };
            let laid_out = BlockedEdges::new(vec![bin], sources as usize, targets as usize);
            let lens = laid_out.blocks.iter().map(|block| block.sources.len());
            assert_eq!(lens.collect::<Vec<_>>(), [STEP, STEP, TABLE, 18_080]);
            assert_eq!(laid_out.len(), edges.len());
            assert!(
                laid_out
                    .blocks
                    .iter()
                    .any(|block| block.band < targets as usize)
            );
            let all = laid_out.targets().iter().map(|&slot| right[slot as usize]);
            let right: Vec<f64> = all.collect();
            for isa in Isa::supported() {
                let mut sums = vec![0.0; right.len()];
                laid_out.sum_into(isa, share, &mut sums);
                assert_eq!(sums, right, "{isa:?}");
            }
        }
    }
}
