//! Programs that link: another process, and the workers of a cluster, run them from their bytes with the bits of this one; what a client's program makes
//! goes once to whoever holds it.

mod support;

use brambling::cluster::{Cluster, ClusterError, WorkerProcess};
use brambling::ml::MODELS;
use brambling::operators::ml::samples::SampleTable;
use brambling::prelude::*;
use brambling::program::{DatasetId, Foreign, LinkError, PartitionSource};
use brambling::{Error, QuietCaller};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use support::cluster::{Builds, controller, options, threads, worker};

const PARTITIONS: u32 = 6;
const NUMBERS: usize = 5_000;

/// How often a partition's numbers have been made in this process.
static MADE: AtomicU32 = AtomicU32::new(0);

fn numbers(index: u32) -> Vec<f64> {
    let number = |at: usize| (f64::from(index) * 0.7 + at as f64).sin();
    (0..NUMBERS).map(number).collect()
}

fn turn(by: &f64, mean: &f64, numbers: &mut Vec<f64>, sum: &mut f64) {
    numbers.iter_mut().for_each(|x| *x = (*x - mean) * by);
    *sum = numbers.iter().sum();
}

fn share(total: &f64, mean: &mut f64) {
    *mean = total / (f64::from(PARTITIONS) * NUMBERS as f64);
}

fn is_large(total: &f64) -> bool {
    total.abs() > 1e-3
}

struct Built {
    numbers: Dataset<Vec<f64>>,
    total: Dataset<f64>,
}

/// Numbers that are moved towards a mean of zero, until they are near it.
fn centring(p: &mut Program, by: f64) -> Built {
    let numbers = p.load("numbers", PARTITIONS, Partitioner::Opaque, |index, _| {
        MADE.fetch_add(1, Ordering::SeqCst);
        numbers(index)
    });
    let mean = p.value("mean", 1, 0.25f64);
    let local = p.like::<f64, _>("local mean", &numbers);
    let sums = p.like::<f64, _>("sums", &numbers);
    let total = p.value("total", 1, 1.0f64);
    p.keep(&numbers);
    p.keep(&total);
    p.repeat_while("large", &total, is_large, |p| {
        p.broadcast(&mean, &local);
        let stage = p.compute("turn").read(&local).update(&numbers);
        stage.write(&sums).with(by).run(turn);
        p.reduce_to(Sum, &sums, &total);
        p.compute("share").read(&total).update(&mean).run(share);
    });
    Built { numbers, total }
}
links!("tests.centring" 1, |p| {
    centring(p, 1.0);
});

fn built() -> (Program, Built) {
    let mut p = Program::new("centring");
    let built = centring(&mut p, 0.5);
    (p, built)
}

/// The bits that a run has left.
fn bits(mut outcome: Outcome, built: &Built) -> Vec<u64> {
    let numbers = outcome.take_all(&built.numbers).into_iter().flatten();
    let all = numbers.chain([outcome.take(&built.total)]);
    all.map(f64::to_bits).collect()
}

fn here() -> Vec<u64> {
    let (p, built) = built();
    bits(RunOptions::new().threads(2).run(p).unwrap(), &built)
}

/// Set for the process that links: where the program lies, and where its bits go.
const ELSEWHERE: &str = "BRAMBLING_TEST_LINKED";

/// Does nothing, unless another test runs this process for it.
#[test]
fn the_other_process() {
    let Some(path) = std::env::var_os(ELSEWHERE).map(PathBuf::from) else {
        return;
    };
    let mut program = Program::link(&std::fs::read(&path).unwrap()).unwrap();
    let numbers_of: PartitionSource =
        Arc::new(|index, _| brambling::program::Value::new(numbers(index)));
    let to_be_given: Vec<DatasetId> = program.to_be_given().collect();
    assert_eq!(to_be_given.len(), 1);
    program.give(to_be_given[0], numbers_of);
    let built = Built {
        numbers: program.find("numbers").unwrap(),
        total: program.find("total").unwrap(),
    };
    assert!(program.find::<u64>("total").is_none(), "of another type");
    let found = bits(RunOptions::new().threads(1).run(program).unwrap(), &built);
    assert_eq!(MADE.load(Ordering::SeqCst), 0, "the model was not called");
    let bytes: Vec<u8> = found.iter().flat_map(|it| it.to_le_bytes()).collect();
    std::fs::write(path.with_extension("bits"), bytes).unwrap();
}

#[test]
fn another_process_gives_the_same_bits() {
    let path = std::env::temp_dir().join(format!("brambling-linked-{}", std::process::id()));
    std::fs::write(&path, built().0.encode().unwrap()).unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process"])
        .env(ELSEWHERE, &path)
        .status();
    assert!(status.unwrap().success());
    let found = std::fs::read(path.with_extension("bits")).unwrap();
    let expected: Vec<u8> = here().iter().flat_map(|it| it.to_le_bytes()).collect();
    assert!(found == expected, "other bits");
    for path in [path.with_extension("bits"), path] {
        std::fs::remove_file(path).unwrap();
    }
}

fn run_on(cluster: &Arc<Cluster>) -> Vec<u64> {
    let (p, built) = built();
    let run = RunOptions::new().on(cluster).run_with(p, &mut QuietCaller);
    let outcome = run.unwrap();
    let (sent, rows) = (
        outcome.tally().sent_bytes,
        u64::from(PARTITIONS) * NUMBERS as u64 * 8,
    );
    // Beyond the rows: the program, to each worker, and lengths.
    assert!(
        (rows..rows + 20_000).contains(&sent),
        "{sent} bytes for {rows} of rows"
    );
    bits(outcome, &built)
}

#[test]
fn workers_link_what_they_are_sent_and_are_given_each_partition_once() {
    let (_controller, at) = controller(options());
    let nobody = |_: &[u8]| Err("the model is not called again".into());
    let mut workers: Vec<WorkerProcess> = Vec::new();
    let cluster = Arc::new(Cluster::connect(&at).unwrap());
    let expected = here();
    for count in 1..=3 {
        workers.push(worker(&at, threads(1), Builds(nobody)));
        let before = MADE.load(Ordering::SeqCst);
        assert!(
            run_on(&cluster) == expected,
            "other bits on {count} workers"
        );
        // Other tests make some for themselves, each all of them.
        let made = MADE.load(Ordering::SeqCst) - before;
        assert!(
            made >= PARTITIONS && made.is_multiple_of(PARTITIONS),
            "{made}"
        );
    }
}

/// Whatever a model is asked for, its program has only functions that its line of links.rs has.
#[test]
fn every_model_links() {
    for model in MODELS {
        for value in [0.0, 0.5, 1.0] {
            let x = Foreign::owned(vec![0.5; 6]);
            let table = SampleTable::of(x, Foreign::owned(vec![1.0; 3]), 2);
            let parameters = vec![value; model.parameters.len()];
            let (p, _) = model.program(&parameters, table, 3);
            let bytes = p.encode().unwrap_or_else(|error| panic!("{error}"));
            let elsewhere = Program::link(&bytes).unwrap();
            assert_eq!(elsewhere.spec(), p.spec(), "{}", model.name);
        }
    }
}

fn pour(rows: &u64, _: &mut (), streams: &mut Streams<'_, '_>, first: &u64) {
    let rows = first * rows..(first + 1) * rows;
    let chunks = streams.output::<Vec<u64>>();
    for row in rows {
        streams.send(&chunks, (row % 3) as u32, vec![row; 5]);
    }
}

fn drink(_: &mut (), streams: &mut Streams<'_, '_>, sum: &mut u64) -> Progress {
    let chunks = streams.input::<Vec<u64>>(0);
    loop {
        match streams.poll(&chunks) {
            Poll::Pending => return Progress::Pending,
            Poll::Ready(None) => return Progress::Done,
            Poll::Ready(Some((source, chunk))) => {
                *sum = sum.wrapping_mul(31) + chunk.iter().sum::<u64>() + u64::from(source);
            }
        }
    }
}

/// Streams of which no kernel captures anything.
fn flowing(p: &mut Program) -> Dataset<u64> {
    let first = |_: &(), index: u32, _: u32| u64::from(index);
    let firsts = p.scan("firsts", 4, Partitioner::Opaque, (), first);
    let sums = p.dataset::<u64>("sums", 3);
    let chunks = p.streamed::<Vec<u64>>("chunks", Relation::AllToAll);
    let stage = p.stream("pour").send(&chunks).read(&firsts).repeatable();
    stage.with(20).run(|_, _| (), pour);
    p.stream("drink")
        .take(&chunks)
        .update(&sums)
        .run(|_| (), drink);
    sums
}
links!("tests.flowing" 1, |p| {
    flowing(p);
});

#[test]
fn streams_link() {
    let (_controller, at) = controller(options());
    let nobody = |_: &[u8]| Err("the model is not called again".into());
    let _workers = [(); 2].map(|()| worker(&at, threads(1), Builds(nobody)));
    let cluster = Arc::new(Cluster::connect(&at).unwrap());
    let run = |options: RunOptions| {
        let mut p = Program::new("flowing");
        let sums = flowing(&mut p);
        let mut outcome = options.run_with(p, &mut QuietCaller).unwrap();
        outcome.take_all(&sums)
    };
    let here = run(RunOptions::new().threads(2));
    assert!(here.iter().all(|sum| *sum > 0));
    assert_eq!(run(RunOptions::new().on(&cluster)), here);
}

/// A function of the client's that panics ends its run, as it does in one process.
#[test]
fn a_client_that_cannot_make_its_rows_is_told_so() {
    let (_controller, at) = controller(options());
    let _worker = worker(&at, threads(1), Builds(|_: &[u8]| Err("never".into())));
    let cluster = Arc::new(Cluster::connect(&at).unwrap());
    let told = |options: RunOptions| {
        let mut p = Program::new("broken");
        let firsts = p.load("firsts", 4, Partitioner::Opaque, |index, _| {
            assert!(index < 2, "there are two rows");
            0u64
        });
        let sums = p.like::<u64, _>("sums", &firsts);
        p.compute("take").read(&firsts).write(&sums).run(take);
        options
            .run_with(p, &mut QuietCaller)
            .map(drop)
            .unwrap_err()
            .to_string()
    };
    let text = told(RunOptions::new().on(&cluster));
    assert!(
        text.contains("load firsts") && text.contains("there are two rows"),
        "{text}"
    );
    // The cluster goes on.
    assert!(run_on(&cluster) == here());
}

fn take(first: &u64, sum: &mut u64) {
    *sum = *first;
}
links!("tests.broken" 1, |p| {
    let firsts = p.value("firsts", 1, 0u64);
    let sums = p.value("sums", 1, 0u64);
    p.compute("take").read(&firsts).write(&sums).run(take);
});

#[test]
fn what_does_not_link_is_told_by_its_stage() {
    let (_controller, at) = controller(options());
    let _worker = worker(&at, threads(1), Builds(|_: &[u8]| Err("never".into())));
    let cluster = Arc::new(Cluster::connect(&at).unwrap());
    let mut p = Program::new("captures");
    let x = p.value("x", 2, 1.0f64);
    let by = MADE.load(Ordering::SeqCst);
    p.compute("adds")
        .update(&x)
        .run(move |x: &mut f64| *x += f64::from(by));
    let error = RunOptions::new().on(&cluster).run_with(p, &mut QuietCaller);
    let Err(Error::Cluster(ClusterError::NotLinked { source, .. })) = error else {
        panic!("{:?}", error.err());
    };
    assert!(matches!(source, LinkError::Captures { .. }));
    let text = ClusterError::NotLinked {
        name: "captures".into(),
        source,
    };
    let says = "the program `captures` does not run on a cluster: stage `adds` runs in its own process only: its function captures values";
    assert!(text.to_string().starts_with(says), "{text}");
}
