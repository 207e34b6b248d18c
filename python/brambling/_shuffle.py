"""Rows of partitions, split by key and joined again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from brambling._native import partition_of_key


class Split:
    """Deals the rows of a partition to the partitions of their keys."""

    def __init__(self, key: Any, partitions: int, tables: bool) -> None:
        self._key = key
        self._partitions = partitions
        # Blocks of several arrays: a row is one item of each.
        self._tables = tables

    def __call__(self, parts: Any) -> dict[int, Any]:
        pieces: dict[int, list[Any]] = {}
        for part in parts if isinstance(parts, list) and self._tables else [parts]:
            for destination, piece in self._split(part):
                pieces.setdefault(destination, []).append(piece)
        return {destination: join(lists) for destination, lists in sorted(pieces.items())}

    def _split(self, part: Any) -> list[tuple[int, Any]]:
        if isinstance(part, np.ndarray) or (
            isinstance(part, tuple) and part and all(isinstance(item, np.ndarray) for item in part)
        ):
            return self._split_arrays(part)
        if not isinstance(part, Sequence) or isinstance(part, str | bytes):
            raise TypeError(
                f"shuffle needs rows, as a list, tuple or array per partition, not {type(part).__name__}"
            )
        key = self._key_of_rows()
        rows: dict[int, list[Any]] = {}
        for row in part:
            rows.setdefault(partition_of_key(key(row), self._partitions), []).append(row)
        return list(rows.items())

    def _key_of_rows(self) -> Callable[[Any], Any]:
        if callable(self._key):
            return self._key
        return lambda row: row[self._key]

    def _split_arrays(self, part: Any) -> list[tuple[int, Any]]:
        arrays = part if isinstance(part, tuple) else (part,)
        if callable(self._key):
            rows = part if isinstance(part, np.ndarray) else zip(*arrays, strict=True)
            keys = [self._key(row) for row in rows]
        elif isinstance(part, tuple):
            keys = arrays[self._key].tolist()
        elif isinstance(self._key, str):
            keys = part[self._key].tolist()
        else:
            keys = part[:, self._key].tolist()
        # Equal keys are hashed once.
        known: dict[Any, int] = {}
        destinations = np.empty(len(keys), dtype=np.int64)
        for place, key in enumerate(keys):
            destination = known.get(key)
            if destination is None:
                destination = known[key] = partition_of_key(key, self._partitions)
            destinations[place] = destination
        pieces = []
        for destination in np.unique(destinations).tolist():
            chosen = destinations == destination
            piece = tuple(array[chosen] for array in arrays)
            pieces.append((destination, piece if isinstance(part, tuple) else piece[0]))
        return pieces


def join(pieces: Sequence[Any]) -> Any:
    """Rows of several pieces, in order."""
    if not pieces:
        return []
    if isinstance(pieces[0], np.ndarray):
        return np.concatenate(pieces)
    if isinstance(pieces[0], tuple):
        return tuple(np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
    return [row for piece in pieces for row in piece]
