"""How much rows count: weights that are given, and those of classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from brambling import _lists
from brambling._errors import BuildError, refuse_unreadable
from brambling._estimator import is_number
from brambling._texts import count, shown


def weights_of(sample_weight: Any, rows: int) -> np.ndarray | None:
    """Weights as doubles, contiguous; None where all rows count for one."""
    if sample_weight is None:
        return None
    refuse_unreadable(sample_weight, "sample_weight")
    if is_number(sample_weight):
        weights = np.full(rows, float(sample_weight))
    else:
        weights = _column(sample_weight, rows)
    is_weight = np.isfinite(weights) & (weights >= 0)
    if not is_weight.all():
        row = int(is_weight.argmin())
        raise BuildError(
            f"sample_weight has {shown(float(weights[row]))} at row {row} (counted from 0); weights must be 0 or positive numbers"
        )
    if rows and not weights.any():
        raise BuildError("every weight in sample_weight is zero; give a positive one to at least one row")
    return None if (weights == 1).all() else weights


def _column(sample_weight: Any, rows: int) -> np.ndarray:
    weights, _ = _lists.column(sample_weight, "sample_weight")
    if weights.ndim != 1:
        raise BuildError(
            f"sample_weight has {count(weights.ndim, 'dimension')} and shape {weights.shape}; it needs 1: give one weight for each row"
        )
    if len(weights) != rows:
        raise BuildError(
            f"X has {count(rows, 'row')} and sample_weight has {count(len(weights), 'weight')}; give one weight for each row"
        )
    try:
        if weights.dtype.kind not in "fiubO":
            raise TypeError(f"it holds {weights.dtype}")
        return np.require(weights, np.float64, ["C", "A"])
    except (TypeError, ValueError) as error:
        raise BuildError(f"sample_weight cannot be read as numbers ({error}); give one number for each row") from error


def class_weights(given: Any, classes: np.ndarray, indexes: np.ndarray, weights: np.ndarray | None) -> np.ndarray | None:
    """`weights` times those of the rows' classes: of a dict by class, or "balanced", which makes classes count alike."""
    if given is None:
        return weights
    places = indexes.astype(np.intp)
    if isinstance(given, Mapping):
        by_class = _by_class(given, classes)
    elif isinstance(given, str) and given == "balanced":
        counts = np.bincount(places, weights, len(classes)).astype(np.float64)
        # A class whose rows count for nothing has nothing to balance.
        by_class = np.divide(counts.sum(), len(classes) * counts, out=np.zeros(len(classes)), where=counts > 0)
    else:
        raise BuildError(f"class_weight = {shown(given)} cannot be used; give None, 'balanced' or a dict of weights by class")
    weights = by_class[places] if weights is None else weights * by_class[places]
    return weights_of(weights, len(places))


def _by_class(given: Mapping[Any, Any], classes: np.ndarray) -> np.ndarray:
    known = classes.tolist()
    strange = [key for key in given if key not in known]
    missing = [name for name in known if name not in given]
    if strange and missing:
        raise BuildError(
            f"class_weight has a weight for {shown(strange[0])}, which is no class of y, and none for the class {shown(missing[0])}; "
            "give weights by the classes of y"
        )
    for key, weight in given.items():
        if not is_number(weight) or not weight >= 0 or not np.isfinite(weight):
            raise BuildError(f"class_weight[{shown(key)}] = {shown(weight)} cannot be used; give 0 or a positive number")
    return np.array([float(given.get(name, 1.0)) for name in known])
