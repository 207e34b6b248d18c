//! Kernels of random programs, and how a stage is called outside the executor.
#![allow(unsafe_code)] // Kernels take erased pointers; the program fixed their types.

use crate::objects::attached;
use brambling_program::{
    Blocks, Context, DatasetId, GatherPieces, Kernel, KernelSpec, OpenTask, Payload, Program,
    Progress, Rows, Sink, StageId, StageKind, Use, Value,
};
use std::sync::Arc;

/// What a stage is lent beside its datasets.
pub(crate) enum Port<'a> {
    None,
    Sink(Sink<'a>),
    Source(GatherPieces<'a>),
    Open(OpenTask<'a>),
}

/// Calls a stage on one partition of each of its datasets, in the order in which it names them.
pub(crate) fn call(
    program: &Program,
    stage: StageId,
    context: &mut Context<'_>,
    args: &mut [Value],
    port: &mut Port<'_>,
) -> Progress {
    let spec = &program.spec().stages[stage.index()];
    assert_eq!(spec.uses.len(), args.len(), "one value for each dataset");
    let pointer = |(arg, &(dataset, how)): (&mut Value, &(_, Use))| -> *mut u8 {
        let declared = program.payload_type(dataset);
        assert_eq!(arg.payload_type().layout(), declared.layout());
        if spec.cells {
            return (&raw mut *arg).cast();
        }
        if how != Use::Read {
            arg.make_unique();
        }
        arg.as_ptr()
    };
    let pointers: Vec<*mut u8> = args.iter_mut().zip(&spec.uses).map(pointer).collect();
    match port {
        Port::None => {}
        // SAFETY: the port outlives the call below, and nobody else has it.
        Port::Sink(sink) => unsafe { context.lend_sink(sink) },
        // SAFETY: as above.
        Port::Source(source) => unsafe { context.lend_source(source) },
        // SAFETY: as above.
        Port::Open(open) => unsafe { context.lend_open(open) },
    }
    // SAFETY: one pointer for each declared dataset, in order, to a value of its type (callers give the
    // datasets' own values), unshared where the stage writes it; cells where it asks for cells.
    unsafe { program.kernel(stage).call(context, pointers.as_ptr()) }
}

/// Neither commutative nor associative: what is lost, doubled, stale or out of order shows.
pub(crate) fn mix(left: u64, right: u64) -> u64 {
    let mut z = (left.rotate_left(23) ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 29)).wrapping_add(right.wrapping_mul(0x94d0_49bb_1331_11eb));
    z ^= z >> 32;
    z.wrapping_mul(0xd6e8_feb8_6659_fd93) ^ (z >> 27)
}

/// What random programs compute with.
pub(crate) trait RandomValue: Payload {
    /// Depends on every bit.
    fn digest(&self) -> u64;
    /// Overwrites; what was there before does not matter.
    fn set(&mut self, hash: u64);
    /// Changes what is there.
    fn scramble(&mut self, hash: u64) {
        self.set(mix(self.digest(), hash));
    }
}

impl RandomValue for u64 {
    fn digest(&self) -> u64 {
        *self
    }
    fn set(&mut self, hash: u64) {
        *self = hash;
    }
}

impl RandomValue for Vec<u64> {
    fn digest(&self) -> u64 {
        self.iter()
            .fold(self.len() as u64, |digest, value| mix(digest, *value))
    }
    fn set(&mut self, hash: u64) {
        // Few are large: beyond 4 KiB a broadcast shares, and a frame is cut into chunks.
        let len = if hash.is_multiple_of(61) {
            600
        } else {
            hash % 5
        };
        self.clear();
        self.extend((0..len).map(|place| mix(hash, place)));
    }
}

impl RandomValue for Rows<u32, u64> {
    fn digest(&self) -> u64 {
        let row = |digest, row: &(u32, u64)| mix(mix(digest, row.0.into()), row.1);
        self.iter().fold(self.len() as u64, row)
    }
    fn set(&mut self, hash: u64) {
        self.clear();
        self.extend((0..hash % 6).map(|place| (mix(place, hash) as u32 % 16, mix(hash, place))));
    }
}

impl RandomValue for Blocks<u64> {
    fn digest(&self) -> u64 {
        let block = |digest, (index, value): (u64, &u64)| mix(mix(digest, index), *value);
        self.iter().fold(self.range().start, block)
    }
    fn set(&mut self, hash: u64) {
        self.iter_mut()
            .for_each(|(index, value)| *value = mix(hash, index));
    }
}

/// The operations of a cell type over erased pointers.
#[derive(Clone, Copy)]
pub(crate) struct Erased {
    interpreted: bool,
    digest: unsafe fn(*mut u8) -> u64,
    set: unsafe fn(*mut u8, u64),
    scramble: unsafe fn(*mut u8, u64),
}

impl Erased {
    pub(crate) fn of<T: RandomValue>() -> Erased {
        Erased {
            interpreted: T::INTERPRETED,
            // SAFETY: called by `Mixer` alone, with an argument that its stage declares to be a T.
            digest: |cell| unsafe { &*cell.cast::<T>() }.digest(),
            // SAFETY: as above, declared to be written.
            set: |cell, hash| unsafe { &mut *cell.cast::<T>() }.set(hash),
            // SAFETY: as above, declared to be written.
            scramble: |cell, hash| unsafe { &mut *cell.cast::<T>() }.scramble(hash),
        }
    }
}

/// How often a task is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskEnding {
    Once,
    /// Again and again until the data say so.
    More,
    /// As before, with a completion in between.
    Pending,
}

/// Mixes all that it may know into all that it may write.
pub(crate) struct Mixer {
    pub(crate) args: Vec<(Erased, Use)>,
    pub(crate) salt: u64,
    pub(crate) ending: TaskEnding,
}

impl Kernel for Mixer {
    unsafe fn call(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress {
        // SAFETY: the caller's promise.
        let mut run = || unsafe { self.mix(context, args) };
        match self.is_interpreted() {
            true => attached(run),
            false => run(),
        }
    }
}

impl Mixer {
    /// Whether it handles objects: then it has the interpreter while it runs.
    pub(crate) fn is_interpreted(&self) -> bool {
        self.args.iter().any(|(erased, _)| erased.interpreted)
    }

    /// # Safety
    /// As [`Kernel::call`].
    unsafe fn mix(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress {
        let mut hash = mix(self.salt, context.turn());
        hash = mix(
            hash,
            mix(context.partition().into(), context.partitions().into()),
        );
        hash = mix(hash, context.rng().next_u64());
        // SAFETY: the caller gives as many pointers as the stage declares datasets: one for each of `args`.
        let cell = |place: usize| unsafe { *args.add(place) };
        for (place, (erased, how)) in self.args.iter().enumerate() {
            if *how != Use::Write {
                // SAFETY: the argument is of the type that `erased` was made for.
                hash = mix(hash, unsafe { (erased.digest)(cell(place)) });
            }
        }
        for (place, (erased, how)) in self.args.iter().enumerate() {
            let hash = mix(hash, place as u64);
            match how {
                Use::Read => {}
                // SAFETY: as above; the stage writes it.
                Use::Write => unsafe { (erased.set)(cell(place), hash) },
                // SAFETY: as above; the stage writes it.
                Use::Update => unsafe { (erased.scramble)(cell(place), hash) },
            }
        }
        match self.ending {
            TaskEnding::More if hash.is_multiple_of(3) => Progress::More,
            TaskEnding::Pending if hash.is_multiple_of(3) => {
                context.completion().wake();
                Progress::Pending
            }
            _ => Progress::Done,
        }
    }
}

/// Adds a compute stage that mixes.
pub(crate) fn add_compute(
    p: &mut Program,
    name: String,
    uses: Vec<(DatasetId, Use)>,
    spec: KernelSpec,
    kernel: Mixer,
) {
    assert_eq!(uses.len(), kernel.args.len());
    // SAFETY: the mixer has the operations of each dataset's type, in the order of the uses, and writes
    // only what they let it write.
    unsafe {
        p.raw_stage(
            name,
            StageKind::Compute,
            uses,
            false,
            spec,
            Arc::new(kernel),
        )
    };
}
