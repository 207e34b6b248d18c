"""
Arrow's PyCapsule interface: columns of pyarrow, polars and pandas in, tables of ours out.

A column of numbers without nulls, in one chunk, is borrowed; several chunks, booleans and texts are copied. Nulls
are refused: no number of NumPy's stands for them. Reading and writing capsules is nanoarrow's work, which the extra
`brambling[arrow]` brings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from brambling._errors import BuildError, MissingExtra
from brambling._texts import named

# Formats of Arrow's C data interface, https://arrow.apache.org/docs/format/CDataInterface.html
_NUMBERS = {
    "c": "i1", "C": "u1", "s": "i2", "S": "u2", "i": "i4", "I": "u4", "l": "i8", "L": "u8", "e": "f2", "f": "f4", "g": "f8",
}
_TEXTS = ("u", "U", "vu")


class ArrowArray(Protocol):
    """What gives its content as one array of Arrow."""

    def __arrow_c_array__(self, requested_schema: Any = None, /) -> tuple[Any, Any]: ...


class ArrowStream(Protocol):
    """What gives its content as a stream of Arrow's arrays."""

    def __arrow_c_stream__(self, requested_schema: Any = None, /) -> Any: ...


TableLike = npt.ArrayLike | ArrowArray | ArrowStream


def is_arrow(value: Any) -> bool:
    """
    Whether a value is to be read through Arrow: it offers that, and is not made of NumPy's types already, as frames of
    pandas often are.
    """
    if not (hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")):
        return False
    types = getattr(value, "dtypes", None)
    types = [getattr(value, "dtype", None)] if types is None else types
    try:
        return not all(isinstance(it, np.dtype) for it in types)
    except TypeError:  # One type, as Series of pandas have it.
        return not isinstance(types, np.dtype)


def column(value: Any, what: str) -> np.ndarray:
    """
    A column as an array of one dimension.

    Parameters
    ----------
    value : object with `__arrow_c_array__` or `__arrow_c_stream__`
        Integers, floats, booleans, or texts, which may be dictionary-encoded.
    what : str
        What messages call it.

    Returns
    -------
    numpy.ndarray of shape (rows,)
        Numbers, borrowed and read-only where they lie in one piece; texts as Python's, of dtype object.

    Raises
    ------
    BuildError
        It has nulls, is a table, or has another type.
    MissingExtra
        nanoarrow, or what the value's own package needs, is not installed.
    """
    return _joined(_chunks(value, what), what, _column)


def column_or_array(value: Any, what: str) -> np.ndarray:
    """
    As `column` for what Arrow has to read, otherwise as NumPy reads it, of any shape. NumPy also reads what gives itself as an
    array where a package that Arrow needs is missing.
    """
    if is_arrow(value):
        try:
            return column(value, what)
        except MissingExtra:
            if not hasattr(value, "__array__"):
                raise
    return np.asarray(value)


def rows(value: Any, what: str) -> np.ndarray:
    """
    A column as an array of shape (rows,), or a table as one of shape (rows, columns), of the type that its columns
    have in common. Raises as `column`; a table also where it has text.
    """
    return named_rows(value, what)[0]


def named_rows(
    value: Any, what: str, common: Callable[..., npt.DTypeLike] = np.result_type
) -> tuple[np.ndarray, list[str] | None]:
    """As `rows`, with the names of a table's columns; `common` makes the array's type of the columns' types."""
    chunks = _chunks(value, what)
    names = _names(chunks[0][0])
    if names is None:
        return _joined(chunks, what, _column), None
    return _table(chunks, names, what, common), names


def columns(value: Any, what: str) -> dict[str, np.ndarray]:
    """The columns of a table by name, each as `column` gives it. Raises as `column`."""
    chunks = _chunks(value, what)
    names = _names(chunks[0][0])
    if names is None:
        raise BuildError(f"{what} is one column, not a table; give a table whose columns have names")
    return {
        name: _joined(chunks, _whose(what, name), lambda schema, view, first, length, whose, place=place: _column(
            schema.child(place), view.child(place), view.offset + first, view.length, whose))
        for place, name in enumerate(names)
    }


def _nanoarrow() -> Any:
    try:
        import nanoarrow
    except ImportError as error:
        raise MissingExtra(f"data of Arrow needs nanoarrow ({error}): pip install 'brambling[arrow]'") from error
    return nanoarrow


def _chunks(value: Any, what: str) -> list[tuple[Any, Any]]:
    """Schema and content of each chunk; of no chunks an empty one."""
    nanoarrow = _nanoarrow()
    if hasattr(value, "reset_index"):
        # pandas would add an index that is no range as a column.
        value = value.reset_index(drop=True)
    try:
        schema, arrays = _opened(nanoarrow, value)
        _refuse_columns_of_nulls(schema, what)
        chunks = [(chunk.schema, chunk.view()) for chunk in arrays]
    except BuildError:
        raise
    except ImportError as error:  # pandas needs pyarrow for this.
        raise MissingExtra(f"{what} cannot be read: {error}") from error
    except Exception as error:  # Whatever the package that holds the data has to say.
        raise BuildError(
            f"{what} cannot be read through Arrow: {type(error).__module__.partition('.')[0]} says: {error}; convert such columns "
            "to numbers or text, or leave them out"
        ) from error
    if chunks:
        return chunks
    empty = nanoarrow.c_array([], schema)
    return [(empty.schema, empty.view())]


def _opened(nanoarrow: Any, value: Any) -> tuple[Any, Iterable[Any]]:
    """A schema and the arrays that have it. What is one array stays one: nanoarrow crashes where it makes a stream of views."""
    if hasattr(value, "__arrow_c_stream__"):
        stream = nanoarrow.c_array_stream(value)
        return stream.get_schema(), stream
    array = nanoarrow.c_array(value)
    return array.schema, [array]


def _refuse_columns_of_nulls(schema: Any, what: str) -> None:
    """Columns of Arrow's type for nothing but nulls, which not every package writes as nanoarrow reads it."""
    names = _names(schema)
    of_columns = [(what, schema)] if names is None else [(_whose(what, name), schema.child(at)) for at, name in enumerate(names)]
    for whose, column in of_columns:
        if column.format == "n":
            raise BuildError(f"{whose} has no type, only nulls; fill them with numbers or text, or leave it out")


def _joined(chunks: list[tuple[Any, Any]], what: str, read: Any) -> np.ndarray:
    before, parts = 0, []
    for schema, view in chunks:
        parts.append(read(schema, view, 0, view.length, _Whose(what, before)))
        before += view.length
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


class _Whose:
    """What messages call a part of a column, and the rows before it."""

    def __init__(self, what: str, before: int) -> None:
        self.what = what
        self.before = before


def _names(schema: Any) -> list[str] | None:
    return [child.name for child in schema.children] if schema.format == "+s" else None


def _table(chunks: list[tuple[Any, Any]], names: list[str], what: str, common: Callable[..., npt.DTypeLike]) -> np.ndarray:
    """The chunks of a table, copied once."""
    if not names:
        raise BuildError(f"{what} is a table without columns")
    held = np.empty((sum(view.length for _, view in chunks), len(names)), common(*_kinds(chunks[0][0], names, what)))
    before = 0
    for schema, view in chunks:
        _refuse_nulls(view, 0, view.length, _Whose(what, before))
        for place, name in enumerate(names):
            held[before : before + view.length, place] = _column(
                schema.child(place), view.child(place), view.offset, view.length, _Whose(_whose(what, name), before)
            )
        before += view.length
    return held


def _kinds(schema: Any, names: list[str], what: str) -> list[np.dtype]:
    """The types of a table's columns, all of which have to be numbers."""
    columns = [schema.child(place) for place in range(len(names))]
    columns = [column if column.dictionary is None else column.dictionary for column in columns]
    texts = [name for name, column in zip(names, columns, strict=True) if column.format in _TEXTS]
    if texts:
        raise BuildError(f"{what} has text in {named('column', texts)}; encode it as numbers first, or leave it out")
    for name, column in zip(names, columns, strict=True):
        if column.format not in _NUMBERS and column.format != "b":
            raise BuildError(
                f"{_whose(what, name)} has Arrow's type {_type_of(column)}, which is no number; cast it to one, or leave it out"
            )
    return [np.dtype(_NUMBERS.get(column.format, "?")) for column in columns]


def _whose(what: str, name: str) -> str:
    return f"{what}, column {name!r},"


def _column(schema: Any, view: Any, first: int, length: int, whose: _Whose) -> np.ndarray:
    """The rows from `first`, counted from where the view begins."""
    _refuse_nulls(view, first, length, whose)
    begin = view.offset + first
    if schema.dictionary is not None:
        entries = view.dictionary
        if entries.null_count:
            raise BuildError(f"{whose.what} has a null in its dictionary; fill or drop such rows, and encode it again")
        values = _column(schema.dictionary, entries, 0, entries.length, whose)
        return values[np.frombuffer(view.buffer(1), _NUMBERS[schema.format])[begin : begin + length]]
    if schema.format in _NUMBERS:
        if length == 0:
            return np.zeros(0, _NUMBERS[schema.format])
        return np.frombuffer(view.buffer(1), _NUMBERS[schema.format])[begin : begin + length]
    if schema.format == "b":
        bits = np.frombuffer(view.buffer(1), np.uint8)
        return np.unpackbits(bits, count=begin + length, bitorder="little")[begin:].astype(bool)
    if schema.format in _TEXTS:
        return np.array(list(_texts(schema.format, view, begin, length)), dtype=object)
    if schema.format == "+s":
        raise BuildError(f"{whose.what} is a table where one column is expected; give one of its columns")
    raise BuildError(
        f"{whose.what} has Arrow's type {_type_of(schema)}, which is neither numbers nor text; cast it to one of these first"
    )


def _type_of(schema: Any) -> str:
    return str(_nanoarrow().Schema(schema).type.name).lower()


def _texts(kind: str, view: Any, begin: int, length: int) -> Iterator[str]:
    if length == 0:
        return
    if kind == "vu":
        yield from _viewed_texts(view, begin, length)
        return
    offsets = np.frombuffer(view.buffer(1), np.int32 if kind == "u" else np.int64)[begin : begin + length + 1].tolist()
    held = bytes(memoryview(view.buffer(2)).cast("B")) if view.buffer(2).size_bytes else b""
    for start, end in zip(offsets, offsets[1:], strict=False):
        yield held[start:end].decode()


def _viewed_texts(view: Any, begin: int, length: int) -> Iterator[str]:
    """Of views of 16 bytes: a length, then the text itself, or its first 4 bytes with a buffer's number and a place in it."""
    views = bytes(memoryview(view.buffer(1)).cast("B"))
    # The last buffer holds the others' lengths.
    others = [bytes(memoryview(view.buffer(place)).cast("B")) for place in range(2, view.n_buffers - 1)]
    for at in range(16 * begin, 16 * (begin + length), 16):
        size = int.from_bytes(views[at : at + 4], "little")
        if size <= 12:
            yield views[at + 4 : at + 4 + size].decode()
        else:
            buffer = others[int.from_bytes(views[at + 8 : at + 12], "little")]
            start = int.from_bytes(views[at + 12 : at + 16], "little")
            yield buffer[start : start + size].decode()


def _refuse_nulls(view: Any, first: int, length: int, whose: _Whose) -> None:
    if view.null_count == 0 or view.buffer(0).size_bytes == 0:
        return
    begin = view.offset + first
    bits = np.frombuffer(view.buffer(0), np.uint8)
    valid = np.unpackbits(bits, count=begin + length, bitorder="little")[begin:]
    if not valid.all():
        row = whose.before + int(np.argmin(valid))
        raise BuildError(
            f"{whose.what} has a null at row {row} (counted from 0); fill nulls, or drop their rows, first"
        )


def record(columns: Mapping[str, np.ndarray]) -> Any:
    """One Arrow array of the rows that columns of equal length have; numbers are not copied."""
    nanoarrow = _nanoarrow()
    children = {name: _exported(nanoarrow, name, held) for name, held in columns.items()}
    return nanoarrow.c_array_from_buffers(
        nanoarrow.struct({name: child.schema for name, child in children.items()}),
        len(next(iter(columns.values()), ())),
        [None],
        children=list(children.values()),
    )


def stream(columns: Mapping[str, np.ndarray]) -> Any:
    """The same as a stream of one array."""
    return _nanoarrow().c_array_stream(record(columns))


def _exported(nanoarrow: Any, name: str, held: np.ndarray) -> Any:
    if held.dtype == bool:
        bits = np.packbits(held, bitorder="little")
        return nanoarrow.c_array_from_buffers(nanoarrow.bool_(), len(held), [None, bits])
    if held.dtype.kind in "iuf" and held.dtype.itemsize <= 8 and held.dtype.isnative:
        kind = getattr(nanoarrow, held.dtype.name)()
        return nanoarrow.c_array_from_buffers(kind, len(held), [None, held])
    texts = held.tolist()
    if all(isinstance(text, str) for text in texts):
        return nanoarrow.c_array(texts, nanoarrow.string())
    raise BuildError(f"column {name!r} holds {held.dtype}, which is neither numbers nor text")
