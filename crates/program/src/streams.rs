//! Streaming stages: what their tasks have between their calls, and what their kernels hold.
//!
//! A task of such a stage is *opened* at its first call. What it keeps is its own until it is done: no payload, so it neither moves nor is saved. It
//! takes chunks of its inputs as they come, by ascending source, and of each source in the order in which they were sent; it sends chunks of its
//! output when it likes. Whoever runs kernels knows what comes and where there is room ([`StreamPorts`]).
#![allow(unsafe_code)] // Chunks are erased; the builder fixed their type.

use crate::payload::decode_all_of;
use crate::typed::{StreamFn, With};
use crate::{Context, DecodeError, Exchange, ExchangeId, Kernel, Payload, PayloadType, Progress};
use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Poll;

/// A chunk of a streamed exchange has at most so many bytes: between processes it goes in one frame.
pub const CHUNK_BYTES_MAX: usize = 32 << 20;

/// What a task of a streaming stage has between its calls.
pub struct OpenTask<'a> {
    /// What it keeps: nothing before its first call, nor once it is done.
    pub state: Option<Box<dyn Any + Send>>,
    /// Its streams.
    pub ports: &'a mut dyn StreamPorts,
}

/// What there is of an input.
pub enum Polled {
    /// The next chunk, and who sent it. It is the kernel's until it asks again, or returns.
    Chunk(u32, *mut u8),
    /// It has not come yet. A task that then returns [`Progress::Pending`] is called when it has.
    Nothing,
    /// There is no more.
    Ended,
}

/// Where a streaming stage takes chunks from, and where it puts them.
pub trait StreamPorts {
    /// The next chunk of an input.
    fn poll(&mut self, from: ExchangeId) -> Polled;
    /// The input at a place among those that the stage takes, and the type of its chunks.
    fn input(&self, place: usize) -> Option<(ExchangeId, &'static PayloadType)>;
    /// The output, and the type of its chunks.
    fn output(&self) -> Option<(ExchangeId, &'static PayloadType)>;
    /// The buffer of the next chunk to a destination; none when the relation forbids it at this turn.
    fn slot(&mut self, destination: u32) -> Option<*mut u8>;
    /// Sends the chunk that was written; nothing if none was.
    fn flush(&mut self, destination: u32);
    /// Whether a destination has room for more. On a no a task that then returns [`Progress::Pending`] is called when it has.
    fn has_room(&mut self, destination: u32) -> bool;
    /// How many destinations there are at this turn.
    fn fan_out(&self) -> u32;
    /// The destination at a place among them.
    fn destination(&self, place: u32) -> u32;
}

/// The streams of a task: see [`Program::stream`](crate::Program::stream).
pub struct Streams<'a, 'c> {
    context: &'a mut Context<'c>,
    ports: &'a mut dyn StreamPorts,
}

impl<'a, 'c> Streams<'a, 'c> {
    /// Where the task runs.
    pub fn context(&mut self) -> &mut Context<'c> {
        self.context
    }

    /// The input at a place among those that the stage takes: for a kernel that captures no exchange, so that its program
    /// [links](crate::Program::link).
    ///
    /// # Panics
    /// When the stage takes from fewer, or chunks of another type.
    #[track_caller]
    pub fn input<P: Payload>(&self, place: usize) -> Exchange<P> {
        let end = self.ports.input(place);
        let end = end.filter(|(_, piece)| piece.is::<P>());
        let Some((id, _)) = end else {
            panic!("the stage takes no chunks of this type at place {place}; declare it with take");
        };
        Exchange::of(id)
    }

    /// The output: as [`Streams::input`].
    ///
    /// # Panics
    /// When the stage sends nothing, or chunks of another type.
    #[track_caller]
    pub fn output<P: Payload>(&self) -> Exchange<P> {
        let end = self.ports.output().filter(|(_, piece)| piece.is::<P>());
        let Some((id, _)) = end else {
            panic!("the stage sends no chunks of this type; declare it with send");
        };
        Exchange::of(id)
    }

    /// The next chunk of an input, with the partition that sent it: all of the lowest source come first, as it sent them, then those of the next.
    /// Pending while it has not come: a kernel that then returns [`Progress::Pending`] is called again when it has. None when all have come.
    ///
    /// # Panics
    /// When the stage does not take from this exchange.
    #[track_caller]
    pub fn poll<P: Payload>(&mut self, from: &Exchange<P>) -> Poll<Option<(u32, &mut P)>> {
        match self.ports.poll(from.id) {
            Polled::Chunk(source, chunk) => {
                // SAFETY: chunks are of type P, and the borrow of self keeps a second one away.
                let chunk = unsafe { &mut *chunk.cast::<P>() };
                Poll::Ready(Some((source, chunk)))
            }
            Polled::Nothing => Poll::Pending,
            Polled::Ended => Poll::Ready(None),
        }
    }

    /// The next chunk to a destination, to be written in place, at once or by and by: it is sent by [`Streams::flush`], or when the task is done. What its
    /// buffer holds at first is not said: overwrite or clear it.
    ///
    /// # Panics
    /// When the stage does not send to this exchange, or the relation does not let it send there at this turn.
    #[track_caller]
    pub fn chunk<P: Payload>(&mut self, to: &Exchange<P>, destination: u32) -> &mut P {
        self.expect(to);
        let Some(slot) = self.ports.slot(destination) else {
            panic!(
                "this source may not send to partition {destination} at this turn; widen the exchange's relation"
            );
        };
        // SAFETY: as in `poll`.
        unsafe { &mut *slot.cast::<P>() }
    }

    /// Sends the chunk that was written to a destination, if one was. Whether there is room for more: see [`Streams::has_room`].
    ///
    /// # Panics
    /// When the stage does not send to this exchange.
    #[track_caller]
    pub fn flush<P: Payload>(&mut self, to: &Exchange<P>, destination: u32) -> bool {
        self.expect(to);
        self.ports.flush(destination);
        self.ports.has_room(destination)
    }

    /// Sends a chunk, as [`Streams::chunk`] and [`Streams::flush`].
    ///
    /// # Panics
    /// As these.
    #[track_caller]
    pub fn send<P: Payload>(&mut self, to: &Exchange<P>, destination: u32, chunk: P) -> bool {
        *self.chunk(to, destination) = chunk;
        self.flush(to, destination)
    }

    /// Whether a destination has room for more: it has, unless too much waits for a task that has begun and has something to do. A kernel that then
    /// returns [`Progress::Pending`] is called again when there is room. One that sends nevertheless is not refused.
    ///
    /// # Panics
    /// When the stage does not send to this exchange.
    #[track_caller]
    pub fn has_room<P: Payload>(&mut self, to: &Exchange<P>, destination: u32) -> bool {
        self.expect(to);
        self.ports.has_room(destination)
    }

    /// The destinations to which this partition may send at this turn, ascending.
    pub fn destinations(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.ports.fan_out()).map(|place| self.ports.destination(place))
    }

    #[track_caller]
    fn expect<P>(&self, to: &Exchange<P>) {
        assert_eq!(
            self.ports.output().map(|it| it.0),
            Some(to.id),
            "the stage does not send to this exchange; declare it with send"
        );
    }
}

/// A streaming stage's kernel: how a task is opened, and what it does at each call.
pub(crate) struct StreamKernel<O, F, A, S>(
    pub(crate) O,
    pub(crate) F,
    pub(crate) PhantomData<fn() -> (A, S)>,
);

/// How a task of a streaming stage is opened.
pub(crate) trait Opens<S>: Send + Sync + 'static {
    fn open(&self, context: &mut Context<'_>) -> S;
    /// The same with other parameters; none where it takes none.
    fn with_parameters(_parameters: &[u8], _like: &Self) -> Option<Result<Self, DecodeError>>
    where
        Self: Sized,
    {
        None
    }
}

impl<S, O: Fn(&mut Context<'_>) -> S + Send + Sync + 'static> Opens<S> for O {
    fn open(&self, context: &mut Context<'_>) -> S {
        self(context)
    }
}

impl<S, P: Payload, O> Opens<S> for With<O, P>
where
    O: Fn(&P, &mut Context<'_>) -> S + Copy + Send + Sync + 'static,
{
    fn open(&self, context: &mut Context<'_>) -> S {
        (self.function)(&self.parameters, context)
    }

    fn with_parameters(parameters: &[u8], like: &Self) -> Option<Result<Self, DecodeError>> {
        let function = like.function;
        let parameters = decode_all_of::<P>(parameters);
        Some(parameters.map(|parameters| With {
            function,
            parameters,
        }))
    }
}

impl<O, F, A, S> Kernel for StreamKernel<O, F, A, S>
where
    O: Opens<S>,
    F: StreamFn<A, S>,
    A: 'static,
    S: Send + 'static,
{
    unsafe fn call(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress {
        let mut open = context
            .open
            .take()
            .expect("a streaming stage is lent its task");
        // SAFETY: whoever lends it keeps it alive for the call, and lends it to nobody else.
        let open = unsafe { open.as_mut() };
        let mut state = match open.state.take() {
            Some(kept) => kept.downcast::<S>().expect("kept by this kernel"),
            None => Box::new(self.0.open(context)),
        };
        let ports = &mut *open.ports;
        let mut streams = Streams { context, ports };
        // SAFETY: the caller's promise.
        let progress = unsafe { self.1.invoke(&mut state, &mut streams, args) };
        if matches!(progress, Progress::More | Progress::Pending) {
            // Kept for the next call; a task that is done, or has failed, drops its state here.
            open.state = Some(state);
        }
        progress
    }

    fn parameters(&self) -> Vec<u8> {
        self.1.parameters()
    }

    fn with_parameters(&self, parameters: &[u8]) -> Option<Result<Arc<dyn Kernel>, DecodeError>> {
        let open = O::with_parameters(parameters, &self.0)?;
        let kernel = F::with_parameters(parameters, &self.1)?;
        Some(open.and_then(|open| {
            let kernel = StreamKernel(open, kernel?, PhantomData);
            Ok(Arc::new(kernel) as Arc<dyn Kernel>)
        }))
    }
}
