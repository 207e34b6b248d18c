"""Objects on their way to other processes: a pickle, and beside it the memory of their arrays, which is not copied here."""

from __future__ import annotations

import io
import pickle
import sys
from collections import ChainMap
from collections.abc import Sequence
from itertools import accumulate, pairwise
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np

from brambling._by_value import modules_by_value
from brambling._reduced import reduced

# Whose pickles refer to nothing of the user's: the pickler of the standard library is several times as fast.
_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})


def _refuse_file(file: io.TextIOWrapper) -> Any:
    # cloudpickle would send what it reads, and each process would read it from the beginning.
    if file is sys.stdout:
        return getattr, (sys, "stdout")
    if file is sys.stderr:
        return getattr, (sys, "stderr")
    raise pickle.PicklingError("cannot pickle an open file")


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # It has no types.
    dispatch_table = ChainMap({io.TextIOWrapper: _refuse_file}, cloudpickle.Pickler.dispatch_table)

    def __init__(self, *arguments: Any, modules: set[str], **how: Any) -> None:
        super().__init__(*arguments, **how)
        self._modules = modules

    def reducer_override(self, obj: Any) -> Any:
        # Functions, classes and modules: what other processes have to import, or what is defined where.
        name = obj.__name__ if isinstance(obj, ModuleType) else getattr(obj, "__module__", None)
        if isinstance(name, str):
            self._modules.add(name)
        how = reduced(obj)
        return super().reducer_override(obj) if how is NotImplemented else how


def apart(value: Any, modules: set[str] | None = None) -> tuple[bytes, list[memoryview]]:
    """
    A value's pickle, and what its arrays hold, in the order in which `together` wants it.

    Functions and classes of the script, and of modules that are not installed, go along. The modules that they belong to are
    added to `modules`.
    """
    modules = set() if modules is None else modules
    buffers: list[memoryview] = []

    def lend(buffer: pickle.PickleBuffer) -> bool:
        try:
            buffers.append(buffer.raw())
        except BufferError:  # In several pieces: it goes into the pickle.
            return True
        return False

    stream = io.BytesIO()
    if type(value) in _PLAIN or (type(value) is np.ndarray and not value.dtype.hasobject):
        pickle.Pickler(stream, protocol=5, buffer_callback=lend).dump(value)
    else:
        with modules_by_value():
            _Pickler(stream, protocol=5, buffer_callback=lend, modules=modules).dump(value)
    return stream.getvalue(), buffers


def whole(value: Any) -> bytes:
    """The same with all that arrays hold in it."""
    stream = io.BytesIO()
    with modules_by_value():
        _Pickler(stream, protocol=5, modules=set()).dump(value)
    return stream.getvalue()


def together(stream: bytes | memoryview, buffers: Sequence[Any]) -> Any:
    """The value that `apart` took apart. Its arrays lie in the buffers."""
    return pickle.loads(stream, buffers=buffers)


def rows_of(whole: Any, blocks: list[Any]) -> list[int] | None:
    """How many rows each block has, where the blocks are the parts of a whole in their order."""
    wholes = whole if type(whole) is tuple else (whole,)
    if not wholes or not all(type(array) is np.ndarray and array.ndim for array in wholes):
        return None
    rows, at = [], 0
    for block in blocks:
        if (type(block) is tuple) != (type(whole) is tuple):
            return None
        parts = block if type(block) is tuple else (block,)
        if len(parts) != len(wholes) or not all(type(part) is np.ndarray and part.ndim for part in parts):
            return None
        end = at + len(parts[0])
        if any(_place(part) != _place(array[at:end]) for part, array in zip(parts, wholes, strict=True)):
            return None
        rows.append(end - at)
        at = end
    return rows if all(len(array) == at for array in wholes) else None


def cut(whole: Any, rows: list[int]) -> list[Any]:
    """The parts of a whole that have so many rows, as views."""
    arrays = whole if type(whole) is tuple else (whole,)
    if any(len(array) != sum(rows) for array in arrays):
        raise ValueError(f"blocks of {sum(rows)} rows, of a partition of {len(arrays[0])}")
    spans = pairwise(accumulate(rows, initial=0))
    parts = [tuple(array[start:end] for array in arrays) for start, end in spans]
    return parts if type(whole) is tuple else [part[0] for part in parts]


def _place(array: np.ndarray) -> tuple[Any, ...]:
    """What two arrays have in common that are views of the same elements."""
    return array.__array_interface__["data"], array.dtype, array.shape, array.strides
