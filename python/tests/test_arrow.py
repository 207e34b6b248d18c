"""Columns and tables of other packages, by Arrow's PyCapsule interface, in and out."""

import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import brambling as br
from brambling import _arrow

LONG = "a text that is longer than twelve bytes"


def total(*columns):
    p = br.Program("total")
    rows = p.load(*columns)
    sums = p.reduce("sum", p.map(lambda block: np.sum(block, axis=0), rows))
    p.keep(sums)
    return p.run()[sums]


@pytest.mark.parametrize("make", [pa.array, pl.Series, lambda x: pa.chunked_array([x])], ids=["pyarrow", "polars", "chunked"])
@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"])
def test_numbers_are_borrowed(make, dtype):
    numbers = np.arange(10, dtype=dtype)
    held = make(numbers)
    found = _arrow.column(held, "x")
    assert found.dtype == dtype and found.tolist() == numbers.tolist()
    assert not found.flags.writeable and not found.flags.owndata
    assert np.shares_memory(found, _arrow.column(held, "x"))


def test_what_is_borrowed_outlives_its_owner():
    found = _arrow.column(pa.array(np.arange(100_000.0)), "x")
    pa.array(np.zeros(100_000))
    assert found.sum() == 4_999_950_000.0


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (pa.array([1, 2, 3, 4]).slice(1, 2), [2, 3]),
        (pa.chunked_array([[1, 2], [3]]), [1, 2, 3]),
        (pa.chunked_array([], pa.int32()), []),
        (pa.array([None, 1, 2]).slice(1), [1, 2]),
        (pa.array([True, False, True] * 5).slice(2), ([True, False, True] * 5)[2:]),
        (pa.array(["a", "", LONG, "ü"]).slice(1), ["", LONG, "ü"]),
        (pa.array(["a", LONG], pa.large_string()), ["a", LONG]),
        (pl.Series(["a", "", LONG, "ü", LONG[::-1]]).slice(1), ["", LONG, "ü", LONG[::-1]]),
        (pa.array(["a", "b", "a"]).dictionary_encode().slice(1), ["b", "a"]),
        (pl.Series(["a", LONG, "a"], dtype=pl.Categorical), ["a", LONG, "a"]),
        (pd.Series([1, 2], dtype="Int64"), [1, 2]),
        (pd.Series(["a", LONG]), ["a", LONG]),
    ],
    ids=str,
)
def test_columns_of_every_kind(held, expected):
    assert _arrow.is_arrow(held)
    found = _arrow.column(held, "x")
    assert found.tolist() == expected
    if expected and isinstance(expected[0], str):
        assert found.dtype == object


def test_programs_take_columns_and_tables():
    table = {"a": [1.5, 2.5, 3.0], "b": [1, 2, 3]}
    assert total(pa.array([1.0, 2.0])) == 3.0
    assert total(pl.DataFrame(table)).tolist() == [7.0, 6.0]
    assert total(pa.table(table).slice(1)).tolist() == [5.5, 5.0]
    assert total(pa.record_batch(table)).tolist() == [7.0, 6.0]
    # Of NumPy's types: no need for Arrow.
    frame = pd.DataFrame(table)
    assert not _arrow.is_arrow(frame) and not _arrow.is_arrow(frame["a"])
    assert total(frame).tolist() == [7.0, 6.0]


def test_the_index_of_a_frame_is_no_column():
    frame = pd.DataFrame({"a": pd.array([1, 2, 3], "Int64"), "b": [0.5, 0.5, 1.5]}).iloc[[2, 0, 1]]
    assert _arrow.is_arrow(frame)
    assert total(frame).tolist() == [6.0, 2.5]
    assert total(frame["a"]) == 6.0


def test_the_columns_of_a_table_by_name():
    found = _arrow.columns(pl.DataFrame({"src": ["a", "b"], "dst": [3, 4]}).slice(1), "edges")
    assert {name: held.tolist() for name, held in found.items()} == {"src": ["b"], "dst": [4]}


@pytest.mark.parametrize(
    ("held", "message"),
    [
        (pa.array([1, None, 3]), "argument 1 has a null at row 1 (counted from 0); fill nulls, or drop their rows, first"),
        (pa.chunked_array([[1, 2], [3, None]]), "argument 1 has a null at row 3"),
        (pa.array([1, 2, 3, None]).slice(2), "argument 1 has a null at row 1"),
        (pl.DataFrame({"a": [1], "b": [None]}, schema={"a": pl.Int64, "b": pl.Int64}), "column 'b', has a null at row 0"),
        (pl.DataFrame({"a": [1], "b": ["x"]}), "argument 1 has text in column 'b'; encode it as numbers first, or leave it out"),
        (pa.array([[1], [2, 3]]), "has Arrow's type list, which is neither numbers nor text; cast it to one of these first"),
        (pa.array([0], pa.timestamp("s")), "has Arrow's type timestamp"),
        (pa.table({}), "argument 1 is a table without columns"),
    ],
    ids=str,
)
def test_what_is_refused(held, message):
    with pytest.raises(br.BuildError) as caught:
        br.Program("refused").load(held)
    assert message in str(caught.value)


def test_one_column_is_not_a_table_nor_a_table_a_column():
    with pytest.raises(br.BuildError, match="edges is one column, not a table"):
        _arrow.columns(pa.array([1]), "edges")
    with pytest.raises(br.BuildError, match="src is a table where one column is expected"):
        _arrow.column(pa.table({"a": [1]}), "src")


def test_without_nanoarrow(monkeypatch):
    monkeypatch.setitem(sys.modules, "nanoarrow", None)
    with pytest.raises(br.MissingExtra, match=r"pip install 'brambling\[arrow\]'") as caught:
        br.Program("bare").load(pa.array([1]))
    assert isinstance(caught.value, ImportError)


# ---- out


def test_tables_go_out():
    table = br.Table(
        {"vertex": np.array([LONG, "b"], dtype=object), "rank": np.array([0.25, 0.75]), "is_sink": np.array([True, False])}
    )
    expected = {"vertex": [LONG, "b"], "rank": [0.25, 0.75], "is_sink": [True, False]}
    assert pa.table(table).to_pydict() == expected
    assert pl.DataFrame(table).to_dict(as_series=False) == expected
    assert pa.record_batch(table).to_pydict() == expected
    assert {name: held.tolist() for name, held in _arrow.columns(table, "t").items()} == expected


def test_numbers_go_out_without_a_copy():
    rank = np.arange(4.0)
    address = pa.table(br.Table({"rank": rank}))["rank"].chunk(0).buffers()[1].address
    assert address == rank.ctypes.data


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"])
def test_every_type_of_number_goes_out(dtype):
    assert pa.table(br.Table({"x": np.arange(3, dtype=dtype)}))["x"].to_numpy().dtype == dtype


def test_what_does_not_go_out():
    with pytest.raises(br.BuildError, match="column 'a' holds complex128, which is neither numbers nor text"):
        pa.table(br.Table({"a": np.zeros(1, complex)}))


def test_results_go_out():
    p = br.Program("out")
    doubled = p.map(lambda block: 2 * block, p.load(np.arange(10_000.0), name="rows"))
    p.keep(doubled)
    result = p.run()
    found = pa.table(result)
    assert found.column_names == [doubled.name]
    assert np.array_equal(pl.DataFrame(result.table())[doubled.name].to_numpy(), 2 * np.arange(10_000.0))

    p = br.Program("a matrix")
    p.dataset("x", value=np.zeros((2, 2)))
    with pytest.raises(br.BuildError, match=r"`x` has shape \(2, 2\) and type float64, and is no column of numbers"):
        pa.table(p.run())

