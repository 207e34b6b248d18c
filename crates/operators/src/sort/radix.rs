//! Sorts entries by numbers, stably: from the highest digits down, and only by those that differ.
//!
//! The arena makes the numbers out of keys. A digit has as many bits as its entries need to come
//! into buckets of a few, up to what the caches can scatter into.

/// A record: eight bytes of its key as a number, and where it lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordEntry {
    pub(super) prefix: u64,
    pub(super) chunk: u32,
    pub(super) offset: u32,
}

/// Up to so many entries are sorted by insertion.
const INSERTED: usize = 24;

/// Sorts by prefixes; entries with equal ones stay in order. `room` is made as long as `entries`
/// where that is needed, and what it holds does not matter.
pub(super) fn sort(entries: &mut [RecordEntry], room: &mut Vec<RecordEntry>) {
    if entries.len() <= INSERTED {
        return insert(entries);
    }
    match order(entries) {
        Order::Ascending => {}
        Order::Falling => entries.reverse(),
        Order::Neither => {
            if room.len() < entries.len() {
                room.resize(entries.len(), RecordEntry::default());
            }
            let room = &mut room[..entries.len()];
            scatter(entries, room, Place::Here);
        }
    }
}

enum Order {
    Ascending,
    /// Each is less than the one before: none are equal, so they can be turned round.
    Falling,
    Neither,
}

fn order(entries: &[RecordEntry]) -> Order {
    let mut pairs = entries.windows(2);
    if entries.is_sorted_by_key(|entry| entry.prefix) {
        Order::Ascending
    } else if pairs.all(|pair| pair[0].prefix > pair[1].prefix) {
        Order::Falling
    } else {
        Order::Neither
    }
}

/// Where sorted entries have to be in the end.
#[derive(Clone, Copy)]
enum Place {
    Here,
    There,
}

/// Sorts what is in `here`; `there` is room.
fn scatter(here: &mut [RecordEntry], there: &mut [RecordEntry], place: Place) {
    if here.len() <= INSERTED {
        return match place {
            Place::Here => insert(here),
            Place::There => {
                there.copy_from_slice(here);
                insert(there);
            }
        };
    }
    let (low, high) = here.iter().fold((u64::MAX, 0), |(low, high), entry| {
        (low.min(entry.prefix), high.max(entry.prefix))
    });
    if low == high {
        if let Place::There = place {
            there.copy_from_slice(here);
        }
        return;
    }
    // A bucket for every four entries; counting more buckets than there are takes its time.
    match here.len() {
        ..256 => scatter_by::<5, 32>(here, there, place, low, high),
        256..2_048 => scatter_by::<8, 256>(here, there, place, low, high),
        _ => scatter_by::<11, 2_048>(here, there, place, low, high),
    }
}

/// Divides entries by the highest bits in which they differ, into two to the power of `BITS`
/// buckets, and sorts each.
fn scatter_by<const BITS: u32, const BUCKETS: usize>(
    here: &mut [RecordEntry],
    there: &mut [RecordEntry],
    place: Place,
    low: u64,
    high: u64,
) {
    let shift = (64 - (high - low).leading_zeros()).saturating_sub(BITS);
    let digit = |entry: &RecordEntry| ((entry.prefix - low) >> shift) as usize & (BUCKETS - 1);
    let mut ends = [0u32; BUCKETS];
    for entry in here.iter() {
        ends[digit(entry)] += 1;
    }
    let mut begin = 0;
    for end in &mut ends {
        begin += std::mem::replace(end, begin);
    }
    for entry in here.iter() {
        let end = &mut ends[digit(entry)];
        there[*end as usize] = *entry;
        *end += 1;
    }
    let place = match place {
        Place::Here => Place::There,
        Place::There => Place::Here,
    };
    let mut begin = 0;
    for end in ends {
        let bucket = begin..end as usize;
        begin = bucket.end;
        if !bucket.is_empty() {
            scatter(&mut there[bucket.clone()], &mut here[bucket], place);
        }
    }
}

fn insert(entries: &mut [RecordEntry]) {
    for at in 1..entries.len() {
        let entry = entries[at];
        let mut to = at;
        while to > 0 && entries[to - 1].prefix > entry.prefix {
            entries[to] = entries[to - 1];
            to -= 1;
        }
        entries[to] = entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(prefixes: &[u64]) {
        let entry = |(at, &prefix): (usize, &u64)| RecordEntry {
            prefix,
            chunk: 7,
            offset: at as u32,
        };
        let mut entries: Vec<RecordEntry> = prefixes.iter().enumerate().map(entry).collect();
        let mut expected = entries.clone();
        expected.sort_by_key(|entry| entry.prefix);
        let mut room = Vec::new();
        sort(&mut entries, &mut room);
        assert!(entries == expected, "{prefixes:?}");
    }

    #[test]
    fn entries_in_every_order_are_sorted_stably() {
        let many = 0..3_000u64;
        check(&[]);
        check(&many.clone().collect::<Vec<_>>());
        check(&many.clone().rev().collect::<Vec<_>>());
        // Falling with equal ones in between: turned round, these would change places.
        check(&many.clone().rev().map(|it| it / 3).collect::<Vec<_>>());
        check(&many.clone().map(|_| 5).collect::<Vec<_>>());
        check(&many.clone().map(|it| it * 7 % 5).collect::<Vec<_>>());
        check(
            &many
                .clone()
                .map(|it| [0, u64::MAX][it as usize % 2])
                .collect::<Vec<_>>(),
        );
        // Clusters that only low bits tell apart.
        check(
            &many
                .map(|it| ((it % 3) << 60) | (it * 7_919 % 512))
                .collect::<Vec<_>>(),
        );
    }

    proptest! {
        #[test]
        fn any_entries_are_sorted_stably(seeds in proptest::collection::vec(any::<u64>(), 0..2_000),
                                         mask in any::<u64>(), sparse in any::<u64>()) {
            let masked: Vec<u64> = seeds.iter().map(|seed| seed & mask & sparse).collect();
            check(&masked);
        }
    }
}
