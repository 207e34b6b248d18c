"""How fast a fit was, beside what the machine can do."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

import numpy as np

from brambling import _native

# Larger than what caches hold; a table beyond it is read no slower.
_LARGEST_PROBE_BYTES = 256 << 20
_SMALLEST_PROBE_BYTES = 64 << 10


@dataclass(frozen=True)
class Work:
    """What an iteration cannot do without."""

    read_bytes: float
    flops: float


@dataclass(frozen=True)
class Report:
    """
    How fast a fit was.

    Attributes
    ----------
    seconds_per_iteration : float
        Mean seconds of an iteration, without the first pass.
    tasks_per_second : float
        Tasks of the whole job by the second.
    share_of_ideal : float
        Seconds that the machine would need at least for an iteration ÷ seconds that it took.
    bound_by : str
        What decides the least: "memory bandwidth" or "arithmetic".
    """

    seconds_per_iteration: float
    tasks_per_second: float
    share_of_ideal: float
    bound_by: str

    def __str__(self) -> str:
        return (
            f"{self.seconds_per_iteration * 1e3:.3g} ms an iteration, {self.tasks_per_second:,.0f} tasks/s, "
            f"{self.share_of_ideal:.0%} of ideal, bound by {self.bound_by}"
        )


def report(seconds: float, tally: dict[str, float], work: Work) -> Report:
    """Compares with what this machine can do, which is measured once for each size of a table."""
    threads = min(int(tally["threads"]), len(os.sched_getaffinity(0)))
    bound = {
        "memory bandwidth": work.read_bytes / _bandwidth(threads, _probe_bytes(work.read_bytes)),
        "arithmetic": work.flops / _arithmetic_rate(threads),
    }
    bound_by = max(bound, key=bound.__getitem__)
    return Report(
        seconds_per_iteration=seconds,
        tasks_per_second=tally["tasks"] / tally["wall_s"],
        share_of_ideal=bound[bound_by] / seconds,
        bound_by=bound_by,
    )


def _probe_bytes(read_bytes: float) -> int:
    """A power of two, so that few sizes are measured."""
    least = max(int(read_bytes), _SMALLEST_PROBE_BYTES)
    return min(1 << (least - 1).bit_length(), _LARGEST_PROBE_BYTES)


@functools.cache
def _bandwidth(threads: int, size: int) -> float:
    return _native.read_bandwidth(np.ones(size // 8), threads, 3)


@functools.cache
def _arithmetic_rate(threads: int) -> float:
    return _native.arithmetic_rate(threads)
