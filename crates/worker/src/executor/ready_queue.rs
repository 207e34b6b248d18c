//! Owns the set of shards that a thread has to run, and goes round it. The thread calls it, and a
//! thief that has locked the thread out. It is never touched outside of the thread's queue lock,
//! and never looks into a shard.

/// How many shards are remembered as urgent.
const URGENT_MAX: usize = 64;

/// Which shards are to be run. On lines of its own: only its thread writes them, and often.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct ReadyQueue {
    words: Vec<u64>,
    /// Which words are not 0.
    summary: Vec<u64>,
    count: u32,
    cursor: u32,
    /// Those that another thread woke: it may be waiting for what they send.
    urgent: Vec<u32>,
    was_urgent: bool,
}

impl ReadyQueue {
    pub(super) fn new(shards: usize) -> ReadyQueue {
        let words = shards.div_ceil(64).max(1);
        ReadyQueue {
            words: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
            count: 0,
            cursor: 0,
            urgent: Vec::new(),
            was_urgent: false,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.count
    }

    #[inline]
    pub(super) fn insert(&mut self, shard: u32) {
        let (word, bit) = (shard as usize / 64, 1 << (shard % 64));
        if self.words[word] & bit == 0 {
            self.words[word] |= bit;
            self.summary[word / 64] |= 1 << (word % 64);
            self.count += 1;
        }
    }

    /// As [`ReadyQueue::insert`], to be run soon: every other turn goes to such shards, so that nobody starves.
    pub(super) fn insert_urgent(&mut self, shard: u32) {
        self.insert(shard);
        if self.urgent.len() == URGENT_MAX {
            // Most in the list have had their turn since; the others stay in the queue all the
            // same.
            self.urgent.clear();
        }
        self.urgent.push(shard);
    }

    #[cold]
    fn pop_urgent(&mut self) -> Option<u32> {
        while let Some(shard) = self.urgent.pop() {
            let (word, place) = (shard as usize / 64, shard % 64);
            // The shard may have had its turn, or been stolen, since it was woken.
            if self.words[word] >> place & 1 == 1 {
                return Some(self.take(word, place));
            }
        }
        None
    }

    /// Takes a shard out, if it is queued.
    pub(super) fn remove(&mut self, shard: u32) -> bool {
        let (word, place) = (shard as usize / 64, shard % 64);
        let is_queued = self.words[word] >> place & 1 == 1;
        if is_queued {
            self.take(word, place);
        }
        is_queued
    }

    #[inline]
    fn take(&mut self, word: usize, place: u32) -> u32 {
        self.words[word] &= !(1 << place);
        if self.words[word] == 0 {
            self.summary[word / 64] &= !(1 << (word % 64));
        }
        self.count -= 1;
        word as u32 * 64 + place
    }

    /// The next shard after the one taken last: everybody gets a turn.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<u32> {
        if self.count == 0 {
            self.urgent.clear();
            return None;
        }
        // Alternating: a stream of urgent shards would else keep the others from running for ever.
        self.was_urgent = !self.urgent.is_empty() && !self.was_urgent;
        if self.was_urgent
            && let Some(shard) = self.pop_urgent()
        {
            return Some(shard);
        }
        let word = self.cursor as usize / 64;
        // Only what lies ahead of the last one taken: whoever was queued again just now comes after
        // all others.
        let ahead = self.words[word] & (u64::MAX << (self.cursor % 64));
        let (word, bits) = if ahead != 0 {
            (word, ahead)
        } else {
            self.next_word(word)
        };
        let shard = self.take(word, bits.trailing_zeros());
        self.cursor = (shard + 1) % (self.words.len() as u32 * 64);
        Some(shard)
    }

    /// The next word that is not 0, going round; there is one.
    fn next_word(&self, word: usize) -> (usize, u64) {
        let groups = self.summary.len();
        let start = word / 64;
        for step in 0..=groups {
            let group = (start + step) % groups;
            let mut bits = self.summary[group];
            if step == 0 {
                // In the first group only the words after this one count: this word has no bits
                // ahead. The last step looks at the whole group once more.
                bits &= (u64::MAX << (word % 64)) & !(1 << (word % 64));
            }
            if bits != 0 {
                let found = group * 64 + bits.trailing_zeros() as usize;
                return (found, self.words[found]);
            }
        }
        unreachable!("the count says that something is queued")
    }

    /// The shard that the owner would come to last: for a thief. Not the one that the owner runs: it may be queued to be run again.
    pub(super) fn pop_last(&mut self, runs: Option<u32>) -> Option<u32> {
        if self.count == 0 {
            return None;
        }
        let before = |shard: u32| shard < self.cursor;
        let all = self
            .summary
            .iter()
            .enumerate()
            .flat_map(|(group, bits)| ones(*bits).map(move |bit| group * 64 + bit));
        let shards =
            all.flat_map(|word| ones(self.words[word]).map(move |bit| (word * 64 + bit) as u32));
        // Shards before the cursor come after those beyond it.
        let others = shards.filter(|shard| Some(*shard) != runs);
        let last = others.max_by_key(|shard| (before(*shard), *shard))?;
        Some(self.take(last as usize / 64, last % 64))
    }
}

fn ones(bits: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |bit| bits >> bit & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_gets_a_turn_and_thieves_take_the_last() {
        let mut ready = ReadyQueue::new(10_000);
        for shard in [3, 70, 5_000, 9_999] {
            ready.insert(shard);
            ready.insert(shard);
        }
        assert_eq!(ready.len(), 4);
        assert_eq!(ready.pop(), Some(3));
        ready.insert(3);
        assert_eq!(ready.pop(), Some(70));
        assert_eq!(ready.pop_last(None), Some(3));
        assert_eq!(ready.pop(), Some(5_000));
        ready.insert(1);
        assert_eq!(ready.pop_last(Some(1)), Some(9_999));
        assert_eq!(ready.pop_last(Some(1)), None);
        ready.insert(9_999);
        ready.insert(70);
        assert!(ready.remove(70) && !ready.remove(70));
        assert_eq!(ready.pop(), Some(9_999));
        assert_eq!(ready.pop(), Some(1));
        assert_eq!(ready.pop(), None);
    }

    #[test]
    fn the_urgent_come_first_every_other_time() {
        let mut ready = ReadyQueue::new(100);
        (0..4).for_each(|shard| ready.insert(shard));
        ready.insert_urgent(50);
        ready.insert_urgent(60);
        // Woken twice and run once: not run again for the second wake-up.
        ready.insert_urgent(60);
        let order: Vec<u32> = std::iter::from_fn(|| ready.pop()).collect();
        assert_eq!(order, [60, 0, 50, 1, 2, 3]);
        ready.insert(5);
        assert_eq!((ready.pop(), ready.pop()), (Some(5), None));
    }
}
