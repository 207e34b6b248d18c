"""
Algorithms on graphs that are given as two columns of ids: where each edge begins, and where it ends.

Ids are integers or strings, in NumPy arrays, lists, or columns of pyarrow, polars and pandas (whatever has
`__arrow_c_stream__` or `__arrow_c_array__`). The vertices are the ids that occur, and those that `vertices` lists, a
column too: so a vertex without an edge has its row. Each result has the same bits on any number of threads and
partitions, and on any CPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from brambling import _native
from brambling._edges import Edges, number, whole
from brambling._errors import BuildError, ConvergenceWarning
from brambling._report import Report
from brambling._table import Table

UNREACHED = np.iinfo(np.int64).max
"""The distance of a vertex that a breadth-first search does not reach, as LDBC Graphalytics has it."""


class Ranks(Table):
    """
    What `pagerank` gives: a table of `vertex` and `rank` that tells how it was found.

    Attributes
    ----------
    iterations : int
        How many iterations were done: each is one pass over the edges.
    seconds_per_iteration : float
        Mean seconds of an iteration, once the edges were in their partitions.
    tally : dict
        What the job did: `tasks`, `wall_s`, `busy_s` (over all threads), `threads`, `peak_bytes`, `sent_bytes` (to workers).

    Examples
    --------
    >>> import brambling as br
    >>> ranks = br.graph.pagerank(["ATL", "JFK", "LAX"], ["JFK", "ATL", "ATL"], tol=0, iterations=20)
    >>> ranks.iterations
    20
    """

    def __init__(self, columns: dict[str, np.ndarray], found: dict[str, Any]) -> None:
        super().__init__(columns)
        self.iterations: int = found["iterations"]
        self.seconds_per_iteration: float = found["seconds_per_iteration"]
        self.tally: dict[str, float] = found["tally"]
        self._ledger: _native.Ledger = found["ledger"]

    @property
    def report(self) -> Report:
        """How near the search came to what the machine can do."""
        return Report(self._ledger)


def pagerank(
    src: Any,
    dst: Any,
    weight: npt.ArrayLike | None = None,
    damping: float = 0.85,
    tol: float = 1e-6,
    iterations: int = 100,
    personalization: Mapping[Any, float] | None = None,
    *,
    directed: bool = True,
    dtype: str = "float64",
    vertices: Any = None,
) -> Ranks:
    """
    PageRank: how often a walker comes by who follows edges at random, and now and then starts anew.

    As networkx has it: parallel edges add up, self-loops count, and the rank of vertices without out-edges goes
    where rank starts anew. Ranks add up to 1.

    Parameters
    ----------
    src, dst : columns of equal length
        Where each edge begins, and where it ends: integers or strings.
    weight : array_like of float, optional
        An edge's share of the rank that leaves its vertex, relative to the vertex's other edges; 1 for all unless
        given. Finite and not negative.
    damping : float, default 0.85
        The share of rank that follows the edges, 0 to 1; the rest starts anew.
    tol : float, default 1e-6
        Stop when the ranks' changes add up to less than this times the number of vertices; 0: never.
    iterations : int, default 100
        The most iterations. A search that ends here without having come to `tol` warns.
    personalization : mapping of id to float, optional
        Where rank starts anew: each vertex's share, relative to the others; 0 for vertices that are not there. The
        same for all unless given.
    directed : bool, default True
        False: each edge leads both ways.
    dtype : {"float64", "float32"}
        The width of what travels along edges: with "float32" half as much is read, and ranks are right to 1e-6 of themselves.
    vertices : column, optional
        Ids that are vertices even where no edge begins or ends at them.

    Returns
    -------
    Ranks
        A table of `vertex` and `rank`, by ascending id, with `iterations` and `seconds_per_iteration`.

    Examples
    --------
    >>> import brambling as br
    >>> br.graph.pagerank(["ATL", "JFK", "LAX"], ["JFK", "ATL", "ATL"])
    vertex  rank
    'ATL'   0.486486
    'JFK'   0.463514
    'LAX'   0.05
    3 rows

    References
    ----------
    Page, Brin, Motwani, Winograd: The PageRank citation ranking (1999).
    """
    edges = Edges(src, dst, weight, directed, vertices)
    turns = whole("iterations", iterations, 1)
    if dtype not in ("float64", "float32"):
        raise BuildError(f"dtype = {dtype!r} cannot be used; give 'float64' or 'float32'")
    found = _native.pagerank(
        *edges.arrays,
        damping=number("damping", damping),
        tol=number("tol", tol),
        max_iter=turns,
        personalization=edges.shares(personalization),
        single=dtype == "float32",
    )
    if not found["converged"] and tol > 0:
        warnings.warn(
            f"the ranks still changed by {found['change']:.2g} in all after iterations = {iterations}, and tol = "
            f"{tol:g} times {len(edges.ids)} vertices is less; raise iterations or tol",
            ConvergenceWarning,
            stacklevel=2,
        )
    return Ranks({"vertex": edges.ids, "rank": found["ranks"]}, found)


def connected_components(src: Any, dst: Any, *, vertices: Any = None) -> Table:
    """
    Weakly connected components (LDBC Graphalytics' WCC): `vertex`, and as `component` the least id among the
    vertices that it is connected to, whichever way edges point.

    Examples
    --------
    >>> import brambling as br
    >>> br.graph.connected_components([4, 1], [3, 7])
    vertex  component
    1       1
    3       3
    4       3
    7       1
    4 rows
    """
    edges = Edges(src, dst, vertices=vertices)
    found = _native.connected_components(*edges.arrays)
    return Table({"vertex": edges.ids, "component": edges.ids[found]})


def bfs(src: Any, dst: Any, source: Any, *, directed: bool = True, vertices: Any = None) -> Table:
    """
    Breadth-first search (LDBC Graphalytics' BFS): `vertex`, and as `distance` the fewest edges on a way from the
    vertex `source`; `br.graph.UNREACHED` where no way leads.

    Examples
    --------
    >>> import brambling as br
    >>> br.graph.bfs([1, 2, 4], [2, 3, 3], source=1)["distance"]
    array([                  0,                   1,                   2,
           9223372036854775807])
    """
    edges = Edges(src, dst, None, directed, vertices)
    found = _native.bfs(*edges.arrays, start=edges.vertex("source", source))
    distance = found.astype(np.int64)
    distance[found == np.iinfo(np.uint32).max] = UNREACHED
    return Table({"vertex": edges.ids, "distance": distance})


def sssp(
    src: Any,
    dst: Any,
    weight: npt.ArrayLike | None = None,
    *,
    source: Any,
    directed: bool = True,
    vertices: Any = None,
) -> Table:
    """
    Shortest paths from one vertex (LDBC Graphalytics' SSSP): `vertex`, and as `distance` the least sum of weights
    on a way from the vertex `source`; infinite where no way leads.

    Weights are finite and not negative; 1 for all unless given. A way whose weights add up beyond float64 is an error where no
    shorter one leads to a vertex.

    Examples
    --------
    >>> import brambling as br
    >>> br.graph.sssp([1, 2, 1], [2, 3, 3], [1.0, 0.5, 3.0], source=1)["distance"]
    array([0. , 1. , 1.5])
    """
    edges = Edges(src, dst, weight, directed, vertices)
    found = _native.sssp(*edges.arrays, given=edges.given, start=edges.vertex("source", source))
    return Table({"vertex": edges.ids, "distance": found})


def label_propagation(src: Any, dst: Any, *, iterations: int = 10, vertices: Any = None) -> Table:
    """
    Communities by label propagation (LDBC Graphalytics' CDLP): `vertex` and `label`, an id.

    Labels are the vertices at first. In each iteration a vertex takes the label that most of its neighbours have,
    the least of equally frequent ones. Neighbours at both ends of in- and out-edges count, once an edge.

    Examples
    --------
    >>> import brambling as br
    >>> br.graph.label_propagation([1, 2, 3, 4], [2, 3, 1, 5], iterations=3)["label"]
    array([1, 1, 1, 5, 4])
    """
    edges = Edges(src, dst, vertices=vertices)
    found = _native.label_propagation(*edges.arrays, turns=whole("iterations", iterations, 0))
    return Table({"vertex": edges.ids, "label": edges.ids[found]})


def local_clustering(src: Any, dst: Any, *, directed: bool = True, vertices: Any = None) -> Table:
    """
    Local clustering coefficients (LDBC Graphalytics' LCC): `vertex`, and as `coefficient` the directed edges
    between its neighbours ÷ those that there could be; 0 with fewer than two neighbours.

    Neighbours are those at the other ends of in- and out-edges, each once; self-loops and parallel edges do not
    count.

    Examples
    --------
    >>> import brambling as br
    >>> br.graph.local_clustering([0, 0, 1], [1, 2, 2], directed=False)["coefficient"]
    array([1., 1., 1.])
    """
    edges = Edges(src, dst, None, directed, vertices)
    return Table({"vertex": edges.ids, "coefficient": _native.local_clustering(*edges.arrays)})
