//! The real controller, and what its work costs: every message is a frame that it decodes or encodes.

use super::outcome::ControllerLoad;
use super::{Costs, Nanos};
use brambling_controller::registry::{ClusterStore, Order, OwnedMessage, PeerLink, Registry};
use brambling_controller::{Controller, ControllerEffect, SnapshotSetup};
use brambling_program::ShardId;
use brambling_protocol::frame::{Body, Frame, Kind};
use brambling_protocol::kept::CutManifest;
use brambling_protocol::message::{
    JobCuts, KeptPlace, Message, Register, SnapshotEvery, Submit, Survives,
};
use brambling_protocol::{JobKey, WorkerId};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// A frame, shared until it has gone.
pub(super) type CostedFrame = bytes::Bytes;

/// Both sides of this simulation are of one version.
const VERSION: &str = "simulated";
/// The link of the client whose job it is.
const CLIENT: PeerLink = PeerLink(u64::MAX);

/// A frame that the controller has written.
pub(super) struct WrittenFrame {
    pub(super) at: Nanos,
    pub(super) to: WorkerId,
    pub(super) bytes: CostedFrame,
}

/// What has come of its orders.
pub(super) enum OrderNews {
    Moved,
    Over,
    /// All have saved at a cut.
    Saved(Box<CutManifest>),
}

/// Registry and job machine on a processor of their own (Canary, §5.1: the controller has one core).
pub(super) struct Control {
    costs: Costs,
    registry: Registry,
    job: Option<(JobKey, Controller)>,
    /// The newest snapshot.
    base: Option<CutManifest>,
    /// When the client was last told to whom it has to send the program.
    accepted: Nanos,
    /// When the processor has nothing more to do.
    free: Nanos,
    cpu_ns: f64,
    load: ControllerLoad,
    out: Vec<WrittenFrame>,
    news: Vec<OrderNews>,
}

impl Control {
    pub(super) fn new(costs: Costs) -> Control {
        Control {
            costs,
            registry: Registry::new(VERSION),
            job: None,
            base: None,
            accepted: 0,
            free: 0,
            cpu_ns: 0.0,
            load: ControllerLoad::default(),
            out: Vec::new(),
            news: Vec::new(),
        }
    }

    /// The same, whose job is saved in a store.
    pub(super) fn saving(costs: Costs) -> Control {
        let mut control = Control::new(costs);
        control.registry = control.registry.with_store(ClusterStore {
            store: "s3://store".into(),
            prefix: "cluster".into(),
            every: SnapshotEvery::DEFAULT,
        });
        control
    }

    pub(super) fn load(&self) -> ControllerLoad {
        ControllerLoad {
            cpu_s: self.cpu_ns / 1e9,
            ..self.load
        }
    }

    pub(super) fn key(&self) -> JobKey {
        self.job.as_ref().expect("it has begun").0
    }

    pub(super) fn machine(&self) -> &Controller {
        &self.job.as_ref().expect("it has begun").1
    }

    /// Whoever has sent all this can be told.
    pub(super) fn take(&mut self) -> (Vec<WrittenFrame>, Vec<OrderNews>) {
        (
            std::mem::take(&mut self.out),
            std::mem::take(&mut self.news),
        )
    }

    fn spend(&mut self, now: Nanos, ns: f64) {
        self.free = self.free.max(now) + ns as Nanos;
        self.cpu_ns += ns;
    }

    /// A worker says who it is, in the frame of a process that does.
    pub(super) fn register(&mut self, now: Nanos, worker: WorkerId, threads: u32) {
        let register = Message::Register(Register {
            version: VERSION,
            known_as: None,
            epoch: u64::from(worker.0),
            pid: worker.0,
            host: "host",
            threads,
            memory_bytes: 1 << 35,
            listens_at: SocketAddr::from((Ipv4Addr::from(0x0a00_0000 + worker.0), 7078)),
            jobs: Vec::new(),
        });
        self.on_message(now, worker, &Frame::message(register).to_bytes());
    }

    /// A client's job: from here to the frames by which its members hear of it and of its map.
    pub(super) fn submit(&mut self, now: Nanos, shards: &[u32]) {
        let submit = Frame::message(Message::Submit(Submit {
            version: VERSION,
            name: "iterations",
            shards: shards.to_vec(),
        }));
        self.take_in(now, CLIENT, &submit.to_bytes());
    }

    /// What the client says before it submits a job that may begin again, and is saved.
    pub(super) fn survive(&mut self, now: Nanos, cuts: JobCuts) {
        let survives = Frame::message(Message::Survives(Survives {
            repeats: true,
            cuts: Some(cuts),
        }));
        self.take_in(now, CLIENT, &survives.to_bytes());
    }

    /// What a worker says outside of the job.
    pub(super) fn on_message(&mut self, now: Nanos, from: WorkerId, bytes: &[u8]) {
        self.take_in(now, PeerLink(u64::from(from.0)), bytes);
    }

    fn take_in(&mut self, now: Nanos, from: PeerLink, bytes: &[u8]) {
        self.load.messages_in += 1;
        self.load.bytes_in += bytes.len() as u64;
        self.spend(now, self.costs.report_in_ns);
        let Body::Message(message) = Frame::decode(bytes).expect("a whole frame").0.body else {
            unreachable!("outside of a job there are messages alone");
        };
        if let Message::Load(_) = message {
            self.load.reports += 1;
            self.registry.on_heartbeat(from, Duration::from_nanos(now));
        }
        let taken = self.registry.on_message(from, message);
        taken.expect("a worker that follows the rules");
        self.carry_out_all(now);
    }

    fn carry_out_all(&mut self, now: Nanos) {
        loop {
            let orders = self.registry.take_orders();
            if orders.is_empty() {
                return;
            }
            for order in orders {
                self.carry_out(now, order);
            }
        }
    }

    fn carry_out(&mut self, now: Nanos, order: Order) {
        match order {
            Order::Begin {
                key,
                members,
                map,
                kept,
            } => {
                let mut machine = Controller::new(key.job, key.generation, map, members);
                if let Some(kept) = kept {
                    machine.keep(self.setup(kept));
                }
                self.job = Some((key, machine));
            }
            Order::Tell { to, what } => {
                let bytes = Frame::message(what.message()).to_bytes();
                let ns =
                    self.costs.table_byte_ns * bytes.len() as f64 + self.costs.machine.write_ns;
                self.spend(now, ns);
                self.count_out(&bytes);
                if let OwnedMessage::Accepted(_) = what {
                    self.accepted = self.free;
                }
                if to != CLIENT {
                    let (at, to) = (self.free, WorkerId(to.0 as u32));
                    self.out.push(WrittenFrame { at, to, bytes });
                }
            }
            Order::Admit { key, worker } => self.admit(now, key, worker),
            Order::Lose {
                key,
                worker,
                process,
                how,
            } => {
                assert_eq!(key, self.key(), "the job that there is");
                let machine = &mut self.job.as_mut().expect("it has begun").1;
                machine.lose(worker, &process, how);
                self.perform(now);
            }
            // The next generation's machine has its place already, or takes it.
            Order::Forget(_) => {}
            other => unreachable!("nothing is cancelled here: {other:?}"),
        }
    }

    fn setup(&self, (_, cuts): (KeptPlace, JobCuts)) -> SnapshotSetup {
        SnapshotSetup {
            program: cuts.program,
            name: "iterations".into(),
            plan: cuts.plan,
            every: cuts.every.expect("the store says it"),
            base: self.base.clone(),
            after: 0,
        }
    }

    fn count_out(&mut self, bytes: &[u8]) {
        self.load.messages_out += 1;
        self.load.bytes_out += bytes.len() as u64;
        self.count_ack(bytes);
    }

    fn count_ack(&mut self, bytes: &[u8]) {
        let header = brambling_protocol::frame::Header::decode(bytes).expect("a whole frame");
        self.load.acks += u64::from(header.kind() == Kind::Ack);
    }

    /// A frame of the job has come from a worker.
    pub(super) fn on_frame(&mut self, now: Nanos, from: WorkerId, bytes: &[u8]) {
        self.load.messages_in += 1;
        self.load.bytes_in += bytes.len() as u64;
        self.count_ack(bytes);
        self.spend(now, self.frame_ns(bytes));
        let machine = &mut self.job.as_mut().expect("a job's frame").1;
        let taken = machine.on_frame(from, bytes);
        taken.expect("a worker that follows the rules");
        self.perform(now);
    }

    /// What a frame of the job takes: the bytes of those about cuts count, which name many shards.
    fn frame_ns(&self, bytes: &[u8]) -> f64 {
        let header = brambling_protocol::frame::Header::decode(bytes).expect("a whole frame");
        let of_table = match header.kind() {
            Kind::CutReply => self.costs.table_byte_ns * bytes.len() as f64,
            _ => 0.0,
        };
        self.costs.controller_in_ns + of_table
    }

    /// The manifest of a cut exists.
    pub(super) fn on_committed(&mut self, now: Nanos, manifest: CutManifest) {
        let key = self.key();
        let took = Duration::ZERO;
        self.registry.on_snapshot(key, manifest.cut, 0, took);
        self.base = Some(manifest.clone());
        let machine = &mut self.job.as_mut().expect("it has begun").1;
        machine.on_committed(manifest);
        self.carry_out_all(now);
        self.perform(now);
    }

    /// The newest snapshot.
    pub(super) fn base(&self) -> Option<&CutManifest> {
        self.base.as_ref()
    }

    /// When the client was last told to whom it has to send the program.
    pub(super) fn accepted(&self) -> Nanos {
        self.accepted
    }

    /// A worker's link is lost.
    pub(super) fn on_lost(&mut self, now: Nanos, worker: WorkerId) {
        let link = PeerLink(u64::from(worker.0));
        self.registry.on_lost(link, Duration::from_nanos(now));
        self.carry_out_all(now);
    }

    /// The time passes for the registry.
    pub(super) fn tick_registry(&mut self, now: Nanos) {
        self.registry.on_tick(Duration::from_nanos(now));
        self.carry_out_all(now);
    }

    /// A worker that has registered while the job runs joins it.
    fn admit(&mut self, now: Nanos, key: JobKey, worker: WorkerId) {
        let machine = &mut self.job.as_mut().expect("it has begun").1;
        machine.join(worker);
        self.registry.on_admitted(key, worker, machine.map());
        self.perform(now);
    }

    /// Orders a move.
    pub(super) fn order(&mut self, now: Nanos, shard: ShardId, to: WorkerId, bytes: u64) {
        let machine = &mut self.job.as_mut().expect("it has begun").1;
        let ordered = machine.order(shard, to, bytes);
        ordered.expect("an order that makes sense, of a job that runs");
        self.perform(now);
    }

    /// The time passes.
    pub(super) fn tick(&mut self, now: Nanos) {
        let machine = &mut self.job.as_mut().expect("it has begun").1;
        machine.on_tick();
        machine.snapshot(Duration::from_nanos(now));
        self.perform(now);
    }

    fn perform(&mut self, now: Nanos) {
        let machine = &mut self.job.as_mut().expect("it has begun").1;
        for effect in machine.take_effects() {
            match effect {
                ControllerEffect::Send { to, bytes, .. } => {
                    let ns = self.costs.controller_out_ns + self.costs.machine.write_ns;
                    self.spend(now, ns);
                    self.count_out(&bytes);
                    let at = self.free;
                    self.out.push(WrittenFrame { at, to, bytes });
                }
                ControllerEffect::Moved { .. } => self.news.push(OrderNews::Moved),
                ControllerEffect::Stays { shard, .. } => unreachable!("there is room for {shard}"),
                ControllerEffect::Left { worker } => {
                    unreachable!("{worker} was emptied, and stays")
                }
                ControllerEffect::Commit(manifest) => self.news.push(OrderNews::Saved(manifest)),
                ControllerEffect::Lost(loss) => {
                    let key = self.key();
                    self.registry.on_loss(key, loss);
                    return self.carry_out_all(now);
                }
                effect @ (ControllerEffect::Discard(_) | ControllerEffect::Say(_)) => {
                    unreachable!("no cut comes to nothing here: {effect:?}")
                }
                ControllerEffect::Ended { failure } => {
                    assert_eq!(failure, None, "nothing fails here");
                    self.news.push(OrderNews::Over);
                }
            }
        }
    }
}
