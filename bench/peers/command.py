"""The command: `python bench/peers`, or `make peers`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from peers.environment import Environment, Unusable
from peers.workloads import SIZES, WORKLOADS, Workload

_DESCRIPTION = """\
Brambling and other systems side by side: the same data, the same number of threads, in turn within one run.

The first call makes an environment for them in build/peers-venv (a gigabyte; Spark needs Java 17 or newer besides) and goes on
in it. Each system runs in a process of its own, has the data loaded and distributed before anything is timed, and has
its result compared with ours; one that finds something else is named and not timed. What cannot be installed, fails, or does
not answer in time is named with the reason, and the others go on.
"""

_EPILOG = """\
examples:
  make peers OF=kmeans SIZE=small       try it: seconds for each workload, figures that say nothing
  make peers OF=kmeans                  one workload
  python bench/peers --json > all.json  all of them, an object a line (after `make install`)
  python bench/peers --list             workloads, who takes part in each, and who is left out at which size

figures: the time of some iterations without that of fewer, by the iteration, so that what happens once (loading, converting,
starting) falls out for everybody. Nothing else should run on the machine.

exit status: 0; 1 when ours fails or a result disagrees with ours; 2 for a wrong command line; 130 after Ctrl-C
"""


def main(
    arguments: list[str] | None = None,
    workloads: tuple[Workload, ...] = WORKLOADS,
    environment: Environment | None = None,
) -> int:
    """Run what the arguments ask for."""
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser(workloads).parse_args(given)
    if options.list:
        print("\n\n".join(map(_listed, options.of)))
        return 0
    # However the run is ended, what it has started is ended too.
    signal.signal(signal.SIGTERM, _interrupt)
    environment = environment or Environment()
    try:
        if not environment.is_entered():
            environment.make(_say)
            environment.enter(given)
        # NumPy is there from here on.
        return _measure(options, environment)
    except Unusable as unusable:
        _say(f"error: {unusable}")
        return 1
    except KeyboardInterrupt:
        _say("interrupted")
        return 130


def _measure(options: argparse.Namespace, environment: Environment) -> int:
    from peers.data import prepared
    from peers.report import report, table
    from peers.rounds import Options, Run

    how = Options(size=options.size, threads=options.threads, rounds=options.rounds, deadline=options.deadline)
    status = 0
    for workload in options.of:
        _say(f"{workload.name}: data of size {options.size}")
        data = prepared(workload.data, workload.shapes[options.size], environment.folder / "data")
        scratch = environment.folder / "scratch" / str(os.getpid())
        with Run(workload, how, data, scratch, environment.missing(), _say) as run:
            found = report(workload, how, run.measure())
        print(json.dumps(found) if options.json else table(found, workload.what) + "\n", flush=True)
        status = max(status, exit_status(found))
    return status


def exit_status(found: dict[str, Any]) -> int:
    """1 when ours failed or a result disagrees; a peer that fails is no fault of ours."""
    ours, *peers = (system["state"] for system in found["systems"])
    return int(ours != "measured" or "disagrees" in peers)


def _parser(workloads: tuple[Workload, ...]) -> argparse.ArgumentParser:
    names = ", ".join(workload.name for workload in workloads)

    def named(text: str) -> tuple[Workload, ...]:
        chosen = tuple(workload for workload in workloads if workload.name.startswith(text))
        if not text or not chosen:
            raise argparse.ArgumentTypeError(f"there is no workload {text!r}; there are {names}")
        return chosen

    parser = argparse.ArgumentParser(
        prog="python bench/peers",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--of",
        type=named,
        default=workloads,
        metavar="NAME",
        help=f"a workload, or what several names begin with: {names} (all)",
    )
    parser.add_argument("--size", choices=SIZES, default="medium", help="of the data (medium: 8 GiB of memory; large: 24 GiB)")
    parser.add_argument("--threads", type=_count, default=2, metavar="N", help="of each system (2)")
    parser.add_argument("--rounds", type=_count, default=7, metavar="N", help="turns of each system (7)")
    parser.add_argument(
        "--deadline",
        type=_count,
        default=300,
        metavar="SECONDS",
        help="a system that has not answered by then, loading or computing, is ended with all that it has started (300)",
    )
    parser.add_argument("--json", action="store_true", help="an object a line, with stable keys")
    parser.add_argument("--list", action="store_true", help="say what is compared with whom, and end")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of 1 or more")
    return int(text)


def _listed(workload: Workload) -> str:
    lines = [f"{workload.name}: {workload.what}"]
    for size in SIZES:
        shape = ", ".join(f"{value:,} {key.replace('_', ' ')}" for key, value in workload.shapes[size].items())
        lines.append(f"  {size:8}{shape}")
    for entry in (workload.ours, *workload.peers):
        without = "".join(f"; not {size}: {reason}" for size, reason in entry.absurd.items())
        lines.append(f"  {entry.name}{without}")
    return "\n".join(lines)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
