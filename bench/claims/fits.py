#!/usr/bin/env python3
"""
How long fits take here beside an older version, and whether they give the same bits.

    fits.py BASE [--rounds 21] [--models logistic,kmeans,pagerank] [--workers]

The extension is built here and in a clone at BASE, as before.py does. A process of each version keeps its data and stays; each is asked for
a fit in turn, so that both meet the same minutes of a noisy host. With `--workers` each has a cluster of two workers of one thread. The last
line is JSON: for each model the median of the rounds' ratios, seconds of an iteration here over before, beside the least and the most, the
largest of these medians, and how many models gave other bits than before.
"""

import argparse
import hashlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time

from before import BEFORE, ROOT, build

MODELS = ("logistic", "kmeans", "pagerank")
ROWS, COLUMNS, CENTRES = 4_000_000, 20, 10
# Of the graph: vertices as a power of two, and edges for each of them.
SCALE, DEGREE = 19, 16
TOKEN = "0123456789abcdef" * 4
STARTS_WITHIN_S = 30


def rows(workers):
    """Rows of noise; fewer for workers, who are sent them anew for each fit."""
    import numpy as np

    return np.random.default_rng(1).standard_normal((ROWS // (10 if workers else 1), COLUMNS))


def edges():
    """A graph of few vertices with many edges, and many with few (R-MAT: Chakrabarti, Zhan, Faloutsos, 2004)."""
    import numpy as np

    random = np.random.default_rng(1)
    source, target = (np.zeros(DEGREE << SCALE, np.int64) for _ in range(2))
    for bit in range(SCALE):
        quarter = random.random(len(source))
        source |= (quarter >= 0.76).astype(np.int64) << bit
        target |= (((quarter >= 0.57) & (quarter < 0.76)) | (quarter >= 0.95)).astype(np.int64) << bit
    return source, target


def fitting(model, workers):
    """A function that fits once: seconds of an iteration, and what was found."""
    import brambling as br
    import numpy as np

    if model == "pagerank":
        source, target = edges()

        def ranks():
            found = br.graph.pagerank(source, target, tol=0, iterations=150)
            return found.seconds_per_iteration, np.asarray(found["rank"])

        return ranks
    X = rows(workers)
    y = (X[:, 0] > 0.3).astype(float)

    def fit():
        if model == "kmeans":
            found = br.ml.KMeans(CENTRES, init=X[:CENTRES].copy(), n_init=1, max_iter=10, tol=0).fit(X)
            return found.seconds_per_iteration_, found.cluster_centers_
        found = br.ml.LogisticRegression(max_iter=20, tol=0).fit(X, y)
        return found.seconds_per_iteration_, found.coef_

    return fit


def serve(model, port):
    """One version: answers each line with a fit."""
    import warnings

    import brambling as br

    # The most iterations are the end that is meant.
    warnings.simplefilter("ignore")
    fit = fitting(model, port is not None)
    connection = None if port is None else br.connect(f"127.0.0.1:{port}")
    print("ready", flush=True)
    for _ in sys.stdin:
        seconds, found = fit()
        print(json.dumps([seconds, hashlib.sha256(found.tobytes()).hexdigest()]), flush=True)
    if connection is not None:
        connection.close()


class Version:
    """A process of one version, with its cluster, if it has one."""

    def __init__(self, place, model, workers):
        environment = {**os.environ, "PYTHONPATH": str(place / "python"), "BRAMBLING_THREADS": "2", "BRAMBLING_TOKEN": TOKEN}
        self.cluster, port = None, []
        if workers:
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = [str(free.getsockname()[1])]
            cluster = ["cluster", "--workers", "2", "--threads", "1", "--no-balance", "--bind", f"127.0.0.1:{port[0]}"]
            self.cluster = subprocess.Popen([sys.executable, "-m", "brambling", *cluster], env=environment, stdout=subprocess.DEVNULL)
            until = time.monotonic() + STARTS_WITHIN_S
            while socket.socket().connect_ex(("127.0.0.1", int(port[0]))):
                if time.monotonic() > until:
                    raise SystemExit(f"no cluster of {place} listens on port {port[0]} after {STARTS_WITHIN_S} s")
                time.sleep(0.1)
        command = [sys.executable, __file__, "--serve", model, *port]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the process of one version ended with {self.process.wait()}")
        return line

    def fit(self):
        self.process.stdin.write("fit\n")
        self.process.stdin.flush()
        return json.loads(self.answer())

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        if self.cluster is not None:
            self.cluster.terminate()
            self.cluster.wait()


def compare(model, rounds, workers):
    """The rounds' ratios, and whether the bits are the same."""
    versions = {place: Version(place, model, workers) for place in (BEFORE, ROOT)}
    ratios, bits = [], set()
    for number in range(rounds + 1):
        found = {place: versions[place].fit() for place in ((BEFORE, ROOT) if number % 2 else (ROOT, BEFORE))}
        bits.update(digest for _, digest in found.values())
        # The first round warms both.
        if number:
            ratios.append(found[ROOT][0] / found[BEFORE][0])
    for version in versions.values():
        version.end()
    return ratios, len(bits) == 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--workers", action="store_true")
    options = parser.parse_args()
    build(BEFORE, options.base)
    build(ROOT)
    figures, others = {}, 0
    for model in options.models.split(","):
        ratios, same = compare(model, options.rounds, options.workers)
        figures[model] = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
        others += not same
        print(f"{model}: {figures[model]}, {'the same' if same else 'OTHER'} bits", file=sys.stderr)
    print(json.dumps({"most": max(each["median"] for each in figures.values()), "other_bits": others, "figures": figures}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None)
    else:
        main()
