"""How long a job would take on hardware that is used to the full: the model, and what it says."""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

from brambling import _native
from brambling._errors import BuildError, BuildTypeError

# What a number without a unit is, and how a text is written.
_KINDS = {
    "size": ("bytes", "1TB"),
    "rate": ("bytes per second", "260MB/s"),
    "time": ("seconds", "62s"),
}
# Beyond it not every whole number is a float.
_COUNT_MAX = 2**53


@dataclass(frozen=True)
class IdealOperation:
    """
    What one node moves in a phase.

    Attributes
    ----------
    name : str
        Such as "disk read (input)".
    resource : str
        "disk" or "network".
    bytes : float
        How much one node moves.
    seconds : float
        How long its resource needs for it.
    """

    name: str
    resource: str
    bytes: float
    seconds: float


@dataclass(frozen=True)
class IdealPhase:
    """
    One of the two phases of a job.

    Attributes
    ----------
    name : str
        "map", which ends when all is exchanged, or "reduce".
    seconds : float
        The larger of the next two.
    disk_seconds : float
        How long the disks are used.
    network_seconds : float
        How long the network is used.
    bound_by : str or None
        "disk" or "network", whichever is used for longer; None where nothing is moved.
    operations : tuple of IdealOperation
        What the phase moves.
    """

    name: str
    seconds: float
    disk_seconds: float
    network_seconds: float
    bound_by: str | None
    operations: tuple[IdealOperation, ...]


@dataclass(frozen=True)
class OverProvisioned:
    """
    How much of each resource could be absent: 1 - the least speed that gives the same ideal time / the given speed.

    Attributes
    ----------
    disk : float
        Of the disks, for reads and writes alike.
    network : float
        Of the network.
    """

    disk: float
    network: float


@dataclass(frozen=True)
class IdealTime:
    """
    What `model` says; `print` shows it as `brambling model` does.

    Attributes
    ----------
    ideal_seconds : float
        How long the job takes where the slowest resource of each phase is used to the full.
    phases : tuple of IdealPhase
        Map and reduce.
    bound_by : str or None
        What bounds the longer phase: "disk" or "network".
    nodes_for : int or None
        The smallest number of nodes whose ideal time is at most the time that the job took; None without `took`.
    over_provisioned : OverProvisioned
        How much of each resource could be absent.
    """

    ideal_seconds: float
    phases: tuple[IdealPhase, ...]
    bound_by: str | None
    nodes_for: int | None
    over_provisioned: OverProvisioned
    # No field: it has no key, and follows from what was given.
    _text: ClassVar[str] = ""

    def __str__(self) -> str:
        return self._text or repr(self)


def model(
    *,
    nodes: int,
    input: str | float,
    disk_read: str | float,
    disk_write: str | float,
    network: str | float,
    replication: int = 1,
    map_ratio: float = 1.0,
    reduce_ratio: float = 1.0,
    external: bool = False,
    backup: bool = False,
    took: str | float | None = None,
) -> IdealTime:
    """
    Say how long a job of map, exchange, sort and reduce would take on hardware that is used to the full.

    Units are decimal: "1TB" is 10^12 bytes, and "1TiB" is 2^40. Speeds are those of one node, its disks taken together.

    Parameters
    ----------
    nodes : int
        How many nodes the cluster has.
    input : str or float
        The input of the whole job, such as "1TB", or a number of bytes.
    disk_read, disk_write, network : str or float
        What a node reads, writes and sends, such as "260MB/s" or "10Gbit/s", or numbers of bytes per second.
    replication : int
        On how many nodes the output is stored; 1 is no replication.
    map_ratio, reduce_ratio : float
        Bytes that the map and the reduce make of one: 1 and 1 for a sort, 0 and 1 for a grep.
    external : bool
        Memory is too small for the sort: sorted batches are written to disk and read again.
    backup : bool
        What the map makes is also written to disk, against failures.
    took : str or float, optional
        How long the job took, such as "62s", or a number of seconds.

    Returns
    -------
    IdealTime

    Raises
    ------
    BuildError
        A unit is missing or unknown, or something is negative or zero that must not be.

    Examples
    --------
    >>> import brambling as br
    >>> speeds = dict(disk_read="260MB/s", disk_write="260MB/s", network="110MB/s")
    >>> answer = br.model(nodes=1460, input="1TB", took="62s", **speeds)
    >>> round(answer.ideal_seconds, 2), answer.bound_by, answer.nodes_for
    (8.86, 'network', 208)
    >>> print(answer)
    ideal        8.86 s on 1460 nodes
    took         62 s: 7.0 × the ideal, 14.3 % of its speed
    enough       208 nodes, used to the full; n × ideal ÷ took: 209
    bound by     network, in the map phase
    <BLANKLINE>
    map          6.22 s, bound by network; a node moves
      disk read (input)      685 MB    2.63 s
      network (exchange)     684 MB    6.22 s
    <BLANKLINE>
    reduce       2.63 s, bound by disk; a node moves
      disk write (output)    685 MB    2.63 s
    """
    found, text = _native.ideal_time(
        nodes=_count("nodes", nodes),
        input=_quantity("input", input, "size"),
        disk_read=_quantity("disk_read", disk_read, "rate"),
        disk_write=_quantity("disk_write", disk_write, "rate"),
        network=_quantity("network", network, "rate"),
        replication=_count("replication", replication),
        map_ratio=_ratio("map_ratio", map_ratio),
        reduce_ratio=_ratio("reduce_ratio", reduce_ratio),
        external=bool(external),
        backup=bool(backup),
        took=None if took is None else _quantity("took", took, "time"),
    )
    return _answer(json.loads(found), text.rstrip("\n"))


def _answer(found: dict[str, Any], text: str) -> IdealTime:
    phases = tuple(
        IdealPhase(**phase | {"operations": tuple(IdealOperation(**it) for it in phase["operations"])})
        for phase in found["phases"]
    )
    spare = OverProvisioned(**found["over_provisioned"])
    answer = IdealTime(**found | {"phases": phases, "over_provisioned": spare})
    object.__setattr__(answer, "_text", text)
    return answer


def _quantity(name: str, given: object, kind: str) -> float:
    """Bytes, bytes per second or seconds of what was given."""
    unit, example = _KINDS[kind]
    if isinstance(given, str):
        try:
            return _native.quantity(given, kind)
        except ValueError as error:
            raise BuildError(f"{name} = {given!r}: {error}") from None
    if isinstance(given, bool) or not isinstance(given, Real):
        raise BuildTypeError(f"{name} is {given!r}; give text such as {example!r}, or a number of {unit}")
    return _float(name, given)


def _count(name: str, given: object) -> int:
    try:
        count = operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise BuildTypeError(f"{name} is {given!r}; give a whole number, such as 3") from None
    if isinstance(given, bool) or not 1 <= count <= _COUNT_MAX:
        raise BuildError(f"{name} is {given!r}; give a whole number of at least 1, such as 3")
    return count


def _ratio(name: str, given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, Real):
        raise BuildTypeError(f"{name} is {given!r}; give a number of at least 0, such as 0.25")
    return _float(name, given)


def _float(name: str, given: Real) -> float:
    try:
        return float(given)
    except OverflowError:
        raise BuildError(f"{name} is beyond what a number can hold; give less") from None
