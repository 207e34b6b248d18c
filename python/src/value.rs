//! What a partition of a Python program holds: an object, or an object per block.
#![allow(unsafe_code)] // One reading of a reference count.

use crate::apart::{ABSENT, Coming, LOST, OBJECT, PickledApart, helper, put_lost};
use crate::array::{Made, Views};
use crate::interpreter::attach;
use crate::sums;
use brambling::program::{Chunk, ChunkError, Cursor, DecodeError, Payload, SpillError};
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyByteArray, PyMemoryView};
use std::borrow::Cow;
use std::ops::Deref;
use std::sync::Arc;

struct Held {
    /// Set from the start, or when somebody first asks for what compiled code has made.
    object: PyOnceLock<Py<PyAny>>,
    made: Option<Made>,
    /// Why there is neither: the value could not leave its process, or could not be made again in this one.
    lost: Option<String>,
    /// None for what compiled code cannot read.
    views: Option<Views>,
    heap_bytes: usize,
}

impl Held {
    fn object<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let object = self
            .object
            .get_or_try_init(py, || match (&self.made, &self.lost) {
                (Some(made), _) => made.object(py),
                (None, Some(why)) => Err(crate::raise("ClusterError", why.clone())),
                (None, None) => unreachable!("an object, what compiled code made, or why not"),
            })?;
        Ok(object.bind(py).clone())
    }
}

/// A Python object, shared between datasets. Cloned and dropped on any thread: the count is Rust's, and
/// pyo3 puts off the last release until somebody holds the interpreter.
#[derive(Clone, Default)]
pub struct PyValue(Option<Arc<Held>>);

impl PyValue {
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<PyValue> {
        let held = PyOnceLock::new();
        // It is empty.
        let _ = held.set(object.py(), object.clone().unbind());
        Ok(PyValue(Some(Arc::new(Held {
            object: held,
            made: None,
            lost: None,
            views: Views::of(object),
            heap_bytes: heap_bytes(object)?,
        }))))
    }

    /// What compiled code has made, on any thread.
    pub fn made(made: Made) -> PyValue {
        PyValue(Some(Arc::new(Held {
            object: PyOnceLock::new(),
            views: Some(made.views()),
            heap_bytes: made.heap_bytes(),
            made: Some(made),
            lost: None,
        })))
    }

    /// Stands for a value that is lost on its way: whoever wants to see it is told why.
    pub(crate) fn lost(why: String) -> PyValue {
        PyValue(Some(Arc::new(Held {
            object: PyOnceLock::new(),
            made: None,
            views: None,
            heap_bytes: why.capacity(),
            lost: Some(why),
        })))
    }

    /// Itself for its way, or why it cannot leave.
    fn apart(&self) -> Result<PickledApart, String> {
        match self.why_lost() {
            Some(why) => Err(why.to_owned()),
            None => {
                attach(|py| PickledApart::of(py, self).map_err(|error| error.value(py).to_string()))
            }
        }
    }

    /// Why it could not be made again of its encoding.
    fn check_kept(&self) -> Result<(), String> {
        match self.views() {
            // Arrays can.
            Some(_) => Ok(()),
            None if !self.is_set() => Ok(()),
            None => self.apart().map(drop),
        }
    }

    fn why_lost(&self) -> Option<&str> {
        self.0.as_ref()?.lost.as_deref()
    }

    /// Adds another value in place, where that needs no interpreter; false when it does.
    pub fn add(&mut self, right: &PyValue) -> bool {
        let (Some(left), Some(right)) = (self.views(), right.views()) else {
            return false;
        };
        if !sums::can_add(left, right) {
            return false;
        }
        let own = self.0.as_mut().and_then(Arc::get_mut);
        if let Some(made) = own.and_then(|held| held.made.as_mut())
            && sums::add(made, right)
        {
            return true;
        }
        let Some(left) = self.views() else {
            return false;
        };
        let mut made = sums::copied(left);
        let added = sums::add(&mut made, right);
        *self = PyValue::made(made);
        added
    }

    /// What compiled code may read; none when it cannot, or nothing is there.
    pub fn views(&self) -> Option<&Views> {
        self.0.as_ref()?.views.as_ref()
    }

    pub fn get<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.as_ref().map(|held| held.object(py)).transpose()
    }

    /// The same, of which an error says what it was.
    pub fn get_named<'py>(
        &self,
        py: Python<'py>,
        name: impl FnOnce() -> String,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.why_lost() {
            None => self.get(py),
            Some(why) => Err(crate::raise("ClusterError", format!("{}: {why}", name()))),
        }
    }

    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// Takes the object for writing, and tells whether nobody else can see it.
    pub fn take<'py>(&mut self, py: Python<'py>) -> PyResult<Option<(Bound<'py, PyAny>, bool)>> {
        let Some(held) = self.0.take() else {
            return Ok(None);
        };
        let is_alone = Arc::strong_count(&held) == 1;
        let object = held.object(py)?;
        // What compiled code reads without the interpreter must not be written by others.
        drop(held);
        // SAFETY: the object is alive, and the interpreter is held.
        let unseen = is_alone && unsafe { pyo3::ffi::Py_REFCNT(object.as_ptr()) } == 1;
        Ok(Some((object, unseen)))
    }
}

/// Bytes that an object owns, as far as it says: of arrays their elements when they own them, of
/// everything else what `sys.getsizeof` knows. Elements of a collection are not visited.
fn heap_bytes(object: &Bound<'_, PyAny>) -> PyResult<usize> {
    let py = object.py();
    if let Ok(bytes) = object.getattr(pyo3::intern!(py, "nbytes")) {
        let borrowed = match object.getattr(pyo3::intern!(py, "base")) {
            Ok(base) => !base.is_none() && !has_arrived(&base)?,
            Err(_) => false,
        };
        return Ok(if borrowed {
            0
        } else {
            bytes.extract().unwrap_or(0)
        });
    }
    let size = py
        .import(pyo3::intern!(py, "sys"))?
        .call_method1(pyo3::intern!(py, "getsizeof"), (object, 0))?;
    size.extract()
}

/// Whether an array lies in memory that [`Coming`] has made: it came from another process, and nobody lent it.
fn has_arrived(base: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = base.py();
    let mut lender = base.clone();
    // Views of views.
    while lender.cast::<PyUntypedArray>().is_ok() {
        lender = lender.getattr(pyo3::intern!(py, "base"))?;
    }
    if !lender.is_instance_of::<PyMemoryView>() {
        return Ok(false);
    }
    let lender = lender.getattr(pyo3::intern!(py, "obj"))?;
    Ok(lender.is_instance_of::<PyByteArray>())
}

impl Payload for PyValue {
    const INTERPRETED: bool = true;
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("Python object")
    }
    fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |held| held.heap_bytes)
    }
    fn encode(&self, out: &mut Vec<u8>) {
        match self.apart() {
            Ok(mut apart) => {
                out.reserve(apart.bytes());
                attach(|py| apart.write(py, usize::MAX, out));
            }
            Err(why) => put_lost(&why, out),
        }
    }
    fn encode_kept(&self, out: &mut Vec<u8>) -> Result<(), String> {
        self.check_kept()?;
        self.encode(out);
        Ok(())
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let mut value = PyValue::default();
        brambling::program::decode_front(&mut value, input)?;
        Ok(value)
    }
    fn encode_some<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        let apart = cursor.take_kept::<Option<PickledApart>>();
        let mut apart = match apart.map_or_else(|| self.apart(), Ok) {
            Ok(apart) => apart,
            Err(why) => {
                put_lost(&why, chunk.buffer());
                return Ok(true);
            }
        };
        let room = chunk.room();
        let is_whole = attach(|py| apart.write(py, room, chunk.buffer()));
        if !is_whole {
            cursor.keep(Some(apart));
        }
        Ok(is_whole)
    }
    /// The steps: the form, then what it says.
    fn decode_some(&mut self, cursor: &mut Cursor, input: &mut &[u8]) -> Result<bool, ChunkError> {
        if *cursor.step() == 0 {
            let Some((&form, rest)) = input.split_first() else {
                return Ok(false);
            };
            *input = rest;
            match form {
                ABSENT => {
                    *self = PyValue(None);
                    return Ok(true);
                }
                OBJECT | LOST => *cursor.step() = u64::from(form),
                other => return Err(DecodeError::of::<PyValue>(format!("form {other}")).into()),
            }
        }
        if *cursor.step() == u64::from(LOST) {
            let Some(why) = cursor.build(input)? else {
                return Ok(false);
            };
            *self = PyValue::lost(why);
            return Ok(true);
        }
        let mut coming = cursor.take_kept::<Coming>();
        let is_whole = cursor.inside(|cursor| coming.take(cursor, input))?;
        match is_whole {
            true => *self = coming.into_value(),
            false => cursor.keep(coming),
        }
        Ok(is_whole)
    }
}

/// The blocks of one partition. A block may have no value.
#[derive(Clone, Default)]
pub struct PyBlocks {
    pub first: u64,
    pub values: Values,
    /// The whole partition, where it lies in one piece.
    pub whole: PyValue,
}

impl PyBlocks {
    /// What `per="partition"` hands over: the partition in one piece, or the list of its blocks' values.
    pub fn whole<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self.whole.get(py)? {
            Some(whole) => Ok(whole),
            None => self.list(py),
        }
    }

    pub fn list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let values = self
            .values
            .iter()
            .filter_map(|value| value.get(py).transpose());
        Ok(pyo3::types::PyList::new(py, values.collect::<PyResult<Vec<_>>>()?)?.into_any())
    }

    /// How many rows each block has, where the blocks are parts of the whole: then only the whole travels.
    fn rows_of_whole(&self) -> Option<Vec<u64>> {
        if !self.whole.is_set() || !self.values.iter().all(PyValue::is_set) {
            return None;
        }
        attach(|py| {
            let parts = (self.whole.get(py)?, self.list(py)?);
            let rows = helper(py)?.call_method1(pyo3::intern!(py, "rows_of"), parts)?;
            rows.extract::<Option<Vec<u64>>>()
        })
        .unwrap_or(None)
    }
}

/// The parts of a whole that have so many rows.
fn cut(whole: &PyValue, rows: Vec<u64>) -> Result<Vec<PyValue>, DecodeError> {
    if whole.why_lost().is_some() {
        return Ok(vec![whole.clone(); rows.len()]);
    }
    let parts = attach(|py| {
        let parts = (whole.get(py)?, rows);
        let parts = helper(py)?.call_method1(pyo3::intern!(py, "cut"), parts)?;
        let parts: Vec<Bound<'_, PyAny>> = parts.extract()?;
        parts.iter().map(PyValue::new).collect::<PyResult<Vec<_>>>()
    });
    parts.map_err(|error| DecodeError::of::<PyBlocks>(error.to_string()))
}

impl Payload for PyBlocks {
    const INTERPRETED: bool = true;
    fn type_name() -> Cow<'static, str> {
        Cow::Borrowed("blocks of Python objects")
    }
    fn heap_bytes(&self) -> usize {
        self.values.heap_bytes
    }
    fn encode(&self, out: &mut Vec<u8>) {
        let rows = self.rows_of_whole();
        self.first.encode(out);
        self.whole.encode(out);
        rows.encode(out);
        if rows.is_none() {
            self.values.all.encode(out);
        }
    }
    fn encode_kept(&self, out: &mut Vec<u8>) -> Result<(), String> {
        self.whole.check_kept()?;
        self.values.iter().try_for_each(PyValue::check_kept)?;
        self.encode(out);
        Ok(())
    }
    fn decode(input: &mut &[u8]) -> Result<Self, DecodeError> {
        let mut blocks = PyBlocks::default();
        brambling::program::decode_front(&mut blocks, input)?;
        Ok(blocks)
    }
    /// The steps: the first block, the whole, the rows of its parts, and the values of what has no whole.
    fn encode_some<'a>(
        &'a self,
        cursor: &mut Cursor,
        chunk: &mut Chunk<'a>,
    ) -> Result<bool, SpillError> {
        if *cursor.step() == 0 {
            self.first.encode(chunk.buffer());
            cursor.keep(self.rows_of_whole());
            *cursor.step() = 1;
        }
        if *cursor.step() == 1 {
            if !cursor.inside(|cursor| self.whole.encode_some(cursor, chunk))? {
                return Ok(false);
            }
            let rows = cursor.take_kept::<Option<Vec<u64>>>();
            rows.encode(chunk.buffer());
            if rows.is_some() {
                return Ok(true);
            }
            *cursor.step() = 2;
        }
        cursor.inside(|cursor| cursor.encode_rows(&self.values.all, chunk))
    }
    /// The steps: what precedes the values, and the values of what has no whole.
    fn decode_some(&mut self, cursor: &mut Cursor, input: &mut &[u8]) -> Result<bool, ChunkError> {
        if *cursor.step() == 0 {
            type Before = (u64, PyValue, Option<Vec<u64>>);
            let Some((first, whole, rows)) = cursor.build::<Before>(input)? else {
                return Ok(false);
            };
            (self.first, self.whole) = (first, whole);
            if let Some(rows) = rows {
                self.values = Values::from(cut(&self.whole, rows)?);
                return self.checked();
            }
            *cursor.step() = 1;
        }
        let Some(values) = cursor.build::<Vec<PyValue>>(input)? else {
            return Ok(false);
        };
        self.values = Values::from(values);
        self.checked()
    }
}

impl PyBlocks {
    /// Whoever walks the blocks counts from the first to the one after the last.
    fn checked(&self) -> Result<bool, ChunkError> {
        match self.first.checked_add(self.values.len() as u64) {
            Some(_) => Ok(true),
            None => Err(DecodeError::of::<Self>(format!("a first block {}", self.first)).into()),
        }
    }
}

/// The values of blocks, and what they own: that is asked for after each task.
#[derive(Clone, Default)]
pub struct Values {
    all: Vec<PyValue>,
    heap_bytes: usize,
}

impl From<Vec<PyValue>> for Values {
    fn from(all: Vec<PyValue>) -> Values {
        let heap_bytes = all.heap_bytes();
        Values { all, heap_bytes }
    }
}

impl Deref for Values {
    type Target = [PyValue];
    fn deref(&self) -> &[PyValue] {
        &self.all
    }
}

impl Values {
    pub fn clear(&mut self) {
        self.all.clear();
        self.heap_bytes = self.all.heap_bytes();
    }

    pub fn push(&mut self, value: PyValue) {
        let before = self.all.capacity();
        self.heap_bytes += value.heap_bytes();
        self.all.push(value);
        self.heap_bytes += (self.all.capacity() - before) * size_of::<PyValue>();
    }

    /// Changes a value, as far as that gets.
    pub fn change<R>(&mut self, place: usize, change: impl FnOnce(&mut PyValue) -> R) -> R {
        let value = &mut self.all[place];
        self.heap_bytes -= value.heap_bytes();
        let result = change(value);
        self.heap_bytes += value.heap_bytes();
        result
    }
}
