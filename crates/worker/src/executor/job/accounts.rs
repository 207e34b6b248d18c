//! What a job's threads say of their time, put together when it has ended.

use super::Job;
use crate::executor::book::Book;
use crate::executor::ledger::{BookedMoment, JobLedger, StageTotals, ThreadTimes, TimePart};
use brambling_memory::held;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a job's threads keep of their time while it runs.
pub(in crate::executor) struct JobAccounts {
    /// What each thread knows of its own, while it does not work; none before it begins.
    pub(in crate::executor) books: Box<[Mutex<Option<Box<Book>>>]>,
    /// When whoever wants the job asked for it, and how many nanoseconds later it ended: 0 before.
    pub(in crate::executor) asked: Instant,
    pub(in crate::executor) ended_ns: AtomicU64,
    /// Open tasks of streams that found no room at their destination.
    pub(in crate::executor) lacking_room: AtomicU32,
}

impl JobAccounts {
    /// Of so many threads and the calling one.
    pub(super) fn new(threads: u32, asked: Option<Instant>) -> JobAccounts {
        JobAccounts {
            books: (0..=threads).map(|_| Mutex::default()).collect(),
            asked: asked.unwrap_or_else(Instant::now),
            ended_ns: AtomicU64::new(0),
            lacking_room: AtomicU32::new(0),
        }
    }
}

impl Job {
    /// What the job did and where its threads' time went. To be called when it has ended: well, or with a failure.
    pub fn ledger(&mut self) -> JobLedger {
        let tally = self.tally();
        let end = self.ended();
        let mut ledger = JobLedger {
            wall_ns: (end - self.accounts.asked).as_nanos() as u64,
            tasks: tally.tasks,
            budget_bytes: self.options.budget.budget_bytes(),
            peak_bytes: tally.peak_bytes,
            ..JobLedger::default()
        };
        (ledger.spilled_bytes, ledger.read_back_bytes) = self.options.spilled.totals();
        if let Some(remote) = &self.remote {
            ledger.sent_bytes = remote.sent_bytes.load(Ordering::Relaxed);
            ledger.received_bytes = remote.received_bytes.load(Ordering::Relaxed);
        }
        self.tell_threads(end, &mut ledger);
        self.tell_shards(&mut ledger);
        ledger
    }

    /// Shards of a group are alike, unless something is wrong; those of another one may do something else.
    fn tell_shards(&mut self, ledger: &mut JobLedger) {
        // Of each group here: shards, nanoseconds of all of them, and of the longest.
        let mut groups = vec![(0u32, 0u64, 0u64); self.plan.codes.len()];
        let mut ran = vec![0u64; self.residents.len()];
        for book in &self.accounts.books {
            if let Some(book) = &*held::lock(book) {
                ran.iter_mut()
                    .zip(book.shards())
                    .for_each(|(sum, ns)| *sum += ns);
            }
        }
        for (resident, ns) in self.residents.iter_mut().zip(ran) {
            if resident.body.get_mut().is_some() {
                let (shards, sum, longest) = &mut groups[resident.group.index()];
                *shards += 1;
                *sum += ns;
                *longest = ns.max(*longest);
            }
        }
        ledger.shards = groups.iter().map(|(shards, ..)| shards).sum();
        let several = groups.into_iter().filter(|(shards, ..)| *shards > 1);
        if let Some((shards, sum, longest)) = several.max_by_key(|(_, sum, _)| *sum) {
            ledger.longest_shard_ns = longest;
            ledger.mean_shard_ns = sum / u64::from(shards);
        }
    }

    /// When it ended; a job that failed before it was noted ends now.
    fn ended(&self) -> Instant {
        match self.accounts.ended_ns.load(Ordering::Relaxed) {
            0 => Instant::now(),
            ns => self.accounts.asked + Duration::from_nanos(ns),
        }
    }

    fn tell_threads(&self, end: Instant, ledger: &mut JobLedger) {
        let mut stages = vec![StageTotals::default(); self.plan.program.spec().stages.len()];
        for (thread, book) in self.accounts.books.iter().enumerate() {
            let is_caller = thread == self.threads() as usize;
            let book = held::lock(book);
            let moments = match &*book {
                Some(book) => book.close(end),
                // The calling thread has run nothing, and a thread of the pool came too late for all.
                None if is_caller => continue,
                None => vec![absent(ledger.wall_ns)],
            };
            ledger.threads.push(ThreadTimes { is_caller, moments });
            let Some(book) = &*book else { continue };
            for ((sum, ns), work) in stages.iter_mut().zip(book.kernels()).zip(book.works()) {
                sum.kernel_ns += ns;
                sum.work.add(*work);
            }
            let last = book
                .last_task()
                .map(|at| at.saturating_duration_since(self.accounts.asked));
            let last_ns = last.map_or(0, |last| last.as_nanos() as u64);
            ledger.last_task_ns = ledger.last_task_ns.max(last_ns.min(ledger.wall_ns));
        }
        let stages = (0..).zip(stages);
        ledger.stages = stages
            .filter(|(_, times)| *times != StageTotals::default())
            .collect();
    }
}

/// Of a thread that never came to the job: it was waking up.
fn absent(wall_ns: u64) -> BookedMoment {
    let mut moment = BookedMoment::default();
    moment.parts[TimePart::Startup as usize] = wall_ns;
    moment
}
