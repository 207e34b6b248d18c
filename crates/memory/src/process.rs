//! The memory of a process, and the jobs that share it.
//!
//! # Rules
//! * Of the process's budget each job has a share by its weight, and of that its floors ([`Floors::of`]). What is nobody's floor is taken by
//!   whoever comes first. A job that is alone has the floors of the whole budget, and may use all of it.
//! * A job begins when its floors find room beside what the others use and what is kept for them, whose floors shrink with their shares. Until
//!   then it waits, and knows for what; those that come after it wait as well, so that it is not overtaken.
//! * Whoever may not wait begins [at once](Memory::admit), with as much of its floors as there is room for.
//! * When a job ends, all that it uses is free, and the others' floors grow as far as there is room. What its results take is no more counted here.
//! * A budget is one number for all jobs that run at once: one that was given another number begins when no other runs.
//!
//! # Why nobody waits for ever
//! The first that waits is let in when no job runs, whatever it asks for; and each end of a job wakes it.

use crate::budget::{Budget, Free};
use crate::class::Floors;
use crate::held::{self, Held};
use crate::spare::Spare;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// The memory of a process. Clones share it.
#[derive(Clone, Debug)]
pub struct Memory {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    free: Arc<Free>,
    /// What belongs to no job.
    own: Budget,
    admissions: Mutex<Admissions>,
    /// A job has ended, or left the queue.
    news: Condvar,
}

#[derive(Debug, Default)]
struct Admissions {
    jobs: Vec<Admitted>,
    /// The tickets of those that wait.
    queue: VecDeque<u64>,
    next_ticket: u64,
}

#[derive(Debug)]
struct Admitted {
    ticket: u64,
    weight: u32,
    budget: Budget,
}

impl Admissions {
    fn weights(&self) -> u64 {
        self.jobs.iter().map(|job| u64::from(job.weight)).sum()
    }

    fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket
    }
}

/// Of so many bytes the share of one weight among the sum of all, rounded down: of a budget a job's,
/// of rows a worker's by its threads.
pub fn share_bytes(bytes: u64, weight: u32, weights: u64) -> u64 {
    // A sum of none has no shares; it must not end the process.
    let share = u128::from(bytes) * u128::from(weight) / u128::from(weights.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

impl Memory {
    /// A process without jobs.
    pub fn new(budget_bytes: u64) -> Memory {
        let free = Free::new(budget_bytes);
        Memory {
            inner: Arc::new(Inner {
                own: Budget::of(&free),
                free,
                admissions: Mutex::default(),
                news: Condvar::new(),
            }),
        }
    }

    /// What belongs to no job takes from here. It has no floors.
    pub fn own(&self) -> &Budget {
        &self.inner.own
    }

    /// The whole budget.
    pub fn budget_bytes(&self) -> u64 {
        self.inner.free.budget_bytes()
    }

    /// What all jobs use, and what belongs to none.
    pub fn in_use_bytes(&self) -> u64 {
        let admissions = self.admissions();
        let jobs = admissions.jobs.iter().map(|job| job.budget.in_use_bytes());
        jobs.sum::<u64>() + self.inner.own.in_use_bytes()
    }

    /// Bytes that are to be kept as long as nobody wants their room: none yet.
    pub fn spare(&self) -> Spare {
        Spare::new(&self.inner.free)
    }

    /// What all spares have. It counts in nobody's use.
    pub fn spare_bytes(&self) -> u64 {
        self.inner.free.spares.bytes()
    }

    /// A place in the queue of jobs that wish to begin.
    pub fn queue(&self) -> Queued {
        let mut admissions = self.admissions();
        let ticket = admissions.ticket();
        admissions.queue.push_back(ticket);
        Queued {
            memory: self.clone(),
            ticket,
        }
    }

    /// A job begins at once, with as much of its floors as there is room for.
    pub fn admit(&self, weight: u32) -> BudgetShare {
        let mut admissions = self.admissions();
        let ticket = admissions.ticket();
        self.begin(&mut admissions, ticket, weight)
    }

    fn admissions(&self) -> Held<'_, Admissions> {
        held::lock(&self.inner.admissions)
    }

    fn begin(&self, admissions: &mut Admissions, ticket: u64, weight: u32) -> BudgetShare {
        let weight = weight.max(1);
        let budget = Budget::of(&self.inner.free);
        let weights = admissions.weights() + u64::from(weight);
        self.spread(admissions, weights);
        let share = share_bytes(self.budget_bytes(), weight, weights);
        // Of what is free already less than the share: as much as that allows.
        let free_bytes = self.inner.free.bytes() + self.spare_bytes();
        budget.set_floors(Floors::of(share.min(free_bytes)));
        admissions.jobs.push(Admitted {
            ticket,
            weight,
            budget: budget.clone(),
        });
        BudgetShare {
            memory: self.clone(),
            ticket,
            budget,
        }
    }

    /// Gives each job the floors of its share, as far as there is room.
    fn spread(&self, admissions: &Admissions, weights: u64) {
        for job in &admissions.jobs {
            let share = share_bytes(self.budget_bytes(), job.weight, weights);
            // What finds no room stays as it was.
            job.budget.set_floors(Floors::of(share));
        }
    }

    /// What a job of this weight and budget waits for; nothing when it may begin.
    fn waits(
        &self,
        admissions: &Admissions,
        ticket: u64,
        weight: u32,
        budget_bytes: u64,
    ) -> Option<AdmissionWait> {
        let before = admissions.queue.iter().position(|it| *it == ticket);
        if let Some(before) = before.filter(|before| *before > 0) {
            return Some(AdmissionWait::Turn { before });
        }
        if admissions.jobs.is_empty() {
            return None;
        }
        let (jobs, other_bytes) = (admissions.jobs.len(), self.budget_bytes());
        if other_bytes != budget_bytes {
            return Some(AdmissionWait::OtherBudget {
                budget_bytes,
                other_bytes,
                jobs,
            });
        }
        let weights = admissions.weights() + u64::from(weight);
        let floors = |weight| Floors::of(share_bytes(budget_bytes, weight, weights));
        let claims = admissions.jobs.iter();
        let claims = claims.map(|job| job.budget.claims_bytes(floors(job.weight)));
        let claimed_bytes = claims.sum::<u64>() + self.inner.own.in_use_bytes();
        let floor_bytes = floors(weight).sum_bytes();
        (claimed_bytes + floor_bytes > budget_bytes).then_some(AdmissionWait::Room {
            floor_bytes,
            claimed_bytes,
            budget_bytes,
            jobs,
        })
    }
}

/// What a job waits for before it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdmissionWait {
    /// Others came before it and wait as well.
    Turn {
        /// How many.
        before: usize,
    },
    /// Its floor finds no room.
    Room {
        /// What it may always have once it runs.
        floor_bytes: u64,
        /// What is in use, or kept for others.
        claimed_bytes: u64,
        /// The whole budget.
        budget_bytes: u64,
        /// How many jobs run.
        jobs: usize,
    },
    /// Those that run were given another budget.
    OtherBudget {
        /// Its own.
        budget_bytes: u64,
        /// Theirs.
        other_bytes: u64,
        /// How many run.
        jobs: usize,
    },
}

/// Jobs with their number, for a text: 1 job, 2 jobs.
pub fn count_jobs(number: usize) -> String {
    format!("{number} job{}", if number == 1 { "" } else { "s" })
}

impl fmt::Display for AdmissionWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdmissionWait::Turn { before } => {
                write!(f, "waits for memory behind {}", count_jobs(*before))
            }
            AdmissionWait::Room {
                floor_bytes,
                claimed_bytes,
                budget_bytes,
                jobs,
            } => write!(
                f,
                "waits for memory: {floor_bytes} bytes are to be its own, and {claimed_bytes} of {budget_bytes} are taken or kept by {}; raise the \
                 budget with BRAMBLING_MEMORY or memory in brambling.toml",
                count_jobs(*jobs)
            ),
            AdmissionWait::OtherBudget {
                budget_bytes,
                other_bytes,
                jobs,
            } => write!(
                f,
                "waits for memory: it was given {budget_bytes} bytes, and {other_bytes} were given to {} that {}",
                count_jobs(*jobs),
                if *jobs == 1 { "runs" } else { "run" }
            ),
        }
    }
}

/// A place in the queue; dropping it leaves the queue.
#[derive(Debug)]
pub struct Queued {
    memory: Memory,
    ticket: u64,
}

impl Queued {
    /// Begins, if its floors find room in a budget of so many bytes.
    ///
    /// # Errors
    /// What it waits for.
    pub fn admit(&self, weight: u32, budget_bytes: u64) -> Result<BudgetShare, AdmissionWait> {
        let mut admissions = self.memory.admissions();
        if let Some(waits) = self
            .memory
            .waits(&admissions, self.ticket, weight, budget_bytes)
        {
            return Err(waits);
        }
        if admissions.jobs.is_empty() {
            self.memory.inner.free.resize(budget_bytes);
        }
        admissions.queue.retain(|ticket| *ticket != self.ticket);
        let share = self.memory.begin(&mut admissions, self.ticket, weight);
        drop(admissions);
        self.memory.inner.news.notify_all();
        Ok(share)
    }

    /// Waits until something may have changed, at most so long.
    pub fn wait(&self, at_most: Duration) {
        let admissions = self.memory.admissions();
        drop(admissions.wait_at_most(&self.memory.inner.news, at_most));
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let mut admissions = self.memory.admissions();
        admissions.queue.retain(|ticket| *ticket != self.ticket);
        drop(admissions);
        self.memory.inner.news.notify_all();
    }
}

/// A job's share of its process's memory; dropping it ends that.
#[derive(Debug)]
pub struct BudgetShare {
    memory: Memory,
    ticket: u64,
    budget: Budget,
}

impl BudgetShare {
    /// What the job takes from.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Its weight is another one from now on.
    pub fn weigh(&self, weight: u32) {
        let mut admissions = self.memory.admissions();
        let mut jobs = admissions.jobs.iter_mut();
        if let Some(job) = jobs.find(|job| job.ticket == self.ticket) {
            job.weight = weight.max(1);
        }
        self.spread(&admissions);
    }

    /// Twice, since what some give back others find.
    fn spread(&self, admissions: &Admissions) {
        let weights = admissions.weights();
        self.memory.spread(admissions, weights);
        self.memory.spread(admissions, weights);
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        let mut admissions = self.memory.admissions();
        let is_it = |job: &Admitted| job.ticket == self.ticket;
        if let Some(at) = admissions.jobs.iter().position(is_it) {
            admissions.jobs.swap_remove(at).budget.retire();
        }
        self.spread(&admissions);
        drop(admissions);
        self.memory.inner.news.notify_all();
    }
}
