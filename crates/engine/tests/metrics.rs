//! Metrics as Prometheus reads them, over TCP: of a controller and of a worker that run jobs, and of who asks for something else or is hostile.

mod support;

use brambling::QuietCaller;
use brambling::cluster::{
    BALANCE_EACH, Cluster, ClusterError, ControllerOptions, ControllerProcess, MetricsEndpoint,
    MetricsListener, Rendezvous, Token, WorkerProcess,
};
use brambling::prelude::*;
use brambling::program::{Bindings, Plan};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::cluster::{self, Builds, PATIENCE, threads_and_memory};
use support::exposition::{Exposition, parse};

/// What an honest scrape may take while others are hostile; cutting them takes 5 s.
const SOON: Duration = Duration::from_secs(2);
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cluster-metrics.md");

fn program() -> Program {
    let mut p = Program::new("secret-plan");
    let x = p.load("x", 4, Partitioner::Opaque, |index, _| f64::from(index));
    p.keep(&x);
    p.repeat(100, |p| {
        p.compute("step").update(&x).run(|x: &mut f64| *x += 1.0);
    });
    p
}

fn built(bytes: &[u8]) -> Result<Program, String> {
    match bytes {
        b"good" => Ok(program()),
        _ => Err("there is no such program".into()),
    }
}

const TOKEN: [u8; 32] = [0xa7; 32];

fn any_port() -> MetricsListener {
    MetricsListener::bind("127.0.0.1:0".parse().unwrap()).unwrap()
}

fn controller() -> (ControllerProcess, Rendezvous, MetricsEndpoint) {
    let (controller, at) = cluster::controller(ControllerOptions {
        token: Token::new(TOKEN),
        balance_each: Some(BALANCE_EACH),
        ..cluster::options()
    });
    let metrics = controller.serve_metrics(any_port()).unwrap();
    (controller, at, metrics)
}

fn worker(at: &Rendezvous) -> (WorkerProcess, MetricsEndpoint) {
    let worker = cluster::worker(at, threads_and_memory(1, "64MB"), Builds(built));
    let metrics = worker.serve_metrics(any_port()).unwrap();
    (worker, metrics)
}

fn run(cluster: &Cluster, bytes: &[u8]) -> Result<u64, brambling::Error> {
    let plan = Plan::compile(Arc::new(program()), &Bindings::default()).unwrap();
    let outcome = cluster.run(plan, bytes, 1, &mut QuietCaller)?;
    Ok(outcome.tally().tasks)
}

// ---- HTTP

fn dial(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&at, SOON).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// What is answered to some bytes, until the other end closes.
fn ask(at: SocketAddr, request: &[u8]) -> String {
    let mut stream = dial(at);
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Status line, headers, body.
fn parts(answer: &str) -> (&str, &str, &str) {
    let (head, body) = answer.split_once("\r\n\r\n").expect("a whole head");
    let (status, headers) = head.split_once("\r\n").expect("headers");
    (status, headers, body)
}

fn scrape(at: SocketAddr) -> Exposition {
    let answer = ask(at, b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    let (status, headers, body) = parts(&answer);
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(headers.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8"));
    assert!(headers.contains(&format!("Content-Length: {}", body.len())));
    parse(body)
}

/// Scrapes until something holds: figures come with heartbeats, and are kept for half a second.
fn eventually(at: SocketAddr, holds: impl Fn(&Exposition) -> bool) -> Exposition {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = scrape(at);
        if holds(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{found:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The families that the page lists for a kind of process: name, type.
fn documented(whose: &str) -> Vec<(String, String)> {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells.get(1)?.strip_prefix('`')?.strip_suffix('`')?;
        let is_family = name.starts_with("brambling_") || name.starts_with("process_");
        let is_theirs = matches!(cells.get(4), Some(it) if *it == "both" || *it == whose);
        (is_family && is_theirs).then(|| (name.to_owned(), cells[2].to_owned()))
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort();
    rows
}

// ---- what they say

#[test]
fn a_job_shows_on_its_controller_and_on_its_worker() {
    let (_controller, at, of_controller) = controller();
    let (_worker, of_worker) = worker(&at);
    let (of_controller, of_worker) = (of_controller.address(), of_worker.address());

    let before = eventually(of_controller, |it| {
        it.value("brambling_worker_silence_seconds{worker=\"w1\"}") >= 0.0
    });
    let worker_before = scrape(of_worker);
    assert_eq!(before.families(), documented("controller"));
    assert_eq!(worker_before.families(), documented("worker"));
    let version = env!("CARGO_PKG_VERSION");
    for (found, role) in [(&before, "controller"), (&worker_before, "worker")] {
        let info = format!("brambling_build_info{{version=\"{version}\",role=\"{role}\"}}");
        assert_eq!(found.value(&info), 1.0);
        assert!(found.value("process_cpu_seconds_total") > 0.0);
        assert!(found.value("process_resident_memory_bytes") > 1e6);
        assert!(found.value("process_open_fds") > 3.0);
    }
    for (series, expected) in [
        ("brambling_workers", 1.0),
        ("brambling_workers_lost_total", 0.0),
        ("brambling_worker_threads{worker=\"w1\"}", 1.0),
        ("brambling_worker_shards{worker=\"w1\"}", 0.0),
        (
            "brambling_worker_memory_limit_bytes{worker=\"w1\"}",
            f64::from(1 << 26),
        ),
        ("brambling_jobs{state=\"queued\"}", 0.0),
        ("brambling_jobs{state=\"running\"}", 0.0),
        ("brambling_jobs_submitted_total", 0.0),
        ("brambling_cluster_tasks_total", 0.0),
        ("brambling_moves_total{outcome=\"arrived\"}", 0.0),
        ("brambling_moves_total{outcome=\"refused\"}", 0.0),
        ("brambling_moves_in_flight", 0.0),
    ] {
        assert_eq!(before.value(series), expected, "{series}");
    }
    let idle = before.value("brambling_worker_idle_ratio{worker=\"w1\"}");
    assert!((0.0..=1.0).contains(&idle), "{idle}");
    for (series, expected) in [
        ("brambling_tasks_total", 0.0),
        ("brambling_threads", 1.0),
        ("brambling_hosted_jobs", 0.0),
        ("brambling_shards", 0.0),
        ("brambling_memory_limit_bytes", f64::from(1 << 26)),
    ] {
        assert_eq!(worker_before.value(series), expected, "{series}");
    }

    let cluster = Cluster::connect(&at).unwrap();
    let tasks = run(&cluster, b"good").unwrap() as f64;
    assert!(tasks >= 400.0);
    // Also what ran after the last heartbeat, of a job that is no more.
    let after = eventually(of_controller, |it| {
        it.value("brambling_cluster_tasks_total") == tasks
    });
    let worker_after = eventually(of_worker, |it| {
        it.value("brambling_tasks_total") == tasks && it.value("brambling_hosted_jobs") == 0.0
    });
    assert!(worker_after.value("brambling_busy_seconds_total") > 0.0);
    for (series, expected) in [
        ("brambling_jobs_submitted_total", 1.0),
        ("brambling_jobs_ended_total{result=\"succeeded\"}", 1.0),
        ("brambling_jobs_ended_total{result=\"failed\"}", 0.0),
        ("brambling_jobs{state=\"running\"}", 0.0),
    ] {
        assert_eq!(after.value(series), expected, "{series}");
    }
    run(&cluster, b"bad").unwrap_err();
    eventually(of_controller, |it| {
        it.value("brambling_jobs_ended_total{result=\"failed\"}") == 1.0
            && it.value("brambling_jobs_ended_total{result=\"succeeded\"}") == 1.0
    });
    let tasks = tasks + run(&cluster, b"good").unwrap() as f64;
    let last = eventually(of_worker, |it| it.value("brambling_tasks_total") == tasks);
    eventually(of_controller, |it| {
        it.value("brambling_cluster_tasks_total") == tasks
    });

    // What counts never goes back, and what it is about grew.
    for (earlier, later) in [
        (&before, &after),
        (&worker_before, &worker_after),
        (&worker_after, &last),
    ] {
        for (series, value) in earlier.counters() {
            assert!(later.value(series) >= value, "{series}");
        }
        for series in [
            "brambling_sent_bytes_total",
            "brambling_sent_frames_total",
            "brambling_received_bytes_total",
            "brambling_received_frames_total",
        ] {
            assert!(later.value(series) > earlier.value(series), "{series}");
        }
    }
    for direction in ["received", "sent"] {
        let series = format!("brambling_controller_messages_total{{direction=\"{direction}\"}}");
        assert!(after.value(&series) > before.value(&series), "{series}");
    }
    assert!(after.value("brambling_heartbeats_total") > 0.0);
}

#[test]
fn nobody_learns_what_is_not_theirs() {
    let (_controller, at, of_controller) = controller();
    let (_worker, of_worker) = worker(&at);
    let cluster = Cluster::connect(&at).unwrap();
    run(&cluster, b"good").unwrap();
    let token = at.token.to_hex();
    for at in [of_controller.address(), of_worker.address()] {
        for path in ["/metrics", "/", "/../token", "/status"] {
            let request = format!("GET {path} HTTP/1.1\r\n\r\n");
            let answer = ask(at, request.as_bytes());
            for secret in [token.as_str(), "secret-plan"] {
                assert!(!answer.contains(secret), "{answer}");
            }
        }
    }
}

#[test]
fn a_worker_that_is_gone_was_lost_and_its_series_end() {
    let (_controller, at, metrics) = controller();
    let (first, of_first) = worker(&at);
    eventually(metrics.address(), |it| it.value("brambling_workers") == 1.0);
    drop((first, of_first));
    let found = eventually(metrics.address(), |it| {
        it.value("brambling_workers_lost_total") == 1.0
    });
    assert_eq!(found.value("brambling_workers"), 0.0);
    assert_eq!(found.get("brambling_worker_threads{worker=\"w1\"}"), None);
    assert_eq!(found.families(), documented("controller"));
}

#[test]
fn metrics_end_with_who_serves_them_and_with_who_is_measured() {
    let (controller, _, metrics) = controller();
    let at = metrics.address();
    scrape(at);
    drop(controller);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = ask(at, b"GET /metrics HTTP/1.1\r\n\r\n");
        if answer.starts_with("HTTP/1.1 503 ") {
            break;
        }
        // What was read a moment ago is given again.
        assert!(answer.starts_with("HTTP/1.1 200 ") && Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(50));
    }
    let begin = Instant::now();
    drop(metrics);
    assert!(begin.elapsed() < SOON, "it waits for somebody");
    let refused = TcpStream::connect(at).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    let (_controller, at, metrics) = controller();
    for taken in [metrics.address(), at.address] {
        let Err(error) = MetricsListener::bind(taken) else {
            panic!("it was taken twice");
        };
        assert!(matches!(error, ClusterError::Metrics { .. }));
        let text = error.to_string();
        assert!(text.contains(&format!("cannot serve metrics at {taken}: ")));
        assert!(text.contains("--metrics"), "{text}");
    }
    scrape(metrics.address());
}

// ---- who asks for something else

#[test]
fn get_and_head_of_metrics_are_all_there_is() {
    let (_controller, _, metrics) = controller();
    let at = metrics.address();
    for (request, status, allow) in [
        ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200 OK", false),
        ("GET / HTTP/1.1\r\n\r\n", "404 Not Found", false),
        ("GET /metricsx HTTP/1.1\r\n\r\n", "404 Not Found", false),
        (
            "POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            "405 Method Not Allowed",
            true,
        ),
        (
            "PUT /metrics HTTP/1.1\r\n\r\n",
            "405 Method Not Allowed",
            true,
        ),
        ("PRI * HTTP/2.0\r\n\r\n", "400 Bad Request", false),
        ("BRMBLING\0\0\0\0\r\n\r\n", "400 Bad Request", false),
    ] {
        let answer = ask(at, request.as_bytes());
        let (line, headers, body) = parts(&answer);
        assert_eq!(line, format!("HTTP/1.1 {status}"), "{request}");
        assert_eq!(headers.contains("Allow: GET, HEAD"), allow, "{request}");
        assert!(headers.contains("Connection: close"), "{request}");
        assert!(
            headers.contains(&format!("Content-Length: {}", body.len())),
            "{request}"
        );
        assert!(!body.is_empty(), "{request}");
    }
    for (request, status) in [
        ("HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK"),
        ("HEAD / HTTP/1.1\r\n\r\n", "404 Not Found"),
    ] {
        let answer = ask(at, request.as_bytes());
        let (line, headers, body) = parts(&answer);
        assert_eq!((line, body), (format!("HTTP/1.1 {status}").as_str(), ""));
        assert!(!headers.contains("Content-Length: 0"), "{headers}");
    }
}

// ---- who is hostile

#[test]
fn a_request_without_an_end_is_refused_at_four_kilobytes() {
    let (_controller, _, metrics) = controller();
    let at = metrics.address();
    let mut request = b"GET /metrics HTTP/1.1\r\nx: ".to_vec();
    request.resize(1 << 15, b'x');
    let begin = Instant::now();
    // The answer arrives though not all was read.
    let answer = ask(at, &request);
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(100));
    assert!(ask(at, many.as_bytes()).starts_with("HTTP/1.1 431 "));
    assert!(begin.elapsed() < SOON);
}

#[test]
fn who_never_ends_what_he_says_is_cut_off_after_five_seconds() {
    let (_controller, _, metrics) = controller();
    let mut stream = dial(metrics.address());
    let begin = Instant::now();
    let pause = Duration::from_millis(100);
    stream.set_read_timeout(Some(pause)).unwrap();
    let mut ended = None;
    // A byte every now and then, so that it is never silent for long.
    for byte in b"GET /metrics HTTP/1.1\r\nx: "
        .iter()
        .chain(std::iter::repeat(&b'x'))
    {
        let wrote = stream.write_all(&[*byte]);
        let read = stream.read(&mut [0]);
        let is_cut = match read {
            Ok(bytes) => bytes == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        };
        if is_cut || wrote.is_err() {
            ended = Some(begin.elapsed());
        }
        if ended.is_some() || begin.elapsed() > Duration::from_secs(15) {
            break;
        }
    }
    let ended = ended.expect("it is cut off");
    assert!(ended >= Duration::from_millis(4_900), "{ended:?}");
    assert!(ended < Duration::from_secs(10), "{ended:?}");
}

/// How many of these connections the other end has not closed.
fn open(streams: &mut [TcpStream]) -> usize {
    let is_open = |stream: &mut TcpStream| {
        stream.set_nonblocking(true).unwrap();
        matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    streams.iter_mut().map(is_open).filter(|it| *it).count()
}

#[test]
fn many_who_say_nothing_take_no_place_from_a_scrape() {
    let (_controller, at, metrics) = controller();
    let (_worker, _) = worker(&at);
    let cluster = Cluster::connect(&at).unwrap();
    let mut silent = Vec::new();
    for number in 0..300 {
        let mut stream = dial(metrics.address());
        // Half of them begin.
        if number % 2 == 0 {
            let _ = stream.write_all(b"GET /metrics HT");
        }
        silent.push(stream);
        if number % 50 == 49 {
            let begin = Instant::now();
            scrape(metrics.address());
            run(&cluster, b"good").unwrap();
            assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
        }
    }
    let open_now = open(&mut silent);
    assert!(open_now <= 64, "{open_now} are open");
    assert!(open_now >= 32, "{open_now} are open");
    // By themselves they are gone after a while.
    let deadline = Instant::now() + PATIENCE;
    while open(&mut silent) > 0 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(100));
    }
    scrape(metrics.address());
}

/// They ask, and take nothing of the answer.
#[test]
fn many_who_do_not_read_keep_nobody_waiting() {
    let (_controller, _, metrics) = controller();
    let mut deaf = Vec::new();
    for _ in 0..200 {
        let mut stream = dial(metrics.address());
        let request = b"GET /metrics HTTP/1.1\r\n\r\n".repeat(100);
        let _ = stream.write_all(&request);
        deaf.push(stream);
    }
    let begin = Instant::now();
    scrape(metrics.address());
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}
