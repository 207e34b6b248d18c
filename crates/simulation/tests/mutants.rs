//! Each mutant, one condition of production code removed or inverted, is caught by the simulation.
#![cfg(feature = "mutants")]

use brambling_memory::mutants::{assert_caught, on_this_thread};
use brambling_simulation::{random_program, random_streams, simulate};
use std::panic::catch_unwind;

/// What the simulated cluster checks, over as many seeds as a mutant may need.
fn simulated() {
    for seed in 0..2_000 {
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
    mutant_of_1_a_version_names_two_owners: "moves-keep-their-version";
    mutant_of_1_a_move_overtakes_another: "moves-overtake";
    mutant_of_1_a_shard_stays_where_it_left: "departed-shards-stay";
    mutant_of_2_groups_are_split: "groups-split";
    mutant_of_3_the_map_takes_older_entries: "map-takes-older";
    mutant_of_4_a_turn_completes_early: "inbox-completes-early";
    mutant_of_4_pieces_keep_the_order_of_arrival: "inbox-keeps-order-of-arrival";
    mutant_of_4_a_turn_misses_chunks: "inbox-misses-chunks";
    mutant_of_4_chunks_that_come_twice_are_taken_twice: "inbox-merges-chunks-twice";
    mutant_of_a_shard_that_leaves_while_its_task_is_open: "open-tasks-leave";
    mutant_of_a_shard_that_is_kept_and_gets_nothing: "pieces-wait-for-their-shard";
    mutant_of_4_frames_forget_empty_marks: "coalesce-forgets-empty-marks";
    mutant_of_4_one_turn_too_many_is_open: "credit-opens-one-too-many";
    mutant_of_4_credit_goes_back: "credit-goes-back";
    mutant_of_4_the_router_never_forwards: "router-never-forwards";
    mutant_of_4_the_router_forgets_what_it_holds: "router-forgets-what-it-holds";
    mutant_of_4_the_session_forgets_on_reconnect: "session-forgets-on-reconnect";
    mutant_of_4_the_session_acknowledges_gaps: "session-acknowledges-gaps";
    mutant_of_5_a_branch_takes_the_turn_before: "stale-outcome";
    mutant_of_6_a_flagged_shard_runs: "flagged-shards-run";
    mutant_of_7_a_position_retires_twice: "retired-twice";
    mutant_of_10_a_holder_hears_from_the_controller_alone: "holders-hear-from-the-controller-alone";
    mutant_of_10_a_stranger_is_told_nothing: "strangers-are-told-nothing";
    mutant_of_a_worker_that_leaves_while_others_send_to_it: "nobody-waits-to-part";
    mutant_of_news_that_are_not_all_handed_on: "relay-forgets-its-last-child";
    mutant_of_news_that_go_round: "relay-goes-round";
    mutant_of_a_relay_that_keeps_what_it_was_to_merge: "combining-keeps-what-leaves";
    mutant_of_a_relay_that_forgets_what_went_past: "relays-forget-what-went-past";
    mutant_of_a_piece_that_is_not_handed_on_to_all: "pieces-forget-their-last-part";
    mutant_of_a_source_that_moves_without_its_credit: "credits-stay-behind";
    mutant_of_the_end_that_comes_while_shards_move: "jobs-end-while-shards-move";
    mutant_of_12_a_shard_moves_without_room: "moves-without-room";
    mutant_of_12_an_inbox_counts_nothing: "inbox-counts-nothing";
    mutant_of_12_gathered_pieces_keep_their_room: "gathered-pieces-keep-their-room";
    mutant_of_4_what_was_spilled_is_forgotten: "spill-forgets";
    mutant_of_9_a_write_overtakes_a_read: "write-overtakes-read";
}

/// What streams show alone: seeds enough for each of these.
fn simulated_streams() {
    for seed in 0..150 {
        simulate(seed, &random_streams(seed));
    }
}

#[test]
fn mutants_of_streams_are_caught_by_streams() {
    simulated_streams();
    for name in [
        "streams-skip-what-lacks",
        "streams-pass-silent-sources",
        "chunks-count-until-they-are-taken",
        "ended-tasks-keep-their-turn",
        "inbox-merges-chunks-twice",
        "inbox-misses-chunks",
        "inbox-reopens-turns",
        "open-tasks-leave",
        "pieces-wait-for-their-shard",
        "spill-forgets",
    ] {
        let _on = on_this_thread(name);
        let ended = catch_unwind(simulated_streams);
        assert!(ended.is_err(), "the simulation does not notice {name}");
    }
}
