//! Kernels: users' functions behind one signature, so that running a task is one indirect call.
#![allow(unsafe_code)] // Arguments are erased pointers; typed wrappers in `typed` restore them.

use crate::slots::{SlotsIn, SlotsOut};
use crate::streams::OpenTask;
use crate::{DecodeError, KernelError, Position, Rng, StageId, Turn, Work};
use brambling_memory::{Budget, Class, OutOfMemory, Reservation};
use std::any::Any;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

/// What a kernel says when it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The task is finished.
    Done,
    /// Call me again: the task is not finished, and others may run in between.
    More,
    /// Call me when the completion that I was given ([`Context::completion`]) is signalled.
    Pending,
    /// The task failed; the error is in the context.
    Failed,
}

/// A function over a shard's partitions, with types erased.
pub trait Kernel: Any + Send + Sync {
    /// Runs one task.
    ///
    /// # Safety
    /// `args` points to as many pointers as the stage declares datasets, in order of declaration, each
    /// to a value of the declared type, writable when so declared and shared with nobody then. For a
    /// stage that asks for cells they point to `Value`s. Ports of a scatter or gather are set in the
    /// context and of the declared piece type.
    unsafe fn call(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress;

    /// Its serialised parameters, if it was given any by [`with`](crate::Compute::with).
    fn parameters(&self) -> Vec<u8> {
        Vec::new()
    }

    /// The same function with other parameters; none where it takes none. It is asked only of kernels that take them.
    fn with_parameters(&self, _parameters: &[u8]) -> Option<Result<Arc<dyn Kernel>, DecodeError>> {
        None
    }

    /// Whether it holds nothing, so that any other of its type does the same.
    fn is_stateless(&self) -> bool {
        size_of_val(self) == 0
    }
}

/// Where a scatter puts its pieces. A sink that has no memory for a further one unwinds out of the kernel; kernels let
/// that pass.
pub trait PieceSink {
    /// The buffer of the piece to a destination, marked as sent; none when the relation forbids it at this turn.
    fn slot(&mut self, destination: u32) -> Option<*mut u8>;
    /// The destination at a place among those of this turn, and the buffer of its piece, marked as sent.
    fn slot_at(&mut self, place: u32) -> (u32, *mut u8) {
        let destination = self.destination(place);
        (
            destination,
            self.slot(destination).expect("a destination of this turn"),
        )
    }
    /// Index of the partition that sends.
    fn source(&self) -> u32;
    /// How many destinations this source is related to at this turn.
    fn fan_out(&self) -> u32;
    /// The destination at a place among them.
    fn destination(&self, place: u32) -> u32;
}

/// Where a gather takes its pieces from, in source order.
pub trait PieceSource {
    /// The next source that sent something, and its piece.
    fn next(&mut self) -> Option<(u32, *mut u8)>;
}

/// What a scatter is lent: slots, which it finds without a call, or whatever else takes pieces.
pub enum Sink<'a> {
    /// All places lie in one piece of memory.
    Slots(SlotsOut),
    /// Each place is asked for.
    Other(&'a mut dyn PieceSink),
}

impl Sink<'_> {
    /// As [`PieceSink::slot`].
    pub fn slot(&mut self, destination: u32) -> Option<*mut u8> {
        match self {
            // SAFETY: whoever lends slots keeps them alive for the call, and lends them to nobody else.
            Sink::Slots(slots) => unsafe {
                slots.route(destination).map(|route| slots.write(route))
            },
            Sink::Other(sink) => sink.slot(destination),
        }
    }

    /// As [`PieceSink::source`].
    pub fn source(&self) -> u32 {
        match self {
            Sink::Slots(slots) => slots.source,
            Sink::Other(sink) => sink.source(),
        }
    }

    /// As [`PieceSink::fan_out`].
    pub fn fan_out(&self) -> u32 {
        match self {
            Sink::Slots(slots) => slots.routes.len() as u32,
            Sink::Other(sink) => sink.fan_out(),
        }
    }

    /// As [`PieceSink::destination`].
    pub fn destination(&self, place: u32) -> u32 {
        match self {
            // SAFETY: as in `slot`.
            Sink::Slots(slots) => unsafe { (*slots.routes)[place as usize].destination },
            Sink::Other(sink) => sink.destination(place),
        }
    }
}

/// What a gather is lent, as [`Sink`].
pub enum GatherPieces<'a> {
    /// All pieces lie in one piece of memory.
    Slots(SlotsIn),
    /// Each piece is asked for.
    Other(&'a mut dyn PieceSource),
}

impl GatherPieces<'_> {
    /// As [`PieceSource::next`].
    #[expect(clippy::should_implement_trait)] // A piece must not outlive the loan; an iterator's item may.
    pub fn next(&mut self) -> Option<(u32, *mut u8)> {
        match self {
            // SAFETY: as in `Sink::slot`; each slot is handed out once.
            GatherPieces::Slots(slots) => unsafe { slots.next() },
            GatherPieces::Other(source) => source.next(),
        }
    }
}

/// What a kernel may know about where it runs.
pub struct Context<'a> {
    at: Position,
    index: u32,
    partitions: u32,
    seed: u64,
    /// How often the kernel that runs has asked for random numbers.
    rngs: Cell<u32>,
    cancel: &'a AtomicBool,
    saw_cancellation: Cell<bool>,
    completion: &'a dyn Fn(Position) -> Waker,
    budget: &'a Budget,
    pub(crate) sink: Option<NonNull<Sink<'static>>>,
    pub(crate) source: Option<NonNull<GatherPieces<'static>>>,
    pub(crate) open: Option<NonNull<OpenTask<'static>>>,
    outcome: bool,
    error: Option<KernelError>,
    /// By stage; nothing where nobody sums it.
    works: Option<&'a mut [Work]>,
}

impl<'a> Context<'a> {
    /// The context of one shard's tasks. For whoever runs kernels.
    pub fn new(
        index: u32,
        partitions: u32,
        seed: u64,
        cancel: &'a AtomicBool,
        completion: &'a dyn Fn(Position) -> Waker,
        budget: &'a Budget,
    ) -> Context<'a> {
        let at = Position {
            stage: StageId(0),
            turn: 0,
        };
        Context {
            at,
            index,
            partitions,
            seed,
            rngs: Cell::new(0),
            cancel,
            saw_cancellation: Cell::new(false),
            completion,
            budget,
            sink: None,
            source: None,
            open: None,
            outcome: false,
            error: None,
            works: None,
        }
    }

    /// Has what kernels say of their [`Work`] summed, by stage. For whoever runs kernels.
    pub fn sum_work(&mut self, by_stage: &'a mut [Work]) {
        self.works = Some(by_stage);
    }

    /// Says what the kernel has moved and computed: for one that does not return it.
    pub fn worked(&mut self, work: Work) {
        let works = self.works.as_deref_mut();
        if let Some(sum) = works.and_then(|works| works.get_mut(self.at.stage.index())) {
            sum.add(work);
        }
    }

    /// Moves to a position. For whoever runs kernels.
    #[inline]
    pub fn enter(&mut self, at: Position) {
        self.at = at;
        self.rngs.set(0);
    }

    /// Lends a scatter its sink. For whoever runs kernels.
    ///
    /// # Safety
    /// The sink lives, and nobody else uses it, until the kernel called next has returned.
    #[inline]
    pub unsafe fn lend_sink(&mut self, sink: &mut Sink<'_>) {
        // The lifetime is forgotten; the caller answers for it.
        self.sink = Some(NonNull::from(sink).cast());
    }

    /// Lends a gather its source. For whoever runs kernels.
    ///
    /// # Safety
    /// The source lives, and nobody else uses it, until the kernel called next has returned.
    #[inline]
    pub unsafe fn lend_source(&mut self, source: &mut GatherPieces<'_>) {
        // As in `lend_sink`.
        self.source = Some(NonNull::from(source).cast());
    }

    /// Lends a streaming stage what its task has between its calls. For whoever runs kernels.
    ///
    /// # Safety
    /// It lives, and nobody else uses it, until the kernel called next has returned.
    pub unsafe fn lend_open(&mut self, open: &mut OpenTask<'_>) {
        // As in `lend_sink`.
        self.open = Some(NonNull::from(open).cast());
    }

    /// Takes a scatter's sink, valid until the kernel returns. For kernels of other languages' packages.
    pub fn take_sink(&mut self) -> Option<NonNull<Sink<'static>>> {
        self.sink.take()
    }

    /// Takes a gather's source, valid until the kernel returns. For kernels of other languages' packages.
    pub fn take_source(&mut self) -> Option<NonNull<GatherPieces<'static>>> {
        self.source.take()
    }

    /// Index of the partition.
    pub fn partition(&self) -> u32 {
        self.index
    }

    /// Number of partitions of the group.
    pub fn partitions(&self) -> u32 {
        self.partitions
    }

    /// How often the enclosing block had been entered before.
    pub fn turn(&self) -> Turn {
        self.at.turn
    }

    /// Where the program stands.
    pub fn position(&self) -> Position {
        self.at
    }

    /// Random numbers of this partition at this position: the same wherever and whenever it runs. Called again by the same call of a
    /// kernel, it gives further ones.
    pub fn rng(&self) -> Rng {
        let before = self.rngs.get();
        // A second generator of the same call begins 2³² blocks further on, which no first one
        // reaches: else it would give the same numbers again.
        self.rngs.set(before.wrapping_add(1));
        self.rng_of_row(u64::from(self.index)).far_on(before)
    }

    /// Random numbers of one row (or block) at this position, whichever partition holds it. Called again for the same row, it gives the
    /// same ones.
    pub fn rng_of_row(&self, row: u64) -> Rng {
        Rng::new(self.seed, self.at.stage, self.at.turn, row)
    }

    /// Whether the job has been cancelled; a long kernel may ask now and then, and return early.
    pub fn is_cancelled(&self) -> bool {
        // Relaxed: a kernel that sees the flag late only runs on for a while.
        let cancelled = self.cancel.load(Ordering::Relaxed);
        if cancelled {
            self.saw_cancellation.set(true);
        }
        cancelled
    }

    /// Whether a kernel was told that the job has been cancelled: what it says then is no news. For whoever
    /// runs kernels.
    pub fn has_seen_cancellation(&self) -> bool {
        self.saw_cancellation.get()
    }

    /// Takes so many bytes of the memory that the job may have, until what this gives is dropped: for what a kernel allocates and no dataset
    /// holds. It counts as datasets do. A kernel that returns the error ends its job with one that names the stage; it may do with less instead.
    ///
    /// # Errors
    /// When there is not so much left.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, OutOfMemory> {
        self.budget.reserve(Class::Resident, bytes)
    }

    /// How many bytes the job may have in this process at most, all that it has included: what [`Context::reserve`] takes from.
    pub fn budget_bytes(&self) -> u64 {
        self.budget.budget_bytes()
    }

    /// What wakes this task after it has returned [`Progress::Pending`]: then it is called again. It may be cloned, and woken from any thread, any
    /// number of times. Woken before the kernel returns, it counts; after the task has ended, it does nothing. A task may be called without it, too.
    pub fn completion(&self) -> Waker {
        (self.completion)(self.at)
    }

    /// Sets a signal's outcome. For signal kernels.
    pub fn set_outcome(&mut self, outcome: bool) {
        self.outcome = outcome;
    }

    /// The outcome that the last signal kernel gave.
    pub fn outcome(&self) -> bool {
        self.outcome
    }

    /// Fails the task: return the result from the kernel.
    pub fn fail(&mut self, error: KernelError) -> Progress {
        self.error = Some(error);
        Progress::Failed
    }

    /// The error of a failed task.
    pub fn take_error(&mut self) -> Option<KernelError> {
        self.error.take()
    }
}

/// What kernels may return: nothing, [`Progress`], or a `Result` of either.
pub trait IntoProgress {
    /// Records a failure in the context.
    fn into_progress(self, context: &mut Context<'_>) -> Progress;
}

impl IntoProgress for () {
    #[inline]
    fn into_progress(self, _: &mut Context<'_>) -> Progress {
        Progress::Done
    }
}

impl IntoProgress for Progress {
    #[inline]
    fn into_progress(self, _: &mut Context<'_>) -> Progress {
        self
    }
}

impl<R: IntoProgress, E: Into<KernelError>> IntoProgress for Result<R, E> {
    #[inline]
    fn into_progress(self, context: &mut Context<'_>) -> Progress {
        match self {
            Ok(value) => value.into_progress(context),
            Err(error) => context.fail(error.into()),
        }
    }
}
