//! A worker: its side of what the controller says, which is real, and its cores, which are modelled.

use super::Nanos;
use super::control::CostedFrame;
use brambling_program::ShardId;
use brambling_protocol::frame::{
    Ack, Arrived, Body, CutAsk, CutReply, CutWord, FAN_OUT, Finished, Frame, Relay, Reserve,
    Reserved, ShardRange,
};
use brambling_protocol::message::{Load, Message, RunningTask};
use brambling_protocol::{
    Applied, EntryRange, FrameSession, JobKey, PartitionMap, Priority, Version, WorkerId,
};
use std::collections::VecDeque;

/// After how many frames a node acknowledges at once (`worker::node`).
const FRAMES_PER_ACK: u64 = 32;
/// How long an idle thread polls before it sleeps (`worker::executor::thread`).
pub(super) const POLL: Nanos = 75_000;
/// How long a shard waits before it is stolen (there as well).
pub(super) const STEAL_AFTER: Nanos = 20_000;

/// What a worker tells of that its threads run: something on each.
pub(super) fn running(key: JobKey) -> Vec<RunningTask> {
    let task = |partition| RunningTask {
        key,
        stage: "assign".into(),
        partition,
    };
    (0..18).map(task).collect()
}

/// What a thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Core {
    /// It polls, and later sleeps, since then.
    Idle(Nanos),
    /// It was told to look for shards, or is busy otherwise; an event will come.
    Called,
    /// It runs a shard.
    Runs(u32),
}

/// What a frame of the controller, or of who hands on, has meant.
#[derive(Default)]
pub(super) struct FrameMeaning {
    /// Entries of the map that are news.
    pub(super) updates: Vec<EntryRange>,
    /// Frames for the controller.
    pub(super) answers: Vec<CostedFrame>,
    /// Frames for other workers.
    pub(super) handed_on: Vec<(WorkerId, CostedFrame)>,
    pub(super) is_over: bool,
    /// What its shards are asked of a cut.
    pub(super) cut: Option<CutAsk>,
}

/// One worker.
pub(super) struct CostedWorker {
    key: JobKey,
    session: FrameSession,
    pub(super) map: PartitionMap,
    pub(super) knows_map: bool,
    /// Whether a tick is due that acknowledges.
    pub(super) ack_is_due: bool,
    pub(super) is_over: bool,

    /// When the helper that takes frames in has nothing more to do.
    pub(super) helper_free: Nanos,
    pub(super) cores: Vec<Core>,
    /// By core: the shards that live there.
    pub(super) homes: Vec<Vec<u32>>,
    /// By core: those of them that are ready.
    pub(super) ready: Vec<VecDeque<u32>>,
    pub(super) ready_since: Nanos,
    /// How many iterations have begun here.
    pub(super) begun: u32,
}

impl CostedWorker {
    pub(super) fn new(key: JobKey, cores: u32, map: PartitionMap, knows_map: bool) -> CostedWorker {
        let cores = cores as usize;
        CostedWorker {
            key,
            session: FrameSession::default(),
            map,
            knows_map,
            ack_is_due: false,
            is_over: false,
            helper_free: 0,
            cores: vec![Core::Idle(0); cores],
            homes: vec![Vec::new(); cores],
            ready: vec![VecDeque::new(); cores],
            ready_since: 0,
            begun: 0,
        }
    }

    // ---- what the controller hears and says

    fn say(&mut self, body: &Body<'_>) -> CostedFrame {
        let said = self.session.say(Priority::FIRST, body);
        let said = said.expect("fewer frames under way than the window takes");
        said.to_bytes()
    }

    /// The numbered frame's news, and the answers to it.
    pub(super) fn on_controller(&mut self, bytes: &[u8]) -> FrameMeaning {
        let (frame, _) = Frame::decode(bytes).expect("the controller sends whole frames");
        if let Some(sequence) = frame.sequence {
            let _ = self.session.receive(sequence).expect("an honest session");
        }
        let mut heard = self.on_body(frame.body);
        if let Some(received) = self.session.ack_after(FRAMES_PER_ACK) {
            heard.answers.push(ack(received));
        }
        heard
    }

    /// What another worker hands on. Sessions between workers are not modelled.
    pub(super) fn on_handed(&mut self, bytes: &[u8]) -> FrameMeaning {
        let (frame, _) = Frame::decode(bytes).expect("a worker sends whole frames");
        self.on_body(frame.body)
    }

    fn on_body(&mut self, body: Body<'_>) -> FrameMeaning {
        let mut heard = FrameMeaning::default();
        match body {
            Body::MapUpdate(update) => {
                self.knows_map = true;
                for entry in update.entries {
                    let applied = self.map.apply(&entry).expect("an entry of the job");
                    if applied == Applied::Newer {
                        heard.updates.push(entry);
                    }
                }
            }
            Body::Relay(relay) => {
                heard = self.on_body(relay.news.body());
                heard.handed_on = hand_on(&relay);
            }
            Body::Reserve(reserve) => heard.answers.push(self.grant(&reserve)),
            Body::Ended(_) => {
                assert!(!self.is_over, "the job ends once");
                (self.is_over, heard.is_over) = (true, true);
            }
            Body::Ack(ack) => {
                let opened = self.session.on_ack(ack.received);
                assert_eq!(opened.expect("an honest session").count(), 0);
            }
            Body::CutCall(call) => heard.cut = Some(call.what),
            // What a newcomer is told outside of the job comes before the map, and says no more than it.
            Body::Joined(_) | Body::Message(_) => {}
            other => unreachable!("the controller says no {:?}", other.kind()),
        }
        heard
    }

    fn grant(&mut self, reserve: &Reserve) -> CostedFrame {
        let Reserve {
            job,
            generation,
            shard,
            version,
            ..
        } = *reserve;
        let granted = true;
        self.say(&Body::Reserved(Reserved {
            job,
            generation,
            shard,
            version,
            granted,
        }))
    }

    /// A tick: what has come is acknowledged, if it was not yet.
    pub(super) fn tick(&mut self) -> Option<CostedFrame> {
        self.ack_is_due = false;
        self.session.ack().map(ack)
    }

    pub(super) fn arrived(&mut self, shard: ShardId, version: Version) -> CostedFrame {
        let JobKey { job, generation } = self.key;
        self.say(&Body::Arrived(Arrived {
            job,
            generation,
            shard,
            version,
        }))
    }

    pub(super) fn finished(&mut self, shards: &[ShardRange]) -> CostedFrame {
        let JobKey { job, generation } = self.key;
        let shards = shards.to_vec();
        self.say(&Body::Finished(Finished {
            job,
            generation,
            shards,
        }))
    }

    /// What it says of a cut.
    pub(super) fn of_cut(&mut self, what: CutWord) -> CostedFrame {
        let JobKey { job, generation } = self.key;
        self.say(&Body::CutReply(CutReply {
            job,
            generation,
            what,
        }))
    }

    /// How it fares, as it says four times a second.
    pub(super) fn report(&self, tasks: u64) -> CostedFrame {
        let load = Load {
            memory_bytes: 1 << 30,
            idle_permille: 100,
            tasks: vec![(self.key, tasks)],
            running: running(self.key),
        };
        Frame::message(Message::Load(load)).to_bytes()
    }

    // ---- shards and cores

    /// A shard lives here from now on, where there are fewest.
    pub(super) fn take_in(&mut self, shard: u32) -> usize {
        let fewest = (0..self.homes.len()).min_by_key(|core| self.homes[*core].len());
        let core = fewest.expect("a worker has cores");
        self.homes[core].push(shard);
        core
    }

    /// A shard lives here no more.
    pub(super) fn let_go(&mut self, shard: u32) {
        for core in 0..self.homes.len() {
            self.homes[core].retain(|it| *it != shard);
            self.ready[core].retain(|it| *it != shard);
        }
    }

    pub(super) fn runs(&self, shard: u32) -> bool {
        self.cores.contains(&Core::Runs(shard))
    }

    pub(super) fn resident(&self) -> impl Iterator<Item = u32> + '_ {
        self.homes.iter().flatten().copied()
    }

    /// What a core runs next: its own oldest, or the newest of the longest queue once that has waited; or when to look again.
    pub(super) fn next(&mut self, core: usize, now: Nanos) -> Result<u32, Option<Nanos>> {
        if let Some(shard) = self.ready[core].pop_front() {
            return Ok(shard);
        }
        let longest = (0..self.ready.len()).max_by_key(|core| self.ready[*core].len());
        let victim = longest.expect("a worker has cores");
        if self.ready[victim].is_empty() {
            return Err(None);
        }
        let may_steal = self.ready_since + STEAL_AFTER;
        if now < may_steal {
            return Err(Some(may_steal));
        }
        Ok(self.ready[victim].pop_back().expect("just seen"))
    }
}

fn ack(received: u64) -> CostedFrame {
    unnumbered(Body::Ack(Ack { received }))
}

fn hand_on(relay: &Relay) -> Vec<(WorkerId, CostedFrame)> {
    let hearers: Vec<WorkerId> = relay.to.iter().collect();
    let said = relay.news.relayed(&hearers, FAN_OUT);
    said.map(|(to, body)| (to, unnumbered(body))).collect()
}

fn unnumbered(body: Body<'_>) -> CostedFrame {
    let frame = Frame {
        priority: Priority::FIRST,
        sequence: None,
        body,
    };
    frame.to_bytes()
}
