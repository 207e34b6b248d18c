"""Same bits on any number of threads and partitions, and for every instruction set."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest

import brambling as br

SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from test_promise import digest_of_fit
print(digest_of_fit())
"""


def digest(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def digest_of_fit():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(50_001, 13))
    y = (X @ np.arange(13) + rng.normal(size=50_001) > 0).astype(float)
    model = br.ml.LogisticRegression(max_iter=20, tol=0).fit(X, y)
    return digest(model.coef_, model.intercept_, model.predict_proba(X))


def in_a_process(**environment):
    script = SCRIPT.format(folder=os.path.dirname(__file__))
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def expected():
    return in_a_process(BRAMBLING_THREADS="1", BRAMBLING_ISA="v2")


@pytest.mark.parametrize("threads", ["1", "2", "3", "8"])
def test_threads_do_not_change_a_model(threads, expected):
    assert in_a_process(BRAMBLING_THREADS=threads) == expected


@pytest.mark.parametrize("isa", ["v2", "v3", "v4"])
def test_instruction_sets_do_not_change_a_model(isa, expected):
    try:
        assert in_a_process(BRAMBLING_ISA=isa) == expected
    except subprocess.CalledProcessError as error:
        # A CPU without the set refuses, and says what to do.
        assert "this CPU has only" in error.stderr


@pytest.mark.parametrize("partitions", ["1", "2", "7", "64"])
def test_partitions_do_not_change_a_model(partitions, expected):
    assert in_a_process(BRAMBLING_PARTITIONS=partitions) == expected


def run_program(threads, partitions):
    values = np.random.default_rng(4).normal(size=200_000) * 10.0 ** np.arange(200_000 % 7 or 1)[0]
    p = br.Program("sums", seed=11)
    rows = p.load(values, values[::-1].copy(), partitions=partitions)
    state = p.dataset("state", value=0.0)
    with p.loop(3):
        local = p.broadcast(state, like=rows)
        part = p.map(lambda block, state, ctx: np.array([np.dot(*block), ctx.rng().random() + state]), rows, local)
        total = p.reduce("sum", part)
        everywhere = p.all_reduce(lambda left, right: left * 0.5 + right, part, like=state)
        p.update(state, lambda state, total, other: state / 2 + float(total.sum() + other[0]), total, everywhere)
    p.keep(total)
    result = p.run(threads=threads)
    return digest(result[total], np.float64(result[state]))


def test_programs_keep_the_promise():
    digests = {(t, n): run_program(t, n) for t, n in [(1, 1), (2, 1), (3, 7), (8, 64), (2, 2), (1, 64)]}
    assert len(set(digests.values())) == 1, digests
