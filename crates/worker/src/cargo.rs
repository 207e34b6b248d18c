//! What pieces are while they travel: values as they are inside a process, bytes between processes, and what was spilled of either.

use crate::assembly::Assembly;
use crate::pieces::Spares;
use brambling_exchange::{Gathered, Item, Weight};
use brambling_memory::held::{self, Held};
use brambling_memory::{Class, OutOfMemory, Reservation, Spill, SpillError, Spilled, mutants};
use brambling_program::tree::TreeNode;
use brambling_program::{DecodeError, Value};
use std::sync::{Arc, Mutex, PoisonError};

/// Encoded pieces, shared until the last one has gone.
pub type Bytes = bytes::Bytes;

/// A piece's encoding: what was copied, and then what lies where the kernel wrote it.
#[derive(Clone, Debug, Default)]
pub struct Encoded {
    head: Bytes,
    tail: Bytes,
}

/// A piece on its way, or a chunk of its encoding.
#[derive(Clone, Debug)]
pub enum Cargo {
    /// A chunk.
    Bytes(Bytes),
    /// The first chunk of what several shards here get alike.
    First(Bytes, Arc<Once>),
    /// All of it, inside a process.
    Value(Value),
    /// What was spilled, and where several shards here find what one of them has decoded.
    Spilled(Arc<dyn Spilled>, Option<Arc<Once>>),
    /// What waits here, and may be spilled any time so that others get room.
    Parked(Arc<Parked>),
}

/// A piece that waits and may be spilled by whoever needs room, while its shard leaves it alone.
#[derive(Debug)]
pub struct Parked(Mutex<Stay>);

#[derive(Debug)]
struct Stay {
    what: What,
    room: Option<Reservation>,
    /// Shards that gather it: nobody spills it meanwhile.
    users: u32,
}

/// A shard gathers what waited: its room is kept until this is dropped.
#[derive(Debug)]
pub struct InUse(Arc<Parked>);

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.stay().users -= 1;
    }
}

#[derive(Clone, Debug)]
enum What {
    Value(Arc<Value>),
    Bytes(Bytes, Option<Arc<Once>>),
    Written(Arc<dyn Spilled>, Option<Arc<Once>>),
    /// A shard has it.
    Gone,
}

/// A piece that has come as a whole.
#[derive(Clone, Debug)]
pub enum Taken {
    /// From a shard of this process.
    Value(Value),
    /// Its encoding, in parts.
    Parts(Parts),
}

/// The encoding of a piece that has come.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    bytes: Vec<Bytes>,
    /// What others decoded, who get the same.
    once: Option<Arc<Once>>,
    /// Where its parts may lie already as they will.
    assembly: Option<Arc<Assembly>>,
}

/// What several shards get alike, once the first of them has decoded it.
#[derive(Debug, Default)]
pub struct Once(Mutex<Option<Value>>);

/// Keeps a value for as long as its bytes are to lie where they are.
struct Tail {
    value: Option<Value>,
    spares: Arc<Spares>,
}

impl AsRef<[u8]> for Tail {
    fn as_ref(&self) -> &[u8] {
        let value = self.value.as_ref();
        value.map_or(&[], |value| value.encode_head(&mut Vec::new()))
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            self.spares.put(value);
        }
    }
}

impl Encoded {
    /// Encodes a piece. Its last bytes stay where they lie if there are so many; its value is a spare one again when it has gone.
    pub fn of(value: Value, spares: &Arc<Spares>, shared_bytes: usize) -> Encoded {
        let mut head = Vec::new();
        let tail = value.encode_head(&mut head);
        // Whoever sends or acknowledges drops the last of it, under whatever lock: nothing that needs an interpreter for that.
        let is_copied = value.payload_type().is_interpreted();
        if is_copied || tail.len() < shared_bytes.max(1) {
            head.extend_from_slice(tail);
            spares.put(value);
            return Encoded::from(Bytes::from(head));
        }
        let tail = Tail {
            value: Some(value),
            spares: spares.clone(),
        };
        Encoded {
            head: head.into(),
            tail: Bytes::from_owner(tail),
        }
    }

    /// Whether both may go as one: what is of equal bytes, as all of a broadcast is.
    pub(crate) fn is_same(&self, other: &Encoded) -> bool {
        let lies = |bytes: &Bytes| (bytes.as_ptr(), bytes.len());
        let same_tail = lies(&self.tail) == lies(&other.tail) || self.tail == other.tail;
        self.head == other.head && same_tail
    }
}

impl From<Bytes> for Encoded {
    fn from(head: Bytes) -> Encoded {
        let tail = Bytes::new();
        Encoded { head, tail }
    }
}

impl Weight for Cargo {
    fn bytes(&self) -> u64 {
        match self {
            Cargo::Bytes(bytes) | Cargo::First(bytes, _) => bytes.len() as u64,
            Cargo::Value(value) => value.bytes() as u64,
            Cargo::Spilled(..) | Cargo::Parked(_) => 0,
        }
    }

    fn spill(&mut self, to: &dyn Spill, refused: &OutOfMemory) -> Result<(), SpillError> {
        let (spilled, once) = match self {
            Cargo::Bytes(bytes) => (to.put(&[bytes], refused)?, None),
            Cargo::First(bytes, once) => (to.put(&[bytes], refused)?, Some(once.clone())),
            Cargo::Value(value) => (write(value, to, refused)?, None),
            Cargo::Spilled(..) | Cargo::Parked(_) => return Ok(()),
        };
        *self = Cargo::Spilled(spilled, once);
        Ok(())
    }
}

fn write(
    value: &Value,
    to: &dyn Spill,
    refused: &OutOfMemory,
) -> Result<Arc<dyn Spilled>, SpillError> {
    let mut head = Vec::new();
    let tail = value.encode_head(&mut head);
    to.put(&[&head, tail], refused)
}

impl Cargo {
    /// For several shards here: they find what one of them has decoded.
    pub(crate) fn for_several(self) -> Cargo {
        match self {
            Cargo::Bytes(bytes) => Cargo::First(bytes, Arc::default()),
            cargo => cargo,
        }
    }

    /// What is read back takes, if it was spilled.
    pub(crate) fn spilled_bytes(&self) -> Option<u64> {
        match self {
            Cargo::Spilled(spilled, _) => Some(spilled.bytes()),
            _ => None,
        }
    }

    /// Reads it back, if it was spilled.
    pub(crate) fn recall(&mut self) -> Result<(), SpillError> {
        if let Cargo::Spilled(spilled, once) = self {
            let bytes = Bytes::from(read(&**spilled)?);
            *self = match once.take() {
                Some(once) => Cargo::First(bytes, once),
                None => Cargo::Bytes(bytes),
            };
        }
        Ok(())
    }

    /// Waits from now on, in `room`, where others may spill it. What is spilled already does not wait in memory.
    pub(crate) fn park(self, room: Reservation) -> Cargo {
        let what = match self {
            Cargo::Bytes(bytes) => What::Bytes(bytes, None),
            Cargo::First(bytes, once) => What::Bytes(bytes, Some(once)),
            Cargo::Value(value) => What::Value(Arc::new(value)),
            cargo => return cargo,
        };
        let room = Some(room);
        Cargo::Parked(Arc::new(Parked(Mutex::new(Stay {
            what,
            room,
            users: 0,
        }))))
    }

    /// A shard takes it: nobody spills it while that has what is given, if it is here.
    pub(crate) fn unpark(&mut self) -> Option<InUse> {
        let Cargo::Parked(parked) = self else {
            return None;
        };
        let what = {
            let mut stay = parked.stay();
            stay.users += 1;
            match Arc::strong_count(parked) {
                1 => std::mem::replace(&mut stay.what, What::Gone),
                _ => stay.what.clone(),
            }
        };
        let in_use = InUse(parked.clone());
        *self = match what {
            What::Value(value) => {
                // Others may have it, too: shards that get the same, or whoever was about to spill it.
                let value = Arc::try_unwrap(value).unwrap_or_else(|shared| Value::clone(&shared));
                Cargo::Value(value)
            }
            What::Bytes(bytes, None) => Cargo::Bytes(bytes),
            What::Bytes(bytes, Some(once)) => Cargo::First(bytes, once),
            What::Written(spilled, once) => Cargo::Spilled(spilled, once),
            What::Gone => unreachable!("who has it alone takes it once"),
        };
        Some(in_use)
    }
}

impl Parked {
    fn stay(&self) -> Held<'_, Stay> {
        held::lock(&self.0)
    }

    /// The class in which it counts, if it does.
    pub(crate) fn class(&self) -> Option<Class> {
        self.stay().room.as_ref().map(Reservation::class)
    }

    /// Its turn is the lowest open one now. Where the exchange has no room it stays early: it was admitted.
    pub(crate) fn promote(&self) {
        if let Some(room) = &mut self.stay().room {
            let _ = room.move_to(Class::Exchange);
        }
    }

    /// Spills it, unless its shard takes it meanwhile; how many bytes are free then. Nothing is locked while it is written.
    ///
    /// # Errors
    /// When it cannot be spilled. It stays where it is.
    pub(crate) fn spill(&self, to: &dyn Spill, refused: &OutOfMemory) -> Result<u64, SpillError> {
        let what = {
            let stay = self.stay();
            match stay.users {
                0 => stay.what.clone(),
                _ => What::Gone,
            }
        };
        let (spilled, once) = match what {
            What::Value(value) => (write(&value, to, refused)?, None),
            What::Bytes(bytes, once) => (to.put(&[&bytes], refused)?, once),
            What::Written(..) | What::Gone => return Ok(0),
        };
        let mut stay = self.stay();
        if stay.users > 0 || matches!(stay.what, What::Written(..) | What::Gone) {
            return Ok(0);
        }
        let before = std::mem::replace(&mut stay.what, What::Written(spilled, once));
        let room = stay.room.take();
        drop(stay);
        drop(before);
        Ok(room.map_or(0, |room| room.bytes()))
    }
}

fn encoding(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.bytes());
    value.encode(&mut bytes);
    bytes
}

fn read(spilled: &dyn Spilled) -> Result<Vec<u8>, SpillError> {
    match mutants::is_on("spill-forgets") {
        true => Ok(Vec::new()),
        false => spilled.read(),
    }
}

impl Taken {
    fn of(first: Bytes, once: Option<Arc<Once>>) -> Taken {
        Taken::Parts(Parts {
            bytes: vec![first],
            once,
            assembly: None,
        })
    }

    /// Its chunks may lie where they will.
    #[cfg(not(loom))]
    pub(crate) fn lies_in(&mut self, find: impl FnOnce() -> Option<Arc<Assembly>>) {
        if let Taken::Parts(parts) = self
            && parts.bytes.len() > 1
        {
            parts.assembly = find();
        }
    }

    /// The piece, where nothing comes from other processes.
    ///
    /// # Errors
    /// When it did, or was spilled.
    #[cfg(not(loom))]
    pub(crate) fn into_own(self) -> Result<Value, DecodeError> {
        match self {
            Taken::Value(value) => Ok(value),
            Taken::Parts(_) => Err(DecodeError {
                expected: "value of this process".into(),
                reason: "it is bytes".into(),
            }),
        }
    }

    /// The piece; its memory comes from a spare one.
    ///
    /// # Errors
    /// When its bytes are no encoding of the type.
    pub fn into_value(self, spares: &Spares) -> Result<Value, DecodeError> {
        let Parts {
            bytes,
            once,
            assembly,
        } = match self {
            Taken::Value(value) => return Ok(value),
            Taken::Parts(parts) => parts,
        };
        let decode = || {
            let bytes = match assembly {
                Some(assembly) => match assembly.finish(bytes) {
                    Ok(value) => return Ok(value),
                    Err(bytes) => bytes,
                },
                None => bytes,
            };
            let mut value = spares.take();
            let parts: Vec<&[u8]> = bytes.iter().map(|part| &part[..]).collect();
            value.decode_parts(&parts)?;
            Ok(value)
        };
        // Who waits for another's decoding has a lock for it, so what needs an interpreter is decoded for each.
        match once.filter(|_| spares.are_shared() && !spares.are_interpreted()) {
            Some(once) => Once::get_or(once, decode),
            None => decode(),
        }
    }

    /// What it takes.
    pub fn bytes(&self) -> u64 {
        match self {
            Taken::Value(value) => value.bytes() as u64,
            Taken::Parts(parts) => parts.bytes.iter().map(|part| part.len() as u64).sum(),
        }
    }

    /// Its encoding.
    pub fn to_vec(&self) -> Vec<u8> {
        match self {
            Taken::Value(value) => encoding(value),
            Taken::Parts(parts) => parts.bytes.concat(),
        }
    }
}

impl Once {
    /// What the first one decodes. The others wait for it as long as that takes; the last one leaves nothing behind.
    fn get_or(
        this: Arc<Once>,
        decode: impl FnOnce() -> Result<Value, DecodeError>,
    ) -> Result<Value, DecodeError> {
        let this = match Arc::try_unwrap(this) {
            Ok(Once(last)) => {
                let decoded = last.into_inner().unwrap_or_else(PoisonError::into_inner);
                return decoded.map_or_else(decode, Ok);
            }
            Err(shared) => shared,
        };
        let mut decoded = this.decoded();
        match &*decoded {
            Some(value) => Ok(value.clone()),
            None => {
                let value = decode()?;
                *decoded = Some(value.clone());
                Ok(value)
            }
        }
    }

    fn decoded(&self) -> Held<'_, Option<Value>> {
        held::lock(&self.0)
    }
}

/// What a source sends to another process: its piece, in chunks where that is large, or an empty mark.
pub fn items(source: TreeNode, piece: Option<Encoded>, chunk_bytes: usize) -> Vec<Item<Cargo>> {
    let Some(piece) = piece else {
        let sources = source.leaves().expect("a source's");
        return vec![Item::Empty { sources }];
    };
    let chunks = chunks(source, &piece, chunk_bytes).into_iter();
    chunks.map(|item| item.map(Cargo::Bytes)).collect()
}

/// The chunks of a piece that leaves this process: what lies elsewhere is cut, not copied.
pub(crate) fn chunks(source: TreeNode, piece: &Encoded, chunk_bytes: usize) -> Vec<Item<Bytes>> {
    let Encoded { head, tail } = piece;
    if tail.is_empty() && head.len() <= chunk_bytes {
        return vec![Item::whole(source, head.clone())];
    }
    let count = head.len().div_ceil(chunk_bytes) + tail.len().div_ceil(chunk_bytes);
    let cut = |bytes: &Bytes| {
        let bytes = bytes.clone();
        let starts = (0..bytes.len()).step_by(chunk_bytes);
        starts.map(move |start| bytes.slice(start..bytes.len().min(start + chunk_bytes)))
    };
    let item = |(place, payload)| Item::Piece {
        source,
        chunk: place as u32,
        last: place + 1 == count,
        payload,
    };
    cut(head).chain(cut(tail)).enumerate().map(item).collect()
}

/// Whole pieces, by source, from chunks in the order of sources and chunks.
pub(crate) fn join(chunks: impl IntoIterator<Item = Gathered<Cargo>>) -> Vec<(u32, Taken)> {
    let mut pieces: Vec<(u32, Taken)> = Vec::new();
    for chunk in chunks {
        let source = chunk.source.start() as u32;
        match (chunk.payload, pieces.last_mut()) {
            (Cargo::Bytes(bytes), Some((last, Taken::Parts(parts))))
                if *last == source && chunk.chunk > 0 =>
            {
                parts.bytes.push(bytes);
            }
            (Cargo::Bytes(bytes), _) => pieces.push((source, Taken::of(bytes, None))),
            (Cargo::First(bytes, once), _) => {
                pieces.push((source, Taken::of(bytes, Some(once))));
            }
            (Cargo::Value(value), _) => pieces.push((source, Taken::Value(value))),
            (Cargo::Spilled(..) | Cargo::Parked(_), _) => {
                unreachable!("a turn is handed out when it has been read back")
            }
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waits::{At, Kept, Waits, whole};
    use brambling_memory::Budget;
    use brambling_program::{ExchangeId, GroupId, Payload, PayloadType, ShardId};

    fn spares() -> Arc<Spares> {
        Arc::new(Spares::new(PayloadType::of::<Vec<f64>>()))
    }

    fn numbers() -> Vec<f64> {
        (0..1_000).map(f64::from).collect()
    }

    fn gathered(items: Vec<Item<Bytes>>) -> Vec<Gathered<Cargo>> {
        let gathered = |item| match item {
            Item::Piece {
                source,
                chunk,
                last,
                payload,
            } => Gathered {
                source,
                chunk,
                last,
                payload: Cargo::Bytes(payload),
            },
            Item::Empty { .. } => panic!("a piece was sent"),
        };
        items.into_iter().map(gathered).collect()
    }

    /// Cut anywhere, a piece comes as it was sent; its memory is spare once nobody holds what was sent.
    #[test]
    fn pieces_are_cut_and_joined() {
        for (shared_bytes, chunk_bytes) in [(1, 3), (1, 100), (1, 1 << 20), (1 << 20, 100)] {
            let spares = spares();
            let value = Value::new(numbers());
            let lay = value.as_ptr();
            let encoded = Encoded::of(value, &spares, shared_bytes);
            let items = chunks(TreeNode::leaf(7), &encoded, chunk_bytes);
            let last = |item: &Item<Bytes>| matches!(item, Item::Piece { last: true, .. });
            assert!(
                items
                    .iter()
                    .rev()
                    .map(last)
                    .eq((0..items.len()).map(|at| at == 0))
            );
            drop(encoded);
            let [(7, taken)] = &join(gathered(items))[..] else {
                panic!("one piece was sent");
            };
            let came = taken
                .clone()
                .into_value(&Spares::new(PayloadType::of::<Vec<f64>>()));
            assert_eq!(came.unwrap().get::<Vec<f64>>(), Some(&numbers()));
            let is_spare = shared_bytes > 1;
            let spare = spares.take();
            assert_eq!(spare.as_ptr() == lay, is_spare, "while its bytes are held");
        }
        let spares = spares();
        let value = Value::new(numbers());
        let lay = value.as_ptr();
        drop(Encoded::of(value, &spares, 1));
        assert_eq!(spares.take().as_ptr(), lay, "nobody holds its bytes");
    }

    /// What has come for so many shards, by shard.
    fn come(destinations: usize, items: Vec<Item<Bytes>>) -> Vec<Vec<(u32, Taken)>> {
        let waits = Waits::new(Budget::unlimited(), None);
        let at: At = (ExchangeId(0), 0);
        let (group, index) = (GroupId(0), 5);
        let first = ShardId { group, index };
        let gathered = |item: Item<Kept>| match item {
            Item::Piece {
                source,
                chunk,
                last,
                payload,
            } => Gathered {
                source,
                chunk,
                last,
                payload,
            },
            Item::Empty { .. } => panic!("a piece was sent"),
        };
        let mut chunks: Vec<Vec<Gathered<Kept>>> = (0..destinations).map(|_| Vec::new()).collect();
        for item in items {
            let item = item.map(Cargo::Bytes);
            let shared = waits.share(at, first, destinations, 0, item).unwrap();
            for (chunks, item) in chunks.iter_mut().zip(shared) {
                chunks.push(gathered(item));
            }
        }
        let pieces = chunks.into_iter().map(|chunks| whole(chunks, drop));
        pieces.collect()
    }

    /// The memory that shards get who are sent the same.
    fn memory_of_each<T: Payload>(
        value: T,
        destinations: usize,
        at: fn(&T) -> *const f64,
    ) -> Vec<*const f64> {
        let spares = Arc::new(Spares::new(PayloadType::of::<T>()));
        let encoded = Encoded::of(Value::new(value), &spares, 1);
        let items = chunks(TreeNode::leaf(0), &encoded, 1 << 10);
        let taken = come(destinations, items).into_iter().flatten();
        let values = taken.map(|(_, taken)| taken.into_value(&spares).unwrap());
        let values: Vec<Value> = values.collect();
        let at = |value: &Value| at(value.get::<T>().expect("of this type"));
        values.iter().map(at).collect()
    }

    /// What several shards get alike is decoded once, where they can share it.
    #[test]
    fn what_comes_for_several_is_decoded_once() {
        let shared = memory_of_each(Arc::new(numbers()), 3, |it| it.as_ptr());
        assert!(shared.iter().all(|at| *at == shared[0]), "{shared:?}");
        let own = memory_of_each(numbers(), 3, |it| it.as_ptr());
        assert!(own[0] != own[1] && own[1] != own[2] && own[0] != own[2]);
        assert_eq!(
            memory_of_each(Arc::new(numbers()), 1, |it| it.as_ptr()).len(),
            1
        );
    }

    /// Bytes that nobody can decode are an error for each who gets them; nothing is left behind for others.
    #[test]
    fn who_cannot_decode_leaves_it_to_the_next() {
        let spares = Spares::new(PayloadType::of::<Arc<Vec<f64>>>());
        let item = Item::whole(TreeNode::leaf(0), Bytes::from_static(b"no numbers"));
        let taken: Vec<_> = come(2, vec![item]).into_iter().flatten().collect();
        assert_eq!(taken.len(), 2);
        for (_, taken) in taken {
            assert!(taken.into_value(&spares).is_err());
        }
    }

    /// Whoever is the last to have a value that waits gets it as it lies; others get their own.
    #[test]
    fn a_value_that_somebody_else_holds_is_copied() {
        let value = Value::new(numbers());
        let lay = value.as_ptr();
        let room = Budget::unlimited().reserve(Class::Exchange, 8_000).unwrap();
        let mut waits = Cargo::Value(value).park(room);
        let mut first = waits.clone();
        let taken = |cargo: &mut Cargo| {
            let in_use = cargo.unpark();
            assert!(in_use.is_some());
            match cargo {
                Cargo::Value(value) => (value.as_ptr(), value.get::<Vec<f64>>().cloned()),
                other => panic!("{other:?}"),
            }
        };
        let (at, copied) = taken(&mut first);
        assert_eq!(copied, Some(numbers()));
        assert_ne!(at, lay);
        assert_eq!(taken(&mut waits), (lay, Some(numbers())));
    }

    /// A value that was for this process leaves it in as many chunks as any other.
    #[test]
    fn values_that_leave_are_encoded() {
        let spares = spares();
        let encoded = Encoded::of(Value::new(numbers()), &spares, 1 << 20);
        let items = items(TreeNode::leaf(0), Some(encoded), 1 << 10);
        assert_eq!(items.len(), 8);
        let items = items.into_iter().map(|item| {
            item.map(|cargo| match cargo {
                Cargo::Bytes(bytes) => bytes,
                other => panic!("{other:?}"),
            })
        });
        let [(0, taken)] = &join(gathered(items.collect()))[..] else {
            panic!("one piece was sent");
        };
        let came = taken.clone().into_value(&spares).unwrap();
        assert_eq!(came.get::<Vec<f64>>(), Some(&numbers()));
    }
}
