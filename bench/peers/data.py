"""
Data that no file holds: made once for each size from a fixed seed, and read by every system from
the same arrays or files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from peers.files import lines_to_sort, words

Arrays = dict[str, np.ndarray]
Shape = Mapping[str, int]

# To be raised with any change of what is made, so that arrays of an earlier checkout are not taken for these.
_EDITION = 2


def prepared(kind: str, shape: Shape, folder: Path) -> Path:
    """A folder with the arrays or the file of that kind and shape, made unless it is there."""
    name = "-".join([kind, *(f"{key}{value}" for key, value in shape.items()), f"e{_EDITION}"])
    there = folder / name
    if not there.is_dir():
        making = folder / f"{name}.{os.getpid()}"
        making.mkdir(parents=True)
        try:
            if kind in FILES:
                FILES[kind](making, **shape)
            else:
                for key, array in KINDS[kind](**shape).items():
                    np.save(making / f"{key}.npy", array)
            making.rename(there)
        finally:
            shutil.rmtree(making, ignore_errors=True)
    return there


def labelled_rows(rows: int, columns: int) -> Arrays:
    """
    Rows of normal distributions and labels of 0 and 1 that no plane divides.

    Columns are as unequal as in tables that nobody has standardised: otherwise L-BFGS ends after a few iterations, and searches
    in the last of them for what rounding hides.
    """
    rng = np.random.default_rng(1)
    X = rng.standard_normal((rows, columns))
    # Weights of both signs.
    margins = X @ ((np.arange(columns) - columns / 2 + 0.5) / columns) + 0.25
    X *= np.logspace(-1.5, 0, columns)
    noise = rng.logistic(size=rows)
    return {"X": X, "y": (margins + noise > 0).astype(np.float64)}


def rows_in_a_cube(rows: int, columns: int, centres: int) -> Arrays:
    """Rows that lie evenly, so that centres go on moving, and rows at equal distances to begin with."""
    X = np.random.default_rng(2).random((rows, columns))
    return {"X": X, "start": X[np.arange(centres) * rows // centres]}


def kronecker(scale: int, edge_factor: int) -> Arrays:
    """
    Graph500's Kronecker graph (specification 3.0), undirected: without self-loops and duplicates, each edge in both directions.

    Its vertices are numbered anew: those that no edge has are left out.
    """
    rng = np.random.default_rng(3)
    edges = edge_factor << scale
    row, column = np.zeros(edges, np.uint32), np.zeros(edges, np.uint32)
    for _ in range(scale):
        drawn = rng.random(edges, np.float32)
        right, down, both = (drawn >= bound for bound in (0.57, 0.76, 0.95))
        row = row * np.uint32(2) + down
        column = column * np.uint32(2) + (right ^ down ^ both)
    labels = rng.permutation(1 << scale).astype(np.uint32)
    a, b = labels[row], labels[column]
    keys = (np.minimum(a, b).astype(np.uint64) << np.uint64(32)) | np.maximum(a, b)
    keys = np.unique(keys[a != b])
    low, high = (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32)
    occurs = np.zeros(1 << scale, bool)
    occurs[low] = occurs[high] = True
    places = np.cumsum(occurs, dtype=np.uint32) - np.uint32(1)
    low, high = places[low], places[high]
    return {"src": np.concatenate([low, high]), "dst": np.concatenate([high, low])}


def keyed_values(rows: int, keys: int) -> Arrays:
    """A column of keys, 0 to `keys` - 1, drawn evenly, and one of numbers."""
    rng = np.random.default_rng(4)
    return {"key": rng.integers(0, keys, rows), "value": rng.random(rows)}


KINDS: Mapping[str, Callable[..., Arrays]] = {
    "labelled-rows": labelled_rows,
    "rows-in-a-cube": rows_in_a_cube,
    "kronecker": kronecker,
    "keyed-values": keyed_values,
}

FILES: Mapping[str, Callable[..., None]] = {
    "lines-to-sort": lines_to_sort,
    "words": words,
}
