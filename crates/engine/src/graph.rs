//! Algorithms on graphs.

use crate::{Caller, Error, Failure, Outcome, RunOptions, Tally};
pub use brambling_operators::graph::edges::{EdgeList, GraphError, Ids, Relabelled, relabel};
use brambling_operators::graph::pagerank::{
    self as ranking, PARTITIONS_MAX, Vertices, partitions_of,
};
use brambling_operators::graph::vertex_cut::VertexCut;
use brambling_program::{Foreign, Program};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How [`pagerank`] ranks, and when it stops. As networkx has it.
#[derive(Clone, Debug)]
pub struct PageRank {
    /// The share of rank that follows the edges; the rest starts anew. 0 to 1.
    pub damping: f64,
    /// Stop when the ranks' changes add up to less than this times the number of vertices; 0: never.
    pub tol: f64,
    /// The most iterations: each is one pass over the edges.
    pub max_iter: u64,
    /// Where rank starts anew, and where that of vertices without out-edges goes: a value for each vertex, of
    /// which only the shares of their sum count. The same for all vertices when not given.
    pub personalization: Option<Foreign<f64>>,
}

impl Default for PageRank {
    fn default() -> PageRank {
        PageRank {
            damping: 0.85,
            tol: 1e-6,
            max_iter: 100,
            personalization: None,
        }
    }
}

/// Why a graph could not be worked on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnalysisError {
    /// The graph or a parameter cannot be used.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The job did not give its result.
    #[error(transparent)]
    Run(Error),
}

impl From<Error> for AnalysisError {
    /// A kernel that found something wrong with the graph says so in its error's source.
    fn from(mut error: Error) -> AnalysisError {
        let Error::Failure(Failure::Kernel { error: kernel, .. }) = &mut error else {
            return AnalysisError::Run(error);
        };
        match kernel.take_source().map(|source| source.downcast()) {
            Some(Ok(graph)) => AnalysisError::Graph(*graph),
            _ => AnalysisError::Run(error),
        }
    }
}

/// Ranks, and how they were found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ranked {
    /// The rank of each vertex. They add up to 1.
    pub ranks: Vec<f64>,
    /// Iterations done.
    pub iterations: u64,
    /// Whether the ranks changed little enough. Otherwise `max_iter` ended the search.
    pub converged: bool,
    /// The sum of the ranks' changes in the last iteration.
    pub change: f64,
    /// What the job did.
    pub tally: Tally,
    /// Until the edges were in their partitions.
    pub dealing: Duration,
    /// From then to the last iteration's end.
    pub search: Duration,
}

impl Ranked {
    /// Mean seconds of an iteration.
    pub fn seconds_per_iteration(&self) -> f64 {
        self.search.as_secs_f64() / self.iterations.max(1) as f64
    }
}

/// PageRank (Page, Brin, Motwani, Winograd 1999): the rank of each vertex, by power iteration from equal
/// ranks. Parallel edges add up, self-loops count, weights are shares of the sum over a vertex's out-edges,
/// and the rank of vertices without any goes where rank starts anew. Ctrl-C ends it early.
///
/// Edges are cut over a grid of partitions, so that no vertex is known to more than 2·√partitions of them
/// (after PowerGraph, OSDI 2012, and Canary, §5). The result has the same bits for any number of threads; the
/// number of partitions enters the sums. Unless the options give it, it follows the graph alone.
///
/// ```
/// use brambling::graph::{EdgeList, PageRank, pagerank};
/// use brambling::prelude::*;
///
/// // 1 and 2 lead to 0, which leads to 1; nothing leads to 2.
/// let edges = EdgeList::new(3, vec![1u32, 2, 0], vec![0u32, 0, 1]);
/// let ranked = pagerank(&edges, &PageRank::default(), &RunOptions::new())?;
/// assert!(ranked.converged && ranked.ranks[0] > ranked.ranks[1]);
/// assert!((ranked.ranks[2] - 0.15 / 3.0).abs() < 1e-6);
/// # Ok::<(), brambling::graph::AnalysisError>(())
/// ```
///
/// # Errors
/// A parameter out of range, a graph that cannot be used (with the edge), or how the job failed.
pub fn pagerank(
    edges: &EdgeList,
    how: &PageRank,
    options: &RunOptions,
) -> Result<Ranked, AnalysisError> {
    rank(edges, how, options, |p| options.run(p))
}

/// As [`pagerank`]; `caller` is asked for interruptions.
///
/// # Errors
/// As [`pagerank`].
pub fn pagerank_with(
    edges: &EdgeList,
    how: &PageRank,
    options: &RunOptions,
    caller: &mut dyn Caller,
) -> Result<Ranked, AnalysisError> {
    rank(edges, how, options, |p| options.run_with(p, caller))
}

fn rank(
    edges: &EdgeList,
    how: &PageRank,
    options: &RunOptions,
    run: impl FnOnce(Program) -> Result<Outcome, Error>,
) -> Result<Ranked, AnalysisError> {
    let how = ranking::PageRank {
        damping: how.damping,
        tol: how.tol,
        max_iter: how.max_iter,
        personalization: how.personalization.clone(),
    };
    how.check(edges)?;
    let partitions = options.resolve()?.partitions;
    let partitions = partitions.unwrap_or_else(|| partitions_of(edges.vertices, edges.len()));
    let times = Times::default();
    let watch = times.clone();
    let mut p = Program::new("pagerank");
    let ranking = how.build(&mut p, edges.clone(), partitions, move |_| watch.note());
    let started = Instant::now();
    let mut outcome = run(p)?;
    let search = outcome.take(&ranking.search);
    let vertices = outcome.take_all(&ranking.vertices);
    let (dealt, ended) = times.read().unwrap_or((started, started));
    Ok(Ranked {
        ranks: in_order(
            VertexCut::new(edges.vertices, partitions.min(PARTITIONS_MAX)),
            vertices,
        ),
        iterations: search.iterations,
        converged: search.converged,
        change: search.change,
        tally: outcome.tally(),
        dealing: dealt - started,
        search: ended - dealt,
    })
}

/// The ranks by vertex.
fn in_order(cut: VertexCut, parts: Vec<Vertices>) -> Vec<f64> {
    let mut ranks = vec![0.0; cut.vertices()];
    for (part, vertices) in (0..).zip(parts) {
        let mut rest = &vertices.ranks[..];
        for range in cut.vertices_of(part) {
            let (own, others) = rest.split_at(range.len());
            ranks[range].copy_from_slice(own);
            rest = others;
        }
    }
    ranks
}

/// When the search was first seen, and when last.
#[derive(Clone, Default)]
struct Times(Arc<Mutex<Option<(Instant, Instant)>>>);

impl Times {
    fn note(&self) {
        let now = Instant::now();
        let mut times = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = times.map_or(now, |(first, _)| first);
        *times = Some((first, now));
    }

    fn read(&self) -> Option<(Instant, Instant)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
