"""Programs built in one process and run in another, which knows nothing of the first but the bytes."""

import functools
import os
import pickle
import struct
import subprocess
import sys
import threading
from collections import namedtuple

import cloudpickle
import numba
import numpy as np
import pytest

import brambling as br
from brambling import _by_value, _native
from brambling._program import tape, travel

PATIENCE_S = 240
encoded, decoded = _native.Builder.encoded, _native.Builder.decoded

ELSEWHERE = """
import pickle, sys
from brambling._blas import one_blas_thread
from brambling._program.travel import loads

with open(sys.argv[1], "rb") as file:
    loaded = loads(file.read())
with one_blas_thread():
    outcome = loaded.builder.run(int(sys.argv[3]), None)
values = {name: outcome.values(it.id) for name, it in loaded.datasets.items() if it.kept}
with open(sys.argv[2], "wb") as file:
    pickle.dump((loaded.name, loaded.builder.hash(), values), file)
assert not {"test_travel", "helper"} & sys.modules.keys()
"""


def run_in(folder, code, *arguments):
    """Runs a script in a fresh interpreter that starts in a folder, and does not look for modules where pytest does."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], cwd=folder, env=environment,
                          capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def elsewhere(data, folder, threads=2):
    """What a program of so many bytes gives in another process."""
    folder.mkdir(exist_ok=True)
    (folder / "program").write_bytes(data)
    run_in(folder, ELSEWHERE, "program", "values", threads)
    return pickle.loads((folder / "values").read_bytes())


def bits(value):
    """A value as what has to be equal."""
    if isinstance(value, np.ndarray):
        return "array", value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, np.generic):
        return "number", value.dtype.str, value.tobytes()
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, list | tuple):
        return type(value).__name__, [bits(item) for item in value]
    if isinstance(value, dict):
        return [(key, bits(item)) for key, item in value.items()]
    return type(value).__name__, repr(value)


# ---- programs


def gradient(rows, weights):
    X, y = rows
    return X.T @ (1 / (1 + np.exp(-(X @ weights))) - y)


def samples(rows=9_000, columns=5):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(rows, columns))
    return X, (X @ np.arange(1.0, columns + 1) + rng.normal(size=rows) > 0).astype(float)


def logistic_regression():
    p = br.Program("logistic regression")
    X, y = samples()
    rows, rate = p.load(X, y), 0.5 / len(X)
    weights = p.dataset("weights", value=np.zeros(X.shape[1]))
    with p.loop(20):
        total = p.reduce("sum", p.map(gradient, rows, p.broadcast(weights, like=rows)))
        p.update(weights, lambda weights, total: weights - rate * total, total)
    return p


def word_count():
    p = br.Program("word count")
    text = "the same bits on any number of threads and the same words on any number of processes".split()
    words = p.dataset("words", value=[], partitions=4)
    p.update(words, lambda _, ctx: [word for word in text if len(word) > ctx.partition])

    def count(words):
        counts = {}
        for word in words:
            counts[word] = counts.get(word, 0) + 1
        return sorted(counts.items())

    p.keep(p.map(count, p.shuffle(words, key=lambda word: word, partitions=3)))
    return p


def heat():
    p = br.Program("heat")
    rod = p.dataset("rod", value=np.zeros(50), partitions=4)
    p.update(rod, lambda rod, ctx: rod + (ctx.partition == 0) * 100.0)
    change = p.dataset("change", value=np.inf)

    def ends(rod, offset):
        return rod[0] if offset < 0 else rod[-1]

    def step(rod, halo):
        left, right = halo.get(-1, rod[0]), halo.get(1, rod[-1])
        return rod + 0.4 * (np.concatenate([[left], rod[:-1]]) - 2 * rod + np.concatenate([rod[1:], [right]]))

    with p.loop(while_=lambda change: change > 0.5, on=change):
        halo = p.exchange(rod, (-1, 1), send=ends)
        new = p.map(step, rod, halo)
        most = p.reduce("max", p.map(lambda new, rod: float(np.abs(new - rod).max()), new, rod))
        p.update(change, lambda _, most: most, most)
        p.update(rod, lambda _, new: new, new)
    return p


Sums = namedtuple("Sums", "points counts")


def k_means():
    p = br.Program("k-means", seed=3)
    X = np.random.default_rng(2).normal(size=(10_000, 3)).astype(np.float32)
    rows = p.load(X, partitions=3)
    centres = p.dataset("centres", value=X[:4].copy())

    def sums(X, centres):
        nearest = ((X[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
        points = np.stack([X[nearest == one].sum(axis=0) for one in range(len(centres))])
        return tuple(Sums(points, np.bincount(nearest, minlength=len(centres))))

    with p.loop(5):
        local = p.broadcast(centres, like=rows)
        total = p.reduce("sum", p.map(sums, rows, local, per="partition"))
        p.update(centres, lambda _, total: (total[0] / total[1][:, None]).astype(np.float32), total)
    return p


@numba.njit
def square(x):
    return x * x


@numba.njit(fastmath=True)
def compiled(rows):
    total = 0.0
    for value in rows:
        total += square(value)
    return total


def machine_code():
    p = br.Program("machine code")
    total = p.reduce("sum", p.map(compiled, p.load(np.linspace(0.0, 1.0, 20_000))))
    p.keep(total)
    return p


def built_in():
    p = br.Program("built in")
    X, y = samples()
    rows = p.load(X, y, partitions=2)
    weights = p.dataset("weights", value=np.ones(X.shape[1]), partitions=2)
    p.keep(p.reduce("sum", p.map(br.kernels.logistic_gradient, rows, weights)))
    return p


def branches():
    p = br.Program("branches")
    x = p.dataset("x", value=27)
    turns = p.dataset("turns", value=0)
    with p.loop(while_=lambda x: x != 1, on=x):
        with p.if_(p.signal(lambda x: x % 2 == 1, x)):
            p.update(x, lambda x: 3 * x + 1)
        with p.else_():
            p.update(x, lambda x: x // 2)
        p.update(turns, lambda turns: turns + 1)
    return p


def dice():
    p = br.Program("dice", seed=2**63 + 7)
    players = p.dataset("players", value=None, partitions=5)
    with p.loop(3):
        p.update(players, lambda before, ctx: (before or []) + [ctx.rng().normal(), ctx.turn])
    rows = p.load(np.zeros(9_000))
    p.keep(p.map(lambda rows, ctx: ctx.rng().integers(0, 99, 3), rows))
    return p


class Scaler:
    """A kernel that is a method of an object with a value."""

    def __init__(self, factor):
        self.factor = factor

    def scale(self, rows):
        return rows * self.factor


def kinds_of_kernels():
    p = br.Program("kinds of kernels")
    rows = p.load(np.arange(10_000), name="rows")
    both = p.load([1.5, 2.5], ["a", "b"], name="both")
    scaled = p.map(Scaler(np.float32(0.1)).scale, rows)
    p.keep(rows, both, scaled, p.map(np.sqrt, rows), p.map(functools.partial(np.power, 3), p.map(np.log1p, rows)))
    largest = p.reduce(max, p.map(len, rows))
    everywhere = p.all_reduce(lambda a, b: a * b, p.map(np.max, scaled), like=scaled)
    pieces = p.scatter(lambda x, ctx: {to: (ctx.partition, to, x) for to in range(2)}, everywhere, to=2)
    table = p.dataset("table", value={"none": None, "text": "é", "bytes": b"\0", "set": {1}})
    p.keep(largest, everywhere, p.gather(lambda pieces: pieces, pieces), p.shuffle(both, key=1, partitions=2))
    p.keep(p.map(lambda table: list(table), table))
    return p


PROGRAMS = [logistic_regression, word_count, heat, k_means, machine_code, built_in, branches, dice, kinds_of_kernels]


@pytest.mark.parametrize("build", PROGRAMS, ids=lambda build: build.__name__)
def test_a_program_gives_the_same_bits_in_another_process(build, tmp_path):
    p = build()
    before = set(cloudpickle.list_registry_pickle_by_value())
    data = travel.dumps(p)
    assert set(cloudpickle.list_registry_pickle_by_value()) == before
    name, its_hash, values = elsewhere(data, tmp_path / "away")
    assert (name, its_hash) == (p.name, p._builder.hash())
    result = p.run()
    assert list(values) == list(result) != []
    for name in result:
        one = p._datasets[name]._blocks is None and p._datasets[name].partitions == 1
        assert bits(values[name][0] if one else values[name]) == bits(result[name]), name


def test_a_loaded_program_knows_its_datasets():
    p = kinds_of_kernels()
    loaded = travel.loads(travel.dumps(p))
    assert (loaded.name, loaded.seed, loaded.builder.text()) == (p.name, 0, str(p))
    assert list(loaded.datasets) == list(p._datasets)
    rows = loaded.datasets["rows"]
    assert (rows.id, rows.partitions, rows.blocks, rows.kept) == (0, 3, 3, True)
    assert not loaded.datasets["log1p"].kept


def test_a_refused_statement_does_not_travel():
    p = br.Program("refused")
    x, y = p.dataset("x", value=1), p.dataset("y", value=1, partitions=2)
    with pytest.raises(br.BuildError):
        p.map(max, x, y)
    p.update(x, lambda x: x + 1)
    assert [method for method, _ in p._builder.told] == ["dataset", "dataset", "update"]
    assert travel.loads(travel.dumps(p)).builder.run(1, None).values(0) == [2]


def test_every_statement_of_the_builder_is_on_the_tape():
    questions = {"is_kept", "partitions", "partitioner", "is_blocked", "text", "picture", "hash", "run"}
    values = {"encoded", "decoded", "encoded_blocks", "decoded_blocks"}
    methods = {name for name in dir(_native.Builder) if not name.startswith("_")}
    assert methods - values == tape.STATEMENTS | questions
    assert all(hasattr(tape.Tape, name) for name in methods - values)


# ---- the script's own code


HELPER = """
from collections import namedtuple
import numba

FACTOR = 3
Pair = namedtuple("Pair", "one two")

class Point:
    def __init__(self, x):
        self.x = x

def moved(point):
    return Point(point.x * FACTOR)

@numba.njit
def doubled(x):
    return Pair(x, 2 * x).two
"""

SCRIPT = """
import sys
import numpy as np
import brambling as br
import helper
from helper import moved
import numba
from brambling._program.travel import dumps

OFFSET = 10

def added(point):
    return helper.Point(point.x + OFFSET)

@numba.njit
def total(rows):
    found = 0
    for value in rows:
        found += helper_doubled(value)
    return found

helper_doubled = helper.doubled
p = br.Program("a script")
points = p.dataset("points", value=helper.Point(1), partitions=2)
p.update(points, moved)
p.update(points, added)
p.keep(p.map(lambda point: (type(point).__name__, point.x), points), p.reduce("sum", p.map(total, p.load(np.arange(5_000)))))
with open(sys.argv[1], "wb") as file:
    file.write(dumps(p))
"""


def test_functions_of_a_script_and_of_a_module_next_to_it(tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    (here / "helper.py").write_text(HELPER)
    (here / "script.py").write_text(SCRIPT)
    run_in(here, "import runpy, sys; sys.path.insert(0, '.'); sys.argv = sys.argv[1:]; "
                 "runpy.run_path('script.py', run_name='__main__')", "script.py", tmp_path / "program")
    code = ELSEWHERE.replace('for name, it in loaded.datasets.items() if it.kept', 'for name, it in loaded.datasets.items()'
                             ' if it.kept and name != "points"')
    run_in(tmp_path, code, "program", "values", 1)
    _, _, values = pickle.loads((tmp_path / "values").read_bytes())
    lambda_name, total_name = values
    assert values[lambda_name] == [("Point", 13), ("Point", 13)]
    assert values[total_name] == [4_999 * 5_000]


def test_only_what_is_not_installed_goes_by_value():
    names = {module.__name__ for module in _by_value._modules_not_installed(0, "")}
    assert __name__ in names
    assert not {"json", "numpy", "numba", "pytest", "brambling", "brambling.kernels", "__main__", "sys"} & names


# ---- how much travels


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_travel_once(dtype, order):
    X = np.asarray(np.random.default_rng(0).random((20_000_000 // 80, 80 // np.dtype(dtype).itemsize)), dtype=dtype, order=order)
    y = np.zeros(len(X))
    p = br.Program("arrays")
    rows = p.load(X, y, partitions=7)
    p.keep(p.map(lambda rows: rows[0].sum(axis=0), rows))
    data = travel.dumps(p)
    assert len(data) <= 1.05 * (X.nbytes + y.nbytes) + 65536
    # Read by another statement, and held by a function too.
    weights = p.load(y, name="again")
    p.map(lambda again: len(y) + len(again), weights)
    more = travel.dumps(p)
    assert len(more) - len(data) < 65536
    loaded = travel.loads(data)
    ours, theirs = p.run(), loaded.builder.run(2, None)
    assert bits(theirs.values(1)) == bits(list(ours.values())[0])


def test_what_a_function_may_write_it_may_write_there(tmp_path):
    scratch = np.zeros(3)

    def remembers(x):
        scratch[:] += x
        return scratch.copy()

    p = br.Program("scratch")
    x = p.dataset("x", value=1.0)
    first, second = p.map(remembers, x), p.map(remembers, x)
    p.keep(first, second)
    _, _, values = elsewhere(travel.dumps(p), tmp_path / "away", threads=1)
    assert [value[0].tolist() for value in list(values.values())[1:]] == [[1.0] * 3, [2.0] * 3]


# ---- what cannot travel


class Holder:
    def __init__(self):
        self.lock = threading.Lock()

    def kernel(self, x):
        return x


class SlottedHolder:
    __slots__ = ("lock", "never_set")
    kernel = Holder.kernel

    def __init__(self):
        self.lock = threading.Lock()


A_LOCK = threading.Lock()


def reads_a_global(x):
    return x, A_LOCK


@pytest.mark.parametrize("statement", ["map", "update", "signal", "loop", "reduce", "shuffle", "exchange", "scatter", "gather"])
def test_a_function_that_captures_what_cannot_be_pickled(statement, tmp_path):
    p = br.Program("open")
    x = p.dataset("x", value=1)
    with open(tmp_path / "log", "w") as log:

        def writes(x, y=None):
            log.write(str(x))
            return x

        match statement:
            case "map" | "signal":
                getattr(p, statement)(writes, x)
            case "update":
                p.update(x, writes)
            case "loop":
                with p.loop(while_=writes, on=x):
                    p.update(x, abs)
            case "reduce":
                p.reduce(writes, x)
            case "shuffle":
                p.shuffle(x, key=writes)
            case "exchange":
                p.exchange(x, (-1, 1), send=writes)
            case "scatter":
                p.gather(len, p.scatter(writes, x, to=1))
            case "gather":
                p.gather(writes, p.scatter(abs, x, to=1))
        with pytest.raises(br.BuildError) as caught:
            travel.dumps(p)
    name = {"reduce": "writes of x", "shuffle": "shuffle x", "exchange": "exchange x"}.get(statement, "writes")
    assert str(caught.value) == (
        f"`{name}` cannot be sent to other processes: it captures `log`, of type TextIOWrapper (cannot pickle an open file); "
        "make it inside the function, or leave it out and give what it is needed for"
    )


def test_what_a_function_captures_is_named():
    lock, items = threading.Lock(), (n for n in range(3))
    table = {"locks": [1, lock]}

    def inner(x):
        return x, lock

    other = br.Program("other")
    other_x = other.dataset("x")
    for kernel, variable, kind in [
        (lambda x: (x, lock), "lock", "lock"),
        (lambda x: (x, items), "items", "generator"),
        (lambda x: (x, table), "table['locks'][1]", "lock"),
        (lambda x: inner(x), "lock", "lock"),
        (lambda x, given=lock: x, "given", "lock"),
        (functools.partial(lambda lock, x: x, lock), "argument 1", "lock"),
        (Holder().kernel, "self.lock", "lock"),
        (SlottedHolder().kernel, "self.lock", "lock"),
        (reads_a_global, "A_LOCK", "lock"),
        (lambda x: other, "other", "Program"),
        (lambda x: other_x, "other_x", "Dataset"),
    ]:
        p = br.Program("captures")
        p.map(kernel, p.dataset("x", value=1))
        with pytest.raises(br.BuildError) as caught:
            travel.dumps(p)
        assert f"it captures `{variable}`, of type {kind} (" in str(caught.value)


def test_a_value_that_cannot_be_pickled():
    p = br.Program("values")
    p.dataset("fine", value=1)
    p.dataset("locks", value={"one": threading.Lock()})
    with pytest.raises(br.BuildError, match=r"dataset `locks` cannot be sent to other processes: it holds `\['one'\]`, of type lock"):
        travel.dumps(p)
    # Where it was built it runs.
    p.keep(p.map(len, p._datasets["locks"]))
    assert p.run()["len"] == 1


# ---- who may read it


def some_bytes():
    p = br.Program("bytes")
    p.update(p.dataset("x", value=np.arange(3.0)), lambda x: x + 1)
    return travel.dumps(p)


def test_another_version_is_refused():
    data = some_bytes()
    own = f"brambling {br.__version__} on Python {sys.version_info[0]}.{sys.version_info[1]}"
    for place, was in [(4, 2), (7, sys.version_info[1]), (9, ord(br.__version__[0]))]:
        assert data[place] == was
        other = bytearray(data)
        other[place] += 1
        with pytest.raises(br.VersionMismatch) as caught:
            travel.loads(other)
        text = str(caught.value)
        assert text.startswith("this program was built with brambling ") and own in text
        assert text.endswith("install the same versions of both on every machine")
    assert isinstance(caught.value, br.Error)


def test_another_version_of_a_package_is_refused(tmp_path):
    for version in ("1.5", "2.0"):
        package = tmp_path / version / "site-packages/toolbox"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(f"__version__ = {version!r}\ndef kernel(x):\n    return x\n")
    build = ("import brambling as br; from toolbox import kernel; from brambling._program.travel import dumps; p = br.Program('p'); "
             "p.map({0}, p.dataset('x', value=1)); open('program', 'wb').write(dumps(p))")
    load = "from brambling._program.travel import loads; loads(open('program', 'rb').read()); print('loaded')"
    # By name, and by what a function of the script uses.
    for kernel in ("kernel", "lambda x: kernel(x)"):
        at = f"import sys; sys.path.insert(0, {str(tmp_path)!r} + '/{{}}/site-packages'); "
        run_in(tmp_path, at.format("1.5") + build.format(kernel))
        assert run_in(tmp_path, at.format("1.5") + load) == "loaded\n"
        said = run_in(tmp_path, at.format("2.0") + load.replace("; loads(", "\ntry: loads(").replace("; print('loaded')",
                      "\nexcept Exception as e: print(type(e).__name__, e)"))
        assert said == ("VersionMismatch the program was built with toolbox 1.5, and here is toolbox 2.0; install the same version on "
                        "every machine\n")


def test_bytes_that_are_no_program_are_refused():
    data = some_bytes()
    for wrong in [b"", b"BRPY", b"something else", data[:-1], data[:30], data[:100]]:
        with pytest.raises(br.BuildError):
            travel.loads(wrong)
    rng = np.random.default_rng(5)
    # What is before the pickle, which would run whatever it says.
    for _ in range(300):
        other = bytearray(data)
        other[int(rng.integers(9, 46))] ^= 1 << int(rng.integers(8))
        try:
            travel.loads(other)
        except br.Error:
            pass


def test_a_package_that_is_not_installed_there(tmp_path):
    (tmp_path / "away").mkdir()
    site = tmp_path / "site-packages"
    site.mkdir()
    (site / "installed_here.py").write_text("def kernel(x):\n    return x\n")
    run_in(tmp_path, f"import sys; sys.path.insert(0, {str(site)!r}); import brambling as br, installed_here; p = br.Program('p'); "
           "p.map(installed_here.kernel, p.dataset('x', value=1)); from brambling._program.travel import dumps; "
           "open('program', 'wb').write(dumps(p))")
    with pytest.raises(br.BuildError, match="the program needs the package `installed_here`, which is not installed here"):
        travel.loads((tmp_path / "program").read_bytes())


def test_a_program_that_became_another_one_is_refused(monkeypatch):
    data = some_bytes()
    monkeypatch.setattr(tape.Tape, "update", lambda *_: None)
    with pytest.raises(br.BuildError, match="became another one"):
        travel.loads(data)


# ---- pieces and results


def values():
    rng = np.random.default_rng(4)
    for dtype in "?bBhHiIlLqQefdgFDG":
        yield rng.integers(0, 2, (3, 4)).astype(dtype)
    yield np.array(["2024-02-29", "NaT"], "M8[D]")
    yield np.array([1, -1], "m8[ns]")
    yield np.array(["a", "éé"])
    yield np.array([b"a", b"bb"])
    yield np.array([1, 2], ">i4")
    yield np.array([(1, 2.5), (3, 4.5)], [("a", "i2"), ("b", "f8")])
    yield np.array([(1, [1, 2])], np.dtype([("a", "i1"), ("b", "i4", 2)], align=True))
    yield np.array([None, "a", 1.5], object)
    yield np.asfortranarray(rng.random((4, 3)))
    yield rng.random((4, 6))[::2, ::3]
    yield rng.random((2, 3, 4)).transpose(1, 2, 0)
    for shape in [(0,), (3, 0), ()]:
        yield np.zeros(shape)
        yield np.zeros(shape, object)
    yield np.float32(1.5)
    yield np.rec.array([(1, "a")], names="n, t")
    for plain in [None, True, 1, 1 << 80, -0.0, float("inf"), 2j, "é", b"\0\1", [], (1, [2.0]), {"a": {"b": np.arange(3)}}, {1, 2}]:
        yield plain
    yield Scaler(np.float32(0.5))
    shared = np.arange(4)
    yield shared, shared


DECODES = """
import pickle, sys
import brambling as br
from brambling import _native
with open("sent", "rb") as file:
    sent = pickle.load(file)
back = [_native.Builder.encoded(_native.Builder.decoded(data)) for data in sent]
with open("back", "wb") as file:
    pickle.dump(back, file)
"""


def shape_of(value):
    if isinstance(value, np.ndarray):
        return type(value), value.dtype, value.flags.f_contiguous, value.flags.c_contiguous, value.shape, value.tobytes("A")
    return bits(value)


def test_values_go_to_another_process_and_come_back(tmp_path):
    given = list(values())
    read_only = np.arange(5.0)
    read_only.flags.writeable = False
    (tmp_path / "sent").write_bytes(pickle.dumps([encoded(value) for value in [*given, read_only]]))
    run_in(tmp_path, DECODES)
    *came, last = map(decoded, pickle.loads((tmp_path / "back").read_bytes()))
    for value, back in zip(given, came, strict=True):
        if isinstance(value, np.ndarray) and not (value.flags.c_contiguous or value.flags.f_contiguous):
            assert bits(back) == bits(value)
        elif isinstance(value, Scaler):
            # The class that went there is the one that came back.
            assert type(back) is Scaler and back.factor == value.factor
        elif isinstance(value, np.ndarray) and value.dtype.hasobject:
            assert back.tolist() == value.tolist() and back.dtype == value.dtype
        else:
            assert shape_of(back) == shape_of(value)
        if isinstance(back, np.ndarray):
            assert back.flags.writeable and back.flags.aligned
    assert not last.flags.writeable and last.tolist() == read_only.tolist()
    first, second = came[-1]
    assert first is second


def test_an_array_is_sent_as_its_elements_and_little_more():
    array = np.random.default_rng(0).random(1_000_000)
    data = encoded(array)
    assert len(data) < array.nbytes + 300
    assert array.tobytes() in data
    # It is copied once, and counts as memory of its own.
    back = decoded(data)
    lender = back.base
    while isinstance(lender, np.ndarray):
        lender = lender.base
    assert type(lender) is memoryview and type(lender.obj) is bytearray
    # Of what was lent by somebody nothing is charged.
    p = br.Program("memory")
    arrived = p.dataset("arrived", value=None)
    p.update(arrived, lambda _: decoded(data))
    assert p.run().tally["peak_bytes"] > array.nbytes
    p = br.Program("memory")
    lent = p.dataset("lent", value=None)
    p.update(lent, lambda _: array[1:])
    assert p.run().tally["peak_bytes"] < 10_000


@pytest.mark.parametrize("chunk_bytes", [1, 7, 64, 5_000, 1_000_000])
def test_values_in_chunks_are_what_they_are_at_once(chunk_bytes):
    rng = np.random.default_rng(7)
    numbers = rng.random(3_000)
    odd = [None, 3, "text", {"a": [1, 2]}, Sums(1, [2]), numbers, numbers[::3], np.arange(0.0), (numbers, np.arange(5), b"bytes")]
    for value in odd:
        data = encoded(value)
        assert encoded(value, chunk_bytes) == data
        back = decoded(data, chunk_bytes)
        assert bits(back) == bits(value)
        for cut in [0, 1, 5, len(data) // 2, len(data) - 1]:
            with pytest.raises(br.Error):
                decoded(data[:cut], chunk_bytes)
        with pytest.raises(br.Error):
            decoded(data + b"\0", chunk_bytes)
    blocks = [numbers[:1_000], numbers[1_000:2_500], numbers[2_500:]]
    for values, whole in [(blocks, numbers), (blocks, None), ([1, None, "x"], None)]:
        data = _native.Builder.encoded_blocks(4, values, whole)
        assert _native.Builder.encoded_blocks(4, values, whole, chunk_bytes) == data
        first, came, _ = _native.Builder.decoded_blocks(data, chunk_bytes)
        assert first == 4 and [bits(value) for value in came] == [bits(value) for value in values if value is not None or whole is None]
    with pytest.raises(br.Error, match="of type lock"):
        decoded(encoded({"lock": threading.Lock()}, chunk_bytes), chunk_bytes)


def test_objects_of_the_scripts_classes_are_sent():
    point = decoded(encoded(Sums(1, [2])))
    assert point == Sums(1, [2]) and type(point) is Sums
    f = decoded(encoded(lambda x: x + 1))
    assert f(1) == 2


def test_a_value_that_cannot_be_sent_is_told_to_who_reads_it():
    data = encoded({"lock": threading.Lock()})
    with pytest.raises(br.Error, match=r"it holds `\['lock'\]`, of type lock \(cannot pickle '_thread.lock' object\)"):
        decoded(data)


def test_hostile_bytes_are_an_error():
    data = encoded((np.arange(10.0), {"a": 1}))
    for wrong in [b"", b"\7", data[:-1], data + b"\0", b"\1" + b"\xff" * 8, b"\1" + bytes(8) + b"\xff" * 8, b"\2", b"\2" + b"\xff" * 9,
                  b"\2" + (1).to_bytes(8, "little") + b"\xff"]:
        with pytest.raises(br.Error):
            decoded(wrong)
    rng = np.random.default_rng(6)
    for _ in range(2_000):
        other = bytearray(data)
        # Lengths and counts, and what the arrays are; the pickle might run something.
        place = int(rng.choice([*range(9), *range(len(data) - 100, len(data))]))
        other[place] ^= 1 << int(rng.integers(8))
        try:
            decoded(bytes(other))
        except br.Error:
            pass


def test_blocks_travel_as_their_whole():
    X, y = np.arange(30_000.0).reshape(10_000, 3), np.arange(10_000)
    for array in (X, y):
        array.flags.writeable = False
    ends = [4096, 8192, 10_000]
    blocks = [(X[start:end], y[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
    data = _native.Builder.encoded_blocks(5, blocks, (X, y))
    assert len(data) < X.nbytes + y.nbytes + 1_000
    first, values, whole = _native.Builder.decoded_blocks(data)
    assert first == 5
    assert bits(values) == bits(blocks) and bits(whole) == bits((X, y))
    assert np.shares_memory(values[0][0], whole[0])
    # What is not its parts goes by itself.
    for others in ([(X[:4096], y[:4096])], [*blocks[:2], (X[8192:] + 1, y[8192:])], [X[:4096], X[4096:]], [None, 1]):
        first, values, whole = _native.Builder.decoded_blocks(_native.Builder.encoded_blocks(0, others, (X, y)))
        assert bits(values) == bits(others) and bits(whole) == bits((X, y))


def test_hostile_blocks_are_an_error():
    X = np.arange(10_000.0)
    data = _native.Builder.encoded_blocks(0, [X[:4096], X[4096:]], X)
    for wrong in [b"\xff" * 8 + data[8:], data[:-1] + b"\1", data[:-8] + (1).to_bytes(8, "little")]:
        with pytest.raises(br.Error):
            _native.Builder.decoded_blocks(wrong)
