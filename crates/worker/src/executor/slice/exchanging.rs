//! Scatters and gathers: what their kernels are lent, and who hears of it.
#![allow(unsafe_code)] // Lends kernels their ports, and touches the thread's run queue inside its zone.

use super::{Lack, Slice};
use crate::executor::job::Job;
use crate::executor::watch::{Watch, Watches};
use crate::node::Taken;
use crate::pieces::{PieceMap, PieceQueue};
use brambling_exchange::in_process::{
    Carrier, DestinationEnd, Destinations, Heard, InProcess, Mailboxes, SourceEnd,
};
use brambling_memory::{Class, OutOfMemory};
use brambling_program::{
    Context, DecodeError, ExchangeId, Kernel, KernelError, Pieces, Progress, Sink, Turn,
};
use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};

impl<'a> Slice<'a, '_> {
    /// A scatter to places within this process.
    #[inline(always)]
    pub(super) fn scatter(
        &mut self,
        source: SourceEnd<'a>,
        (id, turn): (ExchangeId, Turn),
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        let mut sink = Sink::Slots(source.out(turn));
        // SAFETY: the sink outlives the call.
        unsafe { context.lend_sink(&mut sink) };
        let progress = self.call(kernel, args, context);
        if progress != Progress::Done {
            return cannot_continue(context, progress);
        }
        let growth = source.growth(turn);
        if growth != 0
            && let Err(error) = self.charge_pieces(growth)
        {
            return context.fail(pieces_error(error));
        }
        source.sent(turn, &mut Sent::new(self, id, turn));
        Progress::Done
    }

    /// A scatter, wherever its destinations are.
    #[inline(never)]
    pub(super) fn scatter_otherwise(
        &mut self,
        id: ExchangeId,
        turn: Turn,
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        let Some(exchange) = self.job.exchange(id) else {
            return self.scatter_far(id, turn, kernel, args, context);
        };
        match exchange.carrier() {
            Carrier::Slots(slots) => {
                let source = slots.source(exchange.phase(turn), self.resident.index);
                self.scatter(source, (id, turn), kernel, args, context)
            }
            Carrier::Letters(mailboxes) => {
                self.scatter_letters(mailboxes, (id, turn), kernel, args, context)
            }
        }
    }

    /// A scatter of what comes through mailboxes.
    #[inline(never)]
    fn scatter_letters(
        &mut self,
        mailboxes: &'a Mailboxes,
        (id, turn): (ExchangeId, Turn),
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        let source = self.resident.index;
        let mut outbox = mailboxes.outbox(turn, source);
        let mut sink = Sink::Other(&mut outbox);
        // SAFETY: the sink outlives the call.
        unsafe { context.lend_sink(&mut sink) };
        let progress = self.call(kernel, args, context);
        if progress != Progress::Done {
            return cannot_continue(context, progress);
        }
        if let Err(error) = outbox.deliver() {
            return context.fail(pieces_error(error));
        }
        mailboxes.sent(turn, source, &mut Sent::new(self, id, turn));
        Progress::Done
    }

    /// A gather from places within this process.
    #[inline(always)]
    pub(super) fn gather(
        &mut self,
        end: DestinationEnd<'a>,
        (id, turn): (ExchangeId, Turn),
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        let mut pieces = Pieces::Slots(end.pieces(turn));
        // SAFETY: the pieces outlive the call.
        unsafe { context.lend_source(&mut pieces) };
        let progress = self.call(kernel, args, context);
        if progress != Progress::Done {
            return cannot_continue(context, progress);
        }
        end.retire(turn, |source| self.has_made_room(id, source));
        Progress::Done
    }

    /// A gather, wherever its sources are.
    #[inline(never)]
    pub(super) fn gather_otherwise(
        &mut self,
        id: ExchangeId,
        turn: Turn,
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        let Some(exchange) = self.job.exchange(id) else {
            return self.gather_far(id, turn, kernel, args, context);
        };
        match exchange.carrier() {
            Carrier::Slots(slots) => {
                let end = slots.destination(exchange.phase(turn), self.resident.index);
                self.gather(end, (id, turn), kernel, args, context)
            }
            Carrier::Letters(mailboxes) => {
                self.gather_letters(mailboxes, (id, turn), kernel, args, context)
            }
        }
    }

    /// A gather of what lies in a mailbox.
    #[inline(never)]
    fn gather_letters(
        &mut self,
        mailboxes: &Mailboxes,
        (id, turn): (ExchangeId, Turn),
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        let mut letters = mailboxes.inbox(turn, self.resident.index);
        let mut pieces = Pieces::Other(&mut letters);
        // SAFETY: the pieces outlive the call.
        unsafe { context.lend_source(&mut pieces) };
        let progress = self.call(kernel, args, context);
        if progress != Progress::Done {
            return cannot_continue(context, progress);
        }
        // What it held is given back before its sources hear of room.
        drop(letters);
        mailboxes.retire(turn, self.resident.index, |source| {
            self.has_made_room(id, source);
        });
        Progress::Done
    }

    /// A turn has been gathered, and a source has waited for room.
    #[cold]
    fn has_made_room(&self, id: ExchangeId, source: u32) {
        self.wake(self.job.number(self.job.ends(id).source, source));
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
        let ties = job.ties();
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
        let ties = job.ties();
        let spares = ties.spares(id);
        let value = |(source, taken): (u32, Taken)| {
            let value = taken.into_value(spares);
            value.map(|value| (source, value))
        };
        let taken = match ties.take(job, shard, (id, turn)) {
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

    /// A shard of another thread must hear that a turn has ended, unless that thread looks at the marks.
    #[inline(never)]
    fn tell_far(&self, id: ExchangeId, number: u32) {
        let job = self.job;
        // Nobody looks at the marks of a shard that runs as a guest.
        let is_guest = job.homes[self.number as usize] != self.thread;
        let has_no_marks = || job.exchange(id).is_some_and(InProcess::must_wake);
        if is_guest || has_no_marks() || job.needs_mail(number) {
            job.post(number);
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

/// A shard's turn of an exchange has ended: its destinations are told. What is asked of each of them is at hand.
struct Sent<'t, 'a, 's> {
    slice: &'t mut Slice<'a, 's>,
    owners: &'a [AtomicU32],
    number: u32,
    thread: u32,
    id: ExchangeId,
    turn: Turn,
}

impl<'t, 'a, 's> Sent<'t, 'a, 's> {
    #[inline(always)]
    fn new(slice: &'t mut Slice<'a, 's>, id: ExchangeId, turn: Turn) -> Self {
        let (owners, number, thread) = (&*slice.job.owners, slice.number, slice.thread);
        Sent {
            slice,
            owners,
            number,
            thread,
            id,
            turn,
        }
    }
}

impl<'a> Destinations<'a> for Sent<'_, 'a, '_> {
    #[inline(always)]
    fn is_near(&self, number: u32) -> bool {
        // Acquire: as in `Job::belongs_to`.
        self.owners[number as usize].load(Ordering::Acquire) == self.thread
    }

    #[inline(always)]
    fn reached(&mut self, number: u32, heard: impl FnOnce() -> Heard<'a>) {
        // This very shard looks itself, when it comes to its gather.
        if number == self.number {
            return;
        }
        match heard() {
            // SAFETY: inside our own zone, and the reference ends here.
            Heard::All => unsafe { self.slice.job.ready(self.thread) }.insert(number),
            Heard::Missing { mark: None, .. } => {}
            Heard::Missing {
                source,
                mark: Some(mark),
            } => {
                if self.slice.job.homes[number as usize] == self.thread {
                    let lack = Lack {
                        exchange: self.id,
                        turn: self.turn,
                        source,
                        mark,
                    };
                    watch_for(self.slice.job, self.slice.watches, number, lack);
                }
            }
        }
    }

    #[inline(always)]
    fn sent_far(&mut self, number: u32) {
        self.slice.tell_far(self.id, number);
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
