//! The builder: ordinary code makes a `Program` value.

use crate::payload::decode_all_of;
use crate::placement::Placement;
use crate::{
    BlockId, BuildError, Count, DatasetId, DatasetSpec, DecodeError, ExchangeId, ExchangeSpec,
    Kernel, KernelId, KernelSpec, Partitioner, Payload, PayloadType, PlacementHint, ProgramNode,
    Relation, Runner, Spec, StageId, StageKind, StageSpec, Structure, Use, Value,
};
use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Gives the value of a partition, by its index and the number of partitions.
pub type PartitionSource = Arc<dyn Fn(u32, u32) -> Value + Send + Sync>;

/// Merges into a piece those of the sources that follow it: see [`Program::combine`].
pub type Combiner = Arc<dyn Fn(&mut Value, &mut [Value]) + Send + Sync>;

/// A combiner, and what tells it from others.
#[derive(Clone)]
pub(crate) struct KnownCombiner {
    pub(crate) combiner: Combiner,
    /// Its type, if it captures nothing: then any of its type does the same.
    pub(crate) stateless: Option<TypeId>,
}

/// Where the values come from that a dataset begins with.
#[derive(Clone)]
pub(crate) enum InitialValues {
    /// Each partition begins with a copy.
    Value(Value),
    /// A function of this process makes them.
    Made(PartitionSource),
    /// A function makes them that other processes may have too.
    Scan(Arc<dyn SourceReader>),
    /// Whoever runs the program gives them.
    Given,
}

/// A function with parameters that makes the values of a dataset: see [`Program::scan`].
pub(crate) trait SourceReader: Any + Send + Sync {
    fn read(&self, index: u32, count: u32) -> Value;
    fn parameters(&self) -> Vec<u8>;
    fn with_parameters(&self, parameters: &[u8]) -> Result<Arc<dyn SourceReader>, DecodeError>;
    fn payload(&self) -> &'static PayloadType;
}

struct Scan<F, P, T> {
    reader: F,
    parameters: P,
    value: PhantomData<fn() -> T>,
}

impl<F, P, T> SourceReader for Scan<F, P, T>
where
    F: Fn(&P, u32, u32) -> T + Copy + Send + Sync + 'static,
    P: Payload,
    T: Payload,
{
    fn read(&self, index: u32, count: u32) -> Value {
        Value::new((self.reader)(&self.parameters, index, count))
    }

    fn parameters(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.parameters.encode(&mut bytes);
        bytes
    }

    fn with_parameters(&self, parameters: &[u8]) -> Result<Arc<dyn SourceReader>, DecodeError> {
        Ok(Arc::new(Scan {
            reader: self.reader,
            parameters: decode_all_of(parameters)?,
            value: PhantomData,
        }))
    }

    fn payload(&self) -> &'static PayloadType {
        PayloadType::of::<T>()
    }
}

/// A handle of a dataset of payloads `T`.
pub struct Dataset<T> {
    pub(crate) id: DatasetId,
    pub(crate) program: u64,
    payload: PhantomData<fn() -> T>,
}

/// A handle of an exchange of pieces `P`.
pub struct Exchange<P> {
    pub(crate) id: ExchangeId,
    pub(crate) program: u64,
    piece: PhantomData<fn() -> P>,
}

impl<T> Dataset<T> {
    /// Which program the dataset belongs to: see [`Program::identity`].
    pub fn program(&self) -> u64 {
        self.program
    }

    /// The dataset's number.
    pub fn id(&self) -> DatasetId {
        self.id
    }
}

impl<P> Exchange<P> {
    /// The handle of an exchange whose pieces are `P`, in whatever program.
    pub(crate) fn of(id: ExchangeId) -> Exchange<P> {
        Exchange {
            id,
            program: u64::MAX,
            piece: PhantomData,
        }
    }

    /// The exchange's number.
    pub fn id(&self) -> ExchangeId {
        self.id
    }
}

macro_rules! copyable {
    ($name:ident) => {
        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T> Copy for $name<T> {}
        impl<T> std::fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}", self.id)
            }
        }
    };
}
copyable!(Dataset);
copyable!(Exchange);

/// A signal: what [`Program::branch`] tests.
#[derive(Clone, Copy, Debug)]
pub struct Signal {
    pub(crate) stage: StageId,
    pub(crate) program: u64,
}

/// A driver program: a sequential program over datasets, built once, then run on any number of threads
/// and workers (Canary, §3.2 and §4.1).
///
/// ```
/// use brambling_program::{Program, Sum};
///
/// let mut p = Program::new("mean");
/// let numbers = p.dataset::<u64>("numbers", 4);
/// let total = p.dataset::<u64>("total", 1);
/// p.compute("number").write(&numbers).run_with_context(|context: &mut brambling_program::Context<'_>, n: &mut u64| {
///     *n = u64::from(context.partition());
/// });
/// p.reduce_to(Sum, &numbers, &total);
/// assert!(p.validate().is_ok());
/// ```
#[derive(Clone)]
pub struct Program {
    pub(crate) spec: Spec,
    pub(crate) identity: u64,
    pub(crate) types: Vec<&'static PayloadType>,
    pub(crate) pieces: Vec<&'static PayloadType>,
    /// The first scatter of each exchange.
    pub(crate) scatters: Vec<Option<StageId>>,
    pub(crate) combiners: BTreeMap<ExchangeId, KnownCombiner>,
    pub(crate) sources: Vec<Option<InitialValues>>,
    pub(crate) kernels: Vec<Arc<dyn Kernel>>,
    pub(crate) open: Vec<BlockId>,
    pub(crate) errors: Vec<BuildError>,
    pub(crate) placement: Placement,
    pub(crate) hints: BTreeMap<DatasetId, PlacementHint>,
    /// How large what this process makes will be, where that was said.
    pub(crate) expected: BTreeMap<DatasetId, u64>,
    /// It does what counts outside of its datasets.
    pub(crate) acts: bool,
}

/// The type of a function that captures nothing.
fn stateless<F: 'static>(_: &F) -> Option<TypeId> {
    // A function without a size captures nothing, so its type says all that it does.
    (size_of::<F>() == 0).then(TypeId::of::<F>)
}

fn piece<P: Payload>(value: &mut Value) -> &mut P {
    value.get_mut().expect("a piece of its exchange")
}

static IDENTITIES: AtomicU64 = AtomicU64::new(0);

impl Program {
    /// An empty program with seed 0.
    pub fn new(name: impl Into<String>) -> Program {
        Program {
            spec: Spec {
                name: name.into(),
                seed: 0,
                numerics: crate::NUMERICS_VERSION,
                symbols: Vec::new(),
                datasets: Vec::new(),
                exchanges: Vec::new(),
                kernels: Vec::new(),
                stages: Vec::new(),
                blocks: vec![Vec::new()],
                streams: Vec::new(),
            },
            // Relaxed: only that no two are equal matters.
            identity: IDENTITIES.fetch_add(1, Ordering::Relaxed),
            types: Vec::new(),
            pieces: Vec::new(),
            scatters: Vec::new(),
            combiners: BTreeMap::new(),
            sources: Vec::new(),
            kernels: Vec::new(),
            open: vec![Spec::ROOT],
            errors: Vec::new(),
            placement: Placement::default(),
            hints: BTreeMap::new(),
            expected: BTreeMap::new(),
            acts: false,
        }
    }

    /// Says that the program does what counts outside of its datasets, such as writing files: its results are not all that it is run for. It is
    /// never begun again by itself, and its results are not kept instead of running it.
    #[must_use]
    pub fn acting(mut self) -> Program {
        self.acts = true;
        self
    }

    /// Whether it does what counts outside of its datasets.
    pub fn acts(&self) -> bool {
        self.acts
    }

    /// Sets the seed of the program's random numbers.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Program {
        self.spec.seed = seed;
        self
    }

    /// Tells this program's handles from those of others made by this process.
    pub fn identity(&self) -> u64 {
        self.identity
    }

    /// The program as data.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Names a partition count that is bound when the job starts.
    pub fn symbol(&mut self, name: impl Into<String>) -> Count {
        self.spec.symbols.push(name.into());
        Count::Symbol(self.spec.symbols.len() as u32 - 1)
    }

    /// A dataset of default values, kept when the program ends.
    pub fn dataset<T: Payload>(
        &mut self,
        name: impl Into<String>,
        partitions: impl Into<Count>,
    ) -> Dataset<T> {
        self.declare(
            name.into(),
            partitions.into(),
            Partitioner::Opaque,
            true,
            PayloadType::of::<T>(),
            None,
        )
    }

    /// A dataset whose partitions start with copies of a value.
    pub fn value<T: Payload>(
        &mut self,
        name: impl Into<String>,
        partitions: impl Into<Count>,
        value: T,
    ) -> Dataset<T> {
        let dataset = self.dataset(name, partitions);
        self.sources[dataset.id.index()] = Some(InitialValues::Value(Value::new(value)));
        self.spec.datasets[dataset.id.index()].loaded = true;
        dataset
    }

    /// A dataset whose partitions a function makes, from (index, number of partitions), where they are
    /// placed. Freed after its last use unless [`Program::keep`] says otherwise.
    pub fn load<T: Payload>(
        &mut self,
        name: impl Into<String>,
        partitions: impl Into<Count>,
        partitioner: Partitioner,
        source: impl Fn(u32, u32) -> T + Send + Sync + 'static,
    ) -> Dataset<T> {
        let source: PartitionSource =
            Arc::new(move |index, count| Value::new(source(index, count)));
        self.declare(
            name.into(),
            partitions.into(),
            partitioner,
            false,
            PayloadType::of::<T>(),
            Some(InitialValues::Made(source)),
        )
    }

    /// Says how many bytes the partitions of a dataset that [`Program::load`] makes have together. Whoever sends them to workers compares that with the
    /// workers' memory, before anything is made.
    pub fn expect_bytes<T>(&mut self, dataset: &Dataset<T>, bytes: u64) {
        let _ = self.expected.insert(dataset.id, bytes);
    }

    /// The sum of what [`Program::expect_bytes`] was told.
    pub fn expected_bytes(&self) -> u64 {
        self.expected.values().copied().fold(0, u64::saturating_add)
    }

    /// A dataset whose partitions a function makes from parameters and (index, number of partitions), wherever they are placed: unlike
    /// [`Program::load`] in whichever process that is, which therefore has to find there what the function reads. The function captures nothing. Freed
    /// after its last use unless [`Program::keep`] says otherwise.
    ///
    /// ```
    /// use brambling_program::{Partitioner, Program};
    ///
    /// let mut p = Program::new("squares");
    /// let from = |first: &u64, index: u32, _: u32| (first + u64::from(index)).pow(2);
    /// let squares = p.scan("squares", 4, Partitioner::Opaque, 10, from);
    /// assert_eq!(p.initial(squares.id(), 3, 4).get::<u64>(), Some(&169));
    /// ```
    pub fn scan<T: Payload, P: Payload, F>(
        &mut self,
        name: impl Into<String>,
        partitions: impl Into<Count>,
        partitioner: Partitioner,
        parameters: P,
        reader: F,
    ) -> Dataset<T>
    where
        F: Fn(&P, u32, u32) -> T + Copy + Send + Sync + 'static,
    {
        const {
            assert!(
                // Another process has the function, and not what this one has captured.
                size_of::<F>() == 0,
                "a function that captures nothing: what it needs are parameters"
            )
        };
        let value = PhantomData;
        let scan = Scan {
            reader,
            parameters,
            value,
        };
        self.declare(
            name.into(),
            partitions.into(),
            partitioner,
            false,
            PayloadType::of::<T>(),
            Some(InitialValues::Scan(Arc::new(scan))),
        )
    }

    /// A dataset whose partitions are given by whoever runs the program, by [`Program::give`]: as in a program that was [linked](Program::link).
    pub fn given<T: Payload>(
        &mut self,
        name: impl Into<String>,
        partitions: impl Into<Count>,
        partitioner: Partitioner,
    ) -> Dataset<T> {
        self.declare(
            name.into(),
            partitions.into(),
            partitioner,
            false,
            PayloadType::of::<T>(),
            Some(InitialValues::Given),
        )
    }

    /// Gives what partitions of a dataset begin with.
    ///
    /// # Panics
    /// When it is not one that [is to be given](Program::to_be_given).
    pub fn give(&mut self, dataset: DatasetId, source: PartitionSource) {
        // Once: a second caller would replace what the first one gave.
        let origin = &mut self.sources[dataset.index()];
        assert!(
            matches!(origin, Some(InitialValues::Given)),
            "nobody waits for it"
        );
        *origin = Some(InitialValues::Made(source));
    }

    /// Datasets that nobody has given yet.
    pub fn to_be_given(&self) -> impl Iterator<Item = DatasetId> + '_ {
        let origins = (0..).map(DatasetId).zip(&self.sources);
        let waits = origins.filter(|(_, origin)| matches!(origin, Some(InitialValues::Given)));
        waits.map(|(dataset, _)| dataset)
    }

    /// Datasets that begin with something of their own: what the caller gives, or what is read.
    pub fn sourced(&self) -> impl Iterator<Item = DatasetId> + '_ {
        let origins = (0..).map(DatasetId).zip(&self.sources);
        origins
            .filter(|(_, origin)| origin.is_some())
            .map(|(dataset, _)| dataset)
    }

    /// A dataset that is freed after its last use.
    pub fn temporary<T: Payload>(
        &mut self,
        name: impl Into<String>,
        partitions: impl Into<Count>,
    ) -> Dataset<T> {
        self.declare(
            name.into(),
            partitions.into(),
            Partitioner::Opaque,
            false,
            PayloadType::of::<T>(),
            None,
        )
    }

    /// A temporary with the partition count and partitioner of another dataset.
    pub fn like<T: Payload, U>(
        &mut self,
        name: impl Into<String>,
        other: &Dataset<U>,
    ) -> Dataset<T> {
        let DatasetSpec {
            count, partitioner, ..
        } = self.spec.datasets[other.id.index()];
        self.declare(
            name.into(),
            count,
            partitioner,
            false,
            PayloadType::of::<T>(),
            None,
        )
    }

    /// Keeps a dataset beyond its last use, so that its partitions can be fetched when the job has ended.
    pub fn keep<T>(&mut self, dataset: &Dataset<T>) {
        self.spec.datasets[dataset.id.index()].keep = true;
    }

    /// The handle of a dataset by its name, the first of that name, where its payloads are `T`: for a program that was
    /// [linked](Program::link).
    pub fn find<T: Payload>(&self, name: &str) -> Option<Dataset<T>> {
        let datasets = &self.spec.datasets;
        let at = datasets.iter().position(|it| it.name == name)?;
        let id = DatasetId(at as u32);
        // The handle's type is what kernels cast by, so it has to be right.
        self.types[at].is::<T>().then_some(Dataset {
            id,
            program: self.identity,
            payload: PhantomData,
        })
    }

    /// Says that rows of a dataset lie by the hash of a key, as after a shuffle. For other languages' builders.
    pub fn mark_hashed<T>(&mut self, dataset: &Dataset<T>) {
        self.spec.datasets[dataset.id.index()].partitioner = Partitioner::Hash;
    }

    pub(crate) fn declare<T>(
        &mut self,
        name: String,
        count: Count,
        partitioner: Partitioner,
        keep: bool,
        payload: &'static PayloadType,
        source: Option<InitialValues>,
    ) -> Dataset<T> {
        if count == Count::Fixed(0) {
            self.errors.push(BuildError::ZeroPartitions {
                dataset: name.clone(),
            });
        }
        let loaded = source.is_some();
        self.spec.datasets.push(DatasetSpec {
            name,
            payload: payload.name().into(),
            count,
            partitioner,
            keep,
            loaded,
        });
        self.types.push(payload);
        self.sources.push(source);
        let id = DatasetId(self.spec.datasets.len() as u32 - 1);
        Dataset {
            id,
            program: self.identity,
            payload: PhantomData,
        }
    }

    /// An exchange of pieces `P`; its scatter and its gather follow, in this order, in one block.
    pub fn exchange<P: Payload>(
        &mut self,
        name: impl Into<String>,
        relation: Relation,
    ) -> Exchange<P> {
        self.declare_exchange(name.into(), relation, false)
    }

    /// A streamed exchange: a source sends any number of chunks `P` to a destination, which takes them while others are still sent. The streaming
    /// stage that sends and the one that takes ([`Program::stream`]) follow, in this order, in one block.
    pub fn streamed<P: Payload>(
        &mut self,
        name: impl Into<String>,
        relation: Relation,
    ) -> Exchange<P> {
        self.declare_exchange(name.into(), relation, true)
    }

    fn declare_exchange<P: Payload>(
        &mut self,
        name: String,
        relation: Relation,
        streamed: bool,
    ) -> Exchange<P> {
        let piece = PayloadType::of::<P>();
        self.spec.exchanges.push(ExchangeSpec {
            name,
            piece: piece.name().into(),
            relation,
            streamed,
        });
        self.pieces.push(piece);
        self.scatters.push(None);
        let id = ExchangeId(self.spec.exchanges.len() as u32 - 1);
        Exchange {
            id,
            program: self.identity,
            piece: PhantomData,
        }
    }

    /// Lets pieces of an all-to-one exchange be merged on their way, where they come from many partitions of a cluster: `merge` puts those
    /// of the sources that follow, neighbours in ascending order, into the first one. How they are grouped must not show in what the
    /// gather makes of them; it gets a merged piece under the first partition of a group of neighbours, of
    /// which some may have sent nothing. A source that sends nothing is left out.
    ///
    /// Called outside of any stage, so it must not wait for anything; reductions have it by themselves.
    pub fn combine<P: Payload>(
        &mut self,
        exchange: &Exchange<P>,
        merge: impl Fn(&mut P, &mut dyn Iterator<Item = &mut P>) + Send + Sync + 'static,
    ) {
        let spec = &self.spec.exchanges[exchange.id.index()];
        if spec.streamed {
            let stage = "combine".to_owned();
            let exchange = spec.name.clone();
            let problem =
                "chunks of a streamed exchange are not merged on their way; leave out combine";
            self.errors.push(BuildError::Streamed {
                stage,
                exchange,
                problem,
            });
            return;
        }
        let combine = move |first: &mut Value, others: &mut [Value]| {
            let mut others = others.iter_mut().map(piece::<P>);
            merge(piece(first), &mut others);
        };
        let combining = KnownCombiner {
            stateless: stateless(&combine),
            combiner: Arc::new(combine),
        };
        self.combiners.insert(exchange.id, combining);
    }

    /// How pieces of an exchange are merged on their way, if they may be.
    pub fn combiner(&self, exchange: ExchangeId) -> Option<&Combiner> {
        self.combiners.get(&exchange).map(|it| &it.combiner)
    }

    /// Repeats what `body` adds, a number of turns.
    pub fn repeat(&mut self, turns: u64, body: impl FnOnce(&mut Program)) {
        self.begin_repeat(turns);
        body(self);
        self.end();
    }

    /// Repeats what `body` adds as long as `test` gives true of a one-partition dataset; tested before each turn.
    /// What `test` captures is named by [`Program::named`].
    pub fn repeat_while<T: Payload>(
        &mut self,
        name: impl Into<String>,
        on: &Dataset<T>,
        test: impl Fn(&T) -> bool + Send + Sync + 'static,
        body: impl FnOnce(&mut Program),
    ) {
        let kernel = crate::typed::SignalKernel::<_, (crate::typed::Read<T>,)>(test, PhantomData);
        let name = name.into();
        let spec = KernelSpec {
            name: name.clone(),
            parameters: Vec::new(),
            runner: Runner::Native,
        };
        self.begin_while(name, on, spec, Arc::new(kernel));
        body(self);
        self.end();
    }

    /// Runs what `then` adds when the signal was true, what `otherwise` adds when it was false.
    pub fn branch(
        &mut self,
        signal: Signal,
        then: impl FnOnce(&mut Program),
        otherwise: impl FnOnce(&mut Program),
    ) {
        let otherwise_block = self.begin_branch(signal);
        then(self);
        self.end();
        self.reopen(otherwise_block);
        otherwise(self);
        self.end();
    }

    /// Opens a counted loop; [`Program::end`] closes it. For other languages' builders.
    pub fn begin_repeat(&mut self, turns: u64) {
        if self.is_too_deep() {
            return self.open_nothing();
        }
        let body = self.new_block();
        self.add(ProgramNode::Repeat { turns, body });
        self.open.push(body);
    }

    /// Opens a loop that a signal ends. For other languages' builders.
    pub fn begin_while<T: Payload>(
        &mut self,
        name: impl Into<String>,
        on: &Dataset<T>,
        spec: KernelSpec,
        kernel: Arc<dyn Kernel>,
    ) {
        if self.is_too_deep() {
            return self.open_nothing();
        }
        // The test has a block of its own, because it is entered once more than the body.
        let test_block = self.new_block();
        let body = self.new_block();
        let test = self.push_stage(
            name.into(),
            StageKind::Signal,
            vec![(on.id, Use::Read)],
            false,
            spec,
            kernel,
            test_block,
        );
        self.check_owner(test, on.program);
        self.add(ProgramNode::While {
            test_block,
            test,
            body,
        });
        self.open.push(body);
    }

    /// Opens the true side of a branch and gives the block of the false side. For other languages' builders.
    pub fn begin_branch(&mut self, signal: Signal) -> BlockId {
        if signal.program != self.identity {
            self.errors.push(BuildError::SignalNotBefore {
                signal: "of another program".to_owned(),
            });
        }
        if self.is_too_deep() {
            self.open_nothing();
            return self.current_block();
        }
        let then = self.new_block();
        let otherwise = self.new_block();
        self.add(ProgramNode::Branch {
            signal: signal.stage,
            then,
            otherwise,
        });
        self.open.push(then);
        otherwise
    }

    /// Opens the false side of a branch. For other languages' builders.
    pub fn reopen(&mut self, block: BlockId) {
        self.open.push(block);
    }

    /// Closes the innermost loop or branch side.
    ///
    /// # Panics
    /// When nothing is open.
    pub fn end(&mut self) {
        assert!(self.open.len() > 1, "no loop or branch is open");
        self.open.pop();
    }

    fn is_too_deep(&self) -> bool {
        self.open.len() > crate::DEPTH_MAX
    }

    /// What would be a block too deep is none: its statements fall into the block around it, and the program is refused.
    fn open_nothing(&mut self) {
        let depth = self.open.len();
        self.errors.push(BuildError::TooDeep { depth });
        // Pushed all the same: the `end` of this statement has to close something, and must not
        // close the block around it.
        self.open.push(self.current_block());
    }

    fn new_block(&mut self) -> BlockId {
        self.spec.blocks.push(Vec::new());
        BlockId(self.spec.blocks.len() as u32 - 1)
    }

    pub(crate) fn current_block(&self) -> BlockId {
        *self
            .open
            .last()
            .expect("the program's own block is never closed")
    }

    pub(crate) fn add(&mut self, node: ProgramNode) {
        let block = self.current_block();
        self.spec.blocks[block.index()].push(node);
    }

    #[allow(clippy::too_many_arguments)] // One call per kind of stage, each in `stages`.
    pub(crate) fn push_stage(
        &mut self,
        name: String,
        kind: StageKind,
        uses: Vec<(DatasetId, Use)>,
        cells: bool,
        spec: KernelSpec,
        kernel: Arc<dyn Kernel>,
        block: BlockId,
    ) -> StageId {
        self.spec.kernels.push(spec);
        self.kernels.push(kernel);
        let kernel = KernelId(self.spec.kernels.len() as u32 - 1);
        self.spec.stages.push(StageSpec {
            name,
            kind,
            uses,
            cells,
            kernel,
            block,
        });
        let id = StageId(self.spec.stages.len() as u32 - 1);
        // Only the first scatter is noted. A second one is a mistake, which validation names.
        if let Some(exchange) = self.spec.sends_to(id) {
            self.scatters[exchange.index()].get_or_insert(id);
        }
        self.placement.stage_added(&mut self.spec, id.index());
        id
    }

    pub(crate) fn check_owner(&mut self, stage: StageId, program: u64) {
        if program != self.identity {
            let stage = self.spec.stages[stage.index()].name.clone();
            self.errors.push(BuildError::OtherProgram { stage });
        }
    }

    /// Checks the whole program.
    ///
    /// # Errors
    /// The first thing that is wrong, with the stage, the datasets and the fix.
    pub fn validate(&self) -> Result<(), BuildError> {
        self.structure().map(|_| ())
    }

    /// What is found out by checking the whole program.
    pub(crate) fn structure(&self) -> Result<Structure, BuildError> {
        // Errors of the builder go first: it has left out what it refused, and checks of the rest
        // would only find what follows from that.
        match self.errors.first() {
            Some(error) => Err(error.clone()),
            None => crate::validate::validate(&self.spec),
        }
    }

    /// The kernel of a stage. For whoever runs stages.
    pub fn kernel(&self, stage: StageId) -> &Arc<dyn Kernel> {
        &self.kernels[self.spec.stages[stage.index()].kernel.index()]
    }

    /// The payload type of a dataset.
    pub fn payload_type(&self, dataset: DatasetId) -> &'static PayloadType {
        self.types[dataset.index()]
    }

    /// The piece type of an exchange.
    pub fn piece_type(&self, exchange: ExchangeId) -> &'static PayloadType {
        self.pieces[exchange.index()]
    }

    /// The value of a partition before the program starts.
    pub fn initial(&self, dataset: DatasetId, index: u32, count: u32) -> Value {
        match &self.sources[dataset.index()] {
            Some(InitialValues::Value(value)) => value.clone(),
            Some(InitialValues::Made(source)) => source(index, count),
            Some(InitialValues::Scan(reader)) => reader.read(index, count),
            Some(InitialValues::Given) => unreachable!("a plan is compiled once all is given"),
            None => Value::default_of(self.types[dataset.index()]),
        }
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Program({}, {} stages)",
            self.spec.name,
            self.spec.stages.len()
        )
    }
}
