//! One frame of each kind, with every field away from its default.

use brambling_program::tree::TreeNode;
use brambling_program::{
    BlockId, CutPlan, CutStates, CutTurn, DatasetId, ExchangeId, GroupId, GroupState,
    OutermostLoop, Position, ShardId, StageId,
};
use brambling_protocol::frame::*;
use brambling_protocol::kept::StoredPart;
use brambling_protocol::message::{
    Accepted, Brings, Client, ClusterEvent, CutOff, Death, DeathKind, EventKind, FailureKind,
    FailureOrigin, Holding, JobCuts, JobDetails, JobState, JobStatus, KeptPlace, Load, Member,
    Message, Move, Part, Prepare, PrintStream, PrintedLine, PrintedLines, Register, Registered,
    RestoredParts, RunningTask, ShardTime, ShardTimes, SnapshotEvery, SnapshotStatus, Status,
    StuckKernel, Submit, Survives, WorkerStatus,
};
use brambling_protocol::{Entry, EntryRange, Generation, JobId, JobKey, Priority, WorkerId};

fn group_state() -> GroupState {
    GroupState {
        at: 300,
        entered: vec![1, 70_001],
        counters: vec![70_000],
    }
}

const SHARD: ShardId = ShardId {
    group: GroupId(1),
    index: 300,
};

fn cut_call() -> CutCall {
    CutCall {
        job: JobId(7_000_000_007),
        generation: Generation(3),
        what: CutAsk::Save(CutOrder {
            cut: 300,
            outermost: 1,
            turn: CutTurn::After(70_000),
            free: vec![GroupId(1)],
            base: Some(CutStates {
                groups: vec![group_state()],
                shards: [(SHARD, group_state())].into(),
            }),
        }),
    }
}

fn cut_reply() -> CutReply {
    CutReply {
        job: JobId(7_000_000_007),
        generation: Generation(3),
        what: CutWord::Saved(SavedParts {
            cut: 300,
            shards: vec![SavedShards {
                state: group_state(),
                turns: Some((1, 70_000)),
                shards: vec![SHARD],
            }],
            outcomes: vec![(StageId(300), true)],
            objects: vec!["parts/300-g3-w9-0".into()],
            parts: vec![StoredPart {
                dataset: DatasetId(300),
                shard: 300,
                object: 0,
                start: 8,
                bytes: 1 << 33,
                checksum: 1 << 63,
            }],
            spent_ns: 1 << 33,
        }),
    }
}

pub fn frames() -> Vec<(&'static str, Frame<'static>)> {
    let (job, generation) = (JobId(7_000_000_007), Generation(3));
    let position = Position {
        stage: StageId(300),
        turn: 70_000,
    };
    let numbered = |priority: u8, sequence, body| Frame {
        priority: Priority::new(priority).unwrap(),
        sequence: Some(sequence),
        body,
    };
    let data = Data {
        head: DataHead {
            job,
            generation,
            exchange: ExchangeId(9),
            turn: 41,
            group: GroupId(2),
        },
        versions: vec![
            VersionRange {
                first: 4,
                end: 8,
                version: 17,
            },
            VersionRange {
                first: 8,
                end: 10,
                version: 18,
            },
            VersionRange {
                first: 20,
                end: 21,
                version: 2,
            },
        ],
        pieces: vec![
            Piece {
                first: 4,
                end: 10,
                source: TreeNode { level: 3, index: 5 },
                chunk: 0,
                last: true,
                payload: b"a broadcast",
            },
            Piece {
                first: 20,
                end: 21,
                source: TreeNode::leaf(1 << 40),
                chunk: 2,
                last: false,
                payload: b"",
            },
        ],
        empties: vec![EmptyMarks {
            first: 5,
            end: 9,
            sources: 48..1000,
        }],
        routes: Vec::new(),
    };
    let route = |first, end, to| Route {
        first,
        end,
        to: WorkerId(to),
    };
    let handed_on = Data {
        routes: vec![route(6, 8, 3), route(9, 10, 3), route(20, 21, 400)],
        ..data.clone()
    };
    let credit = Credit {
        job,
        generation,
        exchange: ExchangeId(9),
        group: GroupId(2),
        retired: vec![Retired {
            first: 3,
            end: 300,
            turns: 70_000,
        }],
    };
    let entry = Entry {
        owner: WorkerId(3),
        version: 1 << 33,
    };
    let shard = ShardId {
        group: GroupId(2),
        index: 700,
    };
    vec![
        ("data", numbered(4, 1 << 50, Body::Data(data))),
        (
            "signal",
            numbered(
                0,
                1,
                Body::Signal(SignalOutcome {
                    job,
                    generation,
                    position,
                    outcome: true,
                    cut: None,
                }),
            ),
        ),
        (
            "signal-query",
            numbered(
                0,
                2,
                Body::SignalQuery(SignalQuery {
                    job,
                    generation,
                    position,
                }),
            ),
        ),
        (
            "loop-end",
            numbered(
                0,
                3,
                Body::LoopEnd(LoopEnd {
                    job,
                    generation,
                    body: BlockId(6),
                    turns: 500,
                }),
            ),
        ),
        (
            "credit",
            numbered(
                0,
                4,
                Body::Credit(Credit {
                    job,
                    generation,
                    exchange: ExchangeId(9),
                    group: GroupId(2),
                    retired: vec![
                        Retired {
                            first: 0,
                            end: 8,
                            turns: 41,
                        },
                        Retired {
                            first: 8,
                            end: 9,
                            turns: 40,
                        },
                    ],
                }),
            ),
        ),
        (
            "map-update",
            numbered(
                7,
                5,
                Body::MapUpdate(MapUpdate {
                    job,
                    generation,
                    entries: vec![EntryRange {
                        group: GroupId(1),
                        first: 0,
                        end: 600,
                        entry,
                    }],
                }),
            ),
        ),
        (
            "reserve",
            numbered(
                0,
                6,
                Body::Reserve(Reserve {
                    job,
                    generation,
                    shard,
                    version: 18,
                    holder: WorkerId(12),
                    bytes: 128 << 20,
                }),
            ),
        ),
        (
            "reserved",
            numbered(
                0,
                7,
                Body::Reserved(Reserved {
                    job,
                    generation,
                    shard,
                    version: 18,
                    granted: true,
                }),
            ),
        ),
        (
            "shard-part",
            numbered(
                7,
                8,
                Body::ShardPart(ShardPart {
                    job,
                    generation,
                    shard,
                    version: 18,
                    part: 2,
                    parts: 3,
                    bytes: b"positions, pieces, data",
                }),
            ),
        ),
        (
            "arrived",
            numbered(
                0,
                9,
                Body::Arrived(Arrived {
                    job,
                    generation,
                    shard,
                    version: 18,
                }),
            ),
        ),
        (
            "joined",
            numbered(
                0,
                10,
                Body::Joined(Joined {
                    worker: WorkerId(12),
                }),
            ),
        ),
        (
            "finished",
            numbered(
                0,
                11,
                Body::Finished(Finished {
                    job,
                    generation,
                    shards: vec![
                        ShardRange {
                            group: GroupId(0),
                            first: 3,
                            end: 7,
                        },
                        ShardRange {
                            group: GroupId(2),
                            first: 0,
                            end: 1,
                        },
                    ],
                }),
            ),
        ),
        (
            "failed",
            numbered(
                0,
                12,
                Body::Failed(Failed {
                    job,
                    generation,
                    failure: "stage `gradient` failed on partition 3 at turn 0: no weights",
                }),
            ),
        ),
        (
            "ended",
            numbered(
                0,
                13,
                Body::Ended(Ended {
                    job,
                    generation,
                    failure: Some("worker w2: out of memory"),
                }),
            ),
        ),
        (
            "call",
            Frame {
                priority: Priority::FIRST,
                sequence: None,
                body: Body::Call(Call {
                    job,
                    generation,
                    worker: WorkerId(12),
                    peer: WorkerId::CONTROLLER,
                    epoch: 0xfeed_beef,
                    format: FORMAT,
                    received: 400,
                }),
            },
        ),
        (
            "leaves",
            numbered(
                0,
                14,
                Body::Leaves(Leaves {
                    worker: WorkerId(12),
                }),
            ),
        ),
        (
            "parted",
            numbered(
                0,
                15,
                Body::Parted(Parted {
                    worker: WorkerId(12),
                }),
            ),
        ),
        (
            "gone",
            numbered(
                0,
                16,
                Body::Gone(Gone {
                    worker: WorkerId(12),
                }),
            ),
        ),
        (
            "relay",
            Frame {
                priority: Priority::FIRST,
                sequence: None,
                body: Body::Relay(Relay {
                    to: [4, 5, 6, 300, 9_000].map(WorkerId).into_iter().collect(),
                    news: News::Signal(SignalOutcome {
                        job,
                        generation,
                        position,
                        outcome: true,
                        cut: Some(300),
                    }),
                }),
            },
        ),
        (
            "relay-map",
            numbered(
                0,
                17,
                Body::Relay(Relay {
                    to: (1..1_000).map(WorkerId).collect(),
                    news: News::MapUpdate(MapUpdate {
                        job,
                        generation,
                        entries: vec![EntryRange {
                            group: GroupId(1),
                            first: 5,
                            end: 6,
                            entry,
                        }],
                    }),
                }),
            ),
        ),
        ("data-handed-on", numbered(3, 18, Body::Data(handed_on))),
        (
            "relay-credit",
            numbered(
                0,
                19,
                Body::Relay(Relay {
                    to: (1..1_000).map(WorkerId).collect(),
                    news: News::Credit(credit.clone()),
                }),
            ),
        ),
        (
            "relay-loop-end",
            numbered(
                0,
                20,
                Body::Relay(Relay {
                    to: (1..9).map(WorkerId).collect(),
                    news: News::LoopEnd(LoopEnd {
                        job,
                        generation,
                        body: BlockId(4),
                        turns: 70_000,
                    }),
                }),
            ),
        ),
        (
            "source-credit",
            numbered(
                0,
                21,
                Body::SourceCredit(SourceCredit {
                    version: 1 << 33,
                    credit,
                }),
            ),
        ),
        ("cut-call", numbered(0, 22, Body::CutCall(cut_call()))),
        (
            "cut-committed",
            numbered(
                0,
                22,
                Body::CutCall(CutCall {
                    what: CutAsk::Committed { cut: 300 },
                    ..cut_call()
                }),
            ),
        ),
        ("cut-reply", numbered(0, 23, Body::CutReply(cut_reply()))),
        (
            "ack",
            Frame {
                priority: Priority::FIRST,
                sequence: None,
                body: Body::Ack(Ack { received: 129 }),
            },
        ),
    ]
    .into_iter()
    .chain(messages())
    .collect()
}

/// Each message of processes outside of jobs, by the name of its file.
fn messages() -> Vec<(&'static str, Frame<'static>)> {
    let job = JobId(3);
    let key = JobKey::new(job, Generation(1));
    let at = "10.0.0.7:7077".parse().unwrap();
    let worker = WorkerId(4);
    let whole_bytes = 9;
    let part = Part {
        key,
        whole_bytes,
        first_byte: 5,
        bytes: b"beta",
    };
    let status = Status {
        workers: vec![WorkerStatus {
            id: worker,
            pid: 4_711,
            host: "node-7".into(),
            threads: 18,
            shards: 180,
            memory_bytes: 1 << 33,
            idle_permille: 125,
            stuck: Vec::new(),
            silent_ms: 0,
        }],
        jobs: vec![JobStatus {
            id: job,
            name: "logistic-regression".into(),
            state: JobState::Failed,
            generation: Generation(1),
            position: 123_456,
            failure: Some("it was cancelled".into()),
            cut: Some(300),
            snapshot_age_ms: Some(70_000),
            waits: None,
        }],
        term: 300,
        deaths: Vec::new(),
    };
    let death = Death {
        worker,
        host: "node-7".into(),
        pid: 4_711,
        kind: DeathKind::Signal(9),
        cause: "it was killed by signal 9".into(),
        oom: Some(true),
        memory_bytes: 1 << 33,
        stage: Some("assign".into()),
        partition: Some(300),
        silent_ms: 300,
        ago_ms: 70_000,
    };
    let entry = Entry {
        owner: worker,
        version: 1,
    };
    let register = Register {
        version: "0.1.0",
        known_as: Some(worker),
        epoch: 0xfeed_beef,
        pid: 4_711,
        host: "node-7",
        threads: 18,
        memory_bytes: 1 << 34,
        listens_at: at,
        jobs: vec![key],
    };
    let load = Load {
        memory_bytes: 1 << 33,
        idle_permille: 125,
        tasks: vec![(key, 123_456)],
        running: vec![RunningTask {
            key,
            stage: "assign".into(),
            partition: 300,
        }],
    };
    let prepare = Prepare {
        key,
        members: vec![Member { worker, at }],
        shards: vec![3],
        map: vec![EntryRange {
            group: GroupId(0),
            first: 0,
            end: 3,
            entry,
        }],
        kept: Some(KeptPlace {
            store: "/srv/snapshots".into(),
            place: "cluster/7".into(),
            cut: Some(300),
        }),
    };
    let submit = Submit {
        version: "0.1.0",
        name: "logistic-regression",
        shards: vec![3],
    };
    let accepted = Accepted {
        key,
        members: vec![Member {
            worker,
            at: "[::1]:40000".parse().unwrap(),
        }],
    };
    let failure = Some("on worker w4: no such module");
    let why = "the cluster has no workers";
    let stuck = StuckKernel {
        key,
        stage: "step".into(),
        seconds: 7,
    };
    let packages = vec![("numpy", "2.4.6"), ("helper", "source 1f")];
    let cut_off = CutOff {
        key,
        peer: worker,
        for_ms: 12_000,
        why,
    };
    let partition = Message::Partition {
        dataset: DatasetId(2),
        index: 1,
        part,
    };
    let fetched = Message::Fetched {
        key,
        tasks: 77,
        threads: 18,
        busy_ns: 1_000_000_007,
        peak_bytes: 1 << 33,
    };
    let member = Member { worker, at };
    let wish = Move {
        job: Some(job),
        shard: ShardId {
            group: GroupId(2),
            index: 700,
        },
        to: worker,
    };
    let times = ShardTimes {
        key,
        shards: vec![ShardTime {
            shard: wish.shard,
            turns: 9,
            ran_ns: 108_000_007,
            bytes: 128 << 20,
        }],
    };
    let client = Client {
        user: "ada".into(),
        host: "node-7".into(),
        pid: 4_711,
        log: Some("train-0f3a.log".into()),
    };
    let jobs = vec![JobDetails {
        status: status.jobs[0].clone(),
        tasks_total: Some(1 << 40),
        workers: vec![worker],
        client: Some(client.clone()),
    }];
    let expects = Message::Expects {
        job,
        tasks: 1 << 40,
    };
    let origin = Message::Origin {
        key,
        origin: Some(FailureOrigin {
            kind: FailureKind::Kernel,
            stage: "gradient",
            partition: 7,
            turn: 1 << 33,
            message: "stage `gradient` failed",
            cause: b"a pickle",
        }),
    };
    let printed = PrintedLines {
        key,
        number: 300,
        left_out: 12_345,
        lines: vec![PrintedLine {
            stream: PrintStream::Err,
            stage: "gradient",
            text: "loss 0.25",
            cut_bytes: 1 << 33,
        }],
    };
    let all = [
        ("register", Message::Register(register)),
        ("registered", Message::Registered(Registered { worker })),
        ("load", Message::Load(load)),
        ("prepare", Message::Prepare(prepare)),
        ("unprepared", Message::Unprepared { key, why }),
        ("release", Message::Release(key)),
        ("submit", Message::Submit(submit)),
        ("accepted", Message::Accepted(accepted)),
        ("over", Message::Over { job, failure }),
        ("cancel", Message::Cancel(job)),
        ("done", Message::Done(job)),
        ("ask", Message::Ask),
        ("status", Message::Status(status)),
        ("refused", Message::Refused { why }),
        ("program", Message::Program(part)),
        ("fetch", Message::Fetch(key)),
        ("partition", partition),
        ("fetched", fetched),
        ("queued", Message::Queued(job)),
        ("move", Message::Move(wish)),
        ("moved", Message::Moved(wish)),
        ("admitted", Message::Admitted { key, member }),
        ("left", Message::Left { key, worker }),
        ("drain", Message::Drain(worker)),
        ("drained", Message::Drained(worker)),
        ("times", Message::Times(times)),
        ("introduce", Message::Introduce(client)),
        ("expects", expects),
        ("ask-jobs", Message::AskJobs),
        ("jobs", Message::Jobs(jobs)),
        ("weigh", Message::Weigh { job, weight: 300 }),
        (
            "arrange",
            Message::Arrange {
                columns: vec![0, 300],
            },
        ),
        ("ask-origin", Message::AskOrigin { key, failure: why }),
        ("origin", origin),
        ("printed", Message::Printed(printed)),
        ("shown", Message::Shown { key, number: 300 }),
        ("ask-printed", Message::AskPrinted(key)),
        ("all-printed", Message::AllPrinted(key)),
        ("stuck", Message::Stuck(vec![stuck.clone()])),
        ("all-stuck", Message::AllStuck(vec![(worker, stuck)])),
        (
            "survives",
            Message::Survives(Survives {
                repeats: true,
                cuts: Some(JobCuts {
                    program: 0xfeed << 100,
                    plan: CutPlan {
                        shards: vec![300, 1],
                        loops: vec![OutermostLoop {
                            turns: Some(70_000),
                            is_crossed: false,
                            is_split: false,
                            takers: vec![GroupId(0), GroupId(1)],
                            free: vec![GroupId(1)],
                            first_stage: "sum".into(),
                        }],
                    },
                    every: Some(SnapshotEvery::Turns(300)),
                }),
            }),
        ),
        ("recovering", Message::Recovering { job, why }),
        ("told", Message::Told { job, line: why }),
        ("named", Message::Named(0xfeed << 100)),
        ("lasting", Message::Lasting),
        ("ask-events", Message::AskEvents(300)),
        (
            "events",
            Message::Events(vec![ClusterEvent {
                number: 300,
                at_ms: 1 << 41,
                kind: EventKind::SnapshotTaken,
                worker: Some(worker),
                job: Some(key),
                cut: Some(300),
                bytes: Some(1 << 33),
                took_ms: Some(300),
                cause: Some("x".into()),
            }]),
        ),
        ("snapshot", Message::Snapshot(job)),
        ("snapshotted", Message::Snapshotted { job, cut: 300 }),
        ("ask-snapshots", Message::AskSnapshots),
        (
            "snapshots",
            Message::Snapshots(vec![SnapshotStatus {
                job,
                name: "demo".into(),
                cut: 300,
                turns: 70_000,
                bytes: 1 << 33,
                objects: 300,
            }]),
        ),
        ("unrestored", Message::Unrestored { key, why }),
        ("fenced", Message::Fenced { why }),
        ("deaths", Message::Deaths(vec![death])),
        ("ask-holding", Message::AskHolding { key, term: 3 }),
        (
            "holding",
            Message::Holding(Holding {
                key,
                me: worker,
                members: vec![WorkerId(300)],
                shards: vec![ShardRange {
                    group: GroupId(1),
                    first: 300,
                    end: 70_000,
                }],
                is_busy: true,
                has_ended: false,
            }),
        ),
        ("adopted", Message::Adopted(key)),
        (
            "restore",
            Message::Restore(KeptPlace {
                store: "/srv/snapshots".into(),
                place: "cluster-000000000000002a/300".into(),
                cut: Some(1 << 33),
            }),
        ),
        (
            "restored",
            Message::Restored(RestoredParts {
                key,
                cut: 300,
                read_bytes: 1 << 33,
                local_bytes: 1 << 34,
                took_ms: 300,
            }),
        ),
        ("ledger", Message::Ledger(part)),
        ("packages", Message::Packages { key, packages }),
        ("cut-off", Message::CutOff(cut_off)),
        ("silences", Message::Silences(vec![(worker, 12_300)])),
        (
            "want",
            Message::Want {
                key,
                dataset: DatasetId(300),
                index: 70_000,
            },
        ),
        (
            "brings",
            Message::Brings(Brings {
                program_bytes: 1 << 12,
                rows_bytes: 1 << 33,
            }),
        ),
        ("budgets", Message::Budgets(vec![(worker, 16, 1 << 36)])),
        ("uses", Message::Uses(vec![(key, 1 << 33)])),
        ("waits", Message::Waits(vec![(job, why)])),
    ];
    all.map(|(name, message)| (name, Frame::message(message)))
        .into()
}
