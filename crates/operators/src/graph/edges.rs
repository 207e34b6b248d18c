//! Directed edges as arrays, what may be wrong with them, and dense numbers for arbitrary ids.

use brambling_program::{Dataset, DecodeError, Foreign, Partitioner, Payload, Program};
use std::borrow::Cow;
use std::ops::Range;

/// Vertex ids, of either width.
#[derive(Clone, Debug)]
pub enum Ids {
    /// Four bytes each.
    U32(Foreign<u32>),
    /// Eight bytes each.
    U64(Foreign<u64>),
}

impl Ids {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Ids::U32(ids) => ids.len(),
            Ids::U64(ids) => ids.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A part of the same memory.
    pub fn slice(&self, range: Range<usize>) -> Ids {
        match self {
            Ids::U32(ids) => Ids::U32(ids.slice(range)),
            Ids::U64(ids) => Ids::U64(ids.slice(range)),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Ids::U32(ids) => size_of_val(&ids[..]),
            Ids::U64(ids) => size_of_val(&ids[..]),
        }
    }

    fn heap_bytes(&self) -> usize {
        match self {
            Ids::U32(ids) => ids.heap_bytes(),
            Ids::U64(ids) => ids.heap_bytes(),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Ids::U32(ids) => {
                false.encode(out);
                ids.encode(out);
            }
            Ids::U64(ids) => {
                true.encode(out);
                ids.encode(out);
            }
        }
    }

    fn decode(input: &mut &[u8]) -> Result<Ids, DecodeError> {
        Ok(match bool::decode(input)? {
            false => Ids::U32(Payload::decode(input)?),
            true => Ids::U64(Payload::decode(input)?),
        })
    }

    /// An id that was checked to be below 2³².
    #[inline]
    pub fn at(&self, index: usize) -> u32 {
        match self {
            Ids::U32(ids) => ids[index],
            Ids::U64(ids) => ids[index] as u32,
        }
    }

    /// The first id that is no vertex. The largest is looked for first: that loop has no branch.
    fn first_beyond(&self, vertices: usize) -> Option<(usize, u64)> {
        fn first<T: Copy + Ord + Into<u64>>(ids: &[T], vertices: u64) -> Option<(usize, u64)> {
            let largest = ids.iter().copied().max()?;
            if largest.into() < vertices {
                return None;
            }
            let edge = ids.iter().position(|&id| id.into() >= vertices)?;
            Some((edge, ids[edge].into()))
        }
        match self {
            Ids::U32(ids) => first(ids, vertices as u64),
            Ids::U64(ids) => first(ids, vertices as u64),
        }
    }
}

impl Default for Ids {
    fn default() -> Ids {
        Ids::U32(Foreign::default())
    }
}

impl From<Vec<u32>> for Ids {
    fn from(ids: Vec<u32>) -> Ids {
        Ids::U32(Foreign::owned(ids))
    }
}

impl From<Vec<u64>> for Ids {
    fn from(ids: Vec<u64>) -> Ids {
        Ids::U64(Foreign::owned(ids))
    }
}

/// The most vertices of a graph: slots of an edge partition are 32 bits wide, and rounded up.
pub const VERTICES_MAX: usize = 1 << 30;

/// A directed graph as arrays: edge i leads from `sources[i]` to `targets[i]`. Vertices are numbered from 0.
/// Parallel edges and self-loops are edges like others.
#[derive(Clone, Debug, Default)]
pub struct EdgeList {
    /// How many vertices there are, those without an edge included.
    pub vertices: usize,
    /// Where each edge begins.
    pub sources: Ids,
    /// Where each edge ends.
    pub targets: Ids,
    /// What each edge weighs; 1 when there are none.
    pub weights: Option<Foreign<f64>>,
}

/// A part of the edges, as it is dealt. What is decoded has been checked by whoever has cut it.
impl Payload for EdgeList {
    const INTERPRETED: bool = true;
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("graph::EdgeList")
    }
    /// Of borrowed memory nothing: that is its owner's to count. Of what came from another process, its part.
    fn heap_bytes(&self) -> usize {
        self.sources.heap_bytes() + self.targets.heap_bytes() + self.weights.heap_bytes()
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.vertices.encode(out);
        self.sources.encode(out);
        self.targets.encode(out);
        self.weights.encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let edges = EdgeList {
            vertices: usize::decode(input)?,
            sources: Ids::decode(input)?,
            targets: Ids::decode(input)?,
            weights: Option::decode(input)?,
        };
        match edges.is_empty() && edges.targets.is_empty() {
            true => Ok(edges),
            false => match edges.check() {
                Ok(()) => Ok(edges),
                Err(error) => Err(DecodeError::of::<EdgeList>(error.to_string())),
            },
        }
    }
}

impl EdgeList {
    /// The edges as a dataset, in so many partitions.
    pub(super) fn load(self, p: &mut Program, partitions: u32) -> Dataset<EdgeList> {
        let bytes = self.sources.bytes() + self.targets.bytes();
        let weights = self.weights.as_deref().map_or(0, size_of_val);
        let part = move |index, count| self.part(index, count);
        let parts = p.load("edge list", partitions, Partitioner::Opaque, part);
        p.expect_bytes(&parts, (bytes + weights) as u64);
        parts
    }

    /// The part of the edges that one partition of several deals.
    fn part(&self, index: u32, count: u32) -> EdgeList {
        let edge = |index: u32| self.len() * index as usize / count as usize;
        self.slice(edge(index)..edge(index + 1))
    }

    /// Edges that weigh 1.
    pub fn new(vertices: usize, sources: impl Into<Ids>, targets: impl Into<Ids>) -> EdgeList {
        EdgeList {
            vertices,
            sources: sources.into(),
            targets: targets.into(),
            weights: None,
        }
    }

    /// Gives each edge a weight.
    #[must_use]
    pub fn weighted(mut self, weights: Vec<f64>) -> EdgeList {
        self.weights = Some(Foreign::owned(weights));
        self
    }

    /// How many edges there are.
    pub fn len(&self) -> usize {
        self.sources.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Some of the edges, among the same vertices.
    pub fn slice(&self, range: Range<usize>) -> EdgeList {
        EdgeList {
            vertices: self.vertices,
            sources: self.sources.slice(range.clone()),
            targets: self.targets.slice(range.clone()),
            weights: self.weights.as_ref().map(|weights| weights.slice(range)),
        }
    }

    /// Looks at every edge.
    ///
    /// # Errors
    /// The first thing that cannot be used, with its place and the way out.
    pub fn check(&self) -> Result<(), GraphError> {
        self.check_shape()?;
        for (end, ids) in [("source", &self.sources), ("target", &self.targets)] {
            if let Some((edge, id)) = ids.first_beyond(self.vertices) {
                return Err(GraphError::Vertex {
                    edge,
                    end,
                    id,
                    vertices: self.vertices,
                    last: self.vertices - 1,
                });
            }
        }
        let weights = self.weights.as_deref().unwrap_or_default();
        match weights.iter().position(|&weight| !is_share(weight)) {
            Some(edge) => Err(GraphError::Weight {
                edge,
                value: weights[edge],
            }),
            None => Ok(()),
        }
    }

    /// The first edge on which a sum of weights overflows, given the length of the shortest way to each vertex, infinite
    /// where none was found: it leads from a vertex that a way leads to, to one that seems to have none.
    ///
    /// Edges are looked at only where the longest way and the largest weight together are beyond f64.
    pub fn first_overflow(&self, distances: &[f64]) -> Option<GraphError> {
        let weights = self.weights.as_deref()?;
        let all = distances.iter().copied();
        let longest = all
            .filter(|distance| distance.is_finite())
            .fold(0.0, f64::max);
        let largest = weights.iter().copied().fold(0.0, f64::max);
        if (longest + largest).is_finite() {
            return None;
        }
        let ends = |edge| (self.sources.at(edge), self.targets.at(edge));
        let of = |vertex: u32| distances[vertex as usize];
        let edge = (0..self.len()).find(|&edge| {
            let (source, target) = ends(edge);
            of(source).is_finite() && of(target).is_infinite()
        })?;
        Some(GraphError::Distance {
            edge,
            distance: of(ends(edge).0),
            weight: weights[edge],
        })
    }

    fn check_shape(&self) -> Result<(), GraphError> {
        let (sources, targets) = (self.sources.len(), self.targets.len());
        if self.vertices == 0 {
            return Err(GraphError::NoVertices);
        }
        if self.vertices > VERTICES_MAX {
            return Err(GraphError::Vertices {
                vertices: self.vertices,
            });
        }
        if sources != targets {
            return Err(GraphError::Lengths { sources, targets });
        }
        match &self.weights {
            Some(weights) if weights.len() != sources => Err(GraphError::Weights {
                edges: sources,
                weights: weights.len(),
            }),
            _ => Ok(()),
        }
    }
}

/// Whether a number can be a weight: finite and not negative.
pub(super) fn is_share(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

/// What is wrong with a graph, or with numbers that belong to it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// A graph without vertices.
    #[error("the graph has no vertices; give at least one")]
    NoVertices,
    /// A graph with more vertices than slots can name.
    #[error(
        "the graph has {vertices} vertices; at most {VERTICES_MAX} can be used: drop those without edges by relabelling the ids"
    )]
    Vertices {
        /// How many vertices there are.
        vertices: usize,
    },
    /// Arrays of different lengths.
    #[error("there are {sources} sources and {targets} targets; give one of each for every edge")]
    Lengths {
        /// How many sources there are.
        sources: usize,
        /// How many targets there are.
        targets: usize,
    },
    /// Weights of another number than edges.
    #[error(
        "there are {edges} edges and {weights} weights; give one weight for each edge, or none at all"
    )]
    Weights {
        /// How many edges there are.
        edges: usize,
        /// How many weights there are.
        weights: usize,
    },
    /// An id that is no vertex.
    #[error(
        "edge {edge} (counted from 0) has {end} {id}, but the {vertices} vertices are 0 to {last}; give a larger number of vertices, or relabel the ids first"
    )]
    Vertex {
        /// The first such edge.
        edge: usize,
        /// Which end of it.
        end: &'static str,
        /// The id there.
        id: u64,
        /// How many vertices there are.
        vertices: usize,
        /// The last of them.
        last: usize,
    },
    /// A start that is no vertex.
    #[error("the search starts at vertex {from}, but the {vertices} vertices are 0 to {last}")]
    Start {
        /// What was given.
        from: usize,
        /// How many vertices there are.
        vertices: usize,
        /// The last of them.
        last: usize,
    },
    /// A weight that is no share.
    #[error(
        "edge {edge} (counted from 0) has weight {value}; weights must be finite and not negative: replace such weights or drop their edges first"
    )]
    Weight {
        /// The first such edge.
        edge: usize,
        /// Its weight.
        value: f64,
    },
    /// A personalisation of another length.
    #[error(
        "the personalization has {values} values for {vertices} vertices; give one for each vertex, 0 where nothing starts"
    )]
    PersonalizationLength {
        /// How many values there are.
        values: usize,
        /// How many vertices there are.
        vertices: usize,
    },
    /// A personalisation with a value that is no share.
    #[error(
        "the personalization has {value} at vertex {vertex}; values must be finite and not negative"
    )]
    Personalization {
        /// The first such vertex.
        vertex: usize,
        /// Its value.
        value: f64,
    },
    /// A personalisation whose values cannot be made shares of their sum.
    #[error(
        "the personalization adds up to {total}, of which its values cannot be shares; give at least one positive value, and none near the largest number"
    )]
    PersonalizationTotal {
        /// Their sum.
        total: f64,
    },
    /// A parameter out of its range.
    #[error("{name} = {value} cannot be used; give {range}")]
    Parameter {
        /// Which parameter.
        name: &'static str,
        /// What was given.
        value: f64,
        /// What may be given.
        range: &'static str,
    },
    /// A way whose weights add up to more than f64 has, and no shorter one.
    #[error(
        "edge {edge} (counted from 0) has weight {weight:?} and begins where the shortest way is {distance:?} long: together they are beyond float64, the largest of which is 1.8e308; scale the weights first, for example to a largest weight of 1"
    )]
    Distance {
        /// The first such edge.
        edge: usize,
        /// How far its source is.
        distance: f64,
        /// Its weight.
        weight: f64,
    },
    /// Weights whose sums, or the sums' inverses, are beyond f64.
    #[error(
        "the weights of a vertex's edges add up to a number whose inverse overflows or vanishes; scale the weights first, for example to a largest weight of 1"
    )]
    Scale,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vertex 1 can be reached, by a sum that f64 does not have; vertex 3 cannot.
    #[test]
    fn a_sum_that_overflows_is_told_from_no_way() {
        let most = f64::MAX;
        let list = |weights| EdgeList::new(4, vec![0u32, 2, 3], vec![2u32, 1, 3]).weighted(weights);
        let infinite = f64::INFINITY;
        let far = list(vec![most, most, 1.0]).first_overflow(&[0.0, infinite, most, infinite]);
        let expected = GraphError::Distance {
            edge: 1,
            distance: most,
            weight: most,
        };
        assert_eq!(far, Some(expected));
        // What rounding hides is no overflow; neither is a vertex that no edge leads to.
        let near = list(vec![most, 1.0, 1.0]).first_overflow(&[0.0, most, most, infinite]);
        assert_eq!(near, None);
        let none = list(vec![most, most, most]).first_overflow(&[infinite, infinite, most, 0.0]);
        assert!(none.is_some());
        let apart = list(vec![most, most, most]).first_overflow(&[0.0, most, most, infinite]);
        assert_eq!(apart, None);
    }

    #[test]
    fn what_is_no_graph_is_refused() {
        let refused = |edges: EdgeList| edges.check().unwrap_err().to_string();
        let two = || vec![0u32, 1];
        assert_eq!(
            refused(EdgeList::new(0, vec![0u32; 0], vec![0u32; 0])),
            "the graph has no vertices; give at least one"
        );
        assert_eq!(
            refused(EdgeList::new(2, two(), vec![1u32])),
            "there are 2 sources and 1 targets; give one of each for every edge"
        );
        assert_eq!(
            refused(EdgeList::new(2, two(), vec![1u64, 1 << 32])),
            "edge 1 (counted from 0) has target 4294967296, but the 2 vertices are 0 to 1; \
             give a larger number of vertices, or relabel the ids first"
        );
        assert!(
            refused(EdgeList::new(1, two(), two()))
                .contains("edge 1 (counted from 0) has source 1")
        );
        let weighted = |weights| refused(EdgeList::new(2, two(), two()).weighted(weights));
        assert_eq!(
            weighted(vec![1.0]),
            "there are 2 edges and 1 weights; give one weight for each edge, or none at all"
        );
        for weight in [-1.0, f64::NAN, f64::INFINITY] {
            let message = weighted(vec![0.0, weight]);
            assert!(
                message.starts_with("edge 1 (counted from 0) has weight"),
                "{message}"
            );
        }
        assert!(refused(EdgeList::new(VERTICES_MAX + 1, two(), two())).contains("relabelling"));
        assert_eq!(EdgeList::new(2, two(), two()).check(), Ok(()));
        assert_eq!(
            EdgeList::new(2, vec![0u32; 0], vec![0u32; 0]).check(),
            Ok(())
        );
    }
}
