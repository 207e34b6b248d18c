"""Scripts that keep their jobs in a bucket, against a server in a process of its own: killed, and started again with the same command."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from processes import address_of, command, eventually
from test_cluster_faults import counted
from test_store import PATIENCE_S, PROGRAM, Script

import brambling as br

SERVER = Path(__file__).resolve().parents[2] / "build/s3/bin/versitygw"
SECRET = "a-secret-that-nobody-sees"


class Server:
    """Keeps what it has in a directory."""

    def __init__(self, directory):
        self.directory = directory
        (directory / "data" / "bucket").mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.start()

    def start(self):
        own = {"ROOT_ACCESS_KEY": "AKIATEST", "ROOT_SECRET_KEY": SECRET}
        command = [SERVER, "--quiet", "--keep-alive", "--port", f"127.0.0.1:{self.port}", "posix", self.directory / "data"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **own})
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                assert time.monotonic() < until, "the server does not come"
                time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def objects(self):
        """All of them: the server keeps keys as paths."""
        bucket = self.directory / "data" / "bucket"
        # Folders may go while they are looked through.
        return sorted(Path(folder) / name for folder, _, names in os.walk(bucket) for name in names)


class BucketScript(Script):
    """A script whose store is in a bucket."""

    def __init__(self, directory, text, server, words):
        super().__init__(directory, text, command=words)
        self.server = server

    def manifests(self):
        return sorted((path for path in self.server.objects() if path.parent.name == "manifests"), key=lambda path: path.name)


@pytest.fixture
def server(tmp_path, monkeypatch):
    if not SERVER.exists():
        pytest.skip("no server of S3 in build/s3; `make build/s3/bin/versitygw` installs one")
    server = Server(tmp_path / "server")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    yield server
    server.kill()


@pytest.mark.parametrize("way", ["argument", "run", "variable"])
def test_a_killed_script_goes_on_from_a_bucket(tmp_path, server, monkeypatch, way):
    store = "s3://bucket/of/tests"
    script = tmp_path / "script.py"
    text = PROGRAM
    match way:
        case "argument":
            command = [sys.executable, script, store]
        case "run":
            text = text.replace("store=sys.argv[1], ", "")
            command = [Path(sys.executable).parent / "brambling", "run", "--store", store, script]
        case "variable":
            text = text.replace("store=sys.argv[1], ", "")
            monkeypatch.setenv("BRAMBLING_STORE", store)
            command = [sys.executable, script]
    killed = BucketScript(tmp_path, text, server, command)
    expected, told = killed.run()
    assert told == ""
    # It has ended: nothing is left.
    assert server.objects() == []
    killed.killed_after(2)
    if way == "argument":
        killed.killed_after(4)
    out, told = killed.run()
    assert out == expected
    # Whoever was killed here is known to be dead at once: nobody waits.
    assert told.startswith("brambling: `means` goes on from its snapshot: ")
    assert server.objects() == []


def test_a_server_that_goes_away_ends_no_job_and_shows_no_secret(tmp_path, server, monkeypatch):
    # All that anybody logs.
    monkeypatch.setenv("BRAMBLING_LOG", "debug")
    script = BucketScript(tmp_path, PROGRAM, server, [sys.executable, tmp_path / "script.py", "s3://bucket/x"])
    script.write(PROGRAM, turns=600, after="raise SystemError('later')")
    process = script.start()
    until = time.monotonic() + PATIENCE_S
    while not script.manifests():
        assert time.monotonic() < until, "no snapshot"
        time.sleep(0.01)
    server.kill()
    out, told = process.communicate(timeout=2 * PATIENCE_S)
    assert "bits" in out
    assert "no snapshot was taken, and the job goes on: store s3://bucket/x/" in told
    assert "it cannot be reached: " in told
    assert SECRET not in told
    assert "AKIATEST" not in told
    # It is back: the script goes on, and ends with the bits of one that saw nothing of it.
    server.start()
    again, told = script.run(code=1)
    assert again == out
    assert "goes on from its snapshot" in told


FORKED = """
    import os
    import sys

    import brambling as br


    def job(name):
        p = br.Program(name)
        x = p.dataset("x", value=1.0)
        with p.loop(5):
            p.update(x, lambda x: x * 2)
        assert p.run(store=sys.argv[1])[x] == 32


    job("before")
    child = os.fork()
    try:
        job("behind")
    except br.Error as error:
        # Threads do not go with a fork: jobs are refused there, and nothing waits for ever.
        os._exit(7 if child == 0 and "was forked from" in str(error) else 8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""


def test_a_process_that_was_forked_waits_for_nothing_and_leaves_nothing(tmp_path, server):
    script = BucketScript(tmp_path, FORKED, server, [sys.executable, tmp_path / "script.py", "s3://bucket/x"])
    script.run()
    # The child took a place and ended without a word: what it had went with the parent's good end.
    assert server.objects() == []


def test_a_cluster_outlives_its_processes_with_a_bucket(tmp_path, server, monkeypatch):
    """A worker, the controller and the server of the bucket are killed, one after the other."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    arguments = ("controller", "--bind", address, "--state", "s3://bucket/cluster")

    def saved():
        """Waits for two snapshots more."""
        before = {path.name for path in server.objects() if path.parent.name == "manifests"}
        eventually(lambda: len({path.name for path in server.objects() if path.parent.name == "manifests"} - before) > 1)

    with contextlib.ExitStack() as stack:
        first = stack.enter_context(command(tmp_path, *arguments))
        assert address_of(first) == address
        workers = [stack.enter_context(command(tmp_path, "worker", "--controller", address, "--threads", "1")) for _ in range(3)]
        cluster = stack.enter_context(br.connect(address))
        eventually(lambda: len(cluster.status()["workers"]) == 3)
        results = []
        client = threading.Thread(target=lambda: results.append(counted(2_500).run(snapshot_every="20 turns")["x"]))
        client.start()
        saved()
        workers[0].kill()
        saved()
        first.kill()
        first.wait(PATIENCE_S)
        second = stack.enter_context(command(tmp_path, *arguments))
        assert address_of(second) == address
        saved()
        server.kill()
        time.sleep(1)
        server.start()
        workers[1].kill()
        client.join(PATIENCE_S)
        assert results == [[2_500] * 4]
        for process in (*workers, second):
            process.terminate()
