"""What functions read from around them."""

from __future__ import annotations

import dis
from types import CodeType
from typing import Any

import numpy as np

from brambling._errors import BuildError


_KNOWN_MAX = 1_024
_known: dict[int, tuple[CodeType, tuple[str, ...]]] = {}


class OuterNames:
    """
    Numbers and texts that functions read by name from around them. A name is read when the program runs: by
    then a loop's variable has its last value, for all the statements that were written with the others.
    """

    def __init__(self) -> None:
        # The holder of a name is kept, so that its identity is not given to another one.
        self._seen: dict[tuple[Any, str, int], tuple[Any, Any]] = {}

    def note(self, f: Any, stage: str) -> None:
        """Refuses a function whose earlier statement was written when such a name had another value."""
        while hasattr(f, "func"):
            f = f.func
        # Of what numba compiled, the function as it was written.
        f = getattr(f, "py_func", f)
        code = getattr(f, "__code__", None)
        if code is None:
            return
        for name, holder, value in _outer_of(f, code):
            key = (code, name, id(holder))
            _, before = self._seen.setdefault(key, (holder, value))
            if before is not value and before != value:
                raise BuildError(
                    f"`{stage}` reads `{name}`, which was {before!r} at an earlier statement with this function and is "
                    f"{value!r} now; it is read when the program runs, and both would see the last value: bind it, as "
                    f"in lambda x, {name}={name}: ..., or with functools.partial"
                )


def _outer_of(f: Any, code: Any) -> list[tuple[str, Any, Any]]:
    """Name, holder and value of what a function reads from around it."""
    found = []
    for name, cell in zip(code.co_freevars, f.__closure__ or (), strict=False):
        try:
            found.append((name, cell, cell.cell_contents))
        except ValueError:  # Not assigned yet.
            continue
    found += [(name, f.__globals__, f.__globals__[name]) for name in globals_of(code) if name in f.__globals__]
    plain = (int, float, complex, str, bytes, np.generic)
    return [(name, holder, value) for name, holder, value in found if isinstance(value, plain)]


def globals_of(code: CodeType) -> tuple[str, ...]:
    """The globals that a function reads, in order, those of comprehensions and functions in it too."""
    known = _known.get(id(code))
    if known is None:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        # The code is kept, so that its identity is not given to another one.
        known = _known[id(code)] = code, tuple(sorted(_globals_of(code)))
    return known[1]


def _globals_of(code: CodeType) -> set[str]:
    names = {it.argval for it in dis.get_instructions(code) if it.opname == "LOAD_GLOBAL"} if code.co_names else set()
    return names.union(*(_globals_of(inner) for inner in code.co_consts if isinstance(inner, CodeType)))
