"""PySpark on files of text, by its DataFrames: no Python in it while it runs."""

from __future__ import annotations

from typing import Any

from peers.systems.peer import Arrays, Case
from peers.systems.spark import Spark
from peers.systems.whole_files import FileSort, FileWords, sorted_counts


def _session(spark: Spark) -> Any:
    from pyspark.sql import SparkSession

    return SparkSession(spark._context)


class Sort(Spark, FileSort):
    """`sort` by a line's bytes, written as parts whose names are in their order."""

    def __init__(self, case: Case) -> None:
        Spark.__init__(self, case)
        FileSort.__init__(self, case)
        self._spark = _session(self)

    def sort(self) -> None:
        self._spark.read.text(str(self.lines)).sort("value").write.text(str(self.out))


class WordCount(Spark, FileWords):
    """Words of each line as rows, and `groupBy`."""

    def __init__(self, case: Case) -> None:
        Spark.__init__(self, case)
        FileWords.__init__(self, case)
        self._spark = _session(self)

    def iterate(self, iterations: int) -> Arrays:
        from pyspark.sql import functions

        for _ in range(iterations):
            lines = self._spark.read.text(str(self.words))
            words = lines.select(functions.explode(functions.split("value", " ")).alias("word"))
            self._found = words.groupBy("word").count().collect()
        return {}

    def solve(self, iterations: int) -> Arrays:
        self.iterate(iterations)
        return sorted_counts((row["word"].encode() for row in self._found), (row["count"] for row in self._found))
