"""Why a program cannot be sent to another process: which function captured what."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from brambling._errors import BuildError
from brambling._pickled import apart
from brambling._program.tape import Told
from brambling._reduced import wrapped
from brambling._written import written

_OTHER_PROCESSES = "cannot be sent to other processes"
_WAY_OUT = "make it inside the function, or leave it out and give what it is needed for"


def refusal(told: list[Told], error: Exception) -> BuildError:
    """The error for what could not be pickled, after the statement that has it."""
    for method, args in told:
        for arg in args:
            reason = _refused(arg)
            if reason is None:
                continue
            name = args[1] if method == "gather" else args[0]
            variable, value, reason = _culprit(arg, None, reason, {id(arg)})
            what = f"{_kind(value)} ({reason})"
            if method in ("dataset", "load"):
                where = "its value is" if variable is None else f"it holds `{variable}`,"
                return BuildError(
                    f"dataset `{name}` {_OTHER_PROCESSES}: {where} {what}; make it in a kernel instead"
                )
            where = "it is" if variable is None else f"it captures `{variable}`,"
            return BuildError(f"`{name}` {_OTHER_PROCESSES}: {where} {what}; {_WAY_OUT}")
    return BuildError(f"the program cannot be sent to other processes ({error})")


def why_not(value: Any, error: Exception) -> str:
    """Why a value that a kernel made cannot leave its process, and the way out: `error` is what pickling it raised."""
    variable, part, reason = _culprit(value, None, error, {id(value)})
    what = f"{_kind(part)} ({reason})"
    held = f"it is {what}" if variable is None else f"it holds `{variable}`, {what}"
    return f"its value {_OTHER_PROCESSES}: {held}; keep or send something else, or return it in another form"


def _kind(value: Any) -> str:
    return f"of type {type(value).__name__}"


def _refused(value: Any) -> Exception | None:
    """Why a value cannot be pickled; nothing when it can."""
    try:
        apart(value)
    except Exception as error:  # Whatever the parts of users' objects raise.
        return error
    return None


def _culprit(value: Any, name: str | None, reason: Exception, seen: set[int]) -> tuple[str | None, Any, Exception]:
    """The innermost variable that cannot be pickled, its value, and why."""
    for inner, part in _parts(value, name):
        if id(part) in seen:
            continue
        seen.add(id(part))
        why = _refused(part)
        if why is not None:
            return _culprit(part, inner, why, seen)
    return name, value, reason


def _parts(value: Any, name: str | None) -> Iterator[tuple[str | None, Any]]:
    """What a value holds, by the names under which users know it."""
    if functions := wrapped(value):
        yield from ((name, f) for f in functions)
    elif isinstance(value, FunctionType):
        yield from _captured(value)
    elif isinstance(value, MethodType):
        yield "self", value.__self__
        yield name, value.__func__
    elif isinstance(value, functools.partial):
        yield name, value.func
        yield from ((f"argument {place}", part) for place, part in enumerate(value.args, 1))
        yield from value.keywords.items()
    elif isinstance(value, Mapping):
        yield from ((f"{name or ''}[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, list | tuple | set | frozenset) or (isinstance(value, np.ndarray) and value.dtype == object):
        yield from ((f"{name or ''}[{place}]", part) for place, part in enumerate(value))
    elif isinstance(value, ModuleType):
        yield from ((f"{value.__name__}.{key}", part) for key, part in vars(value).items() if not key.startswith("__"))
    elif hasattr(value, "py_func"):  # What numba has compiled.
        yield name, value.py_func
    elif isinstance(value, type):
        yield from ((f"{value.__name__}.{key}", part) for key, part in vars(value).items() if not key.startswith("__"))
    elif type(value).__module__.startswith("brambling."):
        # What wraps a user's function has no name; programs and datasets that users hold have no inside for them.
        if name is None:
            yield from ((None, part) for _, part in _attributes(value))
    else:
        yield from ((f"{name or type(value).__name__}.{key}", part) for key, part in _attributes(value))
        yield type(value).__name__, type(value)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                yield name, getattr(value, name)


def _captured(f: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # Not assigned yet.
            continue
    code = f.__code__
    defaults = f.__defaults__ or ()
    yield from zip(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount], defaults, strict=True)
    yield from (f.__kwdefaults__ or {}).items()
    yield from ((name, f.__globals__[name]) for name in written(code).globals if name in f.__globals__)
