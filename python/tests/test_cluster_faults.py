"""Processes of a cluster that die, starve, or are called by strangers."""

import contextlib
import itertools
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from processes import PATIENCE_S, address_of, command, descriptors, doubled, eventually, ports_of, resident_kb, running

import brambling as br

# A claim gives more.
STARVED_S = float(os.environ.get("BRAMBLING_STARVED_S", "2"))
STRANGERS = 1_000


def killed_after(pid, seconds):
    return subprocess.Popen([sys.executable, "-c", f"import os, time; time.sleep({seconds}); os.kill({pid}, 9)"])


def test_a_job_begins_again_when_its_worker_is_killed(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    arguments = ("cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0")
    with running(tmp_path, *arguments) as (_, address), br.connect(address) as cluster:
        victim = cluster.status()["workers"][1]
        rows = np.arange(60_000.0)
        p = br.Program("long")
        load = p.load(rows)
        total = p.dataset("total", value=0.0)
        with p.loop(600):
            p.update(total, lambda total, more: total / 2 + more, p.reduce("sum", p.map(lambda rows: time.sleep(0.0001) or rows.sum(), load)))
        killing = killed_after(victim["pid"], 0.5)
        found = p.run()["total"]
        assert killing.wait(PATIENCE_S) == 0
        job = cluster.status()["jobs"][-1]
        assert (job["state"], job["generation"]) == ("succeeded", 1)
        said = capfd.readouterr().err
        assert re.search(rf"worker w2 \(process {victim['pid']} on .*\) is gone, and with it \d+ of the job's shards: it was killed by signal 9( \(it last ran .*\))?; the job begins again", said), said
        # The bits of a job that nothing has disturbed.
        assert p.run()["total"] == found
        assert [worker["id"] for worker in cluster.status()["workers"]] == ["w1"]


def test_a_job_goes_on_from_its_snapshot_when_its_worker_is_killed(tmp_path, monkeypatch, capfd):
    """Arrays of the client, values of Python and a signal, all of it saved and read again."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    store = tmp_path / "store"
    arguments = ("cluster", "--workers", "3", "--threads", "1", "--bind", "127.0.0.1:0", "--store", str(store))
    with running(tmp_path, *arguments) as (_, address), br.connect(address) as cluster:
        rows = np.arange(60_000.0)
        p = br.Program("long")
        load = p.load(rows)
        total = p.dataset("total", value={"turns": 0, "sum": 0.0})
        step = lambda total, more: {"turns": total["turns"] + 1, "sum": total["sum"] / 2 + more}  # noqa: E731
        with p.loop(while_=lambda total: total["turns"] < 900, on=total):
            p.update(total, step, p.reduce("sum", p.map(lambda rows: time.sleep(0.001) or rows.sum(), load)))
        victim = cluster.status()["workers"][0]["pid"]

        def kill():
            eventually(lambda: len([it for it in store.rglob("manifests/*") if it.is_file()]) > 1)
            os.kill(victim, signal.SIGKILL)

        killing = threading.Thread(target=kill)
        killing.start()
        found = p.run(snapshot_every="15 turns")["total"]
        killing.join()
        said = capfd.readouterr().err
        assert re.search(r"worker w1 .* is gone, .*; the job goes on from snapshot \d+", said), said
        assert p.run()["total"] == found
        assert found["turns"] == 900
        eventually(lambda: not any(it.is_file() for it in store.rglob("manifests/*")))
    assert not any(it.is_file() for it in store.rglob("*")), list(store.rglob("*"))


def test_a_job_outlives_its_controller(tmp_path, monkeypatch, capfd):
    """Killed and started again, and then succeeded by one that stands by."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    state = tmp_path / "state"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = ("controller", "--bind", f"127.0.0.1:{port}", "--state", str(state))
    manifests = lambda: [it for it in (state / "snapshots").rglob("manifests/*") if it.is_file()]  # noqa: E731
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(command(tmp_path, *arguments))
        address = address_of(first)
        for _ in range(2):
            stack.enter_context(running(tmp_path, "worker", "--controller", address, "--threads", "1"))
        cluster = stack.enter_context(br.connect(address))
        p = counted(3_000)
        results = []
        client = threading.Thread(target=lambda: results.append(p.run(snapshot_every="20 turns")["x"]))
        client.start()
        eventually(manifests)
        first.kill()
        first.wait(PATIENCE_S)
        second = stack.enter_context(command(tmp_path, *arguments))
        assert address_of(second) == address
        standby = stack.enter_context(command(tmp_path, *arguments, "--standby"))
        assert "standing by" in standby.stdout.readline()
        before = {it.name for it in manifests()}
        eventually(lambda: {it.name for it in manifests()} - before)
        second.kill()
        second.wait(PATIENCE_S)
        begun = time.monotonic()
        assert address_of(standby) == address
        assert time.monotonic() - begun < 10
        client.join(PATIENCE_S)
        assert results == [[3_000] * 4]
        said = capfd.readouterr().err
        assert said.count("the controller is back") == 2, said
        # What the cluster is asked goes to whoever has it now.
        with br.connect(address) as another:
            status = another.status()
            assert [worker["id"] for worker in status["workers"]] == ["w1", "w2"]
            assert status["term"] == 3
        kinds = [event["kind"] for event in events_of(tmp_path, address)]
        assert kinds[0] == "took-over" and {"worker-joined", "job-adopted", "job-ended"} <= set(kinds), kinds
        assert "job-begun" not in kinds, kinds
        standby.send_signal(signal.SIGINT)
        standby.communicate(timeout=PATIENCE_S)
        cluster.close()


@pytest.mark.parametrize("turns", [100, 3_000])
def test_no_task_waits_for_a_controller(tmp_path, monkeypatch, turns):
    """Tasks go on while there is none, to the job's end if need be, and none of them runs twice."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    noted = tmp_path / "noted"
    noted.touch()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    arguments = ("controller", "--bind", f"127.0.0.1:{port}", "--state", str(tmp_path / "state"))
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(command(tmp_path, *arguments))
        address = address_of(first)
        for _ in range(2):
            stack.enter_context(running(tmp_path, "worker", "--controller", address, "--threads", "1"))
        cluster = stack.enter_context(br.connect(address))
        results = []
        p = counted(turns, noted)
        client = threading.Thread(target=lambda: results.append(p.run()["x"]))
        client.start()
        tasks = lambda: noted.stat().st_size  # noqa: E731
        eventually(lambda: tasks() > 100)
        first.kill()
        first.wait(PATIENCE_S)
        before = tasks()
        assert before < 4 * turns
        eventually(lambda: tasks() >= min(4 * turns, before + 1_000))
        stack.enter_context(running(tmp_path, *arguments))
        client.join(PATIENCE_S)
        assert results == [[turns] * 4]
        assert tasks() == 4 * turns
        kinds = [event["kind"] for event in events_of(tmp_path, address)]
        assert "job-adopted" in kinds and "job-begun" not in kinds, kinds
        cluster.close()


def events_of(state, address):
    with command(state, "events", "--json", "--controller", address) as told:
        lines = told.communicate(timeout=PATIENCE_S)[0].splitlines()
    return [json.loads(line) for line in lines]


def test_who_looks_after_a_cluster_sees_its_snapshots(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    arguments = ("cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0", "--store", str(tmp_path / "store"))
    # Of two connections programs run on the second.
    with running(tmp_path, *arguments) as (_, address), br.connect(address) as cluster, br.connect(address):
        with command(tmp_path, "snapshots", "--controller", address) as none:
            assert none.communicate(timeout=PATIENCE_S)[0].startswith("no snapshots; a controller with --store")
        client = threading.Thread(target=counted(4_000).run)
        client.start()
        # Not due for minutes, and taken when somebody asks for it.
        eventually(lambda: any(job["position"] > 0 for job in cluster.status()["jobs"]))
        with command(tmp_path, "snapshot", "1", "--controller", address) as saved:
            assert re.match(r"job j1 is saved: snapshot \d+", saved.communicate(timeout=PATIENCE_S)[0])
        job, = cluster.status()["jobs"]
        assert job["cut"] == 1 and job["last_snapshot_age_s"] < 60, job
        with command(tmp_path, "snapshots", "--json", "--controller", address) as listed:
            only, = json.loads(listed.communicate(timeout=PATIENCE_S)[0])
        assert (only["job"], only["name"], only["cut"]) == ("j1", "counted", 1) and only["turns"] > 0 and only["bytes"] > 0
        taken, = [event for event in events_of(tmp_path, address) if event["kind"] == "snapshot-taken"]
        assert set(taken) == {"time", "kind", "worker", "job", "generation", "cut", "bytes", "seconds", "cause"}
        assert (taken["job"], taken["cut"]) == ("j1", 1) and taken["bytes"] > 0
        client.join(PATIENCE_S)
        with command(tmp_path, "snapshot", "1", "--controller", address) as refused:
            assert "job j1 does not run" in refused.communicate(timeout=PATIENCE_S)[1]
        assert refused.returncode == 1
        with command(tmp_path, "snapshot", "9", "--controller", address) as refused:
            assert "there is no job j9" in refused.communicate(timeout=PATIENCE_S)[1]


def test_a_job_waits_for_a_newcomer_when_all_workers_are_killed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with running(tmp_path, "controller", "--bind", "127.0.0.1:0") as (_, address), br.connect(address) as cluster:
        with running(tmp_path, "worker", "--controller", address, "--threads", "1"):
            victim = cluster.status()["workers"][0]["pid"]
            results = []
            client = threading.Thread(target=lambda: results.append(counted(500).run()["x"]))
            with br.connect(address):
                client.start()
                eventually(lambda: any(job["position"] > 0 for job in cluster.status()["jobs"]))
                os.kill(victim, signal.SIGKILL)
                eventually(lambda: [job["state"] for job in cluster.status()["jobs"]] == ["queued"])
                with running(tmp_path, "worker", "--controller", address, "--threads", "1"):
                    client.join(PATIENCE_S)
                    assert results == [[500] * 4]


def test_a_kernel_that_kills_its_workers_ends_its_job(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    arguments = ("cluster", "--workers", "4", "--threads", "1", "--bind", "127.0.0.1:0")
    with running(tmp_path, *arguments) as (_, address), br.connect(address) as cluster:
        p = br.Program("poison")
        x = p.dataset("x", value=0, partitions=4)
        p.update(x, lambda x, ctx: ctx.partition == 3 and os.kill(os.getpid(), signal.SIGKILL) or x)
        with pytest.raises(br.ClusterError) as caught:
            p.run()
        three = r"w\d \(process \d+ on .*\) is gone, .*; worker w\d .*; worker w\d .*; look at what the program's kernels do there, memory first"
        assert re.search(three, str(caught.value)), caught.value
        assert len(cluster.status()["workers"]) == 1
        assert doubled().run()["x"] == [42] * 4


def test_a_job_that_writes_files_ends_with_its_worker(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    text = tmp_path / "text"
    text.write_text("a b c\n" * 1_000, encoding="utf-8")
    arguments = ("cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0")
    with running(tmp_path, *arguments) as (_, address), br.connect(address) as cluster:
        victim = cluster.status()["workers"][1]
        # It is a member of the job, and does nothing.
        os.kill(victim["pid"], signal.SIGSTOP)
        killing = killed_after(victim["pid"], 0.5)
        with pytest.raises(br.ClusterError) as caught:
            br.map_reduce([text], "words", "sum", output=tmp_path / "out")
        assert killing.wait(PATIENCE_S) == 0
        assert re.search(rf"worker w2 \(process {victim['pid']} on .*\) is gone, .*; start another worker, and run the program again", str(caught.value))
        assert doubled().run()["x"] == [42] * 4


def counted(turns, noted=None):
    """Every turn needs both workers: their values are added up, and the sum is sent to all of them. Each task notes that it ran."""
    p = br.Program("counted")
    x = p.dataset("x", value=0, partitions=4)

    def count(x, total):
        time.sleep(0.001)
        if noted:
            with open(noted, "ab", 0) as file:
                file.write(b".")
        return total // 4 + 1

    with p.loop(turns):
        p.update(x, count, p.all_reduce("sum", x))
    return p


def test_a_worker_that_gets_no_cpu_is_not_dead(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    arguments = ("cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0")
    with running(tmp_path, *arguments) as (_, address), br.connect(address) as cluster:
        starved = cluster.status()["workers"][1]["pid"]

        def starve():
            time.sleep(0.3)
            os.kill(starved, signal.SIGSTOP)
            time.sleep(STARVED_S)
            os.kill(starved, signal.SIGCONT)

        starving = threading.Thread(target=starve)
        starving.start()
        found = counted(500).run()
        starving.join()
        assert found["x"] == [500] * 4
        assert [worker["pid"] for worker in cluster.status()["workers"]][1] == starved


# The first bytes of a TLS handshake that breaks off.
HALF_OPEN = bytes([0x16, 3, 1, 1, 0, 1, 0, 0, 252])


@pytest.mark.parametrize("with_tls", [False, True], ids=["plain", "tls"])
def test_a_thousand_connections_without_a_token_cost_nothing_that_matters(tmp_path, monkeypatch, with_tls):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    if with_tls:
        monkeypatch.setenv("BRAMBLING_TLS", str(tmp_path / "certs"))
        made = subprocess.run([sys.executable, "-m", "brambling", "certs", "--dir", str(tmp_path / "certs")], check=False)
        assert made.returncode == 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4 * STRANGERS:
        pytest.skip(f"this account may have {hard} descriptors, too few for {STRANGERS} connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * STRANGERS), hard))
    arguments = ("cluster", "--workers", "2", "--threads", "1", "--bind", "127.0.0.1:0")
    with running(tmp_path, *arguments) as (process, address), br.connect(address) as cluster, contextlib.ExitStack() as stack:
        pids = [process.pid, *(worker["pid"] for worker in cluster.status()["workers"])]
        assert doubled().run()["x"] == [42] * 4
        before = {pid: (descriptors(pid), resident_kb(pid)) for pid in pids}
        for pid in pids:
            port, = ports_of(pid)
            for at in range(STRANGERS):
                stranger = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S))
                if at % 2:
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        stranger.sendall((HALF_OPEN if with_tls else b"") + os.urandom(at % 300))
        # Meanwhile those who know the token are served.
        assert counted(50).run()["x"] == [50] * 4
        with br.connect(address) as another:
            assert len(another.status()["workers"]) == 2
        for pid, (files, kb) in before.items():
            # At most so many are at each of two steps of their greeting at once, and none for long.
            assert descriptors(pid) <= files + 2 * 128 + 8, pid
            assert resident_kb(pid) <= kb + 8_192, pid
            eventually(lambda pid=pid, files=files: descriptors(pid) <= files + 8)


@contextlib.contextmanager
def flooded(ports):
    """Strangers come to these ports all the time, more than there are places, and stay."""
    over, held = threading.Event(), []

    def come():
        for port, said in zip(itertools.cycle(ports), itertools.cycle([b"", b"BRM", b"BRMBLING" + bytes(40)])):
            if over.is_set():
                break
            with contextlib.suppress(OSError):
                stranger = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
                stranger.sendall(said)
                held.append(stranger)
            if len(held) > 600:
                held.pop(0).close()
            # Before the first places are taken there is nothing to see.
            time.sleep(0.001 if len(held) < 300 else 0.005)

    coming = threading.Thread(target=come)
    coming.start()
    try:
        eventually(lambda: len(held) >= 300)
        yield
    finally:
        over.set()
        coming.join()
        for stranger in held:
            stranger.close()


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "0.0.0.0:0"], ids=["unix", "tcp"])
def test_a_flood_of_strangers_keeps_nobody_out(tmp_path, monkeypatch, bind):
    """Neither by the Unix socket of the same user, nor by TCP from the address that they come from."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    arguments = ("cluster", "--workers", "2", "--threads", "1", "--bind", bind)
    with running(tmp_path, *arguments) as (process, told):
        port, = ports_of(process.pid)
        address = f"127.0.0.1:{port}"
        file = tmp_path / "brambling/clusters" / (told.replace(":", "_") + ".toml")
        with br.connect(address, token_file=file) as cluster:
            ports = [port, *(port for worker in cluster.status()["workers"] for port in ports_of(worker["pid"]))]
            with flooded(ports):
                for _ in range(10):
                    with br.connect(address, token_file=file) as another:
                        assert len(another.status()["workers"]) == 2
                where = ("--controller", address, "--token-file", str(file))
                with running(tmp_path, "worker", *where, "--threads", "1"):
                    asked = subprocess.run(
                        [sys.executable, "-m", "brambling", "status", *where], capture_output=True, text=True, check=False)
                    assert asked.returncode == 0, asked.stderr
                    assert asked.stdout.count('"pid"') == 3
                    assert counted(20).run()["x"] == [20] * 4
