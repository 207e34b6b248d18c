"""How a stage calls a user's function."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from brambling import _code
from brambling._errors import BuildError, Error
from brambling._native import Reserved, reserve
from brambling._texts import count, short
from brambling._written import written

if TYPE_CHECKING:
    from brambling._program.handles import Dataset

# How NumPy says it: of an assignment, an output, an array to be sorted or shuffled, and of what Cython reads.
_READ_ONLY = re.compile(r"(\w+: )?(assignment destination|[\w -]*(array|output)[\w -]*) is read-only")
_IMMUTABLE = (int, float, complex, str, bytes, bool, type(None), frozenset, np.generic)


@dataclass(frozen=True, slots=True)
class Context:
    """
    Where a kernel runs: given to kernels that have a parameter named `ctx`.

    Attributes
    ----------
    partition : int
        Index of the partition.
    partitions : int
        Number of partitions.
    turn : int
        How often the enclosing loop's body had been entered before: the first turn is 0.
    block : int or None
        Global index of the block, when the kernel runs once per block.

    Examples
    --------
    >>> import brambling as br
    >>> p = br.Program("dice", seed=7)
    >>> players = p.dataset("players", value=0, partitions=3)
    >>> throws = p.map(lambda _, ctx: int(ctx.rng().integers(1, 7)), players)
    >>> p.keep(throws)
    >>> len(p.run(threads=1)[throws])
    3
    """

    partition: int
    partitions: int
    turn: int
    block: int | None
    _stage: int
    _seed: int
    _rng: np.random.Generator | None = field(default=None, init=False, repr=False, compare=False)

    def rng(self) -> np.random.Generator:
        """
        Random numbers of this block (or partition) at this stage and turn: the same wherever it runs.

        Each further call gives the same generator, which goes on where it stopped.
        """
        if self._rng is not None:
            return self._rng
        row = self.partition if self.block is None else self.block
        key = np.array([self._seed, (self._stage << 40) ^ self.turn], dtype=np.uint64)
        counter = np.array([0, 0, 0, row], dtype=np.uint64)
        made = np.random.Generator(np.random.Philox(key=key, counter=counter))
        object.__setattr__(self, "_rng", made)
        return made

    def reserve(self, nbytes: int) -> Reserved:
        """
        Take so many bytes of the memory that the job may have, for what the kernel allocates and no dataset holds.

        They are given back by `release()` of what this returns, at the end of a `with` block around it, or with the object itself.

        Parameters
        ----------
        nbytes : int
            How many bytes.

        Returns
        -------
        Reserved
            It has `nbytes` and `release()`, and may stand in a `with` statement.

        Raises
        ------
        OutOfMemory
            There is not so much left. A kernel may catch it and do with less; one that does not ends the job with an `OutOfMemory` that
            names the stage.
        """
        return reserve(nbytes)


class ReadOnlyWrite(Error, ValueError):
    """A kernel wrote to what its stage only reads."""

    __module__ = "brambling"


def name_of(f: Callable[..., Any]) -> str:
    """What a stage that runs a function is called: a lambda after its place, since all have one name."""
    while hasattr(f, "func"):
        f = f.func
    name = getattr(f, "__name__", None) or type(f).__name__
    if name != "<lambda>":
        return name
    code = getattr(inspect.unwrap(f) if hasattr(f, "__wrapped__") else f, "__code__", None)
    # Objects may borrow the name of a lambda, and have no place.
    return "lambda" if code is None else f"lambda at {written(code).place}"


def code_of(f: Any) -> bytes:
    """What workers compare: the function's bytes, or their digest when they are many."""
    code = _code.code_of(f)
    return name_of(f).encode() if code is None else code


def readable(value: Any) -> Any:
    """The value as a kernel that only reads may have it: arrays cannot be written."""
    if isinstance(value, np.ndarray):
        if value.flags.writeable:
            value = value.view()
            value.flags.writeable = False
        return value
    if type(value) is tuple:
        return tuple(map(readable, value))
    # Only what looks like a collection of arrays: long lists of rows are not walked.
    if type(value) is list and value and isinstance(value[0], np.ndarray):
        return [readable(item) for item in value]
    return value


def _holds_arrays(value: Any) -> bool:
    """Whether `readable` has made arrays read-only."""
    if type(value) is tuple:
        return any(map(_holds_arrays, value))
    return isinstance(value, np.ndarray) or (type(value) is list and bool(value) and isinstance(value[0], np.ndarray))


def writable(value: Any, unseen: bool) -> Any:
    """The value as a kernel that updates it may have it: nobody else sees what it writes."""
    if isinstance(value, np.ndarray):
        return value if unseen and value.base is None and value.flags.writeable else value.copy()
    if type(value) is tuple:
        return tuple(writable(item, False) for item in value)
    if unseen or isinstance(value, _IMMUTABLE):
        return value
    return copy.deepcopy(value)


def _place_of_ctx(f: Callable[..., Any]) -> int | str | None:
    """Where the context goes: at a place among the positional arguments, by name, or nowhere."""
    call = type(f).__call__
    if type(call) is FunctionType and not call.__dict__ and not hasattr(f, "__signature__") and not hasattr(f, "__wrapped__"):
        place = written(call.__code__).ctx
        # Without the object itself.
        return place if isinstance(place, str) else place - 1 if place else None
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):
        return None
    for place, parameter in enumerate(parameters):
        if parameter.name == "ctx":
            return "ctx" if parameter.kind is parameter.KEYWORD_ONLY else place
    return None


def refuse_generator(f: Callable[..., Any], stage: str) -> None:
    """Refuses what has yet to be run when a call of it has ended."""
    if inspect.isgeneratorfunction(f) or inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f):
        raise BuildError(
            f"`{stage}` is {'an async function' if inspect.iscoroutinefunction(f) else 'a generator (it has `yield`)'}, "
            "which computes nothing when it is called; return the values, as one list or array"
        )


class Call:
    """A user's function as the engine calls it."""

    __slots__ = ("_check", "_ctx", "_f", "_may_be_none", "_own_inputs", "_reads", "_seed", "_stage", "_updates", "_without_rows")

    def __init__(
        self,
        f: Callable[..., Any],
        *,
        stage: str,
        reads: Sequence[Dataset],
        seed: int,
        updates: Dataset | None = None,
        may_be_none: bool = False,
        own_inputs: int = 0,
        check: Callable[[Any], Any] | None = None,
    ) -> None:
        if isinstance(f, str):
            raise BuildError(f"there is no built-in kernel {f!r}; give a function")
        if not callable(f):
            raise BuildError(f"a kernel is a function, not {short(f)}; give a function itself, as in np.sum, not what a call of it has returned")
        # A function as it was written says it in its code; to ask `inspect` takes longer than the rest of a statement.
        known = written(f.__code__) if type(f) is FunctionType and not f.__dict__ else None
        if known is None or known.computes_later:
            refuse_generator(f, stage)
        self._f = f
        self._stage = stage
        self._reads = tuple([dataset.name for dataset in reads])
        self._seed = seed
        self._updates = None if updates is None else updates.name
        self._may_be_none = may_be_none
        # Those that nothing will ever write, and the load that has no rows.
        self._without_rows = {it.name: it._without_rows for it in reads if it._without_rows} if reads else None
        if updates is not None and updates._without_rows:
            self._without_rows = {**(self._without_rows or {}), updates.name: updates._without_rows}
        # Arguments made for this call alone, such as the pieces that arrived.
        self._own_inputs = own_inputs
        self._check = check
        self._ctx = _place_of_ctx(f) if known is None else known.ctx

    def __call__(
        self,
        args: tuple[Any, ...],
        partition: int,
        partitions: int,
        turn: int,
        stage: int,
        block: int | None,
        unseen: bool,
    ) -> Any:
        if self._updates is not None:
            first, *rest = args
            # The tuple is the only other holder.
            del args
            values = [self._own_copy(first, unseen), *map(readable, rest)]
            del first
        else:
            values = [*args[: self._own_inputs], *map(readable, args[self._own_inputs :])]
        named = {}
        read = values[len(values) - len(self._reads) :]
        if self._ctx is not None:
            context = Context(partition, partitions, turn, block, stage, self._seed)
            if isinstance(self._ctx, str):
                named[self._ctx] = context
            else:
                values.insert(self._ctx, context)
        try:
            result = self._f(*values, **named)
        except ValueError as error:
            names = [name for name, value in zip(self._reads, read, strict=True) if _holds_arrays(value)]
            if names and _READ_ONLY.fullmatch(str(error)):
                raise ReadOnlyWrite(
                    f"stage `{self._stage}` writes to a read-only array ({error}); what it only reads is read-only, here "
                    f"{', '.join(f'`{name}`' for name in names)}: return a new array, or declare the write with p.update(dataset, f, ...)"
                ) from error
            raise
        except TypeError as error:
            # Raised by the call itself, not in the function.
            if error.__traceback__ is not None and error.__traceback__.tb_next is None:
                self._check_arguments(values, named)
            raise
        if self._updates is not None and result is None and not self._may_be_none:
            raise TypeError(
                f"`{self._stage}` returned None, but p.update stores what it returns; return the new value"
            )
        return result if self._check is None else self._check(result)

    def _own_copy(self, value: Any, unseen: bool) -> Any:
        try:
            return writable(value, unseen)
        except Exception as error:  # Whatever the parts of users' objects raise.
            raise TypeError(
                f"the value of `{self._updates}` cannot be copied ({type(error).__name__}: {error}), and p.update copies what others may "
                "see; make it in a kernel, with p.map"
            ) from error

    def unset(self, place: int | None) -> Exception:
        """The error for a dataset without a value: one that is read, or the one that is updated."""
        name = self._updates if place is None else self._reads[place]
        without_rows = (self._without_rows or {}).get(name or "")
        if without_rows is not None:
            return RuntimeError(
                f"`{name}` has no value, because `{without_rows}` has no rows and there was nothing to combine; load rows, or leave this "
                "stage out when there are none"
            )
        happens = "updated" if place is None else "read"
        return RuntimeError(
            f"`{name}` is {happens} before anything has written it; write it in an earlier stage, or give it a value"
        )

    def _check_arguments(self, values: list[Any], named: dict[str, Any]) -> None:
        try:
            inspect.signature(self._f).bind(*values, **named)
        except ValueError:
            return
        except TypeError as error:
            given = len(values) + len(named) - (self._ctx is not None)
            raise TypeError(
                f"`{self._stage}` is called with {count(given, 'argument')}, one per dataset: {error} "
                "(arrays loaded together come as one tuple)"
            ) from None
