"""What holds of every model: the bits on threads, partitions and workers, and that the languages have the same ones."""

import os
import subprocess
import sys

import numpy as np
import pytest
from datasets import classes, heaps, table, targets, weights_for
from test_promise import digest

import brambling as br
from brambling import _native

SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from test_models import digests
print(digests())
"""


def fits():
    """Every model of the package, with weights and without."""
    X = table(3)
    y, labels, weights = targets(X, 3, 2), classes(X, 3, 3), weights_for(2, len(X))
    for given in (None, weights):
        yield br.ml.StandardScaler().fit(X, sample_weight=given), ("mean_", "var_")
        yield br.ml.LinearRegression().fit(X, y, given), ("coef_", "intercept_", "singular_")
        yield br.ml.Ridge().fit(X, y, given), ("coef_", "intercept_")
        yield br.ml.LogisticRegression(tol=0, max_iter=8).fit(X, labels, given), ("coef_", "intercept_")
        two = br.ml.LogisticRegression(tol=0, max_iter=8, solver="gradient-descent")
        yield two.fit(X, labels > 0, given), ("coef_", "intercept_")
        yield br.ml.LogisticRegression(tol=0, max_iter=8).fit(X, labels > 0, given), ("coef_", "intercept_")
        heap, start = heaps(3)
        model = br.ml.KMeans(len(start), random_state=4)
        yield model.fit(heap, sample_weight=None if given is None else weights_for(2, len(heap))), ("cluster_centers_",)


def digests():
    return digest(*(getattr(model, name) for model, names in fits() for name in names))


def in_a_process(**environment):
    script = SCRIPT.format(folder=os.path.dirname(__file__))
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def expected():
    return in_a_process(BRAMBLING_THREADS="1", BRAMBLING_PARTITIONS="1")


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("partitions", ["3", "8"])
def test_threads_and_partitions_do_not_change_models(threads, partitions, expected):
    assert in_a_process(BRAMBLING_THREADS=threads, BRAMBLING_PARTITIONS=partitions) == expected


@pytest.mark.parametrize("isa", ["v2", "v3", "v4"])
def test_instruction_sets_do_not_change_models(isa, expected):
    try:
        assert in_a_process(BRAMBLING_ISA=isa) == expected
    except subprocess.CalledProcessError as error:
        # A CPU without the set refuses, and says what to do.
        assert "this CPU has only" in error.stderr


def test_workers_do_not_change_models(shared, expected):
    with br.connect(shared):
        assert digests() == expected
        with pytest.raises(br.KernelError, match="X has NaN at row 1, column 0"):
            br.ml.StandardScaler().fit([[1.0], [np.nan]])


def test_every_model_is_fitted_here():
    assert {type(model).__name__ for model, _ in fits()} == set(br.ml.__all__)


def test_the_languages_have_the_same_models():
    told = dict(_native.models())
    here = {model._model: model for name in br.ml.__all__ if hasattr(model := getattr(br.ml, name), "_model")}
    assert told.keys() == here.keys()
    for name, parameters in told.items():
        # What a class hands over is what the engine asks for.
        numbers = here[name]()._numbers() if hasattr(here[name], "_numbers") else {}
        assert list(numbers) == parameters, name
    with pytest.raises(ValueError, match="there is no model \"Oracle\""):
        _native.fit_model("Oracle", np.ones((1, 1)), 1, None, None, {})
