//! Random programs on simulated clusters give, bit for bit, what the sequential interpreter gives.
//!
//! Catches what frames that are late, repeated, reordered and lost with their connection can break, news of the map
//! that come late, pieces that find no room and are spilled, pieces that cannot be encoded under a lock, shards that move and workers that join and leave while all this happens, a controller that falls silent, wake-ups that are missed, and
//! what invariants 1 to 7 and 10 forbid.
//! No worker dies here: that comes later.

use brambling_simulation::{Deeds, random_program, seeds, simulate};

#[test]
fn ten_thousand_seeds() {
    let mut all = Deeds::default();
    for seed in seeds(10_000) {
        all += simulate(seed, &random_program(seed));
    }
    // A simulation in which nothing goes wrong shows nothing.
    let eventful = all.tasks > 0
        && all.frames > 0
        && all.held > 0
        && all.breaks > 0
        && all.lost > 0
        && all.moves > 0
        && all.anew > 0
        && all.silences > 0
        && all.joins > 0
        && all.leaves > 0
        && all.relays > 0
        && all.broadcasts > 0
        && all.merges > 0
        && all.errands > 0
        && all.spills > 0
        && all.returns > 0;
    assert!(eventful || seeds(10_000).count() < 100, "{all:?}");
}
