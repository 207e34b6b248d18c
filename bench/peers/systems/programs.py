"""Programs that users have at hand: GNU sort and grep, and ripgrep."""

from __future__ import annotations

import os
import shutil
import subprocess

from peers.files import RARE
from peers.systems.peer import Case
from peers.systems.whole_files import FileGrep, FileSort

# Bytes are bytes, and order is theirs.
_PLAIN = {**os.environ, "LC_ALL": "C"}


def found_program(name: str, package: str) -> str:
    """Where it is."""
    path = shutil.which(name)
    if path is None:
        raise RuntimeError(f"there is no `{name}` here: install the package `{package}`")
    return path


def version_of(program: str) -> str:
    """The number in the first line of what it says of itself."""
    first = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return next(word for word in first.split() if word[0].isdigit())


def output_of(*words: str) -> bytes:
    """What it prints; 1 is the exit code of those that find nothing."""
    done = subprocess.run(words, env=_PLAIN, capture_output=True, check=False)
    if done.returncode > 1 or done.stderr:
        raise RuntimeError(f"{words[0]} ended with {done.returncode}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


class GnuSort(FileSort):
    """GNU sort: whole lines, since keys begin them and none occurs twice."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._sort = found_program("sort", "coreutils")

    def sort(self) -> None:
        threads, memory = self.case.threads, self.case.memory_mb
        output_of(
            self._sort, f"--parallel={threads}", f"--buffer-size={memory}M", f"--temporary-directory={self.case.scratch}",
            f"--output={self.out}", str(self.lines))  # fmt: skip

    def version(self) -> str:
        return version_of(self._sort)


class GnuGrep(FileGrep):
    """GNU grep, which has one thread."""

    threads = 1

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._grep = found_program("grep", "grep")

    def found(self) -> bytes:
        return output_of(self._grep, RARE, str(self.words))

    def version(self) -> str:
        return version_of(self._grep)


class Ripgrep(FileGrep):
    """ripgrep, which has one thread for one file."""

    threads = 1

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self._rg = found_program("rg", "ripgrep")

    def found(self) -> bytes:
        return output_of(self._rg, "--no-config", RARE, str(self.words))

    def version(self) -> str:
        return version_of(self._rg)
