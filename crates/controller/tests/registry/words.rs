//! Who may speak: what is refused, what ends a link, and that what is told is sent as it is.

use crate::callers::{
    A, CLIENT, FIRST, OTHER, VERSION, refusal, register, say, submit, times, two_workers,
};
use brambling_controller::registry::{OwnedMessage, Registry, RegistryError};
use brambling_program::{GroupId, ShardId};
use brambling_protocol::message::{
    Accepted, Load, Member, Message, Move, Prepare, Registered, Submit,
};
use brambling_protocol::{Generation, JobId, JobKey, WorkerId};

#[test]
fn who_cannot_take_part_is_told_why() {
    let mut registry = Registry::new(VERSION);
    let orders = say(&mut registry, CLIENT, submit(&[4]));
    assert!(refusal(&orders, CLIENT).contains("brambling worker --controller"));
    let Message::Register(mut worker) = register(1, None) else {
        unreachable!()
    };
    worker.version = "1.2.4";
    let orders = say(&mut registry, A, Message::Register(worker));
    let why = refusal(&orders, A);
    assert!(
        why.contains("1.2.4") && why.contains("1.2.3") && why.contains("install"),
        "{why}"
    );
    assert_eq!(registry.workers(), 0);
    let (version, name) = ("0.1", "p");
    let wrong = Submit {
        version,
        name,
        shards: vec![1],
    };
    let orders = say(&mut registry, CLIENT, Message::Submit(wrong));
    assert!(refusal(&orders, CLIENT).contains("0.1"));
}

#[test]
fn what_nobody_says_who_follows_the_rules_ends_the_link() {
    let mut registry = two_workers();
    let load = Load {
        memory_bytes: 1,
        idle_permille: 2,
        tasks: vec![],
        running: Vec::new(),
    };
    let wrong = [
        (Message::Load(load), RegistryError::NotRegistered),
        (Message::Times(times(&[])), RegistryError::NotRegistered),
        (
            Message::Unprepared {
                key: FIRST,
                why: "x",
            },
            RegistryError::NotRegistered,
        ),
        (Message::Release(FIRST), RegistryError::WrongWay),
        (
            submit(&[u32::MAX, 1]),
            RegistryError::TooManyShards { shards: 1 << 32 },
        ),
    ];
    for (message, error) in wrong {
        assert_eq!(registry.on_message(OTHER, message), Err(error));
        assert_eq!(registry.take_orders(), []);
    }
}

/// What is told owns its texts; what is sent is the same.
#[test]
fn what_is_told_is_sent_as_it_is() {
    let (job, worker, weight) = (JobId(4), WorkerId(3), 7);
    let key = JobKey::new(job, Generation(5));
    let shard = ShardId {
        group: GroupId(1),
        index: 2,
    };
    let at = ([127, 0, 0, 1], 9).into();
    let member = Member { worker, at };
    let moved = Move {
        job: Some(job),
        shard,
        to: worker,
    };
    let prepare = Prepare {
        key,
        members: vec![member],
        shards: vec![6],
        map: Vec::new(),
        kept: None,
    };
    let accepted = Accepted {
        key,
        members: vec![member],
    };
    let (why, failure) = ("for a reason", Some("for another"));
    for (told, sent) in [
        (
            OwnedMessage::Registered(Registered { worker }),
            Message::Registered(Registered { worker }),
        ),
        (
            OwnedMessage::Prepare(prepare.clone()),
            Message::Prepare(prepare),
        ),
        (OwnedMessage::Release(key), Message::Release(key)),
        (OwnedMessage::Queued(job), Message::Queued(job)),
        (
            OwnedMessage::Accepted(accepted.clone()),
            Message::Accepted(accepted),
        ),
        (
            OwnedMessage::Over {
                job,
                failure: failure.map(str::to_owned),
            },
            Message::Over { job, failure },
        ),
        (
            OwnedMessage::Refused { why: why.into() },
            Message::Refused { why },
        ),
        (
            OwnedMessage::Fenced { why: why.into() },
            Message::Fenced { why },
        ),
        (OwnedMessage::Moved(moved), Message::Moved(moved)),
        (
            OwnedMessage::Admitted { key, member },
            Message::Admitted { key, member },
        ),
        (
            OwnedMessage::Left { key, worker },
            Message::Left { key, worker },
        ),
        (OwnedMessage::Drained(worker), Message::Drained(worker)),
        (OwnedMessage::Jobs(Vec::new()), Message::Jobs(Vec::new())),
        (
            OwnedMessage::Weigh { job, weight },
            Message::Weigh { job, weight },
        ),
        (OwnedMessage::Lasting, Message::Lasting),
        (
            OwnedMessage::Told {
                job,
                line: why.into(),
            },
            Message::Told { job, line: why },
        ),
        (
            OwnedMessage::Recovering {
                job,
                why: why.into(),
            },
            Message::Recovering { job, why },
        ),
    ] {
        assert_eq!(told.message(), sent);
    }
}
