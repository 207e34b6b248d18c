//! A thread's own run queue: a set of shards that it goes round. Touched only inside its zone.

/// Which shards are to be run.
#[derive(Default)]
pub(super) struct Ready {
    words: Vec<u64>,
    /// Which words are not 0.
    summary: Vec<u64>,
    count: u32,
    cursor: u32,
}

impl Ready {
    pub(super) fn new(shards: usize) -> Ready {
        let words = shards.div_ceil(64).max(1);
        Ready {
            words: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
            count: 0,
            cursor: 0,
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

    #[inline]
    fn remove(&mut self, word: usize, place: u32) -> u32 {
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
            return None;
        }
        let word = self.cursor as usize / 64;
        let ahead = self.words[word] & (u64::MAX << (self.cursor % 64));
        let (word, bits) = if ahead != 0 {
            (word, ahead)
        } else {
            self.next_word(word)
        };
        let shard = self.remove(word, bits.trailing_zeros());
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
                bits &= (u64::MAX << (word % 64)) & !(1 << (word % 64));
            }
            if bits != 0 {
                let found = group * 64 + bits.trailing_zeros() as usize;
                return (found, self.words[found]);
            }
        }
        unreachable!("the count says that something is queued")
    }

    /// The shard that the owner would come to last: for a thief.
    pub(super) fn pop_last(&mut self) -> Option<u32> {
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
        // Those before the cursor come after those beyond it.
        let last = shards.max_by_key(|shard| (before(*shard), *shard))?;
        Some(self.remove(last as usize / 64, last % 64))
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
        let mut ready = Ready::new(10_000);
        for shard in [3, 70, 5_000, 9_999] {
            ready.insert(shard);
            ready.insert(shard);
        }
        assert_eq!(ready.len(), 4);
        assert_eq!(ready.pop(), Some(3));
        ready.insert(3);
        assert_eq!(ready.pop(), Some(70));
        assert_eq!(ready.pop_last(), Some(3));
        assert_eq!(ready.pop(), Some(5_000));
        ready.insert(1);
        assert_eq!(ready.pop(), Some(9_999));
        assert_eq!(ready.pop(), Some(1));
        assert_eq!(ready.pop(), None);
    }
}
