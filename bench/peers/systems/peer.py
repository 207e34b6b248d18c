"""What every system answers to."""

from __future__ import annotations

import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """What a system is given."""

    data: Path
    scratch: Path
    threads: int
    # Iterations after which results are compared.
    check: int
    # Memory that a system which wants to be told may take.
    memory_mb: int = 1024

    def array(self, name: str) -> np.ndarray:
        """One of the data's arrays, in memory of this process."""
        return np.load(self.data / f"{name}.npy")

    def file(self, name: str) -> Path:
        """The data's file, for who reads it by itself each time."""
        return self.data / name


class Peer(ABC):
    """
    A system with the data loaded and distributed as it likes, before anything is timed.

    `iterate(n)` begins anew each time. What it takes for a few and for more iterations is measured, and the difference told.
    """

    # The distribution whose version is told.
    package: str
    # The threads that it computes on, where they are fewer than it was given.
    threads: int | None = None

    @abstractmethod
    def __init__(self, case: Case) -> None: ...

    @abstractmethod
    def iterate(self, iterations: int) -> Arrays:
        """So many iterations from the start, and what is known after them."""

    def ready(self) -> None:
        """What comes before each timed call of `iterate` and is in no figure."""

    def solve(self, iterations: int) -> Arrays:
        """What is compared with the others: after so many iterations, unless there is a solution to find."""
        return self.iterate(iterations)

    def version(self) -> str:
        return importlib.metadata.version(self.package)

    def close(self) -> None:
        """Give back what would outlive the process."""


def refuse_other_count(found: int, asked: int) -> None:
    """Figures per iteration need as many iterations as were asked for."""
    if int(found) != asked:
        raise RuntimeError(f"it ended after {found} of {asked} iterations, so their time is not known")
