"""Asking for memory before it is needed, from functions that numba compiles. Imports numba."""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

_LINE_BYTES = 64


def _line(_: Any, address: Any) -> Any:
    """Asks for the cache line at an address, to be read and kept. Any address will do: a hint never faults."""

    def made(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.PointerType(ir.IntType(8))
        number = ir.IntType(32)
        hint = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        declared = builder.module.declare_intrinsic("llvm.prefetch", (pointer,), hint)
        read, keep, data = ir.Constant(number, 0), ir.Constant(number, 3), ir.Constant(number, 1)
        builder.call(declared, [builder.inttoptr(arguments[0], pointer), read, keep, data])
        return context.get_dummy_value()

    return types.void(types.intp), made


_prefetch_line: Any = intrinsic(_line)


@numba.njit
def prefetch(array, start, stop):  # type: ignore[no-untyped-def]
    """
    Ask for the memory of `array[start:stop]` before it is needed. For kernels that numba compiles.

    A loop that reads rows once waits for memory where the processor's own prefetchers do not follow: at the end of each
    page of 4 KiB, and among rows that take long. Some 4 to 8 KB ahead is a good distance, and a row or some at a time. It changes
    no result, and helps on most processors.

    Parameters
    ----------
    array : ndarray
        In C order.
    start, stop : int
        Along the first axis. May be beyond the end: what they ask for is a hint.

    Raises
    ------
    ImportError
        On first use, where numba is missing.

    Examples
    --------
    >>> import numba, numpy as np, brambling as br
    >>> @numba.njit
    ... def total(block):
    ...     total = 0.0
    ...     for row in range(block.shape[0]):
    ...         br.kernels.prefetch(block, row + 64, row + 65)
    ...         for value in block[row]:
    ...             total += value
    ...     return total
    >>> p = br.Program("total")
    >>> sum_ = p.reduce("sum", p.map(total, p.load(np.ones((10_000, 8)))))
    >>> p.keep(sum_)
    >>> p.run()[sum_]
    80000.0
    """
    base, row = array.ctypes.data, array.strides[0]
    for address in range(base + start * row, base + stop * row, _LINE_BYTES):
        _prefetch_line(address)
