//! Things larger than a frame travel in parts.

use brambling_protocol::message::{BadPart, PART_BYTES, Part, Parts, parts};
use brambling_protocol::{Generation, JobId, JobKey};
use proptest::prelude::*;

const KEY: JobKey = JobKey {
    job: JobId(1),
    generation: Generation(0),
};

fn part(whole_bytes: u64, first_byte: u64, bytes: &[u8]) -> Part<'_> {
    Part {
        key: KEY,
        whole_bytes,
        first_byte,
        bytes,
    }
}

#[test]
fn what_was_cut_comes_together_again() {
    for size in [
        0,
        1,
        PART_BYTES - 1,
        PART_BYTES,
        PART_BYTES + 1,
        3 * PART_BYTES,
    ] {
        let whole: Vec<u8> = (0..size).map(|at| (at * 7 % 251) as u8).collect();
        let mut taken = Parts::default();
        // Twice: the next whole begins where one has ended.
        for _ in 0..2 {
            let cut: Vec<_> = parts(KEY, &whole).collect();
            assert_eq!(cut.len(), size.div_ceil(PART_BYTES).max(1));
            let (last, before) = cut.split_last().unwrap();
            for part in before {
                assert_eq!(taken.take(part), Ok(None));
            }
            assert_eq!(taken.take(last), Ok(Some(whole.clone())));
        }
    }
}

#[test]
fn parts_that_do_not_follow_each_other_are_refused() {
    let refused = [
        part(9, 3, b"abc"),
        part(2, 0, b"abc"),
        part(9, 0, b""),
        part(u64::MAX, u64::MAX, b"abc"),
    ];
    for first in refused {
        assert_eq!(Parts::default().take(&first), Err(BadPart), "{first:?}");
    }
    for second in [part(9, 4, b"abc"), part(8, 3, b"abc"), part(9, 3, b"")] {
        let mut taken = Parts::default();
        assert_eq!(taken.take(&part(9, 0, b"abc")), Ok(None));
        assert_eq!(taken.take(&second), Err(BadPart), "{second:?}");
    }
}

#[test]
fn who_begins_again_sends_all_of_it_again() {
    let mut taken = Parts::default();
    assert_eq!(taken.take(&part(9, 0, b"abc")), Ok(None));
    assert_eq!(taken.take(&part(6, 0, b"xyz")), Ok(None));
    // What is left of the first link comes late.
    assert_eq!(taken.take(&part(9, 3, b"def")), Err(BadPart));
    assert_eq!(
        taken.take(&part(6, 3, b"uvw")),
        Ok(Some(b"xyzuvw".to_vec()))
    );
}

proptest! {
    #[test]
    fn no_parts_make_it_panic_or_take_more_than_came(
        announced in prop::collection::vec((any::<u64>(), any::<u64>(), 0..9usize), 1..20)
    ) {
        let mut taken = Parts::default();
        let mut came = 0;
        for (whole, first, bytes) in announced {
            came += bytes;
            if let Ok(Some(whole)) = taken.take(&part(whole, first, &[7; 9][..bytes])) {
                prop_assert!(whole.len() <= came);
            }
        }
    }
}
