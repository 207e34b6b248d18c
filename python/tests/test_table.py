"""The one table that graph algorithms give and results become: its columns, its rows, and where it goes."""

import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import brambling as br

NAMES = np.array(["ATL", "JFK", "LAX"])
RANKS = np.array([0.25, 0.5, 0.25])


def table():
    return br.Table({"vertex": NAMES, "rank": RANKS})


def result_table():
    def half(block):
        return block / 2

    p = br.Program("halves")
    p.keep(p.map(half, p.load(np.arange(30.0))))
    return p.run().table()


# Each with the names of its columns and its rows.
TABLES = [
    (table(), ("vertex", "rank"), 3),
    (br.graph.pagerank(np.arange(30), np.arange(30) // 2), ("vertex", "rank"), 30),
    (br.graph.connected_components([1, 2], [2, 3]), ("vertex", "component"), 3),
    (br.graph.pagerank([1, 2], [2, 1]).largest("rank", 1), ("vertex", "rank"), 1),
    (br.Table({}), (), 0),
    (br.Table({"x": []}), ("x",), 0),
]


@pytest.mark.parametrize(("found", "columns", "rows"), TABLES, ids=lambda it: repr(it).split("\n")[-1])
def test_length_and_rows_and_columns_agree(found, columns, rows):
    assert isinstance(found, br.Table)
    assert len(found) == len(list(found)) == rows
    assert found.columns == found.keys() == columns == tuple(dict(found))
    for name in columns:
        assert name in found and found[name] is getattr(found, name) is dict(found)[name]
    assert list(found) == list(zip(*(found[name].tolist() for name in columns), strict=True))
    assert "no such column" not in found


def test_every_table_is_of_one_class():
    assert br.graph.Table is br.Table is type(result_table()) is type(br.graph.bfs([1], [2], 1))


def test_results_are_tables_too():
    found = result_table()
    assert found.columns == ("half",) and len(found) == 30 and list(found)[3] == (1.5,)


def test_what_a_table_looks_like():
    assert repr(table()) == "vertex  rank\n'ATL'   0.25\n'JFK'   0.5\n'LAX'   0.25\n3 rows"
    assert repr(br.Table({"x": np.arange(1)})) == "x\n0\n1 row"
    assert repr(br.Table({})) == "0 rows"
    assert repr(br.Table({"x": np.arange(11)})).split("\n")[1:-1] == list(map(str, range(11)))
    lines = repr(br.Table({"x": np.arange(12)})).split("\n")
    assert lines == ["x", "0", "1", "2", "3", "4", "…", "7", "8", "9", "10", "11", "12 rows"]


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ([0.5, np.nan, 0.75, 0.5], [2, 0, 3, 1]),
        (np.array([0, 255, 3, 255], np.uint8), [1, 3, 2, 0]),
        (np.array([0, -(2**63), 2**63 - 1, 2**63 - 2]), [2, 3, 0, 1]),
        ([False, True, False, True], [1, 3, 0, 2]),
    ],
    ids=str,
)
def test_the_largest_come_first(held, expected):
    assert br.Table({"at": np.arange(4), "x": held}).largest("x").at.tolist() == expected
    assert br.Table({"at": np.arange(4), "x": held}).largest("x", 2).at.tolist() == expected[:2]


def test_what_is_refused():
    for columns, told in [
        ({"a": [1, 2], "b": [1]}, "columns of a table have equally many rows, but a has 2, b has 1"),
        ({"a": np.zeros((2, 2))}, "column 'a' has 2 dimensions; a table's columns have one"),
    ]:
        with pytest.raises(br.BuildError, match=told):
            br.Table(columns)
    with pytest.raises(KeyError, match="there is no column 'ranks'; there are 'vertex', 'rank'"):
        table()["ranks"]
    with pytest.raises(AttributeError, match="there is no column 'ranks'; there are 'vertex', 'rank'"):
        table().ranks
    with pytest.raises(br.BuildError, match="column 'vertex' holds <U3, and only numbers have largest ones; give a column of numbers"):
        table().largest("vertex")


def test_ranks_tell_how_they_were_found():
    ranks = br.graph.pagerank(["a", "b"], ["b", "a"], tol=0, iterations=7)
    assert ranks.iterations == 7 and ranks.seconds_per_iteration > 0 and ranks.tally["tasks"] > 0
    # Which are no columns.
    assert ranks.columns == ("vertex", "rank") and "iterations" not in ranks
    assert type(ranks.largest("rank")) is br.Table


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it)), br.Table], ids=str)
def test_copies(again):
    for found in (table(), br.graph.pagerank(NAMES, NAMES)):
        same = again(found)
        assert same.columns == found.columns and list(same) == list(found)


def test_others_take_it():
    found = table()
    expected = {"vertex": NAMES.tolist(), "rank": RANKS.tolist()}
    assert pl.DataFrame(found).to_dict(as_series=False) == expected
    assert pa.table(found).to_pydict() == expected
    assert pd.DataFrame(dict(found)).to_dict("list") == expected
    p = br.Program("in again")
    p.keep(p.load(found["rank"], name="ranks"))
    assert p.run().table().ranks.tolist() == RANKS.tolist()
