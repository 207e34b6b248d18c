"""Columns of equal length, by name: what graph algorithms give, and what a result is to those who speak Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from brambling import _arrow, _lists
from brambling._errors import BuildError, BuildTypeError
from brambling._texts import count

# A longer table is shown by so many rows at either end.
_ENDS = 5


class Table:
    """
    Columns of equal length, by name.

    `table["rank"]` is a NumPy array, and so is `table.rank`. `len` counts rows, and iteration gives them as tuples; `in` asks for a
    column. `pyarrow.table(t)`, `polars.DataFrame(t)` and whatever else reads Arrow's PyCapsule interface take a table as it is,
    and `pandas.DataFrame(dict(t))` makes a frame of it; numbers are not copied.

    Parameters
    ----------
    columns : mapping of str to array_like of shape (rows,)
        Numbers, booleans or texts.

    Examples
    --------
    >>> import numpy as np, brambling as br
    >>> t = br.Table({"vertex": ["ATL", "JFK"], "rank": [0.25, 0.75]})
    >>> t
    vertex  rank
    'ATL'   0.25
    'JFK'   0.75
    2 rows
    >>> t["rank"], t.rank.sum()
    (array([0.25, 0.75]), np.float64(1.0))
    >>> len(t), t.columns, "rank" in t
    (2, ('vertex', 'rank'), True)
    >>> for vertex, rank in t:
    ...     print(vertex, rank)
    ATL 0.25
    JFK 0.75
    """

    __module__ = "brambling"

    def __init__(self, columns: Mapping[str, Any]) -> None:
        if not hasattr(columns, "keys"):
            raise BuildTypeError(f"a table is made of columns by name, not of a {type(columns).__name__}; give a dict of arrays")
        self._columns = {str(name): _column(name, columns[name]) for name in columns.keys()}
        lengths = {len(held) for held in self._columns.values()}
        if len(lengths) > 1:
            told = ", ".join(f"{name} has {len(held)}" for name, held in self._columns.items())
            raise BuildError(f"columns of a table have equally many rows, but {told}; take them from the result by their names, or cut them to one length")

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self._columns)

    def keys(self) -> tuple[str, ...]:
        """The names of the columns: with it, `dict(table)` works."""
        return self.columns

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._columns:
            raise KeyError(self._no_column(name))
        return self._columns[name]

    def __getattr__(self, name: str) -> np.ndarray:
        # Copies are made without __init__, and ask before there is anything.
        columns = self.__dict__.get("_columns", {})
        if name in columns:
            held: np.ndarray = columns[name]
            return held
        raise AttributeError(self._no_column(name) if columns else name)

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), ()))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """The rows, as tuples."""
        return zip(*(held.tolist() for held in self._columns.values()), strict=True)

    def largest(self, by: str, rows: int = 10) -> Table:
        """
        The rows with the largest numbers in the column `by`, the largest first; of equal ones the first, and NaN last.

        Examples
        --------
        >>> import brambling as br
        >>> br.Table({"vertex": ["ATL", "JFK", "LAX"], "rank": [0.5, 0.2, 0.3]}).largest("rank", 2).vertex.tolist()
        ['ATL', 'LAX']
        """
        held = self[by]
        if held.dtype.kind not in "fiub":
            raise BuildError(f"column {by!r} holds {held.dtype}, and only numbers have largest ones; give a column of numbers")
        # Unlike a minus, ~ turns every integer around: the least ones and those without a sign, too.
        if rows < 0:
            raise BuildError(f"rows = {rows}; give how many rows are wanted")
        order = np.argsort(-held if held.dtype.kind == "f" else ~held, kind="stable")[:rows]
        return Table({name: column[order] for name, column in self._columns.items()})

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        capsules: tuple[Any, Any] = _arrow.record(self._columns).__arrow_c_array__(requested_schema)
        return capsules

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return _arrow.stream(self._columns).__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        few = len(self) <= 2 * _ENDS + 1
        at = list(range(len(self))) if few else [*range(_ENDS), *range(len(self) - _ENDS, len(self))]
        texts = [[_text(held[row]) for row in at] for held in self._columns.values()]
        widths = [max([len(name), *map(len, cells)]) for name, cells in zip(self._columns, texts, strict=True)]

        def line(cells: Any) -> str:
            return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()

        lines = [line(self._columns), *map(line, zip(*texts, strict=True))] if self._columns else []
        if not few:
            lines.insert(1 + _ENDS, "…")
        return "\n".join([*lines, count(len(self), "row")])

    def _no_column(self, name: str) -> str:
        return f"there is no column {name!r}; there are {', '.join(map(repr, self._columns)) or 'none'}"


def _text(value: Any) -> str:
    value = value.item() if isinstance(value, np.generic) else value
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def _column(name: str, given: Any) -> np.ndarray:
    values = _lists.values_of(given)
    try:
        held = np.asarray(given) if values is None else _lists.array_of(values)
    except ValueError as error:
        raise BuildError(f"column {name!r} has values of different lengths; a table's columns have one dimension") from error
    if held.ndim != 1:
        raise BuildError(f"column {name!r} has {count(held.ndim, 'dimension')}; a table's columns have one")
    return np.ascontiguousarray(held)
