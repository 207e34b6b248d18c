"""What stands around a function that numba has compiled: it is called with one array of words, and what it needs is read off it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from brambling._compiled import Entry, Layout, Leaf


def _dtype(leaf: Leaf) -> np.dtype[Any]:
    return np.dtype(np.bool_) if leaf[0] == "b" else np.dtype(f"{leaf[0]}{leaf[1]}")


def type_of(layout: Layout) -> Any:
    from numba.core import types
    from numba.np import numpy_support

    def type_of(leaf: Leaf) -> Any:
        scalar = numpy_support.from_dtype(_dtype(leaf))
        return scalar if leaf[2] is None else types.Array(scalar, leaf[2], "C", readonly=True)

    is_tuple, leaves = layout
    found = [type_of(leaf) for leaf in leaves]
    return types.BaseTuple.from_types(found) if is_tuple else found[0]


def wrapper(f: Any, compiled: Any, arguments: list[Layout], is_tuple: bool, leaves: list[Leaf]) -> Callable[[Any], int]:
    """
    A function of one array of words, in the order in which the engine writes them.

    Per result an address, the elements there is room for, and the lengths, which it sets; then per array or
    number read an address and the lengths. Gives 0 when done, 1 when there is too little room, 2 when `f` raised.
    """
    names: dict[str, Any] = {"_call": _call(f, compiled), "_at": _at(), "_carray": _carray()}
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
        f"    failed, result = _call(({', '.join(given)},))",
        "    if failed:",
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


def _call(f: Any, compiled: Any) -> Any:
    """
    Calls a function's machine code on a tuple of arguments, and gives whether it raised, with its result.

    Numba's own `try` does not: it goes on as if nothing had happened when the exception was raised by the interpreter.
    """
    from numba.core import cgutils, types
    from numba.core.typing.templates import fold_arguments
    from numba.extending import intrinsic

    own, result = compiled.signature, compiled.signature.return_type

    @intrinsic
    def call(_: Any, arguments: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def given(place: int, _: Any, value: Any) -> Any:
                return context.cast(builder, value, signature.args[0][place], own.args[place])

            def default(place: int, _: Any, value: Any) -> Any:
                return context.get_constant_generic(builder, own.args[place], value)

            def rest(place: int, _: Any, values: Any) -> Any:
                types_of_rest = zip(values, list(signature.args[0])[place:], own.args[place], strict=True)
                return context.make_tuple(builder, own.args[place], [context.cast(builder, *each) for each in types_of_rest])

            context.active_code_library.add_linking_library(compiled.library)
            values = cgutils.unpack_tuple(builder, args[0])
            values = fold_arguments(f._compiler.pysig, values, {}, given, default, rest)
            status, value = context.call_internal_no_propagate(builder, compiled.fndesc, own, values)
            # Nothing has written the result of one that raised.
            slot = cgutils.alloca_once_value(builder, context.get_constant_null(result))
            with builder.if_then(builder.not_(status.is_error)):
                builder.store(value, slot)
            return context.make_tuple(builder, signature.return_type, [status.is_error, builder.load(slot)])

        return types.Tuple((types.boolean, result))(arguments), generate

    return call


def entry_of(compiled: Any) -> Entry | Literal["nested"]:
    """How machine code is to be entered; "nested" is code that would end the process."""
    # As it is linked into others: what comes from a cache has no other text.
    code = str(compiled.library._get_module_for_linking())
    calls = {name: set(_NAME.findall(body)) for name, body in _functions(code)}
    called = _reached(calls, [compiled.fndesc.llvm_func_name])
    if "numba_parallel_for" in called:
        from numba.np.ufunc import parallel

        parallel._launch_threads()
        if parallel.threading_layer() != "workqueue":
            return "watched"
        bodies = [name for name in called if name.startswith("__gufunc__")]
        return "nested" if "numba_parallel_for" in _reached(calls, [inner for body in bodies for inner in calls[body]]) else "alone"
    return "watched" if "numba_gil_ensure" in called or "PyGILState_Ensure" in called else "free"


_NAME = re.compile(r'@"?([^"\s(),]+)')


def _reached(calls: dict[str, set[str]], names: list[str]) -> set[str]:
    """What functions call, directly or not, and they themselves."""
    reached: set[str] = set()
    while names:
        name = names.pop()
        if name not in reached:
            reached.add(name)
            names += calls.get(name, ())
    return reached


def _functions(code: str) -> Iterator[tuple[str, str]]:
    """Names and bodies in the text of LLVM."""
    for found in re.finditer(r'^define [^\n]*?@"?([^"\s(),]+)"?\([^\n]*\n(.*?)^}', code, re.MULTILINE | re.DOTALL):
        yield found[1], found[2]


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
