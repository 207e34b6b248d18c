//! What the engine's tests run: one small program for each way that numbers meet.
#![allow(dead_code)] // Each test file uses its part.

use brambling::ml::{Fitted, LogisticRegression, Solver};
use brambling::operators::grid::{Edge, Strip, heat_step};
use brambling::operators::ml::samples::{SampleBlock, Samples};
use brambling::operators::simd;
use brambling::prelude::*;
use brambling::program::{Foreign, Rng, StageId};

pub mod cluster;
pub mod exposition;
pub mod folder;
pub mod graphs;

/// The same random numbers in every test and process.
pub fn rng(stream: u64) -> Rng {
    Rng::new(7, StageId(0), 0, stream)
}

/// Rows of very different sizes, so that any other order of additions gives other bits.
pub fn table(rows: usize, columns: usize) -> (Vec<f64>, Vec<f64>) {
    let mut rng = rng(0);
    let mut x = Vec::with_capacity(rows * columns);
    let mut y = Vec::with_capacity(rows);
    for _ in 0..rows {
        let row: Vec<f64> = (0..columns)
            .map(|column| (rng.next_f64() - 0.4) * (1.0 + column as f64))
            .collect();
        let margin: f64 = row.iter().sum::<f64>() - 0.3;
        y.push(f64::from(u8::from(rng.next_f64() * 2.0 - 1.0 < margin)));
        x.extend(row);
    }
    (x, y)
}

pub fn logistic(options: &RunOptions) -> Fitted {
    let (x, y) = table(20_011, 5);
    let model = LogisticRegression {
        tol: 0.0,
        max_iter: 12,
        solver: Solver::GradientDescent,
        ..Default::default()
    };
    model.fit_owned(x, y, 5, options).unwrap()
}

pub fn bits(values: impl IntoIterator<Item = f64>) -> Vec<u64> {
    values.into_iter().map(f64::to_bits).collect()
}

/// Sums of each block's columns, reduced to one partition and to all of them.
pub fn block_sums(partitions: u32, options: &RunOptions) -> (Vec<u64>, Vec<u64>) {
    const COLUMNS: usize = 2;
    let (x, _) = table(70 * 4_096 + 17, COLUMNS);
    let (x, y) = (Foreign::owned(x), Foreign::default());
    let mut p = Program::new("block sums");
    let rows = p.load("rows", partitions, Partitioner::Blocks, move |i, n| {
        Samples::partition(&x, &y, COLUMNS, i, n)
    });
    let sums = p.like::<Blocks<Vec<f64>>, _>("sums", &rows);
    let total = p.dataset::<Vec<f64>>("total", 1);
    let everywhere = p.like::<Vec<f64>, _>("everywhere", &rows);
    p.keep(&everywhere);
    p.map("sum", &rows)
        .into(&sums, |block: SampleBlock<'_>, sums: &mut Vec<f64>| {
            sums.clear();
            sums.resize(block.columns, 0.0);
            for row in block.x.chunks_exact(block.columns) {
                sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
            }
        });
    p.reduce_blocks(Sum, &sums, &total, |to: &mut Vec<f64>, sum: &Vec<f64>| {
        to.clone_from(sum);
    });
    p.all_reduce_blocks(Sum, &sums, &everywhere);
    let mut outcome = options.run(p).unwrap();
    let everywhere = outcome.take_all(&everywhere);
    assert!(everywhere.iter().all(|sums| sums == &everywhere[0]));
    let total = outcome.take(&total);
    (bits(total), bits(everywhere[0].clone()))
}

/// Random numbers of each partition, reduced, and mixed by turns of an all-reduction.
pub fn reductions(partitions: u32, options: &RunOptions) -> Vec<u64> {
    let mut p = Program::new("reductions").with_seed(5);
    let values = p.dataset::<f64>("values", partitions);
    let sums = p.dataset::<f64>("sums", partitions);
    let total = p.dataset::<f64>("total", 1);
    p.compute("draw").write(&values).run_with_context(
        |context: &mut Context<'_>, value: &mut f64| {
            *value = context.rng().next_f64() * 1e3;
        },
    );
    p.repeat(9, |p| {
        p.all_reduce(Sum, &values, &sums);
        p.compute("mix")
            .read(&sums)
            .update(&values)
            .run_with_context(|context: &mut Context<'_>, sum: &f64, value: &mut f64| {
                *value = *value / 3.0 + context.rng().next_f64() / *sum;
            });
        p.reduce(Sum, &values, &total, |total: &mut f64, sum: &f64| {
            *total = *total / 7.0 + sum;
        });
    });
    let mut outcome = options.run(p).unwrap();
    let mut numbers = outcome.take_all(&values);
    numbers.extend(outcome.take_all(&sums));
    numbers.push(outcome.take(&total));
    bits(numbers)
}

/// Rows dealt to `from` partitions in order, then brought together by key in `to` partitions.
pub fn shuffled(
    rows: &[(u64, f64)],
    from: u32,
    to: u32,
    options: &RunOptions,
) -> Vec<Rows<u64, f64>> {
    let rows = rows.to_vec();
    let mut p = Program::new("shuffle");
    let source = p.load("rows", from, Partitioner::Opaque, move |index, count| {
        let edge = |index: u32| rows.len() * index as usize / count as usize;
        rows[edge(index)..edge(index + 1)].to_vec()
    });
    let together = p.dataset::<Rows<u64, f64>>("by key", to);
    p.shuffle(&source, &together);
    options.run(p).unwrap().take_all(&together)
}

pub fn keyed_rows() -> Vec<(u64, f64)> {
    let mut rng = rng(3);
    (0..3_000)
        .map(|_| (rng.below(97), rng.next_f64()))
        .collect()
}

/// A strip of the heated plate, with its halo.
#[derive(Clone, Default, serde::Serialize, serde::Deserialize)]
pub struct Plate {
    above: Vec<f64>,
    cells: Vec<f64>,
    below: Vec<f64>,
    next: Vec<f64>,
    index: u32,
}
brambling::payload!(Plate, |plate| (plate.cells.capacity() * 2
    + plate.above.capacity() * 2)
    * 8);

/// Rows and columns of the plate.
pub const PLATE: (usize, usize) = (64, 33);

fn warmth(row: usize, column: usize) -> f64 {
    1.0 / (1.0 + (row * 7 + column * 3) as f64)
}

/// Heats a plate in strips until no cell changes by more than 1/1000; gives its field and its turns.
pub fn heat(strips: u32, options: &RunOptions) -> (Vec<u64>, u64) {
    let (rows, columns) = PLATE;
    let mut p = Program::new("heat");
    let plate = p.load("plate", strips, Partitioner::Opaque, move |index, count| {
        let edge = |index: u32| rows * index as usize / count as usize;
        let cells: Vec<f64> = (edge(index)..edge(index + 1))
            .flat_map(|row| (0..columns).map(move |column| warmth(row, column)))
            .collect();
        Plate {
            above: vec![1.0; columns],
            below: vec![0.0; columns],
            next: vec![0.0; cells.len()],
            cells,
            index,
        }
    });
    p.keep(&plate);
    let change = p.like::<f64, _>("change", &plate);
    let largest = p.value("largest change", 1, f64::INFINITY);
    let turns = p.dataset::<u64>("turns", 1);
    p.repeat_while(
        "changing",
        &largest,
        |change| *change > 1e-3,
        |p| {
            p.exchange_neighbours(
                "edges",
                &plate,
                &[-1, 1],
                false,
                move |plate: &Plate, to, row: &mut Vec<f64>| {
                    let first = if to < plate.index {
                        0
                    } else {
                        plate.cells.len() - columns
                    };
                    row.clear();
                    row.extend_from_slice(&plate.cells[first..first + columns]);
                },
                |plate: &mut Plate, from, row: &Vec<f64>| {
                    let halo = if from < plate.index {
                        &mut plate.above
                    } else {
                        &mut plate.below
                    };
                    halo.clone_from(row);
                },
            );
            p.compute("step").update(&plate).write(&change).run(
                |plate: &mut Plate, change: &mut f64| {
                    let strip = Strip {
                        above: &plate.above,
                        cells: &plate.cells,
                        below: &plate.below,
                        edge: Edge::Held(0.5),
                    };
                    *change = heat_step(simd::active(), strip, 0.2, &mut plate.next);
                    std::mem::swap(&mut plate.cells, &mut plate.next);
                },
            );
            p.reduce_to(Max, &change, &largest);
            p.compute("count")
                .update(&turns)
                .run(|turns: &mut u64| *turns += 1);
        },
    );
    let mut outcome = options.run(p).unwrap();
    let strips = outcome.take_all(&plate);
    let field = strips.into_iter().flat_map(|plate| plate.cells);
    (bits(field), outcome.take(&turns))
}

/// The same plate, whole, by plain loops.
pub fn heat_by_hand() -> (Vec<u64>, u64) {
    let (rows, columns) = PLATE;
    let mut field: Vec<Vec<f64>> = (0..rows)
        .map(|row| (0..columns).map(|column| warmth(row, column)).collect())
        .collect();
    for turn in 1.. {
        let at = |row: isize, column: isize| {
            if row < 0 {
                1.0
            } else if row == rows as isize {
                0.0
            } else if column < 0 || column == columns as isize {
                0.5
            } else {
                field[row as usize][column as usize]
            }
        };
        let mut largest = 0.0f64;
        let mut next = field.clone();
        for row in 0..rows as isize {
            for column in 0..columns as isize {
                let old = at(row, column);
                let around = (at(row - 1, column) + at(row + 1, column))
                    + (at(row, column - 1) + at(row, column + 1));
                let new = 0.2f64.mul_add((-4.0f64).mul_add(old, around), old);
                largest = largest.max((new - old).abs());
                next[row as usize][column as usize] = new;
            }
        }
        field = next;
        if largest <= 1e-3 {
            return (bits(field.into_iter().flatten()), turn);
        }
    }
    unreachable!("the plate settles")
}
