"""What is asked of the results of users' functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Truth:
    def __init__(self, stage: str) -> None:
        self._stage = stage

    def __call__(self, result: Any) -> bool:
        if result is None:
            raise TypeError(f"`{self._stage}` returned None, but its answer is True or False; return a boolean")
        return bool(result)


class Pieces:
    """Checks what a scatter's function returns."""

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def __call__(self, pieces: Any) -> dict[int, Any]:
        if not isinstance(pieces, Mapping):
            raise TypeError(
                f"`{self._stage}` returned {type(pieces).__name__}; a scatter returns a mapping "
                "from destination partition to piece"
            )
        return dict(pieces)
