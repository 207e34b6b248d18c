"""Programs on the processes of a cluster, which the command starts: the bits of one process, and what is said when something is wrong."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from test_travel import PROGRAMS, bits

import brambling as br

# Far longer than anything here takes.
PATIENCE_S = 120


def environment(state):
    """Where processes of a test find its clusters, and no others."""
    return {**os.environ, "XDG_STATE_HOME": str(state)}


def command(state, *arguments, **how):
    return subprocess.Popen(
        [sys.executable, "-m", "brambling", *arguments], env=environment(state), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)


def address_of(process):
    """The address that a controller or a cluster prints first."""
    line = process.stdout.readline()
    found = re.search(r"at (\S+:\d+)", line)
    assert found, line + process.stderr.read()
    return found[1]


@contextlib.contextmanager
def running(state, *arguments):
    """A process of a cluster, and the address that it prints; ended as Ctrl-C does."""
    with command(state, *arguments) as process:
        try:
            yield process, address_of(process)
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")


def eventually(holds):
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cluster of two workers for tests that leave it as it was."""
    state = tmp_path_factory.mktemp("state")
    with running(state, "cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0") as (_, address):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(state))
            yield address


@pytest.mark.parametrize("build", PROGRAMS, ids=lambda build: build.__name__)
def test_a_program_gives_the_bits_of_one_process(shared, build):
    here = build()
    expected = here.run(threads=2)
    there = build()
    with br.connect(shared):
        found = there.run()
    assert list(found) == list(expected)
    for name in expected:
        assert bits(found[name]) == bits(expected[name]), name
    assert found.tally["tasks"] > 0
    assert found.tally["threads"] == 2


def doubled():
    p = br.Program("doubled")
    x = p.dataset("x", value=21, partitions=4)
    p.update(x, lambda x: 2 * x)
    return p


def test_the_last_connection_that_is_open_is_in_use(shared):
    first = br.connect(shared)
    with br.connect(shared) as second:
        assert repr(second) == f"<cluster at {shared}>"
        assert doubled().run()["x"] == [42] * 4
    jobs = len(first.status()["jobs"])
    doubled().run()
    assert len(first.status()["jobs"]) == jobs + 1
    with pytest.raises(br.ClusterError, match="was closed"):
        second.status()
    first.close()
    # Here again.
    assert doubled().run(threads=1).tally["threads"] == 1


def test_the_status_says_who_takes_part_and_what_ran(shared):
    with br.connect(shared) as cluster:
        doubled().run()
        status = cluster.status()
    assert [worker["id"] for worker in status["workers"]] == ["w1", "w2"]
    for worker in status["workers"]:
        assert set(worker) == {"id", "pid", "host", "threads", "shards", "memory_bytes", "idle_share"}
        assert worker["threads"] == 1 and 0 <= worker["idle_share"] <= 1 and is_alive(worker["pid"])
    job = status["jobs"][-1]
    assert set(job) == {"id", "name", "state", "generation", "position", "failure"}
    assert (job["name"], job["state"], job["failure"]) == ("doubled", "succeeded", None)


def fails_deep_inside(x):
    return {}[x]


def test_a_kernel_that_fails_is_told_with_its_worker_stage_and_traceback(shared):
    p = br.Program("failing")
    x = p.dataset("x", value="no such key", partitions=3)
    p.map(fails_deep_inside, x)
    with br.connect(shared), pytest.raises(br.ClusterError) as caught:
        p.run()
    text = str(caught.value)
    assert re.search(r"on worker w[12]: stage `fails_deep_inside` failed on partition \d at turn 0: KeyError", text)
    assert "Traceback (most recent call last)" in text
    assert "in fails_deep_inside" in text
    with br.connect(shared):
        assert doubled().run()["x"] == [42] * 4


def test_what_cannot_be_unpickled_there_is_told(shared):
    p = br.Program("nowhere")
    x = p.dataset("x", value=Nowhere())
    p.keep(x)
    with br.connect(shared), pytest.raises(br.ClusterError, match="no such thing on this machine") as caught:
        p.run()
    assert "on worker w" in str(caught.value)


def refuses_to_be():
    raise RuntimeError("no such thing on this machine")


class Nowhere:
    def __reduce__(self):
        return refuses_to_be, ()


def test_what_runs_here_only_is_refused(shared):
    rows = np.arange(20.0).reshape(10, 2)
    with br.connect(shared) as cluster:
        for call in (
            lambda: br.ml.KMeans(n_clusters=2).fit(rows),
            lambda: br.ml.LogisticRegression().fit(rows, [0, 1] * 5),
            lambda: br.graph.pagerank([1, 2], [2, 1]),
        ):
            with pytest.raises(br.Error, match="runs in this process only") as caught:
                call()
            assert repr(cluster) in str(caught.value)
        with pytest.raises(br.SettingsError, match="threads = 2"):
            doubled().run(threads=2)


def test_a_worker_that_is_killed_ends_the_job_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    arguments = ("cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0")
    with running(tmp_path, *arguments) as (_, address), br.connect(address) as cluster:
        victim = cluster.status()["workers"][1]
        p = br.Program("long")
        x = p.dataset("x", value=0, partitions=6)
        with p.loop(1_000_000):
            p.update(x, lambda x: time.sleep(0.001) or x + 1)
        killing = subprocess.Popen([sys.executable, "-c", f"import os, time; time.sleep(0.5); os.kill({victim['pid']}, 9)"])
        with pytest.raises(br.ClusterError) as caught:
            p.run()
        assert killing.wait(PATIENCE_S) == 0
        assert re.search(
            rf"worker w2 \(process {victim['pid']} on .*\) is gone, and with it 3 of the job's shards", str(caught.value))
        assert doubled().run()["x"] == [42] * 4
        assert [worker["id"] for worker in cluster.status()["workers"]] == ["w1"]


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_cluster_that_is_ended_leaves_no_process(tmp_path, monkeypatch, how):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    arguments = ("cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0")
    with command(tmp_path, *arguments) as process:
        with br.connect(address_of(process)) as cluster:
            pids = [worker["pid"] for worker in cluster.status()["workers"]]
            file, = (tmp_path / "brambling/clusters").iterdir()
            assert file.stat().st_mode & 0o777 == 0o600
            process.send_signal(how)
            code = process.wait(PATIENCE_S)
        eventually(lambda: not any(map(is_alive, pids)))
        if how != signal.SIGKILL:
            assert code == 0
            assert not file.exists()
            assert process.stderr.read() == ""


def test_workers_that_are_started_by_themselves(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (controller, address):
        with br.connect(address) as cluster:
            with pytest.raises(br.ClusterError, match=r"no workers; start some with `brambling worker --controller"):
                doubled().run()
            with running(tmp_path, "worker", "--controller", address, "--threads", "2", "--memory", "1GB"):
                assert doubled().run()["x"] == [42] * 4
                assert cluster.status()["workers"][0]["threads"] == 2
            eventually(lambda: not cluster.status()["workers"])
        done = subprocess.run([sys.executable, "-m", "brambling", "status"], env=environment(tmp_path), text=True,
                              capture_output=True, timeout=PATIENCE_S)
        assert json.loads(done.stdout)["jobs"][0]["state"] == "succeeded"
        assert f"brambling worker --controller {address}" in controller.stdout.readline()


def complaint(state, *arguments, **variables):
    """What a command says that fails with exit code 1."""
    done = subprocess.run(
        [sys.executable, "-m", "brambling", *arguments], env={**environment(state), **variables}, text=True,
        capture_output=True, timeout=PATIENCE_S)
    assert done.returncode == 1, done
    assert done.stdout == ""
    return done.stderr


def test_who_cannot_take_part_is_told_why_and_the_way_out(tmp_path, shared):
    other = {"BRAMBLING_TOKEN": "ab" * 32}
    for arguments in (("status",), ("worker", "--threads", "1")):
        text = complaint(tmp_path, *arguments, "--controller", shared, **other)
        assert "another token" in text and shared in text
        text = complaint(tmp_path, *arguments, "--controller", shared)
        assert "--token-file" in text and "BRAMBLING_TOKEN" in text
        text = complaint(tmp_path, *arguments, "--controller", shared, BRAMBLING_TOKEN="abc")
        assert "64 hexadecimal digits" in text and "BRAMBLING_TOKEN" in text
        text = complaint(tmp_path, *arguments, "--controller", "127.0.0.1:1", **other)
        assert "no controller at 127.0.0.1:1" in text and "brambling cluster" in text
        text = complaint(tmp_path, *arguments, "--controller", "nowhere.invalid:1", **other)
        assert "nowhere.invalid:1" in text and "HOST:PORT" in text
    text = complaint(tmp_path, "controller", "--bind", shared)
    assert shared in text and "--bind" in text
    text = complaint(tmp_path, "worker", "--controller", shared, "--memory", "much", **other)
    assert "much" in text and "8GB" in text
    assert "no cluster of this account" in complaint(tmp_path, "status")


def test_a_token_file_of_another_account_is_taken(tmp_path, shared, monkeypatch):
    file, = (Path(os.environ["XDG_STATE_HOME"]) / "brambling/clusters").iterdir()
    copied = tmp_path / "token.toml"
    copied.write_bytes(file.read_bytes())
    alone = tmp_path / "token"
    alone.write_text(re.search(r'token = "(\w+)"', file.read_text())[1] + "\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(br.ClusterError, match="--token-file"):
        br.connect(shared)
    for path in (copied, alone):
        with br.connect(shared, token_file=path):
            assert doubled().run()["x"] == [42] * 4


def test_several_clusters_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(br.ClusterError, match="no cluster of this account"):
        br.connect()
    with running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (_, first):
        br.connect().close()
        with running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (_, second):
            with pytest.raises(br.ClusterError, match="several clusters") as caught:
                br.connect()
            assert first in str(caught.value) and second in str(caught.value)
            br.connect(second).close()
    with pytest.raises(br.SettingsError, match="HOST:PORT"):
        br.connect(7077)
