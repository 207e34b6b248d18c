"""Logistic regression with scikit-learn's manners."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np

from brambling import _lists, _native
from brambling._arrow import TableLike
from brambling._errors import BuildError, ConvergenceWarning, DataConversionWarning, refuse_unreadable
from brambling._estimator import Estimator, distance_of_caller, is_count, is_number, is_truth, known_to_scikit_learn, rows_of
from brambling._report import Work
from brambling._texts import count, shown
from brambling._weights import class_weights, weights_of

_SOLVERS = ("lbfgs", "gradient-descent")


class LogisticRegression(Estimator):
    """
    Logistic regression: minimises ½‖w‖² + C · Σ log-loss, the intercepts unpenalised.

    Two classes share one row of weights; more have one each, and their softmax is fitted. The result has the same
    bits on any number of threads and partitions, and on any CPU.

    Parameters
    ----------
    C : float, default 1.0
        How much the data weighs against the penalty; infinite, with "lbfgs": there is none.
    fit_intercept : bool, default True
        Whether an intercept is learnt for each row of weights.
    tol : float, default 1e-4
        Stop when no component of the gradient ÷ (C · rows) exceeds this; 0: never. "lbfgs" takes the gradient in units
        of the columns' standard deviations.
    max_iter : int, default 100
        The most iterations.
    solver : {"lbfgs", "gradient-descent"}, default "lbfgs"
        "lbfgs" learns the curvature as it goes, in units of the columns' means and standard deviations: columns of
        unequal size do not slow it. An iteration is one pass over the data, seldom two (Nocedal and Wright, Numerical
        Optimization, 2nd edition, chapters 3 and 7).
        "gradient-descent" takes steps of 1/L, where one extra pass bounds L: an iteration is one pass, and columns of
        equal deviation are learnt fastest. It is for two classes.
    penalty : {"l2", None}, default "l2"
        None: no penalty, whatever `C` is.
    class_weight : dict, "balanced" or None, default None
        How much the rows of each class count, by class (1 where it has none), times their own weights. "balanced": so that all classes
        count alike.
    warm_start : bool, default False
        Whether `fit` begins where the last one ended.
    random_state : optional
        Has no effect: nothing here is random.

    Attributes
    ----------
    coef_ : ndarray of shape (1, n_features_in_) or (n_classes, n_features_in_)
        float64. One row for two classes, otherwise one for each.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    classes_ : ndarray of shape (n_classes,)
    n_iter_ : ndarray of shape (1,)
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        The names of a table's columns, where it had any.
    seconds_per_iteration_ : float
        Mean seconds of an iteration, without the first pass.
    tally_ : dict
        What the job did: `tasks`, `wall_s`, `busy_s` (over all threads), `threads`, `peak_bytes`, `sent_bytes` (to workers).
    report_ : Report
        Seconds per iteration, tasks per second, share of the machine's ideal and what bounds it.

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

    __module__ = "brambling.ml"

    _fit = "fit(X, y)"
    _kind = "classifier"

    def __init__(
        self,
        *,
        C: float = 1.0,
        fit_intercept: bool = True,
        tol: float = 1e-4,
        max_iter: int = 100,
        solver: str = "lbfgs",
        penalty: str | None = "l2",
        class_weight: Any = None,
        warm_start: bool = False,
        random_state: Any = None,
    ) -> None:
        self.C = C
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter
        self.solver = solver
        self.penalty = penalty
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(self, X: TableLike, y: TableLike, sample_weight: Any = None) -> Self:
        """
        Learn from rows and their labels.

        Parameters
        ----------
        X : array_like of shape (rows, columns), or a table of pyarrow, polars, pandas and others that speak Arrow
            Borrowed without a copy when it is a C-contiguous array of float64, or of float32 with "lbfgs"; columns are
            copied. NaN, infinities and nulls are refused.
        y : array_like of shape (rows,), or a column of such a package
            Labels: numbers, booleans or strings, at least two different ones.
        sample_weight : array_like of shape (rows,) or number, optional
            How much each row's loss counts.
        """
        self._check_parameters()
        rows = rows_of(X, singles=self.solver == "lbfgs")
        table = rows.values
        labels, classes = _labels(y, len(table), type(self).__name__)
        if len(classes) > 2 and self.solver != "lbfgs":
            raise BuildError(
                f"y has {len(classes)} classes ({_first(classes)}). Only binary classification is supported by "
                f"solver={self.solver!r}; use solver='lbfgs', or fit one class against the others: y == one_of_them"
            )
        weights = weights_of(sample_weight, len(table))
        weights = class_weights(self.class_weight, classes, labels, weights)
        fitted = _native.fit_logistic(
            table,
            labels,
            table.shape[1],
            len(classes),
            weights=weights,
            start=self._start(table.shape[1], classes),
            lbfgs=self.solver == "lbfgs",
            c=self._strength(),
            fit_intercept=bool(self.fit_intercept),
            tol=float(self.tol),
            max_iter=int(self.max_iter),
        )
        self._keep_columns(rows)
        self.intercept_ = fitted["intercepts"]
        self.coef_ = fitted["coef"].reshape(len(self.intercept_), -1)
        self.classes_ = classes
        self.n_iter_ = np.array([fitted["iterations"]], dtype=np.int32)
        self.seconds_per_iteration_ = fitted["seconds_per_iteration"]
        self.tally_, self._ledger = fitted["tally"], fitted["ledger"]
        # A product and a sum for each weight, and a power for each margin.
        self._work = Work(table.nbytes + labels.nbytes, len(table) * (4.0 * self.coef_.size + 25.0 * len(self.coef_)))
        if not fitted["converged"] and self.tol > 0:
            self._warn(fitted["iterations"], fitted["largest_gradient"])
        return self

    def _strength(self) -> float:
        return float("inf") if self.penalty is None else float(self.C)

    def _start(self, columns: int, classes: np.ndarray) -> list[float] | None:
        """Where the last fit ended, if this one begins there."""
        if not self.warm_start or "coef_" not in vars(self):
            return None
        shape = (1 if len(classes) == 2 else len(classes), columns)
        if self.coef_.shape != shape:
            raise BuildError(
                f"warm_start cannot begin at coef_ of shape {self.coef_.shape}, where X and y lead to {shape}; "
                "give rows of the same columns and classes, or set warm_start=False"
            )
        intercepts = self.intercept_ if self.fit_intercept else np.zeros(len(self.coef_))
        return [*self.coef_.ravel().tolist(), *np.ravel(intercepts).tolist()]

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn wants to know of a model; nobody else calls it."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = self.solver == "lbfgs"
        return tags

    def _warn(self, iterations: int, largest_gradient: float) -> None:
        if iterations < self.max_iter:
            where = f"{count(iterations, 'iteration')}, where rounding hides what is left,"
            fix = "raise tol"
        else:
            where = f"max_iter = {count(self.max_iter, 'iteration')}"
            standardise = "" if self.solver == "lbfgs" else "standardise the columns of X, "
            fix = f"raise max_iter, {standardise}or raise tol"
        warnings.warn(
            f"the fit ended after {where} with a largest gradient component of {largest_gradient:.2g}, "
            f"above tol = {self.tol:g}; {fix}",
            ConvergenceWarning,
            stacklevel=distance_of_caller(),
        )

    def decision_function(self, X: TableLike) -> np.ndarray:
        """
        Margins w · x + b of rows.

        Of shape (rows,) for two classes, positive where the second is the likelier one; otherwise (rows, n_classes),
        greatest for the likeliest.
        """
        table = self._table_like_the_fitted(X, singles=True)
        if len(self.classes_) == 2:
            return _native.margins(table, self._weights(), float(self.intercept_[0]))
        return self._class_margins(table, probabilities=False)

    def predict(self, X: TableLike) -> np.ndarray:
        """The likeliest class of each row."""
        margins = self.decision_function(X)
        if margins.ndim == 1:
            return self.classes_[(margins > 0).astype(np.intp)]
        return self.classes_[margins.argmax(axis=1)]

    def predict_proba(self, X: TableLike) -> np.ndarray:
        """The probabilities of all classes, in the order of `classes_`, for each row."""
        table = self._table_like_the_fitted(X, singles=True)
        if len(self.classes_) == 2:
            margins = _native.margins(table, self._weights(), float(self.intercept_[0]))
            return np.stack([_native.sigmoid(-margins), _native.sigmoid(margins)], axis=1)
        return self._class_margins(table, probabilities=True)

    def predict_log_proba(self, X: TableLike) -> np.ndarray:
        """The logarithms of the probabilities of all classes: where these are too small for a number, too."""
        margins = self.decision_function(X)
        if margins.ndim == 1:
            margins = np.stack([np.zeros(len(margins)), margins], axis=1)
        return _native.log_probabilities(margins, margins.shape[1]).reshape(margins.shape)

    def _weights(self) -> np.ndarray:
        return np.require(self.coef_, np.float64, ["C", "A"]).reshape(-1)

    def _class_margins(self, table: np.ndarray, *, probabilities: bool) -> np.ndarray:
        intercepts = np.require(self.intercept_, np.float64, ["C", "A"])
        found = _native.class_margins(table, self._weights(), intercepts, probabilities=probabilities)
        return found.reshape(len(table), len(self.classes_))

    def score(self, X: TableLike, y: TableLike, sample_weight: Any = None) -> float:
        """The share of rows whose class is predicted, each by its weight."""
        predicted = self.predict(X)
        labels = _column(y, len(predicted))
        if not len(labels):
            raise BuildError("X has no rows; there is nothing to score")
        _refuse_unusable(labels)
        if _are_texts(labels) != _are_texts(self.classes_):
            first = labels[:1].tolist()[0]
            known = " and ".join(map(repr, self.classes_[:2].tolist())) + ", ..." * (len(self.classes_) > 2)
            raise BuildError(
                f"y has {first!r}, but the model was fitted to {known}, and text never equals a number; "
                "give labels of the same kind"
            )
        weights = weights_of(sample_weight, len(labels))
        if weights is None:
            return float(np.mean(predicted == labels))
        # Divided first: the sum of huge ones overflows.
        return float(np.average(predicted == labels, weights=weights / weights.max()))

    def _check_parameters(self) -> None:
        if not is_number(self.C) or not self.C > 0:
            self._refuse("C", "a positive number")
        if self.penalty is not None and not (isinstance(self.penalty, str) and self.penalty == "l2"):
            self._refuse("penalty", "'l2' or None")
        if not is_truth(self.warm_start):
            self._refuse("warm_start", "True or False")
        if not is_number(self.tol) or not self.tol >= 0 or not np.isfinite(self.tol):
            self._refuse("tol", "0 (never stop early) or a positive number")
        if not is_count(self.max_iter):
            self._refuse("max_iter", "an integer of at least 1")
        if not is_truth(self.fit_intercept):
            self._refuse("fit_intercept", "True or False")
        if not isinstance(self.solver, str) or self.solver not in _SOLVERS:
            self._refuse("solver", " or ".join(map(repr, _SOLVERS)))
        if self.solver == "gradient-descent" and self._strength() == float("inf"):
            raise BuildError("solver='gradient-descent' needs a penalty; give a finite C and penalty='l2', or solver='lbfgs'")


def _column(y: TableLike, rows: int) -> np.ndarray:
    """Labels as a vector."""
    refuse_unreadable(y, "y")
    labels, _ = _lists.column(y, "y")
    if labels.ndim == 2 and labels.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; it is taken as its one column: give y.ravel()",
            known_to_scikit_learn(DataConversionWarning, "DataConversionWarning"),
            stacklevel=distance_of_caller(),
        )
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise BuildError(
            f"y has {count(labels.ndim, 'dimension')} and shape {labels.shape}; it needs 1: give one label for each row"
        )
    if len(labels) != rows:
        raise BuildError(f"X has {count(rows, 'row')} and y has {count(len(labels), 'label')}; give one label for each row")
    return labels


def _refuse_unusable(labels: np.ndarray) -> None:
    """Labels that are missing or infinite, and kinds beside each other that no order has."""
    kind, row = labels.dtype.kind, None
    if kind in "fmM":
        is_label = np.isfinite(labels)
        row = None if is_label.all() else int(is_label.argmin())
    elif kind in "OT":
        row = _lists.first_row(labels.tolist(), lambda label: _lists.is_missing(label) or label in (np.inf, -np.inf))
    if row is not None:
        label = labels[row] if kind in "mM" else labels[row : row + 1].tolist()[0]
        raise BuildError(f"y has {shown(label)} at row {row} (counted from 0); replace such labels or drop their rows first")
    if kind == "O":
        _refuse_mixed(labels.tolist())


def _refuse_mixed(labels: list[Any]) -> None:
    kinds = _lists.kinds_of(labels)
    if len(kinds) < 2 or kinds == {"integer", "number"}:
        return
    numbers = {"integer": "number"}
    kinds_by_row = [numbers.get(kind, kind) for kind in (_lists.kind_of(type(label)) for label in labels)]
    row = next(row for row, kind in enumerate(kinds_by_row) if kind != kinds_by_row[0])
    raise BuildError(
        f"y mixes labels that cannot be compared: {shown(labels[row])} at row {row} (counted from 0) is a {kinds_by_row[row]}, "
        f"and row 0 has the {kinds_by_row[0]} {shown(labels[0])}; make them all strings or numbers"
    )


def _are_texts(labels: np.ndarray) -> bool:
    if labels.dtype == object:
        return bool(_lists.kinds_of(labels.tolist()) & {"string", "bytes"})
    return labels.dtype.kind in "UST"


def _first(classes: np.ndarray) -> str:
    return ", ".join(map(str, classes[:5])) + ", ..." * (len(classes) > 5)


def _labels(y: TableLike, rows: int, model: str) -> tuple[np.ndarray, np.ndarray]:
    """The index of each row's class, and the classes."""
    if y is None:
        raise BuildError(f"{model} requires y to be passed, but the target y is None; give a label for each row")
    labels = _column(y, rows)
    if rows == 0:
        raise BuildError("X has no rows; there is nothing to learn from")
    _refuse_unusable(labels)
    if labels.dtype.kind == "f":
        # The usual labels are borrowed as they are, without sorting.
        if labels.dtype == np.float64 and ((labels == 0) | (labels == 1)).all() and labels.any() and not labels.all():
            return np.require(labels, np.float64, ["C", "A"]), np.array([0.0, 1.0])
    if labels.dtype.kind == "c":
        raise BuildError(f"Complex data not supported: y holds {labels.dtype}; give real numbers or strings")
    try:
        classes, indexes = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise BuildError(f"y mixes labels that cannot be compared ({error}); make them all strings or numbers") from error
    if len(classes) == 1:
        raise BuildError(
            f"y has one class only ({classes[0]!s}); there is nothing to tell apart: give rows of several classes"
        )
    if len(classes) > 2 and labels.dtype.kind == "f" and not (classes == np.rint(classes)).all():
        raise BuildError(
            f"y is continuous: it has {len(classes)} different numbers ({_first(classes)}), and this model tells classes "
            "apart; make classes of them, such as y > threshold"
        )
    return indexes.astype(np.float64), classes
