"""The estimators against scikit-learn: predictions, coefficients, inertia."""

import numpy as np
import pytest
from sklearn import cluster, linear_model

import brambling as br


def labelled(rows=8_000, columns=6, seed=0):
    """Rows of deviation 1, and classes that overlap."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    margins = X @ np.linspace(-1.5, 1.0, columns) + 0.4
    return X, (rng.random(rows) < 1 / (1 + np.exp(-margins))).astype(int)


def heaps(rows=6_000, columns=5, clusters=12, seed=0, spread=3.0):
    rng = np.random.default_rng(seed)
    places = rng.normal(size=(clusters, columns)) * 6
    return places[rng.integers(clusters, size=rows)] + spread * rng.normal(size=(rows, columns))


@pytest.mark.parametrize("solver", ["lbfgs", "gradient-descent"])
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_coefficients_and_predictions(C, fit_intercept, solver):
    X, y = labelled()
    parameters = {"C": C, "fit_intercept": fit_intercept, "tol": 1e-8, "max_iter": 10_000}
    theirs = linear_model.LogisticRegression(**parameters).fit(X, y)
    ours = br.ml.LogisticRegression(**parameters, solver=solver).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=0, atol=1e-4)
    new, _ = labelled(seed=1)
    assert np.mean(ours.predict(new) == theirs.predict(new)) >= 0.99
    np.testing.assert_allclose(ours.predict_proba(new), theirs.predict_proba(new), atol=1e-4)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_coefficients_and_predictions_of_several_classes(C, fit_intercept, kind):
    X, _ = labelled()
    X = X.astype(kind).astype(float)
    y = np.array(["low", "middle", "high", "top"])[np.digitize(X[:, 0] - 0.5 * X[:, 1] + 0.2 * X[:, 2] ** 2, [-1, 0, 1])]
    parameters = {"C": C, "fit_intercept": fit_intercept, "tol": 1e-8, "max_iter": 10_000}
    theirs = linear_model.LogisticRegression(**parameters).fit(X, y)
    ours = br.ml.LogisticRegression(**parameters).fit(X.astype(kind), y)
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=0, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=0, atol=1e-4)
    new, _ = labelled(seed=1)
    assert np.mean(ours.predict(new) == theirs.predict(new)) >= 0.99
    np.testing.assert_allclose(ours.predict_proba(new), theirs.predict_proba(new), atol=1e-4)
    np.testing.assert_allclose(ours.decision_function(new), theirs.decision_function(new), atol=1e-3)


@pytest.mark.parametrize("init", ["k-means++", "random"])
@pytest.mark.parametrize(("clusters", "spread"), [(5, 0.5), (12, 3.0), (30, 3.0)])
def test_inertia(init, clusters, spread):
    X = heaps(clusters=clusters, spread=spread)
    parameters = {"n_clusters": clusters, "init": init, "n_init": 10, "random_state": 0}
    theirs = cluster.KMeans(**parameters).fit(X)
    ours = br.ml.KMeans(**parameters).fit(X)
    assert ours.inertia_ <= 1.02 * theirs.inertia_
    # What is said is what is so.
    squares = ((X - ours.cluster_centers_[ours.labels_]) ** 2).sum()
    np.testing.assert_allclose(ours.inertia_, squares, rtol=1e-9)


def test_inertia_of_single_searches():
    # One search of either is luck where heaps are separate; where they overlap the mean tells how well it begins.
    X = heaps(clusters=40)
    seeds = range(10)
    theirs = np.mean([cluster.KMeans(40, n_init=1, random_state=seed).fit(X).inertia_ for seed in seeds])
    ours = np.mean([br.ml.KMeans(40, n_init=1, random_state=seed).fit(X).inertia_ for seed in seeds])
    assert ours <= 1.02 * theirs, (ours, theirs)
