"""Columns of other packages, through Arrow's C data interface (https://arrow.apache.org/docs/format/CDataInterface.html)."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from brambling._errors import BuildError


class _Schema(ctypes.Structure):
    pass


class _Array(ctypes.Structure):
    pass


class _Stream(ctypes.Structure):
    pass


_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.POINTER(_Schema)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Schema))),
    ("private_data", ctypes.c_void_p),
]
_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.POINTER(_Array)),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))),
    ("private_data", ctypes.c_void_p),
]
_Stream._fields_ = [
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.POINTER(_Schema))),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Stream), ctypes.POINTER(_Array))),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.POINTER(_Stream))),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(_Stream))),
    ("private_data", ctypes.c_void_p),
]

_NUMBERS = {
    "c": np.int8,
    "C": np.uint8,
    "s": np.int16,
    "S": np.uint16,
    "i": np.int32,
    "I": np.uint32,
    "l": np.int64,
    "L": np.uint64,
    "f": np.float32,
    "g": np.float64,
}


def column_of(given: Any, name: str) -> np.ndarray | None:
    """A column of numbers or text, copied; None when `given` does not speak Arrow."""
    if isinstance(given, np.ndarray):
        return None
    if hasattr(given, "__arrow_c_stream__"):
        return _of_stream(given.__arrow_c_stream__(), name)
    if hasattr(given, "__arrow_c_array__"):
        schema, array = given.__arrow_c_array__()
        values = _Values(_pointer(schema, b"arrow_schema", _Schema).contents, name)
        return values.joined([values.read(_pointer(array, b"arrow_array", _Array).contents, 0)])
    return None


def _pointer(capsule: Any, name: bytes, kind: type) -> Any:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    # The capsule releases what it holds when it goes.
    return ctypes.cast(get(capsule, name), ctypes.POINTER(kind))


def _of_stream(capsule: Any, name: str) -> np.ndarray:
    stream = _pointer(capsule, b"arrow_array_stream", _Stream)

    def check(status: int) -> None:
        if status:
            text = stream.contents.get_last_error(stream) or b"no reason is given"
            raise BuildError(f"{name} cannot be read through Arrow: {text.decode(errors='replace')}")

    schema = _Schema()
    check(stream.contents.get_schema(stream, schema))
    try:
        values = _Values(schema, name)
        parts, rows = [], 0
        while True:
            array = _Array()
            check(stream.contents.get_next(stream, array))
            if not array.release:
                return values.joined(parts)
            try:
                parts.append(values.read(array, rows))
                rows += len(parts[-1])
            finally:
                array.release(array)
    finally:
        schema.release(schema)


class _Values:
    """Reads arrays of one type."""

    def __init__(self, schema: _Schema, name: str) -> None:
        self.name = name
        self.format = schema.format.decode()
        self.dictionary = _Values(schema.dictionary.contents, name) if schema.dictionary else None
        known = self.format in _NUMBERS or self.format in ("u", "U", "vu")
        if not known:
            raise BuildError(
                f"{name} is of the Arrow type {self.format!r} (its format string); give a column of integers or strings, "
                "or for weights of numbers"
            )

    def joined(self, parts: list[np.ndarray]) -> np.ndarray:
        return np.concatenate(parts) if parts else self._nothing()

    def _nothing(self) -> np.ndarray:
        return np.empty(0, _NUMBERS.get(self.format, object))

    def read(self, array: _Array, first_row: int) -> np.ndarray:
        """A copy of the values; a null is refused."""
        self._refuse_nulls(array, first_row)
        if not array.length:
            return self._nothing()
        if self.dictionary is not None:
            words = self.dictionary.read(array.dictionary.contents, 0)
            return words[self._numbers(array)]
        if self.format in _NUMBERS:
            return self._numbers(array).copy()
        return self._views(array) if self.format == "vu" else self._text(array)

    def _refuse_nulls(self, array: _Array, first_row: int) -> None:
        if array.null_count == 0 or not array.buffers[0]:
            return
        bits = _memory(array.buffers[0], np.uint8, (array.offset + array.length + 7) // 8)
        valid = np.unpackbits(bits, bitorder="little")[array.offset : array.offset + array.length]
        if not valid.all():
            row = first_row + int(np.argmin(valid))
            raise BuildError(f"{self.name} has a null at row {row} (counted from 0); drop such edges first")

    def _numbers(self, array: _Array) -> np.ndarray:
        values = _memory(array.buffers[1], _NUMBERS[self.format], array.offset + array.length)
        return values[array.offset :]

    def _text(self, array: _Array) -> np.ndarray:
        kind = np.int32 if self.format == "u" else np.int64
        ends = _memory(array.buffers[1], kind, array.offset + array.length + 1)[array.offset :].tolist()
        data = ctypes.string_at(array.buffers[2], ends[-1]) if ends[-1] else b""
        texts = [data[start:end].decode() for start, end in zip(ends[:-1], ends[1:], strict=True)]
        return np.array(texts, dtype=object)

    def _views(self, array: _Array) -> np.ndarray:
        raw = ctypes.string_at(array.buffers[1] + 16 * array.offset, 16 * array.length)
        views = np.frombuffer(raw, np.int32).reshape(-1, 4)
        texts = []
        for row, (length, _, buffer, offset) in enumerate(views.tolist()):
            # Short texts lie in the view itself.
            text = raw[16 * row + 4 :][:length] if length <= 12 else ctypes.string_at(array.buffers[2 + buffer] + offset, length)
            texts.append(text.decode())
        return np.array(texts, dtype=object)


def _memory(address: int, kind: Any, length: int) -> np.ndarray:
    """Values at an address, without a copy."""
    size = np.dtype(kind).itemsize
    return np.frombuffer((ctypes.c_char * (length * size)).from_address(address), kind)
