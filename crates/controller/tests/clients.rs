//! Who clients are, what is told of their jobs, and jobs that somebody wants ended.

use brambling_controller::registry::{Order, OwnedMessage, PeerLink, Registry};
use brambling_protocol::message::{Client, JobDetails, JobState, Load, Message, Register, Submit};
use brambling_protocol::{Generation, JobId, JobKey, WorkerId};

const WORKER: PeerLink = PeerLink(1);
const OWNER: PeerLink = PeerLink(2);
const OTHER: PeerLink = PeerLink(3);
const THIRD: PeerLink = PeerLink(4);

fn say(registry: &mut Registry, from: PeerLink, message: Message<'_>) -> Vec<Order> {
    registry.on_message(from, message).unwrap();
    registry.take_orders()
}

fn told(orders: &[Order], to: PeerLink) -> Vec<&OwnedMessage> {
    let mine = orders.iter().filter_map(|order| match order {
        Order::Tell { to: it, what } if *it == to => Some(what),
        _ => None,
    });
    mine.collect()
}

fn refusal(orders: &[Order], to: PeerLink) -> &str {
    match told(orders, to)[..] {
        [OwnedMessage::Refused { why }] => why,
        ref other => panic!("{other:?}"),
    }
}

fn client(user: &str) -> Client {
    Client {
        user: user.into(),
        host: "node-7".into(),
        pid: 42,
        log: None,
    }
}

const fn key(job: u64) -> JobKey {
    JobKey {
        job: JobId(job),
        generation: Generation(0),
    }
}

/// A registry with a worker, and `jobs` jobs of the owner's: the first has the cluster.
fn with_jobs(jobs: u64) -> Registry {
    let mut registry = Registry::new("1").with_jobs_at_once(1);
    let register = Register {
        version: "1",
        known_as: None,
        epoch: 1,
        pid: 7,
        host: "here",
        threads: 1,
        memory_bytes: 1 << 30,
        listens_at: ([127, 0, 0, 1], 9).into(),
        jobs: Vec::new(),
    };
    say(&mut registry, WORKER, Message::Register(register));
    say(&mut registry, OWNER, Message::Introduce(client("ada")));
    for _ in 0..jobs {
        let submit = Submit {
            version: "1",
            name: "a program",
            shards: vec![3],
        };
        say(&mut registry, OWNER, Message::Submit(submit));
    }
    registry
}

fn over(job: u64, failure: &str) -> OwnedMessage {
    let (job, failure) = (JobId(job), Some(failure.into()));
    OwnedMessage::Over { job, failure }
}

fn details(registry: &Registry, job: u64) -> JobDetails {
    let mut all = registry.job_details().into_iter();
    all.find(|it| it.status.id == JobId(job)).unwrap()
}

#[test]
fn any_client_may_end_a_job_and_all_hear_who_did() {
    let mut registry = with_jobs(2);
    say(&mut registry, OTHER, Message::Introduce(client("bob")));
    // One that waits is over at once, and whose it is hears who has ended it.
    let by_bob = "was cancelled by bob on node-7 (process 42)";
    let orders = say(&mut registry, OTHER, Message::Cancel(JobId(2)));
    assert_eq!(
        told(&orders, OWNER),
        [&over(2, &format!("job j2 {by_bob}"))]
    );
    assert_eq!(
        told(&orders, OTHER),
        [&over(2, &format!("job j2 {by_bob}"))]
    );
    // One that runs when its members were told: the answer waits for that, however often it is asked for.
    let (job, why) = (JobId(1), format!("job j1 {by_bob}"));
    let ends = Order::Cancel { key: key(1), why };
    for _ in 0..2 {
        let orders = say(&mut registry, OTHER, Message::Cancel(job));
        assert_eq!(orders, std::slice::from_ref(&ends));
    }
    let orders = say(&mut registry, THIRD, Message::Cancel(job));
    assert!(
        matches!(&orders[..], [Order::Cancel { why, .. }] if why.contains("not said who it is"))
    );
    registry.on_over(key(1), Some(format!("job j1 {by_bob}")));
    let orders = registry.take_orders();
    for caller in [OWNER, OTHER, THIRD] {
        assert_eq!(
            told(&orders, caller),
            [&over(1, &format!("job j1 {by_bob}"))]
        );
    }
    // Nobody hears it again.
    let orders = say(&mut registry, OWNER, Message::Done(job));
    assert_eq!(told(&orders, OTHER), [] as [&OwnedMessage; 0]);
}

#[test]
fn who_ends_a_job_of_its_own_hears_that_once() {
    let mut registry = with_jobs(2);
    let by_ada = "job j2 was cancelled by ada on node-7 (process 42)";
    let orders = say(&mut registry, OWNER, Message::Cancel(JobId(2)));
    assert_eq!(told(&orders, OWNER), [&over(2, by_ada)]);
}

#[test]
fn what_cannot_be_ended_is_refused_with_its_reason() {
    let mut registry = with_jobs(1);
    let orders = say(&mut registry, OTHER, Message::Cancel(JobId(9)));
    assert!(refusal(&orders, OTHER).contains("no job j9"));
    registry.on_over(key(1), None);
    registry.take_orders();
    let orders = say(&mut registry, OTHER, Message::Cancel(JobId(1)));
    assert!(refusal(&orders, OTHER).contains("it has succeeded"));
    let mut registry = with_jobs(1);
    registry.on_over(key(1), Some("on worker w1: no".into()));
    registry.take_orders();
    let orders = say(&mut registry, OTHER, Message::Cancel(JobId(1)));
    assert!(refusal(&orders, OTHER).contains("over already: on worker w1: no"));
}

#[test]
fn who_waits_for_the_end_of_a_job_hears_it_when_its_client_is_gone_first() {
    let mut registry = with_jobs(1);
    say(&mut registry, OTHER, Message::Cancel(JobId(1)));
    registry.on_lost(OWNER, std::time::Duration::ZERO);
    let orders = registry.take_orders();
    let gone = over(1, "the client that asked for it is gone");
    assert_eq!(told(&orders, OTHER), [&gone]);
    assert_eq!(details(&registry, 1).status.state, JobState::Failed);
    // And nobody is told on a link that is lost.
    let mut registry = with_jobs(1);
    say(&mut registry, OTHER, Message::Cancel(JobId(1)));
    registry.on_lost(OTHER, std::time::Duration::ZERO);
    registry.on_over(key(1), None);
    assert_eq!(
        told(&registry.take_orders(), OTHER),
        [] as [&OwnedMessage; 0]
    );
}

#[test]
fn jobs_are_told_with_whose_they_are_and_who_runs_them() {
    let mut registry = with_jobs(2);
    let load = Load {
        memory_bytes: 0,
        idle_permille: 0,
        tasks: vec![(key(1), 30)],
        running: Vec::new(),
    };
    say(&mut registry, WORKER, Message::Load(load));
    let expects = |tasks| Message::Expects {
        job: JobId(1),
        tasks,
    };
    for _ in 0..2 {
        assert_eq!(say(&mut registry, OWNER, expects(120)), []);
    }
    // Only its client knows.
    assert_eq!(say(&mut registry, OTHER, expects(7)), []);
    let orders = say(&mut registry, OTHER, Message::AskJobs);
    let [OwnedMessage::Jobs(jobs)] = told(&orders, OTHER)[..] else {
        panic!("{orders:?}");
    };
    let [first, second] = &jobs[..] else {
        panic!("{jobs:?}");
    };
    assert_eq!(
        (first.status.position, first.tasks_total),
        (30, Some(120)),
        "{first:?}"
    );
    assert_eq!(first.workers, [WorkerId(1)]);
    assert_eq!(first.client, Some(client("ada")));
    assert_eq!((second.tasks_total, &second.workers[..]), (None, &[][..]));
    // What is known stays when the client is gone.
    registry.on_lost(OWNER, std::time::Duration::ZERO);
    let first = details(&registry, 1);
    assert_eq!(first.client, Some(client("ada")));
    assert!(first.status.failure.unwrap().contains("is gone"));
}

#[test]
fn names_cannot_write_on_the_terminals_of_those_who_read_them() {
    let mut registry = with_jobs(0);
    let mut eve = client("\u{1b}[2Jeve\n");
    eve.host = "x".repeat(9_000);
    eve.log = Some("\r.log".into());
    say(&mut registry, OWNER, Message::Introduce(eve));
    let submit = Submit {
        version: "1",
        name: "a program",
        shards: vec![1],
    };
    say(&mut registry, OWNER, Message::Submit(submit));
    let shown = details(&registry, 1).client.unwrap();
    assert_eq!(
        (shown.user.as_str(), shown.host.len()),
        ("[2Jeve", 200),
        "{shown:?}"
    );
    assert_eq!(shown.log.as_deref(), Some(".log"));
}
