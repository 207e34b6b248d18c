use super::*;
use brambling_memory::{Budget, Class, Floors};

/// A directory of its own, which is gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("brambling-spill-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn open(&self, limit_bytes: Option<u64>) -> SpillDirectory {
        SpillDirectory::open(&self.0, limit_bytes).unwrap()
    }

    fn files(&self) -> usize {
        std::fs::read_dir(&self.0).unwrap().count()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn refused() -> OutOfMemory {
    let budget = Budget::new(10, Floors::default());
    budget.reserve(Class::Early, 11).unwrap_err()
}

fn put(directory: &SpillDirectory, parts: &[&[u8]]) -> Result<Arc<dyn Spilled>, SpillError> {
    directory.put(parts, &refused())
}

/// Bytes that differ from those of other numbers.
fn bytes(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + number * 7) as u8).collect()
}

#[test]
fn what_is_spilled_comes_back_in_any_order() {
    let folder = Folder::new("order");
    let directory = folder.open(None);
    let spilled: Vec<_> = (0..100)
        .map(|number| {
            let all = bytes(number, 10 * number);
            let (head, tail) = all.split_at(all.len() / 3);
            put(&directory, &[head, tail]).unwrap()
        })
        .collect();
    for (number, spilled) in spilled.iter().enumerate().rev() {
        assert_eq!(spilled.bytes(), 10 * number as u64);
        assert_eq!(spilled.read().unwrap(), bytes(number, 10 * number));
    }
    let total = (0..100).map(|number| 10 * number).sum::<u64>();
    let counts = SpillCounts {
        spills: 100,
        spilled_bytes: total,
        reads: 100,
        read_bytes: total,
    };
    assert_eq!(directory.counts(), counts);
    assert_eq!(directory.in_use_bytes(), total);
}

/// Whatever range is asked for, and however the bytes lay in parts, it is what was written there.
#[test]
fn ranges_are_read_alone() {
    let folder = Folder::new("ranges");
    let directory = folder.open(None);
    let part = CHECKED_BYTES;
    for len in [0, 1, part - 1, part, part + 1, 3 * part + 7] {
        let all = bytes(len, len);
        let cuts = [len / 7, len / 7 + len / 2, len];
        let parts = [&all[..cuts[0]], &all[cuts[0]..cuts[1]], &all[cuts[1]..]];
        let spilled = put(&directory, &parts).unwrap();
        let edges = [0, 1, part / 2, part - 1, part, part + 1, 2 * part, len];
        let edges = edges.into_iter().filter(|&edge| edge <= len);
        for (start, end) in edges
            .clone()
            .flat_map(|start| edges.clone().map(move |end| (start, end)))
        {
            let mut into = vec![0; end.saturating_sub(start)];
            spilled.read_at(start as u64, &mut into).unwrap();
            assert_eq!(into, all[start..end.max(start)], "{start}..{end} of {len}");
        }
    }
}

/// What is damaged elsewhere is none of a range's affair.
#[test]
fn a_range_is_checked_alone() {
    let folder = Folder::new("range-damage");
    let directory = folder.open(None);
    let spilled = put(&directory, &[&bytes(1, 3 * CHECKED_BYTES)]).unwrap();
    directory
        .inner
        .segment
        .lock()
        .unwrap()
        .damage(CHECKED_BYTES as u64 + 5);
    let mut into = vec![0; 10];
    for (part, is_damaged) in [(0, false), (1, true), (2, false)] {
        let read = spilled.read_at((part * CHECKED_BYTES) as u64 + 100, &mut into);
        assert_eq!(read.is_err(), is_damaged, "part {part}");
    }
    assert!(spilled.read().is_err());
}

/// Many spill at once: nobody's bytes lie where another one's do.
#[test]
fn many_spill_at_once() {
    let folder = Folder::new("many");
    let directory = folder.open(None);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let directory = &directory;
            scope.spawn(move || {
                let numbers = (0..200).map(|at| thread * 1_000 + at);
                let one = |number: usize| put(directory, &[&bytes(number, number)]).unwrap();
                let spilled: Vec<_> = numbers.clone().map(one).collect();
                for (number, spilled) in numbers.zip(spilled) {
                    assert_eq!(spilled.read().unwrap(), bytes(number, number));
                }
            });
        }
    });
}

#[test]
fn room_is_used_again_when_all_that_lay_there_is_gone() {
    let folder = Folder::new("again");
    let directory = folder.open(Some(1_600));
    for round in 0..1_000 {
        let one = put(&directory, &[&bytes(round, 700)]).unwrap();
        let other = put(&directory, &[&bytes(round + 1, 800)]).unwrap();
        assert_eq!(one.read().unwrap(), bytes(round, 700));
        drop(one);
        assert_eq!(other.read().unwrap(), bytes(round + 1, 800));
    }
    // The last one may lie in the segment that is being filled.
    assert!(directory.in_use_bytes() <= 800);
}

#[test]
fn a_full_directory_says_so_and_goes_on_when_there_is_room() {
    let folder = Folder::new("full");
    let directory = folder.open(Some(1_000));
    let first = put(&directory, &[&bytes(1, 600)]).unwrap();
    let refused = put(&directory, &[&bytes(2, 600)]).unwrap_err();
    assert!(
        matches!(
            refused,
            SpillError::Full {
                asked_bytes: 600,
                ..
            }
        ),
        "{refused:?}"
    );
    let told = refused.to_string();
    let path = folder.0.display().to_string();
    for said in [&path, "600 bytes", "600 of the 1000", "BRAMBLING_SPILL"] {
        assert!(told.contains(said), "{told}");
    }
    assert_eq!(first.read().unwrap(), bytes(1, 600), "nobody overwrote it");
    drop(first);
    let second = put(&directory, &[&bytes(2, 600)]).unwrap();
    assert_eq!(second.read().unwrap(), bytes(2, 600));
}

/// A disk that is full is told as a limit is.
#[test]
fn a_full_disk_is_a_full_directory() {
    let folder = Folder::new("disk");
    let directory = folder.open(None);
    let told = |code| {
        let error = io::Error::from_raw_os_error(code);
        directory.inner.refusal(7, &error)
    };
    for code in [libc::ENOSPC, libc::EDQUOT] {
        assert!(matches!(
            told(code),
            SpillError::Full { asked_bytes: 7, .. }
        ));
    }
    assert!(matches!(told(libc::EIO), SpillError::Unwritable { .. }));
}

fn damage_is_noticed_in_every_byte() {
    let folder = Folder::new("damage");
    let directory = folder.open(None);
    let _before = put(&directory, &[&bytes(1, 10)]).unwrap();
    let spilled = put(&directory, &[&bytes(2, 50)]).unwrap();
    for at in 10..60 {
        let segment = directory.inner.segment.lock().unwrap();
        segment.damage(at);
        let read = spilled.read();
        assert!(matches!(read, Err(SpillError::Damaged { bytes: 50, .. })));
        segment.damage(at);
    }
    assert_eq!(spilled.read().unwrap(), bytes(2, 50));
}

#[test]
fn damage_is_noticed() {
    damage_is_noticed_in_every_byte();
}

#[cfg(feature = "mutants")]
#[test]
fn a_mutant_that_skips_the_checksum_is_caught() {
    let check = damage_is_noticed_in_every_byte;
    brambling_memory::mutants::assert_caught("spill-skips-checksum", check);
}

/// Nothing has a name there, so nothing is left of a process that is killed.
#[test]
fn a_process_that_is_killed_leaves_nothing() {
    let folder = Folder::new("killed");
    let directory = folder.open(None);
    let spilled: Vec<_> = (0..10)
        .map(|number| put(&directory, &[&bytes(number, 1 << 16)]).unwrap())
        .collect();
    assert_eq!(folder.files(), 0);
    assert_eq!(spilled[3].read().unwrap(), bytes(3, 1 << 16));
    drop((spilled, directory));
    assert_eq!(folder.files(), 0);
}

#[test]
fn what_is_no_directory_is_refused() {
    let folder = Folder::new("none");
    let missing = folder.0.join("missing");
    let told = SpillDirectory::open(&missing, None).unwrap_err();
    let expected = format!("{} cannot be spilled to", missing.display());
    assert!(told.to_string().starts_with(&expected), "{told}");
}
