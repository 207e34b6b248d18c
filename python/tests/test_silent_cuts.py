"""Cuts without a word between hosts: a cable, or a machine that loses power. Needs root."""

import contextlib
import json
import re
import signal
import subprocess
import time

import pytest
from hosts import NAME, NoHostsError, address, bridged, command_on
from processes import PATIENCE_S, environment, eventually

import brambling as br  # noqa: F401

# Within this everybody knows.
LIMIT_S = 15
# Within this a machine is given up that neither the controller nor another worker reaches.
FENCED_S = 8
CONTROLLER, FIRST, SECOND, CLIENT = range(4)
BIND = f"{address(CONTROLLER)}:7077"

SCRIPT = """
import sys, time, warnings
import brambling as br
import numpy as np

warnings.simplefilter("ignore")

def counted(turns):
    p = br.Program("counted")
    x = p.dataset("x", value=0, partitions=4)
    with p.loop(turns):
        p.update(x, lambda x, total: time.sleep(0.005) or total // 4 + 1, p.all_reduce("sum", x))
    return p

def large(turns):
    p = br.Program("large")
    x = p.dataset("x", value=np.zeros(1_000_000), partitions=4)
    with p.loop(turns):
        p.update(x, lambda x, total: total / 4 + 1, p.all_reduce("sum", x))
    return p

with br.connect(sys.argv[1]):
    print("begins", flush=True)
    for line in sys.stdin:
        kind, turns = line.split()
        try:
            found = {"counted": counted, "large": large}[kind](int(turns)).run()["x"]
            print([float(np.mean(it)) for it in found], flush=True)
        except br.ClusterError as error:
            print("ClusterError:", str(error).replace(chr(10), " "), flush=True)
"""


@pytest.fixture(scope="module")
def hosts():
    try:
        with bridged(4) as names:
            yield names
    except NoHostsError as why:
        pytest.skip(str(why))


def port(index, *how):
    subprocess.run(["ip", "netns", "exec", f"{NAME}s", "bridge", "link", "set", "dev", f"port{index}", *how], check=True, capture_output=True)


class Cluster:
    """A controller, two workers and a client, each on a host."""

    def __init__(self, hosts, state, *options):
        self.hosts, self.state, self.all, self.options = hosts, state, [], options
        self.control()
        self.workers = [
            self.start(at, "-m", "brambling", "worker", "--controller", BIND, "--threads", "1", "--memory", "512MB")[0]
            for at in (FIRST, SECOND)]
        self.client, told = self.start(CLIENT, "-c", SCRIPT, BIND)
        assert told == "begins\n"

    def control(self):
        self.controller, told = self.start(CONTROLLER, "-m", "brambling", "controller", "--bind", BIND, *self.options)
        assert BIND in told

    def start(self, at, *words):
        process = subprocess.Popen(
            command_on(self.hosts[at], *words), env=environment(self.state), text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.all.append(process)
        told = process.stdout.readline()
        assert told, process.stderr.read()
        return process, told

    def run(self, turns, kind="counted"):
        self.client.stdin.write(f"{kind} {turns}\n")
        self.client.stdin.flush()

    def answer(self):
        return self.client.stdout.readline()

    def status(self):
        return json.loads(self.asked("status"))

    def jobs(self):
        return self.asked("jobs")

    def asked(self, word):
        asked = subprocess.run(
            command_on(self.hosts[CONTROLLER], "-m", "brambling", word, "--controller", BIND), env=environment(self.state),
            capture_output=True, text=True, timeout=PATIENCE_S)
        assert asked.returncode == 0, asked.stderr
        return asked.stdout

    def end(self):
        for process in self.all:
            process.kill()
        for process in self.all:
            process.communicate()


@contextlib.contextmanager
def running(hosts, state, *options):
    cluster = Cluster(hosts, state, *options)
    try:
        yield cluster
    finally:
        for at in range(4):
            port(at, "state", "3")
            port(at, "isolated", "off")
        cluster.end()


@pytest.fixture
def cluster(hosts, tmp_path):
    with running(hosts, tmp_path) as cluster:
        yield cluster


@pytest.fixture
def kept(hosts, tmp_path):
    """One whose controller may come back."""
    with running(hosts, tmp_path, "--state", tmp_path / "kept") as cluster:
        yield cluster


@contextlib.contextmanager
def told_soon():
    """What happens in here has to happen within the limit."""
    begun = time.monotonic()
    yield
    took = time.monotonic() - begun
    assert took < LIMIT_S, took


def cut(at):
    port(at, "state", "0")


def mend(at):
    port(at, "state", "3")


def isolate(*ats):
    for at in ats:
        port(at, "isolated", "on")


def test_the_controller_is_cut_off(cluster):
    cluster.run(1_000_000)
    time.sleep(1)
    with told_soon():
        cut(CONTROLLER)
        assert re.match(
            rf"ClusterError: this client, process {cluster.client.pid} on .*, cannot reach the controller at {re.escape(BIND)}: ",
            cluster.answer())
        for number, worker in enumerate(cluster.workers, 1):
            _, said = worker.communicate(timeout=PATIENCE_S)
            assert worker.returncode == 1
            assert re.search(rf"error: worker w{number} on .* cannot reach the controller at {re.escape(BIND)}: for 1\d s: ", said), said


def test_the_client_is_cut_off(cluster):
    cluster.run(1_000_000)
    time.sleep(1)
    with told_soon():
        cut(CLIENT)
        eventually(lambda: "running" not in cluster.jobs())
        assert re.match(r"ClusterError: this client, .* cannot reach ", cluster.answer())
    assert re.search(r"j1 +failed .* the controller cannot reach the client", cluster.jobs()), cluster.jobs()
    # All others go on.
    assert all(worker.poll() is None for worker in cluster.workers)


def test_a_worker_that_nobody_reaches_is_fenced(cluster):
    """A machine without power, as the controller and the other worker see it: its job goes on there, and does not wait for the controller's link to end."""
    cluster.run(1_200)
    time.sleep(1)
    begun = time.monotonic()
    cut(FIRST)
    eventually(lambda: cluster.status()["deaths"])
    took = time.monotonic() - begun
    assert took < FENCED_S, took
    death, = cluster.status()["deaths"]
    assert (death["worker"], death["kind"]) == ("w1", "fenced: cut off")
    assert re.match(r"neither the controller nor worker w2 \(.*\) at .* has reached it, for [567] s: ", death["cause"]), death
    assert cluster.answer() == "[1200.0, 1200.0, 1200.0, 1200.0]\n"
    job, = cluster.status()["jobs"]
    assert (job["state"], job["generation"]) == ("succeeded", 1)
    _, said = cluster.workers[0].communicate(timeout=PATIENCE_S)
    assert re.search(r"error: worker w1 on .* cannot reach the controller", said), said
    # The next job has the other one.
    cluster.run(10)
    assert cluster.answer() == "[10.0, 10.0, 10.0, 10.0]\n"


def test_a_fenced_machine_that_comes_back_is_refused(cluster):
    cluster.run(1_200)
    time.sleep(1)
    cut(FIRST)
    eventually(lambda: cluster.status()["deaths"])
    mend(FIRST)
    _, said = cluster.workers[0].communicate(timeout=PATIENCE_S)
    assert cluster.workers[0].returncode == 3, said
    assert re.search(r"worker w1 ends: the cluster goes on without it, because neither .*; start it again", said), said
    assert cluster.answer() == "[1200.0, 1200.0, 1200.0, 1200.0]\n"


def test_of_two_workers_that_cannot_reach_each_other_one_is_fenced(cluster):
    cluster.run(1_200)
    time.sleep(1)
    begun = time.monotonic()
    isolate(FIRST, SECOND)
    eventually(lambda: cluster.status()["deaths"])
    took = time.monotonic() - begun
    assert took < FENCED_S, took
    # Both tell, and one goes: that with fewer shards, which balancing may have changed.
    death, = cluster.status()["deaths"]
    assert (death["worker"] in ("w1", "w2"), death["kind"]) == (True, "fenced: cut off")
    goes, stays = cluster.workers if death["worker"] == "w1" else reversed(cluster.workers)
    cause = r"it and worker w[12] \(process \d+ on .*\) at .* cannot reach each other, for [567] s: .*; it had no more shards than that one"
    assert re.match(cause, death["cause"]), death
    _, said = goes.communicate(timeout=PATIENCE_S)
    assert goes.returncode == 3
    assert re.search(rf"worker {death['worker']} ends: the cluster goes on without it, because {cause}", said), said
    assert cluster.answer() == "[1200.0, 1200.0, 1200.0, 1200.0]\n"
    assert stays.poll() is None


def test_a_cut_is_told_to_a_controller_that_was_away(kept):
    """Until it is back two workers cannot reach each other for longer than one of them is to be fenced after: they say so again."""
    kept.run(1_200)
    eventually(lambda: "running" in kept.jobs())
    kept.controller.kill()
    kept.controller.wait()
    isolate(FIRST, SECOND)
    time.sleep(FENCED_S)
    kept.control()
    eventually(lambda: kept.status()["deaths"])
    death, = kept.status()["deaths"]
    assert death["kind"] == "fenced: cut off", death
    assert kept.answer() == "[1200.0, 1200.0, 1200.0, 1200.0]\n"


def test_a_client_and_a_worker_are_cut_off_from_each_other(cluster):
    isolate(CLIENT, SECOND)
    with told_soon():
        cluster.run(10)
        assert re.match(r"ClusterError: this client, .* cannot reach worker w2 at .*: for 1\d s: ", answer := cluster.answer()), answer
    eventually(lambda: "running" not in cluster.jobs())
    for at in (CLIENT, SECOND):
        port(at, "isolated", "off")
    cluster.run(10)
    assert cluster.answer() == "[10.0, 10.0, 10.0, 10.0]\n"


@pytest.mark.parametrize(("at", "seconds"), [(CONTROLLER, 5), (CLIENT, 5), (FIRST, 3)])
def test_a_short_cut_heals_with_nothing_lost(cluster, at, seconds):
    """Between two workers less than elsewhere: one of them is given up sooner."""
    cluster.run(400)
    time.sleep(0.5)
    cut(at)
    time.sleep(seconds)
    mend(at)
    assert cluster.answer() == "[400.0, 400.0, 400.0, 400.0]\n"
    assert "failed" not in cluster.jobs()
    assert cluster.status()["deaths"] == []
    assert all(worker.poll() is None for worker in cluster.workers)


def test_a_stopped_worker_is_not_cut_off_however_full_its_connections_are(cluster):
    cluster.run(40, "large")
    eventually(lambda: "running" in cluster.jobs())
    worker = cluster.workers[1]
    time.sleep(0.5)
    worker.send_signal(signal.SIGSTOP)
    time.sleep(LIMIT_S)
    worker.send_signal(signal.SIGCONT)
    assert cluster.answer() == "[40.0, 40.0, 40.0, 40.0]\n"
    assert worker.poll() is None
    assert "failed" not in cluster.jobs()
