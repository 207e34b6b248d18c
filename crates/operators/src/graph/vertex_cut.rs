//! Where vertices and edges live: a vertex cut in two dimensions, on a grid of partitions.
//!
//! An edge partition at (row, column) of the grid holds the edges whose source belongs to the row and whose
//! target belongs to the column. So a vertex is known to the partitions of one row and of one column only,
//! whatever its degree: at most 2·√partitions mirrors. Cutting vertices instead of edges is PowerGraph's
//! (Gonzalez et al., OSDI 2012, with its constraint by a grid); Canary computes PageRank so (Qu et al., §5).

use brambling_program::{
    DecodeError, Payload, PlacementHint, Relation, RelationTable, decode_plain,
};
use std::borrow::Cow;
use std::ops::Range;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// How vertices 0, 1, … are dealt to partitions, and edges with them.
///
/// Blocks of consecutive vertices are dealt like cards: neighbours stay together, and the many edges of the
/// first vertices of a graph that is sorted by degree do not meet in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VertexCut {
    vertices: u32,
    rows: u32,
    columns: u32,
    /// A block has two to this power of vertices.
    block_shift: u32,
    /// Vertices of the largest partition.
    stride: u32,
    /// `stride` fits below two to this power.
    slot_shift: u32,
}

impl Default for VertexCut {
    /// Of no vertices.
    fn default() -> VertexCut {
        VertexCut::new(0, 1)
    }
}

/// It travels as what it was made from.
impl Payload for VertexCut {
    const FIXED: bool = true;
    const ENCODED_BYTES_MAX: usize = 8;
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("graph::VertexCut")
    }
    fn heap_bytes(&self) -> usize {
        0
    }
    fn encode(&self, out: &mut Vec<u8>) {
        (self.vertices, self.partitions()).encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let (vertices, partitions) = <(u32, u32)>::decode(input)?;
        let is_cut = vertices as usize <= super::edges::VERTICES_MAX
            && (1..=super::pagerank::PARTITIONS_MAX).contains(&partitions);
        if !is_cut {
            return Err(DecodeError::of::<VertexCut>(
                "no cut has so many vertices or partitions",
            ));
        }
        Ok(VertexCut::new(vertices as usize, partitions))
    }
}

/// A block has at most two to this power of vertices.
const BLOCK_SHIFT_MAX: u32 = 12;
/// A partition gets about this many blocks, where there are enough vertices.
const BLOCKS_EACH: u64 = 16;

impl VertexCut {
    /// Cuts for a grid of at most `partitions` partitions: as many as make two nearly equal sides.
    ///
    /// # Panics
    /// When there is no partition, or there are more vertices than
    /// [`VERTICES_MAX`](super::edges::VERTICES_MAX).
    pub fn new(vertices: usize, partitions: u32) -> VertexCut {
        assert!(partitions > 0, "a cut has at least one partition");
        assert!(vertices <= super::edges::VERTICES_MAX, "too many vertices");
        let rows = partitions.isqrt();
        let columns = partitions / rows;
        let count = u64::from(rows * columns);
        let shift = (vertices as u64 / (count * BLOCKS_EACH)).max(1).ilog2();
        let mut cut = VertexCut {
            vertices: vertices as u32,
            rows,
            columns,
            block_shift: shift.min(BLOCK_SHIFT_MAX),
            stride: 0,
            slot_shift: 0,
        };
        cut.stride = (0..cut.partitions())
            .map(|part| cut.len_of(part))
            .max()
            .unwrap_or(0) as u32;
        cut.slot_shift = cut.stride.next_power_of_two().ilog2();
        cut
    }

    /// How many vertices are dealt.
    pub fn vertices(self) -> usize {
        self.vertices as usize
    }

    /// Partitions of vertices, and as many of edges.
    pub fn partitions(self) -> u32 {
        self.rows * self.columns
    }

    /// Rows of the grid.
    pub fn rows(self) -> u32 {
        self.rows
    }

    /// Columns of the grid.
    pub fn columns(self) -> u32 {
        self.columns
    }

    /// Where partitions had better be: what goes along columns is more than what goes along rows.
    pub fn hint(self) -> PlacementHint {
        PlacementHint::Columns(self.columns)
    }

    fn blocks(self) -> u32 {
        self.vertices.div_ceil(1 << self.block_shift)
    }

    /// A vertex's partition, and its place there.
    #[inline]
    pub fn place(self, vertex: u32) -> (u32, u32) {
        let block = vertex >> self.block_shift;
        let within = vertex & ((1 << self.block_shift) - 1);
        let (round, part) = (block / self.partitions(), block % self.partitions());
        (part, (round << self.block_shift) + within)
    }

    /// The vertices of a partition, in the order of their places: ranges that ascend.
    pub fn vertices_of(self, part: u32) -> impl Iterator<Item = Range<usize>> {
        let blocks = (part..self.blocks()).step_by(self.partitions() as usize);
        blocks.map(move |block| {
            let start = (block as usize) << self.block_shift;
            start..(start + (1 << self.block_shift)).min(self.vertices as usize)
        })
    }

    /// How many vertices a partition has.
    pub fn len_of(self, part: u32) -> usize {
        self.vertices_of(part).map(|range| range.len()).sum()
    }

    /// The grid row of a partition.
    #[inline]
    pub fn row_of(self, part: u32) -> u32 {
        part / self.columns
    }

    /// The grid column of a partition.
    #[inline]
    pub fn column_of(self, part: u32) -> u32 {
        part % self.columns
    }

    /// The partition of an edge, and the slots that its ends have there.
    #[inline]
    pub fn edge(self, source: u32, target: u32) -> (u32, SlotEdge) {
        let (from, source) = self.place(source);
        let (to, target) = self.place(target);
        let edge = SlotEdge {
            source: (self.column_of(from) << self.slot_shift) | source,
            target: self.row_of(to) * self.stride + target,
        };
        (self.row_of(from) * self.columns + self.column_of(to), edge)
    }

    /// How many slots an edge partition has for sources. Some may be of no vertex.
    pub fn source_slots(self) -> usize {
        (self.columns as usize) << self.slot_shift
    }

    /// How many slots an edge partition has for targets. Some may be of no vertex.
    pub fn target_slots(self) -> usize {
        self.rows as usize * self.stride as usize
    }

    /// Which of the row's vertex partitions a source's slot belongs to, and the place there.
    #[inline]
    pub fn source_of(self, slot: u32) -> (usize, usize) {
        let within = slot & ((1 << self.slot_shift) - 1);
        ((slot >> self.slot_shift) as usize, within as usize)
    }

    /// The slot of a source, by which of the row's vertex partitions it belongs to, and its place there.
    #[inline]
    pub fn source_slot(self, column: usize, place: usize) -> u32 {
        ((column as u32) << self.slot_shift) | place as u32
    }

    /// The slots that a partition's vertices have as sources, in the edge partitions of its row.
    pub fn slots_as_sources(self, part: u32) -> Range<usize> {
        let start = (self.column_of(part) as usize) << self.slot_shift;
        start..start + self.len_of(part)
    }

    /// The slots that a partition's vertices have as targets, in the edge partitions of its column.
    pub fn slots_as_targets(self, part: u32) -> Range<usize> {
        let start = self.row_of(part) as usize * self.stride as usize;
        start..start + self.len_of(part)
    }

    /// The edge partitions of a vertex partition's row: they know its vertices as sources.
    pub fn row_peers(self, part: u32) -> Range<u32> {
        let start = self.row_of(part) * self.columns;
        start..start + self.columns
    }

    /// The edge partitions of a vertex partition's column: they know its vertices as targets.
    pub fn column_peers(self, part: u32) -> impl Iterator<Item = u32> {
        (self.column_of(part)..self.partitions()).step_by(self.columns as usize)
    }

    /// Between vertex and edge partitions of a row: both ways, since it is symmetric.
    pub fn along_rows(self) -> Relation {
        self.relation(|part| self.row_peers(part).collect())
    }

    /// Between edge and vertex partitions of a column: both ways, since it is symmetric.
    pub fn along_columns(self) -> Relation {
        self.relation(|part| self.column_peers(part).collect())
    }

    fn relation(self, peers: impl Fn(u32) -> Vec<u32>) -> Relation {
        let sources = (0..self.partitions()).map(peers).collect();
        Relation::Tables {
            prologue: Vec::new(),
            period: vec![RelationTable { sources }],
        }
    }
}

/// An edge of a partition: slots instead of vertices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, IntoBytes)]
#[repr(C)]
pub struct SlotEdge {
    /// Where it begins.
    pub source: u32,
    /// Where it ends.
    pub target: u32,
}

impl Payload for SlotEdge {
    const FIXED: bool = true;
    const ENCODED_BYTES_MAX: usize = size_of::<SlotEdge>();
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("graph::Edge")
    }
    fn heap_bytes(&self) -> usize {
        0
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.source.encode(out);
        self.target.encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let (source, target) = (u32::decode(input)?, u32::decode(input)?);
        Ok(SlotEdge { source, target })
    }
    // Where they lie in memory as they are encoded, rows of edges are copied.
    #[cfg(target_endian = "little")]
    fn encode_all(values: &[Self], out: &mut Vec<u8>) {
        out.extend_from_slice(values.as_bytes());
    }
    #[cfg(target_endian = "little")]
    fn decode_all(count: usize, input: &mut &[u8]) -> Result<Vec<Self>, DecodeError> {
        decode_plain(count, input)
    }
    #[cfg(target_endian = "little")]
    fn plain(values: &[Self]) -> Option<&[u8]> {
        Some(values.as_bytes())
    }
    #[cfg(target_endian = "little")]
    fn plain_mut(values: &mut [Self]) -> Option<&mut [u8]> {
        Some(values.as_mut_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_vertex_has_at_most_two_mirrors_for_each_partition_of_a_side() {
        for partitions in 1..=40 {
            let cut = VertexCut::new(1_000, partitions);
            assert!(cut.partitions() <= partitions);
            assert!(2 * cut.partitions() > partitions, "{partitions}");
            for vertex in 0..1_000 {
                // Wherever any edge of it may be.
                let mirrors: BTreeSet<u32> = (0..1_000)
                    .flat_map(|other| [cut.edge(vertex, other).0, cut.edge(other, vertex).0])
                    .collect();
                let bound = 2.0 * f64::from(partitions).sqrt();
                assert!(mirrors.len() as f64 <= bound, "{partitions}: {mirrors:?}");
                let (part, _) = cut.place(vertex);
                let peers = cut.row_peers(part).chain(cut.column_peers(part));
                assert_eq!(mirrors, peers.collect(), "{partitions}");
            }
        }
    }

    #[test]
    fn every_vertex_has_one_place_and_its_slots_lead_back() {
        for (vertices, partitions) in [
            (1, 1),
            (1, 9),
            (7, 6),
            (1_000, 5),
            (40_000, 12),
            (99_999, 1),
        ] {
            let cut = VertexCut::new(vertices, partitions);
            let mut seen = 0;
            for part in 0..cut.partitions() {
                let all: Vec<usize> = cut.vertices_of(part).flatten().collect();
                assert_eq!(all.len(), cut.len_of(part));
                assert!(all.is_sorted());
                seen += all.len();
                for (place, &vertex) in all.iter().enumerate() {
                    let vertex = vertex as u32;
                    assert_eq!(cut.place(vertex), (part, place as u32));
                    let (_, edge) = cut.edge(vertex, vertex);
                    let (column, within) = cut.source_of(edge.source);
                    assert_eq!((column as u32, within), (cut.column_of(part), place));
                    assert_eq!(cut.source_slot(column, within), edge.source);
                    assert_eq!(
                        cut.slots_as_sources(part).start + place,
                        edge.source as usize
                    );
                    assert_eq!(
                        cut.slots_as_targets(part).start + place,
                        edge.target as usize
                    );
                    assert!((edge.source as usize) < cut.source_slots());
                    assert!((edge.target as usize) < cut.target_slots());
                }
            }
            assert_eq!(seen, vertices);
        }
    }

    /// A graph sorted by degree has its edges at the first vertices.
    #[test]
    fn the_first_vertices_do_not_meet_in_one_partition() {
        let cut = VertexCut::new(100_000, 16);
        let parts: BTreeSet<u32> = (0..10_000).map(|vertex| cut.place(vertex).0).collect();
        assert_eq!(parts.len(), 16);
    }
}
