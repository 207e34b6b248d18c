//! Where a shard goes after its slice: to its home, to another kind of thread, to another worker; and how one comes from there.
#![allow(unsafe_code)] // Touches its ready queue and its shards under its queue lock.

use super::JobThread;
use crate::executor::failure::{Failure, Rank};
use crate::executor::job::{LoadedShard, ShardCell};
use crate::executor::slice::End;
use crate::executor::travel;
use brambling_exchange::in_process::fences;
use brambling_program::Runner;

impl JobThread<'_> {
    /// Decides where a shard goes after its slice.
    #[inline]
    pub(super) fn leave(
        &self,
        resident: &ShardCell,
        body: &mut LoadedShard,
        number: u32,
        end: End,
        failure: Option<Box<Failure>>,
    ) {
        let home = self.job.home(number);
        let at_home = home == self.me;
        // SAFETY: under our own queue lock; the reference ends before anybody else comes.
        let ready = unsafe { self.job.ready(self.me) };
        match end {
            End::Stalled if at_home => return,
            End::UsedUp if at_home => return ready.insert(number),
            _ => {}
        }
        // A thief that took this thread's mail meanwhile may have queued the number here. It must
        // not stay: this thread would run the shard after it is another thread's.
        let was_told = ready.remove(number);
        match end {
            End::Stalled if self.job.shares() => self.rest_at(home, number, was_told),
            // Something that was posted here meanwhile is posted on; at home the shard looks once
            // more.
            End::Stalled | End::UsedUp | End::Elsewhere(Runner::Native) => {
                self.job.hand(number, home)
            }
            // The calling thread has the number behind those of the pool.
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

    /// A guest has stalled, and its home may be away for long: nothing is to be done for it until something comes. What came before it went home was
    /// told here, and is posted on.
    fn rest_at(&self, home: u32, number: u32, was_told: bool) {
        let job = self.job;
        job.rest_at(number, home);
        // Whoever has set a mark since, or has put something into the mailbox, sees that the shard
        // rests; or this thread sees the mark or the mail below.
        fences::heavy();
        let resident = &job.residents[number as usize];
        let has_come = || {
            self.missing
                .iter()
                .any(|missing_source| missing_source.mark.is_set())
        };
        if was_told || resident.mailbox.has_any() || has_come() {
            job.post(number);
        }
    }

    /// A shard that is not here was woken: it has come from another worker, or has gone to one.
    #[cold]
    pub(super) fn unpack(&self, number: u32) {
        let (job, resident) = (self.job, &self.job.residents[number as usize]);
        let remote = job.remote.as_ref().expect("settled before it was queued");
        let Some(mut parts) = remote.take_arrived(number) else {
            return;
        };
        // Decoded by the thread that will run it, and under no lock: a value may be an
        // interpreter's.
        let made = travel::unpack(job, resident.id(), &mut parts);
        let made = made.map_err(|error| Failure::Internal {
            message: format!("{}: {error}", resident.id()),
        });
        // The room of the parts is free before the shard itself counts.
        drop(parts);
        let counted = made.and_then(|(body, arrivals)| {
            let body = job.charge_arrived(resident, body)?;
            Ok((body, arrivals))
        });
        match counted {
            Ok((body, arrivals)) => {
                resident.gauge.begin(body.charged_bytes);
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
    pub(super) fn leave_when_done(&self, number: u32) {
        let remote = self.job.remote.as_ref();
        if remote.is_some_and(|remote| remote.is_leaving(number)) {
            self.depart(number);
        }
    }

    /// The shard moves to another worker, unless it waits for completions: then it does when they have arrived.
    #[cold]
    pub(super) fn depart(&self, number: u32) {
        let (job, resident) = (self.job, &self.job.residents[number as usize]);
        // SAFETY: under our own queue lock; the reference ends with the statement. As in `leave`.
        unsafe { job.ready(self.me) }.remove(number);
        // SAFETY: as in `run`, which holds no reference to it any more.
        let place = unsafe { &mut *resident.body.get() };
        let code = &job.plan.codes[resident.group.index()];
        // A task that cannot be begun anew keeps its shard until it is done.
        let holder = place.as_ref().and_then(|it| it.held_by(code));
        if let (Some(at), Some(remote)) = (holder, &job.remote) {
            remote.kept.keep(number, resident.id(), at);
        }
        let waits = holder.is_some();
        let home = job.home(number);
        if waits && home != self.me {
            return job.hand(number, home);
        }
        if !waits && let Some(mut body) = place.take() {
            body.close_all(job, code);
            resident.gauge.end();
            if let Err(failure) = self.send_away(number, body) {
                job.fail(Rank::After, failure);
            }
        }
    }

    fn send_away(&self, number: u32, body: LoadedShard) -> Result<(), Failure> {
        let (job, resident) = (self.job, &self.job.residents[number as usize]);
        let remote = job.remote.as_ref().expect("only then shards leave");
        let refusal = |error| job.refusal(None, error);
        // SAFETY: as in `run`: the shard is this thread's until it has left.
        let arrivals = unsafe { &mut *resident.arrivals.get() };
        remote.kept.leave(number);
        // Before the arrivals are taken: what is sent until the shard is away lands in them.
        remote.leave(job, number, arrivals).map_err(refusal)?;
        let arrivals = std::mem::take(arrivals);
        let parts = travel::pack(job, body, arrivals).map_err(Failure::Spilled)?;
        remote.depart(job, resident.id(), parts).map_err(refusal)
    }
}
