//! Algorithms on graphs.

mod links;

use crate::run::ProgramRun;
use crate::stopwatch::Stopwatch;
use crate::{Caller, Error, Failure, Outcome, RunOptions, Tally};
pub use brambling_operators::graph::edges::{EdgeList, GraphError, Ids};
use brambling_operators::graph::meeting::{Real, VertexValue};
pub use brambling_operators::graph::pagerank::Precision;
use brambling_operators::graph::pagerank::{self as ranking, PARTITIONS_MAX, partitions_of};
pub use brambling_operators::graph::relabel::{Relabelled, relabel, relabel_with};
use brambling_operators::graph::vertex_cut::VertexCut;
use brambling_operators::graph::{clustering, propagation, reach};
use brambling_program::{Foreign, Program};
use std::time::Duration;

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
    /// The width of what travels along edges.
    pub precision: Precision,
}

impl Default for PageRank {
    fn default() -> PageRank {
        PageRank {
            damping: 0.85,
            tol: 1e-6,
            max_iter: 100,
            personalization: None,
            precision: Precision::F64,
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
    /// Partitions of vertices, and as many of edges.
    pub partitions: u32,
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
/// (after PowerGraph, OSDI 2012, and Canary, §5). The result has the same bits for any number of threads. The grid
/// enters the sums, and follows the graph alone, unless [`RunOptions::grid`] gives it.
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
    let caller = None;
    rank(edges, how, ProgramRun { options, caller })
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
    let caller = Some(caller);
    rank(edges, how, ProgramRun { options, caller })
}

fn rank(
    edges: &EdgeList,
    how: &PageRank,
    run: ProgramRun<'_, '_>,
) -> Result<Ranked, AnalysisError> {
    let how = ranking::PageRank {
        damping: how.damping,
        tol: how.tol,
        max_iter: how.max_iter,
        personalization: how.personalization.clone(),
        precision: how.precision,
    };
    how.check(edges)?;
    run.options.resolve()?;
    let partitions = grid(run.options, edges)?;
    match how.precision {
        Precision::F64 => search::<f64>(&how, edges, partitions, run),
        Precision::F32 => search::<f32>(&how, edges, partitions, run),
    }
}

fn search<R: Real>(
    how: &ranking::PageRank,
    edges: &EdgeList,
    partitions: u32,
    run: ProgramRun<'_, '_>,
) -> Result<Ranked, AnalysisError> {
    let mut p = Program::new("pagerank");
    let watch = Stopwatch::start(&mut p);
    let look = |p: &mut Program, search: &_| Stopwatch::look(p, &watch, search);
    let ranking = how.build::<R>(&mut p, edges.clone(), partitions, &look);
    let mut outcome = run.run(p)?;
    let search = outcome.take(&ranking.search);
    let watch = outcome.take(&watch);
    let vertices = outcome.take_all(&ranking.vertices);
    let ranks = vertices.into_iter().map(|part| part.ranks);
    Ok(Ranked {
        ranks: by_vertex(edges.vertices, partitions, ranks),
        partitions: VertexCut::new(edges.vertices, partitions.min(PARTITIONS_MAX)).partitions(),
        iterations: search.iterations,
        converged: search.converged,
        change: search.change,
        tally: outcome.tally(),
        dealing: watch.first(),
        search: watch.rest(),
    })
}

/// What an algorithm found for each vertex.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VertexResults<V> {
    /// By vertex.
    pub values: Vec<V>,
    /// What the job did.
    pub tally: Tally,
}

/// Weakly connected components (LDBC Graphalytics' WCC): for each vertex the least vertex that it is connected
/// to, whichever way edges point.
///
/// ```
/// use brambling::graph::{EdgeList, connected_components};
/// use brambling::{QuietCaller, RunOptions};
///
/// let edges = EdgeList::new(5, vec![4u32, 1], vec![3u32, 3]);
/// let found = connected_components(&edges, &RunOptions::new(), &mut QuietCaller)?;
/// assert_eq!(found.values, [0, 1, 2, 1, 1]);
/// # Ok::<(), brambling::graph::AnalysisError>(())
/// ```
///
/// # Errors
/// A graph that cannot be used (with the edge), or how the job failed. `caller` is asked for interruptions.
pub fn connected_components(
    edges: &EdgeList,
    options: &RunOptions,
    caller: &mut dyn Caller,
) -> Result<VertexResults<u32>, AnalysisError> {
    let job = Analysis::new("connected-components", edges, options)?;
    job.reach(caller, reach::components)
}

/// Breadth-first search (LDBC Graphalytics' BFS): the fewest edges on a way from `from` to each vertex; nothing
/// where no way leads.
///
/// ```
/// use brambling::graph::{EdgeList, bfs};
/// use brambling::{QuietCaller, RunOptions};
///
/// let edges = EdgeList::new(4, vec![0u32, 1, 3], vec![1u32, 2, 2]);
/// let found = bfs(&edges, 0, &RunOptions::new(), &mut QuietCaller)?;
/// assert_eq!(found.values, [Some(0), Some(1), Some(2), None]);
/// # Ok::<(), brambling::graph::AnalysisError>(())
/// ```
///
/// # Errors
/// As [`connected_components`]; and a start that is no vertex.
pub fn bfs(
    edges: &EdgeList,
    from: usize,
    options: &RunOptions,
    caller: &mut dyn Caller,
) -> Result<VertexResults<Option<u32>>, AnalysisError> {
    let job = Analysis::new("bfs", edges, options)?;
    let from = start(edges, from)?;
    let found = job.reach(caller, |p, edges, parts| reach::hops(p, edges, parts, from))?;
    let hops = |hops| if hops == u32::MAX { None } else { Some(hops) };
    Ok(VertexResults {
        values: found.values.into_iter().map(hops).collect(),
        tally: found.tally,
    })
}

/// Single-source shortest paths (LDBC Graphalytics' SSSP): the least sum of weights on a way from `from` to each
/// vertex; infinite where no way leads. An edge weighs 1 when edges have no weights.
///
/// ```
/// use brambling::graph::{EdgeList, sssp};
/// use brambling::{QuietCaller, RunOptions};
///
/// let edges = EdgeList::new(4, vec![0u32, 1, 0], vec![1u32, 2, 2]).weighted(vec![1.0, 0.5, 3.0]);
/// let found = sssp(&edges, 0, &RunOptions::new(), &mut QuietCaller)?;
/// assert_eq!(found.values, [0.0, 1.0, 1.5, f64::INFINITY]);
/// # Ok::<(), brambling::graph::AnalysisError>(())
/// ```
///
/// # Errors
/// As [`bfs`]; weights must be finite and not negative, and their sums on shortest ways finite.
pub fn sssp(
    edges: &EdgeList,
    from: usize,
    options: &RunOptions,
    caller: &mut dyn Caller,
) -> Result<VertexResults<f64>, AnalysisError> {
    let job = Analysis::new("sssp", edges, options)?;
    let from = start(edges, from)?;
    let found = job.reach(caller, |p, edges, parts| {
        reach::distances(p, edges, parts, from)
    })?;
    match edges.first_overflow(&found.values) {
        Some(overflow) => Err(overflow.into()),
        None => Ok(found),
    }
}

/// Communities by label propagation (LDBC Graphalytics' CDLP): labels are vertices at first; in each of `turns`
/// turns a vertex takes the label that most of its neighbours have, the least of equally frequent ones. The
/// neighbours at both ends of in- and out-edges count, once an edge.
///
/// ```
/// use brambling::graph::{EdgeList, label_propagation};
/// use brambling::{QuietCaller, RunOptions};
///
/// let edges = EdgeList::new(3, vec![0u32, 1, 2], vec![1u32, 2, 0]);
/// let found = label_propagation(&edges, 2, &RunOptions::new(), &mut QuietCaller)?;
/// assert_eq!(found.values, [0, 0, 0]);
/// # Ok::<(), brambling::graph::AnalysisError>(())
/// ```
///
/// # Errors
/// As [`connected_components`].
pub fn label_propagation(
    edges: &EdgeList,
    turns: u64,
    options: &RunOptions,
    caller: &mut dyn Caller,
) -> Result<VertexResults<u32>, AnalysisError> {
    let job = Analysis::new("label-propagation", edges, options)?;
    job.run(
        caller,
        |p, edges, parts| propagation::propagate(p, edges, parts, turns),
        |outcome, labels| outcome.take_all(&labels).into_iter().map(|of| of.labels),
    )
}

/// Local clustering coefficients (LDBC Graphalytics' LCC): the directed edges between a vertex's neighbours ÷
/// those that there could be; 0 with fewer than two neighbours. Neighbours are those at the other ends of in-
/// and out-edges, each once; self-loops and parallel edges do not count.
///
/// ```
/// use brambling::graph::{EdgeList, local_clustering};
/// use brambling::{QuietCaller, RunOptions};
///
/// // Of the two edges that could be between 1 and 2, one is there.
/// let edges = EdgeList::new(3, vec![0u32, 0, 1], vec![1u32, 2, 2]);
/// let found = local_clustering(&edges, &RunOptions::new(), &mut QuietCaller)?;
/// assert_eq!(found.values, [0.5, 0.5, 0.5]);
/// # Ok::<(), brambling::graph::AnalysisError>(())
/// ```
///
/// # Errors
/// As [`connected_components`].
pub fn local_clustering(
    edges: &EdgeList,
    options: &RunOptions,
    caller: &mut dyn Caller,
) -> Result<VertexResults<f64>, AnalysisError> {
    let job = Analysis::new("local-clustering", edges, options)?;
    job.run(caller, clustering::coefficients, |outcome, found| {
        outcome.take_all(&found).into_iter()
    })
}

/// Partitions of a graph. The setting `partitions` does not enter, since it never changes a result.
fn grid(options: &RunOptions, edges: &EdgeList) -> Result<u32, GraphError> {
    match options.grid {
        Some(0) => Err(GraphError::Parameter {
            name: "grid",
            value: 0.0,
            range: "at least 1",
        }),
        Some(partitions) => Ok(partitions),
        None => Ok(partitions_of(edges.vertices, edges.len())),
    }
}

/// A job over a graph that was looked at.
struct Analysis<'a> {
    name: &'static str,
    edges: &'a EdgeList,
    options: &'a RunOptions,
    partitions: u32,
}

impl<'a> Analysis<'a> {
    fn new(
        name: &'static str,
        edges: &'a EdgeList,
        options: &'a RunOptions,
    ) -> Result<Analysis<'a>, AnalysisError> {
        edges.check()?;
        options.resolve()?;
        Ok(Analysis {
            name,
            edges,
            options,
            partitions: grid(options, edges)?,
        })
    }

    /// Builds, runs, and puts what `take` finds by partition and place in the order of vertices.
    fn run<V: Clone + Default, D, P: IntoIterator<Item = V>, I: Iterator<Item = P>>(
        self,
        caller: &mut dyn Caller,
        build: impl FnOnce(&mut Program, EdgeList, u32) -> D,
        take: impl FnOnce(&mut Outcome, D) -> I,
    ) -> Result<VertexResults<V>, AnalysisError> {
        let mut p = Program::new(self.name);
        let dataset = build(&mut p, self.edges.clone(), self.partitions);
        let run = ProgramRun {
            options: self.options,
            caller: Some(caller),
        };
        let mut outcome = run.run(p)?;
        let parts = take(&mut outcome, dataset);
        Ok(VertexResults {
            values: by_vertex(self.edges.vertices, self.partitions, parts),
            tally: outcome.tally(),
        })
    }

    fn reach<V: VertexValue>(
        self,
        caller: &mut dyn Caller,
        build: impl FnOnce(&mut Program, EdgeList, u32) -> reach::Reach<V>,
    ) -> Result<VertexResults<V>, AnalysisError> {
        self.run(caller, build, |outcome, reach| {
            let parts = outcome.take_all(&reach.vertices);
            parts.into_iter().map(|part| part.values)
        })
    }
}

/// What partitions have by place, by vertex.
fn by_vertex<V: Clone + Default, P: IntoIterator<Item = V>>(
    vertices: usize,
    partitions: u32,
    parts: impl Iterator<Item = P>,
) -> Vec<V> {
    let cut = VertexCut::new(vertices, partitions.min(PARTITIONS_MAX));
    let mut all = vec![V::default(); vertices];
    for (part, values) in (0..).zip(parts) {
        let own = cut.vertices_of(part).flatten();
        own.zip(values)
            .for_each(|(vertex, value)| all[vertex] = value);
    }
    all
}

/// A start that is a vertex.
fn start(edges: &EdgeList, from: usize) -> Result<u32, GraphError> {
    if from < edges.vertices {
        return Ok(from as u32);
    }
    Err(GraphError::Start {
        from,
        vertices: edges.vertices,
        last: edges.vertices - 1,
    })
}
