#!/usr/bin/env python3
"""
`brambling sort` on 1, 2, 3 and 4 hosts beside the ideal time of the model: network namespaces on
one machine, their links shaped.

    sort_hosts.py [--rate 1gbit] [--skewed] [--bytes 1GB] [--hosts 1,2,3,4] [--rounds 7] [--quick] [--dir DIR] [--command BRAMBLING]

A host has a worker, a folder on the disk that all of them share, which each sees under the same
name, and a link of --rate each way. --bytes is of each host. The controller and the client are on
the first one. In each round: the speed of the network with all hosts sending to all, and of the
disk with all hosts at it at once, by `brambling probe`; then a sort with cold caches, each worker
of its own file, checked for order and for the input's records. The ideal is what `brambling model`
says of these speeds. Ours is the time of the command without what `brambling sort --help` takes.

All hosts share the processors. Where these are busy for --cpu-most of a sort or more, links are
slowed to the half until they are not, and `rates` says to what.

The last line is JSON: `largest_over_ideal` is the largest of the medians by the number of hosts,
`by_hosts` has the rest: phases and stragglers as the last sort told them. `failed` is what was out
of order or lost, and workers that took more than their budget of twice their input and a tenth; the
exit code is 1 if there is any. --quick has one round. Needs root.
"""

import argparse
import contextlib
import json
import os
import re
import secrets
import signal
import statistics
import subprocess
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).resolve().parents[2] / "python/tests")]
from hosts import NoHostsError, address, bridged  # noqa: E402
from on_files import (
    PATIENCE_S,
    RECORD_BYTES,
    Memory,
    budget,
    common_options,
    forget,
    must,
    need,
    run,
    said_size,
    scratch,
    seconds_to_start,
    size,
    spread,
)  # noqa: E402

PORT, PROBE_PORT = 7077, 7078
HALVINGS_MOST = 5
LEAST_BUDGET = 512 << 20
BUDGET_EXCEEDED = 1.1
# In a host's mount namespace, its folder stands where every host's does.
BOUND = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


def halved(rate):
    """A rate of tc's, divided by two."""
    number, unit = re.fullmatch(r"([\d.]+)([a-z]+)", rate).groups()
    return f"{float(number) / 2:g}{unit}"


def busy_and_all():
    """Ticks of all processors: those in which something ran, and all."""
    ticks = [int(it) for it in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


class Hosts:
    """Some hosts, each with its folder and its input."""

    def __init__(self, asked, folder, names):
        self.asked, self.names, self.local = asked, names, folder / "local"
        self.memory = said_size(max(2 * asked.bytes, LEAST_BUDGET))
        self.folders = [folder / f"host{index}" for index in range(len(names))]
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "BRAMBLING_TOKEN": secrets.token_hex(32),
        }

    def words(self, index, *words):
        return [
            "ip",
            "netns",
            "exec",
            self.names[index],
            "sh",
            "-c",
            BOUND,
            "sh",
            self.folders[index],
            self.local,
            self.asked.command,
            *words,
        ]

    @contextlib.contextmanager
    def started(self, index, *words):
        """A command on a host, once it has printed a line; ended as Ctrl-C does."""
        words = list(map(str, self.words(index, *words)))
        with subprocess.Popen(
            words, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            try:
                if not process.stdout.readline():
                    raise SystemExit(f"{' '.join(words)} has ended: {process.stderr.read().strip()}")
                yield process
            finally:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=PATIENCE_S)

    def must(self, index, *words):
        return must(self.words(index, *words), env=self.environment)

    def speeds(self):
        """Bytes a second: what a host's disk reads and writes while all are at it, and what a host sends while all do."""
        if len(self.names) == 1:
            disk = json.loads(self.must(0, "probe", "--only", "disk", "--dir", self.local, "--json").out)["disks"][0]
            return {
                "read": disk["read"]["bytes_per_s"]["median"],
                "write": disk["write"]["bytes_per_s"]["median"],
                "network": None,
            }
        listens = [f"{address(index)}:{PROBE_PORT}" for index in range(len(self.names))]
        with contextlib.ExitStack() as stack:
            for index, listen in enumerate(listens):
                stack.enter_context(self.started(index, "probe", "--listen", listen, "--dir", self.local))
            found = json.loads(self.must(0, "probe", "--hosts", ",".join(listens), "--json").out)["network"]
        sent = [0] * len(listens)
        for flow in found["all_to_all"]:
            sent[flow["from"]] += flow["bytes_per_s"]["median"]
        # The best of them: a slower host is what a sort has to live with.
        disks = {
            what: max(it[f"{what}_bytes_per_s"]["median"] for it in found["disks_at_once"])
            for what in ("read", "write")
        }
        return {**disks, "network": max(sent)}

    def ideal_s(self, speeds):
        # Of one host nothing goes over the network, and any speed of it gives the same.
        rates = {"--disk-read": speeds["read"], "--disk-write": speeds["write"], "--network": speeds["network"] or 1e9}
        options = [word for name, rate in rates.items() for word in (name, f"{rate:.0f}B/s")]
        count = len(self.names)
        told = must(
            [
                self.asked.command,
                "model",
                "--nodes",
                count,
                "--input",
                f"{count * self.asked.bytes}B",
                *options,
                "--json",
            ]
        )
        return json.loads(told.out)["ideal_seconds"]

    @contextlib.contextmanager
    def cluster(self):
        """A controller on the first, and a worker on each: the controller's address, and the memory of the workers."""
        count = len(self.names)
        threads = max(1, len(os.sched_getaffinity(0)) // count)
        controller = f"{address(0)}:{PORT}"
        with self.started(0, "controller", "--bind", controller), contextlib.ExitStack() as stack:
            memories = []
            for index in range(count):
                words = (
                    "worker",
                    "--controller",
                    controller,
                    "--threads",
                    threads,
                    "--memory",
                    self.memory,
                    "--spill",
                    self.local,
                )
                memories.append(Memory(stack.enter_context(self.started(index, *words)).pid))
                stack.callback(memories[-1].stop)
            yield controller, memories

    def sort(self, controller, memories):
        """One sort: its seconds, the share of the processors that was busy, the most memory of a worker, and what it told."""
        forget()
        start_s = seconds_to_start(self.asked.command, "sort")
        before = busy_and_all()
        ran = self.must(
            0, "sort", self.local / "in", self.local / "out", "--controller", controller, "--local", "--json"
        )
        busy, ticks = (after - earlier for after, earlier in zip(busy_and_all(), before, strict=True))
        return {
            "ours_s": ran.seconds - start_s,
            "with_start_s": ran.seconds,
            "cpu": busy / ticks,
            "peak_rss_bytes": max(it.stop() for it in memories),
            "told": ran.told,
        }

    def parts(self):
        """What all hosts have made, in the order of the names."""
        found = [path for folder in self.folders for path in (folder / "out").glob("part-*")]
        return sorted(found, key=lambda path: path.name)

    def remove_parts(self):
        for folder in self.folders:
            must(["rm", "-rf", folder / "out"])


def made_inputs(asked, folder, count):
    """A file on each host, of one whole that is generated at once, and what `--check` says of all."""
    whole, each = folder / "whole", asked.bytes // RECORD_BYTES * RECORD_BYTES
    skew = ("--skew", "zipf") if asked.skewed else ()
    must([asked.command, "sort", "--generate", count * each // RECORD_BYTES, whole, *skew])
    told = []
    with whole.open("rb") as file:
        for index in range(count):
            there = folder / f"host{index}"
            there.mkdir(exist_ok=True)
            with (there / "in").open("wb") as part:
                left = each
                while left:
                    left -= os.sendfile(part.fileno(), file.fileno(), None, left)
    whole.unlink()
    for upto in range(1, count + 1):
        told.append(
            run(
                [asked.command, "sort", "--check", *(folder / f"host{index}" / "in" for index in range(upto)), "--json"]
            ).told
        )
    return told


def checked(asked, hosts, told):
    """What is wrong with an output."""
    parts = hosts.parts()
    found = run([asked.command, "sort", "--check", *parts, "--json"])
    wrong = (
        []
        if found.code == 0
        else [f"--check of {len(parts)} parts ended with {found.code}: {found.error.strip()[-300:]}"]
    )
    return wrong + [f"{key} is not the inputs'" for key in ("records", "checksum") if found.told[key] != told[key]]


def measure(asked, folder, count, rate, told):
    """All rounds on so many hosts at a rate, or None where the processors are too busy at it."""
    rounds, failed = [], []
    with bridged(count, rate, both_ways=True) as names:
        hosts = Hosts(asked, folder, names)
        for at in range(asked.rounds):
            speeds = hosts.speeds()
            with hosts.cluster() as cluster:
                found = hosts.sort(*cluster)
            if found["peak_rss_bytes"] > BUDGET_EXCEEDED * budget(hosts.memory):
                failed.append(
                    f"{count} hosts, round {at + 1}: a worker had {found['peak_rss_bytes'] >> 20} MiB of a budget of {hosts.memory}"
                )
            failed += [f"{count} hosts, round {at + 1}: {it}" for it in checked(asked, hosts, told)]
            hosts.remove_parts()
            ideal_s = hosts.ideal_s(speeds)
            print(
                f"{count} hosts at {rate}, round {at + 1}: {found['ours_s']:.3f} s, ideal {ideal_s:.3f} s, processors {found['cpu']:.0%} busy",
                flush=True,
            )
            if count > 1 and at == 0 and found["cpu"] >= asked.cpu_most:
                return None, failed
            rounds.append({**found, **speeds, "ideal_s": ideal_s, "over_ideal": found["ours_s"] / ideal_s})
    return rounds, failed


def figures(rounds, rate):
    names = (
        "over_ideal",
        "ours_s",
        "with_start_s",
        "ideal_s",
        "cpu",
        "peak_rss_bytes",
        "read",
        "write",
        *(("network",) if rounds[0]["network"] else ()),
    )
    told = rounds[-1]["told"]
    return {"rate": rate, **{name: spread([it[name] for it in rounds]) for name in names}, "told": told}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="1gbit", help="of a link, each way, as tc takes it")
    parser.add_argument("--skewed", action="store_true", help="keys of which some are frequent")
    parser.add_argument("--bytes", type=size, default=size("1GB"), metavar="SIZE", help="of each host")
    parser.add_argument("--hosts", default="1,2,3,4", help="how many there are, one after the other")
    parser.add_argument(
        "--cpu-most",
        type=float,
        default=0.7,
        metavar="SHARE",
        help="links are slowed where the processors are as busy (0.7)",
    )
    parser.add_argument("--quick", action="store_true", help="one round")
    common_options(parser)
    asked = parser.parse_args()
    asked.rounds = 1 if asked.quick else asked.rounds
    counts = [int(it) for it in asked.hosts.split(",")]
    need(asked.command, "ip", "tc")
    by_hosts, failed = {}, []
    with scratch(asked.dir, "sort-hosts") as folder:
        folder = Path(folder)
        (folder / "local").mkdir()
        told = made_inputs(asked, folder, max(counts))
        for count in counts:
            rate, rounds = asked.rate, None
            for _ in range(HALVINGS_MOST):
                try:
                    rounds, wrong = measure(asked, folder, count, rate, told[count - 1])
                except NoHostsError as why:
                    sys.exit(f"sort_hosts.py: {why}; nothing was measured")
                failed += wrong
                if rounds is not None:
                    break
                rate = halved(rate)
            if rounds is None:
                sys.exit(
                    f"sort_hosts.py: {count} hosts keep the processors busy for {asked.cpu_most:.0%} of a sort even at {rate}"
                )
            by_hosts[count] = figures(rounds, rate)
    medians = [it["over_ideal"]["median"] for it in by_hosts.values()]
    rates = {count: it["rate"] for count, it in by_hosts.items()}
    found = {
        "largest_over_ideal": max(medians),
        "median_over_ideal": statistics.median(medians),
        "rates": rates,
        "by_hosts": by_hosts,
    }
    print(json.dumps({**found, "bytes": asked.bytes, "rounds": asked.rounds, "skewed": asked.skewed, "failed": failed}))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
