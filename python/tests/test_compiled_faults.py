"""What goes wrong in kernels that numba compiled: exceptions of the interpreter, loops on numba's threads, and values that they cannot read."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import brambling as br
import numpy as np
import pytest
from brambling import _numba_code
from brambling._numba import Compiler

numba = pytest.importorskip("numba")

X = np.arange(20_000.0)
# More than anything here takes: only a deadlock meets it.
PATIENCE_S = 180


def mapped(kernel, *datasets, threads=2):
    """What a kernel makes of the blocks of X, and of values beside them."""
    p = br.Program("faults")
    rows = p.load(X)
    beside = [p.dataset(f"value {place}", value=value, partitions=rows.partitions) for place, value in enumerate(datasets)]
    made = p.map(kernel, rows, *beside)
    p.keep(made)
    return p.run(threads=threads)[made]


def refused(kernel, *datasets):
    with pytest.raises(br.KernelError) as caught:
        mapped(kernel, *datasets)
    return caught.value


# ---- exceptions of the interpreter


def text_for_a_number(first):
    return "no number" if first == 8192 else first


@numba.njit
def in_object_mode(block):
    first = block[0]
    with numba.objmode(y="float64"):
        y = float(text_for_a_number(first))
    return y


@numba.njit
def in_a_function_of_its_own(block):
    return in_object_mode(block) + 1


@numba.njit
def beside_arrays(block):
    doubled = block * 2
    return doubled, in_object_mode(block), doubled[:3]


@numba.njit
def in_its_own_try(block):
    # What numba's `try` does with it is to go on.
    try:
        y = in_object_mode(block)
    except Exception:
        y = -1.0
    return y


@numba.njit
def of_another_type(block):
    first = block[0]
    with numba.objmode(y="float64"):
        y = text_for_a_number(first)
    return y


@pytest.mark.parametrize("kernel", [in_object_mode, in_a_function_of_its_own, beside_arrays, in_its_own_try])
@pytest.mark.parametrize("threads", [1, 3])
def test_an_exception_in_object_mode_ends_the_job(kernel, threads):
    """Catches results that are 0.0 because nobody looked whether there was an exception."""
    with pytest.raises(br.KernelError, match="ValueError: could not convert string to float: 'no number'") as caught:
        mapped(kernel, threads=threads)
    assert isinstance(caught.value.__cause__, ValueError)
    # The process goes on.
    assert mapped(numba.njit(lambda block: block[0])) == [0.0, 4096.0, 8192.0, 12288.0, 16384.0]


def test_object_mode_that_gives_another_type():
    error = refused(of_another_type)
    assert isinstance(error.__cause__, TypeError), error


def test_object_mode_without_an_exception():
    @numba.njit
    def squared(block):
        first = block[0]
        with numba.objmode(y="float64"):
            y = float(first) ** 2
        return y

    for threads in (1, 2):
        assert mapped(squared, threads=threads) == [(4096.0 * block) ** 2 for block in range(5)]


def test_an_exit_in_object_mode():
    @numba.njit
    def leaves(block):
        with numba.objmode():
            sys.exit(3)
        return block[0]

    with pytest.raises(SystemExit):
        mapped(leaves)


def test_code_that_knows_no_interpreter_is_entered_freely():
    """Others attach to the interpreter for each block."""

    @numba.njit
    def pure(block, factor=2.0):
        if block[0] < 0:
            raise ValueError("negative")
        return block * factor

    def entry(f):
        return Compiler(f, "f", ["x"])([(False, [("f", 8, 1)])])[3]

    assert entry(pure) == "free"
    assert entry(in_object_mode) == entry(in_a_function_of_its_own) == "watched"


def test_code_from_numba_s_cache(tmp_path):
    """Its text is read from there too."""
    script = textwrap.dedent("""
        import numba, numpy as np
        from brambling._numba import Compiler
        @numba.njit(cache=True)
        def pure(block): return block.sum()
        @numba.njit(cache=True, parallel=True)
        def loops(block):
            total = 0.0
            for row in numba.prange(block.shape[0]): total += block[row]
            return total
        for f in (pure, loops): print(Compiler(f, "f", ["x"])([(False, [("f", 8, 1)])])[3], sum(f.stats.cache_hits.values()))
    """)
    (tmp_path / "cached.py").write_text(script)
    for hits in (0, 1):
        assert outcome(tmp_path / "cached.py", NUMBA_THREADING_LAYER="workqueue") == f"free {hits}\nalone {hits}\n"


# ---- loops on numba's threads


def outcome(script, **environment):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script], capture_output=True, text=True, timeout=PATIENCE_S, env=os.environ | environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


LOOPS = """
import threading
import numba, numpy as np, brambling as br

x = np.arange(400_000.0) % 7
expected = float((x * x).sum())

@numba.njit(parallel=True)
def squares(block):
    total = 0.0
    for row in numba.prange(block.shape[0]):
        total += block[row] * block[row]
    return total

@numba.njit
def through_another(block):
    return squares(block)

@numba.njit(parallel=True)
def vectors(block):
    return (block * block).sum()

@numba.njit(parallel=True)
def and_object_mode(block):
    total = squares(block)
    with numba.objmode(y="float64"):
        y = float(total)
    return y

def of_python(block):
    return squares(block)

def total_of(*kernels):
    p = br.Program("loops")
    rows = p.load(x, partitions=8)
    totals = [p.reduce("sum", p.map(kernel, rows)) for kernel in kernels]
    p.keep(*totals)
    result = p.run(threads=3)
    return [float(result[total]) for total in totals]
"""


def test_loops_on_threads_that_serve_one_caller(tmp_path):
    """
    With workqueue a second caller ends the process ("Concurrent access has been detected"): machine code of workers, functions of the
    interpreter beside it, and those of other jobs.
    """
    script = tmp_path / "loops.py"
    script.write_text(
        LOOPS
        + textwrap.dedent("""
        for kernels in [(squares,), (through_another,), (vectors, squares), (and_object_mode,), (squares, of_python)]:
            for _ in range(5):
                assert total_of(*kernels) == [expected] * len(kernels), kernels
        found = []
        jobs = [threading.Thread(target=lambda kernel=kernel: found.append(total_of(kernel))) for kernel in [squares, of_python] * 2]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        assert found == [[expected]] * 4, found
        print(numba.threading_layer())
        """)
    )
    assert outcome(script, NUMBA_THREADING_LAYER="workqueue") == "workqueue\n"


NESTED = """
@numba.njit(parallel=True)
def loop_in_a_loop(block):
    total = 0.0
    for _ in numba.prange(2):
        total += squares(block)
    return total

try:
    total_of(loop_in_a_loop)
except br.KernelError as error:
    print(error)
"""


def test_a_loop_in_a_loop(tmp_path):
    """Numba ends the process, without a program too."""
    script = tmp_path / "loops.py"
    script.write_text(LOOPS + NESTED)
    said = outcome(script, NUMBA_THREADING_LAYER="workqueue")
    assert "`loop_in_a_loop` has a parallel loop that calls a function compiled with parallel=True" in said
    assert "leave parallel=True out of one of them, or install another layer" in said


@pytest.mark.parametrize("layer", ["omp", "tbb"])
def test_loops_on_threads_that_serve_many(layer, tmp_path):
    """They take no turns; an exception in such a loop is told where numba leaves it with the caller."""
    script = tmp_path / "loops.py"
    script.write_text(
        LOOPS
        + textwrap.dedent("""
        try:
            squares(x)
            assert numba.threading_layer() != "workqueue"
        except (ValueError, AssertionError) as missing:
            print("skip", missing)
            raise SystemExit
        assert total_of(squares, through_another) == [expected] * 2

        @numba.njit
        def fails(block):
            if block[0] == 0:
                raise ValueError("told")
            return block[0]

        @numba.njit(parallel=True)
        def fails_in_a_loop(block):
            total = 0.0
            for _ in numba.prange(4):
                total += fails(block)
            return total

        try:
            total_of(fails_in_a_loop)
        except br.KernelError as error:
            print(error)
        """)
    )
    said = outcome(script, NUMBA_THREADING_LAYER=layer, NUMBA_NUM_THREADS="1")
    if said.startswith("skip"):
        pytest.skip(f"numba has no layer {layer} here: {said}")
    assert "stage `fails_in_a_loop` failed on partition 0 at turn 0: ValueError: told" in said


# ---- what they read

SCALARS = [
    np.bool_(True), np.int8(-3), np.int16(-3), np.int32(-3), np.int64(-3), np.uint8(200), np.uint16(60_000), np.uint32(2**32 - 1),
    np.uint64(2**64 - 1), np.float32(0.1), np.float64(0.1), np.complex64(1 + 2j), np.complex128(1 + 2j), True, -3, 0.1, 1 + 2j,
]


@pytest.mark.parametrize("value", SCALARS, ids=lambda value: type(value).__name__)
def test_numbers_of_numpy_and_python(value):
    """Catches numbers that are refused, or read as another type or from too few bytes."""
    first, second = mapped(numba.njit(lambda block, value, pair: (value, pair[1])), value, (0.5, value))[-1]
    assert (first, second) == (value, value)
    # As Python's own, as machine code's results are.
    assert type(first) is type(np.asarray(value).item())


def test_a_numpy_kernel_s_result_feeds_a_compiled_one():
    p = br.Program("chain")
    x = p.load(np.ones(20_000))
    for made, kernel, expected in [
        (np.size, numba.njit(lambda block, n: len(block) * n), 20_000 * 20_000),
        (np.mean, numba.njit(lambda block, mean: block.sum() * mean), 20_000.0 * 5),
        (np.all, numba.njit(lambda block, every: len(block) if every else 0), 20_000),
    ]:
        one = p.reduce("sum", p.map(lambda block, made=made: np.asarray(made(block))[()], x))
        total = p.reduce("sum", p.map(kernel, x, p.broadcast(one, like=x)))
        p.keep(total)
        assert p.run()[total] == expected



class Angles(np.ndarray):
    """Of NumPy's arrays, with another meaning."""


UNREADABLE = {
    "another byte order": (X.astype(">f8"), "an array of type >f8", 'give x.astype("<f8")', lambda x: x.astype("<f8")),
    "half precision": (X.astype("f2"), "an array of type float16", 'give x.astype("float32")', lambda x: x.astype("float32")),
    "long doubles": (X.astype("g"), f"an array of type {np.dtype('g')}", 'give x.astype("float64")', lambda x: x.astype("float64")),
    "dates": (np.array(["2020"], "M8[D]"), "an array of type datetime64[D]", 'give x.astype("int64")', lambda x: x.astype("int64")),
    "texts": (np.array(["b", "a"]), "an array of type <U1", "numpy.unique(x, return_inverse=True)", lambda x: np.unique(x, return_inverse=True)[1]),
    "objects": (np.array([1, 2.0], object), "an array of type object", 'give x.astype("float64")', lambda x: x.astype("float64")),
    "columns": (np.zeros(2, "i8,f8"), "[('f0', '<i8'), ('f1', '<f8')]", "x[name]", lambda x: (x["f0"].copy(), x["f1"].copy())),
    "every second element": (X[::2], "does not lie row after row", "numpy.ascontiguousarray(...)", np.ascontiguousarray),
    "columns after columns": (np.asfortranarray(np.ones((3, 2))), "does not lie row after row", "numpy.ascontiguousarray(...)", np.ascontiguousarray),
    "an odd address": (np.frombuffer(bytes(17), np.uint8)[1:].view("f8"), "at an odd address", "give its copy()", lambda x: x.copy()),
    "a class of one's own": (np.ones(2).view(Angles), "a Angles, whose elements", "give numpy.asarray(...)", np.asarray),
    "a large integer": (2**64, "the integer 18446744073709551616, which needs more than 64 bits", "give float(...)", float),
    "a list": ([1.0], "holds list", "give it arrays of numbers", np.asarray),
    "a text": ("a", "holds str", "give it arrays of numbers", lambda x: np.frombuffer(x.encode(), np.uint8)),
    "nothing": (None, "holds NoneType", "give it arrays of numbers", lambda x: np.zeros(0)),
    "in a tuple": ((1.0, [2.0]), "a tuple, whose item 1 is list", "give it arrays of numbers", lambda x: (x[0], np.asarray(x[1]))),
    "a date in a tuple": ((np.datetime64("2020", "D"),), "item 0 is a number of type datetime64[D]", 'x.astype("int64")', lambda x: (int(x[0].astype("int64")),)),
    "a tuple in a tuple": (((1.0,),), "item 0 is tuple", "tuples of them", lambda x: x[0]),
}
rows_of = numba.njit(lambda block, value: len(block))


def beside(value):
    """How many rows a kernel counts that also reads a value, which a kernel of Python hands on as it is."""

    def given(_):
        return value

    p = br.Program("beside")
    rows = p.load(X)
    counted = p.map(rows_of, rows, p.map(given, rows))
    p.keep(counted)
    return sum(p.run()[counted])


@pytest.mark.parametrize("slip", UNREADABLE)
def test_what_cannot_be_read(slip):
    """The type is named, and the way out is one."""
    value, named, way_out, mended = UNREADABLE[slip]
    with pytest.raises(br.KernelError) as caught:
        beside(value)
    said = str(caught.value)
    assert "`given`" in said and named in said and way_out in said, said
    assert beside(mended(value)) == len(X)


# ---- how they are called


def test_defaults_and_the_rest():
    @numba.njit
    def scaled(block, factor=3.0, *more):
        return block.sum() * factor

    @numba.njit
    def several(block, *more):
        return block.sum() + more[0] + more[1][0] + len(more)

    assert sum(mapped(scaled)) == X.sum() * 3
    assert sum(mapped(scaled, 2)) == X.sum() * 2
    assert sum(mapped(several, 1, np.ones(1))) == X.sum() + 5 * 4


def test_too_few_and_too_many():
    for kernel, values in [(numba.njit(lambda block, factor: block), ()), (numba.njit(lambda block: block), (1.0,))]:
        said = str(refused(kernel, *values))
        assert f"is called with {1 + len(values)} argument" in said and "one per dataset" in said
        assert "factor" in said or "too many positional arguments" in said


def test_types_that_were_fixed():
    fixed = numba.njit("float64(int32[:])")(lambda block: float(block[0]))
    said = str(refused(fixed))
    assert "was compiled for the types" in said and "leave the types out, as in numba.njit(f)" in said


def test_writes_to_what_is_not_its_own():
    outside = np.zeros(3)

    @numba.njit
    def to_its_argument(block):
        block[0] = 1
        return block

    @numba.njit
    def to_another(block):
        outside[0] = 1
        return block

    assert "writes to `loaded`, which it only reads; return a new array" in str(refused(to_its_argument))
    assert "writes to an array from outside of it, and numba makes constants of such; return a new array" in str(refused(to_another))
    assert X[0] == outside[0] == 0
