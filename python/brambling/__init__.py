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

from typing import TYPE_CHECKING, Any

from brambling._cluster import Cluster, connect
from brambling._errors import (
    BuildError,
    BuildTypeError,
    ClusterError,
    ClusterWarning,
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
    StoreError,
    VersionMismatch,
)
from brambling._ideal import IdealOperation, IdealPhase, IdealTime, OverProvisioned, model
from brambling._kernel import Context
from brambling._map_reduce import Reduced, Written, map_reduce
from brambling._native import __version__
from brambling._program import Dataset, Exchange, Program, Result, Signal
from brambling._report import ModelReport, Report
from brambling._store import clears_at_exit
from brambling._table import Table

clears_at_exit()

if TYPE_CHECKING:
    from brambling import coflow, graph, kernels, ml

__all__ = [
    "BuildError",
    "BuildTypeError",
    "Cluster",
    "ClusterError",
    "Context",
    "ClusterWarning",
    "ConvergenceWarning",
    "DataConversionWarning",
    "Dataset",
    "Error",
    "Exchange",
    "IdealOperation",
    "IdealPhase",
    "IdealTime",
    "KernelError",
    "MissingExtra",
    "ModelReport",
    "NotFitted",
    "NotKept",
    "OutOfMemory",
    "OverProvisioned",
    "Program",
    "Reduced",
    "Report",
    "Result",
    "SettingsError",
    "Signal",
    "Stalled",
    "StoreError",
    "Table",
    "VersionMismatch",
    "Written",
    "__version__",
    "coflow",
    "connect",
    "graph",
    "kernels",
    "map_reduce",
    "ml",
    "model",
]

_ON_FIRST_USE = frozenset({"coflow", "graph", "kernels", "ml"})


def __getattr__(name: str) -> Any:
    """Imports a part of the package when it is first asked for: who writes programs does not wait for the models."""
    if name in _ON_FIRST_USE:
        from importlib import import_module
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | _ON_FIRST_USE)
