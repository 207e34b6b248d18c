//! Owns what slows the sources of a stream: the count of chunks that wait in this process for a
//! task that has enough to do. Tasks of streaming stages call it (`executor/slice/streaming.rs`),
//! to count chunks and to wait for room. It never slows chunks for another process.
//!
//! # Rules
//! * A chunk that a shard here has sent to another one here counts from then on until it was taken, or is dropped.
//! * A destination is *full* while its task is open, has what it needs to go on, and [`FULL_BYTES`] of chunks wait for it. A source that then returns
//!   pending is woken when it is full no more.
//! * A task that is not open yet, or that waits for what has not come, slows nobody: what comes for it is taken, and spilled where there is no room.
//! * What a shard sends to another process is not slowed: it is spilled there where it finds no room.
//!
//! # Why nothing waits for ever
//! A source waits for a task that is open and can go on: one that runs, will run, or waits itself for a destination that is full. Destinations stand
//! later in the program than their sources, so such a chain has an end, and there a task runs.

use brambling_memory::held::{self, Held};
use brambling_memory::mutants;
use std::sync::{Arc, Mutex};
use std::task::Waker;

/// So many bytes of chunks that wait slow their sources: enough to go on with while a source is woken, which takes some tens of microseconds. Less
/// lets a destination run dry; more takes memory for nothing.
const FULL_BYTES: u64 = 4 << 20;

/// What waits for a destination of a streamed exchange.
#[derive(Debug, Default)]
pub(crate) struct Flow(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    bytes: u64,
    /// Whether its task is open and has what it needs.
    is_busy: bool,
    /// Sources that wait for room.
    waiting: Vec<Waker>,
}

impl State {
    fn is_full(&self) -> bool {
        self.bytes >= FULL_BYTES
            && (self.is_busy || mutants::is_on("late-tasks-slow-their-sources"))
    }
}

/// A chunk that counts for as long as this is kept.
#[derive(Debug)]
pub(crate) struct Slows {
    flow: Arc<Flow>,
    bytes: u64,
}

impl Flow {
    /// A chunk waits from now on.
    pub(crate) fn add(self: &Arc<Flow>, bytes: u64) -> Slows {
        self.state().bytes += bytes;
        let flow = self.clone();
        Slows { flow, bytes }
    }

    /// Whether there is room; if not, `waker` is woken when there is.
    pub(crate) fn has_room(&self, waker: impl FnOnce() -> Waker) -> bool {
        let mut state = self.state();
        let is_full = state.is_full();
        if is_full {
            state.waiting.push(waker());
        }
        !is_full
    }

    /// The destination's task goes on, or waits for what has not come, or has ended.
    pub(crate) fn set_busy(&self, is_busy: bool) {
        self.change(|state| state.is_busy = is_busy);
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let waiting = match state.is_full() {
            true => Vec::new(),
            false => std::mem::take(&mut state.waiting),
        };
        // Unlocked first: a source that is woken may look here at once.
        drop(state);
        if !mutants::is_on("room-is-not-told") {
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    fn state(&self) -> Held<'_, State> {
        held::lock(&self.0)
    }
}

impl Drop for Slows {
    fn drop(&mut self) {
        self.flow.change(|state| state.bytes -= self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Only a task that is open and has enough to do slows its sources; whoever waits hears when it has less, or wants more.
    fn sources_are_slowed_and_woken() {
        let (flow, woken) = (Arc::new(Flow::default()), Arc::new(Woken::default()));
        let has_room = || flow.has_room(|| woken.clone().into());
        let times = || woken.0.load(Ordering::Relaxed);
        let first = flow.add(FULL_BYTES);
        let second = flow.add(1);
        assert!(has_room(), "nobody has begun");
        flow.set_busy(true);
        assert!(!has_room());
        drop(second);
        assert!(
            (!has_room(), times()) == (true, 0),
            "it has as much as it may"
        );
        drop(first);
        assert!((has_room(), times()) == (true, 2));
        let _third = flow.add(FULL_BYTES);
        assert!(!has_room());
        flow.set_busy(false);
        assert!(
            (has_room(), times()) == (true, 3),
            "it waits for something else"
        );
    }

    #[test]
    fn who_has_enough_slows_its_sources() {
        sources_are_slowed_and_woken();
    }

    #[cfg(feature = "mutants")]
    #[test]
    fn mutants_of_flows_are_caught() {
        for name in ["late-tasks-slow-their-sources", "room-is-not-told"] {
            brambling_memory::mutants::assert_caught(name, sources_are_slowed_and_woken);
        }
    }
}
