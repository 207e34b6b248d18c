//! One generation of a job that is saved: what the engine does with threads, links and a disk, a thread of the test does here, in an order by chance and with a
//! time of its own. It ends with the job, or when it has lost a member that held shards.

use crate::member::{Attached, Block, JOB, Member, Packet, Packets, scattered, shards};
use crate::recovering::{LOSSES_MAX, Life};
use crate::saver::Saver;
use crate::store::Put;
use brambling_controller::{Controller, ControllerEffect, SnapshotSetup, WorkerLoss};
use brambling_program::{Cut, CutPlan, LoopId, Plan, Rng, ShardId};
use brambling_protocol::frame::{Body, CutAsk, Frame};
use brambling_protocol::kept::CutManifest;
use brambling_protocol::message::SnapshotEvery;
use brambling_protocol::{PartitionMap, WorkerId};
use brambling_worker::executor::Job;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// When a member is to crash.
enum Fate {
    /// After so many frames, whatever happens.
    AtFrame(u64),
    /// After so many snapshots.
    AtCommit(u64),
    /// After so many frames that come while a cut is open.
    InOpenCut(u64),
    Never,
}

/// How a generation goes.
#[derive(Debug)]
struct Manners {
    /// A move is ordered each so many steps; 0: none is.
    moves: u64,
    /// Whether one is ordered soon after shards were asked about a cut.
    meddles: bool,
    /// Whether the controller's frames go before others.
    hastes: bool,
    /// Savers go on one time in so many; so does whoever writes manifests.
    savers: u64,
    commits: u64,
    /// One way is blocked, or a member cut off, one step in so many; 0: none is.
    blocks: u64,
    /// A worker joins at this frame.
    joins: Option<u64>,
    fan_out: usize,
}

impl Manners {
    fn of(random: &mut Rng) -> Manners {
        let mut pick = |from: [u64; 4]| from[random.below(4) as usize];
        Manners {
            moves: pick([0, 0, 200, 40]),
            meddles: pick([0, 0, 0, 1]) > 0,
            hastes: pick([0, 1, 1, 1]) > 0,
            savers: pick([1, 1, 2, 6]),
            commits: pick([2, 10, 10, 80]),
            blocks: pick([0, 0, 400, 100]),
            joins: (pick([0, 0, 0, 1]) > 0).then(|| pick([1, 10, 60, 200])),
            fan_out: pick([1, 1, 4, 4]) as usize,
        }
    }
}

struct Part {
    job: Arc<Job>,
    saver: Saver,
}

/// A generation that runs.
pub struct Acts<'l, 's, 'e, 'a> {
    life: &'l mut Life<'a>,
    plan: &'a Plan,
    cuts: CutPlan,
    base: Option<CutManifest>,
    controller: Controller,
    parts: BTreeMap<WorkerId, Part>,
    /// Members that have crashed, of which the controller knows nothing yet.
    crashed: BTreeSet<WorkerId>,
    /// Members that have held shards.
    held: BTreeSet<WorkerId>,
    packets: Packets,
    network: Sender<Packet>,
    manners: Manners,
    fate: Fate,
    /// Steps until what is blocked comes through.
    opens: u64,
    /// Steps until shards are moved.
    meddles: Option<u64>,
    /// Steps until the controller hears of a crash.
    hears: Option<u64>,
    frames: u64,
    now: Duration,
    /// The cut of which shards have been told.
    open: Option<u64>,
    /// The last one that is complete, or came to nothing.
    closed: u64,
    /// The loop of the last cut that was ordered.
    ordered: Option<LoopId>,
    /// A manifest that will exist soon.
    writing: Option<CutManifest>,
    /// What the store has said of manifests: perhaps it says so again.
    late: Vec<(CutManifest, bool)>,
    is_over: bool,
    is_lost: bool,
    scope: &'s Scope<'s, 'e>,
    working: &'e AtomicUsize,
}

impl<'l, 's, 'e, 'a: 'e> Acts<'l, 's, 'e, 'a> {
    pub fn begin(
        life: &'l mut Life<'a>,
        base: Option<CutManifest>,
        network: Sender<Packet>,
        (scope, working): (&'s Scope<'s, 'e>, &'e AtomicUsize),
    ) -> Self {
        let random = &mut life.random;
        let manners = Manners::of(random);
        let fate = match random.below(4) {
            _ if life.generation.0 >= LOSSES_MAX => Fate::Never,
            0 => Fate::AtFrame(random.below(200)),
            1 => Fate::InOpenCut(1 + random.below(30)),
            2 | 3 => Fate::AtCommit(1 + random.below(2)),
            _ => Fate::Never,
        };
        // The last one is a newcomer, perhaps, that has no shard at first.
        let spare = usize::from(life.members.len() > 1 && random.below(2) == 0);
        let holders = &life.members[..life.members.len() - spare];
        let map = scattered(life.plan, random, holders);
        let every = match random.below(2) {
            0 => SnapshotEvery::Time(Duration::from_millis(1 + random.below(30))),
            _ => SnapshotEvery::Turns(1 + random.below(3)),
        };
        let packets = Packets::new(random.below(8) > 0);
        let members = life.members.iter().copied();
        let controller = Controller::new(JOB, life.generation, map, members);
        let mut controller = controller.with_fan_out(manners.fan_out);
        controller.keep(SnapshotSetup {
            program: life.plan.program.spec().hash(),
            name: "random".into(),
            plan: life.plan.cut_plan(),
            every,
            base: base.clone(),
            after: 0,
        });
        let mut acts = Acts {
            plan: life.plan,
            cuts: life.plan.cut_plan(),
            base,
            held: holders.iter().copied().collect(),
            controller,
            parts: BTreeMap::new(),
            crashed: BTreeSet::new(),
            packets,
            network,
            manners,
            fate,
            opens: 0,
            meddles: None,
            hears: None,
            frames: 0,
            now: Duration::ZERO,
            open: None,
            closed: 0,
            ordered: None,
            writing: None,
            late: Vec::new(),
            is_over: false,
            is_lost: false,
            scope,
            working,
            life,
        };
        let members = acts.life.members.clone();
        for me in &members {
            acts.take_in(*me, &members);
        }
        acts
    }

    /// A member begins its part.
    fn take_in(&mut self, me: WorkerId, members: &[WorkerId]) {
        let map: PartitionMap = self.controller.map().clone();
        let is_here = |shard| map.entry(shard).unwrap().unwrap().owner == me;
        let base = self.base.as_ref();
        let restored = base.map(|base| self.life.store.restore(self.plan, base, is_here));
        let generation = self.life.generation;
        let (saver, keeper) = Saver::new(format!("{}-{}", generation.0, me.0));
        let member = Member {
            me,
            peers: members.iter().copied().filter(|it| *it != me).collect(),
            generation,
            fan_out: self.manners.fan_out,
            map: map.clone(),
            network: &self.network,
            cuts: Some(keeper),
            restored: restored.map(Arc::new),
        };
        let pool = self.life.workers.pool(me);
        let job = member.job(self.plan, pool);
        let (runs, working) = (job.clone(), self.working);
        working.fetch_add(1, Ordering::SeqCst);
        self.parts.insert(me, Part { job, saver });
        self.scope.spawn(move || {
            // How it failed, if it did, the controller hears.
            let _ = pool.run(&runs, &mut Attached);
            drop(runs);
            working.fetch_sub(1, Ordering::SeqCst);
        });
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.life.random.below(bound)
    }

    /// Carries frames and lets time pass until all members have left the job, or it is lost.
    pub fn run(&mut self, wire: &Receiver<Packet>) -> Option<Vec<Arc<Job>>> {
        let started = Instant::now();
        while self.working.load(Ordering::SeqCst) > 0 && !self.is_lost {
            let patience = self.life.workers.patience;
            assert!(
                started.elapsed() < patience,
                "the job does not end: {}",
                self.tale()
            );
            self.packets.add(wire.try_iter());
            if self.packets.are_none() {
                match wire.recv_timeout(Duration::from_micros(200)) {
                    Ok(packet) => self.packets.add([packet]),
                    Err(_) => self.tick(),
                }
            }
            self.step();
        }
        // Nobody crashes any more; but results may have gone with a member.
        self.fate = Fate::Never;
        self.tell_losses();
        if self.is_lost {
            return self.lose();
        }
        assert!(self.is_over, "left before the end: {}", self.tale());
        loop {
            // Savers hear all that shards have said before they are asked.
            self.step();
            self.packets.add(wire.try_iter());
            if self.packets.are_none() && !self.is_any_saving() {
                break;
            }
        }
        self.expect_no_named_cut();
        let parts = std::mem::take(&mut self.parts);
        Some(parts.into_values().map(|part| part.job).collect())
    }

    /// Where it stands, for whoever reads that it has failed.
    fn tale(&self) -> String {
        let base = self.base.as_ref();
        let base = base.map(|base| (base.cut, base.at, base.turns));
        let up: Vec<&WorkerId> = self.parts.keys().collect();
        format!(
            "seed {}, generation {} of {:?} from {base:?}; {up:?} are up, {:?} have crashed, {} shards move, is over: {}, {:?}, {} frames, in order: {}",
            self.life.seed,
            self.life.generation.0,
            self.life.members,
            self.crashed,
            self.controller.moving(),
            self.is_over,
            self.manners,
            self.frames,
            self.packets.in_order,
        )
    }

    fn is_any_saving(&self) -> bool {
        self.parts
            .values()
            .any(|part| part.saver.is_saving(&part.job))
    }

    /// A cut that a signal has named is complete in the end: all shards have come to it. Unless words that the controller gave passed each other on their way.
    fn expect_no_named_cut(&self) {
        let is_named = |part: &Part| part.saver.saved == self.open && part.saver.saved.is_some();
        let is_signalled = |of: LoopId| self.cuts.loops[of as usize].turns.is_none();
        if self.packets.in_order && self.ordered.is_some_and(is_signalled) {
            let is_any_named = self.parts.values().any(is_named);
            assert!(
                !is_any_named,
                "not all have come to a cut that was named: {}",
                self.tale()
            );
        }
    }

    /// The generation is over: its jobs end as those of a cancelled one.
    fn lose(&mut self) -> Option<Vec<Arc<Job>>> {
        self.parts.values().for_each(|part| part.job.cancel());
        if let Some(manifest) = self.writing.take().filter(|_| self.below(2) == 0) {
            // Whether it could is nobody's news any more.
            let _ = self.life.store.commit(&manifest, &mut self.life.random);
        }
        self.life.deeds.in_open_cuts += u64::from(self.open.is_some());
        self.life.members = self.parts.keys().copied().collect();
        None
    }

    fn tick(&mut self) {
        self.parts.values().for_each(|part| part.job.on_tick());
        self.controller.on_tick();
    }

    fn step(&mut self) {
        self.pass_time();
        self.crash();
        self.block();
        for Part { job, saver } in self.parts.values_mut() {
            let chance = (&mut self.life.random, self.manners.savers);
            saver.step(job, &mut self.life.store, chance);
            self.open = self.open.max(saver.told).filter(|it| *it > self.closed);
        }
        if let Some(packet) = self
            .packets
            .take(&mut self.life.random, self.manners.hastes)
        {
            self.frames += 1;
            self.deliver(&packet);
        }
        if self.manners.moves > 0 && self.below(self.manners.moves) == 0 {
            self.order();
        }
        self.meddles = self.meddles.map(|steps| steps.saturating_sub(1));
        if self.meddles == Some(0) {
            self.meddles = None;
            (0..3).for_each(|_| self.order());
        }
        if self.manners.joins == Some(self.frames) {
            self.manners.joins = None;
            self.join();
        }
        if self.writing.is_some() && self.below(self.manners.commits) == 0 {
            self.commit();
        }
        self.answer_late();
        self.carry_out();
    }

    fn pass_time(&mut self) {
        let ms = match self.below(32) {
            0 => 400,
            _ => self.below(10),
        };
        self.now += Duration::from_millis(ms);
        self.controller.snapshot(self.now);
        // Before anything else is ordered.
        self.carry_out();
        if self.below(64) == 0 {
            self.tick();
        }
    }

    fn deliver(&mut self, packet: &Packet) {
        let Packet {
            from,
            to,
            ref bytes,
        } = *packet;
        let is_up = |it| it == WorkerId::CONTROLLER || self.parts.contains_key(&it);
        if !is_up(from) || !is_up(to) {
            return;
        }
        match self.parts.get(&to) {
            Some(part) => part.job.on_frame(from, bytes).unwrap(),
            None => self.controller.on_frame(from, bytes).unwrap(),
        }
    }

    fn order(&mut self) {
        let all: Vec<ShardId> = shards(self.plan).collect();
        let members: Vec<WorkerId> = self.parts.keys().copied().collect();
        if members.is_empty() {
            return;
        }
        let shard = all[self.below(all.len() as u64) as usize];
        let to = members[self.below(members.len() as u64) as usize];
        // A move that makes no sense is refused.
        let _ = self.controller.order(shard, to, 100);
    }

    /// Now and then something does not come through for a while.
    fn block(&mut self) {
        self.opens = self.opens.saturating_sub(1);
        // At the end all that is under way comes.
        if self.opens == 0 || self.is_over {
            self.packets.blocked = None;
        }
        let is_due = self.manners.blocks > 0 && self.below(self.manners.blocks) == 0;
        if !is_due || self.packets.blocked.is_some() || self.is_over {
            return;
        }
        let mut all: Vec<WorkerId> = self.parts.keys().copied().collect();
        all.push(WorkerId::CONTROLLER);
        let mut pick = || all[self.life.random.below(all.len() as u64) as usize];
        let (from, to) = (pick(), pick());
        self.packets.blocked = Some(match from == to {
            true => Block::Silent(from),
            false => Block::OneWay(from, to),
        });
        self.opens = 1 + self.below(300);
        self.life.deeds.blocked += 1;
    }

    /// A worker comes while the job runs.
    fn join(&mut self) {
        let me = WorkerId(self.life.next_worker);
        self.life.next_worker += 1;
        self.life.deeds.joined += 1;
        let members: Vec<WorkerId> = self.parts.keys().copied().collect();
        self.take_in(me, &members);
        self.controller.join(me);
    }

    fn crash(&mut self) {
        let is_open = u64::from(self.open.is_some());
        let is_due = match &mut self.fate {
            Fate::Never | Fate::AtCommit(_) => false,
            Fate::AtFrame(at) => self.frames >= *at,
            Fate::InOpenCut(left) => {
                *left = left.saturating_sub(is_open);
                *left == 0
            }
        };
        if is_due || matches!(self.fate, Fate::AtCommit(0)) {
            self.fate = Fate::Never;
            for _ in 0..1 + self.below(3) / 2 {
                let up: Vec<WorkerId> = self.parts.keys().copied().collect();
                if !up.is_empty() {
                    let gone = up[self.below(up.len() as u64) as usize];
                    // What it sends from now on nobody gets.
                    let part = self.parts.remove(&gone).expect("it is up");
                    part.job.cancel();
                    self.crashed.insert(gone);
                }
            }
            self.hears = Some(self.below(60));
        }
        self.hears = self.hears.map(|steps| steps.saturating_sub(1));
        if self.hears == Some(0) || self.parts.is_empty() {
            self.tell_losses();
        }
    }

    /// The controller hears who has crashed.
    fn tell_losses(&mut self) {
        self.hears = None;
        for gone in std::mem::take(&mut self.crashed) {
            self.controller.lose(gone, "a process", WorkerLoss::Ended);
        }
        self.carry_out();
    }

    /// The manifest exists, or cannot be made.
    fn commit(&mut self) {
        let manifest = self.writing.take().expect("the caller has seen it");
        if let Put::Refused = self.life.store.commit(&manifest, &mut self.life.random) {
            self.late.push((manifest.clone(), false));
            return self.controller.on_uncommitted(manifest.cut);
        }
        let Cut::LoopTop(outermost) = manifest.at else {
            panic!("a cut is in a loop: {:?}", manifest.at);
        };
        match self.cuts.loops[outermost as usize].turns {
            Some(_) => self.life.deeds.counted += 1,
            None => self.life.deeds.signalled += 1,
        }
        if let Fate::AtCommit(left) = &mut self.fate {
            *left = left.saturating_sub(1);
        }
        // The answer may be lost: then it is there, and the job goes on as if it were not.
        let is_heard = self.below(20) > 0;
        self.late.push((manifest.clone(), is_heard));
        match is_heard {
            true => self.controller.on_committed(manifest),
            false => self.controller.on_uncommitted(manifest.cut),
        }
    }

    /// The store says once more what it has said of one of the last manifests.
    fn answer_late(&mut self) {
        if self.late.is_empty() || self.below(50) > 0 {
            return;
        }
        let at = self.below(self.late.len() as u64) as usize;
        let (manifest, is_made) = self.late.swap_remove(at);
        match is_made {
            true => self.controller.on_committed(manifest),
            false => self.controller.on_uncommitted(manifest.cut),
        }
    }

    /// Does what the controller asks for.
    fn carry_out(&mut self) {
        for effect in self.controller.take_effects() {
            match effect {
                ControllerEffect::Send { to, bytes, .. } => {
                    if let Body::CutCall(call) = Frame::decode(&bytes).unwrap().0.body {
                        self.note(&call.what);
                    }
                    let from = WorkerId::CONTROLLER;
                    self.packets.add([Packet { from, to, bytes }]);
                }
                ControllerEffect::Moved { to, .. } => {
                    self.life.deeds.moves += 1;
                    let is_first = self.held.insert(to) && self.base.is_some();
                    self.life.deeds.to_newcomers += u64::from(is_first);
                }
                ControllerEffect::Stays { .. } => {}
                ControllerEffect::Left { .. } => self.life.deeds.spared += 1,
                ControllerEffect::Commit(manifest) => {
                    self.end_cut(manifest.cut);
                    assert!(self.writing.replace(*manifest).is_none(), "one at a time");
                }
                ControllerEffect::Discard(cut) => {
                    self.life.deeds.voided += 1;
                    self.end_cut(cut);
                }
                ControllerEffect::Say(text) => assert!(!text.contains("defect"), "{text}"),
                ControllerEffect::Lost(_) => self.is_lost = true,
                ControllerEffect::Ended { failure } => {
                    assert_eq!(failure, None, "{}", self.tale());
                    self.is_over = true;
                }
            }
        }
    }

    /// What shards are asked.
    fn note(&mut self, ask: &CutAsk) {
        match ask {
            CutAsk::Save(order) => {
                self.ordered = Some(order.outermost);
                let moving = self.controller.moving();
                assert_eq!(moving, 0, "a cut while shards move: {}", self.tale());
            }
            CutAsk::Where => {}
            CutAsk::Name { .. } | CutAsk::Forget | CutAsk::Committed { .. } => return,
        }
        if self.manners.meddles && self.meddles.is_none() && self.below(3) == 0 {
            self.meddles = Some(self.below(30));
        }
    }

    fn end_cut(&mut self, cut: u64) {
        self.closed = self.closed.max(cut);
        self.open = self.open.filter(|it| *it > cut);
    }
}

/// Lets no thread wait for ever when the test has failed.
impl Drop for Acts<'_, '_, '_, '_> {
    fn drop(&mut self) {
        self.parts.values().for_each(|part| part.job.cancel());
    }
}
