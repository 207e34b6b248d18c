"""What a program's statements told the native builder, so that another process can build the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from brambling import _native
from brambling._errors import BuildError
from brambling._native import Builder

P = ParamSpec("P")
R = TypeVar("R")
# A method of the builder, and what it was given.
Told = tuple[str, tuple[Any, ...]]


def _told(
    method: Callable[Concatenate[Builder, P], R],
) -> Callable[Concatenate[Tape, P], R]:
    """A method that changes the program, and is remembered when it did."""
    name = method.__name__

    def tell(self: Tape, /, *args: P.args, **how: P.kwargs) -> R:
        assert not how, "what is told has no names: it is told again by place"
        answer = method(self.native, *args, **how)
        self.told.append((name, args))
        return answer

    return tell


def _asked(
    method: Callable[Concatenate[Builder, P], R],
) -> Callable[Concatenate[Tape, P], R]:
    """A method that changes nothing."""

    def ask(self: Tape, /, *args: P.args, **how: P.kwargs) -> R:
        return method(self.native, *args, **how)

    return ask


class Tape:
    """The native builder, with a memory of what it was told. Arrays are remembered, not copied."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.seed = seed
        self.native = Builder(name, seed)
        self.told: list[Told] = []

    dataset = _told(Builder.dataset)
    given = _told(Builder.given)
    map = _told(Builder.map)
    update = _told(Builder.update)
    reduce = _told(Builder.reduce)
    broadcast = _told(Builder.broadcast)
    scatter = _told(Builder.scatter)
    gather = _told(Builder.gather)
    mark_hashed = _told(Builder.mark_hashed)
    signal = _told(Builder.signal)
    begin_repeat = _told(Builder.begin_repeat)
    begin_while = _told(Builder.begin_while)
    begin_if = _told(Builder.begin_if)
    begin_else = _told(Builder.begin_else)
    end = _told(Builder.end)
    keep = _told(Builder.keep)

    is_kept = _asked(Builder.is_kept)
    partitions = _asked(Builder.partitions)
    partitioner = _asked(Builder.partitioner)
    is_blocked = _asked(Builder.is_blocked)
    text = _asked(Builder.text)
    picture = _asked(Builder.picture)
    hash = _asked(Builder.hash)
    run = _asked(Builder.run)

    def load(self, name: str, tables: list[np.ndarray], partitions: int) -> int:
        """A blocked dataset of the rows of tables. They are remembered, and not the views of their blocks."""
        tables = [_read_only(table) for table in tables]
        answer = self.native.load(name, _parts(tables, partitions))
        self.told.append(("load", (name, tables, partitions)))
        return answer

    def told_elsewhere(self) -> list[Told]:
        """What was told, for a process that is given the rows of arrays when it wants them."""
        told = []
        for method, args in self.told:
            if method == "load":
                name, _, partitions = args
                method, args = "given", (name, partitions)
            told.append((method, args))
        return told

    def tell_again(self, told: Iterable[Told]) -> None:
        """Tells what another tape remembers."""
        for method, args in told:
            if method not in STATEMENTS:
                raise BuildError(f"there is no statement {method!r} of a program")
            getattr(self, method)(*args)


STATEMENTS = frozenset(
    "dataset given load map update reduce broadcast scatter gather mark_hashed signal begin_repeat begin_while begin_if "
    "begin_else end keep".split()
)


def _read_only(table: np.ndarray) -> np.ndarray:
    view = table.view()
    view.flags.writeable = False
    return view


def _parts(tables: list[np.ndarray], partitions: int) -> list[tuple[Any, list[Any]]]:
    """Per partition its rows in one piece, and its blocks."""
    rows, size = len(tables[0]), _native.block_rows()
    blocks = -(-rows // size)

    def views(start: int, end: int) -> Any:
        parts = [table[start:end] for table in tables]
        return parts[0] if len(parts) == 1 else tuple(parts)

    parts = []
    for partition in range(partitions):
        first, last = _native.blocks_of_partition(partition, partitions, blocks)
        held = [views(block * size, min((block + 1) * size, rows)) for block in range(first, last)]
        parts.append((views(first * size, min(last * size, rows)), held))
    return parts
