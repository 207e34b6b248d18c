//! PageRank (Page, Brin, Motwani, Winograd 1999), as a program over a vertex cut.
//!
//! Vertex partitions hold the ranks, edge partitions the edges. In an iteration each vertex partition lends
//! its vertices' shares to the edge partitions of its grid row; each of these sums them for the targets that
//! it knows, and lends the sums to the vertex partitions of its grid column, which add them up and apply the
//! rule. Everything is summed in an order that the cut fixes, so the number of threads enters nothing.

use super::blocked_edges::BlockedEdges;
use super::edges::{EdgeList, GraphError, is_share};
use super::lending::{Lending, LentValues};
use super::meeting::{Real, Sums};
use super::travel::{Doors, Gates, Roads, Ways, add_up, deal};
use super::vertex_cut::VertexCut;
use brambling_program::{
    Dataset, Foreign, Inbox, KernelError, Outbox, Partitioner, Program, Sum, Work,
};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The width of what travels along edges and is read there. Ranks and sums are doubles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// 64 bits.
    #[default]
    F64,
    /// 32 bits: half the bytes to gather from, and ranks that are right to 1e-6 of themselves.
    F32,
}

impl Precision {
    /// All of them.
    pub const ALL: [Precision; 2] = [Precision::F64, Precision::F32];

    /// As NumPy calls it.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F64 => "float64",
            Precision::F32 => "float32",
        }
    }
}

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
    /// The width of what travels along edges.
    pub precision: Precision,
}

/// How the search stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankSearch {
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
brambling_program::payload!(RankSearch);

/// The ranks of a partition's vertices, and what they need: doubles, whatever the width of what travels, so that an
/// iteration rounds a rank to that width once.
#[derive(Clone, Debug, Default)]
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
brambling_program::payload!(Vertices {
    ranks,
    inverses,
    starts,
    uniform,
    next,
    part
});

/// What [`PageRank::build`] leaves in the program.
#[derive(Clone, Copy, Debug)]
pub struct Ranking {
    /// The ranks; kept.
    pub vertices: Dataset<Vertices>,
    /// How the search ended; kept.
    pub search: Dataset<RankSearch>,
}

/// How many partitions a graph is cut into when nobody says: a function of the graph, never of the machine.
///
/// Sums and lists of sources grow with a grid's sides, so that a sparse graph gets fewer of them, and a large one
/// no more than keep many cores busy.
pub fn partitions_of(vertices: usize, edges: usize) -> u32 {
    let side = (edges >> 18).isqrt().min(4).max((edges >> 22).isqrt());
    let side = side.min(edges / vertices.max(1)).clamp(1, 16);
    (side as u32).pow(2)
}

/// The most partitions that a graph is cut into: building sends a piece between any two of them.
pub const PARTITIONS_MAX: u32 = 1_024;

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

    /// Adds the program's stages to `p`. `observe` may add some before the first iteration and where one ends.
    /// Weights whose sums overflow fail the job; the error's source is a [`GraphError`].
    ///
    /// # Movement
    /// Edges move once, into a grid of at most `partitions` partitions ([`VertexCut`]). In an iteration a
    /// vertex's share is lent to one row of the grid, if any edge begins at it, and the sums for it by one column.
    ///
    /// # Panics
    /// When [`PageRank::check`] would refuse the graph or a parameter.
    pub fn build<R: Real>(
        &self,
        p: &mut Program,
        edges: EdgeList,
        partitions: u32,
        observe: &dyn Fn(&mut Program, &Dataset<RankSearch>),
    ) -> Ranking {
        let cut = VertexCut::new(edges.vertices, partitions.min(PARTITIONS_MAX));
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
        let roads = prepare(p, edges, cut, &vertices);
        let mass = p.like::<Mass, _>("mass", &vertices);
        let total = p.temporary::<Mass>("total mass", 1);
        let search = p.dataset::<RankSearch>("search", 1);
        p.compute("weigh")
            .read(&vertices)
            .write(&mass)
            .run(|vertices: &Vertices, mass: &mut Mass| *mass = [0.0, vertices.dangling()]);
        p.reduce_to(Sum, &mass, &total);
        p.compute("start").read(&total).write(&search).run(
            |total: &Mass, search: &mut RankSearch| {
                *search = RankSearch {
                    searching: true,
                    dangling: total[1],
                    ..RankSearch::default()
                };
            },
        );
        observe(p, &search);
        let local = p.like::<RankSearch, _>("local search", &vertices);
        let shares = p.like::<Lending<R>, _>("shares", &vertices);
        p.repeat_while(
            "searching",
            &search,
            |search| search.searching,
            |p| {
                p.broadcast(&search, &local);
                p.compute("share")
                    .read(&vertices)
                    .read(&roads.gates)
                    .update(&shares)
                    .run(
                        |vertices: &Vertices, gates: &Gates, shares: &mut Lending<R>| {
                            vertices.share(gates, shares);
                            // A rank, an inverse and a share.
                            Work::streamed(24 * vertices.ranks.len() as u64)
                                .and_flops(vertices.ranks.len() as u64)
                        },
                    );
                roads.travel(p, &shares, |p, exchange| {
                    p.gather("apply", exchange)
                        .read(&local)
                        .read(&roads.doors)
                        .update(&vertices)
                        .write(&mass)
                        .named("graph.pagerank.apply", Vec::new())
                        .with(rule.damping)
                        .run(
                            |damping: &f64,
                             inbox: &mut Inbox<'_, LentValues<f64>>,
                             search: &RankSearch,
                             doors: &Doors,
                             vertices: &mut Vertices,
                             mass: &mut Mass| {
                                vertices.sum::<R>(inbox, doors);
                                *mass = vertices.apply(search.dangling, *damping);
                                let count = vertices.ranks.len() as u64;
                                // Old and new ranks are read, and new ones written.
                                Work::streamed(24 * count).and_flops(6 * count)
                            },
                        );
                });
                p.reduce_to(Sum, &mass, &total);
                p.compute("judge")
                    .read(&total)
                    .update(&search)
                    .named("graph.pagerank.judge", Vec::new())
                    .with(rule)
                    .run(|rule: &Rule, total: &Mass, search: &mut RankSearch| {
                        search.advance(total, *rule)
                    });
                observe(p, &search);
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

/// Adds what is done once: edges move to their partitions, and vertices learn the weight of their out-edges.
fn prepare<R: Real>(
    p: &mut Program,
    edges: EdgeList,
    cut: VertexCut,
    vertices: &Dataset<Vertices>,
) -> Roads<Sums<R>> {
    let edges = deal::<BlockedEdges>(p, edges, cut, Ways::Forward);
    let weights = p.like::<Lending<f64>, _>("out-weights", &edges);
    p.compute("out-weights")
        .read(&edges)
        .write(&weights)
        .with(cut)
        .run(
            |cut: &VertexCut, edges: &BlockedEdges, weights: &mut Lending<f64>| {
                edges.add_out_weights(weights.filled(cut.source_slots(), 0.0));
            },
        );
    let exchange = p.exchange::<LentValues<f64>>("out-weights", cut.along_rows());
    p.scatter("out-weights", &exchange)
        .read(&weights)
        .run(|weights: &Lending<f64>, out: &mut Outbox<'_, LentValues<f64>>| weights.lend(out));
    p.gather("out-weights", &exchange)
        .update(vertices)
        .with(cut)
        .run(
            |cut: &VertexCut, inbox: &mut Inbox<'_, LentValues<f64>>, vertices: &mut Vertices| {
                vertices.weigh::<R>(inbox, cut.slots_as_sources(vertices.part));
            },
        );
    Roads::new(p, cut, edges)
}

/// The rule of an iteration.
#[derive(Clone, Copy, Default)]
struct Rule {
    damping: f64,
    threshold: f64,
    max_iter: u64,
}
brambling_program::payload!(Rule {
    damping,
    threshold,
    max_iter
});

impl RankSearch {
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
    fn weigh<R: Real>(&mut self, inbox: &mut Inbox<'_, LentValues<f64>>, slots: Range<usize>) {
        let mut weights = vec![0.0; self.inverses.len()];
        add_up(&mut weights, inbox, slots);
        let inverses = weights.into_iter().map(|weight| match 1.0 / weight {
            _ if weight == 0.0 => 0.0,
            inverse if R::INVERSES.contains(&inverse) => inverse,
            // What is not a number is seen when the changes are summed.
            _ => f64::NAN,
        });
        self.inverses = inverses.collect();
    }

    /// What each out-edge of weight 1 brings.
    fn share<R: Real>(&self, gates: &Gates, shares: &mut Lending<R>) {
        let (ranks, inverses) = (&self.ranks, &self.inverses);
        shares.fill(gates.pass(|place| R::of(ranks[place] * inverses[place])));
    }

    /// Rank of the vertices without out-edges.
    fn dangling(&self) -> f64 {
        let both = self.ranks.iter().zip(&self.inverses);
        both.filter(|(_, inverse)| **inverse == 0.0)
            .map(|(&rank, _)| rank)
            .sum()
    }

    /// Takes the sums over in-edges, which the edge partitions of the column know.
    fn sum<R: Real>(&mut self, inbox: &mut Inbox<'_, LentValues<f64>>, doors: &Doors) {
        self.next.fill(0.0);
        doors.join::<Sums<R>, false>(&mut self.next, inbox);
    }

    /// The next ranks, from the sums over in-edges.
    fn apply(&mut self, dangling: f64, damping: f64) -> Mass {
        let anew = 1.0 - damping;
        let (mut change, mut lost) = (0.0, 0.0);
        for (at, next) in self.next.iter_mut().enumerate() {
            let start = self.starts.get(at).copied().unwrap_or(self.uniform);
            *next = damping * (*next + dangling * start) + anew * start;
            change += (*next - self.ranks[at]).abs();
            if self.inverses[at] == 0.0 {
                lost += *next;
            }
        }
        std::mem::swap(&mut self.ranks, &mut self.next);
        [change, lost]
    }
}
