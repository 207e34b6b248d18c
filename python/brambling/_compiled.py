"""Which functions have machine code that worker threads can call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

# (kind, bytes of an element, dimensions or None for a number).
Leaf = tuple[str, int, int | None]
# Whether there is a tuple of them.
Layout = tuple[bool, list[Leaf]]
# How code is entered: as any function; by a thread that then looks whether the interpreter has an exception, which the code may have
# called; or by one thread of the process at a time, too.
Entry = Literal["free", "watched", "alone"]
# Address of the code, layout of the result, how it is entered, and what keeps the code alive.
Made = tuple[int, bool, list[Leaf], Entry, Any]
Compile = Callable[[list[Layout]], Made]


def compiler_of(f: Any, stage: str, reads: list[str]) -> Compile | None:
    """What makes machine code of a function for its arguments; nothing for a function of the interpreter."""
    from brambling import _numba

    own: Compile | None = getattr(f, "_compile", None)
    if own is not None:
        return own
    if _numba.is_compiled(f):
        return _numba.Compiler(f, stage, reads)
    return None


def unreadable(name: str, value: Any) -> TypeError:
    """The error for what machine code cannot read: what it is, and what makes something of it that it can."""
    if isinstance(value, tuple):
        for place, item in enumerate(value):
            why = _why_not(item)
            if why is not None:
                return TypeError(f"`{name}` holds a tuple, whose item {place} is {why}")
    return TypeError(f"`{name}` holds {_why_not(value) or f'{type(value).__name__}, {_OTHERWISE}'}")


_OTHERWISE = "which compiled code cannot read; give it arrays of numbers, numbers, or tuples of them"


def _why_not(value: Any) -> str | None:
    """What a value is, and the way out; nothing for what can be read."""
    if isinstance(value, np.ndarray | np.generic):
        dtype = value.dtype
        way_out = _way_out(dtype)
        if way_out is not None:
            return f"{'an array' if isinstance(value, np.ndarray) else 'a number'} of type {dtype}, which compiled code cannot read; {way_out}"
        if not isinstance(value, np.ndarray):
            return None
        if type(value) is not np.ndarray:
            return f"a {type(value).__name__}, whose elements may mean something else to it; give numpy.asarray(...) of it"
        if not value.flags.c_contiguous:
            return "an array that does not lie row after row in one piece, which compiled code cannot read; give numpy.ascontiguousarray(...) of it"
        return None if value.flags.aligned else "an array at an odd address, which compiled code cannot read; give its copy()"
    if type(value) is int and not -(1 << 63) <= value < 1 << 63:
        return f"the integer {value}, which needs more than 64 bits, and compiled code has no such numbers; give float(...) of it"
    return None if type(value) in (int, float, complex, bool) else f"{type(value).__name__}, {_OTHERWISE}"


def _way_out(dtype: np.dtype[Any]) -> str | None:
    """What makes a type of it that machine code has."""
    if dtype.kind in "fcbiu" and not dtype.isnative:
        return f'give x.astype("{dtype.newbyteorder("=").str}"), in this machine\'s byte order'
    if dtype.kind == "f" and dtype.itemsize not in (4, 8):
        return f'give x.astype("{"float32" if dtype.itemsize == 2 else "float64"}")'
    if dtype.kind == "c" and dtype.itemsize not in (8, 16):
        return 'give x.astype("complex128")'
    if dtype.kind in "mM":
        return 'give x.astype("int64"), the count of its unit'
    if dtype.kind in "SUT":
        return "give numbers, such as numpy.unique(x, return_inverse=True) makes of texts"
    if dtype.kind == "O":
        return 'give x.astype("float64"), or another type of numbers'
    if dtype.kind == "V":
        return "give each of its columns, x[name], as an array of its own"
    return None
