"""What kernels of Python are handed and what becomes of their exceptions: shuffled rows, read-only arrays, handlers of signals, datasets without rows."""

from __future__ import annotations

import functools
import signal
import threading
import time
import warnings

import brambling as br
import numpy as np
import pytest

# ---- what a shuffle hands over

COLUMNS = {
    "integers": np.arange(7),
    "bytes": np.arange(7, dtype=np.uint8),
    "texts": np.array(list("abcdefg")),
    "dates": np.arange(7).astype("M8[D]"),
    "points": np.arange(14.0).reshape(7, 2),
    "records": np.array([(number, number / 2) for number in range(7)], dtype=[("id", int), ("half", "f4")]),
}


def parts_of(build, partitions, threads=2):
    p = br.Program("shuffle")
    made = build(p, partitions)
    p.keep(made)
    parts = p.run(threads=threads)[made]
    return [parts] if partitions == 1 else parts


def check_rows(parts, arrays):
    """Each partition holds arrays of the types that were loaded, and all of them together all rows."""
    assert {type(part) for part in parts} == {tuple if len(arrays) > 1 else np.ndarray}
    columns = [part if isinstance(part, tuple) else (part,) for part in parts]
    for place, array in enumerate(arrays):
        of_parts = [column[place] for column in columns]
        assert {part.dtype for part in of_parts} == {array.dtype}
        assert {part.shape[1:] for part in of_parts} == {array.shape[1:]}
        assert np.array_equal(np.sort(np.concatenate(of_parts), axis=0), array)
    assert all(len(set(map(len, column))) == 1 for column in columns)


@pytest.mark.parametrize("partitions", [1, 3, 16])
@pytest.mark.parametrize("sources", [1, 2, 5])
def test_a_shuffle_of_arrays_gives_arrays_everywhere(sources, partitions):
    """Catches lists in partitions to which no key falls: their kernels would need a case of their own."""
    for array in COLUMNS.values():
        one = parts_of(lambda p, n, array=array: p.shuffle(p.load(array, partitions=sources), key=repr, partitions=n), partitions)
        check_rows(one, [array])
    arrays = list(COLUMNS.values())
    check_rows(parts_of(lambda p, n: p.shuffle(p.load(*arrays, partitions=sources), key=0, partitions=n), partitions), arrays)


@pytest.mark.parametrize("partitions", [1, 4, 16])
def test_a_shuffle_of_results_of_kernels(partitions):
    """Their types are known only where there are blocks: one partition of five has some here, or two of three."""
    numbers = np.arange(6_000)

    def pairs(block):
        return block[:2], block[:2] / 2

    for sources in (1, 3, 5):
        build = lambda p, n, sources=sources: p.shuffle(p.map(pairs, p.load(numbers, partitions=sources)), key=0, partitions=n)  # noqa: E731
        expected = np.array([0, 1, 4096, 4097])
        check_rows(parts_of(build, partitions), [expected, expected / 2])
    opaque = lambda p, n: p.shuffle(p.map(pairs, p.dataset("x", value=numbers)), key=0, partitions=n)  # noqa: E731
    check_rows(parts_of(opaque, partitions), [numbers[:2], numbers[:2] / 2])


def test_a_shuffle_of_no_rows():
    loaded = parts_of(lambda p, n: p.shuffle(p.load(np.empty(0, "i4"), np.empty((0, 2)), partitions=3), key=0, partitions=n), 4)
    check_rows(loaded, [np.empty(0, "i4"), np.empty((0, 2))])
    # Of lists the types of rows are not known.
    assert parts_of(lambda p, n: p.shuffle(p.dataset("x", value=[]), key=0, partitions=n), 4) == [[]] * 4


def test_rows_without_rows_have_no_say_in_types():
    """A partition's empty array of floats does not make floats of another one's integers."""
    p = br.Program("mixed")
    x = p.map(lambda x, ctx: np.arange(3) if ctx.partition else np.empty(0), p.dataset("x", value=0, partitions=2))
    made = p.shuffle(x, key=lambda row: row, partitions=2)
    p.keep(made)
    assert {part.dtype for part in p.run()[made] if len(part)} == {np.dtype(int)}


def test_a_shuffle_on_workers(shared):
    with br.connect(shared):
        parts = parts_of(lambda p, n: p.shuffle(p.load(*COLUMNS.values(), partitions=3), key=0, partitions=n), 16, None)
    check_rows(parts, list(COLUMNS.values()))


# ---- arrays that may not be written


def failure(kernel, *, update=False):
    p = br.Program("read-only")
    rows, value = p.load(np.arange(3.0), name="rows"), p.dataset("value", value=0)
    if update:
        p.update(value, lambda value: kernel(None))
    else:
        p.map(kernel, rows)
    with pytest.raises(br.KernelError) as caught:
        p.run(threads=1)
    return caught.value


def test_the_kernel_s_own_exception_is_told(tmp_path):
    """Catches any text with "read-only" in it that is taken for NumPy's."""

    def raising(text):
        def f(_):
            raise ValueError(text)

        return f

    for text in ["the settings are read-only today", "read-only", "array: read-only", "my.array is read-only; ask somebody"]:
        for update in (False, True):
            error = failure(raising(text), update=update)
            assert str(error).endswith(f"ValueError: {text}")
            assert str(error.__cause__) == text and error.__cause__.__cause__ is None

    # An update without arrays reads none that could be meant.
    own = np.memmap(tmp_path / "own", dtype=float, mode="w+", shape=3)
    own.flush()

    def to_a_file(_):
        np.memmap(tmp_path / "own", dtype=float, mode="r", shape=3)[0] = 1

    assert str(failure(to_a_file, update=True)).endswith("ValueError: assignment destination is read-only")
    # Beside arrays that are read only nobody knows which was meant, and both are told.
    said = str(failure(to_a_file))
    assert "writes to a read-only array (assignment destination is read-only); what it only reads is read-only, here `rows`:" in said


def cut(array):
    array += 1


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (cut, "output array is read-only"),
        (lambda array: array.__setitem__(0, 1), "assignment destination is read-only"),
        (lambda array: array.sort(), "sort array is read-only"),
        (lambda array: array.partition(1), "partition array is read-only"),
        (lambda array: array.fill(1), "assignment destination is read-only"),
        (lambda array: np.copyto(array, 1), "assignment destination is read-only"),
        (lambda array: np.put(array, 0, 1), "put: output array is read-only"),
        (lambda array: np.random.default_rng(0).shuffle(array), "array is read-only"),
        (lambda array: np.cumsum(array, out=array), "output array is read-only"),
        (lambda array: array.byteswap(inplace=True), "array to be byte-swapped is read-only"),
    ],
)
def test_what_numpy_says_of_such_writes(write, text):
    """Catches words of NumPy's that are not known for what they are: each is answered with the way out."""
    error = failure(write)
    assert f"({text}); what it only reads is read-only, here `rows`: return a new array" in str(error)
    assert isinstance(error.__cause__.__cause__, ValueError)


# ---- handlers of signals


class Timeout(Exception):
    """As programs raise it in a handler of SIGALRM."""


def raising(number, frame):
    raise Timeout(f"signal {number}")


class Handler:
    def __call__(self, number, frame):
        raising(number, frame)

    def method(self, number, frame):
        raise Timeout(f"signal {number}")


def python(x):
    time.sleep(0.01)
    return x


def busy(x):
    return x if sum(range(100_000)) else 0


@pytest.fixture
def alarm():
    before = signal.getsignal(signal.SIGALRM)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("handler", [raising, Handler(), Handler().method, functools.partial(raising)], ids=["function", "object", "method", "partial"])
@pytest.mark.parametrize("kernel", [python, busy])
def test_a_handler_s_exception_leaves_a_run_as_it_is(handler, kernel, alarm):
    """Catches it becoming the failure of a kernel in which it happened to be raised."""
    p = br.Program("alarm")
    x = p.dataset("x", value=1, partitions=2)
    with p.loop(100_000):
        p.update(x, kernel)
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    with pytest.raises(Timeout, match=f"signal {signal.SIGALRM:d}"):
        p.run()


def test_a_handler_s_exception_leaves_a_fit_as_it_is(alarm):
    X = np.random.default_rng(0).normal(size=(100_000, 20))
    signal.signal(signal.SIGALRM, raising)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with pytest.raises(Timeout), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        br.ml.LogisticRegression(solver="gradient-descent", max_iter=1_000_000, tol=0).fit(X, X[:, 0] > 0)


def test_a_kernel_s_own_exception_of_that_type():
    """It is the type's name that is the same, not the place."""

    def late(x):
        raise Timeout("my own")

    p = br.Program("own")
    p.update(p.dataset("x", value=1), late)
    with pytest.raises(br.KernelError, match="Timeout: my own"):
        p.run()


def test_a_run_on_another_thread_hears_no_handler(alarm):
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    found = []

    def run():
        p = br.Program("thread")
        x = p.dataset("x", value=0)
        with p.loop(20):
            p.update(x, lambda x: python(x) + 1)
        found.append(p.run()[x])

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [20]


# ---- datasets without rows


@pytest.mark.parametrize("op", ["sum", "min", lambda left, right: left + right])
def test_a_reduction_over_no_rows_names_the_load(op):
    """Whoever reads what it has not made is told where there was nothing, not to write it first."""

    def read(value):
        return value

    def beside(rows, value):
        return value

    numba = pytest.importorskip("numba")
    for build in [
        lambda p, total, other: p.map(read, total),
        lambda p, total, other: p.update(total, read),
        lambda p, total, other: p.update(p.dataset("y", value=0), lambda y, total: y, total),
        lambda p, total, other: p.map(beside, other, p.broadcast(total, like=other)),
        lambda p, total, other: p.map(numba.njit(lambda total: total), total),
        lambda p, total, other: p.signal(bool, total),
        lambda p, total, other: p.gather(len, p.scatter(lambda total: {0: total}, total, to=1)),
    ]:
        p = br.Program("no rows")
        visits, other = p.load(np.empty((0, 2)), name="visits"), p.load(np.ones(5))
        total = p.reduce(op, p.map(np.sum, p.map(read, visits)))
        build(p, total, other)
        with pytest.raises(br.KernelError) as caught:
            p.run()
        assert "has no value, because `visits` has no rows and there was nothing to combine; load rows, or leave this stage out" in str(caught.value)
