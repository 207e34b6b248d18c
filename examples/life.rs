//! Conway's Game of Life on a torus: a glider crosses every strip of the world and comes home.
//!
//! ```text
//! cargo run --release --example life
//! ```
//!
//! Each strip sends its outer rows to the strips above and below it; the ends of the world are joined. A
//! glider moves one cell down and to the right in four generations, so on a world of 64 × 64 cells it is
//! back after 256.
#![allow(clippy::print_stdout)] // An example talks to its reader.

use brambling::operators::grid::{Edge, Strip, life_step};
use brambling::operators::simd;
use brambling::prelude::*;

const SIDE: usize = 64;
const STRIPS: u32 = 4;
const GLIDER: [(usize, usize); 5] = [(0, 1), (1, 2), (2, 0), (2, 1), (2, 2)];

/// Some rows of the world, the rows next to them, and the buffer of the next generation.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
struct World {
    above: Vec<u8>,
    cells: Vec<u8>,
    below: Vec<u8>,
    next: Vec<u8>,
    strip: u32,
}
brambling::payload!(World, |world| 2 * (world.above.len() + world.cells.len()));

impl World {
    /// A strip of a world of one glider.
    fn new(strip: u32, strips: u32) -> World {
        let edge = |strip: u32| SIDE * strip as usize / strips as usize;
        let is_alive = |row, column| u8::from(GLIDER.contains(&(row, column)));
        let cells: Vec<u8> = (edge(strip)..edge(strip + 1))
            .flat_map(|row| (0..SIDE).map(move |column| is_alive(row, column)))
            .collect();
        World {
            above: vec![0; SIDE],
            below: vec![0; SIDE],
            next: cells.clone(),
            cells,
            strip,
        }
    }

    /// The first and the last row: a neighbour may be above and below at once when there are only two.
    fn send(&self, _neighbour: u32, (first, last): &mut (Vec<u8>, Vec<u8>)) {
        first.clear();
        first.extend_from_slice(&self.cells[..SIDE]);
        last.clear();
        last.extend_from_slice(&self.cells[self.cells.len() - SIDE..]);
    }

    fn receive(&mut self, neighbour: u32, (first, last): &(Vec<u8>, Vec<u8>)) {
        if neighbour == (self.strip + STRIPS - 1) % STRIPS {
            self.above.copy_from_slice(last);
        }
        if neighbour == (self.strip + 1) % STRIPS {
            self.below.copy_from_slice(first);
        }
    }

    fn step(&mut self, alive: &mut u64) {
        let strip = Strip {
            above: &self.above,
            cells: &self.cells,
            below: &self.below,
            edge: Edge::Wrap,
        };
        *alive = life_step(simd::active(), strip, &mut self.next).alive;
        std::mem::swap(&mut self.cells, &mut self.next);
    }
}

/// The world after some generations, and how many cells were alive in each.
fn live(generations: u64) -> Result<(Vec<u8>, Vec<u64>), brambling::Error> {
    let mut p = Program::new("life");
    let world = p.load("world", STRIPS, Partitioner::Opaque, World::new);
    p.keep(&world);
    let alive = p.like::<u64, _>("alive", &world);
    let census = p.dataset::<Vec<u64>>("census", 1);
    p.repeat(generations, |p| {
        p.exchange_neighbours("edges", &world, &[-1, 1], true, World::send, World::receive);
        p.compute("step")
            .update(&world)
            .write(&alive)
            .run(World::step);
        p.reduce(
            Sum,
            &alive,
            &census,
            |census: &mut Vec<u64>, alive: &u64| census.push(*alive),
        );
    });
    let mut outcome = brambling::run(p)?;
    let strips = outcome.take_all(&world);
    Ok((
        strips.into_iter().flat_map(|world| world.cells).collect(),
        outcome.take(&census),
    ))
}

fn main() -> Result<(), brambling::Error> {
    let (first, _) = live(0)?;
    let (elsewhere, _) = live(130)?;
    let (last, census) = live(4 * SIDE as u64)?;
    assert_ne!(first, elsewhere);
    assert_eq!(first, last);
    assert!(census.iter().all(|&alive| alive == 5));
    println!("the glider came home after {} generations", census.len());
    Ok(())
}

#[test]
fn checks_its_result() {
    main().unwrap();
}
