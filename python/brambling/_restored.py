"""Programs that were kept beside their snapshots: they run without their script, and what they keep goes to files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from brambling import _cluster
from brambling._blas import one_blas_thread
from brambling._errors import BuildError
from brambling._pickled import whole
from brambling._program.result import _owned
from brambling._program.travel import loads


def run(program: bytes, folder: str | os.PathLike[str]) -> None:
    """Run a program here or on the cluster that is connected, and write what it keeps."""
    if program[:4] != b"BRPY":
        raise BuildError("the program is one of Brambling's own, whose script has to take the results; give the script as well")
    loaded = loads(program)
    cluster = _cluster.current()
    if cluster is not None:
        outcome = cluster._native.run(loaded.builder, program, None)
    else:
        with one_blas_thread():
            outcome = loaded.builder.run(None, None)
    for name, dataset in loaded.datasets.items():
        if dataset.kept:
            values = [_owned(value) for value in outcome.values(dataset.id)]
            one = dataset.blocks is None and dataset.partitions == 1
            _write(Path(folder), name, values[0] if one else values, is_blocked=dataset.blocks is not None)


def _write(folder: Path, name: str, value: Any, *, is_blocked: bool) -> None:
    """One dataset: an array as .npy, and everything else as .pickle."""
    array = _array(value, is_blocked)
    # Names are the program's own, and may be anything.
    stem = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name).lstrip(".") or "dataset"
    if array is not None:
        path = _free(folder, stem, ".npy")
        np.save(path, array)
    else:
        path = _free(folder, stem, ".pickle")
        path.write_bytes(whole(value))
    print(f"{name}: {path}", flush=True)


def _free(folder: Path, stem: str, ending: str) -> Path:
    """A name that no other dataset has."""
    path, number = folder / f"{stem}{ending}", 2
    while path.exists():
        path, number = folder / f"{stem}-{number}{ending}", number + 1
    return path


def _array(value: Any, is_blocked: bool) -> np.ndarray | None:
    """What can be an array without changing: numbers and arrays of them; blocks put together."""
    if is_blocked and isinstance(value, list) and value and all(isinstance(part, np.ndarray) for part in value):
        shapes = {(part.shape[1:], part.dtype) for part in value}
        if len(shapes) == 1 and all(part.ndim for part in value):
            value = np.concatenate(value)
    if isinstance(value, np.ndarray | np.generic | float | complex) or type(value) in (int, bool):
        array = np.asarray(value)
        return None if array.dtype == object else array
    return None
