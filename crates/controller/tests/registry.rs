//! Workers register, clients submit; what the registry tells whom.

use brambling_controller::registry::{
    Caller, Order, REMEMBERED, RETURN_TIME, Registry, RegistryError, Told,
};
use brambling_program::{GroupId, ShardId};
use brambling_protocol::message::{
    Accepted, JobState, Load, Member, Message, Move, Prepare, Register, Registered, ShardTime,
    Status, Submit, Times,
};
use brambling_protocol::{Generation, JobId, PartitionMap, WorkerId};
use std::time::Duration;

const VERSION: &str = "1.2.3";
const A: Caller = Caller(10);
const B: Caller = Caller(11);
const CLIENT: Caller = Caller(20);
const OTHER: Caller = Caller(21);

fn register(pid: u32, known_as: Option<WorkerId>) -> Message<'static> {
    Message::Register(Register {
        version: VERSION,
        known_as,
        epoch: u64::from(pid) + 1_000,
        pid,
        host: "here",
        threads: pid,
        memory_bytes: 1 << 30,
        listens_at: ([127, 0, 0, 1], pid as u16).into(),
        jobs: vec![JobId(1), JobId(77)],
    })
}

fn submit(shards: &[u32]) -> Message<'static> {
    Message::Submit(Submit {
        version: VERSION,
        name: "a program",
        shards: shards.to_vec(),
    })
}

fn say(registry: &mut Registry, from: Caller, message: Message<'_>) -> Vec<Order> {
    registry.on_message(from, message).unwrap();
    registry.take_orders()
}

/// A registry with the workers 1 (one thread) and 2 (three).
fn two_workers() -> Registry {
    let mut registry = Registry::new(VERSION).with_jobs_at_once(1);
    for (caller, pid, id) in [(A, 1, 1), (B, 3, 2)] {
        let worker = WorkerId(id);
        let what = Told::Registered(Registered { worker });
        let orders = say(&mut registry, caller, register(pid, None));
        assert_eq!(told(&orders, caller)[0], &what);
    }
    registry
}

fn told(orders: &[Order], to: Caller) -> Vec<&Told> {
    let mine = orders.iter().filter_map(|order| match order {
        Order::Tell { to: it, what } if *it == to => Some(what),
        _ => None,
    });
    mine.collect()
}

fn refusal(orders: &[Order], to: Caller) -> &str {
    match told(orders, to)[..] {
        [Told::Refused { why }] => why,
        ref other => panic!("{other:?}"),
    }
}

fn status(registry: &Registry) -> Status {
    registry.status(|_, worker| worker.0 * 100)
}

fn state(registry: &Registry, job: u64) -> JobState {
    let jobs = status(registry).jobs;
    jobs.iter().find(|it| it.id == JobId(job)).unwrap().state
}

#[test]
fn a_job_is_placed_by_threads_and_its_members_and_client_are_told() {
    let mut registry = two_workers();
    let orders = say(&mut registry, CLIENT, submit(&[8, 1]));
    let Some(Order::Begin {
        job, members, map, ..
    }) = orders.get(1)
    else {
        panic!("{orders:?}");
    };
    assert_eq!(
        (*job, &members[..]),
        (JobId(1), &[WorkerId(1), WorkerId(2)][..])
    );
    let owned = |worker| {
        let mine = map
            .entries()
            .filter(|it| it.entry.owner == WorkerId(worker));
        mine.map(|it| it.end - it.first).collect::<Vec<_>>()
    };
    assert_eq!((owned(1), owned(2)), (vec![2], vec![6, 1]));
    for worker in [A, B] {
        let [
            Told::Prepare(Prepare {
                job: JobId(1),
                members,
                shards,
                map: entries,
                ..
            }),
        ] = told(&orders, worker)[..]
        else {
            panic!("{orders:?}");
        };
        assert_eq!((members.len(), &shards[..]), (2, &[8, 1][..]));
        assert_eq!(*entries, map.entries().collect::<Vec<_>>());
    }
    let [Told::Queued(JobId(1)), Told::Accepted(accepted)] = told(&orders, CLIENT)[..] else {
        panic!("{orders:?}");
    };
    assert_eq!(accepted.members[1].at.port(), 3);
}

#[test]
fn jobs_have_the_cluster_one_after_another() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    let queued = say(&mut registry, OTHER, submit(&[5]));
    assert_eq!(told(&queued, OTHER), [&Told::Queued(JobId(2))]);
    assert_eq!(queued.len(), 1);
    assert_eq!(
        (state(&registry, 1), state(&registry, 2)),
        (JobState::Running, JobState::Queued)
    );
    registry.on_over(JobId(1), None);
    let orders = registry.take_orders();
    assert_eq!(
        told(&orders, CLIENT),
        [&Told::Over {
            job: JobId(1),
            failure: None
        }]
    );
    // What it left is still to be fetched.
    assert_eq!(state(&registry, 2), JobState::Queued);
    // Only its own client may say so.
    assert_eq!(say(&mut registry, OTHER, Message::Done(JobId(1))), []);
    let orders = say(&mut registry, CLIENT, Message::Done(JobId(1)));
    assert_eq!(told(&orders, A)[0], &Told::Release(JobId(1)));
    assert!(orders.contains(&Order::Forget(JobId(1))));
    assert!(matches!(told(&orders, OTHER)[..], [Told::Accepted(_)]));
    assert_eq!(
        (state(&registry, 1), state(&registry, 2)),
        (JobState::Succeeded, JobState::Running)
    );
}

#[test]
fn a_client_that_is_gone_ends_its_jobs() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, OTHER, submit(&[4]));
    registry.on_lost(CLIENT, Duration::ZERO);
    let orders = registry.take_orders();
    assert!(matches!(&orders[0], Order::Cancel { job: JobId(1), why } if why.contains("client")));
    assert!(orders.contains(&Order::Forget(JobId(1))));
    assert_eq!(
        (state(&registry, 1), state(&registry, 2)),
        (JobState::Failed, JobState::Failed)
    );
    assert_eq!(state(&registry, 3), JobState::Running);
    assert_eq!(told(&orders, CLIENT).len(), 0, "nobody is there to be told");
}

#[test]
fn a_worker_may_come_back_for_a_while_and_is_gone_then() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    registry.on_lost(A, Duration::from_secs(5));
    let before = Duration::from_secs(5) + RETURN_TIME / 2;
    registry.on_tick(before);
    assert_eq!(registry.take_orders(), []);
    // The same process on another link.
    let orders = say(&mut registry, OTHER, register(1, Some(WorkerId(1))));
    assert_eq!(
        told(&orders, OTHER)[0],
        &Told::Registered(Registered {
            worker: WorkerId(1)
        })
    );
    registry.on_tick(before + 10 * RETURN_TIME);
    assert_eq!(registry.take_orders(), []);
    registry.on_lost(OTHER, before);
    registry.on_tick(before + RETURN_TIME);
    let orders = registry.take_orders();
    let [
        Order::Lose {
            job: JobId(1),
            worker: WorkerId(1),
            process,
        },
    ] = &orders[..]
    else {
        panic!("{orders:?}");
    };
    assert_eq!(process, "process 1 on here");
    assert_eq!(status(&registry).workers.len(), 1);
    // It comes too late: it is another worker now.
    let orders = say(&mut registry, A, register(1, Some(WorkerId(1))));
    assert_eq!(
        told(&orders, A)[0],
        &Told::Registered(Registered {
            worker: WorkerId(3)
        })
    );
}

#[test]
fn a_process_that_was_started_again_is_another_worker() {
    let mut registry = two_workers();
    let orders = say(&mut registry, OTHER, register(7, Some(WorkerId(1))));
    assert_eq!(
        told(&orders, OTHER)[0],
        &Told::Registered(Registered {
            worker: WorkerId(3)
        })
    );
}

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
    };
    let wrong = [
        (Message::Load(load), RegistryError::NotRegistered),
        (Message::Times(times(&[])), RegistryError::NotRegistered),
        (
            Message::Unprepared {
                job: JobId(1),
                why: "x",
            },
            RegistryError::NotRegistered,
        ),
        (Message::Release(JobId(1)), RegistryError::WrongWay),
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

#[test]
fn a_job_that_waits_can_be_cancelled_and_one_that_a_member_cannot_prepare_ends() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, OTHER, submit(&[4]));
    let orders = say(&mut registry, CLIENT, Message::Cancel(JobId(2)));
    assert!(matches!(
        told(&orders, OTHER)[..],
        [Told::Over {
            failure: Some(_),
            ..
        }]
    ));
    assert_eq!(state(&registry, 2), JobState::Failed);
    let (job, why) = (JobId(1), "no such module");
    let orders = say(&mut registry, B, Message::Unprepared { job, why });
    let why = "on worker w2: no such module".to_owned();
    assert_eq!(orders, [Order::Cancel { job, why }]);
    assert!(refusal(&say(&mut registry, OTHER, Message::Cancel(JobId(9))), OTHER).contains("j9"));
}

fn times(shards: &[ShardTime]) -> Times {
    let (job, shards) = (JobId(1), shards.to_vec());
    Times { job, shards }
}

#[test]
fn times_go_to_the_controller_of_the_job_and_room_is_what_the_budget_leaves() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    let took = ShardTime {
        shard: ShardId {
            group: GroupId(0),
            index: 3,
        },
        turns: 2,
        ran_ns: 7,
        bytes: 1,
    };
    let told = times(&[took]);
    let (worker, message) = (WorkerId(2), Message::Times(told.clone()));
    // Twice: what it means the job's controller knows.
    for _ in 0..2 {
        let orders = say(&mut registry, B, message.clone());
        let times = told.clone();
        assert_eq!(orders, [Order::Weigh { worker, times }]);
    }
    let all = registry.free_bytes(worker);
    let load = Load {
        memory_bytes: 77,
        idle_permille: 0,
        tasks: vec![],
    };
    say(&mut registry, B, Message::Load(load));
    assert_eq!(registry.free_bytes(worker), all - 77);
    assert!(all > 77);
    assert_eq!(registry.free_bytes(WorkerId(9)), 0);
}

#[test]
fn loads_are_what_the_status_tells() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    for (caller, tasks) in [(A, 30), (B, 12)] {
        let tasks = vec![(JobId(1), tasks)];
        let load = Load {
            memory_bytes: 77,
            idle_permille: 250,
            tasks,
        };
        say(&mut registry, caller, Message::Load(load));
    }
    let status = status(&registry);
    assert_eq!(
        (status.jobs[0].position, &status.jobs[0].name[..]),
        (42, "a program")
    );
    let second = &status.workers[1];
    assert_eq!((second.pid, second.threads, second.shards), (3, 3, 200));
    assert_eq!((second.memory_bytes, second.idle_permille), (77, 250));
}

#[test]
fn a_worker_that_comes_back_hears_what_it_missed() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    registry.on_lost(A, Duration::ZERO);
    let back = Caller(12);
    // It has job 1, which runs, and job 77, which nobody asks for.
    let orders = say(&mut registry, back, register(1, Some(WorkerId(1))));
    let [
        Told::Registered(_),
        Told::Release(JobId(77)),
        Told::Prepare(prepare),
    ] = told(&orders, back)[..]
    else {
        panic!("{orders:?}");
    };
    assert_eq!((prepare.job, &prepare.shards[..]), (JobId(1), &[4][..]));
    // The same link again: the same worker.
    let orders = say(&mut registry, back, register(1, None));
    let worker = WorkerId(1);
    assert_eq!(
        told(&orders, back)[0],
        &Told::Registered(Registered { worker })
    );
    // A worker that came later is told when the job's controller has taken it in.
    let orders = say(&mut registry, OTHER, register(9, None));
    assert!(matches!(
        told(&orders, OTHER)[..],
        [Told::Registered(_), Told::Release(JobId(77))]
    ));
    say(&mut registry, CLIENT, Message::Done(JobId(1)));
    registry.on_lost(back, Duration::ZERO);
    let orders = say(&mut registry, A, register(1, Some(worker)));
    let released = [JobId(1), JobId(77)].map(Told::Release);
    assert_eq!(told(&orders, A)[1..], released.each_ref()[..]);
}

#[test]
fn a_worker_that_comes_while_a_job_runs_takes_part() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    let (job, worker) = (JobId(1), WorkerId(3));
    let orders = say(&mut registry, OTHER, register(9, None));
    assert!(orders.contains(&Order::Admit { job, worker }), "{orders:?}");
    let map = PartitionMap::new([4]);
    registry.on_admitted(job, worker, &map);
    let orders = registry.take_orders();
    let [Told::Prepare(prepare)] = told(&orders, OTHER)[..] else {
        panic!("{orders:?}");
    };
    let ports: Vec<u16> = prepare.members.iter().map(|it| it.at.port()).collect();
    assert_eq!((ports, &prepare.map[..]), (vec![1, 3, 9], &[][..]));
    let [
        Told::Admitted {
            job: JobId(1),
            member,
        },
    ] = told(&orders, CLIENT)[..]
    else {
        panic!("{orders:?}");
    };
    assert_eq!((member.worker, member.at.port()), (worker, 9));
    // Its link breaks: it is the same member, and hears again what it may have missed.
    registry.on_lost(OTHER, Duration::ZERO);
    let orders = say(&mut registry, OTHER, register(9, Some(worker)));
    assert!(!orders.contains(&Order::Admit { job, worker }));
    assert!(told(&orders, OTHER).contains(&&Told::Prepare(prepare.clone())));
    // Who cannot build the program ends the job, and so does its death.
    let why = "no such module";
    let orders = say(&mut registry, OTHER, Message::Unprepared { job, why });
    assert!(matches!(&orders[..], [Order::Cancel { why, .. }] if why.contains("on worker w3")));
    registry.on_lost(OTHER, Duration::ZERO);
    registry.on_tick(RETURN_TIME);
    let orders = registry.take_orders();
    assert!(matches!(
        orders[..],
        [Order::Lose {
            worker: WorkerId(3),
            ..
        }]
    ));
    // To what is over nobody comes.
    registry.on_over(job, None);
    let orders = say(&mut registry, OTHER, register(11, None));
    assert!(!orders.iter().any(|it| matches!(it, Order::Admit { .. })));
}

#[test]
fn who_wants_a_shard_moved_hears_what_becomes_of_it() {
    let mut registry = two_workers();
    let (group, to) = (GroupId(0), WorkerId(2));
    let shard = ShardId { group, index: 1 };
    let wish = |job: Option<u64>, index, to| {
        let (job, shard) = (job.map(JobId), ShardId { group, index });
        Message::Move(Move { job, shard, to })
    };
    let asks = |registry: &mut Registry, wish| {
        let orders = say(registry, OTHER, wish);
        refusal(&orders, OTHER).to_owned()
    };
    assert!(asks(&mut registry, wish(None, 1, to)).contains("no job runs"));
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, CLIENT, submit(&[4]));
    for (wish, why) in [
        (wish(Some(9), 1, to), "no job j9"),
        (wish(Some(2), 1, to), "waits for its turn"),
        (wish(None, 4, to), "no shard 0.4"),
        (wish(None, 1, WorkerId(7)), "no worker w7"),
    ] {
        let text = asks(&mut registry, wish);
        assert!(text.contains(why), "{text}");
    }
    let job = JobId(1);
    let ordered = [Order::Move { job, shard, to }];
    assert_eq!(say(&mut registry, OTHER, wish(None, 1, to)), ordered);
    assert!(asks(&mut registry, wish(Some(1), 1, to)).contains("on its way"));
    registry.on_moved(job, shard, to);
    let moved = Move {
        job: Some(job),
        shard,
        to,
    };
    assert_eq!(told(&registry.take_orders(), OTHER), [&Told::Moved(moved)]);
    say(&mut registry, OTHER, wish(None, 1, to));
    registry.on_stays(job, shard, "no room");
    assert_eq!(refusal(&registry.take_orders(), OTHER), "no room");
    // Nobody is told of what nobody asked for, nor who is gone.
    registry.on_moved(job, shard, to);
    say(&mut registry, OTHER, wish(None, 1, to));
    registry.on_lost(OTHER, Duration::ZERO);
    registry.on_moved(job, shard, to);
    assert_eq!(registry.take_orders(), []);
    // What was on its way when the job ended.
    say(&mut registry, OTHER, wish(None, 1, to));
    registry.on_over(job, None);
    assert!(refusal(&registry.take_orders(), OTHER).contains("job j1 is over"));
    assert!(asks(&mut registry, wish(Some(1), 1, to)).contains("job j1 is over"));
}

#[test]
fn a_shard_weighs_its_part_of_what_its_holder_holds() {
    let mut registry = two_workers();
    let load = Load {
        memory_bytes: 1_000,
        idle_permille: 0,
        tasks: vec![],
    };
    say(&mut registry, A, Message::Load(load));
    assert_eq!(registry.shard_bytes(WorkerId(1), 8), 125);
    assert_eq!(registry.shard_bytes(WorkerId(1), 0), 1_000);
    assert_eq!(registry.shard_bytes(WorkerId(7), 8), 0);
}

#[test]
fn a_worker_that_is_drained_leaves_the_job_and_is_no_loss() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    let (job, worker) = (JobId(1), WorkerId(1));
    let orders = say(&mut registry, OTHER, Message::Drain(WorkerId(7)));
    assert!(refusal(&orders, OTHER).contains("no worker w7"));
    let orders = say(&mut registry, OTHER, Message::Drain(worker));
    assert_eq!(orders, [Order::Drain { job, worker }]);
    // Once is enough, and the last one stays.
    assert_eq!(say(&mut registry, CLIENT, Message::Drain(worker)), []);
    let orders = say(&mut registry, OTHER, Message::Drain(WorkerId(2)));
    assert!(refusal(&orders, OTHER).contains("the last one"));
    registry.on_left(job, worker);
    let orders = registry.take_orders();
    let drained = Told::Drained(worker);
    assert_eq!(told(&orders, A), [&Told::Release(job), &drained]);
    assert_eq!(told(&orders, OTHER), [&drained]);
    assert_eq!(
        told(&orders, CLIENT),
        [&Told::Left { job, worker }, &drained]
    );
    assert_eq!(status(&registry).workers.len(), 1);
    // It has not heard it: it hears it again, and nothing of the job.
    registry.on_lost(A, Duration::ZERO);
    let orders = say(&mut registry, A, register(1, Some(worker)));
    assert!(told(&orders, A).contains(&&drained));
    assert!(!orders.iter().any(|it| matches!(it, Order::Admit { .. })));
    // Its end is nobody's loss.
    registry.on_lost(A, Duration::ZERO);
    registry.on_tick(RETURN_TIME);
    assert_eq!(registry.take_orders(), []);
}

#[test]
fn a_worker_that_is_drained_takes_no_part_in_what_begins() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, OTHER, Message::Drain(WorkerId(1)));
    // Its job ends before it has left: then it does.
    registry.on_over(JobId(1), None);
    registry.take_orders();
    let orders = say(&mut registry, CLIENT, Message::Done(JobId(1)));
    let drained = Told::Drained(WorkerId(1));
    assert_eq!(told(&orders, A), [&Told::Release(JobId(1)), &drained]);
    assert_eq!(told(&orders, OTHER), [&drained]);
    let begun = orders.iter().find_map(|it| match it {
        Order::Begin { members, .. } => Some(&members[..]),
        _ => None,
    });
    assert_eq!(begun, Some(&[WorkerId(2)][..]));
    // Who dies before it was drained was not.
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, OTHER, Message::Drain(WorkerId(1)));
    registry.on_lost(A, Duration::ZERO);
    registry.on_tick(RETURN_TIME);
    let orders = registry.take_orders();
    assert!(
        refusal(&orders, OTHER).contains("lost before"),
        "{orders:?}"
    );
    assert!(orders.iter().any(|it| matches!(it, Order::Lose { .. })));
}

/// Jobs that run side by side, as many as there may be.
#[test]
fn jobs_run_side_by_side_and_each_is_released_by_itself() {
    let mut registry = two_workers().with_jobs_at_once(2);
    for _ in 0..3 {
        say(&mut registry, CLIENT, submit(&[4]));
    }
    let states = |registry: &Registry| [1, 2, 3].map(|job| state(registry, job));
    let (running, queued) = (JobState::Running, JobState::Queued);
    assert_eq!(states(&registry), [running, running, queued]);
    let held = |job: JobId, _| if job == JobId(1) { 3 } else { 4 };
    assert_eq!(registry.status(held).workers[0].shards, 7);
    // Two run: a shard's job must be named.
    let shard = ShardId {
        group: GroupId(0),
        index: 1,
    };
    let to = WorkerId(2);
    let wish = |job| Message::Move(Move { job, shard, to });
    let orders = say(&mut registry, OTHER, wish(None));
    assert!(refusal(&orders, OTHER).contains("--job"));
    let job = JobId(2);
    let ordered = say(&mut registry, OTHER, wish(Some(job)));
    assert_eq!(ordered, [Order::Move { job, shard, to }]);
    // The end of one begins the next, and leaves the other alone.
    registry.on_over(JobId(1), None);
    registry.take_orders();
    assert_eq!(states(&registry)[2], queued);
    let orders = say(&mut registry, CLIENT, Message::Done(JobId(1)));
    assert_eq!(told(&orders, A)[0], &Told::Release(JobId(1)));
    assert_eq!(told(&orders, A).len(), 2, "{orders:?}");
    assert!(matches!(told(&orders, A)[1], Told::Prepare(it) if it.job == JobId(3)));
    assert_eq!(states(&registry)[1..], [running, running]);
    // Who comes takes part in both.
    let orders = say(&mut registry, OTHER, register(9, None));
    let worker = WorkerId(3);
    for job in [2, 3].map(JobId) {
        assert!(orders.contains(&Order::Admit { job, worker }), "{orders:?}");
    }
}

/// What a client says of columns is for the program that it submits next, and for no other.
#[test]
fn a_grid_is_placed_by_columns_once() {
    let mut registry = two_workers();
    let arrange = |columns: &[u32]| {
        let columns = columns.to_vec();
        Message::Arrange { columns }
    };
    let owners = |orders: &[Order]| -> Vec<u32> {
        let map = orders.iter().find_map(|order| match order {
            Order::Begin { map, .. } => Some(map),
            _ => None,
        });
        let map = map.expect("the job begins");
        let shard = |index| ShardId {
            group: GroupId(0),
            index,
        };
        let owner = |index| map.entry(shard(index)).unwrap().unwrap().owner.0;
        (0..8).map(owner).collect()
    };
    assert_eq!(say(&mut registry, CLIENT, arrange(&[4])), []);
    let orders = say(&mut registry, CLIENT, submit(&[8]));
    assert_eq!(owners(&orders), [1, 2, 2, 2, 1, 2, 2, 2]);
    say(&mut registry, CLIENT, Message::Done(JobId(1)));
    // Not for the one after it, nor another client's, nor for whoever comes after it.
    let lies_as_ever = |registry: &mut Registry, client, job| {
        let orders = say(registry, client, submit(&[8]));
        assert_eq!(owners(&orders), [1, 1, 2, 2, 2, 2, 2, 2]);
        say(registry, client, Message::Done(JobId(job)));
    };
    lies_as_ever(&mut registry, CLIENT, 2);
    say(&mut registry, CLIENT, arrange(&[4]));
    lies_as_ever(&mut registry, OTHER, 3);
    registry.on_lost(CLIENT, Duration::ZERO);
    lies_as_ever(&mut registry, CLIENT, 4);
    // One that no program has fits.
    say(&mut registry, OTHER, arrange(&[4, 4]));
    let refused = registry.on_message(OTHER, submit(&[8]));
    let expected = RegistryError::Arranged {
        arranged: 2,
        groups: 1,
    };
    assert_eq!(refused, Err(expected));
}

/// A worker hears what a job weighs when that is said, and when it hears of the job.
#[test]
fn what_a_job_weighs_is_told_to_its_members() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    let job = JobId(1);
    let weigh = |weight| Message::Weigh { job, weight };
    // Only its own client may say so.
    assert_eq!(say(&mut registry, OTHER, weigh(5)), []);
    for (said, weight) in [(3, 3), (0, 1), (u32::MAX, 1_000), (7, 7)] {
        let orders = say(&mut registry, CLIENT, weigh(said));
        for worker in [A, B] {
            assert_eq!(told(&orders, worker), [&Told::Weigh { job, weight }]);
        }
    }
    // One that waits weighs when it begins.
    say(&mut registry, OTHER, submit(&[4]));
    let second = JobId(2);
    let light = Message::Weigh {
        job: second,
        weight: 2,
    };
    assert_eq!(say(&mut registry, OTHER, light), []);
    let orders = say(&mut registry, CLIENT, Message::Done(job));
    let weighs = Told::Weigh {
        job: second,
        weight: 2,
    };
    assert_eq!(told(&orders, B).last(), Some(&&weighs));
}

/// A worker that several jobs have ends when the last of them has let go of it.
#[test]
fn who_is_drained_ends_when_no_job_has_it() {
    let mut registry = two_workers().with_jobs_at_once(2);
    say(&mut registry, CLIENT, submit(&[4]));
    say(&mut registry, CLIENT, submit(&[4]));
    let worker = WorkerId(2);
    let orders = say(&mut registry, OTHER, Message::Drain(worker));
    for job in [1, 2].map(JobId) {
        assert!(orders.contains(&Order::Drain { job, worker }), "{orders:?}");
    }
    let is_told = |registry: &mut Registry| {
        let orders = registry.take_orders();
        let drained = &Told::Drained(worker);
        (
            told(&orders, B).contains(&drained),
            told(&orders, OTHER).contains(&drained),
        )
    };
    registry.on_left(JobId(1), worker);
    assert_eq!(is_told(&mut registry), (false, false));
    registry.on_left(JobId(2), worker);
    assert_eq!(is_told(&mut registry), (true, true));
}

/// What is told owns its texts; what is sent is the same.
#[test]
fn what_is_told_is_sent_as_it_is() {
    let (job, worker, weight) = (JobId(4), WorkerId(3), 7);
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
        job,
        generation: Generation(5),
        members: vec![member],
        shards: vec![6],
        map: Vec::new(),
    };
    let accepted = Accepted {
        job,
        members: vec![member],
    };
    let (why, failure) = ("for a reason", Some("for another"));
    for (told, sent) in [
        (
            Told::Registered(Registered { worker }),
            Message::Registered(Registered { worker }),
        ),
        (Told::Prepare(prepare.clone()), Message::Prepare(prepare)),
        (Told::Release(job), Message::Release(job)),
        (Told::Queued(job), Message::Queued(job)),
        (
            Told::Accepted(accepted.clone()),
            Message::Accepted(accepted),
        ),
        (
            Told::Over {
                job,
                failure: failure.map(str::to_owned),
            },
            Message::Over { job, failure },
        ),
        (Told::Refused { why: why.into() }, Message::Refused { why }),
        (Told::Moved(moved), Message::Moved(moved)),
        (
            Told::Admitted { job, member },
            Message::Admitted { job, member },
        ),
        (Told::Left { job, worker }, Message::Left { job, worker }),
        (Told::Drained(worker), Message::Drained(worker)),
        (Told::Jobs(Vec::new()), Message::Jobs(Vec::new())),
        (Told::Weigh { job, weight }, Message::Weigh { job, weight }),
    ] {
        assert_eq!(told.message(), sent);
    }
}

/// Only those with a link begin; a job for which nobody has one waits for the first who comes back.
#[test]
fn a_job_begins_on_those_who_have_a_link() {
    let members = |orders: &[Order]| {
        let begun = orders.iter().find_map(|it| match it {
            Order::Begin { members, .. } => Some(members.clone()),
            _ => None,
        });
        begun.map(|members| members.iter().map(|it| it.0).collect::<Vec<_>>())
    };
    let mut registry = two_workers();
    registry.on_lost(A, Duration::ZERO);
    let orders = say(&mut registry, CLIENT, submit(&[4]));
    assert_eq!(members(&orders), Some(vec![2]));

    let mut registry = two_workers();
    registry.on_lost(A, Duration::ZERO);
    registry.on_lost(B, Duration::ZERO);
    let orders = say(&mut registry, CLIENT, submit(&[4]));
    assert_eq!(members(&orders), None);
    assert_eq!(state(&registry, 1), JobState::Queued);
    let orders = say(&mut registry, OTHER, register(3, Some(WorkerId(2))));
    assert_eq!(members(&orders), Some(vec![2]));
}

/// A job's controller may be slower than what happens to the job: what it says then concerns nobody any more.
#[test]
fn what_a_controller_says_too_late_is_told_nobody() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    let map = PartitionMap::new([4]);
    let (job, worker) = (JobId(1), WorkerId(1));
    let shard = ShardId {
        group: GroupId(0),
        index: 1,
    };
    // Of jobs and workers that are none, and of a move for which nobody has asked.
    registry.on_admitted(JobId(9), worker, &map);
    registry.on_admitted(job, WorkerId(9), &map);
    registry.on_left(JobId(9), worker);
    registry.on_over(JobId(9), None);
    registry.on_stays(job, shard, "no room");
    assert_eq!(registry.take_orders(), []);
    assert_eq!(registry.job_details().len(), 1);
    // The client is done with it, and a newcomer was still being taken in.
    say(&mut registry, CLIENT, Message::Cancel(job));
    say(&mut registry, CLIENT, Message::Done(job));
    say(&mut registry, OTHER, register(9, None));
    registry.on_admitted(job, WorkerId(3), &map);
    registry.on_over(job, Some("cancelled".into()));
    registry.on_left(job, worker);
    let orders = registry.take_orders();
    assert_eq!(
        orders,
        [Order::Tell {
            to: A,
            what: Told::Release(job)
        }]
    );
    let details = registry.job_details();
    assert_eq!(details[0].workers, [WorkerId(2)], "{details:?}");
}

/// Links break while a job begins and ends: the others hear what they are to hear, and who comes back hears it then.
#[test]
fn members_without_a_link_keep_nobody_waiting() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    let (job, newcomer) = (JobId(1), WorkerId(3));
    say(&mut registry, OTHER, register(9, None));
    registry.on_lost(OTHER, Duration::ZERO);
    registry.on_admitted(job, newcomer, &PartitionMap::new([4]));
    let orders = registry.take_orders();
    assert_eq!(orders.len(), 1, "{orders:?}");
    assert!(matches!(told(&orders, CLIENT)[..], [Told::Admitted { .. }]));
    let back = Caller(12);
    let orders = say(&mut registry, back, register(9, Some(newcomer)));
    assert!(
        told(&orders, back)
            .iter()
            .any(|it| matches!(it, Told::Prepare(_)))
    );
    // One leaves whose link is broken.
    say(&mut registry, OTHER, Message::Drain(newcomer));
    registry.on_lost(back, Duration::ZERO);
    registry.on_left(job, newcomer);
    let orders = registry.take_orders();
    assert_eq!(told(&orders, back), [] as [&Told; 0]);
    assert_eq!(told(&orders, OTHER), [&Told::Drained(newcomer)]);
    // One is lost for good: what is said to all members is said to the others.
    registry.on_lost(A, Duration::ZERO);
    registry.on_tick(RETURN_TIME);
    registry.take_orders();
    let weight = 5;
    let orders = say(&mut registry, CLIENT, Message::Weigh { job, weight });
    let weighs = Told::Weigh { job, weight };
    let to = B;
    assert_eq!(orders, [Order::Tell { to, what: weighs }]);
    let orders = say(&mut registry, CLIENT, Message::Done(job));
    assert_eq!(told(&orders, B), [&Told::Release(job)]);
    assert_eq!(told(&orders, A), [] as [&Told; 0]);
}

/// It is over, and its client still fetches what was kept: a worker's end is no failure of it any more.
#[test]
fn who_is_lost_after_the_end_ends_nothing() {
    let mut registry = two_workers();
    say(&mut registry, CLIENT, submit(&[4]));
    registry.on_over(JobId(1), None);
    registry.take_orders();
    registry.on_lost(A, Duration::ZERO);
    registry.on_tick(RETURN_TIME);
    assert_eq!(registry.take_orders(), []);
    assert_eq!(state(&registry, 1), JobState::Succeeded);
}

/// It comes back while its shards still move away: it stays a member, takes no part in anything new, and is not told that it may end.
#[test]
fn a_worker_that_comes_back_while_it_is_drained_goes_on_leaving() {
    let mut registry = two_workers().with_jobs_at_once(2);
    say(&mut registry, CLIENT, submit(&[4]));
    let worker = WorkerId(1);
    say(&mut registry, OTHER, Message::Drain(worker));
    registry.on_lost(A, Duration::ZERO);
    say(&mut registry, CLIENT, submit(&[4]));
    let orders = say(&mut registry, A, register(1, Some(worker)));
    assert!(!orders.iter().any(|it| matches!(it, Order::Admit { .. })));
    let [
        Told::Registered(_),
        Told::Release(JobId(77)),
        Told::Prepare(prepare),
    ] = told(&orders, A)[..]
    else {
        panic!("{orders:?}");
    };
    assert_eq!(prepare.job, JobId(1));
}

#[test]
fn the_last_jobs_are_remembered_and_older_ones_are_not() {
    let mut registry = two_workers();
    let all = REMEMBERED as u64 + 3;
    for job in 1..=all {
        say(&mut registry, CLIENT, submit(&[4]));
        registry.on_over(JobId(job), None);
        say(&mut registry, CLIENT, Message::Done(JobId(job)));
    }
    let known: Vec<u64> = status(&registry).jobs.iter().map(|it| it.id.0).collect();
    assert_eq!(known, (4..=all).collect::<Vec<_>>());
    let orders = say(&mut registry, OTHER, Message::Cancel(JobId(3)));
    assert!(refusal(&orders, OTHER).contains("no job j3"));
}

#[test]
fn who_asks_is_told_and_workers_are_as_large_as_they_say() {
    let mut registry = two_workers();
    let orders = say(&mut registry, OTHER, Message::Ask);
    assert_eq!(orders, [Order::Report { to: OTHER }]);
    let known = |id| {
        let id = WorkerId(id);
        (registry.threads(id), registry.memory_limit_bytes(id))
    };
    assert_eq!([2, 9].map(known), [(3, 1 << 30), (1, 0)]);
}
