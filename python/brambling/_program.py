"""The builder: statements become a program."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt

from brambling import _native
from brambling._blas import one_blas_thread
from brambling._block import Block, block
from brambling._errors import BuildError, SettingsError, refuse_masked
from brambling._kernel import Call, Context, code_of, name_of
from brambling._outer import OuterNames
from brambling._reduce import combiner
from brambling._shuffle import Split, join


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class Dataset:
    """
    A variable of a program: a value per partition, or per block. Made by a `Program`'s statements; its
    values exist only while the program runs, and afterwards in the result.
    """

    __slots__ = ("_blocks", "_id", "_program", "name", "partitions")

    def __init__(
        self, program: Program, identity: int, name: str, partitions: int, blocks: int | None
    ) -> None:
        self._program = program
        self._id = identity
        self._blocks = blocks
        self.name = name
        self.partitions = partitions

    def __repr__(self) -> str:
        held = "" if self._blocks is None else f"{_count(self._blocks, 'block')} in "
        of = _count(self.partitions, "partition")
        return f"<dataset {self.name}: {held}{of}, of program {self._program.name!r}>"

    def __bool__(self) -> bool:
        raise BuildError(
            f"the value of `{self.name}` is known only while the program runs, so `if`, `while`, `and` and `not` "
            f"cannot test it; write `with p.if_(p.signal(f, {self.name})):` or "
            f"`with p.loop(while_=f, on={self.name}):`"
        )

    def __iter__(self) -> Iterator[Any]:
        self._asked_for_values()

    def _asked_for_values(self, *_: Any, **__: Any) -> NoReturn:
        raise BuildError(
            f"the values of `{self.name}` exist only while the program runs; use p.map(f, {self.name}), "
            f"or p.keep({self.name}) and take them from the result of p.run()"
        )


# What Python and NumPy would compute with: without an answer of our own, np.sum(x) is x itself.
for _name in (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow matmul rmatmul and rand or ror "
    "xor rxor lt le gt ge neg pos abs invert float int round getitem setitem len array array_ufunc"
).split():
    setattr(Dataset, f"__{_name}__", Dataset._asked_for_values)


class Signal:
    """A boolean that a program gives while it runs: what `Program.if_` tests."""

    __slots__ = ("_id", "_program", "name")

    def __init__(self, program: Program, identity: int, name: str) -> None:
        self._program = program
        self._id = identity
        self.name = name

    def __repr__(self) -> str:
        return f"<signal {self.name} of program {self._program.name!r}>"

    def __bool__(self) -> bool:
        raise BuildError(
            f"signal `{self.name}` is known only while the program runs; write `with p.if_(signal):`"
        )


class Exchange:
    """Pieces on their way: what `Program.scatter` makes and `Program.gather` takes."""

    __slots__ = ("_id", "_program", "name", "partitions")

    def __init__(self, program: Program, identity: int, name: str, partitions: int) -> None:
        self._program = program
        self._id = identity
        self.name = name
        self.partitions = partitions

    def __repr__(self) -> str:
        return f"<exchange {self.name} to {_count(self.partitions, 'partition')}>"


class Result(Mapping[str, Any]):
    """
    The kept datasets of a finished program, by dataset or by name.

    A dataset of one partition gives its value, another one the list of its partitions' values; blocks give
    the list of their values, whatever the partitions.

    Attributes
    ----------
    tally : dict
        What the job did: `tasks`, `wall_s`, `busy_s` (over all threads), `threads`, `peak_bytes`.
    """

    def __init__(self, outcome: _native.Outcome, program: Program, kept: dict[str, Dataset]) -> None:
        self._outcome = outcome
        self._program = program
        self._kept = kept
        self._values: dict[str, Any] = {}
        self.tally: dict[str, float] = outcome.tally()

    def __getitem__(self, dataset: Dataset | str) -> Any:
        name = dataset.name if isinstance(dataset, Dataset) else dataset
        known = self._kept.get(name)
        if known is None or (isinstance(dataset, Dataset) and dataset is not known):
            kept = ", ".join(self._kept) or "none"
            raise KeyError(
                f"{name!r} was not kept; call p.keep(dataset) before p.run() (kept here: {kept})"
            )
        if name not in self._values:
            values = [_owned(value) for value in self._outcome.values(known._id)]
            one = known._blocks is None and known.partitions == 1
            self._values[name] = values[0] if one else values
        return self._values[name]

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


class _Truth:
    def __init__(self, stage: str) -> None:
        self._stage = stage

    def __call__(self, result: Any) -> bool:
        if result is None:
            raise TypeError(f"`{self._stage}` returned None, but its answer is True or False; return a boolean")
        return bool(result)


class _Pieces:
    """Checks what a scatter's function returns."""

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def __call__(self, pieces: Any) -> dict[int, Any]:
        if not isinstance(pieces, Mapping):
            raise TypeError(
                f"`{self._stage}` returned {type(pieces).__name__}; a scatter returns a mapping "
                "from destination partition to piece"
            )
        return dict(pieces)


class _ToNeighbours:
    def __init__(self, offsets: list[int], wrap: bool, send: Callable[[Any, int], Any] | None) -> None:
        self._offsets = offsets
        self._wrap = wrap
        self._send = send

    def __call__(self, value: Any, ctx: Context) -> dict[int, dict[int, Any]]:
        pieces: dict[int, dict[int, Any]] = {}
        for offset in self._offsets:
            # Who hears from me at this offset stands on my other side.
            destination = ctx.partition - offset
            if self._wrap:
                destination %= ctx.partitions
            elif not 0 <= destination < ctx.partitions:
                continue
            piece = value if self._send is None else self._send(value, -offset)
            pieces.setdefault(destination, {})[offset] = piece
        return pieces


def _from_neighbours(pieces: dict[int, dict[int, Any]]) -> dict[int, Any]:
    return dict(sorted(item for piece in pieces.values() for item in piece.items()))


def _joined(pieces: dict[int, Any]) -> Any:
    return join(list(pieces.values()))


class Program:
    """
    A driver program: a sequential program over datasets, built by ordinary code, then run.

    Parameters
    ----------
    name : str
        What the program is called in texts and errors.
    seed : int, default 0
        Seed of the random numbers of `Context.rng`, from 0 to 2**64 - 1.

    Examples
    --------
    Newton's method for the square root of 2, from four starts:

    >>> import brambling as br
    >>> p = br.Program("square roots")
    >>> x = p.dataset("x", value=1.0, partitions=4)
    >>> p.update(x, lambda x, ctx: x + ctx.partition)
    >>> with p.loop(20):
    ...     p.update(x, lambda x: (x + 2 / x) / 2)
    >>> [round(x, 6) for x in p.run()[x]]
    [1.414214, 1.414214, 1.414214, 1.414214]
    """

    def __init__(self, name: str, seed: int = 0) -> None:
        if not isinstance(name, str):
            raise BuildError(f"a program's name is a string, not {name!r}")
        if not isinstance(seed, int | np.integer) or not 0 <= seed < 1 << 64:
            raise BuildError(f"seed = {seed!r} is not usable; give an integer from 0 to 2**64 - 1")
        self.name = name
        self._seed = int(seed)
        self._builder = _native.Builder(name, self._seed)
        self._datasets: dict[str, Dataset] = {}
        self._open: list[str] = []
        self._unentered: list[Block] = []
        self._outer = OuterNames()
        self._closed_if: int | None = None

    def __repr__(self) -> str:
        return f"<program {self.name!r}: {_count(len(self._datasets), 'dataset')}>"

    def __str__(self) -> str:
        return self._builder.text()

    def picture(self) -> str:
        """The program as a Mermaid flowchart."""
        return self._builder.picture()

    # ---- data

    def load(
        self, *arrays: npt.ArrayLike, partitions: int | None = None, name: str | None = None
    ) -> Dataset:
        """
        Make one blocked dataset of arrays of equally many rows.

        A kernel gets a tuple of read-only views of a block's rows, or the view itself when there is one
        array. C-contiguous arrays are borrowed, not copied: leave them alone until the run has ended.

        Parameters
        ----------
        *arrays : array_like
            Arrays of one or more dimensions, with equal lengths.
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
            raise BuildError("p.load needs at least one array")
        if name is not None:
            self._new_name(name)
        tables = [_rows(place, array) for place, array in enumerate(arrays, 1)]
        for place, (array, given) in enumerate(zip(tables, arrays, strict=True)):
            if np.ndim(given) == 0:
                raise BuildError(
                    f"p.load: argument {place + 1} is a single value, not an array of rows; "
                    "make it a dataset with p.dataset(name, value=...)"
                )
            if len(array) != len(tables[0]):
                raise BuildError(
                    f"p.load: argument 1 has {len(tables[0])} rows and argument {place + 1} has {len(array)}; "
                    "arrays loaded together have equally many"
                )
        rows, size = len(tables[0]), _native.block_rows()
        blocks = -(-rows // size)
        name = self._fresh(name or "loaded")
        if partitions is None:
            partitions = _native.partitions_for(blocks, sum(array.nbytes for array in tables))
        partitions = self._partitions(name, partitions)

        def views(start: int, end: int) -> Any:
            parts = [array[start:end] for array in tables]
            for part in parts:
                part.flags.writeable = False
            return parts[0] if len(parts) == 1 else tuple(parts)

        parts = []
        for partition in range(partitions):
            first, last = _native.blocks_of_partition(partition, partitions, blocks)
            held = [views(block * size, min((block + 1) * size, rows)) for block in range(first, last)]
            parts.append((views(first * size, min(last * size, rows)), held))
        self._statement()
        return self._made(self._builder.load(name, parts), name, blocks)

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
        if isinstance(value, np.ndarray):
            value = value.copy()
            value.flags.writeable = False
        self._statement()
        return self._made(self._builder.dataset(name, value, partitions), name, None)

    def keep(self, dataset: Dataset, *more: Dataset) -> None:
        """Keep datasets beyond their last use, so that the result of `run` has them."""
        for kept in [self._own(one, "p.keep") for one in (dataset, *more)]:
            self._builder.keep(kept._id)

    # ---- computing

    def map(
        self, f: Callable[..., Any], *args: Dataset, per: Literal["block", "partition"] = "block"
    ) -> Dataset:
        """
        Call a function once per block of its blocked inputs; other inputs are passed whole.

        Parameters
        ----------
        f : callable
            Gets an argument per dataset, and the context if it has a parameter named `ctx`. Arrays are
            read-only.
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
        _function_first(f, "p.map(f, dataset, ...)")
        name = name_of(f)
        if not args:
            raise BuildError(f"`{name}` reads no dataset; p.map(f, dataset, ...) calls it once per block of one")
        blocks = self._same_blocks(name, args) if per == "block" else None
        call = self._call(f, name, args)
        result = self._fresh(name)
        self._statement()
        made = self._builder.map(name, result, call, code_of(f), _ids(args), per == "block")
        return self._made(made, result, blocks)

    def update(self, dataset: Dataset, f: Callable[..., Any], *args: Dataset) -> None:
        """
        Replace each value of a dataset: `dataset = f(dataset, *args)`.

        The function may write into its first argument: it is copied first where others can see it.
        """
        if isinstance(f, Dataset):
            raise BuildError("p.update(dataset, f, ...): the dataset comes first, then the function")
        name = name_of(f)
        self._own(dataset, f"`{name}`")
        if dataset._blocks is not None:
            self._same_blocks(name, (dataset, *args))
        else:
            for arg in args:
                self._own(arg, f"`{name}`")
        call = self._call(f, name, args, updates=True)
        self._statement()
        self._builder.update(name, dataset._id, call, code_of(f), _ids(args))

    def signal(self, f: Callable[[Any], Any], dataset: Dataset) -> Signal:
        """Give a boolean, from a one-partition dataset, to the whole program; for `if_`."""
        _function_first(f, "p.signal(f, dataset)")
        name = name_of(f)
        call = self._call(f, name, (dataset,), check=_Truth(name))
        self._statement()
        return Signal(self, self._builder.signal(name, call, code_of(f), dataset._id), name)

    # ---- moving

    def reduce(self, op: str | Callable[[Any, Any], Any], dataset: Dataset) -> Dataset:
        """
        Combine all values of a dataset into one, on a fixed binary tree over its blocks (or partitions).

        Parameters
        ----------
        op : {"sum", "min", "max"} or callable
            An associative function of two values, or the name of one over numbers, arrays and tuples.
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
        _function_first(op, "p.reduce(op, dataset)")
        self._own(dataset, "p.reduce")
        called = op if isinstance(op, str) else name_of(op)
        combine = combiner(op)
        result = self._fresh(f"{called} of {dataset.name}")
        self._statement()
        made = self._builder.reduce(f"{called} of {dataset.name}", result, combine, code_of(op), dataset._id)
        return self._made(made, result, None)

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
        result = self._fresh(f"{dataset.name} everywhere")
        self._statement()
        return self._made(self._builder.broadcast(dataset._id, like._id, result), result, None)

    def shuffle(self, dataset: Dataset, key: Any, partitions: int | None = None) -> Dataset:
        """
        Bring all rows of a key into one partition, in the order of their sources.

        Parameters
        ----------
        dataset : Dataset
            Rows, as a list, tuple or array per partition or block.
        key : callable or int or str
            A function of a row, or what a row is indexed by: a column.
        partitions : int, optional
            By default as many as the dataset has.

        Examples
        --------
        >>> import brambling as br
        >>> p = br.Program("by length")
        >>> words = p.dataset("words", value=["to", "be", "or", "not"])
        >>> by_length = p.shuffle(words, key=len, partitions=2)
        >>> p.keep(by_length)
        >>> sorted(sum(p.run()[by_length], []))
        ['be', 'not', 'or', 'to']
        """
        self._own(dataset, "p.shuffle")
        name = self._fresh(f"{dataset.name} by key")
        partitions = dataset.partitions if partitions is None else self._partitions(name, partitions)
        split = Split(key, partitions, dataset._blocks is not None)
        stage = f"shuffle {dataset.name}"
        sending = self._call(split, stage, (dataset,))
        receiving = self._call(_joined, stage, (), own_inputs=1)
        self._statement()
        code = code_of((key, partitions))
        exchange = self._builder.scatter(stage, sending, code, [dataset._id], None)
        made = self._builder.gather(exchange, stage, name, receiving, code, [], partitions)
        return self._made(made, name, None)

    def exchange(
        self,
        dataset: Dataset,
        neighbours: Sequence[int],
        *,
        wrap: bool = False,
        send: Callable[[Any, int], Any] | None = None,
    ) -> Dataset:
        """
        Give every partition what its neighbours hold.

        Parameters
        ----------
        dataset : Dataset
            What is sent.
        neighbours : sequence of int
            Offsets of the partitions to hear from, such as ``(-1, 1)``.
        wrap : bool, default False
            Whether the first and the last partition are neighbours.
        send : callable, optional
            ``send(value, offset)`` gives what goes to the neighbour at that offset; by default the value.

        Returns
        -------
        Dataset
            Per partition a dict from offset to what came from there; without the ends' missing neighbours.

        Examples
        --------
        >>> import brambling as br
        >>> p = br.Program("neighbours")
        >>> x = p.dataset("x", value=0, partitions=3)
        >>> p.update(x, lambda x, ctx: 10 * ctx.partition)
        >>> halo = p.exchange(x, neighbours=(-1, 1))
        >>> p.keep(halo)
        >>> p.run()[halo]
        [{1: 10}, {-1: 0, 1: 20}, {-1: 10}]
        """
        self._own(dataset, "p.exchange")
        offsets = _offsets(neighbours)
        stage = f"exchange {dataset.name}"
        name = self._fresh(f"neighbours of {dataset.name}")
        sending = self._call(_ToNeighbours(offsets, wrap, send), stage, (dataset,))
        receiving = self._call(_from_neighbours, stage, (), own_inputs=1)
        self._statement()
        code = code_of(send)
        relation = (sorted(-offset for offset in offsets), wrap)
        exchange = self._builder.scatter(stage, sending, code, [dataset._id], relation)
        made = self._builder.gather(exchange, stage, name, receiving, code, [], dataset.partitions)
        return self._made(made, name, None)

    def scatter(
        self, f: Callable[..., Mapping[int, Any]], *args: Dataset, to: Dataset | int
    ) -> Exchange:
        """
        Send pieces to any partition: `f` returns a mapping from destination to piece. `gather` receives them.

        Examples
        --------
        >>> import brambling as br
        >>> p = br.Program("transpose")
        >>> x = p.dataset("x", value=0, partitions=2)
        >>> pieces = p.scatter(lambda x, ctx: {to: (ctx.partition, to) for to in range(3)}, x, to=3)
        >>> columns = p.gather(lambda pieces: list(pieces.values()), pieces)
        >>> p.keep(columns)
        >>> p.run()[columns]
        [[(0, 0), (1, 0)], [(0, 1), (1, 1)], [(0, 2), (1, 2)]]
        """
        name = name_of(f)
        if not args:
            raise BuildError(f"`{name}` reads no dataset; p.scatter(f, dataset, ..., to=...) sends from its partitions")
        partitions = to.partitions if isinstance(to, Dataset) else self._partitions(name, to)
        call = self._call(f, name, args, check=_Pieces(name))
        self._statement()
        exchange = self._builder.scatter(name, call, code_of(f), _ids(args), None)
        return Exchange(self, exchange, name, partitions)

    def gather(self, f: Callable[..., Any], pieces: Exchange, *args: Dataset) -> Dataset:
        """Receive a scatter's pieces: `f` gets the mapping from source to piece, in order of sources."""
        name = name_of(f)
        if not isinstance(pieces, Exchange) or pieces._program is not self:
            raise BuildError(f"`{name}` gathers {pieces!r}; give what p.scatter of this program returned")
        call = self._call(f, name, args, own_inputs=1)
        result = self._fresh(name)
        self._statement()
        made = self._builder.gather(
            pieces._id, name, result, call, code_of(f), _ids(args), pieces.partitions
        )
        return self._made(made, result, None)

    # ---- control

    @block
    def loop(
        self,
        n: int | None = None,
        *,
        while_: Callable[[Any], Any] | None = None,
        on: Dataset | None = None,
    ) -> Iterator[None]:
        """
        Repeat the statements of the block `n` times, or while `while_(value of on)` holds.

        Parameters
        ----------
        n : int, optional
            How many turns.
        while_ : callable, optional
            Tested before each turn.
        on : Dataset, optional
            What it tests: one partition.

        Examples
        --------
        >>> import brambling as br
        >>> p = br.Program("halving")
        >>> x = p.dataset("x", value=100)
        >>> with p.loop(while_=lambda x: x > 10, on=x):
        ...     p.update(x, lambda x: x // 2)
        >>> p.run()[x]
        6
        """
        self._statement()
        if (n is None) == (while_ is None) or (while_ is None) != (on is None):
            raise BuildError("a loop is p.loop(turns) or p.loop(while_=f, on=dataset)")
        if n is not None:
            if not isinstance(n, int | np.integer) or not 0 <= n < 1 << 64:
                raise BuildError(f"p.loop({n!r}): give the number of turns, an integer from 0 to 2**64 - 1")
            self._builder.begin_repeat(int(n))
        else:
            assert while_ is not None and on is not None
            name = name_of(while_)
            call = self._call(while_, name, (on,), check=_Truth(name))
            self._builder.begin_while(name, call, code_of(while_), on._id)
        with self._body("loop"):
            yield

    @block
    def if_(self, signal: Signal) -> Iterator[None]:
        """
        Run the statements of the block when a signal was true.

        Examples
        --------
        >>> import brambling as br
        >>> p = br.Program("sign")
        >>> x = p.dataset("x", value=-3)
        >>> with p.if_(p.signal(lambda x: x < 0, x)):
        ...     p.update(x, lambda x: -x)
        >>> with p.else_():
        ...     p.update(x, lambda x: x + 1)
        >>> p.run()[x]
        3
        """
        self._statement()
        if not isinstance(signal, Signal) or signal._program is not self:
            raise BuildError(f"p.if_ tests a signal of this program, not {signal!r}; make one with p.signal(f, dataset)")
        branch = self._builder.begin_if(signal._id)
        with self._body("if_"):
            yield
        self._closed_if = branch

    @block
    def else_(self) -> Iterator[None]:
        """Run the statements of the block when the signal of the `if_` just before was false."""
        if self._closed_if is None:
            raise BuildError("p.else_() follows directly after the block of a p.if_(signal)")
        self._builder.begin_else(self._closed_if)
        self._statement()
        with self._body("else_"):
            yield

    @contextmanager
    def _body(self, what: str) -> Iterator[None]:
        self._open.append(what)
        try:
            yield
        finally:
            self._open.pop()
            self._builder.end()
            self._closed_if = None

    # ---- running

    def run(self, *, threads: int | None = None) -> Result:
        """
        Run the program on the threads of this process.

        Python functions run on the calling thread, one at a time; what is built in runs on all threads.

        Parameters
        ----------
        threads : int, optional
            By default BRAMBLING_THREADS, the settings file, or the CPUs of this process.

        Returns
        -------
        Result
            The datasets made by `dataset`, and those that `keep` named.

        Raises
        ------
        BuildError
            The program is incomplete.
        KernelError
            A kernel raised; its exception is the cause.
        KeyboardInterrupt
            On Ctrl-C, at most 0.1 s after the kernels that were running.
        """
        if self._open:
            raise BuildError(f"p.run() inside the block of p.{self._open[-1]}(); run the program after it")
        if self._unentered:
            what = self._unentered[0].what
            raise BuildError(
                f"there is a p.{what}(...) without its block, which changes nothing; "
                f"write `with p.{what}(...):` and indent the statements that belong to it"
            )
        if threads is not None and (not isinstance(threads, int | np.integer) or not 1 <= threads <= 1024):
            raise SettingsError(f"threads = {threads!r} is not usable; give a number from 1 to 1024")
        with one_blas_thread():
            outcome = self._builder.run(None if threads is None else int(threads))
        kept = {name: it for name, it in self._datasets.items() if self._builder.is_kept(it._id)}
        return Result(outcome, self, kept)

    # ---- what statements share

    def _statement(self) -> None:
        self._closed_if = None

    def _made(self, identity: int, name: str, blocks: int | None) -> Dataset:
        dataset = Dataset(self, identity, name, self._builder.partitions(identity), blocks)
        self._datasets[name] = dataset
        return dataset

    def _new_name(self, name: Any) -> None:
        if not isinstance(name, str) or not name:
            raise BuildError(f"a dataset's name is a string, not {name!r}")
        if name in self._datasets:
            raise BuildError(f"there is a dataset `{name}` already; give this one another name")

    def _fresh(self, name: str) -> str:
        if name not in self._datasets:
            return name
        number = 2
        while f"{name} {number}" in self._datasets:
            number += 1
        return f"{name} {number}"

    def _partitions(self, name: str, partitions: Any) -> int:
        if not isinstance(partitions, int | np.integer) or isinstance(partitions, bool):
            raise BuildError(f"`{name}`: partitions = {partitions!r} is not usable; give a positive integer")
        if partitions == 0:
            raise BuildError(f"dataset `{name}` has zero partitions; give it at least 1")
        if not 0 < partitions <= 1 << 24:
            raise BuildError(f"`{name}`: partitions = {partitions} is not usable; give a number from 1 to 16777216")
        return int(partitions)

    def _own(self, dataset: Any, who: str) -> Dataset:
        if not isinstance(dataset, Dataset):
            raise BuildError(
                f"{who} uses {type(dataset).__name__} {_short(dataset)}, which is not a dataset; make it one with "
                "p.dataset(name, value=...) or p.load(array), or bind it with functools.partial"
            )
        if dataset._program is not self:
            raise BuildError(
                f"{who} uses `{dataset.name}` of program {dataset._program.name!r}; "
                "datasets belong to the program that made them"
            )
        return dataset

    def _call(
        self, f: Callable[..., Any], stage: str, args: Sequence[Any], **how: Any
    ) -> Call:
        reads = [self._own(arg, f"`{stage}`").name for arg in args]
        self._outer.note(f, stage)
        return Call(f, stage=stage, reads=reads, seed=self._seed, **how)

    def _same_blocks(self, stage: str, args: Sequence[Any]) -> int | None:
        blocked = [arg for arg in args if self._own(arg, f"`{stage}`")._blocks is not None]
        for other in blocked[1:]:
            if other._blocks != blocked[0]._blocks:
                raise BuildError(
                    f"stage `{stage}` uses `{blocked[0].name}` ({_count(blocked[0]._blocks, 'block')}) and "
                    f"`{other.name}` ({_count(other._blocks, 'block')}) together, but their rows differ; "
                    "load arrays of equally many rows in one p.load(...)"
                )
        return blocked[0]._blocks if blocked else None


def _function_first(f: Any, form: str) -> None:
    if isinstance(f, Dataset):
        raise BuildError(f"{form}: the function comes first, then what it reads")


def _rows(place: int, given: Any) -> np.ndarray:
    refuse_masked(given, f"p.load: argument {place}")
    try:
        return np.ascontiguousarray(given)
    except (TypeError, ValueError) as error:
        if isinstance(error, BuildError):
            raise
        raise BuildError(
            f"p.load: argument {place} is no array of rows ({error}); give rows of equal length"
        ) from error


def _offsets(neighbours: Any) -> list[int]:
    offsets = list(neighbours) if isinstance(neighbours, Iterable) else []
    if not offsets or not all(isinstance(offset, int | np.integer) for offset in offsets):
        raise BuildError(
            f"neighbours = {neighbours!r} is not usable; give offsets of partitions, such as (-1, 1)"
        )
    return sorted({int(offset) for offset in offsets})


def _ids(args: Sequence[Dataset]) -> list[int]:
    return [arg._id for arg in args]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
