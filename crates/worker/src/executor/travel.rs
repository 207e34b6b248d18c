//! How a shard travels: its data and where it stands, as bytes.

use super::job::{Body, Job};
use super::meter::Meter;
use super::steps::Steps;
use super::weights::Weights;
use crate::arrivals::{Arrivals, Refusal};
use crate::cargo::{Bytes, Cargo};
use crate::shard::{Shard, ShardState};
use brambling_exchange::{InboxState, OPEN_TURNS};
use brambling_memory::SpillError;
use brambling_program::{ShardId, Value};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// The form in which shards are packed.
const FORMAT: u16 = 2;

/// `B` are bytes.
#[derive(Serialize, Deserialize)]
struct Packed<B> {
    format: u16,
    state: ShardState,
    done: bool,
    slice_tasks: u32,
    /// The datasets, in the group's order.
    cells: Vec<B>,
    /// What has come for it.
    arrivals: InboxState<B>,
}

/// Why a shard cannot be packed or unpacked.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Unreadable {
    /// It was packed by another build, or not by one of ours.
    #[error("the shard's {0} cannot be read")]
    Form(&'static str),
    /// What has come for it cannot be taken.
    #[error("what has come for the shard: {0}")]
    Arrivals(#[from] Refusal),
}

/// What travels of a shard that no thread runs and that waits for no completion.
///
/// # Errors
/// When something that has come for it was spilled and cannot be read.
pub(super) fn pack(body: &Body, arrivals: &Arrivals) -> Result<Vec<u8>, SpillError> {
    let encode = |cell: &Value| {
        let mut bytes = Vec::with_capacity(cell.bytes());
        cell.encode(&mut bytes);
        ByteBuf::from(bytes)
    };
    let packed = Packed {
        format: FORMAT,
        state: body.shard.export(),
        done: body.done,
        slice_tasks: body.slice_tasks,
        cells: body.cells.iter().map(encode).collect(),
        arrivals: arrivals.export()?,
    };
    Ok(postcard::to_stdvec(&packed).expect("plain values written to memory"))
}

/// A shard from what [`pack`] gave, and what has come for it; its bytes are not charged yet.
pub(super) fn unpack(
    job: &Job,
    shard: ShardId,
    bytes: &[u8],
) -> Result<(Body, Arrivals), Unreadable> {
    let packed: Packed<&serde_bytes::Bytes> =
        postcard::from_bytes(bytes).map_err(|_| Unreadable::Form("form"))?;
    let plan = &job.plan;
    let datasets = &plan.groups[shard.group.index()].datasets;
    if packed.format != FORMAT || packed.cells.len() != datasets.len() {
        return Err(Unreadable::Form("form"));
    }
    let code = &plan.codes[shard.group.index()];
    let cell = |(dataset, bytes): (&_, &&serde_bytes::Bytes)| {
        let mut input = &bytes[..];
        let table = plan.program.payload_type(*dataset);
        let value = Value::decode(table, &mut input).map_err(|_| Unreadable::Form("data"))?;
        match input {
            [] => Ok(value),
            _ => Err(Unreadable::Form("data")),
        }
    };
    let id = shard;
    let shard = Shard::import(id, code, packed.state).map_err(|_| Unreadable::Form("position"))?;
    let cells = datasets.iter().zip(&packed.cells).map(cell);
    let cells = cells.collect::<Result<Vec<_>, _>>()?;
    let keep = |piece: &serde_bytes::Bytes| Cargo::Bytes(Bytes::copy_from_slice(piece));
    let lanes = job.mailed[id.group.index()].iter().copied();
    let state = packed.arrivals.map(keep);
    let arrivals = Arrivals::import(id, lanes, OPEN_TURNS, state, job, &job.waits)?;
    let body = Body {
        meter: Meter::new(shard.entered()),
        shard,
        weights: Weights::of(&cells),
        cells,
        steps: Steps::new(job, id),
        charged_bytes: 0,
        slice_tasks: packed.slice_tasks.max(1),
        running: None,
        done: packed.done,
        open: Vec::new(),
    };
    Ok((body, arrivals))
}
