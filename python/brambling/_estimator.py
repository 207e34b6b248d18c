"""What models have in common: parameters by name, and tables of numbers."""

from __future__ import annotations

import difflib
import functools
import inspect
import sys
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

import numpy as np

from brambling import _arrow, _native
from brambling._arrow import TableLike
from brambling._errors import BuildError, BuildTypeError, MissingExtra, NotFitted, refuse_unreadable
from brambling._report import ModelReport, Work
from brambling._texts import count, named, shown


class Estimator:
    """
    Parameters are the arguments of `__init__`, kept under their names; what `fit` finds ends with `_`.

    A model that is not fitted lacks what its documentation lists, and says so.
    """

    # What a user calls to fit the model.
    _fit = "fit(X)"
    # What scikit-learn calls such a model, and whether its `transform` makes tables of others.
    _kind: ClassVar[str | None]
    # Its name in the engine's registry, where it has one.
    _model: ClassVar[str]
    _transforms: ClassVar[bool] = False
    n_features_in_: int
    seconds_per_iteration_: float
    tally_: dict[str, float]
    _work: Work
    _ledger: _native.Ledger

    def __init_subclass__(cls) -> None:
        """Makes `__init__` answer parameters that it does not have."""
        init = cls.__init__

        @functools.wraps(init)
        def checked(self: Estimator, *args: Any, **parameters: Any) -> None:
            self._check_names_of(args, parameters)
            init(self, *args, **parameters)

        cls.__init__ = checked  # type: ignore[method-assign, assignment]

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_") and not name.startswith("_") and f"{name} : " in self._documented():
            raise AttributeError(f"{name}: {self._not_fitted()}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls).parameters]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; `deep` has no effect."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name."""
        self._check_names_of((), params)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    @classmethod
    def _check_names_of(cls, args: tuple[Any, ...], parameters: dict[str, Any]) -> None:
        for name in parameters:
            if name not in cls._names():
                near = difflib.get_close_matches(name, cls._names(), 1)
                raise BuildTypeError(
                    f"{cls.__name__} has no parameter {name!r}; it has {', '.join(cls._names())}"
                    + (f"; did you mean {near[0]!r}?" if near else "")
                )
        kinds = [parameter.kind for parameter in inspect.signature(cls).parameters.values()]
        unnamed = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if len(args) > unnamed:
            raise BuildTypeError(
                f"{cls.__name__} takes its parameters by name, such as {cls._names()[unnamed]}={shown(args[unnamed])}"
            )

    @property
    def report_(self) -> ModelReport:
        """How near the fit came to what this machine can do. The first look measures that: a second at most."""
        if "_work" not in vars(self):
            raise AttributeError(f"report_: {self._not_fitted()}")
        return ModelReport(self._ledger, self.seconds_per_iteration_, self.tally_, self._work)

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if repr(value) != repr(defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn wants to know of a model; nobody else calls it."""
        from sklearn.utils import ClassifierTags, RegressorTags, Tags, TargetTags, TransformerTags

        classifies, regresses = self._kind == "classifier", self._kind == "regressor"
        return Tags(
            estimator_type=self._kind,
            target_tags=TargetTags(required=classifies or regresses),
            classifier_tags=ClassifierTags() if classifies else None,
            regressor_tags=RegressorTags() if regresses else None,
            transformer_tags=TransformerTags() if self._transforms else None,
        )

    @classmethod
    def _documented(cls) -> str:
        return "".join(base.__doc__ or "" for base in cls.__mro__)

    def _not_fitted(self) -> str:
        return f"this {type(self).__name__} is not fitted yet; call {self._fit} first"

    def _refuse(self, name: str, what: str) -> NoReturn:
        raise BuildError(f"{name} = {shown(getattr(self, name))} cannot be used; give {what}")

    def _keep_columns(self, rows: Rows) -> None:
        """Notes what columns the model is fitted to."""
        self.n_features_in_ = rows.values.shape[1]
        if rows.names is not None:
            self.feature_names_in_ = rows.names
        elif "feature_names_in_" in vars(self):
            del self.feature_names_in_

    def _fit_model(self, rows: Rows, y: np.ndarray | None, weights: np.ndarray | None, **parameters: float) -> dict[str, Any]:
        """What the engine's registry finds for this model: arrays by name."""
        table = rows.values
        found: dict[str, Any] = _native.fit_model(self._model, table, table.shape[1], y, weights, parameters)
        self._keep_columns(rows)
        self.tally_, self._ledger = found["tally"], found["ledger"]
        self.seconds_per_iteration_ = self.tally_["wall_s"]
        return found

    def _table_like_the_fitted(self, X: TableLike, *, singles: bool = False, named: bool = True) -> np.ndarray:
        """Rows for a fitted model: of the columns that it knows, all numbers finite."""
        if "n_features_in_" not in vars(self):
            raise known_to_scikit_learn(NotFitted, "NotFittedError")(self._not_fitted())
        table, names = rows_of(X, singles=singles)
        if named:
            self._check_columns(X, names)
        if table.shape[1] != self.n_features_in_:
            raise BuildError(
                f"X has {table.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input; give the columns that it was fitted to, in the same order"
            )
        refuse_not_finite(table, "X")
        return table

    def _check_columns(self, X: TableLike, names: np.ndarray | None) -> None:
        """Compares columns by their names, in scikit-learn's words, which its tools look for."""
        known, model = vars(self).get("feature_names_in_"), type(self).__name__
        if names is None and known is None:
            return
        if known is None:
            told = f"X has feature names, but {model} was fitted without feature names; fit it to a table that has them"
            warnings.warn(told, UserWarning, stacklevel=distance_of_caller())
        elif names is None:
            told = f"X does not have valid feature names, but {model} was fitted with feature names; give a table that has them"
            warnings.warn(told, UserWarning, stacklevel=distance_of_caller())
        elif not np.array_equal(names, known):
            raise BuildError(
                f"The feature names should match those that were passed during fit.\n{_differences(names, known)}"
                f"Give {_selection(X)}."
            )


class Rows(NamedTuple):
    """A table of numbers, and the names of its columns, where they have any."""

    values: np.ndarray
    names: np.ndarray | None


def _differences(names: np.ndarray, known: np.ndarray) -> str:
    strange, missing = sorted(set(names) - set(known)), sorted(set(known) - set(names))
    if not strange and not missing:
        return "Feature names must be in the same order as they were in fit.\n"
    told = ""
    for what, which in (("unseen at fit time", strange), ("seen at fit time, yet now missing", missing)):
        if which:
            told += f"Feature names {what}:\n" + "".join(f"- {name}\n" for name in which[:5]) + "- ...\n" * (len(which) > 5)
    return told


def _selection(X: TableLike) -> str:
    """How a table's columns are brought in the order of a model."""
    if hasattr(X, "loc"):
        return "X[model.feature_names_in_]"
    if hasattr(X, "select"):
        return "X.select(model.feature_names_in_.tolist())"
    return "the columns of model.feature_names_in_, in that order"


def distance_of_caller() -> int:
    """How many calls lie between whoever calls this and whoever called the package."""
    distance, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "brambling":
        distance, frame = distance + 1, frame.f_back
    return distance


def known_to_scikit_learn(ours: type[Any], theirs: str) -> type[Any]:
    """Our exception or warning; where scikit-learn is loaded also its own, which its tools look for."""
    exceptions = sys.modules.get("sklearn.exceptions")
    if exceptions is None:
        return ours
    return type(ours.__name__, (ours, getattr(exceptions, theirs)), {"__module__": ours.__module__})


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_truth(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def is_count(value: Any) -> bool:
    return is_integer(value) and value >= 1


def rows_of(X: TableLike, *, singles: bool = False) -> Rows:
    """A table of doubles, C-contiguous and aligned; of singles where all of X is of that type and may stay."""
    if hasattr(X, "toarray"):
        raise BuildError("X is sparse, which is not supported yet; give X.toarray()")
    refuse_unreadable(X, "X")
    table, names = _read(X, singles)
    if table.shape == (0,):
        raise BuildError("X has no rows; there is nothing to learn from, or to predict")
    if table.dtype.names is not None:
        raise BuildError(
            f"X is an array of records with the fields {', '.join(map(repr, table.dtype.names))}; "
            "numpy.lib.recfunctions.structured_to_unstructured(X) makes a table of it"
        )
    if table.ndim != 2:
        fix = "Reshape your data: X.reshape(-1, 1) makes one column of it" if table.ndim == 1 else "give rows and columns"
        raise BuildError(f"X has {count(table.ndim, 'dimension')} and shape {table.shape}; it needs 2. {fix}")
    if table.shape[1] == 0:
        raise BuildError(
            f"X has no columns: 0 feature(s) (shape={table.shape}) while a minimum of 1 is required; give at least one"
        )
    if table.dtype.kind == "c":
        raise BuildError(f"Complex data not supported: X holds {table.dtype}; give X.real and X.imag as columns")
    if table.dtype.kind not in "fiub":
        raise BuildError(f"X holds {table.dtype}, not real numbers; encode it as numbers first")
    table = np.require(table, np.float32 if singles and table.dtype == np.float32 else np.float64, ["C", "A"])
    are_texts = names is not None and len(names) and all(isinstance(name, str) for name in names)
    return Rows(table, np.array(names, dtype=object) if are_texts else None)


def _read(X: Any, singles: bool) -> tuple[np.ndarray, Sequence[Any] | None]:
    """A table of some type, and what its columns are called."""
    if not _arrow.is_arrow(X):
        return _array_of(X), _names_of_columns(X)

    def common(*kinds: np.dtype) -> type:
        return np.float32 if singles and all(kind == np.float32 for kind in kinds) else np.float64

    try:
        table, names = _arrow.named_rows(X, "X", common)
    except MissingExtra:
        # NumPy reads what gives itself as an array, such as frames of pandas.
        if not hasattr(X, "__array__"):
            raise
        return _array_of(X), _names_of_columns(X)
    if names is None:
        raise BuildError("X is one column where a table is expected; give a table, which may have one column only")
    # Arrow makes text of what pandas has as names.
    return table, _names_of_columns(X) if hasattr(X, "reset_index") else names


def _array_of(X: Any) -> np.ndarray:
    try:
        table = np.asarray(X)
        return table.astype(np.float64) if table.dtype == object else table
    except (TypeError, ValueError) as error:
        if "inhomogeneous" in str(error):
            raise BuildError("X has rows of different lengths; give every row as many values as the first") from error
        texts, times = _columns_of(X, "OSUT"), _columns_of(X, "mM")
        if texts:
            raise BuildError(f"X has text in {named('column', texts)}; encode it as numbers first, or leave it out") from error
        if times:
            raise BuildError(f"X has times in {named('column', times)}; make numbers of them first, or leave them out") from error
        kind = BuildTypeError if isinstance(error, TypeError) else BuildError
        raise kind(f"X cannot be read as a table of numbers ({error}); encode text as numbers first") from error


def _names_of_columns(X: Any) -> Sequence[Any] | None:
    """The names of a data frame's columns."""
    names = getattr(X, "column_names", getattr(X, "columns", None))
    return None if names is None else list(names)


def _columns_of(X: Any, kinds_wanted: str) -> list[str]:
    """The columns of a data frame whose types are of these kinds of NumPy; a type without a kind is an object's."""
    kinds = getattr(X, "dtypes", None)
    if kinds is None or not hasattr(kinds, "items"):
        return []
    return [name for name, kind in kinds.items() if getattr(kind, "kind", "O") in kinds_wanted]


def refuse_not_finite(table: np.ndarray, what: str) -> None:
    if not np.isfinite(table).all():
        row, column = np.argwhere(~np.isfinite(table))[0].tolist()
        raise BuildError(
            f"{what} has {shown(float(table[row, column]))} at row {row}, column {column} (counted from 0); "
            "replace such values or drop their rows first"
        )
