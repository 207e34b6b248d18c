//! Arrays and numbers as compiled code sees them: addresses and lengths, read without the interpreter.
#![allow(unsafe_code)] // One address.

use numpy::npyffi::objects::_PyArray_GET_ITEM_DATA;
use numpy::{PyArrayDescr, PyArrayDescrMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyTuple, PyType};
use std::sync::Arc;

/// The type of one array, or of one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// NumPy's letter: `f`, `i`, `u`, `b` or `c`.
    pub kind: u8,
    /// Bytes of an element.
    pub size: u8,
    /// Dimensions; none for a number.
    pub dimensions: Option<u8>,
}

/// The type of a value: one leaf, or a tuple of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    pub tuple: bool,
    pub leaves: Vec<Leaf>,
}

/// What compiled code is told of a value: per leaf an address, then the lengths of its dimensions.
#[derive(Debug)]
pub struct Views {
    pub layout: Layout,
    pub words: Vec<i64>,
    /// Whether a number among them is NumPy's own, whose sums are NumPy's too.
    pub has_scalars: bool,
    /// Where the numbers lie that have no memory of their own.
    _numbers: Box<[Number]>,
}

impl Views {
    /// Of an array in C order, a number, or a tuple of them; nothing for whatever else. They hold as long as
    /// the object lives and nobody resizes it.
    pub fn of(object: &Bound<'_, PyAny>) -> Option<Views> {
        let one = [object.clone()];
        let (tuple, items) = match object.cast::<PyTuple>() {
            Ok(items) => (true, items.iter().collect::<Vec<_>>()),
            Err(_) => (false, Vec::from(one)),
        };
        // Numbers are put at addresses that no longer change.
        let mut numbers = vec![Number::default(); items.len()].into_boxed_slice();
        let (mut leaves, mut words, mut has_scalars) = (Vec::new(), Vec::new(), false);
        for (item, number) in items.iter().zip(&mut numbers) {
            let leaf = match Self::array(item, &mut words)? {
                Some(leaf) => leaf,
                None => {
                    let (leaf, is_scalar) = Self::number(item, number)?;
                    has_scalars |= is_scalar;
                    words.push(std::ptr::from_ref(number) as i64);
                    leaf
                }
            };
            leaves.push(leaf);
        }
        Some(Views {
            layout: Layout { tuple, leaves },
            words,
            has_scalars,
            _numbers: numbers,
        })
    }

    /// Of an array: nothing inside when it is none, and nothing at all when code cannot read it.
    fn array(item: &Bound<'_, PyAny>, words: &mut Vec<i64>) -> Option<Option<Leaf>> {
        // Classes derived from it may mean something else by their elements.
        if !item.is_exact_instance_of::<PyUntypedArray>() {
            return Some(None);
        }
        let array = item.cast::<PyUntypedArray>().ok()?;
        let dtype = array.dtype();
        let (kind, size) = (dtype.kind(), u8::try_from(dtype.itemsize()).ok()?);
        let is_native = dtype.is_native_byteorder() != Some(false);
        let address = address_of(array);
        let is_aligned = (address as usize).is_multiple_of(dtype.alignment());
        if !is_known(kind, size) || !is_native || !is_aligned || !array.is_c_contiguous() {
            return None;
        }
        words.push(address);
        words.extend(array.shape().iter().map(|&length| length as i64));
        let dimensions = Some(u8::try_from(array.ndim()).ok()?);
        Some(Some(Leaf {
            kind,
            size,
            dimensions,
        }))
    }

    /// Of a number, and whether it is NumPy's own.
    fn number(item: &Bound<'_, PyAny>, number: &mut Number) -> Option<(Leaf, bool)> {
        let (kind, size) = if item.is_exact_instance_of::<PyFloat>() {
            number[0] = item.extract::<f64>().ok()?.to_bits();
            (b'f', 8)
        } else if item.is_exact_instance_of::<PyBool>() {
            number[0] = u64::from(item.extract::<bool>().ok()?);
            (b'b', 1)
        } else if item.is_exact_instance_of::<PyInt>() {
            number[0] = item.extract::<i64>().ok()? as u64;
            (b'i', 8)
        } else if let Ok(complex) = item.cast_exact::<PyComplex>() {
            *number = [complex.real().to_bits(), complex.imag().to_bits()];
            (b'c', 16)
        } else {
            return Self::scalar(item, number).map(|leaf| (leaf, true));
        };
        let leaf = Leaf {
            kind,
            size,
            dimensions: None,
        };
        Some((leaf, false))
    }

    /// Of one of NumPy's numbers, such as a NumPy kernel returns.
    fn scalar(item: &Bound<'_, PyAny>, number: &mut Number) -> Option<Leaf> {
        static GENERIC: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let py = item.py();
        if !item
            .is_instance(GENERIC.import(py, "numpy", "generic").ok()?)
            .ok()?
        {
            return None;
        }
        let dtype = item.getattr(pyo3::intern!(py, "dtype")).ok()?;
        let dtype = dtype.cast::<PyArrayDescr>().ok()?;
        let (kind, size) = (dtype.kind(), u8::try_from(dtype.itemsize()).ok()?);
        if !is_known(kind, size) {
            return None;
        }
        let bytes = item.call_method0(pyo3::intern!(py, "tobytes")).ok()?;
        let bytes = bytes.cast::<PyBytes>().ok()?.as_bytes();
        let mut memory = [0; size_of::<Number>()];
        memory.get_mut(..bytes.len())?.copy_from_slice(bytes);
        for (word, bytes) in number.iter_mut().zip(memory.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        Some(Leaf {
            kind,
            size,
            dimensions: None,
        })
    }
}

/// Memory of a number: the largest is two floats.
type Number = [u64; 2];

/// Whether compiled code has the type: half precision and long doubles are none of its.
fn is_known(kind: u8, size: u8) -> bool {
    matches!(
        (kind, size),
        (b'f', 4 | 8) | (b'c', 8 | 16) | (b'i' | b'u' | b'b', 1..=8)
    )
}

/// Where an array's elements begin.
fn address_of(array: &Bound<'_, PyUntypedArray>) -> i64 {
    // SAFETY: the array is alive, and the interpreter is held.
    unsafe { (*_PyArray_GET_ITEM_DATA(array.as_array_ptr())).data as i64 }
}

/// What compiled code has made of one leaf.
#[derive(Debug)]
pub struct CompiledLeaf {
    pub leaf: Leaf,
    pub shape: Vec<i64>,
    /// Whole words, so that every element is aligned.
    pub buffer: Box<[u64]>,
}

/// What compiled code has made: arrays and numbers that no interpreter has seen yet.
#[derive(Debug)]
pub struct Made {
    pub layout: Layout,
    pub parts: Vec<Arc<CompiledLeaf>>,
}

impl Made {
    pub fn views(&self) -> Views {
        let mut words = Vec::new();
        for part in &self.parts {
            words.push(part.buffer.as_ptr() as i64);
            words.extend(&part.shape);
        }
        Views {
            layout: self.layout.clone(),
            words,
            has_scalars: false,
            _numbers: Box::default(),
        }
    }

    pub fn heap_bytes(&self) -> usize {
        self.parts
            .iter()
            .map(|part| size_of_val(&*part.buffer))
            .sum()
    }

    /// As NumPy arrays over the same memory, and numbers.
    pub fn object(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let parts = self.parts.iter().map(|part| CompiledLeaf::object(part, py));
        let mut parts = parts.collect::<PyResult<Vec<_>>>()?;
        if self.layout.tuple {
            return Ok(PyTuple::new(py, parts)?.into_any().unbind());
        }
        Ok(parts.remove(0))
    }
}

impl CompiledLeaf {
    fn object(part: &Arc<CompiledLeaf>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let buffer = Buffer(Arc::clone(part)).into_pyobject(py)?;
        let array = py
            .import(pyo3::intern!(py, "numpy"))?
            .call_method1(pyo3::intern!(py, "asarray"), (buffer,))?;
        match part.leaf.dimensions {
            Some(_) => Ok(array.unbind()),
            None => Ok(array.call_method0(pyo3::intern!(py, "item"))?.unbind()),
        }
    }
}

/// What keeps the memory of an array alive that compiled code has made.
#[pyclass(module = "brambling._native", frozen)]
pub struct Buffer(Arc<CompiledLeaf>);

#[pymethods]
impl Buffer {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let CompiledLeaf {
            leaf,
            shape,
            buffer,
        } = &*self.0;
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", PyTuple::new(py, shape)?)?;
        let order = if leaf.size == 1 { '|' } else { '<' };
        let typestr = format!("{order}{}{}", leaf.kind as char, leaf.size);
        interface.set_item("typestr", typestr)?;
        interface.set_item("data", (buffer.as_ptr() as usize, false))?;
        Ok(interface)
    }
}
