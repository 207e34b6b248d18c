"""KMeans against scikit-learn, and against an oracle in plain NumPy that shares no code with it."""

import os
import pickle
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
from test_kmeans import digest_of_fits
print(digest_of_fits())
"""


def heaps(rows=6_000, columns=5, clusters=7, seed=0, spread=1.0):
    rng = np.random.default_rng(seed)
    places = rng.normal(size=(clusters, columns)) * 6
    return places[rng.integers(clusters, size=rows)] + spread * rng.normal(size=(rows, columns))


def squares(X, centres):
    return ((X[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)


def lloyd(X, centres, turns):
    """The iterations themselves, for data whose clusters are never empty."""
    for _ in range(turns):
        labels = squares(X, centres).argmin(axis=1)
        centres = np.array([X[labels == index].mean(axis=0) for index in range(len(centres))])
    return centres


# ---- what is found


def test_iterations_are_lloyds():
    X = heaps(spread=3.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", br.ConvergenceWarning)
        model = br.ml.KMeans(7, init=X[:7], max_iter=5, tol=0).fit(X)
    np.testing.assert_allclose(model.cluster_centers_, lloyd(X, X[:7], 5), atol=1e-9)
    assert model.n_iter_ == 5


def test_what_is_found_agrees_with_itself():
    X = heaps()
    model = br.ml.KMeans(7, random_state=1).fit(X)
    squared = squares(X, model.cluster_centers_)
    np.testing.assert_array_equal(model.labels_, squared.argmin(axis=1))
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert model.labels_.dtype == np.int32
    np.testing.assert_allclose(model.inertia_, squared.min(axis=1).sum(), rtol=1e-12)
    assert model.score(X) == -model.inertia_
    assert model.transform(X).shape == (6_000, 7)
    np.testing.assert_allclose(model.transform(X), np.sqrt(squared), rtol=1e-12)
    np.testing.assert_array_equal(model.transform(X).argmin(axis=1), model.predict(X))
    again = br.ml.KMeans(7, random_state=1)
    np.testing.assert_array_equal(again.fit_predict(X), model.labels_)
    np.testing.assert_array_equal(again.fit_transform(X), model.transform(X))


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 70])
def test_rows_of_any_length(columns):
    X = heaps(rows=301, columns=columns)
    model = br.ml.KMeans(3, random_state=0).fit(X)
    squared = squares(X, model.cluster_centers_)
    np.testing.assert_allclose(model.transform(X), np.sqrt(squared), rtol=1e-12)
    np.testing.assert_allclose(model.inertia_, squared.min(axis=1).sum(), rtol=1e-12)


def test_separate_heaps_are_told_apart_whatever_the_seed():
    # Plain draws without the best of several would often put two centres into one heap.
    X = np.repeat(np.arange(8.0) * 100, 50)[:, None] + np.tile(np.linspace(-1, 1, 50), 8)[:, None]
    for seed in range(20):
        model = br.ml.KMeans(8, random_state=seed).fit(X)
        np.testing.assert_allclose(np.sort(model.cluster_centers_[:, 0]), np.arange(8) * 100, atol=1e-9)


def test_the_best_of_several_searches_wins():
    X = heaps(rows=500, clusters=12)
    single = [br.ml.KMeans(12, init="random", n_init=1, random_state=seed).fit(X).inertia_ for seed in range(5)]
    assert len(set(single)) > 1
    several = [br.ml.KMeans(12, init="random", n_init=count, random_state=0).fit(X).inertia_ for count in (1, 5, 10)]
    assert several[0] == single[0]
    assert several[0] > several[1] >= several[2]
    assert br.ml.KMeans(12, init="random", random_state=0).fit(X).inertia_ == several[2]


def test_seeds_differ_and_repeat():
    X = heaps(rows=500, clusters=30)

    def fit(seed, init="k-means++"):
        return br.ml.KMeans(9, init=init, n_init=1, random_state=seed).fit(X).cluster_centers_

    for init in ("k-means++", "random"):
        np.testing.assert_array_equal(fit(3, init), fit(np.int64(3), init))
        assert not np.array_equal(fit(3, init), fit(4, init))
    np.testing.assert_array_equal(fit(None), fit(0))


def test_a_centre_without_rows_is_moved():
    X = heaps(rows=300, clusters=2)
    start = np.array([X[0], X[1], [1e6] * 5])
    model = br.ml.KMeans(3, init=start).fit(X)
    assert set(model.labels_) == {0, 1, 2}


# ---- against scikit-learn


def test_agrees_with_scikit_learn_from_the_same_start():
    from sklearn import cluster

    X = heaps(spread=3.0)
    theirs = cluster.KMeans(7, init=X[:7], n_init=1, tol=1e-8).fit(X)
    ours = br.ml.KMeans(7, init=X[:7], tol=1e-8).fit(X)
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, atol=1e-6)
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    np.testing.assert_allclose(ours.inertia_, theirs.inertia_, rtol=1e-9)


def test_scikit_learn_is_not_imported():
    script = "import brambling as br, sys; br.ml.KMeans(1).fit([[1.0]]); print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# ---- the promise


def digest_of_fits():
    X = heaps(rows=50_001, columns=13, clusters=20, spread=3.0)
    parts = []
    for init, n_init in (("k-means++", "auto"), ("random", 2), (X[:11], "auto")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", br.ConvergenceWarning)
            model = br.ml.KMeans(11, init=init, n_init=n_init, max_iter=6, random_state=5).fit(X)
        parts += [model.cluster_centers_, model.labels_, np.float64(model.inertia_), model.transform(X[:5_000])]
    return digest(*parts)


def in_a_process(**environment):
    script = SCRIPT.format(folder=os.path.dirname(__file__))
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def expected():
    return in_a_process(BRAMBLING_THREADS="1", BRAMBLING_PARTITIONS="1")


@pytest.mark.parametrize("threads", ["1", "2", "3"])
@pytest.mark.parametrize("partitions", ["1", "2", "7", "64"])
def test_threads_and_partitions_do_not_change_clusters(threads, partitions, expected):
    assert in_a_process(BRAMBLING_THREADS=threads, BRAMBLING_PARTITIONS=partitions) == expected


@pytest.mark.parametrize("isa", ["v2", "v3", "v4"])
def test_instruction_sets_do_not_change_clusters(isa, expected):
    try:
        assert in_a_process(BRAMBLING_ISA=isa) == expected
    except subprocess.CalledProcessError as error:
        # A CPU without the set refuses, and says what to do.
        assert "this CPU has only" in error.stderr


# ---- manners


def test_scikit_learns_manners():
    X = heaps(rows=400)
    model = br.ml.KMeans(3, max_iter=500)
    assert model.get_params() == {
        "n_clusters": 3, "init": "k-means++", "n_init": "auto", "max_iter": 500, "tol": 1e-4, "random_state": None,
    }
    assert repr(model) == "KMeans(n_clusters=3, max_iter=500)"
    assert "init=array" in repr(br.ml.KMeans(3, init=X[:3]))
    assert model.set_params(n_clusters=4) is model
    assert model.fit(X, None) is model
    assert (model.cluster_centers_.shape, model.labels_.shape, model.n_features_in_) == ((4, 5), (400,), 5)
    assert isinstance(model.inertia_, float) and isinstance(model.n_iter_, int)
    again = pickle.loads(pickle.dumps(model))
    assert type(again) is br.ml.KMeans
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


@pytest.mark.parametrize(
    "convert", [np.asfortranarray, lambda X: X.astype(np.float32), lambda X: X[::-1][::-1], np.ndarray.tolist]
)
def test_any_layout(convert):
    X = heaps(rows=300).astype(np.float32).astype(np.float64)
    expected = br.ml.KMeans(4, random_state=2).fit(X)
    found = br.ml.KMeans(4, random_state=2).fit(convert(X))
    np.testing.assert_array_equal(found.cluster_centers_, expected.cluster_centers_)
    np.testing.assert_array_equal(found.predict(convert(X)), expected.labels_)


def test_a_fit_that_is_not_done_says_so():
    X = heaps(spread=3.0)
    with pytest.warns(br.ConvergenceWarning, match="max_iter = 2 iterations, while the centres still moved .* raise max_iter"):
        br.ml.KMeans(7, init=X[:7], max_iter=2).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert br.ml.KMeans(7, init=X[:7], max_iter=2, tol=0).fit(X).n_iter_ == 2


def test_fewer_different_rows_than_clusters():
    X = np.repeat([[0.0], [1.0]], 50, axis=0)
    with pytest.warns(br.ConvergenceWarning, match="fell into 2 clusters, fewer than n_clusters = 3"):
        model = br.ml.KMeans(3).fit(X)
    assert model.inertia_ == 0.0


# ---- refusals

TABLE = np.arange(12.0).reshape(6, 2) % 5


def with_value(value, row=4, column=1):
    X = heaps(rows=9_000, columns=2)
    X[row, column] = value
    return X


@pytest.mark.parametrize("init", ["k-means++", "random", TABLE[:2]])
@pytest.mark.parametrize(("value", "row"), [(np.nan, 4), (np.inf, 5_000), (-np.inf, 8_999)])
def test_values_that_are_no_numbers_are_refused(init, value, row):
    told = "NaN" if value != value else "-inf" if value < 0 else "inf"
    with pytest.raises(br.BuildError, match=f"X has {told} at row {row}, column 1 "):
        br.ml.KMeans(2, init=init).fit(with_value(value, row))


def test_the_first_value_that_is_no_number_is_named_when_a_start_meets_another():
    X = np.full((20, 3), np.nan)
    X[0, 0] = 1.0
    for init in ("k-means++", "random"):
        with pytest.raises(br.BuildError, match="X has NaN at row 0, column 1 "):
            br.ml.KMeans(2, init=init).fit(X)


@pytest.mark.parametrize(
    ("message", "model", "X"),
    [
        ("X has 2 rows, fewer than n_clusters = 8; give more rows, or ask for fewer clusters", {}, TABLE[:2]),
        ("X has no rows", {"n_clusters": 2}, np.zeros((0, 2))),
        ("X has no rows", {"n_clusters": 2}, []),
        ("X has no columns", {"n_clusters": 2}, np.zeros((6, 0))),
        ("X has 1 dimension and shape (5,)", {"n_clusters": 2}, np.arange(5.0)),
        ("n_clusters = 0 cannot be used; give an integer of at least 1", {"n_clusters": 0}, TABLE),
        ("n_clusters = 2.0 cannot be used; give an integer of at least 1", {"n_clusters": 2.0}, TABLE),
        ("n_clusters = True cannot be used", {"n_clusters": True}, TABLE),
        ("max_iter = 0 cannot be used; give an integer of at least 1", {"n_clusters": 2, "max_iter": 0}, TABLE),
        ("n_init = 'many' cannot be used; give 'auto' or an integer of at least 1", {"n_clusters": 2, "n_init": "many"}, TABLE),
        ("n_init = 0 cannot be used", {"n_clusters": 2, "n_init": 0}, TABLE),
        ("tol = -1 cannot be used; give 0 or a positive number", {"n_clusters": 2, "tol": -1}, TABLE),
        ("random_state = 'x' cannot be used; give None or an integer", {"n_clusters": 2, "random_state": "x"}, TABLE),
        ("random_state = -1 cannot be used", {"n_clusters": 2, "random_state": -1}, TABLE),
        ("init = 'kmeans' cannot be used; give 'k-means++', 'random' or an array of n_clusters rows",
         {"n_clusters": 2, "init": "kmeans"}, TABLE),
        ("init = None cannot be used", {"n_clusters": 2, "init": None}, TABLE),
        ("init = [['a']] cannot be used", {"n_clusters": 1, "init": [["a"]]}, TABLE),
        ("init has shape (3, 2), but X has 2 columns and n_clusters = 2; give an array of shape (2, 2)",
         {"n_clusters": 2, "init": TABLE[:3]}, TABLE),
        ("init has NaN at row 1, column 0", {"n_clusters": 2, "init": [[0.0, 0.0], [np.nan, 0.0]]}, TABLE),
        ("the squares of X's values overflow; scale its columns first", {"n_clusters": 2}, TABLE * 1e200),
    ],
)
def test_what_is_refused(message, model, X):
    with pytest.raises(br.BuildError) as caught:
        br.ml.KMeans(**model).fit(X)
    assert message in str(caught.value)


@pytest.mark.parametrize("use", ["predict", "transform", "score"])
def test_what_a_model_is_refused_for(use):
    with pytest.raises(br.NotFitted, match=r"this KMeans is not fitted yet; call fit\(X\) first"):
        getattr(br.ml.KMeans(2), use)(TABLE)
    with pytest.raises(AttributeError, match="cluster_centers_: this KMeans is not fitted yet"):
        br.ml.KMeans(2).cluster_centers_
    model = br.ml.KMeans(2).fit(TABLE)
    with pytest.raises(br.BuildError, match="X has 3 features, but KMeans is expecting 2 features as input"):
        getattr(model, use)(np.zeros((1, 3)))
    with pytest.raises(br.BuildError, match="X has NaN at row 0, column 1"):
        getattr(model, use)([[0.0, np.nan]])
