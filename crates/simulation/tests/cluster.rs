//! Random programs on simulated clusters give, bit for bit, what the sequential interpreter gives.
//!
//! Catches what frames that are late, repeated, reordered and lost with their connection can break, news of the map
//! that come late, shards that move while all this happens, wake-ups that are missed, and what invariants 1 to 7 forbid.
//! No worker joins, leaves or dies here: that comes later.

use brambling_simulation::{Deeds, random_program, seeds, simulate};

#[test]
fn ten_thousand_seeds() {
    let mut all = Deeds::default();
    for seed in seeds(10_000) {
        let deeds = simulate(seed, &random_program(seed));
        all.tasks += deeds.tasks;
        all.frames += deeds.frames;
        all.held += deeds.held;
        all.breaks += deeds.breaks;
        all.lost += deeds.lost;
        all.moves += deeds.moves;
    }
    // A simulation in which nothing goes wrong shows nothing.
    let eventful = all.tasks > 0
        && all.frames > 0
        && all.held > 0
        && all.breaks > 0
        && all.lost > 0
        && all.moves > 0;
    assert!(eventful || seeds(10_000).count() < 100, "{all:?}");
}
