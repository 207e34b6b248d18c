//! A controller, workers and clients in one process, over TCP: programs give the bits of one process, and who takes no part is told why.

mod support;

use brambling::cluster::{
    BALANCE_EACH, Cluster, ClusterError, ControllerOptions, ControllerProcess, GroupId, JobId,
    JobState, Rendezvous, ShardId, Token, WorkerEnd, WorkerId, WorkerProcess,
};
use brambling::graph::{
    EdgeList, PageRank, Precision, bfs, connected_components, label_propagation, local_clustering,
    pagerank, sssp,
};
use brambling::ml::{self, Given, KMeans, KMeansStart, LogisticRegression, MODELS, Solver};
use brambling::operators::ml::samples::SampleTable;
use brambling::prelude::*;
use brambling::program::{Bindings, Foreign, Plan};
use brambling::{Caller, Error, Interrupted, QuietCaller, Settings};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::cluster::{self, Builds, PATIENCE, settled, worker_options};

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

fn start_controller() -> (ControllerProcess, Rendezvous) {
    start_controller_with(Some(BALANCE_EACH))
}

fn start_controller_with(balance_each: Option<Duration>) -> (ControllerProcess, Rendezvous) {
    cluster::controller(ControllerOptions {
        balance_each,
        ..cluster::options()
    })
}

/// Builds programs by their names.
fn named(bytes: &[u8]) -> Result<Program, String> {
    Ok(built(bytes)?.program)
}

fn start_worker(at: &Rendezvous, threads: u32) -> WorkerProcess {
    cluster::worker(at, cluster::threads(threads), Builds(named))
}

/// Runs it on the cluster, and gives what it leaves.
fn run(cluster: &Cluster, text: &str, caller: &mut dyn Caller) -> Result<(Vec<u64>, u64), Error> {
    let Built {
        program,
        line,
        total,
    } = built(text.as_bytes()).unwrap();
    let plan = Plan::compile(Arc::new(program), &Bindings::default()).unwrap();
    let mut outcome = cluster.run(plan, text.as_bytes(), 1, caller)?;
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

/// Values that look random, from 0 to below 1.
fn noise(count: usize) -> Vec<f64> {
    let word = |at: usize| (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let values = (0..count).map(|at| (word(at) ^ (word(at) >> 29)) >> 11);
    values.map(|it| it as f64 / (1u64 << 53) as f64).collect()
}

/// What models and analyses of graphs find, by name, as bits.
fn found(options: &RunOptions) -> Vec<(&'static str, Vec<u64>)> {
    const ROWS: usize = 9_000;
    const COLUMNS: usize = 3;
    let bits = |values: &[f64]| values.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
    let whole = |values: &[u32]| values.iter().map(|it| u64::from(*it)).collect::<Vec<_>>();
    let caller = &mut QuietCaller;
    let x = noise(ROWS * COLUMNS);
    let margin = |row: &[f64]| row[0] - row[1] + 0.3 * row[2];
    let margins: Vec<f64> = x.chunks(COLUMNS).map(margin).collect();
    let two: Vec<f64> = margins
        .iter()
        .map(|it| f64::from(u8::from(*it > 0.2)))
        .collect();
    let three: Vec<f64> = margins
        .iter()
        .map(|it| (it.clamp(-0.6, 0.6) * 2.4 + 1.5).floor())
        .collect();
    let mut found = Vec::new();
    for solver in [Solver::Lbfgs, Solver::GradientDescent] {
        let model = LogisticRegression {
            max_iter: 20,
            solver,
            ..Default::default()
        };
        let fitted = model
            .fit_owned(x.clone(), two.clone(), COLUMNS, options)
            .unwrap();
        let name = ["descent", "lbfgs"][usize::from(solver == Solver::Lbfgs)];
        found.push((
            name,
            bits(&[&fitted.coef[..], &[fitted.intercept]].concat()),
        ));
    }
    let singles: Vec<f32> = x.iter().map(|&it| it as f32).collect();
    let classes = LogisticRegression::default();
    let classes = classes
        .fit_classes_owned(singles, three, COLUMNS, 3, options)
        .unwrap();
    found.push(("classes", bits(&classes.coef)));
    let start = KMeansStart::PlusPlus
        .centres_owned(x.clone(), COLUMNS, 5, 7, options)
        .unwrap();
    let groups = KMeans::default()
        .fit_owned(x, COLUMNS, start, options)
        .unwrap();
    found.push(("k-means", bits(&groups.centres)));

    let ends = noise(8_000);
    let ends: Vec<u32> = ends.iter().map(|it| (it * it * 600.0) as u32).collect();
    let (sources, targets) = ends.split_at(4_000);
    let edges = EdgeList::new(600, sources.to_vec(), targets.to_vec()).weighted(noise(4_000));
    for precision in [Precision::F64, Precision::F32] {
        let how = PageRank {
            precision,
            personalization: Some(Foreign::owned(noise(600))),
            ..Default::default()
        };
        let ranked = pagerank(&edges, &how, options).unwrap();
        found.push((precision.name(), bits(&ranked.ranks)));
    }
    let components = connected_components(&edges, options, caller).unwrap();
    found.push(("components", whole(&components.values)));
    let hops = bfs(&edges, 3, options, caller).unwrap().values;
    let hops: Vec<u32> = hops.iter().map(|it| it.unwrap_or(u32::MAX)).collect();
    found.push(("bfs", whole(&hops)));
    found.push((
        "sssp",
        bits(&sssp(&edges, 3, options, caller).unwrap().values),
    ));
    let labels = label_propagation(&edges, 4, options, caller).unwrap();
    found.push(("labels", whole(&labels.values)));
    let clustering = local_clustering(&edges, options, caller).unwrap();
    found.push(("clustering", bits(&clustering.values)));
    found.extend(found_of_tables(options));
    found
}

/// What models of the registry find, without weights and with them, and what others find of rows that have weights.
fn found_of_tables(options: &RunOptions) -> Vec<(&'static str, Vec<u64>)> {
    const ROWS: usize = 9_000;
    const COLUMNS: usize = 3;
    let bits = |values: &[f64]| values.iter().map(|it| it.to_bits()).collect::<Vec<_>>();
    let caller = &mut QuietCaller;
    let shared = |values: Vec<f64>| Foreign::owned(values);
    let (x, y) = (shared(noise(ROWS * COLUMNS)), noise(ROWS));
    let of_class = |classes: f64| {
        shared(
            y.iter()
                .map(|it| (it.abs() * 97.0).floor() % classes)
                .collect(),
        )
    };
    let (two, three, y) = (of_class(2.0), of_class(3.0), shared(y.clone()));
    let weights = shared((0..ROWS).map(|row| ((row * 7 + 3) % 5) as f64).collect());
    let mut found = Vec::new();
    for model in MODELS {
        for weights in [Foreign::default(), weights.clone()] {
            let table = SampleTable {
                weights,
                ..SampleTable::of(x.clone(), y.clone(), COLUMNS)
            };
            let parameters = vec![0.5; model.parameters.len()];
            let fitted = ml::fit(model, &parameters, table, options, caller).unwrap();
            let values = fitted.found.0.iter().flat_map(|(_, values)| bits(values));
            found.push((model.name, values.collect()));
        }
    }
    let given = || Given::new(weights.clone(), Vec::new());
    for solver in [Solver::Lbfgs, Solver::GradientDescent] {
        let model = LogisticRegression {
            max_iter: 9,
            solver,
            ..Default::default()
        };
        let fitted = model
            .fit_given(x.clone(), two.clone(), COLUMNS, given(), options, caller)
            .unwrap();
        found.push(("weighted classes, two", bits(&fitted.coef)));
    }
    let model = LogisticRegression::default();
    let singles: Foreign<f32> = Foreign::owned(x.iter().map(|&it| it as f32).collect());
    let fitted = model
        .fit_classes_given(singles, three, COLUMNS, 3, given(), options, caller)
        .unwrap();
    found.push(("weighted classes, three", bits(&fitted.coef)));
    let start = KMeansStart::PlusPlus
        .centres_weighted(x.clone(), weights.clone(), COLUMNS, 5, 7, options, caller)
        .unwrap();
    let groups = KMeans::default()
        .fit_weighted(x, weights, COLUMNS, start, options, caller)
        .unwrap();
    found.push(("weighted k-means", bits(&groups.centres)));
    found
}

#[test]
fn same_bits_on_any_number_of_workers() {
    let partitions = RunOptions::new().partitions(9).grid(9);
    let expected = found(&partitions.clone().threads(2));
    // Of a hundred cells what is reduced is merged on its way.
    let lines = ["heat 20 30 fast", "heat 100 30 fast"];
    let heated = lines.map(here);
    let (_controller, at) = start_controller();
    let cluster = Arc::new(Cluster::connect(&at).unwrap());
    let mut workers = Vec::new();
    for count in [1, 2, 4, 16] {
        workers.extend((workers.len()..count).map(|_| start_worker(&at, 1)));
        for (line, heated) in lines.iter().zip(&heated) {
            let heat = run(&cluster, line, &mut QuietCaller).unwrap();
            assert_eq!(&heat, heated, "{line} on {count} workers");
        }
        let found = found(&partitions.clone().on(&cluster));
        for ((name, found), (_, expected)) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{name} on {count} workers");
        }
    }
}

#[test]
fn what_runs_on_a_cluster_says_what_does_not() {
    let (_controller, at) = start_controller();
    let _worker = start_worker(&at, 1);
    let cluster = Arc::new(Cluster::connect(&at).unwrap());
    let program = || heat(3, 2, false).program;
    let options = RunOptions::new().on(&cluster);
    let refused = |options: &RunOptions| options.run(program()).map(drop).unwrap_err().to_string();
    assert!(refused(&options).contains("register the program that uses it with links!"));
    let described = options.described_by(&b"heat 3 2 fast"[..]);
    assert!(described.run(program()).is_ok());
    assert!(refused(&described.clone().threads(2)).contains("option threads"));
    assert!(refused(&described.clone().memory("1GB")).contains("option memory"));
    let times = brambling::TaskTimes::new();
    assert!(refused(&described.task_times(&times)).contains("option task_times"));
    // What is wrong with the data is told by a worker.
    let model = LogisticRegression::default();
    let on = RunOptions::new().on(&cluster);
    let (x, y) = (vec![1.0, f64::NAN, 3.0], vec![0.0, 1.0, 1.0]);
    let error = model
        .fit_owned(x, y, 1, &on)
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("worker w1") && error.contains("row 1"),
        "{error}"
    );
    // And what is wrong with the call, here.
    let model = LogisticRegression { c: -1.0, ..model };
    let error = model
        .fit_owned(vec![1.0], vec![0.0], 1, &on)
        .map(drop)
        .unwrap_err();
    assert!(error.to_string().contains("C = -1"), "{error}");
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

/// What a caller is told.
#[derive(Default, Debug)]
struct Told(Vec<String>);

impl Caller for Told {
    fn told(&mut self, line: &str) {
        self.0.push(line.to_owned());
    }
    fn check(&mut self) -> Result<(), Interrupted> {
        Ok(())
    }
    fn run_stages(&mut self, run: &mut dyn FnMut()) {
        run();
    }
}

#[test]
fn a_job_begins_again_without_the_worker_that_is_gone_and_says_so() {
    let (_controller, at) = start_controller();
    let _first = start_worker(&at, 1);
    let second = start_worker(&at, 1);
    let cluster = Cluster::connect(&at).unwrap();
    let name = second.name().unwrap().to_string();
    let dying = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        drop(second);
    });
    let mut told = Told::default();
    let found = run(&cluster, "heat 8 400 slow", &mut told).unwrap();
    dying.join().unwrap();
    assert_eq!(found, here("heat 8 400 fast"));
    let [text] = &told.0[..] else {
        panic!("{told:?}");
    };
    assert!(text.contains(&format!("worker {name} (process ")), "{text}");
    assert!(text.contains("5 of the job's shards; the job"), "{text}");
    let job = cluster.status().unwrap().jobs[0].clone();
    assert_eq!(job.generation.0, 1);
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
    let error = cluster.run(plan("heat 4 2 fast"), b"cold", 1, &mut QuietCaller);
    let text = error.unwrap_err().to_string();
    assert!(
        text.contains("on worker w1: there is no such program"),
        "{text}"
    );
    let error = cluster.run(plan("heat 4 2 fast"), b"heat 5 2 fast", 1, &mut QuietCaller);
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
    let options = worker_options(&wrong, Settings::default());
    let worker = WorkerProcess::start(options, Box::new(Builds(named))).unwrap();
    let end = settled(&worker).expect("it has another token");
    assert!(matches!(&end, WorkerEnd::Failed(error) if error.to_string().contains("token")));
    // A port in use.
    let bind = at.address;
    let options = ControllerOptions {
        bind,
        ..cluster::options()
    };
    let error = ControllerProcess::start(options).map(drop).unwrap_err();
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

/// Who says nothing after a greeting is sent away soon; a client has said something.
#[test]
fn a_client_may_think_before_it_runs_something() {
    let (_controller, at) = start_controller();
    let _worker = start_worker(&at, 1);
    let cluster = Cluster::connect(&at).unwrap();
    // Longer than a stranger may be silent.
    std::thread::sleep(Duration::from_secs(7));
    let found = run(&cluster, "heat 8 20 fast", &mut QuietCaller).unwrap();
    assert_eq!(found, here("heat 8 20 fast"));
}

/// A shard of the program `heat`: a cell of its line.
fn cell(index: u32) -> ShardId {
    let group = GroupId(0);
    ShardId { group, index }
}

/// Runs `text` on the cluster, and meanwhile does something else, again and again, until the job is over. Gives what the job left.
fn run_while(at: &Rendezvous, text: &str, mut meanwhile: impl FnMut(&Cluster)) -> (Vec<u64>, u64) {
    let (runner, other) = (Cluster::connect(at).unwrap(), Cluster::connect(at).unwrap());
    std::thread::scope(|scope| {
        let running = scope.spawn(move || run(&runner, text, &mut QuietCaller));
        while !running.is_finished() {
            meanwhile(&other);
            // The other tests have the machine as well.
            std::thread::sleep(Duration::from_millis(3));
        }
        running.join().unwrap().unwrap()
    })
}

/// Moves some cell to some worker, if the job still runs and the cell is elsewhere; whether it moved.
fn move_one(cluster: &Cluster, random: &mut u64, cells: u32, workers: &[WorkerId]) -> bool {
    *random = random
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    let index = (*random >> 33) as u32 % cells;
    let to = workers[(*random >> 13) as usize % workers.len()];
    match cluster.move_shard(None, cell(index), to, &mut QuietCaller) {
        Ok(_) => true,
        Err(error) => {
            let text = error.to_string();
            let is_honest = [
                "is there already",
                "is over",
                "is on its way",
                "no job runs",
                "no worker",
            ];
            assert!(is_honest.iter().any(|it| text.contains(it)), "{text}");
            false
        }
    }
}

#[test]
fn a_shard_moves_where_a_user_wants_it_and_who_asks_for_what_cannot_be_is_told_why() {
    let (_controller, at) = start_controller_with(None);
    let workers = [start_worker(&at, 1), start_worker(&at, 1)];
    let names = workers.each_ref().map(|worker| worker.name().unwrap());
    let text = "heat 4 60 slow";
    let (mut moved, mut told) = (0, Vec::new());
    let cluster = Cluster::connect(&at).unwrap();
    let ask = |cluster: &Cluster, job, shard, to| {
        let asked = cluster.move_shard(job, shard, to, &mut QuietCaller);
        asked.map_err(|error| error.to_string())
    };
    let idle = ask(&cluster, None, cell(0), names[1]).unwrap_err();
    assert!(idle.contains("no job runs"), "{idle}");
    let found = run_while(&at, text, |cluster| {
        let status = cluster.status().unwrap();
        if status.jobs.iter().all(|job| job.position == 0) || moved == 2 {
            return std::thread::sleep(Duration::from_millis(5));
        }
        if let Ok(job) = ask(cluster, None, cell(0), names[1 - moved]) {
            assert_eq!(job, JobId(1));
            moved += 1;
            let held = |status: brambling::cluster::Status| {
                status
                    .workers
                    .iter()
                    .map(|it| it.shards)
                    .collect::<Vec<_>>()
            };
            // The line's cells, and the sum, which is on the second.
            let expected = [vec![1, 4], vec![2, 3]];
            assert_eq!(held(cluster.status().unwrap()), expected[moved - 1]);
        }
        let wrong = [
            (Some(JobId(9)), cell(0), names[0], "no job j9"),
            (
                None,
                cell(4),
                names[0],
                "has no shard 0.4; its groups, from 0, have [4, 1] shards",
            ),
            (None, cell(0), WorkerId(7), "no worker w7"),
            (None, cell(3), names[1], "is there already"),
        ];
        for (job, shard, to, why) in wrong {
            let text = ask(cluster, job, shard, to).unwrap_err();
            if !text.contains("over") {
                assert!(text.contains(why), "{text}");
                told.push(why);
            }
        }
    });
    assert_eq!(found, here(text));
    assert_eq!(moved, 2);
    assert!(told.len() >= 4);
    let over = ask(&cluster, Some(JobId(1)), cell(0), names[1]).unwrap_err();
    assert!(over.contains("job j1 is over"), "{over}");
}

/// The end of the job falls among moves: what they carry is fetched from where it arrives.
#[test]
fn what_moves_when_a_job_ends_is_not_lost() {
    let (_controller, at) = start_controller();
    let workers = [
        start_worker(&at, 1),
        start_worker(&at, 1),
        start_worker(&at, 1),
    ];
    let names = workers.each_ref().map(|worker| worker.name().unwrap());
    let mut random = 5;
    for turns in 0..40 {
        let text = format!("heat 6 {} fast", turns % 8);
        let found = run_while(&at, &text, |cluster| {
            move_one(cluster, &mut random, 6, &names);
        });
        assert_eq!(found, here(&text), "{text}");
    }
}

/// Waits until a worker has been told that it is drained, and ends it.
fn see_drained(worker: WorkerProcess) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match worker.wait(Duration::from_millis(50)) {
            Some(WorkerEnd::Drained) => return,
            Some(other) => panic!("{other:?}"),
            None => assert!(
                Instant::now() < deadline,
                "it does not hear that it is drained"
            ),
        }
    }
}

#[test]
fn same_bits_while_shards_move_and_workers_come_and_go() {
    let (_controller, at) = start_controller();
    let mut workers = vec![start_worker(&at, 1), start_worker(&at, 2)];
    let text = "heat 12 160 slow";
    let (mut random, mut moves, mut drains, mut took_part) = (7, 0, 0, 0);
    let found = run_while(&at, text, |cluster| {
        let names: Vec<WorkerId> = workers.iter().filter_map(WorkerProcess::name).collect();
        moves += u32::from(move_one(cluster, &mut random, 12, &names));
        match moves {
            10 if workers.len() == 2 && drains == 0 => workers.push(start_worker(&at, 1)),
            // The first, which has the lowest name, then one that came while the job ran.
            20.. if drains < 2 && workers.len() > 1 => {
                let leaver = workers.remove(drains);
                let status = cluster.status().unwrap();
                took_part += usize::from(status.workers.iter().all(|it| it.shards > 0));
                cluster
                    .drain(leaver.name().unwrap(), &mut QuietCaller)
                    .unwrap();
                let status = cluster.status().unwrap();
                let is_it = |id| Some(id) == leaver.name();
                let left = status.workers.iter().find(|it| is_it(it.id));
                assert_eq!(left.map_or(0, |it| it.shards), 0);
                see_drained(leaver);
                drains += 1;
                workers.push(start_worker(&at, 1));
            }
            _ => {}
        }
    });
    assert_eq!(found, here(text));
    assert!(moves > 30, "{moves}");
    assert_eq!((drains, workers.len()), (2, 3));
    assert!(took_part > 0, "nothing moved to who came");
    // Those that left are nobody's loss, and the others have the next job to themselves.
    let cluster = Cluster::connect(&at).unwrap();
    let next = run(&cluster, "heat 8 20 fast", &mut QuietCaller).unwrap();
    assert_eq!(next, here("heat 8 20 fast"));
    assert!(
        cluster
            .status()
            .unwrap()
            .jobs
            .iter()
            .all(|job| job.failure.is_none())
    );
}

/// More workers than hear at once, and more cells than are added up at once: news and broadcasts are handed on, and reductions merged, while shards
/// move and one of those that do so leaves.
#[test]
fn same_bits_where_workers_hand_on() {
    let (_controller, at) = start_controller_with(None);
    let mut workers: Vec<WorkerProcess> = (0..12).map(|_| start_worker(&at, 1)).collect();
    let text = "heat 100 120 slow";
    let (mut random, mut moves, mut is_drained) = (5, 0, false);
    let found = run_while(&at, text, |cluster| {
        let names: Vec<WorkerId> = workers.iter().filter_map(WorkerProcess::name).collect();
        moves += u32::from(move_one(cluster, &mut random, 100, &names));
        if moves == 10 && !is_drained {
            is_drained = true;
            let leaver = workers.remove(1);
            let name = leaver.name().unwrap();
            cluster.drain(name, &mut QuietCaller).unwrap();
            see_drained(leaver);
        }
    });
    assert_eq!(found, here(text));
    assert!(moves > 10 && is_drained, "{moves}");
}

#[test]
fn a_worker_that_is_drained_gets_nothing_more_and_ends() {
    let (_controller, at) = start_controller();
    let cluster = Cluster::connect(&at).unwrap();
    let drain = |name| {
        let drained = cluster.drain(name, &mut QuietCaller);
        drained.map_err(|error| error.to_string())
    };
    assert!(drain(WorkerId(1)).unwrap_err().contains("no worker w1"));
    let first = start_worker(&at, 1);
    let why = drain(first.name().unwrap()).unwrap_err();
    assert!(
        why.contains("the last one") && why.contains("brambling worker"),
        "{why}"
    );
    // Without a job it goes at once.
    let second = start_worker(&at, 1);
    drain(first.name().unwrap()).unwrap();
    see_drained(first);
    let found = run(&cluster, "heat 8 20 fast", &mut QuietCaller).unwrap();
    assert_eq!(found, here("heat 8 20 fast"));
    // With one that ends meanwhile it goes then.
    for turns in 0..8 {
        let leaver = start_worker(&at, 1);
        let name = leaver.name().unwrap();
        let text = format!("heat 6 {turns} fast");
        let mut leaver = Some(leaver);
        let found = run_while(&at, &text, |_| {
            if let Some(leaver) = leaver.take() {
                drain(name).unwrap();
                see_drained(leaver);
            }
        });
        assert_eq!(found, here(&text), "{text}");
    }
    assert_eq!(cluster.status().unwrap().workers.len(), 1);
    drop(second);
}
