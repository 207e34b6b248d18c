"""Columns of mean 0 and deviation 1."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from brambling._arrow import TableLike
from brambling._errors import BuildError
from brambling._estimator import Estimator, Rows, is_truth, rows_of
from brambling._report import Work
from brambling._transformer import Transformer
from brambling._weights import weights_of


class StandardScaler(Transformer, Estimator):
    """
    Columns less their means, divided by their standard deviations.

    The result has the same bits on any number of threads and partitions, and on any CPU, and loses no digits where rows are far
    from the origin.

    Parameters
    ----------
    copy : bool, default True
        Has no effect: what is given stays as it is.
    with_mean : bool, default True
        Whether the mean is subtracted.
    with_std : bool, default True
        Whether columns are divided by their deviations.

    Attributes
    ----------
    mean_ : ndarray of shape (n_features_in_,) or None
        None where neither means nor deviations are wanted.
    var_ : ndarray of shape (n_features_in_,) or None
        The mean squared deviation; None without `with_std`.
    scale_ : ndarray of shape (n_features_in_,) or None
        What columns are divided by: the root of `var_`, and 1 where a column does not vary; None without `with_std`.
    n_samples_seen_ : int or float
        The rows; where they had weights, what these add up to.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of a table's columns, where it had any.
    seconds_per_iteration_ : float
        Seconds of the pass.
    tally_ : dict
        What the job did: `tasks`, `wall_s`, `busy_s` (over all threads), `threads`, `peak_bytes`, `sent_bytes` (to workers).
    report_ : Report
        Seconds per iteration, tasks per second, share of the machine's ideal and what bounds it.

    Examples
    --------
    >>> import brambling as br
    >>> scaler = br.ml.StandardScaler().fit([[0.0, 5.0], [4.0, 5.0]])
    >>> scaler.mean_, scaler.scale_
    (array([2., 5.]), array([2., 1.]))
    >>> scaler.transform([[6.0, 6.0]])
    array([[2., 1.]])
    >>> scaler.inverse_transform([[2.0, 1.0]])
    array([[6., 6.]])
    """

    __module__ = "brambling.ml"

    _model = "StandardScaler"
    _kind = None
    # What has been seen: the rows or their weight, means and variances.
    _seen: tuple[float, np.ndarray, np.ndarray]

    def __init__(self, *, copy: bool = True, with_mean: bool = True, with_std: bool = True) -> None:
        self.copy = copy
        self.with_mean = with_mean
        self.with_std = with_std

    def fit(self, X: TableLike, y: Any = None, sample_weight: Any = None) -> Self:
        """
        Find the columns' means and deviations.

        Parameters
        ----------
        X : array_like of shape (rows, columns), or a table of pyarrow, polars, pandas and others that speak Arrow
            Borrowed without a copy when it is a C-contiguous array of float64; float32 is converted, and columns are
            copied. NaN, infinities and nulls are refused.
        y : optional
            Has no effect.
        sample_weight : array_like of shape (rows,) or number, optional
            How much each row counts.
        """
        self._check_parameters()
        return self._fit_rows(rows_of(X), sample_weight)

    def partial_fit(self, X: TableLike, y: Any = None, sample_weight: Any = None) -> Self:
        """`fit`, beside the rows that were seen already."""
        self._check_parameters()
        if "_seen" not in vars(self):
            return self._fit_rows(rows_of(X), sample_weight)
        rows = Rows(self._table_like_the_fitted(X), vars(self).get("feature_names_in_"))
        return self._fit_rows(rows, sample_weight, self._seen, self.n_samples_seen_)

    def _fit_rows(self, rows: Rows, sample_weight: Any, seen: Any = None, n_seen: Any = 0) -> Self:
        weights = weights_of(sample_weight, len(rows.values))
        found = self._fit_model(rows, None, weights)
        weight, means, variances = float(found["weight"][0]), found["means"], found["variances"]
        self.n_samples_seen_ = n_seen + (len(rows.values) if weights is None else weight)
        if seen is not None:
            weight, means, variances = _together(seen, (weight, means, variances))
        self._seen = weight, means, variances
        # Below this a variance is the rounding of its column, as scikit-learn has it.
        rounding = np.finfo(np.float64).eps * weight
        constant = variances <= rounding * variances + (rounding * means) ** 2
        self.mean_ = means if self.with_mean or self.with_std else None
        self.var_ = variances if self.with_std else None
        self.scale_ = np.where(constant, 1.0, np.sqrt(variances)) if self.with_std else None
        # A sum, a difference and a square for each value.
        self._work = Work(rows.values.nbytes, 5.0 * rows.values.size)
        return self

    def transform(self, X: TableLike, copy: bool | None = None) -> Any:
        """Columns less their means, divided by their deviations; a new table. `copy` has no effect."""
        return self._framed(X, self._scaled(self._table_like_the_fitted(X)))

    def fit_transform(self, X: TableLike, y: Any = None, sample_weight: Any = None) -> Any:
        """`fit`, and `transform` of the same rows."""
        self._check_parameters()
        # Read once: a stream is empty afterwards.
        rows = rows_of(X)
        return self._framed(X, self._fit_rows(rows, sample_weight)._scaled(rows.values))

    def inverse_transform(self, X: TableLike, copy: bool | None = None) -> np.ndarray:
        """What `transform` would make X of; an array. `copy` has no effect."""
        table = self._table_like_the_fitted(X, named=False)
        if self.with_std:
            table = table * self.scale_
        return table + self.mean_ if self.with_mean else np.array(table)

    def _scaled(self, table: np.ndarray) -> np.ndarray:
        if self.with_mean:
            table = table - self.mean_
        return table / self.scale_ if self.with_std else np.array(table)

    def _check_parameters(self) -> None:
        for name in ("copy", "with_mean", "with_std"):
            if not is_truth(getattr(self, name)):
                self._refuse(name, "True or False")


def _together(
    first: tuple[float, np.ndarray, np.ndarray], second: tuple[float, np.ndarray, np.ndarray]
) -> tuple[float, np.ndarray, np.ndarray]:
    """Of two sets of rows: what they weigh, their means and variances."""
    (here, means, variances), (there, other_means, other_variances) = first, second
    weight = here + there
    apart = other_means - means
    if not np.isfinite(weight):
        raise BuildError("the sum of sample_weight overflows; divide the weights by their largest")
    share = there / weight
    between = apart * apart * (share * (1 - share))
    return weight, means + apart * share, variances + (other_variances - variances) * share + between
