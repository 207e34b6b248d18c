"""Statements that bring data in and keep it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from brambling import _arrow, _native
from brambling._errors import BuildError, BuildTypeError, refuse_unreadable
from brambling._program.handles import Dataset
from brambling._program.statements import Statements
from brambling._texts import count, short


class Data(Statements):
    """Loads, datasets, and what is kept."""

    def load(
        self,
        *arrays: npt.ArrayLike | _arrow.ArrowArray | _arrow.ArrowStream,
        partitions: int | None = None,
        name: str | None = None,
    ) -> Dataset:
        """
        Make one blocked dataset of arrays of equally many rows.

        A kernel gets a tuple of read-only views of a block's rows, or the view itself when there is one
        array. C-contiguous arrays are borrowed, not copied: leave them alone until the run has ended.

        Parameters
        ----------
        *arrays : array_like
            Arrays of one or more dimensions, with equal lengths; or columns and tables of pyarrow, polars and other
            packages that speak Arrow (`pip install brambling[arrow]`), without nulls. A column of numbers in one chunk is
            borrowed, a table becomes one array of two dimensions.
        partitions : int, optional
            How many partitions; by default a function of the data's size. Never changes a result.
        name : str, optional
            The dataset's name.

        Examples
        --------
        >>> import numpy as np, brambling as br
        >>> p = br.Program("loading")
        >>> p.load(np.zeros((10_000, 3)), np.zeros(10_000))
        <dataset loaded: 3 blocks in 3 partitions, of program 'loading'>
        """
        if not arrays:
            raise BuildError("p.load needs at least one array; give it, as in p.load(X) or p.load(X, y)")
        if name is not None:
            self._new_name(name)
        tables = [_rows(place, array) for place, array in enumerate(arrays, 1)]
        for place, array in enumerate(tables):
            if len(array) != len(tables[0]):
                raise BuildError(
                    f"p.load: argument 1 has {count(len(tables[0]), 'row')} and argument {place + 1} has {len(array)}; "
                    "arrays loaded together have equally many"
                )
        rows, size = len(tables[0]), _native.block_rows()
        blocks = -(-rows // size)
        name = self._fresh(name or "loaded")
        if partitions is None:
            partitions = _native.partitions_for(blocks, sum(array.nbytes for array in tables))
        partitions = self._partitions(name, partitions)
        self._statement()
        return self._made(self._builder.load(name, tables, partitions), name, blocks, None if rows else name)

    def dataset(self, name: str, value: Any = None, partitions: int = 1) -> Dataset:
        """
        Make a dataset whose partitions start with copies of a value; it is kept when the program ends.

        Examples
        --------
        >>> import brambling as br
        >>> p = br.Program("counting")
        >>> count = p.dataset("count", value=0)
        >>> with p.loop(10):
        ...     p.update(count, lambda count: count + 1)
        >>> p.run()["count"]
        10
        """
        self._new_name(name)
        partitions = self._partitions(name, partitions)
        if isinstance(value, Dataset):
            raise BuildTypeError(
                f"the value of `{name}` is the dataset `{value.name}`, whose values exist only while the program runs; use "
                f"p.map(f, {value.name}), which makes a dataset of another"
            )
        if isinstance(value, np.ndarray):
            value = value.copy()
            value.flags.writeable = False
        self._statement()
        made = self._made(self._builder.dataset(name, value, partitions), name, None)
        made._may_be_none = value is None
        return made

    def keep(self, dataset: Dataset, *more: Dataset) -> None:
        """Keep datasets beyond their last use, so that the result of `run` has them."""
        for kept in [self._own(one, "p.keep") for one in (dataset, *more)]:
            self._builder.keep(kept._id)


def _rows(place: int, given: Any) -> np.ndarray:
    refuse_unreadable(given, f"p.load: argument {place}")
    _refuse_no_array(place, given)
    if _arrow.is_arrow(given):
        return _in_rows(_arrow.rows(given, f"p.load: argument {place}"))
    if isinstance(given, tuple) and _are_arrays(given):
        _refuse_several(place, given)
    try:
        array = np.asarray(given)
    except (TypeError, ValueError) as error:
        if isinstance(error, BuildError):
            raise
        if isinstance(given, list) and _are_arrays(given):
            _refuse_several(place, given, error)
        raise BuildError(
            f"p.load: argument {place} is no array of rows ({error}); give rows of equal length"
        ) from error
    if array.ndim == 0:
        raise BuildTypeError(
            f"p.load: argument {place} is a single value, {short(given)}, not an array of rows; "
            "make it a dataset with p.dataset(name, value=...)"
        )
    return _in_rows(array)


def _in_rows(array: np.ndarray) -> np.ndarray:
    array = np.ascontiguousarray(array)
    # Machine code reads whole numbers.
    return array if array.flags.aligned else array.copy()


def _refuse_no_array(place: int, given: Any) -> None:
    """Refuses what NumPy would take for a single value."""
    what = f"p.load: argument {place} is a {type(given).__name__}"
    if isinstance(given, str | bytes | os.PathLike):
        raise BuildTypeError(
            f"p.load: argument {place} is the text {short(given)}, not an array of rows; read a file first, as with numpy.loadtxt, or make it a "
            "dataset with p.dataset(name, value=...)"
        )
    if isinstance(given, Mapping):
        key = next(iter(given), "name")
        raise BuildTypeError(f"{what}, not an array of rows; give its columns as arguments of their own, as in p.load(columns[{key!r}], ...)")
    if isinstance(given, Iterator):
        raise BuildTypeError(f"{what}, whose rows are not there yet; give an array or a list of them, as in p.load(list(...))")
    if isinstance(given, Set):
        raise BuildTypeError(f"{what}, whose items have no order; give them in one, as in p.load(sorted(...))")
    if hasattr(given, "toarray"):
        raise BuildTypeError(f"{what}, which is sparse; give its toarray()")


def _are_arrays(given: Sequence[Any]) -> bool:
    return bool(given) and all(_arrow.is_arrow(it) or getattr(it, "ndim", 0) > 0 for it in given)


def _refuse_several(place: int, given: Sequence[Any], cause: Exception | None = None) -> NoReturn:
    are_alike = len({getattr(it, "shape", None) for it in given}) == 1
    raise BuildError(
        f"p.load: argument {place} is a {type(given).__name__} of {count(len(given), 'array')}; give each as an argument of its "
        f"own, as in p.load(X, y){'; rows go into a list' if are_alike else ''}"
    ) from cause
