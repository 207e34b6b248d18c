"""The likeliest slips of each estimator: what is said names the fix, and the fix works."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest

import brambling as br

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 2))
Y = (X[:, 0] > 0).astype(int)
HOLED = np.where(np.arange(120).reshape(60, 2) == 7, np.nan, X)
WHOLE = ~np.isnan(HOLED).any(axis=1)
FRAME = pd.DataFrame({"age": X[:, 0], "height": X[:, 1], "town": ["here", "there"] * 30})


def logistic(**parameters):
    return br.ml.LogisticRegression(**parameters)


def k_means(**parameters):
    return br.ml.KMeans(**{"n_clusters": 3, **parameters})


def fitted(model):
    return model.fit(FRAME[["age", "height"]], Y)


# What is wrong, what is said of it, and what is right.
SLIPS = {
    "LogisticRegression": [
        (
            "a vector for a table",
            lambda: logistic().fit(X[:, 0], Y),
            "Reshape your data: X.reshape(-1, 1) makes one column of it",
            lambda: logistic().fit(X[:, 0].reshape(-1, 1), Y),
        ),
        (
            "a column of text",
            lambda: logistic().fit(FRAME, Y),
            "X has text in column 'town'; encode it as numbers first, or leave it out",
            lambda: logistic().fit(FRAME.drop(columns="town").assign(here=FRAME["town"] == "here"), Y),
        ),
        (
            "a missing value",
            lambda: logistic().fit(HOLED, Y),
            "X has NaN at row 3, column 1 (counted from 0); replace such values or drop their rows first",
            lambda: logistic().fit(HOLED[WHOLE], Y[WHOLE]),
        ),
        (
            "rows dropped from X alone",
            lambda: logistic().fit(HOLED[WHOLE], Y),
            "X has 59 rows and y has 60 labels; give one label for each row",
            lambda: logistic().fit(HOLED[WHOLE], Y[WHOLE]),
        ),
        (
            "numbers where classes are meant",
            lambda: logistic().fit(X, X[:, 1] * 1.5),
            "make classes of them, such as y > threshold",
            lambda: logistic().fit(X, X[:, 1] * 1.5 > 0.2),
        ),
        (
            "a prediction before the fit",
            lambda: logistic().predict(X),
            "this LogisticRegression is not fitted yet; call fit(X, y) first",
            lambda: logistic().fit(X, Y).predict(X),
        ),
        (
            "columns in another order",
            lambda: fitted(logistic()).predict(FRAME[["height", "age"]]),
            "must be in the same order as they were in fit.\nGive X[model.feature_names_in_].",
            lambda: fitted(logistic()).predict(FRAME[["height", "age"]][fitted(logistic()).feature_names_in_]),
        ),
        (
            "a parameter that others have",
            lambda: logistic(dual=True),
            "LogisticRegression has no parameter 'dual'; it has C, fit_intercept, tol, max_iter, solver, penalty, class_weight, warm_start, random_state",
            lambda: logistic(C=1.0),
        ),
        (
            "a parameter without its name",
            lambda: br.ml.LogisticRegression(10.0),
            "LogisticRegression takes its parameters by name, such as C=10.0",
            lambda: br.ml.LogisticRegression(C=10.0),
        ),
    ],
    "KMeans": [
        (
            "a vector for a table",
            lambda: k_means().fit(X[:, 0]),
            "Reshape your data: X.reshape(-1, 1) makes one column of it",
            lambda: k_means().fit(X[:, 0].reshape(-1, 1)),
        ),
        (
            "a missing value",
            lambda: k_means().fit(HOLED),
            "X has NaN at row 3, column 1 (counted from 0); replace such values or drop their rows first",
            lambda: k_means().fit(HOLED[WHOLE]),
        ),
        (
            "a column of text",
            lambda: k_means().fit(FRAME),
            "X has text in column 'town'; encode it as numbers first, or leave it out",
            lambda: k_means().fit(FRAME.drop(columns="town")),
        ),
        (
            "fewer rows than clusters",
            lambda: k_means(n_clusters=8).fit(X[:5]),
            "X has 5 rows, fewer than n_clusters = 8; give more rows, or ask for fewer clusters",
            lambda: k_means(n_clusters=5).fit(X[:5]),
        ),
        (
            "the number of clusters by another name",
            lambda: br.ml.KMeans(k=3),
            "KMeans has no parameter 'k'; it has n_clusters, init, ",
            lambda: br.ml.KMeans(n_clusters=3),
        ),
        (
            "a misspelt start",
            lambda: k_means(init="kmeans++").fit(X),
            "give 'k-means++', 'random' or an array of n_clusters rows",
            lambda: k_means(init="k-means++").fit(X),
        ),
        (
            "a number of clusters that was divided",
            lambda: k_means(n_clusters=6 / 2).fit(X),
            "n_clusters = 3.0 cannot be used; give an integer of at least 1",
            lambda: k_means(n_clusters=6 // 2).fit(X),
        ),
        (
            "a prediction before the fit",
            lambda: k_means().predict(X),
            "this KMeans is not fitted yet; call fit(X) first",
            lambda: k_means().fit(X).predict(X),
        ),
        (
            "one row to predict, not in a table",
            lambda: k_means().fit(X).predict(X[0]),
            "X has 1 dimension and shape (2,); it needs 2. Reshape your data",
            lambda: k_means().fit(X).predict(X[0].reshape(1, -1)),
        ),
    ],
}


@pytest.mark.parametrize(
    ("wrong", "told", "right"),
    [
        pytest.param(wrong, told, right, id=f"{model}: {slip}")
        for model, slips in SLIPS.items()
        for slip, wrong, told, right in slips
    ],
)
def test_a_slip_is_answered_by_its_fix(wrong, told, right):
    with pytest.raises(br.Error, match=re.escape(told)):
        wrong()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right()


def test_a_fit_that_was_cut_short_says_what_helps():
    stretched = X * [1.0, 1e4]
    with pytest.warns(br.ConvergenceWarning, match="raise max_iter, standardise the columns of X, or raise tol"):
        logistic(solver="gradient-descent", max_iter=2).fit(stretched, Y)
    with pytest.warns(br.ConvergenceWarning, match="tol = 0.0001; raise max_iter, or raise tol"):
        logistic(max_iter=1).fit(stretched, Y)
    with pytest.warns(br.ConvergenceWarning, match="raise max_iter, or raise tol"):
        k_means(init=X[:3], max_iter=1).fit(X)


def test_labels_in_a_column_are_taken_and_said():
    with pytest.warns(br.DataConversionWarning, match=r"give y.ravel\(\)") as caught:
        model = logistic().fit(X, Y[:, None])
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(model.coef_, logistic().fit(X, Y).coef_)
    with pytest.warns(br.DataConversionWarning) as caught:
        model.score(X, Y[:, None])
    assert caught[0].filename == __file__


@pytest.mark.parametrize(("misspelt", "meant"), [("n_cluster", "n_clusters"), ("maxiter", "max_iter"), ("seed", None)])
def test_misspelt_parameters(misspelt, meant):
    with pytest.raises(br.BuildTypeError) as caught:
        br.ml.KMeans(**{misspelt: 3})
    assert isinstance(caught.value, TypeError)
    assert (f"did you mean {meant!r}?" in str(caught.value)) == (meant is not None)
