"""
What the code of a function says: the same for all functions that were written once, such as a lambda in a loop.

It is found once and remembered, so that a statement costs some microseconds however its function reads.
"""

from __future__ import annotations

import dis
import inspect
import os
from types import CodeType

_KNOWN_MAX = 1_024
_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class Written:
    """
    Attributes
    ----------
    globals : tuple of str
        The globals that the function reads, in order, those of comprehensions and functions in it too.
    reads_around : bool
        Whether it reads anything by name from around it.
    place : str
        Its file and line, as stages of lambdas are called.
    ctx : int, str or None
        Where its parameter named `ctx` stands: at a place among the positional ones, by name, or nowhere.
    computes_later : bool
        Whether a call of it gives something that has yet to be run.
    """

    __slots__ = ("_code", "computes_later", "ctx", "globals", "place", "reads_around")

    def __init__(self, code: CodeType) -> None:
        # Kept, so that its identity is not given to another one.
        self._code = code
        self.globals = tuple(sorted(_globals_of(code)))
        self.reads_around = bool(self.globals or code.co_freevars)
        self.place = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
        self.ctx = _place_of_ctx(code)
        self.computes_later = bool(code.co_flags & _LATER)


_known: dict[int, Written] = {}


def written(code: CodeType) -> Written:
    """What a code says."""
    known = _known.get(id(code))
    if known is None:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        known = _known[id(code)] = Written(code)
    return known


def _globals_of(code: CodeType) -> set[str]:
    names = {it.argval for it in dis.get_instructions(code) if it.opname == "LOAD_GLOBAL"} if code.co_names else set()
    return names.union(*(_globals_of(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def _place_of_ctx(code: CodeType) -> int | str | None:
    positional = code.co_varnames[: code.co_argcount]
    if "ctx" in positional:
        return positional.index("ctx")
    return "ctx" if "ctx" in code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount] else None
