"""All systems of a workload: started, compared with ours, and timed in turn."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from peers.agreement import Agreement, compare
from peers.process import Failed, Worker
from peers.systems.peer import Case
from peers.workloads import Entry, Workload

# What one system has left running, such as threads that spin before they sleep, ends before the next has its turn.
_SETTLE_SECONDS = 0.2
# Told to whatever system: its threads, by all the names that there are.
_THREADS = (
    "BRAMBLING_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "POLARS_MAX_THREADS",
)
_MEMORY_MB = {"small": 1024, "medium": 3072, "large": 6144}


@dataclass(frozen=True)
class Options:
    """How a run is made."""

    size: str
    threads: int
    rounds: int
    deadline: float


@dataclass
class Outcome:
    """What became of a system."""

    entry: Entry
    iterations: tuple[int, int]
    # "measured", "skipped", "failed" or "disagrees"; the others than the first have a reason.
    state: str = "measured"
    reason: str | None = None
    version: str | None = None
    threads: int | None = None
    agreement: list[Agreement] = field(default_factory=list)
    samples_ms: list[float] = field(default_factory=list)

    def leave(self, state: str, reason: str) -> None:
        self.state, self.reason = state, reason
        self.samples_ms.clear()


class Run:
    """A workload being measured; a context that leaves no process and no file behind."""

    def __init__(
        self,
        workload: Workload,
        options: Options,
        data: Path,
        scratch: Path,
        missing: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        self._workload = workload
        self._options = options
        self._data = data
        self._scratch = scratch
        # Names that could not be installed, with the reason.
        self._missing = missing
        self._say = say
        self._workers: dict[str, Worker] = {}
        self._outcomes: dict[str, Outcome] = {}

    def __enter__(self) -> Run:
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir(parents=True)
        return self

    def __exit__(self, *_: Any) -> None:
        for worker in self._workers.values():
            worker.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def measure(self) -> list[Outcome]:
        """Ours first, then the others; without a result of ours there is nothing to compare with, and they are not started."""
        workload = self._workload
        ours = self._start(workload.ours)
        found = self._solve(ours)
        for entry in workload.peers:
            peer = self._start(entry)
            if found is None:
                if peer.state == "measured":
                    peer.leave("skipped", f"there is no result of {workload.ours.name} to compare with")
            elif (theirs := self._solve(peer)) is not None:
                self._compare(peer, theirs, found)
        for turn in range(self._options.rounds):
            self._say(f"{workload.name}: round {turn + 1} of {self._options.rounds}")
            self._round()
        for worker in self._workers.values():
            worker.end()
        return list(self._outcomes.values())

    def _start(self, entry: Entry) -> Outcome:
        size = self._options.size
        outcome = self._outcomes[entry.name] = Outcome(entry, entry.counts(size))
        if size in entry.absurd:
            outcome.leave("skipped", entry.absurd[size])
        return outcome

    def _solve(self, outcome: Outcome) -> dict[str, np.ndarray] | None:
        """Starts it, gives it the data, and returns what it finds."""
        if outcome.state != "measured":
            return None
        entry = outcome.entry
        self._say(f"{self._workload.name}: {entry.name} loads and solves")
        folder = self._scratch / entry.name.replace(" ", "-").replace(",", "")
        folder.mkdir()
        self._workers[entry.name] = Worker(
            [sys.executable, "-m", "peers.worker", json.dumps(self._asked(outcome, folder))],
            self._environment(),
            folder,
            self._options.deadline,
        )
        result = folder / "result.npz"
        loaded = self._ask(outcome, "load")
        if loaded is None:
            return None
        outcome.version, outcome.threads = loaded["version"], loaded["threads"]
        if self._ask(outcome, "solve", str(result)) is None:
            return None
        with np.load(result) as arrays:
            return dict(arrays)

    def _asked(self, outcome: Outcome, folder: Path) -> dict[str, Any]:
        case = Case(
            data=self._data,
            scratch=folder,
            threads=self._options.threads,
            check=self._workload.check,
            memory_mb=_MEMORY_MB[self._options.size],
        )
        texts = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(case).items()}
        return {"of": outcome.entry.of, "iterations": outcome.iterations, "case": texts}

    def _environment(self) -> dict[str, str]:
        # Settings of whoever calls are not those of the comparison.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BRAMBLING_")}
        packages = str(Path(__file__).resolve().parents[1])
        return kept | {"PYTHONPATH": packages} | dict.fromkeys(_THREADS, str(self._options.threads))

    def _compare(self, peer: Outcome, theirs: Mapping[str, np.ndarray], ours: Mapping[str, np.ndarray]) -> None:
        peer.agreement = compare(theirs, ours, {**self._workload.allowed, **peer.entry.allowed})
        wrong = [str(agreement) for agreement in peer.agreement if not agreement.holds]
        if wrong:
            self._drop(peer, "disagrees", "; ".join(wrong))

    def _round(self) -> None:
        for outcome in self._outcomes.values():
            if outcome.state == "measured":
                time.sleep(_SETTLE_SECONDS)
                answer = self._ask(outcome, "go")
                if answer is not None:
                    outcome.samples_ms.append(answer["ms"])

    def _ask(self, outcome: Outcome, do: str, *arguments: Any) -> dict[str, Any] | None:
        """The answer, or the end of that system's part in the run."""
        try:
            return self._workers[outcome.entry.name].ask(do, *arguments)
        except Failed as failed:
            self._drop(outcome, "failed", self._why(failed))
            return None

    def _why(self, failed: Failed) -> str:
        """A system that is not there failed when it was installed."""
        for name, reason in self._missing.items():
            if "No module named" in str(failed):
                module = str(failed).rpartition("'")[0].rpartition("'")[2].partition(".")[0]
                if module in (name, {"scikit-learn": "sklearn"}.get(name)):
                    return f"it could not be installed: {reason}"
        return str(failed)

    def _drop(self, outcome: Outcome, state: str, reason: str) -> None:
        outcome.leave(state, reason)
        self._say(f"{self._workload.name}: {outcome.entry.name} {state}: {reason}")
        self._workers.pop(outcome.entry.name).kill()
