"""LinearRegression and Ridge beside scikit-learn's, and where the digits go."""

import numpy as np
import pytest
from datasets import SEEDS, table, targets, weights_for
from sklearn import linear_model

import brambling as br


def close(ours, theirs, share=1e-6):
    """As far apart as that share of the largest, at most."""
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=share * np.abs(theirs).max(initial=1e-300))


@pytest.mark.parametrize("seed", SEEDS)
def test_least_squares_agree_with_scikit_learn(seed):
    X, weights = table(seed), weights_for(seed, len(table(seed)))
    y = targets(X, seed, 1 + seed % 3)
    how = {"fit_intercept": seed % 7 != 6, "tol": 1e-12}
    ours = br.ml.LinearRegression(**how).fit(X, y, weights)
    theirs = linear_model.LinearRegression(**how).fit(X, y, weights)
    sizes = X.std(axis=0)
    close(ours.coef_ * sizes, theirs.coef_ * sizes)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(ours.singular_, theirs.singular_, rtol=1e-9)
    assert (ours.rank_, ours.coef_.shape) == (theirs.rank_, theirs.coef_.shape)
    assert np.shape(ours.intercept_) == np.shape(theirs.intercept_)
    close(ours.predict(X), theirs.predict(X))
    assert ours.score(X, y, weights) == pytest.approx(theirs.score(X, y, weights), abs=1e-9)
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y), abs=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_ridges_agree_with_scikit_learn(seed):
    X, weights = table(seed), weights_for(seed, len(table(seed)))
    # Of equal size, so that scikit-learn's own method, which squares the columns, keeps its digits.
    X = (X - X.mean(axis=0)) / X.std(axis=0) + seed % 3
    y = targets(X, seed, 1 + seed % 2)
    ours = br.ml.Ridge(alpha=0.5 + seed, fit_intercept=seed % 3 != 2).fit(X, y, weights)
    theirs = linear_model.Ridge(alpha=0.5 + seed, fit_intercept=seed % 3 != 2, solver="svd").fit(X, y, weights)
    close(ours.coef_, theirs.coef_)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("condition", [1e3, 1e6, 1e9, 1e11])
def test_ill_conditioned_columns_keep_the_digits_that_they_have(condition):
    rng = np.random.default_rng(7)
    left, _ = np.linalg.qr(rng.normal(size=(9_000, 8)))
    right, _ = np.linalg.qr(rng.normal(size=(8, 8)))
    X = left * np.geomspace(1, 1 / condition, 8) @ right
    coef = rng.normal(size=8)
    found = br.ml.LinearRegression(fit_intercept=False, tol=0).fit(X, X @ coef)
    # The Gram matrix would lose twice as many: all of them at 1e9.
    assert np.abs(found.coef_ - coef).max() < 1e-14 * condition
    np.testing.assert_allclose(found.singular_, np.linalg.svd(X, compute_uv=False), rtol=1e-15 * condition)


def test_columns_far_from_the_origin_lose_nothing():
    rng = np.random.default_rng(8)
    near = rng.integers(-1_000, 1_000, size=(6_000, 3)).astype(float)
    y = near @ [1.0, -2.0, 0.5] + 4.0
    found = br.ml.LinearRegression().fit(near + 2.0**30, y)
    np.testing.assert_allclose(found.coef_, [1.0, -2.0, 0.5], rtol=1e-10)


def test_of_many_solutions_the_shortest():
    rng = np.random.default_rng(9)
    X = rng.normal(size=(5_000, 3))
    X = np.column_stack([X, X[:, 0] + X[:, 1], np.zeros(5_000), np.full(5_000, 7.0)])
    y = X @ np.arange(6.0) + 1
    ours, theirs = br.ml.LinearRegression().fit(X, y), linear_model.LinearRegression().fit(X, y)
    assert ours.rank_ == theirs.rank_ == 3
    close(ours.coef_, theirs.coef_, 1e-10)
    few = br.ml.LinearRegression().fit(X[:2, :3], y[:2])
    close(few.coef_, linear_model.LinearRegression().fit(X[:2, :3], y[:2]).coef_, 1e-10)
    assert few.rank_ == 1


@pytest.mark.parametrize("size", [1e-290, 1e-170, 1e160, 1e290])
def test_sizes_whose_squares_are_no_numbers(size):
    X = np.random.default_rng(10).normal(size=(5_000, 2))
    found = br.ml.LinearRegression().fit(X * [size, size], X @ [1.0, 2.0] + 3)
    np.testing.assert_allclose(found.coef_ * size, [1.0, 2.0], rtol=1e-12)
    assert found.intercept_ == pytest.approx(3.0)
    assert found.rank_ == 2


@pytest.mark.parametrize("huge", [1e150, 1e300])
def test_weights_of_any_size_are_the_same_weights(huge):
    X, y = table(2), targets(table(2), 2)
    weights = weights_for(2, len(X))
    expected, found = br.ml.LinearRegression().fit(X, y, weights), br.ml.LinearRegression().fit(X, y, weights * huge)
    close(found.coef_, expected.coef_, 1e-12)


def test_rows_without_weight_are_as_if_they_were_not_there():
    X, y = table(3), targets(table(3), 3)
    weights = np.ones(len(X))
    weights[:5_000] = 0
    expected, found = br.ml.LinearRegression().fit(X[5_000:], y[5_000:]), br.ml.LinearRegression().fit(X, y, weights)
    close(found.coef_, expected.coef_, 1e-11)
    # All of one weight count alike, and weights of 1 are no weights, to the bit.
    same = br.ml.LinearRegression().fit(X, y, np.ones(len(X)))
    np.testing.assert_array_equal(same.coef_, br.ml.LinearRegression().fit(X, y).coef_)


def test_scores_of_targets_that_do_not_vary():
    X = np.arange(6.0)[:, None]
    for y in (np.ones(6), np.zeros(6)):
        ours, theirs = br.ml.LinearRegression().fit(X, y), linear_model.LinearRegression().fit(X, y)
        assert ours.score(X, y) == theirs.score(X, y) == 1.0
    ours, theirs = br.ml.LinearRegression().fit(X, X[:, 0]), linear_model.LinearRegression().fit(X, X[:, 0])
    assert ours.score(X, np.ones(6)) == theirs.score(X, np.ones(6)) == 0.0


@pytest.mark.parametrize(
    ("told", "wrong"),
    [
        ("positive = True cannot be used; give False", lambda: br.ml.LinearRegression(positive=True).fit([[1.0]], [1.0])),
        ("tol = 1 cannot be used", lambda: br.ml.LinearRegression(tol=1).fit([[1.0]], [1.0])),
        ("alpha = -1 cannot be used; give 0 or a positive number", lambda: br.ml.Ridge(-1).fit([[1.0]], [1.0])),
        ("y has shape \\(1, 0\\)", lambda: br.ml.Ridge().fit([[1.0]], [[]])),
        ("X has 2 rows and y has 1 target", lambda: br.ml.Ridge().fit([[1.0], [2.0]], [1.0])),
        ("y has NaN at row 1", lambda: br.ml.Ridge().fit([[1.0], [2.0]], [1.0, np.nan])),
        ("y has inf at row 1", lambda: br.ml.Ridge().fit([[1.0], [2.0]], [[1.0, 0.0], [2.0, np.inf]])),
        ("y cannot be read as numbers", lambda: br.ml.Ridge().fit([[1.0], [2.0]], ["a", "b"])),
        ("X has NaN at row 1, column 0", lambda: br.ml.LinearRegression().fit([[1.0], [np.nan]], [1.0, 2.0])),
        ("sample_weight has -1.0 at row 1", lambda: br.ml.Ridge().fit([[1.0], [2.0]], [1.0, 2.0], [1, -1])),
        ("X has 2 rows and sample_weight has 1 weight;", lambda: br.ml.Ridge().fit([[1.0], [2.0]], [1.0, 2.0], [1])),
        ("every weight in sample_weight is zero", lambda: br.ml.Ridge().fit([[1.0], [2.0]], [1.0, 2.0], [0, 0])),
        ("sample_weight cannot be read as numbers", lambda: br.ml.Ridge().fit([[1.0], [2.0]], [1.0, 2.0], ["a", "b"])),
        ("the sum of sample_weight overflows", lambda: br.ml.Ridge().fit([[1.0], [2.0]], [1.0, 2.0], [1e308, 1e308])),
    ],
)
def test_what_cannot_be_used_is_named(told, wrong):
    with pytest.raises(br.BuildError, match=told):
        wrong()
