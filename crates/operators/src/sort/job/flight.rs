//! Owns how much lies between the sources and the parts of one process: sources add what they send,
//! parts take it off, and a source that finds too much waits. It never waits itself.
//!
//! # Why nothing waits for ever
//! Parts take the chunks of the first source that is not done before those of later ones. Later
//! sources stop when all that is under way reaches the limit; the first one stops only at its own
//! chunks, and those can be taken, once there is room for them, which comes by spilling.

use brambling_memory::held;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::task::Waker;

/// Bytes between sources and parts.
#[derive(Debug)]
pub(super) struct Flight {
    /// None: chunks go to other processes, too, where somebody else takes them.
    limit_bytes: Option<u64>,
    state: Mutex<FlightState>,
}

#[derive(Debug, Default)]
struct FlightState {
    bytes: u64,
    /// By source.
    of: BTreeMap<u32, u64>,
    waiting: Vec<Waker>,
}

impl Flight {
    pub(super) fn new(limit_bytes: Option<u64>) -> Flight {
        Flight {
            limit_bytes,
            state: Mutex::default(),
        }
    }

    /// Whether a source may go on; otherwise its waker is woken when it may.
    pub(super) fn may_send(&self, source: u32, is_first: bool, waker: &Waker) -> bool {
        let Some(limit) = self.limit_bytes else {
            return true;
        };
        let mut state = held::lock(&self.state);
        let own = state.of.get(&source).copied().unwrap_or(0);
        let may = if is_first { own } else { state.bytes } < limit;
        if !may && !state.waiting.iter().any(|other| other.will_wake(waker)) {
            state.waiting.push(waker.clone());
        }
        may
    }

    pub(super) fn sent(&self, source: u32, bytes: u64) {
        if self.limit_bytes.is_some() {
            let mut state = held::lock(&self.state);
            state.bytes += bytes;
            *state.of.entry(source).or_default() += bytes;
        }
    }

    pub(super) fn taken(&self, source: u32, bytes: u64) {
        let Some(limit) = self.limit_bytes else {
            return;
        };
        let mut state = held::lock(&self.state);
        state.bytes -= bytes;
        let own = state.of.get_mut(&source);
        let own_left = own.map_or(0, |own| {
            *own -= bytes;
            *own
        });
        // It may be the first source that waits.
        let waiting = match own_left < limit {
            true => std::mem::take(&mut state.waiting),
            false => Vec::new(),
        };
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// A source has ended: another one is the first now.
    pub(super) fn look_again(&self) {
        let waiting = std::mem::take(&mut held::lock(&self.state).waiting);
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_source_can_always_send() {
        let (flight, waker) = (Flight::new(Some(100)), Waker::noop());
        flight.sent(1, 99);
        assert!(flight.may_send(1, false, waker));
        flight.sent(2, 500);
        assert!(!flight.may_send(1, false, waker), "much is under way");
        assert!(
            flight.may_send(0, true, waker),
            "nothing of it is the first one's"
        );
        flight.sent(0, 100);
        assert!(!flight.may_send(0, true, waker), "its own can be taken");
        flight.taken(0, 1);
        assert!(flight.may_send(0, true, waker));
        flight.taken(2, 500);
        flight.taken(1, 99);
        assert!(flight.may_send(1, false, waker));
    }
}
