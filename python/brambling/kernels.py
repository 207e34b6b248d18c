"""
Kernels that come with the package, for `Program.map`: vectorised machine code that runs on all threads. And `prefetch`, for
kernels that numba compiles, which needs numba.

Examples
--------
>>> import numpy as np, brambling as br
>>> X, y = np.random.default_rng(0).normal(size=(9_000, 3)), np.zeros(9_000)
>>> p = br.Program("gradient")
>>> samples = p.load(X, y)
>>> weights = p.dataset("weights", value=np.zeros(3), partitions=samples.partitions)
>>> total = p.reduce("sum", p.map(br.kernels.logistic_gradient, samples, weights))
>>> p.keep(total)
>>> bool(np.allclose(p.run()[total], X.sum(axis=0) / 2))
True
"""

from __future__ import annotations

from typing import Any

import numpy as np

from brambling import _native
from brambling._compiled import Layout, Made
from brambling._errors import BuildTypeError
from brambling._texts import count

__all__ = ["logistic_gradient"]

_FLOAT64 = "f", 8
_READS: list[Layout] = [(True, [(*_FLOAT64, 2), (*_FLOAT64, 1)]), (False, [(*_FLOAT64, 1)])]


class _LogisticGradient:
    """A kernel: called on arrays, or given to `Program.map`."""

    __name__ = "logistic_gradient"

    def __call__(self, samples: tuple[np.ndarray, np.ndarray], weights: np.ndarray) -> np.ndarray:
        if not isinstance(samples, tuple | list) or len(samples) != 2:
            raise BuildTypeError(f"logistic_gradient reads samples as one pair, (X, y), not {type(samples).__name__}; give (X, y), weights")
        X, y = samples
        for name, array, dimensions in (("X", X, 2), ("y", y, 1), ("weights", weights, 1)):
            if not isinstance(array, np.ndarray) or array.dtype != np.float64 or array.ndim != dimensions:
                what = f"{array.dtype} of {count(array.ndim, 'dimension')}" if isinstance(array, np.ndarray) else type(array).__name__
                raise BuildTypeError(
                    f"logistic_gradient reads {name} as an array of float64 of {count(dimensions, 'dimension')}, not {what}; give "
                    f"numpy.asarray({name}, float)"
                )
        return _native.logistic_gradient(X, y, weights)

    def __repr__(self) -> str:
        return "brambling.kernels.logistic_gradient"

    def __reduce__(self) -> str:
        return "logistic_gradient"

    def _compile(self, layouts: list[Layout]) -> Made:
        if layouts != _READS:
            raise TypeError(
                "logistic_gradient reads (X, y) and weights, all of float64: X by rows, in C order, y and weights of "
                "one dimension; load them with p.load(X, y)"
            )
        return _native.builtin_code("logistic_gradient"), False, [(*_FLOAT64, 1)], "free", self


logistic_gradient = _LogisticGradient()
"""
The gradient of the log-loss over a block: the sum of (p - y) x over its rows.

Parameters
----------
samples : (X, y)
    A block of a table loaded with `p.load(X, y)`: rows of float64, and a label of 0 or 1 for each.
weights : ndarray of float64
    One for each column. p is the sigmoid of a row's product with them.

Returns
-------
ndarray of float64
    One sum for each column; the same bits on every CPU.
"""


def __getattr__(name: str) -> Any:
    # On first use only: numba takes half a second to import, and need not be there.
    if name != "prefetch":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has 'logistic_gradient' and 'prefetch'")
    try:
        from brambling._prefetch import prefetch
    except ImportError as missing:
        raise ImportError("br.kernels.prefetch needs numba: pip install 'brambling[numba]'") from missing
    return prefetch
