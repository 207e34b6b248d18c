"""
Coflows under each policy: what the simulator says of the public trace of Facebook, and of ours.

    trace        fair, varys, aalo and stream on a big switch of 1 Gbit/s, beside known averages
    ours         receiver-driven by rank, by classes alone, and without sizes
    sensitivity  the same at other round trips, classes, sizes, and with silent hosts
    fat-tree     48 pods: peak memory
    quick        `coflow reproduce --quick`

COFLOW_TRACE names the trace. The last line is JSON.
"""

import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ROOT / ".venv" / "bin" / "brambling"
# Averages of an independent simulator, exact max-min, in seconds.
KNOWN = {"fair": 58.80, "varys": 22.27, "aalo": 37.11}


def trace() -> str:
    path = os.environ.get("COFLOW_TRACE", "")
    if not Path(path).is_file():
        sys.exit("coflows.py: COFLOW_TRACE names no file; set it to the trace of coflows")
    return path


def simulate(policy, *options):
    """What a policy came to, its coflows' times, and how long the run took."""
    with tempfile.NamedTemporaryFile(suffix=".csv") as times:
        command = [COMMAND, "coflow", "simulate", "--trace", trace(), "--policy", policy, "--json", "--csv", times.name, *options]
        begun = time.monotonic()
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        took = time.monotonic() - begun
        with open(times.name, newline="") as file:
            by_coflow = {row["coflow"]: float(row["cct_s"]) for row in csv.DictReader(file)}
    return json.loads(done.stdout)[policy], by_coflow, took


def of_trace():
    found, longest = {}, 0.0
    for policy in ("fair", "varys", "aalo", "stream", "baraat", "fifo", "receiver-driven"):
        summary, _, took = simulate(policy)
        found[policy], longest = summary["average_s"], max(longest, took)
    return {
        **{f"{policy}_off": abs(found[policy] / known - 1) for policy, known in KNOWN.items()},
        "stream_over_fair": found["fair"] / found["stream"],
        "least_average_s": min(found.values()),
        "longest_run_s": longest,
        "average_s": found,
    }


def of_ours():
    _, fair, _ = simulate("fair")
    rank, ranked, _ = simulate("receiver-driven")
    by_class, _, _ = simulate("receiver-driven", "--order", "class")
    unknown, _, _ = simulate("receiver-driven", "--sizes", "unknown", "--relay", "rtt")
    average = sum(fair.values()) / len(fair)
    return {
        "rank_average_s": rank["average_s"],
        "rank_p95_s": rank["p95_s"],
        "class_average_s": by_class["average_s"],
        "unknown_over_fair": average / unknown["average_s"],
        "largest_over_fair": max(ranked[coflow] / fair[coflow] for coflow in fair),
    }


def of_sensitivity():
    runs = {}
    for rtt in ("10us", "100us", "1ms", "10ms"):
        runs[f"rtt {rtt}"] = simulate("receiver-driven", "--rtt", rtt)[0]["average_s"]
    for queues in range(2, 9):
        runs[f"{queues} classes"] = simulate("receiver-driven", "--order", "class", "--queues", str(queues))[0]["average_s"]
    runs["sizes off by half"] = simulate("receiver-driven", "--sizes-off", "0.5")[0]["average_s"]
    runs["1 % of hosts silent"] = simulate("receiver-driven", "--silent", "0.01")[0]["average_s"]
    return {"largest_average_s": max(runs.values()), "average_s": runs}


def of_fat_tree():
    summary, _, took = simulate("stream", "--fabric", "fattree:48")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return {"peak_gb": peak * 1024 / 1e9, "average_s": summary["average_s"], "seconds": took}


def of_quick():
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        subprocess.run([COMMAND, "coflow", "reproduce", "--quick", "--trace", trace(), "--output", folder], check=True, stdout=sys.stderr)
        pages = list(Path(folder).rglob("*.html"))
    return {"minutes": (time.monotonic() - begun) / 60, "pages": len(pages)}


PARTS = {"trace": of_trace, "ours": of_ours, "sensitivity": of_sensitivity, "fat-tree": of_fat_tree, "quick": of_quick}

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PARTS:
        sys.exit(f"coflows.py: say what: {', '.join(PARTS)}")
    print(json.dumps(PARTS[sys.argv[1]]()))
