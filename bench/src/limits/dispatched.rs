//! A task graph by hand as any engine has to run it that does not know its tasks: pinned threads that go through their columns in a fixed
//! order, and call two kernels a point and timestep. What a point sends must not wait for what the point is still to receive, so these are
//! two tasks; each is a call of a function that the caller cannot see into; and each input has a place and a stamp of its own, since its
//! reader may be anywhere. Nothing is scheduled, queued, stolen or counted, no program is followed, and nobody sleeps. It is the best of what we wrote,
//! not a proof that nothing is faster; the threads of [`super::task_graph`], which know their task and share a point's output among its readers, are
//! of another kind.

use std::hint::black_box;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use brambling_machine::crew::{self, Apart, Member};

use super::task_graph::{Ran, columns_of};
use crate::task_graph::{Graph, Kernel, Payload};

/// Turns that a place is kept open, as in the engine: how far a sender can run ahead of its readers.
const OPEN: usize = 4;

/// How a thread goes about it: each way is a loop of its own, and the fastest is the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// All columns scatter, then all gather. A piece has a cache line of its own.
    Phases,
    /// The same, with two pieces to a line.
    PhasesTogether,
    /// A column gathers, and scatters what comes of it at once.
    Columns,
    /// The same, with two pieces to a line.
    ColumnsTogether,
}

impl Way {
    /// All ways.
    pub const ALL: [Way; 4] = [
        Way::Phases,
        Way::PhasesTogether,
        Way::Columns,
        Way::ColumnsTogether,
    ];

    /// A stable name, for tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Way::Phases => "dispatched-phases",
            Way::PhasesTogether => "dispatched-phases-together",
            Way::Columns => "dispatched-columns",
            Way::ColumnsTogether => "dispatched-columns-together",
        }
    }

    fn by_columns(self) -> bool {
        matches!(self, Way::Columns | Way::ColumnsTogether)
    }
}

/// Where one source leaves its piece for one reader.
#[derive(Debug, Default)]
struct Place {
    /// One more than the turn whose piece this is; 0 before the first.
    stamp: AtomicU64,
    timestep: AtomicU64,
    point: AtomicU64,
}

impl Place {
    fn write(&self, piece: Payload) {
        self.timestep.store(piece.timestep, Ordering::Relaxed);
        self.point.store(piece.point, Ordering::Relaxed);
    }

    fn read(&self) -> Payload {
        Payload {
            timestep: self.timestep.load(Ordering::Relaxed),
            point: self.point.load(Ordering::Relaxed),
        }
    }

    fn is_stamped(&self, turn: usize) -> bool {
        // Acquire: the piece is visible. Pairs with the Release in `scatter`.
        self.stamp.load(Ordering::Acquire) == turn as u64 + 1
    }
}

/// Where a place lies among others.
trait Holds: Default + Sync {
    fn place(&self) -> &Place;
}

/// On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Alone(Place);

/// With another one.
#[derive(Debug, Default)]
#[repr(align(32))]
struct Together(Place);

impl Holds for Alone {
    fn place(&self) -> &Place {
        &self.0
    }
}

impl Holds for Together {
    fn place(&self) -> &Place {
        &self.0
    }
}

/// A point's state: what its tasks read and write.
#[derive(Debug, Default)]
struct Point {
    index: usize,
    output: Payload,
    passed: usize,
    tasks: u64,
    inputs: u64,
    mismatches: u64,
}

/// Where a scatter's piece goes.
#[derive(Clone, Copy, Debug)]
struct Route {
    /// Among all readers' places of a turn.
    place: u32,
    reader: u32,
}

/// What a point does in a turn, from one timestep to the next.
#[derive(Debug, Default)]
struct Turn {
    routes: Vec<Route>,
    /// Whose outputs it reads then, ascending; none where it has no task.
    sources: Option<Vec<u32>>,
}

/// What a scatter's kernel is given.
struct Out<'a, H> {
    places: &'a [H],
    routes: &'a [Route],
}

/// What a gather's kernel is given.
struct In<'a, H> {
    places: &'a [H],
    sources: &'a [u32],
}

type Scatter<'a, H> = dyn Fn(&Point, &Out<'_, H>) + Sync + 'a;
type Gather<'a, H> = dyn Fn(&mut Point, &In<'_, H>) + Sync + 'a;

/// The turns of every column, over the representative timesteps.
struct Plan {
    turns: Vec<Vec<Turn>>,
    /// Where the period begins.
    prologue: usize,
    /// The most places of a reader.
    width: usize,
}

impl Plan {
    fn new(graph: &Graph) -> Plan {
        let representatives = graph.prologue() + graph.period();
        // The last timestep has no readers, so a graph that ends later tells those of all.
        let endless = Graph::new(graph.pattern(), graph.width(), representatives + 2);
        let sources = |timestep: usize, point: usize| {
            (point < endless.width_at(timestep)).then(|| {
                let sources = endless.dependencies(timestep, point).into_iter();
                let mut sources: Vec<u32> = sources.map(|source| source as u32).collect();
                sources.sort_unstable();
                sources
            })
        };
        let all = || (0..representatives).flat_map(|at| (0..graph.width()).map(move |it| (at, it)));
        let fan_in = all().map(|(at, point)| sources(at + 1, point).map_or(0, |it| it.len()));
        let width = fan_in.max().unwrap_or(0);
        let turn = |at: usize, point: usize| {
            let readers = match point < endless.width_at(at) {
                true => endless.reverse_dependencies(at, point),
                false => Vec::new(),
            };
            let route = |reader: usize| {
                let theirs = sources(at + 1, reader).expect("it reads");
                let ordinal = theirs.iter().position(|&it| it as usize == point);
                Route {
                    place: (reader * width + ordinal.expect("it is read")) as u32,
                    reader: reader as u32,
                }
            };
            Turn {
                routes: readers.into_iter().map(route).collect(),
                sources: sources(at + 1, point),
            }
        };
        let turns = (0..graph.width())
            .map(|point| (0..representatives).map(|at| turn(at, point)).collect())
            .collect();
        Plan {
            turns,
            prologue: graph.prologue(),
            width,
        }
    }
}

/// What all threads see.
struct Shared<'a, H> {
    plan: &'a Plan,
    /// By open turn: the places of all readers.
    places: [Vec<H>; OPEN],
    /// Turns that each reader has done with.
    retired: Vec<Apart<AtomicU64>>,
    scatter: &'a Scatter<'a, H>,
    gather: &'a Gather<'a, H>,
}

/// Runs `graph` with `kernel` in every task, on one thread per entry of `places`, pinned.
pub fn run(graph: &Graph, kernel: Kernel, way: Way, places: &[usize]) -> Ran {
    match way {
        Way::Phases | Way::Columns => run_with::<Alone>(graph, kernel, way, places),
        Way::PhasesTogether | Way::ColumnsTogether => {
            run_with::<Together>(graph, kernel, way, places)
        }
    }
}

fn run_with<H: Holds>(graph: &Graph, kernel: Kernel, way: Way, places: &[usize]) -> Ran {
    let plan = &Plan::new(graph);
    let scatter = |point: &Point, out: &Out<'_, H>| {
        for route in out.routes {
            out.places[route.place as usize].place().write(point.output);
        }
    };
    let gather = |point: &mut Point, inbox: &In<'_, H>| {
        for (place, &source) in inbox.places.iter().zip(inbox.sources) {
            let expected = Payload::of(point.passed, source as usize);
            point.mismatches += u64::from(place.place().read() != expected);
            point.inputs += 1;
        }
        kernel.execute();
        point.tasks += 1;
        point.passed += 1;
        point.output = Payload::of(point.passed, point.index);
    };
    let shared = &Shared {
        plan,
        places: std::array::from_fn(|_| {
            (0..graph.width() * plan.width)
                .map(|_| H::default())
                .collect()
        }),
        retired: (0..graph.width()).map(|_| Apart::default()).collect(),
        // The threads cannot see what they call.
        scatter: black_box(&scatter),
        gather: black_box(&gather),
    };
    let parts = crew::run(places, |member| {
        let columns = columns_of(graph, member.index(), places.len());
        let mut part = Part::new(shared, columns);
        member.barrier();
        let start = Instant::now();
        part.begin(graph, kernel);
        match way.by_columns() {
            true => part.run_by_columns(graph.timesteps() - 1, member),
            false => part.run_in_phases(graph.timesteps() - 1, member),
        }
        member.barrier();
        (start.elapsed(), part.points)
    });
    let mut ran = Ran {
        wall: parts[0].0,
        tasks: Vec::new(),
        inputs: 0,
        mismatches: 0,
    };
    let last = graph.timesteps() - 1;
    for point in parts.iter().flat_map(|(_, points)| points) {
        ran.tasks.push(point.tasks);
        ran.inputs += point.inputs;
        ran.mismatches += point.mismatches;
        let is_last = point.index < graph.width_at(last);
        let is_right = point.output == Payload::of(last, point.index);
        ran.mismatches += u64::from(is_last && !is_right);
    }
    ran
}

/// One thread's columns.
struct Part<'a, H> {
    shared: &'a Shared<'a, H>,
    first: usize,
    points: Vec<Point>,
    /// In which order they scatter: those whom others read first. In phases they gather the other way about.
    order: Vec<usize>,
    /// Turns that each reader was last seen to have retired.
    known: Vec<u64>,
}

impl<'a, H: Holds> Part<'a, H> {
    fn new(shared: &'a Shared<'a, H>, columns: Range<usize>) -> Part<'a, H> {
        let turns = &shared.plan.turns;
        let is_shared = |column: usize| {
            let mut routes = turns[column].iter().flat_map(|turn| &turn.routes);
            routes.any(|route| !columns.contains(&(route.reader as usize)))
        };
        let mut order: Vec<usize> = (0..columns.len()).collect();
        order.sort_by_key(|&own| !is_shared(columns.start + own));
        let point = |index| Point {
            index,
            ..Point::default()
        };
        Part {
            shared,
            first: columns.start,
            points: columns.clone().map(point).collect(),
            order,
            known: vec![0; turns.len()],
        }
    }

    /// The first timestep, which has no inputs.
    fn begin(&mut self, graph: &Graph, kernel: Kernel) {
        for point in &mut self.points {
            if point.index < graph.width_at(0) {
                kernel.execute();
                point.tasks += 1;
                point.output = Payload::of(0, point.index);
            }
        }
    }

    /// The turn after one, among those of the plan.
    fn after(&self, at: usize) -> usize {
        let plan = self.shared.plan;
        match at + 1 < plan.turns[self.first].len() {
            true => at + 1,
            false => plan.prologue,
        }
    }

    #[inline(never)]
    fn run_by_columns(&mut self, turns: usize, member: &Member<'_>) {
        if turns == 0 {
            return;
        }
        for place in 0..self.order.len() {
            self.scatter(self.order[place], (0, 0), member);
        }
        let mut at = 0;
        for turn in 0..turns {
            let next = self.after(at);
            for place in 0..self.order.len() {
                let own = self.order[place];
                self.gather(own, (turn, at), member);
                if turn + 1 < turns {
                    self.scatter(own, (turn + 1, next), member);
                }
            }
            at = next;
        }
    }

    #[inline(never)]
    fn run_in_phases(&mut self, turns: usize, member: &Member<'_>) {
        let mut at = 0;
        for turn in 0..turns {
            for place in 0..self.order.len() {
                self.scatter(self.order[place], (turn, at), member);
            }
            for place in (0..self.order.len()).rev() {
                self.gather(self.order[place], (turn, at), member);
            }
            at = self.after(at);
        }
    }

    #[inline(always)]
    fn scatter(&mut self, own: usize, (turn, at): (usize, usize), member: &Member<'_>) {
        let Shared {
            plan,
            places,
            retired,
            scatter,
            ..
        } = self.shared;
        let routes = &plan.turns[self.first + own][at].routes;
        // What lies in the places is of `turn` − OPEN.
        let needed = (turn as u64 + 1).saturating_sub(OPEN as u64);
        for route in routes {
            let known = &mut self.known[route.reader as usize];
            if *known < needed {
                let retired = &retired[route.reader as usize].0;
                // Acquire: its reads come before our writes. Pairs with the Release in `gather`.
                member.wait_until(|| retired.load(Ordering::Acquire) >= needed);
                *known = retired.load(Ordering::Acquire);
            }
        }
        let places = places[turn % OPEN].as_slice();
        scatter(&self.points[own], &Out { places, routes });
        for route in routes {
            let stamp = &places[route.place as usize].place().stamp;
            // Release: publishes the piece. Pairs with the Acquire in `is_stamped`.
            stamp.store(turn as u64 + 1, Ordering::Release);
        }
    }

    #[inline(always)]
    fn gather(&mut self, own: usize, (turn, at): (usize, usize), member: &Member<'_>) {
        let Shared {
            plan,
            places,
            retired,
            gather,
            ..
        } = self.shared;
        let column = self.first + own;
        let point = &mut self.points[own];
        if let Some(sources) = &plan.turns[column][at].sources {
            let places = &places[turn % OPEN][column * plan.width..][..sources.len()];
            for place in places.iter().map(H::place) {
                if !place.is_stamped(turn) {
                    member.wait_until(|| place.is_stamped(turn));
                }
            }
            gather(point, &In { places, sources });
        } else {
            point.passed += 1;
        }
        // Release: our reads come before others see the turn retired.
        retired[column].0.store(turn as u64 + 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task_graph::Pattern;
    use brambling_machine::cpu;

    #[test]
    fn every_pattern_runs_right_on_any_number_of_threads() {
        for pattern in Pattern::ALL {
            for width in [1, 2, 5, 16] {
                for (threads, timesteps) in [(1, 101), (2, 101), (3, 101), (2, 1), (2, 2)] {
                    // Longer than places stay open, and not a multiple of any period; and hardly begun.
                    let graph = Graph::new(pattern, width, timesteps);
                    let places = cpu::places(threads).unwrap();
                    for way in Way::ALL {
                        let ran = run(&graph, Kernel::Empty, way, &places);
                        assert!(
                            ran.is_right(&graph),
                            "{graph:?} on {threads}, {way:?}: {ran:?}"
                        );
                    }
                }
            }
        }
    }

    /// A reader that came too early, or twice to the same piece, would count it as wrong.
    #[test]
    fn a_piece_is_of_its_turn_and_of_its_source() {
        let place = Place::default();
        assert!(!place.is_stamped(0));
        place.write(Payload::of(3, 5));
        place.stamp.store(4, Ordering::Release);
        assert!(place.is_stamped(3) && !place.is_stamped(4));
        assert_eq!(place.read(), Payload::of(3, 5));
    }
}
