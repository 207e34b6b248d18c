"""Which functions have machine code that worker threads can call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# (kind, bytes of an element, dimensions or None for a number).
Leaf = tuple[str, int, int | None]
# Whether there is a tuple of them.
Layout = tuple[bool, list[Leaf]]
# Address of the code, layout of the result, and what keeps the code alive.
Compile = Callable[[list[Layout]], tuple[int, bool, list[Leaf], Any]]


def compiler_of(f: Any, stage: str, reads: list[str]) -> Compile | None:
    """What makes machine code of a function for its arguments; nothing for a function of the interpreter."""
    from brambling import _numba

    own: Compile | None = getattr(f, "_compile", None)
    if own is not None:
        return own
    if _numba.is_compiled(f):
        return _numba.Compiler(f, stage, reads)
    return None
