"""
What kernels print on the workers of a cluster: there, `sys.stdout` and `sys.stderr` ask whose a text is; at the job's client, it is shown.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from typing import Any, TextIO

from brambling import _native


class _Stream:
    """A standard stream of a worker: what kernels write goes to the client of their job, anything else where the worker was started."""

    def __init__(self, name: str) -> None:
        own: TextIO | None = getattr(sys, name)
        self._name = name
        # Kernels print also where the process has been started without.
        self._own = open(os.devnull, "w", encoding="utf-8") if own is None else own

    def write(self, text: str) -> int:
        if _native.print_here(text, self._name == "stderr"):
            return len(text)
        return self._own.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def isatty(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (sys, self._name)


def install() -> None:
    """What kernels print in this process, a worker, reaches the clients of their jobs from now on."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _Stream("stdout"), _Stream("stderr")

    def leave() -> None:
        # What a process that was forked prints would wait there for ever.
        sys.stdout, sys.stderr = before

    os.register_at_fork(after_in_child=leave)
    start = threading.Thread.start

    def started(thread: threading.Thread) -> None:
        place = _native.print_place()
        if place is not None:
            run = thread.run

            def run_there() -> None:
                place.enter()
                run()

            thread.run = run_there  # type: ignore[method-assign]  # Of this thread alone.
        start(thread)

    threading.Thread.start = started  # type: ignore[assignment,method-assign]  # Threads print where the kernel does that starts them.


def show(lines: list[tuple[bool, str]]) -> None:
    """
    Write lines to standard output, those that are marked to standard error.

    Examples
    --------
    >>> show([(False, "[w1, count] 3 words"), (False, "[w2, count] 5 words")])
    [w1, count] 3 words
    [w2, count] 5 words
    """
    for to_errors, group in itertools.groupby(lines, lambda line: line[0]):
        stream = sys.stderr if to_errors else sys.stdout
        # Closed, or of a process without one.
        if stream is None or stream.closed:
            continue
        text = "".join(f"{line}\n" for _, line in group)
        try:
            stream.write(text)
        except UnicodeEncodeError as error:
            stream.write(text.encode(error.encoding, "backslashreplace").decode(error.encoding))
        stream.flush()
