"""What goes to neighbours and comes from them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from brambling._errors import BuildError, BuildTypeError
from brambling._kernel import Context, name_of
from brambling._texts import short


def offsets_of(neighbours: Any) -> list[int]:
    offsets = list(neighbours) if isinstance(neighbours, Iterable) else []
    if not offsets or not all(isinstance(offset, int | np.integer) and abs(int(offset)) < 1 << 31 for offset in offsets):
        raise BuildError(
            f"p.exchange: neighbours = {short(neighbours)} is not usable; give offsets of partitions, such as (-1, 1)"
        )
    return sorted({int(offset) for offset in offsets})


def check_send(send: Any, wrap: Any) -> None:
    if not isinstance(wrap, bool | np.bool_):
        raise BuildTypeError(f"p.exchange: wrap = {short(wrap)} is not usable; give True or False")
    if send is None:
        return
    if not callable(send):
        raise BuildTypeError(f"p.exchange: send = {short(send)} is not usable; give a function of a value and an offset")
    try:
        inspect.signature(send).bind(None, 0)
    except ValueError:  # Functions of C may not say.
        return
    except TypeError as error:
        raise BuildTypeError(
            f"p.exchange: send = `{name_of(send)}` is called with a value and an offset: {error}; give a function of both"
        ) from None


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
