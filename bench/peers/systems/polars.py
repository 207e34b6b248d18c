"""Polars."""

from __future__ import annotations

import numpy as np
import polars as pl

from peers.systems.peer import Arrays, Case, Peer


class GroupSum(Peer):
    """`group_by` and `sum`, for keys of any kind."""

    package = "polars"

    def __init__(self, case: Case) -> None:
        self._frame = pl.DataFrame({"key": case.array("key"), "value": case.array("value")})
        if pl.thread_pool_size() != case.threads:
            raise RuntimeError(f"it has {pl.thread_pool_size()} threads and was given {case.threads}")

    def iterate(self, iterations: int) -> Arrays:
        for _ in range(iterations):
            found = self._frame.group_by("key").agg(pl.col("value").sum())
        found = found.sort("key")
        return {"keys": found["key"].to_numpy().astype(np.int64), "sums": found["value"].to_numpy()}
