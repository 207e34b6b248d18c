"""What a run found: as a table, and as JSON with stable keys."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

from peers.rounds import Options, Outcome
from peers.workloads import Workload


def report(workload: Workload, options: Options, outcomes: list[Outcome]) -> dict[str, Any]:
    """One object; a figure is an object of median, min and max. The first of the systems is ours."""
    ours = outcomes[0].samples_ms
    systems = [_system(outcome, ours) for outcome in outcomes]
    ratios = [system["times_ours"]["median"] for system in systems[1:] if system["times_ours"]]
    return {
        "bench": "peers",
        "workload": workload.name,
        "size": options.size,
        "shape": dict(workload.shapes[options.size]),
        "cpu": _processor(),
        "threads": options.threads,
        "rounds": options.rounds,
        # The time of the fastest of the others, divided by ours.
        "nearest": min(ratios, default=None),
        "systems": systems,
    }


def _system(outcome: Outcome, ours: list[float]) -> dict[str, Any]:
    measured = bool(outcome.samples_ms)
    return {
        "name": outcome.entry.name,
        "version": outcome.version,
        "threads": outcome.threads,
        "state": outcome.state,
        "reason": outcome.reason,
        "iterations": {"few": outcome.iterations[0], "more": outcome.iterations[1]},
        "ms_per_iteration": figure(outcome.samples_ms) if measured else None,
        "times_ours": _ratio(outcome.samples_ms, ours),
        "agreement": [
            {
                "what": it.what,
                "measure": str(it.measure),
                # JSON has no infinity, which is what a missing result differs by.
                "found": it.found if math.isfinite(it.found) else None,
                "allowed": it.most,
                "holds": it.holds,
            }
            for it in outcome.agreement
        ],
    }


def _ratio(theirs: list[float], ours: list[float]) -> dict[str, float] | None:
    """Of the same round each; none where either was too short to be told from nothing."""
    if not theirs or len(theirs) != len(ours) or min(*theirs, *ours) <= 0:
        return None
    return figure([a / b for a, b in zip(theirs, ours, strict=True)])


def figure(samples: list[float]) -> dict[str, float]:
    return {"median": statistics.median(samples), "min": min(samples), "max": max(samples)}


def table(found: dict[str, Any], what: str) -> str:
    """The report for a reader."""
    shape = ", ".join(f"{value:,} {key.replace('_', ' ')}" for key, value in found["shape"].items())
    head = f"{found['workload']}: {what}\n  {found['size']}: {shape}   {found['threads']} threads   {found['cpu']}\n"
    titles = ["", "version", "threads", "ms an iteration", "", "× ours", "agreement with ours"]
    rows = [titles, *(_row(system, found["systems"][0]) for system in found["systems"])]
    # What is not measured has its reason in the place of figures, as wide as it is.
    cells = [row[:2] + ([""] * 5 if len(row) < len(titles) else row[2:]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows]
    end = f"median of {found['rounds']} rounds in turn (least–most)"
    if found["size"] == "small":
        end += "; sizes were tiny: these figures say nothing"
    return head + "\n".join(f"  {line}" for line in lines) + f"\n  {end}"


def _row(system: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    identity = [system["name"], system["version"] or "–"]
    if system["ms_per_iteration"] is None:
        return [*identity, f"{system['state']}: {system['reason']}"]
    ms, times = system["ms_per_iteration"], system["times_ours"]
    agreement = "; ".join(f"{it['what']} {it['found']:.0e} of {it['allowed']:.0e}" for it in system["agreement"])
    return [
        *identity,
        str(system["threads"]),
        _number(ms["median"]),
        f"({_number(ms['min'])}–{_number(ms['max'])})",
        "" if system is ours else _number(times["median"]) if times else "–",
        agreement,
    ]


def _number(value: float) -> str:
    """Three digits, or all that stand before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"
