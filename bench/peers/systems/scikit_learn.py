"""scikit-learn's estimators."""

from __future__ import annotations

import warnings

import numpy as np
import sklearn.cluster
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from peers.systems.peer import Arrays, Case, Peer, refuse_other_count

# Fits are ended early on purpose.
warnings.simplefilter("ignore", ConvergenceWarning)


class LogisticLbfgs(Peer):
    """`LogisticRegression`, whose solver is SciPy's L-BFGS-B."""

    package = "scikit-learn"

    def __init__(self, case: Case) -> None:
        self._X, self._y = case.array("X"), case.array("y")

    def iterate(self, iterations: int) -> Arrays:
        model = LogisticRegression(tol=0, max_iter=iterations).fit(self._X, self._y)
        refuse_other_count(model.n_iter_[0], iterations)
        return _coefficients(model)

    def solve(self, iterations: int) -> Arrays:
        return _coefficients(LogisticRegression(tol=1e-8, max_iter=1000).fit(self._X, self._y))


def _coefficients(model: LogisticRegression) -> Arrays:
    return {"coefficients": np.append(model.coef_, model.intercept_)}


class KMeans(Peer):
    """`KMeans` by Lloyd's iterations from given centres."""

    package = "scikit-learn"

    def __init__(self, case: Case) -> None:
        self._X, self._start = case.array("X"), case.array("start")

    def iterate(self, iterations: int) -> Arrays:
        model = sklearn.cluster.KMeans(
            len(self._start), init=self._start, n_init=1, tol=0, max_iter=iterations, algorithm="lloyd"
        ).fit(self._X)
        refuse_other_count(model.n_iter_, iterations)
        return {"centres": model.cluster_centers_, "inertia": np.array(model.inertia_)}
