//! Sorts entries by their prefixes, stably.

/// A record: the prefix of its key, and where it lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordEntry {
    pub(super) prefix: u64,
    pub(super) chunk: u32,
    pub(super) offset: u32,
}

/// Sorts by prefixes; entries with equal ones stay in order, and are then given to `ties`, two or
/// more at once.
pub(super) fn sort(entries: &mut Vec<RecordEntry>, mut ties: impl FnMut(&mut [RecordEntry])) {
    entries.sort_by_key(|entry| entry.prefix);
    for tied in entries.chunk_by_mut(|a, b| a.prefix == b.prefix) {
        if tied.len() > 1 {
            ties(tied);
        }
    }
}
