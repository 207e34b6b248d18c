//! Scatters and gathers: what their kernels are lent, and who hears of it.
#![allow(unsafe_code)] // Lends kernels their ports, and touches the thread's run queue inside its zone.

use super::{Lack, Slice};
use crate::executor::job::Job;
use crate::executor::watch::{Watch, Watches};
use crate::node::Taken;
use crate::pieces::{PieceMap, PieceQueue};
use brambling_exchange::in_process::{Destinations, Heard, InProcess};
use brambling_memory::{Class, OutOfMemory};
use brambling_program::{
    Context, DecodeError, ExchangeId, Kernel, KernelError, Pieces, Progress, Sink, Turn,
};
use std::error::Error;
use std::sync::atomic::Ordering;

impl<'a> Slice<'a, '_> {
    /// A scatter within this process.
    #[inline(never)]
    pub(super) fn scatter(
        &mut self,
        id: ExchangeId,
        turn: Turn,
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        if self.job.ties.is_some() {
            return self.scatter_far(id, turn, kernel, args, context);
        }
        let exchange = self.job.exchange(id);
        let (index, phase) = (self.resident.index, exchange.phase(turn));
        let mut begun = None;
        let mut sink = exchange.outbox(turn, phase, index, &mut begun);
        // SAFETY: the sink outlives the call.
        unsafe { context.lend_sink(&mut sink) };
        let progress = self.call(kernel, args, context);
        if progress != Progress::Done {
            return cannot_continue(context, progress);
        }
        let charged = match exchange.finish(turn, phase, index, &mut begun) {
            Ok(0) => Ok(()),
            Ok(growth) => self.charge_pieces(growth),
            Err(error) => Err(error),
        };
        if let Err(error) = charged {
            return context.fail(pieces_error(error));
        }
        let mut sent = Sent {
            slice: self,
            exchange,
            id,
            turn,
            phase,
        };
        exchange.sent(turn, phase, index, &mut sent);
        Progress::Done
    }

    /// A gather within this process.
    #[inline(never)]
    pub(super) fn gather(
        &mut self,
        id: ExchangeId,
        turn: Turn,
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        if self.job.ties.is_some() {
            return self.gather_far(id, turn, kernel, args, context);
        }
        let exchange = self.job.exchange(id);
        let index = self.resident.index;
        let mut letters = None;
        let mut pieces = exchange.inbox(turn, exchange.phase(turn), index, &mut letters);
        // SAFETY: the pieces outlive the call.
        unsafe { context.lend_source(&mut pieces) };
        let progress = self.call(kernel, args, context);
        if progress != Progress::Done {
            return cannot_continue(context, progress);
        }
        // What it held is given back before its sources hear of room.
        drop(letters);
        exchange.retire(turn, index, |source| {
            self.wake(self.job.number(self.job.ends(id).source, source));
        });
        Progress::Done
    }

    /// A scatter whose destinations may be on other workers.
    #[inline(never)]
    fn scatter_far(
        &self,
        id: ExchangeId,
        turn: Turn,
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        let (job, shard) = (self.job, self.resident.id());
        let links = &job.ends(id).links;
        let places = 0..links.fan_out(turn, shard.index);
        let related = places.map(|place| links.destination(turn, shard.index, place).0);
        let ties = job.ties.as_ref().expect("the caller saw them");
        let mut pieces = PieceMap::new(shard.index, related, ties.spares(id));
        let mut sink = Sink::Other(&mut pieces);
        // SAFETY: the sink outlives the call.
        unsafe { context.lend_sink(&mut sink) };
        let progress = self.call(kernel, args, context);
        if progress != Progress::Done {
            return cannot_continue(context, progress);
        }
        let said = ties.scattered(job, shard, (id, turn), pieces.sent());
        told(context, said)
    }

    /// A gather whose sources may be on other workers.
    #[inline(never)]
    fn gather_far(
        &self,
        id: ExchangeId,
        turn: Turn,
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        let (job, shard) = (self.job, self.resident.id());
        let ties = job.ties.as_ref().expect("the caller saw them");
        let spares = ties.spares(id);
        let value = |(source, taken): (u32, Taken)| {
            let value = taken.into_value(spares);
            value.map(|value| (source, value))
        };
        let taken = match ties.take(shard, (id, turn)) {
            Ok(taken) => taken,
            Err(error) => return told(context, Err(error)),
        };
        let mut pieces = match taken.into_iter().map(value).collect() {
            Ok(pieces) => PieceQueue::new(pieces),
            Err(error) => {
                let error: DecodeError = error;
                return told(context, Err(error));
            }
        };
        let mut source = Pieces::Other(&mut pieces);
        // SAFETY: the pieces outlive the call.
        unsafe { context.lend_source(&mut source) };
        let progress = self.call(kernel, args, context);
        if progress != Progress::Done {
            return cannot_continue(context, progress);
        }
        pieces.into_values().for_each(|value| spares.put(value));
        let said = ties.gathered(job, shard, (id, turn));
        told(context, said)
    }

    /// Tells a shard that something arrived. This very shard looks again anyway before its slice ends.
    #[inline]
    pub(super) fn wake(&self, number: u32) {
        if number != self.number {
            self.job.wake(number, self.thread);
        }
    }

    /// Has the home thread look at what sources elsewhere owe the shard. A guest goes home by mail.
    #[inline]
    pub(super) fn watch(&mut self, lacks: &[Lack<'a>]) {
        if self.job.homes[self.number as usize] == self.thread {
            for lack in lacks {
                watch_for(self.job, self.watches, self.number, *lack);
            }
        }
    }

    #[cold]
    fn charge_pieces(&self, growth: i64) -> Result<(), OutOfMemory> {
        let (old, new) = if growth > 0 {
            (0, growth as u64)
        } else {
            (growth.unsigned_abs(), 0)
        };
        self.job.options.budget.adjust(Class::Exchange, old, new)?;
        self.job.exchange_bytes.fetch_add(growth, Ordering::Relaxed);
        Ok(())
    }
}

/// A shard's turn of an exchange has ended: its destinations are told.
struct Sent<'t, 'a, 's> {
    slice: &'t mut Slice<'a, 's>,
    exchange: &'a InProcess,
    id: ExchangeId,
    turn: Turn,
    phase: usize,
}

impl Destinations for Sent<'_, '_, '_> {
    #[inline(always)]
    fn is_near(&self, number: u32) -> bool {
        self.slice.job.belongs_to(number, self.slice.thread)
    }

    /// Wakes a destination that has heard all, or sees to it that it hears of what it lacks.
    #[inline(never)]
    fn reached(&mut self, destination: u32, number: u32) {
        let (job, thread) = (self.slice.job, self.slice.thread);
        if number == self.slice.number {
            // This very shard looks itself before its slice ends.
            return;
        }
        match self.exchange.heard(self.turn, self.phase, destination) {
            // SAFETY: inside our own zone, and the reference ends here.
            Heard::All => unsafe { job.ready(thread) }.insert(number),
            Heard::Missing { source, mark } => {
                let lack = mark.map(|mark| Lack {
                    exchange: self.id,
                    turn: self.turn,
                    source,
                    mark,
                });
                if let Some(lack) = lack.filter(|_| job.homes[number as usize] == thread) {
                    watch_for(job, self.slice.watches, number, lack);
                }
            }
        }
    }

    #[inline(never)]
    fn sent_far(&mut self, number: u32) {
        let slice = &self.slice;
        // Nobody looks at the marks of a shard that runs as a guest.
        let is_guest = slice.job.homes[slice.number as usize] != slice.thread;
        if is_guest || self.exchange.must_wake() || slice.job.needs_mail(number) {
            slice.job.post(number);
        }
    }
}

/// Has a shard's home thread, which the caller is, look at the mark that the shard lacks; unless the source has
/// the same home: it will look for itself what the shard lacks.
#[inline]
pub(in crate::executor) fn watch_for<'a>(
    job: &'a Job,
    watches: &mut Watches<'a>,
    number: u32,
    lack: Lack<'a>,
) {
    if job.homes[lack.source as usize] != job.homes[number as usize] {
        let resident = &job.residents[number as usize];
        watches.add(Watch {
            mark: lack.mark,
            exchange: lack.exchange,
            turn: lack.turn,
            number,
            slices: resident.slices.load(Ordering::Relaxed),
        });
    }
}

#[cold]
fn pieces_error(error: OutOfMemory) -> KernelError {
    KernelError::new(error.to_string()).with_source(error)
}

/// A task has run, and its node was told: if that refuses it, the task has failed.
pub(super) fn told(
    context: &mut Context<'_>,
    said: Result<(), impl Error + Send + Sync + 'static>,
) -> Progress {
    match said {
        Ok(()) => Progress::Done,
        Err(error) => context.fail(KernelError::new(error.to_string()).with_source(error)),
    }
}

/// A scatter or gather cannot be continued: its turn would be half sent or half taken.
#[cold]
fn cannot_continue(context: &mut Context<'_>, progress: Progress) -> Progress {
    if progress == Progress::Failed {
        return progress;
    }
    context.fail("a scatter or gather cannot return more or pending; split the stage".into())
}
