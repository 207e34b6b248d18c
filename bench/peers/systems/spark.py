"""PySpark: as its tutorial writes it, a Python object for each row, and with flat NumPy blocks in mapPartitions."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from peers.systems.formulas import DAMPING, STEP, inertia, k_means_sums, logistic_gradient, moved
from peers.systems.peer import Arrays, Case, Peer

# Rows of a flat block: an element of 10 MB, where a row has 20 numbers.
_BLOCK_ROWS = 65_536


class Spark(Peer):
    """A context of Spark's on this machine alone, with as many partitions as threads and what it reads kept in memory."""

    package = "pyspark"

    def __init__(self, case: Case) -> None:
        if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
            raise RuntimeError("Spark needs Java 17 or newer, and no `java` is found: install one, or set JAVA_HOME")
        # Each of its Python processes computes on one thread.
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = "1"
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ["PYSPARK_PYTHON"] = sys.executable
        from pyspark import SparkConf, SparkContext

        settings = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": f"{case.memory_mb}m",
            "spark.local.dir": str(case.scratch),
            "spark.sql.shuffle.partitions": str(case.threads),
            "spark.sql.warehouse.dir": str(case.scratch / "warehouse"),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        conf = SparkConf().setMaster(f"local[{case.threads}]").setAppName("peers").setAll(list(settings.items()))
        self._context = SparkContext(conf=conf)
        self._context.setLogLevel("ERROR")
        self._case = case

    def _kept(self, rows: Any) -> Any:
        """Rows of each partition, made by `rows(index)` and kept in memory."""
        parts = self._case.threads
        made = self._context.parallelize(range(parts), parts).flatMap(rows).cache()
        made.count()
        self._refuse_dropped()
        return made

    def _refuse_dropped(self, tables: int = 1) -> None:
        """What Spark has no room for it makes anew in each iteration, or reads from the disk, without a word."""
        # Only those are listed of which there is any partition left.
        found = self._context._jsc.sc().getRDDStorageInfo()
        whole = [info for info in found if info.numCachedPartitions() == info.numPartitions() and not info.diskSize()]
        if len(whole) < tables:
            raise RuntimeError(
                f"Spark has no room for the data in its {self._case.memory_mb} MB of memory; it would make parts of it anew in "
                "each iteration"
            )

    def close(self) -> None:
        self._context.stop()


def _share(data: Path, name: str, of: int, index: int) -> np.ndarray:
    """The index-th of `of` parts of an array's rows."""
    rows = np.load(data / f"{name}.npy", mmap_mode="r")
    return np.array(rows[len(rows) * index // of : len(rows) * (index + 1) // of])


def _each_row(data: Path, names: tuple[str, ...], of: int, index: int) -> Iterator[Any]:
    """A Python object for each row: what its columns hold there."""
    columns = [_share(data, name, of, index) for name in names]
    parts = [column.tolist() if column.ndim == 1 else column for column in columns]
    return zip(*parts, strict=True)


def _flat_blocks(data: Path, names: tuple[str, ...], of: int, index: int) -> Iterator[tuple[np.ndarray, ...]]:
    columns = [_share(data, name, of, index) for name in names]
    for first in range(0, len(columns[0]), _BLOCK_ROWS):
        yield tuple(column[first : first + _BLOCK_ROWS] for column in columns)


class GradientDescentTutorial(Spark):
    """A map over points and a reduction of their gradients, as the tutorial has them."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._points = self._kept(partial(_each_row, case.data, ("X", "y"), case.threads))
        self._rows = self._points.count()
        self._columns = len(self._points.first()[0])

    def iterate(self, iterations: int) -> Arrays:
        w = np.zeros(self._columns)
        for _ in range(iterations):
            gradient = self._points.map(partial(_gradient_of_point, w)).reduce(add)
            w = w - STEP / self._rows * gradient
        return {"weights": w}


def _gradient_of_point(w: np.ndarray, point: tuple[np.ndarray, float]) -> np.ndarray:
    x, y = point
    return (1 / (1 + np.exp(-x.dot(w))) - y) * x


class GradientDescentBlocks(Spark):
    """The same over flat blocks."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._blocks = self._kept(partial(_flat_blocks, case.data, ("X", "y"), case.threads))
        self._rows, self._columns = np.load(case.data / "X.npy", mmap_mode="r").shape

    def iterate(self, iterations: int) -> Arrays:
        w = np.zeros(self._columns)
        for _ in range(iterations):
            gradient = self._blocks.mapPartitions(partial(_gradient_of_blocks, w)).reduce(add)
            w = w - STEP / self._rows * gradient
        return {"weights": w}


def _gradient_of_blocks(w: np.ndarray, blocks: Iterator[tuple[np.ndarray, np.ndarray]]) -> Iterator[np.ndarray]:
    yield sum((logistic_gradient(X, y, w) for X, y in blocks), np.zeros(len(w)))


class KMeansBlocks(Spark):
    """Lloyd's iterations over flat blocks."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._start = case.array("start")
        self._blocks = self._kept(partial(_flat_blocks, case.data, ("X",), case.threads))

    def iterate(self, iterations: int) -> Arrays:
        centres = self._start
        for _ in range(iterations):
            sums, counts = self._blocks.mapPartitions(partial(_sums_of_blocks, centres)).reduce(_both)
            centres = moved(centres, sums, counts)
        return {"centres": centres}

    def solve(self, iterations: int) -> Arrays:
        return _with_inertia(self._case, self.iterate(iterations)["centres"])


def _sums_of_blocks(centres: np.ndarray, blocks: Iterator[tuple[np.ndarray]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    total = np.zeros(centres.shape), np.zeros(len(centres))
    for (X,) in blocks:
        total = _both(total, k_means_sums(X, centres))
    yield total


def _both(a: tuple[np.ndarray, np.ndarray], b: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return a[0] + b[0], a[1] + b[1]


def _with_inertia(case: Case, centres: np.ndarray) -> Arrays:
    return {"centres": centres, "inertia": inertia(np.load(case.data / "X.npy", mmap_mode="r"), centres)}


class KMeansMLlib(Spark):
    """
    MLlib's KMeans from given centres, over vectors that are Java's from the beginning.

    Its Python face would convert the rows anew for each fit, so what it calls is called here.
    """

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        from pyspark.mllib.common import _to_java_object_rdd
        from pyspark.mllib.linalg import Vectors

        self._start = [Vectors.dense(centre) for centre in case.array("start")]
        parts = self._context.parallelize(range(case.threads), case.threads)
        rows = parts.flatMap(partial(_each_row, case.data, ("X",), case.threads))
        self._vectors = _to_java_object_rdd(rows.map(lambda row: Vectors.dense(row[0]))).cache()
        self._vectors.count()
        self._refuse_dropped()

    def iterate(self, iterations: int) -> Arrays:
        from pyspark.mllib.common import _py2java

        clustering = self._context._jvm.org.apache.spark.mllib.clustering
        start = clustering.KMeansModel(_py2java(self._context, self._start))
        lloyd = clustering.KMeans().setK(len(self._start)).setMaxIterations(iterations).setEpsilon(0.0)
        model = lloyd.setInitialModel(start).run(self._vectors.rdd())
        return {"centres": np.array([list(centre.toArray()) for centre in model.clusterCenters()])}

    def solve(self, iterations: int) -> Arrays:
        return _with_inertia(self._case, self.iterate(iterations)["centres"])


class PageRankTutorial(Spark):
    """Ranks joined with lists of links, and contributions added up by key, as the tutorial has it."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        edges = self._kept(partial(_each_row, case.data, ("src", "dst"), case.threads))
        self._links = edges.distinct().groupByKey().cache()
        self._vertices = self._links.count()
        self._refuse_dropped(tables=2)

    def iterate(self, iterations: int) -> Arrays:
        ranks = self._links.mapValues(lambda _: 1.0)
        for _ in range(iterations):
            given = self._links.join(ranks).flatMap(_contributions)
            ranks = given.reduceByKey(add).mapValues(lambda rank: rank * DAMPING + 1 - DAMPING)
        # The tutorial's ranks add up to the number of vertices.
        found = np.zeros(self._vertices)
        for vertex, rank in ranks.collect():
            found[vertex] = rank / self._vertices
        return {"ranks": found}


def _contributions(of: tuple[int, tuple[Any, float]]) -> Iterator[tuple[int, float]]:
    _, (links, rank) = of
    return ((link, rank / len(links)) for link in links)


class GroupSumTutorial(Spark):
    """`reduceByKey` over pairs, as the tutorial counts words."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._pairs = self._kept(partial(_each_row, case.data, ("key", "value"), case.threads))

    def iterate(self, iterations: int) -> Arrays:
        for _ in range(iterations):
            found = self._pairs.reduceByKey(add).collect()
        return _sorted(*zip(*found, strict=True))


class GroupSumTable(Spark):
    """`groupBy` and `sum` of a DataFrame: no Python in it while it runs."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        import polars as pl
        from pyspark.sql import SparkSession

        parquet = case.scratch / "rows.parquet"
        pl.DataFrame({"key": case.array("key"), "value": case.array("value")}).write_parquet(parquet)
        self._rows = SparkSession(self._context).read.parquet(str(parquet)).repartition(case.threads).cache()
        self._rows.count()
        self._refuse_dropped()

    def iterate(self, iterations: int) -> Arrays:
        for _ in range(iterations):
            found = self._rows.groupBy("key").sum("value").collect()
        return _sorted(*zip(*found, strict=True))


def _sorted(keys: Any, sums: Any) -> Arrays:
    order = np.argsort(keys)
    return {"keys": np.array(keys)[order], "sums": np.array(sums)[order]}
