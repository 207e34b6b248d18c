"""Hosts of their own: network namespaces on a bridge, their links shaped to 1 Gbit/s unless told. Needs root."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys

from processes import PATIENCE_S, environment

NAME = f"b{os.getpid() % 100_000}"
BYTES_PER_S = 1e9 / 8


class NoHostsError(Exception):
    """Why there can be none here."""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def address(index):
    return f"10.77.0.{index + 1}"


def shape(namespace, device, rate):
    """What a device sends is held to a rate of tc's."""
    for words in (f"qdisc add dev {device} root handle 1: htb default 1", f"class add dev {device} parent 1: classid 1:1 htb rate {rate}"):
        subprocess.run(["tc", "-n", namespace, *words.split()], check=True, capture_output=True)


@contextlib.contextmanager
def bridged(count, rate="1gbit", both_ways=False):
    """Names of network namespaces that reach each other, and nobody else. What a host receives is held to the rate if `both_ways`."""
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        raise NoHostsError("network namespaces need root, ip and tc")
    names = [f"{NAME}h{index}" for index in range(count)]
    switch = f"{NAME}s"
    made = []
    try:
        try:
            ip("netns", "add", switch)
        except subprocess.CalledProcessError as error:
            raise NoHostsError(f"no network namespaces here: {error.stderr.strip()}") from error
        made.append(switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for index, name in enumerate(names):
            ip("netns", "add", name)
            made.append(name)
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{index}", "netns", switch)
            ip("-n", switch, "link", "set", f"port{index}", "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"{address(index)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")
            shape(name, "eth0", rate)
            if both_ways:
                shape(switch, f"port{index}", rate)
        yield names
    finally:
        for name in reversed(made):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def command_on(name, *words):
    return ["ip", "netns", "exec", name, sys.executable, *words]


@contextlib.contextmanager
def on(name, state, *arguments):
    """A brambling process on a host, and the first line that it prints; ended as Ctrl-C does."""
    words = command_on(name, "-m", "brambling", *arguments)
    with subprocess.Popen(words, env=environment(state), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield line
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)
