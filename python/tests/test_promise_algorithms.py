"""
The promise for models and graphs: the same bits on any number of threads, with any number of partitions set, and for every
instruction set.
"""

import os
import subprocess
import sys
import warnings

import numpy as np
import pytest
from test_promise import digest

import brambling as br

SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
import test_promise_algorithms
print(test_promise_algorithms.digests({what!r}))
"""


def models():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(30_011, 7)) + rng.integers(0, 3, 30_011)[:, None]
    y = np.digitize(X.sum(axis=1) + rng.normal(size=len(X)), [4, 11])
    two = (y > 0).astype(int)
    yield br.ml.LogisticRegression(solver="gradient-descent", max_iter=10).fit(X, two).coef_
    yield br.ml.LogisticRegression(max_iter=10).fit(X, two).coef_
    yield br.ml.LogisticRegression(max_iter=10).fit(X, y).predict_proba(X)
    yield br.ml.LogisticRegression(max_iter=10).fit(X.astype(np.float32), y).coef_
    clusters = br.ml.KMeans(n_clusters=9, n_init=2, random_state=1, max_iter=10).fit(X)
    yield clusters.cluster_centers_
    yield clusters.transform(X[:100])
    yield np.array(clusters.inertia_)


def graphs():
    rng = np.random.default_rng(6)
    # A few vertices have most of the edges.
    src, dst = (rng.integers(0, 3_000, 40_000) * rng.random(40_000) ** 2 for _ in range(2))
    src, dst = src.astype(np.int64), dst.astype(np.int64)
    weight = rng.random(len(src))
    for table in (
        br.graph.pagerank(src, dst, weight, tol=0, iterations=20),
        br.graph.pagerank(src, dst, tol=0, iterations=20, dtype="float32"),
        br.graph.connected_components(src, dst),
        br.graph.bfs(src, dst, source=int(src[0])),
        br.graph.sssp(src, dst, weight, source=int(src[0])),
        br.graph.label_propagation(src, dst, iterations=5),
        br.graph.local_clustering(src, dst),
    ):
        yield from (table[name] for name in table.columns)


def digests(what):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", br.ConvergenceWarning)
        return digest(*{"models": models, "graphs": graphs}[what]())


def in_a_process(what, **environment):
    script = SCRIPT.format(folder=os.path.dirname(__file__), what=what)
    environment = {f"BRAMBLING_{name}": value for name, value in environment.items()}
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if done.returncode and "this CPU has only" in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def expected():
    return {what: in_a_process(what, THREADS="1", ISA="v2") for what in ("models", "graphs")}


@pytest.mark.parametrize("what", ["models", "graphs"])
@pytest.mark.parametrize(
    "environment",
    [{"THREADS": "2"}, {"THREADS": "3"}, {"THREADS": "8"}, {"ISA": "v3"}, {"ISA": "v4", "THREADS": "2"}],
    ids=lambda environment: " ".join(f"{name}={value}" for name, value in environment.items()),
)
def test_threads_and_instruction_sets_change_nothing(what, environment, expected):
    assert in_a_process(what, **environment) == expected[what]


@pytest.mark.parametrize("what", ["models", "graphs"])
@pytest.mark.parametrize("partitions", ["1", "2", "7", "64"])
def test_partitions_change_nothing(what, partitions, expected):
    assert in_a_process(what, PARTITIONS=partitions) == expected[what]
