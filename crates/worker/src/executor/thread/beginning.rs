//! How a thread begins with a job: shards are made, and queued when all of them are.
#![allow(unsafe_code)] // Touches its ready queue under its queue lock.

use super::JobThread;
use std::time::{Duration, Instant};

/// How long a thread waits for others to make their shards, before it makes them itself: long against a wake-up and a turn of another job, short
/// against a kernel in which the other may be.
const MADE_FOR_OTHERS_AFTER: Duration = Duration::from_millis(5);

/// How far a thread is with a job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The shards that were placed here are to be made.
    New,
    /// They are; those of a thread that is elsewhere are this one's to make, if it does not come by then.
    Waiting(Instant),
    /// All are being made.
    Settled,
    Started,
}

impl JobThread<'_> {
    /// Makes the shards that were placed here, and those of threads that do not come; queues those whose home this is when all are made. Whether
    /// that is done.
    pub(super) fn begin(&mut self) -> bool {
        let job = self.job;
        match self.stage {
            Stage::New => {
                job.settle(self.me, self.me);
                self.stage = Stage::Waiting(Instant::now() + MADE_FOR_OTHERS_AFTER);
            }
            // The other thread may be in a long kernel of another job. Whoever makes its shards
            // becomes their home, so the job does not wait.
            Stage::Waiting(until) if job.started.get().is_none() && Instant::now() >= until => {
                (0..job.threads()).for_each(|placed| job.settle(placed, self.me));
                self.stage = Stage::Settled;
            }
            _ => {}
        }
        if self.stage != Stage::Started && job.started.get().is_some() {
            self.stage = Stage::Started;
            let all = 0..job.residents.len() as u32;
            // Not those that a thief has already taken.
            // Each thread looks at all: those of a late thread have become somebody's by now, and
            // nobody keeps a list.
            for number in all.filter(|number| job.belongs_to(*number, self.me)) {
                // SAFETY: under our own queue lock; the reference ends with the statement.
                unsafe { job.ready(self.me) }.insert(number);
            }
            // Told before the first kernel, which may be long: a thread that comes late may have no
            // shards of its own, and looks here.
            self.tell_queued();
            self.share_work();
            self.clock = Instant::now();
            self.has_begun();
        }
        self.stage == Stage::Started
    }
}
