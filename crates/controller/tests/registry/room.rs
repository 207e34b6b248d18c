//! Jobs begin when their floors find room on every worker, and those that wait say for what.

use crate::callers::{A, B, CLIENT, OTHER, key, register, say, state, submit, told, two_workers};
use brambling_controller::registry::{Order, OwnedMessage, Registry, RegistryError};
use brambling_protocol::message::{Brings, JobState, Message};
use brambling_protocol::{JobId, WorkerId};

const GB: u64 = 1 << 30;

/// Two workers of a gigabyte, and room for several jobs.
fn roomy() -> Registry {
    two_workers().with_jobs_at_once(4)
}

fn uses(job: u64, bytes: u64) -> Message<'static> {
    Message::Uses(vec![(key(job), bytes)])
}

fn brings(program_bytes: u64, rows_bytes: u64) -> Message<'static> {
    Message::Brings(Brings {
        program_bytes,
        rows_bytes,
    })
}

#[test]
fn a_job_begins_beside_one_that_leaves_room_for_its_floor() {
    let mut registry = roomy();
    say(&mut registry, CLIENT, submit(&[4]));
    // Of two shares of half the budget eleven sixteenths are kept.
    let floor = GB * 11 / 32;
    say(&mut registry, B, uses(1, GB - floor + 32));
    say(&mut registry, OTHER, submit(&[4]));
    assert_eq!(state(&registry, 2), JobState::Queued);
    let [(JobId(2), why)] = &registry.waits()[..] else {
        panic!("{:?}", registry.waits());
    };
    assert!(
        why.starts_with("memory on w2: it needs ") && why.contains(" by 1 job; "),
        "{why}"
    );
    // Said twice it is the same.
    for _ in 0..2 {
        assert_eq!(say(&mut registry, B, uses(1, GB - floor + 32)), []);
    }
    let orders = say(&mut registry, B, uses(1, GB - floor - 32));
    assert!(matches!(
        told(&orders, OTHER)[..],
        [OwnedMessage::Accepted(_)]
    ));
    assert_eq!(registry.waits(), []);
    assert_eq!(say(&mut registry, B, uses(1, GB - floor - 32)), []);
}

#[test]
fn what_a_client_brings_needs_room_as_well() {
    let mut registry = roomy();
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, OTHER, brings(GB * 2 / 5, 0));
    say(&mut registry, OTHER, submit(&[4]));
    assert_eq!(state(&registry, 2), JobState::Queued);
    // What comes after it waits behind it, though it would fit.
    say(&mut registry, OTHER, submit(&[4]));
    assert_eq!(registry.waits()[1], (JobId(3), "1 job before it".into()));
    registry.on_over(key(1), None);
    registry.take_orders();
    say(&mut registry, CLIENT, Message::Done(JobId(1)));
    assert_eq!(state(&registry, 2), JobState::Running);
    // What was brought was said of one job.
    assert_eq!(state(&registry, 3), JobState::Running);
}

#[test]
fn a_job_alone_begins_whatever_it_needs() {
    let mut registry = roomy();
    say(&mut registry, CLIENT, brings(7 * GB, 0));
    say(&mut registry, CLIENT, submit(&[4]));
    assert_eq!(state(&registry, 1), JobState::Running);
}

#[test]
fn a_job_that_waits_for_room_is_ended() {
    let mut registry = roomy();
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, A, uses(1, GB));
    say(&mut registry, OTHER, submit(&[4]));
    assert_eq!(registry.waits().len(), 1);
    let orders = say(&mut registry, CLIENT, Message::Cancel(JobId(2)));
    assert!(matches!(
        told(&orders, OTHER)[..],
        [OwnedMessage::Over {
            job: JobId(2),
            failure: Some(_)
        }]
    ));
    assert_eq!(registry.waits(), []);
}

#[test]
fn a_worker_without_room_for_what_is_sent_is_not_taken_in_later() {
    let third = brambling_controller::registry::PeerLink(12);
    for (bytes, is_taken_in) in [(GB / 2, true), (GB / 2 + 1, false)] {
        let mut registry = roomy();
        say(&mut registry, CLIENT, brings(bytes, 3 * GB));
        say(&mut registry, CLIENT, submit(&[4]));
        let orders = say(&mut registry, third, register(5, None));
        let admits = orders.iter().any(|it| {
            matches!(
                it,
                Order::Admit {
                    worker: WorkerId(3),
                    ..
                }
            )
        });
        assert_eq!(admits, is_taken_in, "{bytes}");
    }
}

#[test]
fn who_takes_jobs_is_told_with_its_budget_and_only_workers_say_what_they_use() {
    let mut registry = roomy();
    let budgets = registry.budgets();
    let told = budgets.iter().map(|(worker, _, bytes)| (*worker, *bytes));
    assert!(told.eq([(WorkerId(1), GB), (WorkerId(2), GB)]));
    let said = registry.on_message(CLIENT, uses(1, 7));
    assert_eq!(said, Err(RegistryError::NotRegistered));
}
