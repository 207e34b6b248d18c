"""k-means with scikit-learn's manners."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from brambling import _native
from brambling._arrow import TableLike
from brambling._errors import BuildError, ConvergenceWarning
from brambling._estimator import (
    Estimator,
    Rows,
    distance_of_caller,
    is_count,
    is_integer,
    is_number,
    refuse_not_finite,
    rows_of,
)
from brambling._report import Work
from brambling._texts import count, shown
from brambling._transformer import Transformer
from brambling._weights import weights_of

# Apart by this, the seeds of several starts: 2^64 divided by the golden ratio.
_SEED_STEP = 0x9E37_79B9_7F4A_7C15


class KMeans(Transformer, Estimator):
    """
    k-means: centres such that the squared distances of rows to their nearest centres add up to little.

    Lloyd's iterations: each row belongs to its nearest centre, each centre moves to the mean of its rows, and
    a centre without rows moves to a row that is far from its own. The result has the same bits on any number
    of threads and partitions, and on any CPU, and loses no digits where rows are far from the origin.

    Parameters
    ----------
    n_clusters : int, default 8
        How many centres are searched for.
    init : {"k-means++", "random"} or array_like of shape (n_clusters, columns), default "k-means++"
        Where the search begins. "k-means++": rows that are far from one another, each the best of a few that
        were drawn. "random": different rows. Or the centres themselves.
    n_init : "auto" or int, default "auto"
        How many searches are made; the one with the least inertia wins. "auto": 10 for "random", otherwise 1.
        Given centres are searched from once.
    max_iter : int, default 300
        The most iterations of a search: each is one pass over the data.
    tol : float, default 1e-4
        Stop when the squares of the centres' moves add up to at most this share of the columns' mean variance, or no
        row has changed its centre.
    random_state : None, int, RandomState or Generator of NumPy, default None
        The seed of what is drawn. None is 0: a fit can always be repeated.

    Attributes
    ----------
    cluster_centers_ : ndarray of shape (n_clusters, n_features_in_)
    labels_ : ndarray of shape (rows,)
        The index of each row's nearest centre.
    inertia_ : float
        Sum of the squared distances of rows to their nearest centres, as `cluster_centers_` says them.
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of a table's columns, where it had any.
    seconds_per_iteration_ : float
        Mean seconds of an iteration, without the first pass.
    tally_ : dict
        What the search did: `tasks`, `wall_s`, `busy_s` (over all threads), `threads`, `peak_bytes`, `sent_bytes` (to workers).
    report_ : Report
        Seconds per iteration, tasks per second, share of the machine's ideal and what bounds it.

    Examples
    --------
    >>> import numpy as np, brambling as br
    >>> X = np.array([[1.0, 2.0], [1.0, 4.0], [1.0, 0.0], [10.0, 2.0], [10.0, 4.0], [10.0, 0.0]])
    >>> model = br.ml.KMeans(n_clusters=2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.tolist())
    [[1.0, 2.0], [10.0, 2.0]]
    >>> same, other = model.predict([[0.0, 0.0], [12.0, 3.0]])
    >>> bool(same == model.labels_[0] and other == model.labels_[3])
    True
    >>> model.inertia_
    16.0
    """

    __module__ = "brambling.ml"

    _kind = "clusterer"

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: str | npt.ArrayLike = "k-means++",
        n_init: str | int = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: int | np.random.RandomState | np.random.Generator | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: TableLike, y: Any = None, sample_weight: Any = None) -> Self:
        """
        Search for the centres of clusters of rows.

        Parameters
        ----------
        X : array_like of shape (rows, columns), or a table of pyarrow, polars, pandas and others that speak Arrow
            Borrowed without a copy when it is a C-contiguous array of float64; float32 is converted, and columns are
            copied. NaN, infinities and nulls are refused.
        y : optional
            Has no effect: clusters are not taught.
        sample_weight : array_like of shape (rows,) or number, optional
            How much each row counts: centres are weighted means, and so is what `inertia_` adds up.
        """
        self._check_parameters()
        return self._fit_rows(rows_of(X), sample_weight)

    def _fit_rows(self, rows: Rows, sample_weight: Any) -> Self:
        table = rows.values
        weights, unit = _in_a_unit(weights_of(sample_weight, len(table)))
        self._check_rows(table, weights)
        given = None if isinstance(self.init, str) else self._given_centres(table.shape[1])
        best: dict[str, Any] | None = None
        seed = self._seed() if given is None else 0
        for index in range(self._searches()):
            found = self._search(table, weights, given, seed + index * _SEED_STEP)
            if best is None or found["inertia"] < best["inertia"]:
                best = found
        assert best is not None
        self.cluster_centers_ = best["centres"].reshape(self.n_clusters, -1)
        self.labels_ = best["labels"]
        self.inertia_ = best["inertia"] * unit
        self.n_iter_ = best["iterations"]
        self._keep_columns(rows)
        self.seconds_per_iteration_ = best["seconds_per_iteration"]
        self.tally_, self._ledger = best["tally"], best["ledger"]
        # A product with each centre, the sums of rows, and what is read.
        self._work = Work(table.nbytes, 2.0 * table.size * int(self.n_clusters) + table.size)
        self._warn(best["converged"])
        return self

    def predict(self, X: TableLike) -> np.ndarray:
        """The index of each row's nearest centre; the first of equally near ones."""
        return self._nearest(X)[0]

    def transform(self, X: TableLike) -> Any:
        """The distance of each row to each centre; see `set_output`."""
        return self._framed(X, self._distances(self._table_like_the_fitted(X)))

    def fit_predict(self, X: TableLike, y: Any = None, sample_weight: Any = None) -> np.ndarray:
        """`fit`, and the index of each row's nearest centre."""
        return self.fit(X, sample_weight=sample_weight).labels_

    def fit_transform(self, X: TableLike, y: Any = None, sample_weight: Any = None) -> Any:
        """`fit`, and the distance of each row to each centre."""
        self._check_parameters()
        # Read once: a stream is empty afterwards.
        rows = rows_of(X)
        return self._framed(X, self._fit_rows(rows, sample_weight)._distances(rows.values))

    def score(self, X: TableLike, y: Any = None, sample_weight: Any = None) -> float:
        """The sum of the squared distances of rows to their nearest centres, each by its weight, negated."""
        table = self._table_like_the_fitted(X)
        weights, unit = _in_a_unit(weights_of(sample_weight, len(table)))
        return -_native.nearest_centres(table, table.shape[1], self._centres(), weights)[1] * unit

    def _names_out(self, names: np.ndarray) -> np.ndarray:
        return np.array([f"kmeans{at}" for at in range(len(self.cluster_centers_))], dtype=object)

    def _distances(self, table: np.ndarray) -> np.ndarray:
        found = _native.centre_distances(table, table.shape[1], self._centres())
        return found.reshape(len(table), len(self.cluster_centers_))

    def _nearest(self, X: TableLike) -> tuple[np.ndarray, float]:
        table = self._table_like_the_fitted(X)
        return _native.nearest_centres(table, table.shape[1], self._centres())

    def _centres(self) -> np.ndarray:
        return np.require(self.cluster_centers_, np.float64, ["C", "A"])

    def _seed(self) -> int:
        """Drawn from what draws; then fits differ, as scikit-learn has it."""
        if isinstance(self.random_state, np.random.RandomState):
            return int(self.random_state.randint(2**63, dtype=np.uint64))
        if isinstance(self.random_state, np.random.Generator):
            return int(self.random_state.integers(2**63, dtype=np.uint64))
        return int(self.random_state or 0)

    def _search(self, table: np.ndarray, weights: np.ndarray | None, given: np.ndarray | None, seed: int) -> dict[str, Any]:
        """One search, from the centres given or from those that the seed leads to."""
        columns, clusters = table.shape[1], int(self.n_clusters)
        if given is None:
            plus_plus = self.init == "k-means++"
            start = _native.start_k_means(table, columns, clusters, weights=weights, plus_plus=plus_plus, seed=seed % 2**64)
        else:
            start = given
        found = _native.fit_k_means(table, columns, start, weights=weights, tol=float(self.tol), max_iter=int(self.max_iter))
        found["labels"], found["inertia"] = _native.nearest_centres(table, columns, found["centres"], weights)
        return found

    def _searches(self) -> int:
        if not isinstance(self.init, str):
            return 1
        if isinstance(self.n_init, str):
            return 10 if self.init == "random" else 1
        return int(self.n_init)

    def _given_centres(self, columns: int) -> np.ndarray:
        try:
            centres = np.require(self.init, np.float64, ["C", "A"])
        except (TypeError, ValueError) as error:
            self._refuse_init(error)
        if centres.shape != (self.n_clusters, columns):
            raise BuildError(
                f"init has shape {centres.shape}, but X has {count(columns, 'column')} and n_clusters = {self.n_clusters}; "
                f"give an array of shape {(int(self.n_clusters), columns)}"
            )
        refuse_not_finite(centres, "init")
        return centres

    def _refuse_init(self, cause: Exception | None = None) -> None:
        raise BuildError(
            f"init = {self.init!r} cannot be used; give 'k-means++', 'random' or an array of n_clusters rows"
        ) from cause

    def _check_rows(self, table: np.ndarray, weights: np.ndarray | None) -> None:
        if not len(table):
            raise BuildError("X has no rows; there is nothing to learn from")
        if len(table) < self.n_clusters:
            raise BuildError(
                f"X has {count(len(table), 'row')}, fewer than n_clusters = {self.n_clusters}; "
                "give more rows, or ask for fewer clusters"
            )
        weighty = len(table) if weights is None else int(np.count_nonzero(weights))
        if weighty < self.n_clusters:
            raise BuildError(
                f"sample_weight is positive for {count(weighty, 'row')}, fewer than n_clusters = {self.n_clusters}; "
                "give more rows a weight, or ask for fewer clusters"
            )

    def _check_parameters(self) -> None:
        if not is_count(self.n_clusters):
            self._refuse("n_clusters", "an integer of at least 1")
        if not is_count(self.max_iter):
            self._refuse("max_iter", "an integer of at least 1")
        if not (isinstance(self.n_init, str) and self.n_init == "auto") and not is_count(self.n_init):
            self._refuse("n_init", "'auto' or an integer of at least 1")
        if not is_number(self.tol) or not self.tol >= 0 or not np.isfinite(self.tol):
            self._refuse("tol", "0 or a positive number")
        unknown = isinstance(self.init, str) and self.init not in ("k-means++", "random")
        if unknown or self.init is None or callable(self.init):
            self._refuse_init()
        state: Any = self.random_state
        draws = state is None or isinstance(state, np.random.RandomState | np.random.Generator)
        if not draws and not (is_integer(state) and 0 <= state < 2**64):
            self._refuse("random_state", "None or an integer from 0 to 2**64 - 1, or a RandomState or Generator of NumPy")

    def _warn(self, converged: bool) -> None:
        clusters = len(np.unique(self.labels_))
        # A search that is done leaves a centre without rows only where every row is its centre.
        if converged and clusters < self.n_clusters:
            text = (
                f"the rows fell into {count(clusters, 'cluster')}, fewer than n_clusters = {self.n_clusters}; "
                "X has too few different rows: ask for fewer clusters"
            )
        elif not converged and self.tol > 0:
            text = (
                f"the search ended after max_iter = {count(self.max_iter, 'iteration')}, while the centres still moved by more "
                f"than tol = {self.tol:g} allows; raise max_iter, or raise tol"
            )
        else:
            return
        warnings.warn(text, ConvergenceWarning, stacklevel=distance_of_caller())


def _in_a_unit(weights: np.ndarray | None) -> tuple[np.ndarray | None, float]:
    """Weights of which the largest is about 1, and the power of two by which they were divided: sums of huge ones overflow."""
    if weights is None:
        return None, 1.0
    unit = float(np.ldexp(0.5, np.frexp(weights.max())[1]))
    return weights / unit, unit
