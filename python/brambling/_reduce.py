"""The operations of reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from brambling._errors import BuildError
from brambling._kernel import name_of, readable


def _zero_sign(left: Any, right: Any, least: Any) -> Any:
    # Of 0.0 and -0.0 NumPy takes either, by the CPU's instructions.
    both = (left == 0) & (right == 0)
    signed = -((-left) + (-right)) if least else left + right
    return np.where(both, signed, np.minimum(left, right) if least else np.maximum(left, right))


def _canonical(value: Any) -> Any:
    """NaNs without their payloads, which depend on the instruction that made them."""
    if np.issubdtype(value.dtype, np.floating):
        unordered = np.isnan(value)
        if unordered.any():
            value = np.where(unordered, value.dtype.type(np.nan), value)
    return value


def _add(left: Any, right: Any) -> Any:
    return _canonical(np.add(left, right))


def _least(left: Any, right: Any) -> Any:
    if np.issubdtype(left.dtype, np.floating):
        return _canonical(_zero_sign(left, right, True))
    return np.minimum(left, right)


def _greatest(left: Any, right: Any) -> Any:
    if np.issubdtype(left.dtype, np.floating):
        return _canonical(_zero_sign(left, right, False))
    return np.maximum(left, right)


_ARRAYS = {"sum": _add, "min": _least, "max": _greatest}


def _plain(op: str, left: Any, right: Any) -> Any:
    """Of Python's own numbers, whose integers do not overflow."""
    if op == "sum":
        return left + right
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right) if op == "min" else max(left, right)
    return float(_ARRAYS[op](np.float64(left), np.float64(right)))


def _combine(op: str, left: Any, right: Any) -> Any:
    if isinstance(left, tuple) and isinstance(right, tuple):
        if len(left) != len(right):
            raise ValueError(f"{op} of tuples of {len(left)} and {len(right)} items; give equal ones")
        return tuple(_combine(op, a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        if np.shape(left) != np.shape(right):
            raise ValueError(
                f"{op} of arrays of shapes {np.shape(left)} and {np.shape(right)}; "
                "let the kernel return the same shape for every block"
            )
        joined = _ARRAYS[op](np.asarray(left), np.asarray(right))
        return np.asarray(joined)
    if isinstance(left, np.generic) or isinstance(right, np.generic):
        left, right = np.asarray(left), np.asarray(right)
        return _ARRAYS[op](left, right)[()]
    if isinstance(left, int | float | complex) and isinstance(right, int | float | complex):
        return _plain(op, left, right)
    raise TypeError(
        f"{op} of {type(left).__name__} and {type(right).__name__}; "
        "give numbers, arrays or tuples of them, or a function instead of the name"
    )


class _Named:
    def __init__(self, op: str) -> None:
        self._op = op

    def __call__(self, left: Any, right: Any) -> Any:
        return _combine(self._op, left, right)


class _Own:
    def __init__(self, f: Callable[[Any, Any], Any]) -> None:
        self._f = f

    def __call__(self, left: Any, right: Any) -> Any:
        combined = self._f(readable(left), readable(right))
        if combined is None and not (left is None and right is None):
            raise TypeError(
                f"`{name_of(self._f)}` returned None, but p.reduce goes on with what it returns; return the combined value"
            )
        return combined


def combiner(op: Any) -> Callable[[Any, Any], Any]:
    """The function of an operation given by name or as a function."""
    if isinstance(op, str):
        if op not in _ARRAYS:
            raise BuildError(
                f"there is no operation {op!r}; give 'sum', 'min', 'max' or an associative function of two values"
            )
        return _Named(op)
    if not callable(op):
        raise BuildError(
            f"a reduction's operation is 'sum', 'min', 'max' or an associative function of two values, not {op!r}"
        )
    return _Own(op)
