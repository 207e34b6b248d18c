//! How a thread keeps its book: what it waits for when it has nothing to run, and whose time it was while it was elsewhere.

use super::{JobThread, Stage};
use crate::executor::book::Book;
use crate::executor::ledger::TimePart;
use brambling_memory::held;
use brambling_storage::files_under_way;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl JobThread<'_> {
    /// The thread begins to work for the job, at the time that it has just read.
    pub(super) fn open_book(&mut self) {
        let kept = held::lock(&self.job.accounts.books[self.me as usize]).take();
        let job = self.job;
        let sizes = (job.plan.program.spec().stages.len(), job.residents.len());
        let book = kept.unwrap_or_else(|| Box::new(Book::new(job.accounts.asked, sizes)));
        let book = self.book.insert(book);
        let part = match self.job.started.get() {
            None => TimePart::Startup,
            // The calling thread has nothing else to do: its stages wait for others.
            Some(_) if self.me == self.job.threads() => TimePart::Exchange,
            Some(_) if self.job.shares() => TimePart::OtherJobs,
            Some(_) => TimePart::Exchange,
        };
        book.wait(self.clock, part);
    }

    /// It turns to something else. What it ran and has not accounted for goes to the book.
    pub(super) fn close_book(&mut self) {
        if self.slices > 0 {
            self.read_clock();
        }
        *held::lock(&self.job.accounts.books[self.me as usize]) = self.book.take();
    }

    /// The time up to now goes to the book: slices, when some have run since the last time.
    pub(super) fn account(&mut self, now: Instant) {
        let tasks = std::mem::take(&mut self.untold_tasks);
        let has_run = self.slices > 0;
        let part = match has_run {
            true => TimePart::Kernels,
            false => self.sleeps_for.take().unwrap_or_else(|| self.waits_for()),
        };
        let Some(book) = &mut self.book else {
            return;
        };
        match has_run {
            true => book.ran(now, tasks, &self.ran[..self.slices as usize]),
            false => book.wait(now, part),
        }
        self.is_due = book.is_due(now);
    }

    /// All shards are made, as the clock has just told: what was before was the job's startup.
    pub(super) fn has_begun(&mut self) {
        if let Some(book) = &mut self.book {
            book.wait(self.clock, TimePart::Startup);
        }
    }

    /// The thread goes to sleep. A request of a file that wakes it has ended by then, so whether it waits for one is seen now;
    /// everything else is seen when it wakes.
    pub(super) fn sleeps(&mut self) {
        let part = self.waits_for();
        self.sleeps_for = (part == TimePart::Disk).then_some(part);
    }

    /// What a thread that has nothing to run waits for, as far as it can see. A stream that has no room for what it sends waits for
    /// the disk too where its destination does, so that files come before memory.
    fn waits_for(&self) -> TimePart {
        let job = self.job;
        if self.stage != Stage::Started && self.me < job.threads() {
            return TimePart::Startup;
        }
        let caller = &job.thread_states[job.threads() as usize];
        // Relaxed, all of them: an estimate.
        let is_at_work = caller.runs().is_some() || caller.doorbell.has_any();
        if is_at_work || caller.queued.0.load(Ordering::Relaxed) > 0 {
            TimePart::Interpreter
        } else if files_under_way() > 0 {
            TimePart::Disk
        } else if job.accounts.lacking_room.load(Ordering::Relaxed) > 0 {
            TimePart::Memory
        } else if job.options.spilled.is_reading() {
            TimePart::Disk
        } else {
            TimePart::Exchange
        }
    }
}
