//! Maps whose function has machine code at an address: they run on worker threads, without the interpreter.
//!
//! The code takes one array of words: where its results go, then what it reads. It is made for the types of
//! the first values it meets, while the interpreter is held; after that a block costs one call.
#![allow(unsafe_code)] // Calls of machine code, and arguments that are erased pointers.

use crate::alone;
use crate::array::{CompiledLeaf, Layout, Leaf, Made, Views};
use crate::interpreter::attach;
use crate::kernels::{Function, Shape, blocked, opaque, run_anywhere};
use crate::value::PyValue;
use brambling::program::{Context, Kernel, Progress};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, PoisonError};

/// What the code returns when the results are there.
pub const DONE: i64 = 0;
/// A result has more elements than there is room for; its shape has been written.
pub const TOO_SMALL: i64 = 1;
/// It raised; what, the function tells that is called with the interpreter.
pub const FAILED: i64 = 2;

type Words = SmallVec<[i64; 32]>;

/// Machine code for values of some layouts.
struct Code {
    arguments: Vec<Layout>,
    call: unsafe extern "C" fn(*mut i64) -> i64,
    result: Layout,
    entry: Entry,
    /// Keeps the code alive.
    _owner: Py<PyAny>,
}

/// How code is entered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// As any function: it knows of no interpreter.
    Free,
    /// It calls the interpreter, and may leave an exception there.
    Watched,
    /// It does, and no other thread of the process may run such code meanwhile.
    Alone,
}

impl Entry {
    fn named(name: &str) -> PyResult<Entry> {
        match name {
            "free" => Ok(Entry::Free),
            "watched" => Ok(Entry::Watched),
            "alone" => {
                alone::is_needed();
                Ok(Entry::Alone)
            }
            other => Err(PyRuntimeError::new_err(format!("no entry {other:?}"))),
        }
    }
}

/// Calls compiled code per block, or once: results go to the dataset after those read.
pub struct CompiledMap {
    pub function: Function,
    pub per_block: bool,
    /// `compile(layouts) -> (address, is_tuple, [(kind, size, dimensions)], owner)`
    pub compile: Py<PyAny>,
    pub codes: Codes,
}

/// What has been compiled so far.
#[derive(Default)]
pub struct Codes(Mutex<Vec<Arc<Code>>>);

impl Kernel for CompiledMap {
    unsafe fn call(&self, context: &mut Context<'_>, args: *const *mut u8) -> Progress {
        // SAFETY: the stage declares what is read, then one dataset.
        run_anywhere(context, |context| unsafe { self.run(context, args) })
    }
}

impl CompiledMap {
    /// # Safety
    /// `args` points to as many values as are read, of the shapes declared, and one to write.
    unsafe fn run(&self, context: &Context<'_>, args: *const *mut u8) -> PyResult<()> {
        let output = self.function.reads.len();
        let mut code = None;
        if !self.per_block {
            // SAFETY: the caller's promise.
            let result = unsafe { opaque(*args.add(output)) };
            // SAFETY: as above.
            if let Some(value) = unsafe { self.step(context, args, None, None, &mut code)? } {
                *result = value;
            }
            return Ok(());
        }
        // SAFETY: as above; a map per block reads blocks.
        let (shape, result) =
            unsafe { (self.function.first_blocks(args), blocked(*args.add(output))) };
        let (first, count) = shape.expect("a map per block reads blocks");
        result.first = first;
        result.values.clear();
        for place in 0..count {
            let block = Some(first + place as u64);
            // SAFETY: as above.
            let value = unsafe { self.step(context, args, Some(place), block, &mut code)? };
            result.values.push(value.unwrap_or_default());
        }
        Ok(())
    }

    /// One call; nothing when a block has no value.
    ///
    /// # Safety
    /// As [`CompiledMap::run`].
    unsafe fn step(
        &self,
        context: &Context<'_>,
        args: *const *mut u8,
        place: Option<usize>,
        block: Option<u64>,
        code: &mut Option<Arc<Code>>,
    ) -> PyResult<Option<PyValue>> {
        // SAFETY: the caller's promise.
        let Some(views) = (unsafe { self.views(args, place)? }) else {
            return Ok(None);
        };
        let code = match code {
            Some(code) if code.is_for(&views) => code,
            _ => code.insert(self.code_for(&views)?),
        };
        match code.enter(&views)? {
            Some(made) => Ok(Some(PyValue::made(made))),
            // It raised: once more where the exception and its traceback can be seen.
            None => attach(|py| {
                // SAFETY: as above.
                let arguments = unsafe { self.function.arguments(py, args, place)? };
                let Some(arguments) = arguments else {
                    return Ok(None);
                };
                let value = self.function.invoke(py, context, arguments, block, false)?;
                PyValue::new(&value).map(Some)
            }),
        }
    }

    /// # Safety
    /// As [`CompiledMap::run`].
    unsafe fn views<'a>(
        &self,
        args: *const *mut u8,
        place: Option<usize>,
    ) -> PyResult<Option<SmallVec<[&'a Views; 4]>>> {
        let mut views = SmallVec::new();
        for (number, shape) in self.function.reads.iter().enumerate() {
            // SAFETY: the caller's promise.
            let value: &'a PyValue = unsafe {
                match (shape, place) {
                    (Shape::Opaque, _) => opaque(*args.add(number)),
                    (Shape::Blocked, None) => &blocked(*args.add(number)).whole,
                    (Shape::Blocked, Some(place)) => {
                        match blocked(*args.add(number)).values.get(place) {
                            None => return Err(self.function.unset(Some(number))),
                            Some(value) if !value.is_set() => return Ok(None),
                            Some(value) => value,
                        }
                    }
                }
            };
            match value.views() {
                Some(view) => views.push(view),
                None if *shape == Shape::Opaque && !value.is_set() => {
                    return Err(self.function.unset(Some(number)));
                }
                None => return Err(self.unreadable(number, value)),
            }
        }
        Ok(Some(views))
    }

    fn unreadable(&self, number: usize, value: &PyValue) -> PyErr {
        let name = &self.function.names[number];
        attach(|py| match value.get(py) {
            Ok(Some(object)) => py
                .import("brambling._compiled")
                .and_then(|module| module.call_method1("unreadable", (name, object)))
                .map_or_else(|error| error, PyErr::from_value),
            _ => PyTypeError::new_err(format!(
                "`{name}` lies in several pieces, which compiled code cannot read at once; use per=\"block\""
            )),
        })
    }

    fn code_for(&self, views: &[&Views]) -> PyResult<Arc<Code>> {
        let find = |codes: &[Arc<Code>]| codes.iter().find(|code| code.is_for(views)).cloned();
        let lock = || self.codes.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = find(&lock()) {
            return Ok(code);
        }
        // The lock is not held meanwhile: the interpreter may be with a thread that waits for it.
        let arguments: Vec<Layout> = views.iter().map(|views| views.layout.clone()).collect();
        let made = Arc::new(attach(|py| Code::make(py, &self.compile, arguments))?);
        let mut codes = lock();
        Ok(find(&codes).unwrap_or_else(|| {
            codes.push(Arc::clone(&made));
            made
        }))
    }
}

impl Code {
    fn make(py: Python<'_>, compile: &Py<PyAny>, arguments: Vec<Layout>) -> PyResult<Code> {
        let told = |layout: &Layout| {
            let leaf = |leaf: &Leaf| (leaf.kind as char, leaf.size, leaf.dimensions);
            (
                layout.tuple,
                layout.leaves.iter().map(leaf).collect::<Vec<_>>(),
            )
        };
        let layouts: Vec<_> = arguments.iter().map(told).collect();
        type Told = (usize, bool, Vec<(char, u8, Option<u8>)>, String, Py<PyAny>);
        let (address, tuple, leaves, entry, owner): Told =
            compile.bind(py).call1((layouts,))?.extract()?;
        if address == 0 {
            return Err(PyRuntimeError::new_err("compiled code has no address"));
        }
        let leaf = |(kind, size, dimensions): (char, u8, Option<u8>)| Leaf {
            kind: kind as u8,
            size,
            dimensions,
        };
        Ok(Code {
            arguments,
            // SAFETY: the compiler made a function of this signature; `_owner` keeps it.
            call: unsafe {
                std::mem::transmute::<usize, unsafe extern "C" fn(*mut i64) -> i64>(address)
            },
            result: Layout {
                tuple,
                leaves: leaves.into_iter().map(leaf).collect(),
            },
            entry: Entry::named(&entry)?,
            _owner: owner,
        })
    }

    fn is_for(&self, views: &[&Views]) -> bool {
        self.arguments
            .iter()
            .zip(views)
            .all(|(layout, views)| *layout == views.layout)
    }

    /// What the code made of it; nothing when it raised. An error is what it has left in the interpreter, of whose exceptions machine code
    /// does not hear: numba's own `try` goes on as if there were none.
    fn enter(&self, views: &[&Views]) -> PyResult<Option<Made>> {
        if self.entry == Entry::Free {
            return Ok(self.run(views));
        }
        let _turn = (self.entry == Entry::Alone).then(alone::turn);
        // A thread of its own state in the interpreter keeps an exception there until somebody takes it: of one that has none, the state
        // ends with each of the code's calls.
        attach(|py| {
            let made = py.detach(|| self.run(views));
            PyErr::take(py).map_or(Ok(made), Err)
        })
    }

    /// What the code made of it; nothing when it raised.
    fn run(&self, views: &[&Views]) -> Option<Made> {
        let mut rooms: SmallVec<[usize; 4]> = SmallVec::from_elem(ROOM, self.result.leaves.len());
        loop {
            let mut buffers: SmallVec<[Box<[u64]>; 4]> = SmallVec::new();
            let mut words = Words::new();
            for (leaf, &room) in self.result.leaves.iter().zip(&rooms) {
                let bytes = room * usize::from(leaf.size);
                let buffer = vec![0u64; bytes.div_ceil(8).max(1)].into_boxed_slice();
                words.extend([buffer.as_ptr() as i64, room as i64]);
                words.extend(std::iter::repeat_n(0, leaf.dimensions.unwrap_or(0).into()));
                buffers.push(buffer);
            }
            for views in views {
                words.extend_from_slice(&views.words);
            }
            // SAFETY: the words are those that the code was made for; what is read is alive and not written
            // by anybody, and the buffers have as much room as they say.
            let status = unsafe { (self.call)(words.as_mut_ptr()) };
            match status {
                DONE => return Some(self.made(buffers, &words)),
                TOO_SMALL => {
                    for (room, shape) in rooms.iter_mut().zip(self.shapes(&words)) {
                        *room = shape.iter().product::<i64>().max(1) as usize;
                    }
                }
                _ => return None,
            }
        }
    }

    fn shapes(&self, words: &[i64]) -> SmallVec<[Vec<i64>; 4]> {
        let mut at = 0;
        let leaves = self.result.leaves.iter();
        leaves
            .map(|leaf| {
                let dimensions = usize::from(leaf.dimensions.unwrap_or(0));
                let shape = words[at + 2..][..dimensions].to_vec();
                at += 2 + dimensions;
                shape
            })
            .collect()
    }

    fn made(&self, buffers: SmallVec<[Box<[u64]>; 4]>, words: &[i64]) -> Made {
        let parts = buffers.into_iter().zip(self.shapes(words));
        let parts = parts.zip(&self.result.leaves);
        Made {
            layout: self.result.clone(),
            parts: parts
                .map(|((buffer, shape), &leaf)| {
                    Arc::new(CompiledLeaf {
                        leaf,
                        shape,
                        buffer,
                    })
                })
                .collect(),
        }
    }
}

/// Elements of a result that there is room for at the first try: a sum over a block seldom has more.
const ROOM: usize = 64;
