"""Programs on the processes of a cluster, which the command starts: the bits of one process, and what is said when something is wrong."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import numpy as np
import pytest
from processes import PATIENCE_S, address_of, command, doubled, environment, eventually, is_alive, running
from test_travel import PROGRAMS, bits

import brambling as br

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
        assert set(worker) == {"id", "pid", "host", "threads", "shards", "memory_bytes", "idle_share", "silent_s", "stuck"}
        assert worker["threads"] == 1 and 0 <= worker["idle_share"] <= 1 and is_alive(worker["pid"])
    job = status["jobs"][-1]
    assert set(job) == {
        "id", "name", "state", "generation", "position", "failure", "waits", "cut", "last_snapshot_age_s"}
    assert job["cut"] is None, "it is not saved"
    assert (job["name"], job["state"], job["failure"]) == ("doubled", "succeeded", None)


def fails_deep_inside(x):
    return {}[x]


def test_a_kernel_that_fails_is_told_with_its_worker_stage_and_traceback(shared):
    p = br.Program("failing")
    x = p.dataset("x", value="no such key", partitions=3)
    p.map(fails_deep_inside, x)
    with br.connect(shared), pytest.raises(br.KernelError) as caught:
        p.run()
    error = caught.value
    assert re.fullmatch(r"on worker w[12]: stage `fails_deep_inside` failed on partition \d at turn 0: KeyError.*", str(error))
    assert (error.stage, error.turn) == ("fails_deep_inside", 0) and error.partition in range(3)
    # As it is in one process, and the traceback from there.
    assert type(error.__cause__) is KeyError and error.__cause__.args == ("no such key",)
    shown = "".join(traceback.format_exception(error))
    assert shown.index("in fails_deep_inside") < shown.index("brambling.KernelError: on worker w")
    with br.connect(shared):
        assert doubled().run()["x"] == [42] * 4


class Particular(Exception):
    def __init__(self, code, text):
        super().__init__(f"{text} ({code})")
        self.code = code


class Sendable(Exception):
    pass


def raises_particular(x):
    raise Particular(7, "out of luck")


def raises_sendable(x):
    raise Sendable("as told", x)


def leaves(x):
    sys.exit(3)


def failing(kernel):
    p = br.Program("failing")
    p.map(kernel, p.dataset("x", value=5, partitions=2))
    return p


def test_exceptions_of_kernels_come_as_themselves_where_they_can(shared):
    with br.connect(shared):
        with pytest.raises(br.KernelError) as caught:
            failing(raises_sendable).run()
        cause = caught.value.__cause__
        assert type(cause).__name__ == "Sendable" and cause.args == ("as told", 5)
        # It takes other arguments than it keeps.
        with pytest.raises(br.KernelError, match="out of luck") as caught:
            failing(raises_particular).run()
        assert type(caught.value.__cause__).__name__ == "Particular" and caught.value.stage == "raises_particular"
        assert caught.value.__cause__.code == 7
        assert "in raises_particular" in "".join(traceback.format_exception(caught.value))
        # No failure of the kernel, in one process or on many.
        with pytest.raises(SystemExit) as left:
            failing(leaves).run()
        assert left.value.code == 3


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


def fitted_and_ranked():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(5_000, 4))
    classes = (rows[:, 0] > 0.5).astype(int) + (rows[:, 1] > 0)
    towns = np.array(["Aachen", "Bonn", "Celle", "Dresden", "Essen"])
    src, dst = towns[rng.integers(0, 4, 60)], towns[rng.integers(1, 5, 60)]
    return {
        "two classes": br.ml.LogisticRegression().fit(rows, classes > 0).coef_,
        "descent": br.ml.LogisticRegression(solver="gradient-descent", tol=0.1).fit(rows, classes > 0).coef_,
        "three classes": br.ml.LogisticRegression().fit(rows.astype(np.float32), classes).coef_,
        "k-means": br.ml.KMeans(n_clusters=3, random_state=0).fit(rows).cluster_centers_,
        "pagerank": br.graph.pagerank(src, dst, weight=rng.random(60))["rank"],
        "components": br.graph.connected_components(src, dst)["component"],
        "bfs": br.graph.bfs(src, dst, "Aachen")["distance"],
        "sssp": br.graph.sssp(src, dst, rng.random(60), source="Aachen")["distance"],
        "labels": br.graph.label_propagation(src, dst, iterations=3)["label"],
        "clustering": br.graph.local_clustering(src, dst)["coefficient"],
    }


def test_models_and_analyses_of_graphs_give_the_same_bits(shared):
    here = fitted_and_ranked()
    with br.connect(shared) as cluster:
        before = len(cluster.status()["jobs"])
        there = fitted_and_ranked()
        # K-means has two: where to begin, and the search.
        assert len(cluster.status()["jobs"]) >= min(before + 11, 100)
    for name, found in here.items():
        assert np.array_equal(np.asarray(there[name]), np.asarray(found)), name


def test_what_is_wrong_with_rows_is_told_by_a_worker(shared):
    rows = np.arange(20.0).reshape(10, 2)
    rows[3, 1] = np.finfo(float).max
    with br.connect(shared):
        with pytest.raises(br.KernelError, match=r"worker w\d.*squares of X") as caught:
            br.ml.LogisticRegression(solver="gradient-descent").fit(rows, [0, 1] * 5)
        assert "Traceback" not in str(caught.value)
        with pytest.raises(br.SettingsError, match="threads = 2"):
            doubled().run(threads=2)


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
