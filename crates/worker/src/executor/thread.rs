//! What one thread does for a job: takes mail, goes round its run queue, runs slices, steals, sleeps.
#![allow(unsafe_code)] // Touches its run queue and its shards inside its zone.

use super::failure::{Failure, Rank};
use super::job::{Body, Job, Resident, Station};
use super::panics;
use super::patience::Patience;
use super::slice::{End, Lack, Slice, watch_for};
use super::spread;
use super::tally::count;
use super::travel;
use super::watch::{Watch, Watches};
use crate::pieces::Refused;
use brambling_exchange::in_process::Heard;
use brambling_program::Runner;
use std::any::Any;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long an idle thread polls before it sleeps: about twice what a sleep and a wake-up cost.
const POLL: Duration = Duration::from_micros(75);
/// How long work must have waited in another thread's queue before it is stolen.
const STEAL_AFTER: Duration = Duration::from_micros(20);
/// The longest sleep: whatever went wrong, a thread looks around now and then.
pub(super) const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Polls between two looks at the clock.
const SPINS: u32 = 64;
/// How long what is said to other workers may wait for more, while a thread has work.
const FLUSHED_EACH: Duration = Duration::from_micros(50);
/// How often, at most, a thread that has work looks what has come: over TCP a look is a system call for each other worker.
const LOOKED_EACH: Duration = Duration::from_micros(500);
/// Polls of an idle thread's queue between two of what carries frames.
const POLLED_SPINS: u32 = 8;
/// Slices of short tasks between two readings of the clock. A prime: the shard that ran last is taken for all of them, and of any other number of
/// shards that take turns each is the last one as often.
const SLICES_UNREAD: u32 = 61;
/// A share of so many tasks means that a task takes less than half a microsecond.
const SHORT_SHARE: u32 = 256;
/// Tasks after which a slice is timed by itself.
const TIMED_TASKS: u32 = 16;

/// How far a thread is with a job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its shards are to be made.
    New,
    /// They are, and other threads' may not be.
    Settled,
    Started,
}

/// One thread at work for one job.
pub(super) struct Worker<'a> {
    job: &'a Job,
    me: u32,
    station: &'a Station,
    runner: Runner,
    stage: Stage,
    thief: Thief,
    /// When the clock was last read, and how many slices ran since.
    clock: Instant,
    slices: u32,
    /// When this thread last sent what it had to say to other workers.
    flushed: Instant,
    looked: Instant,
    /// How long it polls for other workers.
    patience: Patience,
    /// The shard being run, for whoever must say where a panic came from.
    current: Option<u32>,
    /// What is looked at for stalled shards.
    watches: Watches<'a>,
    /// What the last shard to stall lacked: here for its memory only.
    lacks: Vec<Lack<'a>>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(job: &'a Job, me: u32) -> Worker<'a> {
        let runner = if me == job.threads() {
            Runner::Caller
        } else {
            Runner::Native
        };
        let station = &job.stations[me as usize];
        Worker {
            job,
            me,
            station,
            runner,
            stage: Stage::New,
            thief: Thief::new(me, job.threads()),
            clock: Instant::now(),
            slices: 0,
            flushed: Instant::now(),
            looked: Instant::now(),
            patience: Patience::default(),
            current: None,
            watches: Watches::default(),
            lacks: Vec::new(),
        }
    }

    /// How long a thread that finds nothing to do for the job polls before it sleeps.
    pub(super) fn patience(&self) -> Duration {
        match self.job.ties {
            Some(_) => self.patience.time(),
            None => POLL,
        }
    }

    /// Works until the job stops, or shares its threads with others. A panic of a kernel ends the job, and is told with its stage.
    /// `polls` says whether to poll before sleeping.
    pub(super) fn work(&mut self, polls: bool) {
        self.within(|worker| {
            let mut spins = 0u32;
            while !worker.begin() && !worker.job.calls() {
                spins += 1;
                if spins < SPINS * 16 {
                    std::hint::spin_loop();
                } else {
                    std::thread::sleep(STEAL_AFTER);
                }
            }
            while !worker.job.calls() {
                match worker.next() {
                    Some(number) => worker.run(number),
                    None => {
                        worker.flush();
                        worker.idle(polls);
                    }
                }
            }
            if !worker.job.has_stopped() {
                worker.flush();
            }
        });
    }

    /// Works for about so long, or until there is nothing to do; how long that was, if there was something. The first turns make the
    /// shards whose home this is, and wait for the other threads'.
    pub(super) fn turn(&mut self, time: Duration) -> Option<Duration> {
        let mut ran = None;
        self.within(|worker| {
            let began = worker.clock;
            let was_new = worker.stage == Stage::New;
            if worker.begin() {
                while !worker.job.stop.load(Ordering::Relaxed)
                    && let Some(number) = worker.find()
                {
                    if ran.is_none() {
                        // Before the kernel, which may take its time.
                        worker.station.idle.store(false, Ordering::Release);
                    }
                    worker.run(number);
                    ran = Some(worker.clock - began);
                    if worker.clock - began >= time {
                        break;
                    }
                }
                if !worker.job.has_stopped() {
                    worker.flush();
                }
            }
            if ran.is_some() || was_new {
                worker.read_clock();
                ran = Some(worker.clock - began);
            } else {
                worker.found_nothing();
            }
        });
        ran
    }

    /// The next shard to run, wherever it has to be looked for.
    fn find(&mut self) -> Option<u32> {
        if let Some(number) = self.next() {
            return Some(number);
        }
        if self.has_arrivals() || (self.poll(0) && self.has_arrivals()) {
            return self.next();
        }
        self.clock = Instant::now();
        let number = self.thief.steal(self.job, self.clock)?;
        self.take_over(number);
        Some(number)
    }

    /// Makes this thread's shards, waits for the other threads' and queues its own; whether that is done.
    fn begin(&mut self) -> bool {
        if self.stage == Stage::New {
            self.stage = Stage::Settled;
            if let Err(failed) = self.job.settle(self.me) {
                let (rank, failure) = *failed;
                self.job.fail(rank, failure);
            }
            if self.job.settled.fetch_add(1, Ordering::AcqRel) + 1 == self.job.threads() {
                let _ = self.job.started.set(Instant::now());
                self.job.beds.wake_all();
            }
        }
        if self.stage == Stage::Settled && self.job.started.get().is_some() {
            self.stage = Stage::Started;
            for (number, &home) in self.job.homes.iter().enumerate() {
                if home == self.me {
                    // SAFETY: inside our own zone; the reference ends with the statement.
                    unsafe { self.job.ready(self.me) }.insert(number as u32);
                }
            }
            self.clock = Instant::now();
        }
        self.stage == Stage::Started
    }

    /// Runs what is queued here until there is nothing more or the time is over: for the calling thread. True
    /// when the time was over first: nobody will post again what is still queued.
    pub(super) fn work_for(mut self, time: Duration) -> bool {
        let mut over = false;
        self.within(|worker| {
            let started = worker.clock;
            while let Some(number) = worker.next() {
                worker.run(number);
                worker.read_clock();
                over = worker.clock - started >= time;
                if over || worker.job.stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            worker.flush();
        });
        over
    }

    /// Works inside the zone. The thread may have been elsewhere meanwhile, which is nobody's time here.
    fn within(&mut self, work: impl FnOnce(&mut Self)) {
        self.job.exchange_notes(self.me);
        self.clock = Instant::now();
        self.slices = 0;
        self.guarded(work);
        self.job.exchange_notes(self.me);
        self.station.zone.leave();
    }

    /// For whoever looks whether the job stands still.
    fn found_nothing(&self) {
        self.station.idle.store(true, Ordering::Release);
        count(&self.station.looks, 1);
    }

    /// The thread does not poll any more: the transport's helper is to see to what comes from other workers.
    pub(super) fn rest(&self) {
        if let Some(ties) = &self.job.ties {
            ties.rest();
        }
    }

    /// It has slept.
    pub(super) fn resume(&self) {
        if let Some(ties) = &self.job.ties {
            ties.resume();
        }
    }

    /// Whether a thread that is about to sleep must not: asked outside of the zone, after the thread has said that it sleeps.
    pub(super) fn is_wanted(&self) -> bool {
        self.station.mail.has_any()
            || self.job.stop.load(Ordering::SeqCst)
            || self.watches.is_any_set()
            || (self.stage == Stage::Settled && self.job.started.get().is_some())
    }

    fn guarded(&mut self, run: impl FnOnce(&mut Self)) {
        self.station.zone.enter();
        if let Err(payload) = panics::catch(|| run(self)) {
            let Some(number) = self.current else {
                // Not a kernel's: an assertion of ours. The job must not wait for this thread.
                let (message, _) = panics::tell(&*payload);
                self.job.fail(Rank::After, Failure::Internal { message });
                return;
            };
            let resident = &self.job.residents[number as usize];
            // SAFETY: this thread was running the shard, and never lets go of it now.
            let body = unsafe { &*resident.body.get() }
                .as_ref()
                .expect("it was running");
            let failure = unwound(self.job, resident, body, &*payload);
            self.job.fail(body.rank(resident.index), failure);
        }
    }

    /// The next shard to run.
    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.station.mail.has_any() {
            self.take_mail();
        }
        let (job, me) = (self.job, self.me);
        self.watches
            .look(|watches, watch| follow(job, me, watches, watch));
        // SAFETY: inside our own zone; the reference ends with the statement.
        let next = unsafe { self.job.ready(self.me) }.pop();
        if let Some(thief) = self.station.zone.take_request() {
            // SAFETY: as above.
            if let Some(number) = unsafe { self.job.ready(self.me) }.pop_last() {
                self.job.hand(number, thief);
            }
        }
        next
    }

    #[cold]
    fn take_mail(&mut self) {
        self.station.mail.take(|number| {
            if self.job.belongs_to(number, self.me) {
                // SAFETY: as in `next`.
                unsafe { self.job.ready(self.me) }.insert_urgent(number);
            } else {
                // It was handed on after the sender looked.
                self.job.post(number);
            }
        });
    }

    /// Runs a shard of this thread for a slice.
    #[inline]
    fn run(&mut self, number: u32) {
        let resident = &self.job.residents[number as usize];
        // SAFETY: the shard belongs to this thread, by `owners`, and was taken from its run queue.
        let Some(body) = unsafe { &mut *resident.body.get() }.as_mut() else {
            self.unpack(number);
            // It is nobody's time.
            self.read_clock();
            return;
        };
        if body.done {
            return self.leave_when_done(number);
        }
        self.current = Some(number);
        let mut slice = Slice::new(self.job, number, self.me, self.runner, &mut self.watches);
        let end = slice.run(body, &mut self.lacks);
        let (tasks, failure) = (slice.tasks, slice.failure);
        self.current = None;
        self.slices += 1;
        count(&self.station.tally.tasks, u64::from(tasks));
        count(&self.station.tally.slices, 1);
        if tasks >= TIMED_TASKS || body.slice_tasks < SHORT_SHARE || self.slices >= SLICES_UNREAD {
            self.time_slice(resident, body, tasks);
        }
        if matches!(end, End::Leaving) {
            self.depart(number);
            self.read_clock();
        } else {
            self.leave(resident, body, number, end, failure);
        }
        // SAFETY: as in `next`.
        let queued = unsafe { self.job.ready(self.me) }.len();
        if self.station.queued.0.load(Ordering::Relaxed) != queued {
            self.station.queued.0.store(queued, Ordering::Relaxed);
        }
    }

    /// A shard that is not here was woken: it has come from another worker, or has gone to one.
    #[cold]
    fn unpack(&self, number: u32) {
        let (job, resident) = (self.job, &self.job.residents[number as usize]);
        let ties = job.ties.as_ref().expect("settled before it was queued");
        let Some(parts) = ties.take_arrived(number) else {
            return;
        };
        let made = travel::unpack(job, resident.id(), &parts.concat());
        drop(parts);
        let made = made.map_err(|error| Failure::Internal {
            message: format!("{}: {error}", resident.id()),
        });
        let counted = made.and_then(|(body, arrivals)| {
            let body = job.charge_arrived(resident, body)?;
            Ok((body, arrivals))
        });
        match counted {
            Ok((body, arrivals)) => {
                resident.dial.begin(body.charged_bytes);
                // SAFETY: the shard belongs to this thread, by `owners`, and it has no other reference.
                unsafe {
                    *resident.arrivals.get() = arrivals;
                    *resident.body.get() = Some(body);
                }
                job.post(number);
            }
            Err(failure) => job.fail(Rank::Load(resident.group, resident.index), failure),
        }
    }

    /// A shard that has finished was woken: perhaps it has to leave.
    #[cold]
    fn leave_when_done(&self, number: u32) {
        let ties = self.job.ties.as_ref();
        if ties.is_some_and(|ties| ties.is_leaving(number)) {
            self.depart(number);
        }
    }

    /// The shard moves to another worker, unless it waits for completions: then it does when they have arrived.
    #[cold]
    fn depart(&self, number: u32) {
        let (job, resident) = (self.job, &self.job.residents[number as usize]);
        // SAFETY: as in `run`, which holds no reference to it any more.
        let place = unsafe { &mut *resident.body.get() };
        let code = &job.plan.codes[resident.group.index()];
        let waits = place.as_ref().is_some_and(|it| it.held_by(code).is_some());
        let home = job.homes[number as usize];
        if waits && home != self.me {
            return job.hand(number, home);
        }
        if !waits && let Some(mut body) = place.take() {
            body.close_all(job, code);
            resident.dial.end();
            if let Err(failure) = self.send_away(number, body) {
                job.fail(Rank::After, failure);
            }
        }
    }

    fn send_away(&self, number: u32, body: Body) -> Result<(), Failure> {
        let (job, resident) = (self.job, &self.job.residents[number as usize]);
        let ties = job.ties.as_ref().expect("only then shards leave");
        let refusal = |error| job.refusal(None, error);
        // SAFETY: as in `run`: the shard is this thread's until it has left.
        let arrivals = unsafe { &mut *resident.arrivals.get() };
        ties.leave(job, number, arrivals).map_err(refusal)?;
        let arrivals = std::mem::take(arrivals);
        let bytes = travel::pack(&body, &arrivals).map_err(Failure::Spilled)?;
        job.uncharge(&body);
        drop((body, arrivals));
        ties.depart(job, resident.id(), bytes).map_err(refusal)
    }

    fn time_slice(&mut self, resident: &Resident, body: &mut Body, tasks: u32) {
        let alone = self.slices == 1;
        let took_ns = self.read_clock();
        if alone || tasks >= TIMED_TASKS {
            body.slice_tasks = super::slice::next_share(body.slice_tasks, tasks, took_ns);
        }
        self.share_work();
        if self.job.ties.is_some() {
            let entered = body.shard.entered();
            let bytes = body.charged_bytes;
            body.meter.add(&resident.dial, took_ns, entered, bytes);
            if self.clock - self.flushed >= FLUSHED_EACH {
                self.flush();
            }
            if self.clock - self.looked >= LOOKED_EACH {
                self.looked = self.clock;
                self.job.ties.iter().for_each(|ties| ties.look());
            }
        }
    }

    /// Looks now and then what other workers have sent: whether anything was on its way. It is a system call, so not at every turn.
    #[inline]
    fn poll(&self, spins: u32) -> bool {
        match &self.job.ties {
            Some(ties) if spins.is_multiple_of(POLLED_SPINS) => ties.poll(),
            _ => false,
        }
    }

    /// What was said to other workers goes on its way.
    #[inline]
    fn flush(&mut self) {
        if let Some(ties) = &self.job.ties {
            self.flushed = self.clock;
            ties.flush(self.job);
        }
    }

    /// Reads the clock and accounts for the time since the last reading.
    fn read_clock(&mut self) -> u64 {
        let now = Instant::now();
        let took_ns = now.duration_since(self.clock).as_nanos() as u64;
        count(&self.station.tally.busy_ns, took_ns);
        let cpu = spread::here();
        if self.station.cpu.load(Ordering::Relaxed) != cpu {
            self.station.cpu.store(cpu, Ordering::Relaxed);
        }
        self.clock = now;
        self.slices = 0;
        took_ns
    }

    /// Decides where a shard goes after its slice.
    #[inline]
    fn leave(
        &self,
        resident: &Resident,
        body: &mut Body,
        number: u32,
        end: End,
        failure: Option<Box<Failure>>,
    ) {
        let home = self.job.homes[number as usize];
        let at_home = home == self.me;
        match end {
            End::Stalled if at_home => {}
            // SAFETY: inside our own zone; the reference ends with the statement.
            End::UsedUp if at_home => unsafe { self.job.ready(self.me) }.insert(number),
            // What was posted here meanwhile is posted on; at home the shard looks once more.
            End::Stalled | End::UsedUp | End::Elsewhere(Runner::Native) => {
                self.job.hand(number, home)
            }
            End::Elsewhere(Runner::Caller) => self.job.hand(number, self.job.threads()),
            End::Leaving => unreachable!("the caller sees to it"),
            End::Finished => {
                body.done = true;
                self.job.finish_one(resident.id());
            }
            End::Failed => {
                body.done = true;
                let failure = *failure.expect("a failed slice has a failure");
                self.job.fail(body.rank(resident.index), failure);
            }
        }
    }

    /// A thread that leaves work waiting while others sleep wakes one of them to steal it.
    fn share_work(&self) {
        // SAFETY: inside our own zone; the reference ends with the statement.
        if unsafe { self.job.ready(self.me) }.len() == 0 {
            return;
        }
        let mut beds = (0..self.job.threads()).map(|thread| self.job.beds.of(thread));
        if let Some(bed) = beds.find(|bed| bed.is_asleep()) {
            bed.wake();
        }
    }

    /// Leaves a CPU on which another thread of the job works.
    pub(super) fn spread(&self) {
        let here = self.station.cpu.load(Ordering::Relaxed);
        let pool = &self.job.stations[..self.job.threads() as usize];
        let others = || {
            let awake = pool
                .iter()
                .enumerate()
                .filter(|(thread, _)| !self.job.beds.of(*thread as u32).is_asleep());
            awake
                .filter(|(thread, _)| *thread as u32 != self.me)
                .map(|(_, station)| station.cpu.load(Ordering::Relaxed))
        };
        if others().any(|cpu| cpu == here) {
            spread::move_away(others());
            self.station.cpu.store(spread::here(), Ordering::Relaxed);
        }
    }

    /// A shard was stolen: it is this thread's for a slice.
    fn take_over(&self, number: u32) {
        self.job.adopt(number, self.me);
        count(&self.station.tally.stolen, 1);
    }

    /// Whether there is something to do for a thread with an empty run queue.
    #[inline]
    fn has_work(&mut self) -> bool {
        self.job.calls() || self.has_arrivals()
    }

    /// Whether something has come for a shard of this thread.
    #[inline]
    fn has_arrivals(&mut self) -> bool {
        if self.station.mail.has_any() {
            return true;
        }
        let (job, me) = (self.job, self.me);
        self.watches
            .look_at_all(|watches, watch| follow(job, me, watches, watch));
        // SAFETY: inside our own zone; the reference ends with the statement.
        unsafe { job.ready(me) }.len() > 0
    }

    /// Polls for mail and marks, then steals, then sleeps.
    fn idle(&mut self, polls: bool) {
        let mut spins = 0u32;
        let mut since = None;
        // Since when nothing has come, asleep or not; and the longest such time.
        let mut quiet = None;
        let mut longest = Duration::ZERO;
        while !self.has_work() {
            spins += 1;
            if self.poll(spins) && since.is_some() {
                // More of it is likely: who sleeps in the middle of a large piece is woken for its end.
                let now = Instant::now();
                longest = longest.max(passed(quiet.replace(now), now));
                (since, self.clock) = (Some(now), now);
            }
            if !spins.is_multiple_of(SPINS) {
                std::hint::spin_loop();
                continue;
            }
            if since.is_none() {
                // The slices before, and a wait too short to matter, were work.
                self.read_clock();
                (since, quiet) = (Some(self.clock), Some(self.clock));
                self.spread();
            }
            let before = std::mem::replace(&mut self.clock, Instant::now());
            self.patience.looks_after(self.clock - before);
            if let Some(number) = self.thief.steal(self.job, self.clock) {
                self.station.idle.store(false, Ordering::Release);
                self.take_over(number);
                self.run(number);
                return;
            }
            self.found_nothing();
            if since.is_some_and(|since| !polls || self.clock - since >= self.patience()) {
                let has_work =
                    || self.station.mail.has_any() || self.job.calls() || self.watches.is_any_set();
                self.rest();
                self.job.beds.of(self.me).sleep(SLEEP_MAX, has_work);
                self.resume();
                self.clock = Instant::now();
                since = Some(self.clock);
            } else if spins.is_multiple_of(SPINS * 16) {
                std::thread::yield_now();
            }
        }
        if since.is_some() {
            self.station.idle.store(false, Ordering::Release);
            self.clock = Instant::now();
            self.patience.waited(longest.max(passed(quiet, self.clock)));
        }
    }
}

fn passed(since: Option<Instant>, now: Instant) -> Duration {
    since.map_or(Duration::ZERO, |since| now - since)
}

/// A mark is set: looks what else the shard lacks, and queues it when that is nothing.
fn follow<'a>(job: &'a Job, me: u32, watches: &mut Watches<'a>, watch: Watch<'a>) {
    let Watch { number, .. } = watch;
    let resident = &job.residents[number as usize];
    // It may have run since, or run elsewhere now: what it lacks then is another watch's, or its owner's.
    if !job.belongs_to(number, me) || resident.slices.load(Ordering::Relaxed) != watch.slices {
        return;
    }
    let exchange = job.exchange(watch.exchange);
    match exchange.heard(watch.turn, resident.index) {
        // SAFETY: inside our own zone; the reference ends with the statement.
        Heard::All => unsafe { job.ready(me) }.insert_urgent(number),
        Heard::Missing { source, mark } => {
            if let Some(mark) = mark {
                let lack = Lack {
                    exchange: watch.exchange,
                    turn: watch.turn,
                    source,
                    mark,
                };
                watch_for(job, watches, number, lack);
            }
        }
    }
}

/// Why a shard's kernel was unwound: the budget had no room for its pieces, or it panicked.
fn unwound(job: &Job, resident: &Resident, body: &Body, payload: &(dyn Any + Send)) -> Failure {
    if let (Some(refused), Some(at)) = (payload.downcast_ref::<Refused>(), body.running) {
        return job.no_room_for_pieces(at.stage, resident.index, refused.0);
    }
    let (message, location) = panics::tell(payload);
    match body.running {
        None => Failure::Internal { message },
        Some(at) => Failure::Panic {
            stage: job.plan.program.spec().stages[at.stage.index()]
                .name
                .clone(),
            partition: resident.index,
            turn: at.turn,
            message,
            location,
        },
    }
}

/// Takes what has waited in others' queues.
struct Thief {
    me: u32,
    victim: u32,
    threads: u32,
    /// What the victim was doing when it was first looked at.
    seen: Option<Seen>,
}

struct Seen {
    at: Instant,
    queued: u32,
    slices: u64,
}

impl Thief {
    fn new(me: u32, threads: u32) -> Thief {
        Thief {
            me,
            victim: me,
            threads,
            seen: None,
        }
    }

    fn steal(&mut self, job: &Job, now: Instant) -> Option<u32> {
        if self.threads < 2 {
            return None;
        }
        if let Some(seen) = &self.seen {
            if now - seen.at < STEAL_AFTER {
                return None;
            }
            let station = &job.stations[self.victim as usize];
            // A victim that has run as many slices as were queued has been round its queue: nothing waited.
            let ran = station.tally.slices.load(Ordering::Relaxed) - seen.slices;
            if station.queued.0.load(Ordering::Relaxed) > 0 && ran < u64::from(seen.queued) {
                match station.zone.try_lock() {
                    Some(locked) => {
                        // SAFETY: the lock keeps the owner out of its zone.
                        let taken = unsafe { job.ready(self.victim) }.pop_last();
                        if let Some(number) = taken {
                            // Inside the lock: the owner must find the shard gone.
                            job.adopt(number, self.me);
                            drop(locked);
                            self.seen = None;
                            return Some(number);
                        }
                    }
                    None => station.zone.request(self.me),
                }
            }
        }
        self.next_victim();
        let station = &job.stations[self.victim as usize];
        self.seen = Some(Seen {
            at: now,
            queued: station.queued.0.load(Ordering::Relaxed),
            slices: station.tally.slices.load(Ordering::Relaxed),
        });
        None
    }

    fn next_victim(&mut self) {
        self.victim = (self.victim + 1) % self.threads;
        if self.victim == self.me {
            self.victim = (self.victim + 1) % self.threads;
        }
    }
}
