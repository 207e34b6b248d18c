"""Map-reduce over the text of files."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, overload

from brambling import _native
from brambling._errors import BuildError, BuildTypeError
from brambling._report import Report
from brambling._texts import short

MAPS = ("words", "lines")
REDUCES = ("sum", "count", "min", "max")

Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
Map = Callable[[str], Iterable[tuple[Any, Any]]]
Reduce = Callable[[Any, list[Any]], Any]
Combine = Callable[[Any, Any], Any]


def _phases(ledger: _native.Ledger) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = json.loads(_native.Report(ledger).map_reduce_steps())
    return steps


class Reduced(dict[Any, Any]):
    """
    What `map_reduce` gives: a dict from key to value, in the order of keys.

    Keys of text come in the order of their bytes in UTF-8.

    Examples
    --------
    >>> import brambling as br, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "text.txt"
    >>> _ = path.write_text("to be or\\nnot to be\\n")
    >>> br.map_reduce(path, "words", "sum")
    {'be': 2, 'not': 1, 'or': 1, 'to': 2}
    """

    def __init__(self, pairs: Any, ledger: _native.Ledger) -> None:
        super().__init__(pairs)
        self._ledger = ledger

    @property
    def report(self) -> Report:
        """How near the job came to what the machine can do."""
        return Report(self._ledger)

    @property
    def phases(self) -> list[dict[str, Any]]:
        """
        Read, map, exchange, reduce and write, each a dict of `name`, `seconds`, `ideal_seconds` and `bytes`.

        Seconds are those of a thread on average, and ideal ones are None without a probe. Empty where functions of Python
        map or reduce.
        """
        return _phases(self._ledger)


class Written:
    """
    What `map_reduce` gives when it has written its result.

    Attributes
    ----------
    files : list of Path
        A file for each partition, with a line `key<TAB>value` for each of its keys, in their order.
    keys : int
        How many keys there are.
    """

    files: list[Path]
    keys: int

    def __init__(self, files: Iterable[Path], keys: int, ledger: _native.Ledger) -> None:
        self.files = [Path(file) for file in files]
        self.keys = keys
        self._ledger = ledger

    @property
    def report(self) -> Report:
        """How near the job came to what the machine can do."""
        return Report(self._ledger)

    @property
    def phases(self) -> list[dict[str, Any]]:
        """
        Read, map, exchange, reduce and write, each a dict of `name`, `seconds`, `ideal_seconds` and `bytes`.

        Seconds are those of a thread on average, and ideal ones are None without a probe. Empty where functions of Python
        map or reduce.
        """
        return _phases(self._ledger)

    def __repr__(self) -> str:
        return f"<{self.keys} keys in {len(self.files)} files>"


@overload
def map_reduce(
    files: Files,
    map: str | Map,
    reduce: str | Reduce,
    combine: Combine | None = None,
    *,
    output: None = None,
    partitions: int | None = None,
    backup: bool = False,
    replication: int = 1,
    threads: int | None = None,
) -> Reduced: ...
@overload
def map_reduce(
    files: Files,
    map: str | Map,
    reduce: str | Reduce,
    combine: Combine | None = None,
    *,
    output: str | os.PathLike[str],
    partitions: int | None = None,
    backup: bool = False,
    replication: int = 1,
    threads: int | None = None,
) -> Written: ...
def map_reduce(
    files: Files,
    map: str | Map,
    reduce: str | Reduce,
    combine: Combine | None = None,
    *,
    output: str | os.PathLike[str] | None = None,
    partitions: int | None = None,
    backup: bool = False,
    replication: int = 1,
    threads: int | None = None,
) -> Reduced | Written:
    """
    Map the lines of files to pairs, bring equal keys together, and reduce the values of each.

    With a built-in map and a built-in reduce the job runs on all threads; functions of Python run on the calling thread.

    Parameters
    ----------
    files : path, pattern such as "logs/*.txt", or list of these
        Text files. They are read in the order in which they are named, those of a pattern by name.
    map : {"words", "lines"} or callable
        A function gets a line without its end, as text, and returns the pairs of it: `(key, value)` each. "words" gives each word
        between ASCII whitespace, "lines" each line, with the value 1.
    reduce : {"sum", "count", "min", "max"} or callable
        A function gets a key and the list of its values, in the order of the text, and returns one value.
    combine : callable, optional
        Makes one value of two, wherever two of one key meet: then a reduce gets few values. The built-in reduces combine by themselves.
    output : path, optional
        A directory that appears when all is written: a file `part-NNNNN` for each partition.
    partitions : int, optional
        Partitions of the result, 1 to 4,096: by default one for each 64 MiB of text, at most 64.
    backup : bool, default False
        Write what maps give to a file without a name before it is sent, in the directory of the setting `spill` or that of the system.
    replication : int, default 1
        On how many workers of a cluster the output is: the copies of parts lie in directories of their own below `output`'s. More than
        1 needs `output`, built-in functions, and as many workers.
    threads : int, optional
        As in `Program.run`.

    Returns
    -------
    Reduced or Written
        A dict in the order of keys; with `output` what was written.

    Raises
    ------
    OSError
        A file cannot be read, or `output` is there already or cannot be written.
    KernelError
        A function raised, on a line that the message names; its exception is the cause.

    Examples
    --------
    >>> import brambling as br, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "flights.txt"
    >>> _ = path.write_text("ATL 5\\nJFK 30\\nATL 12\\n")
    >>> def delay(line):
    ...     airport, minutes = line.split()
    ...     return [(airport, int(minutes))]
    >>> br.map_reduce(path, delay, "max")
    {'ATL': 12, 'JFK': 30}

    References
    ----------
    Dean, Ghemawat: MapReduce: simplified data processing on large clusters (2004).
    """
    paths = _paths(files)
    _check(map, reduce, combine)
    for name, given, most in (("partitions", partitions, 4096), ("replication", replication, None)):
        _check_number(name, given, most)
    if isinstance(map, str) and isinstance(reduce, str) and combine is None:
        found = _native.map_reduce_builtin(
            paths,
            map=map,
            reduce=reduce,
            output=None if output is None else os.fspath(output),
            partitions=None if partitions is None else int(partitions),
            backup=bool(backup),
            replication=int(replication),
            threads=threads,
        )
        if output is None:
            return Reduced(found["pairs"], found["ledger"])
        return Written(found["files"], found["keys"], found["ledger"])
    if replication != 1:
        raise BuildError(
            f"map_reduce: replication = {replication} is not usable with functions of Python: their parts are written by the calling "
            "process; give built-in functions, or leave it out, and copy the directory when it is there"
        )
    # What only functions of Python need is loaded when there are some.
    from brambling._map_reduce_python import Job, pairs_in_order, write

    job = Job(paths, map, reduce, combine, partitions, bool(backup), output is not None)
    if output is None:
        parts, ledger = job.run(threads)
        return Reduced(pairs_in_order(parts), ledger)
    # What stands in the way of the output is told before anything is mapped.
    writer = _native.PartsWriter(os.fspath(output))
    try:
        parts, ledger = job.run(threads)
        return Written(*write(parts, writer), ledger)
    finally:
        writer.abandon()


def _paths(files: Any) -> list[str]:
    """The files, patterns replaced by what they match."""
    if isinstance(files, str | os.PathLike):
        files = [files]
    if not isinstance(files, Sequence) or isinstance(files, bytes):
        raise BuildTypeError(f"map_reduce: files = {short(files)} is not usable; give a path, a pattern, or a list of these")
    paths = []
    for file in files:
        if not isinstance(file, str | os.PathLike):
            raise BuildTypeError(f"map_reduce: files has {short(file)}, which is no path; give text or a pathlib.Path")
        name = os.fspath(file)
        if isinstance(file, str) and glob.has_magic(name) and not os.path.exists(name):
            matched = sorted(it for it in glob.glob(name, recursive=True) if not os.path.isdir(it))
            if not matched:
                raise BuildError(f"map_reduce: no file matches {name!r}; is the pattern right, seen from {os.getcwd()}?")
            paths += matched
        else:
            paths.append(name)
    if not paths:
        raise BuildError("map_reduce: files names no file; give at least one")
    return paths


def _check(map: Any, reduce: Any, combine: Any) -> None:
    for what, given, builtin in (("map", map, MAPS), ("reduce", reduce, REDUCES)):
        if isinstance(given, str) and given not in builtin:
            raise BuildError(f"map_reduce: there is no built-in {what} {given!r}; give {', '.join(builtin[:-1])} or {builtin[-1]}, or a function")
        if not isinstance(given, str) and not callable(given):
            raise BuildTypeError(f"map_reduce: {what} = {short(given)} is not usable; give a function, or the name of a built-in one")
    if combine is not None and not callable(combine):
        raise BuildTypeError(f"map_reduce: combine = {short(combine)} is not usable; give a function of two values, such as operator.add")
    if combine is not None and reduce == "count":
        raise BuildError('map_reduce: reduce = "count" counts values, and combine would leave fewer of them; leave combine out')


def _check_number(name: str, given: Any, most: int | None) -> None:
    if given is None:
        return
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise BuildTypeError(f"map_reduce: {name} = {short(given)} is not usable; give an integer")
    if given < 1 or (most is not None and given > most):
        raise BuildError(f"map_reduce: {name} = {given} is not usable; give {f'1 to {most:,}' if most else 'at least 1'}")
