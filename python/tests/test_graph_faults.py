"""
Kinds of graphs and of columns that went wrong once: ids of 64 bits, of Arrow's types, vertices without edges, hubs in float32, ways that
are longer than float64 has numbers for, and settings that must not enter.
"""

import heapq
import math
import subprocess
import sys
from fractions import Fraction

import networkx as nx
import numpy as np
import pytest
from test_promise_algorithms import in_a_process

import brambling as br

# ---- ids of 64 bits: integers of Python, of NumPy, and of the column's type are one


EDGES = [0, 1, 2**31, 2**32 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**60 + 2, 2**63 - 1]
RANGES = {
    np.uint64: [*EDGES, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1],
    np.int64: [*EDGES, -1, -(2**53) - 1, -(2**53), -(2**63), -(2**63) + 1],
    np.uint32: EDGES[:4],
    np.int8: [0, 1, -1, 127, -128],
}


@pytest.mark.parametrize("kind", RANGES)
def test_every_id_is_found_as_an_integer_of_any_type(kind):
    ids = sorted(RANGES[kind])
    src, dst = np.array(ids[:-1], kind), np.array(ids[1:], kind)
    for at, value in enumerate(ids):
        expected = [hop - at if hop >= at else br.graph.UNREACHED for hop in range(len(ids))]
        of_types = [it for it in (np.int8, np.int64, np.uint32, np.uint64) if np.iinfo(it).min <= value <= np.iinfo(it).max]
        for source in [value, *(it(value) for it in of_types)]:
            assert br.graph.bfs(src, dst, source).distance.tolist() == expected, source
            ranks = br.graph.pagerank(src, dst, personalization={source: 1.0}, damping=0.0)
            assert ranks.rank.tolist() == [float(vertex == value) for vertex in ids], source
            assert br.graph.sssp(src, dst, source=source).distance[at] == 0
    strangers = {value + off for value in ids for off in (-1, 1)} - set(ids) | {2**64, -(2**70), 10**400}
    for value in strangers:
        with pytest.raises(br.BuildError, match=f"source {value} is no vertex; give one of the ids in src and dst"):
            br.graph.bfs(src, dst, value)
    for value in ["1", 1.0, True, None, b"1", np.float64(1), np.bool_(True), np.timedelta64(1, "s")]:
        with pytest.raises(br.BuildError, match="is no vertex"):
            br.graph.bfs(src, dst, value)


def test_ids_in_objects_and_frames_of_64_bits():
    pd = pytest.importorskip("pandas")
    ids = [2**60 + 2, 2**60 + 3, 2**63 + 5]
    for column in [pd.Series(ids), pd.Series(ids, dtype=object), pd.Series(ids, dtype="UInt64"), np.array(ids, dtype=object)]:
        found = br.graph.bfs(column, column, ids[1])
        assert found.vertex.tolist() == ids and found.distance.tolist()[1] == 0


# ---- rows and causes in columns of objects


@pytest.mark.parametrize("rows", [1, 3, 5_000])
@pytest.mark.parametrize("library", ["numpy", "pandas"])
def test_the_row_and_the_cause_of_what_is_no_id(library, rows):
    pd = pytest.importorskip("pandas")

    def column(values):
        held = np.empty(len(values), dtype=object)
        held[:] = values
        # The index is no row.
        return held if library == "numpy" else pd.Series(held, index=range(9, 9 + len(values)), dtype=object)

    among = r"at row %d \(counted from 0\) among other ids" % rows
    for stranger, name in [(None, "None"), (float("nan"), "NaN"), (pd.NA, "<NA>"), (pd.NaT, "NaT"), ("1", "'1'"), (1.0, "1.0"), (True, "True")]:
        values = [*range(rows), stranger, 7, None]
        with pytest.raises(br.BuildError, match=f"dst has {name} {among}"):
            br.graph.connected_components([1] * len(values), column(values))
    for stranger, name in [(None, "None"), (float("nan"), "NaN"), (1, "1"), (b"a", "b'a'")]:
        values = [*(f"v{at}" for at in range(rows)), stranger, "z", None]
        with pytest.raises(br.BuildError, match=f"src has {name} {among}"):
            br.graph.connected_components(column(values), ["a"] * len(values))
    for values, cause in [
        ([*range(rows), 2**64], "18446744073709551616 at row %d .*, which 64 bits do not hold" % rows),
        ([*range(rows), -(2**63) - 1], "-9223372036854775809 at row %d .*, which 64 bits do not hold" % rows),
        ([*range(-1, rows - 1), 2**63], r"9223372036854775808 at row %d .*, beyond 2\*\*63 - 1, among negative ids, such as -1" % rows),
    ]:
        with pytest.raises(br.BuildError, match=f"src has {cause}"):
            br.graph.connected_components(column(values), [1] * len(values))


# ---- every type of Arrow, in every container

LONG = "a text that is longer than twelve bytes"
TEXTS = ["a", LONG, "b", "", "é" + LONG, "a", "c" * 12, "d" * 13]
TYPES = [
    *("string", "large_string", "string_view", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("dictionary of string", "dictionary of string_view", "dictionary of int64"),
]


def typed(name):
    """An array of this type, and its values."""
    pa = pytest.importorskip("pyarrow")
    if name.startswith("dictionary of "):
        entries, values = typed(name.removeprefix("dictionary of "))
        return pa.DictionaryArray.from_arrays(pa.array(range(len(values)), pa.int16()), entries), values
    values = [0, 1, 2, 100, 3, 5, 1, 7] if name.startswith("u") else [0, -1, 2, 100, -3, 5, -1, 7]
    values = TEXTS if "string" in name else values
    return pa.array(values, getattr(pa, name)()), values


def containers(array):
    """What pyarrow, polars and pandas hold a column in, with the same rows each."""
    pa, pl, pd = (pytest.importorskip(name) for name in ("pyarrow", "polars", "pandas"))
    chunked = pa.chunked_array([array[:3], array[3:3], array[3:]])
    yield "array", array
    yield "slice", pa.concat_arrays([array, array])[len(array) :]
    yield "chunks", chunked
    yield "one chunk", pa.chunked_array([array])
    yield "column of a batch", pa.record_batch({"x": array}).column("x")
    yield "column of a table", pa.table({"x": chunked})["x"]
    yield "field of a struct", pa.StructArray.from_arrays([array], ["x"]).field("x")
    yield "frame of pandas", pd.Series(pd.arrays.ArrowExtensionArray(chunked), index=range(5, 5 + len(array)))
    if not isinstance(array, pa.DictionaryArray):
        yield "polars", pl.Series(array.to_pylist(), dtype=pl.from_arrow(array).dtype)
        yield "slice of polars", pl.Series([*array.to_pylist(), *array.to_pylist()], dtype=pl.from_arrow(array).dtype)[len(array) :]


@pytest.mark.parametrize("kind", TYPES)
def test_ids_and_labels_of_every_type_of_arrow(kind):
    array, values = typed(kind)
    X = np.arange(float(len(values))).reshape(-1, 1)
    others = [*values[1:], values[0]]
    expected = br.graph.connected_components(values, others)
    for name, column in containers(array):
        found = br.graph.connected_components(column, others, vertices=column)
        assert found.vertex.tolist() == expected.vertex.tolist(), name
        assert found.component.tolist() == expected.component.tolist(), name
        model = br.ml.LogisticRegression(tol=1e9).fit(X, column)
        assert model.classes_.tolist() == sorted(set(values)), name
        assert model.score(X, column) == np.mean(model.predict(X) == np.array(values)), name


@pytest.mark.parametrize("kind", TYPES)
def test_slices_and_nulls_of_every_type_of_arrow(kind):
    pa = pytest.importorskip("pyarrow")
    array, values = typed(kind)
    for first, end in [(0, 0), (2, 2), (0, 1), (1, 8), (3, 7)]:
        for column in (array[first:end], pa.chunked_array([array[first:end]])):
            found = br.graph.connected_components(column, column, vertices=values[:1])
            assert found.vertex.tolist() == sorted({*values[first:end], values[0]}), (first, end)
    with_null = pa.concat_arrays([array[:5], pa.nulls(1, array.type), array[5:]])
    for column in (with_null, pa.chunked_array([with_null[:2], with_null[2:]]), pa.record_batch({"x": with_null}).column(0)):
        with pytest.raises(br.BuildError, match=r"src has a null at row 5 \(counted from 0\)"):
            br.graph.pagerank(column, list(range(9)))
        with pytest.raises(br.BuildError, match=r"y has a null at row 5 \(counted from 0\)"):
            br.ml.LogisticRegression().fit(np.zeros((9, 1)), column)


def strangers():
    """Arrays of types that ids cannot have."""
    pa = pytest.importorskip("pyarrow")
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)):
        yield pa.array([b"a", b"b"], kind)
    for kind in (pa.date32(), pa.time32("s")):
        yield pa.array([1, 2], pa.int32()).cast(kind)
    for kind in (pa.timestamp("us", "UTC"), pa.time64("us"), pa.duration("s")):
        yield pa.array([1, 2], pa.int64()).cast(kind)
    yield from (pa.array([1, 2], kind) for kind in (pa.float32(), pa.float64(), pa.decimal128(5, 2)))
    yield from (pa.array([True, False]), pa.nulls(2), pa.array([[1], [2]]), pa.array([{"a": 1}, {"a": 2}]))
    yield pa.RunEndEncodedArray.from_arrays([1, 2], ["a", "b"])
    yield pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([b"a", b"b"], pa.binary_view()))


def test_what_is_no_id_of_arrow_is_refused_and_ends_nothing():
    pa = pytest.importorskip("pyarrow")
    for array in strangers():
        for column in (array, pa.chunked_array([array])):
            with pytest.raises(br.BuildError, match="src (has|holds|is|cannot)"):
                br.graph.connected_components(column, [1, 2])


@pytest.mark.parametrize("kind", ["string_view", "binary_view"])
def test_an_array_of_views_ends_no_process(kind):
    """In a process of its own, which a crash would end."""
    pytest.importorskip("pyarrow")
    script = (
        "import pyarrow as pa, brambling as br\n"
        f"views = pa.array(['a', 'b'], pa.{kind}())\n"
        "for given in (views, pa.StructArray.from_arrays([views], ['x']), pa.record_batch({'x': views})):\n"
        "    for use in (lambda: br.graph.connected_components(given, ['b', 'c']), lambda: br.Program('p').load(given),\n"
        "                lambda: br.ml.KMeans().fit(given), lambda: br.ml.LogisticRegression(tol=1e9).fit([[0.0], [1.0]], given)):\n"
        "        try: use()\n"
        "        except br.BuildError: pass\n"
        "print('alive')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


# ---- vertices without an edge


def graphs_with_strays(seed):
    """Edges, and vertices of which some have none, as integers or texts."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(2, 60))
    edges = int(rng.integers(0, 3 * size)) * int(rng.integers(0, 4) > 0)
    names = rng.permutation(5 * size)[:size] * 7 - 11
    pairs = np.unique(rng.integers(0, max(1, size // 2), (edges, 2)), axis=0)
    pairs = names[rng.permutation(pairs)]
    # Strays, some vertices with edges, some of them twice.
    listed = rng.permutation(np.concatenate([names[size // 2 :], rng.choice(names, size // 3)]))
    weight = rng.integers(1, 12, len(pairs)) / 4
    if seed % 3 == 1:
        return [f"v{it:+05d}" for it in pairs[:, 0]], [f"v{it:+05d}" for it in pairs[:, 1]], weight, [f"v{it:+05d}" for it in listed]
    if seed % 3 == 2:
        return pairs[:, 0].tolist(), pairs[:, 1].tolist(), weight.tolist(), listed.tolist()
    return pairs[:, 0], pairs[:, 1], weight, listed


def by_vertex(table, name):
    assert len(set(table.vertex.tolist())) == len(table)
    assert table.vertex.tolist() == sorted(table.vertex.tolist())
    return dict(zip(table.vertex.tolist(), table[name].tolist(), strict=True))


def near(ours, theirs, tolerance=1e-9):
    assert ours.keys() == theirs.keys()
    assert max(abs(ours[vertex] - theirs[vertex]) for vertex in theirs) < tolerance


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_listed_vertices_are_those_of_networkx(seed, directed):
    src, dst, weight, vertices = graphs_with_strays(seed)
    as_list = lambda column: column.tolist() if isinstance(column, np.ndarray) else list(column)
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(as_list(vertices))
    graph.add_weighted_edges_from(zip(as_list(src), as_list(dst), as_list(np.asarray(weight)), strict=True))
    both = nx.MultiDiGraph(graph)
    both.add_weighted_edges_from((b, a, w) for a, b, w in graph.edges(data="weight") if a != b)
    led = graph if directed else both
    how = {"vertices": vertices, "directed": directed}
    stray = as_list(vertices)[0]

    for personal in (None, {stray: 3.0, as_list(vertices)[-1]: 1.0}):
        theirs = nx.pagerank(led, tol=1e-14, max_iter=1_000, personalization=personal)
        ours = br.graph.pagerank(src, dst, weight, tol=1e-14, iterations=1_000, personalization=personal, **how)
        near(by_vertex(ours, "rank"), theirs)
        assert abs(ours.rank.sum() - 1) < 1e-12
    for source in (stray, sorted(graph)[0]):
        hops = nx.single_source_shortest_path_length(led, source)
        expected = {vertex: hops.get(vertex, br.graph.UNREACHED) for vertex in graph}
        assert by_vertex(br.graph.bfs(src, dst, source, **how), "distance") == expected
        lengths = nx.single_source_dijkstra_path_length(led, source)
        expected = {vertex: lengths.get(vertex, math.inf) for vertex in graph}
        assert by_vertex(br.graph.sssp(src, dst, weight, source=source, **how), "distance") == expected
    components = {v: min(c) for c in nx.weakly_connected_components(graph) for v in c}
    assert by_vertex(br.graph.connected_components(src, dst, vertices=vertices), "component") == components
    strays = {vertex for vertex in graph if not graph.degree(vertex)}
    labels = by_vertex(br.graph.label_propagation(src, dst, iterations=4, vertices=vertices), "label")
    assert labels.keys() == set(graph) and all(labels[vertex] == vertex for vertex in strays)
    clustering = by_vertex(br.graph.local_clustering(src, dst, directed=False, vertices=vertices), "coefficient")
    simple = nx.Graph(graph)
    simple.remove_edges_from(list(nx.selfloop_edges(simple)))
    near(clustering, nx.clustering(simple), 1e-12)


def test_a_graph_may_have_no_edges():
    for src in ([], np.array([], np.int32), np.array([])):
        ranks = br.graph.pagerank(src, src, vertices=["b", "a", "b"])
        assert ranks.vertex.tolist() == ["a", "b"] and ranks.rank.tolist() == [0.5, 0.5]
        assert br.graph.connected_components(src, src, vertices=(5, 3)).component.tolist() == [3, 5]
    with pytest.raises(br.BuildError, match="src and dst are empty; give at least one edge, or vertices="):
        br.graph.pagerank([], [], vertices=[])


@pytest.mark.parametrize(
    ("vertices", "says"),
    [
        (["a"], "src has integers and vertices has strings; give the same kind of ids in all"),
        ([1, None], r"vertices has None at row 1 \(counted from 0\) among other ids; .*, and drop those that are missing first"),
        ({1, 2}, "vertices is a set, not a column of ids"),
        (3, "vertices is a int, not a column of ids"),
        ([[1, 2]], "vertices has 2 dimensions"),
        ([-1, 2**63], "vertices has 9223372036854775808 at row 1"),
        (np.array([0.5]), "vertices holds float64"),
    ],
    ids=repr,
)
def test_vertices_that_are_none(vertices, says):
    with pytest.raises(br.BuildError, match=says):
        br.graph.bfs([1], [2], 1, vertices=vertices)


# ---- float32


def ranks_in_doubles(sources, targets, weight, turns, damping=0.85):
    """Power iteration by NumPy, which adds up in 80 bits."""
    count = max(sources.max(), targets.max()) + 1
    outs = np.bincount(sources, weight, count)
    rank = np.full(count, 1.0 / count)
    order = np.argsort(targets, kind="stable")
    sources, targets, weight = sources[order], targets[order], weight[order]
    starts = np.flatnonzero(np.r_[True, targets[1:] != targets[:-1]])
    for _ in range(turns):
        share = np.divide(rank, outs, out=np.zeros(count), where=outs > 0)[sources] * weight
        along = np.zeros(count)
        along[targets[starts]] = np.add.reduceat(share.astype(np.longdouble), starts)
        rank = damping * (along + rank[outs == 0].sum() / count) + (1 - damping) / count
    return rank


def hubs(name):
    """Edges into few vertices, and their weights: all equal, skewed, and with weights that differ by 10^12."""
    rng = np.random.default_rng(3)
    leaves = np.arange(1, 400_001)
    if name == "a star":
        src, dst = leaves, np.zeros_like(leaves)
    elif name == "two hubs":
        src = np.r_[leaves[:100_000], leaves[:100_000], 0]
        dst = np.r_[np.zeros(100_000, int), np.full(100_000, 100_001), 7]
    else:
        src, dst = rng.integers(0, 50_000, 500_000), rng.zipf(1.3, 500_000) % 50_000
    return src, dst, 10.0 ** rng.uniform(-6, 6, len(src)) if name == "weighted" else np.ones(len(src))


@pytest.mark.parametrize("name", ["a star", "two hubs", "skewed", "weighted"])
def test_ranks_in_float32_are_right_to_a_millionth(name):
    src, dst, weight = hubs(name)
    expected = ranks_in_doubles(src, dst, weight, 40)
    for dtype, tolerance in (("float32", 1e-6), ("float64", 1e-11)):
        given = weight if name == "weighted" else None
        ranks = br.graph.pagerank(src, dst, given, tol=0, iterations=40, dtype=dtype, vertices=np.arange(len(expected))).rank
        assert ranks.dtype == np.float64
        assert np.max(np.abs(ranks - expected) / expected) < tolerance, (name, dtype)
        assert abs(math.fsum(ranks) - 1) < tolerance, (name, dtype)


def test_weights_beyond_float32_are_refused_and_do_not_vanish():
    for weight in (1e35, 1e-42):
        with pytest.raises(br.BuildError, match="scale the weights first"):
            br.graph.pagerank([0, 1], [1, 0], [weight, weight], dtype="float32")
        assert br.graph.pagerank([0, 1], [1, 0], [weight, weight]).rank.tolist() == pytest.approx([0.5, 0.5])
    for weight in (1e28, 1e-37):
        assert br.graph.pagerank([0, 1], [1, 0], [weight, weight], dtype="float32").rank.tolist() == pytest.approx([0.5, 0.5], abs=1e-6)


# ---- ways that are longer than float64 has numbers for

UNIT = 2.0**1020
MOST = Fraction(np.finfo(np.float64).max)


def lengths(edges, source):
    """Dijkstra's, in whole numbers of units."""
    found, queue = {}, [(0, source)]
    while queue:
        length, at = heapq.heappop(queue)
        if at not in found:
            found[at] = length
            for a, b, weight in edges:
                if a == at:
                    heapq.heappush(queue, (length + weight, b))
    return found


@pytest.mark.parametrize("directed", [True, False])
def test_a_sum_that_overflows_is_told_from_no_way(directed):
    rng = np.random.default_rng(11)
    refused = kept = 0
    for case in range(150):
        size = int(rng.integers(2, 12))
        count = int(rng.integers(1, 2 * size))
        ends = rng.integers(0, size, (count, 2))
        units = np.where(rng.random(count) < 0.2, 0, rng.integers(3, 16, count))
        edges = [(a, b, w) for (a, b), w in zip(ends.tolist(), units.tolist(), strict=True)]
        both = edges if directed else edges + [(b, a, w) for a, b, w in edges]
        exact = lengths(both, 0)
        vertices, how = list(range(size)), {"source": 0, "directed": directed}
        # Sums of units are exact, and the first that is beyond is so by a whole unit.
        beyond = {vertex for vertex, length in exact.items() if length * Fraction(UNIT) > MOST}
        try:
            found = br.graph.sssp(ends[:, 0], ends[:, 1], units * UNIT, vertices=vertices, **how).distance.tolist()
        except br.BuildError as error:
            refused += 1
            assert beyond, (case, error)
            edge = int(str(error).split()[1])
            a, b, weight = edges[edge]
            assert "beyond float64" in str(error) and "scale the weights first" in str(error)
            assert f"has weight {weight * UNIT!r}".replace("e+", "e") in str(error), (case, error)
            ways = [(a, b)] if directed else [(a, b), (b, a)]
            assert any(x not in beyond and x in exact and y in beyond for x, y in ways), (case, error)
        else:
            kept += 1
            assert not beyond, case
            assert found == [exact[v] * UNIT if v in exact else math.inf for v in vertices], case
    assert refused > 20 and kept > 20


def test_integers_as_weights_overflow_nothing():
    weights = [2**62, 2**62, 2**62, 2**62]
    for column in (weights, np.array(weights), np.array(weights, np.uint64), [2**900] * 4):
        found = br.graph.sssp([0, 1, 2, 3], [1, 2, 3, 4], column, source=0).distance.tolist()
        assert found == [float(at * int(column[0])) for at in range(5)]
    with pytest.raises(br.BuildError, match=r"edge 1 \(counted from 0\) has weight 8.98"):
        br.graph.sssp([0, 1], [1, 2], [2**1023, 2**1023 + 2**1000], source=0)


# ---- settings that never change a result


@pytest.fixture(scope="module")
def digests():
    return in_a_process("graphs")


@pytest.mark.parametrize("partitions", ["1", "4", "9", "16", "64"])
def test_the_setting_partitions_does_not_enter(partitions, digests):
    assert in_a_process("graphs", PARTITIONS=partitions, THREADS="3") == digests


def test_the_page_of_settings_and_the_ranks_agree():
    """Nor in a file; a value that cannot be used is still refused."""
    script = (
        "import os, tempfile, hashlib, numpy as np\n"
        "folder = tempfile.mkdtemp(); os.chdir(folder)\n"
        "open('brambling.toml', 'w').write({text!r})\n"
        "import brambling as br\n"
        "rng = np.random.default_rng(0); s = rng.integers(0, 20000, 150000); d = rng.zipf(1.4, 150000) % 20000\n"
        "print(hashlib.sha256(br.graph.pagerank(s, d).rank.tobytes()).hexdigest())\n"
    )

    def run(text):
        return subprocess.run([sys.executable, "-c", script.format(text=text)], capture_output=True, text=True, check=False)

    first, *others = [run(text) for text in ("", "partitions = 9\n", "partitions = 64\n")]
    assert first.returncode == 0 and all(other.stdout == first.stdout for other in others), first.stderr
    assert "partitions" in run("partitions = 0\n").stderr
