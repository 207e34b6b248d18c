"""
How long a program of 100,000 statements takes to be built and compiled, in CPU time.

Of two kinds: updates of one dataset, each with a function that was written in the loop, or a mix of statements of every kind. What it takes to compile
is measured in a run of what was built, as all CPU time until the first kernel begins. The last line says the median of seven rounds, beside the least and
the most.
"""

import argparse
import json
import statistics
import time

import brambling as br

STATEMENTS = 100_000
ROUNDS = 7


class Begun(Exception):
    """Raised by the first kernel, with the CPU time at which it began."""


def begin(x):
    raise Begun(time.process_time())


def updates():
    p = br.Program("updates")
    x = p.dataset("x", value=0)
    p.update(x, begin)
    for _ in range(STATEMENTS - 2):
        p.update(x, lambda x: x + 1)
    return p


def mix():
    """Twenty statements again and again: of every kind one at least, and as many functions with something bound to them as without."""
    p = br.Program("mix")
    x, y = p.dataset("x", value=0), p.dataset("y", value=0, partitions=2)
    # What begins first: everything else reads what it writes.
    p.update(x, begin)
    for turn in range(STATEMENTS // 20):
        p.update(x, lambda x: x + 1)
        p.update(x, lambda x, turn=turn: x + turn)
        y = p.map(lambda y: y + 1, y)
        z = p.map(lambda y, turn=turn: y + turn, y)
        total = p.reduce("sum", z)
        everywhere = p.all_reduce("max", z)
        p.update(y, lambda y, x, total: y + x + total, p.broadcast(x, like=y), everywhere)
        p.dataset(f"list {turn}", value=[1, 2])
        rows = p.map(lambda y: [y, y], y)
        p.shuffle(rows, key=abs)
        p.exchange(y, neighbours=(-1, 1))
        p.gather(lambda pieces: pieces, p.scatter(lambda y: {0: y}, y, to=1))
        with p.loop(2):
            p.update(x, lambda x: x + 1)
        signal = p.signal(lambda total: total > 0, total)
        with p.if_(signal):
            p.update(x, lambda x: x - 1)
        p.keep(total)
    return p


def seconds(kind):
    began = time.process_time()
    p = kind()
    try:
        p.run(threads=1)
    except br.KernelError as error:
        assert isinstance(error.__cause__, Begun), error
        return error.__cause__.args[0] - began
    raise AssertionError("the first kernel did not begin")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=["updates", "mix"], required=True)
    kind = {"updates": updates, "mix": mix}[parser.parse_args().kind]
    times = []
    for number in range(ROUNDS):
        times.append(seconds(kind))
        print(f"round {number + 1}: {times[-1]:.2f} s")
    print(json.dumps({"seconds": statistics.median(times), "min": min(times), "max": max(times)}))


if __name__ == "__main__":
    main()
