"""Systems that are none, each with a fault of its own, and a workload that compares them."""

import os
import subprocess
import sys
import time

import numpy as np

from peers.systems.peer import Peer
from peers.workloads import Entry, Measure, Tolerance, Workload


class Fake(Peer):
    """Finds the sum of the values at once."""

    def __init__(self, case):
        self._sum = case.array("value").sum()

    def version(self):
        return "1.0"

    def iterate(self, iterations):
        return {"sum": np.array([self._sum])}


class Talks(Fake):
    """Prints where answers go."""

    def iterate(self, iterations):
        print('{"ms": 0}', flush=True)
        subprocess.run(["echo", "and so does what it starts"], check=True)
        return super().iterate(iterations)


class Wrong(Fake):
    """Finds something else, and does not want to end."""

    def solve(self, iterations):
        return {"sum": np.array([self._sum * 1.01])}

    def close(self):
        time.sleep(1000)


class Less(Fake):
    """Finds something else than what is compared."""

    def solve(self, iterations):
        return {"other": np.array([self._sum])}


class CannotLoad(Fake):
    def __init__(self, case):
        raise ValueError("no room for the data\nand more that nobody reads")


class NotThere(Fake):
    def __init__(self, case):
        import a_package_that_nobody_has  # noqa: F401


class Tires(Fake):
    """Fails in the second round."""

    turns = 0

    def iterate(self, iterations):
        Tires.turns += 1
        # Once to solve, and once a round.
        if Tires.turns > 2:
            raise RuntimeError("too tired")
        return super().iterate(iterations)


class Dies(Fake):
    def solve(self, iterations):
        print("something is very wrong", file=sys.stderr, flush=True)
        os._exit(3)


class Hangs(Fake):
    """Never comes back, and neither does what it has started, in a process group of its own."""

    def __init__(self, case):
        super().__init__(case)
        child = subprocess.Popen(["sleep", "1000"], process_group=0)
        (case.data / "child").write_text(str(child.pid))

    def solve(self, iterations):
        time.sleep(1000)


def workload(*peers, ours="Fake", **of):
    """Ours beside some of the systems above, by their names."""

    def entry(name, kind):
        return Entry(name, f"peers.tests.fakes:{kind}", (0, 1), **of)

    return Workload(
        name="adding",
        what="a sum",
        data="keyed-values",
        shapes=dict.fromkeys(("small", "medium", "large"), {"rows": 100, "keys": 3}),
        check=1,
        allowed={"sum": Tolerance(Measure.RELATIVE, 1e-9)},
        ours=entry("ours", ours),
        peers=tuple(entry(kind, kind) for kind in peers),
    )
