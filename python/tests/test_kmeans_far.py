"""KMeans far from the origin, against an oracle in whole numbers.

A double is a whole number times a power of two, so that differences, squares and sums of Python's integers are exact:
the oracle has no rounding at all, but that of a mean to the nearest double. It shares no code with KMeans, and does not
choose where a search begins.
"""

import itertools
import os
import subprocess
import sys
import warnings
from fractions import Fraction

import numpy as np
import pytest
from test_promise import digest

import brambling as br

OFFSETS = [0.0, 1.0, -1e3, 1e6, -1e8, 1e9, 1e12]
SPREADS = [1e-6, 1e-3, 1.0, 1e3, 1e6]
# Distances are found with an error of some 2^-52 of themselves.
TIE = Fraction(1, 10**12)


class Exact:
    """Rows and centres as whole numbers of one unit, a power of two."""

    def __init__(self, *tables):
        self.scale = max(float(value).as_integer_ratio()[1] for table in tables for value in table.flat)

    def whole(self, table):
        whole = np.empty(table.shape, dtype=object)
        for place, value in np.ndenumerate(table):
            top, bottom = float(value).as_integer_ratio()
            assert self.scale % bottom == 0
            whole[place] = top * (self.scale // bottom)
        return whole

    def squares(self, X, centres):
        """Squared distances of each row to each centre, in units squared."""
        differences = self.whole(X)[:, None, :] - self.whole(centres)[None, :, :]
        return (differences * differences).sum(axis=2)

    def number(self, squares):
        """A sum of squares as a fraction."""
        return Fraction(int(squares), self.scale**2)


def relative(found, right):
    if right == 0:
        return 0.0 if found == 0 else np.inf
    return float(abs(Fraction(found) - right) / right)


def agrees(model, X):
    """What a fitted model says of X, by the exact distances of X to its centres."""
    exact = Exact(X, model.cluster_centers_)
    squares = exact.squares(X, model.cluster_centers_)
    own, least = squares[np.arange(len(X)), model.labels_], squares.min(axis=1)
    too_far = [row for row in range(len(X)) if own[row] > least[row] * (1 + TIE)]
    assert not too_far, f"rows {too_far[:5]} have labels that are not their nearest centres'"
    assert relative(model.inertia_, exact.number(least.sum())) < 1e-9
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert model.score(X) == -model.inertia_
    distances = model.transform(X)
    for row, centre in itertools.product(range(0, len(X), 7), range(len(model.cluster_centers_))):
        found = Fraction(float(distances[row, centre])) ** 2
        assert relative(found, exact.number(squares[row, centre])) < 1e-9


def heaps(rng, offset, spread, rows=90, columns=3, clusters=3):
    places = rng.normal(size=(clusters, columns)) * 8
    X = places[rng.integers(clusters, size=rows)] + rng.normal(size=(rows, columns))
    return offset + spread * X


def fit(*arguments, X, **parameters):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", br.ConvergenceWarning)
        return br.ml.KMeans(*arguments, **parameters).fit(X)


def lloyd(X, centres, turns):
    """Lloyd's iterations, exactly: a mean is rounded once, to a double. None where a cluster is left empty."""
    for _ in range(turns):
        exact = Exact(X, centres)
        labels = exact.squares(X, centres).argmin(axis=1)
        whole = exact.whole(X)
        moved = np.empty_like(centres)
        for index in range(len(centres)):
            members = whole[labels == index]
            if not len(members):
                return None
            sums = members.sum(axis=0)
            moved[index] = [float(Fraction(int(value), len(members) * exact.scale)) for value in sums]
        centres = moved
    return centres


# ---- the grid of offsets and spreads


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("spread", SPREADS)
def test_labels_and_distances_are_exact_wherever_rows_lie(offset, spread):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        clusters = int(rng.integers(1, 9))
        X = heaps(rng, offset, spread, columns=int(rng.integers(1, 9)), clusters=clusters)
        agrees(fit(clusters, X=X, random_state=seed), X)


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("spread", SPREADS)
def test_iterations_are_the_exact_ones_wherever_rows_lie(offset, spread):
    if spread < 1e5 * np.spacing(abs(offset)):
        # Centres are doubles: here the steps between those are what moves a centre, and rounding decides.
        return
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = heaps(rng, offset, spread, columns=int(rng.integers(1, 6)), clusters=4)
        start = X[:4].copy()
        right = lloyd(X, start, 3)
        if right is None:
            continue
        model = fit(4, X=X, init=start, max_iter=3, tol=0)
        exact = Exact(X, right, model.cluster_centers_)
        squares = exact.squares(X, right)
        least = squares.min(axis=1)
        # A centre that was rounded to the other side makes a tie of rows in the middle.
        tie = Fraction(1, 10**6)
        assert all(squares[row, label] <= least[row] * (1 + tie) for row, label in enumerate(model.labels_))
        assert relative(model.inertia_, exact.number(least.sum())) < 1e-9
        agrees(model, X)


def test_columns_of_different_offsets_and_spreads():
    rng = np.random.default_rng(4)
    for seed in range(12):
        columns = int(rng.integers(2, 9))
        offsets, spreads = rng.choice(OFFSETS, columns), rng.choice(SPREADS, columns)
        X = offsets + spreads * heaps(rng, 0.0, 1.0, columns=columns)
        agrees(fit(4, X=X, random_state=seed), X)


# ---- clusters that are far from one another


@pytest.mark.parametrize("apart", [1e3, 1e6, 1e9, 1e12])
@pytest.mark.parametrize("columns", [1, 2, 5, 20])
def test_heaps_in_heaps_are_told_apart(apart, columns):
    # Two places far from each other, with two heaps each that are 20 from each other: a mean of all is near none.
    rng = np.random.default_rng(columns)
    places = np.array([0.0, 20.0, apart, apart + 20.0])
    X = rng.normal(size=(200, columns)) * 0.1
    X[:, 0] += np.repeat(places, 50)
    start = X[[0, 50, 100, 150]]
    model = fit(4, X=X, init=start)
    assert np.bincount(model.labels_).tolist() == [50] * 4
    agrees(model, X)
    right = lloyd(X, start, int(model.n_iter_))
    exact = Exact(X, right)
    if apart <= 1e9:  # beyond, the steps between doubles decide where a centre lies
        assert relative(model.inertia_, exact.number(exact.squares(X, right).min(axis=1).sum())) < 1e-9
    for seed in range(5):
        assert sorted(np.bincount(fit(4, X=X, random_state=seed).labels_)) == [50] * 4


def test_one_row_far_away_changes_nothing_for_the_others():
    rng = np.random.default_rng(0)
    X = np.concatenate([[[1e12, -1e12]], heaps(rng, 5.0, 1.0, columns=2, clusters=3)])
    start = np.array([X[0], [-10.0, 0.0], [5.0, 5.0], [15.0, 0.0]])
    # The tolerance goes by the variance, of which that row has all.
    model = fit(4, X=X, init=start, tol=0)
    agrees(model, X)
    assert np.bincount(model.labels_)[model.labels_[0]] == 1
    others = fit(3, X=X[1:], init=start[1:], tol=0)
    np.testing.assert_array_equal(model.labels_[1:], others.labels_ + 1)


def test_times_in_nanoseconds():
    rng = np.random.default_rng(0)
    start = 1_764_000_000 * 10**9
    X = np.concatenate([start + s * 10**9 + rng.integers(0, 10**9, 200) for s in (0, 10, 20)])[:, None].astype(float)
    for seed in range(5):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = br.ml.KMeans(3, random_state=seed).fit(X)
        assert np.bincount(model.labels_).tolist() == [200] * 3
        agrees(model, X)


def test_rows_of_singles_far_from_the_origin():
    rng = np.random.default_rng(0)
    X = heaps(rng, 1e6, 1.0, columns=5).astype(np.float32)
    model = br.ml.KMeans(3, random_state=0).fit(X)
    np.testing.assert_array_equal(
        model.cluster_centers_, br.ml.KMeans(3, random_state=0).fit(X.astype(np.float64)).cluster_centers_
    )
    agrees(model, X.astype(np.float64))


def test_rows_that_are_asked_for_may_lie_elsewhere():
    rng = np.random.default_rng(0)
    model = fit(5, X=heaps(rng, 0.0, 1.0, columns=6), random_state=0)
    for offset, spread in itertools.product(OFFSETS, SPREADS):
        X = heaps(rng, offset, spread, rows=40, columns=6)
        exact = Exact(X, model.cluster_centers_)
        squares = exact.squares(X, model.cluster_centers_)
        own = squares[np.arange(40), model.predict(X)]
        assert all(own <= squares.min(axis=1) * (1 + TIE))
        assert relative(-model.score(X), exact.number(squares.min(axis=1).sum())) < 1e-9


# ---- few different rows, and tiny values


@pytest.mark.parametrize("offset", [0.0, 0.1, 1e8 + 0.1, 1e15])
@pytest.mark.parametrize(("different", "clusters"), [(1, 3), (2, 3), (3, 30), (7, 8)])
def test_more_centres_than_different_rows(offset, different, clusters):
    # 0.1 ten times is no ten times 0.1: a mean may be beside its rows.
    X = np.repeat(offset + 0.3 * np.arange(different), [10 + 3 * row for row in range(different)])[:, None]
    different = len(np.unique(X))
    for init in ("k-means++", "random"):
        with pytest.warns(br.ConvergenceWarning, match="X has too few different rows"):
            model = br.ml.KMeans(clusters, init=init, tol=0, random_state=3).fit(X)
        assert model.n_iter_ < 30
        assert model.inertia_ == 0
        assert len(np.unique(model.labels_)) == different


def test_as_many_centres_as_different_rows_find_them_all():
    rng = np.random.default_rng(0)
    for offset in (0.0, 1e9):
        rows = offset + rng.normal(size=(30, 2))
        X = np.repeat(rows, rng.integers(1, 9, size=30), axis=0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = br.ml.KMeans(30, init="random", random_state=0).fit(X)
        assert model.inertia_ == 0 and len(np.unique(model.labels_)) == 30


@pytest.mark.parametrize("spread", [1e-100, 1e-130, 1e-140, 1e-155, 1e-162, 1e-200, 1e-300])
@pytest.mark.parametrize("init", ["k-means++", "random"])
def test_tiny_values_are_clustered_or_refused(spread, init):
    X = np.repeat([0.0, 10.0, 20.0], 20)[:, None] * spread + np.tile(np.linspace(0, 1, 20), 3)[:, None] * spread
    try:
        model = br.ml.KMeans(3, init=init, n_init=10, random_state=0).fit(X)
    except br.BuildError as error:
        assert spread < 1e-135
        assert "differences between X's rows underflow; scale its columns first" in str(error)
        scaled = br.ml.KMeans(3, random_state=0).fit(X / spread)
        assert np.bincount(scaled.labels_).tolist() == [20] * 3
        return
    assert spread > 1e-136
    assert np.bincount(model.labels_).tolist() == [20] * 3
    agrees(model, X)


def test_a_column_of_tiny_values_beside_others_is_no_hindrance():
    X = np.stack([np.repeat([0.0, 5.0], 10), np.tile([0.0, 1e-200], 10)], axis=1)
    assert np.bincount(br.ml.KMeans(2).fit(X).labels_).tolist() == [10, 10]
    # Tiny, but all the same.
    assert br.ml.KMeans(1).fit(np.full((5, 2), 1e-200)).inertia_ == 0


def test_large_values_close_to_one_another_are_clustered():
    # Their squares overflow, those of their differences do not.
    X = 1e160 * (1 + 2.0**-40 * np.repeat([0.0, 1.0, 2.0], 10))[:, None]
    model = br.ml.KMeans(3, random_state=0).fit(X)
    assert np.bincount(model.labels_).tolist() == [10] * 3
    assert model.inertia_ == 0


# ---- the promise


def digest_of_fits():
    rng = np.random.default_rng(0)
    parts = []
    for offset, apart in ((1e9, 0.0), (-1e6, 1e12), (0.0, 1e9)):
        X = heaps(rng, offset, 1.0, rows=30_001, columns=6, clusters=9)
        X[::3, 0] += apart
        for init in ("k-means++", X[:7]):
            model = fit(7, X=X, init=init, max_iter=5, random_state=1)
            parts += [model.cluster_centers_, model.labels_, np.float64(model.inertia_), model.transform(X[:99])]
    return digest(*parts)


def in_a_process(**environment):
    script = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\nimport test_kmeans_far as t; print(t.digest_of_fits())"
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_threads_partitions_and_instruction_sets_do_not_change_a_bit():
    expected = in_a_process(BRAMBLING_THREADS="1", BRAMBLING_PARTITIONS="1")
    for environment in (
        {"BRAMBLING_THREADS": "2", "BRAMBLING_PARTITIONS": "5"},
        {"BRAMBLING_THREADS": "3"},
        {"BRAMBLING_ISA": "v2"},
        {"BRAMBLING_ISA": "v3"},
        {"BRAMBLING_ISA": "v4"},
    ):
        try:
            assert in_a_process(**environment) == expected, environment
        except subprocess.CalledProcessError as error:
            # A CPU without the set refuses, and says what to do.
            assert "this CPU has only" in error.stderr
