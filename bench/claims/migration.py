"""
How fast shards leave a worker that is drained while their job runs: two hosts (network namespaces), a link of 1 Gbit/s, shards of 128 MB.

Prints JSON: `share_of_link`, the shards' bytes ÷ what the link could have carried from the first of them to the last, by the link's own counter,
so that packing, unpacking and pauses between shards count and headers do not; `seconds`, that time; `drain_s`, what the command took.
The results are those of shards that stayed, or this fails.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "python/tests"))
from hosts import BYTES_PER_S, NoHostsError, address, bridged, command_on, on  # noqa: E402
from processes import PATIENCE_S, environment, eventually  # noqa: E402

SHARDS = 8
SHARD_BYTES = 128 << 20
# Less than this is not the shards: what workers tell each other all the time.
NOISE_BYTES = 1 << 20

CLIENT = """
import json, sys
import numpy as np
import brambling as br
address, shards, shard_bytes, turns = sys.argv[1], *map(int, sys.argv[2:])
p = br.Program("moved")
seen = p.dataset("seen", value=0.0, partitions=shards)
large = p.map(lambda seen, ctx: np.full(shard_bytes // 8, ctx.partition + 1.0), seen)
with p.loop(turns):
    p.update(seen, lambda seen, large: seen + large[0] + large[-1], large)
with br.connect(address):
    print(json.dumps(p.run()["seen"]))
"""

COUNTER = """
import time
file = "/sys/class/net/eth0/statistics/tx_bytes"
while True:
    print(time.monotonic(), open(file).read().strip(), flush=True)
    time.sleep(0.005)
"""


@contextlib.contextmanager
def counting(host, into):
    """Samples of what the host has sent, in `into`."""
    with open(into, "w", encoding="utf-8") as file, subprocess.Popen(command_on(host, "-c", COUNTER), stdout=file) as counter:
        try:
            yield
        finally:
            counter.kill()


def busy_s(samples, least_bytes):
    """From the first of the bytes that the shards are to the last."""
    counts = [(float(at), int(sent)) for at, sent in (line.split() for line in samples.splitlines() if line.count(" ") == 1)]
    first, last = counts[0][1], counts[-1][1]
    assert last - first >= least_bytes, (last - first, least_bytes)
    begun = max(at for at, sent in counts if sent <= first + NOISE_BYTES)
    ended = min(at for at, sent in counts if sent >= last - NOISE_BYTES)
    return ended - begun


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=4_000_000)
    turns = parser.parse_args().turns
    with contextlib.ExitStack() as stack:
        state = stack.enter_context(tempfile.TemporaryDirectory())
        hosts = stack.enter_context(bridged(2))
        bind = f"{address(0)}:7077"
        stack.enter_context(on(hosts[0], state, "controller", "--bind", bind, "--no-balance"))
        for host in hosts:
            stack.enter_context(on(host, state, "worker", "--controller", bind, "--threads", "1", "--memory", "4GB"))

        def brambling(*words):
            words = command_on(hosts[0], "-m", "brambling", *words, "--controller", bind)
            done = subprocess.run(words, env=environment(state), capture_output=True, text=True, timeout=PATIENCE_S, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout

        def has_made_shards():
            workers = json.loads(brambling("status"))["workers"]
            return all(worker["memory_bytes"] >= SHARDS // 2 * SHARD_BYTES for worker in workers)

        words = command_on(hosts[0], "-c", CLIENT, bind, str(SHARDS), str(SHARD_BYTES), str(turns))
        client = subprocess.Popen(words, env=environment(state), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        stack.callback(client.kill)
        eventually(has_made_shards)
        counts = Path(state) / "counts"
        with counting(hosts[0], counts):
            eventually(lambda: counts.stat().st_size > 0)
            begun = time.monotonic()
            brambling("drain", "w1")
            drain_s = time.monotonic() - begun
            samples = counts.read_text(encoding="utf-8")
        said, error = client.communicate(timeout=10 * PATIENCE_S)
        assert client.returncode == 0, error
    assert json.loads(said) == [2.0 * turns * (shard + 1) for shard in range(SHARDS)], said
    moved_bytes = SHARDS // 2 * SHARD_BYTES
    seconds = busy_s(samples, moved_bytes)
    return {"share_of_link": moved_bytes / seconds / BYTES_PER_S, "seconds": seconds, "drain_s": drain_s}


try:
    print(json.dumps(main()))
except NoHostsError as why:
    sys.exit(f"migration.py: {why}")
