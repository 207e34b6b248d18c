//! A cluster whose workers have less memory than what is on its way between its shards.

#[path = "support/exposition.rs"]
mod exposition;

use brambling::cluster::{
    Cluster, ControllerOptions, ControllerProcess, JOBS_AT_ONCE, MetricsListener, Rendezvous,
    Source, Token, WorkerOptions, WorkerProcess,
};
use brambling::prelude::*;
use brambling::program::{Bindings, Inbox, Outbox, Plan, Relation};
use brambling::{Caller, Error, Failure, QuietCaller, Settings};
use exposition::{Exposition, parse};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
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

struct Copies;

impl Source for Copies {
    fn program(&self, _: &[u8]) -> Result<Program, String> {
        Ok(copies().0)
    }
    fn caller(&self) -> Box<dyn Caller> {
        Box::new(QuietCaller)
    }
}

/// A directory of its own, which is gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("brambling-spilling-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn controller() -> (ControllerProcess, Rendezvous) {
    let token = Token::new([3; 32]);
    let options = ControllerOptions {
        bind: "127.0.0.1:0".parse().unwrap(),
        token: token.clone(),
        tls: None,
        balance_each: None,
        jobs_at_once: JOBS_AT_ONCE,
    };
    let controller = ControllerProcess::start(options).unwrap();
    let address = controller.address();
    let tls = None;
    let at = Rendezvous {
        address,
        token,
        tls,
    };
    (controller, at)
}

fn start(at: &Rendezvous, threads: u32, spill: Option<String>) -> Result<WorkerProcess, Error> {
    let mut settings = Settings::default();
    settings.threads = Some(threads);
    settings.memory = Some("8MB".into());
    settings.spill = spill;
    let options = WorkerOptions {
        cluster: at.clone(),
        settings,
        bind: None,
    };
    let worker = WorkerProcess::start(options, Box::new(Copies))?;
    let deadline = Instant::now() + PATIENCE;
    while worker.name().is_none() {
        assert!(worker.wait(Duration::from_millis(50)).is_none());
        assert!(Instant::now() < deadline, "it is not registered");
    }
    Ok(worker)
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
    let folder = Folder::new("fits");
    let (_controller, at) = controller();
    let spill = Some(folder.0.display().to_string());
    let workers = [2, 2].map(|threads| start(&at, threads, spill.clone()).unwrap());
    assert_eq!(workers[0].spill_news(), None);
    assert_eq!(run(&at).unwrap(), here());
    for worker in &workers {
        let found = scrape(worker);
        let pieces = found.value("brambling_spills_total");
        let bytes = found.value("brambling_spilled_bytes_total");
        assert!(pieces > 10.0 && bytes > 4e5, "{pieces} {bytes}");
        assert_eq!(found.value("brambling_spill_reads_total"), pieces);
        assert_eq!(found.value("brambling_spill_read_bytes_total"), bytes);
        let news = worker.spill_news().expect("it has spilled");
        let path = folder.0.display().to_string();
        for said in [&path, "out of memory: ", "BRAMBLING_MEMORY"] {
            assert!(news.contains(said), "{news}");
        }
        assert_eq!(worker.spill_news(), None, "it was told");
    }
    let left = std::fs::read_dir(&folder.0).unwrap().count();
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
    let (_controller, at) = controller();
    let _worker = start(&at, 1, None).unwrap();
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
    let folder = Folder::new("full");
    let (_controller, at) = controller();
    let path = folder.0.display().to_string();
    let _worker = start(&at, 1, Some(format!("{path}:1MB"))).unwrap();
    let told = refused(&at);
    assert!(told.contains(&format!("{path} has no room")), "{told}");
    assert!(told.contains("1048576"), "{told}");
}

#[test]
fn a_directory_that_is_not_there_is_refused_at_the_start() {
    let folder = Folder::new("missing");
    let (_controller, at) = controller();
    let missing = folder.0.join("missing").display().to_string();
    let told = start(&at, 1, Some(missing.clone()))
        .err()
        .unwrap()
        .to_string();
    let expected = format!("{missing} cannot be spilled to: ");
    assert!(told.starts_with(&expected), "{told}");
    assert!(told.contains("BRAMBLING_SPILL"), "{told}");
}
