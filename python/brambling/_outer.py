"""What functions read from around them."""

from __future__ import annotations

from typing import Any

import numpy as np

from brambling._errors import BuildError
from brambling._written import written

_PLAIN = (int, float, complex, str, bytes, np.generic)


class OuterNames:
    """
    Numbers and texts that functions read by name from around them. A name is read when the program runs: by
    then a loop's variable has its last value, for all the statements that were written with the others.
    """

    def __init__(self) -> None:
        # The code and the holder of a name are kept, so that their identities are not given to others.
        self._seen: dict[tuple[int, str, int], tuple[Any, Any, Any]] = {}

    def note(self, f: Any, stage: str) -> None:
        """Refuses a function whose earlier statement was written when such a name had another value."""
        while hasattr(f, "func"):
            f = f.func
        # Of what numba compiled, the function as it was written.
        f = getattr(f, "py_func", f)
        code = getattr(f, "__code__", None)
        if code is None or not written(code).reads_around:
            return
        for name, holder, value in _outer_of(f, code):
            key = (id(code), name, id(holder))
            *_, before = self._seen.setdefault(key, (code, holder, value))
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
    found += [(name, f.__globals__, f.__globals__[name]) for name in written(code).globals if name in f.__globals__]
    return [(name, holder, value) for name, holder, value in found if isinstance(value, _PLAIN)]
