"""Tables and columns that cannot be read are answered with what to do instead."""

from __future__ import annotations

import brambling as br
import numpy as np
import pytest

X = np.arange(8.0).reshape(4, 2)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ([1, 2], "not of a list; give a dict of arrays"),
        ({"a": [[1], [1, 2]]}, "column 'a' has values of different lengths"),
        ({"a": 3}, "column 'a' has 0 dimensions; a table's columns have one"),
        ({"a": [1, 2], "b": None}, "column 'b' has 0 dimensions"),
        ({"a": [[1, 2]]}, "column 'a' has 2 dimensions"),
        ({"a": [1, 2], "b": [1]}, "a has 2, b has 1"),
    ],
)
def test_what_is_no_table(columns, says):
    with pytest.raises(br.Error, match=says):
        br.Table(columns)


def test_how_many_rows_are_largest():
    table = br.Table({"a": [1, 3, 2]})
    assert table.largest("a", 2).a.tolist() == [3, 2]
    with pytest.raises(br.Error, match="rows = -1; give how many rows are wanted"):
        table.largest("a", -1)


def test_numbers_that_arrow_does_not_have():
    pytest.importorskip("nanoarrow")
    with pytest.raises(br.Error, match="column 'a' holds .*, which is neither numbers nor text"):
        br.Table({"a": np.zeros(2, np.longdouble)}).__arrow_c_stream__()


def test_frames_that_are_still_to_be_computed():
    polars = pytest.importorskip("polars")
    lazy = polars.LazyFrame({"a": [0, 1, 0, 1]})
    for call in (
        lambda: br.ml.KMeans(1).fit(lazy),
        lambda: br.ml.LogisticRegression().fit(X, lazy),
        lambda: br.graph.pagerank(lazy, lazy),
        lambda: br.Program("lazy").load(lazy),
    ):
        with pytest.raises(br.Error, match=r"is a LazyFrame, whose rows are not there yet; give its collect\(\)"):
            call()


def test_frames_that_arrow_cannot_be_given():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": pandas.arrays.SparseArray([1.0, 0.0])})
    with pytest.raises(br.Error, match="cannot be read through Arrow: .* convert such columns to numbers or text"):
        br.ml.KMeans(1).fit(frame)


def test_times_are_not_called_text():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": pandas.to_datetime(["2013-01-01", "2013-01-02"])})
    with pytest.raises(br.Error, match="X has times in column 'b'; make numbers of them first, or leave them out"):
        br.ml.KMeans(1).fit(frame)


def test_a_dictionary_with_a_null():
    pyarrow = pytest.importorskip("pyarrow")
    ids = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 0]), pyarrow.array(["a", None]))
    with pytest.raises(br.Error, match="src has a null in its dictionary"):
        br.graph.pagerank(ids, ids)
