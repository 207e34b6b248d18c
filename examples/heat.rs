//! A heated plate: its upper edge is held at 100 degrees, the others at 0, and heat spreads until nothing
//! changes any more.
//!
//! ```text
//! cargo run --release --example heat
//! ```
//!
//! The plate is cut into strips of rows. In each turn neighbours exchange the rows at their borders, every
//! strip takes a step, and the largest change of all decides whether there is another turn. No strip waits
//! for more than its two neighbours and that decision, and the field is the same for any number of strips.
#![allow(clippy::print_stdout)] // An example talks to its reader.

use brambling::operators::grid::{Edge, Strip, heat_step};
use brambling::operators::simd;
use brambling::prelude::*;

const ROWS: usize = 60;
const COLUMNS: usize = 40;
const STRIPS: u32 = 4;
/// How much of the difference to its neighbours a cell takes over in a turn; stable up to 1/4.
const RATE: f64 = 0.24;

/// Some rows of the plate, the rows above and below, and the buffer of the next step.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
struct Rows {
    cells: Vec<f64>,
    beside: [Vec<f64>; 2],
    next: Vec<f64>,
    strip: u32,
}
brambling::payload!(Rows, |rows| 16 * (rows.cells.len() + COLUMNS));

impl Rows {
    fn cold(strip: u32, strips: u32) -> Rows {
        let edge = |strip: u32| ROWS * strip as usize / strips as usize;
        let cells = vec![0.0; (edge(strip + 1) - edge(strip)) * COLUMNS];
        Rows {
            // The first strip keeps its row above, the last its row below; all others' are overwritten.
            beside: [vec![100.0; COLUMNS], vec![0.0; COLUMNS]],
            next: cells.clone(),
            cells,
            strip,
        }
    }

    /// The row at the border to a neighbour.
    fn send(&self, neighbour: u32, row: &mut Vec<f64>) {
        let last = self.cells.len() - COLUMNS;
        let start = if neighbour > self.strip { last } else { 0 };
        row.clear();
        row.extend_from_slice(&self.cells[start..start + COLUMNS]);
    }

    fn take(&mut self, neighbour: u32, row: &Vec<f64>) {
        self.beside[usize::from(neighbour > self.strip)].clone_from(row);
    }

    /// Takes a step and gives the largest change of a cell.
    fn step(&mut self, change: &mut f64) {
        let strip = Strip {
            above: &self.beside[0],
            cells: &self.cells,
            below: &self.beside[1],
            edge: Edge::Held(0.0),
        };
        *change = heat_step(simd::active(), strip, RATE, &mut self.next);
        std::mem::swap(&mut self.cells, &mut self.next);
    }
}

fn main() -> Result<(), brambling::Error> {
    let mut p = Program::new("heat");
    let plate = p.load("plate", STRIPS, Partitioner::Opaque, Rows::cold);
    p.keep(&plate);
    let change = p.like::<f64, _>("change", &plate);
    let progress = p.value("largest change and turns", 1, (f64::INFINITY, 0u64));
    let is_warming = |(change, _): &(f64, u64)| *change > 1e-4;
    p.repeat_while("warming", &progress, is_warming, |p| {
        p.exchange_neighbours("borders", &plate, &[-1, 1], false, Rows::send, Rows::take);
        let step = p.compute("step").update(&plate).write(&change);
        step.run(Rows::step);
        p.reduce(Max, &change, &progress, |(largest, turns), change| {
            *largest = *change;
            *turns += 1;
        });
    });
    let mut outcome = brambling::run(p)?;

    let strips = outcome.take_all(&plate);
    let field: Vec<f64> = strips.into_iter().flat_map(|rows| rows.cells).collect();
    check(&field);
    let centre = field[ROWS / 2 * COLUMNS + COLUMNS / 2];
    let (_, turns) = outcome.take(&progress);
    println!("{centre:.2} degrees at the centre after {turns} turns");
    Ok(())
}

/// In equilibrium each cell is the mean of its neighbours, as nearly as the last change was small.
fn check(field: &[f64]) {
    let at = |row: usize, column: usize| field[row * COLUMNS + column];
    for row in 1..ROWS - 1 {
        for column in 1..COLUMNS - 1 {
            let vertical = at(row - 1, column) + at(row + 1, column);
            let mean = (vertical + at(row, column - 1) + at(row, column + 1)) / 4.0;
            assert!((mean - at(row, column)).abs() < 2e-4);
        }
    }
    assert!(at(0, COLUMNS / 2) > 90.0 && at(ROWS - 1, COLUMNS / 2) > 0.0);
}

#[test]
fn checks_its_result() {
    main().unwrap();
}
