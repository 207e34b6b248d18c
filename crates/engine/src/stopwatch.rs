//! Time as a program takes it: a stage of one shard notes when it runs, in whatever process that is.

use brambling_program::{Dataset, Payload, Program};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// When a shard's stages ran: how long it was from the first note to the second, and from there to the last.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Stopwatch {
    notes: u64,
    first: Duration,
    rest: Duration,
    /// Since 1970, for a process that does not have `last`: this one came there with its shard.
    last_date: Duration,
    #[serde(skip)]
    last: Option<Instant>,
}
brambling_program::payload!(Stopwatch);

impl Stopwatch {
    /// Adds a stopwatch that the program's first stage starts.
    pub(crate) fn start(p: &mut Program) -> Dataset<Stopwatch> {
        let watch = p.dataset::<Stopwatch>("stopwatch", 1);
        p.compute("start stopwatch")
            .update(&watch)
            .run(Stopwatch::note);
        watch
    }

    /// Adds a note of when `after`, of one partition, has been written.
    pub(crate) fn look<T: Payload>(
        p: &mut Program,
        watch: &Dataset<Stopwatch>,
        after: &Dataset<T>,
    ) {
        p.compute("look at stopwatch")
            .read(after)
            .update(watch)
            .run(|_: &T, watch: &mut Stopwatch| watch.note());
    }

    fn note(&mut self) {
        let now = Instant::now();
        let date = SystemTime::now().duration_since(UNIX_EPOCH);
        let date = date.unwrap_or_default();
        let passed = match self.last {
            Some(last) => now - last,
            None => date.saturating_sub(self.last_date),
        };
        match self.notes {
            0 => {}
            1 => self.first = passed,
            _ => self.rest += passed,
        }
        self.notes += 1;
        (self.last, self.last_date) = (Some(now), date);
    }

    /// From the first note to the second.
    pub(crate) fn first(&self) -> Duration {
        self.first
    }

    /// From the second note to the last.
    pub(crate) fn rest(&self) -> Duration {
        self.rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_in_another_process() {
        let mut watch = Stopwatch::default();
        watch.note();
        std::thread::sleep(Duration::from_millis(5));
        watch.note();
        let mut bytes = Vec::new();
        watch.encode(&mut bytes);
        std::thread::sleep(Duration::from_millis(5));
        let mut moved = Stopwatch::decode(&mut bytes.as_slice()).unwrap();
        assert_eq!(moved.first(), watch.first());
        assert!(moved.first() >= Duration::from_millis(5));
        moved.note();
        assert!(moved.rest() >= Duration::from_millis(4), "{moved:?}");
        assert_eq!(watch.rest(), Duration::ZERO);
    }
}
