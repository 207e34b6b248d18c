"""Shards whose values are objects of Python, moved while Python gathers run: nothing stands still, and the results are one process's."""

import json
import os
import threading
import time

from moved import moving, objects, processes, stacks

# A claim may give more.
MOVED_S = float(os.environ.get("BRAMBLING_MOVED_S", "15"))
# Without any task in so many seconds it is a hang.
STILL_S = 15
PROGRAM = {"turns": 15, "partitions": 6}


def watched(cluster, until):
    """Looks at the cluster until something holds; a job that stands still fails with where everybody is."""
    at, since = None, time.monotonic()
    while not until():
        time.sleep(0.5)
        now = [(job["id"], job["position"]) for job in cluster.status(STILL_S)["jobs"]]
        if now != at:
            at, since = now, time.monotonic()
        elif time.monotonic() - since > STILL_S:
            told = {name: stacks(worker.pid) for name, worker in cluster.workers.items()}
            raise AssertionError(f"nothing moves: {now}\n" + "\n".join(f"{name}:\n{text}" for name, text in told.items()))


def test_objects_move_while_gathers_run(tmp_path):
    p, x = objects(**PROGRAM)
    expected = p.run()[x]
    with processes(tmp_path, workers=3) as cluster:
        client = cluster.client(**PROGRAM)
        lines = []
        reading = threading.Thread(target=lambda: lines.extend(client.stdout), daemon=True)
        reading.start()
        with moving(tmp_path, cluster.address, ["w1", "w2", "w3"], PROGRAM["partitions"]) as mover:
            begun = time.monotonic()
            watched(cluster, lambda: time.monotonic() - begun > MOVED_S / 3)
            fresh = cluster.join()
            mover.among(["w1", "w2", "w3", fresh])
            watched(cluster, lambda: time.monotonic() - begun > MOVED_S * 2 / 3)
            mover.among(["w1", "w3", fresh])
            draining = threading.Thread(target=cluster.drain, args=("w2",), daemon=True)
            draining.start()
            watched(cluster, lambda: time.monotonic() - begun > MOVED_S and not draining.is_alive())
            assert "w2" not in cluster.workers, "it has not left"
            moved, _ = mover.end()
        client.stdin.write("enough\n")
        client.stdin.flush()
        watched(cluster, lambda: client.poll() is not None)
        reading.join()
        assert client.returncode == 0
        told = [json.loads(line) for line in lines]
        assert told and all(line == {"values": expected} for line in told), told
        assert moved > 5, f"{moved} moves show nothing"
        assert not cluster.faults()
        # Who waits for a lock for ever does not end either.
        assert set(cluster.end(STILL_S).values()) == {0}
