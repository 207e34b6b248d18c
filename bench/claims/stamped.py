"""
Programs whose kernels tell when they ran, for `recovery.py`: each appends its begin and end to the file of its shard.

    stamped.py steps FOLDER TURNS [ADDRESS]            small steps that wait for each other's sums, of NAP_S seconds each; the last
                                                       line is the bits
    stamped.py heavy FOLDER TURNS PARTS BYTES ADDRESS  every turn rewrites all of so many partitions
    stamped.py logistic|kmeans|pagerank FOLDER TURNS ADDRESS
                                                       as the models of these names do it, with kernels of numpy
"""

import contextlib
import hashlib
import os
import struct
import sys
import time
from pathlib import Path

import numpy as np

import brambling as br

PARTS = 8
STAMP = struct.Struct("dd")


def stamps(folder):
    """Begins and ends of each shard's tasks, by its number."""
    found = {}
    for path in Path(folder).iterdir():
        whole = path.read_bytes()
        found[int(path.name)] = sorted(STAMP.iter_unpack(whole[:len(whole) // STAMP.size * STAMP.size]))
    return found


def stamped(folder, kernel):
    """A kernel of a shard that tells when it ran."""

    def run(x, *others, ctx):
        import os
        import struct
        import time

        begun = time.time()
        result = kernel(x, *others)
        file = os.open(f"{folder}/{ctx.partition}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        # Whoever is behind, such as a generation that is over, appends as well: a stamp is one write.
        os.write(file, struct.pack("dd", begun, time.time()))
        os.close(file)
        return result

    # How many datasets a kernel takes is seen from its arguments.
    if kernel.__code__.co_argcount == 1:
        return lambda x, ctx: run(x, ctx=ctx)
    return lambda x, local, ctx: run(x, local, ctx=ctx)


def made(p, name, make, parts=PARTS):
    """Rows that each shard makes for itself, so no client sends them."""
    return p.map(make, p.dataset(name, value=None, partitions=parts))


def steps(folder, turns):
    p = br.Program("steps")
    x = p.load(np.random.default_rng(3).normal(size=(40_000, 4)), partitions=PARTS)
    centre = p.dataset("centre", value=np.zeros(4))

    nap_s = float(os.environ.get("NAP_S", "0.005"))

    def pull(rows, centre):
        time.sleep(nap_s)
        return np.tanh(rows - centre).sum(axis=0)

    with p.loop(turns):
        local = p.broadcast(centre, like=x)
        p.update(centre, lambda centre, total: centre + total / 1e5, p.reduce("sum", p.map(stamped(folder, pull), x, local)))
    return np.asarray(p.run()[centre])


def heavy(folder, turns, parts, size):
    p = br.Program("heavy")
    x = made(p, "x", lambda x, ctx: np.full(size // 8, float(ctx.partition)), parts)
    p.keep(x)

    def rewrite(x):
        time.sleep(0.01)
        return x + 1

    with p.loop(turns):
        p.update(x, stamped(folder, rewrite))
    return np.asarray([part[0] for part in p.run()[x]])


def summed(name, make, begin, kernel, step):
    """A model: what all shards find is summed, and what comes of it is told to all of them."""

    def run(folder, turns):
        p = br.Program(name)
        x = made(p, "rows", make)
        model = p.dataset("model", value=begin)
        with p.loop(turns):
            local = p.broadcast(model, like=x)
            p.update(model, step, p.reduce("sum", p.map(stamped(folder, kernel), x, local)))
        return np.asarray(p.run()[model])

    return run


def logistic_rows(_, ctx):
    rng = np.random.default_rng(ctx.partition)
    x = rng.normal(size=(50_000, 20))
    return np.column_stack([x, x @ np.arange(20.0) + rng.normal(size=50_000) > 0])


def gradient(rows, weights):
    x, y = rows[:, :-1], rows[:, -1]
    return x.T @ (1 / (1 + np.exp(-(x @ weights))) - y) / len(y)


def kmeans_rows(_, ctx):
    return np.random.default_rng(ctx.partition).normal(size=(20_000, 20))


def nearest(x, centres):
    owner = (np.square(centres).sum(axis=1) - 2 * x @ centres.T).argmin(axis=1)
    sums = np.zeros((len(centres), x.shape[1] + 1))
    np.add.at(sums[:, :-1], owner, x)
    sums[:, -1] = np.bincount(owner, minlength=len(centres))
    return sums


def means(centres, sums):
    return np.where(sums[:, -1:] > 0, sums[:, :-1] / np.maximum(sums[:, -1:], 1), centres)


NODES = 20_000


def edges(_, ctx):
    return np.random.default_rng(ctx.partition).integers(0, NODES, size=(2, 250_000))


def flow(edges, rank):
    source, to = edges
    share = rank[source] / np.maximum(1, np.bincount(source, minlength=NODES)[source])
    return np.bincount(to, weights=share, minlength=NODES)


JOBS = {
    "steps": steps,
    "heavy": heavy,
    "logistic": summed("logistic", logistic_rows, np.zeros(20), gradient, lambda weights, total: weights - total / PARTS),
    "kmeans": summed("kmeans", kmeans_rows, np.random.default_rng(99).normal(size=(10, 20)), nearest, means),
    "pagerank": summed(
        "pagerank", edges, np.full(NODES, 1 / NODES), flow, lambda rank, total: 0.15 / NODES + 0.85 * total / total.sum()),
}

if __name__ == "__main__":
    name, folder, turns, *rest = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    sizes = [int(rest.pop(0)) for _ in range(2 if name == "heavy" else 0)]
    with br.connect(rest[0]) if rest else contextlib.nullcontext():
        bits = JOBS[name](folder, int(turns), *sizes)
    print("ends", hashlib.sha256(np.ascontiguousarray(bits).tobytes()).hexdigest())
