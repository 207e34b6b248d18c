"""Polars, on files of text: each line is a value of one column."""

from __future__ import annotations

import polars as pl

from peers.systems.peer import Arrays
from peers.systems.whole_files import FileSort, FileWords, sorted_counts


def _lines(path: object) -> pl.LazyFrame:
    # No byte of the text is one that would end a value or quote it.
    return pl.scan_csv(
        str(path), has_header=False, separator="\x01", quote_char=None, new_columns=["line"], schema={"line": pl.String}
    )


class Sort(FileSort):
    """`sort` of a lazy frame, and `sink_csv`."""

    package = "polars"

    def sort(self) -> None:
        _lines(self.lines).sort("line").sink_csv(self.out, include_header=False, separator="\x01", quote_style="never")


class WordCount(FileWords):
    """Words of each line as rows, and `group_by`, by the streaming engine."""

    package = "polars"

    def iterate(self, iterations: int) -> Arrays:
        for _ in range(iterations):
            words = _lines(self.words).select(pl.col("line").str.split(" ").alias("word")).explode("word")
            self._found = words.group_by("word").agg(pl.len()).collect(engine="streaming")
        return {}

    def solve(self, iterations: int) -> Arrays:
        self.iterate(iterations)
        return sorted_counts((word.encode() for word in self._found["word"]), self._found["len"].to_list())
