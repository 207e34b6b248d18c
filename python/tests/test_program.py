"""Programs: every statement, against what plain Python gives."""

import functools
import re
from pathlib import Path

import numpy as np
import pytest

import brambling as br


def kept(p, *datasets):
    for dataset in datasets:
        p.keep(dataset)
    result = p.run(threads=2)
    values = [result[dataset] for dataset in datasets]
    return values[0] if len(values) == 1 else values


def test_the_example_of_the_design():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(20_000, 20)), rng.integers(0, 2, 20_000).astype(float)

    def logistic_gradient(block, weights):
        x, labels = block
        return x.T @ (1 / (1 + np.exp(-(x @ weights))) - labels)

    def step(weights, gradient):
        return weights - 1e-4 * gradient

    p = br.Program("logistic-regression")
    samples = p.load(X, y)
    weights = p.dataset("weights", value=np.zeros(20))
    with p.loop(5):
        local = p.broadcast(weights, like=samples)
        gradient = p.map(logistic_gradient, samples, local)
        p.update(weights, step, p.reduce("sum", gradient))
    result = p.run()

    expected = np.zeros(20)
    for _ in range(5):
        expected = step(expected, logistic_gradient((X, y), expected))
    np.testing.assert_allclose(result["weights"], expected, rtol=1e-9)
    assert result[weights] is result["weights"]
    assert list(result) == ["weights"]
    assert result.tally["tasks"] > 0


def test_blocks_are_views_of_the_callers_array():
    X = np.arange(30_000.0).reshape(10_000, 3)
    p = br.Program("views")
    seen = p.map(lambda block: (block.shape, block.flags.writeable, np.shares_memory(block, X)), p.load(X))
    assert kept(p, seen) == [((4096, 3), False, True)] * 2 + [((1808, 3), False, True)]
    assert X.flags.writeable


def test_an_array_that_is_not_contiguous_is_copied():
    X = np.arange(20.0).reshape(4, 5).T
    p = br.Program("copies")
    assert kept(p, p.map(np.sum, p.load(X))) == [190.0]


def test_per_partition_gets_the_whole():
    p = br.Program("whole")
    rows = p.load(np.arange(10_000), partitions=2)
    doubled = p.map(lambda block: int(block[0]), rows)
    wholes = p.map(len, rows, per="partition")
    lists = p.map(lambda firsts: firsts, doubled, per="partition")
    assert kept(p, wholes, lists) == [[4096, 5904], [[0], [4096, 8192]]]


def test_partitions_may_hold_no_block():
    p = br.Program("empty partitions")
    rows = p.load(np.arange(5_000), partitions=7)
    total = p.reduce("sum", p.map(np.sum, rows))
    assert kept(p, total) == sum(range(5_000))


def test_no_rows_reduce_to_nothing():
    p = br.Program("nothing")
    assert kept(p, p.reduce("sum", p.map(np.sum, p.load(np.empty(0))))) is None


@pytest.mark.parametrize(
    ("op", "values", "expected"),
    [
        ("sum", [1, 2, 3, 4, 5], 15),
        ("sum", [2**70, 1, 1, 1, 1], 2**70 + 4),
        ("min", [3.0, -0.0, 0.0, 5.0, 1.0], -0.0),
        ("max", [-3.0, -0.0, 0.0, -5.0, -1.0], 0.0),
        ("max", ["a", "b", "c", "d", "e"], TypeError),
        (lambda left, right: f"({left} {right})", list("abcde"), "(((a b) (c d)) e)"),
    ],
)
def test_reductions(op, values, expected):
    p = br.Program("reductions")
    x = p.dataset("x", partitions=len(values))
    p.update(x, lambda _, ctx: values[ctx.partition])
    total = p.reduce(op, x)
    p.keep(total)
    if expected is TypeError:
        with pytest.raises(br.KernelError, match="max of str; give numbers"):
            p.run()
        return
    result = p.run()[total]
    assert result == expected
    if isinstance(expected, float):
        assert np.signbit(result) == np.signbit(expected)


def test_reductions_of_arrays_and_tuples():
    p = br.Program("arrays")
    x = p.dataset("x", partitions=3)
    p.update(x, lambda _, ctx: (np.array([ctx.partition, np.nan if ctx.partition == 1 else 1.0]), ctx.partition))
    total, least = p.reduce("sum", x), p.reduce("min", x)
    total, least = kept(p, total, least)
    np.testing.assert_array_equal(total[0], [3.0, np.nan])
    assert total[1] == 3
    np.testing.assert_array_equal(least[0], [0.0, np.nan])


def test_all_reduce_reaches_every_partition():
    p = br.Program("all")
    x = p.dataset("x", partitions=4)
    p.update(x, lambda _, ctx: ctx.partition)
    y = p.dataset("y", partitions=2)
    assert kept(p, p.all_reduce("sum", x), p.all_reduce("max", x, like=y)) == [[6] * 4, [3] * 2]


@pytest.mark.parametrize("key", [0, lambda row: row[0]])
def test_shuffle_brings_keys_together_in_source_order(key):
    rows = [(place % 7, place) for place in range(100)]
    results = {}
    for partitions in (1, 2, 7, 64):
        p = br.Program("shuffle")
        x = p.dataset("x", partitions=5)
        p.update(x, lambda _, ctx: rows[20 * ctx.partition : 20 * ctx.partition + 20])
        results[partitions] = kept(p, p.shuffle(x, key=key, partitions=partitions))
        parts = results[partitions] if partitions > 1 else [results[partitions]]
        for number in range(7):
            (part,) = (part for part in parts if any(row[0] == number for row in part))
            assert [row for row in part if row[0] == number] == [row for row in rows if row[0] == number]


def test_shuffle_of_arrays():
    keys, values = np.arange(10_000) % 13, np.arange(10_000.0)
    p = br.Program("arrays")
    by_key = p.shuffle(p.load(keys, values), key=0, partitions=4)
    sums = p.map(lambda rows: {int(k): float(rows[1][rows[0] == k].sum()) for k in np.unique(rows[0])} if rows else {}, by_key)
    merged = {}
    for part in kept(p, sums):
        assert not merged.keys() & part.keys()
        merged |= part
    assert merged == {k: float(values[keys == k].sum()) for k in range(13)}


def test_equal_keys_of_different_types_go_together():
    from brambling._native import partition_of_key

    same = [[1, 1.0, True, np.int32(1), np.float32(1)], [0.0, -0.0, 0, False], ["a", np.str_("a")], [(1, "a"), (1.0, "a")]]
    for keys in same:
        assert len({partition_of_key(key, 1 << 20) for key in keys}) == 1
    assert partition_of_key(2**80, 10) == partition_of_key(float(2**80), 10)


def keys_of_rust():
    """The keys of which the tests in Rust say where they go, with their partitions."""
    read = {"int": int, "float": float, "str": str, "bytes": bytes.fromhex, "pair": lambda text: (int(text.split(" ")[0]), text.split(" ")[1])}
    path = Path(__file__).parents[2] / "crates/program/tests/keys.txt"
    lines = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [(read[kind](text), int(partition)) for kind, text, partition in lines]


def test_keys_go_where_they_go_in_rust():
    from brambling._native import partition_of_key

    keys = keys_of_rust()
    assert {int, float, str, bytes, tuple} == {type(key) for key, _ in keys}
    for key, partition in keys:
        assert (key, partition_of_key(key, 1 << 24)) == (key, partition)


def test_a_shuffle_goes_where_its_keys_go():
    keys = [key for key, _ in keys_of_rust()]
    p = br.Program("shuffle")
    by_key = p.shuffle(p.dataset("keys", value=keys), key=lambda key: key, partitions=7)
    # One of 7 follows from one of 2 ** 24, except at the edges, where no key of the list lies.
    expected = [[key for key, partition in keys_of_rust() if partition * 7 >> 24 == place] for place in range(7)]
    assert list(map(repr, kept(p, by_key))) == list(map(repr, expected))


def test_the_result_of_a_shuffle_lies_by_hash():
    p = br.Program("partitioners")
    rows = p.load(np.zeros(10))
    words = p.dataset("words", value=["a", "b"], partitions=3)
    by_key = p.shuffle(words, key=len)
    partitioners = [p._builder.partitioner(it._id) for it in (rows, words, by_key)]
    assert partitioners == ["blocks", "opaque", "hash"]


def test_neighbours_on_a_ring_of_any_size():
    for count in (1, 2, 3):
        p = br.Program("ring")
        x = p.dataset("x", partitions=count)
        p.update(x, lambda _, ctx: ctx.partition)
        halo = kept(p, p.exchange(x, neighbours=(-1, 1), wrap=True, send=lambda x, offset: (x, offset)))
        halo = halo if count > 1 else [halo]
        assert halo == [{-1: ((i - 1) % count, 1), 1: ((i + 1) % count, -1)} for i in range(count)]


def test_nested_control_flow():
    p = br.Program("collatz")
    n = p.dataset("n", value=27)
    steps = p.dataset("steps", value=0)
    rounds = p.dataset("rounds", value=0)
    with p.loop(2):
        p.update(n, lambda _: 27)
        with p.loop(while_=lambda n: n != 1, on=n):
            with p.if_(p.signal(lambda n: n % 2 == 0, n)):
                p.update(n, lambda n: n // 2)
            with p.else_():
                p.update(n, lambda n: 3 * n + 1)
            p.update(steps, lambda steps: steps + 1)
        with p.loop(0):
            p.update(rounds, lambda _: 1 / 0)
        p.update(rounds, lambda rounds: rounds + 1)
    result = p.run()
    assert (result["n"], result["steps"], result["rounds"]) == (1, 222, 2)


def test_an_update_sees_no_other_holder():
    """Values that others see are copied before a kernel may write into them."""
    original = np.zeros(3)

    def bump(x):
        x += 1
        return x

    p = br.Program("aliases")
    x = p.dataset("x", value=original, partitions=2)
    items = p.dataset("items", value=[0])
    before = p.map(lambda x: x, x)
    seen = p.broadcast(items, like=x)
    p.update(x, bump)
    p.update(items, lambda items: items.append(1) or items)
    p.update(x, bump)
    before, x, seen, items = kept(p, before, x, seen, items)
    np.testing.assert_array_equal(before, np.zeros((2, 3)))
    np.testing.assert_array_equal(x, np.full((2, 3), 2.0))
    np.testing.assert_array_equal(original, np.zeros(3))
    assert seen == [[0], [0]]
    assert items == [0, 1]


def test_a_program_runs_again_from_the_start():
    p = br.Program("again")
    x = p.dataset("x", value=np.zeros(2))
    p.update(x, lambda x: x + 1)
    for threads in (1, 3):
        np.testing.assert_array_equal(p.run(threads=threads)[x], [1, 1])


def test_context_and_random_numbers():
    def draw(block, ctx, *, scale=2):
        assert ctx.partitions == 3
        return ctx.block, ctx.turn, scale * float(ctx.rng().random())

    draws = []
    for _ in range(2):
        p = br.Program("random", seed=5)
        rows = p.load(np.zeros(10_000), partitions=3)
        with p.loop(2):
            drawn = p.map(draw, rows)
        draws.append(kept(p, drawn))
    assert draws[0] == draws[1]
    assert [(block, turn) for block, turn, _ in draws[0]] == [(0, 1), (1, 1), (2, 1)]
    assert len({number for *_, number in draws[0]}) == 3


def test_kernels_of_every_kind():
    class Add:
        def __init__(self, more):
            self.more = more

        def __call__(self, x):
            return x + self.more

    def keyword(x, *, ctx):
        return x + ctx.partition

    p = br.Program("kinds")
    x = p.dataset("x", value=1)
    for f in (Add(1), functools.partial(lambda more, x: x + more, 10), keyword, lambda ctx, x: x + ctx.turn):
        p.update(x, f)
    assert p.run()[x] == 12


def test_texts_and_handles():
    p = br.Program("texts")
    rows = p.load(np.zeros((9_000, 2)), name="rows")
    local = p.broadcast(p.dataset("weights", value=0), like=rows)
    with p.loop(3):
        p.map(lambda block, weights: 0, rows, local)
    assert repr(rows) == "<dataset rows: 3 blocks in 3 partitions, of program 'texts'>"
    assert repr(local) == "<dataset weights everywhere: 3 partitions, of program 'texts'>"
    assert "repeat 3" in str(p)
    assert re.search(r"compute lambda at test_program\.py:\d+  reads rows, weights everywhere", str(p))
    assert p.picture().startswith("flowchart TD")


@pytest.mark.parametrize(
    "made",
    [
        lambda p, x: p.all_reduce("max", x),
        lambda p, x: p.shuffle(x, key=abs),
        lambda p, x: p.broadcast(p.reduce(max, x), like=x),
        lambda p, x: p.exchange(x, neighbours=(0,)),
    ],
)
def test_names_of_a_chain_do_not_hold_all_names_before(made):
    p = br.Program("a chain")
    names, x = [], p.dataset("x", value=1, partitions=2)
    for _ in range(40):
        names.append(x.name)
        x = made(p, x)
    assert len(set(names)) == 40 and max(map(len, names)) <= 100
    assert max(map(len, str(p).splitlines())) <= 500


def test_a_picture():
    p = br.Program("picture")
    x = p.dataset('x "<#1>"', value=0)
    y = p.dataset("y", value=0, partitions=4)
    p.update(y, abs)
    with p.loop(3):
        with p.loop(while_=bool, on=x):
            p.update(x, abs)
        with p.if_(p.signal(bool, x)):
            p.update(x, abs)
        with p.else_():
            p.update(x, int)
        with p.if_(p.signal(bool, x)):
            p.update(x, abs)
    p.broadcast(x, like=y)
    # No arrow stands in a frame: Mermaid would draw the box that it comes from in there.
    assert p.picture() == """flowchart TD
  s0["abs"]
  subgraph b1["repeat 3"]
    direction TB
    subgraph b3["while bool"]
      direction TB
      s1{"bool"}
      s2["abs"]
    end
    s3{"bool"}
    subgraph b4["if bool"]
      direction TB
      s4["abs"]
    end
    subgraph b5["else"]
      direction TB
      s5["int"]
    end
    s6{"bool"}
    subgraph b6["if bool"]
      direction TB
      s7["abs"]
    end
  end
  s8["scatter broadcast x #quot;#lt;#35;1#gt;#quot;"]
  s9["gather broadcast x #quot;#lt;#35;1#gt;#quot;"]
  s0 --> s1
  s1 --> s2
  s2 --> s3
  s3 --> s4
  s3 --> s5
  s4 --> s6
  s5 --> s6
  s6 --> s7
  s7 --> s8
  s6 --> s8
  s8 ==> s9
"""


@pytest.mark.parametrize("statement", ["map", "update", "signal", "reduce", "loop", "shuffle", "exchange", "scatter"])
def test_what_a_function_captures_is_in_the_hash(statement):
    def hash_with(captured):
        p = br.Program("captured")
        x = p.dataset("x", value=1)

        def f(*args):
            return captured

        match statement:
            case "map" | "signal":
                getattr(p, statement)(f, x)
            case "update":
                p.update(x, f)
            case "reduce":
                p.reduce(f, x)
            case "loop":
                with p.loop(while_=f, on=x):
                    p.update(x, abs)
            case "shuffle":
                p.shuffle(x, key=f)
            case "exchange":
                p.exchange(x, neighbours=(-1, 1), send=f)
            case "scatter":
                p.gather(f, p.scatter(abs, x, to=1))
        return p._builder.hash()

    assert hash_with(3) == hash_with(3)
    assert hash_with(3) != hash_with(4)


helped = abs


@pytest.mark.parametrize(
    "made",
    [
        lambda bound: lambda x: x + bound,
        lambda bound: lambda x, bound=bound: x + bound,
        lambda bound: lambda x, *, bound=bound: x + bound,
        lambda bound: functools.partial(lambda bound, x: x + bound, bound),
        lambda bound: lambda x: (helped(x), bound),
    ],
)
def test_lambdas_that_were_written_once_are_told_apart_by_what_is_bound_to_them(made):
    """Their bytes are remembered without that: from the second on it is looked up."""
    program = [(bound, hash_of(made(bound))) for bound in (1, 2, 3, 1, True, 1.0, "1", b"1", None, 2)]
    same = {}
    for bound, found in program:
        assert same.setdefault(repr(bound), found) == found
    assert len(set(same.values())) == len(same)


def test_lambdas_are_told_apart_by_what_they_read_by_name():
    around = {"__builtins__": __builtins__}
    # Written once, and made three times.
    make = eval("lambda: lambda x: helper(x)", around)  # noqa: S307
    found = []
    for around["helper"] in (lambda x: x, lambda x: x + 1, lambda x: x + 2):
        found.append(hash_of(make()))
    assert len(set(found)) == 3


def hash_of(f):
    p = br.Program("a kernel")
    p.map(f, p.dataset("x", value=1))
    return p._builder.hash()


def test_partitions_come_from_the_settings(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    load = lambda: br.Program("p").load(np.zeros(100_000)).partitions  # noqa: E731
    assert load() == 25
    (tmp_path / "brambling.toml").write_text("partitions = 3\n")
    assert load() == 3
    monkeypatch.setenv("BRAMBLING_PARTITIONS", "5")
    assert load() == 5
    assert br.Program("p").load(np.zeros(100_000), partitions=2).partitions == 2


def test_many_small_tasks_do_not_leak():
    p = br.Program("long")
    x = p.dataset("x", value=np.zeros(1000))
    with p.loop(20_000):
        p.update(x, lambda x: x + 1)
    result = p.run()
    assert result[x][0] == 20_000
    assert result.tally["peak_bytes"] < 1_000_000


def test_blas_is_held_at_one_thread():
    from brambling._blas import _controls

    controls = _controls()
    before = [get() for get, _ in controls]
    p = br.Program("blas")
    held = p.map(lambda _: [get() for get, _ in controls], p.dataset("x", value=0))
    assert kept(p, held) == [1] * len(controls)
    assert [get() for get, _ in controls] == before


def test_a_list_of_arrays_is_rows_and_a_tuple_of_numbers_a_column():
    p = br.Program("rows")
    p.keep(p.load([np.arange(3.0), np.ones(3)], name="rows"), p.load((1.0, 2.0), name="numbers"))
    result = p.run()
    assert result["rows"][0].tolist() == [[0.0, 1.0, 2.0], [1.0, 1.0, 1.0]]
    assert result["numbers"][0].tolist() == [1.0, 2.0]
