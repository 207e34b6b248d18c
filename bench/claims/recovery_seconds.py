"""
What a death costs, and whether workers that get no CPU are taken for dead; for `recovery.py`.

A shard is known to run again by the time stamps that its kernel writes (stamped.py). What workers read from the store is seen from
outside: `rchar` of /proc/PID/io counts what a process reads of files, and of sockets only what it reads as if they were files. A
directory is the store, in memory unless STORE names another folder; its rate is that of one reader of the same objects.
"""

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cgroups import NoCgroupsError, Quota
from hosts import bridged
from recovery_cluster import ASK_S, PATIENCE_S, cluster
from stamped import stamps

HERE = Path(__file__).resolve().parent
PARTS, PART_BYTES = 16, 8 << 20
ENDLESS = 1_000_000
# Of the store's rate, so much is to be used at least.
RATE_SHARE = 0.7
CHUNK_BYTES = 1 << 20

# ---- a death


def read_bytes(pids):
    """What processes have read so far."""
    return sum(int(re.search(r"rchar: (\d+)", Path(f"/proc/{pid}/io").read_text())[1]) for pid in pids)


def store_rate(store):
    """Bytes a second, of one reader."""
    whole, begun, buffer = 0, time.monotonic(), bytearray(CHUNK_BYTES)
    for path in store.rglob("*"):
        # Objects go while they are looked through.
        if path.is_file():
            try:
                with path.open("rb", buffering=0) as file:
                    while got := file.readinto(buffer):
                        whole += got
            except FileNotFoundError:
                continue
    return whole / (time.monotonic() - begun)


def all_ran(folder, parts, since):
    """When the last of all shards had begun a task after that, or None."""
    found = stamps(folder)
    firsts = [next((begin for begin, _ in found.get(shard, ()) if begin > since), None) for shard in range(parts)]
    return None if None in firsts else max(firsts)


def holders(it):
    """Workers that have shards: one that has just come may have none, and its death is no loss."""
    workers = it.status()["workers"]
    pids = {worker["pid"] for worker in workers if worker["shards"]}
    return [worker for _, worker in sorted(it.workers.items()) if worker.pid in pids]


def one_death(it, folder, rng):
    """
    A worker is killed after a snapshot: seconds until all shards run again, and bytes, of what was lost and of what was read. Where shards
    have moved since the snapshot the victim has saved others than it holds: what is read is told then, and not judged.
    """
    since = time.time()
    # After the first of them whoever came last has got its shards.
    if not it.go_on(ASK_S, until=lambda: len(it.events.of("snapshot-taken", since=since)) >= 2):
        raise SystemExit("recovery.py: no snapshots are taken")
    rate = store_rate(it.store)
    it.go_on(rng.uniform(0.2, 1))
    it.replaces = False
    victim = rng.choice(holders(it))
    others = [worker.pid for worker in it.workers.values() if worker is not victim]
    before, killed = read_bytes(others), time.time()
    it.kill(victim)
    if not it.go_on(ASK_S, until=lambda: it.events.of("job-begun", since=killed)):
        raise SystemExit("recovery.py: the job does not begin again")
    # Where running shards are kept, those that were lost are the last to run.
    begun = it.events.of("job-begun", since=killed)[0]
    if not it.go_on(ASK_S, until=lambda: all_ran(folder, PARTS, begun["time"])):
        raise SystemExit("recovery.py: not all shards run again")
    seconds, read = all_ran(folder, PARTS, begun["time"]) - killed, read_bytes(others) - before
    lost = int(re.search(r"with it (\d+) of", it.events.of("job-lost", since=killed)[0]["cause"])[1])
    it.replaces = True
    it.whole()
    taken = [event for event in it.events.of("snapshot-taken") if event["cut"] == begun["cut"]]
    lost_bytes = taken[0]["bytes"] * lost / PARTS if taken else 0
    # By now the events that came late are there.
    saved = taken[0]["time"] if taken else 0.0
    moved = len([event for event in it.events.of("shard-moved", since=saved) if event["time"] < begun["time"]])
    return {
        "seconds": seconds, "lost_shards": lost, "lost_bytes": lost_bytes, "read_bytes": read, "store_bytes_per_s": rate,
        "from_a_cut": bool(taken), "moved_since": moved, "beyond_reading_s": seconds - lost_bytes / (RATE_SHARE * rate),
        "bytes_off": abs(read / lost_bytes - 1) if lost_bytes else None}


def judged(rounds):
    """Those in which shards were where they had been saved."""
    return [it for it in rounds if not it["moved_since"]]


def death():
    """So many deaths of one job that ROUNDS of them can be judged. It rewrites all that it has in each turn."""
    rng, rounds = random.Random(int(os.environ.get("SEED", "1"))), []
    size = None if "STORE" in os.environ else 4 << 30
    with bridged(6, rate="10gbit") as hosts, tempfile.TemporaryDirectory(dir=os.environ.get("STORE")) as folder:
        with cluster(hosts, folder, store_bytes=size) as it:
            it.whole()
            told = it.folder / "stamps"
            job = it.job(HERE / "stamped.py", "heavy", told, str(ENDLESS), str(PARTS), str(PART_BYTES))
            wanted = int(os.environ.get("ROUNDS", "10"))
            while len(judged(rounds)) < wanted and len(rounds) < 3 * wanted:
                rounds.append(one_death(it, told, rng))
                print(rounds[-1], file=sys.stderr, flush=True)
            job.kill()
            job.communicate()
            wrong = it.wrong
    return {
        "beyond_reading_s": max(it["beyond_reading_s"] for it in rounds),
        # A job that began at its start has read nothing that it should.
        "bytes_off": max((1.0 if it["bytes_off"] is None else it["bytes_off"] for it in judged(rounds)), default=1.0),
        "judged": len(judged(rounds)), "wrong": wrong, "rounds": rounds}


# ---- no CPU

STARVED_S = 15
TURNS = 2_000
BUSY_OF_EACH_CPU = 8


class Starving(Quota):
    """A millisecond in each second, which is as little as the system gives."""

    PERIOD_US = 1_000_000


def by_quota(it):
    quotas = [Starving(f"brambling-starved-{os.getpid()}-{at}", 0.001) for at in it.workers]
    for quota, worker in zip(quotas, it.workers.values(), strict=True):
        quota.add(worker.pid)
    it.go_on(STARVED_S)
    for quota in quotas:
        quota.set(len(it.workers))
    return quotas


def by_others(it):
    """Busy processes, each of which gets 87 times the CPU that a worker gets."""
    words = ["nice", "-n", "-20", sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(words) for _ in range(BUSY_OF_EACH_CPU * os.cpu_count())]
    it.go_on(STARVED_S)
    for process in busy:
        process.kill()
        process.wait()


def by_stops(it):
    for worker in it.workers.values():
        worker.send_signal(signal.SIGSTOP)
    it.go_on(STARVED_S)
    for worker in it.workers.values():
        worker.send_signal(signal.SIGCONT)


WAYS = {"quota": by_quota, "others": by_others, "stops": by_stops}


def starve(hosts, way, expected):
    """One job, whose workers get no CPU for a while: deaths, and what went wrong."""
    with tempfile.TemporaryDirectory() as folder, cluster(hosts, folder, silence="30s") as it:
        it.whole()
        job = it.job(HERE / "stamped.py", "steps", it.folder / "stamps", str(TURNS))
        it.go_on(ASK_S, until=lambda: it.events.of("snapshot-taken"))
        running = job.poll() is None
        quotas = WAYS[way](it) or []
        out, told = job.communicate(timeout=PATIENCE_S)
        wrong = [] if running else [f"{way}: the job was over before"]
        if out.splitlines()[-1:] != [expected]:
            wrong.append(f"{way}: other bits: {told[-2000:]}")
        # Whoever was taken for dead hears of it when it runs again.
        it.go_on(2)
        deaths = it.status()["deaths"]
        wrong += it.wrong
        left = it.end()
        for quota in quotas:
            quota.remove()
    return len(deaths), [*wrong, *left, *map(str, deaths)]


def starved(expected):
    """ROUNDS rounds of each of the ways (WAYS) in which a worker gets no CPU."""
    deaths, wrong, rows = 0, [], {}
    ways = os.environ.get("WAYS", " ".join(WAYS)).split()
    with bridged(6, rate="10gbit") as hosts:
        for way in ways:
            for _ in range(int(os.environ.get("ROUNDS", "5"))):
                try:
                    its, told = starve(hosts, way, expected)
                except NoCgroupsError as why:
                    its, told = 0, [f"{way} could not be tried: {why}"]
                deaths += its
                wrong += told
                rows[way] = rows.get(way, 0) + its
                print(f"{way}: {its} deaths, {told}", file=sys.stderr, flush=True)
    # What could not be tried, and a job that ends otherwise, count as well.
    return {"false_deaths": max(deaths, len(wrong)), "what": wrong, "ways": rows}
