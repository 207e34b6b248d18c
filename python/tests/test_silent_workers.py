"""Workers that say nothing and are not known to be gone: everybody waits for them, and says so."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest
from processes import command, doubled, environment, eventually, running, stop
from test_cluster_faults import counted

import brambling as br
from brambling import _progress

CLUSTER = ("cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0")
# Longer than it takes to be warned of, and no reason to give a worker up.
STOPPED_S = 16


@contextlib.contextmanager
def stopped(*pids):
    """They do nothing meanwhile."""
    for pid in pids:
        stop(pid)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def told(state, *words):
    asked = subprocess.run(
        [sys.executable, "-m", "brambling", *words], env=environment(state), capture_output=True, text=True, timeout=60)
    assert asked.returncode == 0, asked.stderr
    return asked.stdout


def test_a_stopped_worker_is_waited_for_and_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    shown = []
    monkeypatch.setattr(_progress, "_line", lambda: type("Line", (), {"write": shown.append, "close": lambda self: None})())
    with running(tmp_path, *CLUSTER) as (_, address), br.connect(address) as cluster:
        before = cluster.status()["workers"]
        assert all(0 <= it["silent_s"] < 3 for it in before)
        seen = []

        def stop():
            time.sleep(0.5)
            with stopped(before[1]["pid"]):
                time.sleep(STOPPED_S)
                seen.append(json.loads(told(tmp_path, "status", "--controller", address)))
                seen.append(told(tmp_path, "top", "--once", "--controller", address))

        stopping = threading.Thread(target=stop)
        stopping.start()
        with pytest.warns(br.ClusterWarning, match=r"waiting for w2, silent for 1\d s: it gets no CPU, was stopped") as caught:
            # Long enough to be stopped on a fast machine, too.
            assert counted(1_000).run()["x"] == [1_000] * 4
        stopping.join()
        assert len(caught) == 1
        assert caught[0].filename == __file__
        assert any(re.fullmatch(r"counted  .* waiting for w2, silent for 1\d s", text) for text in shown), shown[-3:]
        first, second = seen[0]["workers"]
        assert first["silent_s"] < 3 and second["silent_s"] >= STOPPED_S - 2
        silent = {line.split()[0]: line.endswith(" s") for line in seen[1].splitlines() if line.startswith("w")}
        assert silent == {"w1": False, "w2": True}, seen[1]
        # It was not declared dead, and is heard again.
        assert [it["pid"] for it in cluster.status()["workers"]] == [it["pid"] for it in before]
        eventually(lambda: all(it["silent_s"] < 3 for it in cluster.status()["workers"]))


def test_jobs_that_begin_have_no_shards_on_a_silent_worker(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with running(tmp_path, *CLUSTER) as (_, address), br.connect(address) as cluster:
        pids = {it["id"]: it["pid"] for it in cluster.status()["workers"]}

        def where():
            p = br.Program("where")
            x = p.dataset("x", value=0, partitions=4)
            p.update(x, lambda x: __import__("os").getpid())
            return set(p.run()["x"])

        assert where() == set(pids.values())
        with stopped(pids["w2"]):
            eventually(lambda: cluster.status()["workers"][1]["silent_s"] > 4)
            begun = time.monotonic()
            assert where() == {pids["w1"]}
            assert time.monotonic() - begun < 10
        eventually(lambda: cluster.status()["workers"][1]["silent_s"] < 1)
        assert where() == set(pids.values())


def test_when_all_are_silent_jobs_wait_and_say_so(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    shown = []
    monkeypatch.setattr(_progress, "_line", lambda: type("Line", (), {"write": shown.append, "close": lambda self: None})())
    with running(tmp_path, *CLUSTER) as (_, address), br.connect(address) as cluster:
        pids = [it["pid"] for it in cluster.status()["workers"]]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            waking = threading.Timer(4, lambda: [os.kill(pid, signal.SIGCONT) for pid in pids])
            with stopped(*pids):
                eventually(lambda: all(it["silent_s"] > 4 for it in cluster.status()["workers"]))
                waking.start()
                assert doubled().run()["x"] == [42] * 4
            waking.join()
        waits = r"doubled  .*waiting for w1, silent for \d s; w2, silent for \d s"
        assert any(re.fullmatch(waits, text) for text in shown), shown


def test_a_controller_that_was_stopped_finds_nobody_silent(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (controller, address):
        with command(tmp_path, "worker", "--controller", address, "--threads", "1") as worker:
            try:
                assert worker.stdout.readline()
                with br.connect(address) as cluster:
                    with stopped(controller.pid):
                        time.sleep(6)
                    most = max(it["silent_s"] for _ in range(50) for it in cluster.status()["workers"])
                    assert most < 3
                    assert doubled().run()["x"] == [42] * 4
            finally:
                worker.send_signal(signal.SIGINT)
                worker.communicate()


def test_a_worker_with_the_lowest_name_comes_late_and_gets_shards(tmp_path, monkeypatch):
    """Whoever was there before is called by who comes, whatever their names are."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with running(tmp_path, *CLUSTER, "--no-balance") as (_, address), br.connect(address) as cluster:
        pid = {worker["id"]: worker["pid"] for worker in cluster.status()["workers"]}["w1"]
        results = []
        job = threading.Thread(target=lambda: results.append(counted(1_000).run()["x"]), daemon=True)

        def shards():
            status = json.loads(told(tmp_path, "status", "--controller", address))
            return {worker["id"]: worker["shards"] for worker in status["workers"]}

        with stopped(pid):
            time.sleep(4)
            job.start()
            # The job has begun without it.
            eventually(lambda: shards() == {"w1": 0, "w2": 5})
        for index in range(2):
            told(tmp_path, "move", "w1", "--shard", f"0.{index}", "--controller", address)
        job.join(60)
        if not results:
            told(tmp_path, "cancel", "j1", "--controller", address)
            job.join()
        assert results == [[1_000] * 4]
