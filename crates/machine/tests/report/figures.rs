//! The figures of a report, worked out by hand, and the text and JSON that tell them.

use brambling_machine::ledger::{
    Ledger, Moment, StageEntry, StageWork, ThreadEntry, TimeParts, WorkerEntry,
};
use brambling_machine::report::{Phase, RandomRoof, Report, Resource, Roofs};

use crate::made;

/// Two threads of 10 s: 1 s of startup, 2 s of setup, 6 s of loop in kernels, and 1 s that goes into exchange.
fn small() -> Ledger {
    let moment = |begin_s, kernels, exchange, startup, stage| Moment {
        begin_s,
        parts: TimeParts {
            kernels,
            exchange,
            startup,
            ..TimeParts::default()
        },
        stage,
        tasks: 1,
    };
    let moments = vec![
        moment(0.0, 0.0, 0.0, 1.0, None),
        moment(1.0, 2.0, 0.0, 0.0, Some(0)),
        moment(3.0, 6.0, 1.0, 0.0, Some(1)),
    ];
    let thread = |name: &str| ThreadEntry {
        name: name.into(),
        wall_s: 10.0,
        parts: TimeParts {
            kernels: 8.0,
            exchange: 1.0,
            startup: 1.0,
            ..TimeParts::default()
        },
        moments: moments.clone(),
    };
    let worker = WorkerEntry {
        name: "here".into(),
        threads: vec![thread("thread 0"), thread("thread 1")],
        stages: vec![
            StageWork {
                kernel_s: 4.0,
                streamed_bytes: 1_000,
                ..StageWork::default()
            },
            StageWork {
                kernel_s: 12.0,
                streamed_bytes: 4_000,
                random_accesses: 300,
                table_bytes: 1 << 30,
                flops: 50,
                ..StageWork::default()
            },
        ],
        ..WorkerEntry::default()
    };
    let stages = vec![
        made::stage("load", "compute", false),
        made::stage("rank", "gather", true),
    ];
    Ledger {
        program: "small".into(),
        wall_s: 10.0,
        succeeded: true,
        stages,
        workers: vec![worker],
    }
}

/// 1,000 bytes, 100 places and 100 operations a second.
fn roofs() -> Roofs {
    Roofs {
        probed: true,
        memory_read_bytes_per_s: Some(1_000.0),
        random: vec![RandomRoof {
            table_bytes: 1 << 20,
            accesses_per_s: 100.0,
        }],
        flops_per_s: Some(100.0),
        ..Roofs::default()
    }
}

#[track_caller]
fn near(one: f64, other: f64) {
    assert!((one - other).abs() < 1e-9, "{one} is not {other}");
}

#[test]
fn the_resource_that_takes_the_longest_bounds_a_stage() {
    let report = Report::new(small(), &roofs());
    let rank = &report.stages[1];
    // Memory 4 s, random access 3 s, arithmetic 0.5 s, of 6 s.
    assert_eq!(rank.bound_by, Some(Resource::MemoryBandwidth));
    near(rank.ideal_seconds, 4.0);
    near(rank.share_of_ideal.unwrap(), 4.0 / 6.0);
    let slower = Roofs {
        random: vec![RandomRoof {
            table_bytes: 1 << 20,
            accesses_per_s: 60.0,
        }],
        ..roofs()
    };
    let rank = &Report::new(small(), &slower).stages[1];
    assert_eq!(rank.bound_by, Some(Resource::RandomAccess));
    near(rank.ideal_seconds, 5.0);
}

#[test]
fn phases_sum_to_the_job() {
    let report = Report::new(small(), &roofs());
    let phases: Vec<_> = report
        .phases
        .iter()
        .map(|phase| (phase.name, phase.actual_seconds, phase.ideal_seconds))
        .collect();
    assert_eq!(phases, [(Phase::Setup, 3.0, 1.0), (Phase::Loop, 7.0, 4.0)]);
    near(report.ideal_seconds.unwrap(), 5.0);
    near(report.share_of_ideal.unwrap(), 0.5);
    assert_eq!(report.bound_by, Some(Resource::MemoryBandwidth));
    assert!(!report.at_most);
    let parts = |parts: TimeParts| (parts.startup, parts.kernels, parts.exchange);
    assert_eq!(
        report
            .phases
            .iter()
            .map(|phase| parts(phase.parts))
            .collect::<Vec<_>>(),
        [(1.0, 2.0, 0.0), (0.0, 6.0, 1.0)]
    );
    assert_eq!(
        report
            .stages
            .iter()
            .map(|stage| parts(stage.parts))
            .collect::<Vec<_>>(),
        [(0.0, 2.0, 0.0), (0.0, 6.0, 1.0)]
    );
    // Kernels took 8 s where 5 were ideal; startup and exchange 1 s each.
    let rest: Vec<_> = report
        .rest
        .iter()
        .map(|rest| (rest.what, rest.seconds.round(), rest.share))
        .collect();
    assert_eq!(
        rest.iter().map(|rest| (rest.0, rest.1)).collect::<Vec<_>>(),
        [
            ("kernels beyond ideal", 3.0),
            ("exchange", 1.0),
            ("startup", 1.0)
        ]
    );
    near(
        rest.iter().map(|rest| rest.2).sum::<f64>() + report.share_of_ideal.unwrap(),
        1.0,
    );
}

#[test]
fn without_moments_phases_follow_the_kernels() {
    let mut ledger = small();
    ledger.workers[0]
        .threads
        .iter_mut()
        .for_each(|thread| thread.moments.clear());
    let report = Report::new(ledger, &roofs());
    near(report.phases[0].actual_seconds, 1.0 + 9.0 / 4.0);
    near(report.phases[1].actual_seconds, 9.0 * 3.0 / 4.0);
}

#[test]
fn two_machines_have_the_roof_twice_and_two_workers_of_one_do_not() {
    let on = |hosts: [&str; 2]| {
        let mut ledger = small();
        ledger.workers.push(ledger.workers[0].clone());
        for (worker, host) in ledger.workers.iter_mut().zip(hosts) {
            worker.host = host.into();
        }
        let report = Report::new(ledger, &roofs());
        (report.hosts, report.stages[1].ideal_seconds)
    };
    assert_eq!(on(["a", "b"]), (2, 4.0));
    assert_eq!(on(["", ""]), (2, 4.0));
    // 8,000 bytes at 1,000 a second would be 8 s, more than the kernels took: they lay in caches.
    assert_eq!(on(["a", "a"]), (1, 6.0));
}

#[test]
fn what_is_faster_than_memory_lay_in_caches() {
    let report = Report::new(
        small(),
        &Roofs {
            memory_read_bytes_per_s: Some(400.0),
            random: Vec::new(),
            ..roofs()
        },
    );
    assert!(
        report
            .stages
            .iter()
            .all(|stage| stage.above_roof && stage.share_of_ideal == Some(1.0))
    );
    assert!(
        report.notes.iter().any(|note| note.contains("caches")),
        "{:?}",
        report.notes
    );
    near(report.share_of_ideal.unwrap(), 0.8);
}

#[test]
fn without_a_probe_the_best_stage_stands_in() {
    let mut ledger = small();
    ledger.workers[0].stages[1].random_accesses = 0;
    let report = Report::new(ledger, &Roofs::default());
    // rank streams 4,000 bytes in 6 s, load 1,000 in 2 s: at rank's rate load takes 1.5 s.
    assert!(report.at_most && !report.probed);
    near(report.stages[0].ideal_seconds, 1.5);
    near(report.stages[1].ideal_seconds, 6.0);
    assert_eq!(report.bound_by, Some(Resource::Kernels));
    assert!(
        report
            .to_text()
            .contains("not probed: `brambling probe` (2 min)"),
        "{}",
        report.to_text()
    );
    assert!(
        report.headline().contains("at most 75 % of ideal"),
        "{}",
        report.headline()
    );
}

#[test]
fn without_a_probe_reading_out_of_order_is_judged_by_nothing_in_order() {
    let mut ledger = small();
    ledger.workers[0].stages[0].kernel_s = 1.0;
    let report = Report::new(ledger, &Roofs::default());
    // load streams 2,000 bytes a second, which would make 2 s of rank's 6.
    near(report.stages[1].ideal_seconds, 6.0);
    assert!(report.stages[1].at_most);
}

#[test]
fn kernels_that_nobody_counts_are_ideal_when_they_are_even() {
    let mut ledger = small();
    ledger.stages[1].python = true;
    ledger.workers[0].stages[1] = StageWork {
        kernel_s: 12.0,
        ..StageWork::default()
    };
    let report = Report::new(ledger, &roofs());
    near(report.stages[1].ideal_seconds, 6.0);
    assert_eq!(report.bound_by, Some(Resource::PythonKernels));
    assert!(!report.at_most);
    assert!(
        report
            .notes
            .iter()
            .any(|note| note.contains("spread evenly")),
        "{:?}",
        report.notes
    );
}

#[test]
fn disks_and_networks_bound_a_phase_and_spilling_is_no_ideal() {
    let mut ledger = small();
    ledger.workers.push(ledger.workers[0].clone());
    for worker in &mut ledger.workers {
        (
            worker.disk_read_bytes,
            worker.disk_written_bytes,
            worker.spilled_bytes,
        ) = (1_500, 500, 500);
        (worker.sent_bytes, worker.received_bytes) = (600, 600);
    }
    let known = Roofs {
        disk_read_bytes_per_s: Some(400.0),
        disk_write_bytes_per_s: Some(100.0),
        network_bytes_per_s: Some(100.0),
        ..roofs()
    };
    let report = Report::new(ledger, &known);
    let phases: Vec<_> = report
        .phases
        .iter()
        .map(|phase| (phase.bound_by, phase.ideal_seconds))
        .collect();
    assert_eq!(
        phases,
        [(Some(Resource::Disk), 2.5), (Some(Resource::Network), 6.0)]
    );
    assert_eq!(report.bound_by, Some(Resource::Network));
}

#[test]
fn stragglers_and_the_split_are_those_of_the_paper() {
    let mut ledger = small();
    ledger.workers = vec![
        ledger.workers[0].clone(),
        ledger.workers[0].clone(),
        ledger.workers[0].clone(),
    ];
    for (worker, (last_task_s, received)) in
        ledger
            .workers
            .iter_mut()
            .zip([(10.0, 120), (7.0, 90), (4.0, 90)])
    {
        (worker.last_task_s, worker.received_bytes) = (last_task_s, received);
    }
    let balance = Report::new(ledger, &roofs()).balance;
    near(balance.stragglers_seconds, 3.0);
    near(balance.split_imbalance.unwrap(), 0.2);
    near(balance.slowest_worker.unwrap(), 1.0);
}

#[test]
fn what_no_part_explains_is_told() {
    let mut ledger = small();
    ledger.workers[0].threads[1].parts.kernels -= 2.0;
    let report = Report::new(ledger, &roofs());
    near(report.unattributed, 0.1);
    near(report.largest_unattributed, 0.2);
    assert_eq!(report.rest.last().map(|rest| rest.what), Some("startup"));
    assert!(
        report
            .rest
            .iter()
            .any(|rest| rest.what == "unattributed" && (rest.share - 0.1).abs() < 1e-9)
    );
}

#[test]
fn a_job_that_did_nothing() {
    let report = Report::new(Ledger::default(), &Roofs::default());
    assert_eq!(
        (report.ideal_seconds, report.share_of_ideal, report.bound_by),
        (None, None, None)
    );
    let _ = (
        report.to_html(),
        report.to_trace(),
        report.to_trace_json(),
        report.to_json(),
    );
    assert!(
        report
            .to_text()
            .starts_with("failed after 0 s, ideal not known"),
        "{}",
        report.to_text()
    );
}

#[test]
fn figures_that_are_no_numbers_end_nothing() {
    let mut ledger = small();
    (ledger.wall_s, ledger.workers[0].threads[0].wall_s) = (f64::NAN, f64::INFINITY);
    ledger.workers[0].threads[0].moments[1].begin_s = f64::NAN;
    ledger.workers[0].threads[0].moments[2].stage = Some(99);
    (
        ledger.workers[0].stages[0].kernel_s,
        ledger.workers[0].stages[1].streamed_bytes,
    ) = (f64::NAN, u64::MAX);
    let report = Report::new(ledger, &roofs());
    let _ = (
        report.to_text(),
        report.to_html(),
        report.to_trace(),
        report.to_trace_json(),
    );
    assert!(serde_json::from_str::<serde_json::Value>(&report.to_json()).is_ok());
}

#[test]
fn text_fits_a_terminal_whatever_names_are() {
    let mut ledger = made::healthy(2, 4, 200);
    ledger.program = format!("a\u{1b}[31m\r\nb{}", "name".repeat(60));
    ledger.stages[2] = StageEntry {
        name: "界".repeat(80),
        kind: "a kind of its own".into(),
        python: true,
        in_loop: true,
    };
    ledger.workers[0].name = "worker-with-a-very-long-name-of-its-host".into();
    let text = Report::new(ledger, &Roofs::default()).to_text();
    for line in text.lines() {
        assert!(line.chars().count() <= 100, "{line}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}

#[test]
fn the_first_line_is_the_answer() {
    let report = Report::new(made::healthy(2, 4, 2_500), &made::roofs());
    assert_eq!(
        report.to_text().lines().next(),
        Some("2.1 s, 82 % of ideal, bound by memory bandwidth")
    );
}

/// Whoever reads the JSON reads these keys: one that goes is a new version.
#[test]
fn keys_of_the_json() {
    let json: serde_json::Value =
        serde_json::from_str(&Report::new(small(), &roofs()).to_json()).unwrap();
    let keys = |value: &serde_json::Value| {
        let mut keys: Vec<_> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys.join(" ")
    };
    assert_eq!(json["version"], 1);
    assert_eq!(
        keys(&json),
        "actual_seconds advice at_most balance bound_by hosts ideal_seconds largest_unattributed notes phases probed program \
         resources rest shards share_of_ideal shares stages succeeded tasks threads unattributed version worker_count workers"
    );
    assert_eq!(
        keys(&json["phases"][0]),
        "actual_seconds bound_by ideal_seconds name parts resources share_of_ideal"
    );
    assert_eq!(
        keys(&json["stages"][0]),
        "above_roof actual_seconds at_most bound_by ideal_seconds kind name parts phase python resources share_of_ideal share_of_time"
    );
    assert_eq!(
        keys(&json["resources"][0]),
        "amount ideal_seconds resource roof_per_second"
    );
    assert_eq!(keys(&json["rest"][0]), "seconds share what");
    assert_eq!(
        keys(&json["balance"]),
        "slowest_shard slowest_worker split_imbalance stragglers_seconds"
    );
    assert_eq!(
        keys(&json["workers"][0]),
        "budget_bytes disk_read_bytes disk_written_bytes host last_task_seconds name peak_bytes received_bytes sent_bytes shards \
         shares speed spilled_bytes tasks threads"
    );
    assert_eq!(
        keys(&json["workers"][0]["threads"][0]),
        "name parts unattributed wall_seconds"
    );
    assert_eq!(
        (
            json["bound_by"].as_str(),
            json["phases"][1]["name"].as_str()
        ),
        (Some("memory bandwidth"), Some("loop"))
    );
}

#[test]
fn a_phase_without_kernels_has_no_negative_time() {
    let mut ledger = made::healthy(1, 2, 40);
    for stage in &mut ledger.stages {
        stage.in_loop = true;
    }
    let report = Report::new(ledger, &made::roofs());
    for phase in &report.phases {
        assert!(phase.ideal_seconds.is_sign_positive(), "{phase:?}");
    }
    assert!(!report.to_text().contains("-0 %"), "{}", report.to_text());
}
