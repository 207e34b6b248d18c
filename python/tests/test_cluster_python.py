"""
What Python's own ways of wrapping, raising and holding come to on a cluster: kernels under wrappers that pickle knows by their names, results
that cannot be sent, and exceptions whose classes take other arguments than they keep. The oracle is the same program in this process.
"""

import ctypes
import functools
import itertools
import os
import re
import socket
import subprocess
import sys
import textwrap
import threading
import urllib.error

import numpy as np
import pytest
from processes import PATIENCE_S

import brambling as br
from brambling import _remote
from brambling._pickled import apart, together


def run(kernel, value=3, partitions=2):
    p = br.Program("python")
    d = p.dataset("d", value=value, partitions=partitions)
    p.update(d, kernel)
    return p.run()[d]


def in_a_script(shared, text):
    """Runs a script there, as users do: what it defines is in `__main__`, which no worker can import."""
    head = "import functools, sys, brambling as br\n"
    ran = subprocess.run(
        [sys.executable, "-c", head + textwrap.dedent(text), shared], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return ran.stdout.strip(), ran.stderr.strip()


# ---- wrappers

SCRIPT = """
    import operator, numpy as np
    twice = lambda v: 2 * v
    @functools.lru_cache
    def cached(v): return twice(v)
    @functools.cache
    def fibonacci(n): return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
    @functools.lru_cache(maxsize=7, typed=True)
    def sized(v): return twice(v) if sized.cache_parameters() == {"maxsize": 7, "typed": True} else "other parameters"
    @functools.singledispatch
    def dispatched(v): return twice(v)
    @dispatched.register
    def _(v: str): return int(v) * 2
    @functools.singledispatch
    def nested(v): return nested(str(v))
    @nested.register
    def _(v: str): return dispatched(v)
    class Doubler:
        def __init__(self, by): self.by = by
        def __call__(self, v): return v * self.by
        @functools.cached_property
        def property(self): return self.by
        @functools.lru_cache
        def method(self, v): return v * self.property
        @functools.singledispatchmethod
        def single(self, v): return v * self.by
        @classmethod
        @functools.cache
        def whole(cls, v): return cls(2)(v)
        @staticmethod
        @functools.lru_cache(3)
        def still(v): return v * 2
    class Sub(Doubler):
        pass
    def make():
        @functools.lru_cache
        def inner(v): return 2 * v
        return inner
    def outer(v, f=functools.partial(cached)):
        return f(v)
    holder = {"f": [cached, {"g": fibonacci}]}
    KERNELS = {
        "lru_cache": cached, "parameters": sized, "partial": functools.partial(cached), "called": lambda v: cached(v),
        "recursive": lambda v: fibonacci(v) + 4, "singledispatch": dispatched, "dispatches to a type": lambda v: dispatched(str(v)),
        "dispatches again": nested, "object": Doubler(2), "cached property": lambda v: Doubler(2).property * v,
        "method": lambda v: Doubler(2).method(v), "bound method": Sub(2).method, "singledispatchmethod": Sub(2).single,
        "classmethod": Doubler.whole, "staticmethod": Sub.still, "inner": make(), "default": outer, "vectorize": np.vectorize(twice),
        "in a list": lambda v: holder["f"][0](v), "in a dict": lambda v: holder["f"][1]["g"](v) + 4, "wraps": functools.wraps(cached)(lambda v: cached(v)),
        "reduce": functools.partial(functools.reduce, operator.mul, [1, 2]) if False else lambda v: functools.reduce(operator.mul, [1, 2, v]),
    }
    def run(kernel):
        p = br.Program("t")
        d = p.dataset("d", value=3, partitions=2)
        p.update(d, kernel)
        return [int(v) for v in p.run()[d]]
    here = {name: run(kernel) for name, kernel in KERNELS.items()}
    with br.connect(sys.argv[1]):
        there = {}
        for name, kernel in KERNELS.items():
            try:
                there[name] = run(kernel)
            except Exception as error:
                there[name] = repr(error)
    for name in KERNELS:
        print(name, here[name] == there[name], there[name])
"""


def test_functions_under_wrappers_run_on_workers(shared):
    said, errors = in_a_script(shared, SCRIPT)
    lines = said.splitlines()
    assert len(lines) == 22, errors
    assert [line for line in lines if " True [6, 6]" not in line] == []


def test_what_says_its_own_name_is_refused_with_the_way_out(shared):
    said, errors = in_a_script(
        shared,
        """
        class Missing:
            def __reduce__(self): return "MISSING"
        MISSING = Missing()
        with br.connect(sys.argv[1]):
            p = br.Program("t")
            d = p.dataset("d", value=3)
            p.update(d, lambda v: v is MISSING)
            p.run()
        """,
    )
    last = errors.splitlines()[-1]
    assert "BuildError" in last and "`MISSING`" in last and "put it into a module that is installed" in last, (said, errors)


def test_wrappers_of_modules_that_are_installed_go_by_their_names():
    # `re` and `functools` are everywhere: neither their caches nor their functions travel.
    for f in (re._compile_template if hasattr(re, "_compile_template") else re.compile, functools.lru_cache):
        stream, _ = apart([f])
        assert len(stream) < 100
        assert together(stream, [])[0] is f


# ---- results

class Holder:
    def __init__(self, what):
        self.what = what


def lock():
    return threading.Lock()


def generator():
    return (n for n in range(3))


class Picky:
    """What it says of itself is not what it takes."""

    def __init__(self, one, two):
        self.args = (one, two)

    def __reduce__(self):
        return Picky, (self.args,)


def objects(what):
    array = np.empty(2, dtype=object)
    array[1] = what
    return array


UNSENDABLE = {
    "lock": lock, "generator": generator, "socket": lambda: socket.socketpair()[0], "TextIOWrapper": lambda: open(os.devnull, encoding="utf-8"),
    "LP_c_int": lambda: ctypes.pointer(ctypes.c_int(1)), "frame": lambda: sys._getframe(), "Condition": threading.Condition,
}
PLACES = {"alone": lambda make: make(), "in a list": lambda make: [1, 2, make()], "in a dict": lambda make: {"a": {"b": make()}},
          "in an object": lambda make: Holder(make()), "in a closure": lambda make: (lambda held: lambda: held)(make()),
          "in an array": lambda make: objects(make())}


@pytest.mark.parametrize(("what", "place"), list(itertools.product(UNSENDABLE, PLACES)))
def test_a_result_that_cannot_be_sent_names_itself_its_part_and_the_way_out(shared, what, place):
    make, put = UNSENDABLE[what], PLACES[place]
    part = "RLock" if what == "Condition" else what
    with br.connect(shared):
        p = br.Program("unsendable")
        d, other = p.dataset("kept", value=0), p.dataset("other", value=1)
        p.update(d, lambda _: put(make))
        p.update(other, lambda v: v + 1)
        result = p.run()
        assert result[other] == 2
        with pytest.raises(br.ClusterError) as told:
            result[d]
    text = str(told.value)
    assert text.startswith("`kept`: its value cannot be sent to other processes: it ") and "return it in another form" in text
    assert f"of type {part}" in text and "cannot be understood" not in text


def test_a_piece_that_cannot_be_sent_fails_the_kernel_that_reads_it(shared):
    with br.connect(shared):
        p = br.Program("pieces")
        d = p.dataset("d", value=0, partitions=2)
        came = p.exchange(p.map(lambda _: threading.Lock(), d), neighbours=(-1, 1))
        p.update(d, lambda d, came: len(came), came)
        with pytest.raises(br.KernelError, match="the piece from partition [01]: its value cannot be sent.* of type lock"):
            p.run()
        assert run(lambda v: v + 1) == [4, 4]


def test_a_result_that_cannot_be_made_again_says_so(shared):
    with br.connect(shared):
        p = br.Program("picky")
        d = p.dataset("d", value=0)
        p.update(d, lambda _: Picky(1, 2))
        with pytest.raises(br.ClusterError, match="`d`: its value cannot be made again in another process.*__reduce__"):
            p.run()[d]


# ---- exceptions

class Plain(Exception):
    pass


class Other(Exception):
    def __init__(self, code, what):
        super().__init__(f"{code}: {what}")
        self.code = code


class Longer(Exception):
    """Takes one argument and keeps another one: made again by a call it would be longer."""

    def __init__(self, url):
        super().__init__(f"bad {url}")
        self.url = url


class Keywords(ValueError):
    def __init__(self, *, status):
        super().__init__()
        self.status = status


class Slots(Exception):
    __slots__ = ("code",)

    def __init__(self, code, _):
        super().__init__(code)
        self.code = code


class OfSystem(OSError):
    def __init__(self, path):
        super().__init__(2, "nothing there", path)
        self.path = path


class OwnWay(Exception):
    def __init__(self, code, what):
        super().__init__(what)
        self.code = code

    def __reduce__(self):
        return OwnWay, (self.code, self.args[0])


class New(Exception):
    def __new__(cls, code, what):
        return super().__new__(cls, code)

    def __init__(self, code, what):
        self.what = what


class OfText(UnicodeDecodeError):
    def __init__(self, reason):
        super().__init__("utf-8", b"ab", 0, 1, reason)


EXCEPTIONS = [
    Plain("a", 1), Other(7, "seven"), Longer("u"), Keywords(status=404), Slots(3, None), OfSystem("/x"), OwnWay(1, "w"), New(1, 2),
    OfText("because"), ExceptionGroup("several", [Other(1, "one"), ExceptionGroup("more", [Keywords(status=2), KeyError("k")])]),
    urllib.error.HTTPError("http://a", 404, "no", {}, None), subprocess.CalledProcessError(3, ["a"], b"o"), KeyError("k"),
    OSError(2, "no", "/x"), ImportError("no", name="n", path="p"), StopIteration(3), AttributeError("a"), NameError("n"),
]


def told_of(error):
    """What a reader can tell of an exception."""
    own = {name: value for name, value in vars(error).items() if isinstance(value, str | int)}
    parts = [told_of(it) for it in getattr(error, "exceptions", ())]
    code = [getattr(error, name, None) for name in ("code", "errno", "filename", "name", "reason", "url")]
    return type(error).__name__, str(error), repr(error.args) if not parts else None, own, parts, code


@pytest.mark.parametrize("error", EXCEPTIONS, ids=lambda error: type(error).__name__)
def test_an_exception_is_itself_on_the_other_side(error):
    back = _remote.unpacked(_remote.packed(error, 1 << 19), "the traceback")
    assert told_of(back) == told_of(error)
    assert str(back.__cause__).strip() == '"""\nthe traceback\n"""'


def test_an_exception_is_itself_in_a_dataset_too(shared):
    with br.connect(shared):
        back = run(lambda v: [v, Other(7, "seven")], partitions=1)
    assert told_of(back[1]) == told_of(Other(7, "seven"))


def raising(error):
    def kernel(_):
        raise error

    return kernel


def cause_of(kernel):
    with pytest.raises(br.KernelError) as failed:
        run(kernel)
    return failed.value.__cause__


@pytest.mark.parametrize("error", EXCEPTIONS[:10], ids=lambda error: type(error).__name__)
def test_an_exception_of_a_kernel_is_its_cause_here_as_there(shared, error):
    here = cause_of(raising(error))
    with br.connect(shared):
        there = cause_of(raising(error))
    assert told_of(there) == told_of(here)


def test_what_of_an_exception_cannot_be_sent_stays_and_a_note_says_so(shared):
    def kernel(_):
        error = Other(7, "seven")
        error.response = threading.Lock()
        error.big = b"\0" * (1 << 20)
        raise error

    with br.connect(shared):
        cause = cause_of(kernel)
    assert type(cause).__name__ == "Other" and cause.code == 7 and not hasattr(cause, "response") and not hasattr(cause, "big")
    notes = "\n".join(cause.__notes__)
    assert "`response`, of type lock, was left on the worker (TypeError: cannot pickle" in notes
    assert "`big`, of type bytes, was left on the worker (" in notes


def test_an_exception_that_cannot_be_sent_at_all_says_what_it_was_and_why(shared):
    def kernel(_):
        # Made there: as a part of the kernel it would not get there.
        namespace = {"threading": threading}
        exec("class Bad(Exception):\n    held = threading.Lock()\nBad.__module__ = '__main__'\nraise Bad('x')", namespace)

    with br.connect(shared):
        cause = cause_of(kernel)
    assert "Bad" in str(cause) and "cannot be sent from its worker" in str(cause) and "cannot pickle" in str(cause)
    assert "raise Bad('x')" in str(cause.__cause__) or "Bad: x" in str(cause.__cause__)
