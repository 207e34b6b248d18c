"""LogisticRegression against an oracle in plain NumPy that shares no code with it."""

import pickle
import warnings

import numpy as np
import pytest

import brambling as br


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
def test_finds_the_minimum(C, fit_intercept):
    X, y = samples()
    model = br.ml.LogisticRegression(C=C, fit_intercept=fit_intercept, tol=1e-9, max_iter=5_000).fit(X, y)
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
def test_any_layout(convert):
    X, y = samples(rows=300)
    X = X.astype(np.float32).astype(np.float64)
    expected = br.ml.LogisticRegression().fit(X, y)
    model = br.ml.LogisticRegression().fit(convert(X), y.tolist())
    np.testing.assert_array_equal(model.coef_, expected.coef_)


def test_scikit_learns_manners():
    X, y = samples(rows=400)
    model = br.ml.LogisticRegression(C=2.0, max_iter=500)
    assert model.get_params() == {
        "C": 2.0, "fit_intercept": True, "tol": 1e-4, "max_iter": 500, "solver": "gradient-descent", "random_state": None,
    }
    assert repr(model) == "LogisticRegression(C=2.0, max_iter=500)"
    assert model.set_params(C=1.0) is model
    assert model.fit(X, y) is model
    assert (model.coef_.shape, model.intercept_.shape, model.n_features_in_) == ((1, 5), (1,), 5)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_a_fit_that_is_not_done_says_so():
    X, y = samples()
    with pytest.warns(br.ConvergenceWarning, match="max_iter = 3 .* raise max_iter, standardise"):
        br.ml.LogisticRegression(max_iter=3).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert br.ml.LogisticRegression(max_iter=3, tol=0).fit(X, y).n_iter_[0] == 3
