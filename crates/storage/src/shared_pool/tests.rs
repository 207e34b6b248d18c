//! Scans and writers while all threads that wait for files wait for a slow disk.

use super::*;
use crate::pool::{Request, Ticket};
use crate::{Block, BlockWriter, InputFile, OutputFile, ReadAhead, Scan};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Poll, Wake, Waker};
use tempfile::TempDir;

/// One test at a time has the threads.
static ALONE: Mutex<()> = Mutex::new(());

/// Says that a thread has it, and keeps that until it is told to go on.
struct Slow(Sender<()>, Receiver<()>);

impl Request for Slow {
    type Done = ();

    fn run(self) -> Result<(), FileError> {
        self.0.send(()).unwrap();
        // Its sender is dropped in the end.
        let _ = self.1.recv();
        Ok(())
    }

    fn name(&self) -> String {
        "waiting for a slow disk".into()
    }
}

/// All threads wait until this is dropped.
struct SlowDisk(Vec<(Sender<()>, Ticket<()>)>);

impl SlowDisk {
    fn new() -> SlowDisk {
        let pool = shared_pool().unwrap();
        let (begun, begins) = channel();
        let mut slow = Vec::new();
        for _ in 0..BLOCK_THREADS {
            let (go_on, told) = channel();
            let given = pool.give(Slow(begun.clone(), told), Waker::noop());
            slow.push((go_on, given.ok().unwrap()));
            begins.recv().unwrap();
        }
        SlowDisk(slow)
    }

    fn goes_on(self) {
        for (go_on, ticket) in self.0 {
            drop(go_on);
            ticket.wait().unwrap();
        }
    }
}

/// Counts how often it is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn input(directory: &TempDir, bytes: usize) -> Arc<InputFile> {
    let path = directory.path().join("input");
    std::fs::write(&path, vec![1; bytes]).unwrap();
    InputFile::open(&path).unwrap()
}

const AHEAD: ReadAhead = ReadAhead {
    block_bytes: 10,
    blocks: 3,
};

fn until<T>(mut poll: impl FnMut() -> Poll<T>) -> T {
    loop {
        match poll() {
            Poll::Ready(ready) => return ready,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

#[test]
fn a_scan_asks_for_no_more_than_it_may_and_wakes_who_asked_last() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let file = input(&directory, 100);
    let disk = SlowDisk::new();
    let mut scan = Scan::new(&file, 0..100, AHEAD);
    let bells = [(); 2].map(|()| Arc::<Bell>::default());
    for bell in &bells {
        assert!(scan.poll(&bell.clone().into()).is_pending());
    }
    // Each request that is on its way holds the file.
    assert_eq!(Arc::strong_count(&file), 2 + AHEAD.blocks);
    disk.goes_on();
    until(|| match bells[1].0.load(Ordering::SeqCst) {
        0 => Poll::Pending,
        _ => Poll::Ready(()),
    });
    assert_eq!(
        scan.poll(Waker::noop())
            .map(|it| it.unwrap().unwrap().len()),
        Poll::Ready(10)
    );
}

#[test]
fn a_dropped_scan_reads_nothing_more() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let file = input(&directory, 100);
    let disk = SlowDisk::new();
    let mut scan = Scan::new(&file, 0..100, AHEAD);
    assert!(scan.poll(Waker::noop()).is_pending());
    let counters = scan.counters();
    drop(scan);
    disk.goes_on();
    until(|| match Arc::strong_count(&file) {
        1 => Poll::Ready(()),
        _ => Poll::Pending,
    });
    assert_eq!(counters.counts().read_bytes, 0);
}

#[test]
fn a_writer_has_room_for_its_depth() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let output = OutputFile::create(&directory.path().join("output"), None).unwrap();
    let disk = SlowDisk::new();
    let mut writer = BlockWriter::new(&output, 2);
    let waker = Waker::noop();
    for at in 0..4 {
        let has_room = writer.poll_room(waker).is_ready();
        assert_eq!(has_room, at < 2, "before block {at}");
        let mut block = writer.take_block(1);
        block.extend_from_slice(&[at as u8]);
        writer.write(at, block);
    }
    assert!(writer.poll_written(waker).is_pending());
    disk.goes_on();
    until(|| writer.poll_written(waker)).unwrap();
    assert!(writer.poll_room(waker).is_ready());
    output.publish().unwrap();
    assert_eq!(std::fs::read(output.path()).unwrap(), [0, 1, 2, 3]);
}

/// Whether a block waits for its request or its request for a thread: what goes with the writer is missing.
#[test]
fn a_dropped_writer_spoils_its_file() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let write = |depth| {
        let output = OutputFile::create(&directory.path().join("output"), None).unwrap();
        let mut writer = BlockWriter::new(&output, depth);
        for at in 0..2 {
            let mut block = writer.take_block(1);
            block.extend_from_slice(&[1]);
            writer.write(at, block);
        }
        (output, writer)
    };
    let disk = SlowDisk::new();
    let (output, writer) = write(2);
    drop(writer);
    disk.goes_on();
    assert!(output.publish().is_err(), "requests that wait");

    let (output, writer) = write(1);
    // The first block is in the file, and holds it no more.
    until(|| match Arc::strong_count(&output) {
        3 => Poll::Ready(()),
        _ => Poll::Pending,
    });
    drop(writer);
    assert!(output.publish().is_err(), "a block that waits");
}

/// What a forked process finds is its parent's pool, whose threads it has not: it starts its own.
#[test]
fn a_pool_of_another_process_is_not_used() {
    let _alone = alone();
    let before = shared_pool().unwrap();
    assert!(Arc::ptr_eq(&before, &shared_pool().unwrap()));
    POOL.lock().unwrap().as_mut().unwrap().0 += 1;
    let own = shared_pool().unwrap();
    assert!(!Arc::ptr_eq(&before, &own));
    let (begun, begins) = channel();
    let (go_on, told) = channel();
    let ticket = own.give(Slow(begun, told), Waker::noop()).ok().unwrap();
    begins.recv().unwrap();
    drop(go_on);
    ticket.wait().unwrap();
    // It is not joined: in a forked process it has no threads. Here others may have requests with it.
    assert!(Arc::strong_count(&before) >= 2);
}

#[test]
fn blocks_of_any_unit_fill_huge_pages() {
    for unit in [0, 1, 100, 4_096, 1 << 20, 3_000_001] {
        let ahead = ReadAhead::of_units(unit);
        assert!(ahead.block_bytes.is_multiple_of(unit.max(1)));
        assert!(ahead.block_bytes + 4_095 <= 4 << 20 && ahead.block_bytes * 2 > 4 << 20);
    }
    assert_eq!(ReadAhead::of_units(9_000_000).block_bytes, 9_000_000);
    for (bytes, capacity) in [
        (1, 4_096),
        (1_000_000, 1_003_520),
        (2_000_000, 2 << 20),
        (2 << 20, 2 << 20),
        (2_200_000, 2_203_648),
        (4_000_000, 4 << 20),
    ] {
        let mut block = Block::with_capacity(bytes);
        assert_eq!(block.capacity(), capacity, "{bytes}");
        if capacity >= 2 << 20 {
            assert_eq!(block.spare().as_ptr() as usize % (2 << 20), 0, "{bytes}");
        }
    }
}

#[test]
fn blocks_keep_their_phase_and_their_room() {
    for bytes in [0, 1, 4_095, 4_096, 100_000, 3 << 20] {
        for phase in [0, 1, 4_095] {
            let mut block = Block::at_phase(phase, bytes);
            assert!(block.capacity() >= bytes && block.is_empty());
            assert_eq!(block.spare().as_ptr() as usize % 4_096, phase);
            assert!(block.spare().iter().all(|it| *it == 0));
            block.spare().fill(7);
            block.set_len(bytes);
            assert!(block.iter().all(|it| *it == 7));
            block.clear();
            block.extend_from_slice(b"");
            assert_eq!((block.len(), block.phase()), (0, phase));
        }
    }
}
