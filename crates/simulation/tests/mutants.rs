//! Each mutant, one condition of production code removed or inverted, is caught by the simulation.
#![cfg(feature = "mutants")]

use brambling_memory::mutants::assert_caught;
use brambling_program::{Blocks, Partitioner, Program, blocks_of};
use brambling_simulation::{interpret, random_program, seeds, simulate};

/// What the simulated cluster checks, over as many seeds as a mutant may need.
fn simulated() {
    for seed in seeds(400) {
        simulate(seed, &random_program(seed));
    }
}

macro_rules! caught_by_the_cluster {
    ($($test:ident: $name:literal;)*) => {$(
        #[test]
        fn $test() {
            assert_caught($name, simulated);
        }
    )*};
}

caught_by_the_cluster! {
    mutant_of_2_groups_are_split: "groups-split";
    mutant_of_3_the_map_takes_older_entries: "map-takes-older";
    mutant_of_4_a_turn_completes_early: "inbox-completes-early";
    mutant_of_4_pieces_keep_the_order_of_arrival: "inbox-keeps-order-of-arrival";
    mutant_of_4_a_retired_turn_takes_pieces: "inbox-reopens-turns";
    mutant_of_4_a_turn_misses_chunks: "inbox-misses-chunks";
    mutant_of_4_frames_forget_empty_marks: "coalesce-forgets-empty-marks";
    mutant_of_4_one_turn_too_many_is_open: "credit-opens-one-too-many";
    mutant_of_4_credit_goes_back: "credit-goes-back";
    mutant_of_4_the_router_never_forwards: "router-never-forwards";
    mutant_of_4_the_router_forgets_what_it_holds: "router-forgets-what-it-holds";
    mutant_of_4_the_session_forgets_on_reconnect: "session-forgets-on-reconnect";
    mutant_of_4_the_session_acknowledges_gaps: "session-acknowledges-gaps";
    mutant_of_5_a_branch_takes_the_turn_before: "stale-outcome";
    mutant_of_7_a_position_retires_twice: "retired-twice";
    mutant_of_9_a_write_overtakes_a_read: "write-overtakes-read";
}

/// The bits of a reduction over blocks are those of the tree by definition, whatever the partitions.
///
/// Catches a grouping that follows partitions or arrival. Says nothing about the operations themselves.
fn reduced_on_the_tree() {
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

#[test]
fn mutant_of_11_a_fold_follows_arrival() {
    assert_caught("fold-by-arrival", reduced_on_the_tree);
}
