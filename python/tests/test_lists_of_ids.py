"""
Ids and labels as lists of whatever Python has: each value is itself in the result, or the list is refused with the row and the cause.

The oracle is Python's own equality with types told apart: no conversion of NumPy's takes part in it.
"""

import datetime
import decimal
import enum
import random
from collections import deque

import numpy as np
import pandas as pd
import pytest

import brambling as br
from brambling import _lists

NAN = float("nan")
# By what they are called; of each several that some conversion would merge.
POOL = {
    "missing": [None, NAN, np.float64("nan"), np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT"), decimal.Decimal("nan"), np.ma.masked],
    "boolean": [True, False, np.bool_(True), np.bool_(False)],
    "integer": [0, 1, -1, 7, 2**53, 2**53 + 1, 2**62 + 1, np.int64(7), np.int8(-1), np.uint64(2**53 + 1), np.array(5)],
    "large": [2**63, 2**63 + 1, 2**64 - 1, np.uint64(2**63 + 1)],
    "huge": [2**64, 2**64 + 1, -(2**63) - 1, 10**40],
    "number": [0.5, 1.5, -2.25, 1.0, 2.0**53, np.float64(0.5), np.float32(1.5), np.array(2.5)],
    "string": ["", "\0", "a", "a\0", "a\0\0", "a\0b", "1", "nan", "None", "True", "1.5", "é", np.str_("a"), np.str_("b")],
    "bytes": [b"", b"a", b"a\0", b"1", np.bytes_(b"a")],
    "other": [datetime.date(2020, 1, 1), np.timedelta64(1, "s"), decimal.Decimal(1), 1j, (1, 2), {1: 2}, object()],
}
ALIKE = {"large": "integer", "huge": "integer"}


def drawn(rng, kinds, length):
    """A list of these kinds, each value one that it has."""
    return [rng.choice(POOL[rng.choice(kinds)]) for _ in range(length)]


def lists(seed, count):
    """Lists of one kind, of two, and of all, as lists, tuples, deques and object arrays."""
    rng = random.Random(seed)
    for case in range(count):
        some = rng.sample(list(POOL), rng.choice([1, 1, 2, 2, 3, len(POOL)]))
        yield case, drawn(rng, some, rng.choice([1, 2, 3, 5, 8]))


def objects(values):
    held = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        held[row] = value
    return held


def item(value):
    """As Python has it."""
    if isinstance(value, np.ndarray) and value is not np.ma.masked:
        value = value[()]
    if isinstance(value, np.str_ | np.bytes_ | np.bool_ | np.integer | np.floating) and not isinstance(value, np.timedelta64):
        return value.item()
    return value


def told(value):
    """A value with its kind, so that 1, 1.0, True and "1" are four."""
    value = item(value)
    return type(value), value


CONTAINERS = [list, tuple, deque, objects, lambda values: pd.Series(objects(values), index=range(7, 7 + len(values)))]


def is_id(value):
    value = item(value)
    return isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**64)


def are_ids(values):
    """Whether a column has all of these as ids, by what docs/graphs.md says of them."""
    values = [item(value) for value in values]
    if not all(map(is_id, values)) or len({type(value) for value in values}) > 1:
        return False
    return isinstance(values[0], str) or min(values) >= 0 or max(values) < 2**63


@pytest.mark.parametrize("make", CONTAINERS)
@pytest.mark.parametrize("seed", range(2))
def test_each_id_is_itself_or_the_list_is_refused(make, seed):
    taken = 0
    for case, values in lists(seed, 250):
        where = f"seed {seed}, case {case}: {values!r}"
        try:
            found = br.graph.connected_components(make(values), make(values))
        except br.BuildError as error:
            assert not are_ids(values), where
            # The row, unless all are of one type that ids cannot have; and a way out.
            message = str(error)
            assert message.startswith("src "), where
            assert "(counted from 0)" in message or "src holds" in message or "dimension" in message, f"{where}: {message}"
            assert ";" in message, where
            check_row(message, values, where)
        else:
            taken += 1
            assert are_ids(values), where
            assert {told(value) for value in found.vertex.tolist()} == {told(value) for value in values}, where
            assert len(found) == len({told(value) for value in values}), where
    assert taken > 40


def check_row(message, values, where):
    """The row that a message names is the first that is not like the first id, or the first integer that has no place."""
    if "at row" not in message:
        return
    row = int(message.split("at row ")[1].split()[0])
    kinds = [_lists.kind_of(type(item(value))) for value in values]
    first = next((kind for kind in kinds if kind in ("integer", "string")), None)
    if kinds[row] == first:
        value = item(values[row])
        others = [item(other) for other in values]
        assert isinstance(value, int) and (not -(2**63) <= value < 2**63) and set(kinds) == {"integer"}, f"{where}: {message}"
        assert all(-(2**63) <= other < 2**64 for other in others[:row]), f"{where}: {message}"
    elif first is not None or any(map(_lists.is_missing, values)) or len(set(kinds)) > 1 or kinds[0] not in ("boolean", "number"):
        before = kinds[:row]
        assert first is None or set(before) <= {first}, f"{where}: {message}"


# ---- where ids come in


CALLS = {
    "src": lambda ids: br.graph.pagerank(ids, ["a"] * len(ids)),
    "dst": lambda ids: br.graph.bfs(["a"] * len(ids), ids, "a"),
    "vertices": lambda ids: br.graph.local_clustering(["a"], ["a"], vertices=ids),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("make", [list, tuple, objects])
@pytest.mark.parametrize("stranger", [None, NAN, np.float64("nan"), pd.NA, True, 1, 1.5, b"b", np.datetime64("2020"), 2**70], ids=repr)
def test_a_stranger_among_texts_is_named_with_its_row(name, make, stranger):
    with pytest.raises(br.BuildError, match=rf"^{name} has .* at row 2 \(counted from 0\) among other ids; give integers only or strings only"):
        CALLS[name](make(["a", "b", stranger, "c"]))


@pytest.mark.parametrize("make", [list, tuple, objects])
def test_a_stranger_among_integers_is_named_with_its_row(make):
    for stranger in [None, NAN, "1", True, 1.0, b"1", np.bool_(False)]:
        with pytest.raises(br.BuildError, match=r"^dst has .* at row 1 \(counted from 0\) among other ids"):
            br.graph.pagerank([1, 2, 3], make([1, stranger, 3]))
    with pytest.raises(br.BuildError, match=r"dst has 18446744073709551616 at row 1 \(counted from 0\), which 64 bits do not hold; give ids below"):
        br.graph.pagerank([1, 2], make([1, 2**64]))
    with pytest.raises(br.BuildError, match=r"dst has 9223372036854775808 at row 2 \(counted from 0\), beyond 2\*\*63 - 1, among negative ids, such as -4"):
        br.graph.pagerank([1, 2, 3], make([1, -4, 2**63]))
    with pytest.raises(br.BuildError, match=r"dst has 9223372036854775809 at row 1 .* and src has negative ids, such as -7"):
        br.graph.pagerank(make([1, -7]), make([3, 2**63 + 1]))


def test_missing_ids_of_float_columns_are_named():
    """pandas makes floats of integers where one is missing."""
    for column in [pd.Series([1, 2, None, 4]), np.array([1, 2, NAN, 4]), [1.0, 2.0, NAN, 4.0]]:
        with pytest.raises(br.BuildError, match=r"src has NaN at row 2 \(counted from 0\)"):
            br.graph.pagerank(column, [1, 2, 3, 4])
    with pytest.raises(br.BuildError, match=r"src holds float64, and ids are integers or strings; astype\(np.int64\)"):
        br.graph.pagerank([1.0, 2.0], [1, 2])


def test_large_integers_stay_themselves():
    ids = [2**63 + 1, 1, 2**63, 2**64 - 1]
    for column in (ids, tuple(ids), objects(ids), np.array(ids, np.uint64), pd.Series(ids)):
        found = br.graph.connected_components(column, column)
        assert found.vertex.tolist() == sorted(ids) and found.vertex.dtype == np.uint64
    # Small ones in one column, large ones in another.
    assert br.graph.connected_components([1, 2], ids[:2]).vertex.tolist() == [1, 2, 2**63 + 1]
    assert br.graph.connected_components([1, 2], [3, 4]).vertex.dtype == np.int64


def test_texts_that_end_with_nul_are_vertices_of_their_own():
    found = br.graph.connected_components(["a\0", "a", "a"], ["b", "b\0", "\0"])
    assert found.vertex.tolist() == ["\0", "a", "a\0", "b", "b\0"]
    assert br.graph.bfs(["a\0"], ["a"], "a\0").distance.tolist() == [1, 0]
    # An array of texts has no such ids: NumPy has dropped the NUL.
    with pytest.raises(br.BuildError, match=r"source 'a\\x00' is no vertex"):
        br.graph.bfs(np.array(["a\0"]), np.array(["b"]), "a\0")
    ranks = br.graph.pagerank(["a\0"], ["a"], personalization={"a\0": 1.0})
    assert ranks.rank[1] > ranks.rank[0]


def test_one_wide_text_does_not_widen_all():
    ids = [f"{at}" for at in range(2_000)] + ["x" * 50_000]
    assert len(br.graph.connected_components(ids, ids)) == len(ids)


def test_subclasses_of_integers_and_texts_are_ids():
    class Colour(enum.IntEnum):
        RED = 1
        BLUE = 2

    class Name(enum.StrEnum):
        A = "a"
        B = "b"

    assert br.graph.connected_components([Colour.RED], [Colour.BLUE]).vertex.tolist() == [1, 2]
    assert br.graph.connected_components(list(Name), ["b", "c"]).vertex.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ([[1], [2, 3]], r"src cannot be read as a column \(.*\); give one value for each row"),
        ([[1, 2], [3, 4]], "src has 2 dimensions"),
        ([(1, 2), (3, 4)], "src has 2 dimensions"),
        ([1, [2]], r"src has \[2\] at row 1"),
        ({1, 2}, "src is a set, not a column of ids; give a list"),
        ({1: 2, 3: 4}, "src is a dict, not a column of ids"),
        ((x for x in (1, 2)), "src is a generator, not a column of ids"),
        ("ab", "src is a str, not a column of ids"),
        (7, "src is a int, not a column of ids"),
        (np.array(7), "src has 0 dimensions"),
        (np.array([b"a", b"b"]), r"src holds \|S1, and ids are integers or strings; give integers or strings"),
        (np.array(["2020", "2021"], "M8[Y]"), "src holds datetime64"),
        (np.array([1, 2], "m8[s]"), "src holds timedelta64"),
        (np.ma.array([1, 2], mask=[False, True]), "src is a masked array"),
        (np.array([(1, 2), (3, 4)], "i4,i4"), "src holds .*, and ids are integers or strings"),
        (np.array([1, 2], complex), "src holds complex128"),
    ],
    ids=repr,
)
def test_what_is_no_column_of_ids(ids, says):
    with pytest.raises(br.BuildError, match=says):
        br.graph.connected_components(ids, [1, 2])


# ---- weights, and shares of a personalization


def test_weights_in_lists():
    def total(weight):
        return br.graph.sssp([1, 2, 3], [2, 3, 4], weight, source=1).distance[-1]

    assert total([1, 2.5, True]) == 4.5 and total((decimal.Decimal("0.5"), 1, 2)) == 3.5
    assert total([2**70, 1, 0]) == 2.0**70
    for stranger in [None, NAN, "2", b"2", pd.NA, 10**400, [1], 1j, datetime.date(2020, 1, 1)]:
        for make in (list, objects):
            with pytest.raises(br.BuildError, match=r"^edge 1 \(counted from 0\) has weight "):
                total(make([1.0, stranger, 2.0]))
    for column in [["1", "2", "3"], np.array([1, 2, 3], "m8[s]"), np.array([1, 2, 3], complex), np.array(["1", "2", "3"])]:
        with pytest.raises(br.BuildError, match="^weight holds .*, and weights are numbers"):
            total(column)


def test_shares_are_named_by_their_ids():
    for share in [NAN, -1.0, float("inf")]:
        with pytest.raises(br.BuildError, match=r"personalization\['b'\] = .* cannot be used; give shares that are finite"):
            br.graph.pagerank(["a"], ["b"], personalization={"a": 1.0, "b": share})
    with pytest.raises(br.BuildError, match=r"personalization\['b'\] = 1000*0 cannot be used: float64 has no number as large"):
        br.graph.pagerank(["a"], ["b"], personalization={"b": 10**400})
    for key in [True, 1.0, "1", None, NAN, b"1", 2**70, np.timedelta64(1, "s")]:
        with pytest.raises(br.BuildError, match=r"personalization's key .* is no vertex"):
            br.graph.pagerank([1], [2], personalization={key: 1.0})


# ---- labels


def are_labels(values):
    values = [item(value) for value in values]
    if any(map(_lists.is_missing, values)):
        return False
    kinds = {_lists.kind_of(type(value)) for value in values}
    return len(kinds) == 1 or kinds == {"integer", "number"}


@pytest.mark.parametrize("make", CONTAINERS)
@pytest.mark.parametrize("seed", range(2))
def test_each_label_is_itself_or_the_list_is_refused(make, seed):
    taken = 0
    for case, values in lists(seed + 100, 150):
        if any(isinstance(item(value), complex | tuple | dict) or type(value) is object for value in values):
            # Without an order, or of several dimensions.
            continue
        where = f"seed {seed}, case {case}: {values!r}"
        X = np.arange(len(values), dtype=float).reshape(-1, 1)
        try:
            model = br.ml.LogisticRegression(max_iter=1, tol=0).fit(X, make(values))
        except br.BuildError as error:
            message = str(error)
            if "one class only" in message or "y is continuous" in message:
                assert are_labels(values), where
                continue
            assert not are_labels(values), f"{where}: {message}"
            assert "(counted from 0)" in message and ";" in message, f"{where}: {message}"
            row = int(message.split("at row ")[1].split()[0])
            kinds = [_lists.kind_of(type(item(value))).replace("integer", "number") for value in values]
            if any(map(_lists.is_missing, values)):
                assert row == next(at for at, value in enumerate(values) if _lists.is_missing(value)), f"{where}: {message}"
            else:
                assert kinds[row] != kinds[0] and len(set(kinds[:row])) == 1, f"{where}: {message}"
        else:
            taken += 1
            assert are_labels(values), where
            assert sorted(model.classes_.tolist()) == sorted({item(value) for value in values}), where
            assert set(model.predict(X).tolist()) <= {item(value) for value in values}, where
    assert taken > 10


def test_labels_are_scored_as_they_are_learnt():
    X = np.arange(4.0).reshape(4, 1)
    model = br.ml.LogisticRegression().fit(X, ["a", "a", "a\0", "a\0"])
    assert model.classes_.tolist() == ["a", "a\0"] and model.score(X, ["a", "a", "a\0", "a\0"]) == 1.0
    assert model.score(X, ["a"] * 4) == 0.5
    for y, says in [
        (["a", "a", NAN, "a"], r"y has NaN at row 2 \(counted from 0\); replace such labels"),
        (["a", "a", None, "a"], r"y has None at row 2"),
        (np.array([0, 1, NAN, 1]), r"y has NaN at row 2"),
        (["a", 1, "a", "a"], r"y mixes labels that cannot be compared: 1 at row 1 \(counted from 0\) is a number, and row 0 has the string 'a'"),
        ([[0], [1, 2], [1], [0]], "y cannot be read as a column"),
    ]:
        with pytest.raises(br.BuildError, match=says):
            model.score(X, y)
    large = br.ml.LogisticRegression().fit(X, [2**63, 2**63, 2**63 + 1, 2**63 + 1])
    assert large.classes_.tolist() == [2**63, 2**63 + 1]
    with pytest.raises(br.BuildError, match="text never equals a number"):
        model.score(X, [0, 1, 0, 1])


# ---- columns of a table


def test_cells_of_a_table_are_themselves():
    for values in [["a", NAN], [1, "1"], ["a\0", "a"], [2**63, -1], [2**53 + 1, 0.5], [b"a\0", b"a"], [True, "True"]]:
        found = br.Table({"x": values})["x"].tolist()
        assert list(map(type, found)) == list(map(type, values))
        assert all(a == b or a != a for a, b in zip(found, values, strict=True))
