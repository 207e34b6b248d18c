//! How a shard travels: its data, where it stands and what has come for it, in parts that are made of it and of which it is made again.

use super::job::{Job, LoadedShard};
use super::meter::Meter;
use super::saving::CutNews;
use super::steps::Steps;
use super::weights::Weights;
use crate::arrivals::{ArrivalRefusal, Arrivals};
use crate::parts::Unpacking;
use crate::piece_data::PieceBytes;
use crate::shard::{Shard, ShardState};
use brambling_exchange::{InboxState, OPEN_TURNS};
use brambling_memory::{Budget, Class, Reservation, SpillError};
use brambling_program::ShardId;
use serde::{Deserialize, Serialize};

/// The form in which shards are packed.
const FORMAT: u16 = 3;

/// What comes before the encodings of the datasets, and of the pieces that have come.
#[derive(Serialize, Deserialize)]
struct Header {
    format: u16,
    state: ShardState,
    done: bool,
    slice_tasks: u32,
    /// How long the datasets are, in the group's order.
    cells: Vec<u64>,
    /// What has come for it: how long the pieces are.
    arrivals: InboxState<u64>,
}

/// Why a shard cannot be packed or unpacked.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Unreadable {
    /// It was packed by another build, or not by one of ours.
    #[error("the shard's {0} cannot be read")]
    Form(&'static str),
    /// What has come for it cannot be taken.
    #[error("what has come for the shard: {0}")]
    Arrivals(#[from] ArrivalRefusal),
}

/// What travels of a shard that no thread runs and that waits for no completion. Each dataset goes as soon as it is packed, unless parts of it are lent:
/// then it counts as on its way until they are gone.
///
/// # Errors
/// When something that it has on a disk cannot be read.
pub(super) fn pack(
    job: &Job,
    body: LoadedShard,
    arrivals: Arrivals,
) -> Result<Vec<PieceBytes>, SpillError> {
    let budget = &job.options.budget;
    // Taken over by a guard: whatever goes wrong, the room is given back.
    let mut charged = budget.take_over(Class::Resident, body.charged_bytes);
    let mut packing = job.remote().packing(job);
    let mut cells = Vec::with_capacity(body.cells.len());
    for cell in body.cells {
        let bytes = (cell.bytes() as u64).min(charged.bytes());
        charged.shrink(bytes);
        cells.push(packing.value(cell, on_its_way(budget, bytes))?);
    }
    let header = Header {
        format: FORMAT,
        state: body.shard.export(),
        done: body.done,
        slice_tasks: body.slice_tasks,
        cells,
        arrivals: arrivals.pack(&mut packing)?,
    };
    Ok(packing.finish(&header))
}

/// Room for what counted as resident and leaves. It has room in any case: if not as a transfer, then where it was; only others who take that at this
/// moment keep it from being counted.
fn on_its_way(budget: &Budget, bytes: u64) -> Option<Reservation> {
    let room = budget.reserve(Class::Transfer, bytes);
    room.or_else(|_| budget.reserve(Class::Resident, bytes))
        .ok()
}

/// A shard from what [`pack`] gave, and what has come for it; its datasets are not charged yet.
pub(super) fn unpack(
    job: &Job,
    shard: ShardId,
    from: &mut Unpacking,
) -> Result<(LoadedShard, Arrivals), Unreadable> {
    let plan = &job.plan;
    let datasets = &plan.groups[shard.group.index()].datasets;
    let header: Header = from.header().ok_or(Unreadable::Form("form"))?;
    if header.format != FORMAT || header.cells.len() != datasets.len() {
        return Err(Unreadable::Form("form"));
    }
    let id = shard;
    let code = &plan.codes[id.group.index()];
    let shard = Shard::import(id, code, header.state).map_err(|_| Unreadable::Form("position"))?;
    let mut cells = Vec::with_capacity(datasets.len());
    for (dataset, bytes) in datasets.iter().zip(header.cells) {
        let cell = from.value(plan.program.payload_type(*dataset), bytes);
        cells.push(cell.ok_or(Unreadable::Form("data"))?);
    }
    let lanes = job.mailbox_exchanges[id.group.index()].iter().copied();
    let arrivals = Arrivals::unpack(
        id,
        lanes,
        OPEN_TURNS,
        header.arrivals,
        from,
        job,
        &job.waits,
    )?;
    if from.bytes() > 0 {
        return Err(Unreadable::Form("form"));
    }
    let body = LoadedShard {
        meter: Meter::new(shard.entered()),
        shard,
        weights: Weights::of(&cells),
        cells,
        steps: Steps::new(job, id),
        charged_bytes: 0,
        slice_tasks: header.slice_tasks.max(1),
        running: None,
        done: header.done,
        open: Vec::new(),
        heard: CutNews::default(),
    };
    Ok((body, arrivals))
}
