//! Builders of single stages: declare what a kernel uses, then give the kernel.

use crate::typed::{
    Append, Cell, ComputeFn, ComputeKernel, ContextFn, ContextKernel, GatherFn, GatherKernel,
    MapFn, MapKernel, Read, ScatterFn, ScatterKernel, SignalFn, SignalKernel, Write,
};
use crate::{
    Blocked, Blocks, BuildError, Dataset, DatasetId, Exchange, Kernel, KernelSpec, Node, Payload,
    Program, Runner, Signal, StageId, StageKind, Use,
};
use std::any::type_name;
use std::marker::PhantomData;
use std::sync::Arc;

/// What is known of a stage so far.
pub(crate) struct Draft<'p> {
    program: &'p mut Program,
    name: String,
    kind: StageKind,
    uses: Vec<(DatasetId, Use)>,
    owners: Vec<u64>,
    cells: bool,
    kernel: Option<(String, Vec<u8>)>,
    finished: bool,
}

impl Drop for Draft<'_> {
    /// A stage that is declared and never given its kernel would be missing without a word.
    fn drop(&mut self) {
        if !self.finished {
            let stage = std::mem::take(&mut self.name);
            self.program.errors.push(BuildError::NoKernel { stage });
        }
    }
}

impl<'p> Draft<'p> {
    fn new(program: &'p mut Program, name: String, kind: StageKind) -> Self {
        Draft {
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
        let (name, parameters) = named.unwrap_or_else(|| (type_name.to_owned(), Vec::new()));
        let spec = KernelSpec {
            name,
            parameters,
            runner: Runner::Native,
        };
        let block = self.program.current_block();
        let (name, uses) = (
            std::mem::take(&mut self.name),
            std::mem::take(&mut self.uses),
        );
        let stage = self
            .program
            .push_stage(name, self.kind, uses, self.cells, spec, kernel, block);
        for owner in std::mem::take(&mut self.owners) {
            self.program.check_owner(stage, owner);
        }
        self.program.add(Node::Stage(stage));
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
    draft: Draft<'p>,
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
    draft: Draft<'p>,
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
    draft: Draft<'p>,
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

/// A map over blocks being declared.
#[must_use = "finish the stage with run"]
pub struct Map<'p, T: Blocked, A> {
    draft: Draft<'p>,
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
    draft: Draft<'p>,
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

impl Program {
    /// A stage that runs once per partition: one shard in, same shard out.
    pub fn compute(&mut self, name: impl Into<String>) -> Compute<'_, ()> {
        Compute {
            draft: Draft::new(self, name.into(), StageKind::Compute),
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
        let draft = Draft::new(self, name.into(), StageKind::Compute);
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
        let mut draft = Draft::new(self, name.into(), StageKind::Scatter(to.id));
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
        let mut draft = Draft::new(self, name.into(), StageKind::Gather(from.id));
        draft.owners.push(program);
        Gather {
            draft,
            types: PhantomData,
        }
    }

    /// A stage that gives a boolean, from a one-partition dataset, to every worker.
    pub fn signal(&mut self, name: impl Into<String>) -> SignalStage<'_, ()> {
        SignalStage {
            draft: Draft::new(self, name.into(), StageKind::Signal),
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
        self.add(Node::Stage(stage));
        Signal {
            stage,
            program: self.identity,
        }
    }
}
