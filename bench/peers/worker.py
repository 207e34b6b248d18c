"""
A system in a process of its own: it loads the data once, and then answers one line of JSON to each line of its input.

It waits without computing while others have their turn, and ends when its input does.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peers.systems.peer import Peer


def milliseconds_per_iteration(peer: Peer, few: int, more: int) -> float:
    """The time of `more` iterations without that of `few`, by the iteration: what happens once falls out."""
    return (_seconds(peer, more) - _seconds(peer, few)) / (more - few) * 1e3


def _seconds(peer: Peer, iterations: int) -> float:
    if iterations == 0:
        return 0.0
    peer.ready()
    start = time.perf_counter()
    peer.iterate(iterations)
    return time.perf_counter() - start


class Turns:
    """The commands that a worker knows."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self._asked = asked
        self._peer: Peer | None = None

    def load(self) -> dict[str, Any]:
        """Import the system and give it the data."""
        from peers.systems.peer import Case

        module, _, name = self._asked["of"].partition(":")
        folders = {name: Path(self._asked["case"][name]) for name in ("data", "scratch")}
        case = Case(**{**self._asked["case"], **folders})
        self._peer = getattr(importlib.import_module(module), name)(case)
        return {"version": self._peer.version(), "threads": self._peer.threads or case.threads}

    def solve(self, result: str) -> dict[str, Any]:
        """Leave the result in a file."""
        import numpy as np

        assert self._peer is not None
        np.savez(result, **self._peer.solve(self._asked["case"]["check"]))
        return {}

    def go(self) -> dict[str, Any]:
        """One turn of a round."""
        assert self._peer is not None
        return {"ms": milliseconds_per_iteration(self._peer, *self._asked["iterations"])}

    def close(self) -> None:
        if self._peer is not None:
            self._peer.close()


def _share_processors(threads: int) -> None:
    """As many processors as threads, the same for every system: none computes on more by the back door."""
    places = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, places[:threads])


def _end_with_parent() -> None:
    """Be ended when the caller is ended in a way that leaves it no time to do so."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    _end_with_parent()
    asked = json.loads(sys.argv[1])
    # What libraries print is none of our answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    _share_processors(asked["case"]["threads"])
    turns = Turns(asked)
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = getattr(turns, command["do"])(*command["with"])
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {str(error).strip() or 'no reason given'}".splitlines()[0]}
        print(json.dumps(answer), file=answers)
    turns.close()


if __name__ == "__main__":
    main()
