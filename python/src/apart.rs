//! Objects on their way between processes: a pickle, and the memory of arrays, which is taken and given a chunk at a time.
#![allow(unsafe_code)] // Readings and writings of memory that a buffer lends.

use crate::interpreter::attach;
use crate::value::PyValue;
use brambling::program::{ChunkError, Cursor, DecodeError, Payload};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList};

/// What an encoding begins with: nothing was there; an object follows; there is none, and why follows.
pub(crate) const ABSENT: u8 = 0;
pub(crate) const OBJECT: u8 = 1;
pub(crate) const LOST: u8 = 2;

pub(crate) fn helper<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyModule>> {
    py.import(pyo3::intern!(py, "brambling._pickled"))
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    (bytes.len() as u64).encode(out);
    out.extend_from_slice(bytes);
}

/// The error that tells what of an object cannot be pickled, and the way out.
fn why_not(py: Python<'_>, object: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let told = || -> PyResult<String> {
        let module = py.import("brambling._program.unsendable")?;
        let why = module.call_method1("why_not", (object, error.value(py)))?;
        why.extract()
    };
    told().map_or(error, |why| crate::raise("ClusterError", why))
}

/// A value on its way: its pickle, then the memory of its arrays, which is copied here and nowhere else.
pub(crate) struct PickledApart {
    /// What comes before the arrays.
    head: Vec<u8>,
    arrays: Vec<PyBuffer<u8>>,
    /// The part that comes next, the head first, and how much of it was written.
    at: (usize, usize),
}

impl PickledApart {
    pub(crate) fn of(py: Python<'_>, value: &PyValue) -> PyResult<PickledApart> {
        let Some(object) = value.get(py)? else {
            return Ok(PickledApart {
                head: vec![ABSENT],
                arrays: Vec::new(),
                at: (0, 0),
            });
        };
        let parts = helper(py)?.call_method1(pyo3::intern!(py, "apart"), (&object,));
        let parts = parts.map_err(|error| why_not(py, &object, error))?;
        let (stream, lent): (Bound<'_, PyBytes>, Vec<Bound<'_, PyAny>>) = parts.extract()?;
        let arrays = lent.iter().map(PyBuffer::<u8>::get);
        let arrays = arrays.collect::<PyResult<Vec<_>>>()?;
        if arrays
            .iter()
            .any(|array| array.len_bytes() > 0 && array.as_slice_ptr().is_none())
        {
            return Err(PyBufferError::new_err("an array in several pieces"));
        }
        let stream = stream.as_bytes();
        let mut head = Vec::with_capacity(1 + 8 + stream.len() + 8);
        head.push(OBJECT);
        (stream.len() as u64).encode(&mut head);
        head.extend_from_slice(stream);
        (arrays.len() as u64).encode(&mut head);
        let at = (0, 0);
        Ok(PickledApart { head, arrays, at })
    }

    pub(crate) fn bytes(&self) -> usize {
        let arrays = self.arrays.iter().map(|array| 8 + array.len_bytes());
        self.head.len() + arrays.sum::<usize>()
    }

    /// Appends what comes next, as much as there is room for; whether that was the last.
    pub(crate) fn write(&mut self, _py: Python<'_>, mut room: usize, out: &mut Vec<u8>) -> bool {
        loop {
            let (part, given) = self.at;
            let bytes = match part {
                0 => &self.head,
                _ => {
                    let Some(array) = self.arrays.get(part - 1) else {
                        return true;
                    };
                    // SAFETY: the buffer lends this memory as long as it lives. Who could write it needs the interpreter, which is
                    // held: what compiled code writes is not an object yet.
                    array
                        .as_slice_ptr()
                        .map_or(&[][..], |memory| unsafe { memory.as_ref() })
                }
            };
            if room == 0 {
                return false;
            }
            if part > 0 && given == 0 {
                (bytes.len() as u64).encode(out);
                room = room.saturating_sub(8);
                self.at.1 = 8;
                continue;
            }
            let before = if part == 0 { 0 } else { 8 };
            let rest = &bytes[given - before..];
            let now = rest.len().min(room);
            out.extend_from_slice(&rest[..now]);
            room -= now;
            self.at = match now == rest.len() {
                true => (part + 1, 0),
                false => (part, given + now),
            };
        }
    }
}

/// Encoding cannot fail: who wants to see the value is told why there is none.
pub(crate) fn put_lost(why: &str, out: &mut Vec<u8>) {
    out.push(LOST);
    put_bytes(why.as_bytes(), out);
}

/// What has come of a value: the pickle, then arrays, each of as many bytes as were said before.
#[derive(Default)]
pub(crate) struct Coming {
    parts: Vec<Py<PyByteArray>>,
    /// How much of the last one has come, of how much; none between two.
    begun: Option<(usize, usize)>,
    /// How many parts there will be; known after the first.
    count: Option<u64>,
}

impl Coming {
    /// Takes what it can; whether it is whole.
    pub(crate) fn take(
        &mut self,
        cursor: &mut Cursor,
        input: &mut &[u8],
    ) -> Result<bool, ChunkError> {
        loop {
            let have = self.parts.len() as u64;
            let Some((filled, len)) = self.begun else {
                if have == 1 && self.count.is_none() {
                    let Some(count) = cursor.build::<u64>(input)? else {
                        return Ok(false);
                    };
                    self.count = Some(count);
                }
                if self.count.is_some_and(|count| have > count) {
                    return Ok(true);
                }
                let Some(len) = cursor.build::<u64>(input)? else {
                    return Ok(false);
                };
                let len = isize::try_from(len)
                    .map_err(|_| DecodeError::of::<PyValue>(format!("an array of {len} bytes")));
                attach(|py| self.parts.push(PyByteArray::new(py, &[]).unbind()));
                self.begun = Some((0, len? as usize));
                continue;
            };
            let (now, rest) = input.split_at(input.len().min(len - filled));
            self.fill(cursor, filled, len, now)?;
            *input = rest;
            if filled + now.len() < len {
                self.begun = Some((filled + now.len(), len));
                return Ok(false);
            }
            self.begun = None;
        }
    }

    /// Puts bytes where they belong, in memory that grows as they come unless all of them are expected.
    fn fill(
        &self,
        cursor: &Cursor,
        filled: usize,
        len: usize,
        now: &[u8],
    ) -> Result<(), DecodeError> {
        let end = filled + now.len();
        let filling = attach(|py| {
            let array = self.parts.last().expect("begun").bind(py);
            let room = array.len();
            if room < end {
                let grown = match cursor.expects((len - filled) as u64) {
                    true => len,
                    false => len.min(end.max(2 * room)),
                };
                array.resize(grown)?;
            }
            // SAFETY: nobody else knows the array yet, and the interpreter is held.
            let place = unsafe { array.as_bytes_mut() };
            place[filled..end].copy_from_slice(now);
            PyResult::Ok(())
        });
        filling.map_err(|error| DecodeError::of::<PyValue>(error.to_string()))
    }

    pub(crate) fn into_value(self) -> PyValue {
        let mut parts = self.parts.into_iter();
        let made = attach(|py| {
            let stream = parts.next();
            let arrays = PyList::new(py, parts.collect::<Vec<_>>())?;
            PyValue::new(
                &helper(py)?.call_method1(pyo3::intern!(py, "together"), (stream, arrays))?,
            )
        });
        // What its classes do when they are called is the user's affair: the bytes are what was sent.
        made.unwrap_or_else(|error| {
            PyValue::lost(format!(
                "its value cannot be made again in another process ({error}): its class does not take what it says of itself when it is \
                 pickled; give the class a __reduce__ that does, or keep or send something else"
            ))
        })
    }
}
