//! Clusters that use TLS: programs give the bits of one process, members without the cluster's certificates are told why, and certificates are
//! made once and read with care.

mod support;

use brambling::QuietCaller;
use brambling::cluster::{
    CERTIFICATES_LAST, Certificates, Cluster, ClusterError, ControllerOptions, ControllerProcess,
    Rendezvous, Token, WorkerEnd, WorkerProcess,
};
use brambling::prelude::*;
use brambling::program::{Bindings, Plan};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::cluster::{self, Builds, PATIENCE, settled, threads, worker_options};
use support::folder::Folder;

/// New certificates, in a folder of this name.
fn made(folder: &Folder, name: &str) -> Certificates {
    make(&folder.at(name)).unwrap();
    Certificates::read(&folder.at(name)).unwrap()
}

fn make(folder: &Path) -> Result<(), ClusterError> {
    Certificates::make(folder, &[], CERTIFICATES_LAST)
}

fn refused(folder: &Path) -> String {
    Certificates::read(folder).unwrap_err().to_string()
}

/// Sums of values that go round between partitions, turn by turn.
fn rounds() -> (Program, Dataset<f64>) {
    let mut p = Program::new("rounds");
    let line = p.load("line", 12, Partitioner::Opaque, |index, _| {
        f64::from(index) * 1.37 + 0.1
    });
    let total = p.dataset::<f64>("total", 1);
    let mean = p.like::<f64, _>("mean", &line);
    p.keep(&line);
    p.repeat(40, |p| {
        p.reduce_to(Sum, &line, &total);
        p.broadcast(&total, &mean);
        let pull = p.compute("pull").read(&mean).update(&line);
        pull.run(|mean: &f64, cell: &mut f64| *cell = 0.7 * *cell + mean * 1e-3);
    });
    (p, line)
}

fn bits(outcome: &mut Outcome, line: &Dataset<f64>) -> Vec<u64> {
    let line = outcome.take_all(line).into_iter();
    line.map(|cell| cell.to_bits()).collect()
}

fn start_controller(tls: Option<Certificates>) -> (ControllerProcess, Rendezvous) {
    cluster::controller(ControllerOptions {
        tls,
        ..cluster::options()
    })
}

/// It may be refused.
fn worker(at: &Rendezvous) -> WorkerProcess {
    let source = Builds(|_: &[u8]| Ok(rounds().0));
    WorkerProcess::start(worker_options(at, threads(1)), Box::new(source)).unwrap()
}

#[test]
fn programs_give_the_bits_of_one_process() {
    let folder = Folder::new("tls-bits");
    let (_controller, at) = start_controller(Some(made(&folder, "certs")));
    let workers = [worker(&at), worker(&at)];
    assert!(workers.iter().all(|it| settled(it).is_none()));
    let cluster = Cluster::connect(&at).unwrap();
    let (program, line) = rounds();
    let mut here = RunOptions::new().threads(2).run(program).unwrap();
    let expected = bits(&mut here, &line);
    for _ in 0..3 {
        let (program, line) = rounds();
        let plan = Plan::compile(Arc::new(program), &Bindings::default()).unwrap();
        let mut there = cluster.run(plan, b"rounds", 1, &mut QuietCaller).unwrap();
        assert_eq!(bits(&mut there, &line), expected);
        // The links of workers outside of jobs are made again.
        workers[0].cut();
    }
    assert_eq!(cluster.status().unwrap().workers.len(), 2);
}

/// What a client, and a worker, are told that take part so.
fn told(at: &Rendezvous, tls: Option<&Certificates>) -> [String; 2] {
    let at = Rendezvous {
        tls: tls.cloned(),
        ..at.clone()
    };
    let client = Cluster::connect(&at).map(drop).unwrap_err();
    let started = Instant::now();
    let worker = worker(&at);
    let Some(WorkerEnd::Failed(end)) = settled(&worker) else {
        panic!("it takes part");
    };
    assert!(started.elapsed() < PATIENCE / 6, "it tries again and again");
    [client.to_string(), end.to_string()]
}

#[test]
fn who_has_other_certificates_or_none_is_told_why_and_the_way_out() {
    let folder = Folder::new("tls-told");
    let (ours, others) = (made(&folder, "ours"), made(&folder, "others"));
    let (_controller, secure) = start_controller(Some(ours.clone()));
    let (_controller, plain) = start_controller(None);
    for text in told(&secure, Some(&others)) {
        assert!(
            text.contains("is not of this process's authority"),
            "{text}"
        );
        assert!(text.contains("`brambling certs`"), "{text}");
    }
    for text in told(&secure, None) {
        assert!(text.contains("the cluster uses TLS"), "{text}");
        assert!(text.contains("--tls DIR or in BRAMBLING_TLS"), "{text}");
    }
    for text in told(&plain, Some(&ours)) {
        assert!(text.contains("the cluster does not use TLS"), "{text}");
        assert!(text.contains("leave --tls out"), "{text}");
    }
    let strange = Rendezvous {
        token: Token::new([8; 32]),
        ..secure.clone()
    };
    let error = Cluster::connect(&strange).map(drop).unwrap_err();
    assert!(error.to_string().contains("another token"), "{error}");
    Cluster::connect(&secure).unwrap();
    Cluster::connect(&plain).unwrap();
}

#[test]
fn certificates_are_made_for_this_account_alone_and_once() {
    let folder = Folder::new("tls-made");
    let certs = folder.at("deep/certs");
    make(&certs).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&certs), 0o700);
    assert_eq!(mode(&certs.join("key.pem")), 0o600);
    let mut names: Vec<_> = fs::read_dir(&certs)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["ca.pem", "cert.pem", "key.pem"]);
    // Not again, nor over anything else.
    let before = fs::read(certs.join("key.pem")).unwrap();
    let error = make(&certs).unwrap_err().to_string();
    assert!(
        error.contains("not overwritten; give a new folder"),
        "{error}"
    );
    assert_eq!(fs::read(certs.join("key.pem")).unwrap(), before);
    fs::create_dir(folder.at("mine")).unwrap();
    fs::write(folder.at("mine/thesis"), "mine").unwrap();
    fs::write(folder.at("file"), "mine").unwrap();
    for taken in ["mine", "file"] {
        let error = make(&folder.at(taken)).unwrap_err().to_string();
        assert!(error.contains("not overwritten"), "{error}");
    }
    assert_eq!(fs::read(folder.at("mine/thesis")).unwrap(), b"mine");
    assert_eq!(fs::read(folder.at("file")).unwrap(), b"mine");
    // Nothing half made is left.
    assert_eq!(fs::read_dir(folder.at("deep")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    // An empty folder is as good as none.
    fs::create_dir(folder.at("empty")).unwrap();
    make(&folder.at("empty")).unwrap();
    assert_eq!(mode(&folder.at("empty")), 0o700);
}

#[test]
fn certificates_of_hosts_are_taken_at_those() {
    let folder = Folder::new("tls-hosts");
    let make = |name: &str, hosts: &[&str]| {
        let hosts: Vec<String> = hosts.iter().map(|it| (*it).to_owned()).collect();
        Certificates::make(&folder.at(name), &hosts, CERTIFICATES_LAST)
    };
    make("here", &["10.1.2.3", "localhost"]).unwrap();
    let tls = Certificates::read(&folder.at("here")).unwrap();
    let (_controller, at) = start_controller(Some(tls));
    Cluster::connect(&at).unwrap();
    for host in ["nowhere.invalid", "", "kälte"] {
        let error = make("nowhere", &[host]).unwrap_err().to_string();
        assert!(error.contains(&format!("`{host}`")), "{error}");
        assert!(error.contains("or no --host at all"), "{error}");
    }
    assert!(!folder.at("nowhere").exists());
}

#[test]
fn files_that_are_missing_or_no_certificates_are_named() {
    let folder = Folder::new("tls-files");
    let text = refused(&folder.at("nowhere"));
    assert!(text.contains("nowhere/ca.pem: No such file"), "{text}");
    assert!(text.contains("`brambling certs`"), "{text}");
    for name in ["ca.pem", "cert.pem", "key.pem"] {
        let certs = folder.at(&format!("without-{name}"));
        make(&certs).unwrap();
        fs::remove_file(certs.join(name)).unwrap();
        let text = refused(&certs);
        assert!(text.contains(&format!("{name}: No such file")), "{text}");
        fs::write(certs.join(name), "no PEM, and a secret").unwrap();
        let text = refused(&certs);
        assert!(text.contains(&format!("{name} cannot be used")), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
    // Of two clusters.
    let (one, other) = (folder.at("one"), folder.at("other"));
    make(&one).unwrap();
    make(&other).unwrap();
    fs::copy(other.join("key.pem"), one.join("key.pem")).unwrap();
    let text = refused(&one);
    assert!(text.contains("keep the files together"), "{text}");
    fs::copy(other.join("cert.pem"), one.join("cert.pem")).unwrap();
    let text = refused(&one);
    assert!(text.contains("not of the authority in ca.pem"), "{text}");
    fs::copy(other.join("ca.pem"), one.join("ca.pem")).unwrap();
    let shown = format!("{:?}", Certificates::read(&one).unwrap());
    assert!(shown.ends_with("tls: Tls(…) }"), "{shown}");
}

#[test]
fn certificates_that_have_expired_are_named_when_they_are_read() {
    let folder = Folder::new("tls-expired");
    let certs = folder.at("certs");
    Certificates::make(&certs, &[], Duration::ZERO).unwrap();
    std::thread::sleep(Duration::from_millis(2_100));
    let text = refused(&certs);
    assert!(
        text.contains("cert.pem cannot be used: it has expired"),
        "{text}"
    );
    assert!(text.contains("`brambling certs`"), "{text}");
}
