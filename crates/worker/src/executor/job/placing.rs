//! Owns how a job is placed and made: it numbers shards and gives them homes, and each thread makes
//! those whose home it is. Whoever begins a job calls it, and then each thread for its shards.
//! Shards that come later are counted here, and those that leave. It never runs a task.
#![allow(unsafe_code)] // Fills the cells of shards before any of them is queued.

use super::{AWAY, Job, JobAccounts, JobOptions, LoadedShard, ShardCell, ThreadState, WEIGHT_MAX};
use crate::arrivals::Arrivals;
use crate::executor::board::Board;
use crate::executor::failure::{Failure, Rank};
use crate::executor::meter::{Meter, ShardGauge};
use crate::executor::open::Flows;
use crate::executor::panics;
use crate::executor::parker::Parkers;
use crate::executor::remote::{Membership, Remote};
use crate::executor::saving::{CutNews, Saving};
use crate::executor::steps::Steps;
use crate::executor::times::{Notebook, time_kernels};
use crate::executor::weights::Weights;
use crate::executor::woken::Woken;
use crate::node::NodeError;
use crate::shard::{Shard, ShardState};
use crate::waiting::WaitingRoom;
use brambling_exchange::OPEN_TURNS;
use brambling_exchange::in_process::{InProcess, Keeper, Mailbox, ShardSide, Slots};
use brambling_memory::Class;
use brambling_program::{
    DatasetId, ExchangeId, ExchangePlan, GroupId, Plan, Program, ShardId, StageKind, Value,
};
use std::cell::UnsafeCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

impl Job {
    /// Places a program's shards on a pool's threads. They are made there when the job starts.
    pub fn new(plan: Plan, parkers: &Parkers, options: JobOptions) -> Arc<Job> {
        Job::build(plan, parkers, options, None).expect("without ties nothing is refused")
    }

    /// This worker's part of a job in a cluster: its shards are made here, others may come and go, and the job ends when
    /// the controller says so.
    ///
    /// # Errors
    /// When a shard cannot be here: the node is not fresh, or its map is another program's.
    pub fn member(
        plan: Plan,
        parkers: &Parkers,
        options: JobOptions,
        membership: Membership,
    ) -> Result<Arc<Job>, NodeError> {
        Job::build(plan, parkers, options, Some(membership))
    }

    fn build(
        mut plan: Plan,
        parkers: &Parkers,
        options: JobOptions,
        membership: Option<Membership>,
    ) -> Result<Arc<Job>, NodeError> {
        let threads = parkers.threads();
        // Before kernels are linked into steps: steps keep the addresses of the plan's kernels.
        let notebooks = notebooks(&mut plan, threads, options.timed_calls);
        let placed = membership.as_ref().map(|it| it.placed.iter());
        let placed = placed.map(|all| all.map(|(shard, _)| *shard).collect::<BTreeSet<_>>());
        let is_here = |shard| placed.as_ref().is_none_or(|placed| placed.contains(&shard));
        let (residents, homes, numbers) = place(&plan, threads, is_here);
        let shards = residents.len();
        let spill = match &membership {
            Some(membership) => membership.node.spill().cloned(),
            None => options.spill.clone(),
        };
        let waits = WaitingRoom::new(options.budget.clone(), spill);
        let waits = waits.within(options.exchange_bytes_max);
        let waits = match &options.files {
            Some(files) => waits.returning(files.clone(), threads as usize),
            None => waits,
        };
        let restored = options.restored.clone();
        let turns = restored.as_ref().map(|restored| restored.turns(&plan));
        let remote = membership.map(|mut membership| {
            if let (Some(restored), Some(turns)) = (&restored, &turns) {
                let (decided, ended) = (restored.outcomes(&plan), 0..restored.ended(&plan));
                membership.node.begin_at(turns, decided, ended)?;
            }
            Remote::new(membership, &plan, &numbers, shards)
        });
        let remote = remote.transpose()?.map(Box::new);
        let exchanges = exchanges(&plan, remote.as_deref(), &numbers);
        let mailbox_exchanges = mailbox_exchanges(&plan, &exchanges, remote.is_some());
        let flows = flows(&plan);
        let (boards, ends) = boards(&plan, shards);
        if let Some(restored) = &restored {
            restored.fill_boards(&plan, &boards, &ends);
        }
        let starts_here = |number| {
            remote
                .as_ref()
                .is_none_or(|remote| remote.starts_here(number))
        };
        let owners = first_owners(&homes, starts_here);
        let here = (0..).zip(&residents);
        let here = here.filter(|(number, _)| starts_here(*number));
        // Open before any thread runs: a source may be quicker than its destination's maker.
        here.for_each(|(_, resident)| resident.mailbox.open());
        let thread_states = thread_states(threads, &homes);
        let homes = homes.iter().map(|home| AtomicU32::new(*home)).collect();
        let job = Arc::new_cyclic(|weak| Job {
            saving: options.cuts.clone().map(|it| Box::new(Saving::new(it))),
            restored,
            remote,
            exchanges,
            mailbox_exchanges,
            waits,
            flows,
            boards,
            ends,
            owners,
            thread_states,
            parkers: parkers.clone(),
            notebooks,
            accounts: JobAccounts::new(threads, options.asked),
            settled: AtomicU32::new(0),
            unfinished: AtomicUsize::new(shards),
            stop: AtomicBool::new(false),
            ring_from: AtomicU32::new(threads),
            failure: Mutex::new(None),
            exchange_bytes: AtomicI64::new(0),
            pending: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            caller: Mutex::new(None),
            started: OnceLock::new(),
            wall_ns: AtomicUsize::new(0),
            weak: weak.clone(),
            weight: AtomicU32::new(options.weight.clamp(1, WEIGHT_MAX)),
            homes,
            residents,
            numbers,
            options,
            plan,
        });
        turns.iter().for_each(|turns| job.retire_before(turns));
        Ok(job)
    }

    /// Makes the shards that were placed on a thread, unless somebody has begun to: `maker`, who calls it, is their home then. The last to be
    /// done with a thread's shards starts the job.
    pub(in crate::executor) fn settle(&self, placed: u32, maker: u32) {
        if self.thread_states[placed as usize]
            .is_claimed
            // AcqRel: one of two threads makes the shards, and whoever comes second sees that they
            // are claimed.
            .swap(true, Ordering::AcqRel)
        {
            return;
        }
        if let Err(failed) = self.make_all(placed, maker) {
            let (rank, failure) = *failed;
            self.fail(rank, failure);
        }
        // AcqRel: the last thread has acquired what all others made, and `started` hands it on.
        if self.settled.fetch_add(1, Ordering::AcqRel) + 1 == self.threads() {
            let _ = self.started.set(Instant::now());
            self.parkers.wake_all();
            // A thread that has turned to another job meanwhile has not queued its shards. Posting
            // them puts them where thieves look.
            fence(Ordering::SeqCst);
            if self.shares() {
                (0..self.residents.len() as u32).for_each(|number| self.post(number));
            }
        }
    }

    fn make_all(&self, placed: u32, maker: u32) -> Result<(), Box<(Rank, Failure)>> {
        let remote = self.remote.as_ref();
        let starts_here = |number: &u32| remote.is_none_or(|remote| remote.starts_here(*number));
        for number in self.thread_states[placed as usize]
            .placed
            .clone()
            .filter(starts_here)
        {
            let resident = &self.residents[number as usize];
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            if placed != maker {
                // Relaxed: the store of the owner below publishes it.
                self.homes[number as usize].store(maker, Ordering::Relaxed);
                // SeqCst: whoever has something for the shard leaves it there first, and then asks
                // for the owner. So either the maker is told, or the first slice of the shard finds
                // it.
                self.owners[number as usize].store(maker, Ordering::SeqCst);
            }
            let rank = Rank::Load(resident.group, resident.index);
            let body = self
                .make(resident)
                .map_err(|failure| Box::new((rank, failure)))?;
            resident.gauge.begin(body.charged_bytes);
            // SAFETY: the shard belongs to its maker, the caller, and is queued nowhere yet.
            unsafe {
                *resident.arrivals.get() = self.arrivals(resident.id());
                *resident.body.get() = Some(body);
            }
        }
        Ok(())
    }

    /// Counts what a shard that has come takes here.
    pub(in crate::executor) fn charge_arrived(
        &self,
        resident: &ShardCell,
        mut body: LoadedShard,
    ) -> Result<LoadedShard, Failure> {
        let bytes = body.cells.iter().map(|cell| cell.bytes() as u64).sum();
        let charged = self.options.budget.adjust(Class::Resident, 0, bytes);
        charged.map_err(|source| Failure::OutOfMemory {
            stage: "arrival of a shard".into(),
            partition: resident.index,
            exchange: None,
            source,
            spill: None,
        })?;
        body.charged_bytes = bytes;
        Ok(body)
    }

    fn arrivals(&self, shard: ShardId) -> Arrivals {
        let lanes = || self.mailbox_exchanges[shard.group.index()].iter().copied();
        let mut arrivals = Arrivals::new(shard, lanes(), OPEN_TURNS);
        if let Some(restored) = &self.restored {
            let turns = restored.turns(&self.plan);
            lanes().for_each(|id| arrivals.catch_up(id, turns[id.index()]));
        }
        arrivals
    }

    fn make(&self, resident: &ShardCell) -> Result<LoadedShard, Failure> {
        let ShardCell { group, index, .. } = *resident;
        let plan = &self.plan;
        let mut cells = Vec::new();
        let mut charged_bytes = 0;
        for &dataset in &plan.groups[group.index()].datasets {
            let saved = self
                .restored
                .as_ref()
                .and_then(|it| it.take(dataset, index));
            let value = match saved {
                Some(value) => value,
                None => initial(&plan.program, dataset, index, plan.counts[group.index()])?,
            };
            let bytes = value.bytes() as u64;
            let charged = self.options.budget.adjust(Class::Resident, 0, bytes);
            charged.map_err(|source| Failure::OutOfMemory {
                stage: loading(&plan.program, dataset),
                partition: index,
                exchange: None,
                source,
                spill: None,
            })?;
            charged_bytes += bytes;
            cells.push(value);
        }
        let code = &plan.codes[group.index()];
        let id = ShardId { group, index };
        let shard = match &self.restored {
            Some(restored) => {
                let state = ShardState::at_cut(restored.state(id));
                Shard::import(id, code, state).map_err(|error| Failure::Internal {
                    message: error.to_string(),
                })?
            }
            None => Shard::new(id, code),
        };
        Ok(LoadedShard {
            meter: Meter::new(shard.entered()),
            shard,
            steps: Steps::new(self, ShardId { group, index }),
            weights: Weights::of(&cells),
            cells,
            charged_bytes,
            // The first slice is one task: nobody knows yet how long they take.
            slice_tasks: 1,
            running: None,
            done: false,
            open: Vec::new(),
            heard: CutNews::default(),
        })
    }
}

fn loading(program: &Program, dataset: DatasetId) -> String {
    format!("load {}", program.spec().datasets[dataset.index()].name)
}

/// What a partition begins with.
///
/// # Errors
/// When the function that makes it panics.
pub fn initial(
    program: &Program,
    dataset: DatasetId,
    index: u32,
    count: u32,
) -> Result<Value, Failure> {
    panics::install_hook();
    let made = panics::catch(|| program.initial(dataset, index, count));
    made.map_err(|payload| {
        let (message, location) = panics::tell(&*payload);
        Failure::Panic {
            stage: loading(program, dataset),
            partition: index,
            turn: 0,
            message,
            location,
        }
    })
}

/// One for each thread, with the shards that are placed there, and one for the caller.
fn thread_states(threads: u32, homes: &[u32]) -> Box<[ThreadState]> {
    let first_of = |thread| homes.partition_point(|home| *home < thread) as u32;
    let thread_state =
        |thread| ThreadState::new(homes.len(), first_of(thread)..first_of(thread + 1));
    (0..=threads).map(thread_state).collect()
}

/// Where signals tell their outcomes, and outermost loops their ends.
fn boards(plan: &Plan, shards: usize) -> (Box<[Option<Board>]>, Box<[Board]>) {
    let stages = &plan.program.spec().stages;
    let is_signal = |kind| kind == StageKind::Signal;
    let signals = stages.iter().filter(|stage| is_signal(stage.kind)).count();
    let count = signals + plan.loops as usize;
    let board = || Board::new(shards, count);
    let of_stages = stages.iter().map(|stage| is_signal(stage.kind).then(board));
    (
        of_stages.collect(),
        (0..plan.loops).map(|_| board()).collect(),
    )
}

/// The exchanges of a program in this process, with places or stamps for the shards that start here. What is
/// merged on its way, or may be spilled, goes through the mailbox alone.
fn exchanges(
    plan: &Plan,
    remote: Option<&Remote>,
    numbers: &[Box<[u32]>],
) -> Box<[Option<Box<InProcess>>]> {
    let mut slots = Slots::BYTES_MAX;
    let exchange = |(id, exchange): (u32, &Option<ExchangePlan>)| {
        let (id, exchange) = (ExchangeId(id), exchange.as_ref()?);
        let piece = plan.program.piece_type(id);
        // Exchanges that are merged on their way, or whose pieces may be spilled, have no slots.
        // Nor have streams, since nobody knows how many chunks come.
        let by_mailbox = is_streamed(plan, id)
            || remote
                .is_some_and(|remote| remote.merges(id) || (remote.spills() && !piece.is_fixed()));
        let at = |group: GroupId, index: u32| {
            let number = numbers[group.index()][index as usize];
            ShardSide {
                number,
                starts_here: !by_mailbox && remote.is_none_or(|remote| remote.starts_here(number)),
            }
        };
        let sides = (
            |index| at(exchange.source, index),
            |index| at(exchange.destination, index),
        );
        let links = exchange.links.clone();
        Some(Box::new(InProcess::new(links, piece, sides, &mut slots)))
    };
    (0..).zip(&plan.exchanges).map(exchange).collect()
}

fn is_streamed(plan: &Plan, id: ExchangeId) -> bool {
    plan.program.spec().exchanges[id.index()].streamed
}

fn flows(plan: &Plan) -> Flows {
    let flow = |(id, exchange): (u32, &Option<ExchangePlan>)| {
        let streamed = exchange
            .as_ref()
            .filter(|_| is_streamed(plan, ExchangeId(id)));
        let destinations = streamed.map_or(0, |it| it.links.destination_count());
        (0..destinations).map(|_| Arc::default()).collect()
    };
    (0..).zip(&plan.exchanges).map(flow).collect()
}

/// By group, the exchanges of which something may come through the mailbox: all that lead to it in a cluster, else those whose pieces have no places.
fn mailbox_exchanges(
    plan: &Plan,
    exchanges: &[Option<Box<InProcess>>],
    is_member: bool,
) -> Box<[Box<[ExchangeId]>]> {
    let mut by_group = vec![Vec::new(); plan.groups.len()];
    for ((id, ends), exchange) in (0..).zip(&plan.exchanges).zip(exchanges) {
        let id = ExchangeId(id);
        if let (Some(ends), Some(exchange)) = (ends, exchange)
            && (is_member
                || is_streamed(plan, id)
                || matches!(exchange.keeper(), Keeper::Stamped(_)))
        {
            by_group[ends.destination.index()].push(id);
        }
    }
    by_group.into_iter().map(Box::from).collect()
}

/// Shards, their homes, and the number of each by group and index.
type Placement = (Box<[ShardCell]>, Box<[u32]>, Box<[Box<[u32]>]>);

/// Numbers the shards by thread, then group, then index: contiguous ranges of each group on each thread. Those that are
/// here are spread evenly over the threads, and so are the others, which may come.
fn place(plan: &Plan, threads: u32, is_here: impl Fn(ShardId) -> bool) -> Placement {
    let homes_of = |(group, &count): (usize, &u32)| -> Vec<u32> {
        let is_here = |index| {
            let group = GroupId(group as u32);
            is_here(ShardId { group, index })
        };
        let all_here = (0..count).filter(|index| is_here(*index)).count() as u32;
        let (mut here, mut elsewhere) = (0u32, 0u32);
        let home = |index| {
            let (seen, of) = match is_here(index) {
                true => (&mut here, all_here),
                false => (&mut elsewhere, count - all_here),
            };
            // Shards that are here and shards that are elsewhere are cut into contiguous ranges
            // apart from each other: so a worker's share is spread over its own threads.
            let home = u64::from(*seen) * u64::from(threads) / u64::from(of);
            *seen += 1;
            home as u32
        };
        (0..count).map(home).collect()
    };
    let homes_by_group: Vec<Vec<u32>> = plan.counts.iter().enumerate().map(homes_of).collect();
    let mut numbers: Vec<Box<[u32]>> = plan
        .counts
        .iter()
        .map(|count| vec![0; *count as usize].into())
        .collect();
    let mut residents = Vec::new();
    let mut homes = Vec::new();
    // By thread first: the numbers of a thread's shards are one range.
    for thread in 0..threads {
        for (group, of_group) in homes_by_group.iter().enumerate() {
            for (index, _) in of_group
                .iter()
                .enumerate()
                .filter(|(_, home)| **home == thread)
            {
                numbers[group][index] = residents.len() as u32;
                residents.push(ShardCell {
                    group: GroupId(group as u32),
                    index: index as u32,
                    woken: Woken::default(),
                    slices: AtomicU32::new(0),
                    stage: AtomicU32::new(0),
                    gauge: ShardGauge::default(),
                    mailbox: Mailbox::new(false),
                    arrivals: UnsafeCell::new(Arrivals::default()),
                    body: UnsafeCell::new(None),
                });
                homes.push(thread);
            }
        }
    }
    (residents.into(), homes.into(), numbers.into())
}

/// Room for each thread, the calling one included, to note its calls; then all kernels are timed.
fn notebooks(plan: &mut Plan, threads: u32, timed_calls: Option<usize>) -> Box<[Notebook]> {
    let Some(calls) = timed_calls else {
        return Box::default();
    };
    time_kernels(plan);
    (0..=threads).map(|_| Notebook::new(calls)).collect()
}

/// Whom each shard belongs to at first. A shard belongs to its home before it is made, so that what
/// comes early is posted there.
fn first_owners(homes: &[u32], starts_here: impl Fn(u32) -> bool) -> Box<[AtomicU32]> {
    let owner = |(number, home): (u32, &u32)| match starts_here(number) {
        true => AtomicU32::new(*home),
        false => AtomicU32::new(AWAY),
    };
    (0..).zip(homes).map(owner).collect()
}
