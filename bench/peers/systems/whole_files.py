"""
What systems have in common that read a whole file each time, and write one or find something in it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from peers.systems.peer import Arrays, Case, Peer


def digest_of(pieces: Iterable[bytes]) -> Arrays:
    """A digest of bytes, and how many they are."""
    hashed, count = hashlib.sha256(), 0
    for piece in pieces:
        hashed.update(piece)
        count += len(piece)
    return {"digest": np.frombuffer(hashed.digest(), np.uint8), "bytes": np.array([count])}


def pieces_of(files: Iterable[Path]) -> Iterable[bytes]:
    """The bytes of files, one after the other."""
    for path in files:
        with path.open("rb") as file:
            while piece := file.read(1 << 22):
                yield piece


class FileSort(Peer):
    """Sorts `lines` into `self.out`, from a disk whose pages are not in memory, until the last byte is on the disk."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.lines, self.out = case.file("lines"), case.scratch / "sorted"

    def sort(self) -> None:
        """One sort of `self.lines` into `self.out`, a file or a folder of parts that are in order."""
        raise NotImplementedError

    def ready(self) -> None:
        if self.out.is_dir():
            shutil.rmtree(self.out)
        self.out.unlink(missing_ok=True)
        # Older outputs are not written while this one is.
        os.sync()
        with self.lines.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def iterate(self, iterations: int) -> Arrays:
        for _ in range(iterations):
            self.sort()
            for path in self.parts():
                descriptor = os.open(path, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
        return {}

    def solve(self, iterations: int) -> Arrays:
        self.ready()
        self.iterate(iterations)
        return digest_of(pieces_of(self.parts()))

    def parts(self) -> list[Path]:
        return sorted(self.out.glob("part-*")) if self.out.is_dir() else [self.out]

    def close(self) -> None:
        self.out.unlink(missing_ok=True)


class FileWords(Peer):
    """Reads `words`, which is in the page cache unless memory is short."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.words = case.file("words")

    def ready(self) -> None:
        for _ in pieces_of([self.words]):
            pass


class FileGrep(FileWords):
    """The lines with a rare word, on a pipe."""

    def found(self) -> bytes:
        """Those lines."""
        raise NotImplementedError

    def iterate(self, iterations: int) -> Arrays:
        for _ in range(iterations):
            lines = self.found()
        return digest_of([lines])


def sorted_counts(words: Iterable[bytes], counts: Iterable[int]) -> Arrays:
    """Words and their counts in the order of the words' bytes."""
    pairs = sorted(zip(words, counts, strict=True))
    return {**digest_of(word + b"\n" for word, _ in pairs), "counts": np.array([count for _, count in pairs])}


def counts_of(found: Mapping[str, int]) -> Arrays:
    """The same of a mapping."""
    return sorted_counts((word.encode() for word in found), found.values())
