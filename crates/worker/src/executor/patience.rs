//! How long a thread that waits for other workers polls before it sleeps.
//!
//! Whoever sleeps is woken by the transport's helper, which has to wake up itself before, and which takes by itself what comes meanwhile: a wait
//! that is over soon is better polled through. How long waits are depends on what the others compute, so a thread polls [`FACTOR`] times as
//! long as it had to wait lately. Not where they are longer than [`MOST`], nor where somebody else wants the processor, who may be the one
//! that is waited for: polling keeps him from it.

use std::time::Duration;

/// What waking up costs, twice: the helper, and then the thread. Both want a processor that a neighbour may have by then.
const LEAST: Duration = Duration::from_micros(400);
/// Whoever waits for longer sleeps: a processor that polls for more is dear, and a wake-up is little
/// beside so long a wait.
const MOST: Duration = Duration::from_millis(4);
/// A thread polls for so many times the last wait: the next one may be longer.
const FACTOR: u32 = 2;
/// Such a part of its patience a thread loses after a shorter wait.
const FORGOTTEN_PART: u32 = 8;
/// Between two looks of who polls there are some microseconds: after so long somebody else had the processor, and not our own helper, who is
/// quicker than that.
const AWAY: Duration = Duration::from_micros(500);

#[derive(Debug)]
pub(super) struct Patience {
    now: Duration,
    was_away: bool,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            now: LEAST,
            was_away: false,
        }
    }
}

impl Patience {
    /// How long to poll while nothing comes.
    pub(super) fn time(&self) -> Duration {
        self.now
    }

    /// So long after the look before, while nothing came, the thread looks again.
    pub(super) fn looks_after(&mut self, time: Duration) {
        self.was_away |= time >= AWAY;
    }

    /// A wait is over, and for so long nothing had come in it.
    pub(super) fn waited(&mut self, time: Duration) {
        let wanted = time * FACTOR;
        let is_in_vain = std::mem::take(&mut self.was_away) || wanted > MOST;
        self.now = match is_in_vain {
            true => LEAST,
            // Little by little: one short wait says nothing of the next.
            false => wanted.max(self.now - self.now / FORGOTTEN_PART).max(LEAST),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(20);
    const LONG: Duration = Duration::from_micros(1_500);

    #[test]
    fn polls_for_twice_as_long_as_it_had_to_wait() {
        let mut patience = Patience::default();
        assert_eq!(patience.time(), LEAST);
        patience.waited(LONG);
        assert_eq!(patience.time(), LONG * 2);
        patience.waited(SHORT);
        assert!(patience.time() > LONG, "the next may be long again");
        (0..30).for_each(|_| patience.waited(SHORT));
        assert_eq!(patience.time(), LEAST);
    }

    #[test]
    fn polls_no_longer_where_that_is_in_vain() {
        let mut patience = Patience::default();
        patience.waited(LONG);
        patience.waited(MOST);
        assert_eq!(patience.time(), LEAST, "it would sleep all the same");
        patience.waited(LONG);
        patience.looks_after(SHORT);
        patience.looks_after(AWAY);
        patience.looks_after(SHORT);
        patience.waited(LONG);
        assert_eq!(patience.time(), LEAST, "others want the processor");
        patience.looks_after(SHORT);
        patience.waited(LONG);
        assert_eq!(patience.time(), LONG * 2, "they do no longer");
    }
}
