"""
An in-memory data-parallel engine for iterative analytics whose workers schedule their own tasks.

Examples
--------
>>> import numpy as np
>>> import brambling as br
>>> p = br.Program("mean")
>>> numbers = p.load(np.arange(10_000.0))
>>> total = p.reduce("sum", p.map(np.sum, numbers))
>>> p.keep(total)
>>> p.run()[total] / 10_000
np.float64(4999.5)
"""

from brambling import graph, kernels, ml
from brambling._errors import (
    BuildError,
    BuildTypeError,
    ConvergenceWarning,
    DataConversionWarning,
    Error,
    KernelError,
    MissingExtra,
    NotFitted,
    NotKept,
    OutOfMemory,
    SettingsError,
    Stalled,
)
from brambling._kernel import Context
from brambling._native import __version__
from brambling._program import Dataset, Exchange, Program, Result, Signal
from brambling._table import Table

__all__ = [
    "BuildError",
    "BuildTypeError",
    "Context",
    "ConvergenceWarning",
    "DataConversionWarning",
    "Dataset",
    "Error",
    "Exchange",
    "KernelError",
    "MissingExtra",
    "NotFitted",
    "NotKept",
    "OutOfMemory",
    "Program",
    "Result",
    "SettingsError",
    "Signal",
    "Stalled",
    "Table",
    "__version__",
    "graph",
    "kernels",
    "ml",
]
