"""What several systems compute in the same way, in plain NumPy."""

from __future__ import annotations

import numpy as np

# Of gradient descent, in terms of the mean gradient.
STEP = 1.0
DAMPING = 0.85


def logistic_gradient(X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The sum of (p - y) x over rows."""
    p = 1 / (1 + np.exp(-(X @ weights)))
    return X.T @ (p - y)


def k_means_sums(X: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each centre the sum of the rows that are nearest to it, and their number."""
    distances = (centres**2).sum(axis=1) - 2 * (X @ centres.T)
    belongs = (distances.argmin(axis=1)[:, None] == np.arange(len(centres))).astype(np.float64)
    return belongs.T @ X, belongs.sum(axis=0)


def moved(centres: np.ndarray, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Centres at the means of their rows; one without rows stays."""
    return np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)


def inertia(X: np.ndarray, centres: np.ndarray, block: int = 65_536) -> np.ndarray:
    """The sum of squared distances of rows to their nearest centres."""
    total = 0.0
    for first in range(0, len(X), block):
        rows = X[first : first + block]
        nearest = ((centres**2).sum(axis=1) - 2 * (rows @ centres.T)).min(axis=1)
        total += float((nearest + (rows**2).sum(axis=1)).sum())
    return np.array(total)
