"""
Scripts that take a minute or more, for `recovery.py`: what they end with is the last line. With an address they run on that cluster.
TELLS names a file to which each job that ends appends how many tasks it ran, and its seconds.

    flights    the demo's jobs, again and again
    program    a program with Python kernels
    kmeans     one long fit
    logistic   one long fit
    pagerank   one long analysis
"""

import contextlib
import hashlib
import logging
import os
import sys
import time

import numpy as np

import brambling as br
from brambling.examples import flights as demo
from brambling.examples._flights_data import delay_distance_hour, features, find_flights, read_columns, routes

TURNS = {"flights": 160, "program": 900, "kmeans": 3_000, "logistic": 6_000, "pagerank": 3_000}


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def flights(turns):
    columns = read_columns(find_flights())
    x, y = features(columns)
    table, flown = delay_distance_hour(columns), routes(columns)
    ends = []
    for _ in range(turns):
        delays, grouped, ranks = demo.predict_delays(x, y), demo.group_flights(table), demo.rank_airports(*flown)
        ends += [digest(delays.coef_), digest(grouped.cluster_centers_), digest(ranks["rank"])]
    return digest(np.frombuffer("".join(ends).encode(), dtype=np.uint8))


def program(turns):
    p = br.Program("means")
    x = p.load(np.random.default_rng(3).normal(size=(200_000, 4)))
    centre = p.dataset("centre", value=np.zeros(4))
    seen = p.dataset("seen", value={"turns": 0})

    def pull(rows, centre):
        time.sleep(0.001)
        return np.tanh(rows - centre).sum(axis=0)

    def step(centre, total):
        return centre + total / 1e6

    def note(seen, centre):
        seen["turns"] += 1
        return seen

    with p.loop(turns):
        local = p.broadcast(centre, like=x)
        p.update(centre, step, p.reduce("sum", p.map(pull, x, local)))
        p.update(seen, note, centre)
    result = p.run()
    assert result[seen] == {"turns": turns}
    return digest(result[centre])


def kmeans(turns):
    x = np.random.default_rng(1).normal(size=(2_000_000, 20))
    fit = br.ml.KMeans(n_clusters=30, max_iter=turns, tol=0, n_init=1, random_state=3).fit(x)
    return digest(fit.cluster_centers_)


def logistic(turns):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(400_000, 20))
    y = (x @ rng.normal(size=20) + rng.normal(size=400_000) > 0).astype(int)
    fit = br.ml.LogisticRegression(max_iter=turns, tol=0, solver="gradient-descent").fit(x, y)
    return digest(fit.coef_)


def pagerank(turns):
    rng = np.random.default_rng(7)
    edges = rng.integers(0, 200_000, size=(2, 2_000_000))
    return digest(br.graph.pagerank(*edges, iterations=turns, tol=0, damping=0.9999)["rank"])


class Teller(logging.Handler):
    """Of each job that ends, from what Brambling logs. One whose results are read tells what it told when it ran, to the last digit."""

    def __init__(self, path):
        super().__init__(logging.INFO)
        self.path = path

    def emit(self, record):
        if record.msg.startswith("ended:"):
            tasks, seconds = record.args[:2]
            with open(self.path, "a") as file:
                file.write(f"{tasks.split()[0]} {seconds!r}\n")


if __name__ == "__main__":
    if told := os.environ.get("TELLS"):
        logging.getLogger("brambling").addHandler(Teller(told))
        logging.getLogger("brambling").setLevel(logging.INFO)
    name, turns = sys.argv[1], float(sys.argv[2])
    run = {"flights": flights, "program": program, "kmeans": kmeans, "logistic": logistic, "pagerank": pagerank}[name]
    with br.connect(sys.argv[3]) if sys.argv[3:] else contextlib.nullcontext():
        print("ends", run(int(TURNS[name] * turns)))
