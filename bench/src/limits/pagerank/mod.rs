//! PageRank by hand: pull loops over compressed rows of in-edges, and gathers from a table in the cache.
//!
//! An iteration adds up, for each vertex, what the sources of its in-edges bring, applies the rule, and notes
//! how much the ranks changed and how much rank lies on vertices without out-edges. Every variant computes all
//! of it, so that the bench can hold them against each other. What a source brings is computed once, when its
//! rank is: one pass, one barrier.

use super::{Bare, turns};
use brambling_machine::IsaLevel::{self, V2, V4};
use brambling_machine::crew;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

#[cfg(target_arch = "x86_64")]
mod avx512;
mod real;
mod scalar;
#[cfg(test)]
mod tests;

pub use real::Real;

/// The share of rank that follows the edges.
pub const DAMPING: f64 = 0.85;
/// What a thread claims at a time: in graphs of this bench some 100,000 edges.
const CHUNK_VERTICES: usize = 4 << 10;
const CHUNK_GATHERS: usize = 64 << 10;
/// How many edges ahead the loops with a prefetch look.
const AHEAD: usize = 64;

/// The in-edges of each vertex.
#[derive(Clone, Debug)]
pub struct InEdges {
    /// Where the sources of each vertex begin; one more at the end.
    starts: Vec<usize>,
    /// Sources, those of a vertex ascending; [`AHEAD`] more that no edge has.
    sources: Vec<u32>,
    out_degrees: Vec<u32>,
}

impl InEdges {
    /// Sorts edges by target, then source.
    ///
    /// # Panics
    /// When an end of an edge is no vertex.
    pub fn new(vertices: usize, sources: &[u32], targets: &[u32]) -> InEdges {
        // Twice a counting sort, which keeps the order of equals: first by source, then by target.
        let mut out_degrees = vec![0u32; vertices];
        sources
            .iter()
            .for_each(|&source| out_degrees[source as usize] += 1);
        let by_source = sorted(vertices, sources, |at| targets[at]);
        let mut starts = vec![0; vertices + 1];
        let mut ordered = vec![0; sources.len() + AHEAD];
        targets
            .iter()
            .for_each(|&target| starts[target as usize + 1] += 1);
        for at in 0..vertices {
            starts[at + 1] += starts[at];
        }
        let mut next = starts.clone();
        let mut at = 0;
        for (source, &degree) in (0..).zip(&out_degrees) {
            for &target in &by_source[at..at + degree as usize] {
                let next = &mut next[target as usize];
                ordered[*next] = source;
                *next += 1;
            }
            at += degree as usize;
        }
        InEdges {
            starts,
            sources: ordered,
            out_degrees,
        }
    }

    /// How many vertices there are.
    pub fn vertices(&self) -> usize {
        self.out_degrees.len()
    }

    /// What each vertex sends along an out-edge for a rank of 1.
    fn inverses<R: Real>(&self) -> Vec<R> {
        let inverse = |&degree: &u32| match degree {
            0 => R::default(),
            degree => R::of(1.0 / f64::from(degree)),
        };
        self.out_degrees.iter().map(inverse).collect()
    }
}

/// `value` of each index, by key, in the order of indexes.
fn sorted(keys: usize, of: &[u32], value: impl Fn(usize) -> u32) -> Vec<u32> {
    let mut next = vec![0usize; keys + 1];
    of.iter().for_each(|&key| next[key as usize + 1] += 1);
    for at in 0..keys {
        next[at + 1] += next[at];
    }
    let mut sorted = vec![0; of.len()];
    for (at, &key) in of.iter().enumerate() {
        let next = &mut next[key as usize];
        sorted[*next] = value(at);
        *next += 1;
    }
    sorted
}

/// Ranks after some iterations by the loop that anyone would write first: one thread, one sum.
pub fn plain_loop<R: Real>(edges: &InEdges, iterations: usize) -> Vec<R> {
    let n = edges.vertices();
    let inverses: Vec<R> = edges.inverses();
    let mut ranks = vec![R::of(1.0 / n as f64); n];
    for _ in 0..iterations {
        let lost = (0..n).filter(|&vertex| edges.out_degrees[vertex] == 0);
        let lost: f64 = lost.map(|vertex| ranks[vertex].into()).sum();
        let shares: Vec<R> = ranks.iter().zip(&inverses).map(|(&r, &i)| r * i).collect();
        let base = base(lost, n);
        for (vertex, rank) in ranks.iter_mut().enumerate() {
            let mut sum = R::default();
            for &source in &edges.sources[edges.starts[vertex]..edges.starts[vertex + 1]] {
                sum += shares[source as usize];
            }
            *rank = R::of(DAMPING) * sum + R::of(base);
        }
    }
    ranks
}

/// What every vertex gets.
fn base(lost: f64, vertices: usize) -> f64 {
    (DAMPING * lost + (1.0 - DAMPING)) / vertices as f64
}

/// The sums of rows `bounds[i]..bounds[i + 1]` of places into the last. Places lie in the table, and [`AHEAD`] more
/// follow the last row.
type SumRows<R> = fn(&[R], &[u32], &[usize], &mut [R]);

/// How a loop gathers.
#[derive(Clone, Copy, Debug)]
pub struct Gather<R> {
    /// The name of gathers from a table in the cache: where a prefetch has nothing to do, there are none.
    cached: Option<&'static str>,
    sum_rows: SumRows<R>,
}

/// A bare pull loop.
pub type BareLoop<R> = Bare<Gather<R>>;

const fn bare<R: Copy>(
    name: &'static str,
    cached: Option<&'static str>,
    isa: IsaLevel,
    sum_rows: SumRows<R>,
) -> BareLoop<R> {
    Bare::new(name, isa, Gather { cached, sum_rows })
}

/// What a bare loop found, and how long it took.
#[derive(Clone, Debug)]
pub struct Iterated<R> {
    /// The ranks after the last iteration.
    pub ranks: Vec<R>,
    /// The sum of the ranks' changes in the last iteration.
    pub change: f64,
    /// The wall time of each iteration, in seconds.
    pub seconds: Vec<f64>,
}

impl<R: Real> BareLoop<R> {
    const ALL: &[BareLoop<R>] = &[
        // One sum; eight side by side; with a software prefetch.
        bare(
            "bare-scalar",
            Some("gather-scalar"),
            V2,
            scalar::sum_rows::<R, 1, false>,
        ),
        bare(
            "bare-unrolled",
            Some("gather-unrolled"),
            V2,
            scalar::sum_rows::<R, 8, false>,
        ),
        bare(
            "bare-unrolled-prefetch",
            None,
            V2,
            scalar::sum_rows::<R, 8, true>,
        ),
        // Gathers of 512 bits, four sums side by side; with a software prefetch.
        bare(
            "bare-avx512",
            Some("gather-avx512"),
            V4,
            R::sum_rows_avx512::<false>,
        ),
        bare("bare-avx512-prefetch", None, V4, R::sum_rows_avx512::<true>),
    ];

    /// The loops this CPU can run.
    pub fn available() -> Vec<BareLoop<R>> {
        super::available(Self::ALL)
    }

    /// The loops that gather from a table in the cache, and their names there.
    pub fn cached() -> impl Iterator<Item = (&'static str, BareLoop<R>)> {
        let named = |bare: BareLoop<R>| Some((bare.kernel.cached?, bare));
        Self::available().into_iter().filter_map(named)
    }

    /// Does `iterations` iterations from equal ranks, as [`turns`] says.
    ///
    /// # Panics
    /// When this CPU lacks the loop's instruction set, or `iterations` is 0.
    pub fn iterate(self, edges: &InEdges, places: &[usize], iterations: usize) -> Iterated<R> {
        let Gather { sum_rows, .. } = self.kernel();
        let state = State::<R>::new(edges);
        let mass = Mutex::new(state.first_mass());
        let seconds = turns(
            places,
            iterations,
            edges.vertices().div_ceil(CHUNK_VERTICES),
            |turn| Part {
                turn,
                lost: mass.lock().expect("no panic holds it")[1],
                mass: [0.0; 2],
                sums: vec![R::default(); CHUNK_VERTICES],
            },
            |chunk, part| state.turn(sum_rows, chunk * CHUNK_VERTICES, part),
            |parts| {
                let parts = parts.iter().map(|part| part.mass);
                *mass.lock().expect("no panic holds it") =
                    parts.fold([0.0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
            },
        );
        let [change, _] = mass.into_inner().expect("no panic held it");
        Iterated {
            ranks: state.ranks.into_values(),
            change,
            seconds,
        }
    }

    /// Seconds in which as many threads gather the values at `at` from `table`, which all of them read.
    ///
    /// # Panics
    /// When this CPU lacks the loop's instruction set, or a place is not in the table.
    pub fn gather(self, table: &[R], at: &Gathers, places: &[usize]) -> (f64, f64) {
        let Gather { sum_rows, .. } = self.kernel();
        assert!(at.below <= table.len());
        let next = AtomicUsize::new(0);
        let results = crew::run(places, |member| {
            // Into this core's cache.
            std::hint::black_box(table.iter().fold(R::default(), |sum, &value| sum + value));
            let mut total = 0.0;
            member.barrier();
            let begin = Instant::now();
            loop {
                // Relaxed: only the claims must be distinct.
                let start = next.fetch_add(CHUNK_GATHERS, Ordering::Relaxed);
                if start >= at.len() {
                    break;
                }
                let bounds = [start, at.len().min(start + CHUNK_GATHERS)];
                let mut sum = [R::default()];
                sum_rows(table, &at.places, &bounds, &mut sum);
                total += sum[0].into();
            }
            member.barrier();
            (begin.elapsed().as_secs_f64(), total)
        });
        (results[0].0, results.iter().map(|result| result.1).sum())
    }
}

/// Places of a table, to be gathered one after another.
#[derive(Clone, Debug)]
pub struct Gathers {
    places: Vec<u32>,
    below: usize,
}

impl Gathers {
    /// Takes places that are all below `below`.
    ///
    /// # Panics
    /// When one is not.
    pub fn new(below: usize, mut places: Vec<u32>) -> Gathers {
        assert!(places.iter().all(|&place| (place as usize) < below));
        places.resize(places.len() + AHEAD, 0);
        Gathers { places, below }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len() - AHEAD
    }
}

/// Values of which each thread writes its own.
struct Shared<R>(Vec<UnsafeCell<R>>);

#[allow(unsafe_code)]
// SAFETY: whoever asks for a part promises that nobody else has it.
unsafe impl<R: Real> Sync for Shared<R> {}

#[allow(unsafe_code)]
impl<R: Real> Shared<R> {
    fn new(values: Vec<R>) -> Shared<R> {
        Shared(values.into_iter().map(UnsafeCell::new).collect())
    }

    fn into_values(self) -> Vec<R> {
        self.0.into_iter().map(UnsafeCell::into_inner).collect()
    }

    /// # Safety
    /// Nobody writes while the values are read.
    unsafe fn read(&self) -> &[R] {
        // SAFETY: a cell has the layout of its value, and nobody writes.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len()) }
    }

    /// # Safety
    /// Nobody else reads or writes the part meanwhile.
    #[allow(clippy::mut_from_ref)] // That is what the cells are for.
    unsafe fn part(&self, range: Range<usize>) -> &mut [R] {
        let part = &self.0[range];
        // SAFETY: a cell has the layout of its value and may be written; nobody else has the part.
        unsafe { std::slice::from_raw_parts_mut(UnsafeCell::raw_get(part.as_ptr()), part.len()) }
    }
}

/// What one thread does in a turn.
struct Part<R> {
    turn: usize,
    /// The rank of vertices without out-edges, before the turn.
    lost: f64,
    /// Changes, and the rank of vertices without out-edges.
    mass: [f64; 2],
    /// Room for the sums of a chunk.
    sums: Vec<R>,
}

/// What the threads of a crew share.
struct State<'e, R> {
    edges: &'e InEdges,
    inverses: Vec<R>,
    ranks: Shared<R>,
    /// What a vertex brings: read in a turn, and written for the next.
    shares: [Shared<R>; 2],
}

impl<'e, R: Real> State<'e, R> {
    fn new(edges: &'e InEdges) -> State<'e, R> {
        let n = edges.vertices();
        let inverses: Vec<R> = edges.inverses();
        let first = R::of(1.0 / n as f64);
        let shares = inverses.iter().map(|&inverse| first * inverse).collect();
        State {
            edges,
            inverses,
            ranks: Shared::new(vec![first; n]),
            shares: [Shared::new(shares), Shared::new(vec![R::default(); n])],
        }
    }

    /// Changes, and the rank of vertices without out-edges, before the first turn.
    fn first_mass(&self) -> [f64; 2] {
        let degrees = &self.edges.out_degrees;
        let lost = degrees.iter().filter(|degree| **degree == 0).count();
        [0.0, lost as f64 / degrees.len() as f64]
    }

    /// Does a chunk of vertices, which one thread claimed. Between two barriers.
    #[allow(unsafe_code)]
    fn turn(&self, sum_rows: SumRows<R>, start: usize, part: &mut Part<R>) {
        let n = self.edges.vertices();
        let (damping, base) = (R::of(DAMPING), R::of(base(part.lost, n)));
        let own = start..n.min(start + CHUNK_VERTICES);
        let sums = &mut part.sums[..own.len()];
        let bounds = &self.edges.starts[start..=own.end];
        // SAFETY: this half is written in other turns only, which a barrier is between.
        let shares = unsafe { self.shares[part.turn % 2].read() };
        sum_rows(shares, &self.edges.sources, bounds, sums);
        // SAFETY: a chunk is claimed by one thread.
        let ranks = unsafe { self.ranks.part(own.clone()) };
        // SAFETY: as above, and this half is not read in this turn.
        let next = unsafe { self.shares[1 - part.turn % 2].part(own.clone()) };
        for (at, &inverse) in self.inverses[own].iter().enumerate() {
            let rank = damping * sums[at] + base;
            part.mass[0] += (rank - ranks[at]).into().abs();
            if inverse == R::default() {
                part.mass[1] += rank.into();
            }
            (ranks[at], next[at]) = (rank, rank * inverse);
        }
    }
}
