//! Builders of single stages: declare what a kernel uses, then give the kernel.

use crate::streams::StreamKernel;
use crate::typed::{
    Append, Cell, ComputeFn, ComputeKernel, ContextFn, ContextKernel, GatherFn, GatherKernel,
    MapFn, MapKernel, Read, ScatterFn, ScatterKernel, SignalFn, SignalKernel, StreamFn, With,
    Write,
};
use crate::{
    Blocked, Blocks, BuildError, Context, Dataset, DatasetId, Exchange, Kernel, KernelSpec,
    Payload, Program, ProgramNode, Runner, Signal, StageId, StageKind, StreamId, StreamSpec, Use,
};
use std::any::type_name;
use std::marker::PhantomData;
use std::sync::Arc;

/// What is known of a stage so far.
pub(crate) struct StageDraft<'p> {
    program: &'p mut Program,
    name: String,
    kind: StageKind,
    uses: Vec<(DatasetId, Use)>,
    owners: Vec<u64>,
    cells: bool,
    kernel: Option<(String, Vec<u8>)>,
    finished: bool,
}

impl Drop for StageDraft<'_> {
    /// A stage that is declared and never given its kernel would be missing without a word.
    fn drop(&mut self) {
        if !self.finished {
            let stage = std::mem::take(&mut self.name);
            self.program.errors.push(BuildError::NoKernel { stage });
        }
    }
}

impl<'p> StageDraft<'p> {
    fn new(program: &'p mut Program, name: String, kind: StageKind) -> Self {
        StageDraft {
            program,
            name,
            kind,
            uses: Vec::new(),
            owners: Vec::new(),
            cells: false,
            kernel: None,
            finished: false,
        }
    }

    fn uses<T>(mut self, dataset: &Dataset<T>, how: Use) -> Self {
        self.uses.push((dataset.id, how));
        self.owners.push(dataset.program);
        self
    }

    fn finish(mut self, type_name: &str, kernel: Arc<dyn Kernel>) -> StageId {
        self.finished = true;
        let named = self.kernel.take();
        let (name, mut parameters) = named.unwrap_or_else(|| (type_name.to_owned(), Vec::new()));
        // Parameters that were given by `with` are what the kernel runs with: they go before those
        // that were only told.
        let own = kernel.parameters();
        if !own.is_empty() {
            parameters = own;
        }
        let spec = KernelSpec {
            name,
            parameters,
            runner: Runner::Native,
        };
        let block = self.program.current_block();
        // Taken out, since the draft has a `Drop` and cannot be moved apart.
        let (name, uses) = (
            std::mem::take(&mut self.name),
            std::mem::take(&mut self.uses),
        );
        let stage = self
            .program
            .push_stage(name, self.kind, uses, self.cells, spec, kernel, block);
        // Checked once the stage is there: the error names it.
        for owner in std::mem::take(&mut self.owners) {
            self.program.check_owner(stage, owner);
        }
        self.program.add(ProgramNode::Stage(stage));
        stage
    }
}

macro_rules! declarations {
    ($name:ident; $($param:ident: $bound:path),*) => {
        impl<'p, A: Append, $($param: $bound),*> $name<'p, A, $($param),*> {
            /// The kernel reads a dataset: its next argument is `&T`.
            pub fn read<T: Payload>(self, dataset: &Dataset<T>) -> $name<'p, A::With<Read<T>>, $($param),*> {
                $name { draft: self.draft.uses(dataset, Use::Read), types: PhantomData }
            }

            /// Names the kernel and its serialised parameters, which workers compare; without this its
            /// Rust name serves, and it must not capture anything that differs between processes.
            pub fn named(mut self, name: impl Into<String>, parameters: Vec<u8>) -> Self {
                self.draft.kernel = Some((name.into(), parameters));
                self
            }
        }
    };
}

macro_rules! writes {
    ($name:ident; $($param:ident: $bound:path),*) => {
        impl<'p, A: Append, $($param: $bound),*> $name<'p, A, $($param),*> {
            /// The kernel writes a dataset: its next argument is `&mut T`, whose content is of no meaning
            /// but whose buffers may be used again.
            pub fn write<T: Payload>(self, dataset: &Dataset<T>) -> $name<'p, A::With<Write<T>>, $($param),*> {
                $name { draft: self.draft.uses(dataset, Use::Write), types: PhantomData }
            }

            /// The kernel reads and writes a dataset: its next argument is `&mut T`.
            pub fn update<T: Payload>(self, dataset: &Dataset<T>) -> $name<'p, A::With<Write<T>>, $($param),*> {
                $name { draft: self.draft.uses(dataset, Use::Update), types: PhantomData }
            }
        }
    };
}

/// A compute stage being declared.
#[must_use = "finish the stage with run"]
pub struct Compute<'p, A> {
    draft: StageDraft<'p>,
    types: PhantomData<fn() -> A>,
}
declarations!(Compute;);
writes!(Compute;);

impl<A: 'static> Compute<'_, A> {
    /// Gives the kernel: one call per partition.
    pub fn run<F: ComputeFn<A>>(self, kernel: F) {
        self.draft.finish(
            type_name::<F>(),
            Arc::new(ComputeKernel::<F, A>(kernel, PhantomData)),
        );
    }

    /// Gives a kernel whose first argument is the [`Context`](crate::Context).
    pub fn run_with_context<F: ContextFn<A>>(self, kernel: F) {
        self.draft.finish(
            type_name::<F>(),
            Arc::new(ContextKernel::<F, A>(kernel, PhantomData)),
        );
    }
}

/// A scatter being declared.
#[must_use = "finish the stage with run"]
pub struct Scatter<'p, A, P: Payload> {
    draft: StageDraft<'p>,
    types: PhantomData<fn() -> (A, P)>,
}
declarations!(Scatter; P: Payload);

impl<'p, A: Append, P: Payload> Scatter<'p, A, P> {
    pub(crate) fn cell<T: Payload>(
        mut self,
        dataset: &Dataset<T>,
    ) -> Scatter<'p, A::With<Cell<T>>, P> {
        self.draft.cells = true;
        Scatter {
            draft: self.draft.uses(dataset, Use::Read),
            types: PhantomData,
        }
    }
}

impl<A: 'static, P: Payload> Scatter<'_, A, P> {
    /// Gives the kernel: its last argument is an [`Outbox`](crate::Outbox).
    pub fn run<F: ScatterFn<A, P>>(self, kernel: F) {
        self.draft.finish(
            type_name::<F>(),
            Arc::new(ScatterKernel::<F, A, P>(kernel, PhantomData)),
        );
    }
}

/// A gather being declared.
#[must_use = "finish the stage with run"]
pub struct Gather<'p, A, P: Payload> {
    draft: StageDraft<'p>,
    types: PhantomData<fn() -> (A, P)>,
}
declarations!(Gather; P: Payload);
writes!(Gather; P: Payload);

impl<'p, A: Append, P: Payload> Gather<'p, A, P> {
    pub(crate) fn cell<T: Payload>(
        mut self,
        dataset: &Dataset<T>,
    ) -> Gather<'p, A::With<Cell<T>>, P> {
        self.draft.cells = true;
        Gather {
            draft: self.draft.uses(dataset, Use::Write),
            types: PhantomData,
        }
    }
}

impl<A: 'static, P: Payload> Gather<'_, A, P> {
    /// Gives the kernel: its first argument is an [`Inbox`](crate::Inbox).
    pub fn run<F: GatherFn<A, P>>(self, kernel: F) {
        self.draft.finish(
            type_name::<F>(),
            Arc::new(GatherKernel::<F, A, P>(kernel, PhantomData)),
        );
    }
}

/// A streaming stage being declared.
#[must_use = "finish the stage with run"]
pub struct Stream<'p, A> {
    draft: StageDraft<'p>,
    types: PhantomData<fn() -> A>,
}
declarations!(Stream;);
writes!(Stream;);

impl<A: 'static> Stream<'_, A> {
    fn spec(&mut self) -> &mut StreamSpec {
        // The draft borrows the program, so nobody can have added another stream since.
        let streams = &mut self.draft.program.spec.streams;
        streams.last_mut().expect("made with the draft")
    }

    /// The kernel takes chunks of a streamed exchange. Any number of them may be named, one after the other.
    pub fn take<P: Payload>(mut self, from: &Exchange<P>) -> Self {
        self.draft.owners.push(from.program);
        self.spec().inputs.push(from.id);
        self
    }

    /// The kernel sends chunks to a streamed exchange: to one.
    pub fn send<P: Payload>(mut self, to: &Exchange<P>) -> Self {
        self.draft.owners.push(to.program);
        if self.spec().output.replace(to.id).is_some() {
            let stage = self.draft.name.clone();
            let exchange = self.draft.program.spec.exchanges[to.id.index()]
                .name
                .clone();
            let problem =
                "the stage sends to another exchange already; send there from a stage of its own";
            let error = BuildError::Streamed {
                stage,
                exchange,
                problem,
            };
            self.draft.program.errors.push(error);
        }
        self
    }

    /// Says that a task which is begun anew sends the same chunks, and leaves the same values behind: they depend on its datasets, its parameters and
    /// [`Context::rng`] alone, and not on how far it was. Its shard may then move at any time; otherwise it moves when the task is done.
    pub fn repeatable(mut self) -> Self {
        self.spec().repeatable = true;
        self
    }

    /// Gives how a task is opened, and the kernel: what is kept, the task's [`Streams`](crate::Streams), and the datasets. It is called until it returns
    /// [`Done`](crate::Progress::Done), or fails; then what was kept is dropped.
    pub fn run<S: Send + 'static, F: StreamFn<A, S>>(
        self,
        open: impl Fn(&mut Context<'_>) -> S + Send + Sync + 'static,
        kernel: F,
    ) {
        let kernel_type = type_name::<F>();
        let kernel = Arc::new(StreamKernel::<_, F, A, S>(open, kernel, PhantomData));
        self.draft.finish(kernel_type, kernel);
    }
}

/// A map over blocks being declared.
#[must_use = "finish the stage with run"]
pub struct Map<'p, T: Blocked, A> {
    draft: StageDraft<'p>,
    types: PhantomData<fn() -> (T, A)>,
}

impl<'p, T: Blocked, A: Append> Map<'p, T, A> {
    /// The kernel reads a dataset whole: its next argument is `&U`.
    pub fn read<U: Payload>(self, dataset: &Dataset<U>) -> Map<'p, T, A::With<Read<U>>> {
        Map {
            draft: self.draft.uses(dataset, Use::Read),
            types: PhantomData,
        }
    }
}

impl<T: Blocked, A: 'static> Map<'_, T, A> {
    /// Names the kernel and its serialised parameters, which workers compare.
    pub fn named(mut self, name: impl Into<String>, parameters: Vec<u8>) -> Self {
        self.draft.kernel = Some((name.into(), parameters));
        self
    }

    /// Gives the kernel, called once per block that is not empty: block, datasets read, and `&mut R`, the
    /// block's result, whose buffers come from the turn before.
    pub fn into<R: Payload, F: MapFn<T, A, R>>(self, results: &Dataset<Blocks<R>>, kernel: F) {
        // Declared last: `for_each_block` expects the results behind all other arguments.
        let draft = self.draft.uses(results, Use::Write);
        draft.finish(
            type_name::<F>(),
            Arc::new(MapKernel::<F, T, A, R>(kernel, PhantomData)),
        );
    }
}

/// A signal being declared.
#[must_use = "finish the stage with run"]
pub struct SignalStage<'p, A> {
    draft: StageDraft<'p>,
    types: PhantomData<fn() -> A>,
}
declarations!(SignalStage;);

impl<A: 'static> SignalStage<'_, A> {
    /// Gives the kernel: its result is the signal.
    pub fn run<F: SignalFn<A>>(self, kernel: F) -> Signal {
        let program = self.draft.program.identity;
        let stage = self.draft.finish(
            type_name::<F>(),
            Arc::new(SignalKernel::<F, A>(kernel, PhantomData)),
        );
        Signal { stage, program }
    }
}

/// A stage whose function takes parameters first: made by [`Compute::with`] and its like.
#[must_use = "finish the stage with run"]
pub struct Parameterised<S, P> {
    stage: S,
    parameters: P,
}

macro_rules! parameterised {
    ($name:ident <$($param:ident $(: $bound:path)?),*>) => {
        impl<'p, $($param $(: $bound)?),*> $name<'p, $($param),*> {
            /// The stage's function takes a reference to these first. They are data: they travel with the program, and workers compare them. The
            /// function captures nothing.
            pub fn with<Par: Payload>(self, parameters: Par) -> Parameterised<Self, Par> {
                Parameterised { stage: self, parameters }
            }
        }
    };
}
parameterised!(Compute<A>);
parameterised!(Scatter<A, P: Payload>);
parameterised!(Gather<A, P: Payload>);
parameterised!(SignalStage<A>);
parameterised!(Stream<A>);
parameterised!(Map<T: Blocked, A>);

impl<S, Par> Parameterised<S, Par> {
    /// The stage, and the function with its parameters.
    fn parts<F: Copy>(self, function: F) -> (S, With<F, Par>) {
        const {
            assert!(
                // Another process has the function, and not what this one has captured.
                size_of::<F>() == 0,
                "a function that captures nothing: what it needs are parameters"
            )
        };
        let parameters = self.parameters;
        (
            self.stage,
            With {
                function,
                parameters,
            },
        )
    }
}

impl<A: 'static, Par> Parameterised<Compute<'_, A>, Par> {
    /// Gives the kernel: as [`Compute::run`], and a reference to the parameters comes first.
    pub fn run<F: Copy>(self, kernel: F)
    where
        With<F, Par>: ComputeFn<A>,
    {
        let (stage, kernel) = self.parts(kernel);
        stage.run(kernel);
    }

    /// As [`Compute::run_with_context`], and a reference to the parameters comes first.
    pub fn run_with_context<F: Copy>(self, kernel: F)
    where
        With<F, Par>: ContextFn<A>,
    {
        let (stage, kernel) = self.parts(kernel);
        stage.run_with_context(kernel);
    }
}

impl<A: 'static, P: Payload, Par> Parameterised<Scatter<'_, A, P>, Par> {
    /// Gives the kernel: as [`Scatter::run`], and a reference to the parameters comes first.
    pub fn run<F: Copy>(self, kernel: F)
    where
        With<F, Par>: ScatterFn<A, P>,
    {
        let (stage, kernel) = self.parts(kernel);
        stage.run(kernel);
    }
}

impl<A: 'static, P: Payload, Par> Parameterised<Gather<'_, A, P>, Par> {
    /// Gives the kernel: as [`Gather::run`], and a reference to the parameters comes first.
    pub fn run<F: Copy>(self, kernel: F)
    where
        With<F, Par>: GatherFn<A, P>,
    {
        let (stage, kernel) = self.parts(kernel);
        stage.run(kernel);
    }
}

impl<A: 'static, Par> Parameterised<SignalStage<'_, A>, Par> {
    /// Gives the kernel: as [`SignalStage::run`], and a reference to the parameters comes first.
    pub fn run<F: Copy>(self, kernel: F) -> Signal
    where
        With<F, Par>: SignalFn<A>,
    {
        let (stage, kernel) = self.parts(kernel);
        stage.run(kernel)
    }
}

impl<A: 'static, Par: Payload> Parameterised<Stream<'_, A>, Par> {
    /// Gives how a task is opened, and the kernel: as [`Stream::run`], and a reference to the parameters comes first, to both.
    pub fn run<S: Send + 'static, O, F: Copy>(self, open: O, kernel: F)
    where
        O: Fn(&Par, &mut Context<'_>) -> S + Copy + Send + Sync + 'static,
        With<F, Par>: StreamFn<A, S>,
    {
        let parameters = self.parameters.clone();
        let (stage, kernel) = self.parts(kernel);
        const {
            assert!(
                size_of::<O>() == 0,
                "a function that captures nothing: what it needs are parameters"
            )
        };
        let open = With {
            function: open,
            parameters,
        };
        let kernel_type = type_name::<F>();
        let kernel = Arc::new(StreamKernel::<_, With<F, Par>, A, S>(
            open,
            kernel,
            PhantomData,
        ));
        stage.draft.finish(kernel_type, kernel);
    }
}

impl<T: Blocked, A: 'static, Par> Parameterised<Map<'_, T, A>, Par> {
    /// Gives the kernel: as [`Map::into`], and a reference to the parameters comes first.
    pub fn into<R: Payload, F: Copy>(self, results: &Dataset<Blocks<R>>, kernel: F)
    where
        With<F, Par>: MapFn<T, A, R>,
    {
        let (stage, kernel) = self.parts(kernel);
        stage.into(results, kernel);
    }
}

impl Program {
    /// A stage that runs once per partition: one shard in, same shard out.
    pub fn compute(&mut self, name: impl Into<String>) -> Compute<'_, ()> {
        Compute {
            draft: StageDraft::new(self, name.into(), StageKind::Compute),
            types: PhantomData,
        }
    }

    /// A stage that runs once per block of a blocked dataset and gives a value per block. Neither the number
    /// of partitions nor of threads changes what a call sees.
    pub fn map<T: Blocked>(
        &mut self,
        name: impl Into<String>,
        blocks: &Dataset<T>,
    ) -> Map<'_, T, ()> {
        let draft = StageDraft::new(self, name.into(), StageKind::Compute);
        Map {
            draft: draft.uses(blocks, Use::Read),
            types: PhantomData,
        }
    }

    /// A stage that sends pieces to any partition of another group.
    pub fn scatter<P: Payload>(
        &mut self,
        name: impl Into<String>,
        to: &Exchange<P>,
    ) -> Scatter<'_, (), P> {
        let program = to.program;
        let mut draft = StageDraft::new(self, name.into(), StageKind::Scatter(to.id));
        draft.owners.push(program);
        Scatter {
            draft,
            types: PhantomData,
        }
    }

    /// A stage that merges the pieces that reached a partition.
    pub fn gather<P: Payload>(
        &mut self,
        name: impl Into<String>,
        from: &Exchange<P>,
    ) -> Gather<'_, (), P> {
        let program = from.program;
        let mut draft = StageDraft::new(self, name.into(), StageKind::Gather(from.id));
        draft.owners.push(program);
        Gather {
            draft,
            types: PhantomData,
        }
    }

    /// A stage that takes time: it is opened once per partition, and then called until it is done. It keeps what it likes between its calls, takes
    /// chunks of any number of [streamed](Program::streamed) exchanges, and sends chunks to one. Without any it is a compute stage with a state.
    ///
    /// ```
    /// use brambling_program::{Program, Progress, Relation, Streams};
    /// use std::task::Poll;
    ///
    /// let mut p = Program::new("sum of squares");
    /// let (counts, sums) = (p.value("counts", 4, 1_000u64), p.dataset::<u64>("sums", 2));
    /// let squares = p.streamed::<Vec<u64>>("squares", Relation::AllToAll);
    /// p.stream("square").send(&squares).read(&counts).repeatable().run(
    ///     |_| 0u64,
    ///     move |next: &mut u64, streams: &mut Streams<'_, '_>, count: &u64| {
    ///         while *next < *count {
    ///             let end = count.min(&(*next + 100)).to_owned();
    ///             let to = *next / 100 % 2;
    ///             let has_room = streams.send(&squares, to as u32, (*next..end).map(|it| it * it).collect());
    ///             *next = end;
    ///             if !has_room {
    ///                 return Progress::Pending;
    ///             }
    ///         }
    ///         Progress::Done
    ///     },
    /// );
    /// p.stream("add").take(&squares).write(&sums).run(
    ///     |_| 0u64,
    ///     move |sum: &mut u64, streams: &mut Streams<'_, '_>, out: &mut u64| loop {
    ///         match streams.poll(&squares) {
    ///             Poll::Ready(Some((_, chunk))) => *sum += chunk.iter().sum::<u64>(),
    ///             Poll::Pending => return Progress::Pending,
    ///             Poll::Ready(None) => {
    ///                 *out = *sum;
    ///                 return Progress::Done;
    ///             }
    ///         }
    ///     },
    /// );
    /// assert!(p.validate().is_ok());
    /// ```
    ///
    /// # Movement
    /// Chunks are cut by the data, never by room or time: what a task sends, and in which order to each destination, must not depend on when it is
    /// called. A chunk has at most [`CHUNK_BYTES_MAX`](crate::CHUNK_BYTES_MAX) bytes.
    pub fn stream(&mut self, name: impl Into<String>) -> Stream<'_, ()> {
        let stream = StreamId(self.spec.streams.len() as u32);
        self.spec.streams.push(StreamSpec::default());
        Stream {
            draft: StageDraft::new(self, name.into(), StageKind::Stream(stream)),
            types: PhantomData,
        }
    }

    /// A stage that gives a boolean, from a one-partition dataset, to every worker.
    pub fn signal(&mut self, name: impl Into<String>) -> SignalStage<'_, ()> {
        SignalStage {
            draft: StageDraft::new(self, name.into(), StageKind::Signal),
            types: PhantomData,
        }
    }

    /// Adds a stage with an erased kernel. For other languages' builders.
    ///
    /// # Safety
    /// The kernel must hold its contract for datasets of the types declared.
    #[allow(unsafe_code)] // The contract of erased kernels cannot be expressed in types.
    #[allow(clippy::too_many_arguments)] // The fields of a stage, each once.
    pub unsafe fn raw_stage(
        &mut self,
        name: impl Into<String>,
        kind: StageKind,
        uses: Vec<(DatasetId, Use)>,
        cells: bool,
        spec: KernelSpec,
        kernel: Arc<dyn Kernel>,
    ) -> Signal {
        let block = self.current_block();
        let stage = self.push_stage(name.into(), kind, uses, cells, spec, kernel, block);
        self.add(ProgramNode::Stage(stage));
        Signal {
            stage,
            program: self.identity,
        }
    }
}
