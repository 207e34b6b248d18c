"""Functions that numba has compiled, as machine code that worker threads call without the interpreter."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from brambling._compiled import Layout, Leaf
from brambling._errors import BuildError
from brambling._kernel import ReadOnlyWrite


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

    def __call__(self, arguments: list[Layout]) -> tuple[int, bool, list[Leaf], Any]:
        import numba
        from numba.core import types

        compiled = self._compiled(tuple(_type_of(layout) for layout in arguments))
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
        wrapper = _wrapper(self._f, arguments, is_tuple, leaves)
        code: Any = numba.cfunc(types.int64(types.CPointer(types.int64)))(wrapper)
        made[key] = compiled, (code.address, is_tuple, leaves, (code, self._f))
        return made[key][1]

    def _compiled(self, arguments: tuple[Any, ...]) -> Any:
        from numba.core.errors import NumbaError

        try:
            # For arrays that may not be written: what is read is not the function's to change.
            self._f.compile(arguments)
        except NumbaError as error:
            if "Cannot modify readonly array" in str(error):
                raise ReadOnlyWrite(
                    f"stage `{self._stage}` writes to {' or '.join(f'`{name}`' for name in self._reads)}, "
                    "which it only reads; return a new array"
                ) from error
            raise TypeError(
                f"numba cannot compile `{self._stage}` for {', '.join(map(str, arguments))}; change the function, or "
                "give the stage the Python function itself"
            ) from error
        return self._f.overloads[arguments]

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


def _dtype(leaf: Leaf) -> np.dtype[Any]:
    return np.dtype(np.bool_) if leaf[0] == "b" else np.dtype(f"{leaf[0]}{leaf[1]}")


def _type_of(layout: Layout) -> Any:
    from numba.core import types
    from numba.np import numpy_support

    def type_of(leaf: Leaf) -> Any:
        scalar = numpy_support.from_dtype(_dtype(leaf))
        return scalar if leaf[2] is None else types.Array(scalar, leaf[2], "C", readonly=True)

    is_tuple, leaves = layout
    found = [type_of(leaf) for leaf in leaves]
    return types.BaseTuple.from_types(found) if is_tuple else found[0]


def _wrapper(f: Any, arguments: list[Layout], is_tuple: bool, leaves: list[Leaf]) -> Callable[[Any], int]:
    """
    A function of one array of words, in the order in which the engine writes them.

    Per result an address, the elements there is room for, and the lengths, which it sets; then per array or
    number read an address and the lengths. Gives 0 when done, 1 when there is too little room, 2 when `f` raised.
    """
    names: dict[str, Any] = {"_f": f, "_at": _at(), "_carray": _carray()}
    before, after, place = [], [], 0
    for number, leaf in enumerate(leaves):
        names[f"_result_type_{number}"] = _dtype(leaf).type
        after += _store(number, leaf, place, "result" if not is_tuple else f"result[{number}]")
        place += 2 + (leaf[2] or 0)
    given = []
    for number, (tupled, parts) in enumerate(arguments):
        read = []
        for index, leaf in enumerate(parts):
            name = f"a_{number}_{index}"
            names[f"_type_{number}_{index}"] = _dtype(leaf).type
            lengths = "".join(f"words[{place + 1 + axis}], " for axis in range(leaf[2] or 0))
            shape = "1" if leaf[2] is None else f"({lengths})"
            number_of = "[0]" if leaf[2] is None else ""
            before.append(f"{name} = _carray(_at(words[{place}]), {shape}, _type_{number}_{index}){number_of}")
            read.append(name)
            place += 1 + (leaf[2] or 0)
        given.append(f"({', '.join(read)},)" if tupled else read[0])
    # What has to fit is known for all results before any is stored.
    lines = [
        "def wrapper(words):",
        *(f"    {line}" for line in before),
        "    try:",
        f"        result = _f({', '.join(given)})",
        "    except Exception:",
        "        return 2",
        "    fits = True",
        *(f"    {line}" for line in after if line.startswith(("words", "fits"))),
        "    if not fits:",
        "        return 1",
        *(f"    {line}" for line in after if not line.startswith(("words", "fits"))),
        "    return 0",
    ]
    exec("\n".join(lines), names)  # noqa: S102: numba compiles functions, and this one's arguments vary.
    return names["wrapper"]


def _store(number: int, leaf: Leaf, place: int, result: str) -> list[str]:
    out = f"_carray(_at(words[{place}]), {{}}, _result_type_{number})"
    if leaf[2] is None:
        return [f"{out.format(1)}[0] = {result}"]
    lengths = [f"words[{place + 2 + axis}] = {result}.shape[{axis}]" for axis in range(leaf[2])]
    return [
        *lengths,
        f"fits = fits and {result}.size <= words[{place + 1}]",
        f"{out.format(f'{result}.shape')}[...] = {result}",
    ]


def _carray() -> Any:
    import numba

    return numba.carray  # type: ignore[attr-defined]


def _at() -> Any:
    """The pointer that an integer is, for compiled code."""
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    @intrinsic
    def at(_: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], cgutils.voidptr_t)

        return types.voidptr(address), generate

    return at
