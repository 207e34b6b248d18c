//! PageRank (Page, Brin, Motwani, Winograd 1999), as a program over a vertex cut.
//!
//! Vertex partitions hold the ranks, edge partitions the edges. In an iteration each vertex partition lends
//! its vertices' shares to the edge partitions of its grid row; each of these sums them for the targets that
//! it knows, and lends the sums to the vertex partitions of its grid column, which add them up and apply the
//! rule. Everything is summed in an order that the cut fixes, so the number of threads enters nothing.

use super::blocked_edges::{Bin, BlockedEdges};
use super::edges::{EdgeList, GraphError, is_share};
use super::vertex_cut::VertexCut;
use brambling_program::{
    Dataset, DecodeError, Foreign, Inbox, KernelError, Outbox, Partitioner, Payload, Program,
    Relation, Sum,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// How ranks are found, and when to stop. As networkx has it.
#[derive(Clone, Debug)]
pub struct PageRank {
    /// The share of rank that follows the edges; the rest starts anew. 0 to 1.
    pub damping: f64,
    /// Stop when the ranks' changes add up to less than this times the number of vertices; 0: never.
    pub tol: f64,
    /// The most iterations.
    pub max_iter: u64,
    /// Where rank starts anew, and where that of vertices without out-edges goes: a value for each vertex,
    /// of which only the shares of their sum count. The same for all vertices when not given.
    pub personalization: Option<Foreign<f64>>,
}

/// How the search stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// Iterations done.
    pub iterations: u64,
    /// The sum of the ranks' changes in the last iteration.
    pub change: f64,
    /// Whether that was little enough.
    pub converged: bool,
    searching: bool,
    /// Rank of the vertices without out-edges.
    dangling: f64,
}
brambling_program::payload!(Search);

/// The ranks of a partition's vertices, and what they need.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Vertices {
    /// By place in the partition: see [`VertexCut::vertices_of`].
    pub ranks: Vec<f64>,
    /// 1 ÷ the weight of a vertex's out-edges; 0 where there are none.
    inverses: Vec<f64>,
    /// Where rank starts anew; empty when everywhere the same.
    starts: Vec<f64>,
    /// 1 ÷ the number of vertices.
    uniform: f64,
    /// The sums over in-edges, then the next ranks.
    next: Vec<f64>,
    /// Index of the partition.
    part: u32,
}
brambling_program::payload!(Vertices, |vertices| (vertices.ranks.capacity()
    + vertices.inverses.capacity()
    + vertices.starts.capacity()
    + vertices.next.capacity())
    * size_of::<f64>());

/// What [`PageRank::build`] leaves in the program.
#[derive(Clone, Copy, Debug)]
pub struct Ranking {
    /// The ranks; kept.
    pub vertices: Dataset<Vertices>,
    /// How the search ended; kept.
    pub search: Dataset<Search>,
}

/// How many partitions a graph is cut into when nobody says: a function of the graph, never of the machine.
///
/// Sums and lists of sources grow with a grid's sides, so that a sparse graph gets fewer of them.
pub fn partitions_of(vertices: usize, edges: usize) -> u32 {
    const EDGES: usize = 1 << 18;
    const SIDE_MAX: usize = 8;
    let side = (edges / EDGES).isqrt().min(edges / vertices.max(1));
    (side.clamp(1, SIDE_MAX) as u32).pow(2)
}

/// The most partitions that a graph is cut into: building sends a piece between any two of them.
pub const PARTITIONS_MAX: u32 = 1_024;

/// Values that a partition lends to others of the process for a turn, and then writes again.
#[derive(Clone, Debug, Default)]
struct Lending(Arc<Vec<f64>>);

/// What was lent. Nothing before the first turn, and nothing once it has been read.
#[derive(Clone, Debug, Default)]
struct Lent(Option<Arc<Vec<f64>>>);

impl Lending {
    /// Zeros to be written. The buffer is new only where somebody kept what was lent.
    fn zeros(&mut self, len: usize) -> &mut Vec<f64> {
        if Arc::get_mut(&mut self.0).is_none() {
            self.0 = Arc::default();
        }
        let values = Arc::get_mut(&mut self.0).expect("nobody else has it");
        values.clear();
        values.resize(len, 0.0);
        values
    }

    fn lend(&self, out: &mut Outbox<'_, Lent>) {
        out.for_each(|_, piece| piece.0 = Some(self.0.clone()));
    }
}

impl Lent {
    fn values(&self) -> &[f64] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }
}

macro_rules! lent_payload {
    ($t:ident, $name:literal, |$value:ident| $heap_bytes:expr, $values:expr, |$decoded:ident| $made:expr) => {
        impl Payload for $t {
            fn type_name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }
            fn heap_bytes(&self) -> usize {
                let $value = self;
                $heap_bytes
            }
            fn encode(&self, out: &mut Vec<u8>) {
                let $value = self;
                let values: &[f64] = $values;
                values.len().encode(out);
                values.iter().for_each(|value| value.encode(out));
            }
            fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
                Vec::<f64>::decode(input).map(|$decoded| $made)
            }
        }
    };
}
lent_payload!(
    Lending,
    "Lending",
    |lending| lending.0.capacity() * size_of::<f64>(),
    &lending.0,
    |values| Lending(Arc::new(values))
);
// The lender answers for the bytes.
lent_payload!(Lent, "Lent", |_lent| 0, _lent.values(), |values| Lent(
    Some(Arc::new(values))
));

/// What an edge partition has been lent, by column. A dataset of its own, so that its buffer is kept.
#[derive(Clone, Debug, Default)]
struct Incoming(Vec<Lent>);

impl Payload for Incoming {
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("Incoming")
    }
    fn heap_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Lent>()
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        Vec::decode(input).map(Incoming)
    }
}

/// Changes and the rank of vertices without out-edges, summed over some vertices.
type Mass = [f64; 2];

impl PageRank {
    /// Looks at the parameters, and at every edge.
    ///
    /// # Errors
    /// The first thing that cannot be used, and the way out.
    pub fn check(&self, edges: &EdgeList) -> Result<(), GraphError> {
        let refuse = |name, value, range| Err(GraphError::Parameter { name, value, range });
        if !(0.0..=1.0).contains(&self.damping) {
            return refuse(
                "damping",
                self.damping,
                "a number from 0 to 1; 0.85 is usual",
            );
        }
        if !is_share(self.tol) {
            return refuse("tol", self.tol, "0 (never stop early) or a positive number");
        }
        if self.max_iter == 0 {
            return refuse("max_iter", 0.0, "at least 1");
        }
        edges.check()?;
        self.personalization.as_deref().map_or(Ok(()), |values| {
            check_personalization(values, edges.vertices)
        })
    }

    /// Adds the program's stages to `p`. `observe` is called with the search before the first iteration and
    /// after each. Weights whose sums overflow fail the job; the error's source is a [`GraphError`].
    ///
    /// # Movement
    /// Edges move once, into a grid of at most `partitions` partitions ([`VertexCut`]). In an iteration a
    /// vertex's share is lent to one row of the grid, and the sums for it by one column.
    ///
    /// # Panics
    /// When [`PageRank::check`] would refuse the graph or a parameter.
    pub fn build(
        &self,
        p: &mut Program,
        edges: EdgeList,
        partitions: u32,
        observe: impl Fn(&Search) + Clone + Send + Sync + 'static,
    ) -> Ranking {
        let cut = VertexCut::new(edges.vertices, partitions.min(PARTITIONS_MAX));
        let parameters = encoded(&(self.damping, self.tol, self.max_iter, edges.vertices));
        let starts = self.personalization.clone();
        let total: f64 = starts.iter().flat_map(|values| values.iter()).sum();
        let vertices = p.load(
            "vertices",
            cut.partitions(),
            Partitioner::Opaque,
            move |part, _| {
                Vertices::start(cut, part, starts.as_deref().map(|values| (values, total)))
            },
        );
        p.keep(&vertices);
        let rule = Rule {
            damping: self.damping,
            threshold: self.tol * edges.vertices as f64,
            max_iter: self.max_iter,
        };
        let graph = deal_edges(p, edges, cut, &vertices);
        let mass = p.like::<Mass, _>("mass", &vertices);
        let total = p.temporary::<Mass>("total mass", 1);
        let search = p.dataset::<Search>("search", 1);
        p.compute("weigh")
            .read(&vertices)
            .write(&mass)
            .run(|vertices: &Vertices, mass: &mut Mass| *mass = [0.0, vertices.dangling()]);
        p.reduce_to(Sum, &mass, &total);
        let told = observe.clone();
        p.compute("start").read(&total).write(&search).run(
            move |total: &Mass, search: &mut Search| {
                *search = Search {
                    searching: true,
                    dangling: total[1],
                    ..Search::default()
                };
                told(search);
            },
        );
        let local = p.like::<Search, _>("local search", &vertices);
        p.repeat_while(
            "searching",
            &search,
            |search| search.searching,
            |p| {
                p.broadcast(&search, &local);
                sum_over_edges(p, cut, &vertices, &graph, |p, exchange| {
                    p.gather("apply", exchange)
                        .read(&local)
                        .update(&vertices)
                        .write(&mass)
                        .named("graph.pagerank.apply", parameters.clone())
                        .run(
                            move |inbox: &mut Inbox<'_, Lent>,
                                  search: &Search,
                                  vertices: &mut Vertices,
                                  mass: &mut Mass| {
                                vertices.sum(inbox, cut.slots_as_targets(vertices.part));
                                *mass = vertices.apply(search.dangling, rule.damping);
                            },
                        );
                });
                p.reduce_to(Sum, &mass, &total);
                p.compute("judge")
                    .read(&total)
                    .update(&search)
                    .named("graph.pagerank.judge", parameters.clone())
                    .run(move |total: &Mass, search: &mut Search| {
                        search.advance(total, rule)?;
                        observe(search);
                        Ok::<(), KernelError>(())
                    });
            },
        );
        Ranking { vertices, search }
    }
}

fn check_personalization(values: &[f64], vertices: usize) -> Result<(), GraphError> {
    if values.len() != vertices {
        return Err(GraphError::PersonalizationLength {
            values: values.len(),
            vertices,
        });
    }
    if let Some(vertex) = values.iter().position(|&value| !is_share(value)) {
        return Err(GraphError::Personalization {
            vertex,
            value: values[vertex],
        });
    }
    let total: f64 = values.iter().sum();
    if total.is_normal() {
        Ok(())
    } else {
        Err(GraphError::PersonalizationTotal { total })
    }
}

fn encoded(parameters: &impl Payload) -> Vec<u8> {
    let mut bytes = Vec::new();
    parameters.encode(&mut bytes);
    bytes
}

/// The edge partitions' datasets.
struct Graph {
    edges: Dataset<BlockedEdges>,
    incoming: Dataset<Incoming>,
    sums: Dataset<Lending>,
}

/// Adds what is done once: edges move to their partitions, and vertices learn the weight of their out-edges.
fn deal_edges(
    p: &mut Program,
    edges: EdgeList,
    cut: VertexCut,
    vertices: &Dataset<Vertices>,
) -> Graph {
    let count = cut.partitions();
    let blocked = p.temporary::<BlockedEdges>("edges", count);
    let weights = p.temporary::<Lending>("out-weights", count);
    let deal = p.exchange::<Bin>("deal edges", Relation::AllToAll);
    let chunks = p.temporary::<u32>("chunks", count);
    p.scatter("deal edges", &deal)
        .read(&chunks)
        .run(move |_: &u32, out: &mut Outbox<'_, Bin>| {
            let edge = |index: u32| edges.len() * index as usize / count as usize;
            deal_chunk(
                &edges.slice(edge(out.source())..edge(out.source() + 1)),
                cut,
                out,
            );
        });
    p.gather("deal edges", &deal)
        .write(&blocked)
        .write(&weights)
        .run(
            move |inbox: &mut Inbox<'_, Bin>, blocked: &mut BlockedEdges, weights: &mut Lending| {
                let bins: Vec<Bin> = inbox.map(|(_, bin)| std::mem::take(bin)).collect();
                add_out_weights(&bins, weights.zeros(cut.source_slots()));
                *blocked = BlockedEdges::new(bins, cut.source_slots(), cut.target_slots());
            },
        );
    let exchange = p.exchange::<Lent>("out-weights", cut.along_rows());
    p.scatter("out-weights", &exchange)
        .read(&weights)
        .run(|weights: &Lending, out: &mut Outbox<'_, Lent>| weights.lend(out));
    p.gather("out-weights", &exchange).update(vertices).run(
        move |inbox: &mut Inbox<'_, Lent>, vertices: &mut Vertices| {
            vertices.weigh(inbox, cut.slots_as_sources(vertices.part));
        },
    );
    Graph {
        incoming: p.like("lent shares", &blocked),
        sums: p.like("sums", &blocked),
        edges: blocked,
    }
}

/// Counts first, so that no bin is larger than it must be.
fn deal_chunk(edges: &EdgeList, cut: VertexCut, out: &mut Outbox<'_, Bin>) {
    let ends = |at: usize| (edges.sources.at(at), edges.targets.at(at));
    let mut counts = vec![0; cut.partitions() as usize];
    for at in 0..edges.len() {
        let (source, target) = ends(at);
        counts[cut.edge(source, target).0 as usize] += 1;
    }
    let mut bins: Vec<Bin> = counts
        .into_iter()
        .map(|count| Bin {
            edges: Vec::with_capacity(count),
            weights: Vec::with_capacity(if edges.weights.is_some() { count } else { 0 }),
        })
        .collect();
    for at in 0..edges.len() {
        let (source, target) = ends(at);
        let (partition, edge) = cut.edge(source, target);
        let bin = &mut bins[partition as usize];
        bin.edges.push(edge);
        if let Some(weights) = &edges.weights {
            bin.weights.push(weights[at]);
        }
    }
    out.for_each(|partition, piece| *piece = std::mem::take(&mut bins[partition as usize]));
}

fn add_out_weights(bins: &[Bin], weights: &mut [f64]) {
    for bin in bins {
        for (at, edge) in bin.edges.iter().enumerate() {
            weights[edge.source as usize] += bin.weights.get(at).copied().unwrap_or(1.0);
        }
    }
}

/// Adds the way from ranks to sums over in-edges; `receive` adds the stage that takes the sums.
fn sum_over_edges(
    p: &mut Program,
    cut: VertexCut,
    vertices: &Dataset<Vertices>,
    graph: &Graph,
    receive: impl FnOnce(&mut Program, &brambling_program::Exchange<Lent>),
) {
    let shares = p.like::<Lending, _>("shares", vertices);
    p.compute("share")
        .read(vertices)
        .update(&shares)
        .run(|vertices: &Vertices, shares: &mut Lending| vertices.share(shares));
    let exchange = p.exchange::<Lent>("shares", cut.along_rows());
    p.scatter("shares", &exchange)
        .read(&shares)
        .run(|shares: &Lending, out: &mut Outbox<'_, Lent>| shares.lend(out));
    p.gather("shares", &exchange)
        .read(&graph.edges)
        .update(&graph.incoming)
        .update(&graph.sums)
        .named("graph.pagerank.sum", Vec::new())
        .run(
            move |inbox: &mut Inbox<'_, Lent>,
                  edges: &BlockedEdges,
                  incoming: &mut Incoming,
                  sums: &mut Lending| {
                incoming
                    .0
                    .extend(inbox.map(|(_, piece)| std::mem::take(piece)));
                let share = |slot: u32| {
                    let (column, place) = cut.source_of(slot);
                    incoming.0[column].values()[place]
                };
                edges.add_into(share, sums.zeros(cut.target_slots()));
                // The lender writes its buffer again in the next turn.
                incoming.0.clear();
            },
        );
    let exchange = p.exchange::<Lent>("sums", cut.along_columns());
    p.scatter("sums", &exchange)
        .read(&graph.sums)
        .run(|sums: &Lending, out: &mut Outbox<'_, Lent>| sums.lend(out));
    receive(p, &exchange);
}

/// The rule of an iteration.
#[derive(Clone, Copy)]
struct Rule {
    damping: f64,
    threshold: f64,
    max_iter: u64,
}

impl Search {
    fn advance(&mut self, total: &Mass, rule: Rule) -> Result<(), KernelError> {
        [self.change, self.dangling] = *total;
        if !self.change.is_finite() {
            let error = GraphError::Scale;
            return Err(KernelError::new(error.to_string()).with_source(error));
        }
        self.iterations += 1;
        self.converged = self.change < rule.threshold;
        self.searching = !self.converged && self.iterations < rule.max_iter;
        Ok(())
    }
}

impl Vertices {
    fn start(cut: VertexCut, part: u32, starts: Option<(&[f64], f64)>) -> Vertices {
        let len = cut.len_of(part);
        let uniform = 1.0 / cut.vertices() as f64;
        let shares = starts.map(|(values, total)| {
            let own = cut.vertices_of(part).flatten();
            own.map(|vertex| values[vertex] / total).collect()
        });
        Vertices {
            ranks: vec![uniform; len],
            inverses: vec![0.0; len],
            starts: shares.unwrap_or_default(),
            uniform,
            next: vec![0.0; len],
            part,
        }
    }

    /// Takes the weights of the vertices' out-edges, which the edge partitions of the row know.
    fn weigh(&mut self, inbox: &mut Inbox<'_, Lent>, slots: Range<usize>) {
        add_up(&mut self.inverses, inbox, slots);
        for weight in &mut self.inverses {
            let inverse = 1.0 / *weight;
            *weight = match *weight {
                0.0 => 0.0,
                // Beyond f64. What is not a number is seen when the changes are summed.
                _ if !inverse.is_normal() => f64::NAN,
                _ => inverse,
            };
        }
    }

    /// What each out-edge of weight 1 brings.
    fn share(&self, shares: &mut Lending) {
        let shares = shares.zeros(self.ranks.len());
        for ((share, rank), inverse) in shares.iter_mut().zip(&self.ranks).zip(&self.inverses) {
            *share = rank * inverse;
        }
    }

    /// Rank of the vertices without out-edges.
    fn dangling(&self) -> f64 {
        let both = self.ranks.iter().zip(&self.inverses);
        both.filter(|(_, inverse)| **inverse == 0.0)
            .map(|(rank, _)| rank)
            .sum()
    }

    /// Takes the sums over in-edges, which the edge partitions of the column know.
    fn sum(&mut self, inbox: &mut Inbox<'_, Lent>, slots: Range<usize>) {
        add_up(&mut self.next, inbox, slots);
    }

    /// The next ranks, from the sums over in-edges.
    fn apply(&mut self, dangling: f64, damping: f64) -> Mass {
        let mut change = 0.0;
        for (at, next) in self.next.iter_mut().enumerate() {
            let start = self.starts.get(at).copied().unwrap_or(self.uniform);
            *next = damping * (*next + dangling * start) + (1.0 - damping) * start;
            change += (*next - self.ranks[at]).abs();
        }
        std::mem::swap(&mut self.ranks, &mut self.next);
        [change, self.dangling()]
    }
}

/// Adds up what partitions of a row or a column lend for some slots, in their order.
fn add_up(sums: &mut [f64], inbox: &mut Inbox<'_, Lent>, slots: Range<usize>) {
    sums.fill(0.0);
    for (_, piece) in inbox {
        let values = &piece.values()[slots.clone()];
        sums.iter_mut()
            .zip(values)
            .for_each(|(sum, value)| *sum += value);
        // The lender writes its buffer again in the next turn.
        piece.0 = None;
    }
}
