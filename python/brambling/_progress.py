"""How far long work is: a line of a terminal, or of a notebook. Where nobody looks, nothing."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any, Protocol, TextIO

from brambling import _native
from brambling._errors import ClusterWarning

_BAR = 24


class _Line(Protocol):
    """What a line that is written again and again can do."""

    def write(self, text: str) -> None: ...
    def close(self) -> None: ...


class _Terminal:
    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        # Back to the first column, and away with what a longer text has left.
        self._stream.write(f"\r{text}\x1b[K")
        self._stream.flush()

    def close(self) -> None:
        self.write("")


class _Notebook:
    """A place of the cell's output that is replaced. IPython is there already."""

    def __init__(self) -> None:
        from IPython.display import display

        self._handle = display({"text/plain": ""}, raw=True, display_id=True)

    def write(self, text: str) -> None:
        self._handle.update({"text/plain": text}, raw=True)

    def close(self) -> None:
        self.write("")


def _line() -> _Line | None:
    if _native.setting("progress") == "false":
        return None
    # Whoever has a notebook has imported this.
    if "ipykernel.zmqshell" in sys.modules:
        return _Notebook()
    # Closed, or of a process without one.
    if sys.stderr is None or sys.stderr.closed or not sys.stderr.isatty():
        return None
    return _Terminal(sys.stderr)


class Progress:
    """
    Shows how far a run is; made when it has taken long enough.

    Parameters
    ----------
    program : str
        What is run.
    """

    def __init__(self, program: str) -> None:
        self._program = program
        self._line = _line()
        # Silent workers of which a warning has told.
        self._warned: set[str] = set()

    def show(
        self, tasks: int, tasks_total: int | None, seconds: float, silent: Sequence[tuple[str, float]] = ()
    ) -> None:
        """Write how many tasks of how many are done, after so many seconds, and which workers have been silent for how many."""
        if self._line is not None:
            self._line.write(text(self._program, tasks, tasks_total, seconds, silent))
        self._warned &= {worker for worker, _ in silent}
        late = [(worker, so_long) for worker, so_long in silent if so_long >= _native.silence_told_after_s]
        if {worker for worker, _ in late} - self._warned:
            self._warned |= {worker for worker, _ in late}
            # Not at the beginning: it needs this module.
            from brambling._estimator import distance_of_caller

            self.give_way()
            warnings.warn(
                f"{_waiting(late)}: it gets no CPU, was stopped, or waits for a disk. `brambling status` says where it runs; "
                "the program goes on when it does, and Ctrl-C ends the program",
                ClusterWarning,
                stacklevel=distance_of_caller(),
            )

    def wait(self, why: str, seconds: float) -> None:
        """Write what the run waits for before it begins, and for how long."""
        if self._line is not None:
            self._line.write(f"{why}  {_clock(seconds)}")

    def give_way(self) -> None:
        """Leave the terminal's line to what is printed there; it comes back with the next `show`."""
        if isinstance(self._line, _Terminal):
            self._line.close()

    def close(self) -> None:
        """Leave nothing behind."""
        if self._line is not None:
            self._line.close()
            self._line = None


def _waiting(silent: Sequence[tuple[str, float]]) -> str:
    return "waiting for " + "; ".join(f"{worker}, silent for {int(so_long)} s" for worker, so_long in silent)


def text(
    program: str, tasks: int, tasks_total: int | None, seconds: float, silent: Sequence[tuple[str, float]] = ()
) -> str:
    """
    The line.

    Examples
    --------
    >>> text("means", 250, 1_000, 3.0)
    'means  [######------------------]  25 %  0:03, 0:09 left'
    >>> text("means", 1_234_567, None, 3.0)
    'means  1,234,567 tasks  0:03'
    >>> text("means", 1_234_567, None, 3.0, [("w2", 12.25)])
    'means  1,234,567 tasks  0:03  waiting for w2, silent for 12 s'
    """
    waiting = f"  {_waiting(silent)}" if silent else ""
    if not tasks_total:
        return f"{program}  {tasks:,} tasks  {_clock(seconds)}{waiting}"
    share = min(tasks / tasks_total, 1.0)
    full = int(share * _BAR)
    left = f", {_clock(seconds / share - seconds)} left" if share > 0 else ""
    bar = "#" * full + "-" * (_BAR - full)
    return f"{program}  [{bar}]  {int(share * 100)} %  {_clock(seconds)}{left}{waiting}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
