"""
Sums, least and greatest values of every type that NumPy has, beside NumPy's own.

The oracle is NumPy over the stacked values of all blocks: it knows nothing of trees, partitions or machine code. Values are small
whole numbers or the largest of their type, so no order of adding rounds. It cannot tell apart two NaNs, of which there are none here.
"""

from __future__ import annotations

import brambling as br
import numpy as np
import pytest

BLOCK = 4096
NAMED = {"sum": np.sum, "min": np.min, "max": np.max}
INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
# What numba has too.
COMPILED = ["?", *INTEGERS, "f4", "f8", "c8", "c16"]
NUMBERS = [*COMPILED, "f2", "g", "G", ">i2", ">u4", ">f8", ">c16", "m8[s]"]
BLOCKS = [1, 2, 5]


def values_of(dtype: str, blocks: int) -> np.ndarray:
    """A row of three for each block: the sums of small integers leave their type."""
    dtype = np.dtype(dtype)
    small = np.arange(3 * blocks).reshape(blocks, 3) % 2
    if dtype.kind == "b":
        # Of the first column all, of the second none.
        return np.stack([np.ones(blocks, bool), np.zeros(blocks, bool), small[:, 0] == 0], axis=1)
    if dtype.kind in "iu" and dtype.itemsize < 8:
        extreme = np.iinfo(dtype)
        return np.stack([np.full(blocks, extreme.max), np.full(blocks, extreme.min), small[:, 0]], axis=1).astype(dtype)
    if dtype.kind == "c":
        return (small + 1j * (small + 2)).astype(dtype)
    return (small - 3 if dtype.kind in "if" else small + 3).astype(dtype)


def rows_of(values: np.ndarray) -> np.ndarray:
    """A table whose blocks begin with one of the rows each."""
    rows = np.zeros(((len(values) - 1) * BLOCK + 1, 3), values.dtype)
    rows[::BLOCK] = values
    return rows


def reduced(op, kernel, rows, *, partitions=None, threads=2):
    p = br.Program("sums of types")
    result = p.reduce(op, p.map(kernel, p.load(rows, partitions=partitions)))
    everywhere = p.all_reduce(op, p.map(kernel, p.load(rows, partitions=partitions)))
    p.keep(result, everywhere)
    made = p.run(threads=threads)
    each = made[everywhere] if everywhere.partitions > 1 else [made[everywhere]]
    for one in each:
        check(one, made[result])
    return made[result]


def check(found, expected):
    """The same values of the same type; of tuples, of each item."""
    if isinstance(expected, tuple):
        assert isinstance(found, tuple) and len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            check(one, other)
        return
    assert type(found) is type(expected), (type(found), type(expected))
    if isinstance(expected, np.ndarray | np.generic):
        assert found.dtype == expected.dtype and found.dtype.isnative
    assert np.array_equal(found, expected)


def one_number(block):
    return block[0, 0]


def one_array(block):
    return block[0]


def both(block):
    return block[0, 0], block[0]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numpy_kernels(dtype):
    """Catches sums that wrap, and one block whose type is another than that of several."""
    for blocks in BLOCKS:
        values = values_of(dtype, blocks)
        for op, oracle in NAMED.items():
            expected = oracle(values, axis=0)
            for partitions in (None, 1, 3):
                check(reduced(op, one_array, rows_of(values), partitions=partitions), expected)
            # A scalar is NumPy's too; of timedelta64, item() would make a datetime's.
            check(reduced(op, one_number, rows_of(values)), expected[0])
            check(reduced(op, both, rows_of(values)), (expected[0], expected))


@pytest.mark.parametrize("dtype", ["?", "u1", "i8", "f8", "c16"])
def test_python_kernels(dtype):
    """Python's own numbers have no width: integers of any size, and truth values are counted."""

    def numbers(block):
        return block[0, 0].item(), tuple(block[0].tolist())

    for blocks in BLOCKS:
        values = values_of(dtype, blocks)
        of_python = values.tolist()
        for op, oracle in {"sum": sum, "min": min, "max": max}.items():
            if dtype == "c16" and op != "sum":
                expected = [complex(NAMED[op](values[:, column])) for column in range(3)]
            else:
                expected = [oracle(row[column] for row in of_python) for column in range(3)]
            check(reduced(op, numbers, rows_of(values)), (expected[0], tuple(expected)))
    huge = reduced("sum", lambda block: 2**70, np.zeros(5 * BLOCK))
    check(huge, 5 * 2**70)


@pytest.mark.parametrize("dtype", COMPILED)
def test_numba_kernels(dtype):
    """Catches machine code's results that are added in their own type; its numbers come as Python's."""
    numba = pytest.importorskip("numba")
    kernel = numba.njit(lambda block: (block[0, 0], block[0].copy()))
    for blocks in BLOCKS:
        values = values_of(dtype, blocks)
        for op, oracle in NAMED.items():
            expected = oracle(values, axis=0)
            for partitions, threads in ((None, 1), (None, 2), (3, 2)):
                found = reduced(op, kernel, rows_of(values), partitions=partitions, threads=threads)
                check(found, (expected[0].item(), expected))


@pytest.mark.parametrize("dtype", ["?", "u1", "i4"])
def test_numba_kernels_of_one_result(dtype):
    numba = pytest.importorskip("numba")
    number, array = numba.njit(lambda block: block[0, 0]), numba.njit(lambda block: block[0].copy())
    values = values_of(dtype, 5)
    for op, oracle in NAMED.items():
        expected = oracle(values, axis=0)
        check(reduced(op, number, rows_of(values)), expected[0].item())
        check(reduced(op, array, rows_of(values)), expected)


def test_opaque_datasets():
    """A value per partition, not per block: the type of one partition is that of several."""
    for partitions in (1, 2, 7):
        for value, total in [(np.uint8(200), np.uint64(200 * partitions)), (np.True_, np.int64(partitions)), (True, partitions)]:
            p = br.Program("opaque")
            result = p.reduce("sum", p.dataset("value", value=value, partitions=partitions))
            least = p.reduce("min", p.dataset("again", value=value, partitions=partitions))
            p.keep(result, least)
            made = p.run()
            check(made[result], total)
            check(made[least], value)


def test_object_arrays():
    values = np.array([[True, 2**70, 3]] * 5, dtype=object)
    check(reduced("sum", one_array, rows_of(values)), np.array([5, 5 * 2**70, 15], dtype=object))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_no_blocks(dtype):
    """Nothing has no type: there is no sum, and who reads it is told why."""
    for op in NAMED:
        assert reduced(op, one_number, np.empty((0, 3), dtype)) is None


REFUSED = [("U3", "sum", "<U3"), ("S3", "sum", "|S3"), ("M8[D]", "sum", "datetime64[D]"), ("V4", "sum", "|V4"), ("U3", "min", "<U3")]


@pytest.mark.parametrize(("dtype", "op", "called"), [*REFUSED, ("S3", "max", "|S3"), ("V4", "max", "|V4")])
@pytest.mark.parametrize("blocks", BLOCKS)
def test_what_is_refused(dtype, op, called, blocks):
    """One block is refused as several are."""
    rows = np.zeros((blocks - 1) * BLOCK + 1, dtype)
    if rows.dtype.kind in "SU":
        rows[:] = "abc"
    for kernel in (lambda block: block[0], lambda block: block[:1], lambda block: (1, block[:1])):
        with pytest.raises(br.KernelError) as caught:
            p = br.Program("refused")
            p.reduce(op, p.map(kernel, p.load(rows)))
            p.run()
        assert f"{op} of values of type {called}; give numbers" in str(caught.value)
        assert "an associative function of two values instead of the name" in str(caught.value)


def test_dates_have_an_order():
    values = np.array(["2020-01-03", "2020-01-01", "2020-01-02"], "M8[D]")
    rows = np.repeat(values, BLOCK)
    for op, day in (("min", "2020-01-01"), ("max", "2020-01-03")):
        check(reduced(op, lambda block: block[0], rows), np.datetime64(day, "D"))


@pytest.mark.parametrize("value", [[1, 2], "text", None, {1: 2}])
def test_values_that_are_no_numbers(value):
    for partitions in (1, 2):
        p = br.Program("refused")
        p.reduce("sum", p.dataset("value", value=value, partitions=partitions))
        with pytest.raises(br.KernelError, match=f"sum of {type(value).__name__}; give numbers, arrays of them or tuples"):
            p.run()


def test_masked_arrays():
    p = br.Program("masked")
    p.reduce("sum", p.dataset("value", value=np.ma.masked_array([1, 2], mask=[True, False])))
    with pytest.raises(br.KernelError, match="is a masked array, and its mask would be lost"):
        p.run()


def test_the_same_on_workers(shared):
    """Merged on the way, and sent: the types of one process."""

    def total(values, op):
        rows = rows_of(values)
        p = br.Program("types")
        result = p.reduce(op, p.map(both, p.load(rows, partitions=3)))
        p.keep(result)
        return p.run()[result]

    with br.connect(shared):
        found = {(dtype, op): total(values_of(dtype, 5), op) for dtype in NUMBERS for op in NAMED}
    for (dtype, op), made in found.items():
        check(made, total(values_of(dtype, 5), op))
