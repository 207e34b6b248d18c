"""What is asked of the results of users' functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from brambling._texts import count, short


class Truth:
    def __init__(self, stage: str) -> None:
        self._stage = stage

    def __call__(self, result: Any) -> bool:
        if result is None:
            raise TypeError(f"`{self._stage}` returned None, but its answer is True or False; return a boolean")
        if isinstance(result, str | bytes):
            raise TypeError(f"`{self._stage}` returned the text {short(result)}, but its answer is True or False; return a boolean")
        try:
            return bool(result)
        except ValueError as error:
            raise TypeError(
                f"`{self._stage}` returned {type(result).__name__} of several values, but its answer is True or False; return one boolean, such "
                "as its any() or all()"
            ) from error


class Pieces:
    """Checks what a scatter's function returns."""

    def __init__(self, stage: str, partitions: int) -> None:
        self._stage = stage
        self._partitions = partitions

    def __call__(self, pieces: Any) -> dict[int, Any]:
        if not isinstance(pieces, Mapping):
            raise TypeError(
                f"`{self._stage}` returned {type(pieces).__name__}; a scatter returns a mapping "
                "from destination partition to piece"
            )
        for destination in pieces:
            is_number = isinstance(destination, int | np.integer) and not isinstance(destination, bool)
            if not is_number or not 0 <= destination < self._partitions:
                raise IndexError(
                    f"`{self._stage}` sends to partition {destination!r}; the {count(self._partitions, 'destination')} of this scatter "
                    f"(its `to`) are counted from 0 to {self._partitions - 1}"
                )
        return dict(pieces)
