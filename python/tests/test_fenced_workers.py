"""Workers that the controller gives up, and what is known of those that are gone."""

import os
import re
import signal
import threading
import time

import pytest
from processes import PATIENCE_S, command, doubled, eventually, running, stop
from test_cluster_faults import counted

import brambling as br

SILENCE_S = 3
CLUSTER = ("cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0")


@pytest.fixture(autouse=True)
def _short(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("BRAMBLING_SILENCE", f"{SILENCE_S}s")


def pids(cluster):
    return {worker["id"]: worker["pid"] for worker in cluster.status()["workers"]}


def after(seconds, act):
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer


def test_a_job_goes_on_without_a_worker_that_is_stopped_and_that_one_ends_when_it_wakes_up(tmp_path, capfd):
    with running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (_, address), br.connect(address) as cluster:
        words = ("worker", "--controller", address, "--threads", "1")
        with command(tmp_path, *words) as stays, command(tmp_path, *words) as sleeps:
            assert stays.stdout.readline() and sleeps.stdout.readline()
            name = {pid: name for name, pid in pids(cluster).items()}[sleeps.pid]
            stopping = after(0.5, lambda: stop(sleeps.pid))
            begun = time.time()
            assert counted(500).run()["x"] == [500] * 4
            stopping.join()
            said = capfd.readouterr().err
            expected = rf"worker {name} \(process {sleeps.pid} on .*\) is gone, and with it \d of the job's shards: it told nothing for 3 s, .*; the job begins again"
            assert re.search(expected, said), said
            death, = cluster.status()["deaths"]
            assert (death["worker"], death["pid"], death["kind"]) == (name, sleeps.pid, "fenced: silent")
            assert "it told nothing for 3 s" in death["cause"]
            assert death["silent_s"] >= SILENCE_S and begun <= death["at_s"] + 1 <= time.time() + 2
            assert list(pids(cluster).values()) == [stays.pid]
            # It wakes up in the midst of a job that ended long ago.
            sleeps.send_signal(signal.SIGCONT)
            _, said = sleeps.communicate(timeout=PATIENCE_S)
            assert sleeps.returncode == 3
            assert re.search(rf"worker {name} ends: the cluster goes on without it, because it told nothing for 3 s, .*; start it again", said), said
            assert list(pids(cluster).values()) == [stays.pid]
            assert doubled().run()["x"] == [42] * 4
            stays.send_signal(signal.SIGINT)
            stays.communicate(timeout=PATIENCE_S)


def test_another_worker_takes_the_place_of_a_fenced_one(tmp_path):
    with running(tmp_path, *CLUSTER) as (_, address), br.connect(address) as cluster:
        before = pids(cluster)
        stop(before["w2"])
        eventually(lambda: list(pids(cluster)) == ["w1"])
        os.kill(before["w2"], signal.SIGCONT)
        eventually(lambda: list(pids(cluster)) == ["w1", "w3"])
        assert doubled().run()["x"] == [42] * 4


def test_a_worker_that_is_stopped_for_less_is_not_fenced(tmp_path, monkeypatch):
    monkeypatch.setenv("BRAMBLING_SILENCE", "8s")
    with running(tmp_path, *CLUSTER) as (_, address), br.connect(address) as cluster:
        before = pids(cluster)
        stop(before["w2"])
        waking = after(5, lambda: os.kill(before["w2"], signal.SIGCONT))
        # It has to be waited for, since it was a member when it was stopped.
        assert counted(300).run()["x"] == [300] * 4
        waking.join()
        time.sleep(4)
        status = cluster.status()
        assert pids(cluster) == before
        assert status["deaths"] == []


def test_a_controller_that_was_stopped_fences_nobody(tmp_path):
    with running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (controller, address), br.connect(address) as cluster:
        with running_worker(tmp_path, address):
            before = pids(cluster)
            stop(controller.pid)
            time.sleep(2 * SILENCE_S)
            controller.send_signal(signal.SIGCONT)
            assert doubled().run()["x"] == [42] * 4
            assert pids(cluster) == before


def running_worker(state, address):
    return running(state, "worker", "--controller", address, "--threads", "1")


def test_the_record_of_a_worker_that_was_killed(tmp_path, capfd):
    with running(tmp_path, *CLUSTER) as (_, address), br.connect(address) as cluster:
        assert cluster.status()["deaths"] == []
        victim = pids(cluster)["w2"]
        killing = after(0.5, lambda: os.kill(victim, signal.SIGKILL))
        assert counted(500).run()["x"] == [500] * 4
        killing.join()
        said = capfd.readouterr().err
        assert re.search(r"worker w2 .* is gone, and with it \d of the job's shards: it was killed by signal 9( \(it last ran stage .*count.* of partition \d\))?; the job begins again", said), said
        death, = cluster.status()["deaths"]
        assert (death["worker"], death["pid"], death["kind"], death["cause"]) == ("w2", victim, "signal 9", "it was killed by signal 9")
        assert death["oom"] in (False, None)


def test_what_ran_on_a_worker_that_was_killed_is_told(tmp_path, capfd):
    with running(tmp_path, *CLUSTER) as (_, address), br.connect(address) as cluster:
        marker = tmp_path / "marker"
        p = br.Program("waits")
        x = p.dataset("x", value=0, partitions=4)

        def wait(x, ctx, marker=str(marker)):
            import os

            # The first time, and long enough for its worker to tell of it.
            if ctx.partition == 3 and not os.path.exists(marker):
                with open(marker + ".new", "w") as file:
                    file.write(str(os.getpid()))
                os.rename(marker + ".new", marker)
                time.sleep(60)
            return x + 1

        p.update(x, wait)

        def kill():
            until = time.monotonic() + PATIENCE_S
            while not marker.exists() and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(1)
            os.kill(int(marker.read_text()), signal.SIGKILL)

        killing = after(0, kill)
        assert p.run()["x"] == [1] * 4
        killing.join()
        said = capfd.readouterr().err
        death, = cluster.status()["deaths"]
        assert death["partition"] == 3 and death["stage"]
        assert f"signal 9 (it last ran stage `{death['stage']}` of partition 3); the job begins again" in said


def test_the_record_of_a_worker_whose_kernel_has_ended_it(tmp_path):
    with running(tmp_path, *CLUSTER) as (_, address), br.connect(address) as cluster:
        marker = str(tmp_path / "marker")
        p = br.Program("leaves")
        x = p.dataset("x", value=0, partitions=4)

        def leave(x, ctx):
            import os

            if ctx.partition == 3:
                try:
                    os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return x + 1
                os._exit(7)
            return x + 1

        p.update(x, leave)
        assert p.run()["x"] == [1] * 4
        death, = cluster.status()["deaths"]
        assert (death["kind"], death["cause"]) == ("exit code 7", "it ended with exit code 7")
