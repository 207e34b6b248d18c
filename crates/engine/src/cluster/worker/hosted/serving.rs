//! The thread of a job on a worker: it makes the job once it can be made, runs the stages that are the caller's own, and sends what the job left to
//! whoever asks.

use super::super::super::wire::framed;
use super::super::WorkerShared;
use super::super::local_parts::{LocalParts, Restoring};
use super::given::{GivenPartitions, lacking};
use super::links::{JobTransport, Side};
use super::saving::JobSaver;
use super::{Hosted, State, nothing};
use crate::Error;
use crate::cluster::VERSION;
use crate::cluster::snapshots::JobPlace;
use brambling_exchange::CombiningOptions;
use brambling_exchange::transports::tcp::LinkId;
use brambling_memory::{Budget, Spill};
use brambling_program::link::is_linked;
use brambling_program::{Bindings, DatasetId, Plan, Program, ShardId};
use brambling_protocol::frame::FAN_OUT;
use brambling_protocol::kept::KeptProgram;
use brambling_protocol::message::{Message, Prepare, RestoredParts, parts};
use brambling_protocol::{PartitionMap, WorkerId};
use brambling_worker::executor::{
    Failure, Job, JobOptions, JobSpill, Membership, Restored, SpilledBytes,
};
use brambling_worker::node::{Node, NodeOptions};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Whether a worker keeps the job's program: the one where its first shard begins does.
fn keeps_program(me: WorkerId, prepare: &Prepare) -> bool {
    let mut first = prepare.map.iter();
    first.any(|it| it.group.index() == 0 && it.first == 0 && it.entry.owner == me)
}

fn kept(plan: &Plan, bytes: Vec<u8>) -> KeptProgram {
    let spec = plan.program.spec();
    KeptProgram {
        hash: spec.hash(),
        name: spec.name.clone(),
        version: VERSION.to_owned(),
        bytes,
    }
}

/// Larger pieces are cut.
const CHUNK_BYTES: usize = 1 << 17;
/// Shards that move are cut into parts of so many bytes.
const PART_BYTES: usize = 1 << 20;
/// Pieces that are sent at once go in frames of about so many bytes.
const FRAME_BYTES: usize = CHUNK_BYTES + (1 << 12);
/// How long the thread waits before it looks whether its worker is still there.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a job that begins again waits here for the memory of its last generation: tasks of that one end first. Shorter: it finds no room. Longer: a kernel
/// that runs on keeps all others waiting.
const OLDER_TIME: Duration = Duration::from_secs(5);

impl Hosted {
    /// Waits until something can be taken; nothing when the job is released, or its worker has ended.
    pub(super) fn await_news<R>(&self, mut take: impl FnMut(&mut State) -> Option<R>) -> Option<R> {
        let mut state = self.state();
        loop {
            if state.is_released || self.shared.strong_count() == 0 {
                return None;
            }
            if let Some(taken) = take(&mut state) {
                return Some(taken);
            }
            state = state.wait_at_most(&self.news, PATIENCE);
        }
    }

    pub(super) fn serve(&self) {
        self.serve_all();
        self.end_share();
        self.state().has_left = true;
        self.news.notify_all();
    }

    fn serve_all(&self) {
        let Some(((me, prepare), program)) = self.await_both() else {
            return;
        };
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        // What builds the program is its client's code as well.
        self.state().runs = true;
        let made = self.make(&shared, me, &prepare, program);
        let (job, saver) = match made {
            Ok(made) => made,
            Err(why) => {
                self.state().runs = false;
                match why {
                    Unmade::Unprepared(why) => shared.say_unprepared(self.key, why),
                    Unmade::Unrestored(why) => shared.say_unrestored(self.key, &why),
                }
                drop(shared);
                return self.answer_nothing();
            }
        };
        let mut state = self.state();
        state.job = Some(job.clone());
        // It may have been said while the job was made.
        job.weigh(state.weight.max(1));
        if state.is_released {
            job.cancel();
        }
        drop(state);
        self.enter(&shared, me, &prepare, &job);
        // Without a thread for it the job is not saved.
        let saving = saver.and_then(|saver| saver.begin(&job).ok());
        let mut caller = shared.source.caller();
        let ended = shared.pool.run(&job, &mut *caller);
        self.state().has_run = true;
        saving
            .iter()
            .for_each(|it| it.store(true, Ordering::Release));
        shared.source.ended(&self.prints);
        // The controller hears of failures from the job itself, but not of one that the pool has seen: that it stalled.
        if let Err(failure @ Failure::Stalled { .. }) = &ended {
            shared.say_unprepared(self.key, self.explain(&*shared.source, failure));
        }
        drop((ended, caller, shared));
        self.state().runs = false;
        self.answer(job);
    }

    /// What the controller and the client have to say before the job can be made. Who asks before that what it left hears that
    /// it left nothing here: the job is over, and its shards were elsewhere.
    fn await_both(&self) -> Option<((WorkerId, Prepare), Vec<u8>)> {
        loop {
            let found = self.await_news(|state| match (&state.prepared, &state.program) {
                (Some(_), Some(_)) => state.prepared.take().zip(state.program.take()).map(Ok),
                _ => state.fetches.pop().map(Err),
            })?;
            match found {
                Ok(both) => return Some(both),
                Err(link) => self.say_nothing(link),
            }
        }
    }

    /// The job cannot run here: nobody gets anything.
    fn answer_nothing(&self) {
        while let Some(link) = self.await_news(|state| state.fetches.pop()) {
            self.say_nothing(link);
        }
    }

    fn say_nothing(&self, to: LinkId) {
        if let Some(shared) = self.shared.upgrade() {
            shared.board().say(to, [framed(nothing(self.key))]);
        }
    }

    /// The job, as the client has described it and the controller has placed it.
    fn make(
        &self,
        shared: &Arc<WorkerShared>,
        me: WorkerId,
        prepare: &Prepare,
        program: Vec<u8>,
    ) -> Result<(Arc<Job>, Option<JobSaver>), Unmade> {
        let asked = Instant::now();
        let deadline = asked + OLDER_TIME;
        let older = shared.older_than(self.key).into_iter();
        older.for_each(|it| it.await_leaving(deadline));
        let budget = self.take_share(shared);
        let given = Arc::new(GivenPartitions::default());
        let plan = self.plan(shared, prepare, &program, &given)?;
        let program_bytes = program.len() as u64;
        let (saver, restored) = self.saved(shared, me, prepare, &plan)?;
        let saver = saver.map(|saver| match keeps_program(me, prepare) {
            true => saver.with_program(kept(&plan, program)),
            false => saver,
        });
        self.end_making(program_bytes);
        let mut lacking = lacking(me, prepare, &plan, &given);
        // What the snapshot has is not asked for.
        lacking.retain(|it| !restored.as_ref().is_some_and(|restored| restored.has(*it)));
        self.take_given(&budget, shared, lacking, &plan, &given)?;
        let placed = (prepare.map.iter())
            .filter(|range| range.entry.owner == me)
            .flat_map(|range| {
                let version = range.entry.version;
                let (group, indices) = (range.group, range.first..range.end);
                indices.map(move |index| (ShardId { group, index }, version))
            });
        let wire = JobTransport {
            key: self.key,
            shared: Arc::downgrade(shared),
        };
        let spilled = Arc::<SpilledBytes>::default();
        let membership = Membership {
            node: self.node(shared, me, prepare, &plan, (&budget, &spilled))?,
            carrier: Arc::new(wire),
            placed: placed.collect(),
        };
        let options = JobOptions {
            budget,
            stall: shared.stall,
            timed_calls: None,
            weight: self.state().weight.max(1),
            files: (shared.spilling.as_ref()).map(|spilling| spilling.files.clone()),
            // Its node has where.
            spill: None,
            exchange_bytes_max: None,
            asked: Some(asked),
            spilled,
            cuts: saver.as_ref().map(|saver| saver.keeper()),
            restored: restored.map(Arc::new),
        };
        let job = Job::member(plan, shared.pool.parkers(), options, membership);
        let job = job.map_err(|error| error.to_string())?;
        Ok((job, saver))
    }

    /// What saves the job, and what it begins with.
    fn saved(
        &self,
        shared: &WorkerShared,
        me: WorkerId,
        prepare: &Prepare,
        plan: &Plan,
    ) -> Result<(Option<JobSaver>, Option<Restored>), Unmade> {
        let Some(kept) = &prepare.kept else {
            return Ok((None, None));
        };
        let place = JobPlace::seen(kept);
        let near = shared.local_parts(self.key.job);
        let generation = self.key.generation;
        let is_here = |shard: ShardId| {
            let mut mine = prepare.map.iter().filter(|it| it.entry.owner == me);
            mine.any(|it| it.group == shard.group && (it.first..it.end).contains(&shard.index))
        };
        let restored = match kept.cut {
            None => {
                near.begin(generation, None, is_here);
                Ok(None)
            }
            Some(cut) => {
                let place = place.as_ref().map_err(ToString::to_string);
                place.and_then(|place| {
                    let restored = self.restored(shared, (place, plan, cut), &near, is_here);
                    restored.map(Some)
                })
            }
        };
        let restored = restored.map_err(Unmade::Unrestored)?;
        let by = format!("g{}-w{}", generation.0, me.0);
        let saver = JobSaver::new(place, by, (generation, near));
        Ok((Some(saver), restored))
    }

    /// What its shards here begin with at a snapshot. The controller is told where it came from.
    fn restored(
        &self,
        shared: &WorkerShared,
        (place, plan, cut): (&JobPlace, &Plan, u64),
        near: &LocalParts,
        is_here: impl Fn(ShardId) -> bool,
    ) -> Result<Restored, String> {
        let begun = Instant::now();
        let manifest = place.manifest_for(plan, cut)?;
        near.begin(self.key.generation, Some(&manifest), &is_here);
        let restoring = Restoring::new(near);
        let restored = place.restore(plan, manifest, is_here, &restoring)?;
        let (read_bytes, local_bytes) = restoring.bytes();
        shared.say_restored(RestoredParts {
            key: self.key,
            cut,
            read_bytes,
            local_bytes,
            took_ms: begun.elapsed().as_millis() as u64,
        });
        Ok(restored)
    }

    /// The program, which has to be the one of which the controller has placed the shards.
    fn plan(
        &self,
        shared: &WorkerShared,
        prepare: &Prepare,
        program: &[u8],
        given: &Arc<GivenPartitions>,
    ) -> Result<Plan, String> {
        let mut program = match is_linked(program) {
            true => Program::link(program).map_err(|error| error.to_string())?,
            false => shared.source.program(program, &self.prints)?,
        };
        let to_be_given: Vec<DatasetId> = program.to_be_given().collect();
        for dataset in to_be_given {
            program.give(dataset, given.source(dataset));
        }
        let plan = Plan::compile(Arc::new(program), &Bindings::default());
        let plan = plan.map_err(|error| Error::from(error).to_string())?;
        match plan.counts == prepare.shards {
            true => Ok(plan),
            false => Err(format!(
                "it builds a program of {:?} shards where its client has {:?}; what builds the program depends on where it runs",
                plan.counts, prepare.shards
            )),
        }
    }

    fn node(
        &self,
        shared: &WorkerShared,
        me: WorkerId,
        prepare: &Prepare,
        plan: &Plan,
        (budget, spilled): (&Budget, &Arc<SpilledBytes>),
    ) -> Result<Node, String> {
        let mut map = PartitionMap::new(prepare.shards.iter().copied());
        for range in &prepare.map {
            let _ = map.apply(range).map_err(|error| error.to_string())?;
        }
        let members = prepare.members.iter().map(|member| member.worker);
        let options = NodeOptions {
            me,
            peers: members.filter(|peer| *peer != me).collect(),
            job: self.key.job,
            generation: self.key.generation,
            open_turns: brambling_exchange::OPEN_TURNS,
            chunk_bytes: CHUNK_BYTES,
            part_bytes: PART_BYTES,
            frame_bytes: FRAME_BYTES,
            fan_out: FAN_OUT,
            combining: CombiningOptions::USUAL,
            budget: budget.clone(),
            spill: (shared.spilling.clone()).map(|spilling| {
                Arc::new(JobSpill::new(spilling, spilled.clone())) as Arc<dyn Spill>
            }),
        };
        Ok(Node::new(plan, map, options))
    }

    /// Its links: whoever came to the job later dials, and all dial the controller. Members are told in the order in which they came, those of the job's
    /// beginning by their names. A name says nothing of that: a worker that was silent when the job began, or came back late to a controller
    /// that has taken over, has a low one.
    fn enter(&self, shared: &Arc<WorkerShared>, me: WorkerId, prepare: &Prepare, job: &Arc<Job>) {
        let side = Side {
            key: self.key,
            job: Arc::downgrade(job),
            shared: self.shared.clone(),
        };
        shared.board().enter(self.key, me, Arc::new(side));
        let controller = shared.cluster.address;
        shared
            .board()
            .dial(self.key, WorkerId::CONTROLLER, controller);
        let before = prepare.members.iter();
        for member in before.take_while(|member| member.worker != me) {
            shared.board().dial(self.key, member.worker, member.at);
        }
    }

    /// Sends what the job left to whoever asks, until it is released.
    fn answer(&self, job: Arc<Job>) {
        let mut job = Some(job);
        let mut left: Option<Job> = None;
        while let Some(link) = self.await_news(|state| state.fetches.pop()) {
            let Some(shared) = self.shared.upgrade() else {
                break;
            };
            if let Some(shared_job) = job.take() {
                shared.board().leave(self.key);
                let (tally, held) = (shared_job.tally(), shared_job.holding());
                let mut state = self.state();
                (state.job, state.tally, state.held) = (None, Some(tally), Some(held));
                drop(state);
                left = Some(sole(shared_job));
            }
            self.send(&shared, left.as_mut().expect("just made"), link);
        }
        if let Some(shared) = self.shared.upgrade() {
            shared.board().leave(self.key);
        }
        self.state().job = None;
    }

    fn send(&self, shared: &WorkerShared, left: &mut Job, to: LinkId) {
        let spec = left.plan().program.spec();
        let kept = (0..).map(DatasetId).zip(&spec.datasets);
        let kept: Vec<DatasetId> = kept.filter(|(_, it)| it.keep).map(|(id, _)| id).collect();
        for dataset in kept {
            let group = left.plan().group_of_dataset[dataset.index()];
            for index in 0..left.plan().counts[group.index()] {
                // What has come and cannot be read is missing at the client, who says so.
                if !left.holds(dataset, index).unwrap_or(false) {
                    continue;
                }
                let mut bytes = Vec::new();
                left.value(dataset, index).encode(&mut bytes);
                let parts = parts(self.key, &bytes).map(|part| {
                    framed(Message::Partition {
                        dataset,
                        index,
                        part,
                    })
                });
                shared.board().say(to, parts);
            }
        }
        let tally = left.tally();
        let ledger = left.ledger().encode();
        let ledger = parts(self.key, &ledger).map(|part| framed(Message::Ledger(part)));
        shared.board().say(to, ledger);
        // The client compares before it hands anything over.
        shared.board().say(to, self.packages());
        let fetched = Message::Fetched {
            key: self.key,
            tasks: tally.tasks,
            threads: tally.threads,
            busy_ns: tally.busy.as_nanos() as u64,
            peak_bytes: tally.peak_bytes,
        };
        shared.board().say(to, [framed(fetched)]);
    }
}

/// Why a job cannot begin here.
enum Unmade {
    /// Nor anywhere else.
    Unprepared(String),
    /// Its snapshot is of no use.
    Unrestored(String),
}

impl From<String> for Unmade {
    fn from(why: String) -> Unmade {
        Unmade::Unprepared(why)
    }
}

/// A thread that carries frames may still hold it, for a moment.
fn sole(mut job: Arc<Job>) -> Job {
    loop {
        match Arc::try_unwrap(job) {
            Ok(job) => return job,
            Err(shared) => job = shared,
        }
        std::thread::yield_now();
    }
}
