"""LogisticRegression against an oracle in plain NumPy that shares no code with it."""

import os
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from test_promise import digest

import brambling as br

SOLVERS = ("lbfgs", "gradient-descent")
SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from test_logistic import digest_of_fits
print(digest_of_fits())
"""


def samples(rows=9_000, columns=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    margin = X @ np.linspace(-1, 1, columns) + 0.5
    return X, (rng.random(rows) < 1 / (1 + np.exp(-margin))).astype(float)


def newton(X, y, C, fit_intercept):
    """The minimum itself, by Newton's method."""
    A = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
    penalty = np.ones(A.shape[1])
    if fit_intercept:
        penalty[-1] = 0
    w = np.zeros(A.shape[1])
    for _ in range(50):
        p = 1 / (1 + np.exp(-(A @ w)))
        gradient = penalty * w + C * A.T @ (p - y)
        hessian = np.diag(penalty) + C * (A * (p * (1 - p))[:, None]).T @ A
        w -= np.linalg.solve(hessian, gradient)
    return (w[:-1], w[-1]) if fit_intercept else (w, 0.0)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("C", [0.001, 1.0, 100.0])
@pytest.mark.parametrize("solver", SOLVERS)
def test_finds_the_minimum(C, fit_intercept, solver):
    X, y = samples()
    model = br.ml.LogisticRegression(C=C, fit_intercept=fit_intercept, tol=1e-9, max_iter=5_000, solver=solver)
    model.fit(X, y)
    coef, intercept = newton(X, y, C, fit_intercept)
    np.testing.assert_allclose(model.coef_[0], coef, atol=1e-6)
    np.testing.assert_allclose(model.intercept_[0], intercept, atol=1e-6)
    assert model.n_iter_[0] < 5_000


def test_predictions_agree_with_the_formula():
    X, y = samples()
    model = br.ml.LogisticRegression().fit(X, y)
    margins = X @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.decision_function(X), margins, atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-margins)), atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), (margins > 0).astype(float))
    assert model.score(X, y) == np.mean((margins > 0) == y)


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [-1, 1], [3.5, 7.25], [np.int8(0), np.int8(1)]])
def test_any_two_labels(labels):
    X, y = samples(rows=500)
    named = np.array(labels)[y.astype(int)]
    model = br.ml.LogisticRegression().fit(X, named)
    expected = br.ml.LogisticRegression().fit(X, y)
    np.testing.assert_array_equal(model.classes_, labels)
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    np.testing.assert_array_equal(model.predict(X), np.array(labels)[expected.predict(X).astype(int)])
    assert model.score(X, named) == expected.score(X, y)


@pytest.mark.parametrize("convert", [np.asfortranarray, lambda X: X.astype(np.float32), lambda X: X[::-1][::-1], np.ndarray.tolist])
@pytest.mark.parametrize("solver", SOLVERS)
def test_any_layout(convert, solver):
    X, y = samples(rows=300)
    X = X.astype(np.float32).astype(np.float64)
    expected = br.ml.LogisticRegression(solver=solver).fit(X, y)
    model = br.ml.LogisticRegression(solver=solver).fit(convert(X), y.tolist())
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    np.testing.assert_array_equal(model.predict_proba(convert(X)), expected.predict_proba(X))


# ---- several classes


def classified(rows=9_000, columns=5, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=rows)
    return rng.normal(size=(rows, columns)) + rng.normal(size=(classes, columns))[y], y


def gradient(model, X, y, C):
    """Of ½‖w‖² + C · Σ log-loss, ÷ (C · rows), by NumPy alone."""
    margins = X @ model.coef_.T + model.intercept_
    powers = np.exp(margins - margins.max(axis=1, keepdims=True))
    residuals = powers / powers.sum(axis=1, keepdims=True) - (y[:, None] == model.classes_)
    return (model.coef_ / C + residuals.T @ X) / len(X), residuals.sum(axis=0) / len(X)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("C", [0.001, 1.0, 100.0])
@pytest.mark.parametrize("classes", [3, 4, 9, 17])
def test_the_gradient_of_several_classes_vanishes(C, fit_intercept, classes):
    X, y = classified(classes=classes)
    model = br.ml.LogisticRegression(C=C, fit_intercept=fit_intercept, tol=1e-8, max_iter=2_000).fit(X, y)
    assert model.coef_.shape == (classes, 5) and model.intercept_.shape == (classes,)
    of_weights, of_intercepts = gradient(model, X, y, C)
    # `tol` is compared in units of the columns: what moves a column from its mean by its deviation.
    means = X.mean(axis=0) if fit_intercept else np.zeros(5)
    sizes = np.sqrt(((X - means) ** 2).mean(axis=0) + 4 / (C * len(X)))
    assert np.abs((of_weights - means * of_intercepts[:, None]) / sizes).max() < 1.1e-8
    assert fit_intercept and np.abs(of_intercepts).max() < 1.1e-8 or not model.intercept_.any()


def test_predictions_of_several_classes_agree_with_the_formula():
    X, y = classified()
    names = np.array(["north", "east", "south", "west"])
    model = br.ml.LogisticRegression().fit(X, names[y])
    assert list(model.classes_) == sorted(names)
    margins = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), margins, atol=1e-11)
    powers = np.exp(margins - margins.max(axis=1, keepdims=True))
    np.testing.assert_allclose(model.predict_proba(X), powers / powers.sum(axis=1, keepdims=True), atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), model.classes_[margins.argmax(axis=1)])
    assert model.score(X, names[y]) == np.mean(model.predict(X) == names[y]) > 0.7


@pytest.mark.parametrize("kind", [np.int8, np.uint64, np.float32, str, object])
def test_labels_of_several_classes(kind):
    X, y = classified(rows=600, classes=3)
    named = (y * 3 + 1).astype(kind)
    model = br.ml.LogisticRegression().fit(X, named)
    np.testing.assert_array_equal(model.coef_, br.ml.LogisticRegression().fit(X, y).coef_)
    np.testing.assert_array_equal(model.classes_, np.unique(named))
    assert set(model.predict(X)) <= set(named)


# ---- the promise


def digest_of_fits():
    X, y = classified(rows=50_001, columns=13)
    parts = []
    for solver, table, labels in [
        ("lbfgs", X, y), ("lbfgs", X.astype(np.float32), y), ("lbfgs", X, y % 2), ("gradient-descent", X, y % 2),
    ]:
        model = br.ml.LogisticRegression(solver=solver, tol=0, max_iter=8).fit(table, labels)
        parts += [model.coef_, model.intercept_, model.predict_proba(X[:5_000]), model.decision_function(X[:5_000])]
    return digest(*parts)


def in_a_process(**environment):
    script = SCRIPT.format(folder=os.path.dirname(__file__))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def expected():
    return in_a_process(BRAMBLING_THREADS="1", BRAMBLING_PARTITIONS="1")


@pytest.mark.parametrize("threads", ["1", "2", "3"])
@pytest.mark.parametrize("partitions", ["2", "7", "64"])
def test_threads_and_partitions_do_not_change_models(threads, partitions, expected):
    assert in_a_process(BRAMBLING_THREADS=threads, BRAMBLING_PARTITIONS=partitions) == expected


@pytest.mark.parametrize("isa", ["v2", "v3", "v4"])
def test_instruction_sets_do_not_change_models(isa, expected):
    try:
        assert in_a_process(BRAMBLING_ISA=isa) == expected
    except subprocess.CalledProcessError as error:
        # A CPU without the set refuses, and says what to do.
        assert "this CPU has only" in error.stderr


# ---- manners


def test_scikit_learns_manners():
    X, y = samples(rows=400)
    model = br.ml.LogisticRegression(C=2.0, max_iter=500)
    assert model.get_params() == {
        "C": 2.0, "penalty": "l2", "fit_intercept": True, "tol": 1e-4, "max_iter": 500, "solver": "lbfgs",
        "class_weight": None, "warm_start": False, "random_state": None,
    }
    assert repr(model) == "LogisticRegression(C=2.0, max_iter=500)"
    assert model.set_params(C=1.0) is model
    assert model.fit(X, y) is model
    assert (model.coef_.shape, model.intercept_.shape, model.n_features_in_) == ((1, 5), (1,), 5)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_a_fit_that_is_not_done_says_so():
    X, y = samples()
    with pytest.warns(br.ConvergenceWarning, match="max_iter = 3 .* raise max_iter, or raise tol"):
        br.ml.LogisticRegression(max_iter=3).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert br.ml.LogisticRegression(max_iter=3, tol=0).fit(X, y).n_iter_[0] == 3
