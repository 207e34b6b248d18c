//! No two threads could wait for each other for ever: in which order they take locks, and the interpreter, is looked at while random programs run
//! whose values are an interpreter's objects, and their shards move.
//!
//! A process of its own: what watches asks of all threads.

#[path = "support/chaos.rs"]
mod chaos;

use brambling_memory::held;
use brambling_program::Plan;
use brambling_simulation::{interpret, random_program, seeds};
use chaos::Cluster;
use chaos::member::{results, spills};
use std::sync::Arc;

/// Orders of events that once led to faults, more often than others: a shard that was to leave kept the chance to read back
/// what others needed (112), and one took pieces of an exchange whose turns were gathered in slots (146).
const AGAIN: [u64; 2] = [112, 146];

#[test]
fn no_order_of_locks_goes_round_in_a_circle() {
    held::watch();
    let clusters = [Cluster::new(&[1, 1]), Cluster::new(&[2, 1, 3])];
    let mut moves = 0;
    let again = AGAIN.into_iter().cycle().take(80);
    for seed in seeds(200).chain(again) {
        let random = random_program(seed);
        let program = Arc::new(random.program.clone());
        let plan = Plan::compile(program, &random.bindings()).expect("random programs are valid");
        let left = clusters[(seed % 2) as usize].run(seed, &plan);
        // A thread that finds a circle panics, and its job fails with what it says.
        assert_eq!(left.failure, None, "seed {seed}");
        moves += left.moves;
        let expected = interpret(&random.program, &random.symbols);
        let found = results(&random, left.jobs);
        assert!(found.difference(&expected, &random.program).is_none());
    }
    // What was looked at was there.
    assert!(moves > 100, "{moves}");
    assert!(spills().counts().reads > 100);
    let orders = held::orders();
    assert!(orders > 3, "{orders}");
}
