"""Least squares with scikit-learn's manners."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from brambling import _lists, _native
from brambling._arrow import TableLike
from brambling._errors import BuildError, refuse_unreadable
from brambling._estimator import Estimator, is_number, is_truth, rows_of
from brambling._report import Work
from brambling._texts import count, shown
from brambling._weights import weights_of


class _Linear(Estimator):
    """What models of a weighted sum of columns have in common."""

    _fit = "fit(X, y)"
    _kind = "regressor"
    fit_intercept: bool
    coef_: np.ndarray
    intercept_: Any

    def fit(self, X: TableLike, y: TableLike, sample_weight: Any = None) -> Self:
        """
        Learn from rows and their targets.

        Parameters
        ----------
        X : array_like of shape (rows, columns), or a table of pyarrow, polars, pandas and others that speak Arrow
            Borrowed without a copy when it is a C-contiguous array of float64; float32 is converted, and columns are
            copied. NaN, infinities and nulls are refused.
        y : array_like of shape (rows,) or (rows, n_targets), or a column of such a package
            Numbers.
        sample_weight : array_like of shape (rows,) or number, optional
            How much each row's squared error counts.
        """
        self._check_parameters()
        rows = rows_of(X)
        table = rows.values
        targets = _targets(y, len(table), type(self).__name__)
        weights = weights_of(sample_weight, len(table))
        found = self._fit_model(rows, targets, weights, **self._numbers())
        coef, intercept = found["coef"].reshape(-1, table.shape[1]), found["intercept"]
        self.coef_ = coef[0] if targets.ndim == 1 else coef
        if self.fit_intercept:
            self.intercept_ = intercept[0] if targets.ndim == 1 else intercept
        else:
            self.intercept_ = 0.0
        self._keep(found)
        # A product and a sum for each pair of columns, twice.
        order = table.shape[1] + targets.size // len(table)
        self._work = Work(table.nbytes + targets.nbytes, 2.0 * len(table) * order * order)
        return self

    def predict(self, X: TableLike) -> np.ndarray:
        """The target of each row, or the targets."""
        table = self._table_like_the_fitted(X)
        coef = np.require(self.coef_, np.float64, ["C", "A"])
        if coef.ndim == 1:
            return _native.margins(table, coef, float(self.intercept_))
        intercepts = np.require(np.broadcast_to(self.intercept_, len(coef)), np.float64, ["C", "A"])
        found = _native.class_margins(table, coef.reshape(-1), intercepts, probabilities=False)
        return found.reshape(len(table), len(coef))

    def score(self, X: TableLike, y: TableLike, sample_weight: Any = None) -> float:
        """R²: 1 − the squared errors ÷ the squared differences of targets from their mean; of several targets the mean."""
        predicted = self.predict(X)
        targets = _targets(y, len(predicted), type(self).__name__)
        if targets.shape != predicted.shape:
            raise BuildError(f"y has shape {targets.shape}, but predictions have {predicted.shape}; give as many targets as in fit")
        weights = weights_of(sample_weight, len(predicted))
        weights = np.ones(len(predicted)) if weights is None else weights
        weights = (weights / weights.max()).reshape(-1, *[1] * (targets.ndim - 1))
        mean = (weights * targets).sum(axis=0) / weights.sum()
        errors = np.atleast_1d((weights * (targets - predicted) ** 2).sum(axis=0))
        all_of_it = np.atleast_1d((weights * (targets - mean) ** 2).sum(axis=0))
        # Of targets that do not vary, as scikit-learn has it.
        shares = np.where(errors == 0, 0.0, 1.0)
        np.divide(errors, all_of_it, out=shares, where=all_of_it > 0)
        return float(np.mean(1 - shares))

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn wants to know of a model; nobody else calls it."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _numbers(self) -> dict[str, float]:
        raise NotImplementedError

    def _keep(self, found: dict[str, Any]) -> None:
        """Notes what else was found."""

    def _check_parameters(self) -> None:
        if not is_truth(self.fit_intercept):
            self._refuse("fit_intercept", "True or False")


class LinearRegression(_Linear):
    """
    Least squares: minimises ½ Σ (y − X coef − intercept)².

    By QR factorisation of blocks of rows less their means: nothing is squared, so coefficients keep the digits that the columns
    leave them. The result has the same bits on any number of threads and partitions, and on any CPU.

    Parameters
    ----------
    fit_intercept : bool, default True
        Whether an intercept is learnt.
    copy_X : bool, default True
        Has no effect: what is given stays as it is.
    tol : float, default 1e-6
        Directions whose singular value is at most this share of the largest are left out. Of several solutions the shortest is found.
    n_jobs : optional
        Has no effect: all threads take part.
    positive : bool, default False
        Must be False: coefficients of any sign are learnt.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features_in_,) or (n_targets, n_features_in_)
    intercept_ : float or ndarray of shape (n_targets,)
        0.0 where none is learnt.
    rank_ : int
        How many directions were not left out.
    singular_ : ndarray of shape (n_features_in_,)
        The singular values of the columns, less their means where an intercept is learnt.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of a table's columns, where it had any.
    seconds_per_iteration_ : float
        Seconds of the fit: it is one pass.
    tally_ : dict
        What the job did: `tasks`, `wall_s`, `busy_s` (over all threads), `threads`, `peak_bytes`, `sent_bytes` (to workers).
    report_ : Report
        Seconds per iteration, tasks per second, share of the machine's ideal and what bounds it.

    Examples
    --------
    >>> import numpy as np, brambling as br
    >>> X = np.array([[1.0, 1.0], [1.0, 2.0], [2.0, 2.0], [2.0, 3.0]])
    >>> model = br.ml.LinearRegression().fit(X, X @ [1.0, 2.0] + 3.0)
    >>> model.coef_.round(6), round(float(model.intercept_), 6), model.rank_
    (array([1., 2.]), 3.0, 2)
    >>> model.predict([[3.0, 5.0]]).round(6)
    array([16.])
    """

    __module__ = "brambling.ml"

    _model = "LinearRegression"

    def __init__(
        self,
        *,
        fit_intercept: bool = True,
        copy_X: bool = True,
        tol: float = 1e-6,
        n_jobs: int | None = None,
        positive: bool = False,
    ) -> None:
        self.fit_intercept = fit_intercept
        self.copy_X = copy_X
        self.tol = tol
        self.n_jobs = n_jobs
        self.positive = positive

    def _numbers(self) -> dict[str, float]:
        return {"fit_intercept": float(self.fit_intercept), "tol": float(self.tol)}

    def _keep(self, found: dict[str, Any]) -> None:
        self.rank_ = int(found["rank"][0])
        self.singular_ = found["singular"]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not is_number(self.tol) or not 0 <= self.tol < 1:
            self._refuse("tol", "a number from 0 to below 1")
        if not is_truth(self.positive) or self.positive:
            self._refuse("positive", "False: coefficients that must be positive are not learnt here (scikit-learn's LinearRegression does)")


class Ridge(_Linear):
    """
    Least squares with a penalty: minimises Σ (y − X coef − intercept)² + alpha · ‖coef‖², the intercept unpenalised.

    By QR factorisation, as `LinearRegression`; the result has the same bits on any number of threads and partitions, and on any CPU.

    Parameters
    ----------
    alpha : float, default 1.0
        How much the penalty weighs; 0: none.
    fit_intercept : bool, default True
        Whether an intercept is learnt.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features_in_,) or (n_targets, n_features_in_)
    intercept_ : float or ndarray of shape (n_targets,)
        0.0 where none is learnt.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of a table's columns, where it had any.
    seconds_per_iteration_ : float
        Seconds of the fit: it is one pass.
    tally_ : dict
        What the job did: `tasks`, `wall_s`, `busy_s` (over all threads), `threads`, `peak_bytes`, `sent_bytes` (to workers).
    report_ : Report
        Seconds per iteration, tasks per second, share of the machine's ideal and what bounds it.

    Examples
    --------
    >>> import brambling as br
    >>> model = br.ml.Ridge(alpha=2.0).fit([[-1.0], [1.0]], [-2.0, 2.0])
    >>> model.coef_.round(6), round(float(model.intercept_), 6)
    (array([1.]), 0.0)
    """

    __module__ = "brambling.ml"

    _model = "Ridge"

    def __init__(self, alpha: float = 1.0, *, fit_intercept: bool = True) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept

    def _numbers(self) -> dict[str, float]:
        return {"fit_intercept": float(self.fit_intercept), "alpha": float(self.alpha)}

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not is_number(self.alpha) or not self.alpha >= 0 or not np.isfinite(self.alpha):
            self._refuse("alpha", "0 or a positive number")


def _targets(y: TableLike, rows: int, model: str) -> np.ndarray:
    """Numbers, one or several for each row."""
    if y is None:
        raise BuildError(f"{model} requires y to be passed, but the target y is None; give a number for each row")
    refuse_unreadable(y, "y")
    targets, _ = _lists.column(y, "y")
    if targets.dtype.kind == "c":
        raise BuildError(f"Complex data not supported: y holds {targets.dtype}; give real numbers")
    if targets.ndim not in (1, 2) or 0 in targets.shape[1:]:
        raise BuildError(f"y has shape {targets.shape}; give a number for each row, or a column for each target")
    if len(targets) != rows:
        raise BuildError(f"X has {count(rows, 'row')} and y has {count(len(targets), 'target')}; give one for each row")
    if not rows:
        raise BuildError("X has no rows; there is nothing to learn from")
    try:
        if targets.dtype.kind not in "fiubO":
            raise TypeError(f"it holds {targets.dtype}")
        targets = np.require(targets, np.float64, ["C", "A"])
    except (TypeError, ValueError) as error:
        raise BuildError(f"y cannot be read as numbers ({error}); give numbers, or make classes of it for a LogisticRegression") from error
    if not np.isfinite(targets).all():
        row = int(np.argwhere(~np.isfinite(targets))[0][0])
        value = shown(float(targets[row][~np.isfinite(targets[row])][0] if targets.ndim == 2 else targets[row]))
        raise BuildError(f"y has {value} at row {row} (counted from 0); replace such values or drop their rows first")
    return targets
