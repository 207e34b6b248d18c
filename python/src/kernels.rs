//! Stages whose kernels are Python functions. All run on the thread that called run, which holds the
//! interpreter.
#![allow(unsafe_code)] // Arguments are erased pointers; the builder fixed their types.

use crate::alone;
use crate::forks;
use crate::interpreter::attach;
use crate::loads;
use crate::prints::PrintTarget;
use crate::reserve;
use crate::sums;
use crate::value::{PyBlocks, PyValue};
use brambling::program::tree::{Folding, TreeNode, aligned_nodes};
use brambling::program::{Context, Kernel, KernelError, Progress, Sink};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyTuple};
use std::sync::Arc;

/// Operands of a reduction, named by their tree nodes.
pub type PyPartials = Vec<(TreeNode, PyValue)>;

/// What a dataset holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Opaque,
    Blocked,
}

/// A kernel's argument.
///
/// # Safety
/// `pointer` is to a value of that shape.
pub(crate) unsafe fn opaque<'a>(pointer: *mut u8) -> &'a mut PyValue {
    // SAFETY: the caller's promise.
    unsafe { &mut *pointer.cast() }
}

/// # Safety
/// As [`opaque`].
pub(crate) unsafe fn blocked<'a>(pointer: *mut u8) -> &'a mut PyBlocks {
    // SAFETY: the caller's promise.
    unsafe { &mut *pointer.cast() }
}

/// How a Python function is called: `call(args, partition, partitions, turn, stage, block, unseen)`.
pub struct Function {
    pub call: Py<PyAny>,
    pub reads: Vec<Shape>,
    /// Names of what is read, for errors.
    pub names: Vec<String>,
    /// Where it prints, if it was built for a job of a cluster.
    pub place: Option<Arc<PrintTarget>>,
}

fn run(
    context: &mut Context<'_>,
    body: impl FnOnce(Python<'_>, &mut Context<'_>) -> PyResult<()>,
) -> Progress {
    run_anywhere(context, |context| attach(|py| body(py, context)))
}

/// As [`run`], for a body that attaches to the interpreter where it has to.
pub(crate) fn run_anywhere(
    context: &mut Context<'_>,
    body: impl FnOnce(&mut Context<'_>) -> PyResult<()>,
) -> Progress {
    match body(context) {
        Ok(()) => Progress::Done,
        Err(error) => {
            let failed = attach(|py| match reserve::passed_on(py, &error) {
                Some(refused) => refused,
                None => KernelError::new(text_of(py, &error)).with_source(error),
            });
            context.fail(failed)
        }
    }
}

/// As the last line of a traceback; of the package's own exceptions only the message.
fn text_of(py: Python<'_>, error: &PyErr) -> String {
    let message = error.value(py).to_string();
    let own = py
        .import("brambling._errors")
        .and_then(|module| module.getattr("Error"))
        .and_then(|class| error.value(py).is_instance(&class))
        .unwrap_or(false);
    let name = match error.get_type(py).name() {
        Ok(name) => name.to_string(),
        Err(_) => "Exception".to_owned(),
    };
    match (message.is_empty(), own) {
        (true, _) => name,
        (false, true) => message,
        (false, false) => format!("{name}: {message}"),
    }
}

impl Function {
    /// The error for a dataset that has no value; the one that is updated has no place among those read.
    pub(crate) fn unset(&self, place: Option<usize>) -> PyErr {
        attach(|py| {
            let call = self.call.bind(py);
            match call.call_method1(pyo3::intern!(py, "unset"), (place,)) {
                Ok(error) => PyErr::from_value(error),
                Err(error) => error,
            }
        })
    }

    fn named(&self, place: usize) -> String {
        format!("`{}`", self.names[place])
    }

    /// The arguments of one call: of blocked datasets the block at a place, or the whole partition.
    ///
    /// # Safety
    /// `args` points to as many values as are read, of the shapes declared.
    pub(crate) unsafe fn arguments<'py>(
        &self,
        py: Python<'py>,
        args: *const *mut u8,
        place: Option<usize>,
    ) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        let mut list = Vec::with_capacity(self.reads.len() + 1);
        for (number, shape) in self.reads.iter().enumerate() {
            // SAFETY: the caller's promise.
            let argument = unsafe {
                match (shape, place) {
                    (Shape::Opaque, _) => opaque(*args.add(number))
                        .get_named(py, || self.named(number))?
                        .ok_or_else(|| self.unset(Some(number)))?,
                    (Shape::Blocked, None) => blocked(*args.add(number)).whole(py)?,
                    (Shape::Blocked, Some(place)) => {
                        let blocks = blocked(*args.add(number));
                        match blocks.values.get(place) {
                            None => return Err(self.unset(Some(number))),
                            Some(value) => match value.get_named(py, || self.named(number))? {
                                None => return Ok(None),
                                Some(value) => value,
                            },
                        }
                    }
                }
            };
            list.push(argument);
        }
        Ok(Some(list))
    }

    pub(crate) fn invoke<'py>(
        &self,
        py: Python<'py>,
        context: &Context<'_>,
        args: Vec<Bound<'py, PyAny>>,
        block: Option<u64>,
        unseen: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let at = context.position();
        let args = PyTuple::new(py, args)?;
        let here = self.place.as_ref().map(PrintTarget::enter);
        let taking = reserve::enter(context);
        let _turn = alone::turn_with_interpreter(py);
        let forks = forks::count();
        let result = self.call.bind(py).call1((
            args,
            context.partition(),
            context.partitions(),
            at.turn,
            at.stage.0,
            block,
            unseen,
        ));
        drop((taking, here));
        let result = forks::end_if_child(py, forks, result)?;
        if let Some(place) = &self.place {
            loads::tell_news(py, place)?;
        }
        Ok(result)
    }

    /// # Safety
    /// As [`Function::arguments`].
    pub(crate) unsafe fn first_blocks(&self, args: *const *mut u8) -> Option<(u64, usize)> {
        let place = self
            .reads
            .iter()
            .position(|shape| *shape == Shape::Blocked)?;
        // SAFETY: the caller's promise.
        let blocks = unsafe { blocked(*args.add(place)) };
        Some((blocks.first, blocks.values.len()))
    }
}

/// Calls a function per block, or once: results go to the dataset after those read.
pub struct PyMap {
    pub function: Function,
    pub per_block: bool,
}

impl Kernel for PyMap {
    unsafe fn call(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress {
        run(context, |py, context| {
            let output = self.function.reads.len();
            if !self.per_block {
                // SAFETY: the stage declares what is read, then one opaque dataset.
                let (arguments, result) = unsafe {
                    (
                        self.function.arguments(py, args, None)?,
                        opaque(*args.add(output)),
                    )
                };
                let arguments = arguments.expect("whole partitions are always there");
                *result =
                    PyValue::new(&self.function.invoke(py, context, arguments, None, false)?)?;
                return Ok(());
            }
            // SAFETY: the stage declares what is read, at least one dataset of blocks, then one of blocks.
            let (shape, result) =
                unsafe { (self.function.first_blocks(args), blocked(*args.add(output))) };
            let (first, count) = shape.expect("a map per block reads blocks");
            result.first = first;
            result.values.clear();
            for place in 0..count {
                // SAFETY: as above.
                let value = match unsafe { self.function.arguments(py, args, Some(place))? } {
                    None => PyValue::default(),
                    Some(arguments) => {
                        let block = first + place as u64;
                        PyValue::new(&self.function.invoke(
                            py,
                            context,
                            arguments,
                            Some(block),
                            false,
                        )?)?
                    }
                };
                result.values.push(value);
            }
            Ok(())
        })
    }
}

/// ds = f(ds, …): the dataset that is updated comes first.
pub struct Update {
    pub function: Function,
    pub shape: Shape,
}

impl Kernel for Update {
    unsafe fn call(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress {
        run(context, |py, context| {
            let step =
                |own: &mut PyValue, place: Option<usize>, block: Option<u64>| -> PyResult<()> {
                    // SAFETY: the stage declares one dataset, then what is read.
                    let arguments = unsafe { self.function.arguments(py, args.add(1), place)? };
                    let Some(mut arguments) = arguments else {
                        return Ok(());
                    };
                    let (value, unseen) = own.take(py)?.ok_or_else(|| self.function.unset(None))?;
                    arguments.insert(0, value);
                    *own = PyValue::new(
                        &self
                            .function
                            .invoke(py, context, arguments, block, unseen)?,
                    )?;
                    Ok(())
                };
            match self.shape {
                // SAFETY: as declared.
                Shape::Opaque => step(unsafe { opaque(*args) }, None, None),
                Shape::Blocked => {
                    // SAFETY: as declared.
                    let own = unsafe { blocked(*args) };
                    own.whole = PyValue::default();
                    let first = own.first;
                    for place in 0..own.values.len() {
                        if own.values[place].is_set() {
                            let block = Some(first + place as u64);
                            own.values
                                .change(place, |value| step(value, Some(place), block))?;
                        }
                    }
                    Ok(())
                }
            }
        })
    }
}

/// Gives a boolean.
pub struct Test(pub Function);

impl Kernel for Test {
    unsafe fn call(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress {
        run(context, |py, context| {
            // SAFETY: the stage declares what is read.
            let arguments = unsafe { self.0.arguments(py, args, None)? };
            let arguments = arguments.expect("whole partitions are always there");
            let outcome = self.0.invoke(py, context, arguments, None, false)?;
            context.set_outcome(outcome.cast::<PyBool>()?.is_true());
            Ok(())
        })
    }
}

/// How a reduction combines.
#[derive(Clone)]
pub struct PyCombine {
    pub call: Arc<Py<PyAny>>,
    /// What it makes of each value before all else; an operation of the user's has no such function.
    pub leaf: Option<Arc<Py<PyAny>>>,
    /// Whether it is the package's own sum, which many values need no interpreter for.
    pub sum: bool,
    /// Where it prints, if it was built for a job of a cluster.
    pub place: Option<Arc<PrintTarget>>,
}

impl PyCombine {
    /// A value as it enters the tree: a sum's has the sum's type, however many there are.
    fn leaf(&self, value: &PyValue) -> PyResult<PyValue> {
        let Some(leaf) = &self.leaf else {
            return Ok(value.clone());
        };
        match value.views() {
            Some(views) if !(self.sum && sums::widens(views)) => Ok(value.clone()),
            Some(views) if !views.has_scalars => Ok(PyValue::made(sums::widened(views))),
            _ => attach(|py| {
                let value = value.get(py)?;
                PyValue::new(&leaf.bind(py).call1((value,))?)
            }),
        }
    }

    fn join(&self, values: &mut [PyValue], left: usize, right: usize) -> PyResult<()> {
        let (head, tail) = values.split_at_mut(right);
        if self.sum && head[left].add(&tail[0]) {
            return Ok(());
        }
        let _here = self.place.as_ref().map(PrintTarget::enter);
        attach(|py| {
            let operands = (head[left].get(py)?, tail[0].get(py)?);
            let _turn = alone::turn_with_interpreter(py);
            let forks = forks::count();
            let result = self.call.bind(py).call1(operands);
            head[left] = PyValue::new(&forks::end_if_child(py, forks, result)?)?;
            Ok(())
        })
    }
}

/// Combines operands where the fixed tree says so.
struct Folder<'a> {
    combine: &'a PyCombine,
    values: Vec<PyValue>,
    folding: Folding,
    error: Option<PyErr>,
}

impl<'a> Folder<'a> {
    fn new(combine: &'a PyCombine) -> Self {
        Folder {
            combine,
            values: Vec::new(),
            folding: Folding::default(),
            error: None,
        }
    }

    fn join(
        combine: &PyCombine,
        values: &mut [PyValue],
        error: &mut Option<PyErr>,
        left: usize,
        right: usize,
    ) {
        if error.is_none() {
            *error = combine.join(values, left, right).err();
        }
    }

    fn push(&mut self, node: TreeNode, value: PyValue) {
        self.values.push(value);
        let (values, error) = (&mut self.values, &mut self.error);
        let last = values.len() - 1;
        self.folding.push(node, last, |l, r| {
            Self::join(self.combine, values, error, l, r)
        });
    }

    fn finish(mut self) -> PyResult<PyValue> {
        let (values, error) = (&mut self.values, &mut self.error);
        let place = self
            .folding
            .finish(|l, r| Self::join(self.combine, values, error, l, r));
        match (self.error, place) {
            (Some(error), _) => Err(error),
            (None, None) => Ok(PyValue::default()),
            (None, Some(place)) => Ok(std::mem::take(&mut self.values[place])),
        }
    }
}

/// Sends what a partition has to a sum, as the maximal nodes of the tree.
pub struct ReduceScatter {
    pub combine: PyCombine,
    pub shape: Shape,
}

impl Kernel for ReduceScatter {
    unsafe fn call(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress {
        // On a worker thread the interpreter is asked for only where it is needed.
        run_anywhere(context, |context| {
            let mut sink = context.take_sink().expect("a scatter is given its sink");
            // SAFETY: the sink is ours until the kernel returns.
            let sink = unsafe { sink.as_mut() };
            let mut partials = PyPartials::new();
            match self.shape {
                Shape::Opaque => {
                    // SAFETY: the stage declares one opaque dataset.
                    let value = unsafe { opaque(*args) };
                    if value.is_set() {
                        let leaf = TreeNode::leaf(u64::from(sink.source()));
                        partials.push((leaf, self.combine.leaf(value)?));
                    }
                }
                Shape::Blocked => {
                    // SAFETY: the stage declares one dataset of blocks.
                    let blocks = unsafe { blocked(*args) };
                    let end = blocks.first + blocks.values.len() as u64;
                    for node in aligned_nodes(blocks.first, end) {
                        let mut folder = Folder::new(&self.combine);
                        for index in node.start()..node.start() + (1 << node.level) {
                            let value = &blocks.values[(index - blocks.first) as usize];
                            if value.is_set() {
                                folder.push(TreeNode::leaf(index), self.combine.leaf(value)?);
                            }
                        }
                        let value = folder.finish()?;
                        if value.is_set() {
                            partials.push((node, value));
                        }
                    }
                }
            }
            // SAFETY: the exchange's pieces are of this type.
            unsafe { put(sink, 0, partials) }
        })
    }
}

/// # Safety
/// The sink's pieces are of type `P`.
unsafe fn put<P>(sink: &mut Sink<'_>, destination: u32, piece: P) -> PyResult<()> {
    match sink.slot(destination) {
        Some(slot) => {
            // SAFETY: the caller's promise.
            unsafe { *slot.cast::<P>() = piece };
            Ok(())
        }
        None => Err(pyo3::exceptions::PyIndexError::new_err(format!(
            "partition {} may not send to partition {destination}; it has {} destinations",
            sink.source(),
            sink.fan_out()
        ))),
    }
}

/// Folds what all partitions sent.
pub struct ReduceGather {
    pub combine: PyCombine,
}

impl Kernel for ReduceGather {
    unsafe fn call(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress {
        run_anywhere(context, |context| {
            let mut source = context.take_source().expect("a gather is given its source");
            // SAFETY: the source is ours until the kernel returns.
            let source = unsafe { source.as_mut() };
            let mut folder = Folder::new(&self.combine);
            while let Some((_, piece)) = source.next() {
                // SAFETY: the exchange's pieces are of this type, each handed out once.
                let partials = unsafe { &mut *piece.cast::<PyPartials>() };
                for (node, value) in partials.drain(..) {
                    folder.push(node, value);
                }
            }
            // SAFETY: the stage declares one opaque dataset.
            unsafe { *opaque(*args) = folder.finish()? };
            Ok(())
        })
    }
}

/// Sends the pieces of the mapping {destination: piece} that a function gives.
pub struct PyScatter(pub Function);

impl Kernel for PyScatter {
    unsafe fn call(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress {
        run(context, |py, context| {
            // SAFETY: the stage declares what is read.
            let arguments = unsafe { self.0.arguments(py, args, None)? };
            let arguments = arguments.expect("whole partitions are always there");
            let pieces = self.0.invoke(py, context, arguments, None, false)?;
            let mut sink = context.take_sink().expect("a scatter is given its sink");
            // SAFETY: the sink is ours until the kernel returns.
            let sink = unsafe { sink.as_mut() };
            for (destination, piece) in pieces.cast::<PyDict>()?.iter() {
                let piece = PyValue::new(&piece)?;
                // SAFETY: the exchange's pieces are of this type.
                unsafe { put(sink, destination.extract()?, piece)? };
            }
            Ok(())
        })
    }
}

/// Hands a function the mapping {source: piece} in order of sources, and what it reads.
pub struct PyGather(pub Function);

impl Kernel for PyGather {
    unsafe fn call(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress {
        run(context, |py, context| {
            let mut source = context.take_source().expect("a gather is given its source");
            // SAFETY: the source is ours until the kernel returns.
            let source = unsafe { source.as_mut() };
            let pieces = PyDict::new(py);
            while let Some((from, piece)) = source.next() {
                // SAFETY: the exchange's pieces are of this type, each handed out once.
                let piece = unsafe { std::mem::take(opaque(piece)) };
                let name = || format!("the piece from partition {from}");
                pieces.set_item(from, piece.get_named(py, name)?)?;
            }
            // SAFETY: the stage declares what is read, then one opaque dataset.
            let (arguments, result) = unsafe {
                (
                    self.0.arguments(py, args, None)?,
                    opaque(*args.add(self.0.reads.len())),
                )
            };
            let mut arguments = arguments.expect("whole partitions are always there");
            arguments.insert(0, pieces.into_any());
            *result = PyValue::new(&self.0.invoke(py, context, arguments, None, false)?)?;
            Ok(())
        })
    }
}
