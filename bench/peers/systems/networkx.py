"""networkx, whose graphs are dictionaries of Python."""

from __future__ import annotations

import contextlib

import networkx as nx
import numpy as np

from peers.systems.formulas import DAMPING
from peers.systems.peer import Arrays, Case, Peer


class PageRank(Peer):
    """`nx.pagerank`, which makes a matrix of SciPy's each time that it is called; that falls out of the figure."""

    package = "networkx"
    threads = 1

    def __init__(self, case: Case) -> None:
        src, dst = case.array("src").tolist(), case.array("dst").tolist()
        self._graph = nx.DiGraph()
        self._graph.add_nodes_from(range(max(src) + 1))
        self._graph.add_edges_from(zip(src, dst, strict=True))

    def iterate(self, iterations: int) -> Arrays:
        # It has no tolerance of "never"; what it raises when it has not converged comes after all iterations.
        with contextlib.suppress(nx.PowerIterationFailedConvergence):
            nx.pagerank(self._graph, alpha=DAMPING, max_iter=iterations, tol=0)
        return {}

    def solve(self, iterations: int) -> Arrays:
        """One iteration at a time, since it keeps no ranks that have not converged."""
        ranks = None
        for _ in range(iterations):
            ranks = nx.pagerank(self._graph, alpha=DAMPING, nstart=ranks, tol=float("inf"))
        assert ranks is not None
        return {"ranks": np.array(list(ranks.values()))}
