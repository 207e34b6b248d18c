"""Functions that numba has compiled, as machine code that worker threads call without the interpreter."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from brambling._compiled import Entry, Layout, Leaf, Made
from brambling._errors import BuildError
from brambling._kernel import ReadOnlyWrite
from brambling._numba_code import entry_of, type_of, wrapper
from brambling._texts import count


def is_compiled(f: Any) -> bool:
    """Whether a function is numba's: without importing numba, whose functions exist only if somebody has."""
    module = sys.modules.get("numba.core.registry")
    return module is not None and isinstance(f, module.CPUDispatcher)


class Compiler:
    """Makes machine code of a function for the types of its arguments."""

    def __init__(self, f: Any, stage: str, reads: list[str]) -> None:
        if "ctx" in inspect.signature(f.py_func).parameters:
            raise BuildError(
                f"`{stage}` is compiled by numba and has a parameter `ctx`, which machine code cannot be given; "
                "leave it out, or use the function before numba.njit"
            )
        self._f = f
        self._stage = stage
        self._reads = reads

    def __call__(self, arguments: list[Layout]) -> Made:
        import numba
        from numba.core import types

        compiled = self._compiled([type_of(layout) for layout in arguments])
        # A wrapper takes half a second, so the function keeps those it has. Another result of its own
        # compilation, as after `recompile`, needs another.
        made = self._f.__dict__.setdefault("_brambling_wrappers", {})
        key = repr(arguments)
        if key in made and made[key][0] is compiled:
            return made[key][1]
        result = compiled.signature.return_type
        is_tuple = isinstance(result, types.BaseTuple)
        parts = list(result) if is_tuple else [result]
        leaves = [self._leaf(part) for part in parts]
        entry = self._entry(compiled)
        code: Any = numba.cfunc(types.int64(types.CPointer(types.int64)))(wrapper(self._f, compiled, arguments, is_tuple, leaves))
        made[key] = compiled, (code.address, is_tuple, leaves, entry, (code, compiled, self._f))
        return made[key][1]

    def _compiled(self, arguments: list[Any]) -> Any:
        from numba.core.errors import NumbaError

        try:
            inspect.signature(self._f.py_func).bind(*arguments)
        except TypeError as error:
            raise TypeError(
                f"`{self._stage}` is called with {count(len(arguments), 'argument')}, one per dataset: {error} "
                "(arrays loaded together come as one tuple)"
            ) from None
        # Defaults are types of their own.
        folded = tuple(self._f._compiler.fold_argument_types(arguments, {})[1])
        if folded not in self._f.overloads and not self._f._can_compile:
            raise TypeError(
                f"`{self._stage}` was compiled for the types {', '.join(map(str, self._f.nopython_signatures))} alone, and it is "
                f"given {_listed(arguments)}; leave the types out, as in numba.njit(f)"
            )
        try:
            # For arrays that may not be written: what is read is not the function's to change.
            self._f.compile(folded)
        except NumbaError as error:
            if "Cannot modify readonly array" in str(error):
                raise self._write(arguments) from error
            raise TypeError(
                f"numba cannot compile `{self._stage}` for {_listed(arguments)}; change the function, or "
                "give the stage the Python function itself"
            ) from error
        return self._f.overloads[folded]

    def _write(self, arguments: list[Any]) -> ReadOnlyWrite:
        """Whose array it is that the function must not write to."""
        from numba.core.errors import NumbaError

        try:
            self._f.get_call_template([_writable(argument) for argument in arguments], {})
        except NumbaError:
            # It could not even if the arguments were its own.
            return ReadOnlyWrite(
                f"stage `{self._stage}` writes to an array from outside of it, and numba makes constants of such; return a new array"
            )
        return ReadOnlyWrite(
            f"stage `{self._stage}` writes to {' or '.join(f'`{name}`' for name in self._reads)}, "
            "which it only reads; return a new array"
        )

    def _entry(self, compiled: Any) -> Entry:
        entry = entry_of(compiled)
        if entry == "nested":
            raise TypeError(
                f"`{self._stage}` has a parallel loop that calls a function compiled with parallel=True, and numba's threading layer "
                "here, workqueue, ends the process at that; leave parallel=True out of one of them, or install another layer "
                "(pip install tbb)"
            )
        return entry

    def _leaf(self, part: Any) -> Leaf:
        from numba.core import types
        from numba.np import numpy_support

        array = isinstance(part, types.Array)
        if array or isinstance(part, types.Float | types.Integer | types.Boolean | types.Complex):
            dtype = numpy_support.as_dtype(part.dtype if array else part)
            if dtype.kind in "fiubc":
                return dtype.kind, dtype.itemsize, part.ndim if array else None
        raise TypeError(
            f"`{self._stage}` returns {part}; compiled kernels return an array of numbers, a number, or a tuple of them"
        )


def _listed(types: list[Any]) -> str:
    return ", ".join(map(str, types))


def _writable(argument: Any) -> Any:
    from numba.core import types

    if isinstance(argument, types.Array):
        return argument.copy(readonly=False)
    if isinstance(argument, types.BaseTuple):
        parts: Any = argument
        return types.BaseTuple.from_types([_writable(part) for part in parts])
    return argument
