"""What is done to a cluster: the kinds of faults, and the moments at which they come; for `recovery_faults.py`."""

import contextlib
import signal
import time

from recovery_cluster import FENCED

# Longer than `silence` of these clusters.
STOPPED_S = 7
# Within this a worker that is fenced has ended, whatever else runs on this machine.
ENDS_S = 60
FULL_S = 5
SERVER_S = (0.2, 5)
# A job that begins again reads and places before it runs; events tell only when it begins.
BEGINS_S = 1


def worker(cluster, rng):
    kill_workers(cluster, rng, 1)


def two(cluster, rng):
    kill_workers(cluster, rng, 2)


def kill_workers(cluster, rng, count):
    alive = [it for it in cluster.workers.values() if it.poll() is None]
    for it in rng.sample(alive, min(count, len(alive))):
        cluster.kill(it)


def controller(cluster, _):
    # Who takes over begins to count anew how long a worker has been silent, or cut off.
    cluster.expected.clear()
    cluster.kill(cluster.controller)


def stop(cluster, rng):
    """A worker is stopped for longer than `silence`, and wakes up."""
    alive = [it for it in cluster.workers.values() if it.poll() is None]
    stopped = rng.choice(alive)
    # Who is not known to the controller that stands, as one that has just taken over, is fenced by nobody.
    if cluster.knows(stopped):
        cluster.expected[stopped.pid] = FENCED
    stopped.send_signal(signal.SIGSTOP)

    def wake():
        stopped.send_signal(signal.SIGCONT)
        cluster.later(ENDS_S, has_ended)

    def has_ended():
        if stopped.poll() is None and cluster.expected.pop(stopped.pid, None):
            cluster.wrong.append(f"process {stopped.pid} was stopped for {STOPPED_S} s, and goes on")

    cluster.later(STOPPED_S, wake)


def cut(cluster, rng):
    """The link of two workers is cut, until a machine comes in the place of one."""
    # Of two cuts at once a worker might be left that reaches nobody.
    cluster.go_on(ENDS_S, until=lambda: not cluster.cut)
    pair = tuple(rng.sample(sorted(cluster.workers), 2))
    cluster.cut_link(pair)

    def has_ended():
        # The same two hosts may have been cut off from each other again meanwhile.
        if cluster.cut is pair:
            cluster.wrong.append(f"workers on hosts {pair} cannot reach each other, and both go on")
            cluster.mend()

    cluster.later(ENDS_S + STOPPED_S, has_ended)


def full(cluster, _):
    filler = cluster.store / "filler"
    # A controller that begins now finds no room, says so, ends with 1, and is started again.
    cluster.refuses_until = time.monotonic() + 2 * FULL_S
    with contextlib.suppress(OSError), filler.open("wb") as file:
        while True:
            file.write(bytes(1 << 20))
    cluster.go_on(FULL_S)
    filler.unlink()


def server(cluster, rng):
    """The S3 server is killed, and started again a while later."""
    it = cluster.server
    # As of a full store: a controller that begins meanwhile reaches nobody.
    cluster.refuses_until = time.monotonic() + 2 * SERVER_S[1]
    cluster.kill(it.process)
    time.sleep(rng.uniform(*SERVER_S))
    it.start()


KINDS = {"worker": worker, "two": two, "controller": controller, "stop": stop, "cut": cut, "full": full}
S3_KINDS = {**KINDS, "server": server}

# ---- moments


def running_job(cluster):
    submitted = cluster.events.of("job-submitted")
    return submitted[-1]["job"] if submitted else None


def saving(cluster, rng):
    """A save is asked for, and begins."""
    if job := running_job(cluster):
        cluster.begin("snapshot", job, "--patience", "5")
        asked = time.time()
        time.sleep(rng.uniform(0.05, 0.3))
        return asked
    return None


def moving(cluster, rng):
    """Moves are asked for."""
    if not running_job(cluster):
        return None
    names = [worker["id"] for worker in cluster.status()["workers"]]
    for name in names:
        cluster.begin("move", name, "--shard", f"0.{rng.randrange(4)}")
    asked = time.time()
    time.sleep(rng.uniform(0.05, 0.3))
    return asked


def moments_of(at, asked, events):
    """What was under way when a fault came, by events: a save, a move, a recovery, a takeover."""
    found = set()
    took = [event for event in events if event["kind"] == "snapshot-taken"]
    if any(event["time"] - event["seconds"] <= at <= event["time"] for event in took):
        found.add("save")
    for moment, kind in (("save", "snapshot-taken"), ("move", "shard-moved")):
        # Asked for, and not done when the fault came.
        since = asked.get(moment)
        if since and not any(event["kind"] == kind and since <= event["time"] < at for event in events):
            found.add(moment)
    if between(events, at, ("job-lost", "worker-lost", "worker-fenced"), "job-begun"):
        found.add("recovery")
    return found


def between(events, at, first, last):
    """Whether the newest event of the first kinds is not followed by a last one that is over."""
    before = [event["time"] for event in events if event["kind"] in first and event["time"] <= at]
    if not before:
        return False
    ends = [event["time"] for event in events if event["kind"] == last and event["time"] >= before[-1]]
    return not ends or at <= min(ends) + BEGINS_S
