"""Statements that call a function on each partition or block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from brambling._compiled import compiler_of
from brambling._errors import BuildError, BuildTypeError
from brambling._kernel import code_of, name_of
from brambling._program.checks import Truth
from brambling._program.handles import Dataset, Signal
from brambling._program.statements import Statements, function_first, ids


class Stages(Statements):
    """Maps, updates and signals."""

    def map(
        self, f: Callable[..., Any], *args: Dataset, per: Literal["block", "partition"] = "block"
    ) -> Dataset:
        """
        Call a function once per block of its blocked inputs; other inputs are passed whole.

        Parameters
        ----------
        f : callable
            Gets an argument per dataset, and the context if it has a parameter named `ctx`. Arrays are
            read-only. What `numba.njit` has made, or `br.kernels` has, runs as machine code on all threads,
            where others run one at a time; it reads arrays of numbers, numbers and tuples of them, and returns such.
        *args : Dataset
            What it reads: equal numbers of partitions.
        per : {"block", "partition"}
            With "partition" it is called once per partition, and blocked inputs are passed whole: arrays
            that were loaded in one piece, results of maps as a list.

        Returns
        -------
        Dataset
            A value per block, or per partition when nothing is blocked or `per` says so.

        Examples
        --------
        >>> import numpy as np, brambling as br
        >>> p = br.Program("rows per block")
        >>> rows = p.map(len, p.load(np.zeros(10_000)))
        >>> p.keep(rows)
        >>> p.run()[rows]
        [4096, 4096, 1808]
        """
        if per not in ("block", "partition"):
            raise BuildError(f"per = {per!r} is not usable; give 'block' or 'partition'")
        function_first(f, "p.map(f, dataset, ...)")
        name = name_of(f)
        if not args:
            raise BuildError(f"`{name}` reads no dataset; p.map(f, dataset, ...) calls it once per block of one")
        blocks = self._same_blocks(name, args) if per == "block" else None
        call = self._call(f, name, args)
        result = self._fresh(name)
        self._statement()
        compiler = compiler_of(f, name, [arg.name for arg in args])
        made = self._builder.map(name, result, call, code_of(f), ids(args), per == "block", compiler)
        # Of opaque datasets there is a value, or nothing to read it.
        without_rows = next((arg._without_rows for arg in args if arg._without_rows), None) if blocks == 0 else None
        return self._made(made, result, blocks, without_rows)

    def update(self, dataset: Dataset, f: Callable[..., Any], *args: Dataset) -> None:
        """
        Replace each value of a dataset: `dataset = f(dataset, *args)`.

        The function may write into its first argument: it is copied first where others can see it. It returns the new value; None only where
        the dataset began as None.
        """
        if isinstance(f, Dataset):
            raise BuildTypeError("p.update(dataset, f, ...): the dataset comes first, then the function")
        name = name_of(f)
        self._own(dataset, f"`{name}`")
        if dataset._blocks is not None:
            self._same_blocks(name, (dataset, *args))
        else:
            for arg in args:
                self._own(arg, f"`{name}`")
        call = self._call(f, name, args, updates=dataset, may_be_none=dataset._may_be_none)
        self._statement()
        self._builder.update(name, dataset._id, call, code_of(f), ids(args))

    def signal(self, f: Callable[[Any], Any], dataset: Dataset) -> Signal:
        """Give a boolean, from a one-partition dataset, to the whole program; for `if_`."""
        function_first(f, "p.signal(f, dataset)")
        name = name_of(f)
        call = self._call(f, name, (dataset,), check=Truth(name))
        self._statement()
        return Signal(self, self._builder.signal(name, call, code_of(f), dataset._id), name)
