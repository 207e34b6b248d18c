//! Task Bench's dependence patterns: which tasks of the timestep before a task reads.
//!
//! The definitions are those of Task Bench's core (Slaughter et al., "Task Bench: A Parameterized
//! Benchmark for Evaluating Parallel Runtime Performance", SC 2020), whose graphs they reproduce
//! edge by edge, random ones included.

use super::siphash::siphash_2_4;

/// A pattern of dependencies between one timestep and the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// No dependencies at all.
    Trivial,
    /// Each point on itself.
    NoComm,
    /// Each point on itself and its two neighbours.
    Stencil1d,
    /// Each point on the `radix` points around it.
    Nearest,
    /// Each point on `radix` points spread over the width, shifted at every timestep.
    Spread,
    /// The butterfly, a distance that doubles at every timestep.
    Fft,
    /// A binary tree that fans out from point 0, then stays as wide as its leaves.
    Tree,
    /// Each point on all points.
    AllToAll,
    /// Each point on itself and a random quarter of the `radix` points around it.
    RandomNearest,
}

/// A task graph: a pattern, how wide, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct Graph {
    pattern: Pattern,
    width: usize,
    timesteps: usize,
    radix: usize,
    period: usize,
}

/// What a task leaves for its readers: who it was. 16 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Payload {
    /// The writer's timestep.
    pub timestep: u64,
    /// The writer's point.
    pub point: u64,
}

const RADIX: usize = 5;
const PERIOD: usize = 3;
// Of the possible random dependencies, how many there are.
const FRACTION_CONNECTED: f64 = 0.25;
const GRAPH_INDEX: u64 = 0;

impl Pattern {
    /// All patterns, in the order in which they are printed.
    pub const ALL: [Pattern; 9] = [
        Pattern::Trivial,
        Pattern::NoComm,
        Pattern::Stencil1d,
        Pattern::Nearest,
        Pattern::Spread,
        Pattern::Fft,
        Pattern::Tree,
        Pattern::AllToAll,
        Pattern::RandomNearest,
    ];

    /// Task Bench's name.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::Trivial => "trivial",
            Pattern::NoComm => "no_comm",
            Pattern::Stencil1d => "stencil_1d",
            Pattern::Nearest => "nearest",
            Pattern::Spread => "spread",
            Pattern::Fft => "fft",
            Pattern::Tree => "tree",
            Pattern::AllToAll => "all_to_all",
            Pattern::RandomNearest => "random_nearest",
        }
    }
}

impl Payload {
    /// What the task at `timestep` and `point` leaves.
    pub fn of(timestep: usize, point: usize) -> Payload {
        Payload {
            timestep: timestep as u64,
            point: point as u64,
        }
    }
}

impl Graph {
    /// A graph of radix 5 and period 3.
    ///
    /// On widths below 5 a spread cannot have five distinct dependencies, nor three distinct sets of
    /// them, and Task Bench refuses it; here its radix is the width, and its period as many sets as
    /// there are.
    ///
    /// # Panics
    /// When there is no point or no timestep.
    pub fn new(pattern: Pattern, width: usize, timesteps: usize) -> Graph {
        assert!(width > 0 && timesteps > 0);
        let radix = match pattern {
            Pattern::Spread => RADIX.min(width),
            _ => RADIX,
        };
        let period = match pattern {
            Pattern::Spread => PERIOD.min(width.div_ceil(radix)),
            Pattern::RandomNearest => PERIOD,
            // A butterfly on n points has ⌈log₂ n⌉ stages.
            Pattern::Fft => (width.next_power_of_two().trailing_zeros() as usize).max(1),
            _ => 1,
        };
        Graph {
            pattern,
            width,
            timesteps,
            radix,
            period,
        }
    }

    /// The pattern.
    pub fn pattern(&self) -> Pattern {
        self.pattern
    }

    /// Points of a timestep, where all of them are active.
    pub fn width(&self) -> usize {
        self.width
    }

    /// How many timesteps there are.
    pub fn timesteps(&self) -> usize {
        self.timesteps
    }

    /// How many points have a task at `timestep`: points 0 up to this one.
    pub fn width_at(&self, timestep: usize) -> usize {
        match self.pattern {
            Pattern::Tree => self.width.min(1 << timestep.min(62)),
            _ => self.width,
        }
    }

    /// How many tasks the graph has.
    pub fn tasks(&self) -> u64 {
        (0..self.timesteps)
            .map(|timestep| self.width_at(timestep) as u64)
            .sum()
    }

    /// How many inputs all tasks have together.
    pub fn inputs(&self) -> u64 {
        let edges = |timestep: usize| {
            let points = 0..self.width_at(timestep);
            points
                .map(|point| self.dependencies(timestep, point).len() as u64)
                .sum::<u64>()
        };
        let tables: Vec<u64> = (0..self.prologue() + self.period()).map(edges).collect();
        (0..self.timesteps)
            .map(|timestep| tables[self.representative(timestep)])
            .sum()
    }

    /// After how many timesteps the dependencies repeat, once [`Graph::prologue`] is over.
    pub fn period(&self) -> usize {
        self.period
    }

    /// The first timestep from which on every timestep has the same tasks and dependencies as the
    /// one a period later. Those before it differ: the first has no inputs, and a tree has to grow.
    pub fn prologue(&self) -> usize {
        (1..)
            .find(|&timestep| self.width_at(timestep - 1) == self.width)
            .expect("it grows")
    }

    /// A timestep up to [`Graph::prologue`] + [`Graph::period`] with the same tasks and the same
    /// dependencies as `timestep`: an index into tables of either.
    pub fn representative(&self, timestep: usize) -> usize {
        let prologue = self.prologue();
        match timestep.checked_sub(prologue) {
            Some(since) => prologue + since % self.period,
            None => timestep,
        }
    }

    /// The points of the timestep before that the task at `timestep` and `point` reads, in Task
    /// Bench's order, without duplicates. None at timestep 0.
    pub fn dependencies(&self, timestep: usize, point: usize) -> Vec<usize> {
        debug_assert!(point < self.width_at(timestep));
        let Some(before) = timestep.checked_sub(1) else {
            return Vec::new();
        };
        let active = self.width_at(before);
        let mut sources = self.sources(self.set_at(timestep), point);
        sources.retain(|&source| source < active);
        sources
    }

    /// Which of the `period` sets of dependencies lead into `timestep`.
    fn set_at(&self, timestep: usize) -> usize {
        match self.pattern {
            Pattern::Fft => (timestep + self.period - 1) % self.period,
            _ => timestep % self.period,
        }
    }

    fn sources(&self, set: usize, point: usize) -> Vec<usize> {
        let (width, radix) = (self.width, self.radix);
        match self.pattern {
            Pattern::Trivial => Vec::new(),
            Pattern::NoComm => vec![point],
            Pattern::Stencil1d => self.around(point, 1, 1),
            Pattern::Nearest => self.around(point, radix / 2, (radix - 1) / 2),
            Pattern::Spread => (0..radix)
                .map(|step| (point + step * width / radix + shift(step, set)) % width)
                .collect(),
            Pattern::Fft => self.butterfly(set, point),
            Pattern::Tree => vec![point / 2],
            Pattern::AllToAll => (0..width).collect(),
            Pattern::RandomNearest => {
                let mut sources = self.around(point, radix / 2, (radix - 1) / 2);
                sources.retain(|&source| self.is_connected(set, source, point));
                sources
            }
        }
    }

    fn around(&self, point: usize, left: usize, right: usize) -> Vec<usize> {
        (point.saturating_sub(left)..=(point + right).min(self.width - 1)).collect()
    }

    fn butterfly(&self, set: usize, point: usize) -> Vec<usize> {
        let distance = 1 << set;
        let left = point.checked_sub(distance);
        let right = Some(point + distance).filter(|&right| right < self.width);
        left.into_iter().chain([point]).chain(right).collect()
    }

    fn is_connected(&self, set: usize, source: usize, point: usize) -> bool {
        let words = [
            GRAPH_INDEX,
            self.radix as u64,
            set as u64,
            source as u64,
            point as u64,
        ];
        source == point || uniform(&words) < FRACTION_CONNECTED
    }
}

// A spread's first dependency stays where it is.
fn shift(step: usize, set: usize) -> usize {
    if step > 0 { set } else { 0 }
}

/// Task Bench's number in [0, 1) for `words`: the hash under the key 1, 2, … 15, 0.
fn uniform(words: &[u64]) -> f64 {
    const KEY: [u64; 2] = [0x0807_0605_0403_0201, 0x000f_0e0d_0c0b_0a09];
    siphash_2_4(KEY, words) as f64 / 2f64.powi(64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: Pattern, width: usize, timestep: usize, expected: &[&[usize]]) {
        let graph = Graph::new(pattern, width, 100);
        let found: Vec<_> = (0..graph.width_at(timestep))
            .map(|point| graph.dependencies(timestep, point))
            .collect();
        assert_eq!(found, expected, "{} at {timestep}", pattern.name());
    }

    #[test]
    fn small_graphs_worked_out_by_hand() {
        check(Pattern::Trivial, 3, 5, &[&[], &[], &[]]);
        check(Pattern::NoComm, 3, 0, &[&[], &[], &[]]);
        check(Pattern::NoComm, 3, 1, &[&[0], &[1], &[2]]);
        check(
            Pattern::Stencil1d,
            4,
            7,
            &[&[0, 1], &[0, 1, 2], &[1, 2, 3], &[2, 3]],
        );
        check(
            Pattern::Nearest,
            6,
            2,
            &[
                &[0, 1, 2],
                &[0, 1, 2, 3],
                &[0, 1, 2, 3, 4],
                &[1, 2, 3, 4, 5],
                &[2, 3, 4, 5],
                &[3, 4, 5],
            ],
        );
        check(Pattern::AllToAll, 2, 1, &[&[0, 1], &[0, 1]]);
    }

    #[test]
    fn a_tree_fans_out_and_then_stays() {
        check(Pattern::Tree, 4, 0, &[&[]]);
        check(Pattern::Tree, 4, 1, &[&[0], &[0]]);
        check(Pattern::Tree, 4, 2, &[&[0], &[0], &[1], &[1]]);
        check(Pattern::Tree, 4, 3, &[&[0], &[0], &[1], &[1]]);
        assert_eq!(Graph::new(Pattern::Tree, 4, 4).tasks(), 1 + 2 + 4 + 4);
        assert_eq!(Graph::new(Pattern::Tree, 16, 9).prologue(), 5);
    }

    #[test]
    fn a_butterfly_doubles_its_distance() {
        // Two stages; timestep 1 is the first stage.
        check(
            Pattern::Fft,
            4,
            1,
            &[&[0, 1], &[0, 1, 2], &[1, 2, 3], &[2, 3]],
        );
        check(Pattern::Fft, 4, 2, &[&[0, 2], &[1, 3], &[0, 2], &[1, 3]]);
        check(
            Pattern::Fft,
            4,
            3,
            &[&[0, 1], &[0, 1, 2], &[1, 2, 3], &[2, 3]],
        );
        assert_eq!(Graph::new(Pattern::Fft, 16, 9).period(), 4);
        assert_eq!(Graph::new(Pattern::Fft, 5, 9).period(), 3);
        check(Pattern::Fft, 1, 3, &[&[0]]);
    }

    #[test]
    fn a_spread_shifts_all_but_its_first() {
        let graph = Graph::new(Pattern::Spread, 16, 100);
        // i · 16 / 5 = 0, 3, 6, 9, 12; sets 0, 1, 2 are those of timesteps 3, 1, 2.
        assert_eq!(graph.dependencies(3, 0), [0, 3, 6, 9, 12]);
        assert_eq!(graph.dependencies(1, 0), [0, 4, 7, 10, 13]);
        assert_eq!(graph.dependencies(2, 5), [5, 10, 13, 0, 3]);
        check(Pattern::Spread, 2, 4, &[&[0, 1], &[1, 0]]);
    }

    // The hash is Task Bench's: its edges on the default graph, from an independent program that
    // hashes the five words with SipHash-2-4 under the key 1, 2, … 15, 0.
    #[test]
    fn random_edges_are_those_of_task_bench() {
        let graph = Graph::new(Pattern::RandomNearest, 16, 100);
        let edges: Vec<Vec<usize>> = (0..16).map(|point| graph.dependencies(3, point)).collect();
        assert_eq!(edges, RANDOM_SET_0);
    }

    const RANDOM_SET_0: [&[usize]; 16] = [
        &[0],
        &[1],
        &[2, 4],
        &[3, 4, 5],
        &[3, 4],
        &[5, 6, 7],
        &[4, 6, 7],
        &[7],
        &[8, 9],
        &[7, 9, 10],
        &[10],
        &[9, 11],
        &[10, 12, 13, 14],
        &[13],
        &[12, 13, 14],
        &[15],
    ];

    fn graphs() -> impl Iterator<Item = Graph> {
        let widths = [1, 2, 3, 4, 5, 7, 8, 16, 17];
        Pattern::ALL
            .into_iter()
            .flat_map(move |pattern| widths.map(|width| Graph::new(pattern, width, 20)))
    }

    #[test]
    fn dependencies_are_distinct_and_exist() {
        for graph in graphs() {
            for timestep in 1..graph.timesteps() {
                for point in 0..graph.width_at(timestep) {
                    let mut sources = graph.dependencies(timestep, point);
                    assert!(
                        sources
                            .iter()
                            .all(|&source| source < graph.width_at(timestep - 1))
                    );
                    let count = sources.len();
                    sources.sort_unstable();
                    sources.dedup();
                    assert_eq!(sources.len(), count, "{graph:?} {timestep} {point}");
                }
            }
        }
    }

    #[test]
    fn a_graph_repeats_after_its_prologue() {
        for graph in graphs() {
            for timestep in 0..graph.timesteps() {
                let same = graph.representative(timestep);
                assert!(same < graph.prologue() + graph.period());
                assert_eq!(graph.width_at(timestep), graph.width_at(same));
                for point in 0..graph.width_at(timestep) {
                    assert_eq!(
                        graph.dependencies(timestep, point),
                        graph.dependencies(same, point)
                    );
                }
            }
        }
    }

    #[test]
    fn a_payload_is_small() {
        assert_eq!(size_of::<Payload>(), 16);
    }
}
