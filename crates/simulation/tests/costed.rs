//! The cluster in virtual time: every task once, a controller that does not hear of tasks, a central scheduler that has a rate.
//!
//! Costs are constants here, so that a run is the same on every machine. That each shard runs each iteration once, and that all maps agree at
//! the end, the simulation itself asserts.
#![allow(clippy::print_stdout)] // The figure of the claim.

use brambling_simulation::costed::{
    Change, CostedWork, Costs, Lengths, LinkCosts, LocalOutcome, Recovery, RecoveryOutcome, Scale,
    Scenario, SpreadShape, StoreCosts, central, figure_5, figure_6, figure_8, local, recover,
};

const RELAYED: SpreadShape = SpreadShape::Relayed { fan_out: 3 };

fn work(workers: u32) -> CostedWork {
    CostedWork {
        workers,
        cores: 3,
        shards_per_core: 4,
        iterations: 30,
        stages: 1,
        stage_ns: 1e6,
        lengths: Lengths::Pages,
        model_bytes: 100,
        shard_bytes: 100_000,
        seed: 3,
    }
}

fn run(work: CostedWork, spread: SpreadShape, changes: &[Change]) -> LocalOutcome {
    local(&Scenario {
        changes: changes.to_vec(),
        ..Scenario::quiet(work, Costs::of_our_machine(), spread)
    })
}

/// Catches tasks that are lost or run twice, and tasks that are counted and did not run.
#[test]
fn every_task_of_every_iteration_runs_once() {
    for workers in [1, 2, 7, 20] {
        for spread in [SpreadShape::Direct, RELAYED] {
            let work = work(workers);
            let ran = run(work, spread, &[]);
            assert_eq!(ran.iterations, work.iterations);
            let tasks = work.tasks_per_iteration() * u64::from(work.iterations);
            assert_eq!(ran.tasks, tasks, "{workers} workers, {spread:?}");
            let turns = u64::from(work.shards() * work.iterations);
            assert_eq!(ran.turns, turns, "{workers} workers, {spread:?}");
            assert!(ran.iteration_ms.median * 1e6 > work.ideal_ns());
        }
    }
}

/// The same while shards leave a worker, and others come to a new one. Catches a shard that runs twice because it moved, or whose result is
/// missing, and orders that come to nothing.
#[test]
fn every_task_runs_once_while_workers_leave_and_come() {
    for workers in [3, 7, 20] {
        for spread in [SpreadShape::Direct, RELAYED] {
            for (leaves_at, joins_at) in [(1, 2), (2, 9), (12, 3)] {
                let work = work(workers);
                let leaves = Change::Drain {
                    at: leaves_at,
                    worker: workers / 2,
                };
                let joins = Change::Join { at: joins_at };
                let ran = run(work, spread, &[leaves, joins]);
                let of_one = u64::from(work.cores * work.shards_per_core);
                let share = u64::from(work.shards() / workers);
                if leaves_at < joins_at {
                    // Who was drained counts no more among those that share.
                    assert_eq!(ran.moves, of_one + share, "{workers} workers, {spread:?}");
                } else {
                    assert!(ran.moves > share && ran.moves < of_one + share);
                }
                assert_eq!(ran.change_ms.len(), 2);
                let tasks = work.tasks_per_iteration() * u64::from(ran.iterations);
                assert_eq!(ran.tasks, tasks, "{workers} workers, {spread:?}");
            }
        }
    }
}

/// Catches choices that come from anywhere but the scenario.
#[test]
fn a_run_is_the_same_each_time() {
    let changes = [Change::Drain { at: 2, worker: 1 }, Change::Join { at: 4 }];
    let ran = || run(work(7), RELAYED, &changes);
    assert_eq!(ran(), ran());
}

/// What the controller hears and says, reports of the time that passes aside, does not depend on how many tasks there are: a hundred times as many
/// in the same iterations change nothing. Catches messages of tasks, and of iterations.
#[test]
fn the_controller_hears_nothing_of_tasks() {
    let quiet = |work| run(work, RELAYED, &[]).controller;
    let few = quiet(work(7));
    let more_tasks = CostedWork {
        stages: 100,
        stage_ns: 1e4,
        ..work(7)
    };
    let more_iterations = CostedWork {
        iterations: 300,
        ..work(7)
    };
    let more_shards = CostedWork {
        shards_per_core: 40,
        stage_ns: 1e5,
        ..work(7)
    };
    for work in [more_tasks, more_iterations, more_shards] {
        let many = quiet(work);
        let without_reports = many.messages() - many.reports;
        assert_eq!(without_reports, few.messages() - few.reports, "{work:?}");
    }
}

/// Reports follow the clock: four a second from each worker.
#[test]
fn workers_report_four_times_a_second() {
    let long = CostedWork {
        iterations: 600,
        ..work(7)
    };
    let ran = run(long, SpreadShape::Direct, &[]);
    let expected = ran.virtual_s * 4.0 * 7.0;
    let found = ran.controller.reports as f64;
    assert!(
        (found - expected).abs() < 2.0 * 7.0,
        "{found} for {expected}"
    );
}

/// A move is three messages of the controller's, and what all have to hear of many moves a few more at each of its ticks: not one for each worker.
#[test]
fn moves_are_heard_by_all_and_said_to_few() {
    let quiet = run(work(20), RELAYED, &[]).controller;
    let changes = [Change::Drain { at: 2, worker: 1 }];
    let moved = run(work(20), RELAYED, &changes);
    assert_eq!(
        moved.map_update_ms.count as u64, moved.moves,
        "heard by all"
    );
    let more = moved.controller.messages_out - quiet.messages_out;
    let ticks = (moved.virtual_s * 20.0) as u64 + 2;
    assert!(more >= moved.moves * 3, "{more}");
    // The first time nobody is known to be up.
    let said = moved.moves * 3 + 20 + ticks * 8;
    assert!(more <= said + moved.controller.acks, "{more}");
    assert!(said < moved.moves * 20, "{said} in {ticks} ticks");
}

/// A central scheduler dispatches at its rate and no faster, however many cores wait; and below its rate the kernels decide. Catches tasks that
/// run without it.
#[test]
fn a_central_scheduler_saturates_at_its_rate() {
    let network = LinkCosts::of_the_paper();
    let rate = 2_600.0;
    for workers in [2, 8, 64] {
        let work = work(workers);
        let slots = f64::from(work.workers * work.cores);
        let cores_could = slots * 1e9 / (work.stage_ns + 2.0 * network.latency_ns as f64);
        let ran = central(&work, &network, rate);
        assert_eq!(ran.tasks, u64::from(work.shards() * work.iterations));
        assert!(ran.tasks_per_s() <= rate, "{workers} workers");
        assert!(ran.tasks_per_s() >= 0.85 * rate.min(cores_could), "{ran:?}");
    }
    // Fast enough, it is as good as any: what is left is the network's.
    let even = CostedWork {
        lengths: Lengths::Even,
        ..work(8)
    };
    let unbounded = central(&even, &network, 1e9);
    assert!(unbounded.iteration_ms.median * 1e6 < 1.1 * even.ideal_ns());
}

/// The figures say what the paper's say. Their values are this model's and may change; what they are about may not.
#[test]
fn the_figures_have_the_papers_shape() {
    let costs = Costs::of_our_machine();
    let scale = Scale {
        workers: 8,
        partitions: 4,
        partitions_on: 8,
        iterations: 4,
    };
    let throughput = figure_5(&costs, scale);
    let (one, eight) = (&throughput[0], &throughput[3]);
    assert_eq!((one.workers, eight.workers), (1, 8));
    assert!(eight.relayed > 7.0 * one.relayed && eight.relayed < eight.alone);
    assert!(eight.central_spark < 1.01 * one.central_spark);
    let scaling = figure_6(&costs, scale).logistic;
    assert!(scaling[3].relayed_ms < scaling[0].relayed_ms / 7.0);
    for row in figure_8(&costs, scale) {
        assert!(row.relayed_ms < row.central_spark_ms && row.relayed_ms > row.ideal_ms);
        assert!(row.central_spark_tasks_per_s < 2_600.0);
    }
}

fn recovered(work: CostedWork, dies: u32, keep: bool) -> RecoveryOutcome {
    let scenario = Scenario::quiet(
        work,
        Costs::of_our_machine(),
        SpreadShape::Relayed { fan_out: 8 },
    );
    recover(&Recovery {
        scenario,
        dies,
        store: StoreCosts {
            request_ns: 2_000_000,
        },
        keep,
        program_bytes: 100_000,
    })
}

/// The claim. A worker dies after a cut, and the job runs again within five seconds beside reading what was lost: whether survivors have theirs or read
/// all.
#[test]
fn recovery_of_a_thousand_workers_takes_seconds() {
    let thousand = CostedWork {
        workers: 1_000,
        cores: 18,
        shards_per_core: 10,
        iterations: 2,
        stage_ns: 1e7,
        lengths: Lengths::Even,
        shard_bytes: 1 << 20,
        ..work(1_000)
    };
    for keep in [true, false] {
        let ran = recovered(thousand, 500, keep);
        println!(
            "figure = {:.3} s beyond reading, survivors have theirs: {keep}; {ran:?}",
            ran.beyond_reading_s()
        );
        assert_eq!(ran.lost_bytes, 180 << 20);
        assert!(ran.beyond_reading_s() <= 5.0, "{ran:?}");
    }
}

/// What the controller does for a recovery grows with what it has to say: each survivor hears of all others. Catches costs that grow faster.
#[test]
fn recovery_costs_the_controller_what_it_says() {
    let cpu_s = |workers| {
        let work = CostedWork {
            iterations: 2,
            ..work(workers)
        };
        recovered(work, workers - 1, true).controller_cpu_s
    };
    let (few, many) = (cpu_s(50), cpu_s(200));
    assert!(many < 16.0 * few, "{few} and {many}");
}

/// Whoever dies, all shards run on, on the others, and the same run is the same each time.
#[test]
fn recovery_runs_each_iteration_after_the_cut_once() {
    for workers in [2, 7, 20] {
        for dies in [0, workers / 2, workers - 1] {
            let ran = || recovered(work(workers), dies, true);
            let first = ran();
            assert_eq!(first.after.iterations, work(workers).iterations);
            assert_eq!(first, ran(), "{dies} of {workers}");
        }
    }
}
