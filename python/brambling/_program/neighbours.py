"""What goes to neighbours and comes from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from brambling._errors import BuildError
from brambling._kernel import Context


def offsets_of(neighbours: Any) -> list[int]:
    offsets = list(neighbours) if isinstance(neighbours, Iterable) else []
    if not offsets or not all(isinstance(offset, int | np.integer) for offset in offsets):
        raise BuildError(
            f"neighbours = {neighbours!r} is not usable; give offsets of partitions, such as (-1, 1)"
        )
    return sorted({int(offset) for offset in offsets})


class ToNeighbours:
    def __init__(self, offsets: list[int], wrap: bool, send: Callable[[Any, int], Any] | None) -> None:
        self._offsets = offsets
        self._wrap = wrap
        self._send = send

    def __call__(self, value: Any, ctx: Context) -> dict[int, dict[int, Any]]:
        pieces: dict[int, dict[int, Any]] = {}
        for offset in self._offsets:
            # Who hears from me at this offset stands on my other side.
            destination = ctx.partition - offset
            if self._wrap:
                destination %= ctx.partitions
            elif not 0 <= destination < ctx.partitions:
                continue
            piece = value if self._send is None else self._send(value, -offset)
            pieces.setdefault(destination, {})[offset] = piece
        return pieces


def from_neighbours(pieces: dict[int, dict[int, Any]]) -> dict[int, Any]:
    return dict(sorted(item for piece in pieces.values() for item in piece.items()))
