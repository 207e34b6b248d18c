//! What a node leaves to whoever runs it: to write what it holds and finds no room for, and to read it back when it has to go on.
//!
//! # Rules
//! * What the router holds and finds no room for counts as spilled from then on, and is where it was until it has been written ([`Errand::Write`]).
//! * What was spilled and has to leave waits outside until it was read ([`Errand::Read`]), and takes the way that the map then names.

use super::{NodeError, Outside, PieceRouting};
use crate::piece_data::PieceData;
use brambling_exchange::Parcel;
use brambling_memory::{OutOfMemory, Spill, SpillError, Spilled, held};
use std::sync::{Arc, Mutex};

/// Takes what is spilled while the node is locked, until it may be written.
#[derive(Debug, Default)]
pub(super) struct Deferred(Mutex<Vec<Arc<Late>>>);

/// Bytes that are spilled, or about to be.
#[derive(Debug)]
pub struct Late {
    bytes: u64,
    refused: OutOfMemory,
    state: Mutex<ErrandState>,
}

#[derive(Clone, Debug)]
enum ErrandState {
    Waits(Arc<[u8]>),
    Written(Arc<dyn Spilled>),
}

/// What a node leaves to whoever runs it.
#[derive(Debug)]
pub enum Errand {
    /// To spill something.
    Write(Arc<Late>, Arc<dyn Spill>),
    /// To read something back that has to leave.
    Read(Parcel<PieceData>, Outside),
}

impl Spill for Deferred {
    fn put(&self, parts: &[&[u8]], refused: &OutOfMemory) -> Result<Arc<dyn Spilled>, SpillError> {
        let bytes: Arc<[u8]> = parts.concat().into();
        let late = Arc::new(Late {
            bytes: bytes.len() as u64,
            refused: *refused,
            state: Mutex::new(ErrandState::Waits(bytes)),
        });
        held::lock(&self.0).push(late.clone());
        Ok(late)
    }
}

impl Late {
    fn state(&self) -> ErrandState {
        held::lock(&self.state).clone()
    }

    fn write(&self, to: &dyn Spill) -> Result<(), SpillError> {
        if let ErrandState::Waits(bytes) = self.state() {
            let spilled = to.put(&[&bytes], &self.refused)?;
            let before =
                std::mem::replace(&mut *held::lock(&self.state), ErrandState::Written(spilled));
            drop(before);
        }
        Ok(())
    }
}

impl Spilled for Late {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self) -> Result<Vec<u8>, SpillError> {
        match self.state() {
            ErrandState::Waits(bytes) => Ok(bytes.to_vec()),
            ErrandState::Written(spilled) => spilled.read(),
        }
    }
}

impl Errand {
    /// Does it: files are read and written, so not under a lock that a task may want. What has to go on then is given to [`Node::go_on`](crate::node::Node::go_on).
    ///
    /// # Errors
    /// When it can be neither spilled nor read back.
    pub fn run(self) -> Result<Option<(Parcel<PieceData>, Outside)>, NodeError> {
        held::forbid("an errand is run");
        match self {
            Errand::Write(late, to) => {
                late.write(&*to).map_err(NodeError::Spilled)?;
                Ok(None)
            }
            Errand::Read(mut parcel, outside) => {
                let cargo = parcel.item.payload_mut();
                cargo
                    .map_or(Ok(()), PieceData::recall)
                    .map_err(NodeError::Spilled)?;
                Ok(Some((parcel, outside)))
            }
        }
    }
}

impl PieceRouting {
    /// What has to be written since the last call.
    pub(crate) fn spills(&self, to: Option<&Arc<dyn Spill>>) -> Vec<Errand> {
        let (Some(to), Some(deferred)) = (to, &self.deferred) else {
            return Vec::new();
        };
        let late = std::mem::take(&mut *held::lock(&deferred.0)).into_iter();
        late.map(|late| Errand::Write(late, to.clone())).collect()
    }
}
