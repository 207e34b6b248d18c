"""Rows of map-reduce by functions of Python: in memory as long as there is room, then in sorted runs of a file."""

from __future__ import annotations

import heapq
import io
import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, groupby
from threading import Lock
from typing import Any

from brambling import _native

# A key with the list of its values.
Row = tuple[Any, list[Any]]

# What splits and partitions may have in memory at once, of the budget, and so may what a split gathers before it is dealt.
_SHARE = 1 / 4
# So many runs are merged at once: of each a buffer is in memory, and the values of one key.
_RUNS_MAX = 32
_BUFFER_BYTES = 128 << 10
# Of so many pairs one is looked at, to estimate what they take.
_SAMPLE = 32
# Beside what pickle writes: the entry of a dict, a list, and the heads of objects.
_ROW_BYTES = 200
_VALUE_BYTES = 40


def as_bytes(key: Any) -> Any:
    """A key as it is compared and hashed: text as its bytes, as files have it."""
    if not isinstance(key, str):
        return key
    try:
        return key.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # Half of a pair, which no file has given.
        return key.encode("utf-8", "surrogatepass")


def _key_of(row: tuple[Any, Any]) -> Any:
    return as_bytes(row[0])


def in_order(rows: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Rows in the order of their keys; those with equal keys as they come."""
    rows = list(rows)
    try:
        return sorted(rows, key=_key_of)
    except TypeError as error:
        raise _no_order((type(key) for key, _ in rows), error) from None


def _no_order(types: Iterable[type], error: TypeError) -> TypeError:
    names = " and ".join(sorted({it.__name__ for it in types}))
    return TypeError(f"keys of {names} have no order ({error}); let map give keys of one type, such as text")


class RunFile:
    """A file without a name that only grows; ranges of it are read while it does."""

    def __init__(self) -> None:
        self._directory = run_directory()
        self._file = tempfile.TemporaryFile(buffering=0, dir=self._directory)
        self._end = 0
        self._lock = Lock()

    def __del__(self) -> None:
        # Nobody has a range of it any more. Where none could be made, there is none.
        file = getattr(self, "_file", None)
        if file is not None:
            file.close()

    def append(self, blocks: Iterable[bytes]) -> Extent:
        """The range that has the blocks now, one behind the other."""
        with self._lock:
            begin = self._end
            try:
                for block in blocks:
                    view = memoryview(block)
                    while view:
                        view = view[os.pwrite(self._file.fileno(), view, self._end) :]
                    self._end += len(block)
            except OSError as error:
                where = self._directory or tempfile.gettempdir()
                raise OSError(error.errno, f"{os.strerror(error.errno or 0)}, while pairs that memory has no room for were written", where) from error
            return Extent(self, begin, self._end)

    def read(self, begin: int, count: int) -> bytes:
        return os.pread(self._file.fileno(), count, begin)


class Extent(io.RawIOBase):
    """A range of a run file, read from its begin."""

    def __init__(self, file: RunFile, begin: int, end: int) -> None:
        super().__init__()
        self._file = file
        self._at = begin
        self._end = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = self._file.read(self._at, min(len(buffer), self._end - self._at))
        buffer[: len(read)] = read
        self._at += len(read)
        return len(read)

    def again(self) -> Extent:
        """The same range, from where this one is."""
        return Extent(self._file, self._at, self._end)

    def rows(self) -> Iterator[Row]:
        """The rows that `pickled` made."""
        with io.BufferedReader(self.again(), _BUFFER_BYTES) as reader:
            while reader.peek(1):
                yield pickle.load(reader)

    def blocks(self) -> Iterator[bytes]:
        """Its bytes."""
        rest = self.again()
        while block := rest.read(1 << 20):
            yield block


def pickled(rows: Iterable[Row]) -> Iterator[bytes]:
    """Rows as a run has them, in blocks."""
    block = io.BytesIO()
    for row in rows:
        try:
            block.write(pickle.dumps(row, pickle.HIGHEST_PROTOCOL))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise TypeError(
                f"a pair cannot be written to the disk, where pairs go that memory has no room for ({error}); let map give plain values, "
                "or give more memory"
            ) from error
        if block.tell() >= _BUFFER_BYTES:
            yield block.getvalue()
            block = io.BytesIO()
    yield block.getvalue()


class Room:
    """What rows in memory may take together in this process."""

    def __init__(self) -> None:
        # Not the decimal point of a quantity, but the number before "bytes".
        self.bytes = int(int(_native.setting("memory").split()[0]) * _SHARE)
        self._taken = 0
        self._lock = Lock()

    def take(self, some: int) -> bool:
        """Whether there is room."""
        with self._lock:
            fits = self._taken + some <= self.bytes
            self._taken += some if fits else 0
            return fits

    def give(self, some: int) -> None:
        with self._lock:
            self._taken -= some


class Rows:
    """What a split has for a partition: sorted runs, and rows in memory behind them. Elsewhere it arrives as rows in memory."""

    def __init__(self, runs: list[Extent], rest: list[Row], size: int = 0, room: Room | None = None) -> None:
        self.runs = runs
        self.rest = rest
        self._bytes = size
        self._room = room

    def __reduce__(self) -> tuple[Any, ...]:
        return Rows, ([], list(chain.from_iterable(run.rows() for run in self.runs)) + self.rest, self._bytes)

    def __sizeof__(self) -> int:
        # The engine counts it.
        return self._bytes

    def __del__(self) -> None:
        if self._room is not None:
            self._room.give(self._bytes)


class Part:
    """The lines of a partition: in memory when they are few, and in a run file here. Elsewhere they arrive in memory."""

    def __init__(self, keys: int, lines: bytes | Extent) -> None:
        self.keys = keys
        self._lines = lines

    @classmethod
    def of(cls, lines: Iterable[bytes], file: Callable[[], RunFile]) -> Part:
        """Of lines, one for each key."""
        keys = 0

        def blocks() -> Iterator[bytes]:
            nonlocal keys
            block = io.BytesIO()
            for line in lines:
                keys += 1
                block.write(line)
                if block.tell() >= 1 << 20:
                    yield block.getvalue()
                    block = io.BytesIO()
            yield block.getvalue()

        every = blocks()
        first = next(every)
        if len(first) < 1 << 20:
            return cls(keys, first)
        extent = file().append(chain([first], every))
        return cls(keys, extent)

    def blocks(self) -> Iterator[bytes]:
        """The lines' bytes."""
        return iter([self._lines]) if isinstance(self._lines, bytes) else self._lines.blocks()

    def __reduce__(self) -> tuple[Any, ...]:
        return Part, (self.keys, b"".join(self.blocks()))

    def __sizeof__(self) -> int:
        return len(self._lines) if isinstance(self._lines, bytes) else 0


class Here:
    """What a kernel has in the process where it runs, and leaves there when it travels."""

    _run_file: RunFile | None = None
    _rows_room: Room | None = None

    def file(self) -> RunFile:
        """Where its runs are."""
        if self._run_file is None:
            self._run_file = RunFile()
        return self._run_file

    def room(self) -> Room:
        """What its rows may take."""
        if self._rows_room is None:
            self._rows_room = Room()
        return self._rows_room

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state.pop("_run_file", None)
        state.pop("_rows_room", None)
        return state


class Gathering:
    """The pairs of a split by key, which become runs when they are many."""

    def __init__(self, file: Callable[[], RunFile], room: Room, partitions: int, backup: bool, combines: bool) -> None:
        self.values: dict[Any, Any] = {}
        self._file = file
        self._room = room
        self._backup = backup
        self._combines = combines
        self._runs: list[list[Extent]] = [[] for _ in range(partitions)]
        self._pairs = 0
        self._sampled = 0
        self._sampled_bytes = 0

    def note(self, key: Any, value: Any) -> None:
        """A pair has come: says what such pairs take, and makes a run of what is there when that is much."""
        self._pairs += 1
        if self._pairs % _SAMPLE != 1:
            return
        try:
            self._sampled_bytes += 2 * len(pickle.dumps((key, value), pickle.HIGHEST_PROTOCOL))
        except (pickle.PicklingError, TypeError, AttributeError):
            # As long as there is room nothing is pickled.
            self._sampled_bytes += _ROW_BYTES
        self._sampled += 1
        if self._estimate() > self._room.bytes:
            self._spill()

    def _estimate(self) -> int:
        pairs = len(self.values) if self._combines else self._pairs
        each = self._sampled_bytes // max(self._sampled, 1) + _VALUE_BYTES
        return len(self.values) * _ROW_BYTES + pairs * each

    def _dealt(self) -> list[list[Row]]:
        """The rows of each partition, and none here any more."""
        partitions = len(self._runs)
        dealt: list[list[Row]] = [[] for _ in range(partitions)]
        for key, value in self.values.items():
            to = _native.partition_of_key(as_bytes(key), partitions)
            dealt[to].append((key, [value] if self._combines else value))
        self.values.clear()
        self._pairs = 0
        return dealt

    def _spill(self) -> None:
        for runs, rows in zip(self._runs, self._dealt(), strict=True):
            if rows:
                runs.append(self._file().append(pickled(in_order(rows))))

    def finish(self) -> dict[int, Rows]:
        """What goes to each partition."""
        size = self._estimate()
        if not self._room.take(size):
            self._spill()
            return {to: Rows(runs, []) for to, runs in enumerate(self._runs) if runs}
        dealt = self._dealt()
        total = sum(map(len, dealt)) or 1
        pieces = {}
        for to, (runs, rows) in enumerate(zip(self._runs, dealt, strict=True)):
            if self._backup and rows:
                self._file().append(pickled(rows))
            if runs or rows:
                share = size * len(rows) // total
                pieces[to] = Rows(runs, rows, share, self._room)
                size -= share
                total -= len(rows)
        # What nobody has is nobody's.
        self._room.give(size)
        return pieces


def grouped(pieces: Iterable[Rows], file: Callable[[], RunFile]) -> Iterator[Row]:
    """The rows of some pieces in the order of keys, each key once, its values in the order of the pieces."""
    pieces = list(pieces)
    if not any(piece.runs for piece in pieces):
        return iter(in_order(_united(chain.from_iterable(piece.rest for piece in pieces))))
    sources: list[Callable[[], Iterable[Row]]] = []
    for piece in pieces:
        sources += [run.rows for run in piece.runs]
        if piece.rest:
            sources.append(in_order(piece.rest).__iter__)
    while len(sources) > _RUNS_MAX:
        # Neighbours become one, so values stay in order.
        some = [sources[at : at + _RUNS_MAX] for at in range(0, len(sources), _RUNS_MAX)]
        sources = [file().append(pickled(_merged(few))).rows for few in some]
    return _merged(sources)


def _united(rows: Iterable[Row]) -> Iterable[Row]:
    groups: dict[Any, list[Any]] = {}
    for key, values in rows:
        if key in groups:
            groups[key] += values
        else:
            groups[key] = list(values)
    return groups.items()


def _merged(sources: list[Callable[[], Iterable[Row]]]) -> Iterator[Row]:
    types: set[type] = set()
    merged = heapq.merge(*(source() for source in sources), key=_key_of)
    try:
        for _, rows in groupby(merged, key=_key_of):
            # Text and its bytes compare alike, and are two keys.
            for key, values in _united(rows):
                types.add(type(key))
                yield key, values
    except TypeError as error:
        if len(types) > 1 or "not supported between" in str(error):
            raise _no_order(types, error) from None
        raise


def run_directory() -> str | None:
    """Where files without names are made: None for the system's place."""
    spill = _native.setting("spill")
    directory, _, size = spill.rpartition(":")
    directory = directory if size.isdigit() and directory else spill
    return directory if os.path.isdir(directory) else None

