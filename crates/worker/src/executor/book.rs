//! Owns one thread's account of its time for one job: every nanosecond from the job's begin to its end is put to a part, once a
//! slice and once a wait. The thread's loop calls it; a job keeps it while the thread is elsewhere. No task touches it, but
//! those of a slice that is sampled.
//!
//! # How kernels and scheduling are told apart
//! Two readings of the clock around a call would cost as much as a short task. So each call is timed only in slices of long tasks;
//! of short ones a few calls are timed about once a millisecond, and slices until the next sample are taken for alike.

use super::inside::{self, Waited};
use super::ledger::{BookedMoment, PARTS, PartTimes, TimePart};
use super::sampling::{TimedSample, clock_ns};
use brambling_program::Work;
use std::time::{Duration, Instant};

/// Moments that a thread keeps. At the last one each two become one, and from then on a moment takes twice as long.
pub(super) const MOMENTS_MAX: usize = 1024;
/// How long a moment takes at least: half a slice, so that a short job is shown slice by slice.
const MOMENT_NS: u64 = 50_000;
/// How often short tasks are sampled: a sample costs some five microseconds, half a percent of this.
const SAMPLED_EACH: Duration = Duration::from_millis(1);
/// Calls that a sample of short tasks times at most.
pub(super) const SAMPLED_CALLS: u32 = 64;
/// A share of at most so many tasks means long ones, of twelve microseconds and more: each is timed, for a hundredth of that.
pub(super) const LONG_SHARE: u32 = 8;

/// One thread's account.
pub(super) struct Book {
    /// Up to where the thread's time is accounted for.
    until: Instant,
    /// When its last task ended.
    last_task: Option<Instant>,
    moments: Vec<BookedMoment>,
    least_ns: u64,
    /// The one at hand, and how long it has taken.
    moment: BookedMoment,
    moment_ns: u64,
    /// For what it has waited since its last task, and for how long in all. At the job's end it turns out to be for stragglers.
    waited: PartTimes,
    waited_ns: u64,
    /// Nanoseconds in kernels, by stage.
    kernels: Box<[u64]>,
    /// Nanoseconds of slices, by the shard's number: each has its part of what several took together.
    shards: Box<[u64]>,
    works: Box<[Work]>,
    sample: TimedSample,
    mix: Mix,
    sampled: Option<Instant>,
}

/// Of the time of slices of short tasks, which part kernels take, by the last sample.
#[derive(Clone, Default)]
struct Mix {
    /// By stage.
    shares: Vec<(u32, f64)>,
    /// Of all stages, and of the one that has most.
    share: f64,
    longest: Option<(u32, f64)>,
    /// What was divided by it, and is in no stage's sum yet.
    ns: u64,
}

impl Mix {
    /// The shares are new. Samples of very short calls are noisy: together they must not be more than the whole.
    fn sum_up(&mut self) {
        let sum: f64 = self.shares.iter().map(|(_, share)| share).sum();
        let scale = 1.0 / sum.max(1.0);
        self.shares
            .iter_mut()
            .for_each(|(_, share)| *share *= scale);
        self.share = sum * scale;
        let longest = self
            .shares
            .iter()
            .max_by(|one, other| one.1.total_cmp(&other.1));
        self.longest = longest.copied();
    }

    /// Gives each stage its part.
    fn settle(&mut self, kernels: &mut [u64]) {
        let ns = std::mem::take(&mut self.ns) as f64;
        for (stage, share) in &self.shares {
            kernels[*stage as usize] += (ns * share) as u64;
        }
    }
}

/// The stage that took most of a moment: this one, if it took longer.
fn most(longest: &mut Option<(u32, u64)>, stage: u32, ns: u64) {
    if longest.is_none_or(|(_, most)| ns > most) {
        *longest = Some((stage, ns));
    }
}

impl Book {
    /// Of a program of so many stages and shards, for a job that began then.
    pub(super) fn new(begun: Instant, (stages, shards): (usize, usize)) -> Book {
        Book {
            until: begun,
            last_task: None,
            moments: Vec::new(),
            least_ns: MOMENT_NS,
            moment: BookedMoment::default(),
            moment_ns: 0,
            waited: [0; PARTS],
            waited_ns: 0,
            kernels: vec![0; stages].into(),
            shards: vec![0; shards].into(),
            works: vec![Work::default(); stages].into(),
            sample: TimedSample {
                ns: vec![0; stages].into(),
                touched: Vec::new(),
                calls: 0,
                is_short: false,
            },
            mix: Mix::default(),
            sampled: None,
        }
    }

    /// What a sampled slice, and a slice's kernels, write to.
    pub(super) fn lend(&mut self, is_short: bool) -> (&mut TimedSample, &mut [Work]) {
        self.sample.is_short = is_short;
        (&mut self.sample, &mut self.works)
    }

    /// Whether the next slice of short tasks is to be sampled. `now` may be some slices old.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.sampled
            .is_none_or(|at| now.duration_since(at) >= SAMPLED_EACH)
    }

    /// The time until now was for this, without a task.
    pub(super) fn wait(&mut self, now: Instant, part: TimePart) {
        let ns = self.pass(now);
        self.waited[part as usize] += ns;
        self.waited_ns += ns;
    }

    /// The time until now was for slices of these shards, in which so many tasks ended. What was timed of them is in the sample, when they
    /// were sampled.
    pub(super) fn ran(&mut self, now: Instant, tasks: u64, shards: &[u32]) {
        if self.waited_ns > 0 {
            for (sum, ns) in self.moment.parts.iter_mut().zip(&mut self.waited) {
                *sum += std::mem::take(ns);
            }
            self.moment_ns += std::mem::take(&mut self.waited_ns);
        }
        let ns = self.pass(now);
        if let [shard] = shards {
            self.shards[*shard as usize] += ns;
        } else {
            for shard in shards {
                self.shards[*shard as usize] += ns / shards.len() as u64;
            }
        }
        self.last_task = Some(now);
        self.moment.tasks += tasks;
        let inside = inside::take();
        for (part, ns) in inside.parts() {
            self.moment.parts[part as usize] += ns;
        }
        let rest = ns.saturating_sub(inside.ns());
        let kernels = match self.sample.calls {
            0 => self.split_alike(rest),
            _ => self.split_sampled(rest, inside),
        };
        self.moment.parts[TimePart::Kernels as usize] += kernels;
        self.moment.parts[TimePart::Scheduling as usize] += rest - kernels;
        self.moment_ns += ns;
        if self.moment_ns >= self.least_ns {
            self.end_moment();
        }
    }

    /// The kernels' part of a slice whose calls were timed.
    fn split_sampled(&mut self, rest: u64, inside: Waited) -> u64 {
        let timed: u64 = self
            .sample
            .touched
            .iter()
            .map(|it| self.sample.ns[*it as usize])
            .sum();
        // What was waited for inside a call is not the kernel's; and readings of the clock are not the slice's.
        let scale = timed.saturating_sub(inside.ns()) as f64 / timed.max(1) as f64;
        let slice = rest
            .saturating_sub(2 * self.sample.calls * clock_ns())
            .max(1) as f64;
        let is_short = self.sample.is_short;
        if is_short {
            self.sampled = Some(self.until);
            self.mix.settle(&mut self.kernels);
            self.mix.shares.clear();
        }
        let mut kernels = 0;
        for stage in &self.sample.touched {
            let ns = (self.sample.ns[*stage as usize] as f64 * scale) as u64;
            let ns = ns.min(rest - kernels);
            if is_short {
                self.mix.shares.push((*stage, ns as f64 / slice));
            }
            self.kernels[*stage as usize] += ns;
            most(&mut self.moment.stage, *stage, ns);
            kernels += ns;
        }
        if is_short {
            self.mix.sum_up();
        }
        self.sample.clear();
        kernels
    }

    /// The kernels' part of slices that are taken for like the last sample.
    fn split_alike(&mut self, rest: u64) -> u64 {
        self.mix.ns += rest;
        if let Some((stage, share)) = self.mix.longest {
            most(&mut self.moment.stage, stage, (rest as f64 * share) as u64);
        }
        ((rest as f64 * self.mix.share) as u64).min(rest)
    }

    fn pass(&mut self, now: Instant) -> u64 {
        let ns = now.saturating_duration_since(self.until).as_nanos() as u64;
        self.until = self.until.max(now);
        ns
    }

    /// The moment at hand has taken long enough.
    fn end_moment(&mut self) {
        if self.moments.len() == MOMENTS_MAX {
            for at in 0..MOMENTS_MAX / 2 {
                let mut two = self.moments[2 * at];
                two.add(&self.moments[2 * at + 1]);
                self.moments[at] = two;
            }
            self.moments.truncate(MOMENTS_MAX / 2);
            self.least_ns *= 2;
        }
        self.moments.push(std::mem::take(&mut self.moment));
        self.moment_ns = 0;
    }

    /// The thread's moments when the job has ended then, so that they take as long as the job. What it waited for since its last task
    /// was for stragglers, unless it was before the first one.
    pub(super) fn close(&self, end: Instant) -> Vec<BookedMoment> {
        let mut moments = self.moments.clone();
        moments.extend((self.moment_ns > 0).then_some(self.moment));
        let mut parts = self.waited;
        let tail = end.saturating_duration_since(self.until).as_nanos() as u64;
        // It woke to leave, a moment after the end.
        let mut late = self.until.saturating_duration_since(end).as_nanos() as u64;
        cut(&mut parts, &mut late);
        for moment in moments.iter_mut().rev() {
            cut(&mut moment.parts, &mut late);
        }
        parts[TimePart::Stragglers as usize] +=
            tail + std::mem::take(&mut parts[TimePart::Exchange as usize]);
        if parts.iter().any(|ns| *ns > 0) {
            moments.push(BookedMoment {
                parts,
                ..BookedMoment::default()
            });
        }
        moments
    }

    pub(super) fn kernels(&self) -> Box<[u64]> {
        let mut kernels = self.kernels.clone();
        self.mix.clone().settle(&mut kernels);
        kernels
    }

    pub(super) fn shards(&self) -> &[u64] {
        &self.shards
    }

    pub(super) fn works(&self) -> &[Work] {
        &self.works
    }

    pub(super) fn last_task(&self) -> Option<Instant> {
        self.last_task
    }
}

/// Takes nanoseconds away, as many as there are.
fn cut(parts: &mut PartTimes, ns: &mut u64) {
    for part in parts.iter_mut().rev() {
        let less = (*part).min(*ns);
        *part -= less;
        *ns -= less;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A book, and its times by part when the job ends at `end`.
    fn parts(book: &Book, end: Instant) -> PartTimes {
        let mut sum = BookedMoment::default();
        book.close(end).iter().for_each(|moment| sum.add(moment));
        sum.parts
    }

    #[test]
    fn every_nanosecond_is_somewhere_and_waiting_for_the_end_is_for_stragglers() {
        let begun = Instant::now();
        let mut book = Book::new(begun, (2, 2));
        book.wait(begun + MS, TimePart::Startup);
        book.ran(begun + 3 * MS, 5, &[0]);
        book.wait(begun + 4 * MS, TimePart::Exchange);
        book.ran(begun + 5 * MS, 1, &[0]);
        book.wait(begun + 9 * MS, TimePart::Exchange);
        let parts = parts(&book, begun + 10 * MS);
        assert_eq!(parts.iter().sum::<u64>(), 10_000_000);
        let of = |part: TimePart| parts[part as usize];
        assert_eq!(
            (of(TimePart::Startup), of(TimePart::Exchange)),
            (1_000_000, 1_000_000)
        );
        assert_eq!(
            (of(TimePart::Scheduling), of(TimePart::Stragglers)),
            (3_000_000, 5_000_000)
        );
    }

    #[test]
    fn slices_of_short_tasks_are_like_the_last_sample() {
        let begun = Instant::now();
        let mut book = Book::new(begun, (3, 2));
        // As if half of a slice had gone to stage 2.
        book.sample.ns[2] = 500_000;
        book.sample.touched.push(2);
        book.sample.calls = 1;
        book.sample.is_short = true;
        book.ran(begun + MS, 1, &[0]);
        book.ran(begun + 3 * MS, 7, &[0, 1]);
        assert_eq!(book.shards(), [2_000_000, 1_000_000]);
        let kernels = book.kernels()[2];
        assert!((1_490_000..1_510_000).contains(&kernels), "{kernels}");
        // What the stages have is what the thread has.
        let part = parts(&book, begun + 3 * MS)[TimePart::Kernels as usize];
        assert!(part.abs_diff(kernels) <= 2, "{part} and {kernels}");
        assert!(book.is_due(begun + 2 * MS) && !book.is_due(begun + MS));
    }

    #[test]
    fn a_thread_that_left_late_has_the_time_of_the_job() {
        let begun = Instant::now();
        let mut book = Book::new(begun, (1, 1));
        book.ran(begun + 5 * MS, 1, &[0]);
        book.wait(begun + 9 * MS, TimePart::Exchange);
        for ms in [8, 4] {
            let sum: u64 = parts(&book, begun + ms * MS).iter().sum();
            assert_eq!(sum, u64::from(ms) * 1_000_000);
        }
    }

    #[test]
    fn moments_are_bounded_and_lose_no_time() {
        let begun = Instant::now();
        let mut book = Book::new(begun, (1, 1));
        let steps = 3 * MOMENTS_MAX as u32;
        for step in 1..=steps {
            book.ran(begun + step * MS, 1, &[0]);
        }
        let end = begun + steps * MS;
        assert!(book.close(end).len() <= MOMENTS_MAX);
        assert_eq!(
            parts(&book, end).iter().sum::<u64>(),
            u64::from(steps) * 1_000_000
        );
        let tasks: u64 = book.close(end).iter().map(|moment| moment.tasks).sum();
        assert_eq!(tasks, u64::from(steps));
    }
}
