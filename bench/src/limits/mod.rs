//! Hand-written yardsticks: what a careful person would write for one bench on one machine, without
//! an engine. A limit is as fast as we know how to make it, and is checked like ours.

pub mod kmeans;
pub mod logistic;
pub mod pagerank;
pub mod sockets;
pub mod task_graph;

use brambling_machine::IsaLevel;
use brambling_machine::crew::{self, CacheAligned};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Rows of twenty features that a thread claims at a time: 1.3 MB. Large for the hardware's prefetcher, small enough
/// that the threads finish together when one of them is disturbed.
pub const CHUNK_ROWS: usize = 8 << 10;

/// A bare loop: what pinned threads can do with nothing in their way.
#[derive(Clone, Copy, Debug)]
pub struct Bare<K> {
    /// A stable name, for tables and JSON.
    pub name: &'static str,
    isa: IsaLevel,
    kernel: K,
}

impl<K: Copy> Bare<K> {
    const fn new(name: &'static str, isa: IsaLevel, kernel: K) -> Bare<K> {
        Bare { name, isa, kernel }
    }

    /// The kernel, which only a CPU with its instruction set may run.
    fn kernel(&self) -> K {
        let Bare { name, isa, .. } = self;
        assert!(isa.is_available(), "{name} needs {isa}");
        self.kernel
    }
}

/// The loops whose instruction set this CPU has.
fn available<K: Copy>(all: &[Bare<K>]) -> Vec<Bare<K>> {
    let runs = |bare: &&Bare<K>| bare.isa.is_available();
    all.iter().filter(runs).copied().collect()
}

/// The first loop of the best instruction set.
fn widest<K: Copy>(all: &[Bare<K>]) -> Bare<K> {
    let mut all = all.iter().copied();
    all.find(|bare| bare.isa == IsaLevel::detect())
        .expect("each instruction set has a loop")
}

/// The seconds of each of so many turns, with one thread per entry of `places` (see [`brambling_machine::cpu::places`]).
/// The threads are pinned, stay for all turns and meet at a spinning barrier after each. In a turn each thread begins
/// a part, adds to it the chunks that it claims, and the first thread ends the turn with all parts, in the threads' order.
///
/// # Panics
/// When there is no turn.
fn turns<P: Send>(
    places: &[usize],
    turns: usize,
    chunks: usize,
    begin: impl Fn(usize) -> P + Sync,
    add: impl Fn(usize, &mut P) + Sync,
    end: impl FnMut(Vec<P>) + Send,
) -> Vec<f64> {
    assert!(turns > 0);
    let claims: Vec<CacheAligned<AtomicUsize>> =
        (0..turns).map(|_| CacheAligned::default()).collect();
    let parts: Vec<CacheAligned<Mutex<Option<P>>>> =
        places.iter().map(|_| CacheAligned::default()).collect();
    let end = Mutex::new(end);
    let mut results = crew::run(places, |member| {
        let mut seconds = Vec::new();
        for (turn, claim) in claims.iter().enumerate() {
            member.barrier();
            let start = Instant::now();
            let mut part = begin(turn);
            loop {
                // Relaxed: only the claims must be distinct.
                let chunk = claim.0.fetch_add(1, Ordering::Relaxed);
                if chunk >= chunks {
                    break;
                }
                add(chunk, &mut part);
            }
            *parts[member.index()].0.lock().expect("no panic holds it") = Some(part);
            member.barrier();
            if member.index() == 0 {
                let part = |part: &CacheAligned<Mutex<Option<P>>>| {
                    part.0.lock().expect("no panic holds it").take()
                };
                let parts = parts.iter().filter_map(part).collect();
                end.lock().expect("no panic holds it")(parts);
                seconds.push(start.elapsed().as_secs_f64());
            }
        }
        seconds
    });
    results.swap_remove(0)
}
