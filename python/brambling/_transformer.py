"""What models that make tables of others have in common: what these are, and what their columns are called."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from brambling._errors import BuildError, MissingExtra, NotFitted
from brambling._estimator import known_to_scikit_learn
from brambling._texts import shown

_CONTAINERS = ("default", "pandas", "polars")


class Transformer:
    """Beside `Estimator`: `transform` gives an array, or a data frame where `set_output` or scikit-learn's configuration says so."""

    _transforms = True
    n_features_in_: int
    _not_fitted: Callable[[], str]

    def set_output(self, *, transform: str | None = None) -> Self:
        """
        Choose what `transform` and `fit_transform` give.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"} or None, default None
            "default": an array. "pandas", "polars": a data frame of that package, with the names of
            `get_feature_names_out`. None: as it was.

        Examples
        --------
        >>> import brambling as br
        >>> scaler = br.ml.StandardScaler().set_output(transform="polars")
        >>> scaler.fit_transform([[1.0], [3.0]])["x0"].to_list()
        [-1.0, 1.0]
        """
        if transform is None:
            return self
        if transform not in _CONTAINERS:
            raise BuildError(f"transform = {shown(transform)} cannot be used; give {', '.join(map(repr, _CONTAINERS))} or None")
        # By this name scikit-learn's `clone` takes it along.
        self._sklearn_output_config = {"transform": transform}
        return self

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> np.ndarray:
        """
        What the columns that `transform` gives are called.

        Parameters
        ----------
        input_features : array_like of str or None, default None
            The names of the columns that the model was fitted to, where it knows none; otherwise they must be those.
        """
        if "n_features_in_" not in vars(self):
            raise known_to_scikit_learn(NotFitted, "NotFittedError")(self._not_fitted())
        known, columns = vars(self).get("feature_names_in_"), self.n_features_in_
        if input_features is None:
            names = np.array([f"x{at}" for at in range(columns)], dtype=object) if known is None else known
        else:
            names = np.asarray(input_features, dtype=object)
            if known is not None and not np.array_equal(names, known):
                raise BuildError("input_features is not equal to feature_names_in_; give None, or those names")
            if len(names) != columns:
                raise BuildError(
                    f"input_features should have length equal to number of features ({columns}), got {len(names)}; "
                    "give a name for each column"
                )
        return self._names_out(names)

    def _names_out(self, names: np.ndarray) -> np.ndarray:
        """From the names of the columns that came in: the same."""
        return names

    def _framed(self, X: Any, found: np.ndarray) -> Any:
        """What was found of the rows of X, as it was chosen."""
        container = self._container()
        if container == "default":
            return found
        try:
            package = importlib.import_module(container)
        except ImportError as error:
            raise MissingExtra(f"set_output(transform={container!r}) needs {container} ({error}): pip install {container}") from error
        names = self.get_feature_names_out()
        if container == "polars":
            return package.DataFrame(found, schema=names.tolist(), orient="row")
        index = X.index if hasattr(X, "reset_index") else None
        return package.DataFrame(found, index=index, columns=names, copy=False)

    def _container(self) -> str:
        chosen = vars(self).get("_sklearn_output_config", {}).get("transform")
        if chosen is None and "sklearn" in sys.modules:
            chosen = sys.modules["sklearn"].get_config()["transform_output"]
        return chosen or "default"
