"""What is compared, with whom, at which sizes, and how near results have to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SIZES = ("small", "medium", "large")


class Measure(StrEnum):
    """How the distance of two arrays is taken."""

    LARGEST = "largest difference"
    SUM = "sum of differences"
    RELATIVE = "largest difference ÷ largest value"


@dataclass(frozen=True)
class Tolerance:
    """The most by which a peer's result may differ from ours."""

    measure: Measure
    most: float


@dataclass(frozen=True)
class Entry:
    """A system in a workload."""

    name: str
    # module:class
    of: str
    # It is timed for so many iterations, few and more; the difference counts.
    iterations: tuple[int, int]
    # Where that would take too long or be too short, by size.
    iterations_at: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    # Sizes at which it is left out, with the reason.
    absurd: Mapping[str, str] = field(default_factory=dict)
    # Where it computes less exactly than ours.
    allowed: Mapping[str, Tolerance] = field(default_factory=dict)

    def counts(self, size: str) -> tuple[int, int]:
        return self.iterations_at.get(size, self.iterations)


@dataclass(frozen=True)
class Workload:
    """One thing that all systems do."""

    name: str
    what: str
    # A kind of `data`, and its shape by size.
    data: str
    shapes: Mapping[str, Mapping[str, int]]
    # Iterations after which results are compared.
    check: int
    allowed: Mapping[str, Tolerance]
    ours: Entry
    peers: tuple[Entry, ...]


LOGISTIC_LBFGS = Workload(
    name="logistic-lbfgs",
    what="logistic regression by L-BFGS, an iteration",
    data="labelled-rows",
    shapes={
        "small": {"rows": 20_000, "columns": 20},
        "medium": {"rows": 1_000_000, "columns": 20},
        "large": {"rows": 10_000_000, "columns": 20},
    },
    # To convergence, at tol = 1e-8.
    check=0,
    allowed={"coefficients": Tolerance(Measure.LARGEST, 1e-5)},
    ours=Entry("brambling", "peers.systems.brambling:LogisticLbfgs", (2, 8)),
    peers=(Entry("scikit-learn", "peers.systems.scikit_learn:LogisticLbfgs", (2, 8)),),
)

WORKLOADS = (LOGISTIC_LBFGS,)
