"""StandardScaler beside scikit-learn's."""

import numpy as np
import pytest
from datasets import SEEDS, table, weights_for
from sklearn import preprocessing

import brambling as br


def pair(**how):
    return br.ml.StandardScaler(**how), preprocessing.StandardScaler(**how)


@pytest.mark.parametrize("seed", SEEDS)
def test_means_and_deviations_agree_with_scikit_learn(seed):
    X, weights = table(seed), weights_for(seed, len(table(seed)))
    ours, theirs = pair(with_mean=seed % 5 != 4, with_std=seed % 7 != 6)
    ours.fit(X, sample_weight=weights), theirs.fit(X, sample_weight=weights)
    for name in ("mean_", "var_", "scale_"):
        found, expected = getattr(ours, name), getattr(theirs, name)
        assert (found is None) == (expected is None), name
        if found is not None:
            np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=name)
    # Where neither is wanted, scikit-learn counts rows and leaves out what they weigh.
    seen = theirs.n_samples_seen_ if ours.mean_ is not None or weights is None else weights.sum()
    assert ours.n_samples_seen_ == pytest.approx(seen)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), atol=1e-8)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(X)), X, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("seed", [1, 3, 7, 12])
def test_parts_are_as_good_as_the_whole(seed):
    X, weights = table(seed), weights_for(seed, len(table(seed)))
    ours, theirs = pair()
    for part in np.array_split(np.arange(len(X)), 3):
        here = None if weights is None else weights[part]
        ours.partial_fit(X[part], sample_weight=here), theirs.partial_fit(X[part], sample_weight=here)
    np.testing.assert_allclose(ours.mean_, theirs.mean_, rtol=1e-11)
    np.testing.assert_allclose(ours.var_, theirs.var_, rtol=1e-9)
    assert ours.n_samples_seen_ == pytest.approx(theirs.n_samples_seen_)
    with pytest.raises(br.BuildError, match="features, but StandardScaler is expecting"):
        ours.partial_fit(np.ones((2, X.shape[1] + 1)))
    # A fit begins anew.
    assert ours.fit(X[:5]).n_samples_seen_ == 5


def test_columns_that_do_not_vary_are_left_as_wide_as_they_are():
    X = np.column_stack([np.full(5_000, 0.1), np.full(5_000, 1e9), np.arange(5_000.0), np.zeros(5_000)])
    ours, theirs = pair()
    ours.fit(X), theirs.fit(X)
    np.testing.assert_array_equal(ours.scale_[[0, 1, 3]], 1.0)
    np.testing.assert_allclose(ours.scale_, theirs.scale_)


def test_columns_far_from_the_origin_lose_nothing():
    near = np.random.default_rng(0).integers(-1_000, 1_000, size=(9_000, 2)).astype(float)
    far = br.ml.StandardScaler().fit(near + 2.0**30)
    np.testing.assert_allclose(far.var_, near.var(axis=0), rtol=1e-10)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_come_out_as_wanted(library):
    frames = pytest.importorskip(library)
    X = np.array([[0.0, 1.0], [2.0, 5.0]])
    frame = frames.DataFrame({"age": X[:, 0], "height": X[:, 1]})
    for model, names in ((br.ml.StandardScaler(), ["age", "height"]), (br.ml.KMeans(2), ["kmeans0", "kmeans1"])):
        assert isinstance(model.fit_transform(frame), np.ndarray)
        found = model.set_output(transform=library).fit_transform(frame)
        assert isinstance(found, frames.DataFrame) and list(found.columns) == names
        assert isinstance(model.transform(frame), frames.DataFrame)
        assert isinstance(model.set_output().transform(frame), frames.DataFrame)
        assert isinstance(model.set_output(transform="default").transform(frame), np.ndarray)
    with pytest.raises(br.BuildError, match="transform = 'arrow' cannot be used; give 'default', 'pandas', 'polars' or None"):
        br.ml.KMeans().set_output(transform="arrow")


def test_rows_of_pandas_keep_their_index():
    import pandas as pd

    frame = pd.DataFrame({"age": [1.0, 2.0]}, index=["a", "b"])
    found = br.ml.StandardScaler().set_output(transform="pandas").fit_transform(frame)
    assert list(found.index) == ["a", "b"]


@pytest.mark.parametrize("name", ["copy", "with_mean", "with_std"])
def test_parameters_are_truths(name):
    with pytest.raises(br.BuildError, match=f"{name} = 1 cannot be used; give True or False"):
        br.ml.StandardScaler(**{name: 1}).fit([[1.0]])


def test_what_is_not_fitted_says_so():
    for call in ("transform", "inverse_transform"):
        with pytest.raises(br.NotFitted, match="call fit"):
            getattr(br.ml.StandardScaler(), call)([[1.0]])
    with pytest.raises(AttributeError, match="mean_: this StandardScaler is not fitted yet"):
        br.ml.StandardScaler().mean_  # noqa: B018
