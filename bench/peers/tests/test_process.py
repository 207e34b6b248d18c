"""Workers as their caller holds them: nothing of them is ever left."""

import os
import subprocess
import sys
import time

import pytest

from peers.process import Failed, Worker

ECHO = "for line in sys.stdin: print(line.strip(), flush=True)"


def started(tmp_path, script):
    lines = "import os, signal, subprocess, sys, time\n" + script
    return Worker([sys.executable, "-c", lines], dict(os.environ), tmp_path, deadline=60)


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def ended_soon(pid):
    """Processes whose parent was ended are taken by the machine's first one, in its own time."""
    for _ in range(500):
        if not is_alive(pid):
            return True
        time.sleep(0.01)
    return False


def test_an_answer_for_each_question(tmp_path):
    worker = started(tmp_path, ECHO)
    assert [worker.ask("a", 1)["with"], worker.ask("b")["do"]] == [[1], "b"]
    worker.end()


def test_one_that_says_why_it_cannot(tmp_path):
    worker = started(tmp_path, "print('{\"error\": \"no memory\"}', flush=True)\nsys.stdin.read()")
    with pytest.raises(Failed, match="^no memory$"):
        worker.ask("load")
    worker.end()


def test_one_that_does_not_answer_in_time_is_ended_with_its_children(tmp_path):
    script = """
child = subprocess.Popen(["sleep", "1000"], process_group=0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('{"pid": %d}' % child.pid, flush=True)
time.sleep(1000)"""
    worker = started(tmp_path, script)
    child = worker.ask("load")["pid"]
    worker._deadline = 0.5
    with pytest.raises(Failed, match=r"^no answer to `go` within 0.5 s \(--deadline\)$"):
        worker.ask("go")
    assert not is_alive(child)
    assert not is_alive(worker._process.pid)


def test_half_an_answer_is_none(tmp_path):
    worker = started(tmp_path, "print('{}\\n{\"ms\":', end='', flush=True)\ntime.sleep(1000)")
    assert worker.ask("load") == {}
    worker._deadline = 0.5
    with pytest.raises(Failed, match="no answer"):
        worker.ask("go")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("sys.stdin.readline(); print('no disk', file=sys.stderr); sys.exit(3)", "ended with exit status 3: no disk"),
        ("sys.stdin.readline(); os.kill(os.getpid(), 9)", "ended by SIGKILL"),
        ("sys.exit(4)", "ended with exit status 4"),
    ],
)
def test_one_that_ends_says_how(tmp_path, script, reason):
    worker = started(tmp_path, script)
    if "readline" not in script:
        # It is asked when nobody reads.
        worker._process.wait()
    with pytest.raises(Failed) as failed:
        worker.ask("load")
    assert str(failed.value) == reason


def test_the_end_comes_by_itself_or_else_is_made(tmp_path):
    by_itself = started(tmp_path, ECHO)
    by_itself.ask("a")
    by_itself.end()
    assert by_itself._process.returncode == 0
    stubborn = started(tmp_path, ECHO + "\ntime.sleep(1000)")
    stubborn.ask("a")
    stubborn.end(patience=0.1)
    assert stubborn._process.returncode == -9


def test_a_worker_does_not_outlive_its_caller(tmp_path):
    """The caller is killed, so that it cannot end anything; the worker is in the midst of its turn."""
    caller = """
import json, os, subprocess, sys
from pathlib import Path
case = dict(data=sys.argv[1], scratch=sys.argv[1], threads=1, check=1)
asked = {"of": "peers.tests.fakes:Hangs", "iterations": [0, 1], "case": case}
command = [sys.executable, "-m", "peers.worker", json.dumps(asked)]
worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
for do in ({"do": "load", "with": []}, {"do": "solve", "with": ["result"]}):
    worker.stdin.write(json.dumps(do).encode() + b"\\n")
    worker.stdin.flush()
print(worker.pid, worker.stdout.readline().decode().strip(), flush=True)
worker.wait()
"""
    from peers.data import prepared

    data = prepared("keyed-values", {"rows": 10, "keys": 2}, tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", caller, str(data)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    pid, answer = process.stdout.readline().split(maxsplit=1)
    assert "version" in answer
    assert is_alive(pid)
    process.kill()
    process.communicate()
    child = int((data / "child").read_text())
    try:
        assert ended_soon(pid)
    finally:
        os.kill(child, 9)
