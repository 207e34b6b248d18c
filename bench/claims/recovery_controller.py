"""
A controller that is killed in the middle of a job, and again while the job recovers from a worker's death; for `recovery.py`.

In every other round the controller stays away until the job's last task has run. A task waits for the controller if a shard runs none for
longer than WAIT_S between the controller's end and the next one's return, while all workers live: by the time stamps that kernels write.
"""

import os
import random
import sys
import tempfile
import time
from pathlib import Path

from hosts import bridged
from recovery_cluster import ASK_S, PATIENCE_S, cluster
from stamped import PARTS, stamps

HERE = Path(__file__).resolve().parent
TURNS = int(1_500 * float(os.environ.get("SCALE", "1")))
# Tasks take milliseconds. Shorter: a busy machine alone makes a shard wait so long. Longer: the controller would have to be away for longer.
WAIT_S = 1.5
AWAY_S = (3, 6)
SILENCE = "30s"


def longest_wait(folder, since, until):
    """The longest time in which some shard ran nothing in between, but for shards that have done all they had to."""
    longest = 0.0
    for tasks in stamps(folder).values():
        ends = [since, *(end for _, end in tasks if since < end < until)]
        # A shard that comes to the program's end runs nothing more.
        ends += [until] if not has_done(tasks) else []
        longest = max(longest, *(later - earlier for earlier, later in zip(ends, ends[1:], strict=False)), 0.0)
    return longest


def has_done(tasks):
    return len(tasks) >= TURNS


def all_done(folder):
    found = stamps(folder)
    return len(found) == PARTS and all(map(has_done, found.values()))


class Round:
    def __init__(self, it, number, rng):
        self.it, self.rng, self.told = it, rng, it.folder / f"stamps{number}"
        self.late = number % 2 == 1
        # Events of a controller go with it, so those of this job are the ones since now.
        self.begun, self.waits = time.time(), []
        self.bits = []
        self.job = it.job(HERE / "stamped.py", "steps", self.told, str(TURNS))

    def runs(self):
        return self.job.poll() is None

    def go_on(self, seconds, until=lambda: False):
        return self.it.go_on(seconds, until=lambda: not self.runs() or until())

    def leave(self, until):
        """The controller is killed, and stays away until something holds."""
        self.it.brings = False
        gone = time.time()
        self.it.kill(self.it.controller)
        until()
        back = time.time()
        self.it.brings = True
        self.it.look_after()
        self.waits.append(longest_wait(self.told, gone, back))
        return back

    def wander(self):
        self.go_on(self.rng.uniform(*AWAY_S))

    def wait_for_the_end(self):
        self.go_on(PATIENCE_S, until=lambda: all_done(self.told))

    def saved(self):
        return bool(self.it.events.of("snapshot-taken", since=self.begun))

    def run(self):
        """What went wrong."""
        self.go_on(ASK_S, until=self.saved)
        self.go_on(self.rng.uniform(0, 2))
        if not self.runs():
            return ["the job was over before"]
        if self.late:
            self.leave(self.wait_for_the_end)
        else:
            back = self.leave(self.wander)
            self.go_on(ASK_S, until=lambda: self.it.events.of("job-begun", "job-adopted", since=back))
            self.lose_a_worker()
        return self.end()

    def lose_a_worker(self):
        """A worker is killed, and the controller while the job begins again."""
        since = time.time()
        self.go_on(ASK_S, until=lambda: self.it.events.of("snapshot-taken", since=since))
        if not self.runs():
            return
        self.it.kill(self.it.workers[self.rng.choice(sorted(self.it.workers))])
        self.go_on(self.rng.uniform(0.3, 1.5))
        # Shards that were lost have nobody else to wait for.
        self.leave(lambda: self.go_on(1))
        self.waits.pop()

    def end(self):
        out, told = self.job.communicate(timeout=PATIENCE_S)
        wrong = [f"a shard ran nothing for {seconds:.1f} s without the controller" for seconds in self.waits if seconds > WAIT_S]
        self.bits = out.splitlines()[-1:]
        return wrong if self.job.returncode == 0 else [*wrong, f"the job failed: {told[-2000:]}"]


def controller(expected):
    """ROUNDS rounds, half of them with a controller that comes back after the job's last task."""
    rng = random.Random(int(os.environ.get("SEED", "1")))
    rounds, bad, wrong, waits, killed = int(os.environ.get("ROUNDS", "100")), set(), [], [], 0
    with bridged(6, rate="10gbit") as hosts, tempfile.TemporaryDirectory() as folder, cluster(hosts, folder, silence=SILENCE) as it:
        it.whole()
        for number in range(rounds):
            this = Round(it, number, rng)
            its = this.run()
            if this.bits != [expected]:
                its.append("other bits")
            waits += this.waits
            its += it.wrong
            it.wrong.clear()
            if its:
                bad.add(number)
                wrong += [f"round {number}: {what}" for what in its]
            print(f"round {number}: waits {this.waits}, {its}", file=sys.stderr, flush=True)
            it.whole()
        killed = sum(event["kind"] == "took-over" for event in it.events.all) - 1
        left = it.end()
    return {
        "wrong": len(bad) + len(left), "what": wrong + left, "rounds": rounds, "took_over": killed,
        "longest_wait_s": max(waits, default=0.0)}
