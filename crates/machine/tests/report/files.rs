//! Stages that read and write files: what bounds them, and the steps of a job on files. Figures are worked out by hand.

use crate::made::stage;
use brambling_machine::ledger::{Ledger, Moment, StageWork, ThreadEntry, TimeParts, WorkerEntry};
use brambling_machine::report::{Phase, Pipeline, Report, Resource, Roofs};

/// Reads 100 bytes a second, writes 50, streams 1,000.
fn roofs() -> Roofs {
    Roofs {
        probed: true,
        memory_read_bytes_per_s: Some(1_000.0),
        disk_read_bytes_per_s: Some(100.0),
        disk_write_bytes_per_s: Some(50.0),
        ..Roofs::default()
    }
}

fn moment(begin_s: f64, stage: u32, disk: f64, kernels: f64) -> Moment {
    Moment {
        begin_s,
        parts: TimeParts {
            kernels,
            disk,
            ..TimeParts::default()
        },
        stage: Some(stage),
        tasks: 1,
    }
}

/// Ten seconds of one thread: 200 bytes are read in 3 s, of which it waits for 2; as many are written in 6 s, of which it waits for 5. A
/// second goes to a stage without files.
fn sorted() -> Ledger {
    let moments = vec![
        moment(0.0, 0, 2.0, 1.0),
        moment(3.0, 1, 5.0, 1.0),
        moment(9.0, 2, 0.0, 1.0),
    ];
    let parts = TimeParts {
        kernels: 3.0,
        disk: 7.0,
        ..TimeParts::default()
    };
    let work = |kernel_s, streamed_bytes, file_read_bytes, file_written_bytes| StageWork {
        kernel_s,
        streamed_bytes,
        file_read_bytes,
        file_written_bytes,
        ..StageWork::default()
    };
    Ledger {
        program: "sort".into(),
        wall_s: 10.0,
        succeeded: true,
        stages: vec![
            stage("read", "stream", false),
            stage("sort", "stream", false),
            stage("count", "compute", true),
        ],
        workers: vec![WorkerEntry {
            name: "here".into(),
            threads: vec![ThreadEntry {
                name: "thread 0".into(),
                wall_s: 10.0,
                parts,
                moments,
            }],
            stages: vec![
                work(1.0, 600, 200, 0),
                work(1.0, 400, 0, 200),
                work(1.0, 1_000, 0, 0),
            ],
            disk_read_bytes: 230,
            disk_written_bytes: 250,
            spilled_bytes: 50,
            ..WorkerEntry::default()
        }],
    }
}

#[test]
fn a_stage_that_waits_for_the_disk_is_bound_by_it() {
    let report = Report::new(sorted(), &roofs());
    let of = |index: usize| {
        let stage = &report.stages[index];
        (stage.bound_by, stage.actual_seconds, stage.ideal_seconds)
    };
    assert_eq!(of(0), (Some(Resource::Disk), 3.0, 2.0));
    assert_eq!(of(1), (Some(Resource::Disk), 6.0, 4.0));
    assert_eq!(of(2), (Some(Resource::MemoryBandwidth), 1.0, 1.0));
    let disk = report.stages[1].resources.last().unwrap();
    assert_eq!((disk.resource, disk.amount), (Resource::Disk, 200.0));
    assert_eq!(disk.roof_per_second, Some(50.0));
    // The disk once, not also the kernels beside it; what was spilled is no ideal.
    let setup = &report.phases[0];
    assert_eq!(
        (setup.bound_by, setup.ideal_seconds),
        (Some(Resource::Disk), 6.0)
    );
    assert_eq!(report.bound_by, Some(Resource::Disk));
    assert_eq!(report.ideal_seconds, Some(7.0));
    let disks = report
        .resources
        .iter()
        .filter(|it| it.resource == Resource::Disk);
    assert_eq!(disks.map(|it| it.amount).collect::<Vec<_>>(), [400.0]);
}

#[test]
fn files_that_a_loop_reads_are_the_loops() {
    let mut ledger = sorted();
    ledger.stages[0].in_loop = true;
    let report = Report::new(ledger, &roofs());
    let disk_of = |phase: Phase| {
        let phase = report.phases.iter().find(|it| it.name == phase).unwrap();
        let used = phase
            .resources
            .iter()
            .find(|it| it.resource == Resource::Disk);
        used.map(|it| it.amount)
    };
    assert_eq!(
        (disk_of(Phase::Setup), disk_of(Phase::Loop)),
        (Some(200.0), Some(200.0))
    );
}

#[test]
fn files_in_the_systems_memory_count_as_ideal() {
    let mut ledger = sorted();
    ledger.workers[0].stages[0].file_read_bytes = 2_000;
    let report = Report::new(ledger, &roofs());
    let stage = &report.stages[0];
    assert_eq!(
        (stage.ideal_seconds, stage.share_of_ideal),
        (3.0, Some(1.0))
    );
    assert!(stage.above_roof);
    let told = |note: &String| {
        note == "read ran faster than the disk allows: files lay in the system's memory, and count as ideal"
    };
    assert!(report.notes.iter().any(told), "{:?}", report.notes);
}

#[test]
fn without_a_probe_files_bound_nothing() {
    let report = Report::new(sorted(), &Roofs::default());
    assert!(
        report
            .stages
            .iter()
            .all(|it| it.bound_by != Some(Resource::Disk))
    );
    let steps = report.pipeline(Pipeline::Sort, 0.0);
    assert_eq!(
        (steps[0].ideal_seconds, steps[1].ideal_seconds),
        (None, None)
    );
}

#[test]
fn the_steps_of_a_sort() {
    let report = Report::new(sorted(), &roofs());
    let steps = report.pipeline(Pipeline::Sort, 0.5);
    let steps: Vec<_> = steps
        .iter()
        .map(|it| (it.name, it.seconds, it.ideal_seconds, it.bytes))
        .collect();
    assert_eq!(
        steps,
        [
            ("read", 2.0, Some(2.0), 200),
            ("partition", 1.0, Some(0.6), 600),
            ("exchange", 0.0, Some(0.0), 0),
            ("sort", 1.0, Some(0.4), 400),
            ("write", 5.5, Some(4.0), 200),
        ]
    );
}
