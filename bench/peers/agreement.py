"""Whether two systems have found the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from peers.workloads import Measure, Tolerance


@dataclass(frozen=True)
class Agreement:
    """By how much one array differs, beside what it may."""

    what: str
    measure: Measure
    found: float
    most: float

    @property
    def holds(self) -> bool:
        # Written so that NaN does not hold.
        return self.found <= self.most

    def __str__(self) -> str:
        return f"{self.what}: {self.measure} {self.found:.1e}, allowed {self.most:.0e}"


def compare(
    theirs: Mapping[str, np.ndarray], ours: Mapping[str, np.ndarray], allowed: Mapping[str, Tolerance]
) -> list[Agreement]:
    """Each named array of theirs beside ours; one that is missing or of another shape differs infinitely."""
    return [
        Agreement(what, tolerance.measure, _distance(tolerance.measure, theirs.get(what), ours[what]), tolerance.most)
        for what, tolerance in allowed.items()
    ]


def _distance(measure: Measure, theirs: np.ndarray | None, ours: np.ndarray) -> float:
    if theirs is None or theirs.shape != ours.shape:
        return float("inf")
    differences = np.abs(theirs.astype(np.float64) - ours)
    match measure:
        case Measure.LARGEST:
            return float(differences.max())
        case Measure.SUM:
            return float(differences.sum())
        case Measure.RELATIVE:
            return float(differences.max() / np.abs(ours).max())
