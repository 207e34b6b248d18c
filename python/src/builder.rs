//! The builder that `brambling.Program` drives: statements in, stages out. What statements mean is decided in
//! Python; here they become a program.
#![allow(unsafe_code)] // Stages with erased kernels: the shapes recorded here are those of the datasets.

use crate::compiled::{Codes, CompiledMap};
use crate::kernels::{
    Function, PyCombine, PyGather, PyMap, PyPartials, PyScatter, ReduceGather, ReduceScatter,
    Shape, Test, Update,
};
use crate::prints::PrintTarget;
use crate::run::{Outcome, settings_error};
use crate::value::{PyBlocks, PyValue};
use brambling::Settings;
use brambling::program::{
    BLOCK_ROWS, BlockId, BuildError, Count, Dataset, DatasetId, Decoder, ExchangeId, Kernel,
    KernelSpec, Partitioner, Payload, Program, Relation, Runner, Signal, SpillError, StageKind,
    Use, Value, blocks_of, default_partitions,
};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::BTreeSet;
use std::sync::Arc;

#[derive(Clone, Copy)]
pub enum Handle {
    Opaque(Dataset<PyValue>),
    Blocked(Dataset<PyBlocks>),
}

impl Handle {
    pub fn id(self) -> DatasetId {
        match self {
            Handle::Opaque(dataset) => dataset.id(),
            Handle::Blocked(dataset) => dataset.id(),
        }
    }

    fn shape(self) -> Shape {
        match self {
            Handle::Opaque(_) => Shape::Opaque,
            Handle::Blocked(_) => Shape::Blocked,
        }
    }
}

struct State {
    program: Program,
    handles: Vec<Handle>,
    exchanges: Vec<ExchangeId>,
    signals: Vec<Signal>,
    otherwise: Vec<BlockId>,
    /// Datasets whose values compiled code makes.
    compiled: BTreeSet<DatasetId>,
}

/// A program being built.
#[pyclass(module = "brambling._native")]
pub struct Builder {
    state: State,
}

pub fn build_error(error: BuildError) -> PyErr {
    crate::raise("BuildError", error.to_string())
}

impl Builder {
    /// What was built so far.
    pub fn program(&self) -> Program {
        self.state.program.clone()
    }

    /// Its datasets, by their numbers in Python.
    pub fn handles(&self) -> Vec<Handle> {
        self.state.handles.clone()
    }

    fn handle(&self, id: u32) -> PyResult<Handle> {
        let handle = self.state.handles.get(id as usize).copied();
        handle.ok_or_else(|| PyIndexError::new_err(format!("no dataset {id}")))
    }

    fn name(&self, handle: Handle) -> String {
        self.state.program.spec().datasets[handle.id().index()]
            .name
            .clone()
    }

    fn function(
        &self,
        stage: &str,
        call: Py<PyAny>,
        reads: &[u32],
    ) -> PyResult<(Function, Vec<(DatasetId, Use)>)> {
        let mut function = Function {
            call,
            reads: Vec::new(),
            names: Vec::new(),
            place: PrintTarget::of_stage(stage),
        };
        let mut uses = Vec::new();
        for &id in reads {
            let handle = self.handle(id)?;
            function.reads.push(handle.shape());
            function.names.push(self.name(handle));
            uses.push((handle.id(), Use::Read));
        }
        Ok((function, uses))
    }

    /// A statement: refused, it leaves the program as it was. Neither depends on how long the program is.
    fn attempt<R>(&mut self, statement: impl FnOnce(&mut Self) -> PyResult<R>) -> PyResult<R> {
        let before = self.state.program.mark();
        let State {
            handles,
            exchanges,
            signals,
            otherwise,
            ..
        } = &self.state;
        let lengths = [
            handles.len(),
            exchanges.len(),
            signals.len(),
            otherwise.len(),
        ];
        let result = statement(self).and_then(|result| {
            let checked = self.state.program.check_since(&before);
            checked.map(|()| result).map_err(build_error)
        });
        if result.is_err() {
            let datasets = self.state.program.take_back(&before);
            let [handles, exchanges, signals, otherwise] = lengths;
            self.state.handles.truncate(handles);
            self.state.exchanges.truncate(exchanges);
            self.state.signals.truncate(signals);
            self.state.otherwise.truncate(otherwise);
            self.state.compiled.split_off(&datasets);
        }
        result
    }

    fn add_handle(&mut self, handle: Handle) -> u32 {
        self.state.handles.push(handle);
        self.state.handles.len() as u32 - 1
    }

    /// A temporary with the partitions of another dataset.
    fn like(&mut self, name: String, like: Handle, shape: Shape) -> Handle {
        let program = &mut self.state.program;
        match (shape, like) {
            (Shape::Opaque, Handle::Opaque(like)) => Handle::Opaque(program.like(name, &like)),
            (Shape::Opaque, Handle::Blocked(like)) => Handle::Opaque(program.like(name, &like)),
            (Shape::Blocked, Handle::Opaque(like)) => Handle::Blocked(program.like(name, &like)),
            (Shape::Blocked, Handle::Blocked(like)) => Handle::Blocked(program.like(name, &like)),
        }
    }

    fn stage(
        &mut self,
        name: String,
        kind: StageKind,
        uses: Vec<(DatasetId, Use)>,
        code: Vec<u8>,
        kernel: impl Kernel + 'static,
    ) -> Signal {
        let spec = spec(&name, code);
        self.stage_of(name, kind, uses, spec, kernel)
    }

    fn stage_of(
        &mut self,
        name: String,
        kind: StageKind,
        uses: Vec<(DatasetId, Use)>,
        spec: KernelSpec,
        kernel: impl Kernel + 'static,
    ) -> Signal {
        // SAFETY: the kernels of `kernels` take the shapes of the datasets that their callers put into `uses`.
        unsafe {
            self.state
                .program
                .raw_stage(name, kind, uses, false, spec, Arc::new(kernel))
        }
    }
}

fn spec(name: &str, parameters: Vec<u8>) -> KernelSpec {
    KernelSpec {
        name: name.to_owned(),
        parameters,
        runner: Runner::Caller,
    }
}

/// The value that these bytes are, all of them.
/// A value's bytes, at once or chunk by chunk.
fn bytes_of<P: Payload>(value: P, chunk_bytes: Option<usize>) -> PyResult<Vec<u8>> {
    let mut out = Vec::new();
    let Some(bytes_max) = chunk_bytes else {
        value.encode(&mut out);
        return Ok(out);
    };
    let mut chunks = Value::new(value).into_chunks(bytes_max);
    let refused = |error: SpillError| crate::raise("Error", error.to_string());
    while let Some((copied, lent)) = chunks.next().map_err(refused)? {
        out.extend_from_slice(&copied);
        out.extend_from_slice(lent.as_ref());
    }
    Ok(out)
}

/// A value from its bytes, at once or chunk by chunk.
fn whole_of<P: Payload>(mut bytes: &[u8], chunk_bytes: Option<usize>) -> PyResult<P> {
    if let Some(bytes_max) = chunk_bytes {
        let mut decoder = Decoder::new(Value::new(P::default()));
        let fed = bytes
            .chunks(bytes_max)
            .try_for_each(|chunk| decoder.feed(chunk));
        let value = fed.and_then(|()| decoder.finish());
        let value = value.map_err(|error| crate::raise("Error", error.to_string()))?;
        return Ok(value.take().expect("of its type"));
    }
    let value = P::decode(&mut bytes).map_err(|error| crate::raise("Error", error.to_string()))?;
    if bytes.is_empty() {
        return Ok(value);
    }
    let text = format!("{} bytes after the value", bytes.len());
    Err(crate::raise("Error", text))
}

/// How large an array is; nothing for what does not say.
fn nbytes(object: &Bound<'_, PyAny>) -> u64 {
    let told = object.getattr(pyo3::intern!(object.py(), "nbytes"));
    told.and_then(|told| told.extract()).unwrap_or(0)
}

#[pymethods]
impl Builder {
    #[new]
    fn new(name: String, seed: u64) -> Builder {
        Builder {
            state: State {
                program: Program::new(name).with_seed(seed),
                handles: Vec::new(),
                exchanges: Vec::new(),
                signals: Vec::new(),
                otherwise: Vec::new(),
                compiled: BTreeSet::new(),
            },
        }
    }

    /// A dataset of copies of a value.
    fn dataset(
        &mut self,
        name: String,
        value: &Bound<'_, PyAny>,
        partitions: u32,
    ) -> PyResult<u32> {
        let value = PyValue::new(value)?;
        self.attempt(|this| {
            let dataset = this.state.program.value(name, partitions, value);
            Ok(this.add_handle(Handle::Opaque(dataset)))
        })
    }

    /// A blocked dataset: per partition its whole, and its blocks' values.
    fn load(
        &mut self,
        name: String,
        parts: Vec<(Bound<'_, PyAny>, Vec<Bound<'_, PyAny>>)>,
    ) -> PyResult<u32> {
        let mut first = 0;
        let mut bytes = 0;
        let mut partitions = Vec::new();
        for (whole, blocks) in &parts {
            bytes += nbytes(whole);
            let values = blocks
                .iter()
                .map(PyValue::new)
                .collect::<PyResult<Vec<_>>>()?;
            let count = values.len() as u64;
            partitions.push(PyBlocks {
                first,
                values: values.into(),
                whole: PyValue::new(whole)?,
            });
            first += count;
        }
        self.attempt(|this| {
            let count = partitions.len() as u32;
            let source = move |index: u32, _| partitions[index as usize].clone();
            let program = &mut this.state.program;
            let dataset = program.load(name, count, Partitioner::Blocks, source);
            program.expect_bytes(&dataset, bytes);
            Ok(this.add_handle(Handle::Blocked(dataset)))
        })
    }

    /// A blocked dataset whose partitions come from elsewhere: in a program that was sent, from its client.
    fn given(&mut self, name: String, partitions: u32) -> PyResult<u32> {
        self.attempt(|this| {
            let program = &mut this.state.program;
            let dataset = program.given(name, partitions, Partitioner::Blocks);
            Ok(this.add_handle(Handle::Blocked(dataset)))
        })
    }

    /// With `compile`, the function has machine code and runs on worker threads.
    #[allow(clippy::too_many_arguments)] // What a stage is made of, each once.
    #[pyo3(signature = (name, result, call, code, reads, per_block, compile=None))]
    fn map(
        &mut self,
        name: String,
        result: String,
        call: Py<PyAny>,
        code: Vec<u8>,
        reads: Vec<u32>,
        per_block: bool,
        compile: Option<Py<PyAny>>,
    ) -> PyResult<u32> {
        self.attempt(|this| {
            let (function, mut uses) = this.function(&name, call, &reads)?;
            let blocked = function
                .reads
                .iter()
                .position(|shape| *shape == Shape::Blocked);
            let per_block = per_block && blocked.is_some();
            let like = this.handle(reads[blocked.unwrap_or(0)])?;
            let shape = if per_block {
                Shape::Blocked
            } else {
                Shape::Opaque
            };
            let output = this.like(result, like, shape);
            uses.push((output.id(), Use::Write));
            let mut spec = spec(&name, code);
            match compile {
                None => {
                    let kernel = PyMap {
                        function,
                        per_block,
                    };
                    this.stage_of(name, StageKind::Compute, uses, spec, kernel);
                }
                Some(compile) => {
                    spec.runner = Runner::Native;
                    this.state.compiled.insert(output.id());
                    let kernel = CompiledMap {
                        function,
                        per_block,
                        compile,
                        codes: Codes::default(),
                    };
                    this.stage_of(name, StageKind::Compute, uses, spec, kernel);
                }
            }
            Ok(this.add_handle(output))
        })
    }

    fn update(
        &mut self,
        name: String,
        dataset: u32,
        call: Py<PyAny>,
        code: Vec<u8>,
        reads: Vec<u32>,
    ) -> PyResult<()> {
        self.attempt(|this| {
            let (function, reads) = this.function(&name, call, &reads)?;
            let handle = this.handle(dataset)?;
            let mut uses = vec![(handle.id(), Use::Update)];
            uses.extend(reads);
            let kernel = Update {
                function,
                shape: handle.shape(),
            };
            this.stage(name, StageKind::Compute, uses, code, kernel);
            Ok(())
        })
    }

    /// `sum` says that `combine` is the package's own.
    fn reduce(
        &mut self,
        name: String,
        result: String,
        combine: Bound<'_, PyAny>,
        code: Vec<u8>,
        dataset: u32,
        sum: bool,
    ) -> PyResult<u32> {
        // Operations of the package's own have one.
        let leaf = combine.getattr_opt("leaf")?;
        self.attempt(|this| {
            let handle = this.handle(dataset)?;
            let exchange = this
                .state
                .program
                .exchange::<PyPartials>(name.clone(), Relation::AllToOne);
            let total = this.state.program.temporary::<PyValue>(result, 1);
            let combine = PyCombine {
                call: Arc::new(combine.unbind()),
                leaf: leaf.map(|leaf| Arc::new(leaf.unbind())),
                sum,
                place: PrintTarget::of_stage(&name),
            };
            let mut spec = spec(&name, code);
            let is_compiled = sum && this.state.compiled.contains(&handle.id());
            if is_compiled {
                spec.runner = Runner::Native;
                this.state.compiled.insert(total.id());
            }
            let scatter = ReduceScatter {
                combine: combine.clone(),
                shape: handle.shape(),
            };
            let uses = vec![(handle.id(), Use::Read)];
            let kind = StageKind::Scatter(exchange.id());
            this.stage_of(name.clone(), kind, uses, spec.clone(), scatter);
            let uses = vec![(total.id(), Use::Write)];
            let kind = StageKind::Gather(exchange.id());
            this.stage_of(name, kind, uses, spec, ReduceGather { combine });
            Ok(this.add_handle(Handle::Opaque(total)))
        })
    }

    fn broadcast(&mut self, dataset: u32, like: u32, result: String) -> PyResult<u32> {
        self.attempt(|this| {
            let Handle::Opaque(from) = this.handle(dataset)? else {
                return Err(crate::raise(
                    "BuildError",
                    format!(
                        "broadcast of `{}`, which has a value per block; reduce it to one value first",
                        this.name(this.handle(dataset)?)
                    ),
                ));
            };
            let like = this.handle(like)?;
            let Handle::Opaque(to) = this.like(result, like, Shape::Opaque) else {
                unreachable!("asked for an opaque one")
            };
            this.state.program.broadcast(&from, &to);
            Ok(this.add_handle(Handle::Opaque(to)))
        })
    }

    /// Opens an exchange and adds its scatter. `offsets` (with `wrap`) relate neighbours; without them anybody
    /// may send to anybody.
    fn scatter(
        &mut self,
        name: String,
        call: Py<PyAny>,
        code: Vec<u8>,
        reads: Vec<u32>,
        offsets: Option<(Vec<i64>, bool)>,
    ) -> PyResult<u32> {
        self.attempt(|this| {
            let relation = match offsets {
                Some((offsets, wrap)) => Relation::Offsets { offsets, wrap },
                None => Relation::AllToAll,
            };
            let exchange = this
                .state
                .program
                .exchange::<PyValue>(name.clone(), relation);
            this.state.exchanges.push(exchange.id());
            let (function, uses) = this.function(&name, call, &reads)?;
            let kind = StageKind::Scatter(exchange.id());
            this.stage(name, kind, uses, code, PyScatter(function));
            Ok(this.state.exchanges.len() as u32 - 1)
        })
    }

    #[allow(clippy::too_many_arguments)] // What a stage is made of, each once.
    fn gather(
        &mut self,
        exchange: u32,
        name: String,
        result: String,
        call: Py<PyAny>,
        code: Vec<u8>,
        reads: Vec<u32>,
        partitions: u32,
    ) -> PyResult<u32> {
        self.attempt(|this| {
            let exchange = this.state.exchanges[exchange as usize];
            let (function, mut uses) = this.function(&name, call, &reads)?;
            let output = this.state.program.temporary::<PyValue>(result, partitions);
            uses.push((output.id(), Use::Write));
            this.stage(
                name,
                StageKind::Gather(exchange),
                uses,
                code,
                PyGather(function),
            );
            Ok(this.add_handle(Handle::Opaque(output)))
        })
    }

    /// Says that rows of a dataset lie by the hash of a key.
    fn mark_hashed(&mut self, dataset: u32) -> PyResult<()> {
        match self.handle(dataset)? {
            Handle::Opaque(dataset) => self.state.program.mark_hashed(&dataset),
            Handle::Blocked(dataset) => self.state.program.mark_hashed(&dataset),
        }
        Ok(())
    }

    fn signal(
        &mut self,
        name: String,
        call: Py<PyAny>,
        code: Vec<u8>,
        dataset: u32,
    ) -> PyResult<u32> {
        self.attempt(|this| {
            let (function, uses) = this.function(&name, call, &[dataset])?;
            let signal = this.stage(name, StageKind::Signal, uses, code, Test(function));
            this.state.signals.push(signal);
            Ok(this.state.signals.len() as u32 - 1)
        })
    }

    fn begin_repeat(&mut self, turns: u64) -> PyResult<()> {
        self.attempt(|this| {
            this.state.program.begin_repeat(turns);
            Ok(())
        })
    }

    fn begin_while(
        &mut self,
        name: String,
        call: Py<PyAny>,
        code: Vec<u8>,
        dataset: u32,
    ) -> PyResult<()> {
        self.attempt(|this| {
            let (function, _) = this.function(&name, call, &[dataset])?;
            let (spec, kernel) = (spec(&name, code), Arc::new(Test(function)));
            match this.handle(dataset)? {
                Handle::Opaque(on) => this.state.program.begin_while(name, &on, spec, kernel),
                Handle::Blocked(on) => this.state.program.begin_while(name, &on, spec, kernel),
            }
            Ok(())
        })
    }

    /// Opens the true side of a branch; gives what `begin_else` takes.
    fn begin_if(&mut self, signal: u32) -> PyResult<u32> {
        self.attempt(|this| {
            let signal = this.state.signals[signal as usize];
            let otherwise = this.state.program.begin_branch(signal);
            this.state.otherwise.push(otherwise);
            Ok(this.state.otherwise.len() as u32 - 1)
        })
    }

    fn begin_else(&mut self, branch: u32) {
        let block = self.state.otherwise[branch as usize];
        self.state.program.reopen(block);
    }

    fn end(&mut self) {
        self.state.program.end();
    }

    fn keep(&mut self, dataset: u32) -> PyResult<()> {
        match self.handle(dataset)? {
            Handle::Opaque(dataset) => self.state.program.keep(&dataset),
            Handle::Blocked(dataset) => self.state.program.keep(&dataset),
        }
        Ok(())
    }

    fn is_kept(&self, dataset: u32) -> PyResult<bool> {
        let id = self.handle(dataset)?.id();
        Ok(self.state.program.spec().datasets[id.index()].keep)
    }

    /// The partitions of a dataset.
    fn partitions(&self, dataset: u32) -> PyResult<u32> {
        let id = self.handle(dataset)?.id();
        match self.state.program.spec().datasets[id.index()].count {
            Count::Fixed(count) => Ok(count),
            Count::Symbol(_) => Err(PyIndexError::new_err("a symbol")),
        }
    }

    /// How a dataset's rows were dealt to its partitions.
    fn partitioner(&self, dataset: u32) -> PyResult<String> {
        let id = self.handle(dataset)?.id();
        let partitioner = self.state.program.spec().datasets[id.index()].partitioner;
        Ok(format!("{partitioner:?}").to_lowercase())
    }

    fn is_blocked(&self, dataset: u32) -> PyResult<bool> {
        Ok(self.handle(dataset)?.shape() == Shape::Blocked)
    }

    fn text(&self) -> String {
        self.state.program.spec().to_string()
    }

    /// What workers compare before a program starts.
    fn hash(&self) -> u128 {
        self.state.program.spec().hash()
    }

    fn picture(&self) -> String {
        self.state.program.spec().picture()
    }

    /// A value as it goes to another process, at once or in chunks.
    #[staticmethod]
    #[pyo3(signature = (value, chunk_bytes = None))]
    fn encoded<'py>(
        value: &Bound<'py, PyAny>,
        chunk_bytes: Option<usize>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let out = bytes_of(PyValue::new(value)?, chunk_bytes)?;
        Ok(PyBytes::new(value.py(), &out))
    }

    /// What came as `encoded` bytes.
    #[staticmethod]
    #[pyo3(signature = (bytes, chunk_bytes = None))]
    fn decoded<'py>(
        py: Python<'py>,
        bytes: &[u8],
        chunk_bytes: Option<usize>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        whole_of::<PyValue>(bytes, chunk_bytes)?.get(py)
    }

    /// The blocks of a partition as they go to another process: the first one's index, their values, and the
    /// partition in one piece.
    #[staticmethod]
    #[pyo3(signature = (first, values, whole, chunk_bytes = None))]
    fn encoded_blocks<'py>(
        first: u64,
        values: Vec<Bound<'py, PyAny>>,
        whole: &Bound<'py, PyAny>,
        chunk_bytes: Option<usize>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let values = values.iter().map(PyValue::new);
        let blocks = PyBlocks {
            first,
            values: values.collect::<PyResult<Vec<_>>>()?.into(),
            whole: PyValue::new(whole)?,
        };
        let out = bytes_of(blocks, chunk_bytes)?;
        Ok(PyBytes::new(whole.py(), &out))
    }

    /// What came as `encoded_blocks`.
    #[staticmethod]
    #[pyo3(signature = (bytes, chunk_bytes = None))]
    fn decoded_blocks<'py>(
        py: Python<'py>,
        bytes: &[u8],
        chunk_bytes: Option<usize>,
    ) -> PyResult<(u64, Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let blocks = whole_of::<PyBlocks>(bytes, chunk_bytes)?;
        Ok((blocks.first, blocks.list(py)?, blocks.whole(py)?))
    }

    #[pyo3(signature = (threads, weight, store = None, snapshot_every = None))]
    fn run(
        &self,
        py: Python<'_>,
        threads: Option<u32>,
        weight: Option<u32>,
        store: Option<String>,
        snapshot_every: Option<String>,
    ) -> PyResult<Outcome> {
        let program = self.state.program.clone();
        let options = crate::run::options(threads, weight);
        let options = crate::run::kept(options, store, snapshot_every);
        crate::run::run(py, program, self.state.handles.clone(), &options)
    }
}

/// Rows of a block.
#[pyfunction]
pub fn block_rows() -> usize {
    BLOCK_ROWS
}

/// The partition count for a blocked dataset for which nobody gives one: from the settings, else from the data.
#[pyfunction]
pub fn partitions_for(blocks: u64, bytes: u64) -> PyResult<u32> {
    let settings = Settings::default().resolve().map_err(settings_error)?;
    Ok(settings
        .partitions
        .unwrap_or_else(|| default_partitions(blocks, bytes)))
}

/// The blocks of one partition: first, and one beyond the last.
#[pyfunction]
pub fn blocks_of_partition(partition: u32, partitions: u32, blocks: u64) -> (u64, u64) {
    let range = blocks_of(partition, partitions, blocks);
    (range.start, range.end)
}
