"""Models over tables and columns of other packages: the same bits as over NumPy's arrays, and predictions are NumPy's."""

import re
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import brambling as br
from brambling._estimator import rows_of

rng = np.random.default_rng(3)
X = rng.normal(size=(5_000, 3))
X[:, 2] = rng.integers(0, 9, len(X))
Y = np.array(["early", "late"])[(X[:, 0] + 0.3 * X[:, 2] > 1).astype(int)]
COLUMNS = {"age": X[:, 0], "height": X[:, 1], "rooms": X[:, 2].astype(np.int64)}
TABLE = pa.table(COLUMNS)

TABLES = {
    "pyarrow": TABLE,
    "pyarrow's batch": pa.record_batch(COLUMNS),
    # Chunks of columns that do not end together.
    "chunks": pa.table({name: pa.chunked_array(np.split(held, [70 + 900 * at, 2_500])) for at, (name, held) in enumerate(COLUMNS.items())}),
    "a slice": pa.concat_tables([TABLE.slice(4_990), TABLE]).slice(10),
    # Its offset is that of the whole, not of its columns.
    "a slice of structs": pa.concat_tables([TABLE.slice(4_990), TABLE]).combine_chunks().to_struct_array().chunk(0).slice(10),
    "polars": pl.DataFrame(COLUMNS),
    "pandas": pd.DataFrame(COLUMNS),
    "pandas with types of its own": pd.DataFrame(COLUMNS).astype({"age": "Float64", "rooms": "Int64"}),
    "pandas with an index": pd.DataFrame(COLUMNS).astype({"rooms": "Int64"}).set_index(pd.Index(rng.permutation(len(X)))),
    "a table of ours": br.Table(COLUMNS),
}
LABELS = {
    "pyarrow": pa.array(Y),
    "chunks": pa.chunked_array(np.split(Y, [7, 3_000])),
    "a dictionary": pa.array(Y).dictionary_encode(),
    "polars": pl.Series(Y),
    "categories of polars": pl.Series(Y, dtype=pl.Categorical),
    "pandas": pd.Series(Y),
    "categories of pandas": pd.Series(Y, dtype="category"),
}


def logistic(**parameters):
    return br.ml.LogisticRegression(tol=0, max_iter=8, **parameters)


@pytest.mark.filterwarnings("ignore::brambling.ConvergenceWarning")
@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("solver", ["lbfgs", "gradient-descent"])
def test_logistic_regression_over_tables(table, solver):
    expected, found = logistic(solver=solver).fit(X, Y), logistic(solver=solver).fit(table, Y)
    assert found.coef_.tobytes() == expected.coef_.tobytes()
    assert list(found.feature_names_in_) == list(COLUMNS) and found.n_features_in_ == 3
    for method in ("predict", "predict_proba", "decision_function"):
        given, of_array = getattr(found, method)(table), getattr(expected, method)(X)
        assert type(given) is np.ndarray and np.array_equal(given, of_array), method
    assert found.score(table, Y) == expected.score(X, Y) > 0.7


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_k_means_over_tables(table):
    expected, found = br.ml.KMeans(4).fit(X), br.ml.KMeans(4).fit(table)
    assert found.cluster_centers_.tobytes() == expected.cluster_centers_.tobytes()
    assert list(found.feature_names_in_) == list(COLUMNS)
    for given, of_array in [
        (found.labels_, expected.labels_),
        (found.predict(table), expected.predict(X)),
        (found.transform(table), expected.transform(X)),
        (br.ml.KMeans(4).fit_transform(table), expected.transform(X)),
        (br.ml.KMeans(4).fit_predict(table), expected.labels_),
    ]:
        assert type(given) is np.ndarray and np.array_equal(given, of_array)
    assert found.score(table) == expected.score(X)


@pytest.mark.filterwarnings("ignore::brambling.ConvergenceWarning")
@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_labels_as_columns(labels):
    expected, found = logistic().fit(X, Y), logistic().fit(TABLE, labels)
    assert found.coef_.tobytes() == expected.coef_.tobytes()
    assert found.classes_.tolist() == ["early", "late"]
    assert found.score(TABLE, labels) == expected.score(X, Y)


@pytest.mark.filterwarnings("ignore::brambling.ConvergenceWarning")
@pytest.mark.parametrize("labels", [pa.array(Y == "late"), pl.Series(Y == "late"), pa.array((Y == "late").astype(np.uint8))], ids=str)
def test_labels_that_are_booleans_or_numbers(labels):
    assert logistic().fit(TABLE, labels).classes_.tolist() == [0, 1]


def test_a_stream_is_read_once():
    def reader():
        return pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(max_chunksize=999))

    expected = br.ml.KMeans(4).fit(X)
    assert np.array_equal(br.ml.KMeans(4).fit_transform(reader()), expected.transform(X))
    model = br.ml.KMeans(4).fit(reader())
    assert list(model.feature_names_in_) == list(COLUMNS)
    assert np.array_equal(model.predict(reader()), expected.labels_)


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ({"a": "f4", "b": "f4"}, np.float32),
        ({"a": "f4", "b": "f8"}, np.float64),
        ({"a": "f4", "b": "i2"}, np.float64),
        ({"a": "i8", "b": "u1"}, np.float64),
        ({"a": "?", "b": "?"}, np.float64),
        ({"a": "f2", "b": "f2"}, np.float64),
    ],
    ids=str,
)
def test_the_type_of_a_table(types, expected):
    table = pa.table({name: np.arange(3).astype(kind) for name, kind in types.items()})
    for singles in (True, False):
        values, names = rows_of(table, singles=singles)
        assert values.dtype == (expected if singles else np.float64)
        assert values.flags.c_contiguous and list(names) == ["a", "b"]
        assert values.tolist() == [[float(np.arange(3).astype(kind)[row]) for kind in types.values()] for row in range(3)]


@pytest.mark.filterwarnings("ignore::brambling.ConvergenceWarning")
def test_tables_of_singles_give_the_bits_of_doubles():
    singles = X.astype(np.float32)
    found = logistic().fit(pa.table({"a": singles[:, 0], "b": singles[:, 1], "c": singles[:, 2]}), Y)
    assert found.coef_.tobytes() == logistic().fit(singles.astype(np.float64), Y).coef_.tobytes()


def test_rows_that_there_are_none_of():
    assert br.ml.KMeans(2).fit(TABLE).transform(TABLE.slice(0, 0)).shape == (0, 2)
    three = br.ml.LogisticRegression().fit(np.eye(3), ["a", "b", "c"])
    assert three.predict_proba(np.zeros((0, 3))).shape == (0, 3) and three.predict(np.zeros((0, 3))).shape == (0,)


# What is wrong, what is said of it, and what is right.
HOLED = pa.table({"age": [30.0, None, 50.0], "rooms": [1, 2, 3]})
TOWNS = {"age": [30.0, 40.0, 50.0], "town": ["here", "there", "here"]}
REFUSED = [
    (HOLED, "X, column 'age', has a null at row 1 (counted from 0); fill nulls, or drop their rows, first", HOLED.drop_null()),
    (
        pl.DataFrame({"age": [30.0, None, 50.0]}),
        "X, column 'age', has a null at row 1 (counted from 0); fill nulls, or drop their rows, first",
        pl.DataFrame({"age": [30.0, None, 50.0]}).fill_null(0.0),
    ),
    (
        pd.DataFrame({"age": pd.array([30, None, 50], "Int64")}),
        "X, column 'age', has a null at row 1",
        pd.DataFrame({"age": pd.array([30, None, 50], "Int64")}).fillna(0),
    ),
    (
        pa.concat_tables([HOLED.drop_null(), HOLED]),
        "X, column 'age', has a null at row 3",
        pa.concat_tables([HOLED.drop_null(), HOLED.drop_null()]),
    ),
    (pa.table(TOWNS), "X has text in column 'town'; encode it as numbers first, or leave it out", pa.table(TOWNS).drop("town")),
    (
        pl.DataFrame(TOWNS, schema_overrides={"town": pl.Categorical}),
        "X has text in column 'town'; encode it as numbers first, or leave it out",
        pl.DataFrame(TOWNS).drop("town"),
    ),
    (
        pl.DataFrame({"when": pd.date_range("2013", periods=3).to_numpy(), "age": [1.0, 2.0, 3.0]}),
        "X, column 'when', has Arrow's type timestamp, which is no number; cast it to one, or leave it out",
        pl.DataFrame({"when": pd.date_range("2013", periods=3).to_numpy(), "age": [1.0, 2.0, 3.0]}).cast(pl.Int64),
    ),
    (
        pl.DataFrame({"age": [None, None, None], "rooms": [1, 2, 3]}),
        "X, column 'age', has no type, only nulls; fill them with numbers or text, or leave it out",
        pl.DataFrame({"age": [None, None, None], "rooms": [1, 2, 3]}).fill_null(0),
    ),
    (pa.array([1.0, 2.0, 3.0]), "X is one column where a table is expected; give a table", pa.table({"x": [1.0, 2.0, 3.0]})),
    (pl.LazyFrame({"x": [1.0, 2.0]}), "X is a LazyFrame, whose rows are not there yet; give its collect()", pl.DataFrame({"x": [1.0, 2.0]})),
    (pa.table({"x": [1.0, np.nan]}), "X has NaN at row 1, column 0 (counted from 0)", pa.table({"x": [1.0, 2.0]})),
    (TABLE.slice(0, 0), "X has no rows", TABLE),
    (pa.table({}), "X is a table without columns", TABLE),
]


@pytest.mark.parametrize(("wrong", "told", "right"), REFUSED, ids=[told for _, told, _ in REFUSED])
def test_what_is_refused(wrong, told, right):
    for model in (br.ml.KMeans(1), logistic()):
        with pytest.raises(br.BuildError, match=re.escape(told)):
            model.fit(wrong, [0, 1, 0, 1, 0, 1][: getattr(wrong, "num_rows", 3)])
    br.ml.KMeans(1).fit(right)


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (pa.array(["a", None, "b"]), "y has a null at row 1 (counted from 0); fill nulls, or drop their rows, first"),
        (pl.Series([0, None, 1]), "y has a null at row 1"),
        (pd.Series(["a", None, "b"], dtype="category"), "y has a null at row 1"),
        (pa.table({"y": [0, 1, 0]}), "y is a table where one column is expected; give one of its columns"),
        (pa.array([0, 1]), "X has 3 rows and y has 2 labels; give one label for each row"),
        (pa.array([0, 1, 2], pa.date32()), "y has Arrow's type date32, which is neither numbers nor text; cast it to one of these first"),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_labels_that_are_refused(labels, told):
    with pytest.raises(br.BuildError, match=re.escape(told)):
        logistic().fit(TABLE.slice(0, 3), labels)


@pytest.mark.parametrize("kind", ["pyarrow", "pyarrow's batch", "polars"])
def test_columns_in_another_order(kind):
    table = TABLES[kind]
    model = br.ml.KMeans(4).fit(table)
    other = table.select(["rooms", "age", "height"])
    with pytest.raises(br.BuildError, match=re.escape("Give X.select(model.feature_names_in_.tolist()).")):
        model.predict(other)
    assert np.array_equal(model.predict(other.select(model.feature_names_in_.tolist())), model.labels_)


def test_names_of_pandas_that_are_no_text():
    frame = pd.DataFrame({1: pd.array([1, 2], "Int64"), 2: [3.0, 4.0]})
    assert not hasattr(br.ml.KMeans(1).fit(frame), "feature_names_in_")


@pytest.mark.filterwarnings("ignore::brambling.ConvergenceWarning")
@pytest.mark.parametrize("missing", ["nanoarrow", "pyarrow"])
def test_what_numpy_can_read_needs_no_arrow(monkeypatch, missing):
    frame, labels = TABLES["pandas with types of its own"], pd.Series(Y)
    expected = logistic().fit(frame, labels)
    # As if it were not installed.
    monkeypatch.setitem(sys.modules, missing, None)
    if missing == "nanoarrow":
        with pytest.raises(br.MissingExtra, match=r"pip install 'brambling\[arrow\]'"):
            br.ml.KMeans(1).fit(br.Table(COLUMNS))
    found = logistic().fit(frame, labels)
    assert found.coef_.tobytes() == expected.coef_.tobytes()
    assert list(found.feature_names_in_) == list(COLUMNS) and found.classes_.tolist() == ["early", "late"]
