//! Owns the calls of scatters and gathers: what their kernels are lent, how pieces are charged, and
//! who hears of a turn that has ended. The slice that runs their shard calls it (`slice.rs`). For
//! pieces that lie in slots it never allocates, locks or hashes.
#![allow(unsafe_code)] // Lends kernels their ports, and touches the thread's ready queue under its queue lock.

use super::view::ShardView;
use super::{MissingSource, Slice, mailbox};
use crate::arrivals::Arrivals;
use crate::executor::job::Job;
use crate::executor::steps::GatherKeeper;
use crate::executor::watch::{StampWatch, Watches};
use crate::node::NodeError;
use crate::pieces::{PieceMap, PieceQueue};
use crate::waiting::ExchangeTurn;
use brambling_exchange::in_process::{
    DestinationEnd, Destinations, InProcess, Keeper, SourceEnd, TurnStatus,
};
use brambling_memory::{Class, OutOfMemory};
use brambling_program::{
    Context, ExchangeId, GatherPieces, Kernel, KernelError, Position, Progress, Sink, Turn,
};
use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};

impl<'a> Slice<'a, '_> {
    /// A signal has its outcome: all shards here learn it, and those of other workers from the node.
    pub(super) fn publish(&self, at: Position, context: &mut Context<'_>) -> Progress {
        let outcome = context.outcome();
        let board = self.job.board(at.stage);
        let wake = |shard| self.wake(shard as u32);
        // Alone, one shard decides in order of turns, so the board appends. In a cluster outcomes
        // come from the node as well, in any order.
        let saving = self.job.saving.as_ref();
        let cut = saving.and_then(|saving| saving.name_turn(board, at, outcome));
        let Some(remote) = &self.job.remote else {
            board.publish(outcome, wake);
            return Progress::Done;
        };
        board.learn(at.turn..at.turn + 1, outcome, wake);
        told(context, remote.decided(self.job, at, outcome, cut))
    }

    /// A scatter to places within this process.
    #[inline(always)]
    pub(super) fn scatter(
        &mut self,
        source: SourceEnd<'a>,
        (id, turn): ExchangeTurn,
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
        // Asked before the turn ends: after its stamp the place is the destination's.
        let growth = source.growth(turn);
        if growth != 0
            && let Err(error) = self.charge_pieces(growth)
        {
            return context.fail(pieces_error(error));
        }
        match source.sent(turn, &mut Sent::new(self, id, turn)) {
            false => Progress::Done,
            true => told(context, self.take_back(source, (id, turn))),
        }
    }

    /// Some of its destinations do not look at their places any more: they get what lies there in another way.
    #[cold]
    #[inline(never)]
    fn take_back(&self, source: SourceEnd<'a>, at: ExchangeTurn) -> Result<(), NodeError> {
        let mut left = Vec::new();
        let looks_here = |number| self.job.needs_ringing(number).is_some();
        source.take_back(at.1, looks_here, |destination, piece| {
            left.push((destination, piece));
        });
        self.send_elsewhere(at, left)
    }

    /// A scatter that does not always write to the same places.
    #[inline(never)]
    pub(super) fn scatter_general(
        &mut self,
        by: GatherKeeper,
        (id, turn): ExchangeTurn,
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        let exchange = self.job.exchange(id);
        match exchange.source(turn, self.resident.index) {
            Some(source) if by == GatherKeeper::Slots => {
                self.scatter(source, (id, turn), kernel, args, context)
            }
            _ => self.scatter_by_mail(exchange, (id, turn), kernel, args, context),
        }
    }

    /// A scatter of what comes through the mailbox, wherever its destinations are.
    #[inline(never)]
    fn scatter_by_mail(
        &mut self,
        exchange: &'a InProcess,
        (id, turn): ExchangeTurn,
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        let (job, source) = (self.job, self.resident.index);
        let piece = job.plan.program.piece_type(id);
        let spares = job.remote.as_ref().map(|remote| &**remote.spares(id));
        // In a cluster pieces without room are spilled, so they are charged after the kernel has
        // written them.
        let budget = job.remote.is_none().then_some(&job.options.budget);
        let links = exchange.links().at(turn);
        let mut pieces = PieceMap::new(source, links, piece, spares, budget);
        let mut sink = Sink::Other(&mut pieces);
        // SAFETY: the sink outlives the call.
        unsafe { context.lend_sink(&mut sink) };
        let progress = self.call(kernel, args, context);
        if progress != Progress::Done {
            return cannot_continue(context, progress);
        }
        let mut sent = match pieces.sent() {
            Ok(sent) => sent,
            Err(error) => return context.fail(pieces_error(error)),
        };
        let by_stamp = match self.post_all((id, turn), &mut sent) {
            Ok(by_stamp) => by_stamp,
            Err(error) => return told(context, Err(error)),
        };
        let Keeper::Stamped(stamped) = exchange.keeper() else {
            return Progress::Done;
        };
        // A source that has moved stamps nothing any more (`Stamped::leave`): all its destinations
        // were told by name.
        if job.has_moved(self.number) {
            return Progress::Done;
        }
        let mut left = Vec::new();
        stamped.sent(
            turn,
            source,
            &mut Sent::new(self, id, turn),
            |destination| {
                if by_stamp.binary_search(&destination).is_ok() {
                    left.push((destination, None));
                }
            },
        );
        if left.is_empty() {
            return Progress::Done;
        }
        told(context, self.send_elsewhere((id, turn), left))
    }

    /// A gather from places within this process.
    #[inline(always)]
    pub(super) fn gather(
        &mut self,
        end: DestinationEnd<'a>,
        (id, turn): ExchangeTurn,
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        let mut pieces = GatherPieces::Slots(end.pieces(turn));
        // SAFETY: the pieces outlive the call.
        unsafe { context.lend_source(&mut pieces) };
        let progress = self.call(kernel, args, context);
        if progress != Progress::Done {
            return cannot_continue(context, progress);
        }
        // Retired after the kernel, which reads the places: a source writes them again once it sees
        // the turn retired.
        end.retire(turn, |source| self.has_made_room(id, source));
        Progress::Done
    }

    /// The same, where something may come through the mailbox. A function of its own: what a job alone runs has no registers to spare for it.
    #[inline(never)]
    pub(super) fn gather_remote(
        &mut self,
        end: DestinationEnd<'a>,
        at: ExchangeTurn,
        around: &mut ShardView<'a, '_>,
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        match self.gather(end, at, kernel, args, context) {
            Progress::Done => told(
                context,
                self.has_gathered(at, around.arrivals, GatherKeeper::Slots),
            ),
            progress => progress,
        }
    }

    /// A gather that does not always read from the same places.
    #[inline(never)]
    pub(super) fn gather_general(
        &mut self,
        by: GatherKeeper,
        at: ExchangeTurn,
        around: &mut ShardView<'a, '_>,
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        let exchange = self.job.exchange(at.0);
        match exchange.destination(at.1, self.resident.index) {
            Some(end) if by == GatherKeeper::Slots && self.job.remote.is_none() => {
                self.gather(end, at, kernel, args, context)
            }
            Some(end) if by == GatherKeeper::Slots => {
                self.gather_remote(end, at, around, kernel, args, context)
            }
            _ => {
                let doorbell = (&mut *around.arrivals, by);
                self.gather_mail(exchange, at, doorbell, kernel, args, context)
            }
        }
    }

    /// A gather of what has come through the mailbox.
    #[inline(never)]
    fn gather_mail(
        &mut self,
        exchange: &InProcess,
        at: ExchangeTurn,
        (arrivals, by): (&mut Arrivals, GatherKeeper),
        kernel: &dyn Kernel,
        args: *const *mut u8,
        context: &mut Context<'_>,
    ) -> Progress {
        let (job, index) = (self.job, self.resident.index);
        let taken = arrivals.take(at, job, &job.waits).map_err(NodeError::from);
        let values = taken.and_then(|taken| {
            let value =
                |(source, taken)| Ok((source, mailbox::value(job, (at, index), source, taken)?));
            taken.into_iter().map(value).collect()
        });
        let mut pieces = match values {
            Ok(values) => PieceQueue::new(values),
            Err(error) => return told(context, Err(error)),
        };
        let mut source = GatherPieces::Other(&mut pieces);
        // SAFETY: the pieces outlive the call.
        unsafe { context.lend_source(&mut source) };
        let progress = self.call(kernel, args, context);
        if progress != Progress::Done {
            return cannot_continue(context, progress);
        }
        // The values' memory is recycled before their sources hear of room.
        pieces
            .into_values()
            .for_each(|value| mailbox::recycle(job, at.0, value));
        // The arrivals give back their room before the sources hear that the turn is retired: what
        // these send next finds that room.
        arrivals.retire(at, &job.waits);
        exchange.retire(at.1, index, |source| self.has_made_room(at.0, source));
        told(context, self.has_gathered(at, arrivals, by))
    }

    /// A turn has been gathered, and a source has waited for room.
    #[cold]
    pub(super) fn has_made_room(&self, id: ExchangeId, source: u32) {
        self.wake(self.job.number(self.job.ends(id).source, source));
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
    pub(super) fn watch(&mut self, missing: &[MissingSource<'a>]) {
        if self.job.home(self.number) == self.thread {
            for missing_source in missing {
                watch_for(self.job, self.watches, self.number, *missing_source);
            }
        }
    }

    /// A shard of another thread must hear that a turn has ended, unless that thread looks at the marks. Whether it looks here at all.
    #[inline(never)]
    fn tell_another_thread(&self, number: u32) -> bool {
        let job = self.job;
        let Some(needs_ringing) = job.needs_ringing(number) else {
            return false;
        };
        // Nobody looks at the marks of a shard that runs as a guest.
        let is_guest = job.home(self.number) != self.thread;
        if is_guest || needs_ringing {
            job.post(number);
        }
        true
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
    fn is_on_this_thread(&self, number: u32) -> bool {
        // Acquire: as in `Job::belongs_to`.
        self.owners[number as usize].load(Ordering::Acquire) == self.thread
    }

    #[inline(always)]
    fn reached(&mut self, number: u32, heard: impl FnOnce() -> TurnStatus<'a>) {
        // This very shard looks itself, when it comes to its gather.
        if number == self.number {
            return;
        }
        match heard() {
            // SAFETY: under our own queue lock, and the reference ends here.
            TurnStatus::Complete => unsafe { self.slice.job.ready(self.thread) }.insert(number),
            TurnStatus::Missing { mark: None, .. } => {}
            TurnStatus::Missing {
                source,
                mark: Some(mark),
            } => {
                if self.slice.job.home(number) == self.thread {
                    let missing_source = MissingSource {
                        exchange: self.id,
                        turn: self.turn,
                        source,
                        mark,
                    };
                    watch_for(self.slice.job, self.slice.watches, number, missing_source);
                }
            }
        }
    }

    #[inline(always)]
    fn sent_to_another_thread(&mut self, number: u32) -> bool {
        self.slice.tell_another_thread(number)
    }
}

/// Has a shard's home thread, which the caller is, look at the mark that the shard lacks; unless the source has
/// the same home: it will look for itself what the shard lacks.
#[inline]
pub(in crate::executor) fn watch_for<'a>(
    job: &'a Job,
    watches: &mut Watches<'a>,
    number: u32,
    missing_source: MissingSource<'a>,
) {
    if job.home(missing_source.source) != job.home(number) {
        let resident = &job.residents[number as usize];
        watches.add(StampWatch {
            mark: missing_source.mark,
            exchange: missing_source.exchange,
            turn: missing_source.turn,
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
