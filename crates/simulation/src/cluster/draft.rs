//! Where shards lie at first, and what workers know of it.

use super::shelf::Shelf;
use super::worker::SimulatedWorker;
use super::worker_id;
use crate::random_program::Random;
use brambling_controller::Controller;
use brambling_exchange::CombiningOptions;
use brambling_memory::{Budget, Floors};
use brambling_program::{GroupId, Plan, ShardId};
use brambling_protocol::{Entry, EntryRange, Generation, JobId, PartitionMap, WorkerId};
use brambling_worker::node::{Node, NodeOptions};
use std::sync::Arc;

pub(super) struct ClusterDraft {
    pub(super) workers: Vec<SimulatedWorker>,
    pub(super) news: Vec<(usize, EntryRange)>,
    pub(super) controller: Controller,
    /// Of a worker that joins, beside its budget.
    pub(super) options: NodeOptions,
    pub(super) memory: WorkerMemory,
    /// Where all of them spill.
    pub(super) shelf: Arc<Shelf>,
}

/// The only job there is.
const JOB: JobId = JobId(1);

impl ClusterDraft {
    /// Two workers, sometimes three or four, and shards on any of them.
    pub(super) fn new(plan: &Plan, random: &mut Random) -> ClusterDraft {
        let count = if random.one_in(2) {
            2
        } else {
            2 + random.below(3) as usize
        };
        let open_turns = 1 + random.below(4);
        let chunk_bytes = random.pick(&[16, 100, 1 << 16]);
        let part_bytes = random.pick(&[64, 1000, 1 << 16]);
        // Few enough that clusters as small as these hand on.
        let fan_out = random.pick(&[1, 1, 2, 8]);
        let combining = CombiningOptions {
            sources_min: random.pick(&[0, 0, u32::MAX]),
            bits: random.pick(&[1, 1, 2]),
        };
        // Early pieces find no room, some, or all that they need; those of the lowest open turns mostly do.
        let early_bytes = random.pick(&[0, 100, 1 << 10, 1 << 40]);
        let is_streamed = plan.program.spec().exchanges.iter().all(|it| it.streamed);
        let exchange_bytes = match is_streamed {
            // A task has a chunk at most, of 5 KB.
            true => random.pick(&[5 << 10, 5 << 10, 1 << 40]),
            false => random.pick(&[1 << 16, 1 << 40]),
        };
        let memory = WorkerMemory {
            early_bytes,
            exchange_bytes,
        };
        let shelf = Arc::<Shelf>::default();
        let history: Vec<Vec<EntryRange>> = shards(plan)
            .map(|shard| history(shard, count, random))
            .collect();
        let mut news = Vec::new();
        let options = |at: usize, peers: Vec<WorkerId>| NodeOptions {
            me: worker_id(at),
            peers,
            job: JOB,
            generation: Generation(0),
            open_turns,
            chunk_bytes,
            frame_bytes: 8 * chunk_bytes,
            part_bytes,
            fan_out,
            combining,
            budget: memory.budget(),
            spill: Some(shelf.clone()),
        };
        let workers = (0..count).map(|at| {
            let mut map = PartitionMap::new(plan.counts.iter().copied());
            for versions in &history {
                // What a worker knows is some version, or none.
                let known = random.below(versions.len() as u64 + 1) as usize;
                for update in &versions[..known] {
                    let _ = map.apply(update).expect("a shard of this program");
                }
                news.extend(versions.iter().map(|update| (at, *update)));
            }
            let others = (0..count).filter(|peer| *peer != at).map(worker_id);
            let mut worker = SimulatedWorker::new(
                Node::new(plan, map, options(at, others.collect())),
                open_turns,
            );
            for versions in &history {
                let last = versions.last().expect("a shard is somewhere");
                if last.entry.owner == worker_id(at) {
                    worker.settle(
                        ShardId {
                            group: last.group,
                            index: last.first,
                        },
                        last.entry.version,
                        plan,
                    );
                }
            }
            worker
        });
        let workers: Vec<SimulatedWorker> = workers.collect();
        let mut placed = PartitionMap::new(plan.counts.iter().copied());
        for last in history.iter().filter_map(|versions| versions.last()) {
            let _ = placed.apply(last).expect("a shard of this program");
        }
        let controller = Controller::new(JOB, Generation(0), placed, (0..count).map(worker_id));
        ClusterDraft {
            workers,
            news,
            controller: controller.with_fan_out(fan_out),
            options: options(count, Vec::new()),
            memory,
            shelf: shelf.clone(),
        }
    }
}

/// What each worker has.
#[derive(Clone, Copy)]
pub(super) struct WorkerMemory {
    early_bytes: u64,
    exchange_bytes: u64,
}

impl WorkerMemory {
    /// Of one worker: what is in no class's floor is for early pieces.
    pub(super) fn budget(self) -> Budget {
        let transfer_bytes = 1 << 40;
        let WorkerMemory {
            early_bytes,
            exchange_bytes,
        } = self;
        let floors = Floors {
            exchange_bytes,
            transfer_bytes,
            ..Floors::default()
        };
        Budget::new(early_bytes + exchange_bytes + transfer_bytes, floors)
    }
}

fn shards(plan: &Plan) -> impl Iterator<Item = ShardId> + '_ {
    plan.counts.iter().enumerate().flat_map(|(group, count)| {
        let group = GroupId(group as u32);
        (0..*count).map(move |index| ShardId { group, index })
    })
}

/// The versions of a shard's entry: only the last one is true.
fn history(shard: ShardId, workers: usize, random: &mut Random) -> Vec<EntryRange> {
    let versions = 1 + random.below(3);
    let mut entry = |version| Entry {
        owner: WorkerId(random.below(workers as u64) as u32),
        version,
    };
    let ShardId { group, index } = shard;
    let range = |entry| EntryRange {
        group,
        first: index,
        end: index + 1,
        entry,
    };
    (1..=versions)
        .map(|version| range(entry(version)))
        .collect()
}
