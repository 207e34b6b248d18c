"""Ours: through the package's public face, as its documentation shows."""

from __future__ import annotations

import brambling as br
import numpy as np

from peers.systems.peer import Arrays, Case, Peer, refuse_other_count


class Brambling(Peer):
    """What all of ours have in common; threads come from BRAMBLING_THREADS."""

    def version(self) -> str:
        return br.__version__


class LogisticLbfgs(Brambling):
    """`br.ml.LogisticRegression`, by L-BFGS."""

    def __init__(self, case: Case) -> None:
        self._X, self._y = case.array("X"), case.array("y")

    def iterate(self, iterations: int) -> Arrays:
        model = br.ml.LogisticRegression(tol=0, max_iter=iterations).fit(self._X, self._y)
        refuse_other_count(model.n_iter_[0], iterations)
        return _coefficients(model)

    def solve(self, iterations: int) -> Arrays:
        return _coefficients(br.ml.LogisticRegression(tol=1e-8, max_iter=1000).fit(self._X, self._y))


def _coefficients(model: br.ml.LogisticRegression) -> Arrays:
    return {"coefficients": np.append(model.coef_, model.intercept_)}
