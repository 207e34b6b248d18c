"""Ours on files: the commands as users call them, and `br.map_reduce`."""

from __future__ import annotations

import subprocess
import sys

import brambling as br

from peers.files import LINE_BYTES, RARE
from peers.systems.peer import Arrays
from peers.systems.whole_files import FileGrep, FileSort, FileWords, counts_of


def output_of(*words: str) -> bytes:
    """What a command of ours prints; starting Python is in its time."""
    done = subprocess.run([sys.executable, "-m", "brambling", *words], capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"brambling {words[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace').strip()}"
        )
    return done.stdout


class Sort(FileSort):
    """`brambling sort`."""

    def sort(self) -> None:
        output_of(
            "sort", str(self.lines), str(self.out), "--width", str(LINE_BYTES), "--key", "0:10",
            "--threads", str(self.case.threads), "--memory", f"{self.case.memory_mb}MB", "--tmp", str(self.case.scratch))  # fmt: skip

    def version(self) -> str:
        return br.__version__


class Grep(FileGrep):
    """`brambling grep`."""

    def found(self) -> bytes:
        return output_of("grep", RARE, str(self.words), "--threads", str(self.case.threads))

    def version(self) -> str:
        return br.__version__


class WordCount(FileWords):
    """`br.map_reduce` with built-in functions."""

    def iterate(self, iterations: int) -> Arrays:
        for _ in range(iterations):
            self._found = br.map_reduce(str(self.words), "words", "sum")
        return {}

    def solve(self, iterations: int) -> Arrays:
        self.iterate(iterations)
        return counts_of(dict(self._found))

    def version(self) -> str:
        return br.__version__
