"""
Jobs that survive: what is injected into them, and what becomes of them.

    alone    scripts of one process (survivors.py), killed at random moments after two snapshots and started again
    faults   jobs on four workers: workers and controllers that are killed, a store that is full

KILLS says how often each is killed (20 unless told), FAULTS how many faults each job of a cluster is to have seen (200), SCALE how long they are beside a
minute and more (1), JOBS which of them. The last line is JSON.
"""

import argparse
import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
COMMAND = HERE.parents[1] / ".venv" / "bin" / "brambling"
KILLS = int(os.environ.get("KILLS", "20"))
SCALE = float(os.environ.get("SCALE", "1"))
EVERY_S = 3
# What may be done twice for a kill beyond what is between snapshots: reading, starting, and the tasks that were under way.
BEYOND_S = 5
PATIENCE_S = 900


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


class Cluster:
    """A controller that stands in a state, and four workers, all of which are started again when they end."""

    def __init__(self, folder):
        self.folder, self.store = Path(folder), Path(folder) / "store"
        self.store.mkdir()
        # A store of its own size can be filled.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", self.store], check=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.environment = {**os.environ, "XDG_STATE_HOME": str(folder), "BRAMBLING_SNAPSHOT_EVERY": "2s", "BRAMBLING_MEMORY": "2GiB"}
        self.controller = None
        self.workers = [None] * 4
        self.look_after()

    def start(self, *words):
        log = (self.folder / f"{words[0]}.log").open("a")
        return subprocess.Popen([COMMAND, *words], env=self.environment, stdout=log, stderr=log)

    def look_after(self):
        if self.controller is None or self.controller.poll() is not None:
            state = str(self.store / "state")
            self.controller = self.start("controller", "--bind", self.address, "--state", state)
        for at, worker in enumerate(self.workers):
            if worker is None or worker.poll() is not None:
                token = ["--token-file", str(self.token())]
                self.workers[at] = self.start("worker", "--controller", self.address, "--threads", "1", *token)

    def token(self):
        path = self.folder / "token"
        kept = self.store / "state" / "token"
        while not path.exists():
            if kept.exists() and len(kept.read_text()) >= 64:
                path.write_text(kept.read_text())
            time.sleep(0.01)
        return path

    def events(self):
        told = subprocess.run(
            [COMMAND, "events", "--json", "--controller", self.address, "--token-file", str(self.token())],
            env=self.environment, capture_output=True, text=True, timeout=60)
        return [json.loads(line) for line in told.stdout.splitlines()]

    def job(self, name):
        command = [COMMAND.with_name("python"), HERE / "survivors.py", name, str(SCALE), self.address]
        environment = {**self.environment, "BRAMBLING_TOKEN_FILE": str(self.token())}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def inject(self, kind, rng):
        if kind == "controller":
            self.controller.kill()
            self.controller.wait()
        elif kind == "full":
            with contextlib.suppress(OSError), (self.store / "filler").open("wb") as filler:
                while True:
                    filler.write(bytes(1 << 20))
            time.sleep(5)
            (self.store / "filler").unlink()
        else:
            for worker in rng.sample(self.workers, 2 if kind == "two" else 1):
                worker.kill()
                worker.wait()

    def end(self):
        for process in [*self.workers, self.controller]:
            process.terminate()
        left = [process.args[1] for process in [*self.workers, self.controller] if process.wait(60) is None]
        subprocess.run(["umount", self.store], check=True)
        return left


KINDS = ("worker", "two", "controller", "full")


def survive(name, expected, faults, rng):
    """One job from its start to its end, with a fault every few seconds: how many, what went wrong, and how it went on."""
    wrong, injected, went_on = [], [], {"snapshot": 0, "start": 0}
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(folder)
        job = cluster.job(name)
        lines = []
        listening = threading.Thread(target=lambda: lines.extend(job.stderr))
        listening.start()
        until = time.monotonic() + PATIENCE_S
        while job.poll() is None and time.monotonic() < until:
            pause = time.monotonic() + rng.uniform(3, 8)
            while job.poll() is None and time.monotonic() < pause:
                cluster.look_after()
                time.sleep(0.1)
            if job.poll() is None and len(injected) < faults:
                injected.append(rng.choice(KINDS))
                cluster.inject(injected[-1], rng)
        if job.poll() is None:
            wrong.append(f"{name}: it hangs after {injected}")
            job.kill()
        bits = job.stdout.read().splitlines()[-1:]
        job.wait()
        listening.join()
        said = "".join(lines)
        went_on["snapshot"] = said.count("goes on from snapshot")
        went_on["start"] = said.count("the job begins again")
        if bits != [expected]:
            wrong.append(f"{name}: other bits after {injected}: {said[-2000:]}")
        wrong += [f"{name}: {left} was left behind" for left in cluster.end()]
    return injected, wrong, went_on


def faults():
    rng = random.Random(int(os.environ.get("SEED", "1")))
    wanted = int(os.environ.get("FAULTS", "200"))
    names = os.environ.get("JOBS", "kmeans logistic pagerank program").split()
    wrong, rows = [], {}
    for name in names:
        expected, _ = ended(start(name, None))
        seen, from_a_cut, from_the_start = [], 0, 0
        while len(seen) < wanted:
            injected, its, went_on = survive(name, expected, wanted - len(seen), rng)
            wrong += its
            seen += injected
            from_a_cut += went_on["snapshot"]
            from_the_start += went_on["start"]
            print(f"{name}: {len(seen)} faults, {from_a_cut} from a cut, {from_the_start} from the start, {len(wrong)} wrong", file=sys.stderr, flush=True)
            if not injected or its:
                break
        rows[name] = {"faults": {kind: seen.count(kind) for kind in KINDS}, "from_a_cut": from_a_cut, "from_the_start": from_the_start}
    return {"unlike": len(wrong), "what": wrong, "jobs": rows}


MODES = {"alone": alone, "faults": faults}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=sorted(MODES))
    mode = parser.parse_args().mode
    print(json.dumps(MODES[mode]()))


if __name__ == "__main__":
    sys.exit(main())
