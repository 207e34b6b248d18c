"""
Jobs that survive: what is injected into them, and what becomes of them.

    alone       scripts of one process (survivors.py), killed at random moments after two snapshots and started again
    faults      jobs on four workers: workers and controllers that are killed, workers that are stopped, links that are cut, a full store
    s3          the same with an S3 server as the store, which is killed as well
    death       what a worker's death costs: seconds, and bytes that are read from the store
    starved     workers that get no CPU for 15 s: who is taken for dead
    cost        snapshots every 5 turns beside none
    controller  jobs whose controller is killed, and comes back or does not

KILLS says how often each is killed (20 unless told), FAULTS how many faults each job of a cluster is to have seen (200; of s3, all jobs
together 100), ROUNDS how many rounds `death` (10), `starved` (5) and `controller` (100) have, SCALE how long jobs are beside a minute and
more (1), JOBS which of them, KINDS which
faults, SEED what is drawn. All but `alone` need root. The last line is JSON.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "python/tests"))
import recovery_controller  # noqa: E402
import recovery_cost  # noqa: E402
import recovery_faults  # noqa: E402
import recovery_seconds  # noqa: E402
from recovery_cluster import COMMAND, PATIENCE_S  # noqa: E402

KILLS = int(os.environ.get("KILLS", "20"))
SCALE = float(os.environ.get("SCALE", "1"))
EVERY_S = 3
# What may be done twice for a kill beyond what is between snapshots: reading, starting, and the tasks that were under way.
BEYOND_S = 5


def start(name, store, **environment):
    environment = {**os.environ, "BRAMBLING_SNAPSHOT_EVERY": f"{EVERY_S}s", **environment}
    options = [] if store is None else ["--store", store]
    command = [COMMAND, "run", *options, HERE / "survivors.py", name, str(SCALE)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def ended(process):
    """The bits, and what was told."""
    out, told = process.communicate(timeout=PATIENCE_S)
    if process.returncode != 0:
        sys.exit(f"recovery.py: {told}")
    return out.splitlines()[-1], told


def newest(store):
    """How many snapshots and results of jobs were made so far."""
    return sum(int(path.name) for path in Path(store).glob("*/*/manifests/*"))


def tasks_told(path):
    """Tasks of the jobs that ended in some process, and of the largest of them. A job that is read tells what it told when it ran."""
    tasks = [int(line.split()[0]) for line in set(Path(path).read_text().splitlines())]
    return sum(tasks), max(tasks)


def outlive(name, expected, kills, rng, tells):
    """One script from its start to its end, killed up to so many times: kills, what went wrong, and the seconds of all its processes."""
    wrong, killed, spent = [], 0, 0.0
    with tempfile.TemporaryDirectory() as store:
        while True:
            before, begun = newest(store), time.monotonic()
            process = start(name, store, TELLS=tells)
            until = begun + PATIENCE_S
            while process.poll() is None and newest(store) < before + 2 and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(rng.uniform(0, 2 * EVERY_S))
            if killed < kills and process.poll() is None:
                process.kill()
                process.communicate()
                killed += 1
                spent += time.monotonic() - begun
                continue
            bits, told = ended(process)
            spent += time.monotonic() - begun
            if bits != expected:
                wrong.append(f"{name}: other bits")
            if killed and newest(store) > 0:
                wrong.append(f"{name}: something is left in the store")
            # Where the last kill came between two jobs of a script, the next one begins at its start.
            if killed and name != "flights" and "goes on from its snapshot" not in told:
                wrong.append(f"{name}: it began at turn 0")
            return killed, wrong, spent


def survives(name, folder, rng):
    """One script, started again and again until it was killed so many times: what went wrong, and its figures."""
    begun = time.monotonic()
    expected, _ = ended(start(name, None, TELLS=f"{folder}/undisturbed"))
    seconds = time.monotonic() - begun
    tasks, _ = tasks_told(f"{folder}/undisturbed")
    wrong, killed, twice, longer = [], 0, [], []
    while killed < KILLS:
        tells = f"{folder}/{len(twice)}"
        kills, its, spent = outlive(name, expected, KILLS - killed, rng, tells)
        wrong += its
        killed += kills
        if kills == 0:
            wrong.append(f"{name}: it was over before it could be killed")
            break
        longer.append((spent - seconds) / kills)
        twice.append(longer[-1])
        # Beside its jobs this script has work of its own, which each start does again and no snapshot can keep: its tasks are counted.
        if name == "flights":
            told, largest = tasks_told(tells)
            # Of the job that a kill breaks off nobody tells: it is one at most.
            twice[-1] = ((told - tasks) / kills + largest) * seconds / tasks
        if twice[-1] > EVERY_S + BEYOND_S:
            wrong.append(f"{name}: {twice[-1]:.1f} s of work done twice for a kill")
        so_far = f"{killed} kills, {twice[-1]:.2f} s twice for each, {longer[-1]:.2f} s longer, {len(wrong)} wrong"
        print(f"{name}: {so_far}", file=sys.stderr, flush=True)
    return wrong, {"seconds": seconds, "tasks": tasks, "kills": killed, "twice_s": twice, "longer_s": longer}


def alone():
    rng = random.Random(1)
    wrong, rows = [], {}
    for name in os.environ.get("JOBS", "flights program kmeans").split():
        with tempfile.TemporaryDirectory() as folder:
            its, rows[name] = survives(name, folder, rng)
            wrong += its
    return {"wrong": len(wrong), "what": wrong, "scripts": rows}


def steps_bits(turns):
    """Those of `steps` of stamped.py in a run that nobody disturbs."""
    with tempfile.TemporaryDirectory() as folder:
        command = [COMMAND.with_name("python"), HERE / "stamped.py", "steps", folder, str(turns)]
        environment = {**os.environ, "NAP_S": "0"}
        return ended(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment))[0]


def bits_of(name):
    """Those of a run that nobody disturbs."""
    return ended(start(name, None))[0]


MODES = {
    "alone": alone,
    "faults": lambda: recovery_faults.faults(bits_of),
    "death": recovery_seconds.death,
    "starved": lambda: recovery_seconds.starved(steps_bits(recovery_seconds.TURNS)),
    "controller": lambda: recovery_controller.controller(steps_bits(recovery_controller.TURNS)),
    "cost": recovery_cost.cost,
    "s3": lambda: recovery_faults.s3(bits_of),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=sorted(MODES))
    mode = parser.parse_args().mode
    # What was made for it goes with it: processes, hosts and mounts.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(json.dumps(MODES[mode]()))


if __name__ == "__main__":
    sys.exit(main())
