"""
The bench `python-kernel`: one gradient as built-in, numba and NumPy kernel.

Claim: what numba compiled takes at most 1.5 times the built-in kernel and is at least 1.8 times faster on two threads than on
one; NumPy kernels take at most 1.3 times the same code in a plain loop on one thread. Not claimed: anything about kernels that
are bound by something else than the reading of rows. How much faster two threads can be shows the same numba code on threads
without an engine: where one of them reads memory almost as fast as two, that is less than 1.8.

Times are those of a whole iteration (broadcast, map, reduction, update), taken by its update; compilation is not in them.
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import brambling as br
from brambling import _native
from brambling._blas import one_blas_thread

NAME = "python-kernel"
CLAIM = "one gradient as built-in, numba and NumPy kernel"

_COLUMNS = 20
_BLOCK = _native.block_rows()
# A round in which the machine moved by more than this is repeated, so often at most.
_STEADY = 0.10
_REPEATS = 14
_BARE = "numba-bare"
_BARE_ONE = "numba-bare-1"

Kernel = Callable[..., Any]
Samples = tuple[np.ndarray, np.ndarray]


def numpy_gradient(samples: Samples, weights: np.ndarray) -> np.ndarray:
    """As anyone writes it."""
    X, y = samples
    p = 1 / (1 + np.exp(-(X @ weights)))
    return X.T @ (p - y)


def _numba_gradient() -> Kernel:
    import numba

    # Without the check for a division by zero, which numba makes by default, and four rows at a time: the total
    # is then read and written a quarter as often. Memory is asked for 4 KB ahead.
    @numba.njit(fastmath=True, error_model="numpy")
    def numba_gradient(samples, weights):  # type: ignore[no-untyped-def]
        X, y = samples
        rows, columns = X.shape
        total = np.zeros(columns)
        fours = rows // 4 * 4
        for i in range(0, fours, 4):
            br.kernels.prefetch(X, i + 24, i + 28)
            a = b = c = d = 0.0
            for j in range(columns):
                a += X[i, j] * weights[j]
                b += X[i + 1, j] * weights[j]
                c += X[i + 2, j] * weights[j]
                d += X[i + 3, j] * weights[j]
            a = 1 / (1 + np.exp(-a)) - y[i]
            b = 1 / (1 + np.exp(-b)) - y[i + 1]
            c = 1 / (1 + np.exp(-c)) - y[i + 2]
            d = 1 / (1 + np.exp(-d)) - y[i + 3]
            for j in range(columns):
                total[j] += a * X[i, j] + b * X[i + 1, j] + c * X[i + 2, j] + d * X[i + 3, j]
        for i in range(fours, rows):
            a = 0.0
            for j in range(columns):
                a += X[i, j] * weights[j]
            a = 1 / (1 + np.exp(-a)) - y[i]
            for j in range(columns):
                total[j] += a * X[i, j]
        return total

    return numba_gradient


class _Engine:
    """Iterations of gradient descent on the engine, timed by their updates."""

    def __init__(self, table: Samples, kernel: Kernel, threads: int, turns: int) -> None:
        self._table = table
        self._kernel = kernel
        self._threads = threads
        self._turns = turns
        self.weights = np.zeros(_COLUMNS)

    def __call__(self) -> float:
        """Milliseconds of an iteration, after the first."""
        ends: list[float] = []
        rows = len(self._table[0])

        def step(weights: np.ndarray, total: np.ndarray) -> np.ndarray:
            ends.append(time.perf_counter())
            return weights - total / rows

        p = br.Program("python-kernel")
        samples = p.load(*self._table)
        weights = p.dataset("weights", value=np.zeros(_COLUMNS))
        with p.loop(self._turns):
            local = p.broadcast(weights, like=samples)
            p.update(weights, step, p.reduce("sum", p.map(self._kernel, samples, local)))
        p.keep(weights)
        self.weights = p.run(threads=self._threads)[weights]
        return (ends[-1] - ends[0]) / (len(ends) - 1) * 1e3


class _Alone:
    """The NumPy kernel in a plain loop: on whole arrays, or block by block."""

    def __init__(self, table: Samples, rows: int) -> None:
        self._table = table
        self._rows = rows
        self.total = np.zeros(_COLUMNS)

    def __call__(self) -> float:
        X, y = self._table
        weights = np.zeros(_COLUMNS)
        start = time.perf_counter()
        total = np.zeros(_COLUMNS)
        for first in range(0, len(X), self._rows):
            total += numpy_gradient((X[first : first + self._rows], y[first : first + self._rows]), weights)
        self.total = total
        return (time.perf_counter() - start) * 1e3


class _Bare:
    """The same iterations without an engine: each thread calls numba's code on its share of the rows, then one adds up."""

    def __init__(self, table: Samples, kernel: Kernel, threads: int, turns: int) -> None:
        import numba

        # Inside numba the kernel is called without the interpreter, and nothing holds its lock.
        @numba.njit(nogil=True)
        def blocks(X, y, weights, first, end):  # type: ignore[no-untyped-def]
            total = np.zeros(len(weights))
            for start in range(first, end, _BLOCK):
                stop = min(start + _BLOCK, end)
                total += kernel((X[start:stop], y[start:stop]), weights)
            return total

        self._table = table
        self._blocks = blocks
        self._threads = threads
        self._turns = turns
        self.weights = np.zeros(_COLUMNS)
        blocks(*table, self.weights, 0, 1)

    def __call__(self) -> float:
        """Milliseconds of an iteration, after the first."""
        X, y = self._table
        rows, threads = len(X), self._threads
        ends: list[float] = []
        totals: list[np.ndarray] = [np.zeros(_COLUMNS)] * threads
        self.weights = np.zeros(_COLUMNS)

        def update() -> None:
            self.weights = self.weights - sum(totals) / rows
            ends.append(time.perf_counter())

        barrier = threading.Barrier(threads, action=update)

        def work(thread: int) -> None:
            first, end = rows * thread // threads, rows * (thread + 1) // threads
            try:
                for _ in range(self._turns):
                    totals[thread] = self._blocks(X, y, self.weights, first, end)
                    barrier.wait()
            except BaseException:
                # The others would wait for it.
                barrier.abort()
                raise

        workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return (ends[-1] - ends[0]) / (len(ends) - 1) * 1e3


def _figure(samples: list[float]) -> dict[str, float]:
    return {"median": statistics.median(samples), "min": min(samples), "max": max(samples)}


def _wrong(what: str) -> SystemExit:
    return SystemExit(f"error: {NAME}: {what}")


def _measure(threads: int, smoke: bool) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    rows = 40_000 if smoke else 10_000_000
    turns = 3 if smoke else 5
    X = rng.standard_normal((rows, _COLUMNS))
    y = (X @ rng.standard_normal(_COLUMNS) > 0).astype(float)
    compiled = _numba_gradient()
    engines = {
        "builtin_ms": _Engine((X, y), br.kernels.logistic_gradient, threads, turns),
        "numba_ms": _Engine((X, y), compiled, threads, turns),
        "numba_one_thread_ms": _Engine((X, y), compiled, 1, turns),
        "numpy_ms": _Engine((X, y), numpy_gradient, threads, turns),
    }
    bare = {
        _BARE: _Bare((X, y), compiled, threads, turns),
        _BARE_ONE: _Bare((X, y), compiled, 1, turns),
    }
    alone = {"numpy-whole": _Alone((X, y), rows), "numpy-blocks": _Alone((X, y), _BLOCK)}

    def limit() -> float:
        return X.nbytes / _native.read_bandwidth(X, threads, 1) * 1e3

    figures: dict[str, list[float]] = {name: [] for name in (*engines, *bare, *alone, "read")}
    rounds, repeated, unsettled = 1 if smoke else 7, 0, 0
    with one_blas_thread():
        while len(figures["read"]) < rounds:
            before = limit()
            found = {name: run() for name, run in (engines | bare | alone).items()}
            after = limit()
            if abs(after - before) > _STEADY * before and not smoke:
                if repeated < _REPEATS:
                    repeated += 1
                    continue
                unsettled += 1
            for name, value in (found | {"read": min(before, after)}).items():
                figures[name].append(value)
    _check(engines | bare, alone)
    best = min(alone, key=lambda name: statistics.median(figures[name]))
    limits = [("read", "ms"), *((name, "ms") for name in (*bare, *alone))]
    cpu, isa = _native.processor()
    return {
        "bench": NAME,
        "version": _native.__version__,
        "cpu": cpu,
        "isa": isa,
        "threads": threads,
        "smoke": smoke,
        "rounds": rounds,
        "repeated": repeated,
        "unsettled": unsettled,
        **{name: _figure(figures[name]) for name in engines},
        "numpy_alone_ms": _figure(figures[best]),
        "ideal_ms": _figure(figures["read"]),
        "limits": [{"name": name, "unit": unit, **_figure(figures[name])} for name, unit in limits],
    }


def _default_threads() -> int:
    """As of any job."""
    p = br.Program("threads")
    p.dataset("nothing", value=0)
    return int(p.run().tally["threads"])


def _check(engines: dict[str, _Engine | _Bare], alone: dict[str, _Alone]) -> None:
    """All have computed the same."""
    right = engines["builtin_ms"].weights
    for name, engine in engines.items():
        if not np.allclose(engine.weights, right, rtol=1e-9):
            raise _wrong(f"{name} gives the weights {engine.weights}, the built-in kernel {right}")
    whole = alone["numpy-whole"].total
    if not np.allclose(alone["numpy-blocks"].total, whole, rtol=1e-9, atol=1e-6):
        raise _wrong("NumPy's gradient by blocks differs from that of whole arrays")


def _scaling(report: dict[str, Any], name: str) -> str:
    """How much faster than on one thread the bare loop is on all."""
    medians = {limit["name"]: limit["median"] for limit in report["limits"]}
    if name != _BARE_ONE:
        return ""
    return f"{medians[name] / medians[_BARE]:.2f} × that of {report['threads']} threads"


def _print(report: dict[str, Any]) -> None:
    builtin, numba = report["builtin_ms"]["median"], report["numba_ms"]["median"]
    alone = report["numpy_alone_ms"]["median"]
    lines = [
        ("built-in", report["builtin_ms"], f"{builtin / report['ideal_ms']['median']:.2f} × the ideal"),
        ("numba", report["numba_ms"], f"{numba / builtin:.2f} × the built-in"),
        (
            "numba, one thread",
            report["numba_one_thread_ms"],
            f"{report['numba_one_thread_ms']['median'] / numba:.2f} × that of {report['threads']} threads",
        ),
        ("NumPy", report["numpy_ms"], f"{report['numpy_ms']['median'] / alone:.2f} × the same code alone"),
        *((f"limit: {limit['name']}", limit, _scaling(report, limit["name"])) for limit in report["limits"]),
    ]
    print(f"{NAME}   {report['threads']} threads   brambling {report['version']}")
    for name, figure, note in lines:
        spread = f"({figure['min']:.3g}–{figure['max']:.3g})"
        print(f"  {name:20}{figure['median']:>8.3g} ms  {spread:16}{note}".rstrip())
    end = f"median of {report['rounds']} rounds (least–most)"
    if report["repeated"]:
        end += f"; {report['repeated']} rounds repeated, in which the limit had moved"
    if report["unsettled"]:
        end += f"; in {report['unsettled']} rounds it moved all the same: this machine is busy"
    print(end + ("; sizes were tiny: these figures say nothing" if report["smoke"] else ""))


def main(threads: int | None, *, smoke: bool, as_json: bool) -> int:
    """Run it and print what it found."""
    try:
        import numba  # noqa: F401
    except ImportError:
        print(f"error: the bench {NAME} needs numba: pip install 'brambling[numba]'", file=sys.stderr)
        return 1
    try:
        report = _measure(threads or _default_threads(), smoke)
    except SystemExit as error:
        print(error.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print(json.dumps(report)) if as_json else _print(report)
    return 0
