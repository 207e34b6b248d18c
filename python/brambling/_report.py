"""How near a run came to what the machine can do."""

from __future__ import annotations

import functools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brambling import _native
from brambling._errors import BuildError

# Written by their names' ends.
_KINDS = (".html", ".htm", ".json", ".txt")


@dataclass(frozen=True)
class Work:
    """What an iteration cannot do without."""

    read_bytes: float
    flops: float


class Report:
    """
    How near a run came to what the machine can do, and where the rest of its time went.

    Printed, it is a text of some lines; in a notebook it is a page with a timeline of every thread. The machine is judged by what
    `brambling probe` found, and without that by the run itself, which is then said.

    Attributes
    ----------
    actual_seconds : float
        From the call to its end.
    ideal_seconds : float or None
        What the machine would need at least.
    share_of_ideal : float or None
        `ideal_seconds` ÷ `actual_seconds`.
    bound_by : str or None
        The resource that decides the ideal, such as "memory bandwidth".
    headline : str
        The answer in a line: time, share of ideal, and what bounds it.
    advice : list of str
        What would help, in a sentence for each known cause; empty when nothing stood in the way.

    Examples
    --------
    >>> import numpy as np, brambling as br
    >>> p = br.Program("squares")
    >>> squares = p.map(np.square, p.load(np.arange(5_000.0)))
    >>> p.keep(squares)
    >>> report = p.run().report
    >>> report.actual_seconds > 0
    True
    >>> report.save("squares.html")
    """

    actual_seconds: float
    ideal_seconds: float | None
    share_of_ideal: float | None
    bound_by: str | None
    headline: str
    advice: list[str]

    def __init__(self, ledger: _native.Ledger) -> None:
        self._native = _native.Report(ledger)
        self.actual_seconds = self._native.actual_seconds
        self.ideal_seconds = self._native.ideal_seconds
        self.share_of_ideal = self._native.share_of_ideal
        self.bound_by = self._native.bound_by
        self.headline = self._native.headline()
        self.advice = self._native.advice

    def to_dict(self) -> dict[str, Any]:
        """All that is known: phases, stages, threads, resources and advice. The keys are stable."""
        found: dict[str, Any] = json.loads(self._native.json())
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """
        Writes the report: a page that fetches nothing, JSON or text, by the end of the name.

        Parameters
        ----------
        path : str or path
            A name that ends with `.html`, `.json` or `.txt`.

        Raises
        ------
        BuildError
            The name ends with something else.
        OSError
            It cannot be written.
        """
        end = Path(path).suffix.lower()
        if end not in _KINDS:
            raise BuildError(f"{os.fspath(path)} is no name for a report: give one that ends with .html, .json or .txt")
        made = {".json": self._native.json, ".txt": self._native.text}.get(end, self._native.html)
        Path(path).write_text(made(), encoding="utf-8")

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """
        Writes what each thread did when, for https://ui.perfetto.dev.

        Parameters
        ----------
        path : str or path
            A name that ends with `.json`, for Chrome's trace events; any other, such as `.pftrace`, for Perfetto's packets.
        """
        if Path(path).suffix.lower() == ".json":
            Path(path).write_text(self._native.trace_json(), encoding="utf-8")
        else:
            Path(path).write_bytes(self._native.trace())

    def __str__(self) -> str:
        return self._native.text().rstrip("\n")

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.headline}>"

    def _repr_html_(self) -> str:
        return self._native.fragment()


class ModelReport(Report):
    """
    The report of a fit, and how fast its iterations were.

    Attributes
    ----------
    seconds_per_iteration : float
        Mean seconds of an iteration, without the first pass.
    tasks_per_second : float
        Tasks of the whole job by the second.
    share_of_ideal : float
        Seconds that the machine would need at least for an iteration ÷ seconds that it took. The first look measures the
        machine for that: a second at most.
    bound_by : str
        What decides the least: "memory bandwidth" or "arithmetic".
    ideal_seconds, actual_seconds, advice
        Of the whole job, as any report has them.
    """

    seconds_per_iteration: float
    tasks_per_second: float
    share_of_ideal: float
    bound_by: str

    def __init__(self, ledger: _native.Ledger, seconds: float, tally: dict[str, float], work: Work) -> None:
        super().__init__(ledger)
        self.seconds_per_iteration = seconds
        self.tasks_per_second = tally["tasks"] / tally["wall_s"]
        least, self.bound_by = _least(work, int(tally["threads"]))
        self.share_of_ideal = least / seconds

    def __str__(self) -> str:
        return (
            f"{self.seconds_per_iteration * 1e3:.3g} ms an iteration, {self.tasks_per_second:,.0f} tasks/s, "
            f"{self.share_of_ideal:.0%} of ideal, bound by {self.bound_by}\n\nthe whole fit: {super().__str__()}"
        )


@functools.cache
def _least(work: Work, threads: int) -> tuple[float, str]:
    """Seconds of an iteration at least, and what decides them."""
    return _native.least_seconds(work.read_bytes, work.flops, min(threads, len(os.sched_getaffinity(0))))
