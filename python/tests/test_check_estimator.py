"""scikit-learn's own checks of estimators. Those that cannot apply are listed with the reason, here and in docs/models.md."""

import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn import base, model_selection, pipeline, preprocessing
from sklearn.utils import estimator_checks

import brambling as br

DOCS = Path(__file__).resolve().parents[2] / "docs" / "models.md"
# The checks that cannot apply, with the reason.
SKIPPED = {
    "check_array_api_input": "arrays of other libraries are converted to NumPy's, not computed with",
}
# The check that fails, with the reason: scikit-learn's own KMeans fails it, too.
FAILED = {
    "KMeans": {
        "check_sample_weight_equivalence_on_dense_data": "a search draws its first rows by their places, and repeated rows have other places"
    }
}
SEARCHES = [br.ml.LogisticRegression(), br.ml.LogisticRegression(solver="gradient-descent"), br.ml.KMeans()]
MODELS = [*SEARCHES, br.ml.LinearRegression(), br.ml.Ridge(), br.ml.StandardScaler()]
PREDICTS = [model for model in MODELS if hasattr(model, "predict")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_scikit_learns_checks(model):
    expected = FAILED.get(type(model).__name__, {})
    found = estimator_checks.check_estimator(model, expected_failed_checks=expected, on_skip=None, on_fail=None)
    failed = {check["check_name"]: repr(check["exception"]) for check in found if check["status"] == "failed"}
    assert not failed, "\n".join(f"{name}: {told}" for name, told in failed.items())
    skipped = {check["check_name"]: str(check["exception"]) for check in found if check["status"] == "skipped"}
    assert skipped.keys() == SKIPPED.keys(), skipped
    assert {check["check_name"] for check in found if check["status"] == "xfail"} == expected.keys()
    passed = [check["check_name"] for check in found if check["status"] == "passed"]
    assert len(passed) >= 35, passed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("check", "model"),
    [
        # They are run of themselves only for classes that inherit from scikit-learn's.
        (estimator_checks.check_dataframe_column_names_consistency, br.ml.KMeans()),
        (estimator_checks.check_dataframe_column_names_consistency, br.ml.LogisticRegression()),
        (estimator_checks.check_clusterer_compute_labels_predict, br.ml.KMeans()),
        (estimator_checks.check_clustering, br.ml.KMeans()),
        (estimator_checks.check_transformer_general, br.ml.KMeans()),
        (estimator_checks.check_classifiers_train, br.ml.LogisticRegression()),
        (estimator_checks.check_class_weight_balanced_linear_classifier, br.ml.LogisticRegression()),
        *((check, model) for model in (br.ml.KMeans(), br.ml.StandardScaler()) for check in (
            estimator_checks.check_set_output_transform,
            estimator_checks.check_set_output_transform_pandas,
            estimator_checks.check_global_output_transform_pandas,
            estimator_checks.check_set_output_transform_polars,
            estimator_checks.check_global_set_output_transform_polars,
            estimator_checks.check_transformer_get_feature_names_out,
            estimator_checks.check_transformer_get_feature_names_out_pandas,
        )),
        *((estimator_checks.check_dataframe_column_names_consistency, model) for model in MODELS[3:]),
    ],
)
def test_checks_that_inheritance_would_bring(check, model):
    check(type(model).__name__, model)


def test_k_means_takes_weights_as_repeated_rows_where_nothing_is_drawn():
    # The check's own rows: no centre is left without rows, which would move to one of several that are as far.
    rows = np.random.RandomState(42).rand(15, 30)
    for model in (br.ml.KMeans(8, init=rows[:8]), br.ml.KMeans(1)):
        estimator_checks.check_sample_weight_equivalence_on_dense_data("KMeans", model)


def test_what_cannot_apply_is_documented():
    # Lines are wrapped anywhere.
    page = " ".join(DOCS.read_text(encoding="utf-8").split())
    for check, reason in (SKIPPED | FAILED["KMeans"]).items():
        assert f"`{check}`" in page and reason in page


def test_scikit_learns_tools_take_the_models():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = np.array(["low", "middle", "high"])[np.digitize(X[:, 0] + 0.3 * X[:, 1], [-0.5, 0.5])]
    chain = pipeline.make_pipeline(preprocessing.StandardScaler(), br.ml.LogisticRegression())
    assert model_selection.cross_val_score(chain, X, y, cv=3).mean() > 0.9
    grid = model_selection.GridSearchCV(br.ml.LogisticRegression(), {"C": [0.001, 1.0]}, cv=3).fit(X, y)
    assert grid.best_params_ == {"C": 1.0}
    groups = pipeline.make_pipeline(preprocessing.StandardScaler(), br.ml.KMeans(3, random_state=0))
    assert groups.fit_transform(X).shape == (300, 3)
    copy = base.clone(br.ml.KMeans(3, init="random", random_state=4))
    assert copy.get_params() == br.ml.KMeans(3, init="random", random_state=4).get_params()
    assert base.is_classifier(br.ml.LogisticRegression()) and base.is_clusterer(br.ml.KMeans())


@pytest.mark.parametrize("model", SEARCHES, ids=repr)
def test_the_names_of_columns_are_kept(model):
    import pandas as pd

    X = pd.DataFrame({"age": [1.0, 2.0, 8.0, 9.0] * 5, "height": [0.5, 0.1, 0.7, 0.2] * 5})
    model = base.clone(model).set_params(max_iter=1, tol=0)
    model.set_params(**{"n_clusters": 2} if isinstance(model, br.ml.KMeans) else {})
    y = [0, 0, 1, 1] * 5
    assert not hasattr(model, "feature_names_in_")
    model.fit(X, y)
    assert model.feature_names_in_.dtype == object and list(model.feature_names_in_) == ["age", "height"]
    labels = model.predict(X)
    np.testing.assert_array_equal(model.predict(X[["height", "age"]][model.feature_names_in_]), labels)
    for other, told in [
        (X[["height", "age"]], "Feature names must be in the same order as they were in fit."),
        (X.rename(columns={"age": "years"}), "unseen at fit time:\n- years\nFeature names seen at fit time, yet now missing:\n- age"),
        (X[["age"]], "Feature names seen at fit time, yet now missing:\n- height"),
    ]:
        with pytest.raises(br.BuildError) as caught:
            model.predict(other)
        assert str(caught.value).endswith(f"{told}\nGive X[model.feature_names_in_].")
    name = type(model).__name__
    with pytest.warns(UserWarning, match=f"X does not have valid feature names, but {name} was fitted with feature names") as warned:
        np.testing.assert_array_equal(model.predict(X.to_numpy()), labels)
    # It points to this line, not into the package.
    assert [it.filename for it in warned] == [__file__]
    # Fitted again without names, it knows none.
    model.fit(X.to_numpy(), y)
    assert not hasattr(model, "feature_names_in_")
    with pytest.warns(UserWarning, match=f"X has feature names, but {name} was fitted without feature names"):
        np.testing.assert_array_equal(model.predict(X), labels)


def test_scikit_learn_is_not_imported():
    script = """
import sys, brambling as br
for model in (br.ml.LogisticRegression(), br.ml.KMeans(2), br.ml.LinearRegression()):
    try:
        model.predict([[0.0]])
    except br.NotFitted as error:
        assert type(error) is br.NotFitted
    model.fit([[0.0], [1.0], [9.0]], [0, 1, 1], sample_weight=[1, 2, 1]).predict([[0.0]])
    repr(model), model.get_params(), model.score([[0.0], [1.0]], [0, 1])
assert not any(name.split('.')[0] in ('sklearn', 'scipy', 'pandas') for name in sys.modules)
print("done")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "done", done.stderr


@pytest.mark.parametrize("model", PREDICTS, ids=repr)
def test_fitted_models_pickle_whole(model):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    model = base.clone(model)
    wanted = {"n_clusters": 3, "tol": 1e-2}
    model.set_params(**{name: wanted[name] for name in model.get_params() if name in wanted})
    model.fit(X, (X[:, 0] > 0).astype(int))
    again = pickle.loads(pickle.dumps(model))
    assert vars(again).keys() == vars(model).keys()
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.tally_ == model.tally_ and again.report_.bound_by == model.report_.bound_by


# ---- the report


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_a_report_says_how_fast_a_fit_was(model):
    model = base.clone(model)
    if "max_iter" in model.get_params():
        model.set_params(max_iter=4, tol=0)
    with pytest.raises(AttributeError, match="report_: this .* is not fitted yet"):
        model.report_  # noqa: B018
    assert not hasattr(model, "report_")
    X = np.random.default_rng(0).normal(size=(50_000, 10))
    model.fit(X, (X[:, 0] > 0).astype(float))
    report = model.report_
    assert report.seconds_per_iteration == model.seconds_per_iteration_ > 0
    assert report.tasks_per_second == model.tally_["tasks"] / model.tally_["wall_s"]
    assert report.bound_by in ("memory bandwidth", "arithmetic")
    # The machine is measured by other loops than the fit's; nothing is asserted of how good it is.
    assert report.share_of_ideal > 0
    first, empty, whole, *_ = str(report).splitlines()
    assert re.fullmatch(
        r"[\d.e-]+ ms an iteration, [\d,]+ tasks/s, \d+% of ideal, bound by (memory bandwidth|arithmetic)", first
    )
    assert (empty, whole) == ("", f"the whole fit: {report.headline}")


def test_a_share_of_ideal_is_what_the_machine_needs_at_least():
    from brambling import _native, _report

    model = br.ml.StandardScaler().fit(np.ones((8, 1)))
    tally = {"threads": 1, "tasks": 30, "wall_s": 2.0}
    for work, bound_by in [
        (_report.Work(read_bytes=8e9, flops=1.0), "memory bandwidth"),
        (_report.Work(read_bytes=8.0, flops=1e15), "arithmetic"),
    ]:
        report = br.ModelReport(model._ledger, 100.0, tally, work)
        least, decides = _native.least_seconds(work.read_bytes, work.flops, 1)
        assert report.bound_by == decides == bound_by and report.tasks_per_second == 15.0
        assert report.share_of_ideal == least / 100.0
