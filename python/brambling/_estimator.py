"""What models have in common: parameters by name, and tables of numbers."""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from brambling._errors import BuildError, Error, refuse_masked
from brambling._texts import count, shown


class Estimator:
    """
    Parameters are the arguments of `__init__`, kept under their names; what `fit` finds ends with `_`.

    A model that is not fitted lacks what its documentation lists, and says so.
    """

    # What a user calls to fit the model.
    _fit = "fit(X)"
    n_features_in_: int

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
        for name, value in params.items():
            if name not in self._names():
                raise BuildError(
                    f"{type(self).__name__} has no parameter {name!r}; it has {', '.join(self._names())}"
                )
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self)).parameters
        changed = [
            f"{name}={value!r}"
            for name, value in self.get_params().items()
            if repr(value) != repr(defaults[name].default)
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    @classmethod
    def _documented(cls) -> str:
        return "".join(base.__doc__ or "" for base in cls.__mro__)

    def _not_fitted(self) -> str:
        return f"this {type(self).__name__} is not fitted yet; call {self._fit} first"

    def _refuse(self, name: str, what: str) -> None:
        raise BuildError(f"{name} = {shown(getattr(self, name))} cannot be used; give {what}")

    def _table_like_the_fitted(self, X: npt.ArrayLike) -> np.ndarray:
        """Rows for a fitted model: of as many columns as it knows, all numbers finite."""
        if not hasattr(self, "n_features_in_"):
            raise Error(self._not_fitted())
        table = table_of(X)
        if table.shape[1] != self.n_features_in_:
            raise BuildError(
                f"X has {count(table.shape[1], 'column')}, but the model was fitted to {self.n_features_in_}; "
                "give the same columns in the same order"
            )
        refuse_not_finite(table, "X")
        return table


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def table_of(X: npt.ArrayLike) -> np.ndarray:
    if hasattr(X, "toarray"):
        raise BuildError("X is sparse, which is not supported yet; give X.toarray()")
    refuse_masked(X, "X")
    try:
        table = np.asarray(X)
        if table.dtype == object:
            table = table.astype(np.float64)
    except (TypeError, ValueError) as error:
        if "inhomogeneous" in str(error):
            raise BuildError("X has rows of different lengths; give every row as many values as the first") from error
        text = _columns_of_text(X)
        if text:
            raise BuildError(f"X has text in {text}; encode it as numbers first, or leave it out") from error
        raise BuildError(f"X cannot be read as a table of numbers ({error}); encode text as numbers first") from error
    if table.shape == (0,):
        raise BuildError("X has no rows; there is nothing to learn from, or to predict")
    if table.ndim != 2:
        fix = "X.reshape(-1, 1) makes one column of it" if table.ndim == 1 else "give rows and columns"
        raise BuildError(f"X has {count(table.ndim, 'dimension')} and shape {table.shape}; it needs 2: {fix}")
    if table.dtype.kind not in "fiub":
        raise BuildError(f"X holds {table.dtype}, not real numbers; encode it as numbers first")
    return np.require(table, np.float64, ["C", "A"])


def _columns_of_text(X: Any) -> str:
    """The columns of a data frame that hold no numbers."""
    kinds = getattr(X, "dtypes", None)
    if not hasattr(kinds, "items"):
        return ""
    names = [repr(name) for name, kind in kinds.items() if getattr(kind, "kind", "O") not in "fiub"]
    return f"{'column' if len(names) == 1 else 'columns'} {', '.join(names[:5])}{', ...' * (len(names) > 5)}" if names else ""


def refuse_not_finite(table: np.ndarray, what: str) -> None:
    if not np.isfinite(table).all():
        row, column = np.argwhere(~np.isfinite(table))[0].tolist()
        raise BuildError(
            f"{what} has {shown(float(table[row, column]))} at row {row}, column {column} (counted from 0); "
            "replace such values or drop their rows first"
        )
