//! From typed closures to erased kernels: one impl per number of arguments.
#![allow(unused_unsafe)] // The arity without arguments has nothing unsafe to do.
#![allow(unsafe_code)] // The erased pointers are cast back to the types that the builder recorded.

use crate::payload::decode_all_of;
use crate::{
    Blocked, Blocks, Context, DecodeError, Inbox, IntoProgress, Kernel, Outbox, Payload, Progress,
    Streams, Value,
};
use std::marker::PhantomData;
use std::sync::Arc;

/// How a kernel holds one of its datasets.
pub trait Access {
    /// The kernel's argument.
    type Arg<'a>;
    /// # Safety
    /// As [`Kernel::call`] for this argument.
    unsafe fn arg<'a>(pointer: *mut u8) -> Self::Arg<'a>;
}

/// Reads: the kernel gets `&T`.
pub struct Read<T>(PhantomData<fn() -> T>);
/// Writes or updates: the kernel gets `&mut T`.
pub struct Write<T>(PhantomData<fn() -> T>);
/// Gets the cell itself, to share or replace its payload.
pub struct Cell<T>(PhantomData<fn() -> T>);
impl<T: Payload> Access for Read<T> {
    type Arg<'a> = &'a T;
    #[inline(always)]
    unsafe fn arg<'a>(pointer: *mut u8) -> &'a T {
        // SAFETY: the caller's promise.
        unsafe { &*pointer.cast::<T>() }
    }
}

impl<T: Payload> Access for Write<T> {
    type Arg<'a> = &'a mut T;
    #[inline(always)]
    unsafe fn arg<'a>(pointer: *mut u8) -> &'a mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *pointer.cast::<T>() }
    }
}

impl<T: Payload> Access for Cell<T> {
    type Arg<'a> = &'a mut Value;
    #[inline(always)]
    unsafe fn arg<'a>(pointer: *mut u8) -> &'a mut Value {
        // SAFETY: the caller's promise, for a stage that asked for cells.
        unsafe { &mut *pointer.cast::<Value>() }
    }
}

/// Appends one to a tuple of accesses.
pub trait Append {
    /// The longer tuple.
    type With<X>;
}

/// A function over a tuple of accesses.
pub trait ComputeFn<A>: Send + Sync + 'static {
    /// # Safety
    /// As [`Kernel::call`].
    unsafe fn invoke(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress;
    /// As [`Kernel::parameters`].
    fn parameters(&self) -> Vec<u8> {
        Vec::new()
    }
    /// As [`Kernel::with_parameters`].
    fn with_parameters(_parameters: &[u8], _like: &Self) -> Option<Result<Self, DecodeError>>
    where
        Self: Sized,
    {
        None
    }
}

/// The same with the context as first argument.
pub trait ContextFn<A>: Send + Sync + 'static {
    /// # Safety
    /// As [`Kernel::call`].
    unsafe fn invoke(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress;
    /// As [`Kernel::parameters`].
    fn parameters(&self) -> Vec<u8> {
        Vec::new()
    }
    /// As [`Kernel::with_parameters`].
    fn with_parameters(_parameters: &[u8], _like: &Self) -> Option<Result<Self, DecodeError>>
    where
        Self: Sized,
    {
        None
    }
}

/// A function over accesses and an outbox.
pub trait ScatterFn<A, P>: Send + Sync + 'static {
    /// # Safety
    /// As [`Kernel::call`].
    unsafe fn invoke(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress;
    /// As [`Kernel::parameters`].
    fn parameters(&self) -> Vec<u8> {
        Vec::new()
    }
    /// As [`Kernel::with_parameters`].
    fn with_parameters(_parameters: &[u8], _like: &Self) -> Option<Result<Self, DecodeError>>
    where
        Self: Sized,
    {
        None
    }
}

/// A function over an inbox and accesses.
pub trait GatherFn<A, P>: Send + Sync + 'static {
    /// # Safety
    /// As [`Kernel::call`].
    unsafe fn invoke(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress;
    /// As [`Kernel::parameters`].
    fn parameters(&self) -> Vec<u8> {
        Vec::new()
    }
    /// As [`Kernel::with_parameters`].
    fn with_parameters(_parameters: &[u8], _like: &Self) -> Option<Result<Self, DecodeError>>
    where
        Self: Sized,
    {
        None
    }
}

/// A function over a state that is kept, the streams, and accesses.
pub trait StreamFn<A, S>: Send + Sync + 'static {
    /// # Safety
    /// As [`Kernel::call`].
    unsafe fn invoke(
        &self,
        state: &mut S,
        streams: &mut Streams<'_, '_>,
        args: *const *mut u8,
    ) -> Progress;
    /// As [`Kernel::parameters`].
    fn parameters(&self) -> Vec<u8> {
        Vec::new()
    }
    /// As [`Kernel::with_parameters`].
    fn with_parameters(_parameters: &[u8], _like: &Self) -> Option<Result<Self, DecodeError>>
    where
        Self: Sized,
    {
        None
    }
}

/// A function over accesses that gives a signal.
pub trait SignalFn<A>: Send + Sync + 'static {
    /// # Safety
    /// As [`Kernel::call`].
    unsafe fn invoke(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress;
    /// As [`Kernel::parameters`].
    fn parameters(&self) -> Vec<u8> {
        Vec::new()
    }
    /// As [`Kernel::with_parameters`].
    fn with_parameters(_parameters: &[u8], _like: &Self) -> Option<Result<Self, DecodeError>>
    where
        Self: Sized,
    {
        None
    }
}

/// A function over one block, whole datasets, and the block's result.
pub trait MapFn<T, A, R>: Send + Sync + 'static {
    /// # Safety
    /// As [`Kernel::call`]: the blocked dataset first, then the accesses, then the results.
    unsafe fn invoke(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress;
    /// As [`Kernel::parameters`].
    fn parameters(&self) -> Vec<u8> {
        Vec::new()
    }
    /// As [`Kernel::with_parameters`].
    fn with_parameters(_parameters: &[u8], _like: &Self) -> Option<Result<Self, DecodeError>>
    where
        Self: Sized,
    {
        None
    }
}

/// A function of no state whose first argument is a reference to parameters, and these: made by [`with`](crate::Compute::with).
#[derive(Clone, Copy, Debug)]
pub struct With<F, P> {
    pub(crate) function: F,
    pub(crate) parameters: P,
}

/// Of a function with parameters: what it travels as.
macro_rules! rebound {
    () => {
        fn parameters(&self) -> Vec<u8> {
            let mut bytes = Vec::new();
            self.parameters.encode(&mut bytes);
            bytes
        }
        fn with_parameters(bytes: &[u8], like: &Self) -> Option<Result<Self, DecodeError>> {
            let function = like.function;
            Some(decode_all_of::<Par>(bytes).map(|parameters| With {
                function,
                parameters,
            }))
        }
    };
}

/// Calls a map's kernel for each block of a partition that is not empty.
///
/// # Safety
/// `args` begins with a pointer to a `T`, and `results` points to `Blocks<R>` that nobody else holds.
#[inline(always)]
unsafe fn for_each_block<T: Blocked, R: Payload>(
    context: &mut Context<'_>,
    args: *const *mut u8,
    results: *mut u8,
    call: impl Fn(T::Block<'_>, &mut R, &mut Context<'_>) -> Progress,
) -> Progress {
    // SAFETY: the caller's promise.
    let (blocks, results) = unsafe { (&*(*args).cast::<T>(), &mut *results.cast::<Blocks<R>>()) };
    // Results keep the global indexes of their blocks, along which reductions add.
    results.prepare(blocks.first_block(), blocks.block_count());
    for index in 0..blocks.block_count() {
        let Some(block) = blocks.block(index) else {
            results.set_empty(index);
            continue;
        };
        match call(block, results.fill(index), context) {
            Progress::Done => {}
            // A map has one call per block; there is no half of it to come back to.
            Progress::More | Progress::Pending => {
                return context.fail("a map kernel cannot be continued; use compute".into());
            }
            Progress::Failed => return Progress::Failed,
        }
    }
    Progress::Done
}

macro_rules! arity {
    ($($name:ident $index:literal),* ; $last:literal) => {
        impl<$($name),*> Append for ($($name,)*) {
            type With<X> = ($($name,)* X,);
        }

        impl<Func, Out, $($name: Access),*> ComputeFn<($($name,)*)> for Func
        where
            Out: IntoProgress,
            Func: Fn($($name::Arg<'_>),*) -> Out + Send + Sync + 'static,
        {
            #[inline(always)]
            unsafe fn invoke(&self, context: &mut Context<'_>, _args: *const *mut u8) -> Progress {
                // SAFETY: the caller's promise.
                let out = unsafe { self($($name::arg(*_args.add($index))),*) };
                out.into_progress(context)
            }
        }

        impl<Func, Out, $($name: Access),*> ContextFn<($($name,)*)> for Func
        where
            Out: IntoProgress,
            Func: Fn(&mut Context<'_>, $($name::Arg<'_>),*) -> Out + Send + Sync + 'static,
        {
            #[inline(always)]
            unsafe fn invoke(&self, context: &mut Context<'_>, _args: *const *mut u8) -> Progress {
                // SAFETY: the caller's promise.
                let out = unsafe { self(context, $($name::arg(*_args.add($index))),*) };
                out.into_progress(context)
            }
        }

        impl<Func, Out, P: Payload, $($name: Access),*> ScatterFn<($($name,)*), P> for Func
        where
            Out: IntoProgress,
            Func: Fn($($name::Arg<'_>,)* &mut Outbox<'_, P>) -> Out + Send + Sync + 'static,
        {
            #[inline(always)]
            unsafe fn invoke(&self, context: &mut Context<'_>, _args: *const *mut u8) -> Progress {
                let mut sink = context.sink.take().expect("a scatter is given its sink");
                // SAFETY: the caller's promise.
                let out = unsafe { self($($name::arg(*_args.add($index)),)* &mut Outbox::new(sink.as_mut())) };
                out.into_progress(context)
            }
        }

        impl<Func, Out, P: Payload, $($name: Access),*> GatherFn<($($name,)*), P> for Func
        where
            Out: IntoProgress,
            Func: Fn(&mut Inbox<'_, P>, $($name::Arg<'_>),*) -> Out + Send + Sync + 'static,
        {
            #[inline(always)]
            unsafe fn invoke(&self, context: &mut Context<'_>, _args: *const *mut u8) -> Progress {
                let mut source = context.source.take().expect("a gather is given its source");
                // SAFETY: the caller's promise.
                let out = unsafe { self(&mut Inbox::new(source.as_mut()), $($name::arg(*_args.add($index))),*) };
                out.into_progress(context)
            }
        }

        impl<Func, Out, State, $($name: Access),*> StreamFn<($($name,)*), State> for Func
        where
            Out: IntoProgress,
            Func: Fn(&mut State, &mut Streams<'_, '_>, $($name::Arg<'_>),*) -> Out + Send + Sync + 'static,
        {
            unsafe fn invoke(
                &self,
                state: &mut State,
                streams: &mut Streams<'_, '_>,
                _args: *const *mut u8,
            ) -> Progress {
                // SAFETY: the caller's promise.
                let out = unsafe { self(state, streams, $($name::arg(*_args.add($index))),*) };
                out.into_progress(streams.context())
            }
        }

        impl<Func, $($name: Access),*> SignalFn<($($name,)*)> for Func
        where
            Func: Fn($($name::Arg<'_>),*) -> bool + Send + Sync + 'static,
        {
            #[inline(always)]
            unsafe fn invoke(&self, context: &mut Context<'_>, _args: *const *mut u8) -> Progress {
                // SAFETY: the caller's promise.
                let outcome = unsafe { self($($name::arg(*_args.add($index))),*) };
                context.set_outcome(outcome);
                Progress::Done
            }
        }

        impl<Func, Out, T: Blocked, R: Payload, $($name: Access),*> MapFn<T, ($($name,)*), R> for Func
        where
            Out: IntoProgress,
            Func: Fn(T::Block<'_>, $($name::Arg<'_>,)* &mut R) -> Out + Send + Sync + 'static,
        {
            unsafe fn invoke(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress {
                // SAFETY: the caller's promise, here and below; the accesses follow the blocked dataset.
                unsafe {
                    for_each_block::<T, R>(context, args, *args.add($last), |block, result, context| {
                        let out = self(block, $($name::arg(*args.add($index + 1)),)* result);
                        out.into_progress(context)
                    })
                }
            }
        }

        impl<Func, Par, Out, T: Blocked, R: Payload, $($name: Access),*> MapFn<T, ($($name,)*), R> for With<Func, Par>
        where
            Par: Payload,
            Out: IntoProgress,
            Func: Fn(&Par, T::Block<'_>, $($name::Arg<'_>,)* &mut R) -> Out + Copy + Send + Sync + 'static,
        {
            unsafe fn invoke(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress {
                // SAFETY: the caller's promise, here and below; the accesses follow the blocked dataset.
                unsafe {
                    for_each_block::<T, R>(context, args, *args.add($last), |block, result, context| {
                        let out = (self.function)(&self.parameters, block, $($name::arg(*args.add($index + 1)),)* result);
                        out.into_progress(context)
                    })
                }
            }
            rebound!();
        }

        impl<Func, Par, Out, $($name: Access),*> ComputeFn<($($name,)*)> for With<Func, Par>
        where
            Par: Payload,
            Out: IntoProgress,
            Func: Fn(&Par, $($name::Arg<'_>),*) -> Out + Copy + Send + Sync + 'static,
        {
            #[inline(always)]
            unsafe fn invoke(&self, context: &mut Context<'_>, _args: *const *mut u8) -> Progress {
                // SAFETY: the caller's promise.
                let out = unsafe { (self.function)(&self.parameters, $($name::arg(*_args.add($index))),*) };
                out.into_progress(context)
            }
            rebound!();
        }

        impl<Func, Par, Out, $($name: Access),*> ContextFn<($($name,)*)> for With<Func, Par>
        where
            Par: Payload,
            Out: IntoProgress,
            Func: Fn(&Par, &mut Context<'_>, $($name::Arg<'_>),*) -> Out + Copy + Send + Sync + 'static,
        {
            #[inline(always)]
            unsafe fn invoke(&self, context: &mut Context<'_>, _args: *const *mut u8) -> Progress {
                // SAFETY: the caller's promise.
                let out = unsafe { (self.function)(&self.parameters, context, $($name::arg(*_args.add($index))),*) };
                out.into_progress(context)
            }
            rebound!();
        }

        impl<Func, Par, Out, P: Payload, $($name: Access),*> ScatterFn<($($name,)*), P> for With<Func, Par>
        where
            Par: Payload,
            Out: IntoProgress,
            Func: Fn(&Par, $($name::Arg<'_>,)* &mut Outbox<'_, P>) -> Out + Copy + Send + Sync + 'static,
        {
            #[inline(always)]
            unsafe fn invoke(&self, context: &mut Context<'_>, _args: *const *mut u8) -> Progress {
                let mut sink = context.sink.take().expect("a scatter is given its sink");
                // SAFETY: the caller's promise.
                let out = unsafe {
                    (self.function)(&self.parameters, $($name::arg(*_args.add($index)),)* &mut Outbox::new(sink.as_mut()))
                };
                out.into_progress(context)
            }
            rebound!();
        }

        impl<Func, Par, Out, P: Payload, $($name: Access),*> GatherFn<($($name,)*), P> for With<Func, Par>
        where
            Par: Payload,
            Out: IntoProgress,
            Func: Fn(&Par, &mut Inbox<'_, P>, $($name::Arg<'_>),*) -> Out + Copy + Send + Sync + 'static,
        {
            #[inline(always)]
            unsafe fn invoke(&self, context: &mut Context<'_>, _args: *const *mut u8) -> Progress {
                let mut source = context.source.take().expect("a gather is given its source");
                // SAFETY: the caller's promise.
                let out = unsafe {
                    (self.function)(&self.parameters, &mut Inbox::new(source.as_mut()), $($name::arg(*_args.add($index))),*)
                };
                out.into_progress(context)
            }
            rebound!();
        }

        impl<Func, Par, Out, State, $($name: Access),*> StreamFn<($($name,)*), State> for With<Func, Par>
        where
            Par: Payload,
            Out: IntoProgress,
            Func: Fn(&Par, &mut State, &mut Streams<'_, '_>, $($name::Arg<'_>),*) -> Out + Copy + Send + Sync + 'static,
        {
            unsafe fn invoke(
                &self,
                state: &mut State,
                streams: &mut Streams<'_, '_>,
                _args: *const *mut u8,
            ) -> Progress {
                // SAFETY: the caller's promise.
                let out = unsafe {
                    (self.function)(&self.parameters, state, streams, $($name::arg(*_args.add($index))),*)
                };
                out.into_progress(streams.context())
            }
            rebound!();
        }

        impl<Func, Par, $($name: Access),*> SignalFn<($($name,)*)> for With<Func, Par>
        where
            Par: Payload,
            Func: Fn(&Par, $($name::Arg<'_>),*) -> bool + Copy + Send + Sync + 'static,
        {
            #[inline(always)]
            unsafe fn invoke(&self, context: &mut Context<'_>, _args: *const *mut u8) -> Progress {
                // SAFETY: the caller's promise.
                let outcome = unsafe { (self.function)(&self.parameters, $($name::arg(*_args.add($index))),*) };
                context.set_outcome(outcome);
                Progress::Done
            }
            rebound!();
        }
    };
}
arity!(; 1);
arity!(A 0; 2);
arity!(A 0, B 1; 3);
arity!(A 0, B 1, C 2; 4);
arity!(A 0, B 1, C 2, D 3; 5);
arity!(A 0, B 1, C 2, D 3, E 4; 6);
arity!(A 0, B 1, C 2, D 3, E 4, F 5; 7);
arity!(A 0, B 1, C 2, D 3, E 4, F 5, G 6; 8);
arity!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7; 9);

macro_rules! erase {
    ($wrapper:ident, $function:ident <$($param:ident),*>) => {
        pub(crate) struct $wrapper<F, $($param),*>(pub F, pub PhantomData<fn() -> ($($param,)*)>);

        impl<F: $function<$($param),*>, $($param: 'static),*> Kernel for $wrapper<F, $($param),*> {
            #[inline]
            unsafe fn call(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress {
                // SAFETY: the caller's promise.
                unsafe { self.0.invoke(context, args) }
            }

            fn parameters(&self) -> Vec<u8> {
                self.0.parameters()
            }

            fn with_parameters(&self, parameters: &[u8]) -> Option<Result<Arc<dyn Kernel>, DecodeError>> {
                let function = F::with_parameters(parameters, &self.0)?;
                let kernel = function.map(|it| Arc::new($wrapper(it, PhantomData)) as Arc<dyn Kernel>);
                Some(kernel)
            }
        }
    };
}
erase!(ComputeKernel, ComputeFn<A>);
erase!(ContextKernel, ContextFn<A>);
erase!(ScatterKernel, ScatterFn<A, P>);
erase!(GatherKernel, GatherFn<A, P>);
erase!(SignalKernel, SignalFn<A>);
erase!(MapKernel, MapFn<T, A, R>);
