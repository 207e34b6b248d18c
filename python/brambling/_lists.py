"""
Lists of ids, labels and cells of a column, looked at before NumPy makes one type of them.

NumPy finds a type in which every value of a list can be written: beside a text a number becomes text, and so does a NaN; integers beyond
2**63 become floats; texts lose the NULs at their end. What was merged then cannot be told apart again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import compress, count
from typing import Any

import numpy as np

from brambling import _arrow
from brambling._errors import BuildError

# Beyond what so many characters take, an array of texts as wide as the widest is more than eight times what they are.
_WIDE = 1 << 20


def values_of(given: Any) -> list[Any] | None:
    """The values of a list or another sequence of single values of Python's; nothing where NumPy has no type to find."""
    if isinstance(given, str | bytes | bytearray | memoryview | range | Mapping) or hasattr(given, "__array__"):
        return None
    if hasattr(given, "__array_interface__") or not (hasattr(given, "__len__") and hasattr(given, "__getitem__")):
        return None
    values = unpacked(list(given))
    if values and all(isinstance(value, list | tuple | np.ndarray) and not is_missing(value) for value in values):
        return None
    return values


def unpacked(values: list[Any]) -> list[Any]:
    """The same, with what lies in arrays without a dimension."""
    arrays = [kind for kind in set(map(type, values)) if hasattr(kind, "__array__") and not issubclass(kind, np.generic)]
    return [_unpacked(value) if type(value) in arrays else value for value in values] if arrays else values


def _unpacked(value: Any) -> Any:
    return value if is_missing(value) or np.ndim(value) else np.asarray(value)[()]


def column(given: Any, what: str) -> tuple[np.ndarray, list[Any] | None]:
    """
    What is given as an array in which each value is what it was, and the values where they are objects of Python's.

    Raises BuildError for what NumPy cannot read, and as `_arrow.column`.
    """
    values = values_of(given)
    if values is not None:
        return array_of(values), values
    try:
        held = _arrow.column_or_array(given, what)
    except BuildError:
        raise
    except (TypeError, ValueError) as error:
        raise BuildError(f"{what} cannot be read as a column ({error}); give one value for each row") from error
    if held.ndim != 1 or held.dtype.kind not in "OT":
        return held, None
    given_values = held.tolist()
    values = unpacked(given_values)
    if kinds_of(values) == {"integer", "number"}:
        values = _plain(values)
    return held.astype(object) if values is given_values else objects(values), values


def is_missing(value: Any) -> bool:
    """None, NaN of any type, NaT, and what pandas and masked arrays have for them."""
    if value is None or value is np.ma.masked or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, np.ndarray):
        return False
    try:
        return bool(value != value)
    except Exception:  # Whatever a stranger's comparison does.
        return False


def kind_of(kind: type) -> str:
    """What a value of this type is called: boolean, integer, number, string, bytes, or by the type's name."""
    if issubclass(kind, bool | np.bool_):
        return "boolean"
    # NumPy derives times from integers.
    if issubclass(kind, int | np.integer) and not issubclass(kind, np.timedelta64):
        return "integer"
    if issubclass(kind, float | np.floating):
        return "number"
    if issubclass(kind, bytes):
        return "bytes"
    return "string" if issubclass(kind, str) else kind.__name__


def kinds_of(values: Iterable[Any]) -> set[str]:
    """The kinds that occur."""
    return {kind_of(kind) for kind in set(map(type, values))}


def first_row(values: list[Any], holds: Callable[[Any], bool]) -> int | None:
    """The first row, counted from 0, of whose value something holds."""
    return next(compress(count(), map(holds, values)), None)


def array_of(values: list[Any]) -> np.ndarray:
    """An array in which each value is what it was; of objects where NumPy has no such type."""
    kinds = kinds_of(values)
    if kinds == {"string"} or kinds == {"bytes"}:
        return _texts(values)
    if kinds == {"integer"}:
        return _integers(values)
    if kinds == {"integer", "number"}:
        return _numbers(values)
    if len(kinds) == 1 and all(isinstance(value, bool | float | complex | np.generic) for value in values):
        return np.asarray(values)
    return objects(values) if values else np.zeros(0)


def objects(values: list[Any]) -> np.ndarray:
    """An array of these objects."""
    held = np.empty(len(values), dtype=object)
    # Of a list, NumPy would take lists in it apart.
    for row, value in enumerate(values):
        held[row] = value
    return held


def _texts(values: list[Any]) -> np.ndarray:
    nul: Any = b"\0" if isinstance(values[0], bytes) else "\0"
    joined = nul[:0].join(values)
    if nul in joined and any(value.endswith(nul) for value in values):
        return objects(values)
    if max(map(len, values)) * len(values) > max(_WIDE, 8 * len(joined)):
        return objects(values)
    return np.asarray(values)


def _integers(values: list[Any]) -> np.ndarray:
    held = np.asarray(values)
    if held.dtype.kind in "iu":
        return held
    whole = list(map(int, values))
    least, most = min(whole), max(whole)
    for kind in (np.int64, np.uint64):
        if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max:
            return np.array(whole, kind)
    return objects(whole)


def _numbers(values: list[Any]) -> np.ndarray:
    held = np.asarray(values)
    return held if held.dtype.kind == "f" and all(map(_is_kept, values, held.tolist())) else objects(_plain(values))


def _plain(values: list[Any]) -> list[Any]:
    """Numbers of Python's, which compare as they are; NumPy compares integers with floats as floats."""
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def _is_kept(value: Any, held: float) -> bool:
    return isinstance(value, float | np.floating) or int(value) == held
