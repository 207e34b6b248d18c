"""Ours: through the package's public face, as its documentation shows."""

from __future__ import annotations

from typing import Any

import brambling as br
import numpy as np

from peers.systems.formulas import DAMPING, STEP
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


class GradientDescent(Brambling):
    """A program with the built-in kernel."""

    def __init__(self, case: Case) -> None:
        self._X, self._y = case.array("X"), case.array("y")

    def iterate(self, iterations: int) -> Arrays:
        share = STEP / len(self._X)
        p = br.Program("gradient descent")
        samples = p.load(self._X, self._y)
        weights = p.dataset("weights", value=np.zeros(self._X.shape[1]))
        with p.loop(iterations):
            local = p.broadcast(weights, like=samples)
            total = p.reduce("sum", p.map(br.kernels.logistic_gradient, samples, local))
            p.update(weights, lambda weights, total: weights - share * total, total)
        return {"weights": p.run()[weights]}


class KMeans(Brambling):
    """`br.ml.KMeans` from given centres."""

    def __init__(self, case: Case) -> None:
        self._X, self._start = case.array("X"), case.array("start")

    def iterate(self, iterations: int) -> Arrays:
        model = br.ml.KMeans(len(self._start), init=self._start, tol=0, max_iter=iterations).fit(self._X)
        refuse_other_count(model.n_iter_, iterations)
        return {"centres": model.cluster_centers_, "inertia": np.array(model.inertia_)}


class PageRank(Brambling):
    """`br.graph.pagerank`."""

    def __init__(self, case: Case) -> None:
        self._edges = case.array("src"), case.array("dst")

    def iterate(self, iterations: int) -> Arrays:
        return {"ranks": br.graph.pagerank(*self._edges, damping=DAMPING, tol=0, iterations=iterations)["rank"]}


def sums_by_key(rows: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The keys that occur, and the sum of each one's values."""
    keys, values = rows
    distinct, places = np.unique(keys, return_inverse=True)
    return distinct, np.bincount(places, weights=values)


class GroupSum(Brambling):
    """Sums of each partition's keys, brought together by key and added up: for keys of any kind, in NumPy kernels."""

    def __init__(self, case: Case) -> None:
        self._columns = case.array("key"), case.array("value")

    def iterate(self, iterations: int) -> Arrays:
        p = br.Program("group sum")
        rows = p.load(*self._columns)
        with p.loop(iterations):
            partial = p.map(sums_by_key, rows, per="partition")
            totals = p.map(sums_by_key, p.shuffle(partial, key=0))
        p.keep(totals)
        parts: list[Any] = [part for part in p.run()[totals] if len(part[0])]
        keys, sums = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(keys)
        return {"keys": keys[order], "sums": sums[order]}


class GroupSumDense(Brambling):
    """A numba kernel that adds into a table with a place for each key: for keys that count from 0."""

    def __init__(self, case: Case) -> None:
        import numba

        self._columns = case.array("key"), case.array("value")
        keys = int(self._columns[0].max()) + 1

        @numba.njit
        def dense_sums(rows):  # type: ignore[no-untyped-def]
            key, value = rows
            sums = np.zeros(keys)
            for row in range(len(key)):
                sums[key[row]] += value[row]
            return sums

        self._kernel = dense_sums

    def iterate(self, iterations: int) -> Arrays:
        p = br.Program("group sum, dense")
        rows = p.load(*self._columns)
        with p.loop(iterations):
            sums = p.reduce("sum", p.map(self._kernel, rows))
        p.keep(sums)
        found = p.run()[sums]
        return {"keys": np.arange(len(found)), "sums": found}
