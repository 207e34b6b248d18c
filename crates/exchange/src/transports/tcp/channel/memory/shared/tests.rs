use super::*;
use std::fs::File;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

fn pair() -> (SharedRings, SharedRings) {
    let (one, file) = SharedRings::make().unwrap();
    let other = SharedRings::open(&file).unwrap();
    (one, other)
}

fn write(to: &SharedRings, bytes: &[u8], wakes: Sleep) -> Moved {
    to.write(&[IoSlice::new(bytes)], wakes).unwrap()
}

fn read(from: &SharedRings, at_most: usize) -> (Vec<u8>, bool) {
    let mut bytes = vec![0; at_most];
    let moved = from.read(&mut bytes).unwrap();
    bytes.truncate(moved.bytes);
    (bytes, moved.rings)
}

/// Uneven lengths, so that each end of the ring is cut at other places.
fn lengths() -> impl Iterator<Item = usize> {
    (1usize..).map(|number| number * 7_919 % 300_007 + 1)
}

/// One side of a stream of bytes that sleeps whenever there is nothing to do, and is woken by bells alone.
struct Side {
    shared: SharedRings,
    bell: Receiver<()>,
    other: Sender<()>,
}

impl Side {
    fn wait(&self) {
        self.bell.recv_timeout(PATIENCE).expect("a bell was lost");
    }

    fn ring(&self, moved: Moved) {
        if moved.rings {
            self.other.send(()).unwrap();
        }
    }

    fn write_all(&self, bytes: &[u8]) {
        let mut from = 0;
        for length in lengths() {
            let part = &bytes[from..(from + length).min(bytes.len())];
            if part.is_empty() {
                return;
            }
            let moved = write(&self.shared, part, Sleep::Sleeps);
            self.ring(moved);
            from += moved.bytes;
            if moved.bytes == 0 {
                self.wait();
            }
        }
    }

    fn read_all(&self, bytes: &[u8]) {
        let mut from = 0;
        let mut place = vec![0; 300_007];
        for length in lengths() {
            if from == bytes.len() {
                return;
            }
            let moved = self.shared.read(&mut place[..length]).unwrap();
            self.ring(moved);
            assert!(place[..moved.bytes] == bytes[from..from + moved.bytes]);
            from += moved.bytes;
            if moved.bytes == 0 && !self.shared.sleep(Sleep::Sleeps) {
                self.wait();
            }
        }
    }
}

/// Many times what the ring holds, one way and then the other.
#[test]
fn bytes_arrive_in_order_and_no_bell_is_lost() {
    let bytes: Vec<u8> = (0..40 * RING_BYTES as u32)
        .map(|at| (at * 7 / 3) as u8)
        .collect();
    let (one, other) = pair();
    let ((to_one, of_one), (to_other, of_other)) = (channel(), channel());
    let one = Side {
        shared: one,
        bell: of_one,
        other: to_other,
    };
    let other = Side {
        shared: other,
        bell: of_other,
        other: to_one,
    };
    std::thread::scope(|scope| {
        let bytes = &bytes;
        scope.spawn(move || {
            one.write_all(bytes);
            one.read_all(bytes);
        });
        other.read_all(bytes);
        other.write_all(bytes);
    });
}

#[test]
fn who_dozes_is_woken_for_news_and_who_sleeps_for_anything() {
    let (one, other) = pair();
    assert!(!write(&one, b"nobody sleeps", Sleep::Dozes).rings);
    assert!(other.sleep(Sleep::Dozes), "news has come");
    assert!(other.sleep(Sleep::Sleeps), "something has come");
    read(&other, 100);

    assert!(!other.sleep(Sleep::Dozes));
    assert!(!write(&one, b"no news", Sleep::Sleeps).rings);
    assert!(!other.sleep(Sleep::Dozes), "no news has come");
    assert!(write(&one, b"news", Sleep::Dozes).rings);
    assert!(!write(&one, b"more", Sleep::Dozes).rings, "woken by now");
    assert!(other.sleep(Sleep::Dozes));
    read(&other, 100);

    assert!(!other.sleep(Sleep::Sleeps));
    assert!(write(&one, b"no news", Sleep::Sleeps).rings);
}

#[test]
fn who_finds_it_full_wakes_who_dozes_and_hears_of_room() {
    let (one, other) = pair();
    other.sleep(Sleep::Dozes);
    let all = vec![7; RING_BYTES + 1];
    let moved = write(&one, &all, Sleep::Sleeps);
    assert_eq!((moved.bytes, moved.rings), (RING_BYTES, false));
    assert_eq!(read(&other, 1), (vec![7], false), "nobody waits for room");
    assert_eq!(write(&one, &[7; 2], Sleep::Sleeps).bytes, 1);
    let moved = write(&one, &[7], Sleep::Sleeps);
    assert_eq!((moved.bytes, moved.rings), (0, true));
    assert!(!read(&other, WORTH_A_BELL - 1).1, "too little to go on");
    assert!(read(&other, 1).1);
    assert!(!read(&other, 1).1, "it has been told");
}

#[test]
fn other_files_are_refused() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memory = |bytes: usize, seals: SealFlags| {
        let file = rustix::fs::memfd_create("other", flags).unwrap();
        ftruncate(&file, bytes as u64).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    };
    let others = [
        memory(ALL_BYTES, SealFlags::GROW),
        memory(ALL_BYTES - 1, SealFlags::SHRINK),
        memory(ALL_BYTES + 1, SealFlags::SHRINK),
        File::open("/dev/null").unwrap().into(),
    ];
    for other in others {
        let refused = SharedRings::open(&other).err().expect("refused");
        assert_eq!(refused.kind(), ErrorKind::InvalidData, "{refused}");
    }
    // It could not be written.
    let fixed = memory(ALL_BYTES, SealFlags::SHRINK | SealFlags::WRITE);
    assert!(SharedRings::open(&fixed).is_err());
}

/// Positions that cannot be lead to an error, and to no place outside of the memory.
#[test]
fn what_cannot_be_is_refused() {
    let (one, other) = pair();
    write(&one, b"some", Sleep::Dozes);
    for said in [RING_BYTES as u64 + 1, u64::MAX, 1 << 63] {
        one.way(0).written.0.store(said, Ordering::Relaxed);
        assert!(other.read(&mut [0; 8]).is_err(), "{said}");
    }
    for said in [5, 1 << 40, 1 << 63] {
        one.way(0).read.0.store(said, Ordering::Relaxed);
        let refused = one.write(&[IoSlice::new(b"more")], Sleep::Dozes);
        assert!(refused.is_err(), "{said}");
    }
}
