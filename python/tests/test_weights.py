"""Weights of rows and classes beside scikit-learn's, and other manners of its models."""

import numpy as np
import pytest
from datasets import SEEDS, classes, heaps, table, weights_for
from sklearn import cluster, linear_model

import brambling as br


def standard(seed):
    X = table(seed)
    return (X - X.mean(axis=0)) / X.std(axis=0) + seed % 3


def theirs(**how):
    return linear_model.LogisticRegression(solver="newton-cg", tol=1e-10, max_iter=1_000, **how)


@pytest.mark.parametrize("seed", SEEDS)
def test_logistic_regressions_agree_with_scikit_learn(seed):
    X = standard(seed)
    y, weights = classes(X, seed, 2 + seed % 3), weights_for(seed, len(X))
    # So that huge weights do not drown the penalty.
    weights_of_all = 1.0 if weights is None else weights.max()
    how = {"C": (0.1 + seed) / weights_of_all, "fit_intercept": seed % 7 != 6}
    ours = br.ml.LogisticRegression(tol=1e-9, max_iter=5_000, **how).fit(X, y, weights)
    expected = theirs(**how).fit(X, y, weights)
    np.testing.assert_allclose(ours.coef_, expected.coef_, atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(ours.intercept_, expected.intercept_, atol=1e-6, rtol=1e-6)
    assert ours.score(X, y, weights) == pytest.approx(expected.score(X, y, weights))


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_gradient_descent_takes_weights_too(seed):
    X = standard(seed)
    y, weights = classes(X, seed, 2), weights_for(seed, len(X))
    how = {"C": 0.5 / weights.max(), "max_iter": 20_000}
    ours = br.ml.LogisticRegression(solver="gradient-descent", tol=1e-9, **how).fit(X, y, weights)
    expected = br.ml.LogisticRegression(tol=1e-9, **how).fit(X, y, weights)
    np.testing.assert_allclose(ours.coef_, expected.coef_, atol=1e-6)
    np.testing.assert_allclose(ours.intercept_, expected.intercept_, atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_k_means_agrees_with_scikit_learn(seed):
    X, start = heaps(seed)
    weights = weights_for(seed, len(X))
    how = {"n_clusters": len(start), "init": start, "n_init": 1, "tol": 0}
    ours = br.ml.KMeans(**how).fit(X, sample_weight=weights)
    expected = cluster.KMeans(**how).fit(X, sample_weight=weights)
    np.testing.assert_allclose(ours.cluster_centers_, expected.cluster_centers_, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(ours.labels_, expected.labels_)
    assert ours.inertia_ == pytest.approx(expected.inertia_)
    assert ours.score(X, sample_weight=weights) == pytest.approx(expected.score(X, sample_weight=weights))


@pytest.mark.parametrize("init", ["k-means++", "random"])
@pytest.mark.parametrize("seed", [2, 7, 12])
def test_k_means_never_begins_at_a_row_without_weight(seed, init):
    X, start = heaps(seed)
    # Heaps that weigh nothing.
    weights = (np.arange(len(X)) % len(start) < 2).astype(float) * 1e305
    model = br.ml.KMeans(2, init=init, random_state=seed).fit(X, sample_weight=weights)
    expected = br.ml.KMeans(2, init=init, random_state=seed).fit(X[weights > 0])
    found = model.cluster_centers_[model.cluster_centers_[:, 0].argsort()]
    centres = expected.cluster_centers_[expected.cluster_centers_[:, 0].argsort()]
    np.testing.assert_allclose(found, centres, rtol=1e-9)
    assert model.inertia_ == pytest.approx(expected.inertia_ * 1e305)


def test_a_centre_whose_rows_weigh_nothing_moves():
    X = np.array([[0.0], [0.1], [5.0], [5.1], [100.0]])
    model = br.ml.KMeans(2, init=[[0.0], [100.0]]).fit(X, sample_weight=[1, 1, 1, 1, 0])
    np.testing.assert_allclose(model.cluster_centers_.ravel(), [0.05, 5.05])
    # Rows with a weight that are all centres leave nothing to be won.
    with pytest.warns(br.ConvergenceWarning, match="fewer than n_clusters"):
        model = br.ml.KMeans(3, init=[[0.0], [5.0], [50.0]]).fit([[0.0], [5.0], [0.0]], sample_weight=[1, 1, 2])
    assert model.inertia_ == 0
    with pytest.raises(br.BuildError, match="sample_weight is positive for 1 row, fewer than n_clusters = 2"):
        br.ml.KMeans(2).fit(X, sample_weight=[1, 0, 0, 0, 0])


def test_weights_of_one_are_no_weights_to_the_bit():
    X, start = heaps(3)
    y = classes(X, 3, 3)
    for weights in (1, 1.0, np.ones(len(X)), [True] * len(X)):
        found = br.ml.LogisticRegression().fit(X, y, weights)
        np.testing.assert_array_equal(found.coef_, br.ml.LogisticRegression().fit(X, y).coef_)
        found = br.ml.KMeans(len(start), random_state=1).fit(X, sample_weight=weights)
        np.testing.assert_array_equal(found.cluster_centers_, br.ml.KMeans(len(start), random_state=1).fit(X).cluster_centers_)


@pytest.mark.parametrize("count", [2, 3])
def test_weights_are_repeated_rows(count):
    X = standard(5)
    y, weights = classes(X, 5, count), np.arange(len(X)) % 4
    ours = br.ml.LogisticRegression(tol=1e-9, max_iter=5_000)
    weighted = ours.fit(X, y, weights).coef_
    repeated = ours.fit(np.repeat(X, weights, axis=0), np.repeat(y, weights)).coef_
    np.testing.assert_allclose(weighted, repeated, atol=1e-7)


# ---- classes


@pytest.mark.parametrize("class_weight", ["balanced", {0: 3.0, 1: 0.5, 2: 1.0}, {1: 4.0}, {0: 0.0, 1: 1.0, 2: 1.0}])
@pytest.mark.parametrize("weights", [None, "given"])
def test_classes_have_weights(class_weight, weights):
    X = standard(6)
    y = np.minimum(classes(X, 6, 6), 2)
    weights = None if weights is None else weights_for(2, len(X))
    # scikit-learn wants all or none.
    given = class_weight if isinstance(class_weight, str) else {0: 1.0, 2: 1.0, **class_weight}
    ours = br.ml.LogisticRegression(tol=1e-9, max_iter=5_000, class_weight=class_weight).fit(X, y, weights)
    expected = theirs(class_weight=given).fit(X, y, weights)
    np.testing.assert_allclose(ours.coef_, expected.coef_, atol=1e-6)


@pytest.mark.parametrize(
    ("told", "class_weight"),
    [
        ("class_weight has a weight for 'a', which is no class of y, and none for the class 1", {0: 1.0, "a": 2.0}),
        ("class_weight\\[0\\] = -1 cannot be used; give 0 or a positive number", {0: -1, 1: 1}),
        ("class_weight = 'even' cannot be used; give None, 'balanced' or a dict", "even"),
        ("every weight in sample_weight is zero", {0: 0, 1: 0}),
    ],
)
def test_weights_of_classes_that_cannot_be_used(told, class_weight):
    with pytest.raises(br.BuildError, match=told):
        br.ml.LogisticRegression(class_weight=class_weight).fit(np.eye(2), [0, 1])


# ---- no penalty, and beginning where the last fit ended


@pytest.mark.parametrize("count", [2, 3])
def test_without_a_penalty(count):
    X = standard(9)
    X = np.column_stack([X, np.full(len(X), 5.0)])
    y = classes(X[:, :-1], 9, count)
    ours = br.ml.LogisticRegression(penalty=None, tol=1e-9, max_iter=5_000).fit(X, y)
    endless = br.ml.LogisticRegression(C=np.inf, tol=1e-9, max_iter=5_000).fit(X, y)
    np.testing.assert_array_equal(ours.coef_, endless.coef_)
    expected = theirs(C=np.inf).fit(X[:, :-1], y)
    coef = ours.coef_[:, :-1] - (ours.coef_[:, :-1].mean(axis=0) if count > 2 else 0)
    wanted = expected.coef_ - (expected.coef_.mean(axis=0) if count > 2 else 0)
    np.testing.assert_allclose(coef, wanted, atol=1e-5)
    with pytest.raises(br.BuildError, match="solver='gradient-descent' needs a penalty"):
        br.ml.LogisticRegression(penalty=None, solver="gradient-descent").fit(X, y)
    with pytest.raises(br.BuildError, match="penalty = 'l1' cannot be used; give 'l2' or None"):
        br.ml.LogisticRegression(penalty="l1").fit(X, y)


@pytest.mark.parametrize(("solver", "count"), [("lbfgs", 2), ("lbfgs", 4), ("gradient-descent", 2)])
def test_a_warm_start_goes_on(solver, count):
    X = standard(11)
    y = classes(X, 11, count)
    done = br.ml.LogisticRegression(solver=solver, tol=1e-6, max_iter=20_000, warm_start=True).fit(X, y)
    first, coef = int(done.n_iter_[0]), done.coef_.copy()
    again = done.fit(X, y)
    assert again.n_iter_[0] <= 1 < first
    np.testing.assert_allclose(again.coef_, coef, atol=1e-5)
    # Some iterations, and then the rest.
    parts = br.ml.LogisticRegression(solver=solver, tol=0, max_iter=3, warm_start=True)
    for _ in range(40 if solver == "lbfgs" else 1_000):
        parts.fit(X, y)
    np.testing.assert_allclose(parts.coef_, coef, atol=1e-3)
    with pytest.raises(br.BuildError, match="warm_start cannot begin at coef_ of shape"):
        done.fit(X[:, :-1] if X.shape[1] > 1 else np.column_stack([X, X]), y)


@pytest.mark.parametrize("count", [2, 5])
def test_logarithms_of_probabilities(count):
    X = standard(13)
    y = classes(X, 13, count)
    model = br.ml.LogisticRegression().fit(X, y)
    found = model.predict_log_proba(X)
    np.testing.assert_allclose(found, np.log(model.predict_proba(X)), rtol=1e-12, atol=1e-12)
    # Where a probability is too small for a number.
    far = model.predict_log_proba(X * 1e5)
    assert np.isfinite(far).all() and far.min() < -1_000


# ---- seeds


def test_what_draws_may_be_given_as_a_seed():
    X, start = heaps(8)
    for make in (np.random.RandomState, np.random.default_rng):
        one, other = (br.ml.KMeans(len(start), init="random", n_init=1, max_iter=1, tol=0, random_state=make(5)) for _ in range(2))
        first = one.fit(X).cluster_centers_
        np.testing.assert_array_equal(first, other.fit(X).cluster_centers_)
        # It goes on drawing.
        assert any((one.fit(X).cluster_centers_ != first).any() for _ in range(5))
    with pytest.raises(br.BuildError, match="random_state = -1 cannot be used"):
        br.ml.KMeans(random_state=-1).fit(X)
