//! Whether the next job's floor finds room on its workers, and what jobs wait for that have not begun.
//!
//! # Rules
//! * A job has on each worker a share of the budget by its weight among the jobs there, and of that [floors](Floors). It needs them beside what
//!   the others use, as workers last said, and beside what is kept for these; and it needs room for what it is sent: the program, and its part of the rows,
//!   which follow the threads.
//! * A job that is alone begins, whatever it needs: its client has compared what it sends with what there is.
//! * What has been said is a heartbeat old, so a worker may have less room than was thought. It lets the job begin nevertheless, with as much of its
//!   floors as there is: nobody waits on one worker for what waits on another.

use super::{JobState, RegisteredJob, Registry, Worker};
use brambling_memory::{Floors, count_jobs, share_bytes};
use brambling_protocol::message::program_room_bytes;
use brambling_protocol::{JobId, JobKey, WorkerId};

/// Of a budget the floors of one weight among all.
fn floor_bytes(worker: &Worker, weight: u32, weights: u64) -> u64 {
    Floors::of(share_bytes(worker.memory_bytes, weight, weights)).sum_bytes()
}

impl Registry {
    /// The workers that take new jobs, with their threads and budgets.
    pub fn budgets(&self) -> Vec<(WorkerId, u32, u64)> {
        let taking = self.taking();
        let budget = |(id, worker): (_, &Worker)| (id, worker.threads, worker.memory_bytes);
        taking.map(budget).collect()
    }

    /// A worker says what each job there has of its budget.
    pub(super) fn on_uses(&mut self, id: WorkerId, uses: Vec<(JobKey, u64)>) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.uses = uses;
        }
        self.begin_next();
    }

    /// Whether a worker that comes later can take what a job's members are sent.
    pub(super) fn has_room_for(&self, worker: WorkerId, job: &RegisteredJob) -> bool {
        let worker = self.workers.get(&worker);
        worker.is_some_and(|it| program_room_bytes(job.brings.program_bytes) <= it.memory_bytes)
    }

    /// The worker that has no room for the floor of a job that waits, and what is missing; nothing when it may begin.
    pub(super) fn lacks_room(&self, id: JobId) -> Option<String> {
        // A job that is alone begins, whatever it needs: no other job's end would give it more.
        if self.running.is_empty() {
            return None;
        }
        let job = self.jobs.get(&id)?;
        let running = || {
            self.running
                .keys()
                .filter_map(|key| Some((*key, self.job_in(*key)?)))
        };
        let weights =
            running().map(|(_, it)| u64::from(it.weight)).sum::<u64>() + u64::from(job.weight);
        let threads = self.taking().map(|(_, it)| it.threads).sum();
        self.taking().find_map(|(id, worker)| {
            let used = |key| {
                let said = worker.uses.iter().find(|(it, _)| *it == key);
                said.map_or(0, |(_, bytes)| *bytes)
            };
            let part = |it: &RegisteredJob| it.brings.part_bytes(worker.threads, threads);
            let claimed = |(key, it): (JobKey, &RegisteredJob)| {
                let floor = floor_bytes(worker, it.weight, weights);
                let brought = it.brings.program_bytes.saturating_add(part(it));
                // The largest of three: what the job was promised, what it has, and what is still
                // on its way to it.
                floor.max(used(key)).max(brought)
            };
            let claimed_bytes: u64 = running().map(claimed).sum();
            let floor = floor_bytes(worker, job.weight, weights);
            let needed_bytes = floor.max(job.brings.needed_bytes(part(job)));
            let budget_bytes = worker.memory_bytes;
            (claimed_bytes.saturating_add(needed_bytes) > budget_bytes).then(|| {
                format!(
                    "memory on {id}: it needs {needed_bytes} bytes, and {claimed_bytes} of {budget_bytes} are taken or kept by {}; end one, or give \
                     workers more with --memory",
                    count_jobs(self.running.len())
                )
            })
        })
    }

    /// What a job waits for, if it has not begun.
    pub(super) fn waits_of(&self, id: JobId) -> Option<String> {
        let job = self.jobs.get(&id)?;
        if job.state != JobState::Queued {
            return None;
        }
        let before = self.queued.iter().position(|it| *it == id)?;
        // The reason that has to end first is told; others may hold as well.
        Some(if self.running.len() >= self.jobs_at_once as usize {
            format!("one of {} to end", count_jobs(self.running.len()))
        } else if before > 0 {
            format!("{} before it", count_jobs(before))
        } else if let Some(rest) = job.losses.rests(self.now) {
            format!(
                "{} s to pass, after several losses in a row",
                rest.as_secs() + 1
            )
        } else if self.taking().next().is_none() {
            "a worker that takes jobs".into()
        } else {
            self.lacks_room(id)?
        })
    }

    /// What jobs wait for that have not begun.
    pub fn waits(&self) -> Vec<(JobId, String)> {
        let waits = self.queued.iter();
        waits
            .filter_map(|id| Some((*id, self.waits_of(*id)?)))
            .collect()
    }
}
