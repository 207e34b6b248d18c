"""What is told when a process of a cluster has gone: at once, each time, and of whom."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from processes import Process, command, doubled, environment, eventually, running, stop
from test_cluster_faults import counted

import brambling as br

# What comes at once does not wait for an answer.
AT_ONCE_S = 3


@contextlib.contextmanager
def at_once():
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < AT_ONCE_S


@contextlib.contextmanager
def cluster_of(state, workers):
    """A controller and its address, and workers; whoever is left ends."""
    with contextlib.ExitStack() as stack:
        controller, address = stack.enter_context(running(state, "controller", "--bind", "127.0.0.1:0"))
        found = [stack.enter_context(running(state, "worker", "--controller", address, "--threads", "1"))[0] for _ in range(workers)]
        yield controller, address, found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_each_call_says_that_the_controller_is_gone(tmp_path, monkeypatch, how):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    gone = r"the controller at 127\.0\.0\.1:\d+ is gone: .*; connect again when there is one"
    with cluster_of(tmp_path, 1) as (controller, address, _), br.connect(address) as cluster:
        assert doubled().run()["x"] == [42] * 4
        controller.send_signal(how)
        controller.wait()
        calls = [cluster.status, lambda: doubled().run(), lambda: br.graph.pagerank([0, 1], [1, 0]), cluster.status, lambda: doubled().run()]
        for call in calls * 2:
            with at_once(), pytest.raises(br.ClusterError, match=gone):
                call()
        with at_once(), pytest.raises(br.ClusterError, match=r"no controller at .*refused.*start one with `brambling controller`"):
            br.connect(address, token_file=token(tmp_path))


def token(state):
    path = state / "token"
    path.write_text("ab" * 32)
    return path


def test_a_wrong_token_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with cluster_of(tmp_path, 0) as (_, address, _):
        with at_once(), pytest.raises(br.ClusterError) as caught:
            br.connect(address, token_file=token(tmp_path))
        assert str(caught.value) == (
            f"the controller at {address} is there, and this process cannot take part: it has another token; give the one that the controller wrote when it started")
        for words in (["worker", "--threads", "1"], ["status"], ["jobs"], ["drain", "w1"]):
            said = subprocess.run(
                [sys.executable, "-m", "brambling", *words, "--controller", address, "--token-file", str(tmp_path / "token")],
                env=environment(tmp_path), capture_output=True, text=True, timeout=60)
            assert said.returncode == 1
            assert "is there, and this process cannot take part: it has another token" in said.stderr, said.stderr
            assert "start one" not in said.stderr


def test_results_of_a_worker_that_has_ended(tmp_path, monkeypatch):
    """It dies after the job's end, and before all that it holds was fetched."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    died = tmp_path / "died"

    class Deadly:
        """Ends the process that sends it first, but not the one that makes it."""

        def __reduce__(self):
            if "worker" in sys.argv and not died.exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return (int, ())

    with cluster_of(tmp_path, 2) as (_, address, _), br.connect(address) as cluster:
        p = br.Program("deadly")
        x = p.dataset("x", value=0, partitions=2)
        p.update(x, lambda x, ctx: Deadly() if ctx.partition else x)
        with at_once():
            assert p.run()["x"] == [0, 0]
        assert cluster.status()["jobs"][-1]["generation"] == 1
        assert [worker["id"] for worker in cluster.status()["workers"]] == ["w1"]


@pytest.mark.parametrize("joins", ["before", "meanwhile"])
def test_a_worker_without_shards_of_a_job_does_not_end_it(tmp_path, monkeypatch, joins):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    enough = tmp_path / "enough"
    script = (
        "import sys, brambling as br; from test_cluster_gone import few\n"
        "with br.connect(sys.argv[1]): print(few(sys.argv[2]).run()['x'])")
    with contextlib.ExitStack() as stack:
        _, address = stack.enter_context(running(tmp_path, "controller", "--bind", "127.0.0.1:0", "--no-balance"))
        for _ in range(2 if joins == "meanwhile" else 3):
            stack.enter_context(running(tmp_path, "worker", "--controller", address, "--threads", "1"))
        client = stack.enter_context(Process(
            [sys.executable, "-c", script, address, enough], env={**environment(tmp_path), "PYTHONPATH": os.path.dirname(__file__)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        cluster = stack.enter_context(br.connect(address))
        eventually(lambda: any(job["position"] > 0 for job in cluster.status()["jobs"]))
        if joins == "meanwhile":
            late = stack.enter_context(command(tmp_path, "worker", "--controller", address, "--threads", "1"))
            assert late.stdout.readline()
            eventually(lambda: len(cluster.status()["workers"]) == 3)
            time.sleep(0.5)
        idle = [it for it in cluster.status()["workers"] if it["shards"] == 0]
        assert len(idle) == 1
        os.kill(idle[0]["pid"], signal.SIGKILL)
        eventually(lambda: len(cluster.status()["workers"]) == 2)
        reached = cluster.status()["jobs"][0]["position"]
        eventually(lambda: cluster.status()["jobs"][0]["position"] > reached + 100)
        enough.touch()
        out, said = client.communicate(timeout=60)
        assert client.returncode == 0, said
        first, second = json.loads(out)
        assert first == second > 100
        assert doubled().run()["x"] == [42] * 4


def few(enough):
    """Fewer partitions than workers, which need each other all the time, until a file is there."""
    p = br.Program("few")
    x, turns = p.dataset("x", value=0, partitions=2), p.dataset("turns", value=0)
    with p.loop(while_=lambda turns: not os.path.exists(enough), on=turns):
        p.update(x, lambda x, total: time.sleep(0.001) or total // 2 + 1, p.all_reduce("sum", x))
        p.update(turns, lambda turns, x: x, p.reduce("max", x))
    return p


def test_a_stopped_controller_is_not_said_to_be_gone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with cluster_of(tmp_path, 1) as (controller, address, _), br.connect(address) as cluster:
        stop(controller.pid)
        try:
            with pytest.raises(br.ClusterError, match=rf"the controller at {re.escape(address)} is there and has answered nothing for 13 s"):
                cluster.status()
        finally:
            controller.send_signal(signal.SIGCONT)
        assert len(cluster.status()["workers"]) == 1
        assert counted(10).run()["x"] == [10] * 4
