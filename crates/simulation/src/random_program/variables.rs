//! The datasets of a random program.

use super::Random;
use crate::kernels::{Erased, RandomValue, mix};
use crate::objects::Object;
use brambling_program::{Blocks, Count, Dataset, DatasetId, Partitioner, Program, Rows, blocks_of};

/// A dataset of any type.
#[derive(Clone, Copy)]
pub(super) enum Any {
    Number(Dataset<u64>),
    Vector(Dataset<Vec<u64>>),
    Rows(Dataset<Rows<u32, u64>>),
    Object(Dataset<Object>),
    Blocks(Dataset<Blocks<u64>>),
}

impl Any {
    pub(super) fn id(self) -> DatasetId {
        match self {
            Any::Number(dataset) => dataset.id(),
            Any::Vector(dataset) => dataset.id(),
            Any::Rows(dataset) => dataset.id(),
            Any::Object(dataset) => dataset.id(),
            Any::Blocks(dataset) => dataset.id(),
        }
    }

    pub(super) fn erased(self) -> Erased {
        match self {
            Any::Number(_) => Erased::of::<u64>(),
            Any::Vector(_) => Erased::of::<Vec<u64>>(),
            Any::Rows(_) => Erased::of::<Rows<u32, u64>>(),
            Any::Object(_) => Erased::of::<Object>(),
            Any::Blocks(_) => Erased::of::<Blocks<u64>>(),
        }
    }
}

/// Datasets of one partition count: stages make groups of them as it comes.
pub(super) struct DatasetFamily {
    /// The partition count that its symbol, if any, is bound to.
    pub(super) count: u32,
    pub(super) numbers: Vec<Dataset<u64>>,
    /// At least two.
    pub(super) vectors: Vec<Dataset<Vec<u64>>>,
    pub(super) rows: Vec<Dataset<Rows<u32, u64>>>,
    /// At most one.
    pub(super) objects: Vec<Dataset<Object>>,
    /// At most one.
    pub(super) blocks: Vec<Dataset<Blocks<u64>>>,
}

impl DatasetFamily {
    /// What sends and receives.
    pub(super) fn cells(&self) -> Vec<Any> {
        let numbers = self.numbers.iter().map(|dataset| Any::Number(*dataset));
        let vectors = self.vectors.iter().map(|dataset| Any::Vector(*dataset));
        let rows = self.rows.iter().map(|dataset| Any::Rows(*dataset));
        let objects = self.objects.iter().map(|dataset| Any::Object(*dataset));
        let all = numbers.chain(vectors).chain(rows);
        all.chain(objects).collect()
    }

    pub(super) fn members(&self) -> Vec<Any> {
        let mut members = self.cells();
        members.extend(self.blocks.iter().map(|dataset| Any::Blocks(*dataset)));
        members
    }
}

/// Between two and five families; the first is of one partition.
pub(super) fn declare(
    p: &mut Program,
    random: &mut Random,
    symbols: &mut Vec<u32>,
) -> Vec<DatasetFamily> {
    let mut families = vec![family(p, random, Count::Fixed(1), 1)];
    for _ in 0..1 + random.below(4) {
        let count = 1 + random.below(7) as u32;
        let declared = if random.one_in(3) {
            symbols.push(count);
            p.symbol(format!("n{}", symbols.len()))
        } else {
            Count::Fixed(count)
        };
        families.push(family(p, random, declared, count));
    }
    families
}

fn family(p: &mut Program, random: &mut Random, declared: Count, count: u32) -> DatasetFamily {
    let many = |random: &mut Random, least: u64| least + random.below(2);
    let numbers = (0..many(random, 1))
        .map(|_| dataset::<u64>(p, random, declared))
        .collect();
    let vectors = (0..many(random, 2))
        .map(|_| dataset::<Vec<u64>>(p, random, declared))
        .collect();
    let rows = (0..many(random, 1))
        .map(|_| dataset::<Rows<u32, u64>>(p, random, declared))
        .collect();
    let blocks = (0..random.below(2))
        .map(|_| blocks(p, random, declared))
        .collect();
    let objects = (0..random.below(2))
        .map(|_| dataset::<Object>(p, random, declared))
        .collect();
    DatasetFamily {
        count,
        numbers,
        vectors,
        rows,
        objects,
        blocks,
    }
}

/// With or without a value, kept or freed after its last use.
fn dataset<T: RandomValue>(p: &mut Program, random: &mut Random, count: Count) -> Dataset<T> {
    let (salt, name) = (random.salt(), format!("d{}", p.spec().datasets.len()));
    let load = move |index: u32, partitions: u32| {
        let mut value = T::default();
        value.set(mix(salt, mix(index.into(), partitions.into())));
        value
    };
    match random.below(6) {
        0 => p.dataset(name, count),
        1 => p.value(name, count, load(0, 0)),
        2 => p.temporary(name, count),
        3 => p.load(name, count, Partitioner::Opaque, load),
        _ => {
            let dataset = p.load(name, count, Partitioner::Opaque, load);
            p.keep(&dataset);
            dataset
        }
    }
}

/// Up to twelve blocks, some of them empty, wherever the partitions cut them.
fn blocks(p: &mut Program, random: &mut Random, count: Count) -> Dataset<Blocks<u64>> {
    let (salt, total) = (random.salt(), random.below(13));
    let name = format!("blocks{}", p.spec().datasets.len());
    let dataset = p.load(
        name,
        count,
        Partitioner::Blocks,
        move |index, partitions| {
            let range = blocks_of(index, partitions, total);
            let block = |block| mix(salt, block);
            let filled = |value: &u64| !value.is_multiple_of(5);
            Blocks::new(
                range.start,
                range.map(|index| Some(block(index)).filter(filled)),
            )
        },
    );
    if random.one_in(2) {
        p.keep(&dataset);
    }
    dataset
}
