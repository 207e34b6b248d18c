"""Graphs of every kind, ranked and searched as networkx does, or as plain loops do."""

import warnings
from collections import Counter

import networkx as nx
import numpy as np
import pytest

import brambling as br

KINDS = ["directed", "undirected", "disconnected", "self-looped", "weighted", "dangling", "one edge"]


def edges_of(kind):
    """Sources, targets, weights; ids have gaps and no order."""
    rng = np.random.default_rng(KINDS.index(kind))
    if kind == "one edge":
        return np.array([7]), np.array([3]), np.array([2.0])
    src, dst = rng.integers(0, 200, 900), rng.integers(0, 200, 900)
    if kind == "disconnected":
        dst = dst % 50 + src // 50 * 50
    if kind == "self-looped":
        dst[::4] = src[::4]
    if kind == "dangling":
        src, dst = src[src % 3 != 0], dst[src % 3 != 0]
    loops = src == dst
    if kind != "self-looped":
        src, dst = src[~loops], dst[~loops]
    # Each edge once: networkx's simple graphs keep the last of parallel ones.
    pairs = np.unique(np.stack([src, dst], axis=1), axis=0)
    if kind == "undirected":
        pairs = np.unique(np.sort(pairs, axis=1), axis=0)
    pairs = rng.permutation(pairs) * 17 - 1_000
    # Quarters: every order of additions gives the same sums.
    return pairs[:, 0], pairs[:, 1], rng.integers(0, 12, len(pairs)) / 4


def graph_of(kind):
    src, dst, weight = edges_of(kind)
    graph = nx.Graph() if kind == "undirected" else nx.DiGraph()
    graph.add_weighted_edges_from(zip(src.tolist(), dst.tolist(), weight.tolist(), strict=True))
    return graph


def column(table, name):
    return dict(zip(table.vertex.tolist(), table[name].tolist(), strict=True))


def near(ours, theirs):
    assert ours.keys() == theirs.keys()
    assert max(abs(ours[vertex] - theirs[vertex]) for vertex in theirs) < 1e-9


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("personal", [False, True])
def test_pagerank(kind, weighted, personal):
    src, dst, weight = edges_of(kind)
    graph = graph_of(kind)
    some = {vertex: 1.0 + vertex % 5 for vertex in sorted(graph)[:9]} if personal else None
    theirs = nx.pagerank(
        graph, 0.85, tol=1e-14, max_iter=1_000, weight="weight" if weighted else None, personalization=some
    )
    ours = br.graph.pagerank(
        src,
        dst,
        weight if weighted else None,
        tol=1e-14,
        iterations=1_000,
        personalization=some,
        directed=kind != "undirected",
    )
    near(column(ours, "rank"), theirs)


def test_pagerank_stops_where_networkx_does():
    src, dst, _ = edges_of("directed")
    theirs = nx.pagerank(nx.DiGraph(zip(src.tolist(), dst.tolist(), strict=True)))
    near(column(br.graph.pagerank(src, dst), "rank"), theirs)
    with pytest.warns(br.ConvergenceWarning, match="raise iterations or tol"):
        br.graph.pagerank(src, dst, tol=1e-14, iterations=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        br.graph.pagerank(src, dst, tol=0, iterations=2)


def test_parallel_edges_add_up():
    graph = nx.MultiDiGraph([(0, 1), (0, 1), (0, 2), (1, 0), (2, 0)])
    src, dst = zip(*graph.edges(), strict=True)
    ours = br.graph.pagerank(src, dst, tol=1e-14, iterations=1_000)
    near(column(ours, "rank"), nx.pagerank(graph, tol=1e-14, max_iter=1_000))


@pytest.mark.parametrize("kind", KINDS)
def test_connected_components(kind):
    src, dst, _ = edges_of(kind)
    graph = graph_of(kind)
    components = nx.connected_components(graph.to_undirected())
    theirs = {vertex: min(component) for component in components for vertex in component}
    assert column(br.graph.connected_components(src, dst), "component") == theirs


@pytest.mark.parametrize("kind", KINDS)
def test_bfs(kind):
    src, dst, _ = edges_of(kind)
    graph = graph_of(kind)
    for source in [src[0].item(), dst[0].item()]:
        hops = nx.single_source_shortest_path_length(graph, source)
        theirs = {vertex: hops.get(vertex, br.graph.UNREACHED) for vertex in graph}
        ours = br.graph.bfs(src, dst, source, directed=kind != "undirected")
        assert column(ours, "distance") == theirs


@pytest.mark.parametrize("kind", KINDS)
def test_sssp(kind):
    src, dst, weight = edges_of(kind)
    graph = graph_of(kind)
    source = src[0].item()
    lengths = nx.single_source_dijkstra_path_length(graph, source)
    theirs = {vertex: lengths.get(vertex, np.inf) for vertex in graph}
    ours = br.graph.sssp(src, dst, weight, source=source, directed=kind != "undirected")
    assert column(ours, "distance") == theirs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("iterations", [0, 1, 8])
def test_label_propagation(kind, iterations):
    """networkx has no synchronous one with these ties: a plain loop."""
    src, dst, _ = edges_of(kind)
    theirs = {vertex: vertex for vertex in [*src.tolist(), *dst.tolist()]}
    for _ in range(iterations):
        counts = {vertex: Counter() for vertex in theirs}
        for a, b in zip(src.tolist(), dst.tolist(), strict=True):
            counts[b][theirs[a]] += 1
            counts[a][theirs[b]] += 1
        theirs = {vertex: min(count, key=lambda label: (-count[label], label)) for vertex, count in counts.items()}
    ours = br.graph.label_propagation(src, dst, iterations=iterations)
    assert column(ours, "label") == theirs


@pytest.mark.parametrize("kind", KINDS)
def test_local_clustering(kind):
    src, dst, _ = edges_of(kind)
    graph = graph_of(kind)
    ours = column(br.graph.local_clustering(src, dst, directed=kind != "undirected"), "coefficient")
    for vertex in graph:
        around = set(graph) & (set(nx.all_neighbors(graph, vertex)) - {vertex})
        between = sum(a != b and graph.has_edge(a, b) for a in around for b in around)
        possible = len(around) * (len(around) - 1)
        assert ours[vertex] == (between / possible if possible else 0.0)
    if kind == "undirected":
        assert ours == pytest.approx(nx.clustering(graph), abs=1e-15)


# ---- ids of every kind


def test_ids_of_any_width_and_sign_give_the_same_ranks():
    src, dst, _ = edges_of("directed")
    expected = br.graph.pagerank(src, dst)
    for kind in [np.int16, np.int32]:
        found = br.graph.pagerank(src.astype(kind), dst.astype(kind))
        assert found.vertex.dtype == kind
        assert (found.vertex == expected.vertex).all() and (found.rank == expected.rank).all()
    src, dst = src + 2_000, dst + 2_000
    huge = np.uint64(2**64 - 10_000)
    found = br.graph.pagerank(src.astype(np.uint64) + huge, dst.astype(np.uint64) + huge)
    assert (found.vertex - huge == expected.vertex.astype(np.int64) + 2_000).all()
    assert (found.rank == expected.rank).all()
    assert (br.graph.pagerank(src.tolist(), dst.tolist()).rank == expected.rank).all()


def texts(ids):
    """As strings that sort as the numbers do, some long."""
    return [f"{value:08d}" + "-and-more-than-twelve" * (value % 2) for value in (ids + 2_000).tolist()]


def test_strings_give_the_same_ranks():
    src, dst, _ = edges_of("directed")
    expected = br.graph.pagerank(src, dst)
    lists = texts(src), texts(dst)
    for columns in [lists, tuple(map(np.array, lists)), tuple(np.array(ids, dtype=object) for ids in lists)]:
        found = br.graph.pagerank(*columns)
        assert found.vertex.tolist() == texts(expected.vertex)
        assert (found.rank == expected.rank).all()


def test_columns_of_arrow_give_the_same_ranks():
    pa = pytest.importorskip("pyarrow")
    src, dst, weight = edges_of("weighted")
    expected = br.graph.pagerank(src, dst, weight)
    for make in [
        pa.array,
        lambda ids: pa.array(ids)[:],
        lambda ids: pa.concat_arrays([pa.array([0]), pa.array(ids)])[1:],
        lambda ids: pa.chunked_array([ids[:7], ids[7:7], ids[7:]]),
        lambda ids: pa.chunked_array([ids.astype(np.int32)]),
    ]:
        found = br.graph.pagerank(make(src), make(dst), pa.array(weight))
        assert (found.vertex == expected.vertex).all() and (found.rank == expected.rank).all()
    for kind in [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]:
        columns = [pa.chunked_array([pa.array(texts(ids)).cast(kind)]) for ids in (src, dst)]
        found = br.graph.pagerank(*columns, weight)
        assert found.vertex.tolist() == texts(expected.vertex)
        assert (found.rank == expected.rank).all()
    with pytest.raises(br.BuildError, match=r"src has a null at row 3 \(counted from 0\)"):
        br.graph.pagerank(pa.chunked_array([[1, 2], [3, None]]), [1, 2, 3, 4])
    with pytest.raises(br.BuildError, match="src holds bool, and ids are integers or strings"):
        br.graph.pagerank(pa.array([True, False]), [1, 2])


def test_columns_of_polars_give_the_same_ranks():
    pl = pytest.importorskip("polars")
    src, dst, _ = edges_of("directed")
    expected = br.graph.pagerank(src, dst)
    found = br.graph.pagerank(pl.Series(src), pl.Series(dst))
    assert (found.vertex == expected.vertex).all() and (found.rank == expected.rank).all()
    found = br.graph.pagerank(pl.Series(texts(src)), pl.Series(texts(dst)))
    assert found.vertex.tolist() == texts(expected.vertex)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: br.graph.pagerank([1, 2], [1]), "src has 2 ids and dst has 1 id; give one of each for every edge"),
        (lambda: br.graph.pagerank([], []), "src and dst are empty; give at least one edge"),
        (lambda: br.graph.pagerank([1.5], [2.0]), r"src holds float64.*astype\(np.int64\)"),
        (lambda: br.graph.pagerank(["a"], [1]), "src has strings and dst has integers"),
        (lambda: br.graph.pagerank(["a", None], ["b", "c"]), "src has None at row 1"),
        (lambda: br.graph.pagerank([[1, 2]], [[2, 3]]), "src has 2 dimensions"),
        (lambda: br.graph.pagerank([1], [2], [1.0, 2.0]), r"weight has shape \(2,\) for 1 edge"),
        (lambda: br.graph.pagerank([1], [2], [-1.0]), "edge 0 .* has weight -1"),
        (lambda: br.graph.pagerank([1], [2], damping=1.5), "damping = 1.5 cannot be used"),
        (lambda: br.graph.pagerank([1], [2], iterations=0), "iterations = 0 cannot be used"),
        (lambda: br.graph.pagerank([1], [2], tol="small"), "tol = 'small' cannot be used"),
        (lambda: br.graph.pagerank([1], [2], dtype="float16"), "dtype = 'float16' cannot be used"),
        (lambda: br.graph.pagerank([1], [2], personalization=[1.0]), "personalization is a list; give a mapping"),
        (lambda: br.graph.pagerank([1], [2], personalization={9: 1.0}), "personalization's key 9 is no vertex"),
        (lambda: br.graph.pagerank([1], [2], personalization={1: 0.0}), "adds up to 0"),
        (lambda: br.graph.bfs([1], [2], 3), "source 3 is no vertex; give one of the ids in src and dst"),
        (lambda: br.graph.sssp([1], [2], [1.0], source="1"), "source '1' is no vertex"),
        (lambda: br.graph.label_propagation([1], [2], iterations=-1), "iterations = -1 cannot be used"),
    ],
)
def test_mistakes_are_answered(call, says):
    with pytest.raises(br.BuildError, match=says):
        call()
