//! What happens when: a queue for a hundred million events, most of them a millisecond ahead.
//!
//! A radix heap. Time only goes forward, so an event is put by the highest bit in which its time differs from now; when now reaches its
//! bucket, the bucket is spread over lower ones. Each event is moved a few times, from one list to the end of another, where a binary
//! heap of as many events as there are cores would miss the cache at every level.

use super::Nanos;
use std::collections::VecDeque;

/// Events by their time; those at one time in the order in which they were noted.
pub(super) struct Agenda<E> {
    now: Nanos,
    /// By the number of bits up to the highest in which times differ from now; the first is due.
    buckets: Vec<Vec<(Nanos, E)>>,
    due: VecDeque<E>,
    noted: u64,
}

impl<E> Agenda<E> {
    pub(super) fn new() -> Agenda<E> {
        Agenda {
            now: 0,
            buckets: (0..=Nanos::BITS).map(|_| Vec::new()).collect(),
            due: VecDeque::new(),
            noted: 0,
        }
    }

    /// # Panics
    /// When the time is over.
    pub(super) fn note(&mut self, at: Nanos, event: E) {
        assert!(at >= self.now, "an event in the past");
        self.noted += 1;
        self.put(at, event);
    }

    fn put(&mut self, at: Nanos, event: E) {
        match Nanos::BITS - (at ^ self.now).leading_zeros() {
            0 => self.due.push_back(event),
            // Equal times are always in one bucket, and stay in their order.
            bits => self.buckets[bits as usize].push((at, event)),
        }
    }

    pub(super) fn next(&mut self) -> Option<(Nanos, E)> {
        while self.due.is_empty() {
            let lowest = self.buckets.iter().position(|it| !it.is_empty())?;
            let mut events = std::mem::take(&mut self.buckets[lowest]);
            let earliest = events.iter().map(|(at, _)| *at).min();
            self.now = earliest.expect("it is not empty");
            for (at, event) in events.drain(..) {
                self.put(at, event);
            }
            // All of them are in lower ones now; the buffer stays for the next.
            self.buckets[lowest] = events;
        }
        self.due.pop_front().map(|event| (self.now, event))
    }

    /// How many events have been noted so far.
    pub(super) fn noted(&self) -> u64 {
        self.noted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches events that are lost, come too early, or overtake others of their time.
    #[test]
    fn events_come_by_time_and_in_their_order() {
        let mut agenda = Agenda::new();
        let mut random = 1u64;
        let mut expected = Vec::new();
        let (mut number, mut now) = (0, 0);
        let mut came = Vec::new();
        for _ in 0..2_000 {
            for _ in 0..3 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let at = now + (random >> 33) % 500 * ((random >> 50) % 3);
                agenda.note(at, number);
                expected.push((at, number));
                number += 1;
            }
            for _ in 0..2 {
                let next = agenda.next().expect("more were noted than taken");
                now = next.0;
                came.push(next);
            }
        }
        came.extend(std::iter::from_fn(|| agenda.next()));
        assert_eq!(agenda.noted(), 6_000);
        expected.sort_unstable();
        assert_eq!(came, expected);
    }
}
