"""
What workers compare of functions: their bytes, as cloudpickle makes them.

Many statements have functions that were written once: a lambda in a loop, each time with another number bound to it, or one function again and
again. Of such a function the bytes are made once, without what is bound to it, and that is written behind them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import Any

import numpy as np

from brambling._written import written

_BYTES_MAX = 1 << 16
# Functions whose bytes are remembered, by one key or by two.
_REMEMBERED_MAX = 1_024
# Functions that functions read by name, and those in them.
_DEPTH_MAX = 8
# And all that is looked at of one.
_PARTS_MAX = 64
_PLAIN = frozenset((int, float, complex, str, bytes, bool, type(None)))
# Named by their modules.
_NAMED = (BuiltinFunctionType, ModuleType, np.ufunc)

_remembered: dict[tuple[Any, ...], tuple[bytes, list[Any]]] = {}


def code_of(f: Any) -> bytes | None:
    """A function's bytes, or their digest when they are many; nothing when its parts cannot be pickled."""
    # Here, because they would take a third of the time of `import brambling`.
    import hashlib

    code, plain = _bytes_of(f)
    if code is None:
        return None
    if plain:
        code += repr(plain).encode("utf-8", "surrogatepass")
    return code if len(code) <= _BYTES_MAX else hashlib.sha256(code).digest()


def _bytes_of(f: Any) -> tuple[bytes | None, list[Any]]:
    """The bytes of a function without what is bound to it, and that."""
    plain: list[Any] = []
    alone = _alone(f, plain) if type(f) is FunctionType else None
    known = None if alone is None else _remembered.get(alone)
    if known is not None:
        return known[0], plain
    found = _Found()
    shell = found.part(f, 0)
    if shell is None:
        return _dumped(f), []
    key = tuple(found.key)
    known = _remembered.get(key)
    if known is None:
        code = _dumped(shell())
        if code is None:
            return None, []
        if len(_remembered) >= 2 * _REMEMBERED_MAX:
            _remembered.clear()
        # What the key names by its identity is kept, so that nothing else gets it.
        known = _remembered[key] = code, found.held
    if alone is not None:
        _remembered[alone] = known
    return known[0], found.plain


def _alone(f: FunctionType, plain: list[Any]) -> tuple[Any, ...] | None:
    """
    The key of a lambda that depends on nothing around it but numbers and texts that are bound to it, which are added to `plain`.

    Most functions of long programs are such. What is found of them without this is the same, in more time.
    """
    code = f.__code__
    # Lambdas have no annotations, and no module has their name.
    if f.__name__ != "<lambda>" or written(code).globals or f.__kwdefaults__ or f.__dict__:
        return None
    defaults, cells = f.__defaults__ or (), f.__closure__ or ()
    try:
        plain += defaults
        plain += [cell.cell_contents for cell in cells]
    except ValueError:  # Not assigned yet.
        return None
    for value in plain:
        if type(value) not in _PLAIN:
            return None
    return ("alone", id(code), id(f.__globals__), f.__qualname__, f.__module__, f.__doc__, len(defaults))


def _dumped(f: Any) -> bytes | None:
    import cloudpickle

    try:
        code: bytes = cloudpickle.dumps(f)
    except Exception:  # Whatever its parts raise: on the threads of this process nothing is sent.
        return None
    return code


Shell = Callable[[], Any]


def _nothing() -> None:
    return None


class _Found:
    """What the bytes of a function depend on. Its parts give what makes their shells; nothing for those whose bytes are made each time."""

    def __init__(self, left: list[int] | None = None) -> None:
        # How many parts are still looked at: functions that call each other are many ways through few.
        self.left = [_PARTS_MAX] if left is None else left
        # Functions in packages may be found by name, those imported meanwhile too.
        self.key: list[Any] = [len(sys.modules)]
        self.held: list[Any] = []
        # What is bound to it, which its shell is without.
        self.plain: list[Any] = []

    def part(self, value: Any, depth: int) -> Shell | None:
        if not self.left[0]:
            return None
        self.left[0] -= 1
        kind = type(value)
        if kind in _PLAIN:
            self.plain.append(value)
            return _nothing
        if kind is FunctionType and not _is_importable(value):
            return self._function(value, depth + 1) if depth < _DEPTH_MAX else None
        if kind is functools.partial:
            return self._partial(value, depth + 1) if depth < _DEPTH_MAX else None
        if kind is tuple:
            return self._tuple(value, depth + 1) if depth < _DEPTH_MAX else None
        if kind in _NAMED and isinstance(getattr(value, "__self__", None), ModuleType | None):
            # Its bytes are its name.
            self.held.append(value)
            self.key += (kind, id(value))
            return lambda: value
        if isinstance(value, np.generic) and kind.__module__ == "numpy" and not value.dtype.hasobject:
            self.plain.append((value.dtype.str, value.tobytes()))
            return _nothing
        return None

    def _parts(self, values: Iterable[Any], depth: int) -> list[Shell] | None:
        shells = []
        for value in values:
            shell = self.part(value, depth)
            if shell is None:
                return None
            shells.append(shell)
        return shells

    def _tuple(self, values: tuple[Any, ...], depth: int) -> Shell | None:
        self.key += ("tuple", len(values))
        shells = self._parts(values, depth)
        return None if shells is None else lambda: tuple(shell() for shell in shells)

    def _partial(self, f: functools.partial[Any], depth: int) -> Shell | None:
        self.key += ("partial", len(f.args), tuple(f.keywords))
        shells = None if f.__dict__ else self._parts((f.func, *f.args, *f.keywords.values()), depth)
        if shells is None:
            return None
        named = tuple(f.keywords)

        def shell() -> Any:
            func, *args = (part() for part in shells)
            first = len(args) - len(named)
            return functools.partial(func, *args[:first], **dict(zip(named, args[first:], strict=True)))

        return shell

    def _function(self, f: FunctionType, depth: int) -> Shell | None:
        code, outer = f.__code__, f.__globals__
        if f.__dict__ or not (f.__doc__ is None or type(f.__doc__) is str) or not self._notes(f.__annotations__):
            return None
        self.held += (code, outer)
        self.key += (id(code), id(outer), f.__name__, f.__qualname__, f.__module__, f.__doc__)
        if not all(name not in outer or self._outer(name, outer[name], depth) for name in written(code).globals):
            return None
        defaults, named, cells = f.__defaults__ or (), f.__kwdefaults__ or {}, f.__closure__ or ()
        self.key += (len(defaults), tuple(named), len(cells))
        try:
            bound = [*defaults, *named.values(), *(cell.cell_contents for cell in cells)]
        except ValueError:  # Not assigned yet.
            return None
        shells = self._parts(bound, depth)
        if shells is None:
            return None

        def shell() -> FunctionType:
            parts = iter([part() for part in shells])
            first = tuple(islice(parts, len(defaults)))
            by_name = dict(zip(named, parts, strict=False))
            made = FunctionType(code, outer, f.__name__, first or None, tuple(map(CellType, parts)) or None)
            made.__qualname__, made.__module__, made.__doc__ = f.__qualname__, f.__module__, f.__doc__
            made.__kwdefaults__, made.__annotations__ = by_name or None, f.__annotations__
            return made

        return shell

    def _outer(self, name: str, value: Any, depth: int) -> bool:
        """What a function reads by name stays in its shell, and so does what is bound to that."""
        if type(value) is ModuleType:
            self.held.append(value)
            self.key += (name, id(value))
            return True
        inner = _Found(self.left)
        if inner.part(value, depth) is None:
            return False
        self.held += inner.held
        kinds = tuple(map(type, inner.plain))
        self.key += (name, tuple(inner.key), kinds, repr(inner.plain))
        return True

    def _notes(self, annotations: dict[str, Any]) -> bool:
        for name, note in annotations.items():
            if type(note) is str:
                self.key += (name, note)
            elif isinstance(note, type) and note.__module__ == "builtins":
                self.held.append(note)
                self.key += (name, id(note))
            elif note is not None:
                return False
        return True


def _is_importable(f: FunctionType) -> bool:
    """Whether its bytes may be its name alone: cloudpickle decides."""
    if f.__module__ == "__main__":
        return False
    found: Any = sys.modules.get(f.__module__)
    for name in f.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is f
