"""
What snapshots every 5 turns cost beside none, in interleaved pairs; for `recovery.py`.

Of models: the seconds of a job from its beginning to its end by `events`, less those of the same job with PLACING turns, so what comes
before the turns stands apart. Of gaps between a shard's tasks: the programs of stamped.py do what these models do, and each task says when
it ran; the first turns do not count. The program that rewrites 1 GB (REWRITES bytes) in each turn is told, not judged.

The store is on the disk, in the folder STORE names or the system's for temporary files. PAIRS is 7 unless told, and
JOBS all three models.
"""

import os
import statistics
import sys
import tempfile
from pathlib import Path

import survivors
from hosts import bridged
from recovery_cluster import ASK_S, PATIENCE_S, cluster
from stamped import stamps

HERE = Path(__file__).resolve().parent
EVERY = "5 turns"
NAMES = os.environ.get("JOBS", "logistic kmeans pagerank").split()
SCALE = float(os.environ.get("SCALE", "1"))
PLACING = 10
STAMPED_TURNS = 400
REWRITES, PARTS, REWRITES_TURNS = int(os.environ.get("REWRITES", str(1 << 30))), 8, 60


def ran(hosts, every, *words):
    """A job on a cluster of its own: its seconds, and how many snapshots it took. `words` may name {folder}."""
    with (
        tempfile.TemporaryDirectory(dir=os.environ.get("STORE")) as folder,
        cluster(hosts, folder, every=every, silence="30s", store_bytes=None, BRAMBLING_MEMORY="8GiB") as it,
    ):
        it.whole()
        words = [str(word).replace("{folder}", str(it.folder / "stamps")) for word in words]
        job = it.job(*words)
        _, told = job.communicate(timeout=PATIENCE_S)
        if job.returncode != 0:
            raise SystemExit(f"recovery.py: {told}")
        # A script may have several jobs: k-means looks for its first centres.
        jobs = len(it.status()["jobs"])
        if not it.go_on(ASK_S, until=lambda: len(it.events.of("job-ended")) >= jobs):
            raise SystemExit("recovery.py: not all jobs end")
        begun, over = it.events.of("job-begun")[0]["time"], it.events.of("job-ended")[-1]["time"]
        found = stamps(it.folder / "stamps") if (it.folder / "stamps").exists() else {}
        return {"seconds": over - begun, "snapshots": len(it.events.of("snapshot-taken")), "stamps": found}


def pairs():
    """With snapshots and without, now this one first and now that one."""
    for at in range(int(os.environ.get("PAIRS", "7"))):
        yield (EVERY, "off") if at % 2 == 0 else ("off", EVERY)


def share_of(on_s, off_s):
    return on_s / off_s - 1


def share(hosts, name):
    """Of the run time of a model, after it was placed."""
    turns = SCALE * survivors.TURNS[name]
    rows, placing = [], []
    for pair in pairs():
        # A turn that is not whole is none.
        long = {every: ran(hosts, every, HERE / "survivors.py", name, str(SCALE)) for every in pair}
        short = {every: ran(hosts, every, HERE / "survivors.py", name, str(PLACING / survivors.TURNS[name])) for every in pair}
        on, off = (long[every]["seconds"] - short[every]["seconds"] for every in (EVERY, "off"))
        rows.append({"on_s": on, "off_s": off, "share": share_of(on, off), "snapshots": long[EVERY]["snapshots"]})
        placing.append(short["off"]["seconds"])
        print(f"{name}: {rows[-1]}", file=sys.stderr, flush=True)
    return {
        "share": statistics.median(row["share"] for row in rows), "placing_s": statistics.median(placing), "turns": int(turns),
        "pairs": rows}


# ---- gaps


def gaps_and_task(found, skipped):
    """The 99th percentile of gaps between a shard's tasks, and the median of a task's times."""
    gaps, tasks = [], []
    for of_shard in found.values():
        settled = of_shard[skipped:]
        tasks += [end - begin for begin, end in settled]
        gaps += [later[0] - earlier[1] for earlier, later in zip(settled, settled[1:], strict=False)]
    return statistics.quantiles(gaps, n=100)[98], statistics.median(tasks)


def gap(hosts, name):
    turns = max(2 * PLACING, int(SCALE * STAMPED_TURNS))
    rows = []
    for pair in pairs():
        both = {every: ran(hosts, every, HERE / "stamped.py", name, "{folder}", str(turns)) for every in pair}
        (on, _), (off, task) = (gaps_and_task(both[every]["stamps"], PLACING) for every in (EVERY, "off"))
        rows.append({
            "on_s": on, "off_s": off, "task_s": task, "grows_by_tasks": (on - off) / task, "snapshots": both[EVERY]["snapshots"]})
        print(f"gaps of {name}: {rows[-1]}", file=sys.stderr, flush=True)
    return {"grows_by_tasks": statistics.median(row["grows_by_tasks"] for row in rows), "pairs": rows}


def settled_seconds(found):
    """From the end of the first turns to the last task's."""
    return max(tasks[-1][1] for tasks in found.values()) - max(tasks[PLACING][0] for tasks in found.values())


def rewrites(hosts):
    """The share for the program that rewrites all that it has."""
    rows, turns = [], max(2 * PLACING, int(SCALE * REWRITES_TURNS))
    for pair in pairs():
        words = ("heavy", "{folder}", str(turns), str(PARTS), str(REWRITES // PARTS))
        both = {every: ran(hosts, every, HERE / "stamped.py", *words) for every in pair}
        on, off = (settled_seconds(both[every]["stamps"]) for every in (EVERY, "off"))
        rows.append({"on_s": on, "off_s": off, "share": share_of(on, off), "snapshots": both[EVERY]["snapshots"]})
        print(f"rewrites: {rows[-1]}", file=sys.stderr, flush=True)
    return {"share": statistics.median(row["share"] for row in rows), "bytes": REWRITES, "pairs": rows}


def cost():
    with bridged(6, rate="10gbit") as hosts:
        shares = {name: share(hosts, name) for name in NAMES}
        gaps = {name: gap(hosts, name) for name in NAMES}
        told = rewrites(hosts)
    return {
        "largest_share": max(it["share"] for it in shares.values()),
        "gap_grows_by_tasks": max(it["grows_by_tasks"] for it in gaps.values()), "shares": shares, "gaps": gaps, "rewrites": told}
