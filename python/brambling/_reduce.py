"""The operations of reductions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from brambling._errors import BuildError, refuse_unreadable
from brambling._kernel import name_of, readable, refuse_generator
from brambling._texts import short


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


# Letters of NumPy's types that it adds, and that it compares: also times, but neither texts nor records.
_KINDS = {"sum": "biufcmO", "min": "biufcmMO", "max": "biufcmMO"}


def _leaf(op: str, value: Any) -> Any:
    """
    A value before it meets another: its type is the result's, so that one value has the type that many have.

    Sums have the type that `numpy.sum` gives them: small integers and truth values become int64, or uint64 of unsigned ones.
    """
    if isinstance(value, tuple):
        return tuple(_leaf(op, item) for item in value)
    if isinstance(value, np.ndarray | np.generic):
        refuse_unreadable(value, f"what a {op} is made of")
        dtype = value.dtype
        if dtype.kind not in _KINDS[op]:
            raise TypeError(f"{op} of values of type {dtype}; {_OTHERWISE}")
        wide = dtype.newbyteorder("=")
        if op == "sum" and dtype.kind in "biu":
            wide = np.dtype(np.uint64 if dtype.kind == "u" else np.int64)
        value = np.asarray(value) if isinstance(value, np.ndarray) else value
        # Equal types may differ in their byte order.
        return value if dtype == wide and dtype.isnative else value.astype(wide)
    if isinstance(value, int | float | complex):
        return int(value) if op == "sum" and isinstance(value, bool) else value
    raise TypeError(f"{op} of {type(value).__name__}; {_OTHERWISE}")


_OTHERWISE = "give numbers, arrays of them or tuples of such, or an associative function of two values instead of the name"


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
    if isinstance(left, complex) or isinstance(right, complex):
        return complex(_ARRAYS[op](np.complex128(left), np.complex128(right)))
    return float(_ARRAYS[op](np.float64(left), np.float64(right)))


def _combine(op: str, left: Any, right: Any) -> Any:
    if isinstance(left, tuple) and isinstance(right, tuple):
        if len(left) != len(right):
            raise ValueError(
                f"{op} of tuples of {len(left)} and {len(right)} items; let the kernel return equally many for every block"
            )
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
    raise TypeError(f"{op} of {type(left).__name__} and {type(right).__name__}; let the kernel return the same for every block")


class _Named:
    def __init__(self, op: str) -> None:
        self._op = op

    def __call__(self, left: Any, right: Any) -> Any:
        return _combine(self._op, left, right)

    def leaf(self, value: Any) -> Any:
        return _leaf(self._op, value)


class _Own:
    def __init__(self, f: Callable[[Any, Any], Any]) -> None:
        self._f = f

    def __call__(self, left: Any, right: Any) -> Any:
        try:
            combined = self._f(readable(left), readable(right))
        except TypeError as error:
            # Raised by the call itself, not in the function.
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                _refuse_other_arguments(self._f, error)
            raise
        if combined is None and not (left is None and right is None):
            raise TypeError(
                f"`{name_of(self._f)}` returned None, but p.reduce goes on with what it returns; return the combined value"
            )
        return combined


def _refuse_other_arguments(f: Callable[..., Any], error: TypeError) -> None:
    try:
        inspect.signature(f).bind(None, None)
    except ValueError:
        return
    except TypeError as reason:
        raise TypeError(f"`{name_of(f)}` is called with two values to combine: {reason}; give a function of two values") from error


# What has a name, or combines two values, instead of what combines the elements of one array.
_OF_ONE_ARRAY = [
    ((sum, np.sum), "'sum'"),
    ((np.min, np.amin), "'min'"),
    ((np.max, np.amax), "'max'"),
    ((np.prod,), "np.multiply"),
    ((np.any, any), "np.logical_or"),
    ((np.all, all), "np.logical_and"),
]


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
            f"p.reduce: its operation is {short(op)}; give 'sum', 'min', 'max' or an associative function of two values"
        )
    for functions, instead in _OF_ONE_ARRAY:
        if any(op is function for function in functions):
            raise BuildError(f"`{name_of(op)}` combines the items of one array, and p.reduce combines two values; give {instead}")
    refuse_generator(op, name_of(op))
    return _Own(op)
