"""Programs of many statements: built and run in time that grows with their number, and what they give; and how deep blocks may stand."""

import contextlib
import gc
import random
import time
from statistics import median

import numpy as np
import pytest

import brambling as br
from brambling._program.travel import dumps

P = 10_007
PARTITIONS = 3


# ---- random programs beside plain Python


class Model:
    """Writes statements into a program, and does at once in plain Python what they mean. A dataset is the list of its partitions' values."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.p = br.Program(f"random {seed}")
        self.values = []  # (dataset, values)
        # Those that statements here may read: what a block has made is its own, since it may never be made.
        self.visible = []
        # What stands in blocks is done again by whoever repeats them.
        self.acts = []
        self.left = 0
        for partitions in (1, 1, PARTITIONS, PARTITIONS):
            self.dataset(partitions)

    def add(self, made, initial):
        self.values.append((made, initial))
        self.visible.append(len(self.values) - 1)
        return self.visible[-1]

    def pick(self, partitions=None):
        fitting = [i for i in self.recent() if partitions is None or len(self.values[i][1]) == partitions]
        return self.random.choice(fitting)

    def recent(self):
        """Old datasets too, and not always the same few."""
        return [0, 1, 2, 3, *self.random.sample(self.visible, min(len(self.visible), 8))]

    def does(self, act):
        """Notes what a statement does; it is done where its block stands."""
        self.acts.append(act)

    def dataset(self, partitions=None):
        partitions = partitions or self.random.choice((1, PARTITIONS))
        value = self.random.randrange(P)
        made = self.p.dataset(f"d{len(self.values)}", value=value, partitions=partitions)
        self.add(made, [value] * partitions)

    def map(self):
        a = self.pick()
        b = self.pick(len(self.values[a][1]))
        salt = self.random.randrange(P)
        reads = (a,) if a == b else (a, b)
        made = self.p.map(lambda *xs, salt=salt: (sum(xs) * 3 + salt) % P, *(self.values[i][0] for i in reads))
        out = self.add(made, [0] * len(self.values[a][1]))

        def act(vs):
            vs[out][:] = [(sum(xs) * 3 + salt) % P for xs in zip(*(vs[i] for i in reads), strict=True)]

        self.does(act)

    def update(self):
        a = self.pick()
        salt = self.random.randrange(P)
        self.p.update(self.values[a][0], lambda x, ctx, salt=salt: (x * 5 + salt + ctx.partition) % P)

        def act(vs):
            vs[a][:] = [(x * 5 + salt + i) % P for i, x in enumerate(vs[a])]

        self.does(act)

    def reduce(self):
        a = self.pick()
        op, plain = self.random.choice((("sum", sum), ("min", min), ("max", max)))
        out = self.add(self.p.reduce(op, self.values[a][0]), [0])
        self.does(lambda vs: vs[out].__setitem__(0, int(plain(vs[a]))))
        self.modulo(out)

    def modulo(self, a):
        self.p.update(self.values[a][0], lambda x: int(x) % P)
        self.does(lambda vs: vs[a].__setitem__(slice(None), [x % P for x in vs[a]]))

    def all_reduce(self):
        a = self.pick()
        out = self.add(self.p.all_reduce("max", self.values[a][0]), [0] * len(self.values[a][1]))
        self.does(lambda vs: vs[out].__setitem__(slice(None), [max(vs[a])] * len(vs[a])))
        self.modulo(out)

    def broadcast(self):
        a, like = self.pick(1), self.pick()
        out = self.add(self.p.broadcast(self.values[a][0], like=self.values[like][0]), [0] * len(self.values[like][1]))
        self.does(lambda vs: vs[out].__setitem__(slice(None), vs[a] * len(vs[out])))

    def shuffle(self):
        a = self.pick()
        rows = self.p.map(lambda x: [x, x + 1, 7], self.values[a][0])
        sums = self.p.map(sum, self.p.shuffle(rows, key=lambda row: row % 5, partitions=self.random.choice((1, 2))))
        out = self.add(self.p.reduce("sum", sums), [0])
        self.does(lambda vs: vs[out].__setitem__(0, sum(2 * x + 8 for x in vs[a])))
        self.modulo(out)

    def exchange(self):
        a = self.pick(PARTITIONS)
        wrap = self.random.random() < 0.5
        halo = self.p.exchange(self.values[a][0], neighbours=(-1, 1), wrap=wrap)
        out = self.add(self.p.map(lambda pieces: sum(k + v for k, v in pieces.items()) % P, halo), [0] * PARTITIONS)

        def act(vs):
            def heard(i):
                for offset in (-1, 1):
                    if wrap or 0 <= i + offset < PARTITIONS:
                        yield offset + vs[a][(i + offset) % PARTITIONS]

            vs[out][:] = [sum(heard(i)) % P for i in range(PARTITIONS)]

        self.does(act)

    def scatter(self):
        a = self.pick()
        to = self.random.choice((1, PARTITIONS))
        pieces = self.p.scatter(lambda x, to=to: {t: x + t for t in range(to)}, self.values[a][0], to=to)
        out = self.add(self.p.gather(lambda pieces: sum(pieces.values()) % P, pieces), [0] * to)
        self.does(lambda vs: vs[out].__setitem__(slice(None), [sum(x + t for x in vs[a]) % P for t in range(to)]))

    def load(self):
        rows = self.random.randrange(1, 9_000)
        out = self.add(self.p.reduce("sum", self.p.map(len, self.p.load(np.zeros(rows, np.int8)))), [0])
        self.does(lambda vs: vs[out].__setitem__(0, rows))

    def keep(self):
        self.p.keep(self.values[self.pick()][0])

    def block(self, depth):
        """What a block's statements do."""
        outer, self.acts, seen = self.acts, [], len(self.visible)
        for _ in range(self.random.randrange(1, 4)):
            self.statement(depth + 1)
        del self.visible[seen:]
        acts, self.acts = self.acts, outer

        def all_of_it(vs):
            for act in acts:
                act(vs)

        return all_of_it

    def loop(self, depth):
        turns = self.random.randrange(3)
        with self.p.loop(turns):
            body = self.block(depth)
        self.does(lambda vs: [body(vs) for _ in range(turns)])

    def while_(self, depth):
        counter = self.add(self.p.dataset(f"d{len(self.values)}", value=0), [0])
        # It is not for others to write.
        self.visible.remove(counter)
        made = self.values[counter][0]
        self.p.update(made, lambda _: 0)
        with self.p.loop(while_=lambda x: x < 2, on=made):
            self.p.update(made, lambda x: x + 1)
            body = self.block(depth)

        def act(vs):
            for _ in range(2):
                body(vs)
            vs[counter][0] = 2

        self.does(act)

    def if_(self, depth):
        a = self.pick(1)
        signal = self.p.signal(lambda x: x % 2 == 0, self.values[a][0])
        with self.p.if_(signal):
            then = self.block(depth)
        otherwise = None
        if self.random.random() < 0.5:
            with self.p.else_():
                otherwise = self.block(depth)

        def act(vs):
            if vs[a][0] % 2 == 0:
                then(vs)
            elif otherwise is not None:
                otherwise(vs)

        self.does(act)

    def statement(self, depth=0):
        self.left -= 1
        plain = ("map",) * 4 + ("update",) * 6 + ("dataset", "reduce", "all_reduce", "broadcast", "shuffle", "exchange", "scatter")
        name = self.random.choice(plain + (("loop", "while_", "if_") if depth < 3 else ()) + (("load", "keep") if not depth else ()))
        if name in ("loop", "while_", "if_"):
            getattr(self, name)(depth)
        else:
            getattr(self, name)()

    def check(self, statements, threads):
        self.left = statements
        while self.left > 0:
            self.statement()
        result = self.p.run(threads=threads)
        values = [list(initial) for _, initial in self.values]
        for act in self.acts:
            act(values)
        named = {made.name: i for i, (made, _) in enumerate(self.values)}
        for name in result:
            expected = values[named[name]]
            got = result[name] if len(expected) > 1 else [result[name]]
            assert got == expected, f"{name} of {self.p.name}"


@pytest.mark.parametrize(("statements", "seeds"), [(10, range(40)), (100, range(8)), (1_000, range(3)), (10_000, [0])])
def test_random_programs_give_what_plain_python_gives(statements, seeds):
    for seed in seeds:
        Model(seed).check(statements, threads=1 + seed % 2)


def updates(n):
    p = br.Program("updates")
    x = p.dataset("x", value=0)
    for _ in range(n):
        p.update(x, lambda x: x + 1)
    return p, {"x": n}


def bound(n):
    p = br.Program("bound")
    x = p.dataset("x", value=0)
    for i in range(n):
        p.update(x, lambda x, i=i: x + i)
    return p, {"x": n * (n - 1) // 2}


def maps(n):
    """Each reads what the one before has made, which is then freed."""
    p = br.Program("maps")
    x = p.dataset("x", value=0)
    for _ in range(n):
        x = p.map(lambda x: x + 1, x)
    p.keep(x)
    return p, {x.name: n}


def one_group(n):
    """All datasets live together, because each is used with the one before."""
    p = br.Program("one group")
    all_of_them = [p.dataset(f"d{i}", value=i % 7) for i in range(n)]
    for before, after in zip(all_of_them, all_of_them[1:], strict=False):
        p.update(after, lambda x, before: before + 1, before)
    return p, {"d0": 0, f"d{n - 1}": n - 1}


def many_groups(n):
    """Each lives alone, and each has a loop of its own."""
    p = br.Program("many groups")
    for i in range(n):
        x = p.dataset(f"d{i}", value=i)
        with p.loop(2):
            p.update(x, lambda x: x + 1)
    return p, {"d0": 2, f"d{n - 1}": n + 1}


def late(n):
    """Groups that take part in none of the loops, and wait for the last of them."""
    p = br.Program("late")
    x = p.dataset("x", value=0)
    others = [p.dataset(f"d{i}", value=i) for i in range(n)]
    for _ in range(n):
        with p.loop(1):
            p.update(x, lambda x: x + 1)
    for other in others:
        p.update(other, lambda x: x + 1)
    return p, {"x": n, "d0": 1, f"d{n - 1}": n}


def loops(n):
    p = br.Program("loops")
    x = p.dataset("x", value=0)
    for _ in range(n):
        with p.loop(2):
            p.update(x, lambda x: x + 1)
    return p, {"x": 2 * n}


def whiles(n):
    p = br.Program("whiles")
    x, limit = p.dataset("x", value=0), p.dataset("limit", value=0)
    for _ in range(n):
        p.update(limit, lambda limit: limit + 2)
        p.update(x, lambda x, limit: (x[0] if isinstance(x, tuple) else x, limit), limit)
        with p.loop(while_=lambda x: x[0] < x[1], on=x):
            p.update(x, lambda x: (x[0] + 1, x[1]))
    return p, {"limit": 2 * n}


def branches(n):
    """Of one signal each, and of one that all share."""
    p = br.Program("branches")
    x = p.dataset("x", value=0)
    shared = p.signal(lambda x: x == 0, x)
    for _ in range(n):
        with p.if_(p.signal(lambda x: x % 2 == 0, x)):
            p.update(x, lambda x: x + 1)
        with p.else_():
            p.update(x, lambda x: x + 3)
        with p.if_(shared):
            p.update(x, lambda x: x + 2)
    return p, {"x": sum(3 if i % 2 == 0 else 5 for i in range(n))}


def reductions(n):
    p = br.Program("reductions")
    x = p.dataset("x", value=1, partitions=2)
    for _ in range(n):
        total = p.reduce("sum", x)
    p.keep(total)
    return p, {total.name: 2}


def all_reductions(n):
    p = br.Program("all reductions")
    x = p.dataset("x", value=1, partitions=2)
    for _ in range(n):
        x = p.all_reduce("max", x)
    p.keep(x)
    return p, {x.name: [1, 1]}


def shuffles(n):
    p = br.Program("shuffles")
    x = p.dataset("x", value=[1, 2, 3], partitions=2)
    for _ in range(n):
        y = p.shuffle(x, key=abs)
    p.keep(y)
    return p, {}


def exchanges(n):
    p = br.Program("exchanges")
    x = p.dataset("x", value=4, partitions=2)
    for _ in range(n):
        y = p.exchange(x, neighbours=(1,))
    p.keep(y)
    return p, {y.name: [{1: 4}, {}]}


def scatters(n):
    p = br.Program("scatters")
    x = p.dataset("x", value=4)
    for _ in range(n):
        x = p.gather(lambda pieces: pieces[0] + 1, p.scatter(lambda x: {0: x}, x, to=1))
    p.keep(x)
    return p, {x.name: 4 + n}


def loads(n):
    p = br.Program("loads")
    rows = np.arange(3.0)
    for _ in range(n):
        x = p.load(rows)
        p.keep(x)
    return p, {}


def mixed(n):
    p = br.Program("mixed")
    x, y = p.dataset("x", value=0), p.dataset("y", value=0, partitions=2)
    for i in range(n // 10):
        p.update(x, lambda x: x + 1)
        p.update(y, lambda y, i=i: y + i)
        z = p.map(lambda y: y % 5, y)
        total = p.reduce("max", z)
        everywhere = p.broadcast(x, like=y)
        p.update(y, lambda y, x, z: y + x - z, everywhere, z)
        with p.loop(2):
            p.update(x, lambda x: x + 1)
        with p.if_(p.signal(lambda x: x > 5, total)):
            p.update(x, lambda x: x - 1)
    return p, {"x": 3 * (n // 10)}


KINDS = [
    updates, bound, maps, one_group, many_groups, late, loops, whiles, branches, reductions, all_reductions, shuffles, exchanges,
    scatters, loads, mixed,
]  # fmt: skip


STEPS = ("building", "telling", "sending", "running")


def cpu_seconds(kind, n):
    """Of each step. What the collector of cycles takes grows with the objects of all tests before this one, so it waits."""
    gc.collect()
    gc.disable()
    try:
        return cpu_seconds_uncollected(kind, n)
    finally:
        gc.enable()


def cpu_seconds_uncollected(kind, n):
    times = [time.process_time()]

    def step():
        times.append(time.process_time())

    p, expected = kind(n)
    step()
    str(p), p.picture(), repr(p), p._builder.hash()
    step()
    sent(dumps(p))
    step()
    result = p.run(threads=1)
    step()
    for name, value in expected.items():
        assert result[name] == value, (kind.__name__, n, name)
    return [after - before for before, after in zip(times, times[1:], strict=False)]


def sent(data):
    from brambling._program import travel

    return travel.loads(data)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_four_times_the_statements_take_about_four_times_as_long(kind):
    few, many = 400, 1_600
    rounds = []
    for _ in range(9):
        rounds.append(list(zip(cpu_seconds(kind, few), cpu_seconds(kind, many), strict=True)))
        # A round is compared with itself and the median of the rounds counts: the CPU's speed changes by the second, and the
        # shorter program alone may meet a fast one. What takes a few milliseconds is not measured; sixteen times would be quadratic.
        ratios = [median(max(b - 0.01, 0) / a for a, b in of_step) for of_step in zip(*rounds, strict=True)]
        late = [(step, ratio) for step, ratio in zip(STEPS, ratios, strict=True) if ratio > 10]
        if not late:
            return
    raise AssertionError(f"{kind.__name__}: {many} statements took so many times as long as {few}: {late}; rounds: {rounds}")


@pytest.mark.parametrize("kind", [updates, one_group, loops, mixed], ids=lambda kind: kind.__name__)
def test_a_hundred_thousand_statements_give_what_they_should(kind):
    """More datasets and loops of one group than 16 bits count."""
    n = 100_000 if kind is not one_group else 70_000
    p, expected = kind(n)
    result = p.run()
    for name, value in expected.items():
        assert result[name] == value


# ---- how deep


DEPTH_MAX = 100


def opened(p, stack, kind, x):
    match kind:
        case "loop":
            stack.enter_context(p.loop(1))
        case "while":
            stack.enter_context(p.loop(while_=lambda x: False, on=x))
        case "if":
            stack.enter_context(p.if_(p.signal(lambda x: True, x)))
        case "else":
            with p.if_(p.signal(lambda x: False, x)):
                p.update(x, lambda x: x)
            stack.enter_context(p.else_())


@pytest.mark.parametrize("kinds", [["loop"], ["while"], ["if"], ["else"], ["loop", "while", "if", "else"]], ids="-".join)
def test_blocks_stand_as_deep_in_each_other_as_the_limit_says(kinds):
    p = br.Program("deep")
    x = p.dataset("x", value=1)
    with contextlib.ExitStack() as stack:
        for depth in range(DEPTH_MAX):
            opened(p, stack, kinds[depth % len(kinds)], x)
        p.update(x, lambda x: x + 1)
        before = p._builder.hash(), str(p), len(p._builder.told)
        for refused in (lambda: p.loop(2), lambda: p.loop(while_=lambda x: True, on=x)):
            with pytest.raises(br.BuildError, match=r"101.*100.*kernel"), refused():
                pass
        assert (p._builder.hash(), str(p), len(p._builder.told)) == before
    assert p.picture().count("subgraph") >= DEPTH_MAX
    assert dumps(p) and loads_hash(p) == p._builder.hash()
    assert p.run()["x"] == (1 if "while" in kinds else 2)


def loads_hash(p):
    return sent(dumps(p)).builder.hash()


def test_thirty_thousand_nested_loops_are_refused_and_leave_what_was_there():
    p = br.Program("deeper")
    x = p.dataset("x", value=1)
    with pytest.raises(br.BuildError, match="limit is 100"), contextlib.ExitStack() as stack:
        for _ in range(30_000):
            stack.enter_context(p.loop(1))
    p.update(x, lambda x: x + 1)
    assert p.picture().count("subgraph") == DEPTH_MAX
    assert p.run()["x"] == 2


# ---- what is refused


def test_refused_statements_leave_the_program_as_it_was():
    """Between statements that are taken, such as are not: the program is the one without them."""

    def build(slips):
        p = br.Program("slips")
        x, y = p.dataset("x", value=1), p.dataset("y", value=1, partitions=2)
        rows = p.load(np.zeros(5_000))
        signal = None
        for i in range(60):
            slip = slips[i % len(slips)]
            if slip is not None:
                with pytest.raises(br.BuildError):
                    slip(p, x, y, rows)
            signal = p.signal(lambda x: x > 0, x)
            with p.loop(1):
                p.update(x, lambda x: x + 1)
                inner = p.signal(lambda x: x > 0, x)
                if slip is not None:
                    with pytest.raises(br.BuildError):
                        slip(p, x, y, rows)
            if slip is not None:
                # Given in a block that is closed.
                with pytest.raises(br.BuildError, match="not given before"), p.if_(inner):
                    pass
            with p.if_(signal):
                p.reduce("sum", y)
        return p._builder.hash(), str(p), p.run()["x"]

    def together(p, x, y, rows):
        p.map(lambda x, y: x, x, y)

    def of_many(p, x, y, rows):
        p.broadcast(y, like=x)

    def twice(p, x, y, rows):
        p.update(x, lambda x, y: x, x)

    def no_signal(p, x, y, rows):
        p.signal(lambda y: True, y)

    def no_test(p, x, y, rows):
        with p.loop(while_=lambda y: True, on=y):
            pass

    def blocks(p, x, y, rows):
        p.broadcast(rows, like=x)

    assert build([None]) == build([together, of_many, twice, no_signal, no_test, blocks])


def test_names_are_given_as_ever_however_many_there_are():
    p = br.Program("names")
    x = p.dataset("x", value=[3])
    p.dataset("len 3", value=0)
    names = [p.map(len, x).name for _ in range(5)]
    assert names == ["len", "len 2", "len 4", "len 5", "len 6"]


def test_a_result_of_many_datasets_names_a_few_of_them():
    p, _ = one_group(1_000)
    result = p.run()
    with pytest.raises(br.NotKept, match=r"`d19` and 980 more\)") as refused:
        result["none of them"]
    assert len(str(refused.value)) < 1_000


def test_a_function_has_its_own_bytes_whatever_was_asked_before():
    """Bytes of functions that look alike are made once: equal ones are equal, and others are not."""
    from brambling._kernel import code_of

    def bound(value):
        return [code_of(lambda x, value=value: value), code_of(lambda x: value), code_of(lambda x, *, value=value: x)]

    different = [0, 1, 1.0, True, None, "1", b"1", -0.0, 0.0, 1j, np.float64(1), np.int64(1), np.float32(1), (1,), (1, 1), ((1,), 1)]
    codes = [bound(value) for value in different]
    assert codes == [bound(value) for value in different]
    flat = [code for of_one in codes for code in of_one]
    assert len(set(flat)) == len(flat)
    assert code_of((len, 2)) != code_of((len, 3)) != code_of((abs, 3))
    assert code_of(np.sum) != code_of(np.max)
    assert code_of([1].append) != code_of([2].append)
