//! Owns a table from keys to partial values that folds equal keys: a map's combiner, and what a reduce gathers in.
//!
//! Open addressing, 32 bytes a slot. A key of up to 16 bytes lies in its slot, so a look-up touches one cache line;
//! longer ones lie one after the other in an arena. Nothing is allocated for a key. The hash is a function of the
//! key alone, and its collisions are settled by comparing bytes. It never sends, writes or sorts by itself.

use super::pairs;
use crate::simd;
use brambling_memory::Pages;
use brambling_program::key;
use serde::{Deserialize, Serialize};
use zerocopy::FromZeros;

/// How partial values of a key become one. Each is the same for any order and grouping of its values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ReduceFunction {
    /// Their sum.
    #[default]
    Sum,
    /// How many there are.
    Count,
    /// The least.
    Min,
    /// The greatest.
    Max,
}

impl ReduceFunction {
    /// The partial value of one value.
    #[inline(always)]
    pub fn first(self, value: u64) -> u64 {
        match self {
            ReduceFunction::Count => 1,
            _ => value,
        }
    }

    /// The partial value of two.
    #[inline(always)]
    pub fn join(self, left: u64, right: u64) -> u64 {
        match self {
            // Wrapping: 2⁶⁴ items fit no file.
            ReduceFunction::Sum | ReduceFunction::Count => left.wrapping_add(right),
            ReduceFunction::Min => left.min(right),
            ReduceFunction::Max => left.max(right),
        }
    }
}

/// Keys of up to so many bytes lie in their slots.
const INLINE_BYTES: usize = 16;
const SLOT_BYTES: usize = size_of::<Slot>();
const SLOTS_MIN: usize = 1 << 6;
/// Half of what 32 bits count: what comes at once is less than the other half.
const SLOTS_MAX: usize = 1 << 31;
const ARENA_BYTES_MAX: usize = 1 << 31;

/// A key and its partial value. Aligned, so that none lies in two cache lines.
#[repr(align(32))]
#[derive(Clone, Copy, Debug, Default, FromZeros)]
struct Slot {
    /// A short key, filled up with zeros; of a long one a hash and the first eight bytes.
    key: [u64; 2],
    value: u64,
    /// Its length and 1 more; 0: no key.
    len: u32,
    /// Where a long key begins in the arena.
    at: u32,
}

/// So many short keys wait until their slots have come from memory.
const WAITING_MAX: usize = 32;

/// A short key whose slot is on its way from memory.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting {
    key: [u64; 2],
    hash: u64,
    value: u64,
    len: u32,
}

/// Keys with the partial value of each.
#[derive(Debug)]
pub struct FoldTable {
    fold: ReduceFunction,
    salt: u64,
    slots: Pages<Slot>,
    /// What was queued and is not folded yet. A look-up whose slot is far away would hold up all that follow, as its outcome is guessed
    /// wrong often: so slots are fetched first, many at a time.
    waiting: [Waiting; WAITING_MAX],
    queued: usize,
    count: usize,
    /// How far a hash is shifted to be a place: their number is a power of two.
    shift: u32,
    arena: Vec<u8>,
}

/// Of the map stage's tables, and of the reduce stage's: tables whose keys come from each other's slots, in their order, differ in it. With
/// one hash the first of them would all crowd at the begin of a table that is still small, and each look-up would go through them.
pub const MAP_SALT: u64 = 0x243f_6a88_85a3_08d3;
/// See [`MAP_SALT`].
pub const REDUCE_SALT: u64 = 0xa409_3822_299f_31d0;

/// Multiplied to 128 bits and folded, as foldhash and wyhash do.
#[inline(always)]
fn hash(key: [u64; 2], salt: u64) -> u64 {
    let left = key[0] ^ salt;
    let right = key[1] ^ 0x1319_8a2e_0370_7344;
    let product = u128::from(left).wrapping_mul(u128::from(right));
    (product as u64) ^ ((product >> 64) as u64)
}

/// For each length the bits of sixteen bytes that count. It has more than are asked for, so that no look at it is checked.
static MASKS: [[u64; 2]; 2 * INLINE_BYTES] = {
    let mut masks = [[u64::MAX; 2]; 2 * INLINE_BYTES];
    let mut len = 0;
    while len < INLINE_BYTES {
        let mask = (1u128 << (8 * len)) - 1;
        masks[len] = [mask as u64, (mask >> 64) as u64];
        len += 1;
    }
    masks
};

/// The two words of sixteen bytes, of which so many count.
#[inline(always)]
fn masked(bytes: [u8; INLINE_BYTES], len: usize) -> [u64; 2] {
    let all = u128::from_le_bytes(bytes);
    let mask = MASKS[len % MASKS.len()];
    [all as u64 & mask[0], (all >> 64) as u64 & mask[1]]
}

/// The two words of a short key.
#[inline(always)]
fn padded(key: &[u8]) -> Option<[u64; 2]> {
    let mut bytes = [0; INLINE_BYTES];
    bytes.get_mut(..key.len())?.copy_from_slice(key);
    Some(masked(bytes, key.len()))
}

impl FoldTable {
    /// An empty table.
    pub fn new(fold: ReduceFunction, salt: u64) -> FoldTable {
        FoldTable {
            fold,
            salt,
            slots: Pages::zeros(SLOTS_MIN),
            waiting: [Waiting::default(); WAITING_MAX],
            queued: 0,
            count: 0,
            shift: u64::BITS - SLOTS_MIN.ilog2(),
            arena: Vec::new(),
        }
    }

    /// How many keys it has.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of its slots and its arena.
    pub fn bytes(&self) -> usize {
        self.slots.len() * SLOT_BYTES + self.arena.capacity()
    }

    /// Queues a value of the key that lies at a place of a text, which is faster where the text goes on behind it. It counts from the next
    /// [`FoldTable::settle`] on.
    #[inline(always)]
    pub fn queue_in(&mut self, text: &[u8], begin: usize, end: usize, value: u64) {
        let len = end - begin;
        match text.get(begin..begin + INLINE_BYTES) {
            Some(sixteen) if len <= INLINE_BYTES => {
                let sixteen = sixteen.try_into().expect("sixteen bytes");
                self.queue_short(masked(sixteen, len), len as u32 + 1, value);
            }
            _ => self.queue(&text[begin..end], value),
        }
    }

    /// Queues a value of a key. Not inlined: else what calls [`FoldTable::queue_in`] is too long to be.
    #[inline(never)]
    pub fn queue(&mut self, key: &[u8], value: u64) {
        match padded(key) {
            Some(words) => self.queue_short(words, key.len() as u32 + 1, value),
            None => self.add(key, value),
        }
    }

    #[inline(always)]
    fn queue_short(&mut self, key: [u64; 2], len: u32, value: u64) {
        let hash = hash(key, self.salt);
        let slot = (hash >> self.shift) as usize;
        simd::prefetch(self.slots.as_ptr().wrapping_add(slot));
        self.waiting[self.queued % WAITING_MAX] = Waiting {
            key,
            hash,
            value,
            len,
        };
        self.queued += 1;
        if self.queued == WAITING_MAX {
            self.settle();
        }
    }

    /// Folds what was queued.
    pub fn settle(&mut self) {
        let queued = std::mem::take(&mut self.queued);
        for place in 0..queued.min(WAITING_MAX) {
            let it = self.waiting[place];
            self.fold_short(it.key, it.hash, it.len, it.value);
        }
    }

    /// Folds a value of a key.
    pub fn add(&mut self, key: &[u8], value: u64) {
        if let Some(words) = padded(key) {
            let hash = hash(words, self.salt);
            return self.fold_short(words, hash, key.len() as u32 + 1, value);
        }
        let first = key[..8].try_into().expect("eight bytes");
        self.fold_long(key, [key::bytes(key), u64::from_le_bytes(first)], value);
    }

    /// Folds a value of a long key, for which its hash and its first bytes stand in the slot: others may have the same.
    fn fold_long(&mut self, key: &[u8], words: [u64; 2], value: u64) {
        let len = u32::try_from(key.len() + 1).expect("a key has at most KEY_BYTES_MAX bytes");
        let mut place = self.place(words);
        loop {
            let slot = &mut self.slots[place];
            if slot.len == 0 {
                let at = u32::try_from(self.arena.len()).expect("it is spilled before that");
                self.arena.extend_from_slice(key);
                return self.insert(place, words, len, at, value);
            }
            if slot.len == len && slot.key == words {
                let at = slot.at as usize;
                if self.arena[at..at + key.len()] == *key {
                    slot.value = self.fold.join(slot.value, value);
                    return;
                }
            }
            place = (place + 1) & (self.slots.len() - 1);
        }
    }

    #[inline(always)]
    fn place(&self, key: [u64; 2]) -> usize {
        (hash(key, self.salt) >> self.shift) as usize
    }

    #[inline(always)]
    fn fold_short(&mut self, key: [u64; 2], hash: u64, len: u32, value: u64) {
        let mut place = (hash >> self.shift) as usize;
        loop {
            let slot = &mut self.slots[place];
            if slot.len == len && slot.key == key {
                slot.value = self.fold.join(slot.value, value);
                return;
            }
            if slot.len == 0 {
                return self.insert(place, key, len, 0, value);
            }
            place = (place + 1) & (self.slots.len() - 1);
        }
    }

    #[inline(never)]
    fn insert(&mut self, place: usize, key: [u64; 2], len: u32, at: u32, value: u64) {
        self.slots[place] = Slot {
            key,
            value,
            len,
            at,
        };
        self.count += 1;
        // At most half full: a look-up then ends after one and a half slots.
        if self.count * 2 > self.slots.len() {
            self.grow();
        }
    }

    fn grow(&mut self) {
        let doubled = Pages::zeros(self.slots.len() * 2);
        let old = std::mem::replace(&mut self.slots, doubled);
        self.shift -= 1;
        for slot in old.iter().filter(|slot| slot.len > 0) {
            let mut place = self.place(slot.key);
            while self.slots[place].len > 0 {
                place = (place + 1) & (self.slots.len() - 1);
            }
            self.slots[place] = *slot;
        }
    }

    /// Bytes that its keys need, however much it has: by them alone it is told whether a map's table is full, so where it is cut
    /// does not depend on what was in it before.
    pub fn held_bytes(&self) -> usize {
        2 * self.count * SLOT_BYTES + self.arena.len()
    }

    /// Whether it will soon double.
    pub fn is_nearly_full(&self) -> bool {
        let arena = self.arena.capacity();
        8 * self.count >= 3 * self.slots.len() || 4 * self.arena.len() > 3 * arena
    }

    /// Whether it has so much that places in it would soon need more than 32 bits.
    pub fn is_too_large(&self) -> bool {
        self.arena.len() > ARENA_BYTES_MAX || self.slots.len() >= SLOTS_MAX
    }

    /// What it takes once it has doubled, and is then sorted.
    pub fn doubled_bytes(&self) -> usize {
        // While it grows, the old slots are there too; at most half of the slots are sorted.
        let slots = 3 * self.slots.len() * SLOT_BYTES;
        slots + 2 * self.arena.capacity() + self.slots.len() * size_of::<SlotPlace>()
    }

    /// Its keys with their partial values, in no order that means anything.
    pub fn iter(&self) -> impl Iterator<Item = (TableKey<'_>, u64)> {
        let taken = self.slots.iter().filter(|slot| slot.len > 0);
        taken.map(|slot| (self.key_of(slot), slot.value))
    }

    fn key_of(&self, slot: &Slot) -> TableKey<'_> {
        let len = slot.len as usize - 1;
        if len > INLINE_BYTES {
            return TableKey::Long(&self.arena[slot.at as usize..][..len]);
        }
        let mut bytes = [0; INLINE_BYTES];
        bytes[..8].copy_from_slice(&slot.key[0].to_le_bytes());
        bytes[8..].copy_from_slice(&slot.key[1].to_le_bytes());
        TableKey::Short(bytes, len)
    }

    /// Where its keys lie, in the order of their bytes: for [`FoldTable::pair_at`].
    pub fn order(&self) -> Pages<SlotPlace> {
        let mut order = Pages::<SlotPlace>::zeros(self.count);
        let slots = (0..)
            .zip(self.slots.iter())
            .filter(|(_, slot)| slot.len > 0);
        for (place, (slot, taken)) in order.iter_mut().zip(slots) {
            *place = SlotPlace {
                prefix: self.key_of(taken).prefix(),
                slot,
            };
        }
        // No two keys are equal, so an unstable sort gives one order.
        order.sort_unstable_by(|left, right| {
            let key = |place: &SlotPlace| self.key_of(&self.slots[place.slot as usize]);
            let by_prefix = left.prefix.cmp(&right.prefix);
            by_prefix.then_with(|| key(left).bytes().cmp(key(right).bytes()))
        });
        order
    }

    /// The pair at a place that [`FoldTable::order`] gave.
    pub fn pair_at(&self, place: SlotPlace) -> (TableKey<'_>, u64) {
        let slot = &self.slots[place.slot as usize];
        (self.key_of(slot), slot.value)
    }

    /// Appends each pair's encoding to the buffer of the partition that its key belongs to. One that has no room for it
    /// is given to `full` before, with how many bytes are wanted, which leaves one that has.
    pub fn deal(&self, partitions: &mut [Vec<u8>], mut full: impl FnMut(u32, &mut Vec<u8>, usize)) {
        let count = partitions.len() as u32;
        for (key, value) in self.iter() {
            let to = key::partition(key::bytes(key.bytes()), count);
            let buffer = &mut partitions[to as usize];
            let most = key.bytes().len() + pairs::HEAD_BYTES_MAX;
            if buffer.capacity() - buffer.len() < most {
                full(to, buffer, most);
            }
            pairs::push(buffer, key.bytes(), value);
        }
    }

    /// Forgets its pairs, and lets go of its memory.
    pub fn reset(&mut self) {
        *self = FoldTable::new(self.fold, self.salt);
    }

    /// Forgets its pairs, and keeps its memory.
    pub fn clear(&mut self) {
        self.slots.fill(Slot::default());
        self.count = 0;
        self.arena.clear();
    }
}

/// Where a key lies in a table, and its first bytes.
#[derive(Clone, Copy, Debug, FromZeros)]
pub struct SlotPlace {
    prefix: u64,
    slot: u32,
}

/// A key of a table.
#[derive(Clone, Copy)]
pub enum TableKey<'t> {
    /// One that lay in its slot, with its length.
    Short([u8; INLINE_BYTES], usize),
    /// One of the arena.
    Long(&'t [u8]),
}

impl TableKey<'_> {
    /// Its bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match self {
            TableKey::Short(bytes, len) => &bytes[..*len],
            TableKey::Long(bytes) => bytes,
        }
    }

    /// Its first eight bytes as a number that sorts as they do.
    fn prefix(&self) -> u64 {
        let first = match self {
            TableKey::Short(bytes, _) => &bytes[..8],
            TableKey::Long(bytes) => &bytes[..8],
        };
        u64::from_be_bytes(first.try_into().expect("eight bytes"))
    }
}

#[cfg(test)]
mod tests;
