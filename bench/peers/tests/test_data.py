import numpy as np
import pytest

from peers.data import FILES, KINDS, keyed_values, kronecker, labelled_rows, prepared, rows_in_a_cube
from peers.files import LINE_BYTES, RARE


def test_a_kronecker_graph_is_undirected_and_simple_and_has_no_lonely_vertices():
    graph = kronecker(scale=10, edge_factor=16)
    pairs = list(zip(graph["src"].tolist(), graph["dst"].tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    assert all(a != b for a, b in pairs)
    assert {(b, a) for a, b in pairs} == set(pairs)
    vertices = int(graph["src"].max()) + 1
    assert set(graph["src"].tolist()) == set(range(vertices))
    # Some of 2 · 16,384 are loops or duplicates, and some of 1,024 have no edge.
    assert 16_000 < len(pairs) < 30_000
    assert 800 < vertices < 1_024
    # Degrees are far from even: the shares of the quarters.
    degrees = np.sort(np.bincount(graph["src"]))
    assert degrees[-1] > 10 * np.median(degrees)


def test_no_plane_divides_the_labels():
    data = labelled_rows(rows=2_000, columns=4)
    assert set(data["y"]) == {0.0, 1.0}
    assert 600 < data["y"].sum() < 1_400
    found, *_ = np.linalg.lstsq(np.column_stack([data["X"], np.ones(2_000)]), 2 * data["y"] - 1, rcond=None)
    right = (np.column_stack([data["X"], np.ones(2_000)]) @ found > 0) == (data["y"] > 0)
    assert 0.55 < right.mean() < 0.9


def test_k_means_begins_with_rows_at_equal_distances():
    data = rows_in_a_cube(rows=100, columns=2, centres=4)
    assert np.array_equal(data["start"], data["X"][[0, 25, 50, 75]])


def test_every_key_occurs():
    assert set(keyed_values(rows=1_000, keys=7)["key"].tolist()) == set(range(7))


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("labelled-rows", {"rows": 50, "columns": 3}),
        ("rows-in-a-cube", {"rows": 50, "columns": 3, "centres": 2}),
        ("kronecker", {"scale": 6, "edge_factor": 4}),
        ("keyed-values", {"rows": 50, "keys": 3}),
    ],
)
def test_the_same_data_each_time(kind, shape, tmp_path):
    folder = prepared(kind, shape, tmp_path)
    again = KINDS[kind](**shape)
    assert {path.stem for path in folder.iterdir()} == set(again)
    for name, array in again.items():
        assert np.array_equal(np.load(folder / f"{name}.npy"), array)


def test_data_is_made_once_and_never_half(tmp_path, monkeypatch):
    calls = []

    def broken(rows):
        calls.append(rows)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return {"X": np.arange(rows)}

    monkeypatch.setitem(KINDS, "broken", broken)
    with pytest.raises(KeyboardInterrupt):
        prepared("broken", {"rows": 3}, tmp_path)
    assert list(tmp_path.iterdir()) == []
    folder = prepared("broken", {"rows": 3}, tmp_path)
    assert prepared("broken", {"rows": 3}, tmp_path) == folder
    assert calls == [3, 3]
    assert prepared("broken", {"rows": 4}, tmp_path) != folder


def test_lines_to_sort_have_a_key_each_and_no_byte_that_readers_of_text_take_for_more(tmp_path):
    text = (prepared("lines-to-sort", {"rows": 700_000}, tmp_path) / "lines").read_bytes()
    lines = text.splitlines(keepends=True)
    assert (len(lines), {len(line) for line in lines}) == (700_000, {LINE_BYTES})
    assert len({line[:10] for line in lines}) == 700_000
    assert [int(line[11:21]) for line in lines] == list(range(700_000))
    assert not set(text) & set(b" \"'\\,\t\x01")


def test_words_are_about_as_many_bytes_of_unequal_words_and_a_rare_one(tmp_path):
    text = (prepared("words", {"bytes": 40_000_000}, tmp_path) / "words").read_bytes()
    assert 38e6 < len(text) < 42e6
    assert text.endswith(b"\n") and b"  " not in text
    found = text.split()
    words, counts = np.unique(found, return_counts=True)
    ordered = np.sort(counts)[::-1]
    # The n-th is 1/n as frequent.
    assert 80 < ordered[0] / ordered[99] < 125
    assert len(words) > 100_000
    assert 1 <= found.count(RARE.encode()) <= 20


@pytest.mark.parametrize(("kind", "shape"), [("lines-to-sort", {"rows": 1_000}), ("words", {"bytes": 50_000})])
def test_the_same_file_each_time(kind, shape, tmp_path):
    assert kind in FILES
    first, second = (next(prepared(kind, shape, tmp_path / name).iterdir()).read_bytes() for name in ("a", "b"))
    assert first == second
