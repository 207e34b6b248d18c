//! What outlives a controller: jobs, their clients' names for them, and workers' names.

use crate::callers::{
    A, CLIENT, OTHER, VERSION, register, register_with, say, state, submit, told,
};
use brambling_controller::ShardLoss;
use brambling_controller::log::LoggedCluster;
use brambling_controller::registry::{
    ADOPTION_TIME, CLIENT_TIME, Order, OwnedMessage, PeerLink, RETURN_TIME, Registry,
};
use brambling_program::GroupId;
use brambling_protocol::frame::ShardRange;
use brambling_protocol::kept::{LogEntry, LoggedTerm};
use brambling_protocol::message::{Accepted, Holding, JobState, Message, Registered, Survives};
use brambling_protocol::{Generation, JobId, JobKey, PartitionMap, WorkerId};
use std::time::Duration;

const NAME: u128 = 77;

/// A registry in a term of a cluster, and the cluster as its log has it.
struct Term {
    registry: Registry,
    log: LoggedCluster,
}

impl Term {
    fn next(mut log: LoggedCluster) -> Term {
        let term = log.term + 1;
        log.take(LogEntry::Term(LoggedTerm {
            term,
            cluster: 5,
            address: "10.0.0.7:7077".into(),
            version: VERSION.into(),
        }));
        let registry = Registry::new(VERSION).in_term(term, &log);
        Term { registry, log }
    }

    fn say(
        &mut self,
        from: brambling_controller::registry::PeerLink,
        message: Message<'_>,
    ) -> Vec<Order> {
        let orders = say(&mut self.registry, from, message);
        self.keep(orders)
    }

    /// So late; workers have told that they are there.
    fn at(&mut self, now: Duration) -> Vec<Order> {
        for worker in [A, OTHER] {
            self.registry.on_heartbeat(worker, now);
        }
        self.registry.on_tick(now);
        let orders = self.registry.take_orders();
        self.keep(orders)
    }

    /// Logs what is to be logged.
    fn keep(&mut self, orders: Vec<Order>) -> Vec<Order> {
        for order in &orders {
            if let Order::Log(entry) = order {
                self.log.take(entry.clone());
            }
        }
        orders
    }

    fn submit(&mut self, from: brambling_controller::registry::PeerLink) -> Vec<Order> {
        self.say(from, Message::Named(NAME));
        let survives = Survives {
            repeats: true,
            cuts: None,
        };
        self.say(from, Message::Survives(survives));
        self.say(from, submit(&[4]))
    }
}

fn first() -> Term {
    let mut term = Term::next(LoggedCluster::default());
    term.say(A, register(1, None));
    term
}

const fn key(term: u64) -> JobKey {
    JobKey {
        job: JobId(1),
        generation: Generation(term << 32),
    }
}

fn accepted(orders: &[Order]) -> Option<JobKey> {
    told(orders, CLIENT).into_iter().find_map(|it| match it {
        OwnedMessage::Accepted(Accepted { key, .. }) => Some(*key),
        _ => None,
    })
}

#[test]
fn a_job_is_in_the_log_before_anybody_hears_of_it() {
    let mut term = first();
    let orders = term.submit(CLIENT);
    let logged = orders
        .iter()
        .position(|it| matches!(it, Order::Log(LogEntry::Submitted(_))));
    let heard = orders
        .iter()
        .position(|it| matches!(it, Order::Tell { .. } | Order::Begin { .. }));
    assert!(logged.is_some() && logged < heard, "{orders:?}");
    assert_eq!(accepted(&orders), Some(key(1)));
    let orders = term.say(CLIENT, Message::Done(JobId(1)));
    let logged = orders
        .iter()
        .position(|it| *it == Order::Log(LogEntry::Released(JobId(1))));
    let released = orders.iter().position(|it| {
        matches!(
            it,
            Order::Tell {
                what: OwnedMessage::Release(_),
                ..
            }
        )
    });
    assert!(logged.is_some() && logged < released, "{orders:?}");
    assert_eq!(term.log.jobs.len(), 0);
}

#[test]
fn who_asks_again_gets_the_same_job() {
    let mut term = first();
    term.submit(CLIENT);
    let mut term = Term::next(term.log);
    let orders = term.say(A, register(1, Some(WorkerId(9))));
    // It has the name that it had, and lets go of what nobody asks for yet.
    let registered = OwnedMessage::Registered(Registered {
        worker: WorkerId(9),
    });
    assert_eq!(told(&orders, A)[0], &registered);
    assert_eq!(state(&term.registry, 1), JobState::Queued);
    let orders = term.submit(CLIENT);
    // It may run somewhere.
    assert_eq!(told(&orders, CLIENT), [&OwnedMessage::Queued(JobId(1))]);
    let orders = term.at(ADOPTION_TIME);
    assert_eq!(accepted(&orders), Some(key(2)));
    assert!(
        !orders.iter().any(|it| matches!(it, Order::Log(_))),
        "{orders:?}"
    );
    // Asked once more: nothing begins twice.
    let orders = term.submit(CLIENT);
    assert_eq!(accepted(&orders), Some(key(2)));
    assert!(!orders.iter().any(|it| matches!(it, Order::Begin { .. })));
    // A newcomer has a name of its own.
    let orders = term.say(OTHER, register(2, None));
    let registered = OwnedMessage::Registered(Registered {
        worker: WorkerId(1_001),
    });
    assert_eq!(told(&orders, OTHER)[0], &registered);
}

/// What a worker says that it has of the job.
fn holding(me: u32, others: &[u32], (first, end): (u32, u32)) -> Message<'static> {
    let group = GroupId(0);
    Message::Holding(Holding {
        key: key(1),
        me: WorkerId(me),
        members: others.iter().copied().map(WorkerId).collect(),
        shards: vec![ShardRange { group, first, end }],
        is_busy: false,
        has_ended: false,
    })
}

/// A term in which a job ran on two workers, which come back; and what the first is told then.
fn returned() -> (Term, Vec<Order>) {
    let mut term = first();
    term.say(OTHER, register(2, None));
    term.submit(CLIENT);
    let mut term = Term::next(term.log);
    let with_job = |epoch, name| register_with(epoch, Some(WorkerId(name)), vec![key(1)]);
    let orders = term.say(A, with_job(1, 1));
    term.say(OTHER, with_job(2, 2));
    (term, orders)
}

fn is_released(orders: &[Order], to: PeerLink) -> bool {
    told(orders, to).contains(&&OwnedMessage::Release(key(1)))
}

#[test]
fn a_job_that_runs_goes_on_as_it_is() {
    let (mut term, orders) = returned();
    let asked = OwnedMessage::AskHolding {
        key: key(1),
        term: 2,
    };
    assert!(told(&orders, A).contains(&&asked), "{orders:?}");
    assert!(!is_released(&orders, A));
    assert_eq!(term.say(A, holding(1, &[2], (0, 2))), []);
    // Its client comes before all is known: it waits.
    assert_eq!(accepted(&term.submit(CLIENT)), None);
    let orders = term.say(OTHER, holding(2, &[1], (2, 4)));
    let adopted = orders.iter().find_map(|it| match it {
        Order::Adopt { adoption, .. } => Some(adoption),
        _ => None,
    });
    let members: Vec<WorkerId> = adopted
        .expect("all is there")
        .members
        .keys()
        .copied()
        .collect();
    assert_eq!(members, [WorkerId(1), WorkerId(2)]);
    assert!(!orders.iter().any(|it| matches!(it, Order::Begin { .. })));
    for worker in [A, OTHER] {
        assert!(told(&orders, worker).contains(&&OwnedMessage::Adopted(key(1))));
        assert!(!is_released(&orders, worker));
    }
    assert_eq!(accepted(&orders), Some(key(1)));
    assert_eq!(state(&term.registry, 1), JobState::Running);
    // Said once more, and late: it changes nothing.
    let orders = term.say(A, holding(1, &[2], (0, 2)));
    assert_eq!(told(&orders, A), [&OwnedMessage::Adopted(key(1))]);
    assert_eq!(orders.len(), 1);
    assert_eq!(term.at(ADOPTION_TIME), []);
    // What is lost from now on begins as a generation of this term.
    let loss = ShardLoss {
        worker: WorkerId(1),
        why: "it is gone".into(),
        way_out: "",
        held: PartitionMap::new([4]),
    };
    term.registry.on_loss(key(1), loss);
    let orders = term.registry.take_orders();
    assert_eq!(accepted(&orders), Some(key(2)));
}

#[test]
fn a_client_that_comes_late_finds_its_job_running() {
    let (mut term, _) = returned();
    term.say(A, holding(1, &[2], (0, 2)));
    term.say(OTHER, holding(2, &[1], (2, 4)));
    assert_eq!(accepted(&term.submit(CLIENT)), Some(key(1)));
    // It is not let go then.
    term.at(CLIENT_TIME);
    assert_eq!(state(&term.registry, 1), JobState::Running);
}

/// It had said what it has, and is gone when the others have.
#[test]
fn who_is_gone_again_is_no_member() {
    let (mut term, _) = returned();
    term.submit(CLIENT);
    term.say(A, holding(1, &[2], (0, 2)));
    term.registry.on_lost(A, Duration::ZERO);
    term.registry.on_tick(RETURN_TIME);
    term.say(OTHER, holding(2, &[1], (2, 4)));
    assert_eq!(state(&term.registry, 1), JobState::Queued);
    let orders = term.at(ADOPTION_TIME);
    assert_eq!(accepted(&orders), Some(key(2)));
}

#[test]
fn a_job_that_has_lost_a_member_begins_again() {
    let (mut term, _) = returned();
    term.submit(CLIENT);
    term.say(A, holding(1, &[2], (0, 2)));
    assert_eq!(term.at(ADOPTION_TIME - Duration::from_secs(1)), []);
    let orders = term.at(ADOPTION_TIME);
    assert!(is_released(&orders, A), "{orders:?}");
    assert_eq!(accepted(&orders), Some(key(2)));
    // Who says so now drops it.
    assert!(is_released(
        &term.say(OTHER, holding(2, &[1], (2, 4))),
        OTHER
    ));
}

#[test]
fn a_job_whose_client_does_not_come_back_is_let_go() {
    let mut term = first();
    term.submit(CLIENT);
    let mut term = Term::next(term.log);
    term.registry.on_tick(CLIENT_TIME - Duration::from_secs(1));
    assert_eq!(term.registry.take_orders(), []);
    term.registry.on_tick(CLIENT_TIME);
    let orders = term.registry.take_orders();
    term.keep(orders);
    assert_eq!(state(&term.registry, 1), JobState::Failed);
    assert_eq!(term.log.jobs.len(), 0);
}

/// They have not come back yet.
#[test]
fn a_job_waits_for_the_workers_of_the_term_before() {
    let refused = |orders: &[Order]| {
        let mut told = told(orders, CLIENT).into_iter();
        told.any(|it| matches!(it, OwnedMessage::Refused { .. }))
    };
    let mut term = Term::next(LoggedCluster::default());
    assert!(refused(&term.submit(CLIENT)), "there were none");
    let mut term = Term::next(term.log);
    assert!(!refused(&term.submit(CLIENT)));
    let orders = term.say(A, register(1, Some(WorkerId(1))));
    assert_eq!(accepted(&orders), Some(key(2)));
}

#[test]
fn snapshots_are_known_in_the_next_term() {
    let mut log = first();
    log.submit(CLIENT);
    let job = JobId(1);
    for cut in 1..=3 {
        log.log.take(LogEntry::Snapshot { job, cut });
    }
    assert_eq!(log.log.jobs[&job].1, [2, 3], "two are kept");
    log.log.take(LogEntry::Unusable { job, cut: 3 });
    assert_eq!(log.log.jobs[&job].1, [2]);
}
