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


def start(name, store):
    environment = {**os.environ, "BRAMBLING_SNAPSHOT_EVERY": f"{EVERY_S}s"}
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


def outlive(name, expected, seconds, kills, rng):
    """One script from its start to its end, killed up to so many times: kills, what went wrong, and the seconds of all its processes."""
    wrong, killed, spent = [], 0, 0.0
    with tempfile.TemporaryDirectory() as store:
        while True:
            before, begun = newest(store), time.monotonic()
            process = start(name, store)
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


def alone():
    rng = random.Random(1)
    wrong, rows = [], {}
    for name in ("flights", "program", "kmeans"):
        begun = time.monotonic()
        expected, _ = ended(start(name, None))
        seconds = time.monotonic() - begun
        killed, twice = 0, []
        while killed < KILLS:
            kills, its, spent = outlive(name, expected, seconds, KILLS - killed, rng)
            wrong += its
            killed += kills
            if kills == 0:
                wrong.append(f"{name}: it was over before it could be killed")
                break
            twice.append((spent - seconds) / kills)
            if twice[-1] > EVERY_S + BEYOND_S:
                wrong.append(f"{name}: {twice[-1]:.1f} s of work done twice for a kill")
            print(f"{name}: {killed} kills, {twice[-1]:.2f} s twice for each, {len(wrong)} wrong", file=sys.stderr, flush=True)
        rows[name] = {"seconds": seconds, "kills": killed, "twice_s": twice}
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
