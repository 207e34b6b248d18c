"""Map-reduce by functions of Python: a program of the stages that others have too, whose kernels run on the calling thread."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from functools import reduce as fold
from operator import add
from pathlib import Path
from typing import Any, NoReturn

from brambling import _native
from brambling._errors import KernelError
from brambling._kernel import Context, name_of
from brambling._map_reduce_rows import Gathering, Here, Part, Rows, as_bytes, grouped, in_order
from brambling._program import Program
from brambling._texts import short

_SPLIT_BYTES = 32 << 20
_SPLITS_MAX = 256
_PARTITION_BYTES = 64 << 20
_PARTITIONS_MAX = 64
# Begins a note of an exception that says where it was raised.
_WHERE = "map_reduce: "


def text(line: bytes) -> str:
    """Bytes as text: those that are no UTF-8 become lone surrogates, as in names of files."""
    return line.decode("utf-8", "surrogateescape")


class Combiner:
    """Makes one value of two of a key, for a reduce that allows it."""

    def __init__(self, first: Callable[[Any], Any] | None, combine: Callable[[Any, Any], Any]) -> None:
        self.first = first
        self.combine = combine


def _one(_: Any) -> int:
    return 1


_COMBINERS = {
    "sum": Combiner(None, add),
    "count": Combiner(_one, add),
    "min": Combiner(None, min),
    "max": Combiner(None, max),
}
_REDUCES: dict[str, Callable[[list[Any]], Any]] = {
    "sum": lambda values: fold(add, values),
    "count": lambda values: fold(add, values),
    "min": min,
    "max": max,
}


class MapSplit(Here):
    """The pairs of a split, dealt to partitions by key: each key with the list of its values, or with what they combine to."""

    __name__ = "map"

    def __init__(
        self,
        files: list[tuple[str, int, int]],
        map: str | Callable[[str], Any],
        combiner: Combiner | None,
        partitions: int,
        backup: bool,
    ) -> None:
        self._files = files
        self._map = map
        self._combiner = combiner
        self._partitions = partitions
        self._backup = backup

    def __call__(self, _: None, ctx: Context) -> dict[int, Rows]:
        gathering = Gathering(self.file, self.room(), self._partitions, self._backup, self._combiner is not None)
        for place, begin, end in self._ranges(ctx.partition, ctx.partitions):
            for at, line in self._lines(place, begin, end):
                self._take(gathering, place, at, line)
        return gathering.finish()

    def _ranges(self, index: int, count: int) -> Iterator[tuple[int, int, int]]:
        total = sum(size for _, size, _ in self._files)
        first, last = total * index // count, total * (index + 1) // count
        before = 0
        for place, (_, size, _) in enumerate(self._files):
            begin, end = max(first - before, 0), min(last - before, size)
            if begin < end:
                yield place, begin, end
            before += size

    def _lines(self, place: int, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Lines that begin in a range, without their ends, and where they begin."""
        path, size, changed = self._files[place]
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            if (found.st_size, found.st_mtime_ns) != (size, changed):
                raise RuntimeError(f"{path} has changed since the job began; let nobody write to it meanwhile, and begin again")
            at = begin
            if begin > 0:
                # The line that has the byte before the range is another range's.
                file.seek(begin - 1)
                at = begin - 1 + len(file.readline())
            while at < end:
                line = file.readline()
                if not line:
                    break
                yield at, line.removesuffix(b"\n").removesuffix(b"\r") if line.endswith(b"\n") else line.removesuffix(b"\r")
                at += len(line)

    def _take(self, gathering: Gathering, place: int, at: int, line: bytes) -> None:
        """Maps a line, and puts its pairs to those of their keys."""
        combiner = self._combiner
        values = gathering.values
        doing: Any = self._map
        try:
            for key, value in self._pairs(line):
                if combiner is None:
                    values.setdefault(key, []).append(value)
                else:
                    value = value if combiner.first is None else combiner.first(value)
                    if key in values:
                        doing = combiner.combine
                        value = doing(values[key], value)
                    values[key] = value
                # What fails here is no function's fault.
                doing = None
                gathering.note(key, value)
                doing = self._map
        except Exception as error:
            if doing is None:
                raise
            what = "map" if doing is self._map else "combine"
            name = repr(doing) if isinstance(doing, str) else f"`{name_of(doing)}`"
            error.add_note(f"{_WHERE}{what} {name} failed on line {self._number(place, at)} of {self._files[place][0]}, {short(text(line))}")
            raise

    def _pairs(self, line: bytes) -> Iterable[tuple[Any, Any]]:
        if self._map == "words":
            return [(text(word), 1) for word in line.split()]
        if self._map == "lines":
            return [(text(line), 1)]
        assert callable(self._map)
        pairs = self._map(text(line))
        if pairs is None or isinstance(pairs, str | bytes):
            raise TypeError(f"it returned {short(pairs)}; return its pairs, as in [(key, value)], or [] when there are none")
        return map(_pair, pairs)

    def _number(self, place: int, at: int) -> int:
        """The number of the line that begins at a byte, from 1."""
        number = 1
        with open(self._files[place][0], "rb") as file:
            while at > 0:
                some = file.read(min(at, 1 << 20))
                if not some:
                    break
                number += some.count(b"\n")
                at -= len(some)
        return number


def _pair(pair: Any) -> tuple[Any, Any]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"it gave {short(pair)}, which is no pair; give (key, value)")
    return pair[0], pair[1]


class ReduceKeys(Here):
    """The pairs of a partition, each key with what its values reduce to, in the order of keys; or their lines."""

    __name__ = "reduce"

    def __init__(self, reduce: str | Callable[[Any, list[Any]], Any], as_lines: bool) -> None:
        self._reduce = reduce
        self._as_lines = as_lines

    def __call__(self, pieces: dict[int, Rows]) -> list[tuple[Any, Any]] | Part:
        rows = grouped(pieces.values(), self.file)
        if self._as_lines:
            return Part.of((b"%b\t%b\n" % (_shown(key), _shown(self._value(key, values))) for key, values in rows), self.file)
        return [(key, self._value(key, values)) for key, values in rows]

    def _value(self, key: Any, values: list[Any]) -> Any:
        try:
            if isinstance(self._reduce, str):
                return _REDUCES[self._reduce](values)
            return self._reduce(key, values)
        except Exception as error:
            name = repr(self._reduce) if isinstance(self._reduce, str) else f"`{name_of(self._reduce)}`"
            error.add_note(f"{_WHERE}reduce {name} failed on key {short(key)} with {len(values)} of its values")
            raise


class Job:
    """A map-reduce whose functions are Python's."""

    def __init__(
        self,
        paths: list[str],
        map: str | Callable[[str], Any],
        reduce: str | Callable[[Any, list[Any]], Any],
        combine: Callable[[Any, Any], Any] | None,
        partitions: int | None,
        backup: bool,
        as_lines: bool,
    ) -> None:
        self._files = [_look_at(path) for path in paths]
        combiner = Combiner(None, combine) if combine is not None else _COMBINERS.get(reduce) if isinstance(reduce, str) else None
        total = sum(size for _, size, _ in self._files)
        self._splits = min(max(-(-total // _SPLIT_BYTES), 1), _SPLITS_MAX)
        self._partitions = int(partitions or min(max(-(-total // _PARTITION_BYTES), 1), _PARTITIONS_MAX))
        self._map = MapSplit(self._files, map, combiner, self._partitions, backup)
        self._reduce = ReduceKeys(reduce, as_lines)

    def run(self, threads: int | None) -> tuple[list[Any], _native.Ledger]:
        """The pairs of each partition, or its `Part`, and what the job did."""
        p = Program("map-reduce")
        splits = p.dataset("splits", partitions=self._splits)
        reduced = p.gather(self._reduce, p.scatter(self._map, splits, to=self._partitions))
        p.keep(reduced)
        try:
            result = p.run(threads=threads)
        except KernelError as error:
            _raise_with_place(error)
        parts = result[reduced]
        return ([parts] if self._partitions == 1 else parts), result._outcome.ledger()


def _shown(value: Any) -> bytes:
    shown = value if isinstance(value, bytes) else as_bytes(str(value))
    assert isinstance(shown, bytes)
    return shown


def _look_at(path: str) -> tuple[str, int, int]:
    path = os.path.abspath(path)
    mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        # Whoever opens a pipe waits for its writer.
        raise OSError(f"{path} is not a plain file but a pipe, a device or a socket, of which no ranges can be read; name a file")
    # Whoever may not read it is told before the job begins, and so is who names a directory.
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
    return path, found.st_size, found.st_mtime_ns


def _raise_with_place(error: KernelError) -> NoReturn:
    """Raises the error of a kernel, with the line in its message."""
    cause = error.__cause__
    notes = [note for note in getattr(cause, "__notes__", ()) if note.startswith(_WHERE)]
    if cause is None or not notes:
        raise error
    told = KernelError(f"{notes[0]}: {type(cause).__name__}: {cause}")
    told.stage, told.partition, told.turn = error.stage, error.partition, error.turn
    raise told from cause


def pairs_in_order(parts: list[list[tuple[Any, Any]]]) -> list[tuple[Any, Any]]:
    """Pairs of all partitions in the order of their keys."""
    return in_order(pair for part in parts for pair in part)


def write(parts: list[Part], writer: _native.PartsWriter) -> tuple[list[Path], int]:
    """Writes a file for each part: their names, and how many keys they have."""
    for part in parts:
        writer.begin_part()
        for block in part.blocks():
            writer.write(block)
    return writer.commit(), sum(part.keys for part in parts)
