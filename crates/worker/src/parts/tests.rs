//! What travels of a shard, made and read again.
//!
//! Catches bytes that lie in memory twice, and room that is not given back. That what comes is what was sent, the simulation and the random programs
//! check.

use super::*;
use brambling_program::{ChunkError, Cursor, DecodeError, Payload};
use std::borrow::Cow;
use std::cell::Cell;

const PART_BYTES: usize = 16 << 10;

fn budget() -> Budget {
    Budget::unlimited()
}

fn numbers(count: u32) -> Vec<f64> {
    (0..count).map(f64::from).collect()
}

#[test]
fn what_is_packed_comes_again_with_what_is_to_be_known_before() {
    let texts: Vec<String> = (0..9_000).map(|it| format!("number {it}")).collect();
    let values = || {
        [
            Value::new(7u8),
            Value::new(numbers(10_000)),
            Value::new(Vec::<f64>::new()),
            Value::new(texts.clone()),
            Value::new((numbers(3), numbers(4_000), 1u64)),
        ]
    };
    let budget = budget();
    let mut packing = Packing::new(&budget, PART_BYTES);
    packing.copy(b"few");
    let lens = values().map(|value| packing.value(value, ()).unwrap());
    packing.lend(Bytes::from(vec![3; 5_000]), ());
    let parts = packing.finish(&(1u8, lens.to_vec()));
    assert!(parts.iter().all(|part| part.len() < 2 * PART_BYTES));
    let (first, all) = (&parts[0], parts.concat());
    for cut in [all.len(), 1, 7, first.len() + 3, PART_BYTES + 1] {
        let parts = all.chunks(cut).map(Bytes::copy_from_slice);
        let room = budget.reserve(Class::Transfer, all.len() as u64 + 5);
        let before = budget.class_in_use_bytes(Class::Transfer) - all.len() as u64 - 5;
        let mut from = Unpacking::new(parts, room.unwrap());
        assert_eq!(
            budget.class_in_use_bytes(Class::Transfer) - before,
            all.len() as u64
        );
        assert_eq!(from.header(), Some((1u8, lens.to_vec())));
        assert_eq!(from.take(3).unwrap(), "few");
        for (value, &len) in values().iter().zip(&lens) {
            let came = from.value(value.payload_type(), len).unwrap();
            let mut encodings = [Vec::new(), Vec::new()];
            value.encode(&mut encodings[0]);
            came.encode(&mut encodings[1]);
            assert!(encodings[0] == encodings[1], "{value:?}");
        }
        assert_eq!(from.take(5_001), None);
        assert_eq!(from.take(5_000).unwrap(), [3; 5_000][..]);
        assert_eq!((from.bytes(), from.take(0)), (0, Some(Bytes::new())));
        drop(from);
        assert_eq!(budget.class_in_use_bytes(Class::Transfer), before);
    }
}

#[test]
fn lengths_that_nobody_packed_take_no_memory() {
    let bytes = Bytes::from_static(&[255; 40]);
    let from = || {
        let room = budget().reserve(Class::Transfer, 40).unwrap();
        Unpacking::new([bytes.clone()], room)
    };
    assert_eq!(from().header::<u8>(), None);
    assert_eq!(from().take(u64::MAX), None);
    let table = PayloadType::of::<Vec<f64>>();
    for len in [40, 41, u64::MAX] {
        assert!(from().value(table, len).is_none(), "{len}");
    }
}

/// A value's memory is what its parts are: it counts until the last of them is gone, and so does what is copied.
#[test]
fn what_leaves_is_lent_and_counts_until_it_has_gone() {
    let budget = budget();
    let value = Value::new(numbers(20_000));
    let lies = value.get::<Vec<f64>>().unwrap().as_ptr_range();
    let bytes = value.bytes() as u64;
    let room = budget.reserve(Class::Transfer, bytes).unwrap();
    let mut packing = Packing::new(&budget, PART_BYTES);
    packing.value(value, room).unwrap();
    let mut parts = packing.finish(&());
    assert_eq!(parts.len(), 2 + 160_000usize.div_ceil(PART_BYTES));
    for part in &parts[2..] {
        assert!(lies.contains(&part.as_ptr().cast()), "it was copied");
    }
    let small: u64 = parts[..2].iter().map(|part| part.len() as u64).sum();
    assert_eq!(budget.peak_bytes(), bytes + small);
    let last = parts.pop();
    drop(parts);
    assert_eq!(budget.in_use_bytes(), bytes, "one part keeps all of it");
    // As an acknowledgement does: the value itself goes when the lock is free.
    let mutex = std::sync::Mutex::new(());
    let lock = held::lock(&mutex);
    drop(last);
    assert_eq!(budget.in_use_bytes(), bytes, "under a lock");
    drop(lock);
    assert_eq!(budget.in_use_bytes(), 0);
}

/// What cannot be lent lies twice while it is packed: not what comes after it.
#[test]
fn what_was_copied_is_dropped_before_the_next() {
    let budget = budget();
    let mut packing = Packing::new(&budget, PART_BYTES);
    let mut encoded_bytes = 0;
    for _ in 0..10 {
        let texts: Vec<String> = (0..9_000).map(|it| format!("number {it}")).collect();
        let value = Value::new(texts);
        let room = budget
            .reserve(Class::Transfer, value.bytes() as u64)
            .unwrap();
        encoded_bytes += packing.value(value, room).unwrap();
        assert!(
            budget.in_use_bytes() <= encoded_bytes,
            "the values have gone"
        );
    }
    let parts = packing.finish(&());
    assert!(parts.iter().map(|part| part.len() as u64).sum::<u64>() > encoded_bytes);
    drop(parts);
    assert_eq!(budget.in_use_bytes(), 0);
}

thread_local! {
    /// What parts there are take, and the most that they and what is made of them took together.
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Looks how much there is whenever some of it was read.
#[derive(Default, Clone)]
struct Watched(Vec<u64>);

impl Payload for Watched {
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("watched")
    }
    fn heap_bytes(&self) -> usize {
        self.0.len() * 8
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(input: &mut &[u8]) -> Result<Watched, DecodeError> {
        Vec::decode(input).map(Watched)
    }
    fn decode_some(&mut self, cursor: &mut Cursor, input: &mut &[u8]) -> Result<bool, ChunkError> {
        let is_whole = self.0.decode_some(cursor, input);
        PEAK.set(PEAK.get().max(LIVE.get() + self.heap_bytes()));
        is_whole
    }
}

struct Part(Vec<u8>);

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        LIVE.set(LIVE.get() - self.0.len());
    }
}

#[test]
fn what_arrives_lies_in_memory_once() {
    let mut bytes = Vec::new();
    Watched((0..50_000).collect()).encode(&mut bytes);
    let parts = bytes.chunks(PART_BYTES).map(|part| {
        LIVE.set(LIVE.get() + part.len());
        Bytes::from_owner(Part(part.to_vec()))
    });
    let room = budget()
        .reserve(Class::Transfer, bytes.len() as u64)
        .unwrap();
    let mut from = Unpacking::new(parts, room);
    let table = PayloadType::of::<Watched>();
    let value = from.value(table, bytes.len() as u64).unwrap();
    assert_eq!(value.get::<Watched>().unwrap().0.len(), 50_000);
    assert_eq!(LIVE.get(), 0);
    let peak = PEAK.get();
    assert!(
        peak >= bytes.len() && peak <= bytes.len() + PART_BYTES,
        "{peak}"
    );
}
