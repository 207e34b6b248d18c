//! Reductions over blocks are grouped by the fixed tree, whatever the partitions.

use brambling_program::{Blocks, Partitioner, Program, blocks_of};
use brambling_simulation::interpret;

/// The bits of a reduction over blocks are those of the tree by definition, whatever the partitions.
///
/// Catches a grouping that follows partitions or arrival. Says nothing about the operations themselves.
#[test]
fn the_tree_and_nothing_else_groups() {
    for blocks in 1..=17 {
        let expected = by_definition(blocks, 0, blocks.next_power_of_two());
        for partitions in [1, 2, 3, 7, 16] {
            let mut p = Program::new("fold");
            let leaves = p.load(
                "leaves",
                partitions,
                Partitioner::Blocks,
                move |index, of| {
                    let range = blocks_of(index, of, blocks);
                    Blocks::new(range.start, range.map(leaf))
                },
            );
            let total = p.dataset::<String>("total", 1);
            let join = |left: &mut String, right: &String| *left = format!("({left} {right})");
            p.reduce_blocks(join, &leaves, &total, |to: &mut String, total: &String| {
                to.clone_from(total);
            });
            let mut other = Program::new("expected");
            other.load("leaves", partitions, Partitioner::Opaque, |_, _| {
                String::new()
            });
            other.value("total", 1, expected.clone().unwrap_or_default());
            let difference = interpret(&p, &[]).difference(&interpret(&other, &[]), &p);
            assert!(
                difference.is_none(),
                "{blocks} blocks in {partitions}: {difference:?}"
            );
        }
    }
}

/// Every fifth block is empty.
fn leaf(index: u64) -> Option<String> {
    (index % 5 != 3).then(|| index.to_string())
}

fn by_definition(blocks: u64, start: u64, size: u64) -> Option<String> {
    if size == 1 {
        return (start < blocks).then(|| leaf(start)).flatten();
    }
    let left = by_definition(blocks, start, size / 2);
    let right = by_definition(blocks, start + size / 2, size / 2);
    match (left, right) {
        (Some(left), Some(right)) => Some(format!("({left} {right})")),
        (left, right) => left.or(right),
    }
}

#[cfg(feature = "mutants")]
#[test]
fn mutant_of_11_a_fold_follows_arrival() {
    brambling_memory::mutants::assert_caught("fold-by-arrival", the_tree_and_nothing_else_groups);
}
