"""
Attacks every listening port of a cluster for so many seconds while jobs run: random bytes, recorded greetings and frames again, cut
short or damaged, and connections that say nothing.

    python bench/claims/hostile.py SECONDS

Fails when a job gives another result, a process ends, says that it panicked, or keeps memory.
"""

import contextlib
import json
import os
import random
import re
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "python/tests"))
from processes import is_alive, ports_of, resident_kb, running  # noqa: E402
from test_cluster import fitted_and_ranked  # noqa: E402
from test_travel import bits  # noqa: E402

import brambling as br  # noqa: E402

ATTACKERS = 4
# What a process may have more at the end than after the first tenth.
GROWTH_KB = 16_384
HELD_OPEN = 20


class Recorder:
    """Stands between a client and a port, and keeps what the client says."""

    def __init__(self, port: int) -> None:
        self.said = b""
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:{}".format(self._listener.getsockname()[1])
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(("127.0.0.1", self._port))
        threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()
        self._pass(client, server, True)

    def _pass(self, source: socket.socket, to: socket.socket, keeps: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if keeps:
                    self.said += data
                to.sendall(data)


def recorded(port: int, token_file: Path) -> bytes:
    """What an honest client says to a controller."""
    recorder = Recorder(port)
    with br.connect(recorder.address, token_file=token_file) as cluster:
        cluster.status()
    assert len(recorder.said) > 100
    return recorder.said


class Attack:
    """Threads that go on until they are told to stop."""

    def __init__(self, ports: list[int], said: bytes) -> None:
        self.attempts = 0
        self._ports, self._said = ports, said
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._go_on, args=(seed,)) for seed in range(ATTACKERS)]
        for thread in self._threads:
            thread.start()

    def _go_on(self, seed: int) -> None:
        dice = random.Random(seed)
        held: list[socket.socket] = []
        while not self._stop.is_set():
            with contextlib.suppress(OSError):
                stranger = socket.create_connection(("127.0.0.1", dice.choice(self._ports)), timeout=1)
                data = self._something(dice)
                for piece in range(0, len(data), 4_096):
                    stranger.sendall(data[piece : piece + 4_096])
                if dice.random() < 0.2:
                    held.append(stranger)
                else:
                    if dice.random() < 0.5:
                        stranger.settimeout(0.05)
                        stranger.recv(4_096)
                    stranger.close()
            while len(held) > HELD_OPEN:
                held.pop(0).close()
            self.attempts += 1
        for stranger in held:
            stranger.close()

    def _something(self, dice: random.Random) -> bytes:
        said = self._said
        match dice.randrange(5):
            case 0:
                return dice.randbytes(dice.randrange(1, 1 << dice.randrange(1, 16)))
            case 1:
                return said
            case 2:
                return said[: dice.randrange(len(said))]
            case 3:
                damaged = bytearray(said)
                for _ in range(dice.randrange(1, 5)):
                    damaged[dice.randrange(len(said))] ^= 1 << dice.randrange(8)
                return bytes(damaged)
            case _:
                return b""

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def main(seconds: float) -> None:
    expected = {name: bits(found) for name, found in fitted_and_ranked().items()}
    arguments = ("cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0")
    with running(os.environ["XDG_STATE_HOME"], *arguments) as (process, address), br.connect(address) as cluster:
        pids = [process.pid, *(worker["pid"] for worker in cluster.status()["workers"])]
        ports = [port for pid in pids for port in ports_of(pid)]
        assert len(ports) == len(pids), ports
        file, = (Path(os.environ["XDG_STATE_HOME"]) / "brambling/clusters").iterdir()
        attack = Attack(ports, recorded(ports[0], file))
        begun, jobs, before = time.monotonic(), 0, None
        try:
            while (passed := time.monotonic() - begun) < seconds:
                assert {name: bits(found) for name, found in fitted_and_ranked().items()} == expected
                jobs += len(expected)
                if before is None and passed > seconds / 10:
                    before = [resident_kb(pid) for pid in pids]
        finally:
            attack.stop()
        grown = [resident_kb(pid) - kb for pid, kb in zip(pids, before or [0] * len(pids), strict=True)]
        assert all(map(is_alive, pids)), "a process has ended"
        assert len(cluster.status()["workers"]) == 2
        assert before is None or max(grown) < GROWTH_KB, grown
        os.set_blocking(process.stderr.fileno(), False)
        said = b""
        with contextlib.suppress(BlockingIOError):
            said = os.read(process.stderr.fileno(), 1 << 20)
        assert not re.search(b"panicked|error", said), said
    print(json.dumps({"seconds": seconds, "attempts": attack.attempts, "jobs": jobs, "grown_kb": grown}))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        main(float(sys.argv[1]))
