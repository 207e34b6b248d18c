//! Random programs all of whose exchanges are streamed, on simulated clusters: bit for bit what the sequential interpreter gives.
//!
//! Catches chunks that are lost, doubled, or taken in another order; a task that is begun anew and sends something else; chunks that count for ever,
//! or not at all; and tasks that nobody calls again. Frames are late, repeated and reordered, connections break, shards move, and most chunks find no
//! room for more than one chunk of a task. What slows sources, and what threads do at the same time, it does not see: the tests of `worker` and `members.rs` do.

use brambling_simulation::{Deeds, random_streams, seeds, simulate};

#[test]
fn a_thousand_seeds_of_streams() {
    let mut all = Deeds::default();
    for seed in seeds(1_000) {
        all += simulate(seed, &random_streams(seed));
    }
    let kinds = [
        ("chunks", all.chunks),
        ("waits", all.waits),
        ("unflushed", all.unflushed),
        ("repeats", all.repeats),
        ("late", all.late),
        ("carried", all.carried),
        ("spills", all.spills),
        ("returns", all.returns),
        ("moves", all.moves),
        ("anew", all.anew),
        ("breaks", all.breaks),
        ("lost", all.lost),
        ("held", all.held),
        ("joins", all.joins),
        ("leaves", all.leaves),
        ("silences", all.silences),
    ];

    // A simulation in which nothing goes wrong shows nothing.
    let missing: Vec<_> = kinds.iter().filter(|(_, count)| *count == 0).collect();
    assert!(
        missing.is_empty() || seeds(1_000).count() < 100,
        "{missing:?} of {all:?}"
    );
}
