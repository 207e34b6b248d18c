//! A controller, workers and clients in one process, over TCP: programs give the bits of one process, and who takes no part is told why.

use brambling::cluster::{
    Cluster, ClusterError, ControllerOptions, ControllerProcess, JobState, Rendezvous, Source,
    Token, WorkerEnd, WorkerOptions, WorkerProcess,
};
use brambling::prelude::*;
use brambling::program::{Bindings, Plan};
use brambling::{Caller, Error, Interrupted, QuietCaller, Settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Far longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cell's heat, and what came from beside it.
type Cell = (f64, f64);

/// A program, and what a client reads of it.
struct Built {
    program: Program,
    line: Dataset<Cell>,
    total: Dataset<f64>,
}

/// Heat on a line of cells, a partition each; the cells of `slow` programs sleep.
fn heat(cells: u32, turns: u32, slow: bool) -> Built {
    let mut p = Program::new("heat");
    let line = p.load("line", cells, Partitioner::Opaque, |index, _| {
        (f64::from(index % 7) * 1.37, 0.0)
    });
    let value = p.like::<f64, _>("value", &line);
    let total = p.dataset::<f64>("total", 1);
    let mean = p.like::<f64, _>("mean", &line);
    p.keep(&line);
    p.keep(&total);
    p.repeat(u64::from(turns), |p| {
        let send = |cell: &Cell, _: u32, piece: &mut f64| *piece = cell.0;
        let receive = |cell: &mut Cell, _: u32, piece: &f64| cell.1 += piece;
        p.exchange_neighbours("beside", &line, &[-1, 1], false, send, receive);
        let step = p.compute("step").update(&line).write(&value);
        step.run(move |cell: &mut Cell, value: &mut f64| {
            if slow {
                std::thread::sleep(Duration::from_millis(2));
            }
            *cell = (0.5 * cell.0 + 0.25 * cell.1, 0.0);
            *value = cell.0;
        });
        p.reduce_to(Sum, &value, &total);
        p.broadcast(&total, &mean);
        let pull = p.compute("pull").read(&mean).update(&line);
        pull.run(|mean: &f64, cell: &mut Cell| cell.0 += mean * 1e-3);
    });
    Built {
        program: p,
        line,
        total,
    }
}

/// Reads `heat CELLS TURNS SLOW`; everything else is no program.
fn built(bytes: &[u8]) -> Result<Built, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let words: Vec<&str> = text.split(' ').collect();
    match words[..] {
        ["heat", cells, turns, slow] => {
            let number = |text: &str| text.parse::<u32>().map_err(|error| error.to_string());
            Ok(heat(number(cells)?, number(turns)?, slow == "slow"))
        }
        _ => Err("there is no such program".into()),
    }
}

struct Named;

impl Source for Named {
    fn program(&self, bytes: &[u8]) -> Result<Program, String> {
        Ok(built(bytes)?.program)
    }
    fn caller(&self) -> Box<dyn Caller> {
        Box::new(QuietCaller)
    }
}

fn start_controller() -> (ControllerProcess, Rendezvous) {
    let token = Token::new([9; 32]);
    let bind = "127.0.0.1:0".parse().unwrap();
    let options = ControllerOptions {
        bind,
        token: token.clone(),
    };
    let controller = ControllerProcess::start(options).unwrap();
    let address = controller.address();
    (controller, Rendezvous { address, token })
}

fn start_worker(at: &Rendezvous, threads: u32) -> WorkerProcess {
    let mut settings = Settings::default();
    settings.threads = Some(threads);
    let options = WorkerOptions {
        cluster: at.clone(),
        settings,
        bind: None,
    };
    let worker = WorkerProcess::start(options, Box::new(Named)).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while worker.name().is_none() {
        assert!(worker.wait(Duration::from_millis(50)).is_none());
        assert!(Instant::now() < deadline, "it is not registered");
    }
    worker
}

/// Runs it on the cluster, and gives what it leaves.
fn run(cluster: &Cluster, text: &str, caller: &mut dyn Caller) -> Result<(Vec<u64>, u64), Error> {
    let Built {
        program,
        line,
        total,
    } = built(text.as_bytes()).unwrap();
    let plan = Plan::compile(Arc::new(program), &Bindings::default()).unwrap();
    let mut outcome = cluster.run(plan, text.as_bytes(), caller)?;
    assert!(outcome.tally().tasks > 0);
    Ok(bits(&mut outcome, &line, &total))
}

fn bits(outcome: &mut Outcome, line: &Dataset<Cell>, total: &Dataset<f64>) -> (Vec<u64>, u64) {
    let line = outcome
        .take_all(line)
        .into_iter()
        .map(|cell| cell.0.to_bits());
    (line.collect(), outcome.take(total).to_bits())
}

fn here(text: &str) -> (Vec<u64>, u64) {
    let Built {
        program,
        line,
        total,
    } = built(text.as_bytes()).unwrap();
    let mut outcome = RunOptions::new().threads(2).run(program).unwrap();
    bits(&mut outcome, &line, &total)
}

#[test]
fn programs_give_the_bits_of_one_process_on_any_number_of_workers() {
    let (_controller, at) = start_controller();
    let cluster = Cluster::connect(&at).unwrap();
    let mut workers = Vec::new();
    for threads in [1, 2, 1] {
        workers.push(start_worker(&at, threads));
        for text in [
            "heat 20 30 fast",
            "heat 3 5 fast",
            "heat 1 2 fast",
            "heat 2 0 fast",
        ] {
            let found = run(&cluster, text, &mut QuietCaller).unwrap();
            assert_eq!(found, here(text), "{text} on {} workers", workers.len());
        }
    }
    let status = cluster.status().unwrap();
    let threads: Vec<u32> = status.workers.iter().map(|worker| worker.threads).collect();
    assert_eq!(threads, [1, 2, 1]);
    assert_eq!(status.jobs.len(), 12);
    assert!(
        status
            .jobs
            .iter()
            .all(|job| job.state == JobState::Succeeded)
    );
}

#[test]
fn clients_take_turns() {
    let (_controller, at) = start_controller();
    let _workers = [start_worker(&at, 1), start_worker(&at, 1)];
    let expected = here("heat 8 20 fast");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let (at, expected) = (&at, &expected);
            scope.spawn(move || {
                let cluster = Cluster::connect(at).unwrap();
                for _ in 0..3 {
                    let found = run(&cluster, "heat 8 20 fast", &mut QuietCaller).unwrap();
                    assert_eq!(found, *expected);
                }
            });
        }
    });
}

/// Interrupted when it has looked a few times.
struct Impatient(u32);

impl Caller for Impatient {
    fn check(&mut self) -> Result<(), Interrupted> {
        self.0 += 1;
        if self.0 > 20 {
            Err(Interrupted)
        } else {
            Ok(())
        }
    }
}

#[test]
fn who_interrupts_leaves_the_cluster_to_others() {
    let (_controller, at) = start_controller();
    let _workers = [start_worker(&at, 1), start_worker(&at, 1)];
    let cluster = Cluster::connect(&at).unwrap();
    let error = run(&cluster, "heat 4 100000 slow", &mut Impatient(0)).unwrap_err();
    assert_eq!(error.to_string(), "interrupted");
    let found = run(&cluster, "heat 8 20 fast", &mut QuietCaller).unwrap();
    assert_eq!(found, here("heat 8 20 fast"));
    let other = Cluster::connect(&at).unwrap();
    assert_eq!(
        run(&other, "heat 8 20 fast", &mut QuietCaller).unwrap(),
        found
    );
}

#[test]
fn a_client_that_is_gone_leaves_the_cluster_to_others() {
    let (_controller, at) = start_controller();
    let _worker = start_worker(&at, 1);
    let gone = Cluster::connect(&at).unwrap();
    std::thread::scope(|scope| {
        let other = Cluster::connect(&at).unwrap();
        let running = scope.spawn(move || {
            // Its connection ends with it, in the middle of the job.
            let _ = run(&gone, "heat 4 100000 slow", &mut Impatient(0));
            drop(gone);
        });
        let found = run(&other, "heat 8 20 fast", &mut QuietCaller).unwrap();
        assert_eq!(found, here("heat 8 20 fast"));
        running.join().unwrap();
    });
}

#[test]
fn a_worker_that_is_gone_ends_the_job_with_its_name_and_others_go_on() {
    let (_controller, at) = start_controller();
    let _first = start_worker(&at, 1);
    let second = start_worker(&at, 1);
    let cluster = Cluster::connect(&at).unwrap();
    let name = second.name().unwrap().to_string();
    let dying = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(second);
    });
    let error = run(&cluster, "heat 8 100000 slow", &mut QuietCaller).unwrap_err();
    dying.join().unwrap();
    let text = error.to_string();
    assert!(text.contains(&format!("worker {name} (process ")), "{text}");
    assert!(text.contains("5 of the job's shards"), "{text}");
    let found = run(&cluster, "heat 8 20 fast", &mut QuietCaller).unwrap();
    assert_eq!(found, here("heat 8 20 fast"));
    assert_eq!(cluster.status().unwrap().workers.len(), 1);
}

#[test]
fn what_a_worker_cannot_build_is_told_to_who_asked() {
    let (_controller, at) = start_controller();
    let _worker = start_worker(&at, 1);
    let cluster = Cluster::connect(&at).unwrap();
    let plan = |text: &str| {
        let program = built(text.as_bytes()).unwrap().program;
        Plan::compile(Arc::new(program), &Bindings::default()).unwrap()
    };
    let error = cluster.run(plan("heat 4 2 fast"), b"cold", &mut QuietCaller);
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains("on worker w1: there is no such program"),
        "{text}"
    );
    let error = cluster.run(plan("heat 4 2 fast"), b"heat 5 2 fast", &mut QuietCaller);
    let text = error.unwrap_err().to_string();
    assert!(text.contains("[5, 1]") && text.contains("[4, 1]"), "{text}");
    let found = run(&cluster, "heat 8 20 fast", &mut QuietCaller).unwrap();
    assert_eq!(found, here("heat 8 20 fast"));
}

#[test]
fn who_takes_no_part_is_told_why() {
    let (controller, at) = start_controller();
    let cluster = Cluster::connect(&at).unwrap();
    let text = run(&cluster, "heat 4 2 fast", &mut QuietCaller).unwrap_err();
    assert!(text.to_string().contains("no workers"), "{text}");
    // Another token.
    let wrong = Rendezvous {
        token: Token::new([8; 32]),
        ..at.clone()
    };
    let error = Cluster::connect(&wrong).map(drop).unwrap_err();
    assert!(error.to_string().contains("token"), "{error}");
    let options = WorkerOptions {
        cluster: wrong,
        settings: Settings::default(),
        bind: None,
    };
    let worker = WorkerProcess::start(options, Box::new(Named)).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let end = loop {
        if let Some(end) = worker.wait(Duration::from_millis(50)) {
            break end;
        }
        assert!(Instant::now() < deadline);
    };
    assert!(matches!(&end, WorkerEnd::Failed(error) if error.to_string().contains("token")));
    // A port in use.
    let bind = at.address;
    let token = at.token.clone();
    let error = ControllerProcess::start(ControllerOptions { bind, token })
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, ClusterError::Bind { .. }));
    assert!(error.to_string().contains("--bind"), "{error}");
    // A controller that is gone.
    drop(controller);
    let error = cluster.status().unwrap_err();
    assert!(error.to_string().contains("is gone"), "{error}");
    let error = Cluster::connect(&at).map(drop).unwrap_err();
    assert!(error.to_string().contains("start one with"), "{error}");
}

#[test]
fn links_that_break_lose_no_job_and_no_result() {
    let (_controller, at) = start_controller();
    let workers = [start_worker(&at, 1), start_worker(&at, 1)];
    let cluster = Cluster::connect(&at).unwrap();
    let text = "heat 6 30 slow";
    let expected = here(text);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (workers, over) = (&workers, &done);
        scope.spawn(move || {
            // Less often than they are made again, or nothing would ever come through.
            while !over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(170));
                workers.iter().for_each(WorkerProcess::cut);
            }
        });
        for _ in 0..6 {
            let found = run(&cluster, text, &mut QuietCaller);
            if found.is_err() {
                done.store(true, Ordering::SeqCst);
            }
            assert_eq!(found.unwrap(), expected);
        }
        done.store(true, Ordering::SeqCst);
    });
    let status = cluster.status().unwrap();
    let names: Vec<String> = status
        .workers
        .iter()
        .map(|worker| worker.id.to_string())
        .collect();
    assert_eq!(names, ["w1", "w2"], "they are the same workers");
}
