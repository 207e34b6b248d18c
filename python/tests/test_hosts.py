"""A cluster on four hosts: network namespaces on a bridge, their links shaped to 1 Gbit/s. Needs root."""

import contextlib
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import PATIENCE_S, environment
from test_cluster import fitted_and_ranked
from test_travel import bits, heat

HOSTS = 4
NAME = f"b{os.getpid() % 100_000}"


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def host(index):
    return f"{NAME}h{index}"


def address(index):
    return f"10.77.0.{index + 1}"


@pytest.fixture(scope="module")
def hosts():
    """Names of network namespaces that reach each other, and nobody else."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        pytest.skip("network namespaces need root, ip and tc")
    switch = f"{NAME}s"
    made = []
    try:
        try:
            ip("netns", "add", switch)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.strip()}")
        made.append(switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for index in range(HOSTS):
            ip("netns", "add", host(index))
            made.append(host(index))
            ip("link", "add", "eth0", "netns", host(index), "type", "veth", "peer", "name", f"port{index}", "netns", switch)
            ip("-n", switch, "link", "set", f"port{index}", "master", "bridge", "up")
            ip("-n", host(index), "addr", "add", f"{address(index)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", host(index), "link", "set", device, "up")
            for shaping in ("qdisc add dev eth0 root handle 1: htb default 1", "class add dev eth0 parent 1: classid 1:1 htb rate 1gbit"):
                subprocess.run(["tc", "-n", host(index), *shaping.split()], check=True, capture_output=True)
        yield [host(index) for index in range(HOSTS)]
    finally:
        for name in reversed(made):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@contextlib.contextmanager
def on(name, state, *arguments):
    """A brambling process on a host, and the first line that it prints; ended as Ctrl-C does."""
    words = ["ip", "netns", "exec", name, sys.executable, "-m", "brambling", *arguments]
    with subprocess.Popen(words, env=environment(state), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield line
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)


def found():
    """What models, analyses of graphs and the heat equation give, as bits."""
    result = heat().run()
    return {"heat": {name: bits(result[name]) for name in result}, **{name: bits(it) for name, it in fitted_and_ranked().items()}}


CLIENT = """
import pickle, sys
sys.path.insert(0, sys.argv[2])
import brambling as br
from test_hosts import found
with br.connect(sys.argv[1]):
    pickle.dump(found(), open(sys.argv[3], "wb"))
"""


@pytest.mark.parametrize("workers", [1, 2, 4, 16])
def test_same_bits_on_any_number_of_workers(hosts, tmp_path, workers):
    with contextlib.ExitStack() as stack:
        bind = f"{address(0)}:7077"
        assert bind in stack.enter_context(on(hosts[0], tmp_path, "controller", "--bind", bind))
        for at in range(workers):
            line = stack.enter_context(
                on(hosts[at % HOSTS], tmp_path, "worker", "--controller", bind, "--threads", "1", "--memory", "512MB"))
            assert re.search(rf"worker w{at + 1} at {re.escape(address(at % HOSTS))}:\d+", line)
        there = tmp_path / "found"
        client = subprocess.run(
            ["ip", "netns", "exec", hosts[-1], sys.executable, "-c", CLIENT, bind, str(Path(__file__).parent), str(there)],
            env=environment(tmp_path), capture_output=True, text=True, timeout=PATIENCE_S)
        assert client.returncode == 0, client.stderr
        assert pickle.loads(there.read_bytes()) == found()
