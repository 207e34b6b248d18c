#!/usr/bin/env python3
"""
Whether `brambling sort` gives the same bytes whatever it runs on: 1 to 3 threads, 1 to 3 workers,
budgets of all sizes, keys of every skew.

    same_bytes.py [--bytes 400MB] [--memory 128MB] [--dir DIR] [--command BRAMBLING]

Each output is held against a stable sort of the same records by NumPy. A budget is either four
times the input or --memory, which has to be less than the input; workers have it each, and spill.
On a cluster it is the concatenation of the parts that counts. The last line is JSON: how many
outputs were made, how many of them are `differing`, and which.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np  # noqa: E402
from on_files import RECORD_BYTES, budget, cluster, common_options, must, need, parts_in, run, said_size, scratch, size  # noqa: E402

SKEWS = (None, "zipf", "equal", "sorted", "reversed")
COUNTS = (1, 2, 3)
LEAST_BUDGET = 512 << 20


def digest(paths):
    hashed = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while piece := file.read(1 << 22):
                hashed.update(piece)
    return hashed.hexdigest()


def expected(path):
    """The digest of its records in the order of their first ten bytes, equal ones as they come."""
    records = np.fromfile(path, np.uint8).reshape(-1, RECORD_BYTES)
    prefix, rest = records[:, :8].copy().view(">u8").ravel(), records[:, 8:10].copy().view(">u2").ravel()
    order = np.lexsort((rest, prefix))
    hashed = hashlib.sha256()
    for first in range(0, len(order), 1_000_000):
        hashed.update(records[order[first : first + 1_000_000]].tobytes())
    return hashed.hexdigest()


class Outputs:
    """Sorts of one input after the other, and those that came out otherwise."""

    def __init__(self, asked, folder):
        self.asked, self.folder = asked, folder
        self.input, self.out, self.tmp = folder / "in", folder / "out", folder / "tmp"
        self.tmp.mkdir()
        self.made, self.differing = 0, []
        self.budgets = (said_size(max(4 * asked.bytes, LEAST_BUDGET)), asked.memory)
        self.skew = self.expected = None

    def take(self, skew):
        """The next input."""
        must(
            [
                self.asked.command,
                "sort",
                "--generate",
                self.asked.bytes // RECORD_BYTES,
                self.input,
                *(("--skew", skew) if skew else ()),
            ]
        )
        self.skew, self.expected = skew or "uniform", expected(self.input)

    def sort(self, what, *options, environment=None):
        ran = run([self.asked.command, "sort", self.input, self.out, *options], env=environment)
        self.made += 1
        if ran.code != 0:
            self.differ(what, f"ended with {ran.code}: {ran.error.strip()[-300:]}")
        elif digest(parts_in(self.out) if self.out.is_dir() else [self.out]) != self.expected:
            self.differ(what, "other bytes")
        if self.out.is_dir():
            shutil.rmtree(self.out)
        self.out.unlink(missing_ok=True)

    def differ(self, what, how):
        self.differing.append(f"{self.skew}, {what}: {how}")
        print(f"DIFFERS: {self.differing[-1]}", flush=True)

    def on_threads(self):
        for threads in COUNTS:
            for memory in self.budgets:
                self.sort(f"{threads} threads, {memory}", "--threads", threads, "--memory", memory, "--tmp", self.tmp)

    def on_workers(self, workers, memory, address, environment):
        self.sort(f"{workers} workers, {memory}", "--controller", address, environment=environment)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", type=size, default=size("400MB"), metavar="SIZE")
    parser.add_argument("--memory", default="128MB", help="the lesser budget")
    parser.add_argument(
        "--workers", type=int, nargs="*", default=COUNTS, metavar="N", help="sizes of clusters; none without a number"
    )
    common_options(parser)
    asked = parser.parse_args()
    need(asked.command)
    if budget(asked.memory) >= asked.bytes:
        parser.error(f"--memory {asked.memory} holds the whole input; give less, or a larger --bytes")
    with scratch(asked.dir, "same-bytes") as folder:
        folder = Path(folder)
        outputs = Outputs(asked, folder)
        for skew in SKEWS:
            outputs.take(skew)
            outputs.on_threads()
            for workers in asked.workers:
                for memory in outputs.budgets:
                    state = folder / f"state-{outputs.made}"
                    settings = {"BRAMBLING_MEMORY": memory, "BRAMBLING_SPILL": str(outputs.tmp)}
                    with cluster(asked.command, state, workers, **settings) as address:
                        outputs.on_workers(workers, memory, address, {**os.environ, "XDG_STATE_HOME": str(state)})
            print(f"{outputs.skew}: {outputs.made} outputs, {len(outputs.differing)} of them differ", flush=True)
    print(
        json.dumps(
            {
                "differing": len(outputs.differing),
                "outputs": outputs.made,
                "which": outputs.differing,
                "bytes": asked.bytes,
            }
        )
    )
    sys.exit(bool(outputs.differing))


if __name__ == "__main__":
    main()
