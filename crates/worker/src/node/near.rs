//! Pieces that stay in this process, as the values that they are, and what becomes of those that do not stay.
//!
//! # Rules
//! * To encode or to drop a value may need an interpreter ([`Payload::INTERPRETED`](brambling_program::Payload::INTERPRETED)), and a node is asked
//!   under a lock. So of such a value the node says what has to be done with it ([`Errand`]), and goes on; whoever runs the node does it when the lock is
//!   free, and says that it is done ([`Node::ran`]).
//! * What has to leave waits in the node until its encoding is there, and takes the way that the map then names.
//! * What found no room counts as spilled from then on, and is where it was until it has been written.
//! * A shard leaves with its inbox when all of that is encoded ([`Node::errands_of`]).
//!
//! Values that need no interpreter, as numbers, are encoded where they are.

use super::cargo::{Cargo, encoding};
use super::{Bytes, Effect, Node, NodeError};
use brambling_exchange::Parcel;
use brambling_memory::{OutOfMemory, Spill, SpillError, Spilled, held, mutants};
use brambling_program::{ShardId, Value};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

/// A piece that was for a shard of this process.
#[derive(Debug)]
pub struct Near {
    value: Value,
    /// Its encoding, once somebody needed it.
    encoded: OnceLock<Bytes>,
    spills: Arc<Spills>,
}

/// What a node has to spill as soon as it may be encoded.
#[derive(Debug, Default)]
pub(super) struct Spills(Mutex<Vec<Arc<Late>>>);

/// A piece that found no room: spilled, or about to be.
#[derive(Debug)]
pub struct Late {
    refused: OutOfMemory,
    state: Mutex<State>,
}

#[derive(Clone, Debug)]
enum State {
    Waits(Arc<Near>),
    Written(Arc<dyn Spilled>),
}

/// What a node leaves to whoever runs it, because users' code may run: see [`Errand::run`].
#[derive(Clone)]
pub enum Errand {
    /// To encode a piece.
    Encode(Arc<Near>),
    /// To encode a piece and to spill it.
    Spill(Arc<Late>, Arc<dyn Spill>),
}

impl Near {
    pub(super) fn new(value: Value, spills: &Arc<Spills>) -> Arc<Near> {
        Arc::new(Near {
            value,
            encoded: OnceLock::new(),
            spills: spills.clone(),
        })
    }

    /// The piece.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The piece; a copy of it, if others have it too.
    pub(super) fn into_value(this: Arc<Near>) -> Value {
        match Arc::try_unwrap(this) {
            Ok(near) => near.value,
            Err(shared) => shared.value.clone(),
        }
    }

    /// Whether its encoding has to be made outside of the node.
    pub(super) fn is_unencoded(&self) -> bool {
        self.value.payload_type().is_interpreted()
            && self.encoded.get().is_none()
            && !mutants::is_on("pieces-are-encoded-in-the-node")
    }

    pub(super) fn encoding(&self) -> Bytes {
        let encoded = self.encoded.get().cloned();
        encoded.unwrap_or_else(|| encoding(&self.value).into())
    }

    /// Keeps its encoding for whoever needs it next. Two threads that come at once both make it: none waits for the other, which may have to wait
    /// for an interpreter.
    fn encode(&self) {
        if self.encoded.get().is_none() {
            let _ = self.encoded.set(encoding(&self.value).into());
        }
    }

    /// It counts as spilled from now on.
    pub(super) fn spill_later(self: &Arc<Near>, refused: &OutOfMemory) -> Arc<Late> {
        let late = Arc::new(Late {
            refused: *refused,
            state: Mutex::new(State::Waits(self.clone())),
        });
        held::lock(&self.spills.0).push(late.clone());
        late
    }
}

impl Late {
    fn state(&self) -> State {
        held::lock(&self.state).clone()
    }

    /// What it takes when it is read back.
    pub(super) fn bytes(&self) -> u64 {
        match self.state() {
            State::Waits(near) => near.value.bytes() as u64,
            State::Written(spilled) => spilled.bytes(),
        }
    }

    /// Where it is: still here, or spilled.
    pub(super) fn find(&self) -> Result<Arc<Near>, Arc<dyn Spilled>> {
        match self.state() {
            State::Waits(near) => Ok(near),
            State::Written(spilled) => Err(spilled),
        }
    }

    fn write(&self, to: &dyn Spill) -> Result<(), SpillError> {
        let State::Waits(near) = self.state() else {
            return Ok(());
        };
        near.encode();
        let spilled = to.put(&[&near.encoding()], &self.refused)?;
        // Read back meanwhile, it is here and there: whoever has it here drops it.
        let before = std::mem::replace(&mut *held::lock(&self.state), State::Written(spilled));
        drop(before);
        Ok(())
    }
}

impl Spills {
    pub(super) fn take(&self) -> Vec<Arc<Late>> {
        std::mem::take(&mut *held::lock(&self.0))
    }
}

impl Errand {
    /// Does it, which may run users' code and may wait for an interpreter: not under a lock that a task may want. Then the node has to hear of it
    /// ([`Node::ran`]).
    ///
    /// # Errors
    /// When it cannot be spilled.
    pub fn run(&self) -> Result<(), NodeError> {
        match self {
            Errand::Encode(near) => near.encode(),
            Errand::Spill(late, to) => late.write(&**to).map_err(NodeError::Spilled)?,
        }
        Ok(())
    }

    fn place(&self) -> *const () {
        match self {
            Errand::Encode(near) => Arc::as_ptr(near).cast(),
            Errand::Spill(late, _) => Arc::as_ptr(late).cast(),
        }
    }
}

impl PartialEq for Errand {
    fn eq(&self, other: &Errand) -> bool {
        self.place() == other.place()
    }
}

impl Eq for Errand {}

impl fmt::Debug for Errand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Errand::Encode(_) => "Encode",
            Errand::Spill(..) => "Spill",
        })
    }
}

impl Node {
    /// What has to be done before [`Node::depart`]: nothing, if all that the shard has here is encoded. While it is done more may come.
    ///
    /// # Panics
    /// If the shard is not here.
    pub fn errands_of(&mut self, shard: ShardId) -> Vec<Errand> {
        let inbox = self.inboxes.get_mut(&shard).expect("the shard is here");
        let waiting = inbox.waiting_mut();
        let unencoded = waiting.filter_map(|it| it.payload.cargo.unencoded());
        unencoded.map(Errand::Encode).collect()
    }

    /// Errands have been run: what waited for its encoding goes its way.
    ///
    /// # Errors
    /// When it cannot be routed.
    pub fn ran(&mut self) -> Result<(), NodeError> {
        let is_encoded = |parcel: &mut Parcel<Cargo>| {
            let cargo = parcel.item.payload_mut();
            cargo.is_none_or(|cargo| cargo.unencoded().is_none())
        };
        let encoded: Vec<Parcel<Cargo>> = self.unencoded.extract_if(.., is_encoded).collect();
        for parcel in encoded {
            let at = (parcel.exchange, parcel.turn);
            self.route_to(parcel.group, at, &parcel.destinations, &parcel.item)?;
        }
        Ok(())
    }

    /// What is to leave and has to be encoded first; it waits for that here.
    pub(super) fn wait_for_encoding(&mut self, parcel: Parcel<Cargo>, near: Arc<Near>) {
        self.effects.push(Effect::Errand(Errand::Encode(near)));
        self.unencoded.push(parcel);
    }
}
