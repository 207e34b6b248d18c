"""
Floods ports of a cluster with strangers: 200 connections a second by processes that know no token, held open for as long as they may.

    python bench/claims/flood.py [--seconds 60]        the controller's port, while others connect, join and ask
    python bench/claims/flood.py --workers-ports       workers' ports, while a job runs with the flood and without it, in turns

A stranger says nothing, a bit of an opening, a whole one, a whole one with a wrong proof, or what is no greeting. One process of one thread makes
all of them, without waiting for any; its CPU time is told (`flooder_cpu_share`), because it has to share the machine's processors with the
cluster. Half of the attempts reach the controller by its Unix socket, as processes of its user do, and half by TCP, where strangers
come in as well. The last line is JSON.
"""

import argparse
import collections
import contextlib
import itertools
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "python/tests"))
from processes import PATIENCE_S, address_of, command, environment, ports_of, running  # noqa: E402

import brambling as br  # noqa: E402

RATE = 200
# Four seconds of it: nearly as long as any of them may stay.
HELD_OPEN = 800
ATTEMPTS = 50
ROUNDS = 7
JOB_S = 1.5
# Until no place is free.
FLOODED_S = 2.0

# An opening as the first version of the protocol has it, and a proof that is none.
OPENING = b"BRMBLING" + bytes([2, 0]) + bytes(6) + os.urandom(32)
SAID = [b"", b"BRM", OPENING, OPENING + bytes(32), b"GET / HTTP/1.1\r\n\r\n"]


def strangers() -> None:
    """The flooding process: ports on its first line of input, then `on` and `off`, and the end."""
    # Without a buffer, which would keep words from `select`.
    words = os.fdopen(sys.stdin.fileno(), "rb", buffering=0, closefd=False)
    ports = itertools.cycle([int(port) for port in words.readline().split()])
    said = itertools.cycle(SAID)
    held: collections.deque[socket.socket] = collections.deque()
    made, is_on, due, begun, started, cpu = 0, False, 0.0, 0.0, 0.0, 0.0
    flooded_s = 0.0
    while True:
        # A word has come, or it is time for the next stranger.
        patience = max(0.0, due - time.monotonic()) if is_on else None
        if select.select([words], [], [], patience)[0]:
            word = (words.read(100) or b"").strip()
            if is_on:
                flooded_s += time.monotonic() - begun
                cpu += time.process_time() - started
            while held:
                held.pop().close()
            is_on, due = word == b"on", time.monotonic()
            begun, started = time.monotonic(), time.process_time()
            if not word:
                break
            continue
        stranger = socket.socket()
        stranger.setblocking(False)
        # On one machine a connection is there at once.
        stranger.connect_ex(("127.0.0.1", next(ports)))
        with contextlib.suppress(OSError):
            stranger.send(next(said))
        held.append(stranger)
        made += 1
        if len(held) > HELD_OPEN:
            held.popleft().close()
        due += 1 / RATE
    print(json.dumps({"strangers": made, "flooded_s": flooded_s, "cpu_s": cpu}))


class Flood:
    """A process that floods ports."""

    def __init__(self, ports: list[int]) -> None:
        arguments = [sys.executable, __file__, "--strangers"]
        self._process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._say(" ".join(map(str, ports)))

    def _say(self, word: str) -> None:
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def begin(self) -> None:
        self._say("on")
        time.sleep(FLOODED_S)

    def pause(self) -> None:
        self._say("off")
        time.sleep(FLOODED_S / 4)

    def end(self) -> dict:
        told, _ = self._process.communicate(timeout=PATIENCE_S)
        told = json.loads(told)
        return {
            "strangers": told["strangers"],
            "strangers_a_second": round(told["strangers"] / max(told["flooded_s"], 1e-9), 1),
            "flooder_cpu_share": round(told["cpu_s"] / max(told["flooded_s"], 1e-9), 4),
        }


def connects(address: str, file: Path) -> None:
    with br.connect(address, token_file=file) as cluster:
        assert len(cluster.status()["workers"]) >= 1


def asks(address: str, file: Path) -> None:
    arguments = ["status", "--controller", address, "--token-file", str(file)]
    said = subprocess.run(
        [sys.executable, "-m", "brambling", *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert said.returncode == 0, said.stderr


def joins(address: str, file: Path) -> None:
    arguments = ["worker", "--controller", address, "--token-file", str(file), "--threads", "1", "--memory", "64MB"]
    with command(os.environ["XDG_STATE_HOME"], *arguments) as worker:
        try:
            address_of(worker)
        finally:
            worker.terminate()
            worker.communicate(timeout=PATIENCE_S)


def attempted(bind: str, seconds: float, attempts: int) -> dict:
    """So many attempts while a cluster's controller is flooded."""
    state = os.environ["XDG_STATE_HOME"]
    arguments = ("cluster", "--workers", "1", "--threads", "1", "--bind", bind)
    kinds = [connects, connects, asks, connects, joins]
    worked, failed, slowest_s = 0, [], 0.0
    with running(state, *arguments) as (process, address):
        port, = ports_of(process.pid)
        file = Path(state) / "brambling/clusters" / (address.replace(":", "_") + ".toml")
        flood = Flood([port])
        flood.begin()
        begun = time.monotonic()
        for attempt in range(attempts):
            time.sleep(max(0.0, begun + seconds * attempt / attempts - time.monotonic()))
            kind = kinds[attempt % len(kinds)]
            started = time.monotonic()
            try:
                kind(f"127.0.0.1:{port}", file)
                worked += 1
            except (AssertionError, br.Error, subprocess.TimeoutExpired) as error:
                failed.append(f"{kind.__name__}: {error}".strip())
            slowest_s = max(slowest_s, time.monotonic() - started)
        return {"worked": worked, "failed": failed, "slowest_s": round(slowest_s, 2), **flood.end()}


def controllers(seconds: float) -> dict:
    by = {
        way: attempted(bind, seconds / 2, ATTEMPTS // 2)
        for way, bind in (("unix", "127.0.0.1:0"), ("tcp", "0.0.0.0:0"))
    }
    return {"worked": sum(way["worked"] for way in by.values()), "attempts": ATTEMPTS, "by": by}


def job_s(turns: int) -> float:
    """Seconds of a job whose workers wait for each other at every turn."""
    p = br.Program("counted")
    x = p.dataset("x", value=0, partitions=4)
    with p.loop(turns):
        p.update(x, lambda x, total: total // 4 + 1, p.all_reduce("sum", x))
    begun = time.monotonic()
    found = p.run()["x"]
    taken_s = time.monotonic() - begun
    assert found == [turns] * 4, found
    return taken_s


def workers(seconds: float) -> dict:
    arguments = ("cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0")
    with running(os.environ["XDG_STATE_HOME"], *arguments) as (_, address), br.connect(address) as cluster:
        ports = [port for worker in cluster.status()["workers"] for port in ports_of(worker["pid"])]
        assert len(ports) == 2, ports
        flood = Flood(ports)
        turns = 100
        while (taken_s := job_s(turns)) < JOB_S / 4:
            turns *= 2
        turns = round(turns * JOB_S / taken_s)
        # A minute of flood, or less for a smoke: as many jobs as fit, two at least.
        rounds = max(2, min(ROUNDS, int(seconds / (JOB_S + FLOODED_S))))
        calm, flooded = [], []
        for _ in range(rounds):
            flood.pause()
            calm.append(job_s(turns))
            flood.begin()
            flooded.append(job_s(turns))
        told = flood.end()
    slower = statistics.median(flooded) / statistics.median(calm)
    return {
        "slower": round(slower, 3), "rounds": rounds, "turns": turns,
        "calm_s": [round(taken_s, 3) for taken_s in calm], "flooded_s": [round(taken_s, 3) for taken_s in flooded], **told,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers-ports", action="store_true")
    parser.add_argument("--strangers", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.strangers:
        strangers()
        return
    with tempfile.TemporaryDirectory() as state:
        os.environ.update(environment(state))
        print(json.dumps(workers(asked.seconds) if asked.workers_ports else controllers(asked.seconds)))


if __name__ == "__main__":
    main()
