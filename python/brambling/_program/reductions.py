"""Statements that combine all values into one and give one value to all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from brambling._kernel import code_of, name_of
from brambling._program.handles import Dataset
from brambling._program.statements import Statements, function_first
from brambling._reduce import combiner


class Reductions(Statements):
    """Reductions and broadcasts."""

    def reduce(self, op: str | Callable[[Any, Any], Any], dataset: Dataset) -> Dataset:
        """
        Combine all values of a dataset into one, on a fixed binary tree over its blocks (or partitions).

        Parameters
        ----------
        op : {"sum", "min", "max"} or callable
            An associative function of two values, or the name of one over numbers, arrays and tuples. A "sum" has the type that
            `numpy.sum` gives it: of small integers and truth values int64, of unsigned ones uint64. "min" and "max" keep the type.
        dataset : Dataset
            What is combined.

        Examples
        --------
        >>> import numpy as np, brambling as br
        >>> p = br.Program("largest")
        >>> largest = p.reduce("max", p.map(np.max, p.load(np.arange(9_999.0))))
        >>> p.keep(largest)
        >>> float(p.run()[largest])
        9998.0
        """
        function_first(op, "p.reduce(op, dataset)")
        self._own(dataset, "p.reduce")
        called = op if isinstance(op, str) else name_of(op)
        combine = combiner(op)
        result = self._fresh(f"{called} of {dataset._stem}")
        self._statement()
        name, is_sum = f"{called} of {dataset._stem}", isinstance(op, str) and op == "sum"
        made = self._builder.reduce(name, result, combine, code_of(op), dataset._id, is_sum)
        return self._made(made, result, None, dataset._without_rows)

    def all_reduce(
        self, op: str | Callable[[Any, Any], Any], dataset: Dataset, like: Dataset | None = None
    ) -> Dataset:
        """Combine all values and give the result to every partition of `like` (by default of the dataset)."""
        total = self.reduce(op, dataset)
        return self.broadcast(total, like=dataset if like is None else like)

    def broadcast(self, dataset: Dataset, like: Dataset) -> Dataset:
        """Give the value of a one-partition dataset to every partition of another one."""
        self._own(dataset, "p.broadcast")
        self._own(like, "p.broadcast")
        result = self._fresh(f"{dataset._stem} everywhere")
        self._statement()
        made = self._builder.broadcast(dataset._id, like._id, result)
        return self._made(made, result, None, dataset._without_rows)
