//! Values that travel in chunks: random values, bounds and cuts give the bytes of `encode` and the values that they were; and beside a
//! value there is never more than a chunk of it in memory. The bytes are those that `encode` gives: what that does is not looked at here.
#![allow(unsafe_code)] // An allocator that counts.

use brambling_memory::{SpillError, Spilled};
use brambling_program::{
    Blocks, ChunkError, Decoder, Encoder, Foreign, Payload, PayloadType, Run, Value,
};
use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

/// Counts what the thread that asks has, and the most that it had.
struct Counting;

thread_local! {
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
    static PEAK_BYTES: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    let live = LIVE_BYTES.get() + bytes;
    LIVE_BYTES.set(live);
    PEAK_BYTES.set(PEAK_BYTES.get().max(live));
}

// SAFETY: the system's, which is given what it is asked for.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(place, layout) }
    }
    // The system moves pages and not bytes where that is much.
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes as i64 - layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(place, layout, bytes) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// What it returns, and how much more memory there was meanwhile than before, at most.
fn peak_bytes_of<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = LIVE_BYTES.get();
    PEAK_BYTES.set(before);
    let result = work();
    (result, (PEAK_BYTES.get() - before) as usize)
}

/// Numbers that follow from a seed (a linear congruential generator's high bits).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % end
    }
}

fn encoding<T: Payload>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    bytes
}

/// Feeds bytes cut anywhere.
fn decoded<T: Payload>(spare: T, bytes: &[u8], numbers: &mut Numbers) -> Result<T, ChunkError> {
    let mut decoder = Decoder::new(Value::new(spare));
    if numbers.below(2) == 0 {
        decoder = decoder.expecting(bytes.len() as u64);
    }
    let (longest, mut rest) = (1 + numbers.below(300), bytes);
    while !rest.is_empty() {
        let (next, after) = rest.split_at(numbers.below(longest + 1).min(rest.len()));
        decoder.feed(next)?;
        rest = after;
    }
    let value = decoder.finish()?;
    Ok(value.take().expect("of its type"))
}

/// Whatever way a value is cut, it is its encoding, and what comes back is the value.
fn travels<T: Payload + PartialEq + Debug>(value: &T, spare: &T, seed: u64) {
    let numbers = &mut Numbers(seed);
    let whole = encoding(value);
    let erased = Value::new(value.clone());
    for longest in [1, 7, 64, 10_000] {
        let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
        if numbers.below(2) == 0 {
            encoder = encoder.copying();
        }
        loop {
            let bound = 1 + numbers.below(longest);
            let Some(chunk) = encoder.next(&erased, bound).unwrap() else {
                break;
            };
            assert!(
                (1..=bound).contains(&chunk.len()),
                "{} of {bound}",
                chunk.len()
            );
            chunk
                .parts()
                .iter()
                .for_each(|part| bytes.extend_from_slice(part));
        }
        assert_eq!(bytes, whole, "in chunks of {longest}: {value:?}");
        assert!(
            encoder.next(&erased, longest).unwrap().is_none(),
            "it stays at its end"
        );
    }
    let mut kept = Vec::new();
    let mut chunks = erased.into_chunks(1 + numbers.below(6_000));
    while let Some((copied, lent)) = chunks.next().unwrap() {
        kept.push((copied, lent));
    }
    drop(chunks);
    let kept: Vec<u8> = kept
        .iter()
        .flat_map(|(copied, lent)| [copied, lent.as_ref()].concat())
        .collect();
    assert_eq!(kept, whole, "chunks keep their value: {value:?}");
    for spare in [T::default(), spare.clone(), value.clone()] {
        assert_eq!(&decoded(spare, &whole, numbers).unwrap(), value);
    }
    for _ in 0..20 {
        if !whole.is_empty() {
            let cut = numbers.below(whole.len());
            assert!(
                decoded(spare.clone(), &whole[..cut], numbers).is_err(),
                "{cut} bytes of {value:?}"
            );
        }
    }
    let more = [&whole[..], &[0; 3]].concat();
    assert!(
        decoded(spare.clone(), &more, numbers).is_err(),
        "{value:?} and more"
    );
    let mut noise = whole;
    for _ in 0..20 {
        if !noise.is_empty() {
            let at = numbers.below(noise.len());
            noise[at] ^= 1 << numbers.below(8);
            // Whatever it is then: refused, or a value that is encoded as it came.
            if let Ok(other) = decoded(spare.clone(), &noise, numbers) {
                let _ = encoding(&other);
            }
        }
    }
}

#[derive(Clone, Default, PartialEq, Debug)]
struct Fields {
    rows: Vec<f64>,
    name: String,
    parts: Vec<Vec<u16>>,
    number: u32,
}
brambling_program::payload!(Fields {
    rows,
    name,
    parts,
    number
});

#[derive(Clone, Default, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
struct Foreigner {
    rows: Vec<u64>,
    name: Option<String>,
}
brambling_program::payload!(Foreigner, |it| it.rows.capacity() * 8);

/// What is borrowed, compared by what it holds.
#[derive(Clone, Default, Debug)]
struct Borrowed(Foreign<u32>);
brambling_program::payload!(Borrowed { 0 });

impl PartialEq for Borrowed {
    fn eq(&self, other: &Borrowed) -> bool {
        self.0[..] == other.0[..]
    }
}

fn words() -> impl Strategy<Value = String> {
    "[a-zäß]{0,12}"
}

fn fields() -> impl Strategy<Value = Fields> {
    let rows = prop::collection::vec(any::<i32>().prop_map(f64::from), 0..900);
    let parts = prop::collection::vec(prop::collection::vec(any::<u16>(), 0..40), 0..20);
    (rows, words(), parts, any::<u32>()).prop_map(|(rows, name, parts, number)| Fields {
        rows,
        name,
        parts,
        number,
    })
}

fn foreigner() -> impl Strategy<Value = Foreigner> {
    let rows = prop::collection::vec(any::<u64>(), 0..200);
    (rows, prop::option::of(words())).prop_map(|(rows, name)| Foreigner { rows, name })
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

macro_rules! travel {
    ($($name:ident: $strategy:expr;)*) => {
        proptest! {
            #![proptest_config(cases(60))]
            $(#[test]
            fn $name(value in $strategy, spare in $strategy, seed in any::<u64>()) {
                travels(&value, &spare, seed);
            })*
        }
    };
}
use prop::collection::vec;
travel! {
    numbers: any::<(u8, i64, u128, bool)>();
    numbers_in_a_row: vec(any::<u64>(), 0..3_000);
    arrays_in_a_row: vec(any::<[u16; 3]>(), 0..500);
    flags: vec(any::<bool>(), 0..400);
    pairs: vec(any::<(u32, Option<u8>)>(), 0..300);
    texts: vec(words(), 0..60);
    rows_of_rows: vec(vec(any::<u32>(), 0..90), 0..40);
    rows_of_rows_of_rows: vec(vec(vec(any::<u8>(), 0..9), 0..9), 0..9);
    rows_that_may_be_missing: vec((any::<u16>(), prop::option::of(vec(any::<i8>(), 0..50))), 0..50);
    what_is_shared: vec(any::<u32>(), 0..50).prop_map(|rows| (1u8, Arc::new(rows)));
    blocks: vec(prop::option::of(vec(any::<u64>(), 0..20)), 0..20).prop_map(|it| Blocks::new(7, it));
    what_has_fields: fields();
    rows_of_what_has_fields: vec(fields(), 0..5);
    what_serde_encodes: foreigner();
    rows_of_what_serde_encodes: vec((foreigner(), any::<u8>()), 0..20);
    what_is_borrowed: vec(any::<u32>(), 0..2_000).prop_map(|rows| Borrowed(Foreign::owned(rows)));
    nothings: vec(any::<()>(), 0..9);
}

fn rows_of_rows_travel_however_they_are_cut() {
    let rows: Vec<Vec<u32>> = (0..30).map(|row| (0..row * 7).collect()).collect();
    for seed in 0..20 {
        travels(&rows, &vec![vec![7; 90]; 5], seed);
    }
}

#[test]
fn these_rows_travel() {
    rows_of_rows_travel_however_they_are_cut();
}

#[cfg(feature = "mutants")]
#[test]
fn a_mutant_that_forgets_what_had_no_room_is_caught() {
    let check = rows_of_rows_travel_however_they_are_cut;
    brambling_memory::mutants::assert_caught("chunks-forget-what-had-no-room", check);
}

/// Bytes that are made when they are read, as if from a disk.
#[derive(Debug)]
struct Disk {
    bytes: u64,
    /// From where on they cannot be read.
    broken: u64,
    /// How many such there are.
    _there: Arc<()>,
}

fn byte(at: u64) -> u8 {
    (at ^ (at >> 9)) as u8
}

impl Spilled for Disk {
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn read(&self) -> Result<Vec<u8>, SpillError> {
        let mut all = vec![0; self.bytes as usize];
        self.read_at(0, &mut all).map(|()| all)
    }
    fn read_at(&self, start: u64, into: &mut [u8]) -> Result<(), SpillError> {
        if start + into.len() as u64 > self.broken {
            return Err(SpillError::Unreadable {
                directory: "disk".into(),
                bytes: self.bytes,
                why: "it is broken".into(),
            });
        }
        (start..)
            .zip(into)
            .for_each(|(at, place)| *place = byte(at));
        Ok(())
    }
}

fn run_of(parts: &[u64], broken: u64) -> (Run, Arc<()>) {
    let there = Arc::new(());
    let mut run = Run::default();
    for &bytes in parts {
        let there = there.clone();
        run.push(Arc::new(Disk {
            bytes,
            broken,
            _there: there,
        }));
    }
    (run, there)
}

fn all_of(run: &Run) -> Vec<u8> {
    let mut bytes = vec![0; run.len() as usize];
    assert_eq!(run.read(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

proptest! {
    #![proptest_config(cases(40))]
    #[test]
    fn runs(parts in vec(0u64..5_000, 0..6), memory in vec(any::<u8>(), 0..900), seed in any::<u64>()) {
        let numbers = &mut Numbers(seed);
        let (mut run, there) = run_of(&parts, u64::MAX);
        run.push_resident(memory.clone());
        let expected: Vec<u8> = parts.iter().flat_map(|&bytes| (0..bytes).map(byte)).chain(memory).collect();
        prop_assert_eq!(run.spilled_bytes(), parts.iter().sum::<u64>());
        prop_assert_eq!(&all_of(&run), &expected);
        for _ in 0..20 {
            let start = numbers.below(expected.len() + 2);
            let mut into = vec![0; numbers.below(3_000)];
            let read = run.read(start as u64, &mut into).unwrap();
            let there = &expected[start.min(expected.len())..];
            prop_assert_eq!(&into[..read], &there[..read]);
            prop_assert!(read == into.len() || read == there.len());
        }
        let value = Value::new((3u8, run.clone(), 5u16));
        let (mut encoder, mut bytes) = (Encoder::default(), Vec::new());
        while let Some(chunk) = encoder.next(&value, 1 + numbers.below(2_000)).unwrap() {
            bytes.extend(chunk.parts().concat());
        }
        prop_assert_eq!(&bytes, &encoding(&(3u8, run.clone(), 5u16)));
        let (three, came, five) = decoded::<(u8, Run, u16)>(Default::default(), &bytes, numbers).unwrap();
        prop_assert_eq!((three, all_of(&came), five, came.spilled_bytes()), (3, expected, 5, 0));
        for _ in 0..10 {
            let cut = numbers.below(bytes.len());
            prop_assert!(decoded::<(u8, Run, u16)>(Default::default(), &bytes[..cut], numbers).is_err());
        }
        prop_assert_eq!(value.spilled_bytes(), parts.iter().sum::<u64>());
        drop((run, value));
        prop_assert_eq!(Arc::strong_count(&there), 1, "their room is free again");
    }
}

const CHUNK_BYTES: usize = 64 << 10;

/// What a value takes to be sent and to be made again, beside itself.
fn costs<T: Payload + PartialEq + Debug>(value: T) -> (usize, usize) {
    let value = Value::new(value);
    let ((), sending) = peak_bytes_of(|| {
        let mut encoder = Encoder::default();
        while let Some(chunk) = encoder.next(&value, CHUNK_BYTES).unwrap() {
            assert!(chunk.len() <= CHUNK_BYTES);
        }
    });
    let mut bytes = Vec::new();
    value.encode(&mut bytes);
    let (came, taking) = peak_bytes_of(|| {
        let mut decoder = Decoder::new(Value::default_of(value.payload_type()));
        bytes
            .chunks(CHUNK_BYTES - 3)
            .try_for_each(|chunk| decoder.feed(chunk))
            .unwrap();
        decoder.finish().unwrap()
    });
    let own = came.bytes();
    assert!(own <= value.bytes(), "{own} bytes of {}", value.bytes());
    let same = came.get::<T>() == value.get::<T>();
    assert!(same, "another value came");
    (sending, taking.saturating_sub(own))
}

#[test]
fn a_value_lies_in_memory_once() {
    let numbers = |count: usize| (0..count).map(|at| at as u64).collect::<Vec<_>>();
    let of_rows: Vec<Vec<u64>> = (0..300).map(|row| numbers(row * 30)).collect();
    let texts: Vec<String> = (0..20_000).map(|at| "text ".repeat(at % 40)).collect();
    let fields = Fields {
        rows: vec![0.5; 1 << 20],
        name: "n".repeat(1 << 20),
        parts: vec![vec![7; 100]; 5_000],
        number: 9,
    };
    let pairs: Vec<(u32, Option<u64>)> = (0..1 << 19).map(|at| (at, Some(7))).collect();
    for (sending, taking) in [
        costs(numbers(1 << 20)),
        costs(of_rows),
        costs(texts),
        costs(fields.clone()),
        costs(vec![fields; 3]),
        costs(pairs),
        costs((1u8, Arc::new(numbers(1 << 20)), "tail".repeat(1 << 19))),
    ] {
        // A buffer is twice as large as what is in it, at most.
        assert!(
            sending <= 2 * CHUNK_BYTES + 4_096,
            "{sending} bytes to send it"
        );
        assert!(
            taking <= 2 * CHUNK_BYTES + 4_096,
            "{taking} bytes to take it"
        );
    }
    // What serde encodes is made an eighth at a time, and read as a whole.
    let foreigner = Foreigner {
        rows: vec![u64::MAX; 1 << 20],
        name: None,
    };
    let (sending, _) = costs(foreigner);
    assert!(sending <= (10 << 20) / 3, "{sending} bytes to send it");
}

/// A run that is larger than memory comes from one disk and goes to another.
#[test]
fn a_run_lies_on_disks() {
    let parts = [5 << 20, 30 << 20, 7];
    let (run, _) = run_of(&parts, u64::MAX);
    let value = Value::new(vec![run]);
    let written: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (came, peak) = peak_bytes_of(|| {
        let put = written.clone();
        let mut decoder = Decoder::new(Value::new(Vec::<Run>::new())).spilling(move |bytes| {
            let bytes = bytes.len() as u64;
            put.lock().unwrap().push(bytes);
            let (broken, there) = (u64::MAX, Arc::default());
            Ok(Arc::new(Disk {
                bytes,
                broken,
                _there: there,
            }))
        });
        let mut encoder = Encoder::default();
        while let Some(chunk) = encoder.next(&value, CHUNK_BYTES).unwrap() {
            chunk
                .parts()
                .iter()
                .for_each(|part| decoder.feed(part).unwrap());
        }
        decoder.finish().unwrap()
    });
    let all = parts.iter().sum::<u64>();
    assert_eq!(written.lock().unwrap().iter().sum::<u64>(), all);
    assert_eq!((came.spilled_bytes(), value.spilled_bytes()), (all, all));
    assert!(peak < 3 << 20, "{peak} bytes for {all} on disks");
    assert!(came.bytes() < 8_192);
}

/// Whoever asks for a chunk of what cannot be read is told why; where all is encoded at once, whoever decodes is.
#[test]
fn a_run_that_cannot_be_read_says_why() {
    let (run, _) = run_of(&[100_000], 50_000);
    let value = Value::new(run.clone());
    let mut encoder = Encoder::default();
    let mut next = || encoder.next(&value, 30_000);
    assert!(next().unwrap().is_some());
    let told = next().unwrap_err().to_string();
    assert!(
        told.contains("disk") && told.contains("it is broken"),
        "{told}"
    );
    let told = Run::decode(&mut &encoding(&run)[..])
        .unwrap_err()
        .to_string();
    assert!(
        told.contains("disk") && told.contains("it is broken"),
        "{told}"
    );
    let told = decoded(Run::default(), &encoding(&run), &mut Numbers(1)).unwrap_err();
    assert!(told.to_string().contains("it is broken"), "{told}");
    let full = || SpillError::Nowhere;
    let mut decoder = Decoder::new(Value::new(Run::default())).spilling(move |_| Err(full()));
    let (good, _) = run_of(&[3 << 20], u64::MAX);
    let fed = decoder.feed(&encoding(&good));
    assert_eq!(fed, Err(ChunkError::Spill(SpillError::Nowhere)));
}

/// A length that bytes do not bear out takes no more memory than twice what has come.
#[test]
fn hostile_lengths_take_no_memory() {
    fn check<T: Payload>(bytes: &[u8]) {
        let (refused, peak) = peak_bytes_of(|| {
            let mut decoder = Decoder::new(Value::default_of(PayloadType::of::<T>()));
            let fed = bytes.chunks(100).try_for_each(|chunk| decoder.feed(chunk));
            fed.and_then(|()| decoder.finish().map(drop)).is_err()
        });
        assert!(refused);
        assert!(
            peak <= 4 * bytes.len() + 4_096,
            "{peak} bytes of memory for {}",
            bytes.len()
        );
    }
    for len in [u64::MAX, u64::MAX / 8 + 1, 1 << 60, 1 << 40, 1 << 20] {
        for more in [0, 16, 50_000] {
            let bytes = [&len.to_le_bytes()[..], &vec![0; more]].concat();
            check::<Vec<f64>>(&bytes);
            check::<String>(&bytes);
            check::<Vec<(u64, u64)>>(&bytes);
            check::<Vec<Fields>>(&bytes[..bytes.len().min(8)]);
            check::<(Arc<Vec<u64>>, u8)>(&bytes);
            check::<Foreign<u16>>(&bytes);
            check::<Run>(&[&[0], &bytes[..]].concat());
            check::<Option<Vec<Vec<u8>>>>(&[&[1], &1u64.to_le_bytes()[..], &bytes].concat());
        }
    }
}
