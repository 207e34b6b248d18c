"""What a program leaves."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from brambling import _native
from brambling._errors import BuildError, ClusterError, NotKept
from brambling._program.handles import Dataset
from brambling._report import Report
from brambling._table import Table
from brambling._texts import short

if TYPE_CHECKING:
    from brambling._program.program import Program

# Datasets that a message names.
_NAMES_MAX = 20


class Result(Mapping[str, Any]):
    """
    The kept datasets of a finished program, by dataset or by name.

    A dataset of one partition gives its value, another one the list of its partitions' values; blocks give
    the list of their values, whatever the partitions.

    A result whose values are columns of numbers is a table to whatever speaks Arrow, such as `pyarrow.table(result)`;
    see `table`.

    Attributes
    ----------
    tally : dict
        What the job did: `tasks`, `wall_s`, `busy_s` (over all threads), `threads`, `peak_bytes`, `sent_bytes` (to workers).
    """

    def __init__(self, outcome: _native.Outcome, program: Program, kept: dict[str, Dataset]) -> None:
        self._outcome = outcome
        self._program = program
        self._kept = kept
        self._values: dict[str, Any] = {}
        self.tally: dict[str, float] = outcome.tally()
        self._report: Report | None = None

    @property
    def report(self) -> Report:
        """How near the run came to what the machine can do, and where the rest of its time went."""
        if self._report is None:
            self._report = Report(self._outcome.ledger())
        return self._report

    def __getitem__(self, dataset: Dataset | str) -> Any:
        name = dataset.name if isinstance(dataset, Dataset) else dataset
        known = self._kept.get(name) if isinstance(name, Hashable) else None
        if known is None or (isinstance(dataset, Dataset) and dataset is not known):
            raise NotKept(self._why_not(dataset))
        if name not in self._values:
            try:
                values = [_owned(value) for value in self._outcome.values(known._id)]
            except ClusterError as error:
                # Of a worker that could not send it.
                raise ClusterError(f"`{name}`: {error}") from None
            one = known._blocks is None and known.partitions == 1
            self._values[name] = values[0] if one else values
        return self._values[name]

    if not TYPE_CHECKING:
        # Type checkers say of themselves that there is no such attribute.
        def __getattr__(self, name: str) -> Any:
            what = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_"):
                what = f"a result has no attribute {name!r}; ask for datasets by their names, as in result[{name!r}] (kept: {self._names()})"
            raise AttributeError(what, name=name, obj=self)

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return self.table().__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table().__arrow_c_stream__(requested_schema)

    def table(self) -> Table:
        """
        The kept datasets as columns, blocks and partitions put together in their order: for pyarrow, polars and others.

        Raises
        ------
        BuildError
            A value is no column of numbers, or the columns have different lengths.

        Examples
        --------
        >>> import numpy as np, brambling as br
        >>> p = br.Program("squares")
        >>> squares = p.map(np.square, p.load(np.arange(5_000.0)))
        >>> p.keep(squares)
        >>> table = p.run().table()
        >>> len(table), table.columns, table.square[:4]
        (5000, ('square',), array([0., 1., 4., 9.]))
        """
        return Table({name: _column(name, self[name]) for name in self})

    def _names(self) -> str:
        names = [f"`{name}`" for name in islice(self._kept, _NAMES_MAX)]
        more = len(self._kept) - len(names)
        return ", ".join(names) + (f" and {more} more" if more else "") or "nothing"

    def _why_not(self, dataset: Any) -> str:
        kept = self._names()
        if isinstance(dataset, Dataset) and dataset._program is not self._program:
            return (
                f"`{dataset.name}` is of program {dataset._program.name!r}; ask the result of that program's run "
                f"(kept here: {kept})"
            )
        if not isinstance(dataset, Dataset | Hashable) or isinstance(dataset, slice):
            return f"{short(dataset)} is neither a dataset nor the name of one; ask for one at a time (kept: {kept})"
        if not isinstance(dataset, Dataset) and dataset not in self._program._datasets:
            return f"there is no dataset {dataset!r} in program {self._program.name!r} (kept: {kept})"
        name = dataset.name if isinstance(dataset, Dataset) else dataset
        return (
            f"`{name}` was not kept: it was freed after its last use; call p.keep(dataset) before p.run() (kept: {kept})"
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __repr__(self) -> str:
        return f"<result of program {self._program.name!r}: {', '.join(self._kept) or 'nothing kept'}>"


def _owned(value: Any) -> Any:
    """A result that the caller may write."""
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        return value.copy()
    return value


def _column(name: str, value: Any) -> np.ndarray:
    """A kept dataset as a column."""
    try:
        column = np.concatenate([np.atleast_1d(part) for part in value]) if isinstance(value, list) else np.atleast_1d(value)
    except ValueError as error:
        raise BuildError(f"`{name}` is no column ({error}); take it from the result by its name") from error
    if column.ndim != 1 or column.dtype == object:
        raise BuildError(
            f"`{name}` has shape {column.shape} and type {column.dtype}, and is no column of numbers; take it from the "
            "result by its name"
        )
    return column
