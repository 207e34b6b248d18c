#!/usr/bin/env python3
"""
Whether reports add up, and name what stands in a job's way.

    reports.py parts     logistic, kmeans, pagerank, a program of Python kernels and the demo, in one process and on two workers
    reports.py causes    a slow shard, a slow worker, tiny shards, a Python kernel, too little memory, and a run that nothing hinders

The last line is JSON. `parts`: over all threads the largest difference of a thread's parts from its wall time, and the largest
share that no part accounts for, both as shares of that time. `causes`: how many of the six said what they should, and what each said.
"""

import contextlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "python/tests"))
import numpy as np  # noqa: E402
from processes import command, running  # noqa: E402

import brambling as br  # noqa: E402

TURNS = 30


@contextlib.contextmanager
def workers(**settings):
    """Two workers of one thread, in use. Settings are theirs."""
    with tempfile.TemporaryDirectory() as state, contextlib.ExitStack() as stack:
        os.environ.update(XDG_STATE_HOME=state, **settings)
        stack.callback(lambda: [os.environ.pop(name) for name in settings])
        start = ("cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0")
        process, address = stack.enter_context(running(Path(state), *start))
        with br.connect(address) as cluster:
            yield process, cluster


def table(rows=400_000):
    X = np.random.default_rng(1).standard_normal((rows, 20))
    return X, (X @ np.arange(20.0) > 0).astype(float)


def logistic():
    return br.ml.LogisticRegression(max_iter=TURNS, tol=0).fit(*table()).report_


def kmeans():
    return br.ml.KMeans(n_clusters=10, max_iter=TURNS, tol=0, n_init=1, random_state=0).fit(table()[0]).report_


def pagerank():
    ends = np.random.default_rng(2).integers(0, 1 << 17, (2, 2_000_000))
    return br.graph.pagerank(*ends, tol=0, iterations=TURNS).report


def python_kernel():
    def slow(block):
        return float(sum(x * x for x in block[:500, 0].tolist()))

    p = br.Program("python kernel")
    samples = p.load(np.random.default_rng(3).standard_normal((400_000, 2)))
    with p.loop(5):
        total = p.reduce("sum", p.map(slow, samples))
    p.keep(total)
    return p.run().report


JOBS = {"logistic": logistic, "kmeans": kmeans, "pagerank": pagerank, "python kernel": python_kernel}


def demo():
    """The reports of all jobs of the demo."""
    with tempfile.TemporaryDirectory() as here:
        file = f"{here}/report.json"
        arguments = ("run", "flights", "--report", file, "--pictures", here)
        with command(Path(here), *arguments) as process:
            _, said = process.communicate(timeout=600)
        assert process.returncode == 0, said
        return json.loads(Path(file).read_text())["jobs"]


def parts():
    """Each thread's parts beside its time."""
    largest = {"largest_difference": 0.0, "largest_unattributed": 0.0}
    for where in ("alone", "two workers"):
        with workers() if where != "alone" else contextlib.nullcontext():
            reports = {name: [job().to_dict()] for name, job in JOBS.items()}
        if where == "alone":
            reports["demo"] = demo()
        for name, jobs in reports.items():
            threads = [thread for job in jobs for worker in job["workers"] for thread in worker["threads"]]
            assert threads, name
            differences = [abs(sum(it["parts"].values()) / it["wall_seconds"] - 1) for it in threads]
            unattributed = [it["unattributed"] for it in threads]
            print(f"{where}, {name}: {len(jobs)} jobs, {len(threads)} threads, {max(differences):.5f}, {max(unattributed):.5f}")
            largest["largest_difference"] = max(largest["largest_difference"], *differences)
            largest["largest_unattributed"] = max(largest["largest_unattributed"], *unattributed)
    return largest


def rounds(turns, rows, kernel):
    """A program that sums what a kernel of machine code says of each block, again and again."""
    p = br.Program(kernel.__name__)
    samples = p.load(rows)
    with p.loop(turns):
        total = p.reduce("sum", p.map(kernel, samples))
    p.keep(total)
    return p.run(threads=2).report


def slow_shard():
    import numba

    @numba.njit
    def uneven(block):
        # The first block takes five times as long as all others together.
        total = 0.0
        for _ in range(16_000 if block[0] == 1.0 else 50):
            for value in block:
                total += value * total
        return total

    rows = np.zeros(64 * 4_096)
    rows[0] = 1.0
    return rounds(8, rows, uneven)


@contextlib.contextmanager
def hindered(pid):
    """A process that runs for two fifths of the time."""
    ends = threading.Event()

    def hinder():
        while not ends.is_set():
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.012)
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.008)

    thread = threading.Thread(target=hinder)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def slow_worker():
    with workers() as (_, cluster):
        pid = cluster.status()["workers"][1]["pid"]
        X, y = table()
        with hindered(pid):
            return br.ml.LogisticRegression(max_iter=200, tol=0).fit(X, y).report_


def tiny_shards():
    import numba

    @numba.njit
    def tiny(block):
        return block[0]

    return rounds(3_000, np.ones(64 * 4_096), tiny)


def memory():
    """Rows that go to other partitions, with room for themselves and little else."""
    with tempfile.TemporaryDirectory() as spill, workers(BRAMBLING_MEMORY="82MB", BRAMBLING_SPILL=spill):
        p = br.Program("shuffle")
        rows = p.load(np.random.default_rng(4).integers(0, 1 << 20, (2_000_000, 4)).astype(float))
        p.keep(p.map(len, p.shuffle(rows, key=0, partitions=64)))
        return p.run().report


def unhindered():
    # Two cores are busy with two threads; the rows come from memory.
    X, y = table(2_000_000)
    return br.ml.LogisticRegression(max_iter=100, tol=0).fit(X, y).report_


CAUSES = {
    slow_shard: "slow_shard",
    slow_worker: "slow_worker",
    tiny_shards: "tiny_shards",
    python_kernel: "interpreter",
    memory: "memory",
    unhindered: None,
}


def causes():
    """What each report says, and how many say what they should."""
    said, named = {}, 0
    for job, cause in CAUSES.items():
        report = job()
        found = [advice["cause"] for advice in report.to_dict()["advice"]]
        is_named = cause in found if cause else not found
        named += is_named
        said[job.__name__] = report.advice
        print(f"{job.__name__}: {'named' if is_named else 'NOT NAMED'} {found} {report.advice}")
    return {"named": named, "said": said}


if __name__ == "__main__":
    print(json.dumps({"parts": parts, "causes": causes}[sys.argv[1]]()))
