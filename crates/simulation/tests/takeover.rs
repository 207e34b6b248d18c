//! Clusters whose controllers crash, or stop and wake when another has taken over, whose workers die, fall silent and are cut off, and whose store is full or
//! keeps something else than what was written: clients get what they asked for, once, and with the bits of an undisturbed run.
//!
//! Real are the registry, the jobs' controllers with their cuts, the log, records, manifests and frames. Workers are modelled: their shards exchange nothing.
//! Catches generations that begin twice, promises that are forgotten, snapshots that do not count and are used, and whoever is heard after he was fenced or deposed.
#![allow(clippy::print_stdout, clippy::print_stderr)] // What was looked at: the soak counts it; and the story of a run that fails.

#[path = "support/takeover/mod.rs"]
mod takeover;

use brambling_simulation::seeds;
use takeover::{Deeds, World};

#[test]
fn clients_get_their_results_whoever_is_lost() {
    let mut deeds = Deeds::default();
    for seed in seeds(2_000) {
        World::run(seed, &mut deeds);
    }
    println!("{deeds:?}");
    let seen = [
        deeds.recovered * 2,
        deeds.poisoned * 60,
        deeds.from_cuts * 4,
        deeds.adopted * 2,
        deeds.crashes,
        deeds.stops * 2,
        deeds.deposed * 4,
        deeds.workers_killed,
        deeds.workers_stopped,
        deeds.workers_fenced * 4,
        deeds.one_way,
        deeds.cut_off * 4,
        deeds.full,
        deeds.damaged * 2,
    ];
    // What was looked at was there.
    assert!(
        deeds.runs < 200 || seen.iter().all(|it| *it > deeds.runs),
        "{deeds:?}"
    );
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_of_takeover_are_caught() {
    use brambling_memory::mutants::assert_caught;
    for name in [
        "fenced-workers-are-heard",
        "promises-are-not-logged",
        "terms-share-generations",
        "snapshots-are-used-again",
        "jobs-are-adopted-in-part",
    ] {
        assert_caught(name, || {
            let mut deeds = Deeds::default();
            (0..2_000).for_each(|seed| World::run(seed, &mut deeds));
        });
    }
}
