"""NetworKit."""

from __future__ import annotations

import networkit as nk
import numpy as np

from peers.systems.formulas import DAMPING
from peers.systems.peer import Arrays, Case, Peer, refuse_other_count


class PageRank(Peer):
    """`nk.centrality.PageRank`, with a tolerance that nothing reaches and a fixed number of iterations."""

    package = "networkit"

    def __init__(self, case: Case) -> None:
        nk.setNumberOfThreads(case.threads)
        # Of other types it makes what it does not survive (11.2.2: a segmentation fault).
        src, dst = (case.array(name).astype(np.uint64) for name in ("src", "dst"))
        vertices = int(max(src.max(), dst.max())) + 1
        # Each edge is there in both directions, so the undirected graph is the same with half the memory.
        once = src < dst
        self._graph = nk.GraphFromCoo((src[once], dst[once]), n=vertices, directed=False)
        if self._graph.numberOfEdges() != once.sum():
            raise RuntimeError(f"it has {self._graph.numberOfEdges()} of {once.sum()} edges")

    def iterate(self, iterations: int) -> Arrays:
        ranked = nk.centrality.PageRank(self._graph, damp=DAMPING, tol=0.0)
        ranked.maxIterations = iterations
        ranked.run()
        refuse_other_count(ranked.numberOfIterations(), iterations)
        return {"ranks": np.array(ranked.scores())}
