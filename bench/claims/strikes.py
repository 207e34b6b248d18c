"""
Strikes at clusters whose jobs are Python's from end to end: kernels, gathers, broadcasts and signals over objects.

    python bench/claims/strikes.py --minutes 30 --strikes 300 [--seed 7]

Shards are moved all the while. A strike lets a worker join, drains one, stops one for seconds, kills one, ends one as SIGTERM does, starts it again,
interrupts the client, or moves shards as fast as they go. After each, jobs have to go on: one that makes no step for 15 s, while neither the client nor
`status` says why, is a hang. Jobs that end have the bits of one process, or an error that names a worker that was struck. Prints how many strikes there were of
each kind, as JSON; what did not hold comes with the seed, the cluster's status, and where its workers were. It fails then, and when the strikes were too few.
"""

import argparse
import json
import os
import queue
import random
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "python/tests"))
from moved import Mover, objects, processes, stacks  # noqa: E402

import brambling as br  # noqa: E402

# A job that takes no step for longer is silent, unless somebody says why.
SILENCE_S = 15
# A worker that is drained gives its shards away and ends; a process that is ended ends.
ENDS_S = 60
# A cluster is struck so often, and then there is a new one.
STRIKES_OF_ONE = 25
PROGRAMS = [
    {"turns": 20, "partitions": 6},
    {"turns": 12, "partitions": 9, "nap_s": 0.002},
    {"turns": 40, "partitions": 4, "slow_s": 0.0},
    {"turns": 8, "partitions": 12, "nap_s": 0.005, "slow_s": 0.002},
]
# What is struck, and how often beside the others.
KINDS = {"moves": 6, "join": 3, "drain": 3, "stop": 4, "kill": 3, "end": 2, "restart": 2, "interrupt": 2}


class Broken(Exception):
    """What did not hold."""


class Struck:
    """A cluster, a client that runs one program again and again, and what was done to them."""

    def __init__(self, cluster, control, draw, program, expected, kinds):
        self.cluster, self.control, self.draw, self.kinds = cluster, control, draw, kinds
        self.program, self.expected = program, expected
        self.finished, self.failed = 0, 0
        # Workers that were struck and are or may be gone, as errors name them; and clients' jobs that may have ended for no worker.
        self.gone = set()
        self.said = queue.SimpleQueue()
        self.seen, self.since = None, time.monotonic()
        self.begin_client()
        self.mover = Mover(
            cluster.folder, cluster.address, list(cluster.workers), program["partitions"], threads=1, pause_s=0.1,
            seed=draw.randrange(1 << 30))

    # ---- what the client says

    def begin_client(self):
        client = self.client = self.cluster.client(**self.program)

        def listen():
            for line in client.stdout:
                self.said.put(json.loads(line))

        threading.Thread(target=listen, daemon=True).start()

    def hear(self):
        """What has ended since this was asked last; whether anything has."""
        heard = False
        while not self.said.empty():
            line, heard = self.said.get(), True
            if "values" in line:
                self.finished += 1
                if line["values"] != self.expected:
                    raise Broken(f"other bits than one process has: {line}")
            else:
                self.failed += 1
                named = set(re.findall(r"\bw\d+\b", line["error"]))
                if not named & self.gone:
                    raise Broken(f"an error that names no worker that was struck ({sorted(self.gone)}): {line['error']}")
        return heard

    # ---- whether it goes on

    def status(self):
        try:
            return self.control.status()
        except br.Error as error:
            raise Broken(f"no status: {error}") from error

    def look(self):
        """A step was taken, or it is not long ago."""
        status = self.status()
        running = [job for job in status["jobs"] if job["state"] in ("queued", "running")]
        seen = [(job["id"], job["state"], job["position"]) for job in running]
        # Whoever is silent is named there.
        told = [worker["id"] for worker in status["workers"] if (worker.get("silent_s") or 0) > 5]
        if self.hear() or seen != self.seen or told:
            self.seen, self.since = seen, time.monotonic()
        elif time.monotonic() - self.since > SILENCE_S:
            raise Broken(f"nothing moves for {SILENCE_S} s, and nobody says why: {seen}")
        return status

    def go_on(self, seconds, until=lambda: False):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            self.look()
            time.sleep(0.2)

    # ---- strikes

    def strike(self):
        kind = self.draw.choices(list(KINDS), list(KINDS.values()))[0]
        workers = len(self.cluster.workers)
        if kind in ("drain", "kill", "end") and workers < 3:
            kind = "join"
        if kind == "join" and workers > 4:
            kind = "drain"
        self.kinds[kind] += 1
        getattr(self, kind)()
        self.mover.among(list(self.cluster.workers))
        self.go_on(self.draw.uniform(0.3, 1.5))

    def one(self):
        return self.draw.choice(list(self.cluster.workers))

    def beside(self, act, *arguments):
        """Does something that takes its time, and looks meanwhile whether jobs go on."""
        failed = []

        def run():
            try:
                act(*arguments)
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        begun = time.monotonic()
        self.go_on(ENDS_S, until=lambda: not thread.is_alive())
        if thread.is_alive():
            raise Broken(f"{act.__name__}{arguments} takes more than {time.monotonic() - begun:.0f} s")
        if failed:
            raise Broken(f"{act.__name__}{arguments}: {failed[0]}")

    def moves(self):
        more = Mover(
            self.cluster.folder, self.cluster.address, list(self.cluster.workers), self.program["partitions"], threads=2,
            seed=self.draw.randrange(1 << 30))
        try:
            self.go_on(self.draw.uniform(1.5, 3))
        finally:
            moved = more.end()
        self.kinds["shards moved"] += moved[0]

    def join(self):
        self.beside(self.cluster.join)

    def drain(self):
        name = self.one()
        self.mover.among([it for it in self.cluster.workers if it != name])
        # A job that began while it was leaving may have had it for a moment.
        self.gone.add(name)
        self.beside(self.cluster.drain, name, ENDS_S)

    def stop(self):
        worker = self.cluster.workers[self.one()]
        worker.send_signal(signal.SIGSTOP)
        try:
            self.go_on(self.draw.uniform(0.5, 6))
        finally:
            worker.send_signal(signal.SIGCONT)

    def lose(self, name, how):
        self.gone.add(name)
        worker = self.cluster.workers.pop(name)
        self.mover.among(list(self.cluster.workers))
        worker.send_signal(how)
        return worker

    def kill(self):
        self.lose(self.one(), signal.SIGKILL)

    def end(self):
        worker = self.lose(self.one(), signal.SIGTERM)
        self.go_on(ENDS_S, until=lambda: worker.poll() is not None)
        if worker.poll() != 0:
            raise Broken(f"a worker that SIGTERM ends: exit code {worker.poll()} (None: it does not end): {stacks(worker.pid)}")

    def restart(self):
        self.lose(self.one(), signal.SIGKILL)
        self.join()

    def interrupt(self):
        self.client.send_signal(signal.SIGINT)
        self.go_on(ENDS_S, until=lambda: self.client.poll() is not None)
        if self.client.poll() is None:
            raise Broken(f"a client that is interrupted does not end: {stacks(self.client.pid)}")
        self.begin_client()

    # ---- the end

    def rest(self):
        """All that is left ends well."""
        moved = self.mover.end()
        self.kinds["shards moved"] += moved[0]
        self.client.stdin.write("enough\n")
        self.client.stdin.flush()
        self.go_on(ENDS_S, until=lambda: self.client.poll() is not None)
        if self.client.poll() != 0:
            raise Broken(f"the client ends with {self.client.poll()}")
        self.hear()
        if not self.finished:
            raise Broken("no job has ended well")
        faults = self.cluster.faults()
        if faults:
            raise Broken(f"faults of ours: {faults}")


def struck(number, seed, deadline, wanted, counts):
    """One cluster, struck again and again."""
    draw = random.Random(f"{seed} {number}")
    program = draw.choice(PROGRAMS)
    p, x = objects(**program)
    expected = p.run()[x]
    threads = draw.choice((1, 2))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        with processes(Path(folder), workers=3, threads=threads) as cluster, br.connect(cluster.address) as control:
            cluster.control = control
            it = Struck(cluster, control, draw, program, expected, counts["strikes"])
            try:
                for _ in range(min(wanted, STRIKES_OF_ONE)):
                    if time.monotonic() > deadline:
                        break
                    it.strike()
                    counts["all"] += 1
                it.rest()
                control.close()
                cluster.control = None
                codes = cluster.end(ENDS_S)
                if set(codes.values()) != {0}:
                    raise Broken(f"processes that SIGTERM ends: {codes}")
            except (Broken, AssertionError) as broken:
                counts["broken"] = str(broken)
                counts["at"] = {"seed": seed, "cluster": number, "program": program, "gone": sorted(it.gone)}
                print(json.dumps(counts["strikes"]), file=sys.stderr)
                print(f"{broken}\n", *tail(cluster), file=sys.stderr, sep="\n")
            finally:
                it.mover.process.kill()
                counts["finished"] += it.finished
                counts["failed"] += it.failed


def tail(cluster):
    """Where everybody is."""
    try:
        yield f"status: {json.dumps(cluster.status(SILENCE_S))}"
    except Exception as error:
        yield f"no status: {error}"
    for name, worker in cluster.workers.items():
        if worker.poll() is None:
            yield f"{name} (process {worker.pid}):\n{stacks(worker.pid)}"
    for path in sorted(cluster.folder.glob("*.txt")):
        yield f"{path.name}: {path.read_text()[-2000:]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--strikes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    deadline = time.monotonic() + given.minutes * 60
    counts = {"all": 0, "strikes": Counter(), "finished": 0, "failed": 0}
    number = 0
    # The time is used up: what was asked for is the least.
    while time.monotonic() < deadline and "broken" not in counts:
        struck(number, given.seed, deadline, max(given.strikes - counts["all"], STRIKES_OF_ONE), counts)
        number += 1
    counts["clusters"] = number
    print(json.dumps(counts))
    if "broken" in counts or counts["all"] < given.strikes:
        sys.exit(1)


main()
