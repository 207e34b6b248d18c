"""Models with scikit-learn's manners."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from brambling import _native
from brambling._errors import BuildError, ConvergenceWarning, refuse_masked
from brambling._estimator import Estimator, is_number, table_of
from brambling._k_means import KMeans
from brambling._texts import count, shown

__all__ = ["KMeans", "LogisticRegression"]

_SOLVERS = ("gradient-descent",)


class LogisticRegression(Estimator):
    """
    Logistic regression for two classes: minimises ½‖w‖² + C · Σ log-loss, the intercept unpenalised.

    The result has the same bits on any number of threads and partitions, and on any CPU.

    Parameters
    ----------
    C : float, default 1.0
        How much the data weighs against the penalty.
    fit_intercept : bool, default True
        Whether an intercept is learnt.
    tol : float, default 1e-4
        Stop when no component of the gradient ÷ (C · rows) exceeds this; 0: never.
    max_iter : int, default 100
        The most iterations: each is one pass over the data.
    solver : {"gradient-descent"}
        The step is 1/L, where one extra pass bounds L. Columns of equal deviation are learnt fastest.
    random_state : optional
        Has no effect: nothing here is random.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features_in_)
    intercept_ : ndarray of shape (1,)
    classes_ : ndarray of shape (2,)
    n_iter_ : ndarray of shape (1,)
    n_features_in_ : int
    seconds_per_iteration_ : float
        Mean seconds of an iteration, without the first pass.
    tally_ : dict
        What the job did: `tasks`, `wall_s`, `busy_s` (over all threads), `threads`, `peak_bytes`.

    Examples
    --------
    >>> import numpy as np, brambling as br
    >>> X = np.array([[-2.0], [-1.0], [1.0], [2.0]])
    >>> model = br.ml.LogisticRegression().fit(X, ["late", "late", "on time", "on time"])
    >>> model.predict([[-1.5], [3.0]])
    array(['late', 'on time'], dtype='<U7')
    >>> model.score(X, ["late", "late", "on time", "late"])
    0.75
    """

    _fit = "fit(X, y)"

    def __init__(
        self,
        *,
        C: float = 1.0,
        fit_intercept: bool = True,
        tol: float = 1e-4,
        max_iter: int = 100,
        solver: str = "gradient-descent",
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> Self:
        """
        Learn from rows and their labels.

        Parameters
        ----------
        X : array_like of shape (rows, columns)
            Borrowed without a copy when it is a C-contiguous array of float64. NaN and infinities are
            refused.
        y : array_like of shape (rows,)
            Two different labels: numbers, booleans or strings.
        """
        self._check_parameters()
        table = table_of(X)
        labels, classes = _labels(y, len(table))
        fitted = _native.fit_logistic(
            table,
            labels,
            table.shape[1],
            c=float(self.C),
            fit_intercept=bool(self.fit_intercept),
            tol=float(self.tol),
            max_iter=int(self.max_iter),
        )
        self.coef_ = fitted["coef"].reshape(1, -1)
        self.intercept_ = np.array([fitted["intercept"]])
        self.classes_ = classes
        self.n_iter_ = np.array([fitted["iterations"]], dtype=np.int32)
        self.n_features_in_ = table.shape[1]
        self.seconds_per_iteration_ = fitted["seconds_per_iteration"]
        self.tally_ = fitted["tally"]
        if not fitted["converged"] and self.tol > 0:
            warnings.warn(
                f"the fit ended after max_iter = {count(self.max_iter, 'iteration')} with a largest gradient component of "
                f"{fitted['largest_gradient']:.2g}, above tol = {self.tol:g}; raise max_iter, standardise the "
                "columns of X, or raise tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def decision_function(self, X: npt.ArrayLike) -> np.ndarray:
        """Margins w · x + b of rows: positive where the second class is the likelier one."""
        table = self._table_like_the_fitted(X)
        return _native.margins(table, np.ascontiguousarray(self.coef_[0]), float(self.intercept_[0]))

    def predict(self, X: npt.ArrayLike) -> np.ndarray:
        """The likelier class of each row."""
        margins = self.decision_function(X)
        return self.classes_[(margins > 0).astype(np.intp)]

    def predict_proba(self, X: npt.ArrayLike) -> np.ndarray:
        """The probabilities of both classes, in the order of `classes_`, for each row."""
        margins = self.decision_function(X)
        return np.stack([_native.sigmoid(-margins), _native.sigmoid(margins)], axis=1)

    def score(self, X: npt.ArrayLike, y: npt.ArrayLike) -> float:
        """The share of rows whose class is predicted."""
        predicted = self.predict(X)
        labels = _column(y, len(predicted))
        if not len(labels):
            raise BuildError("X has no rows; there is nothing to score")
        kinds = labels.dtype.kind, self.classes_.dtype.kind
        if "O" not in kinds and (kinds[0] in "UST") != (kinds[1] in "UST"):
            first, (a, b) = labels[:1].tolist()[0], self.classes_.tolist()
            raise BuildError(
                f"y has {first!r}, but the model was fitted to {a!r} and {b!r}, and text never equals a number; "
                "give labels of the same kind"
            )
        return float(np.mean(predicted == labels))

    def _check_parameters(self) -> None:
        if not is_number(self.C) or not self.C > 0 or not np.isfinite(self.C):
            self._refuse("C", "a positive number")
        if not is_number(self.tol) or not self.tol >= 0 or not np.isfinite(self.tol):
            self._refuse("tol", "0 (never stop early) or a positive number")
        if not isinstance(self.max_iter, int | np.integer) or isinstance(self.max_iter, bool) or self.max_iter < 1:
            self._refuse("max_iter", "an integer of at least 1")
        if not isinstance(self.fit_intercept, bool | np.bool_):
            self._refuse("fit_intercept", "True or False")
        if self.solver not in _SOLVERS:
            self._refuse("solver", " or ".join(map(repr, _SOLVERS)))


def _column(y: npt.ArrayLike, rows: int) -> np.ndarray:
    refuse_masked(y, "y")
    labels = np.asarray(y)
    if labels.ndim != 1:
        fix = "give y.ravel()" if labels.ndim == 2 and labels.shape[1] == 1 else "give one label for each row"
        raise BuildError(f"y has {count(labels.ndim, 'dimension')} and shape {labels.shape}; it needs 1: {fix}")
    if len(labels) != rows:
        raise BuildError(f"X has {count(rows, 'row')} and y has {count(len(labels), 'label')}; give one label for each row")
    return labels


def _refuse_missing(labels: np.ndarray) -> None:
    """None, NaN, and what pandas writes for them, among labels of any kind."""
    for row, label in enumerate(labels):
        if label is None or type(label).__name__ in ("NAType", "NaTType") or (isinstance(label, float) and label != label):
            raise BuildError(
                f"y has {shown(label)} at row {row} (counted from 0); replace such labels or drop their rows first"
            )


def _labels(y: npt.ArrayLike, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels 0 and 1, and what they stand for."""
    labels = _column(y, rows)
    if rows == 0:
        raise BuildError("X has no rows; there is nothing to learn from")
    if labels.dtype.kind == "f":
        if not np.isfinite(labels).all():
            row = int(np.argmin(np.isfinite(labels)))
            raise BuildError(
                f"y has {shown(float(labels[row]))} at row {row} (counted from 0); replace such labels or drop their rows first"
            )
        # The usual labels are borrowed as they are, without sorting.
        if labels.dtype == np.float64 and ((labels == 0) | (labels == 1)).all() and labels.any() and not labels.all():
            return np.require(labels, np.float64, ["C", "A"]), np.array([0.0, 1.0])
    if labels.dtype == object:
        _refuse_missing(labels)
    try:
        classes = np.unique(labels)
    except TypeError as error:
        raise BuildError(f"y mixes labels that cannot be compared ({error}); make them all strings or numbers") from error
    if len(classes) == 1:
        raise BuildError(
            f"y has one class only ({classes[0]!s}); there is nothing to tell apart: give rows of both classes"
        )
    if len(classes) > 2:
        first = ", ".join(map(str, classes[:5])) + (", ..." if len(classes) > 5 else "")
        if labels.dtype.kind == "f" and not (classes == np.rint(classes)).all():
            raise BuildError(
                f"y has {len(classes)} different numbers ({first}), and two classes are supported; "
                "this model tells classes apart: make two of them, such as y > threshold"
            )
        raise BuildError(
            f"y has {len(classes)} classes ({first}), and two are supported; "
            "fit one class against the others: y == one_of_them"
        )
    return (labels == classes[1]).astype(np.float64), classes
