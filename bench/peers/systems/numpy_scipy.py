"""Plain NumPy and SciPy, as one writes them without an engine."""

from __future__ import annotations

import numpy as np
import scipy.optimize
import scipy.sparse
from scipy.special import expit

from peers.systems.formulas import DAMPING, STEP, logistic_gradient
from peers.systems.peer import Arrays, Case, Peer, refuse_other_count


class LogisticLbfgs(Peer):
    """`scipy.optimize.minimize` of the same objective, written in NumPy."""

    package = "scipy"

    def __init__(self, case: Case) -> None:
        self._X, self._y = case.array("X"), case.array("y")

    def iterate(self, iterations: int) -> Arrays:
        return self._minimise(iterations, 0.0)

    def solve(self, iterations: int) -> Arrays:
        return self._minimise(None, 1e-8)

    def _minimise(self, iterations: int | None, tol: float) -> Arrays:
        found = scipy.optimize.minimize(
            self._loss,
            np.zeros(self._X.shape[1] + 1),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": iterations or 1000, "gtol": tol, "ftol": 0.0},
        )
        if iterations is not None:
            refuse_other_count(found.nit, iterations)
        return {"coefficients": found.x}

    def _loss(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """½‖w‖² + Σ log-loss and its gradient, over rows; the intercept comes last and is not penalised."""
        rows = len(self._X)
        margins = self._X @ w[:-1] + w[-1]
        loss = np.logaddexp(0, margins).sum() - self._y @ margins + 0.5 * w[:-1] @ w[:-1]
        errors = expit(margins) - self._y
        return loss / rows, np.append(self._X.T @ errors + w[:-1], errors.sum()) / rows


class GradientDescent(Peer):
    """A loop over whole arrays."""

    package = "numpy"

    def __init__(self, case: Case) -> None:
        self._X, self._y = case.array("X"), case.array("y")

    def iterate(self, iterations: int) -> Arrays:
        weights = np.zeros(self._X.shape[1])
        for _ in range(iterations):
            weights = weights - STEP / len(self._X) * logistic_gradient(self._X, self._y, weights)
        return {"weights": weights}


class PageRank(Peer):
    """A sparse matrix times a vector, on the one thread that SciPy has for it."""

    package = "scipy"
    threads = 1
    dtype: type = np.float64

    def __init__(self, case: Case) -> None:
        src, dst = case.array("src"), case.array("dst")
        out = np.bincount(src)
        vertices = len(out)
        shares = (1 / out[src]).astype(self.dtype)
        self._links = scipy.sparse.csr_matrix((shares, (dst, src)), shape=(vertices, vertices))
        self._sinks = np.flatnonzero(out == 0)

    def iterate(self, iterations: int) -> Arrays:
        vertices = self._links.shape[0]
        ranks = np.full(vertices, 1 / vertices, self.dtype)
        for _ in range(iterations):
            anew = (DAMPING * ranks[self._sinks].sum() + 1 - DAMPING) / vertices
            ranks = self._links @ ranks
            ranks *= DAMPING
            ranks += self.dtype(anew)
        return {"ranks": ranks}


class PageRankSingle(PageRank):
    """The same in 32 bits."""

    dtype = np.float32


class GroupSum(Peer):
    """`numpy.bincount`: for keys that count from 0, on one thread."""

    package = "numpy"
    threads = 1

    def __init__(self, case: Case) -> None:
        self._key, self._value = case.array("key"), case.array("value")

    def iterate(self, iterations: int) -> Arrays:
        for _ in range(iterations):
            sums = np.bincount(self._key, weights=self._value)
        return {"keys": np.arange(len(sums)), "sums": sums}
