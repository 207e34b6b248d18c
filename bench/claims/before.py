#!/usr/bin/env python3
"""
What the benches say here beside an older version, in turn.

    before.py BASE [--pairs 21] [--benches task-rate,barrier,...] [--instructions]

The extension is built here and in a clone at BASE; then each bench runs there and here, one after the other, so many times. Whoever comes
first meets what was left behind: in turn. The last line is JSON: for each figure the median of the pairs' ratios, here over before, beside
the least and the most, where more is worse. With `--instructions` it is the instructions of one thread instead, as valgrind counts them in
a small run.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BEFORE = ROOT / "build" / "before"
# What is compared of each bench: less of it is better.
FIGURES = {
    "task-rate": ["ns_per_task"],
    "barrier": ["us_per_iteration.2", "us_per_iteration.20"],
    "task-graph": ["patterns"],
    "logistic": ["ms_per_iteration"],
    "kmeans": ["ms_per_iteration"],
    "pagerank": ["ms_per_iteration"],
}
COUNTED = ("task-rate", "task-graph")


def build(place, commit=None):
    """The package at a commit, where Python finds it."""
    if commit is not None:
        if not (place / ".git").is_dir():
            subprocess.run(["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(place)], check=True)
        subprocess.run(["git", "fetch", "--quiet", "origin"], cwd=place, check=True)
        subprocess.run(["git", "checkout", "--quiet", "--force", commit], cwd=place, check=True)
    environment = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
    # With the whole workspace's features, so that nothing is compiled twice.
    subprocess.run(
        ["cargo", "build", "--quiet", "--release", "--workspace"], cwd=place, env=environment, check=True, stdout=sys.stderr
    )
    library = place / "target" / "release" / "lib_native.so"
    shutil.copy(library, place / "python" / "brambling" / "_native.abi3.so")


def command(place, bench, *options):
    return [sys.executable, "-c", "import sys; from brambling.__main__ import main; sys.exit(main())", "bench", bench, *options], {
        **os.environ,
        "PYTHONPATH": str(place / "python"),
    }


def figures(place, bench):
    """Each figure of a run: the median, the only number, or the median of each pattern."""
    arguments, environment = command(place, bench, "--threads", "2", "--json")
    done = subprocess.run(arguments, env=environment, check=True, capture_output=True, text=True)
    return dict(told(bench, json.loads(done.stdout.splitlines()[-1])))


def told(bench, report):
    for path in FIGURES[bench]:
        at = report
        for part in path.split("."):
            at = at[part]
        if isinstance(at, list):
            yield from ((f"{bench} {it['pattern']} {it['width']}", it["overhead_us"]["median"]) for it in at)
        else:
            yield f"{bench} {path}", at["median"] if isinstance(at, dict) else at


def instructions(place, bench):
    """Of a small run of one thread."""
    arguments, environment = command(place, bench, "--threads", "1", "--smoke", "--json")
    with tempfile.TemporaryDirectory() as folder:
        counted = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", *arguments]
        done = subprocess.run(counted, env=environment, check=True, capture_output=True, text=True)
    return {f"{bench} instructions": int(re.search(r"Collected : (\d+)", done.stderr)[1])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("--pairs", type=int, default=21)
    parser.add_argument("--benches", default=",".join(FIGURES))
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args()
    build(BEFORE, options.base)
    build(ROOT)
    benches = COUNTED if options.instructions else options.benches.split(",")
    measure = instructions if options.instructions else figures
    ratios = {}
    for bench in benches:
        for pair in range(options.pairs):
            found = {}
            for place in (BEFORE, ROOT) if pair % 2 else (ROOT, BEFORE):
                found[place] = measure(place, bench)
            for name, before in found[BEFORE].items():
                ratios.setdefault(name, []).append(found[ROOT][name] / before)
            print(f"{bench}: pair {pair + 1} of {options.pairs}", file=sys.stderr)
    rows = {name: {"median": statistics.median(all_), "min": min(all_), "max": max(all_)} for name, all_ in ratios.items()}
    print(json.dumps({"most": max(row["median"] for row in rows.values()), "figures": rows}))


if __name__ == "__main__":
    main()
