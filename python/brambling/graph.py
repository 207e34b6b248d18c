"""
Algorithms on graphs that are given as two columns of ids: where each edge begins, and where it ends.

Ids are integers or strings, in NumPy arrays, lists, or columns of pyarrow, polars and pandas (whatever has
`__arrow_c_stream__` or `__arrow_c_array__`). The vertices are the ids that occur. Each result has the same bits
on any number of threads, and on any CPU.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from brambling import _arrow, _native
from brambling._errors import BuildError, ConvergenceWarning, refuse_unreadable
from brambling._table import Table
from brambling._texts import count, shown

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
        What the job did: `tasks`, `wall_s`, `busy_s` (over all threads), `threads`, `peak_bytes`.

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
        The width of ranks while they are computed.

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
    edges = _Edges(src, dst, weight, directed)
    if not isinstance(iterations, int | np.integer) or isinstance(iterations, bool) or iterations < 1:
        raise BuildError(f"iterations = {shown(iterations)} cannot be used; give an integer of at least 1")
    if dtype not in ("float64", "float32"):
        raise BuildError(f"dtype = {dtype!r} cannot be used; give 'float64' or 'float32'")
    found = _native.pagerank(
        *edges.arrays,
        damping=_number("damping", damping),
        tol=_number("tol", tol),
        max_iter=int(iterations),
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


def connected_components(src: Any, dst: Any) -> Table:
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
    edges = _Edges(src, dst)
    found = _native.connected_components(*edges.arrays)
    return Table({"vertex": edges.ids, "component": edges.ids[found]})


def bfs(src: Any, dst: Any, source: Any, *, directed: bool = True) -> Table:
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
    edges = _Edges(src, dst, None, directed)
    found = _native.bfs(*edges.arrays, start=edges.vertex("source", source))
    distance = found.astype(np.int64)
    distance[found == np.iinfo(np.uint32).max] = UNREACHED
    return Table({"vertex": edges.ids, "distance": distance})


def sssp(src: Any, dst: Any, weight: npt.ArrayLike | None = None, *, source: Any, directed: bool = True) -> Table:
    """
    Shortest paths from one vertex (LDBC Graphalytics' SSSP): `vertex`, and as `distance` the least sum of weights
    on a way from the vertex `source`; infinite where no way leads.

    Weights are finite and not negative; 1 for all unless given.

    Examples
    --------
    >>> import brambling as br
    >>> br.graph.sssp([1, 2, 1], [2, 3, 3], [1.0, 0.5, 3.0], source=1)["distance"]
    array([0. , 1. , 1.5])
    """
    edges = _Edges(src, dst, weight, directed)
    found = _native.sssp(*edges.arrays, start=edges.vertex("source", source))
    return Table({"vertex": edges.ids, "distance": found})


def label_propagation(src: Any, dst: Any, *, iterations: int = 10) -> Table:
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
    edges = _Edges(src, dst)
    if not isinstance(iterations, int | np.integer) or isinstance(iterations, bool) or iterations < 0:
        raise BuildError(f"iterations = {shown(iterations)} cannot be used; give an integer of at least 0")
    found = _native.label_propagation(*edges.arrays, turns=int(iterations))
    return Table({"vertex": edges.ids, "label": edges.ids[found]})


def local_clustering(src: Any, dst: Any, *, directed: bool = True) -> Table:
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
    edges = _Edges(src, dst, None, directed)
    return Table({"vertex": edges.ids, "coefficient": _native.local_clustering(*edges.arrays)})


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise BuildError(f"{name} = {shown(value)} cannot be used; give a number")
    return float(value)


class _Edges:
    """Edges whose ends are places in `ids`, which ascend."""

    def __init__(self, src: Any, dst: Any, weight: Any = None, directed: bool = True) -> None:
        starts, ends = _ids("src", src), _ids("dst", dst)
        if len(starts) != len(ends):
            raise BuildError(
                f"src has {count(len(starts), 'id')} and dst has {count(len(ends), 'id')}; give one of each for every edge"
            )
        if not len(starts):
            raise BuildError("src and dst are empty; give at least one edge")
        self.ids, sources, targets = _relabelled(starts, ends)
        weights = None if weight is None else _weights(weight, len(starts))
        if not directed:
            # A self-loop leads both ways already.
            other = sources != targets
            if weights is not None:
                weights = np.concatenate([weights, weights[other]])
            sources, targets = (
                np.concatenate([sources, targets[other]]),
                np.concatenate([targets, sources[other]]),
            )
        self.arrays = len(self.ids), sources, targets, weights

    def vertex(self, name: str, value: Any) -> int:
        """The place of an id."""
        is_text = self.ids.dtype.kind in "UO"
        if isinstance(value, str | np.str_) if is_text else _is_integer(value):
            at = int(np.searchsorted(self.ids, value))
            if at < len(self.ids) and self.ids[at] == value:
                return at
        raise BuildError(f"{name} {shown(value)} is no vertex; give one of the ids in src and dst")

    def shares(self, personalization: Mapping[Any, float] | None) -> np.ndarray | None:
        if personalization is None:
            return None
        if not isinstance(personalization, Mapping):
            raise BuildError(
                f"personalization is a {type(personalization).__name__}; give a mapping from ids to shares, such as {{id: 1.0}}"
            )
        shares = np.zeros(len(self.ids))
        for vertex, share in personalization.items():
            shares[self.vertex("personalization's key", vertex)] = _number("personalization", share)
        return shares


def _is_integer(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _ids(name: str, given: Any) -> np.ndarray:
    """Ids as an array of integers or of text."""
    refuse_unreadable(given, name)
    ids = _arrow.column_or_array(given, name)
    if ids.ndim != 1:
        raise BuildError(f"{name} has {count(ids.ndim, 'dimension')} and shape {ids.shape}; give a column of ids")
    if ids.dtype.kind in "iuU" or not len(ids):
        return ids
    if ids.dtype.kind in "OT":
        kinds = {type(value) for value in ids.tolist()}
        if kinds == {str}:
            return ids.astype(object)
        if all(_is_integer(value) for value in ids.tolist()):
            return np.asarray(ids.tolist())
        row = next(row for row, value in enumerate(ids.tolist()) if not isinstance(value, str))
        raise BuildError(
            f"{name} has {shown(ids.tolist()[row])} at row {row} (counted from 0) among other ids; "
            "give integers only or strings only, and drop edges without an end first"
        )
    fix = "astype(np.int64) makes integers of it" if ids.dtype.kind in "fb" else "give integers or strings"
    raise BuildError(f"{name} holds {ids.dtype}, and ids are integers or strings; {fix}")


def _relabelled(starts: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The ids that occur, ascending, and the edges' ends as places among them."""
    is_text = [ids.dtype.kind in "UO" for ids in (starts, ends)]
    if is_text[0] != is_text[1]:
        kinds = ["strings" if text else "integers" for text in is_text]
        raise BuildError(f"src has {kinds[0]} and dst has {kinds[1]}; give the same kind of ids in both")
    if is_text[0]:
        ids, places = np.unique(np.concatenate([starts, ends]), return_inverse=True)
        places = places.astype(np.uint32)
        return ids, places[: len(starts)], places[len(starts) :]
    signed = starts.dtype.kind == "i" or ends.dtype.kind == "i"
    if signed and max(int(starts.max()), int(ends.max())) > np.iinfo(np.int64).max:
        raise BuildError("src and dst mix negative ids with ids beyond 2**63 - 1, which no integer type of NumPy has")
    kind = np.int64 if signed else np.uint64
    # Order-preserving: the sign's bit is turned.
    flip = np.uint64(1 << 63) if signed else np.uint64(0)
    keys = [ids.astype(kind).view(np.uint64) ^ flip for ids in (starts, ends)]
    ids, sources, targets = _native.relabel(*keys)
    ids = (ids ^ flip).view(kind)
    width = np.result_type(starts.dtype, ends.dtype)
    return ids.astype(width) if width.kind in "iu" else ids, sources, targets


def _weights(weight: Any, edges: int) -> np.ndarray:
    refuse_unreadable(weight, "weight")
    try:
        weights = _arrow.column_or_array(weight, "weight")
        if weights.dtype.kind not in "fiub":
            weights = weights.astype(np.float64)
    except BuildError:
        raise
    except (TypeError, ValueError) as error:
        raise BuildError(f"weight cannot be read as numbers ({error}); give one number for each edge") from error
    if weights.shape != (edges,):
        raise BuildError(
            f"weight has shape {weights.shape} for {count(edges, 'edge')}; give one weight for each edge, or none at all"
        )
    return np.require(weights, np.float64, ["C", "A"])
