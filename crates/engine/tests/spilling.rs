//! A cluster whose workers have less memory than what is on its way between its shards.

mod support;

use brambling::cluster::{Cluster, MetricsListener, Rendezvous, WorkerProcess};
use brambling::prelude::*;
use brambling::program::{Bindings, Inbox, Outbox, Plan, Relation};
use brambling::{Error, Failure, QuietCaller, Settings};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use support::cluster::{
    Builds, PATIENCE, controller, options, threads_and_memory, worker, worker_options,
};
use support::exposition::{Exposition, parse};
use support::folder::Folder;

const PARTITIONS: u32 = 16;
/// Numbers of a piece: 48 KB. What a partition gets in a turn fits the exchange's floor of 8 MB, an eighth; what all
/// partitions of a worker get does not fit that and the rest, five sixteenths.
const NUMBERS: usize = 6 << 10;

/// Each partition sends numbers of its own to each, turn after turn.
fn copies() -> (Program, Dataset<u64>) {
    let mut p = Program::new("copies");
    let exchange = p.exchange::<Vec<u64>>("copies", Relation::AllToAll);
    let sums = p.load("sums", PARTITIONS, Partitioner::Opaque, |index, _| {
        u64::from(index)
    });
    p.keep(&sums);
    p.repeat(3, |p| {
        p.scatter("send", &exchange).read(&sums).run(
            |sum: &u64, out: &mut Outbox<'_, Vec<u64>>| {
                for to in 0..out.fan_out() {
                    let first = sum.wrapping_mul(31).wrapping_add(u64::from(to));
                    let piece = out.piece(to);
                    piece.clear();
                    piece.extend((0..NUMBERS as u64).map(|at| first.wrapping_mul(at + 1)));
                }
            },
        );
        p.gather("take", &exchange).update(&sums).run(
            |inbox: &mut Inbox<'_, Vec<u64>>, sum: &mut u64| {
                for (_, piece) in inbox {
                    assert_eq!(piece.len(), NUMBERS);
                    let fold = |sum: u64, it: &u64| sum.wrapping_mul(7).wrapping_add(*it);
                    *sum = piece.iter().fold(*sum, fold);
                }
            },
        );
    });
    (p, sums)
}

/// With and without a place to spill to.
fn settings(threads: u32, spill: Option<String>) -> Settings {
    let mut settings = threads_and_memory(threads, "8MB");
    settings.spill = spill;
    settings
}

fn start(at: &Rendezvous, threads: u32, spill: Option<String>) -> WorkerProcess {
    worker(
        at,
        settings(threads, spill),
        Builds(|_: &[u8]| Ok(copies().0)),
    )
}

fn run(at: &Rendezvous) -> Result<Vec<u64>, Error> {
    let cluster = Cluster::connect(at).unwrap();
    let (program, sums) = copies();
    let plan = Plan::compile(Arc::new(program), &Bindings::default()).unwrap();
    let mut outcome = cluster.run(plan, b"copies", 1, &mut QuietCaller)?;
    Ok(outcome.take_all(&sums))
}

fn here() -> Vec<u64> {
    let (program, sums) = copies();
    let mut outcome = RunOptions::new().threads(2).run(program).unwrap();
    outcome.take_all(&sums)
}

fn scrape(worker: &WorkerProcess) -> Exposition {
    let listener = MetricsListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let endpoint = worker.serve_metrics(listener).unwrap();
    let mut stream = TcpStream::connect(endpoint.address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").expect("a whole head");
    parse(body)
}

#[test]
fn what_finds_no_room_is_spilled_and_the_bits_are_those_of_one_process() {
    let folder = Folder::new("spilling-fits");
    let (_controller, at) = controller(options());
    let spill = Some(folder.path().display().to_string());
    let workers = [2, 2].map(|threads| start(&at, threads, spill.clone()));
    assert_eq!(workers[0].spill_news(), None);
    assert_eq!(run(&at).unwrap(), here());
    for worker in &workers {
        let found = scrape(worker);
        let pieces = found.value("brambling_spills_total");
        let bytes = found.value("brambling_spilled_bytes_total");
        assert!(pieces > 10.0 && bytes > 4e5, "{pieces} {bytes}");
        // What a gather takes while it is being written is not read back.
        let read = found.value("brambling_spill_reads_total");
        let read_bytes = found.value("brambling_spill_read_bytes_total");
        assert!(read > 10.0 && read <= pieces, "{read} of {pieces}");
        assert!(
            read_bytes > 4e5 && read_bytes <= bytes,
            "{read_bytes} of {bytes}"
        );
        let news = worker.spill_news().expect("it has spilled");
        let path = folder.path().display().to_string();
        for said in [&path, "out of memory: ", "BRAMBLING_MEMORY"] {
            assert!(news.contains(said), "{news}");
        }
        assert_eq!(worker.spill_news(), None, "it was told");
    }
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "nothing has a name there");
}

fn refused(at: &Rendezvous) -> String {
    let ended = run(at).unwrap_err();
    let Error::Failure(Failure::Elsewhere { failure, origin }) = &ended else {
        panic!("{ended:?}");
    };
    let kind = origin.as_ref().map(|origin| origin.kind);
    let told = format!("{kind:?} {failure}");
    assert!(told.starts_with("Some(OutOfMemory)"), "{told}");
    assert!(told.contains("exchange `copies`"), "{told}");
    told
}

#[test]
fn without_a_directory_the_error_names_exchange_and_settings() {
    let (_controller, at) = controller(options());
    let _worker = start(&at, 1, None);
    let told = refused(&at);
    assert!(told.contains("stage `send` on partition"), "{told}");
    assert!(
        told.contains("raise the budget with BRAMBLING_MEMORY"),
        "{told}"
    );
    assert!(
        told.contains("give a directory with BRAMBLING_SPILL"),
        "{told}"
    );
}

#[test]
fn a_directory_that_is_full_is_told_with_its_name() {
    let folder = Folder::new("spilling-full");
    let (_controller, at) = controller(options());
    let path = folder.path().display().to_string();
    let _worker = start(&at, 1, Some(format!("{path}:1MB")));
    let told = refused(&at);
    assert!(told.contains(&format!("{path} has no room")), "{told}");
    assert!(told.contains("1048576"), "{told}");
}

#[test]
fn a_directory_that_is_not_there_is_refused_at_the_start() {
    let folder = Folder::new("spilling-missing");
    let (_controller, at) = controller(options());
    let missing = folder.at("missing").display().to_string();
    let options = worker_options(&at, settings(1, Some(missing.clone())));
    let source = Box::new(Builds(|_: &[u8]| Ok(copies().0)));
    let told = WorkerProcess::start(options, source).err().unwrap();
    let told = told.to_string();
    let expected = format!("{missing} cannot be spilled to: ");
    assert!(told.starts_with(&expected), "{told}");
    assert!(told.contains("BRAMBLING_SPILL"), "{told}");
}
