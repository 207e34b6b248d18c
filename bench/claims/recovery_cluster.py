"""
A cluster of four workers, each on a host of its own, whose processes are started again when they end; for `recovery.py`.

Hosts are network namespaces on a bridge (hosts.py of the tests). A link between two of them is cut as test_silent_cuts.py does it: both
ports of the bridge are isolated.
"""

import contextlib
import json
import os
import secrets
import signal
import subprocess
import threading
import time
from pathlib import Path

from hosts import NAME, address

HERE = Path(__file__).resolve().parent

COMMAND = HERE.parents[1] / ".venv" / "bin" / "brambling"
SERVER = HERE.parents[1] / "build/s3/bin/versitygw"
CONTROLLER, CLIENT = 0, 5
WORKERS = range(1, 5)
HOSTS = 6
BIND, S3_PORT = f"{address(CONTROLLER)}:7077", 7070
PATIENCE_S = 900
# Far longer than any command of a cluster takes, a controller's return included.
ASK_S = 120
# Of faults.md: a worker that is fenced ends with this.
FENCED = 3
# A worker that begins looks for a controller for 10 s, and a moment goes by until either is seen here.
LOOKS_S, SEEN_S = 9, 1
STORE_BYTES = 256 << 20


class Events:
    """What a cluster has told so far, over all of its controllers."""

    def __init__(self, cluster):
        self.cluster, self.all, self.known, self.over = cluster, [], set(), False
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def follow(self):
        while not self.over:
            words = self.cluster.words(CONTROLLER, "events", "--follow", "--json", "--controller", BIND)
            self.process = subprocess.Popen(
                words, env=self.cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            for line in self.process.stdout:
                # Who asks again is told again.
                if line not in self.known:
                    self.known.add(line)
                    self.all.append(json.loads(line))
            self.process.wait()
            time.sleep(0.1)

    def end(self):
        self.over = True
        self.process.kill()
        self.thread.join()

    def of(self, *kinds, since=0.0):
        return [event for event in list(self.all) if event["kind"] in kinds and event["time"] >= since]


class Server:
    """The S3 server of the tests, on the controller's host."""

    def __init__(self, cluster, folder):
        self.cluster, self.folder, self.process = cluster, folder, None
        (folder / "bucket").mkdir(parents=True)
        keys = {"access_key_id": "AKIATEST", "secret_access_key": secrets.token_hex(16)}
        self.own = {"ROOT_ACCESS_KEY": keys["access_key_id"], "ROOT_SECRET_KEY": keys["secret_access_key"]}
        endpoint = {"AWS_ENDPOINT_URL": f"http://{address(CONTROLLER)}:{S3_PORT}", "AWS_ALLOW_HTTP": "true"}
        cluster.environment |= endpoint | {f"AWS_{name.upper()}": key for name, key in keys.items()}

    def start(self):
        words = [SERVER, "--quiet", "--keep-alive", "--port", f"{address(CONTROLLER)}:{S3_PORT}", "posix", self.folder]
        log = (self.cluster.folder / "server.log").open("a")
        self.process = subprocess.Popen(
            on_host(self.cluster.hosts[CONTROLLER], *words), env={**os.environ, **self.own}, stdout=log, stderr=log)


def on_host(name, *words):
    return ["ip", "netns", "exec", name, *map(str, words)]


class Cluster:
    """A controller that stands in a state, and workers; `kept` is "directory" or "s3"."""

    def __init__(self, hosts, folder, kept="directory", every="2s", silence="4s", store_bytes=STORE_BYTES, **settings):
        self.hosts, self.folder, self.store = hosts, Path(folder), Path(folder) / "store"
        self.store.mkdir()
        # A store of its own size can be filled; without a size it is on the disk.
        self.mounted = store_bytes is not None
        if self.mounted:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={store_bytes}", "tmpfs", self.store], check=True)
        self.environment = {
            **os.environ, "XDG_STATE_HOME": str(folder), "BRAMBLING_SNAPSHOT_EVERY": every, "BRAMBLING_SILENCE": silence,
            "BRAMBLING_MEMORY": "2GiB", "BRAMBLING_TOKEN": secrets.token_hex(32), **settings}
        self.server = Server(self, self.store / "data") if kept == "s3" else None
        self.state = "s3://bucket/cluster" if kept == "s3" else str(self.store / "state")
        self.controller, self.told_before, self.workers = None, 0, dict.fromkeys(WORKERS)
        # What is to be done later, as (when, what); exit codes that processes have to end with; what has gone wrong.
        self.due, self.expected, self.wrong = [], {}, []
        # Hosts that cannot reach each other; processes that were killed; until when the store may refuse a controller that begins.
        self.cut, self.killed, self.ended, self.refuses_until = (), set(), [], 0.0
        # Since when no controller stood, when it last did not; and since when one does, if one does.
        self.away_from, self.stands_from = time.monotonic(), None
        # How much of a host's log is of workers before the one that is there.
        self.worked_before = dict.fromkeys(WORKERS, 0)
        # Whether workers, and the controller, are started again.
        self.replaces = self.brings = True
        self.look_after()
        self.events = Events(self)

    # ---- processes

    def words(self, at, *words):
        return on_host(self.hosts[at], COMMAND, *words)

    def start(self, at, *words):
        log = (self.folder / f"{words[0]}{at}.log").open("a")
        return subprocess.Popen(self.words(at, *words), env=self.environment, stdout=log, stderr=log)

    def job(self, *words):
        words = on_host(self.hosts[CLIENT], COMMAND.with_name("python"), *words, BIND)
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment)

    def look_after(self):
        """Starts again what has ended, and does what is due."""
        for due in [it for it in self.due if it[0] <= time.monotonic()]:
            self.due.remove(due)
            due[1]()
        if self.server and (self.server.process is None or self.server.process.poll() is not None):
            self.server.start()
        if self.controller is None or (self.brings and self.controller.poll() is not None):
            # Only one that has not stood yet may end for the store's sake.
            is_refused = time.monotonic() < self.refuses_until and not self.has_stood()
            self.note_end(self.controller, {-signal.SIGKILL, 1} if is_refused else {-signal.SIGKILL})
            self.told_before = self.log_bytes("controller", CONTROLLER)
            self.controller = self.start(CONTROLLER, "controller", "--bind", BIND, "--state", self.state)
            if self.stands_from is not None:
                self.away_from, self.stands_from = time.monotonic(), None
        elif self.stands_from is None and self.has_stood():
            self.stands_from = time.monotonic()
        for at, worker in self.workers.items():
            if worker is None or (self.replaces and worker.poll() is not None):
                self.note_end(worker, {-signal.SIGKILL, FENCED, *({1} if self.found_nobody(at) else {})})
                if at in self.cut:
                    self.mend()
                self.worked_before[at] = self.log_bytes("worker", at)
                self.workers[at] = self.start(at, "worker", "--controller", BIND, "--threads", "1")

    def log(self, what, at):
        return self.folder / f"{what}{at}.log"

    def log_bytes(self, what, at):
        log = self.log(what, at)
        return log.stat().st_size if log.exists() else 0

    def has_stood(self):
        """Whether the controller has said where it is."""
        log = self.log("controller", CONTROLLER)
        return log.exists() and b"controller at " in log.read_bytes()[self.told_before:]

    def found_nobody(self, at):
        """Whether the worker of a host never had a name, and no controller stood for as long as one that begins looks for it."""
        log = self.log("worker", at)
        told = log.read_bytes()[self.worked_before[at]:] if log.exists() else b""
        now = time.monotonic()
        away_to = self.stands_from or now
        was_away = away_to - self.away_from >= LOOKS_S and now - away_to < SEEN_S
        return was_away and b"worker w" not in told and b"error: no controller at" in told

    def note_end(self, process, codes):
        """How a process has ended that is started again."""
        if process is None:
            return
        code = process.returncode
        self.ended.append((process.pid, code))
        if code not in codes or (code == -signal.SIGKILL) != (process.pid in self.killed):
            self.wrong.append(f"process {process.pid}, {' '.join(process.args[5:6])}, ends with {code}")
        wanted = self.expected.pop(process.pid, code)
        if code not in (wanted, -signal.SIGKILL):
            self.wrong.append(f"process {process.pid} ends with {code}, not {wanted}")

    def kill(self, process):
        process.kill()
        # One that ends by itself at this very moment was not killed.
        if process.wait() == -signal.SIGKILL:
            self.killed.add(process.pid)

    def later(self, seconds, act):
        self.due.append((time.monotonic() + seconds, act))

    def go_on(self, seconds, until=lambda: False):
        """Looks after them for so long, or until something holds; whether it does."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look_after()
            if until():
                return True
            time.sleep(0.05)
        return until()

    # ---- links

    def port(self, at, *how):
        words = ["ip", "netns", "exec", f"{NAME}s", "bridge", "link", "set", "dev", f"port{at}", *how]
        subprocess.run(words, check=True, capture_output=True)

    def cut_link(self, pair):
        self.cut = pair
        for at in pair:
            self.port(at, "isolated", "on")

    def mend(self):
        """A machine comes in the place of one of the two."""
        for at in self.cut:
            self.port(at, "isolated", "off")
        self.cut = ()

    # ---- what it says

    def ask(self, *words):
        return subprocess.run(
            self.words(CONTROLLER, *words, "--controller", BIND), env=self.environment, capture_output=True, text=True,
            timeout=ASK_S)

    def begin(self, *words):
        """A command whose answer nobody waits for."""
        return subprocess.Popen(
            self.words(CONTROLLER, *words, "--controller", BIND), env=self.environment, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)

    def status(self):
        """Asked again until a controller answers."""
        end = time.monotonic() + ASK_S
        while True:
            told = self.ask("status")
            if told.returncode == 0:
                return json.loads(told.stdout)
            if time.monotonic() > end:
                raise SystemExit(f"recovery.py: no status: {told.stderr}")
            self.look_after()
            time.sleep(0.2)

    def knows(self, worker):
        """Whether a controller stands that knows a worker."""
        return self.stands_from is not None and worker.pid in [it["pid"] for it in self.status()["workers"]]

    def whole(self):
        """Waits until all workers have come."""
        return self.go_on(ASK_S, until=lambda: len(self.status()["workers"]) == len(self.workers))

    # ---- the end

    def left_files(self):
        """Snapshots that are there although no job is."""
        return sorted(str(path.relative_to(self.store)) for path in self.store.rglob("manifests/*"))

    def processes(self):
        all_of = [*self.workers.values(), self.controller, self.server and self.server.process]
        return [process for process in all_of if process]

    def end(self):
        """Ends all; what is left behind."""
        if self.cut:
            self.mend()
        self.events.end()
        running = [process for process in self.processes() if process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGCONT)
            process.terminate()
        left = []
        for process in running:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                left.append(f"process {process.pid}, {' '.join(process.args[5:6])}, does not end")
                process.kill()
                process.wait()
        return left


@contextlib.contextmanager
def cluster(hosts, folder, **how):
    """A cluster, all of whose processes and mounts go at the end."""
    it = Cluster(hosts, folder, **how)
    try:
        yield it
    finally:
        if not it.events.over:
            it.end()
        if it.mounted:
            subprocess.run(["umount", "--lazy", it.store], check=True)
