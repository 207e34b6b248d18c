"""What is listed exists, and what is timed is what happens in an iteration."""

import ast
from pathlib import Path

import numpy as np
import pytest

from peers import worker
from peers.systems.formulas import inertia, k_means_sums, logistic_gradient, moved
from peers.workloads import SIZES, WORKLOADS

PACKAGES = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_what_is_listed_exists(workload):
    assert set(workload.shapes) == set(SIZES)
    names = [entry.name for entry in (workload.ours, *workload.peers)]
    assert len(set(names)) == len(names)
    assert not workload.ours.absurd
    for entry in (workload.ours, *workload.peers):
        # Not imported: what they need is not installed here.
        module, _, name = entry.of.partition(":")
        source = ast.parse((PACKAGES / module.replace(".", "/")).with_suffix(".py").read_text())
        assert name in {node.name for node in source.body if isinstance(node, ast.ClassDef)}
        assert set(entry.absurd) <= set(SIZES)
        for size in SIZES:
            few, more = entry.counts(size)
            assert 0 <= few < more


def test_what_happens_once_is_not_in_the_time_of_an_iteration(monkeypatch):
    """By a clock that only iterations and what comes before them move: 5 s once, 0.25 s each, 3 s before."""
    now = [0.0]
    asked = []

    class Peer:
        def ready(self):
            now[0] += 3

        def iterate(self, iterations):
            asked.append(iterations)
            now[0] += 5 + 0.25 * iterations

    monkeypatch.setattr(worker.time, "perf_counter", lambda: now[0])
    assert worker.milliseconds_per_iteration(Peer(), 2, 8) == pytest.approx(250)
    assert sorted(asked) == [2, 8]
    # Where nothing happens once there is nothing to run for 0.
    asked.clear()
    assert worker.milliseconds_per_iteration(Peer(), 0, 5) == pytest.approx((5 + 1.25) / 5 * 1e3)
    assert asked == [5]


def test_formulas_against_plain_loops():
    rng = np.random.default_rng(0)
    X, y, w, centres = rng.random((50, 3)), rng.integers(0, 2, 50).astype(float), rng.random(3), rng.random((4, 3))
    gradient = sum((1 / (1 + np.exp(-sum(x * w))) - label) * x for x, label in zip(X, y, strict=True))
    assert np.allclose(logistic_gradient(X, y, w), gradient)
    distances = [[sum((x - centre) ** 2) for centre in centres] for x in X]
    nearest = [row.index(min(row)) for row in distances]
    sums, counts = k_means_sums(X, centres)
    for index in range(4):
        mine = [x for x, at in zip(X, nearest, strict=True) if at == index]
        assert counts[index] == len(mine)
        assert np.allclose(sums[index], np.sum(mine, axis=0))
    assert np.allclose(inertia(X, centres, block=7), sum(min(row) for row in distances))


def test_a_centre_without_rows_stays():
    centres = np.array([[1.0], [7.0]])
    assert moved(centres, np.array([[6.0], [0.0]]), np.array([2.0, 0.0])).tolist() == [[3.0], [7.0]]
