"""Rows of partitions, split by key and joined again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from brambling._errors import BuildTypeError
from brambling._kernel import Context
from brambling._native import partition_of_key
from brambling._texts import count, short


def check_key(key: Any) -> None:
    if key is None or isinstance(key, float | list | dict | set | np.ndarray) or hasattr(key, "_program"):
        raise BuildTypeError(
            f"p.shuffle: key = {short(key)} is not usable; give a function of a row, such as lambda row: row[0], or the number or name of a column"
        )


class Split:
    """Deals the rows of a partition to the partitions of their keys."""

    def __init__(self, key: Any, partitions: int, dataset: str, tables: bool, holders: list[int]) -> None:
        self._key = key
        self._partitions = partitions
        self._dataset = dataset
        # Blocks of several arrays: a row is one item of each.
        self._tables = tables
        # Partitions that have rows, or at least know what rows look like.
        self._holders = holders

    def __call__(self, parts: Any, ctx: Context) -> dict[int, Any]:
        blocks = parts if isinstance(parts, list) and self._tables else [parts]
        pieces: dict[int, list[Any]] = {}
        for part in blocks:
            for destination, piece in self._split(part):
                pieces.setdefault(destination, []).append(piece)
        # Where no row goes, somebody has to say of what type they would have been: each destination hears it from one.
        if blocks and _are_columns(blocks[0]):
            none = join([_rows_where(blocks[0], slice(0))])
            for destination in range(self._partitions):
                if self._holders[destination % len(self._holders)] == ctx.partition:
                    pieces.setdefault(destination, [none])
        return {destination: join(lists) for destination, lists in sorted(pieces.items())}

    def _split(self, part: Any) -> list[tuple[int, Any]]:
        if _are_columns(part):
            return self._split_arrays(part)
        if not isinstance(part, Sequence) or isinstance(part, str | bytes):
            raise TypeError(
                f"shuffle needs rows, as a list, tuple or array per partition, not {type(part).__name__}; let `{self._dataset}` hold such"
            )
        rows: dict[int, list[Any]] = {}
        for place, row in enumerate(part):
            rows.setdefault(self._destination(self._key_of(row, place)), []).append(row)
        return list(rows.items())

    def _destination(self, key: Any) -> int:
        return partition_of_key(key, self._partitions)

    def _key_of(self, row: Any, place: int) -> Any:
        if callable(self._key):
            return self._key(row)
        try:
            return row[self._key]
        except (IndexError, KeyError, TypeError) as error:
            raise TypeError(
                f"row {place} of `{self._dataset}` is {short(row)} and has no item {self._key!r}; give a key that all rows have, or a "
                "function of a row, such as key=lambda row: row"
            ) from error

    def _split_arrays(self, part: Any) -> list[tuple[int, Any]]:
        arrays = part if isinstance(part, tuple) else (part,)
        lengths = {len(array) for array in arrays}
        if len(lengths) > 1:
            raise ValueError(
                f"`{self._dataset}` holds arrays of {' and '.join(map(str, sorted(lengths)))} rows; columns that are shuffled together have "
                "equally many"
            )
        # Equal keys are hashed once.
        known: dict[Any, int] = {}
        keys = self._keys_of(part, arrays)
        destinations = np.empty(len(keys), dtype=np.int64)
        for place, key in enumerate(keys):
            try:
                destination = known.get(key)
            except TypeError:  # Lists and such, which have no hash and are no keys.
                destination = None
            if destination is None:
                destination = self._destination(key)
                known[key] = destination
            destinations[place] = destination
        return [(to, _rows_where(part, destinations == to)) for to in np.unique(destinations).tolist()]

    def _keys_of(self, part: Any, arrays: tuple[np.ndarray, ...]) -> list[Any]:
        key: Callable[[Any], Any] | Any = self._key
        if callable(key):
            return [key(row) for row in (part if isinstance(part, np.ndarray) else zip(*arrays, strict=True))]
        if isinstance(part, tuple):
            column = arrays[key] if _is_place(key, len(arrays)) else self._no_column(f"0 to {len(arrays) - 1}{_OR}")
        elif part.dtype.names is not None:
            column = part[key] if key in part.dtype.names else self._no_column(" or ".join(map(repr, part.dtype.names)) + _OR)
        elif part.ndim == 1:
            column = self._no_column("key=lambda row: row, since each row is one value")
        else:
            column = part[:, key] if _is_place(key, part.shape[1]) else self._no_column(f"0 to {part.shape[1] - 1}{_OR}")
        if column.ndim > 1:
            raise TypeError(
                f"column {key!r} of `{self._dataset}` has {count(column.ndim, 'dimension')}, so its rows are no keys; give a function of a row"
            )
        return column.tolist()

    def _no_column(self, there_are: str) -> Any:
        raise TypeError(f"the rows of `{self._dataset}` have no column {self._key!r}; give {there_are}")


_OR = ", or a function of a row"


def _is_place(key: Any, columns: int) -> bool:
    return isinstance(key, int | np.integer) and not isinstance(key, bool) and -columns <= int(key) < columns


def _are_columns(part: Any) -> bool:
    if isinstance(part, tuple):
        return bool(part) and all(isinstance(item, np.ndarray) for item in part)
    return isinstance(part, np.ndarray)


def _rows_where(part: Any, chosen: Any) -> Any:
    return tuple(array[chosen] for array in part) if isinstance(part, tuple) else part[chosen]


def join(pieces: Sequence[Any]) -> Any:
    """Rows of several pieces, in order."""
    if not pieces:
        return []
    # What has no rows has no say in the type either, unless nothing has.
    pieces = [piece for piece in pieces if len(piece[0] if _are_columns(piece) and isinstance(piece, tuple) else piece)] or pieces[:1]
    if isinstance(pieces[0], np.ndarray):
        return np.concatenate(pieces)
    if isinstance(pieces[0], tuple):
        return tuple(np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
    return [row for piece in pieces for row in piece]
