"""Kernels with machine code: the package's own, and numba's."""

from __future__ import annotations

import subprocess
import sys
import threading

import brambling as br
import numpy as np
import pytest

numba = pytest.importorskip("numba")

ROWS, COLUMNS = 20_000, 5


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    return rng.normal(size=(ROWS, COLUMNS)), rng.integers(0, 2, ROWS).astype(float)


def gradient(samples, weights):
    X, y = samples
    total = np.zeros(X.shape[1])
    for row in range(X.shape[0]):
        margin = 0.0
        for column in range(X.shape[1]):
            margin += X[row, column] * weights[column]
        error = 1 / (1 + np.exp(-margin)) - y[row]
        for column in range(X.shape[1]):
            total[column] += error * X[row, column]
    return total


def trained(kernel, table, threads, turns=3):
    p = br.Program("gradient descent")
    samples = p.load(*table)
    weights = p.dataset("weights", value=np.zeros(COLUMNS))
    with p.loop(turns):
        local = p.broadcast(weights, like=samples)
        total = p.reduce("sum", p.map(kernel, samples, local))
        p.update(weights, lambda weights, total: weights - total / ROWS, total)
    p.keep(weights)
    return p.run(threads=threads)[weights]


def mapped(kernel, *arrays, per="block", threads=2):
    p = br.Program("map")
    made = p.map(kernel, p.load(*arrays), per=per)
    p.keep(made)
    return p.run(threads=threads)[made]


def test_it_computes_what_the_function_computes(table):
    """Catches arguments or results that are read at the wrong place, with the wrong type or length."""
    one = trained(numba.njit(gradient), table, 1)
    assert np.allclose(one, trained(gradient, table, 1), rtol=1e-12)
    for threads in (2, 3):
        assert np.array_equal(trained(numba.njit(gradient), table, threads), one)


def test_the_built_in_gradient(table):
    expected = trained(gradient, table, 1)
    one = trained(br.kernels.logistic_gradient, table, 1)
    assert np.allclose(one, expected, rtol=1e-12)
    assert np.array_equal(trained(br.kernels.logistic_gradient, table, 3), one)
    assert np.allclose(br.kernels.logistic_gradient(table, expected), gradient(table, expected))


def test_it_runs_on_other_threads(table):
    """Catches code that is called on the calling thread, as functions of the interpreter are."""
    X, _ = table
    thread_id = numba.types.ExternalFunction("pthread_self", numba.types.uint64())
    seen = mapped(numba.njit(lambda block: thread_id()), X)
    assert threading.get_ident() not in seen


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool", "complex128"])
def test_types_of_elements(dtype):
    values = np.arange(10_000).astype(dtype)
    out = mapped(numba.njit(lambda block: block[::2].copy()), values)
    assert [part.dtype for part in out] == [values.dtype] * 3
    assert np.array_equal(np.concatenate(out), values[::2])


def test_shapes_of_results(table):
    """Catches results that are cut at the room there was at first, or keep an earlier block's shape."""
    X, y = table

    @numba.njit
    def several(samples):
        X, y = samples
        return X * 2.0, y.sum(), X.shape[0], X[0, 0] > 0

    parts = mapped(several, X, y)
    assert np.array_equal(np.vstack([part[0] for part in parts]), X * 2)
    assert np.isclose(sum(part[1] for part in parts), y.sum())
    assert [part[2] for part in parts] == [4096] * 4 + [ROWS - 4 * 4096]
    assert [type(item) for item in parts[0]] == [np.ndarray, float, int, bool]


def test_whole_partitions(table):
    X, _ = table
    parts = mapped(numba.njit(lambda block: block.sum()), X, per="partition")
    assert np.isclose(sum(parts), X.sum())


def test_results_are_read_by_either(table):
    """Catches memory that is freed or written while somebody reads it."""
    X, _ = table
    p = br.Program("chain")
    doubled = p.map(numba.njit(lambda block: block * 2), p.load(X))
    python = p.map(lambda block: block + 1, doubled)
    again = p.map(numba.njit(lambda block: block - 1), python)
    p.update(python, lambda block: np.multiply(block, 0, out=block))
    p.keep(again)
    p.keep(doubled)
    result = p.run(threads=2)
    assert np.array_equal(np.vstack(result[again]), X * 2 + 1 - 1)
    assert np.array_equal(np.vstack(result[doubled]), X * 2)


def test_numbers_are_read():
    @numba.njit
    def scaled(block, factor, shift):
        return block * factor + shift[0]

    p = br.Program("numbers")
    numbers = p.load(np.arange(5_000.0))
    factor = p.dataset("factor", value=2, partitions=numbers.partitions)
    shift = p.dataset("shift", value=(0.5, True), partitions=numbers.partitions)
    made = p.map(scaled, numbers, factor, shift)
    p.keep(made)
    assert np.array_equal(np.concatenate(p.run()[made]), np.arange(5_000.0) * 2 + 0.5)


def test_an_exception_is_told_with_its_traceback():
    @numba.njit
    def fails(block):
        if block[0] >= 4096:
            raise ValueError("too large")
        return block

    with pytest.raises(br.KernelError, match="too large") as caught:
        mapped(fails, np.arange(10_000.0))
    assert isinstance(caught.value.__cause__, ValueError)


def test_what_is_read_cannot_be_written():
    @numba.njit
    def writes(block):
        block[0] = 1
        return block

    values = np.arange(10.0)
    with pytest.raises(br.KernelError, match="`writes` writes to `.*`, which it only reads; return a new array"):
        mapped(writes, values)
    assert values[0] == 0


def test_what_cannot_be_compiled():
    with pytest.raises(br.KernelError, match="numba cannot compile `.*` for .*; change the function, or give the stage"):
        mapped(numba.njit(lambda block: block.no_such_thing()), np.arange(10.0))
    with pytest.raises(br.KernelError, match="compiled kernels return an array of numbers, a number, or a tuple"):
        mapped(numba.njit(lambda block: "text"), np.arange(10.0))


def test_what_cannot_be_read():
    p = br.Program("lists")
    lists = p.map(lambda block: list(block), p.load(np.arange(10.0)))
    p.keep(p.map(numba.njit(lambda block: block), lists))
    with pytest.raises(br.KernelError, match="holds list, which compiled code cannot read; give it arrays"):
        p.run()
    p = br.Program("context")
    with pytest.raises(br.BuildError, match="a parameter `ctx`, which machine code cannot be given"):
        p.map(numba.njit(lambda block, ctx: block), p.load(np.arange(10.0)))
    with pytest.raises(br.KernelError, match=r"reads \(X, y\) and weights, all of float64"):
        mapped(br.kernels.logistic_gradient, np.arange(10.0))
    X, y = np.zeros((10, 2), np.float64), np.zeros(10)
    p = br.Program("weights")
    samples = p.load(X, y)
    p.keep(p.map(br.kernels.logistic_gradient, samples, p.dataset("w", value=np.zeros(3), partitions=1)))
    with pytest.raises(br.KernelError, match="X has 10 rows of 2 columns, y 10 labels and weights 3 values"):
        p.run()


def test_numba_is_not_imported_unless_somebody_has():
    code = "import sys, brambling as br, numpy as np; p = br.Program('x'); p.map(np.sum, p.load(np.ones(3))); p.run(); "
    code += "sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_wrapper_is_made_once_for_a_function_and_types(monkeypatch):
    made = []
    cfunc = numba.cfunc
    monkeypatch.setattr(numba, "cfunc", lambda *types: made.append(types) or cfunc(*types))
    factor = 2.0
    scaled = numba.njit(lambda block: block * factor)

    def first(dtype):
        p = br.Program("scaled")
        p.keep(found := p.map(scaled, p.load(np.ones(10, dtype))))
        return np.concatenate(p.run()[found])[0]

    assert [first(np.float64), first(np.float64), len(made)] == [2.0, 2.0, 1]
    assert [first(np.float32), len(made)] == [2.0, 2]
    # What the function closes over is compiled in, until it is compiled again.
    factor = 3.0
    assert [first(np.float64), len(made)] == [2.0, 2]
    scaled.recompile()
    assert [first(np.float64), first(np.float64), len(made)] == [3.0, 3.0, 3]


# ---- asking for memory ahead


compiled_gradient = numba.njit(gradient)


@numba.njit
def ahead_gradient(samples, weights):
    X, y = samples
    for row in range(len(y)):
        br.kernels.prefetch(X, row + 100, row + 102)
        br.kernels.prefetch(y, row + 100, row + 101)
    return compiled_gradient(samples, weights)


def test_prefetches_are_hints(table):
    assert np.array_equal(trained(ahead_gradient, table, 2), trained(compiled_gradient, table, 2))


def test_prefetches_are_instructions(table):
    ahead_gradient(table, np.zeros(COLUMNS))
    counts = [code.count("call void @llvm.prefetch") for code in ahead_gradient.inspect_llvm().values()]
    assert min(counts) >= 2


def test_prefetches_need_numba(monkeypatch):
    monkeypatch.setitem(sys.modules, "brambling._prefetch", None)
    with pytest.raises(ImportError, match=r"br\.kernels\.prefetch needs numba: pip install 'brambling\[numba\]'"):
        br.kernels.prefetch
    with pytest.raises(AttributeError, match=r"no attribute 'prefetches'"):
        br.kernels.prefetches
