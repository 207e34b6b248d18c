#!/usr/bin/env python3
"""
What a fit on a cluster sends, and what its workers take.

    rows_once.py [--gigabytes 2] [--workers 4] [--columns 20]

A cluster of so many workers is started, each of one thread, and logistic regression is fitted there over a table of so many gigabytes. The
last line is JSON: bytes that the client sent ÷ bytes of rows and labels, and the most that a worker's resident memory grew by since it had
nothing to do ÷ its part of these.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import brambling as br
from brambling.ml import LogisticRegression


def memory(pid, name):
    """Of a process, in bytes; none when it is no more."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def workers_of(cluster):
    """The processes of its workers."""
    of = {}
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().split(b"\0")
            parent = int(re.search(r"^PPid:\s+(\d+)", (place.parent / "status").read_text(), re.MULTILINE)[1])
        except (OSError, TypeError):
            continue
        if b"worker" in words:
            of.setdefault(parent, []).append(int(place.parent.name))
    return of.get(cluster.pid, [])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--columns", type=int, default=20)
    args = parser.parse_args()
    rows = int(args.gigabytes * 1e9 / 8 / (args.columns + 1))
    random = np.random.default_rng(7)
    x = random.standard_normal((rows, args.columns))
    y = (x @ random.standard_normal(args.columns) > 0).astype(float)
    code = "import sys; from brambling.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "cluster", "--workers", str(args.workers), "--threads", "1"]
    cluster = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = next(found[1] for line in cluster.stdout if (found := re.search(r"(127\.0\.0\.1:\d+)", line)))
        with br.connect(address) as connected:
            deadline = time.monotonic() + 60
            while len(connected.status()["workers"]) < args.workers and time.monotonic() < deadline:
                time.sleep(0.1)
            # What a first job brings: code, threads, links.
            LogisticRegression(max_iter=2).fit(x[:8192], y[:8192])
            workers = workers_of(cluster)
            assert len(workers) == args.workers, workers
            for pid in workers:
                Path(f"/proc/{pid}/clear_refs").write_text("5")
            idle = {pid: memory(pid, "VmRSS") for pid in workers}
            model = LogisticRegression(max_iter=5, tol=0).fit(x, y)
            grown = [memory(pid, "VmHWM") - idle[pid] for pid in workers]
            sent = model.tally_["sent_bytes"]
    finally:
        cluster.send_signal(signal.SIGINT)
        cluster.wait(30)
    whole = x.nbytes + y.nbytes
    print(json.dumps({
        "rows_bytes": whole, "sent_bytes": sent, "sent_over_rows": sent / whole, "grown_bytes": grown,
        "peak_over_part": max(grown) / (whole / args.workers), "pid": os.getpid(),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
